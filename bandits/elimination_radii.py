r"""Confidence radii of released means, by which elimination algorithms decide which arms to drop.

:class:`ExactRadius` (the default) is certified for the law of the actual noise in the sum.
:class:`PaperRadius` is equation 2 of Chowdhury and Zhou (arXiv 2206.05772). :class:`DpSeRadius` is
the radius of Sajed and Sheffet (2019). In the methods of a radius, ``failure`` is p, the failure
probability of the whole run: with probability at least 1 - p, all confidence intervals of all
batches contain their means. In :func:`certified_width` and :func:`certified_gap` it is that of one
width. The ``failure`` of a protocol, which determines the threshold tau, bounds the probability
that a sum mod m is decoded incorrectly.

Certified widths follow from the law of the noise and Hoeffding's bound. Consider a batch of n =
``pulls`` users of one arm with true mean mu. The reward of user i is encoded as an integer E_i in
[0, g], where g is the precision. The E_i are independent, and E_i/g has mean mu. Let X be the noise
of the sum minus its mean, in steps of 1/g. The released mean is (sum_i E_i + X)/(n g). Let h(u) =
e^(-2u^2/n) for u > 0 and h(u) = 1 otherwise. For every width beta, all knots k_1 < ... < k_J and
k_0 = -infinity, Hoeffding's bound conditional on X gives

    P(released mean - mu >= beta)
        <= E[h(n beta - X/g)]
        <= sum_j P(k_(j-1) < X <= k_j) h(n beta - k_j/g) + P(X > k_J).

The bound uses only certified tail probabilities of X. One knot gives the union bound over reward
and noise; further knots never make the bound worse. A sum mod m is decoded correctly if \|X\| <=
tau. No knot exceeds tau, so the last term also covers decoding errors. Proofs:
docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import numpy as np
from flint import arb

from bandits.batch import failure_probability_of
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer
from bandits.privatizers.privatizer import Privatizer, Unprotected
from dpcore.analysis.contour_sums import quick_tail
from dpcore.continual_sums import variance
from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.sum_of_shares import summed
from dpcore.noise import Noise
from dpcore.numbers.arrays import Floats
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.parameter import RationalLike, check_fields, integer, make_integers, rational_in
from dpcore.protocols.noisy_sums import ModularSum
from dpcore.spec_syntax import word

# The first knots, in standard deviations; more follow until the mass beyond them is negligible.
_STARTS: Final = (0.0, 1.0, 2.2, 3.6, 4.8)
_FURTHER: Final = Fraction(4, 3)  # ratio of the distances of successive outer knots
_LEFT: Final = Fraction(1, 100_000)  # mass beyond the last knot, relative to failure
_MOST_FURTHER: Final = 40  # the largest number of outer knots; widths are valid for any number
# Knots are added while they could lower the bound by this fraction, for at most _ROUNDS rounds.
_GAIN: Final = 0.08
_ROUNDS: Final = 5  # with fewer rounds, widths are still valid but larger
_AT_ONCE: Final = 4  # knots per round, where they may lower the bound most
_ROUGH: Final = 18  # bisections of a search between rounds; _FINE is for the last search
# If rewards vary far less than the noise, only knots below the width improve the bound.
_BELOW: Final = 1 - 2.0**-16
_TAIL_BITS: Final = 10  # the precision of a tail: a coarse bound is slightly larger, never smaller
_BITS: Final = 56
_WIDTH_BITS: Final = 64
_FINE: Final = 46
_STEP_UP: Final = 2.0**-36  # relative step by which a width is raised until balls certify it
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
    r"""Return a width beta with P(|released mean - mu| > beta) <= ``failure``, or infinity.

    Here mu is the true mean. ``noise`` is the law of the total noise in the sum, in steps of
    1/``precision``, or None without noise; the analyzer subtracts the mean of this law.
    ``threshold`` is tau if the sum is decoded mod m, otherwise None. The result is infinite if no
    width is certified, for example if the probability that the centred noise exceeds tau in
    absolute value is already above ``failure``.
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
    r"""Return D with P(|difference of two released means - (mu_a - mu_b)| > D) <= ``failure``.

    Arms a and b have the true means mu_a and mu_b; each has n = ``pulls`` rewards and the same law
    of the noise. The difference is one sum of 2n rewards and two noise terms, so D is about sqrt(2)
    times the width for one mean. Two disjoint confidence intervals would need twice that width.
    Arguments and errors are as in :func:`certified_width`; InvalidParameter is also raised unless
    :func:`has_gap`.
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
    r"""Whether the difference of two draws of ``noise`` has the law of their sum, up to a shift."""
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
        raise InvalidParameter("threshold", threshold, "must be None: this noise is not centred")
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
    r"""One tail of the noise, bounded at the increasing ``knots``, which are in steps.

    ``points`` are the knots in units of reward, minus the mean of the noise. ``beyond[j]`` is an
    upper bound on the probability that ``sign`` times the noise exceeds ``knots[j]``.
    """

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
        # The new knot between a knot and the next, or beyond the last knot.
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
    # The search for the knots and the width uses floats; ball arithmetic certifies the width.
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
    # h at each knot, and the possible gain of further knots above each knot.
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
    # The bound in the module docstring for both directions, rounded up.
    with precision(_BITS):
        reach, total = ball(Fraction(width) * pulls), arb(0)
        for side in sides:
            rooms = [(reach - ball(point)).max(arb(0)) for point in side.points]
            h = [(-2 * room * room / pulls).exp() for room in rooms]
            total += h[0]
            for low, high, beyond in zip(h, [*h[1:], arb(1)], side.beyond, strict=True):
                total += ball(beyond) * (high - low)
        return Enclosure.of(total * 2 / len(sides)).upper


RadiusName: TypeAlias = Literal["exact", "paper"]

TailName: TypeAlias = Literal["printed", "released"]
r"""Which h :class:`PaperRadius` uses for Renyi noise: the paper's or that of its code."""

Size: TypeAlias = int | tuple[int, ...]
r"""The number of users in a batch, or in each of the releases into which a batch is split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Radius(ABC):
    r"""A rule for the confidence width of a released mean, by which arms are dropped."""

    @abstractmethod
    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r"""The width beta for a released mean of ``pulls`` rewards, rounded up.

        If the rule is proven, \|released mean - true mean\| <= beta holds for all arms and batches
        together, except with probability p = ``failure``.
        """

    def gap(
        self, privatizer: Privatizer, pulls: Size, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r"""The largest distance below the best mean at which an arm stays; here twice the width."""
        each = integer("pulls", pulls, at_least=1)
        return 2 * self.width(privatizer, each, batch=batch, active=active, failure=failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRadius(Radius):
    r"""The width that :func:`certified_width` proves for the actual noise.

    Let p = ``failure``, and let Phi be the set of active arms in batch b. The width of each arm has
    failure probability p w(b)/\|Phi\|, which covers reward, noise and decoding errors. The weight
    w(b) is 1/``batches`` if the maximum number of batches is known (``Schedule.batches``).
    Otherwise it is 1/(b(b+1)), which sums to 1 and is at least the 1/(2 b^2) of the papers.
    """

    batches: int | None = None

    def __post_init__(self) -> None:
        if self.batches is not None:
            make_integers(self, "batches")

    def weight(self, batch: int) -> Fraction:
        r"""The fraction w(b) of the failure probability p that is used in batch b = ``batch``."""
        b = integer("batch", batch, at_least=1, at_most=self.batches, limit="batches")
        return Fraction(1, b * (b + 1)) if self.batches is None else Fraction(1, self.batches)

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        share = _failure(failure) * self.weight(batch) / _active(active)
        share -= privatizer.missed(pulls)
        if share <= 0:
            return math.inf
        return certified_width(
            privatizer.noise(pulls),
            precision=privatizer.precision(pulls),
            pulls=privatizer.reporting(pulls),
            failure=share,
            threshold=_threshold(privatizer, pulls),
        )

    def gap(
        self, privatizer: Privatizer, pulls: Size, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r"""The certified width of the difference of two means: about sqrt(2) beta, not 2 beta.

        Here beta is :meth:`width`, and p = ``failure``. Each comparison of the best arm with one of
        the \|Phi\| - 1 other active arms fails with probability at most p w(b)/(\|Phi\| - 1). If
        none fails, the best arm stays active, and every arm whose true mean is more than 2 gaps
        below the best is dropped. The gap is 2 beta if dpcore has no law of the difference
        (:func:`has_gap`). If a batch is split into several releases of an arm, whose noise terms
        add up, ``pulls`` contains their sizes.
        """
        parts = pulls if isinstance(pulls, tuple) else (pulls,)
        others = max(_active(active) - 1, 1)
        # A release has noise of another law with probability <= missed; there are two releases.
        share = _failure(failure) * self.weight(batch) / others
        noise, missed = privatizer.of_parts(parts)
        share -= 2 * missed
        if share <= 0 or (missed and share < LEAST_FAILURE):
            return math.inf
        if not has_gap(noise):
            return Radius.gap(self, privatizer, pulls, batch=batch, active=active, failure=failure)
        return certified_gap(
            noise,
            precision=privatizer.precision(parts[0]),
            pulls=sum(map(privatizer.reporting, parts)),
            failure=share,
            threshold=_threshold(privatizer, *parts) if len(parts) == 1 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Formula(Radius):
    r"""A width given by a formula in l = ``pulls`` and ``odds`` = \|Phi\| b^2/p."""

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        l, b = integer("pulls", pulls, at_least=1), integer("batch", batch, at_least=1)
        odds = _active(active) * b * b / _failure(failure)
        return narrow(lambda: self.formula(privatizer, l, odds), _WIDTH_BITS).upper_float

    @abstractmethod
    def formula(self, privatizer: Privatizer, pulls: int, odds: Fraction) -> arb:
        r"""The width for these ``pulls`` and ``odds``, computed in ball arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRadius(_Formula):
    r"""The width in equation 2 of Chowdhury and Zhou (arXiv 2206.05772).

    For l rewards in batch b, the set Phi of active arms, and p = ``failure``, the width is
    sqrt(ln(4\|Phi\|b^2/p)/(2l)) + sigma sqrt(ln(2\|Phi\|b^2/p))/l + h ln(2\|Phi\|b^2/p)/l. The
    constants sigma and h depend on the trust model, epsilon and l (:meth:`constants`). The paper
    shows that all intervals contain their means with probability at least 1 - 3p. For Renyi noise
    with the scaling s of the privatizer, ``form="released"`` uses h = 1/(s epsilon), as does the
    code released with the paper; ``form="printed"`` uses sqrt(2)/(s epsilon sqrt l).
    """

    form: TailName = word(TailName, "printed")

    def __post_init__(self) -> None:
        check_fields(self)

    def formula(self, privatizer: Privatizer, pulls: int, odds: Fraction) -> arb:
        sigma, h = self.constants(privatizer, pulls)
        reward, tail = ball(4 * odds).log(), ball(2 * odds).log()
        return (reward / (2 * pulls)).sqrt() + (sigma * tail.sqrt() + h * tail) / pulls

    def constants(self, privatizer: Privatizer, pulls: int) -> tuple[arb, arb]:
        r"""The constants (sigma, h) of the width for l = ``pulls`` users, in ball arithmetic."""
        if isinstance(privatizer, Unprotected):
            return arb(0), arb(0)
        _check_all_stay(privatizer)
        if not isinstance(privatizer, SumPrivatizer):
            raise InvalidParameter(
                "privatizer",
                privatizer.name,
                "Chowdhury and Zhou (2023) give no radius for this noise: use ExactRadius()",
            )
        if privatizer.delta:
            reason = (
                "Chowdhury and Zhou (2023) give no radius for noise calibrated to a delta: use "
                "ExactRadius()"
            )
            raise InvalidParameter("privatizer", privatizer, reason)
        e, s = ball(privatizer.epsilon), ball(privatizer.scaling)
        root = arb(2).sqrt()
        match privatizer.trust:
            case "pure" | "central":
                return root / e, 1 / e
            case "shuffled-pure":  # noise calibrated to epsilon/2
                return 2 * root / e, 2 / e
            case "local":
                return (2 * root * arb(pulls).sqrt() + root) / e, 2 * root / e
            case "renyi":
                h = 1 if self.form == "released" else root / arb(pulls).sqrt()
                return (2 + root / s) / e, h / (s * e)
            case "concentrated":
                return (root + root / s) / e, arb(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSeRadius(_Formula):
    r"""The width h_e + c_e of Sajed and Sheffet (2019), for discrete Laplace noise.

    In epoch e, let S be the set of active arms, R the number of pulls of each of them, and p =
    ``failure``. Then h_e = sqrt(ln(8\|S\|e^2/p)/(2R)) and c_e = ln(4\|S\|e^2/p)/(R epsilon). The
    noise of a sum has scale 1/epsilon in units of reward. An arm is dropped if the best mean
    exceeds its mean by more than 2 h_e + 2 c_e.
    """

    def formula(self, privatizer: Privatizer, pulls: int, odds: Fraction) -> arb:
        noise = ball(4 * odds).log() * ball(_laplace_scale(privatizer) / pulls)
        return (ball(8 * odds).log() / (2 * pulls)).sqrt() + noise


def tkms_width(*, batches: int, pulls: int, sigma: Fraction, horizon: int) -> float:
    r"""The width (2 sqrt(t) sigma/N + 1/sqrt(N)) sqrt(2 ln T) of Tenenbaum and others, rounded up.

    It is the width for a mean over all data so far, which consists of N = ``pulls`` rewards in t =
    ``batches`` released sums. The horizon is T = ``horizon``. The noise of each sum is sub-Gaussian
    with parameter ``sigma``, in units of reward.
    """

    def width() -> arb:
        noise = 2 * arb(batches).sqrt() * ball(sigma) / pulls
        return (noise + 1 / arb(pulls).sqrt()) * (2 * arb(horizon).log()).sqrt()

    return narrow(width, _WIDTH_BITS).upper_float


def _failure(failure: RationalLike) -> Fraction:
    return failure_probability_of(failure, argument="failure")


def _active(active: int) -> int:
    return integer("active", active, at_least=1)


def _laplace_scale(privatizer: Privatizer) -> Fraction:
    # The scale of the single noise draw in a sum, in units of reward.
    if isinstance(privatizer, Unprotected):
        return Fraction(0)
    _check_all_stay(privatizer)
    if isinstance(privatizer, SumPrivatizer) and privatizer.trust in ("central", "pure"):
        return 1 / privatizer.epsilon
    raise InvalidParameter("privatizer", privatizer.name, "must add discrete Laplace noise")


def _check_all_stay(privatizer: Privatizer) -> None:
    if privatizer.deployment.factor != 1:
        reason = "plans for dropouts or collusion; the papers give no radius: use ExactRadius()"
        raise InvalidParameter("privatizer", privatizer.name, reason)


def _threshold(privatizer: Privatizer, pulls: int) -> int | None:
    protocol = privatizer.protocol(pulls)
    return protocol.threshold if isinstance(protocol, ModularSum) else None
