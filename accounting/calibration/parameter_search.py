r"""Search for the value of one parameter at which a guarantee (epsilon, delta) is just met.

The parameter may be the size of the noise, a number of rounds or a sampling rate. A value is called
riskier than another one if it gives less privacy. An :class:`Unknown` defines the values to try,
and whether larger values are safer or riskier. Floats propose values from the curve of real
Gaussian noise (:func:`log_mu`), because sums of many privacy losses are nearly Gaussian. Certified
bounds prove that the guarantee holds at the returned value, and the next riskier value is evaluated
too. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any, Final

from accounting.composition.compose import Composition
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.law_pairs.discrete_gaussian import mills
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.enclosure import End

_FIRST_STRIDE: Final = math.log(16)
_ASIDE: Final = 0.25
_TRUSTED: Final = 8
_TRIES: Final = 400
_STEEP: Final = 4.0
_NOTHING: Final = -1e5
_SHORT: Final = 1e-6
_FAR: Final = 1e4
_FARTHEST: Final = 75.0
_HALVINGS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    r"""The parameter that :func:`search` determines, and the values that the search tries.

    The noise variance, relative to the squared sensitivity of all rounds, grows like
    value^``power``. So larger values are safer if ``power`` > 0 (noise), and riskier if ``power`` <
    0 (rounds, rates). Values lie in [``least``, ``most``] and are multiples of ``unit``. If
    ``unit`` is 0, the search proposes decimals with ``digits`` significant digits, and the next
    riskier value differs by the relative ``step``. If ``closed`` is True, no value beyond the
    riskiest end of the range exists, as for a rate of 1.
    """

    name: str
    power: int
    least: Fraction | int
    most: Fraction | int
    unit: int = 0
    step: Fraction = Fraction(1, 10**6)
    digits: int = 9
    closed: bool = False

    @property
    def sign(self) -> int:
        r"""1 if larger values are safer, otherwise -1."""
        return 1 if self.power > 0 else -1

    @property
    def safest(self) -> Fraction | int:
        r"""The end of the range of values that gives the most privacy."""
        return self.most if self.power > 0 else self.least

    @property
    def riskiest(self) -> Fraction | int:
        r"""The end of the range of values that gives the least privacy."""
        return self.least if self.power > 0 else self.most

    def riskier(self, value: Fraction) -> Fraction | None:
        r"""The next riskier value, or None at the riskiest end of a closed range."""
        if self.closed and value == self.riskiest:
            return None
        beyond = value - self.sign * self.unit if self.unit else value * (1 - self.sign * self.step)
        if self.closed and self._safer(Fraction(self.riskiest), beyond):
            return Fraction(self.riskiest)
        return beyond

    def height(self, value: Fraction) -> float:
        r"""The logarithm of the value, with the sign that makes larger heights safer."""
        return self.sign * log(value)

    def inside(self, height: float, broken: Fraction | None, kept: Fraction | None) -> Fraction:
        r"""The value with this :meth:`height`, or the next safer one that the search may try.

        If this value is not between ``broken``, which is not proven to meet the guarantee, and
        ``kept``, which meets the guarantee, the result is moved next to the nearer of the two.
        """
        value = self._at(height)
        if kept is not None and not self._safer(kept, value):
            value = self.riskier(kept) or kept
        if broken is not None and not self._safer(value, broken):
            step = 1 - self.sign * self.step
            value = broken + self.sign * self.unit if self.unit else broken / step
        return value

    def _safer(self, one: Fraction, other: Fraction) -> bool:
        return self.sign * (one - other) > 0

    def _at(self, height: float) -> Fraction:
        least, most = Fraction(self.least), Fraction(self.most)
        place = self.sign * height
        if not log(least) < place < log(most):
            return least if place <= log(least) else most
        value = Fraction(math.exp(place))
        leading = math.floor(log(value) / math.log(10))  # the decimal place of the first digit
        unit = Fraction(self.unit or Fraction(10) ** (leading - self.digits + 1))
        whole = math.ceil(value / unit) if self.power > 0 else math.floor(value / unit)
        return min(max(whole * unit, least), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    r"""A value that meets the guarantee, and the next riskier value, which need not meet it.

    ``found`` is the bound at ``value``: on delta(epsilon), or on epsilon(0) if delta is 0. Its
    upper end is at most ``limit``. ``beyond`` is the next riskier value, and ``found_beyond`` is
    the bound there; both are None if no such value exists.
    """

    value: Fraction
    found: Bound
    beyond: Fraction | None
    found_beyond: Bound | None
    limit: Fraction

    def __post_init__(self) -> None:
        # A search may propose any value, but only values that meet the guarantee are returned.
        if not self.found.upper <= self.limit:
            raise InvalidParameter("found", self.found.upper, f"must be <= {self.limit}")

    @property
    def proven(self) -> bool:
        r"""Whether the next riskier value is proven to violate the guarantee, or does not exist."""
        if self.found_beyond is None:
            return True
        return self.found_beyond.lower is not None and self.found_beyond.lower > self.limit

    def to_json(self, *, beyond: str, proven: str, pure: bool = False) -> dict[str, Any]:
        r"""The value and the next riskier one as JSON.

        The arguments ``beyond`` and ``proven`` are the JSON keys of the properties with these
        names. If ``pure`` is true, delta is 0 and the bounds are on epsilon(0); otherwise they are
        on delta(epsilon).
        """
        more, quantity = None, "epsilon_at_zero" if pure else "delta_at_target"
        if self.beyond is not None and self.found_beyond is not None:
            more = {"value": str(self.beyond), quantity: self.found_beyond.to_json()}
        return {
            "value": str(self.value),
            quantity: self.found.to_json(),
            beyond: more,
            proven: self.proven,
        }


def decide(
    total: Composition, epsilon: Fraction, delta: Fraction, digits: tuple[int, ...]
) -> Bound:
    r"""Bound delta(``epsilon``) of ``total``, or epsilon(0) if ``delta`` is 0.

    For several rounds the bound on delta(``epsilon``) is computed to a relative width of 10^-d for
    each d in ``digits`` in turn, until both ends lie on the same side of ``delta``, or until the
    bound is wider than requested, because more digits would not help then.
    """
    if delta == 0:
        return total.epsilon(0)
    if len(total.parts) == 1 and total.rounds == 1:
        return replace(total.parts[0][0].delta(epsilon), method="direct")
    for width in (Fraction(1, 10**each) for each in digits):
        found = total.delta(epsilon, width)
        low, high = found.lower, Fraction(found.upper)
        # Stop if the side is known, or if the bound is wider than requested.
        if low is None or not low <= delta < high or high - low > 2 * width * high:
            break
    return found


def search(
    unknown: Unknown,
    bound: Callable[[Fraction], Bound],
    *,
    epsilon: Fraction,
    delta: Fraction,
    start: float = 0.0,
    watch: Callable[[int], None] | None = None,
) -> Edge:
    r"""Find the value at which the guarantee is just met, and evaluate the next riskier one.

    ``bound(value)`` is the result of :func:`decide` if the parameter has this value. ``start`` is
    the :meth:`~Unknown.height` of the first value. ``watch`` is called after each value, with the
    number of values tried so far. Raises :class:`NotDerived` if the range contains no such edge.
    """
    limit, tried = delta or epsilon, count(1)

    @cache
    def evaluate(value: Fraction) -> Bound:
        found = bound(value)
        if watch is not None:
            watch(next(tried))
        return found

    # A secant through the distances to the target proposes values. The search ends at two values
    # one step apart, of which one meets the guarantee and the other is not proven to.
    broken: Fraction | None = None
    kept: Fraction | None = None
    before: tuple[float, float] | None = None
    slope, stride, height = 1.0, _FIRST_STRIDE, start
    for attempt in range(_TRIES):
        value = unknown.inside(height, broken, kept)
        found = evaluate(value)
        _refuse_hopeless(unknown, value, found, limit)
        here, away = unknown.height(value), _away(unknown, found, epsilon, delta)
        if before is not None and before[1] != away:
            slope = min(max((here - before[0]) / (before[1] - away), 1 / _STEEP), _STEEP)
        before, root = (here, away), here + slope * away
        if found.upper > limit:
            broken = value
        else:
            kept, next_ = value, unknown.riskier(value)
            if next_ is None:
                return Edge(value=value, found=found, beyond=None, found_beyond=None, limit=limit)
            below = unknown.height(next_)
            close = here - root <= 2 * (here - below)
            close |= broken is not None and below <= unknown.height(broken)
            if close or attempt >= _TRUSTED:
                other = evaluate(next_)
                if other.upper > limit:
                    return Edge(
                        value=value, found=found, beyond=next_, found_beyond=other, limit=limit
                    )
                kept = next_
                if broken is not None and unknown.height(broken) >= below:
                    broken = None
        known = [None if one is None else unknown.height(one) for one in (broken, kept)]
        trusted = attempt < _TRUSTED or attempt % 2 == 0
        height = _next(root, known[0], known[1], stride, float(unknown.step), trusted=trusted)
        stride *= 2
    raise PrecisionExhausted(
        "the bounds do not decide which of two adjacent values meets the target: change the target "
        "slightly"
    )


def _refuse_hopeless(unknown: Unknown, value: Fraction, found: Bound, limit: Fraction) -> None:
    wanted = f"the {unknown.name} for this guarantee"
    if found.upper == math.inf:
        reason = "losses are unbounded, or no theorem bounds them; use a delta > 0"
        raise NotDerived(wanted, reason)
    if found.upper > limit and value == unknown.safest:
        more = "use a larger delta" if unknown.power > 0 else "add more noise"
        fails = found.lower is not None and found.lower > limit
        words = "does not satisfy it" if fails else "is not proven to satisfy it"
        raise NotDerived(wanted, f"{float(value):g}, the safest value, {words}; {more}")
    if found.upper <= limit and value == unknown.riskiest and not unknown.closed:
        raise NotDerived(
            wanted,
            f"even {float(value):g}, the riskiest value of the search, satisfies it: use a smaller "
            "epsilon or delta",
        )


def _away(unknown: Unknown, found: Bound, epsilon: Fraction, delta: Fraction) -> float:
    # The approximate distance of the height to the target; > 0 if more noise is needed.
    if delta == 0:
        return log(found.upper) - log(epsilon)
    at = float(epsilon)
    gap = log_mu(at, log(found.upper)) - log_mu(at, log(delta))
    return 2 * gap / abs(unknown.power)


def _next(
    root: float, low: float | None, high: float | None, stride: float, step: float, *, trusted: bool
) -> float:
    # The proposal `root` if it lies between the two known heights, otherwise their midpoint. While
    # only one height is known, the next one lies at most a stride away.
    place = root + _ASIDE * step
    if low is not None and high is not None:
        return place if trusted and low < place < high else (low + high) / 2
    if low is not None:
        return min(max(place, low + step), low + stride)
    if high is not None:
        return max(min(place, high - step), high - stride)
    return place


def log_delta(mu: float, epsilon: float) -> float:
    r"""The log of the delta of mu-Gaussian DP at ``epsilon``.

    That delta is Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).
    """
    place = epsilon / mu
    first = _log_cdf(mu / 2 - place)
    if mu > _SHORT:
        ratio = epsilon + _log_cdf(-mu / 2 - place) - first
    else:
        # The logarithm of a ratio of Mills' ratios at two close points: its slope times mu.
        density = -place * place / 2 - math.log(2 * math.pi) / 2
        ratio = mu * (place - math.exp(density - first) if place < _FAR else -1 / place)
    return first + math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf


def _log_cdf(x: float) -> float:
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    return math.log(mills(-x)) - (x * x + math.log(2 * math.pi)) / 2


def log_mu(epsilon: float, logarithm: float) -> float:
    r"""The natural logarithm of the mu at which :func:`log_delta` is ``logarithm``."""
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if log_delta(math.exp(middle), epsilon) < logarithm:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def log(value: End) -> float:
    r"""The natural logarithm of a number > 0, and -100,000 for 0."""
    if value <= 0:
        return _NOTHING
    exact = Fraction(value)
    return math.log(exact.numerator) - math.log(exact.denominator)
