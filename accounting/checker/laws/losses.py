r"""The loss of one round, listed: masses in both worlds and L = log of their ratio.

P is the law of X and Q that of X - d (``mirrored``: of X + d). Where the losses are rational they
are kept as offset + unit * integer, so that totals of them can be summed exactly on a lattice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.checker.clock import ticking
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.masses import MOST_ATOMS, REAL, Number, masses, reach, real
from accounting.checker.laws.value import Value

_LEFT: Final = REAL.mpf(10) ** -34
_BLUR: Final = 1e-13
"""Losses this near to a lattice are summed on it, at a cost that the error states."""

__all__ = [
    "Grid",
    "Losses",
    "losses_of",
    "randomised_response",
    "renyi_of",
    "renyi_of_listed",
    "sampled_losses",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    r"""Losses ``offset`` + ``unit`` * s, one integer s an atom, each within ``blur`` of that."""

    offset: Fraction
    unit: Fraction
    places: tuple[int, ...]
    blur: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    r"""``here[i]`` = P(x_i) and ``there[i]`` = Q(x_i), both > 0, at ``losses[i]``.

    ``hidden`` = P(L = oo). ``most`` bounds L, and is sup L where that is a rational or infinite.

    >>> coin = randomised_response(Fraction(1, 2), Fraction(0))
    >>> REAL.nstr(coin.here[1] / coin.there[1], 8), coin.grid.unit
    ('1.6487213', Fraction(1, 1))
    """

    here: tuple[Number, ...]
    there: tuple[Number, ...]
    losses: tuple[Number, ...]
    hidden: Number
    grid: Grid | None
    most: Fraction | float


def randomised_response(epsilon: Fraction, lost: Fraction) -> Losses:
    r"""What dominates every (epsilon, lost)-private release (Kairouz, Oh and Viswanath 2015)."""
    rate = real(epsilon)
    kept = 1 - real(lost)
    high = kept / (1 + REAL.exp(-rate))
    low = kept / (1 + REAL.exp(rate))
    return Losses(
        here=(low, high),
        there=(high, low),
        losses=(-rate, rate),
        hidden=real(lost),
        grid=Grid(offset=-epsilon, unit=2 * epsilon, places=(0, 1)),
        most=epsilon if lost == 0 else math.inf,
    )


@lru_cache(maxsize=64)
def losses_of(law: Law, step: int, surprise: float, mirrored: bool = False) -> Losses:  # noqa: FBT001, FBT002 - the two directions of a pair
    r"""The atoms of ``law`` under the shift ``step``, but for mass at most 2 e^-surprise.

    Raises :class:`Unchecked` where they are too many.
    """
    if law.name == "discrete-laplace":
        return _laplace(law.parameters[0], step)
    low, high = reach(law, surprise)
    return _between(law, step, low, high, mirrored=mirrored)


@lru_cache(maxsize=64)
def sampled_losses(law: Law, step: int, surprise: float, rate: Fraction, way: str) -> Losses:
    r"""The same of a sample that holds the unit with chance ``rate`` < 1: one of two directions.

    "present" is rate P + (1 - rate) Q against Q, "absent" Q against that, Q the law without it.
    Raises :class:`Unchecked` for laws that are not symmetric, and for those that end somewhere.
    """
    if not law.symmetric or law.name == "binomial":
        raise Unchecked(f"samples with {law.name} noise, which is not symmetric or ends somewhere")
    if law.name == "discrete-laplace":
        base = _laplace(law.parameters[0], step)
    else:
        # As far as either law reaches: Q is that of X - d.
        low, high = reach(law, surprise)
        base = _between(law, step, low - step, high, mirrored=False)
    share, other = real(rate), real(1 - rate)
    pairs = zip(base.here, base.there, strict=True)
    mixed = tuple(other * q + share * p for p, q in ticking(pairs))
    logs = tuple(REAL.log1p(share * REAL.expm1(loss)) for loss in ticking(base.losses))
    most = base.most
    if way == "absent":
        end = other if most == math.inf else other + share * REAL.exp(-real(Fraction(most)))
        most = _above(-REAL.log(end))
        return replace(
            base, here=base.there, there=mixed, losses=tuple(-x for x in logs), grid=None, most=most
        )
    if most != math.inf:
        most = _above(REAL.log(other + share * REAL.exp(real(Fraction(most)))))
    return replace(base, here=mixed, losses=logs, grid=None, most=most)


def _between(law: Law, step: int, low: int, high: int, *, mirrored: bool) -> Losses:
    # The atoms at low..high, which is written for X around 0.
    around = masses(law, low - step, high + step)
    move = -step if mirrored else step
    points = range(low, high + 1)
    here = [around[x - low + step] for x in points]
    there = [around[x - low + step + move] for x in points]
    hidden = REAL.fsum(p for p, q in zip(here, there, strict=True) if p > 0 and q == 0)
    kept = [(x, p, q) for x, p, q in zip(points, here, there, strict=True) if p > 0 and q > 0]
    losses = tuple(REAL.log(p / q) for _, p, q in ticking(kept))
    return Losses(
        here=tuple(p for _, p, _ in kept),
        there=tuple(q for _, _, q in kept),
        losses=losses,
        hidden=hidden,
        grid=_grid(law, step, [x for x, _, _ in kept], losses) if move > 0 else None,
        most=_most(law, step, losses),
    )


def _grid(law: Law, step: int, points: list[int], losses: tuple[Number, ...]) -> Grid | None:
    # Of a discrete Gaussian; a sum of them is one but for a ripple, which is read off the losses.
    match law:
        case Law(name="discrete-gaussian", parameters=(v,)):
            blur = 0.0
        case Law(name="discrete-gaussian-sum", parameters=(count, single)):
            v = count * single
            blur = max(
                float(abs(loss - real(Fraction(step * (step + 2 * x)) / (2 * v))))
                for x, loss in ticking(zip(points, losses, strict=True))
            )
        case _:
            return None
    if blur > _BLUR:
        return None
    offset, places = Fraction(step * step) / (2 * v), tuple(points)
    return Grid(offset=offset, unit=step / v, places=places, blur=blur)


def _laplace(scale: Fraction, step: int) -> Losses:
    # Everything on either side of both centres has one loss: step + 1 atoms, and no tail.
    if step > MOST_ATOMS:
        raise Unchecked(f"discrete-laplace: more than {MOST_ATOMS} values matter")
    beta, fall = REAL.exp(-1 / real(scale)), -REAL.expm1(-1 / real(scale))
    end = 1 / (1 + beta)
    inner = [fall / (1 + beta) * beta**x for x in ticking(range(1, step))]
    here = [end, *inner, beta**step * end]
    rate = 1 / scale
    places = tuple(range(step, -1, -1))
    return Losses(
        here=tuple(here),
        there=tuple(reversed(here)),
        losses=tuple(real((2 * s - step) * rate) for s in places),
        hidden=REAL.zero,
        grid=Grid(offset=-step * rate, unit=2 * rate, places=places),
        most=step * rate,
    )


def _most(law: Law, step: int, losses: tuple[Number, ...]) -> Fraction | float:
    match law:
        case Law(name="polya-difference", parameters=(shape, scale)):
            if shape >= 1:
                return step / scale
            # Log-convex on either side of 0: the largest loss is next to it, and listed.
            return _above(max(losses))
    return math.inf


def _above(value: Number) -> Fraction:
    return Fraction(int(REAL.ceil(value * (1 << 140))) + 1, 1 << 140)


def renyi_of(law: Law, step: int, order: Fraction) -> Value:
    r"""D_alpha of the worse direction; the window grows until 10^-34 of the sum is left out.

    >>> REAL.nstr(renyi_of(Law("discrete-gaussian", (Fraction(1),)), 1, Fraction(3)).value, 12)
    '1.5'
    """
    if law.name in ("polya", "poisson", "binomial"):
        # Their values end somewhere, so one of the two worlds shows what the other never does.
        return Value(value=REAL.inf, error=REAL.zero)
    surprise = 80.0
    while True:
        listed = losses_of(law, step, surprise)
        found, total = renyi_of_listed(listed, order)
        rest = REAL.zero
        if law.name != "discrete-laplace":
            rest = _left_out(law, step, real(order) - 1, surprise, listed) / total
        if rest < _LEFT:
            return Value(value=found.value, error=found.error + rest / (real(order) - 1))
        surprise *= 2


def renyi_of_listed(listed: Losses, order: Fraction) -> tuple[Value, Number]:
    r"""log(sum p e^((alpha - 1) L))/(alpha - 1) over what is listed, and that sum."""
    k = real(order) - 1
    pairs = ticking(zip(listed.here, listed.losses, strict=True))
    total = REAL.fsum(p * REAL.exp(k * loss) for p, loss in pairs)
    value = REAL.log(total) / k
    # Near alpha = 1 the sum is nearly 1, and its rounding is divided by alpha - 1.
    return Value(value=value, error=(1 / k + abs(value)) * REAL.mpf(10) ** -40), total


def _left_out(law: Law, step: int, k: Number, surprise: float, listed: Losses) -> Number:
    r"""A bound of the sum of p(x) e^(kL(x)) over all x that are not listed; infinite at worst.

    Where L is bounded, by that. Else L rises, so on the left it is below the first listed, and on
    the right p(x) <= e^-a(x) and L(x) <= b(x) with kb - a concave: a geometric series.
    """
    tail = REAL.exp(-REAL.mpf(surprise))
    if listed.most != math.inf:
        return 2 * tail * REAL.exp(k * real(Fraction(listed.most)))
    first = reach(law, surprise)[1] + 1
    if law.name == "skellam":
        # Amos 1974: L(x) <= d asinh((x + d/2 + 1)/v); p by Chernoff.
        v, root = real(law.parameters[0]), REAL.sqrt
        at = first + REAL.mpf(step) / 2 + 1
        level = k * step * REAL.asinh(at / v) - first * REAL.asinh(first / v)
        level += root(first**2 + v * v) - v
        slope = k * step / root(at**2 + v * v) - REAL.asinh(first / v)
    else:
        # Jensen: L(x) <= (2dx/n + |e|^2)/2v for the n integers e_i of sum d that are nearest.
        count, v = (1, *law.parameters) if len(law.parameters) == 1 else law.parameters
        each, more = divmod(step, int(count))
        squared = (int(count) - more) * each**2 + more * (each + 1) ** 2
        width = 2 * real(count * v)
        level = (k * (2 * step * first + int(count) * squared) - first**2) / width
        slope = (2 * k * step - (2 * first + 1)) / width
    if slope >= 0:
        return REAL.inf
    return tail * REAL.exp(k * listed.losses[0]) + REAL.exp(level) / -REAL.expm1(slope)
