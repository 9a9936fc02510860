"""Erratum 5: the noise of TKMS Algorithm 3 has a tail that Theorem C.1 does not allow."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest

from accounting import papers
from accounting.replays import tkms
from tests.support.accounting.brute import real

PAGE = Path(__file__).parents[3] / "docs" / "errata.md"
USERS = 10**6


def log_tail(trials: int, chance: Any, least: int) -> tuple[Any, Any]:
    """Both ends of ln P(B >= least), B binomial: its first mass, and a geometric series on it."""
    logs = mpmath.loggamma(trials + 1) - mpmath.loggamma(least + 1)
    logs -= mpmath.loggamma(trials - least + 1)
    first = logs + least * mpmath.log(chance) + (trials - least) * mpmath.log1p(-chance)
    falls = (trials - least) * chance / ((least + 1) * (1 - chance))
    assert falls < 1
    return first, first - mpmath.log1p(-falls)


def test_the_tail_is_heavier_than_the_proof_allows() -> None:
    with mpmath.workdps(40):
        small = log_tail(12, mpmath.mpf("0.1"), 5)
        exact = sum(mpmath.binomial(12, k) * 0.1**k * 0.9 ** (12 - k) for k in range(5, 13))
        assert small[0] < mpmath.log(exact) < small[1]
        lower = papers.tkms_bits(USERS, "0.5", "1e-6").probability.lower
        chance = real(Fraction(lower))
        mean = USERS * chance
        least = int(mpmath.ceil(3 * mean))
        low, high = log_tail(USERS, chance, least)
        claimed = -((2 * mean) ** 2) / (3 * mean)
        assert round(float(low)) == -3631
        assert round(float(claimed)) == -3714
        assert claimed < low <= high
        # Where Chernoff's bound holds, t <= E[B], the claim does too: the check can tell.
        near = log_tail(USERS, chance, int(mpmath.ceil(2 * mean)))
        assert near[1] < -(mean**2) / (3 * mean)
    row = tkms._tail(USERS, Fraction(1, 2))
    assert row.verdict == "fails"
    assert float(low) == pytest.approx(float(row.exact.lower or 0), rel=1e-12)
    assert float(high) == pytest.approx(float(row.exact.upper), rel=1e-12)
    assert float(claimed) == pytest.approx(float(row.claimed.upper), rel=1e-12)
    text = PAGE.read_text(encoding="utf-8")
    assert "ln P <= **-3714**" in text
    assert ">= **-3631**" in text
