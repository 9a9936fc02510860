r"""What DP-SGD spends: ours beside dp-accounting's PLD and RDP, in one run.

``python -m benchmarks.training [--quick]``. Each row: both our ends, their relative width and
milliseconds with every cache of ours emptied first; the PLD's number at its default grid, by how
much it exceeds our upper end, its milliseconds and the ratio of times; the RDP bound. Rows without
a peer are those that it takes too long for. Then the same runs with discrete Gaussian noise under a
wide shift, beside the noise on the reals. Times are the best of a few, taking turns.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any

from accounting import Composition, PoissonSampled, PrivacyCurve, calibrate, compose
from accounting.reals.noise import Gaussian
from accounting.release.real_curve import RealCurve
from benchmarks.accounting import forget
from benchmarks.machine import interleaved, write
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Relation, Scope

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)
RUNS = (
    ("1", "1/100", 10**4, "1e-6", True),
    ("0.8", "4096/50000", 10**3, "1e-5", True),
    ("1.1", "256/60000", 14062, "1e-5", True),
    ("1/2", "1/1000", 10**5, "1e-9", True),
    ("1", "1/100", 60, "1e-6", True),
    ("1", "1/100", 10**6, "1e-6", False),
    ("1", "1/100", 10**4, "1e-300", False),
)
SHIFT = 1000
WIDE = (*RUNS[:5], ("5", "1/100", 10**4, "1e-6", True))


def total(sigma: str, rate: str, rounds: int) -> Composition:
    r"""The sampled rounds."""
    curve = RealCurve(noise=Gaussian(sigma=sigma), sensitivity=1, scope=ADD_REMOVE)
    return compose((PoissonSampled(curve=curve, rate=rate), rounds))


def ours(run: Composition, delta: str) -> Any:
    r"""Both ends, from nothing."""
    forget()
    return run.epsilon(delta)


def theirs(kind: str, sigma: str, rate: str, rounds: int, delta: str) -> float:
    r"""The number of one of dp-accounting's accountants at its defaults."""
    dp = import_module("dp_accounting")
    accountant = dp.pld.PLDAccountant() if kind == "pld" else dp.rdp.RdpAccountant()
    event = dp.PoissonSampledDpEvent(
        float(Fraction(rate)), dp.GaussianDpEvent(float(Fraction(sigma)))
    )
    return float(accountant.compose(event, rounds).get_epsilon(float(delta)))


def row(run: tuple[str, str, int, str, bool], repeats: int) -> dict[str, Any]:
    r"""One row."""
    sigma, rate, rounds, delta, peers = run
    composed = total(sigma, rate, rounds)
    works: dict[str, Any] = {"ours": partial(ours, composed, delta)}
    if peers:
        works["pld"] = partial(theirs, "pld", sigma, rate, rounds, delta)
    seconds = interleaved(works, repeats=repeats)
    found = composed.epsilon(delta)
    assert found.lower is not None  # both directions are attained
    answer: dict[str, Any] = {
        "sigma": sigma,
        "rate": rate,
        "rounds": rounds,
        "delta": delta,
        "epsilon": found.to_json(),
        "relative_width": float((found.upper - found.lower) / found.upper),
        "ms": 1000 * seconds["ours"],
    }
    if peers:
        pld = works["pld"]()
        answer["pld"] = {
            "epsilon": pld,
            "excess": pld - found.upper_float,
            "ms": 1000 * seconds["pld"],
            "times_ours": seconds["pld"] / seconds["ours"],
        }
        answer["rdp"] = theirs("rdp", sigma, rate, rounds, delta)
    return answer


def wide(run: tuple[str, str, int, str, bool], repeats: int) -> dict[str, Any]:
    r"""The same run with noise on the integers, ``SHIFT`` of them for the shift of 1."""
    sigma, rate, rounds, delta, _ = run
    noise = DiscreteGaussian(sigma_squared=(Fraction(sigma) * SHIFT) ** 2)
    curve = PrivacyCurve(noise=noise, sensitivity=SHIFT, scope=ADD_REMOVE)
    composed = compose((PoissonSampled(curve=curve, rate=rate), rounds))
    works = {
        "discrete": partial(ours, composed, delta),
        "real": partial(ours, total(sigma, rate, rounds), delta),
    }
    seconds = interleaved(works, repeats=repeats)
    found = composed.epsilon(delta)
    assert found.lower is not None  # both directions are attained
    return {
        "sigma": str(Fraction(sigma) * SHIFT),
        "shift": SHIFT,
        "rate": rate,
        "rounds": rounds,
        "delta": delta,
        "epsilon": found.to_json(),
        "relative_width": float((found.upper - found.lower) / found.upper),
        "ms": 1000 * seconds["discrete"],
        "times_the_real_one": seconds["discrete"] / seconds["real"],
    }


def calibration(repeats: int) -> dict[str, Any]:
    r"""The least sigma for the run of the page."""

    def work() -> Any:
        forget()
        return calibrate(noise="gaussian", epsilon=2, delta="1e-5", rounds=14062, rate="256/60000")

    seconds = interleaved({"": work}, repeats=repeats)[""]
    return {**work().to_json(), "ms": 1000 * seconds}


def main() -> None:
    r"""Measure, and write benchmarks/results/training.json."""
    repeats = 1 if "--quick" in sys.argv[1:] else 5
    write(
        "training",
        {
            "runs": [row(run, repeats) for run in RUNS],
            "wide": [wide(run, repeats) for run in WIDE],
            "calibration": calibration(repeats),
        },
    )


if __name__ == "__main__":
    main()
