r"""Tightness and speed of the accountant, compared with dp-accounting and prv-accountant.

``python -m benchmarks.accounting [--quick]``. For dpcore each row has both bounds, their width, and
the milliseconds with all caches and tables of dpcore emptied first (``again_ms``: the time of a
second call). For a peer it has the epsilon with its default discretisation, its excess over our
upper bound (positive: looser; clearly negative: not an upper bound), milliseconds and the ratio of
times. BLAS uses one thread. ``truth`` has the digits on which both our bounds agree.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # numpy reads this variable when it is loaded, so it must be set before any import of numpy.
    os.environ[_threads] = "1"

from accounting import PrivacyCurve  # noqa: E402  # after the threads are set
from accounting.composition.compose import compose  # noqa: E402  # after the threads are set
from accounting.guarantees.bound import Bound  # noqa: E402  # after the threads are set
from accounting.published_noise_bounds import skellam_renyi_bound  # noqa: E402  # after the threads are set
from benchmarks.machine import best_seconds, write  # noqa: E402  # after the threads are set
from dpcore import DiscreteGaussian, DiscreteLaplace, Enclosure, Noise, Sensitivity  # noqa: E402  # after the threads are set
from dpcore.laws.polya import PolyaDifference  # noqa: E402  # after the threads are set
from dpcore.laws.skellam import Skellam  # noqa: E402  # after the threads are set

GAUSSIAN = DiscreteGaussian(sigma_squared=400)
LAPLACE = DiscreteLaplace(scale=20)
ONE_LAPLACE = DiscreteLaplace(scale=10)
RENYI_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    r"""A list of (noise, shift, rounds), the requested delta, and the largest allowed width."""

    name: str
    parts: tuple[tuple[Noise, int, int], ...]
    delta: str
    relative: tuple[str, ...] = ("1e-8",)
    peers: tuple[str, ...] = ()


def repeated(rounds: int, noise: Noise, name: str, delta: str, **more: Any) -> Case:
    shift = more.pop("shift", 1)
    return Case(name=f"{rounds} x {name}", parts=((noise, shift, rounds),), delta=delta, **more)


_GAUSSIAN: dict[str, Any] = {"relative": ("1e-11",), "peers": ("pld", "rdp", "prv")}
_LAPLACE: dict[str, Any] = {"relative": ("1e-11",), "peers": ("pld", "rdp")}
_SKELLAM: dict[str, Any] = {"relative": ("1e-6", "1e-8")}
_SIGMAS = range(20, 50)

CASES: tuple[Case, ...] = (
    repeated(1000, GAUSSIAN, "discrete Gaussian, sigma 20", "1e-6", **_GAUSSIAN),
    repeated(1000, GAUSSIAN, "discrete Gaussian, sigma 20", "1e-12", **_GAUSSIAN),
    repeated(1000, GAUSSIAN, "discrete Gaussian, sigma 20", "1e-30", **_GAUSSIAN),
    repeated(100, GAUSSIAN, "discrete Gaussian, sigma 20", "1e-6", **_GAUSSIAN),
    repeated(10_000, GAUSSIAN, "discrete Gaussian, sigma 20", "1e-6", **_GAUSSIAN),
    repeated(1000, LAPLACE, "discrete Laplace, scale 20", "1e-6", **_LAPLACE),
    repeated(100, LAPLACE, "discrete Laplace, scale 20", "1e-6", **_LAPLACE),
    repeated(1000, LAPLACE, "discrete Laplace, scale 20", "0", **_LAPLACE),
    repeated(
        1000,
        DiscreteLaplace(scale=200),
        "discrete Laplace, scale 200, shift 10",
        "1e-6",
        shift=10,
        **_LAPLACE,
    ),
    repeated(1, GAUSSIAN, "discrete Gaussian, sigma 20", "1e-30", **_GAUSSIAN),
    repeated(1000, Skellam(variance=400), "Skellam, variance 400", "1e-6", **_SKELLAM),
    repeated(
        1000,
        Skellam(variance=102_400),
        "Skellam, variance 102400, shift 16",
        "1e-6",
        shift=16,
        **_SKELLAM,
    ),
    repeated(
        1000,
        PolyaDifference(shape="9/10", scale=20),
        "Polya difference (9/10, 20)",
        "1e-6",
        relative=("1e-6", "1e-8"),
    ),
    Case(
        name="30 discrete Gaussians, sigma 20..49",
        parts=tuple((DiscreteGaussian(sigma_squared=s * s), 1, 1) for s in _SIGMAS),
        delta="1e-6",
        relative=("1e-8",),
        peers=("pld", "rdp", "prv"),
    ),
    Case(
        name="300 + 300 + 300 of Skellam, discrete Laplace, Polya difference",
        parts=(
            (Skellam(variance=400), 1, 300),
            (LAPLACE, 1, 300),
            (PolyaDifference(shape="9/10", scale=20), 1, 300),
        ),
        delta="1e-6",
        relative=("1e-8",),
    ),
)

ONE_RELEASE: tuple[tuple[Noise, str], ...] = (
    (GAUSSIAN, "1e-6"),
    (GAUSSIAN, "1e-30"),
    (GAUSSIAN, "0"),
    (DiscreteGaussian(sigma_squared=2**80), "1e-30"),
    (ONE_LAPLACE, "1e-6"),
    (ONE_LAPLACE, "0"),
)


# -- peers ------------------------------------------------------------------------------------

Peer = Callable[[], float]


def peer(name: str, case: Case) -> Peer | None:
    r"""epsilon(delta) of the case, computed by one peer; None if the peer is not installed."""
    try:
        return {"pld": _pld, "rdp": _rdp, "prv": _prv}[name](case)
    except ImportError:
        return None


def _sigma(noise: Noise) -> float:
    return math.sqrt(float(Fraction(noise.parameters["sigma_squared"])))


def _scale(noise: Noise) -> float:
    return float(Fraction(noise.parameters["scale"]))


def _pld(case: Case) -> Peer:
    # Version 0.6 has functions, not events, for discrete noise.
    pld = import_module("dp_accounting.pld.privacy_loss_distribution")

    def run() -> float:
        total = pld.identity()
        for noise, shift, rounds in case.parts:
            if isinstance(noise, DiscreteLaplace):
                one = pld.from_discrete_laplace_mechanism(1 / _scale(noise), shift)
            else:
                one = pld.from_discrete_gaussian_mechanism(_sigma(noise), sensitivity=shift)
            total = total.compose(one.self_compose(rounds) if rounds > 1 else one)
        return float(total.get_epsilon_for_delta(float(case.delta)))

    return run


def _rdp(case: Case) -> Peer:
    # The peer's events: Gaussian (whose Renyi curve bounds that of the discrete law) and Laplace.
    events = import_module("dp_accounting.dp_event")
    rdp = import_module("dp_accounting.rdp.rdp_privacy_accountant")

    def run() -> float:
        accountant = rdp.RdpAccountant(list(RENYI_ORDERS))
        for noise, shift, rounds in case.parts:
            if isinstance(noise, DiscreteLaplace):
                event = events.DiscreteLaplaceDpEvent(1 / _scale(noise), shift)
            else:
                event = events.GaussianDpEvent(_sigma(noise) / shift)
            accountant.compose(event, rounds)
        return float(accountant.get_epsilon(float(case.delta)))

    return run


def _prv(case: Case) -> Peer:
    # Only for Gaussian noise on the reals: close to the discrete law, but not a bound on it.
    prv = import_module("prv_accountant")

    def run() -> float:
        laws = [prv.GaussianMechanism(noise_multiplier=_sigma(noise)) for noise, _, _ in case.parts]
        counts = [rounds for _, _, rounds in case.parts]
        accountant = prv.PRVAccountant(
            prvs=laws, max_self_compositions=counts, eps_error=0.01, delta_error=1e-10
        )
        return float(accountant.compute_epsilon(float(case.delta), counts)[2])

    return run


def asked(name: str, case: Case, repeats: int) -> dict[str, Any]:
    r"""The epsilon and the time of a peer for a case, or the reason why it has none."""
    run = peer(name, case)
    if run is None:
        return {"refused": "not installed"}
    try:
        said = run()
    except Exception as refusal:  # noqa: BLE001 - a peer may refuse in any way it likes
        return {"refused": f"{type(refusal).__name__}: {refusal}"[:160]}
    return {"epsilon": finite_or_text(said), "ms": 1e3 * best_seconds(run, repeats=repeats)}


def fresh_seconds(work: Callable[[], object], repeats: int) -> float:
    r"""The least time of a call with all caches of dpcore emptied."""
    best = math.inf
    for _ in range(repeats):
        forget()
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def forget() -> None:
    r"""Empty the caches of the functions of accounting and dpcore."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("accounting", "dpcore"):
            for each in vars(module).values():
                clear = getattr(each, "cache_clear", None)
                if clear is not None:
                    clear()


# -- rows -------------------------------------------------------------------------------------


def total_row(case: Case, relative: str, repeats: int) -> dict[str, Any]:
    r"""A row with epsilon(delta) of a list of releases, by dpcore and by the peers."""
    total = compose(
        *(
            (PrivacyCurve(noise=noise, sensitivity=Sensitivity(shift)), rounds)
            for noise, shift, rounds in case.parts
        )
    )
    run = partial(total.epsilon, case.delta, relative)
    found = run()
    row: dict[str, Any] = {
        "case": case.name,
        "delta": case.delta,
        "relative": relative,
        "truth": agreed(found),
        "ours": shown(found),
        "method": found.method,
        "ours_ms": 1e3 * fresh_seconds(run, repeats),
        "again_ms": 1e3 * best_seconds(run, repeats=repeats),
    }
    for name in case.peers:
        said = asked(name, case, max(repeats // 5, 2))
        if "ms" in said:
            value = said["epsilon"]
            if isinstance(value, float):
                said["excess"] = value - found.upper_float
            said["time_ratio"] = said["ms"] / row["ours_ms"]
        row[name] = said
    return row


def renyi_row(repeats: int) -> dict[str, Any]:
    r"""The exact divergence of Skellam noise, the bound of Chowdhury and Zhou, and their ratio."""
    order, shift, variance = 32, 4, 16
    run = partial(PrivacyCurve(noise=Skellam(variance=variance), sensitivity=shift).renyi, order)
    found, stated = run(), skellam_renyi_bound(order, variance, shift)
    # The least variance on a grid of 1/64 that satisfies the bound; divergences decrease with it.
    low, high = 0, 64 * variance
    while high - low > 1:
        middle = (low + high) // 2
        curve = PrivacyCurve(noise=Skellam(variance=Fraction(middle, 64)), sensitivity=shift)
        low, high = (low, middle) if curve.renyi(order).upper <= stated else (middle, high)
    return {
        "case": f"Skellam, variance {variance}, shift {shift}, order {order}",
        "ours": shown(found),
        "lemma": float(stated),
        "ours_ms": 1e3 * fresh_seconds(run, repeats),
        "variance_for_the_lemma": high / 64,
        "deviation_saved": 1 - math.sqrt(high / 64 / variance),
    }


def epsilon_row(noise: Noise, delta: str, repeats: int) -> dict[str, Any]:
    r"""A row with epsilon(delta) of one release, by dpcore and by the peer."""
    curve = PrivacyCurve(noise=noise, sensitivity=Sensitivity(1))
    found = curve.epsilon(delta)
    row: dict[str, Any] = {
        "case": f"1 x {noise!r}, sensitivity 1",
        "delta": delta,
        "ours": shown(found),
        "ours_ms": 1e3 * fresh_seconds(lambda: curve.epsilon(delta), repeats),
    }
    # The peer's grid has a point for every loss in its range: infeasible at a deviation of 2^40.
    if noise not in (GAUSSIAN, ONE_LAPLACE):
        return row
    case = Case(name=repr(noise), parts=((noise, 1, 1),), delta=delta)
    said = asked("pld", case, max(repeats // 5, 2))
    if "ms" in said:
        row["dp_accounting"] = said["epsilon"]
        row["dp_accounting_ms"] = said["ms"]
        if isinstance(said["epsilon"], float):
            row["dp_accounting_excess"] = said["epsilon"] - found.upper_float
        row["time_ratio"] = said["ms"] / row["ours_ms"]
    return row


def point_rows(repeats: int) -> list[dict[str, Any]]:
    r"""Rows with the milliseconds of the other methods of a curve."""
    rows = []
    for noise in (GAUSSIAN, ONE_LAPLACE):
        curve = PrivacyCurve(noise=noise, sensitivity=Sensitivity(1))
        questions: dict[str, Callable[[], object]] = {
            "delta(1/20)": partial(curve.delta, "1/20"),
            "tradeoff(1/20)": partial(curve.tradeoff, "1/20"),
            "renyi(5/2)": partial(curve.renyi, "5/2"),
            "zcdp()": curve.zcdp,
        }
        milliseconds = {k: 1e3 * fresh_seconds(f, repeats) for k, f in questions.items()}
        rows.append({"case": repr(curve), "ms": milliseconds})
    return rows


def shown(found: Enclosure | Bound) -> dict[str, Any]:
    r"""Both bounds as floats, rounded outwards, and the exact width, also as a power of two."""
    low, upper = found.lower, found.upper
    width = bits = None
    if isinstance(low, Fraction) and isinstance(upper, Fraction):
        width = float(upper - low)
        if upper > low:
            ratio = (upper - low) / upper
            bits = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    lower_float = found.lower_float
    return {
        "lower": None if lower_float is None else finite_or_text(lower_float),
        "upper": finite_or_text(found.upper_float),
        "width": width,
        "width_bits": bits,
    }


def agreed(found: Enclosure | Bound) -> str | None:
    r"""The decimal digits, at most 15, on which both bounds agree."""
    if found.lower is None:
        return None
    for digits in range(15, 0, -1):
        low, high = f"{float(found.lower):.{digits}g}", f"{float(found.upper):.{digits}g}"
        if low == high:
            return low
    return None


def finite_or_text(value: float) -> float | str:
    r"""Write infinity as text, because JSON has no infinity."""
    return value if math.isfinite(value) else str(value)


def table(rows: list[dict[str, Any]]) -> str:
    r"""The rows of totals as text: case, bounds of dpcore, peers, times and ratios."""
    lines = []
    for row in rows:
        ours = row["ours"]
        lines.append(
            f"{row['case']}, delta {row['delta']}: {row['truth']} "
            f"[{ours['lower']}, {ours['upper']}] {row['ours_ms']:.2f} ms"
        )
        for name in ("pld", "rdp", "prv"):
            said = row.get(name)
            if said is not None and "ms" in said:
                lines.append(
                    f"    {name}: {said['epsilon']} {said['ms']:.1f} ms, {said['time_ratio']:.1f} x"
                )
            elif said is not None:
                lines.append(f"    {name}: {said['refused']}")
    return "\n".join(lines)


def main() -> None:
    r"""Measure, and write benchmarks/results/accounting.json."""
    repeats = 5 if "--quick" in sys.argv[1:] else 20
    totals = [total_row(case, width, repeats) for case in CASES for width in case.relative]
    sys.stderr.write(table(totals) + "\n")
    write(
        "accounting",
        {
            "totals": totals,
            "renyi": renyi_row(repeats),
            "one_release": [epsilon_row(noise, delta, repeats) for noise, delta in ONE_RELEASE],
            "points": point_rows(repeats),
        },
    )


if __name__ == "__main__":
    main()
