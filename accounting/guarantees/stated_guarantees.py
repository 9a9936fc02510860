r"""Stated guarantees as data: pure DP, zCDP, Renyi DP, (epsilon, delta)-DP, or assumed.

They are also called claims. :func:`accounting.derive_guarantee.guarantee` derives guarantees from
mechanisms, and theorems convert one claim into another. A claim without a proof is stated as
:class:`Assumed`, with a reason that is never dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias, cast

from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import (
    Guarantee,
    check_width,
    order_above_one,
    probability,
)
from accounting.guarantees.renyi_and_zcdp_to_epsilon import (
    approx_from_renyi,
    bounded_range_delta,
    bounded_range_epsilon,
    delta_at_order,
    delta_from_renyi,
    epsilon_at_order,
    randomised_response_renyi,
    response_delta,
    response_epsilon,
    rounded_up,
)
from accounting.guarantees.tradeoff_function import approx_tradeoff
from dpcore.errors import InvalidParameter
from dpcore.mechanism import A_SCOPE, Scope
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import Exact, RationalLike, at_least_zero, integer, rational
from dpcore.numbers.parameter import text as plain_text
from dpcore.spec_syntax import find_name, read_keys

_WORST: Final = "randomised response dominates every pair of the claim (Kairouz et al. 2015)"
_ORDERS: Final = "least over orders of Canonne, Kamath and Steinke 2020, Proposition 12"
_DERIVE: Final = "derive it from the mechanism: guarantee(mechanism)"


def _amount(argument: str, value: object) -> Fraction:
    exact = rational(argument, value)
    if exact < 0:
        raise InvalidParameter(argument, value, "must be >= 0: a privacy loss is never negative")
    return exact


def _exact(value: str | dict[str, str]) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_exact(at)}: {_exact(each)}' for at, each in value.items())}}}"
    return repr(value) if "/" in value else value


@dataclass(frozen=True, slots=True, repr=False)
class _Stated(Guarantee):
    # A claim implies only upper bounds: the mechanism may be more private.

    word: ClassVar[str]
    theorem: ClassVar[str]
    numbers: ClassVar[tuple[str, ...]] = ()

    scope: Scope = field(default=Scope(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.scope, Scope):
            raise InvalidParameter("scope", self.scope, A_SCOPE)
        for name in self.numbers:
            argument = name.removeprefix("stated_")
            exact = (probability if argument == "delta" else _amount)(argument, getattr(self, name))
            object.__setattr__(self, name, exact)

    @abstractmethod
    def _epsilon(self, delta: Fraction) -> End:
        # The least epsilon that the claim implies at ``delta``, rounded up.
        ...

    @abstractmethod
    def _delta(self, epsilon: Fraction) -> End:
        # The least delta that the claim implies at ``epsilon``, rounded up.
        ...

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        at = probability("delta", delta)
        return self._upper(self._epsilon(at), f"an epsilon from {self!r} at delta = {at}")

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        at = at_least_zero("epsilon", epsilon)
        found = self._upper(self._delta(at), f"a delta from {self!r} at epsilon = {at}")
        return replace(found, upper=min(found.upper, Fraction(1)))

    def parameters(self) -> dict[str, Any]:
        r"""The parameters, as text."""
        return {n.removeprefix("stated_"): str(getattr(self, n)) for n in self.numbers}

    @property
    def text(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.parameters().items())

    def to_json(self) -> dict[str, Any]:
        return {"claim": self.word, **self.parameters(), "scope": self.scope.to_json()}

    def __repr__(self) -> str:
        arguments = [_exact(each) for each in self.parameters().values()]
        arguments += [] if self.scope == Scope() else [f"scope={self.scope!r}"]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _upper(self, found: End, wanted: str) -> Bound:
        if not isinstance(found, Fraction):
            raise NotDerived(
                wanted, f"no theorem gives a finite number; use a larger delta, or {_DERIVE}"
            )
        return Bound(upper=found, method=self.word, theorem=self.theorem)


class _Response(_Stated):
    # A claim whose worst pair is randomised response plus an output that reveals the dataset.

    __slots__ = ()

    theorem: ClassVar[str] = _WORST
    # Whether that pair also bounds compositions from below: true if only the claim is known, false
    # if the claim is an upper bound on a known mechanism.
    attained: ClassVar[bool] = True

    def to_json(self) -> dict[str, Any]:
        found = _Stated.to_json(self)
        return found if self.attained else {**found, "attained": False}

    @property
    @abstractmethod
    def _point(self) -> tuple[Fraction, Fraction]:
        # The stated epsilon and delta.
        ...

    def _epsilon(self, delta: Fraction) -> Fraction:
        return response_epsilon(*self._point, delta)

    def _delta(self, epsilon: Fraction) -> Fraction:
        return response_delta(*self._point, epsilon)

    def tradeoff(self, alpha: RationalLike, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        at = probability("alpha", alpha)
        least = approx_tradeoff(*self._point, at)
        return Bound(
            lower=least, upper=1 - at, method=self.word, theorem=self.theorem, safe="lower"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Pure(_Response):
    r"""Pure DP: P(M(D) in S) <= e^epsilon P(M(D') in S).

    This holds for the mechanism M, every event S and all neighbouring datasets D and D'.

    >>> Pure("1/10"), Pure(1).stated_epsilon, Pure(1).delta("1/2")
    (Pure('1/10'), Fraction(1, 1), Bound(at most 0.287..., 'pure'))

    Raises :class:`InvalidParameter` unless epsilon is a rational >= 0.
    """

    word: ClassVar[str] = "pure"
    numbers: ClassVar[tuple[str, ...]] = ("stated_epsilon",)

    stated_epsilon: Exact = Exact()

    @property
    def _point(self) -> tuple[Fraction, Fraction]:
        return self.stated_epsilon, Fraction(0)

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        at = order_above_one(order)
        found = rounded_up(randomised_response_renyi(self.stated_epsilon, at).upper)
        return self._upper(found, f"a Renyi bound of order {at} from {self!r}")

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        epsilon = self.stated_epsilon
        rho = min(epsilon**2 / 2, epsilon)
        return Bound(upper=rho, method=self.word, theorem="Bun and Steinke 2016, Proposition 1.4")


class PureBound(Pure):
    r"""A proven epsilon that need not be attained, so that compositions have only upper bounds.

    >>> from accounting import compose
    >>> compose((PureBound(1), 3)).epsilon("1e-6")
    Bound(at most 2.99..., 'contour')
    """

    __slots__ = ()

    attained: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, repr=False)
class BoundedRange(PureBound):
    r"""One or several adaptive selections of bounded range, such as the exponential mechanism.

    The privacy losses of each selection lie in an interval of length at most epsilon/choices
    (Durfee and Rogers 2019). All ``choices`` selections together satisfy epsilon-DP and rho-zCDP
    with rho = epsilon^2/(8 choices) (Cesar and Rogers 2021, Lemma 3.2).

    >>> BoundedRange(1, 2).zcdp()
    Bound(at most 0.0625, 'bounded-range')
    """

    word: ClassVar[str] = "bounded-range"

    choices: int = 1

    def __post_init__(self) -> None:
        Pure.__post_init__(self)
        given = rational("choices", self.choices)
        count = integer("choices", given.numerator if given.denominator == 1 else given, at_least=1)
        object.__setattr__(self, "choices", count)

    def parameters(self) -> dict[str, Any]:
        return {**Pure.parameters(self), "choices": str(self.choices)}

    def _epsilon(self, delta: Fraction) -> Fraction:
        if self.choices == 1:
            return bounded_range_epsilon(Fraction(self.stated_epsilon), delta)
        return min(Pure._epsilon(self, delta), self._zcdp._epsilon(delta))  # type: ignore[return-value]  # one is finite

    def _delta(self, epsilon: Fraction) -> Fraction:
        if self.choices == 1:
            return bounded_range_delta(Fraction(self.stated_epsilon), epsilon)
        return min(Pure._delta(self, epsilon), self._zcdp._delta(epsilon))  # type: ignore[return-value]  # one is finite

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        found = Pure.renyi(self, order, relative)
        return replace(found, upper=min(found.upper, self._zcdp.renyi(order).upper))

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        found = Pure.zcdp(self, relative)
        theorem = "Cesar and Rogers 2021, Lemma 3.2"
        return replace(found, upper=min(found.upper, Fraction(self._zcdp.rho)), theorem=theorem)

    @property
    def _zcdp(self) -> ZCdp:
        return ZCdp(Fraction(self.stated_epsilon) ** 2 / (8 * self.choices), scope=self.scope)


@dataclass(frozen=True, slots=True, repr=False)
class ZCdp(_Stated):
    r"""Zero-concentrated DP: D_alpha(M(D) || M(D')) <= rho alpha for every order alpha > 1.

    D_alpha is the Renyi divergence, M the mechanism, and D and D' are neighbouring datasets (Bun
    and Steinke 2016).

    >>> ZCdp("1/800")
    ZCdp('1/800')

    Raises :class:`InvalidParameter` unless rho is a rational >= 0.
    """

    word: ClassVar[str] = "zcdp"
    theorem: ClassVar[str] = _ORDERS
    numbers: ClassVar[tuple[str, ...]] = ("rho",)

    rho: Exact = Exact()

    def _epsilon(self, delta: Fraction) -> End:
        rho = self.rho
        return approx_from_renyi(lambda a: rho * a, delta).upper if rho else Fraction(0)

    def _delta(self, epsilon: Fraction) -> End:
        rho = self.rho
        return delta_from_renyi(lambda a: rho * a, epsilon).upper if rho else Fraction(0)

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        at = order_above_one(order)
        return Bound(upper=self.rho * at, method=self.word, theorem="the definition")

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        return Bound(upper=self.rho, method=self.word, theorem="the definition")


@dataclass(frozen=True, slots=True, repr=False)
class Approx(_Response):
    r"""Approximate DP: P(M(D) in S) <= e^epsilon P(M(D') in S) + delta, for epsilon >= 0.

    This holds for the mechanism M, every event S and all neighbouring datasets D and D'.

    >>> Approx(1, "1e-6"), Approx(1, "1e-6").stated_delta
    (Approx(1, '1/1000000'), Fraction(1, 1000000))

    Raises :class:`InvalidParameter` if epsilon is below 0 or delta is outside [0, 1].
    """

    word: ClassVar[str] = "approx"
    numbers: ClassVar[tuple[str, ...]] = ("stated_epsilon", "stated_delta")

    stated_epsilon: Exact = Exact()
    stated_delta: Exact = Exact()

    @property
    def _point(self) -> tuple[Fraction, Fraction]:
        return self.stated_epsilon, self.stated_delta


class ApproxBound(Approx):
    r"""A proven (epsilon, delta) that need not be attained; compositions have only upper bounds."""

    __slots__ = ()

    attained: ClassVar[bool] = False


# The key type is Any: Mapping is invariant in its keys, and {2: ..., "3/2": ...} mixes types.
RdpPoints: TypeAlias = (
    Mapping[Any, RationalLike | Enclosure] | Iterable[tuple[RationalLike, RationalLike | Enclosure]]
)


def _pairs(points: RdpPoints) -> list[tuple[RationalLike, RationalLike | Enclosure]]:
    given = points.items() if isinstance(points, Mapping) else points
    try:
        return [(order, epsilon) for order, epsilon in given]
    except (TypeError, ValueError):
        raise InvalidParameter("points", points, "must map orders to epsilons") from None


@dataclass(frozen=True, slots=True, repr=False)
class Rdp(_Stated):
    r"""Renyi DP: D_alpha(M(D) || M(D')) <= epsilon(alpha) at each listed order alpha > 1.

    D_alpha is the Renyi divergence, M the mechanism, and D and D' are neighbouring datasets
    (Mironov 2017). ``points`` maps an order to its epsilon: an exact number, or an
    :class:`Enclosure`, whose upper end is used. The points are stored as pairs (order, epsilon) in
    increasing order.

    >>> Rdp({2: "1/400", "3/2": "3/1600"})
    Rdp({'3/2': '3/1600', 2: '1/400'})

    Raises :class:`InvalidParameter` if ``points`` is empty, if an order is repeated or is not a
    rational > 1, or if an epsilon is not a rational >= 0.
    """

    word: ClassVar[str] = "rdp"
    theorem: ClassVar[str] = _ORDERS

    points: RdpPoints

    def __post_init__(self) -> None:
        exact: dict[Fraction, Fraction] = {}
        for order, epsilon in _pairs(self.points):
            at = order_above_one(order)
            if at in exact:
                raise InvalidParameter("order", order, "is given twice")
            stated = epsilon.upper if isinstance(epsilon, Enclosure) else epsilon
            exact[at] = _amount("epsilon", stated)
        if not exact:
            raise InvalidParameter("points", self.points, "must contain at least one order")
        object.__setattr__(self, "points", tuple(sorted(exact.items())))
        _Stated.__post_init__(self)

    def _epsilon(self, delta: Fraction) -> End:
        return min(epsilon_at_order(epsilon, a, delta) for a, epsilon in points_of(self))

    def _delta(self, epsilon: Fraction) -> End:
        return min(delta_at_order(bound, a, epsilon) for a, bound in points_of(self))

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        found = _between(points_of(self), order_above_one(order))
        theorem = "as stated; between the stated orders, by convexity"
        return Bound(upper=found, method=self.word, theorem=theorem)

    def parameters(self) -> dict[str, Any]:
        return {"points": {str(order): str(epsilon) for order, epsilon in points_of(self)}}

    @property
    def text(self) -> str:
        return f"Renyi divergences at {len(points_of(self))} orders"


def points_of(claim: Rdp) -> tuple[tuple[Fraction, Fraction], ...]:
    r"""The points (order, epsilon) of an Rdp claim, in increasing order."""
    # The constructor has checked and sorted them.
    return cast("tuple[tuple[Fraction, Fraction], ...]", claim.points)


def _between(points: tuple[tuple[Fraction, Fraction], ...], order: Fraction) -> Fraction:
    # K(alpha) = (alpha - 1) D_alpha is convex with K(1) = 0, and D_alpha is non-decreasing.
    above = [(a, epsilon) for a, epsilon in points if a >= order]
    if not above:
        wanted = f"a Renyi bound of order {order} from orders up to {points[-1][0]}"
        raise NotDerived(wanted, "use an order up to the largest order of the claim")
    high, at_high = above[0]
    least = min(epsilon for _, epsilon in above)
    low, at_low = max(((a, e) for a, e in points if a < order), default=(Fraction(1), least))
    if low == 1:
        return least
    chord = (high - order) * (low - 1) * at_low + (order - low) * (high - 1) * at_high
    return min(least, chord / (high - low) / (order - 1))


@dataclass(frozen=True, slots=True, repr=False)
class Assumed(Guarantee):
    r"""A guarantee that is assumed instead of derived, with a stated reason.

    Compositions and conversions keep the reason.

    >>> Assumed(Pure(1), "vendor's data sheet, 2026-03")
    Assumed(Pure(1), reason="vendor's data sheet, 2026-03")

    Raises :class:`InvalidParameter` if the reason is empty, or if ``guarantee`` is not a claim.
    """

    word: ClassVar[str] = "assumed"

    guarantee: Pure | ZCdp | Rdp | Approx
    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, (Pure, ZCdp, Rdp, Approx)):
            must = "must be a Pure, ZCdp, Rdp or Approx claim"
            raise InvalidParameter("guarantee", self.guarantee, must)
        if not isinstance(self.reason, str) or not self.reason.strip():
            reason = "must be a non-empty reason for the claim"
            raise InvalidParameter("reason", self.reason, reason)

    @property
    def scope(self) -> Scope:
        return self.guarantee.scope

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._with_reason(self.guarantee.epsilon(delta, relative))

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._with_reason(self.guarantee.delta(epsilon, relative))

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._with_reason(self.guarantee.renyi(order, relative))

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        return self._with_reason(self.guarantee.zcdp(relative))

    def tradeoff(self, alpha: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._with_reason(self.guarantee.tradeoff(alpha, relative))

    def _with_reason(self, found: Bound) -> Bound:
        return replace(found, assumptions=(f"{self.guarantee!r}: {self.reason}",))

    def to_json(self) -> dict[str, Any]:
        inner = self.guarantee.to_json()
        return {"claim": self.word, "guarantee": inner, "reason": self.reason}

    def __repr__(self) -> str:
        return f"Assumed({self.guarantee!r}, reason={self.reason!r})"


Word: TypeAlias = Pure | ZCdp | Rdp | Approx
"""A claim that is not assumed."""

StatedGuarantee: TypeAlias = Word | Assumed
"""A claim of one of the five kinds."""


CLAIMS: Final[dict[str, Any]] = {
    kind.word: kind for kind in (Pure, BoundedRange, ZCdp, Approx, Rdp, Assumed)
}
r"""The class of each claim, by its name in JSON."""


def claim_from_json(data: Mapping[str, Any]) -> StatedGuarantee:
    r"""Parse the output of ``to_json`` of a claim.

    >>> claim_from_json(Approx(1, "1e-6").to_json())
    Approx(1, '1/1000000')

    Raises :class:`InvalidParameter` if the claim is unknown, or if a field is missing or unknown.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("claim", data, "must be a JSON object")
    name = data.get("claim")
    kind = find_name("claim", name, CLAIMS)
    if data.get("attained") is False:
        kind = {Pure: PureBound, Approx: ApproxBound}.get(kind, kind)
    wanted = [each.name.removeprefix("stated_") for each in fields(kind)]
    wanted.sort(key=lambda each: each == "scope")
    bound = {"attained"} if kind in (PureBound, BoundedRange, ApproxBound) else set()
    if set(data) != {"claim", *wanted, *bound}:
        reason = f"{name} needs exactly the fields {', '.join((*wanted, *bound))}"
        raise InvalidParameter("claim", dict(data), reason)
    if name == Assumed.word:
        return Assumed(cast(Word, claim_from_json(data["guarantee"])), data["reason"])
    given = [data[key] for key in wanted if key != "scope"]
    return cast("Word", kind(*given, scope=Scope.from_json(data["scope"])))


def read_claim(argument: str, text: str, scope: Scope) -> Word:
    r"""Parse ``epsilon=1``, ``epsilon=1,delta=1e-6`` or ``rho=1/2`` as a claim under ``scope``."""
    text = plain_text(argument, text, "must be a claim, or text such as epsilon=1")
    given = read_keys(argument, text, text, ("epsilon", "delta", "rho"), owner="a claim")
    kinds: dict[str, Any] = {"epsilon": Pure, "delta epsilon": Approx, "rho": ZCdp}
    kind = kinds.get(" ".join(sorted(given)))
    if kind is None:
        must = "must have the form epsilon=E, epsilon=E,delta=D or rho=R, e.g. rho=1/2"
        raise InvalidParameter(argument, text, must)
    numbers = [given[key] for key in ("rho", "epsilon", "delta") if key in given]
    try:
        return cast("Word", kind(*numbers, scope=scope))
    except InvalidParameter as error:
        raise InvalidParameter(argument, error.value, error.reason) from None
