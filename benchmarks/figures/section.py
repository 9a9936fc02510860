r"""The result of a study: rows of numbers, checked statements, and pictures.

A :class:`Section` is written as JSON, and the page is rendered from that JSON alone. Verdicts are
computed from paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from bandits.experiments.summary import mean_and_error
from bandits.regret_plots import Panel
from benchmarks.figures.sweep import Outcome, Ratio, ratio
from dpcore.numbers.rounding import up

__all__ = ["ERRORS", "NEAR", "Cell", "Check", "Effort", "Picture", "Section", "Verdict", "falls"]
__all__ += ["guarantee_of", "is_less", "is_same", "measured", "of_ratio", "regret_of", "rounded"]

Cell: TypeAlias = str | int | float | dict[str, float]
"""A value, or ``{"value": ..., "error": ...}`` with its standard error."""

Verdict: TypeAlias = Literal["holds", "not decided", "does not hold"]

ERRORS: Final = 2.0
"""The number of standard errors that decide a difference."""

NEAR: Final = 0.1
"""Regrets are equal if they differ by at most this fraction of the second."""

_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    r"""The horizons and numbers of instances, for a full or a quick run."""

    instances: int
    easy: int
    hard: int
    scalings: tuple[int, ...] = (1, 3, 10, 30, 100, 300)
    epsilons: tuple[str, ...] = ("0.1", "0.5", "1")
    returning: int = 10**5
    visits: tuple[int, ...] = (1, 4, 16, 64)
    real: int = 10**6
    linear: tuple[int, ...] = (10**5, 10**6, 10**7)
    linear_epsilons: tuple[str, ...] = ("1", "3", "10", "30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    r"""A statement, the setting in which it was checked, the verdict, and the figures."""

    statement: str
    where: str
    verdict: Verdict
    figures: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    r"""The picture ``name``.svg, with its panels from top to bottom."""

    name: str
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    r"""The result of one study."""

    name: str
    title: str
    note: str
    rows: tuple[Mapping[str, Cell], ...]
    checks: tuple[Check, ...]
    pictures: tuple[Picture, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "note": self.note,
            "pictures": [{"name": p.name, "title": p.title} for p in self.pictures],
            "checks": [check.to_json() for check in self.checks],
            "rows": [dict(row) for row in self.rows],
        }


def measured(value: float, error: float) -> dict[str, float]:
    r"""A cell with its standard error, both to four digits.

    >>> measured(0.0123456, 0.000123456)
    {'value': 0.01235, 'error': 0.0001235}
    """
    return {"value": rounded(value), "error": rounded(error)}


def rounded(value: float) -> float:
    r"""``value`` rounded to four digits, which do not depend on the machine."""
    return float(f"{value:.{_DIGITS}g}")


def regret_of(outcome: Outcome) -> dict[str, float]:
    r"""Reg(T)/T, the mean over instances and its standard error."""
    return measured(outcome.mean()[-1], outcome.error()[-1])


def of_ratio(found: Ratio) -> dict[str, float]:
    r"""A ratio as a cell."""
    return measured(found.value, found.error)


def guarantee_of(outcome: Outcome) -> tuple[str, str]:
    r"""The derived pure epsilon and the upper bound on epsilon at ``DELTA``, for the page."""
    if outcome.epsilon is None:
        return "none", "none"
    pure = "unbounded" if outcome.pure is None else up(Fraction(outcome.pure))
    return pure, up(outcome.epsilon)


def is_less(
    statement: str, where: str, less: Outcome, more: Outcome, *, at_most: float = 1.0
) -> Check:
    r"""Check that the regret of ``less`` is below ``at_most`` times that of ``more``, by pairs."""
    found = ratio(less.final, more.final)
    return Check(
        statement=statement,
        where=where,
        verdict=_less(less.final, [at_most * regret for regret in more.final]),
        figures=f"{found.value:.3g} ± {found.error:.2g}",
    )


def is_same(statement: str, where: str, one: Outcome, other: Outcome) -> Check:
    r"""Check that two regrets differ by at most a tenth of the second, by pairs.

    It holds if the difference is at least two standard errors below this limit, does not hold if it
    is at least two standard errors above, and is not decided otherwise.
    """
    found = ratio(one.final, other.final)
    return Check(
        statement=statement,
        where=where,
        verdict=_same(one.final, other.final),
        figures=f"{found.value:.3g} ± {found.error:.2g}",
    )


def _same(one: Sequence[float], other: Sequence[float]) -> Verdict:
    apart, error = _apart(one, other)
    mean, most = abs(apart), NEAR * mean_and_error(other)[0]
    if mean + ERRORS * error <= most:
        return "holds"
    return "does not hold" if mean - ERRORS * error > most else "not decided"


def _less(less: Sequence[float], more: Sequence[float]) -> Verdict:
    mean, error = _apart(less, more)
    if mean + ERRORS * error < 0:
        return "holds"
    return "not decided" if mean - ERRORS * error <= 0 else "does not hold"


def _apart(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    mean, error = mean_and_error([a - b for a, b in zip(one, other, strict=True)])
    return mean, error or 0.0


def falls(statement: str, where: str, values: Sequence[Ratio]) -> Check:
    r"""Check that every value is below the previous one, beyond the errors of both."""
    steps = [
        (after.value - before.value, math.hypot(after.error, before.error))
        for before, after in pairwise(values)
    ]
    if all(step + ERRORS * error < 0 for step, error in steps):
        verdict: Verdict = "holds"
    elif any(step - ERRORS * error > 0 for step, error in steps):
        verdict = "does not hold"
    else:
        verdict = "not decided"
    figures = ", ".join(f"{value.value:.3g} ± {value.error:.2g}" for value in values)
    return Check(statement=statement, where=where, verdict=verdict, figures=figures)
