r"""delta(epsilon) of a list of rounds, by the first method that applies.

Noise on the reals: a closed form (``closed``), or the contour integral with its density
(``densities``). Few atoms in all: a plain sum (``direct``). Losses on one lattice: a finite Fourier
sum (``lattice``). Otherwise: the contour integral (``line``). Proofs: docs/proofs/checker.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from accounting.checker.closed import closed_form, delta_of
from accounting.checker.laws.law import Unchecked
from accounting.checker.laws.losses import Losses
from accounting.checker.laws.masses import REAL, Number, real
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.sums.densities import smooth_integral
from accounting.checker.sums.direct import halves
from accounting.checker.sums.integral import integral
from accounting.checker.sums.lattice import Lattice
from accounting.checker.sums.tilt import Listed, tilted

__all__ = ["deltas", "far_below"]

_RARE: Final = 2.0**-12
_TILTS: Final = 12
_SPARE: Final = 1.0


def deltas(
    listed: Listed,
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
    elif (closed := closed_form(listed)) is not None:
        found = [delta_of(closed, epsilon) for epsilon in epsilons]
    else:
        found = _added(listed, epsilons, wanted, dropped)
    lost = hidden.error + dropped
    return [Value(value=hidden.value + one.value, error=one.error + lost) for one in found]


def far_below(listed: Listed, epsilons: Sequence[Fraction]) -> list[Value]:
    r"""0 at each epsilon, with Chernoff's bound of delta, min E[e^(cL)] e^(-c epsilon), as error.

    Raises :class:`Unchecked` where the loss may be infinite.
    """
    if _hidden(listed).value > 0:
        raise Unchecked("a list whose loss may be infinite is out of reach")
    least = [0.0 for _ in epsilons]
    for c in (2.0**i for i in range(_TILTS)):
        try:
            level = sum(one.count * one.log_moment for one in tilted(listed, c))
        except (Unchecked, OverflowError):
            break
        least = [min(low, level - c * float(at)) for low, at in zip(least, epsilons, strict=True)]
    return [Value(value=REAL.zero, error=REAL.exp(low + _SPARE)) for low in least]


def _added(
    listed: Listed,
    epsilons: Sequence[Fraction],
    wanted: Wanted,
    dropped: Number,
) -> list[Value]:
    atoms = [(one, count) for one, count in listed if isinstance(one, Losses)]
    if len(atoms) < len(listed):
        return smooth_integral(listed, epsilons, wanted)
    split = halves(atoms, float(dropped) * _RARE)
    if split is not None:
        return [split.payoff(real(epsilon)) for epsilon in epsilons]
    lattice = Lattice.of(atoms, min(epsilons))
    return lattice.deltas(epsilons) if lattice else integral(atoms, epsilons, wanted)


def _hidden(listed: Listed) -> Value:
    # 1 - prod (1 - P(L = oo))^count, without the rounding of 1 minus a small number.
    if any(one.hidden >= 1 for one, _ in listed):
        return Value(value=REAL.one, error=REAL.mpf(10) ** -40)
    shown = REAL.fsum(count * REAL.log1p(-one.hidden) for one, count in listed)
    value = -REAL.expm1(shown)
    return Value(value=value, error=value * REAL.mpf(10) ** -40)
