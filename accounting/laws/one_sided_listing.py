r"""Listings of laws that are not symmetric: Poisson, binomial and Polya noise.

Everything is read in values k of X. X against X - d: t(k) = p(k) (p(k)/p(k+d))^c, the loss rising
in k. The mirrored direction: t(k) = p(k) (p(k)/p(k-d))^c for k >= d, the loss falling in k; k < d
is hidden. Proofs: docs/proofs/losses.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Protocol

from flint import arb

from accounting.pairs.balls import as_ball
from accounting.pairs.listing import Cut, geometric, nothing, outward
from accounting.pairs.pair import Loss
from dpcore.noise import Noise

__all__ = ["OneSided", "flat_rest", "one_sided_cut", "one_sided_ends", "two_ended_rest"]


class OneSided(Protocol):
    r"""X against X - ``shift``, or the mirrored direction, for a log-concave X on 0, 1, ..."""

    @property
    def noise(self) -> Noise:
        r"""The law of X."""
        ...

    @property
    def shift(self) -> int:
        r"""d >= 1."""
        ...

    @property
    def mirrored(self) -> bool:
        r"""Whether it is -X against -X - d."""
        ...

    @property
    def most(self) -> int | None:
        r"""The largest value of X, if any."""
        ...

    def hidden(self) -> Loss:
        r"""P(L = oo)."""
        ...

    def log_odds(self, k: int) -> arb:
        r"""log p(k)/p(k+d)."""
        ...

    def step(self, k: int) -> arb:
        r"""p(k+1)/p(k), falling in k."""
        ...

    def log_step(self, k: float) -> float:
        r"""About its logarithm, for real k."""
        ...

    def rest(self, last: int, mass: arb, loss: arb) -> tuple[Callable[[arb], arb], arb]:
        r"""For X against X - d: a bound on what lies right of ``last``, and the largest loss."""
        ...


def one_sided_ends(pair: OneSided, tilt: float, need: float) -> tuple[int, int]:
    r"""Where the terms have fallen by e^-``need`` for c = 0 and ``tilt``: a guess."""
    (least, most), back = _values(pair), _back(pair)

    def rising(c: float, k: float) -> float:
        if k < least or (most is not None and k > most):
            return need if k < least else -need
        here = pair.log_step(k)
        return here + c * (here - pair.log_step(k + back))

    mean = pair.noise.mean
    start = max(math.floor(mean if isinstance(mean, Fraction) else mean.lower), least)
    start = start if most is None else max(min(start, most), least)
    tilts = ((tilt, need), (0.0, need), (2 * tilt, 1.0))
    first = min(outward(partial(rising, c), start, fall, -1) for c, fall in tilts)
    last = max(outward(partial(rising, c), start, fall) for c, fall in tilts)
    return (-last, -first) if pair.mirrored else (first, last)


def one_sided_cut(pair: OneSided, low: int, high: int) -> Cut:
    r"""The masses by their ratios from one end, and the rests on either side."""
    hidden, (least, most) = as_ball(pair.hidden()), _values(pair)
    if most is not None and most < least:
        return Cut(masses=(), losses=(), left=nothing, right=nothing, hidden=hidden, largest=arb(0))
    first, last = (-high, -low) if pair.mirrored else (low, high)
    first = max(first, least) if most is None else min(max(first, least), most)
    last = max(last, first) if most is None else max(min(last, most), first)
    masses = _masses(pair, first, last)
    others = _masses(pair, first + _back(pair), last + _back(pair))
    losses = tuple((here / there).log() for here, there in zip(masses, others, strict=True))
    # P(X > last) or P(X < first), geometric, where the loss is below that at the end.
    if pair.mirrored:
        step = pair.step(last)
        left = partial(flat_rest, geometric(masses[-1] * step, step), losses[-1])
        right, largest = _near_shift(pair, first, masses[0], losses[0]), -pair.log_odds(0)
    else:
        step = 1 / pair.step(first - 1) if first else arb(0)
        left = partial(flat_rest, geometric(masses[0] * step, step), losses[0])
        right, largest = pair.rest(last, masses[-1], losses[-1])
    return Cut(masses=masses, losses=losses, left=left, right=right, hidden=hidden, largest=largest)


def flat_rest(mass: arb, loss: arb, c: arb) -> arb:
    r"""A mass whose losses are at most ``loss``, at c >= 0."""
    return mass * (c * loss).exp()


def two_ended_rest(
    count: int,
    ratio: tuple[arb, arb],
    near: tuple[arb, arb],
    far: tuple[arb, arb],
    c: arb,
) -> arb:
    r"""``count`` terms beyond the term ``near``, the last of them ``far``: (p, L) for p e^(cL).

    The first of them is ``ratio`` times the near one, (r, s) for r s^c. If that is less than 1,
    they fall and then may rise, so none is above both ends. Infinite otherwise.
    """
    if not ratio[0] * (c * ratio[1].log()).exp() < 1:
        return arb("inf")
    return count * flat_rest(*near, c).max(flat_rest(*far, c))


def _values(pair: OneSided) -> tuple[int, int | None]:
    # The values of X with finite losses; none where the second is below the first.
    if pair.mirrored:
        return pair.shift, pair.most
    return 0, None if pair.most is None else pair.most - pair.shift


def _back(pair: OneSided) -> int:
    # The loss at k compares p(k) with p(k + back).
    return -pair.shift if pair.mirrored else pair.shift


def _masses(pair: OneSided, first: int, last: int) -> tuple[arb, ...]:
    found = [pair.noise.pmf_ball(first)]
    for k in range(first, last):
        found.append(found[-1] * pair.step(k))
    return tuple(found)


def _near_shift(pair: OneSided, first: int, mass: arb, loss: arb) -> Callable[[arb], arb]:
    # The terms at k = d..first-1 of the mirrored direction.
    count = first - pair.shift
    if count == 0:
        return nothing
    step = pair.step(first - 1)
    ratio = 1 / step, pair.step(first - 1 - pair.shift) / step
    far = pair.noise.pmf_ball(pair.shift), -pair.log_odds(0)
    return partial(two_ended_rest, count, ratio, (mass, loss), far)
