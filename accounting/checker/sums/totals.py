r"""delta(epsilon) of a list of rounds, by the first of three methods that applies.

Few atoms in all: a plain sum (``direct``). Losses on one lattice: a finite Fourier sum
(``lattice``). Otherwise: the contour integral (``line``). Proofs: docs/proofs/checker.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from accounting.checker.laws.losses import Losses
from accounting.checker.laws.masses import REAL, Number, real
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.sums.direct import halves
from accounting.checker.sums.integral import integral
from accounting.checker.sums.lattice import Lattice

__all__ = ["deltas"]

_RARE: Final = 2.0**-12


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
    hidden = _hidden(listed)
    if sum((count * one.most for one, count in listed), Fraction(0)) <= min(epsilons):
        found = [Value(value=REAL.zero, error=REAL.zero) for _ in epsilons]
    elif (split := halves(listed, float(dropped) * _RARE)) is not None:
        found = [split.payoff(real(epsilon)) for epsilon in epsilons]
    else:
        lattice = Lattice.of(listed, min(epsilons))
        found = lattice.deltas(epsilons) if lattice else integral(listed, epsilons, wanted)
    lost = hidden.error + dropped
    return [Value(value=hidden.value + one.value, error=one.error + lost) for one in found]


def _hidden(listed: Sequence[tuple[Losses, int]]) -> Value:
    # 1 - prod (1 - P(L = oo))^count, without the rounding of 1 minus a small number.
    if any(one.hidden >= 1 for one, _ in listed):
        return Value(value=REAL.one, error=REAL.mpf(10) ** -40)
    shown = REAL.fsum(count * REAL.log1p(-one.hidden) for one, count in listed)
    value = -REAL.expm1(shown)
    return Value(value=value, error=value * REAL.mpf(10) ** -40)
