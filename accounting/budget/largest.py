r"""The most rounds, or the largest sampling rate, at which a release keeps a promise.

delta(epsilon) grows with both: a round may be left unused, and a sample may be sampled once more.
Two certified points decide: the value returned keeps the promise, the next one was shown not to.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from accounting.budget.promise import log, one_round
from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.mechanism.real_noise import RealNoise
from accounting.release.curve import OneRelease
from accounting.totals.compose import Composition, compose
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.parameter import RationalLike, integer, positive_rational

__all__ = ["Most", "largest_rate", "most_rounds"]

_STEP: Final = Fraction(1, 10**6)
_WIDTHS: Final = (Fraction(1, 10**4), Fraction(1, 10**6), Fraction(1, 10**9))
_MOST_ROUNDS: Final = 1 << 40
_LEAST_RATE: Final = Fraction(1, 10**12)
_TRIES: Final = 200
_DIGITS: Final = 9
_FARTHEST: Final = 5.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Most:
    r"""``value`` keeps the promise: delta at its epsilon is ``found``.

    At ``more`` it is ``found_more``; None where nothing larger was allowed. ``most`` says whether
    that is certified to break the promise.
    """

    value: Fraction
    found: Bound
    more: Fraction | None
    found_more: Bound | None
    limit: Fraction

    def __post_init__(self) -> None:
        if not self.found.upper <= self.limit:
            raise InvalidParameter("found", self.found.upper, f"must be <= {self.limit}")

    @property
    def most(self) -> bool:
        r"""Whether one step more is certified not to keep the promise, or is not allowed."""
        if self.found_more is None:
            return True
        return self.found_more.lower is not None and self.found_more.lower > self.limit

    def to_json(self) -> dict[str, Any]:
        r"""Both points, exact values as text."""
        more = None
        if self.more is not None and self.found_more is not None:
            more = {"value": str(self.more), "delta_at_target": self.found_more.to_json()}
        return {
            "value": str(self.value),
            "delta_at_target": self.found.to_json(),
            "one_step_more": more,
            "most": self.most,
        }


def most_rounds(release: OneRelease, *, epsilon: RationalLike, delta: RationalLike) -> Most:
    r"""The most rounds of ``release`` that keep (epsilon, delta).

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> from accounting.release.real_curve import RealCurve
    >>> curve = RealCurve(noise=Gaussian(sigma=10), sensitivity=1)
    >>> most_rounds(curve, epsilon=2, delta="1e-5").value
    Fraction(25, 1)

    Raises :class:`NotDerived` where not even one round keeps it.
    """
    at, limit = _targets(epsilon, delta)

    def bound(rounds: Fraction) -> Bound:
        return _told_apart(compose((release, int(rounds))), at, limit)

    first = bound(Fraction(1))
    if first.upper > limit:
        raise NotDerived("rounds that keep this promise", "one alone does not: add more noise")
    return _largest(bound, Fraction(1), Fraction(_MOST_ROUNDS), limit, whole=True)


def largest_rate(
    noise: Noise | RealNoise,
    *,
    rounds: int,
    epsilon: RationalLike,
    delta: RationalLike,
    sensitivity: Sensitivity | int = 1,
) -> Most:
    r"""The largest Poisson sampling rate at which so many rounds keep (epsilon, delta).

    Raises :class:`NotDerived` where no rate above 1e-12 does.
    """
    at, limit = _targets(epsilon, delta)
    count = integer("rounds", rounds, at_least=1)

    def bound(rate: Fraction) -> Bound:
        part = one_round(noise, sensitivity, rate)
        return _told_apart(compose((part, count)), at, limit)

    whole = bound(Fraction(1))
    if whole.upper <= limit:
        return Most(value=Fraction(1), found=whole, more=None, found_more=None, limit=limit)
    if bound(_LEAST_RATE).upper > limit:
        raise NotDerived("a sampling rate that keeps this promise", "add more noise")
    return _largest(bound, _LEAST_RATE, Fraction(1), limit, whole=False)


def _told_apart(total: Composition, epsilon: Fraction, limit: Fraction) -> Bound:
    # As narrow as it takes to say on which side of the limit it is.
    for width in _WIDTHS:
        found = total.delta(epsilon, width)
        if found.upper <= limit or (found.lower is not None and found.lower > limit):
            break
    return found


def _targets(epsilon: RationalLike, delta: RationalLike) -> tuple[Fraction, Fraction]:
    at = positive_rational("epsilon", epsilon, "a promise of 0 allows nothing")
    limit = positive_rational("delta", delta, "the largest loss does not depend on the rate")
    if limit >= 1:
        raise InvalidParameter("delta", delta, "must lie in (0, 1)")
    return at, limit


def _largest(
    bound: Callable[[Fraction], Bound],
    low: Fraction,
    high: Fraction,
    limit: Fraction,
    *,
    whole: bool,
) -> Most:
    # `low` keeps the promise. Secants of log delta against the log of the value propose where it
    # breaks, once a little below and once a little above; halving where they lead nowhere.
    kept, broken, failing = bound(low), None, high
    points = [(log(low), log(kept.upper))]
    for attempt in range(_TRIES):
        if broken is not None and failing <= _after(low, whole=whole):
            break
        place = _proposed(points, log(limit), log(low), log(failing), halved=attempt % 4 == 3)
        aside = 1 + Fraction(2, 5) * _STEP * (1 if attempt % 2 else -1)
        value = _inside(Fraction(math.exp(place)) * aside, low, failing, whole=whole)
        if value is None:
            return Most(value=low, found=kept, more=None, found_more=None, limit=limit)
        found = bound(value)
        points.append((log(value), log(found.upper)))
        if found.upper <= limit:
            low, kept = value, found
        else:
            failing, broken = value, found
    more = None if broken is None else failing
    return Most(value=low, found=kept, more=more, found_more=broken, limit=limit)


def _proposed(
    points: list[tuple[float, float]], goal: float, low: float, high: float, *, halved: bool
) -> float:
    if len(points) == 1:
        return min(low + 2.0, high)
    (here, at), (there, before) = points[-1], points[-2]
    if halved or not abs(at - before) > 0 or not math.isfinite(at - before):
        return (low + high) / 2
    slope = (here - there) / (at - before)
    place = here + slope * (goal - at)
    # Far from the root a secant may lead astray: no further than eight octaves at once.
    place = min(max(place, here - _FARTHEST), here + _FARTHEST)
    return place if low <= place <= high else (low + high) / 2


def _inside(value: Fraction, low: Fraction, high: Fraction, *, whole: bool) -> Fraction | None:
    # Strictly between the two where there is room, of few digits; None where there is none.
    if whole:
        place = min(max(round(value), int(low) + 1), int(high) - 1)
        return Fraction(place) if low < place < high else None
    unit = Fraction(10) ** (math.floor(math.log10(value)) - _DIGITS)
    value = round(value / unit) * unit
    if not low < value < high:
        value = (low + high) / 2
    return value


def _after(value: Fraction, *, whole: bool) -> Fraction:
    return value + 1 if whole else value * (1 + _STEP)
