"""Figures for every kind of output that a histogram can contain."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from audit.claims import Claim
from audit.report.figures import curve_figure, histogram_figure, line_figure, trace_figure
from audit.statistical_tests.sample_outcome import Outcome
from audit.statistical_tests.trace import Trace
from tests.support.audit.parse_witness import worded

RUNS = 100_000


def bars(outputs: Any, event: str | None = None, *, feature: str | None = None) -> str:
    worlds = np.arange(len(outputs)) % 7 < 3
    return histogram_figure(worded(outputs, worlds, event, feature=feature))


def names(*kinds: Any) -> list[Any]:
    """Many values of the first kind, few of the last."""
    return [kind for i, kind in enumerate(kinds) for _ in range(RUNS // 4 ** min(i + 1, 6))]


def around(centre: float, spread: float) -> Any:
    return np.rint(centre + np.random.default_rng(7).laplace(0, spread, RUNS))


def traced(last: int, bounds: float, claim: str, delta: str = "0") -> str:
    runs = [round(64 * (last / 64) ** (k / 15)) for k in range(16)]
    points = tuple((n, bounds * (1 - 0.8**k)) for k, n in enumerate(runs))
    stated = Claim(epsilon=claim, delta=delta)
    return trace_figure(Trace(claim=stated, alpha="0.05", holds="each", points=points))


def curved(*bounds: float) -> str:
    claimed = [(k * 0.5, 10.0 ** (-2 * k - 1)) for k in range(len(bounds))]
    points = [
        Outcome(claim=Claim(epsilon=e, delta=d), epsilon_lower=bound, refuted=bound > e)
        for (e, d), bound in zip(claimed, bounds, strict=True)
    ]
    return curve_figure(claimed, points)


X = "x" * 190
SCRIPTS = ("漢字" * 40, "שלום עולם", "🔥" * 30, "e\u0301" * 60, "\u202eabc", "ﷺ" * 9)
TUPLES = [(1,) * 40 + (k,) for k in range(6)]
THIRD = Fraction(1, 3) + Fraction(1, 10**30)
TABLE: dict[str, Callable[[], str]] = {
    "categorical": lambda: bars(names("red", "blue", "a longer name, cut"), "output in {'red'}"),
    "tuples": lambda: bars(names(*TUPLES), f"output in {{{TUPLES[3]}}}"),
    "wide-integers": lambda: bars(around(10**12, 10**7), "output <= 999999000000"),
    "widest-integers": lambda: bars(around(-(2.0**52), 10**9), "output >= -4503599627370496"),
    "thousands": lambda: bars(around(8000, 4000), "output <= 8123"),
    "small-integers": lambda: bars(around(0, 3), "output <= -1 or output in {4}"),
    "few-numbers": lambda: bars(np.array([5, 77, 1e4, 1e6, 123456789.25])[np.arange(RUNS) % 5]),
    "floats": lambda: bars(around(0, 4000) / 1e9, "output < 0.00000123456789"),
    "tiny": lambda: bars(around(0, 4000) * 1e-300, "output < 1e-297"),
    "huge": lambda: bars(around(0, 4000) * 1e300),
    "strings": lambda: bars(names(*(f"{X}{k}{'y' * 9}" for k in range(5)))),
    "scripts": lambda: bars(names(*SCRIPTS)),
    "many": lambda: bars([f"category {i % 500}" for i in range(RUNS)], "output in {'category 7'}"),
    "one": lambda: bars(["only"] * 9, "output in {'only'}"),
    "one-number": lambda: bars(np.zeros(RUNS), "output >= 0"),
    "infinite": lambda: bars([math.inf, -math.inf, math.nan, 0.5] * 999, "-inf < output < inf"),
    "mixed": lambda: bars([*range(12), "stop", None] * 999, "output <= 3 or output in {'stop'}"),
    "feature": lambda: bars(names("a", "b"), feature="file.py:" + "f" * 90),
    "one-sided": lambda: bars(np.arange(RUNS) % 7 < 3, "output in {True}"),
    "trace": lambda: traced(100_000, 2.0, "1"),
    "trace-near": lambda: traced(4000, 1.0, "0.98", "1/3"),
    "trace-far": lambda: traced(10**9, 0.05, "12345678.901", "1e-9"),
    "line": lambda: line_figure(Fraction(1), 1.02, "at least 1.02"),
    "line-wide": lambda: line_figure(THIRD, 1e-9, "between 1.23456789 and 1.2345679"),
    "line-infinite": lambda: line_figure(
        Fraction("0.1"), math.inf, "infinite: no finite epsilon holds"
    ),
    "line-huge": lambda: line_figure(Fraction(10**300), 5.0, "at least 5"),
    "curve": lambda: curved(0.0, 0.7, 0.9, 2.0),
    "curve-infinite": lambda: curved(0.0, math.inf, 0.9, math.inf),
    "curve-many": lambda: curved(*(0.1 * k for k in range(140))),
}  # fmt: skip
