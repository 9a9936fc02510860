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
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any, Final

from accounting.budget.promise import Promise, honest_part, log, one_round, read_free_law
from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.mechanism.real_noise import RealNoise
from accounting.totals.compose import Composition, compose
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational_in

__all__ = ["Calibration", "calibrate"]

_KEPT: Final = Fraction(1, 10**6)
_MOST_EPSILON: Final = 10**6
_FIRST_STRIDE: Final = math.log(16)
_ASIDE: Final = 0.25
_TRUSTED: Final = 8
_TRIES: Final = 400
_STEEP: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    r"""The result of :func:`calibrate`: the least noise found, and the next smaller that fails.

    ``noise`` keeps (epsilon, delta) over ``rounds``, and ``step_less`` does not.

    ``found`` and ``found_less`` bound delta(epsilon) of the two, or epsilon(0) when delta = 0.
    ``step_less`` is None where no parameter is smaller.

    Raises :class:`InvalidParameter` where ``found`` does not show that the promise is kept.
    """

    noise: Noise | RealNoise
    sensitivity: Sensitivity
    rounds: int
    epsilon: Fraction
    delta: Fraction
    honest_fraction: Fraction
    found: Bound
    step_less: Noise | RealNoise | None
    found_less: Bound | None
    rate: Fraction = Fraction(1)
    relation: Relation | None = None

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
        noise = honest_part(self.noise, self.honest_fraction)
        one = one_round(noise, self.sensitivity, self.rate, self.relation)
        return compose((one, self.rounds))

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
        return {
            "epsilon": self.epsilon_at_delta().to_json(),
            "delta": str(self.delta),
            "rounds": self.rounds,
            "method": self.found.method,
            "theorem": self.found.theorem,
            "noise": self.noise.to_json(),
            "sensitivity": Sensitivity.of(self.sensitivity).to_json(),
            "honest_fraction": str(self.honest_fraction),
            "target": {"epsilon": str(self.epsilon), "delta": str(self.delta)},
            self._quantity: self.found.to_json(),
            "one_step_less": step,
            "least": self.least,
            **({} if self.rate == 1 else {"rate": str(self.rate)}),
            **({} if self.relation is None else {"relation": self.relation.value}),
            "assumptions": list(self.total().assumptions),
        }

    @property
    def _limit(self) -> Fraction:
        return self.delta or self.epsilon

    @property
    def _quantity(self) -> str:
        return "delta_at_target" if self.delta else "epsilon_at_zero"


def calibrate(  # noqa: PLR0913 - the parts of one promise, by keyword
    *,
    noise: str,
    epsilon: RationalLike,
    delta: RationalLike = 0,
    rounds: int = 1,
    sensitivity: Sensitivity | int = 1,
    honest_fraction: RationalLike = 1,
    rate: RationalLike = 1,
    relation: Relation | None = None,
    watch: Callable[[int], None] | None = None,
) -> Calibration:
    r"""The least noise of a law that keeps (epsilon, delta) over ``rounds`` releases.

    ``noise`` is a law's name, with its other parameters where it has some:
    ``"discrete-gaussian"``, ``"polya-difference:shape=0.9"``, ``"binomial:probability=1/2"``.
    ``honest_fraction`` = h/n enlarges the noise of a distributed protocol, so that the shares of h
    of n users are enough. A real parameter is at most 0.12% above the least one.

    ``rate`` < 1 is that of Poisson sampling. Neighbours are by ``relation``: if it is None, by a
    unit added or removed in samples, else by one replaced; of a sample the sensitivity is that of a
    unit added. With a rate, and for ``"gaussian"`` and ``"laplace"`` noise on the reals, the step
    is one millionth.

    ``watch`` is told how many sizes of the noise were tried, after each.

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
    most = rational_in("delta", delta, "[0, 1)")
    honest = rational_in("honest_fraction", honest_fraction, "(0, 1]")
    share = rational_in("rate", rate, "(0, 1]", "it is a probability")
    promise = Promise(
        family=read_free_law(noise),
        rate=share,
        sensitivity=Sensitivity.of(sensitivity),
        rounds=integer("rounds", rounds, at_least=1),
        epsilon=at,
        delta=most,
        honest=honest,
        relation=None if relation is None else Scope(relation=relation).relation,
    )
    tried = count(1)

    @cache
    def bound(value: Fraction) -> Bound:
        found = promise.bound(value)
        if watch is not None:
            watch(next(tried))
        return found

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
        rate=share,
        relation=promise.relation,
    )


def _exactly(
    promise: Promise, bound: Callable[[Fraction], Bound]
) -> tuple[Fraction, Fraction | None] | None:
    # At delta = 0 discrete Laplace noise loses k d/s, exactly: s = k d/epsilon.
    if (
        promise.family.law != "discrete-laplace"
        or promise.delta != 0
        or promise.honest != 1
        or promise.rate != 1
    ):
        return None
    at_one = bound(Fraction(1))
    if at_one.lower != at_one.upper or not isinstance(at_one.upper, Fraction):
        return None
    scale = at_one.upper / promise.epsilon
    return scale, promise.less(scale)


def _least(
    promise: Promise, bound: Callable[[Fraction], Bound]
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
        here, away = log(value), promise.away(found)
        if before is not None and before[1] != away:
            slope = min(max((here - before[0]) / (before[1] - away), 1 / _STEEP), _STEEP)
        before, root = (here, away), here + slope * away
        if not promise.keeps(found):
            low = value
        else:
            high, less = value, promise.less(value)
            if less is None:
                return value, None
            close = here - root <= 2 * (here - log(less)) or (low is not None and less <= low)
            if close or attempt >= _TRUSTED:
                if not promise.keeps(bound(less)):
                    return value, less
                high = less
                low = None if low is None or low >= high else low
        trusted = attempt < _TRUSTED or attempt % 2 == 0
        place = _next(root, low, high, stride, float(promise.step), trusted=trusted)
        stride *= 2
    raise PrecisionExhausted("no two values one step apart were told apart: ask for another target")


def _next(
    root: float,
    low: Fraction | None,
    high: Fraction | None,
    stride: float,
    step: float,
    *,
    trusted: bool,
) -> float:
    # The proposal where it lies between what is known, else the middle; beyond it by strides.
    place = root + _ASIDE * step
    if low is not None and high is not None:
        least, most = log(low), log(high)
        return place if trusted and least < place < most else (least + most) / 2
    if low is not None:
        return min(max(place, log(low) + step), log(low) + stride)
    if high is not None:
        return max(min(place, log(high) - step), log(high) - stride)
    return place
