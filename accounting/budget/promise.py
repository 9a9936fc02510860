r"""A promise (epsilon, delta) over many rounds, and how far noise of some size is from keeping it.

A :class:`FreeLaw` is a law with its size left open. Searches start from the curve of real Gaussian
noise in floats (:func:`log_mu`): totals of many losses are nearly Gaussian. Those numbers are
proposals; no reported bound depends on them.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, cast

from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.mechanism.description import EVERYONE, Description, Poisson
from accounting.mechanism.real_noise import REAL_LAWS, RealNoise
from accounting.pairs.shift import heaviest
from accounting.release.curve import OneRelease
from accounting.release.guarantee import guarantee
from accounting.totals.compose import compose
from dpcore.errors import InvalidParameter
from dpcore.laws.sums import summed
from dpcore.mechanism import Relation, Sensitivity
from dpcore.noise import Divisible, Noise
from dpcore.numbers.enclosure import End
from dpcore.spec import pairs_of, read_keys, split_name
from dpcore.spelling import LAWS, law_meant, noise_from_json, parameter_names, write_noise

__all__ = [
    "FreeLaw",
    "Promise",
    "honest_part",
    "log",
    "log_delta",
    "log_mu",
    "one_round",
    "read_free_law",
]

_FREE: Final = {
    "discrete-laplace": "scale",
    "discrete-gaussian": "sigma_squared",
    "discrete-gaussian-sum": "sigma_squared",
    "skellam": "variance",
    "polya": "scale",
    "polya-difference": "scale",
    "poisson": "mean",
    "binomial": "trials",
    "gaussian": "sigma",
    "laplace": "scale",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeLaw:
    r"""``law`` with the parameters ``fixed``; ``free`` names the one that is open.

    >>> read_free_law("polya-difference:shape=0.9").at(Fraction(20))
    PolyaDifference(shape='9/10', scale=20)
    """

    law: str
    free: str
    fixed: tuple[tuple[str, str], ...]

    @property
    def whole(self) -> bool:
        r"""Whether the open parameter counts something."""
        return self.free == "trials"

    @property
    def power(self) -> int:
        r"""The variance grows like this power of the open parameter."""
        return 2 if self.free in ("scale", "sigma") else 1

    @property
    def real(self) -> bool:
        r"""Whether the law is one on the reals."""
        return self.law in REAL_LAWS

    def at(self, value: Fraction) -> Noise | RealNoise:
        r"""The noise with that parameter.

        Raises :class:`InvalidParameter` as the law does.
        """
        data = {"law": self.law, self.free: str(value), **dict(self.fixed)}
        return noise_from_json(data, REAL_LAWS)


def read_free_law(text: str) -> FreeLaw:
    r"""A law's name, with its other parameters where it has some.

    >>> read_free_law("binomial:probability=1/2").free
    'trials'

    Raises :class:`InvalidParameter` for an unknown law, a parameter that is missing, unknown or
    given twice, and for the size itself, which is what is looked for.
    """
    if not isinstance(text, str):
        raise InvalidParameter("noise", text, "must be a law's name, e.g. discrete-gaussian")
    law, rest = split_name(text)
    if law not in _FREE:
        near = law_meant(law)
        hint = "" if near is None else f"; did you mean {near}?"
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(_FREE)}{hint}")
    free = _FREE[law]
    if any(key == free for key, _ in pairs_of(rest)):
        raise InvalidParameter(
            "noise", text, f"leave out {free}: it is the number that calibrate finds"
        )
    names = (free,) if law in REAL_LAWS else parameter_names(LAWS[law])
    wanted = [name for name in names if name != free]
    given = read_keys("noise", text, rest, wanted, owner=law, needed=wanted)
    return FreeLaw(law=law, free=free, fixed=tuple(given.items()))


_SHORT: Final = 1e-6
_FAR: Final = 1e4
_FARTHEST: Final = 75.0
_HALVINGS: Final = 60


def log_delta(mu: float, epsilon: float) -> float:
    r"""log(Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)) (Balle and Wang 2018).

    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    from scipy.special import log_ndtr  # here, not above: importing accounting stays fast

    place = epsilon / mu
    first = float(log_ndtr(mu / 2 - place))
    if mu > _SHORT:
        ratio = epsilon + float(log_ndtr(-mu / 2 - place)) - first
    else:
        # The logarithm of a ratio of Mills' ratios at two near places: its slope times mu.
        density = -place * place / 2 - math.log(2 * math.pi) / 2
        ratio = mu * (place - math.exp(density - first) if place < _FAR else -1 / place)
    return first + math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf


def log_mu(epsilon: float, logarithm: float) -> float:
    r"""The log mu at which delta(``epsilon``) has this ``logarithm``; more noise is a smaller mu.

    >>> round(math.exp(log_mu(1.0, log_delta(1.0, 1.0))), 9)
    1.0
    """
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if log_delta(math.exp(middle), epsilon) < logarithm:
            low = middle
        else:
            high = middle
    return (low + high) / 2


_STEP: Final = Fraction(1, 1000)
_FINE_STEP: Final = Fraction(1, 10**6)
_WIDTHS: Final = (Fraction(1, 10**5), Fraction(1, 10**7), Fraction(1, 10**11))
_DIGITS: Final = 5
_FINE_DIGITS: Final = 9
_LARGE: Final = 10**4
_LEAST: Final = 1e-12
_MOST: Final = 1e30
_NOTHING: Final = -1e5


def one_round(
    noise: Noise | RealNoise,
    sensitivity: Sensitivity | int,
    rate: Fraction,
    relation: Relation | None = None,
) -> OneRelease:
    r"""One release with this noise, on a Poisson sample where the rate is below 1.

    Between neighbours by ``relation``; if it is None, by one added or removed in a sample, else by
    one replaced. Of a sample, the sensitivity is that of one who is added.
    """
    scheme = EVERYONE if rate == 1 else Poisson(rate=rate)
    asked = Description(noise=noise, sensitivity=sensitivity, scheme=scheme, relation=relation)
    return cast("OneRelease", guarantee(asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    r"""(epsilon, delta) over so many rounds of one law, each on a sample of this rate.

    >>> from accounting.budget.promise import read_free_law
    >>> promise = Promise(
    ...     family=read_free_law("gaussian"),
    ...     sensitivity=Sensitivity(1),
    ...     rounds=1,
    ...     rate=Fraction(1),
    ...     epsilon=Fraction(1),
    ...     delta=Fraction(1, 8),
    ...     honest=Fraction(1),
    ... )
    >>> promise.keeps(promise.bound(Fraction(1))), promise.keeps(promise.bound(Fraction(2)))
    (False, True)
    """

    family: FreeLaw
    sensitivity: Sensitivity
    rounds: int
    rate: Fraction
    epsilon: Fraction
    delta: Fraction
    honest: Fraction
    relation: Relation | None = None

    @property
    def limit(self) -> Fraction:
        r"""What delta(epsilon), or epsilon(0), must not exceed."""
        return self.delta or self.epsilon

    @property
    def step(self) -> Fraction:
        r"""How much less, relatively, is shown to fail: fine where no integer noise is scaled."""
        return _FINE_STEP if self.family.real or self.rate != 1 else _STEP

    def bound(self, value: Fraction) -> Bound:
        r"""delta(epsilon), or epsilon(0), certified; narrower where the limit lies between."""
        planned = self.family.at(value)
        try:
            return self._bound(honest_part(planned, self.honest))
        except NotDerived as error:
            raise NotDerived(
                f"the least {self.family.law} noise for this promise",
                f"the search came to {write_noise(planned)}, and {error.instead}",
            ) from error

    def _bound(self, noise: Noise | RealNoise) -> Bound:
        curve = one_round(noise, self.sensitivity, self.rate, self.relation)
        total = compose((curve, self.rounds))
        if self.delta == 0:
            return total.epsilon(0)
        if self.rounds == 1:
            return replace(curve.delta(self.epsilon), method="direct")
        for width in _WIDTHS if self.step == _STEP else _WIDTHS[1:]:
            found = total.delta(self.epsilon, width)
            low, high = found.lower, Fraction(found.upper)
            # What is told apart, or wider than it was asked to be, is not asked again.
            if low is None or not low <= self.limit < high or high - low > 2 * width * high:
                break
        return found

    def keeps(self, found: Bound) -> bool:
        r"""Whether the promise is proven to be kept."""
        return found.upper <= self.limit

    def away(self, found: Bound) -> float:
        r"""How far the log of the parameter is from enough, about; > 0 where noise is missing."""
        if self.delta == 0:
            return log(found.upper) - log(self.limit)
        epsilon = float(self.epsilon)
        gap = log_mu(epsilon, log(found.upper)) - log_mu(epsilon, log(self.limit))
        return 2 * gap / self.family.power

    def guess(self) -> float:
        r"""The log of the parameter at which Gaussian noise of that variance is about enough."""
        moves = sum(step**2 * n for step, n in heaviest(self.sensitivity))
        squared = max(self.rounds * moves * self.rate**2, Fraction(1, 16))
        if self.delta == 0:
            return math.log(self.rounds) + math.log(squared) / 2 - log(self.epsilon)
        wanted = math.log(squared) - 2 * log_mu(float(self.epsilon), log(self.delta))
        there = log_variance(self.family.at(Fraction(_LARGE))) + log(self.honest)
        there -= self.family.power * math.log(_LARGE)
        return (wanted - there) / self.family.power

    # -- the values tried -----------------------------------------------------------------------

    def inside(self, place: float, low: Fraction | None, high: Fraction | None) -> Fraction:
        r"""The value at e^place or just above, kept between the two."""
        value = self._above(place)
        if high is not None and value >= high:
            value = self.less(high) or high
        if low is not None and value <= low:
            value = low + self._unit if self.family.whole else low / (1 - self.step)
        return value

    def less(self, value: Fraction) -> Fraction | None:
        r"""One step less, None where there is none."""
        if not self.family.whole:
            return value * (1 - self.step)
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
        # To so many digits that rounding up is far below a step.
        digits = _DIGITS if self.step == _STEP else _FINE_DIGITS
        unit = Fraction(10) ** (math.floor(math.log10(value)) - digits + 1)
        return math.ceil(value / unit) * unit


def honest_part(noise: Noise | RealNoise, honest: Fraction) -> Noise | RealNoise:
    r"""The shares of h of n users, for honest = h/n."""
    if honest == 1:
        return noise
    if not isinstance(noise, Divisible):
        raise InvalidParameter(
            "honest_fraction", honest, f"must be 1: {noise.name} noise has no shares"
        )
    return summed(noise.share(honest.denominator), honest.numerator)


def log_variance(noise: Noise | RealNoise) -> float:
    r"""The log of the variance, about."""
    found = noise.variance
    return log(found if isinstance(found, Fraction) else found.upper)


def log(value: End) -> float:
    r"""Of a number >= 0; 0 counts as far below everything."""
    if value <= 0:
        return _NOTHING
    exact = Fraction(value)
    return math.log(exact.numerator) - math.log(exact.denominator)
