"""Nothing is remembered from one test to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounting import deadline
from accounting.certificates import estimate, evidence
from accounting.kernel import laws
from accounting.kernel.exact import exact_value


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered between tests: mutants would hide behind it."""
    clear()
    # A crowded machine must not decide what these tests are about.
    with deadline(600):
        yield
    clear()


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarse tables of the kernel: wider ends in a moment, and never a false one."""
    monkeypatch.setattr(laws, "_FINE", 64)
    monkeypatch.setattr(evidence, "_FEW_SLOTS", 1 << 8)


def clear() -> None:
    for remembered in (
        exact_value, evidence._plan_for, evidence._reaches, evidence._curve,
        evidence._decided,        estimate._rows, estimate._combined,
    ):  # fmt: skip
        remembered.cache_clear()
