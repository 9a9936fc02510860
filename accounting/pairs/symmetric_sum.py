r"""Renyi divergences of a symmetric law as sums over the integers, with proven remainder bounds.

With k = alpha - 1 and t(m) = p(m) (p(m)/p(m+d))^k, D_alpha = log(sum_m t(m))/k. The masses are a
table of logarithms log p(0), ..., log p(R); the law encloses the remainder. Proofs:
docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, Protocol

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.renyi_supremum import supremum_over_orders
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball

MOST_MASSES: Final = 1 << 20

_MOST_SEARCHED: Final = 1 << 14
_SEARCH_BITS: Final = 192
_SECOND: Final = Fraction(2)
_TOLERANCE: Final = Fraction(1, 10**4)


class Summed(Protocol):
    r"""A pair whose masses decrease on both sides of 0 and are given by their logarithms."""

    @property
    def noise(self) -> Noise:
        r"""A symmetric law, decreasing in |x|."""
        ...

    @property
    def shift(self) -> int:
        r"""The shift d >= 1."""
        ...

    def logarithms(self, reach: int) -> Sequence[arb]:
        r"""The logarithms log p(n) for n = 0..``reach``, or further."""
        ...

    def beyond(self, first: int, order: Fraction, logarithms: Sequence[arb]) -> arb:
        r"""A ball around sum_{m >= first} t(m), for first + d within the table; may be infinite."""
        ...

    def reach(self, order: Fraction, bits: int) -> int:
        r"""An estimated summation range for ``bits`` of D_alpha; it is doubled if too small."""
        ...


def renyi_by_sum(pair: Summed, order: Fraction) -> arb:
    r"""The Renyi divergence D_alpha = log(sum_m t(m))/(alpha - 1).

    Raises :class:`NotDerived` if the sum would need more than 2^20 masses.
    """
    reach, shift = max(pair.reach(order, ctx.prec), 1), pair.shift
    while reach + shift < MOST_MASSES:
        logs = pair.logarithms(reach + shift + 1)
        # On the left p(n+d) < p(n): t(-d-n) = p(n+d) (p(n+d)/p(n))^k <= p(n+d).
        left = pair.noise.sf_ball(reach + shift).upper()
        right = pair.beyond(reach + 1, order, logs)
        if right.is_finite():
            total = _within(logs, shift, reach, order)
            if max(left, right.rad()) <= total * arb(2) ** (-ctx.prec):
                return (total + right + arb(left / 2, left / 2)).log() / ball(order - 1)
        reach *= 2
    raise NotDerived(
        f"the Renyi divergence of order {order} of {pair.noise!r}",
        f"it is a sum over more than {MOST_MASSES} masses; use epsilon(delta)",
    )


def zcdp_by_search(
    pair: Summed,
    *,
    largest_loss: Fraction | None = None,
    beyond: Callable[[Fraction], Fraction | arb] | None = None,
) -> Enclosure:
    r"""The supremum of D_alpha/alpha by branch and bound over sums, to a relative width of 1e-4.

    Raises :class:`NotDerived` if the search needs sums that are too long.
    """
    if pair.reach(_SECOND, _SEARCH_BITS) > _MOST_SEARCHED:
        raise NotDerived(
            f"the zCDP parameter of {pair.noise!r}",
            f"no theorem applies, and a search over sums of more than {_MOST_SEARCHED} masses "
            "takes too long; use renyi(order)",
        )
    return supremum_over_orders(
        lambda order: renyi_by_sum(pair, order), largest_loss, beyond=beyond, tolerance=_TOLERANCE
    )


def _within(logs: Sequence[arb], shift: int, reach: int, order: Fraction) -> arb:
    # m = -d-reach..reach, where |m| and |m+d| lie within the table.
    alpha, excess = ball(order), ball(order - 1)
    total = arb(0)
    for m in range(-shift - reach, reach + 1):
        total += (alpha * logs[abs(m)] - excess * logs[abs(m + shift)]).exp()
    return total


def gaussian_reach(variance: Fraction, shift: int, order: Fraction, bits: int) -> int:
    r"""The distance at which a Gaussian of this variance, tilted by the order, has decreased by a
    factor 2^-``bits``.
    """
    center = shift * math.ceil(order)
    return center + math.isqrt(math.ceil(2 * variance * bits)) + 8


def from_ratios(first: arb, ratios: Sequence[arb]) -> tuple[list[arb], list[arb]]:
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
