r"""The least noise that keeps a promise over many rounds, and proof that less does not.

One parameter of a law is free: the search proposes it in floats, and two certified points decide.
At the noise returned the promise is kept; one step less (0.1% of a real parameter, 1 of an integer
one) it is certified not to be. Where more noise is smaller noise plus independent noise (Skellam in
its variance, Polya differences and discrete Laplace in shape and scale) it fails for every smaller
parameter too; for other laws the two points are what is claimed.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from accounting.bound import Bound
from accounting.compose import Composition, compose
from accounting.curve import PrivacyCurve
from accounting.errors import NotDerived
from dpcore.enclosure import End
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Sensitivity
from dpcore.noise import Divisible, Noise
from dpcore.parameter import RationalLike, integer, positive_rational, rational
from dpcore.search import least
from dpcore.spelling import LAWS, noise_from_json, parameter_names
from dpcore.summed import summed

__all__ = ["Calibration", "calibrate"]

_FREE: Final = {
    "discrete-laplace": "scale",
    "discrete-gaussian": "sigma_squared",
    "discrete-gaussian-sum": "sigma_squared",
    "skellam": "variance",
    "polya": "scale",
    "polya-difference": "scale",
    "poisson": "mean",
    "binomial": "trials",
}
_WHOLE: Final = frozenset({"trials"})
_STEP: Final = Fraction(1, 1000)
_ROUGH: Final = Fraction(1, 10**3)
_SURE: Final = Fraction(1, 10**6)
_DIGITS: Final = 5
_CLOSE: Final = 2e-5
_ABOVE: Final = 1.0002
_FAR: Final = 1000.0
_LEAST: Final = 1e-12
_MOST: Final = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    r"""``noise`` keeps (epsilon, delta) over ``rounds``; ``step_less`` was tried and is less noise.

    ``found`` and ``found_less`` bound delta(epsilon) of the two, or epsilon(0) when delta = 0.
    ``least`` says whether the smaller noise is certified to break the promise.
    """

    noise: Noise
    sensitivity: Sensitivity
    rounds: int
    epsilon: Fraction
    delta: Fraction
    honest_fraction: Fraction
    found: Bound
    step_less: Noise
    found_less: Bound

    @property
    def least(self) -> bool:
        r"""Whether one step less is certified not to keep the promise."""
        limit = self.delta or self.epsilon
        return self.found_less.lower is not None and self.found_less.lower > limit

    def total(self) -> Composition:
        r"""The rounds, with the noise that honest users alone add."""
        return _total(self.noise, self.sensitivity, self.rounds, self.honest_fraction)

    def to_json(self) -> dict[str, Any]:
        r"""Exact parameters as text, bounds as two ends."""
        quantity = "delta" if self.delta else "epsilon"
        return {
            "noise": self.noise.to_json(),
            "rounds": self.rounds,
            "target": {"epsilon": str(self.epsilon), "delta": str(self.delta)},
            "honest_fraction": str(self.honest_fraction),
            quantity: self.found.to_json(),
            "one_step_less": {
                "noise": self.step_less.to_json(),
                quantity: self.found_less.to_json(),
            },
            "least": self.least,
            "method": self.found.method,
        }


def calibrate(
    *,
    noise: str,
    epsilon: RationalLike,
    delta: RationalLike = 0,
    max_visits: int = 1,
    sensitivity: Sensitivity | int = 1,
    honest_fraction: RationalLike = 1,
) -> Calibration:
    r"""The least noise of a law that keeps (epsilon, delta) over ``max_visits`` rounds.

    ``noise`` is a law's name, with its other parameters where it has some:
    ``"discrete-gaussian"``, ``"polya-difference:shape=0.9"``, ``"binomial:probability=1/2"``.
    ``honest_fraction`` enlarges the noise of a distributed protocol, so that the shares of that
    part of the users are enough.

    >>> calibrate(noise="discrete-laplace", epsilon=2, max_visits=50).noise
    DiscreteLaplace(scale=25)

    Raises :class:`InvalidParameter` for an unknown law, a parameter missing or left over, and
    targets out of range; :class:`NotDerived` where no noise of the law keeps the promise.
    """
    at = positive_rational("epsilon", epsilon, "a promise of 0 needs infinite noise")
    most = rational("delta", delta)
    if not 0 <= most < 1:
        raise InvalidParameter("delta", delta, "must lie in [0, 1)")
    honest = rational("honest_fraction", honest_fraction)
    if not 0 < honest <= 1:
        raise InvalidParameter("honest_fraction", honest_fraction, "must lie in (0, 1]")
    search = _Search(
        family=_family(noise),
        sensitivity=Sensitivity.of(sensitivity),
        rounds=integer("max_visits", max_visits, at_least=1),
        epsilon=at,
        delta=most,
        honest=honest,
    )
    value, less = search.least_whole() if search.family.whole else search.least_real()
    return Calibration(
        noise=search.family.at(value),
        sensitivity=search.sensitivity,
        rounds=search.rounds,
        epsilon=at,
        delta=most,
        honest_fraction=honest,
        found=search.bound(value, _SURE),
        step_less=search.family.at(less),
        found_less=search.bound(less, _SURE),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    # A law with one parameter left open.
    law: str
    free: str
    fixed: tuple[tuple[str, str], ...]

    @property
    def whole(self) -> bool:
        return self.free in _WHOLE

    def at(self, value: Fraction) -> Noise:
        return noise_from_json({"law": self.law, self.free: str(value), **dict(self.fixed)})


def _family(text: str) -> _Family:
    if not isinstance(text, str):
        raise InvalidParameter("noise", text, "must be a law's name, e.g. discrete-gaussian")
    law, _, rest = text.partition(":")
    law = law.strip()
    if law not in _FREE:
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(_FREE)}")
    given: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or not equals:
            raise InvalidParameter("noise", text, f"{part!r} must be written key=value")
        given[key] = value
    free = _FREE[law]
    if free in given:
        raise InvalidParameter("noise", text, f"{free} is what is looked for: leave it out")
    wanted = [name for name in parameter_names(LAWS[law]) if name != free]
    if missing := [name for name in wanted if name not in given]:
        raise InvalidParameter("noise", text, f"{missing[0]} is missing: {law}:{missing[0]}=...")
    if left := [name for name in given if name not in wanted]:
        raise InvalidParameter("noise", text, f"{law} has no parameter {left[0]}")
    return _Family(law=law, free=free, fixed=tuple(given.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    family: _Family
    sensitivity: Sensitivity
    rounds: int
    epsilon: Fraction
    delta: Fraction
    honest: Fraction

    def bound(self, value: Fraction, relative: Fraction) -> Bound:
        total = _total(self.family.at(value), self.sensitivity, self.rounds, self.honest)
        if self.delta == 0:
            return total.epsilon(0)
        return total.delta(self.epsilon, relative)

    @property
    def _limit(self) -> Fraction:
        return self.delta or self.epsilon

    def _meets(self, value: Fraction) -> bool:
        return self.bound(value, _SURE).upper <= self._limit

    def least_whole(self) -> tuple[Fraction, Fraction]:
        found = least(lambda n: n >= 1 and self._meets(Fraction(n)), 16)
        return Fraction(found), Fraction(max(found - 1, 1))

    def least_real(self) -> tuple[Fraction, Fraction]:
        if self.family.law == "discrete-laplace" and self.delta == 0 and self.honest == 1:
            # k d/s is exact, so the answer is too.
            scale = self.bound(Fraction(1), _SURE).upper / self.epsilon
            return Fraction(scale), Fraction(scale) * (1 - _STEP)
        value = _rounded_up(self._root() * _ABOVE)
        while not self._meets(value):
            value = _rounded_up(float(value) * _ABOVE)
        return value, value * (1 - _STEP)

    def _root(self) -> float:
        # Where the bound crosses the limit, in floats: brackets by factors, then Brent's method.
        from scipy.optimize import brentq  # here, not above: importing accounting stays fast

        low = high = math.log(self._guess())
        while self._excess(high) > 0:
            low, high = high, high + math.log(4)
            self._in_range(high)
        while self._excess(low) <= 0:
            low, high = low - math.log(4), low
            self._in_range(low)
        return math.exp(brentq(self._excess, low, high, xtol=_CLOSE, rtol=_CLOSE))

    def _excess(self, logarithm: float) -> float:
        found = self.bound(Fraction(math.exp(logarithm)), _ROUGH).upper
        return _log(found) - _log(self._limit)

    def _guess(self) -> float:
        # The variance that zCDP asks for, and the scale of that variance.
        amount = self.sensitivity.amount
        squared = sum(a * a for a in amount) if isinstance(amount, tuple) else amount * amount
        root = math.sqrt(-_log(self.delta or Fraction(1, 10**6)) + float(self.epsilon))
        root -= math.sqrt(-_log(self.delta or Fraction(1, 10**6)))
        variance = self.rounds * squared / (2 * root * root)
        return math.sqrt(variance / 2) if self.family.free == "scale" else variance

    def _in_range(self, logarithm: float) -> None:
        if not math.log(_LEAST) < logarithm < math.log(_MOST):
            raise NotDerived(
                f"a {self.family.free} of {self.family.law} for epsilon {self.epsilon} and delta "
                f"{self.delta}",
                "no noise of this law within reach keeps the promise; allow a delta > 0",
            )


def _total(noise: Noise, sensitivity: Sensitivity, rounds: int, honest: Fraction) -> Composition:
    # The shares of h of n users, for honest = h/n.
    if honest != 1:
        if not isinstance(noise, Divisible):
            raise InvalidParameter("noise", noise, "has no shares: honest_fraction must be 1")
        noise = summed(noise.share(honest.denominator), honest.numerator)
    return compose((PrivacyCurve(noise=noise, sensitivity=sensitivity), rounds))


def _log(value: End) -> float:
    if value == math.inf:
        return _FAR
    if value <= 0:
        return -_FAR
    exact = Fraction(value)
    return max(math.log(exact.numerator) - math.log(exact.denominator), -_FAR)


def _rounded_up(value: float) -> Fraction:
    # To five significant digits.
    exponent = math.floor(math.log10(value)) - _DIGITS + 1
    unit = Fraction(10) ** exponent
    return math.ceil(Fraction(value) / unit) * unit
