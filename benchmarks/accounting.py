r"""One release: how tight and how fast its curve is, beside dp-accounting where that is installed.

``python -m benchmarks.accounting [--quick]``. Ours is an enclosure: both ends, its relative width
as a power of two, and milliseconds a point. A peer's row gives its number with its default
discretisation, its excess over our upper end (positive: looser; negative by more than the last
digits: not a bound at all) and milliseconds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any

from accounting import PrivacyCurve
from benchmarks.machine import best_seconds, write
from dpcore import DiscreteGaussian, DiscreteLaplace, Enclosure, Noise, Sensitivity

GAUSSIAN = DiscreteGaussian(sigma_squared=400)
LAPLACE = DiscreteLaplace(scale=10)
CASES: tuple[tuple[Noise, str], ...] = (
    (GAUSSIAN, "1e-6"),
    (GAUSSIAN, "1e-30"),
    (GAUSSIAN, "0"),
    (DiscreteGaussian(sigma_squared=2**80), "1e-30"),
    (LAPLACE, "1e-6"),
    (LAPLACE, "0"),
)


def peer_epsilon(noise: Noise, delta: float) -> Callable[[], float] | None:
    r"""epsilon(delta) by dp-accounting's loss distributions; None where it is not installed."""
    try:
        pld = import_module("dp_accounting.pld.privacy_loss_distribution")
    except ImportError:
        return None

    def run() -> float:
        if isinstance(noise, DiscreteLaplace):
            made = pld.from_discrete_laplace_mechanism(1 / float(Fraction(noise.scale)), 1)
        else:
            sigma = float(Fraction(noise.parameters["sigma_squared"])) ** 0.5
            made = pld.from_discrete_gaussian_mechanism(sigma, sensitivity=1)
        return float(made.get_epsilon_for_delta(delta))

    return run


def epsilon_row(noise: Noise, delta: str, repeats: int) -> dict[str, Any]:
    r"""Ours and the peer on epsilon(delta) of one release."""
    curve = PrivacyCurve(noise=noise, sensitivity=Sensitivity(1))
    found = curve.epsilon(delta)
    row: dict[str, Any] = {
        "case": f"1 x {noise!r}, sensitivity 1",
        "delta": delta,
        "ours": shown(found),
        "ours_ms": 1e3 * best_seconds(lambda: curve.epsilon(delta), repeats=repeats),
    }
    # The peer's grid has a point for every loss within reach: hopeless at a deviation of 2^40.
    peer = peer_epsilon(noise, float(delta)) if noise in (GAUSSIAN, LAPLACE) else None
    if peer is not None:
        said = peer()
        row["dp_accounting"] = finite_or_text(said)
        row["dp_accounting_ms"] = 1e3 * best_seconds(peer, repeats=max(repeats // 5, 2))
        row["dp_accounting_excess"] = finite_or_text(said - found.upper_float)
        row["time_ratio"] = row["dp_accounting_ms"] / row["ours_ms"]
    return row


def shown(found: Enclosure) -> dict[str, Any]:
    r"""Both ends as floats, rounded outwards, and the exact relative width as a power of two."""
    width, upper = found.width, found.upper
    bits = None
    if isinstance(width, Fraction) and isinstance(upper, Fraction) and width > 0:
        ratio = width / upper
        bits = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return {
        "lower": finite_or_text(found.lower_float),
        "upper": finite_or_text(found.upper_float),
        "width_bits": bits,
    }


def finite_or_text(value: float) -> float | str:
    r"""JSON has no infinity: it is written as text."""
    return value if math.isfinite(value) else str(value)


def point_rows(repeats: int) -> list[dict[str, Any]]:
    r"""The other questions one may ask of a curve, in milliseconds."""
    rows = []
    for noise in (GAUSSIAN, LAPLACE):
        curve = PrivacyCurve(noise=noise, sensitivity=Sensitivity(1))
        asked: dict[str, Callable[[], object]] = {
            "delta(1/20)": partial(curve.delta, "1/20"),
            "tradeoff(1/20)": partial(curve.tradeoff, "1/20"),
            "renyi(5/2)": partial(curve.renyi, "5/2"),
            "zcdp()": curve.zcdp,
        }
        milliseconds = {k: 1e3 * best_seconds(f, repeats=repeats) for k, f in asked.items()}
        rows.append({"case": repr(curve), "ms": milliseconds})
    return rows


def main() -> None:
    r"""Measure, and write benchmarks/results/accounting.json."""
    repeats = 5 if "--quick" in sys.argv[1:] else 20
    write(
        "accounting",
        {
            "one_release": [epsilon_row(noise, delta, repeats) for noise, delta in CASES],
            "points": point_rows(repeats),
        },
    )


if __name__ == "__main__":
    main()
