"""Fixtures: caches are cleared between tests, and deadlines are long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounting import deadline
from accounting.certificates import check_claim_with_kernel, estimate
from accounting.proof_kernel import law_tables, worst_case_neighbours
from accounting.proof_kernel.exact_values import exact_value


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Clear caches between tests: otherwise cached results would hide mutants."""
    clear()
    # A busy machine must not decide the outcome of these tests.
    with deadline(600):
        yield
    clear()


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use coarse tables in the kernel: bounds are wider and fast, and never false."""
    monkeypatch.setattr(law_tables, "_FINE", 64)
    monkeypatch.setattr(check_claim_with_kernel, "_FEW_SLOTS", 1 << 8)


def clear() -> None:
    for remembered in (
        exact_value,
        check_claim_with_kernel._plan_for,
        check_claim_with_kernel._reaches,
        check_claim_with_kernel._curve,
        check_claim_with_kernel._decided,
        estimate._rows,
        estimate._combined,
        worst_case_neighbours._enclosed_square,
    ):
        remembered.cache_clear()
