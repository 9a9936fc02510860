"""Nothing is remembered from one test to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounting import deadline
from accounting.certificates import estimate, prove_claim
from accounting.kernel import law_tables
from accounting.kernel.rational_claims import exact_value


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
    monkeypatch.setattr(law_tables, "_FINE", 64)
    monkeypatch.setattr(prove_claim, "_FEW_SLOTS", 1 << 8)


def clear() -> None:
    for remembered in (
        exact_value, prove_claim._plan_for, prove_claim._reaches, prove_claim._curve,
        prove_claim._decided,        estimate._rows, estimate._combined,
    ):  # fmt: skip
        remembered.cache_clear()
