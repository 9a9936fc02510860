r"""Renyi divergences of a symmetric law as sums over the integers, with proven remainder bounds.

With k = alpha - 1 and t(m) = p(m) (p(m)/p(m+d))^k, D_alpha = log(sum_m t(m))/k. The masses are a
table of logarithms log p(0), ..., log p(R); the law encloses the remainder. Proofs:
docs/proofs/curve.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.pair import Pair
from accounting.pairs.renyi_supremum import supremum_over_orders
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball

MOST_MASSES: Final = 1 << 20

_MOST_SEARCHED: Final = 1 << 14
_SEARCH_BITS: Final = 192
_SECOND: Final = Fraction(2)
_TOLERANCE: Final = Fraction(1, 10**4)

Masses: TypeAlias = tuple[list[arb], list[arb]]
"""p(n) and log p(n) for n = 0, 1, ..."""


class SummedPair(Pair):
    r"""A pair (X, X - d) of a symmetric law that decreases on both sides of 0."""

    __slots__ = ()

    everywhere: ClassVar[bool] = True

    noise: Skellam | PolyaDifference
    shift: int

    def loss(self, m: int) -> arb:
        r"""The loss log p(m)/p(m+d) at m; exactly 0 at -d/2."""
        if 2 * m == -self.shift:
            return arb(0)
        here, there = abs(m), abs(m + self.shift)
        return log_mass(self.noise, here, ctx.prec) - log_mass(self.noise, there, ctx.prec)

    def table(self, reach: int) -> Masses:
        r"""The masses and their logarithms for n = 0..``reach``."""
        return _table(self.noise, reach, ctx.prec)

    @abstractmethod
    def beyond(self, first: int, order: Fraction, logs: Sequence[arb]) -> arb:
        r"""A ball around sum_{m >= first} t(m), for first + d within the table; may be infinite."""

    @abstractmethod
    def reach(self, order: Fraction, bits: int) -> int:
        r"""An estimated summation range for ``bits`` of D_alpha; it is doubled if too small."""

    def mass_balls(self, first: int, last: int) -> list[arb]:
        masses, _ = self.table(max(abs(first), abs(last)))
        return [masses[abs(n)] for n in range(first, last + 1)]

    def renyi(self, order: Fraction) -> arb:
        r"""The Renyi divergence D_alpha = log(sum_m t(m))/(alpha - 1).

        Raises :class:`NotDerived` if the sum would need more than 2^20 masses.
        """
        reach, shift = max(self.reach(order, ctx.prec), 1), self.shift
        while reach + shift < MOST_MASSES:
            _, logs = self.table(_rounded(reach + shift + 1))
            # On the left p(n+d) < p(n): t(-d-n) = p(n+d) (p(n+d)/p(n))^k <= p(n+d).
            left = self.noise.sf_ball(reach + shift).upper()
            right = self.beyond(reach + 1, order, logs)
            if right.is_finite():
                total = _within(logs, shift, reach, order)
                if max(left, right.rad()) <= total * arb(2) ** (-ctx.prec):
                    return (total + right + arb(left / 2, left / 2)).log() / ball(order - 1)
            reach *= 2
        raise NotDerived(
            f"the Renyi divergence of order {order} of {self.noise!r}",
            f"it is a sum over more than {MOST_MASSES} masses; use epsilon(delta)",
        )

    def zcdp(self) -> Enclosure:
        r"""The supremum of D_alpha/alpha by branch and bound, to a relative width of 1e-4.

        Raises :class:`NotDerived` if the search needs sums that are too long.
        """
        if self.reach(_SECOND, _SEARCH_BITS) > _MOST_SEARCHED:
            raise NotDerived(
                f"the zCDP parameter of {self.noise!r}",
                f"no theorem applies, and a search over sums of more than {_MOST_SEARCHED} masses "
                "takes too long; use renyi(order)",
            )
        return supremum_over_orders(self.renyi, self.bound_beyond, tolerance=_TOLERANCE)


def _rounded(reach: int) -> int:
    # Round to a few table sizes, so that similar orders share a table.
    grain = 1 << max(reach.bit_length() - 3, 5)
    return -(-reach // grain) * grain


@lru_cache(maxsize=8)
def _table(noise: Skellam | PolyaDifference, reach: int, bits: int) -> Masses:
    del bits
    return from_ratios(noise.pmf_ball(0), noise.ratios(0, reach)[::-1])


@lru_cache(maxsize=1 << 12)
def log_mass(noise: Noise, n: int, bits: int) -> arb:
    r"""The logarithm log p(n); ``bits`` is the ambient precision, part of the cache key."""
    del bits
    return noise.pmf_ball(n).log()


def _within(logs: Sequence[arb], shift: int, reach: int, order: Fraction) -> arb:
    # m = -d-reach..reach, where |m| and |m+d| lie within the table.
    alpha, excess = ball(order), ball(order - 1)
    total = arb(0)
    for m in range(-shift - reach, reach + 1):
        total += (alpha * logs[abs(m)] - excess * logs[abs(m + shift)]).exp()
    return total


def from_ratios(first: arb, ratios: Sequence[arb]) -> Masses:
    r"""Compute p(n) and log p(n) for n = 0, 1, ... from p(0) and the ratios p(n+1)/p(n).

    >>> masses, logs = from_ratios(arb(1), [arb(0.5), arb(0.5)])
    >>> masses[2] == 0.25, logs[2].overlaps(masses[2].log())
    (True, True)
    """
    mass, log = first, first.log()
    masses, logs = [mass], [log]
    for ratio in ratios:
        mass, log = mass * ratio, log + ratio.log()
        masses.append(mass)
        logs.append(log)
    return masses, logs
