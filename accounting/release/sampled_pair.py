r"""The two worlds of a release from a random sample, with and without one unit.

(P, Q) are the worlds of a release whose sample does or does not hold the unit; gamma is the chance
that it does. Nobody sees which: a world with the unit is a mixture of the two. Zhu, Dong and Wang
(2022), Theorem 11. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, TypeAlias

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.losses import Losses
from accounting.pairs.pair import Pair
from accounting.release.dominating import DottedPair
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow, precision

__all__ = ["AbsentPair", "Base", "PresentPair"]

Base: TypeAlias = Pair | DottedPair
"""The pair of a release whose sample holds the unit, or does not."""

_SPARE: Final = 64
_TRIES: Final = 4
_MOST_BITS: Final = 1 << 14
_LOSS_BITS: Final = 64
_UNKNOWN: Final = Enclosure(Fraction(0), math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentPair:
    r"""(1 - gamma) Q + gamma P against Q: the first world has the unit, the other has not.

    ``base`` is (P, Q), ``rate`` is gamma in (0, 1). L' = log(1 + gamma (e^L - 1)).

    >>> from accounting.laws.laplace import LaplacePair
    >>> base = LaplacePair(scale=Fraction(1), shift=1)
    >>> found = PresentPair(base=base, rate=Fraction(1, 10)).losses(Fraction(1), 40)
    >>> found.largest.str(8, radius=False)
    '0.15856508'
    """

    base: Base
    rate: Fraction

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""From a listing of the base.

        Raises :class:`NotDerived` as the base does, and where its listing leaves out too much of Q.
        """
        return _listed(self.base, self.rate, tilt, bits, _present)

    def largest_loss(self) -> Enclosure:
        r"""log(1 + gamma (e^l - 1)) at the largest loss l of the base, infinite where that is."""

        def lost(end: End) -> arb:
            return (ball(self.rate) * ball(Fraction(end)).expm1()).log1p()

        return _mapped(self.base, lost, Enclosure.infinite())


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentPair:
    r"""P against (1 - gamma) P + gamma Q: the unit is in the other world.

    ``base`` is (P, Q), of a class that holds (Q, P) too. L' = -log(1 + gamma (e^-L - 1)), so never
    above -log(1 - gamma).

    >>> from accounting.laws.laplace import LaplacePair
    >>> base = LaplacePair(scale=Fraction(1), shift=1)
    >>> found = AbsentPair(base=base, rate=Fraction(1, 10)).losses(Fraction(1), 40)
    >>> found.largest.str(8, radius=False)
    '0.065298336'
    """

    base: Base
    rate: Fraction

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""From a listing of the base; raises :class:`NotDerived` as the base does."""
        return _listed(self.base, 1 - self.rate, tilt, bits, _absent)

    def largest_loss(self) -> Enclosure:
        r"""-log(1 + gamma (e^-l - 1)) at the largest loss l of the base; -log(1 - gamma) at oo."""

        def lost(end: End) -> arb:
            return -(ball(self.rate) * (-ball(Fraction(end))).expm1()).log1p()

        return _mapped(self.base, lost, narrow(lambda: -(-ball(self.rate)).log1p(), _LOSS_BITS))


_Mixed: TypeAlias = tuple[Losses, arb]
"""A listing, and what its rest must not exceed by itself, in units of 2^-bits."""


def _listed(
    base: Base,
    share: Fraction,
    tilt: Fraction,
    bits: int,
    mixed: Callable[[Losses, Fraction, Fraction], _Mixed],
) -> Losses:
    # The moment of the mixture may be as small as share^tilt times that of the base.
    halvings = math.log2(share.denominator) - math.log2(share.numerator)
    working = bits + 3 + math.ceil(tilt * Fraction(halvings))
    for _ in range(_TRIES):
        if working > _MOST_BITS:
            break
        with precision(max(ctx.prec, working + _SPARE)):
            found, rest = mixed(base.losses(tilt, working), share, tilt)
            if rest <= arb(2) ** (-bits - 1):
                return found
        working *= 2
    raise NotDerived(
        f"a listing of the sampled losses of {base!r}",
        "it leaves out too much; use a smaller tilt, or accounting.release.dominating.dominating "
        "as the base",
    )


def _present(listed: Losses, rate: Fraction, tilt: Fraction) -> _Mixed:
    gamma, zero = ball(rate), arb(0)
    other, top = 1 - gamma, listed.largest
    there = [mass * (-loss).exp() for mass, loss in zip(listed.masses, listed.losses, strict=True)]
    masses = [other * q + gamma * p for p, q in zip(listed.masses, there, strict=True)]
    losses = [(gamma * loss.expm1()).log1p() for loss in listed.losses]
    # Of what is left out and counted as hidden, gamma P stays hidden and (1 - gamma) Q is unlisted.
    whole, unlisted = _whole(listed), 1 - sum(there, zero)
    if whole and unlisted > 0:
        # Nothing of P is left out: the rest of Q lies where P has no mass.
        masses.append(other * unlisted)
        losses.append(other.log())
        unlisted = zero
    rest = other * unlisted.max(zero).upper()
    found = Losses(
        masses=tuple(masses),
        losses=tuple(losses),
        hidden=gamma * listed.hidden,
        beyond=lambda c: rest + gamma * listed.beyond(c),
        largest=(gamma * top.expm1()).log1p() if top.is_finite() else arb("inf"),
    )
    shown = 1 - (gamma * listed.hidden).upper()
    return found, rest if rest == 0 else rest / shown ** ball(tilt + 1)


def _absent(listed: Losses, other: Fraction, tilt: Fraction) -> _Mixed:
    kept, zero = ball(other), arb(0)
    gamma, top = 1 - kept, -kept.log()
    masses = [*listed.masses]
    losses = [-(gamma * (-loss).expm1()).log1p() for loss in listed.losses]
    unlisted = zero if _whole(listed) else 1 - sum(masses, listed.hidden)
    if listed.hidden > 0:
        # Where Q has no mass, the mixture has the share 1 - gamma of P.
        masses.append(listed.hidden)
        losses.append(top)
    else:
        unlisted += listed.hidden
    rest = unlisted.max(zero).upper()
    bounded = listed.hidden == 0 and listed.largest.is_finite()
    found = Losses(
        masses=tuple(masses),
        losses=tuple(losses),
        hidden=zero,
        beyond=lambda c: rest * (c * top).exp(),
        largest=-(gamma * (-listed.largest).expm1()).log1p() if bounded else top,
    )
    return found, rest * (ball(tilt) * top).exp()


def _mapped(base: Base, lost: Callable[[End], arb], at_infinity: Enclosure) -> Enclosure:
    # Where the largest loss of the base is unknown, it lies anywhere.
    try:
        found = base.largest_loss() if isinstance(base, Pair) else _UNKNOWN
    except NotDerived:
        found = _UNKNOWN
    low, high = (
        at_infinity if end == math.inf else narrow(partial(lost, end), _LOSS_BITS)
        for end in (found.lower, found.upper)
    )
    return Enclosure(low.lower, high.upper)


def _whole(listed: Losses) -> bool:
    # Whether every finite loss is listed.
    return bool(listed.beyond(arb(1)) == 0)
