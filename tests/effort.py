"""How much of a long test a run does: ``make test`` a fixed part, ``make nightly`` all of it.

What is left to the night is marked ``nightly`` or counted here, where everyone sees it: nothing is
drawn by chance, and no bound or alpha changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["effort", "run_everything", "some"]

_everything = False


def run_everything(everything: bool) -> None:
    """Said once, before tests are collected."""
    global _everything  # noqa: PLW0603  # pytest tells what it runs before it imports any test
    _everything = everything


def effort(part: int, whole: int) -> int:
    """Examples, runs or repeats: ``part`` of ``whole`` in every run, all of them by night."""
    if not 0 < part <= whole:
        raise ValueError(f"part = {part}: must be in 1..{whole}")
    return whole if _everything else part


def some(cases: Iterable[Any], most: int) -> list[Any]:
    """The cases of a parametrised test: ``most`` of them, evenly spread, in every run.

    The others carry the mark ``nightly``. The first is kept, and the last if ``most`` > 1. A tuple
    is a row of parameters; one that is a value is given as ``pytest.param(value)``.
    """
    listed = list(cases)
    if not 0 < most <= len(listed):
        raise ValueError(f"most = {most}: must be in 1..{len(listed)}")
    step = (len(listed) - 1) / max(most - 1, 1)
    kept = {round(i * step) for i in range(most)}
    return [case if i in kept else _nightly(case) for i, case in enumerate(listed)]


def _nightly(case: Any) -> Any:
    if hasattr(case, "marks"):
        return pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.nightly))
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
