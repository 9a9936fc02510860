r"""Certified confidence widths of released means, from the noise law and Hoeffding's bound.

A batch of n = ``pulls`` users releases the mean (sum_i E_i + X)/(n g). The encoded rewards E_i/g
are independent, in [0, 1], with mean mu; X is the centred noise of the sum in steps of 1/g. With
h(u) = e^(-2u^2/n) for u > 0 and h(u) = 1 otherwise, Hoeffding's bound conditional on X gives, for
any knots k_1 < ... < k_J and k_0 = -infinity,

    P(mean - mu >= beta) <= E[h(n beta - X/g)]
                         <= sum_j P(k_(j-1) < X <= k_j) h(n beta - k_j/g) + P(X > k_J).

The bound uses only certified tails of X. One knot gives the union bound over reward and noise;
further knots never make the bound worse. If the sum is decoded mod m, a decoding error needs \|X\|
> tau: knots are at most tau, so the last term covers wraparound. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb

from dpcore.analysis.laplace_sums import quick_tail
from dpcore.continual import variance
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.sum_of_shares import summed
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.floating import Floats
from dpcore.numbers.parameter import RationalLike, integer, rational_in

# The first knots, in standard deviations; more follow until the mass beyond is negligible.
_STARTS: Final = (0.0, 1.0, 2.2, 3.6, 4.8)
_FURTHER: Final = Fraction(4, 3)  # ratio of the distances of successive outer knots
_LEFT: Final = Fraction(1, 100_000)  # the mass beyond the last knot, as a fraction of the failure
_MOST_FURTHER: Final = 40  # the largest number of outer knots; widths are valid for any number
# Knots are added while they could lower the bound by this fraction, for at most _ROUNDS rounds.
_GAIN: Final = 0.08
_ROUNDS: Final = 5  # with fewer rounds widths are valid and larger
_AT_ONCE: Final = 4  # knots per round, where they may lower the bound most
_ROUGH: Final = 18  # bisections of a search between rounds; _FINE is for the last search
# If rewards vary far less than the noise, only knots below the width improve the bound.
_BELOW: Final = 1 - 2.0**-16
_TAIL_BITS: Final = 10  # the precision of a tail: a coarse bound is slightly larger, never smaller
_BITS: Final = 56
_FINE: Final = 46
_STEP_UP: Final = 2.0**-36  # the step by which a float is raised until balls certify it
_FAR: Final = 350.0  # a search starts at Hoeffding's bound e^(-2 _FAR), which fits a float
# The search uses floats, which round smaller failure probabilities to 0.
LEAST_FAILURE: Final = Fraction(1, 10**300)


def certified_width(
    noise: Noise | None,
    *,
    precision: int,
    pulls: int,
    failure: RationalLike,
    threshold: int | None = None,
) -> float:
    r"""A beta with P(|released mean - mu| > beta) <= ``failure``, or infinity if there is none.

    ``noise`` is the law of the total noise in the sum, in steps of 1/``precision`` (None without
    noise); its mean is subtracted, as the analyzer does. ``threshold`` is tau if the sum is decoded
    mod m, otherwise None. The result is infinite if P(|X| > tau) alone exceeds ``failure``.
    """
    steps, users, chance, tau = _numbers(precision, pulls, failure, threshold)
    if noise is None:
        return _hoeffding(users, chance)
    return _certified(_checked(noise, tau), steps, users, chance, tau)


def certified_gap(
    noise: Noise | None,
    *,
    precision: int,
    pulls: int,
    failure: RationalLike,
    threshold: int | None = None,
) -> float:
    r"""A D with P(|(difference of two released means) - (mu_a - mu_b)| > D) <= ``failure``.

    Both arms have n = ``pulls`` and the same law of noise. The difference is one sum of 2n rewards
    and two noise terms, so D is about sqrt(2) widths, whereas disjoint intervals need 2 widths.
    Arguments and errors are as in :func:`certified_width`; InvalidParameter is also raised if
    dpcore has no law of the difference of two draws.
    """
    steps, users, chance, tau = _numbers(precision, pulls, failure, threshold)
    if noise is None:
        return 2 * _hoeffding(2 * users, chance)
    both = summed(_checked(noise, tau), 2)  # X - Y and X + Y differ by a constant
    if not has_gap(noise):
        raise InvalidParameter("noise", noise, "must be symmetric about its mean")
    if tau is not None:
        # Neither sum may wrap around; the remaining failure probability is for the difference.
        chance -= min(4 * _beyond(noise, 1, tau), chance)
    return 2 * _certified(both, steps, 2 * users, chance, None) if chance > 0 else math.inf


def has_gap(noise: Noise | None) -> bool:
    r"""Whether dpcore has the law of the difference of two draws, up to a constant."""
    fair = isinstance(noise, Binomial) and 2 * noise.probability == 1
    return noise is None or noise.symmetric or fair


def _numbers(
    steps: int, pulls: int, failure: RationalLike, threshold: int | None
) -> tuple[int, int, Fraction, int | None]:
    tau = None if threshold is None else integer("threshold", threshold, at_least=0)
    n, chance = integer("pulls", pulls, at_least=1), rational_in("failure", failure, "(0, 1)")
    if chance < LEAST_FAILURE:
        raise InvalidParameter("failure", failure, "must be >= 1e-300: the search uses floats")
    return integer("precision", steps, at_least=1), n, chance, tau


def _checked(noise: Noise, threshold: int | None) -> Noise:
    if not isinstance(noise, Noise):
        raise InvalidParameter("noise", noise, "must be a Noise")
    if _mean(noise) != 0 and threshold is not None:
        raise InvalidParameter("threshold", threshold, "only centred noise can be decoded mod m")
    return noise


@lru_cache(maxsize=1 << 12)
def _hoeffding(pulls: int, failure: Fraction) -> float:
    with precision(_BITS):
        return Enclosure.of((ball(2 / failure).log() / (2 * pulls)).sqrt()).upper_float


@lru_cache(maxsize=1 << 14)
def _tail(noise: Noise, sign: int, knot: int) -> Enclosure:
    # Encloses P(sign X > knot); for symmetric laws only at knot >= 0.
    if isinstance(noise, PolyaDifference):
        found = quick_tail(draws=noise.shape, scale=noise.scale, least=knot + 1, bits=_TAIL_BITS)
        if found is not None:
            return found
    with precision(_BITS):
        value = noise.sf_ball(knot) if sign > 0 else noise.cdf_ball(-knot - 1)
        if value.is_finite() and value.rel_accuracy_bits() >= _TAIL_BITS:
            return Enclosure.of(value)
    if sign > 0:
        return noise.enclose_sf(knot, _TAIL_BITS)
    return noise.enclose_cdf(-knot - 1, _TAIL_BITS)


def _beyond(noise: Noise, sign: int, knot: int) -> Fraction:
    # An upper bound on P(sign X > knot).
    if noise.symmetric and knot < 0:
        return 1 - Fraction(_tail(noise, 1, -knot - 1).lower)
    return min(Fraction(_tail(noise, sign, knot).upper), Fraction(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    r"""One tail of the noise: knots in steps and in units of reward, and the mass beyond each."""

    noise: Noise
    sign: int
    precision: int
    limit: int | None
    knots: tuple[int, ...]
    points: tuple[Fraction, ...]
    beyond: tuple[Fraction, ...]

    def floats(self) -> tuple[Floats, Floats]:
        return np.array(self.points, dtype=float), np.array(self.beyond, dtype=float)

    def above(self, cell: int) -> int:
        # A new knot between this one and the next, or beyond the last one.
        if cell + 1 < len(self.knots):
            return (self.knots[cell] + self.knots[cell + 1]) // 2
        return _further(self.sign * _mean(self.noise), self.knots[cell])


def _further(centre: Fraction, knot: int) -> int:
    return math.floor(centre + (knot + 1 - centre) * _FURTHER) + 1


def _side(noise: Noise, sign: int, steps: int, limit: int | None, knots: Iterable[int]) -> _Side:
    # No knot exceeds the limit: a sum with more noise may be decoded incorrectly.
    inside = {knot if limit is None else min(knot, limit) for knot in knots}
    centre, ordered = sign * _mean(noise), tuple(sorted(inside))
    return _Side(
        noise=noise,
        sign=sign,
        precision=steps,
        limit=limit,
        knots=ordered,
        points=tuple((knot - centre) / steps for knot in ordered),
        beyond=tuple(_beyond(noise, sign, knot) for knot in ordered),
    )


def _mean(noise: Noise) -> Fraction:
    mean = noise.mean
    if not isinstance(mean, Fraction):
        raise InvalidParameter("noise", noise, "must have a rational mean")
    return mean


def _first_sides(
    noise: Noise, steps: int, chance: Fraction, threshold: int | None
) -> tuple[_Side, ...]:
    # Both tails, or only one for symmetric noise.
    deviation, sides = math.sqrt(variance(noise)[1]), []
    for sign in (1,) if noise.symmetric else (1, -1):
        centre = sign * _mean(noise)
        starts = (*_STARTS, *(-start for start in _STARTS))
        found = {math.floor(centre + Fraction(start * deviation)) for start in starts}
        last = max(found)
        for _ in range(_MOST_FURTHER):
            if _beyond(noise, sign, last) <= chance * _LEFT:
                break
            last = _further(centre, last)
            found.add(last)
        sides.append(_side(noise, sign, steps, threshold, found))
    return tuple(sides)


@lru_cache(maxsize=1 << 14)
def _certified(
    noise: Noise, steps: int, pulls: int, chance: Fraction, threshold: int | None
) -> float:
    sides, wanted = _first_sides(noise, steps, chance, threshold), float(chance)
    # Floats search for the knots and the width; balls certify the width.
    width = _search(sides, pulls, wanted, math.inf, _ROUGH)
    if width == math.inf:
        return width
    for _ in range(_ROUNDS):
        finer = _finer(sides, pulls, width, wanted)
        if finer == sides:
            break
        sides, width = finer, _search(finer, pulls, wanted, width, _ROUGH)
    width, step = _search(sides, pulls, wanted, width, _FINE), _STEP_UP
    while width < math.inf:
        width *= 1 + step
        if _failure_upper(sides, pulls, width) <= chance:
            break
        step *= 2
    return width


def _tails_at(points: Floats, beyond: Floats, pulls: int, width: float) -> tuple[Floats, Floats]:
    # h at each knot, and the possible gain of further knots above each one.
    room = np.maximum(pulls * width - points, 0.0)
    h = np.exp(-2.0 * room * room / pulls)
    return h, (beyond - np.append(beyond[1:], 0.0)) * (np.append(h[1:], 1.0) - h)


def _bound(arrays: list[tuple[Floats, Floats]], pulls: int, width: float) -> float:
    total = 0.0
    for points, beyond in arrays:
        h, _ = _tails_at(points, beyond, pulls, width)
        total += float(h[0] + np.dot(beyond, np.append(h[1:], 1.0) - h))
    return total * 2 / len(arrays)


def _search(
    sides: tuple[_Side, ...], pulls: int, chance: float, most: float, halvings: int
) -> float:
    # Approximates the smallest width whose bound is ``chance``, given that ``most`` suffices.
    arrays, low, high = [side.floats() for side in sides], 0.0, most
    if high == math.inf:
        far = max(float(points[-1]) for points, _ in arrays)
        high = (max(far, 0.0) + math.sqrt(_FAR * pulls)) / pulls
        if not _bound(arrays, pulls, high) < chance:
            return math.inf
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if _bound(arrays, pulls, middle) < chance else (middle, high)
    return high


def _finer(sides: tuple[_Side, ...], pulls: int, width: float, chance: float) -> tuple[_Side, ...]:
    gains: list[tuple[float, int, int]] = []
    for place, side in enumerate(sides):
        _, gain = _tails_at(*side.floats(), pulls, width * _BELOW)
        wide = [int(cell) for cell in np.flatnonzero(np.diff(side.knots) > 1)]
        if side.limit is None or side.knots[-1] < side.limit:
            wide.append(len(side.knots) - 1)
        gains += [(float(gain[cell]) * 2 / len(sides), place, cell) for cell in wide]
    if sum(gain for gain, _, _ in gains) <= _GAIN * chance:
        return sides
    best = sorted(gains, reverse=True)[:_AT_ONCE]
    found = []
    for place, side in enumerate(sides):
        knots = (*side.knots, *(side.above(cell) for _, at, cell in best if at == place))
        found.append(_side(side.noise, side.sign, side.precision, side.limit, knots))
    return tuple(found)


def _failure_upper(sides: tuple[_Side, ...], pulls: int, width: float) -> Fraction | float:
    # The bound of the module docstring for both directions, rounded up.
    with precision(_BITS):
        reach, total = ball(Fraction(width) * pulls), arb(0)
        for side in sides:
            rooms = [(reach - ball(point)).max(arb(0)) for point in side.points]
            h = [(-2 * room * room / pulls).exp() for room in rooms]
            total += h[0]
            for low, high, beyond in zip(h, [*h[1:], arb(1)], side.beyond, strict=True):
                total += ball(beyond) * (high - low)
        return Enclosure.of(total * 2 / len(sides)).upper
