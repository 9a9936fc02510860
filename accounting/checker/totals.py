r"""delta(epsilon) of a list of rounds, by the first of three methods that applies.

Few atoms in all: a plain sum (``direct``). Losses on one lattice: a finite Fourier sum
(``lattice``). Otherwise: the contour integral (``line``). Proofs: docs/proofs/checker.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from accounting.checker.direct import halves, payoff
from accounting.checker.lattice import Lattice
from accounting.checker.laws import REAL, Number, real
from accounting.checker.line import integral
from accounting.checker.losses import Losses
from accounting.checker.value import Value, Wanted

__all__ = ["deltas"]


def deltas(
    listed: Sequence[tuple[Losses, int]],
    epsilons: Sequence[Fraction],
    wanted: Wanted,
    dropped: Number,
) -> list[Value]:
    r"""delta at each epsilon, to about the error ``wanted``.

    ``dropped`` bounds the mass that the listings leave out, over all rounds.

    Raises :class:`Unchecked` where no method reaches it.
    """
    shown = REAL.one
    for one, count in listed:
        shown *= (1 - one.hidden) ** count
    lost = 1 - shown
    if sum((count * one.most for one, count in listed), Fraction(0)) <= min(epsilons):
        return [Value(value=REAL.zero, error=REAL.zero) for _ in epsilons]
    split = halves(listed)
    if split is not None:
        sums = (payoff(*split, real(epsilon)) for epsilon in epsilons)
        found = [Value(value=total, error=total * REAL.mpf(10) ** -40) for total in sums]
    else:
        lattice = Lattice.of(listed, min(epsilons))
        found = lattice.deltas(epsilons) if lattice else integral(listed, epsilons, wanted)
    return [Value(value=lost + each.value, error=each.error + dropped) for each in found]
