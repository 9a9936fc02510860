r"""The least noise that keeps a promise over many rounds, and proof that less does not.

One parameter of a law is free: floats propose it, and two certified points decide. At the noise
returned the promise is kept; one step less (0.1% of a real parameter, 1 of an integer one) was
tried too, and :attr:`Calibration.least` says whether it is certified to break the promise. Where
more noise is smaller noise plus independent noise (Skellam, Poisson and binomial in their size,
Polya laws, their differences and discrete Laplace in the scale) it then fails for every smaller
parameter too; for the discrete Gaussian and its sums the two points are what is claimed.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, Final

from accounting.budget.free_law import FreeLaw, read_free_law
from accounting.budget.gaussian_guess import log_mu
from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.pairs.shift import heaviest
from accounting.release.curve import PrivacyCurve
from accounting.totals.compose import Composition, compose
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.sums import summed
from dpcore.mechanism import Sensitivity
from dpcore.noise import Divisible, Noise
from dpcore.numbers.enclosure import End
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational
from dpcore.spelling import write_noise

__all__ = ["Calibration", "calibrate"]

_STEP: Final = Fraction(1, 1000)
_WIDTHS: Final = (Fraction(1, 10**5), Fraction(1, 10**8), Fraction(1, 10**11))
_KEPT: Final = Fraction(1, 10**6)
_DIGITS: Final = 5
_LARGE: Final = 10**4
_LEAST: Final = 1e-12
_MOST_EPSILON: Final = 10**6
_MOST: Final = 1e30
_FIRST_STRIDE: Final = math.log(16)
_ASIDE: Final = 0.25
_TRUSTED: Final = 8
_TRIES: Final = 400
_STEEP: Final = 4.0
_NOTHING: Final = -1e5


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    r"""The result of :func:`calibrate`: the least noise found, and the next smaller that fails.

    ``noise`` keeps (epsilon, delta) over ``rounds``, and ``step_less`` does not.

    ``found`` and ``found_less`` bound delta(epsilon) of the two, or epsilon(0) when delta = 0.
    ``step_less`` is None where no parameter is smaller.

    Raises :class:`InvalidParameter` where ``found`` does not show that the promise is kept.
    """

    noise: Noise
    sensitivity: Sensitivity
    rounds: int
    epsilon: Fraction
    delta: Fraction
    honest_fraction: Fraction
    found: Bound
    step_less: Noise | None
    found_less: Bound | None

    def __post_init__(self) -> None:
        # Whatever a search proposes, nothing else leaves this file.
        if not self.found.upper <= self._limit:
            raise InvalidParameter("found", self.found.upper, f"must be <= {self._limit}")

    @property
    def least(self) -> bool:
        r"""Whether one step less is certified not to keep the promise, or there is none."""
        if self.found_less is None:
            return True
        return self.found_less.lower is not None and self.found_less.lower > self._limit

    def total(self) -> Composition:
        r"""The rounds, with the noise that honest users alone add."""
        noise = _honest(self.noise, self.honest_fraction)
        return compose((PrivacyCurve(noise=noise, sensitivity=self.sensitivity), self.rounds))

    def epsilon_at_delta(self) -> Bound:
        r"""epsilon at ``delta``, of the noise found. It is at most the target: ``found`` proves it.

        >>> calibrate(noise="discrete-laplace", epsilon=2).epsilon_at_delta().upper
        Fraction(2, 1)
        """
        if self.delta == 0:
            return self.found
        found = self.total().epsilon(self.delta, _KEPT)
        upper = min(found.upper, self.epsilon)
        return Bound(upper=upper, lower=found.lower, method=found.method, theorem=found.theorem)

    def to_json(self) -> dict[str, Any]:
        r"""Exact parameters as text, bounds as two ends."""
        step = None
        if self.step_less is not None and self.found_less is not None:
            step = {"noise": self.step_less.to_json(), self._quantity: self.found_less.to_json()}
        curve = PrivacyCurve(noise=self.noise, sensitivity=self.sensitivity)
        return {
            "epsilon": self.epsilon_at_delta().to_json(),
            "delta": str(self.delta),
            "rounds": self.rounds,
            "method": self.found.method,
            "theorem": self.found.theorem,
            "noise": self.noise.to_json(),
            "sensitivity": curve.to_json()["sensitivity"],
            "honest_fraction": str(self.honest_fraction),
            "target": {"epsilon": str(self.epsilon), "delta": str(self.delta)},
            self._quantity: self.found.to_json(),
            "one_step_less": step,
            "least": self.least,
        }

    @property
    def _limit(self) -> Fraction:
        return self.delta or self.epsilon

    @property
    def _quantity(self) -> str:
        return "delta_at_target" if self.delta else "epsilon_at_zero"


def calibrate(
    *,
    noise: str,
    epsilon: RationalLike,
    delta: RationalLike = 0,
    rounds: int = 1,
    sensitivity: Sensitivity | int = 1,
    honest_fraction: RationalLike = 1,
) -> Calibration:
    r"""The least noise of a law that keeps (epsilon, delta) over ``rounds`` releases.

    ``noise`` is a law's name, with its other parameters where it has some:
    ``"discrete-gaussian"``, ``"polya-difference:shape=0.9"``, ``"binomial:probability=1/2"``.
    ``honest_fraction`` = h/n enlarges the noise of a distributed protocol, so that the shares of h
    of n users are enough. A real parameter is at most 0.12% above the least one.

    >>> calibrate(noise="discrete-laplace", epsilon=2, rounds=50).noise
    DiscreteLaplace(scale=25)
    >>> calibrate(noise="skellam", epsilon=1, delta="1e-6", honest_fraction="9/10").least
    True

    Raises :class:`InvalidParameter` for an unknown law, a parameter missing or left over, and
    targets out of range; :class:`NotDerived` where no noise of the law within reach keeps the
    promise.
    """
    at = positive_rational("epsilon", epsilon, "a promise of 0 needs infinite noise")
    if at > _MOST_EPSILON:
        raise InvalidParameter("epsilon", epsilon, f"must be <= {_MOST_EPSILON}: it hides nothing")
    most = rational("delta", delta)
    if not 0 <= most < 1:
        raise InvalidParameter("delta", delta, "must lie in [0, 1)")
    honest = rational("honest_fraction", honest_fraction)
    if not 0 < honest <= 1:
        raise InvalidParameter("honest_fraction", honest_fraction, "must lie in (0, 1]")
    promise = _Promise(
        family=read_free_law(noise),
        sensitivity=Sensitivity.of(sensitivity),
        rounds=integer("rounds", rounds, at_least=1),
        epsilon=at,
        delta=most,
        honest=honest,
    )
    bound = cache(promise.bound)
    value, less = _exactly(promise, bound) or _least(promise, bound)
    return Calibration(
        noise=promise.family.at(value),
        sensitivity=promise.sensitivity,
        rounds=promise.rounds,
        epsilon=at,
        delta=most,
        honest_fraction=honest,
        found=bound(value),
        step_less=None if less is None else promise.family.at(less),
        found_less=None if less is None else bound(less),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    family: FreeLaw
    sensitivity: Sensitivity
    rounds: int
    epsilon: Fraction
    delta: Fraction
    honest: Fraction

    @property
    def limit(self) -> Fraction:
        return self.delta or self.epsilon

    def bound(self, value: Fraction) -> Bound:
        # delta(epsilon), or epsilon(0), certified; narrower where the limit lies between the ends.
        planned = self.family.at(value)
        try:
            return self._bound(_honest(planned, self.honest))
        except NotDerived as error:
            raise NotDerived(
                f"the least {self.family.law} noise for this promise",
                f"the search came to {write_noise(planned)}, and {error.instead}",
            ) from error

    def _bound(self, noise: Noise) -> Bound:
        curve = PrivacyCurve(noise=noise, sensitivity=self.sensitivity)
        total = compose((curve, self.rounds))
        if self.delta == 0:
            return total.epsilon(0)
        if self.rounds == 1:
            return replace(curve.delta(self.epsilon), method="direct")
        for width in _WIDTHS:
            found = total.delta(self.epsilon, width)
            low, high = found.lower, Fraction(found.upper)
            # What is told apart, or wider than it was asked to be, is not asked again.
            if low is None or not low <= self.limit < high or high - low > 2 * width * high:
                break
        return found

    def keeps(self, found: Bound) -> bool:
        return found.upper <= self.limit

    def away(self, found: Bound) -> float:
        # How far the logarithm of the parameter is from enough, about; > 0 where noise is missing.
        if self.delta == 0:
            return _log(found.upper) - _log(self.limit)
        epsilon = float(self.epsilon)
        gap = log_mu(epsilon, _log(found.upper)) - log_mu(epsilon, _log(self.limit))
        return 2 * gap / self.family.power

    def guess(self) -> float:
        # The logarithm of the parameter at which real Gaussian noise of that variance is enough.
        squared = self.rounds * sum(step**2 * n for step, n in heaviest(self.sensitivity))
        if self.delta == 0:
            return math.log(self.rounds) + math.log(squared) / 2 - _log(self.epsilon)
        wanted = math.log(squared) - 2 * log_mu(float(self.epsilon), _log(self.delta))
        there = _log_variance(self.family.at(Fraction(_LARGE))) + _log(self.honest)
        there -= self.family.power * math.log(_LARGE)
        return (wanted - there) / self.family.power

    # -- the values tried -----------------------------------------------------------------------

    def inside(self, place: float, low: Fraction | None, high: Fraction | None) -> Fraction:
        # The value at e^place or just above, kept between the two.
        value = self._above(place)
        if high is not None and value >= high:
            value = self.less(high) or high
        if low is not None and value <= low:
            value = low + self._unit if self.family.whole else low / (1 - _STEP)
        return value

    def less(self, value: Fraction) -> Fraction | None:
        if not self.family.whole:
            return value * (1 - _STEP)
        return value - self._unit if value > self._unit else None

    @property
    def _unit(self) -> int:
        # A whole number must have shares.
        return self.honest.denominator

    def _above(self, place: float) -> Fraction:
        if not math.log(_LEAST) < place < math.log(_MOST):
            wanted = f"the least {self.family.law} noise for this promise"
            if place > 0:
                what = f"a {self.family.free} of {_MOST:g} is not enough; allow a larger delta"
                raise NotDerived(wanted, what)
            raise NotDerived(wanted, f"a {self.family.free} of {_LEAST:g} is more than enough")
        value = Fraction(math.exp(place))
        if self.family.whole:
            return Fraction(max(math.ceil(value / self._unit), 1) * self._unit)
        # To five digits.
        unit = Fraction(10) ** (math.floor(math.log10(value)) - _DIGITS + 1)
        return math.ceil(value / unit) * unit


def _exactly(
    promise: _Promise, bound: Callable[[Fraction], Bound]
) -> tuple[Fraction, Fraction | None] | None:
    # At delta = 0 discrete Laplace noise loses k d/s, exactly: s = k d/epsilon.
    if promise.family.law != "discrete-laplace" or promise.delta != 0 or promise.honest != 1:
        return None
    at_one = bound(Fraction(1))
    if at_one.lower != at_one.upper or not isinstance(at_one.upper, Fraction):
        return None
    scale = at_one.upper / promise.epsilon
    return scale, promise.less(scale)


def _least(
    promise: _Promise, bound: Callable[[Fraction], Bound]
) -> tuple[Fraction, Fraction | None]:
    # `low` was too little, `high` is enough. The distances to enough propose by a secant; values
    # one step apart, the larger one enough and the smaller one not shown to be, end the search.
    low: Fraction | None = None
    high: Fraction | None = None
    before: tuple[float, float] | None = None
    slope, stride = 1.0, _FIRST_STRIDE
    place = promise.guess()
    for attempt in range(_TRIES):
        value = promise.inside(place, low, high)
        found = bound(value)
        if found.upper == math.inf:
            raise NotDerived(
                f"{promise.family.law} noise that keeps delta = 0",
                "its losses are unbounded, or no theorem bounds them; allow a delta > 0",
            )
        here, away = _log(value), promise.away(found)
        if before is not None and before[1] != away:
            slope = min(max((here - before[0]) / (before[1] - away), 1 / _STEEP), _STEEP)
        before, root = (here, away), here + slope * away
        if not promise.keeps(found):
            low = value
        else:
            high, less = value, promise.less(value)
            if less is None:
                return value, None
            close = here - root <= 2 * (here - _log(less)) or (low is not None and less <= low)
            if close or attempt >= _TRUSTED:
                if not promise.keeps(bound(less)):
                    return value, less
                high = less
                low = None if low is None or low >= high else low
        place = _next(root, low, high, stride, trusted=attempt < _TRUSTED or attempt % 2 == 0)
        stride *= 2
    raise PrecisionExhausted("no two values one step apart were told apart: ask for another target")


def _next(
    root: float, low: Fraction | None, high: Fraction | None, stride: float, *, trusted: bool
) -> float:
    # The proposal where it lies between what is known, else the middle; beyond it by strides.
    place = root + _ASIDE * float(_STEP)
    if low is not None and high is not None:
        least, most = _log(low), _log(high)
        return place if trusted and least < place < most else (least + most) / 2
    if low is not None:
        return min(max(place, _log(low) + float(_STEP)), _log(low) + stride)
    if high is not None:
        return max(min(place, _log(high) - float(_STEP)), _log(high) - stride)
    return place


def _honest(noise: Noise, honest: Fraction) -> Noise:
    # The shares of h of n users, for honest = h/n.
    if honest == 1:
        return noise
    if not isinstance(noise, Divisible):
        raise InvalidParameter(
            "honest_fraction", honest, f"must be 1: {noise.name} noise has no shares"
        )
    return summed(noise.share(honest.denominator), honest.numerator)


def _log_variance(noise: Noise) -> float:
    found = noise.variance
    return _log(found if isinstance(found, Fraction) else found.upper)


def _log(value: End) -> float:
    # Of a number >= 0; 0 counts as far below everything.
    if value <= 0:
        return _NOTHING
    exact = Fraction(value)
    return math.log(exact.numerator) - math.log(exact.denominator)
