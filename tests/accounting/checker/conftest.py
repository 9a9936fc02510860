"""The checker remembers nothing from one test to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounting.checker import alone, estimate
from accounting.checker.clock import deadline
from accounting.checker.exact import exact_value
from accounting.checker.laws import losses


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered between tests: mutants would hide behind it."""
    clear()
    # A crowded machine must not decide what these tests are about.
    with deadline(600):
        yield
    clear()


def clear() -> None:
    losses.losses_of.cache_clear()
    alone._listing.cache_clear()
    estimate.checked.cache_clear()
    exact_value.cache_clear()
