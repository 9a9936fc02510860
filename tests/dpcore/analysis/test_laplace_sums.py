"""Tails of sums of discrete Laplace draws, against the law of the sum itself."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dpcore import InvalidParameter, PolyaDifference
from dpcore.analysis import laplace_sums as laplace_sum
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.dpcore.mutants import mutated


def test_tails_of_sums_of_laplace_draws() -> None:
    for draws, scale in ((16, 3), (40, 10), (200, 2)):
        law = PolyaDifference(shape=draws, scale=scale)
        deviation = math.sqrt(2 * draws) * scale
        for multiple in (0.02, 1, 4, 9):
            least = int(deviation * multiple) + 1
            found = laplace_sum.sum_tail(draws=draws, scale=scale, least=least, bits=30)
            assert found.overlaps(law.enclose_sf(least - 1, 60))
            assert found.upper - found.lower <= Fraction(found.upper) / 2**29
    with pytest.raises(InvalidParameter, match="draws"):
        laplace_sum.sum_tail(draws=15, scale=3, least=4, bits=20)


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, 40, 10**6])
def test_the_tail_of_two_draws(scale: Fraction | int) -> None:
    law = PolyaDifference(shape=2, scale=scale)
    for least in (0, 1, 2, int(3 * scale), int(25 * scale) + 1):
        found = laplace_sum.pair_tail(scale=scale, least=least, bits=60)
        true = law.enclose_sf(least - 1, 60)
        assert found.overlaps(true)
        assert not found.overlaps(law.enclose_sf(least, 60))


def test_tails_of_laplace_sums_need_their_far_frequencies() -> None:
    # Forgetting what is beyond the last frequency gives balls that miss the tail.
    short = mutated(laplace_sum._sum, "last + 1):", "max(last // 8, 1)):")
    line = laplace_sum._line(16.0, Fraction(3), 20)
    with precision(64):
        cut = Enclosure.of(short(Fraction(16), Fraction(3), 20, *line))
        whole = Enclosure.of(laplace_sum._sum(Fraction(16), Fraction(3), 20, *line))
    true = PolyaDifference(shape=16, scale=3).enclose_sf(19, 60)
    assert whole.overlaps(true)
    assert not cut.overlaps(true)


@pytest.mark.parametrize(
    ("draws", "scale", "least"),
    [(1000, 10**12, 200 * 10**12), (1000, 10**17, 1), (10**6, 10**17, 10**21)],
)
def test_wide_sums_need_no_more_frequencies_than_narrow_ones(
    draws: int, scale: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    last = laplace_sum._last

    def counted(*arguments: Any) -> int:
        seen.append(last(*arguments))
        return seen[-1]

    monkeypatch.setattr(laplace_sum, "_last", counted)
    tail = laplace_sum.sum_tail(draws=draws, scale=scale, least=least, bits=20)
    assert sum(seen) < 200
    # A sum of that many wide draws is nearly normal.
    normal = math.erfc(least / scale / math.sqrt(2 * draws) / math.sqrt(2)) / 2
    assert float(tail.upper) == pytest.approx(normal, rel=0.2)


@pytest.mark.parametrize("scale", ["1e-10", "1e39"])
def test_scales_that_floats_cannot_look_at_are_refused_by_name(scale: str) -> None:
    with pytest.raises(InvalidParameter, match="scale"):
        laplace_sum.sum_tail(draws=16, scale=scale, least=1, bits=10)
