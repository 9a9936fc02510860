r"""A release of which Renyi divergences are bounded, and no pair of laws is known that has them.

epsilon and delta follow at the best order: upper ends only. Proofs: docs/proofs/convert.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from fractions import Fraction

from accounting.claims.bound import Bound
from accounting.claims.guarantee import at_least_zero, order_above_one, probability
from accounting.claims.orders import approx_from_renyi, delta_from_renyi
from accounting.release.curve import OneRelease
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import RationalLike

__all__ = ["ByOrder"]

_BITS = 64


class ByOrder(OneRelease):
    r"""What a release loses, order by order: D_alpha is at most ``most_renyi(alpha)``.

    Such parts compose by their orders. Raises as :class:`OneRelease` does.
    """

    __slots__ = ()

    @abstractmethod
    def most_renyi(self, order: Fraction) -> End:
        r"""An upper bound of D_alpha, alpha = ``order`` > 1; infinite where there is none."""

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Between 0 and the bound."""
        del bits
        return Enclosure(Fraction(0), self.most_renyi(order_above_one(order)))

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Between 0 and the bound of the best order."""
        del bits
        found = delta_from_renyi(self.most_renyi, at_least_zero("epsilon", epsilon))
        return Enclosure(Fraction(0), found.upper)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Between 0 and the bound of the best order; infinite at delta = 0."""
        del bits
        found = approx_from_renyi(self.most_renyi, probability("delta", delta))
        return Enclosure(Fraction(0), found.upper)

    def _both(self, found: Enclosure) -> Bound:
        # Nothing is known from below.
        return replace(
            Bound(upper=found.upper, method="renyi", theorem=self.theorem),
            assumptions=self.assumptions,
        )
