r"""The oracle of lattice sums: tails by powers of polynomials, for small cases."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, reduce

from flint import arb, arb_poly

from accounting.laws.gaussian import GaussianProduct
from accounting.laws.laplace import LaplaceProduct
from accounting.laws.registry import pair_of
from accounting.pairs import lattice
from accounting.pairs.lattice import LatticePair
from accounting.pairs.shift import Shift
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.numbers.enclosure import ball, precision

ORACLE_BITS = 700


def of_gaussian(variance: str, *shift: tuple[int, int]) -> LatticePair:
    pair = pair_of(DiscreteGaussian(sigma_squared=variance), shift)
    assert isinstance(pair, GaussianProduct)
    return pair


def of_laplace(scale: str, *shift: tuple[int, int]) -> LatticePair:
    pair = pair_of(DiscreteLaplace(scale=scale), shift)
    assert isinstance(pair, LaplaceProduct)
    return pair


def forget() -> None:
    for cached in (lattice._tails, lattice._line):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@cache
def tails_by_powers(pair: LatticePair) -> tuple[list[arb], int, arb]:
    r"""(P(S >= k) for k = low, low + 1, ..., then low, and the mass that was cut off)."""
    with precision(ORACLE_BITS):
        if isinstance(pair, GaussianProduct):
            powers, low, lost = _gaussian_powers(Fraction(pair.noise.sigma_squared), pair.shift)
        else:
            assert isinstance(pair, LaplaceProduct)
            powers, low, lost = _laplace_powers(pair.scale, pair.shift), 0, arb(0)
        tails = [arb(0)]
        for mass in reversed(reduce(lambda left, right: left * right, powers).coeffs()):
            tails.append(tails[-1] + mass)
        return tails[::-1], low, lost


def _gaussian_powers(variance: Fraction, shift: Shift) -> tuple[list[arb_poly], int, arb]:
    unit = math.gcd(*(step for step, _ in shift))
    reach = math.isqrt(math.ceil(2 * variance * ORACLE_BITS)) + 4
    rate = 1 / (2 * ball(variance))
    half = [(-rate * x * x).exp() for x in range(reach + 1)]
    # What lies beyond `reach` falls at least as fast as its first two terms.
    first, second = ((-rate * x * x).exp() for x in (reach + 1, reach + 2))
    beyond = 2 * first / (1 - second / first)
    total = half[0] + 2 * sum(half[1:], arb(0)) + arb(0, beyond.upper())
    powers = []
    for step, count in shift:
        width = step // unit
        spread = [arb(0)] * (2 * reach * width + 1)
        for x in range(-reach, reach + 1):
            spread[(x + reach) * width] = half[abs(x)] / total
        powers.append(arb_poly(spread) ** count)
    low = -reach * sum(step // unit * count for step, count in shift)
    return powers, low, beyond * sum(count for _, count in shift) / total


def _laplace_powers(scale: Fraction, shift: Shift) -> list[arb_poly]:
    beta = (-1 / ball(scale)).exp()
    powers = []
    for step, count in shift:
        # X >= 0, X = -1, ..., -(d-1), X <= -d, from the highest loss to the lowest.
        masses = [1 / (1 + beta)]
        masses += [(1 - beta) / (1 + beta) * beta**y for y in range(1, step)]
        powers.append(arb_poly([*masses, beta**step / (1 + beta)][::-1]) ** count)
    return powers


def truth(pair: LatticePair, m: int) -> tuple[arb, arb, arb]:
    r"""(A(m) - B(m), B(m), P(S < m)) from the polynomials; Q is P mirrored."""
    tails, low, lost = tails_by_powers(pair)
    with precision(ORACLE_BITS):

        def at_least(k: int) -> arb:
            return tails[min(max(k - low, 0), len(tails) - 1)] + arb(0, lost.upper())

        # Q(S >= m) = P(S <= 2h - m), and for a Gaussian sum the far tail of P itself.
        if isinstance(pair, GaussianProduct):
            there, under = at_least(m - pair.twice_centre), at_least(1 - m)
        else:
            whole = at_least(low)
            there = whole - at_least(pair.twice_centre - m + 1)
            under = whole - at_least(m)
        return at_least(m) - there, there, under


def holds(pair: LatticePair, places: range, bits: int) -> bool:
    for m in places:
        expected = truth(pair, m)
        with precision(bits):
            found = (*pair.tails(m), pair.below(m))
        with precision(ORACLE_BITS):
            if not all(ours.overlaps(other) for ours, other in zip(found, expected, strict=True)):
                return False
    return True


PAIRS = [
    of_gaussian("4", (1, 6)),
    of_gaussian("30", (1, 2)),
    of_gaussian("9", (2, 2), (1, 1)),
    of_gaussian("1/5", (1, 4)),
    of_gaussian("1/5", (3, 2), (2, 3)),
    of_gaussian("1/40", (1, 3)),
    of_gaussian("2", (4, 3), (2, 2)),
    of_laplace("3", (1, 12)),
    of_laplace("3", (2, 3), (1, 2)),
    of_laplace("1/2", (3, 4)),
    of_laplace("20", (10, 5)),
    of_laplace("1/9", (1, 5)),
    of_laplace("2", (25, 2), (4, 1)),
]


def spread_of(pair: LatticePair) -> range:
    r"""Places on both sides of the centre, out into the tails and past the top."""
    if pair.top is not None:
        return range(-2, pair.top + 3)
    with precision(64):
        deviation = math.sqrt(lattice._cumulants(pair.parts(), 0.0)[2])
    centre = pair.twice_centre // 2
    reach = math.ceil(8 * deviation) + 3
    return range(centre - reach, centre + reach + 1, max(reach // 20, 1))
