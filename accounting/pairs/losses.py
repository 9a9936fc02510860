r"""The losses of one round, listed: what composition of any laws works on.

L(x) = log P(x)/Q(x) under P. A listing names finitely many x with their masses and finite losses,
keeps P(L = oo) apart, and bounds the exponential moment of whatever it leaves out. ``listing``
makes one for each law. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flint import arb

__all__ = ["Losses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    r"""``masses[i]`` = P(x_i) and ``losses[i]`` = L(x_i), finite, in any order; balls.

    ``hidden`` encloses P(L = oo). ``beyond(c)``, for a real ball c > 0, bounds
    E_P[e^(cL); L < oo, x not listed] from above, possibly by infinity. ``largest`` bounds every
    finite loss from above, infinite where there is no such bound.

    A law of which only masses are known bounds no moment. Its listing leaves a set R out whole:
    ``hidden`` then holds all of [P(L = oo), P(L = oo) + P(R)], and ``beyond`` bounds the rest
    without R. Counting ``hidden`` as lost at its upper end and as nothing at its lower end is sound
    in both cases.

    >>> fair = Losses(
    ...     masses=(arb(1),),
    ...     losses=(arb(0),),
    ...     hidden=arb(0),
    ...     beyond=lambda c: arb(0),
    ...     largest=arb(0),
    ... )
    >>> fair.beyond(arb(2)) == 0
    True
    """

    masses: tuple[arb, ...]
    losses: tuple[arb, ...]
    hidden: arb
    beyond: Callable[[arb], arb]
    largest: arb
