"""Tests of `accounting.pairs.enclose_curve`: closed forms against sums, a theorem."""

from __future__ import annotations

from fractions import Fraction

import pytest

from accounting.law_pairs.discrete_laplace import LaplacePair
from accounting.pairs import enclose_curve
from accounting.pairs.enclose_curve import supremum_over_orders
from dpcore import DiscreteLaplace
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.accounting.brute_force import Worlds, close
from tests.support.accounting.release_lists import curve


@pytest.mark.parametrize(("scale", "shift", "reach"), [("1/2", 3, 60), ("2", 5, 240)])
def test_the_limit_at_order_1_is_the_kullback_leibler_divergence(
    scale: str, shift: int, reach: int
) -> None:
    noise = DiscreteLaplace(scale=scale)
    brute = Worlds(noise=noise, most=shift, low=-reach, high=reach)
    assert close(curve(noise, shift).enclose_zcdp(), brute.divergence())


@pytest.mark.parametrize("peak", [Fraction(3, 2), Fraction(2), Fraction(11, 2)])
def test_a_supremum_at_an_inner_order_is_found(peak: Fraction) -> None:
    # K(alpha) = max(0, alpha - c) is convex: D_alpha = max(0, alpha - c)/(alpha - 1), D_oo = 1, and
    # D_alpha/alpha is largest at alpha = c + sqrt(c^2 - c), far from both ends.
    def divergence(order: Fraction) -> Fraction:
        return max(order - peak, Fraction(0)) / (order - 1)

    found = supremum_over_orders(divergence, lambda a: 1 / a, tolerance=Fraction(1, 10**4))
    c = float(peak)
    best = c + (c * c - c) ** 0.5
    truth = (best - c) / (best * (best - 1))
    assert float(found.lower) <= truth * (1 + 1e-12)
    assert float(found.upper) >= truth * (1 - 1e-12)
    assert float(found.upper) <= truth * (1 + 2e-4)


def test_orders_are_not_doubled_without_end() -> None:
    with pytest.raises(PrecisionExhausted, match="no bound on the orders above"):
        supremum_over_orders(lambda a: a / 8, lambda _: Fraction(1), tolerance=Fraction(1, 10))


def test_a_search_that_is_stopped_early_gives_a_wide_valid_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enclose_curve, "_EVALUATIONS", 3)
    pair = LaplacePair(noise=DiscreteLaplace(scale=10), shift=1)
    with precision(128):
        truth = Enclosure.of(pair.zcdp())
    short = supremum_over_orders(pair.renyi, lambda a: Fraction(1, 10) / a)
    assert short.overlaps(truth)
    assert short.upper > truth.upper * (1 + Fraction(1, 10**6))
