r"""The cost of DP-SGD by dpcore and by the PLD and RDP accountants of dp-accounting, in one run.

``python -m benchmarks.training [--quick]``. Each row has both bounds of dpcore, their relative
width and the milliseconds with all caches of dpcore emptied first; the epsilon of the PLD
accountant at its default grid, its excess over our upper bound, its milliseconds and the ratio of
times; the RDP bound; and, in the first rows, the PLD epsilon at a grid of 1e-5 and the bounds of
prv-accountant, timed once. A peer is omitted from rows that take it too long. Further rows are the
same runs with discrete Gaussian noise at a large scale, compared with noise on the reals; vectors;
samples of a fixed size, compared with RDP; a delta far below all floats; and the command itself.
Times are the least of a few calls that take turns.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from importlib import import_module
from math import isqrt
from typing import Any

from accounting import (
    Composition,
    FixedSizeSampled,
    PoissonSampled,
    PrivacyCurve,
    calibrate,
    compose,
)
from accounting.descriptions.real_noise import Gaussian
from accounting.privacy_curves.real_noise_curve import RealCurve
from benchmarks.accounting import forget
from benchmarks.machine import interleaved, write
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Relation, Scope, Sensitivity

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
SLOW_PEERS = 3
SHIFT = 1000
COMMAND = "budget epsilon --noise gaussian:sigma=1 --poisson 1% --rounds 10000 --delta 1e-6"
WIDE = (*RUNS[:5], ("5", "1/100", 10**4, "1e-6", True))


def total(sigma: str, rate: str, rounds: int) -> Composition:
    r"""The composition of the sampled rounds."""
    curve = RealCurve(noise=Gaussian(sigma=sigma), sensitivity=1, scope=ADD_REMOVE)
    return compose((PoissonSampled(curve=curve, rate=rate), rounds))


def ours(run: Composition, delta: str) -> Any:
    r"""Both bounds of dpcore, computed with empty caches."""
    forget()
    return run.epsilon(delta)


def theirs(kind: str, sigma: str, rate: str, rounds: int, delta: str, grid: float = 1e-4) -> float:
    r"""The epsilon of an accountant of dp-accounting; PLD uses its default grid."""
    dp = import_module("dp_accounting")
    accountant = (
        dp.pld.PLDAccountant(value_discretization_interval=grid)
        if kind == "pld"
        else dp.rdp.RdpAccountant()
    )
    event = dp.PoissonSampledDpEvent(
        float(Fraction(rate)), dp.GaussianDpEvent(float(Fraction(sigma)))
    )
    return float(accountant.compose(event, rounds).get_epsilon(float(delta)))


def bracket(sigma: str, rate: str, rounds: int, delta: str) -> list[float]:
    r"""Both bounds of prv-accountant, with its estimate between them."""
    prv = import_module("prv_accountant")
    law = prv.PoissonSubsampledGaussianMechanism(
        noise_multiplier=float(Fraction(sigma)), sampling_probability=float(Fraction(rate))
    )
    accountant = prv.PRVAccountant(
        prvs=law, max_self_compositions=rounds, eps_error=0.01, delta_error=float(delta) / 1000
    )
    return [float(end) for end in accountant.compute_epsilon(float(delta), rounds)]


def once(work: Callable[[], Any]) -> tuple[Any, float]:
    r"""The result of one call, and its milliseconds."""
    start = time.perf_counter()
    found = work()
    return found, 1000 * (time.perf_counter() - start)


def row(run: tuple[str, str, int, str, bool], repeats: int) -> dict[str, Any]:
    r"""A row of the results for one training run."""
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
    if run in RUNS[:SLOW_PEERS]:
        fine, ms = once(partial(theirs, "pld", sigma, rate, rounds, delta, 1e-5))
        answer["pld_fine"] = {"epsilon": fine, "grid": 1e-5, "ms": ms}
        ends, ms = once(partial(bracket, sigma, rate, rounds, delta))
        answer["prv"] = {"lower": ends[0], "estimate": ends[1], "upper": ends[2], "ms": ms}
    return answer


def wide(run: tuple[str, str, int, str, bool], repeats: int) -> dict[str, Any]:
    r"""The same run with noise on the integers, where the shift of 1 is ``SHIFT`` steps."""
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


def vectors(repeats: int) -> list[dict[str, Any]]:
    r"""Sampled vectors with an l2 sensitivity, compared with a single number."""
    found = []
    for squared in (64, 256):
        curve = RealCurve(
            noise=Gaussian(sigma=4), sensitivity=Sensitivity.l2_squared(squared), scope=ADD_REMOVE
        )
        one = total(str(Fraction(4, isqrt(squared))), "1/100", 1000)
        many = compose((PoissonSampled(curve=curve, rate="1/100"), 1000))
        seconds = interleaved(
            {"vector": partial(ours, many, "1e-6"), "number": partial(ours, one, "1e-6")},
            repeats=repeats,
        )
        found.append(
            {
                "l2_squared": squared,
                "epsilon": many.epsilon("1e-6").to_json(),
                "of_a_number": one.epsilon("1e-6").to_json(),
                "ms": 1000 * seconds["vector"],
                "times_a_number": seconds["vector"] / seconds["number"],
            }
        )
    return found


def fixed(sigma: int) -> dict[str, Any]:
    r"""Upper bounds for samples of 100 of 10,000; replacing an example changes the sum by 1."""
    curve = RealCurve(noise=Gaussian(sigma=sigma), sensitivity=1)
    run = compose((FixedSizeSampled(curve=curve, sample=100, population=10_000), 10_000))
    found, ms = once(partial(ours, run, "1e-6"))
    dp = import_module("dp_accounting")
    relation = dp.NeighboringRelation.REPLACE_ONE
    event = dp.SampledWithoutReplacementDpEvent(10_000, 100, dp.GaussianDpEvent(float(sigma)))
    rdp = dp.rdp.RdpAccountant(neighboring_relation=relation).compose(event, 10_000)
    return {
        "sigma": sigma,
        "epsilon": found.to_json(),
        "ms": ms,
        "rdp": float(rdp.get_epsilon(1e-6)),
    }


def deep() -> dict[str, Any]:
    r"""delta(1) of 1,000 rounds with sigma 4 and rate 1%, about 1e-34."""
    run = total("4", "1/100", 1000)

    def work() -> Any:
        forget()
        return run.delta(1)

    found, ms = once(work)
    return {"sigma": "4", "rate": "1/100", "rounds": 1000, "delta": found.to_json(), "ms": ms}


def command(repeats: int) -> dict[str, Any]:
    r"""The time of the first row as a command, including the start of Python and all imports."""
    words = [sys.executable, "-m", "dpcore", *COMMAND.split()]
    work = partial(subprocess.run, words, check=True, capture_output=True)
    return {
        "line": f"dpcore {COMMAND}",
        "ms": 1000 * interleaved({"": work}, repeats=repeats)[""],
    }


def calibration(repeats: int) -> dict[str, Any]:
    r"""The least sigma for the training run of docs/cost_of_dpsgd.md."""

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
            "vectors": vectors(repeats),
            "fixed": [fixed(sigma) for sigma in (1, 2, 4)],
            "deep": deep(),
            "whole_command": command(repeats),
            "calibration": calibration(repeats),
        },
    )


if __name__ == "__main__":
    main()
