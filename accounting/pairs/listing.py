r"""Listings of losses: how far to list, and the proof that it was far enough.

A law lists the outputs between two ends and bounds the moment of what lies on either side: a
:class:`Cut`. Floats propose the ends; balls decide whether they suffice, and the listing grows
until they do. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.losses import Losses
from dpcore.analysis import theta
from dpcore.numbers.enclosure import ball

__all__ = [
    "MOST_LISTED",
    "Cut",
    "Listed",
    "Slope",
    "from_ratios",
    "gaussian_losses",
    "geometric",
    "laplace_losses",
    "list_losses",
    "nothing",
    "outward",
    "symmetric_cut",
    "total_variation_losses",
]

MOST_LISTED: Final = 1 << 17
"""No listing is longer than about this."""

Slope: TypeAlias = Callable[[float], float]
"""About log t(m+1)/t(m), in floats, for the terms t(m) = P(m) e^(c L(m))."""

_SAMPLES: Final = 24
_MARGIN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    r"""The outputs low..high of one pair, and bounds on E[e^(cL); L < oo] on either side of them.

    ``left`` and ``right`` take a ball c >= 0 and may be infinite.
    """

    masses: tuple[arb, ...]
    losses: tuple[arb, ...]
    left: Callable[[arb], arb]
    right: Callable[[arb], arb]
    hidden: arb
    largest: arb

    def whole(self) -> Losses:
        r"""Both sides together: what is left out."""
        return Losses(
            masses=self.masses,
            losses=self.losses,
            hidden=self.hidden,
            beyond=lambda c: self.left(c) + self.right(c),
            largest=self.largest,
        )


class Listed(Protocol):
    r"""A pair that can be listed between any two ends."""

    def ends(self, tilt: float, need: float) -> tuple[int, int]:
        r"""A guess: ends where P(m) e^(cL(m)) is e^-``need`` of its peak, for c = 0 and tilt."""
        ...

    def cut(self, low: int, high: int) -> Cut:
        r"""The listing of low..high, as far as the supports reach."""
        ...

    def __hash__(self) -> int:
        r"""Listings are kept."""
        ...


def list_losses(pair: Listed, tilt: Fraction, bits: int) -> Losses:
    r"""A listing with beyond(c) <= 2^-bits E[e^(cL); L < oo] for 0 < c <= ``tilt``.

    beyond is finite for c <= 2 ``tilt``. Balls are at the ambient precision, which should be a
    little above ``bits``. Raises :class:`NotDerived` beyond 2^17 outputs.

    >>> from accounting.laws.skellam import SkellamPair
    >>> from dpcore.laws.skellam import Skellam
    >>> noise = Skellam(variance=16)
    >>> pair = SkellamPair(noise=noise, shift=1)
    >>> from dpcore.numbers.enclosure import precision
    >>> with precision(64):
    ...     found = list_losses(pair, Fraction(10), 40)
    >>> bool(found.beyond(arb(10)) < 1e-12)
    True
    """
    return _list_losses(pair, tilt, bits, ctx.prec)


@lru_cache(maxsize=16)
def _list_losses(pair: Listed, tilt: Fraction, bits: int, working: int) -> Losses:
    low, high = pair.ends(float(tilt), (bits + _MARGIN) * math.log(2))
    low, high = -_rounded(-low), _rounded(high)
    while high - low <= MOST_LISTED:
        found = _cut(pair, low, high, working)
        grow = (high - low) // 8 + 8
        left, right = _short(found, tilt, bits)
        if not (left or right):
            return found.whole()
        low, high = low - left * grow, high + right * grow
    raise NotDerived(
        f"the losses of {pair!r}",
        f"they are listed up to {MOST_LISTED} outputs; use a smaller noise or a larger scale",
    )


@lru_cache(maxsize=16)
def _cut(pair: Listed, low: int, high: int, working: int) -> Cut:
    # `working` is the ambient precision, part of the key.
    del working
    return pair.cut(low, high)


def _short(found: Cut, tilt: Fraction, bits: int) -> tuple[bool, bool]:
    # Whether the left and the right side are too heavy. One term bounds the moment from below, and
    # the worst c is 0 for the left side and `tilt` for the right one: see the proof.
    if not found.masses:
        return False, False
    share = arb(2) ** (-bits - 1)
    places = range(0, len(found.masses), max(len(found.masses) // _SAMPLES, 1))
    left = right = False
    for c in (arb(0), ball(tilt)):
        peak = max((found.losses[i] * c).exp() * found.masses[i] for i in places)
        left |= not found.left(c) <= share * peak
        right |= not found.right(c) <= share * peak
    twice = ball(2 * tilt)
    return left or not found.left(twice).is_finite(), right or not found.right(twice).is_finite()


def outward(slope: Slope, start: int, need: float, step: int = 1) -> int:
    r"""How far from ``start`` a term has fallen by e^-``need`` from its peak; a guess.

    ``step`` is the direction. Nothing rests on the result but the number of attempts.

    >>> outward(lambda m: -m / 100, 0, 50.0) in range(95, 115)
    True
    """
    gone, fallen = 0, 0.0
    while fallen < need and gone <= MOST_LISTED:
        stride = gone // 16 + 1
        # A climb means that the peak is not passed yet.
        fallen = max(0.0, fallen - slope(start + step * (gone + stride / 2)) * step * stride)
        gone += stride
    return start + step * gone


def _rounded(reach: int) -> int:
    # A few sizes, so that neighbouring tilts share one listing.
    grain = 1 << max(abs(reach).bit_length() - 5, 3)
    return -(-reach // grain) * grain


def geometric(first: arb, ratio: arb) -> arb:
    r"""The series first (1 + ratio + ratio^2 + ...), infinite unless ratio < 1.

    >>> geometric(arb(1), arb(0.5)) == 2
    True
    """
    return first / (1 - ratio) if ratio < 1 else arb("inf")


def nothing(c: arb) -> arb:
    r"""The bound where nothing is left out: 0 at every c."""
    del c
    return arb(0)


# -- laws in closed form --------------------------------------------------------------------------


def total_variation_losses(hidden: arb) -> Losses:
    r"""The listing that dominates every pair at total variation distance ``hidden``.

    With probability ``hidden`` everything shows, else nothing: delta(epsilon) = ``hidden`` at every
    epsilon >= 0. For a pair that attains it in one direction, as one-sided Polya noise of shape
    r <= 1 does, it stands for both directions in any composition.

    >>> total_variation_losses(arb(0.25)).masses[0] == 0.75
    True
    """
    return Losses(
        masses=(1 - hidden,),
        losses=(arb(0),),
        hidden=hidden,
        beyond=nothing,
        largest=arb(0),
    )


def laplace_losses(scale: Fraction, shift: int) -> Losses:
    r"""All d + 1 losses (d - 2y)/s of discrete Laplace noise; the listing is whole.

    Of mass 1/(1 + beta), C beta^y in between, and beta^d/(1 + beta), C = (1-beta)/(1+beta).

    >>> found = laplace_losses(Fraction(10), 3)
    >>> len(found.masses), sum(found.masses, arb(0)).contains(1)
    (4, True)
    """
    if shift > MOST_LISTED:
        raise NotDerived(
            f"the losses of discrete Laplace noise under a shift of {shift}",
            f"they are listed up to {MOST_LISTED} outputs",
        )
    rate = 1 / ball(scale)
    center, edge = (rate / 2).tanh(), 1 / (1 + (-rate).exp())
    inner = [center * (-rate * y).exp() for y in range(1, shift)]
    return Losses(
        masses=(edge, *inner, edge * (-rate * shift).exp()),
        losses=tuple(ball((shift - 2 * y) / scale) for y in range(shift + 1)),
        hidden=arb(0),
        beyond=nothing,
        largest=ball(shift / scale),
    )


@dataclass(frozen=True, slots=True)
class _Gaussian:
    # One discrete Gaussian: P(m) = w(m)/Z, w(m) = e^(-m^2/2v), L(m) = d(2m + d)/2v.
    variance: Fraction
    shift: int

    def ends(self, tilt: float, need: float) -> tuple[int, int]:
        v, d = float(self.variance), self.shift
        right = outward(lambda m: (tilt * d - m) / v, 0, need)
        finite = outward(lambda m: (2 * tilt * d - m) / v, 0, 1.0)
        return -outward(lambda m: -m / v, 0, need), max(right, finite)

    def cut(self, low: int, high: int) -> Cut:
        v, d = ball(self.variance), self.shift
        rate, total = 1 / (2 * v), theta.partition(self.variance)
        start, shrink = min(max(low, 0), high), (-2 * rate).exp()
        masses: dict[int, arb] = {}
        for step, end in ((1, high), (-1, low)):
            # w(m + step) = w(m) e^(-(2 step m + 1)/2v), a factor that shrinks by e^(-1/v).
            mass = (-rate * start * start).exp() / total
            factor = (-rate * (2 * step * start + 1)).exp()
            for m in range(start, end + step, step):
                masses[m] = mass
                mass *= factor
                factor *= shrink
        unit = ball(Fraction(d) / (2 * self.variance))

        def side(edge: int, away: int) -> Callable[[arb], arb]:
            # t(m + away)/t(m) = e^(-(2 away m + 1)/2v + away c d/v) falls away from the edge.
            loss, mass = unit * (2 * edge + d), masses[edge]

            def bound(c: arb) -> arb:
                ratio = (rate * (2 * c * d * away - 2 * away * edge - 1)).exp()
                return geometric(mass * (c * loss).exp() * ratio, ratio)

            return bound

        span = range(low, high + 1)
        return Cut(
            masses=tuple(masses[m] for m in span),
            losses=tuple(unit * (2 * m + d) for m in span),
            left=side(low, -1),
            right=side(high, 1),
            hidden=arb(0),
            largest=arb("inf"),
        )


def gaussian_losses(variance: Fraction, shift: int, tilt: Fraction, bits: int) -> Losses:
    r"""The losses of one discrete Gaussian: d(2m + d)/2v, of mass e^(-m^2/2v)/Z.

    >>> from dpcore.numbers.enclosure import precision
    >>> with precision(96):
    ...     found = gaussian_losses(Fraction(9), 1, Fraction(5), 60)
    ...     bool(abs(sum(found.masses, arb(0)) - 1) < 1e-15)
    True
    """
    return list_losses(_Gaussian(variance, shift), tilt, bits)


def from_ratios(first: arb, ratios: Sequence[arb]) -> tuple[list[arb], list[arb]]:
    r"""p(n) and log p(n) for n = 0, 1, ..., from p(0) and the ratios p(n+1)/p(n).

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


def symmetric_cut(
    masses: Sequence[arb],
    logarithms: Sequence[arb],
    shift: int,
    low: int,
    high: int,
    bounds: tuple[Callable[[arb], arb], Callable[[arb], arb]],
    largest: arb | None = None,
) -> Cut:
    r"""The cut of a symmetric law from tables of p(n) and log p(n), n = 0, 1, ...

    ``bounds`` are those of the left and of the right side; no ``largest`` loss stands for infinity.
    """
    span = range(low, high + 1)
    return Cut(
        masses=tuple(masses[abs(m)] for m in span),
        losses=tuple(logarithms[abs(m)] - logarithms[abs(m + shift)] for m in span),
        left=bounds[0],
        right=bounds[1],
        hidden=arb(0),
        largest=arb("inf") if largest is None else largest,
    )
