r"""Measure the fit test: detection of a wrong scale, false alarms and time.

``python -m benchmarks.auditing.fit [--quick] [--jobs 2]``. alpha is 0.05; rates over repeats have
an exact 95% lower (detections) or upper (false alarms) bound. An error of 1/20 means that the scale
(for the discrete Gaussian, sigma) is larger by this fraction in half of the repeats, and smaller in
the other half.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from typing import Any

from audit.fit.fit import fit
from benchmarks.auditing.harness import at_least, at_most
from benchmarks.machine import best_seconds, write
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.noise import Noise
from dpcore.parse_noise import read_noise

_FIGURES = ((10**4, "1/20", 1000), (10**5, "1/50", 400), (10**6, "1/200", 200))
_ALPHA = "0.05"
_SCALES = (1, 10, 1000)
_CORRECT = (
    "discrete-laplace:scale=1",
    "discrete-laplace:scale=1000",
    "discrete-gaussian:sigma_squared=100",
    "skellam:variance=3",
    "poisson:mean=1/1000",
    "binomial:trials=1,probability=1/3",
)


def law(family: str, scale: Fraction) -> Noise:
    r"""The law of a family at a scale; for the Gaussian the scale is sigma."""
    if family == "discrete-laplace":
        return DiscreteLaplace(scale=scale)
    return DiscreteGaussian(sigma_squared=scale**2)


def detected(family: str, scale: int, off: str, draws: int, seed: int, *, sequential: bool) -> bool:
    r"""Whether one fit of a wrong scale is refuted."""
    sign = 1 if seed % 2 else -1
    wrong = law(family, scale * (1 + sign * Fraction(off)))
    right = law(family, Fraction(scale))
    report = fit(wrong, right, runs=draws, alpha=_ALPHA, seed=seed, sequential=sequential)
    return report.verdict == "refuted"


def alarmed(spelling: str, draws: int, seed: int, *, sequential: bool) -> bool:
    r"""Whether one fit of a correct sampler is refuted."""
    noise = read_noise(spelling)
    report = fit(noise, noise, runs=draws, alpha=_ALPHA, seed=seed, sequential=sequential)
    return report.verdict == "refuted"


def counted(one: Callable[[int], bool], repeats: int, pool: ProcessPoolExecutor) -> int:
    r"""The number of repeats that return True."""
    return sum(pool.map(one, range(repeats), chunksize=max(1, repeats // 32)))


def power(pool: ProcessPoolExecutor, share: Fraction) -> list[dict[str, Any]]:
    r"""Rates of detection of a slightly wrong scale."""
    rows = []
    for draws, off, planned in _FIGURES:
        repeats = max(20, int(planned * share))
        for family in ("discrete-laplace", "discrete-gaussian"):
            for scale in _SCALES:
                row: dict[str, Any] = {"law": family, "scale": scale, "off": off, "draws": draws}
                for form, sequential in (("fixed", False), ("sequential", True)):
                    one = partial(detected, family, scale, off, draws, sequential=sequential)
                    hits = counted(one, repeats, pool)
                    row[form] = {
                        "hits": hits,
                        "repeats": repeats,
                        "at_least": round(at_least(hits, repeats), 4),
                    }
                rows.append(row)
                print(row, file=sys.stderr)
    return rows


def alarms(pool: ProcessPoolExecutor, share: Fraction) -> list[dict[str, Any]]:
    r"""Rates of false alarms on correct samplers."""
    rows = []
    repeats = max(20, int(2000 * share))
    for spelling in _CORRECT:
        row: dict[str, Any] = {"law": spelling, "draws": 1000}
        for form, sequential in (("fixed", False), ("sequential", True)):
            hits = counted(partial(alarmed, spelling, 1000, sequential=sequential), repeats, pool)
            bound = round(at_most(hits, repeats), 4)
            row[form] = {"hits": hits, "repeats": repeats, "at_most": bound}
        rows.append(row)
        print(row, file=sys.stderr)
    return rows


def seconds() -> list[dict[str, Any]]:
    r"""Time of a fit of 1e6 draws, including the time of the sampler."""
    rows = []
    for spelling in ("discrete-laplace:scale=10", "discrete-gaussian:sigma_squared=10000"):
        noise = read_noise(spelling)
        for form, sequential in (("fixed", False), ("sequential", True)):
            work = partial(fit, noise, noise, runs=10**6, alpha=_ALPHA, sequential=sequential)
            took = best_seconds(work, repeats=3)
            rows.append({"law": spelling, "form": form, "draws": 10**6, "seconds": round(took, 3)})
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    r"""Measure, print and write results/fit.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the repeats")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    share = Fraction(1, 10) if options.quick else Fraction(1)
    with ProcessPoolExecutor(options.jobs) as pool:
        found = {"power": power(pool, share), "false_alarms": alarms(pool, share)}
    write("fit", {"alpha": float(_ALPHA), **found, "seconds": seconds()})


if __name__ == "__main__":
    main()
