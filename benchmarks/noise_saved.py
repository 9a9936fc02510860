r"""The noise that the exact laws and the papers' bounds need for the same proven guarantee.

``python -m benchmarks.noise_saved [--quick]``. Every row has a guarantee, the noise variance that
the paper's theorem requires, the least variance that the exact law needs (certified: one grid step
less fails), and the ratio of the two. Variances are in squared steps, for one coordinate, rounded
to the nearest float; milliseconds are those of the exact calibration. CZ is Chowdhury and Zhou
2023, TKMS Tenenbaum and others 2021, LZJ Li, Zhou and Ji 2022.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from flint import arb
from rich.console import Console
from rich.table import Table

from accounting import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import lzj_vector, tkms_bits
from accounting.protocol_guarantees.shuffled_bits_guarantee import fewest_bits
from accounting.published_noise_bounds import (
    gaussian_sum_epsilon,
    real_gaussian_delta,
    real_gaussian_ratio,
    skellam_renyi_bound,
)
from bandits.privatizers.vector_averages import lzj_classical_gaussian
from benchmarks.machine import write
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.integer_search import least

GRID = 1024
DELTA = "1e-6"
ORDERS = 512


def row(case: str, guarantee: str, theirs: float, ours: float, seconds: float) -> dict[str, Any]:
    r"""One line of the table."""
    return {
        "case": case,
        "guarantee": guarantee,
        "paper_variance": theirs,
        "exact_variance": ours,
        "variance_ratio": theirs / ours,
        "deviation_ratio": math.sqrt(theirs / ours),
        "exact_ms": 1e3 * seconds,
    }


def binary_rows() -> list[dict[str, Any]]:
    r"""Rows that compare TKMS Algorithm 3 with the least number of fair bits."""
    rows = []
    for epsilon in ("0.5", "0.1"):
        start = time.perf_counter()
        found = fewest_bits(epsilon=epsilon, delta=DELTA)
        seconds = time.perf_counter() - start
        paper = tkms_bits(1, epsilon, DELTA)
        made = row(
            "binary shuffle, TKMS Algorithm 3",
            f"({epsilon}, {DELTA})",
            paper.trials / 4,
            found / 4,
            seconds,
        )
        rows.append({**made, "paper_bits": paper.trials, "exact_bits": found})
    return rows


def vector_rows() -> list[dict[str, Any]]:
    r"""Rows that compare LZJ Algorithm 2 with the fewest bits (box) and Gaussian noise (l2 ball).

    The exact bits protect a user who changes every coordinate by all g steps, which is more than
    the paper promises: its vectors have l2 norm at most Delta, and 2 Delta is g steps.
    """
    rows = []
    for coordinates, epsilon, delta in ((1, "1", DELTA), (20, "1", DELTA), (20, "10", "0.25")):
        paper = lzj_vector(1000, coordinates, epsilon, delta)
        g = paper.precision
        start = time.perf_counter()
        found = fewest_bits(epsilon=epsilon, delta=delta, bounds=(g,) * coordinates)
        seconds = time.perf_counter() - start
        theirs = float(Fraction(paper.variance.upper))
        made = row(
            f"vector shuffle, LZJ Algorithm 2, s = {coordinates}, g = {g}",
            f"({epsilon}, {delta})",
            theirs,
            found / 4,
            seconds,
        )
        gaussian = g * real_gaussian_ratio(epsilon, delta).upper_float
        rows.append(
            {
                **made,
                "paper_bits": paper.trials,
                "exact_bits": found,
                "deviation_over_real_gaussian_l2": math.sqrt(theirs) / gaussian,
            }
        )
    return rows


def least_on_grid(holds: Callable[[Fraction], bool], start: Fraction) -> Fraction:
    r"""The least multiple of start/1024 for which ``holds`` is true."""
    return start / GRID * least(lambda j: j >= 1 and holds(start / GRID * j), GRID)


def from_renyi(bound: Callable[[int], Fraction], delta: Fraction) -> Fraction:
    r"""Canonne, Kamath and Steinke, Prop. 12: the least epsilon over integer orders, rounded up."""
    with precision(64):
        found = []
        for order in range(2, ORDERS + 1):
            excess = -(order * ball(delta)).log() / (order - 1) + (1 - arb(1) / order).log()
            found.append(Fraction(Enclosure.of(ball(bound(order)) + excess).upper))
    return min(found)


def skellam_rows() -> list[dict[str, Any]]:
    r"""Rows that compare CZ Lemma 3 with the exact curve, at (epsilon, delta) or a Renyi order."""
    rows = []
    for epsilon, d in ((Fraction(1), 1), (Fraction(1), 16), (Fraction(1, 10), 1)):
        delta = Fraction(DELTA)
        start = Fraction(round((d * real_gaussian_ratio(epsilon, delta).upper_float) ** 2 + 1))

        def by_lemma(v: Fraction, e: Fraction = epsilon, step: int = d) -> bool:
            bound = from_renyi(lambda a: skellam_renyi_bound(a, v, step), Fraction(DELTA))
            return bound <= e

        def by_curve(v: Fraction, e: Fraction = epsilon, step: int = d) -> bool:
            curve = PrivacyCurve(noise=Skellam(variance=v), sensitivity=step)
            return curve.delta(e).upper <= Fraction(DELTA)

        theirs = least_on_grid(by_lemma, start)
        begun = time.perf_counter()
        ours = least_on_grid(by_curve, start)
        seconds = time.perf_counter() - begun
        case = f"Skellam, sensitivity {d}, CZ Lemma 3 and Renyi conversion"
        rows.append(row(case, f"({epsilon}, {DELTA})", float(theirs), float(ours), seconds))
    for order, d, v in ((32, 4, 16), (8, 4, 16)):
        goal = skellam_renyi_bound(order, v, d)

        def exact(u: Fraction, a: int = order, step: int = d, most: Fraction = goal) -> bool:
            return PrivacyCurve(noise=Skellam(variance=u), sensitivity=step).renyi(a).upper <= most

        begun = time.perf_counter()
        needed = least_on_grid(exact, Fraction(v))
        seconds = time.perf_counter() - begun
        case = f"Skellam, sensitivity {d}, CZ Lemma 3, order {order}"
        rows.append(row(case, f"D_{order} <= {float(goal)}", float(v), float(needed), seconds))
    return rows


def gaussian_sum_rows() -> list[dict[str, Any]]:
    r"""Rows that compare Proposition 13 (CZ Lemma 4), by zCDP, with the exact curve of the sum."""
    rows = []
    for count, d in ((16, 1), (16, 4), (100, 4)):
        ratio = real_gaussian_ratio(1, DELTA).upper_float
        start = Fraction(round((d * ratio) ** 2 + 1), count)

        def by_bound(v: Fraction, n: int = count, step: int = d) -> bool:
            if v < Fraction(1, 4):
                return False
            rho = Fraction(gaussian_sum_epsilon(n, v, step).upper) ** 2 / 2
            return from_renyi(lambda a: a * rho, Fraction(DELTA)) <= 1

        def by_curve(v: Fraction, n: int = count, step: int = d) -> bool:
            noise = DiscreteGaussianSum(count=n, sigma_squared=v)
            return PrivacyCurve(noise=noise, sensitivity=step).delta(1).upper <= Fraction(DELTA)

        theirs = least_on_grid(by_bound, start)
        begun = time.perf_counter()
        ours = least_on_grid(by_curve, start)
        seconds = time.perf_counter() - begun
        case = f"sum of {count} discrete Gaussians, sensitivity {d}, Proposition 13"
        made = row(case, f"(1, {DELTA})", float(theirs * count), float(ours * count), seconds)
        rows.append(made)
    return rows


def classical_rows() -> list[dict[str, Any]]:
    r"""Rows with the true delta of the classical Gaussian calibration beyond epsilon = 1 (LZJ)."""
    rows = []
    for epsilon, delta in (("10", "0.25"), ("10", DELTA)):
        ratio = lzj_classical_gaussian(epsilon, delta)
        true = real_gaussian_delta(ratio.upper, epsilon)
        needed = real_gaussian_ratio(epsilon, delta)
        rows.append(
            {
                "case": "real Gaussian, LZJ Theorem 4.2",
                "claimed": f"({epsilon}, {delta})",
                "ratio_used": float(Fraction(ratio.upper)),
                "ratio_needed": float(Fraction(needed.upper)),
                "true_delta": float(Fraction(true.lower)),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    r"""The rows as a text table."""
    shown = Table(title="Noise variance for the same proven guarantee")
    for heading in ("case", "guarantee", "paper", "exact", "variance ratio", "ms"):
        shown.add_column(heading, justify="left" if heading in ("case", "guarantee") else "right")
    for made in rows:
        shown.add_row(
            made["case"],
            made["guarantee"],
            f"{made['paper_variance']:.6g}",
            f"{made['exact_variance']:.6g}",
            f"{made['variance_ratio']:.4g}",
            f"{made['exact_ms']:.0f}",
        )
    return shown


def main() -> None:
    r"""Measure, print the table, and write benchmarks/results/noise_saved.json."""
    parts = {
        "binary_shuffle": binary_rows(),
        "vector_shuffle": vector_rows()[: 1 if "--quick" in sys.argv[1:] else None],
        "skellam": skellam_rows(),
        "gaussian_sum": gaussian_sum_rows(),
    }
    write("noise_saved", {**parts, "classical_gaussian": classical_rows()})
    Console(width=120).print(table([made for rows in parts.values() for made in rows]))


if __name__ == "__main__":
    main()
