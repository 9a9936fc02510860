"""Size of long tests: ``make test`` runs a fixed part, ``make nightly`` everything.

``@by_day(6)`` keeps six cases of a parametrised test, evenly spread, and the others run nightly;
``spread(cases, 6)`` does the same for the cases inside one test, and ``effort(50, 300)`` is 50 by
day and 300 nightly. The choice is deterministic, every run prints the number of omitted cases, and
no bound or alpha changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

__all__ = ["by_day", "effort", "run_everything", "spread", "waiting"]

Case = TypeVar("Case")

_everything = False


def run_everything(everything: bool) -> None:
    """Called once, before tests are collected."""
    global _everything  # noqa: PLW0603  # pytest tells what it runs before it imports any test
    _everything = everything


def effort(part: int, whole: int) -> int:
    """Return ``part`` in a run by day and ``whole`` nightly: the number of examples or repeats."""
    if not 0 < part <= whole:
        raise ValueError(f"part = {part}: must be in 1..{whole}")
    return whole if _everything else part


def spread(cases: Sequence[Case], most: int) -> list[Case]:
    """Return evenly spread cases by day, including the first and the last; all of them nightly."""
    return [cases[place] for place in _places(len(cases), effort(most, max(most, len(cases))))]


def _places(count: int, most: int) -> list[int]:
    step = (count - 1) / max(most - 1, 1)
    return sorted({round(i * step) for i in range(most)}) if most < count else [*range(count)]


def by_day(most: int) -> pytest.MarkDecorator:
    """Mark a parametrised test of which ``most`` cases run by day: the first, the last, between."""
    if most < 1:
        raise ValueError(f"most = {most}: must be at least 1")
    return pytest.mark.by_day(most)


def waiting(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that run only nightly."""
    if _everything:
        return []
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("by_day"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    found = []
    for mine in cases.values():
        mark = mine[0].get_closest_marker("by_day")
        most = mark.args[0] if mark else len(mine)
        kept = _places(len(mine), most)
        found += [item for place, item in enumerate(mine) if place not in kept]
    return found
