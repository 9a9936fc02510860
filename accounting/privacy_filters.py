r"""Adaptive composition: privacy filters and odometers for adaptively chosen charges.

A filter limits the total privacy loss to a budget. It has one integer counter for each additive
quantity: epsilon, rho, delta, or a Renyi divergence. A charge is admitted if and only if every
counter stays within its limit. All admitted releases together stay within the budget, however the
charges are chosen and whenever the releases stop. Counters must be sums: composing the loss
distributions of adaptively chosen charges does not give a filter.

An odometer also bounds the loss of the releases made so far. This bound grows with the counters and
holds at all times, even at a time that depends on earlier readings. For pure-DP charges it is the
sum of the epsilons. For charges with a zCDP parameter let R be the sum of these parameters. Then a
supermartingale gives, for each lambda_j of a grid,

    loss <= (lambda_j + 1) R + log(1/delta_j)/lambda_j at all times,

except with probability delta_j. The grid is fixed when the odometer is created, and the sum of all
delta_j is at most its slack (Whitehouse, Ramdas, Rogers and Wu 2023; Rogers, Roth, Ullman and
Vadhan 2016). Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, cast

from accounting.convert_guarantees import as_approx, as_pure, as_rdp, as_zcdp
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.renyi_and_zcdp_to_epsilon import (
    approx_from_renyi,
    rho_within,
    rounded_up,
)
from accounting.guarantees.stated_guarantees import (
    Approx,
    ApproxBound,
    Assumed,
    Pure,
    PureBound,
    Rdp,
    StatedGuarantee,
    Word,
    ZCdp,
    claim_from_json,
    points_of,
)
from accounting.privacy_curves.release_curve import PairCurve
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, End, ball, precision
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational, rational_in
from dpcore.numbers.rounding import brief, up

SHARES: Final = 2**20 * 3**4 * 5**12 * 7 * 11
r"""The number of shares in a budget: a counter counts shares.

It is below 2^61, so that a full counter plus one more charge fits a signed 64-bit column, and has
many small factors, so that ten charges of a tenth use the budget exactly.
"""

_KEPT: Final = 40
_BITS: Final = 128
_LINES: Final = 64
_ROOT: Final = 64
_NOTHING: Final = "a budget of 0 admits no charge"
_OTHER_BUDGETS: Final = "use a ledger or session with a budget like rho=1 or epsilon=1,delta=1e-6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    r"""The cost of one charge: an integer for each counter of the filter, rounded up.

    ``amounts`` are these integers, in shares of the budget (see :data:`SHARES`). They are capped at
    the limit plus 1, so that they fit 64 bits; a capped amount means that the charge costs more
    than the whole budget. ``costs`` are the costs before rounding and capping. ``assumptions``
    contains the assumptions of the charge, such as the reason of an :class:`Assumed` claim.
    """

    amounts: tuple[int, ...]
    assumptions: tuple[str, ...] = ()
    costs: tuple[Fraction, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(ABC):
    r"""A budget that holds at any stopping time, for adaptively chosen charges.

    ``counters`` are the names of the summed quantities. ``budgets`` are the largest allowed sums,
    as exact numbers, and ``limits`` are the same values in shares of the budget (see
    :data:`SHARES`).
    """

    kind: ClassVar[str]

    budget: Word
    counters: tuple[str, ...] = field(init=False)
    budgets: tuple[Fraction, ...] = field(init=False)
    limits: tuple[int, ...] = field(init=False)

    @abstractmethod
    def _allowed(self) -> dict[str, Fraction]:
        # The name and limit of each counter.
        ...

    @abstractmethod
    def _cost(self, guarantee: Word | PairCurve) -> tuple[Fraction, ...]:
        # The increment of each counter for a charge of ``guarantee``: exact, or rounded up.
        ...

    @abstractmethod
    def convert(self, guarantee: Guarantee) -> Word:
        r"""Convert any guarantee to the type of the budget: Pure, ZCdp, Rdp or Approx.

        Raises :class:`NotDerived` if no theorem gives such a claim.
        """

    @abstractmethod
    def _claim(self, held: tuple[Fraction, ...]) -> Word:
        # The guarantee implied by these counter values.
        ...

    def __post_init__(self) -> None:
        allowed = self._allowed()
        object.__setattr__(self, "counters", tuple(allowed))
        object.__setattr__(self, "budgets", tuple(allowed.values()))
        object.__setattr__(self, "limits", tuple(SHARES if b else 0 for b in allowed.values()))

    def price(self, guarantee: Guarantee) -> Price:
        r"""The cost of one charge of ``guarantee``, in the quantities that the filter sums.

        >>> PureFilter(budget=Pure(1)).price(Pure("1/10")).amounts[0] * 10 == SHARES
        True

        Raises :class:`InvalidParameter` if the scope differs from that of the budget, and
        :class:`NotDerived` if no theorem converts the guarantee to these quantities.
        """
        if not isinstance(guarantee, (Pure, ZCdp, Rdp, Approx, Assumed, PairCurve)):
            must = "must be a claim or the exact curve of one release; convert it with as_approx"
            raise InvalidParameter("guarantee", guarantee, must)
        if guarantee.scope != self.budget.scope:
            raise InvalidParameter(
                "scope",
                guarantee.scope,
                f"must be {self.budget.scope}, the scope of the budget: different scopes do "
                "not compose",
            )
        if isinstance(guarantee, Assumed):
            priced = self.price(guarantee.guarantee)
            return replace(priced, assumptions=(guarantee.reason,))
        costs = self._cost(guarantee)
        return Price(amounts=tuple(map(_shares, costs, self.budgets)), costs=costs)

    def admits(self, total: Sequence[int], price: Price) -> bool:
        r"""Whether a charge of this ``price`` fits the budget if the counters are at ``total``.

        >>> full = PureFilter(budget=Pure(1))
        >>> full.admits((0,), full.price(Pure(1))), full.admits((1,), full.price(Pure(1)))
        (True, False)
        """
        held = self._checked(total)
        amounts = self._checked(price.amounts)
        return all(h + a <= most for h, a, most in zip(held, amounts, self.limits, strict=True))

    def held(self, total: Sequence[int]) -> tuple[Fraction, ...]:
        r"""Convert counter values from shares of the budget to exact epsilons, rhos or deltas."""
        amounts = self._checked(total)
        return tuple(n * b / SHARES for n, b in zip(amounts, self.budgets, strict=True))

    def remaining(self, total: Sequence[int]) -> tuple[Fraction, ...]:
        r"""The exact budget that counters with the values ``total`` leave, at least 0 for each."""
        held = self.held(total)
        return tuple(max(b - h, Fraction(0)) for h, b in zip(held, self.budgets, strict=True))

    def format_cost(self, price: Price) -> str:
        r"""Format the cost of a charge as text, rounded up.

        >>> PureFilter(budget=Pure(1)).format_cost(PureFilter(budget=Pure(1)).price(Pure(10)))
        'epsilon=10'
        """
        return self.format(price.costs, up)

    def format(self, values: Sequence[Fraction], rounded: Callable[[End, int], str]) -> str:
        r"""Format a value for each counter, shortened by ``rounded``: ``down`` or ``up``."""
        named = zip(self.counters, values, strict=True)
        return ", ".join(f"{name}={brief(value, rounded)}" for name, value in named)

    def spent(self, total: Sequence[int]) -> Word:
        r"""The guarantee of releases, fixed in advance, whose amounts add up to ``total``.

        For adaptively chosen releases a filter guarantees only the whole budget; use an
        :class:`Odometer` for a tighter bound.

        >>> half = PureFilter(budget=Pure(1))
        >>> half.spent((SHARES // 2,))
        PureBound('1/2')
        """
        return self._claim(self.held(total))

    def together(self, periods: int) -> Word:
        r"""The guarantee of ``periods`` periods together, each with this whole budget.

        The charges of all periods may be chosen adaptively, because limits that are ``periods``
        times as large also define a filter. The number of periods must be fixed in advance.

        >>> PureFilter(budget=Pure(2)).together(3)
        PureBound(6)
        """
        return self._claim(tuple(periods * budget for budget in self.budgets))

    def to_json(self) -> dict[str, Any]:
        r"""The filter as JSON data; :func:`filter_from_json` reads it back."""
        return {"filter": self.kind, "budget": self.budget.to_json(), "shares": str(SHARES)}

    def _checked(self, total: Sequence[int]) -> tuple[int, ...]:
        if len(total) != len(self.counters):
            raise InvalidParameter("total", total, f"must contain {len(self.counters)} counters")
        return tuple(integer("total", each, at_least=0) for each in total)


def _shares(cost: Fraction, budget: Fraction) -> int:
    if budget == 0:
        return min(math.ceil(cost), 1)
    return min(math.ceil(cost * SHARES / budget), SHARES + 1)


def _short(rho: Fraction) -> Fraction:
    # Rounded down to about 40 bits, with a margin so that other versions of dpcore accept the
    # value.
    shift = rho.denominator.bit_length() - rho.numerator.bit_length() + _KEPT + 1
    return Fraction(math.floor(rho * (1 - Fraction(1, 1 << _KEPT)) * Fraction(2) ** shift)) / (
        Fraction(2) ** shift
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PureFilter(Filter):
    r"""A pure-DP budget: a limit on the sum of epsilons (Rogers, Roth, Ullman and Vadhan 2016).

    >>> PureFilter(budget=Pure(2)).counters
    ('epsilon',)
    """

    kind: ClassVar[str] = "pure"

    budget: Pure

    def _allowed(self) -> dict[str, Fraction]:
        return {"epsilon": positive_rational("epsilon", self.budget.stated_epsilon, _NOTHING)}

    def _cost(self, guarantee: Word | PairCurve) -> tuple[Fraction, ...]:
        known = isinstance(guarantee, (Pure, PairCurve))
        found = guarantee.pure().upper if known else math.inf
        if not isinstance(found, Fraction):
            raise NotDerived(f"a pure-DP cost of {guarantee.text}", _OTHER_BUDGETS)
        return (found,)

    def convert(self, guarantee: Guarantee) -> Pure:
        try:
            return cast("Pure", as_pure(guarantee))
        except NotDerived as error:
            raise NotDerived(error.wanted, f"{error.instead}; {_OTHER_BUDGETS}") from None

    def _claim(self, held: tuple[Fraction, ...]) -> Pure:
        return PureBound(held[0], scope=self.budget.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCdpFilter(Filter):
    r"""A zCDP budget: a limit on the sum of rhos (Feldman and Zrnic 2021; Whitehouse et al. 2023).

    >>> opened = ZCdpFilter(budget=ZCdp("1/2"))
    >>> opened.price(ZCdp("1/800")).amounts[0] * 400 == SHARES
    True
    """

    kind: ClassVar[str] = "zcdp"

    budget: ZCdp

    def _allowed(self) -> dict[str, Fraction]:
        return {"rho": positive_rational("rho", self.budget.rho, _NOTHING)}

    def _cost(self, guarantee: Word | PairCurve) -> tuple[Fraction, ...]:
        return (rational("rho", self.convert(guarantee).rho),)

    def convert(self, guarantee: Guarantee) -> ZCdp:
        return cast("ZCdp", as_zcdp(guarantee))

    def _claim(self, held: tuple[Fraction, ...]) -> ZCdp:
        return ZCdp(held[0], scope=self.budget.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class RdpFilter(Filter):
    r"""A Renyi-DP budget: a limit on the sum of divergences at each order of the budget.

    Source: Feldman and Zrnic 2021.

    >>> RdpFilter(budget=Rdp({2: 1, 8: 3})).counters
    ('order 2', 'order 8')
    """

    kind: ClassVar[str] = "rdp"

    budget: Rdp

    def _allowed(self) -> dict[str, Fraction]:
        return {
            f"order {order}": positive_rational("epsilon", epsilon, _NOTHING)
            for order, epsilon in points_of(self.budget)
        }

    def _cost(self, guarantee: Word | PairCurve) -> tuple[Fraction, ...]:
        return tuple(epsilon for _, epsilon in points_of(self.convert(guarantee)))

    def convert(self, guarantee: Guarantee) -> Rdp:
        orders = [order for order, _ in points_of(self.budget)]
        return cast("Rdp", as_rdp(guarantee, orders))

    def _claim(self, held: tuple[Fraction, ...]) -> Rdp:
        orders = (order for order, _ in points_of(self.budget))
        return Rdp(tuple(zip(orders, held, strict=True)), scope=self.budget.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproxFilter(Filter):
    r"""An (epsilon, delta) budget: a limit on the sums of rho and of delta over all charges.

    ``slack`` is a part of delta, by default half of it. The sum of rho is limited to a value
    ``rho`` such that rho-zCDP implies (epsilon, slack)-DP (Canonne, Kamath and Steinke 2020,
    Proposition 12). This limit is computed once and stored. The limit of the sum of deltas is the
    difference delta - slack. All releases together then satisfy the budget (Whitehouse, Ramdas,
    Rogers and Wu 2023).

    A zCDP charge costs its rho. An (epsilon, delta) charge costs rho = min(epsilon^2/2, epsilon),
    and its delta. A guarantee without a zCDP parameter is first converted to its epsilon at
    ``charge_delta``, by default (delta - slack)/1000. A ledger also converts a sampled release that
    has a zCDP parameter, if this conversion makes the charge cheaper.

    >>> opened = ApproxFilter(budget=Approx(1, "1e-6"))
    >>> opened.counters, opened.slack
    (('rho', 'delta'), Fraction(1, 2000000))

    Raises :class:`InvalidParameter` if slack is outside (0, delta], if charge_delta exceeds the
    limit of the sum of deltas, or if a given rho does not imply (epsilon, slack).
    """

    kind: ClassVar[str] = "approx"
    budget: Approx
    slack: RationalLike | None = None
    charge_delta: RationalLike | None = None
    rho: RationalLike | None = None

    def _allowed(self) -> dict[str, Fraction]:
        epsilon = positive_rational("epsilon", self.budget.stated_epsilon, _NOTHING)
        delta = positive_rational("delta", self.budget.stated_delta, _NOTHING)
        slack = delta / 2 if self.slack is None else rational("slack", self.slack)
        if not 0 < slack <= delta or slack == 1:
            reason = f"must lie in (0, {delta}]" if delta < 1 else "must lie in (0, 1)"
            raise InvalidParameter("slack", self.slack, reason)
        rest = delta - slack
        each = self.charge_delta
        charge = rest / 1000 if each is None else rational("charge_delta", each)
        if not 0 <= charge <= rest:
            raise InvalidParameter("charge_delta", each, f"must lie in [0, {rest}]")
        object.__setattr__(self, "slack", slack)
        object.__setattr__(self, "charge_delta", charge)
        if self.rho is None:
            rho = positive_rational("rho", _short(rho_within(epsilon, slack)), _NOTHING)
        else:
            # A stored rho is checked but kept, because the stored counters count shares of it.
            rho = positive_rational("rho", self.rho, _NOTHING)
            if not approx_from_renyi(lambda order: rho * order, slack).upper <= epsilon:
                reason = f"must be smaller: it implies an epsilon above {epsilon} at delta {slack}"
                raise InvalidParameter("rho", self.rho, reason)
        object.__setattr__(self, "rho", rho)
        return {"rho": rho, "delta": rest}

    def _cost(self, guarantee: Word | PairCurve) -> tuple[Fraction, ...]:
        if not isinstance(guarantee, Approx):
            try:
                return (rational("rho", as_zcdp(guarantee).rho), Fraction(0))
            except NotDerived:
                guarantee = self.convert(guarantee)
        core = as_zcdp(Pure(guarantee.stated_epsilon))
        return (core.rho, guarantee.stated_delta)

    def convert(self, guarantee: Guarantee) -> Approx:
        return cast("Approx", as_approx(guarantee, self.charge_delta or 0))

    def _claim(self, held: tuple[Fraction, ...]) -> Approx:
        rho, delta = held
        slack = rational("slack", self.slack)
        if rho == 0:
            return ApproxBound(0, delta, scope=self.budget.scope)
        epsilon = approx_from_renyi(lambda order: rho * order, slack).upper
        most = min(delta + slack, Fraction(1))
        return ApproxBound(Fraction(epsilon), most, scope=self.budget.scope)

    def format_cost(self, price: Price) -> str:
        # A dataclass with slots is created twice: super() would refer to the first class.
        cost = Filter.format_cost(self, price)
        return f"{cost} (an epsilon,delta budget is counted as rho and delta)"

    def to_json(self) -> dict[str, Any]:
        return {
            # A dataclass with slots is created twice: super() would refer to the first class.
            **Filter.to_json(self),
            "slack": str(self.slack),
            "charge_delta": str(self.charge_delta),
            "rho": str(self.rho),
        }


def filter_for(budget: StatedGuarantee) -> Filter:
    r"""Choose the filter for ``budget``: pure, zCDP, Renyi or (epsilon, delta).

    >>> filter_for(ZCdp("1/2")).counters
    ('rho',)

    Raises :class:`InvalidParameter` if the budget is assumed or 0.
    """
    match budget:
        case Pure():
            return PureFilter(budget=budget)
        case ZCdp():
            return ZCdpFilter(budget=budget)
        case Rdp():
            return RdpFilter(budget=budget)
        case Approx():
            return ApproxFilter(budget=budget)
        case _:
            raise InvalidParameter("budget", budget, "must be a Pure, ZCdp, Rdp or Approx claim")


def filter_from_json(data: Mapping[str, Any]) -> Filter:
    r"""Parse the output of :meth:`Filter.to_json`.

    >>> filter_from_json(PureFilter(budget=Pure(1)).to_json()) == PureFilter(budget=Pure(1))
    True

    Raises :class:`InvalidParameter` if a field is missing, superfluous or invalid, or if ``shares``
    is not ``SHARES``, since the stored counters would then have another unit.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("filter", data, "must be a JSON object")
    kind = data.get("filter")
    own = ("slack", "charge_delta", "rho") if kind == ApproxFilter.kind else ()
    if set(data) != {"filter", "budget", "shares", *own}:
        names = ", ".join(("filter", "budget", "shares", *own))
        raise InvalidParameter("filter", dict(data), f"must contain exactly the fields {names}")
    if data["shares"] != str(SHARES):
        raise InvalidParameter("shares", data["shares"], f"must be {SHARES}")
    budget = claim_from_json(data["budget"])
    if isinstance(budget, Approx) and own:
        return ApproxFilter(budget=budget, **{name: data[name] for name in own})
    found = filter_for(budget)
    if found.kind != kind:
        raise InvalidParameter("filter", kind, f"must be {found.kind}, the kind of the budget")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AtAllTimes:
    r"""A guarantee that holds at all times: P(S) <= E_Q[e^epsilon 1_S] + delta.

    P and Q are the laws of all outputs up to a time under two neighbouring datasets, S is any event
    of these outputs, and 1_S is its indicator. The time may depend on earlier outputs. ``epsilon``,
    the reading of the odometer at this time, is a random variable. If it never exceeds a number e,
    the releases are (e, delta)-DP.
    """

    epsilon: Fraction
    delta: Fraction
    theorem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    r"""A bound on the privacy loss at all times simultaneously, except with probability ``slack``.

    For an (epsilon, delta) filter the limit of its sum of deltas is added to this probability.

    >>> from accounting.guarantees.stated_guarantees import Pure, ZCdp
    >>> from accounting.privacy_filters import SHARES
    >>> Odometer(filter=PureFilter(budget=Pure(2))).read((SHARES // 2,)).epsilon
    Fraction(1, 1)
    >>> opened = Odometer(filter=ZCdpFilter(budget=ZCdp("1/2")), slack="1e-6")
    >>> float(opened.read((SHARES,)).epsilon), float(opened.read((SHARES // 1000,)).epsilon)
    (5.88..., 0.19...)

    Raises :class:`InvalidParameter` if slack is outside (0, 1), or is given for a pure filter.
    """

    filter: Filter
    slack: RationalLike | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.filter, (PureFilter, ZCdpFilter, RdpFilter, ApproxFilter)):
            raise InvalidParameter(
                "filter", self.filter, "must be a PureFilter, ZCdpFilter, RdpFilter or ApproxFilter"
            )
        if isinstance(self.filter, PureFilter):
            if self.slack is not None:
                raise InvalidParameter(
                    "slack", self.slack, "must be None: a pure-DP sum needs no slack"
                )
            return
        object.__setattr__(self, "slack", rational_in("slack", self.slack, "(0, 1)"))

    def read(self, total: Sequence[int]) -> AtAllTimes:
        r"""The guarantee at a time when the counters have the values ``total``, rounded up.

        Raises :class:`InvalidParameter` if the filter has an (epsilon, delta) budget and a counter
        exceeds its limit.
        """
        opened, held, rest = self.filter, self.filter.held(total), Fraction(0)
        if isinstance(opened, PureFilter):
            theorem = "the loss is at most the sum of the epsilons (Rogers et al. 2016)"
            return AtAllTimes(epsilon=held[0], delta=rest, theorem=theorem)
        if isinstance(opened, ApproxFilter):
            if any(n > most for n, most in zip(total, opened.limits, strict=True)):
                # The delta of charges beyond the limits is not accounted for.
                raise InvalidParameter("total", total, "must lie within the limits of the filter")
            rest = opened.budgets[1]
        if isinstance(opened, RdpFilter):
            epsilon = self._orders(opened, held)
        else:
            epsilon = self._lines(held[0])
        return AtAllTimes(
            epsilon=epsilon,
            delta=min(self._slack + rest, Fraction(1)),
            theorem="Ville's inequality on a fixed grid (Whitehouse et al. 2023)",
        )

    @property
    def _slack(self) -> Fraction:
        return rational("slack", self.slack)

    def _lines(self, rho: Fraction) -> Fraction:
        if rho == 0:
            return Fraction(0)
        most = self.filter.budgets[0]
        return min(
            _line((rate + 1) * rho, rate, share * self._slack)
            for rate, share in (_rate(most, self._slack, j) for j in range(1, _LINES + 1))
        )

    def _orders(self, opened: RdpFilter, held: tuple[Fraction, ...]) -> Fraction:
        orders = [order for order, _ in points_of(opened.budget)]
        share = self._slack / len(orders)
        return min(
            Fraction(0) if sum_of == 0 else _line(sum_of, order - 1, share)
            for order, sum_of in zip(orders, held, strict=True)
        )


def _rate(most: Fraction, slack: Fraction, j: int) -> tuple[Fraction, Fraction]:
    # The j-th lambda, approximately the best one if the sum of rho is most/2^(j-1), and its share
    # of the slack, 1/(j(j+1)); the shares add up to less than 1. Only integers are used, so that
    # the grid is the same at every time and on every machine.
    share = Fraction(1, j * (j + 1))
    log = Fraction(693, 1000) * math.ceil(1 / (share * slack)).bit_length()
    square = log / (most / 2 ** (j - 1))
    # The shift keeps 64 bits of the root, whatever its size.
    shift = _ROOT + max(square.denominator.bit_length() - square.numerator.bit_length(), 0)
    return Fraction(math.isqrt(math.floor(square * 4**shift)), 2**shift), share


def _line(sum_of: Fraction, rate: Fraction, delta: Fraction) -> Fraction:
    with precision(_BITS):
        found = Enclosure.of(ball(sum_of) - ball(delta).log() / ball(rate)).upper
    return Fraction(rounded_up(found))
