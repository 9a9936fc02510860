r"""Sums of discrete Gaussians: identities that their masses keep.

What every law promises is asked by the contract suite; here stands what belongs to this law alone.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpcore import DiscreteGaussian, Enclosure
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.numbers.enclosure import ball, narrow
from tests.support.laws import reach


def misses_the_move(noise: DiscreteGaussianSum, k: int, rate: Fraction) -> bool:
    r"""Whether P(X = k + n) = P(X = k) e^(-(k + n/2) rate), rate = 1/v, is certainly false."""
    n = noise.count
    one, other = noise.enclose_pmf(k + n, 160), noise.enclose_pmf(k, 160)
    power = (k + Fraction(n, 2)) * rate
    factor = narrow(lambda: (-ball(power)).exp(), 160)  # noqa: PLW0108 - one precision a call
    moved = Enclosure(other.lower * factor.lower, other.upper * factor.upper)
    return not one.overlaps(moved)


@pytest.mark.parametrize(
    ("count", "v"), [(1, "1/2"), (3, "1/50"), (16, "1/4"), (7, "401"), (4, "1e12")]
)
def test_masses_move_by_whole_sums(count: int, v: str) -> None:
    # For k > -n/2 the code finds both from the same mass; contour sums at k + n are the other way.
    noise, exact = DiscreteGaussianSum(count=count, sigma_squared=v), Fraction(v)
    for k in (0, 1, -2, 2 * count + 1):
        assert not misses_the_move(noise, k, 1 / exact)
        assert k + Fraction(count, 2) == 0 or misses_the_move(
            noise, k, 1 / exact * Fraction(10**9 + 1, 10**9)
        )


@pytest.mark.parametrize("v", ["1/100", "1/4", "1", "401", "1e12"])
def test_a_sum_of_one_is_the_law_itself(v: str) -> None:
    one, other = DiscreteGaussianSum(count=1, sigma_squared=v), DiscreteGaussian(sigma_squared=v)
    assert one.variance.overlaps(other.variance)
    for k in (0, 1, 3, reach(other), 5 * reach(other)):
        assert one.enclose_pmf(k).overlaps(other.enclose_pmf(k))
        assert one.enclose_sf(k).overlaps(other.enclose_sf(k))
