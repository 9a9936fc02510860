r"""The privacy curve of a single release.

The curve gives delta, epsilon, Renyi divergences, the zCDP parameter and the trade-off function.
Both bounds on every number are proven, for the exact worst case over all neighbouring data: all
shifts that the sensitivity permits, in both directions. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, cast

from flint import arb

from accounting.descriptions.description import Description
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee, order_above_one, probability, width
from accounting.guarantees.renyi_and_zcdp_to_epsilon import approx_from_renyi, delta_from_renyi
from accounting.guarantees.stated_guarantees import Pure, ZCdp
from accounting.law_pairs.registry import Coordinates, additive, candidates, worst
from accounting.pairs.enclose_curve import MOST_BITS, as_ball, largest, narrowed, within
from accounting.pairs.pair import Loss, Pair
from accounting.privacy_curves.dominating_pairs import (
    ComposedLoss,
    DominatingPairs,
    of_noise,
    over_totals,
)
from dpcore.errors import PrecisionExhausted
from dpcore.mechanism import InScope, Mechanism, Relation, Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import RationalLike, at_least_zero, check_fields, integer

NO_RENYI: Final = (
    "no Renyi divergence is proven for this sampling scheme; use epsilon(delta) or delta(epsilon), "
    "and for many rounds the same methods of compose((sampled, rounds))"
)

_BITS: Final = 64
_LEAST_BITS: Final = 8
_FINEST: Final = Fraction(1, 10**11)
"""The least relative width for several coordinates, and if optimal tests are not half-lines."""

_TABLED_BITS: Final = 20
"""The default width is 2^-20 for several coordinates whose losses are put into cells."""

# Measured: a composition takes about the same time at every width down to 1e-4. The widths only
# affect speed.
_WIDTHS: Final = tuple(Fraction(1, 10**digits) for digits in (4, 5, 6, 8))


class OneRelease(Guarantee):
    r"""The privacy guarantee of one release, with bounds computed from the law of its output.

    The default relative width is 2^-64, or as :attr:`default_bits` states. The ``enclose_`` methods
    return each number as an :class:`Enclosure` of relative width about 2^-``bits``.
    """

    __slots__ = ()

    theorem: ClassVar[str]

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""The unproven assumptions of the bounds; there are none for exact samplers."""
        return ()

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0, by default from the dominating pairs."""
        exact = at_least_zero("epsilon", epsilon)
        return self._of_pairs(partial(ComposedLoss.delta, epsilon=exact), bits)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1], by default from the dominating pairs."""
        exact = probability("delta", delta)
        return self._of_pairs(partial(ComposedLoss.epsilon, delta=exact), bits)

    @abstractmethod
    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The largest Renyi divergence D_alpha, alpha = ``order`` > 1."""

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least delta at ``epsilon`` >= 0: the hockey-stick divergence."""
        return self._both(self.enclose_delta(epsilon, self._bits(relative)))

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least epsilon at ``delta`` in [0, 1]; at delta = 0 the largest loss."""
        return self._both(self.enclose_epsilon(delta, self._bits(relative)))

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The largest Renyi divergence D_alpha between neighbours, alpha = ``order`` > 1."""
        return self._both(self.enclose_renyi(order, bits_of(relative)))

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""The zCDP parameter, by default an upper bound computed from the largest loss.

        Raises :class:`NotDerived` if the loss is unbounded.
        """
        largest = self.pure(relative).upper
        if not isinstance(largest, Fraction):
            return Guarantee.zcdp(self)
        return replace(Pure(largest).zcdp(), assumptions=self.assumptions)

    def dominating_pairs(self) -> DominatingPairs:
        r"""The dominating pairs of one round, for compositions.

        Raises :class:`NotDerived` if no pairs are known.
        """
        raise NotDerived(
            f"a single dominating pair for {self!r}",
            "only its Renyi divergences compose: use renyi(order) or epsilon(delta)",
        )

    @property
    def description(self) -> Description | None:
        r"""The noise, sensitivity and scope; None for correlated noise and local reports."""
        curve, scope = cast("PrivacyCurve", self), self.scope
        return Description(
            noise=curve.noise,
            sensitivity=Sensitivity.of(curve.sensitivity).shared(scope.group),
            relation=scope.relation,
            unit=scope.unit,
            group=scope.group,
        )

    @property
    def text(self) -> str:
        r"""The release in the syntax of the command line, or its repr without a description."""
        found = self.description
        return repr(self) if found is None else found.text

    def to_json(self) -> Any:
        r"""The release as JSON, with numbers as text."""
        found = self.description
        return None if found is None else found.to_json()

    def __repr__(self) -> str:
        given = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]  # a dataclass
        arguments = (f"{key}={_exact(value)}" for key, value in given.items() if value != Scope())
        return f"{type(self).__name__}({', '.join(arguments)})"

    @property
    def default_bits(self) -> int:
        r"""The number k such that delta and epsilon have the relative width 2^-k by default."""
        return _BITS

    def _bits(self, relative: RationalLike | None) -> int:
        return self.default_bits if relative is None else bits_of(relative)

    def _both(self, found: Enclosure) -> Bound:
        return replace(Bound.of(found, "exact", self.theorem), assumptions=self.assumptions)

    def _of_pairs(self, ask: Callable[..., Enclosure], bits: int) -> Enclosure:
        found = over_totals(
            [(self.dominating_pairs(), 1)],
            lambda total, relative: ask(total, relative=relative),
            Fraction(1, 1 << bits),
        )
        return Enclosure(found.lower or Fraction(0), found.upper)


def _exact(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_exact, value))}]"
    if isinstance(value, Relation):
        return repr(value.value)
    return repr(str(value)) if isinstance(value, Fraction) else repr(value)


class ByOrder(OneRelease):
    r"""A release for which only upper bounds on its Renyi divergences D_alpha are known.

    Every order alpha gives an upper bound on epsilon and delta, and the best order is used. Lower
    bounds exist only if a subclass adds them. Such releases compose by adding the bounds at each
    order. Proofs: docs/proofs/composition.md.
    """

    __slots__ = ()

    @property
    def listed(self) -> bool:
        r"""Whether dominating pairs are known in addition to the Renyi divergences."""
        return False

    @abstractmethod
    def most_renyi(self, order: Fraction) -> End:
        r"""An upper bound on the Renyi divergence of this ``order`` > 1; possibly infinite."""

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        del bits
        return Enclosure(Fraction(0), self.most_renyi(order_above_one(order)))

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        del bits
        found = delta_from_renyi(self.most_renyi, at_least_zero("epsilon", epsilon))
        return Enclosure(Fraction(0), found.upper)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        del bits
        found = approx_from_renyi(self.most_renyi, probability("delta", delta))
        return Enclosure(Fraction(0), found.upper)

    def _both(self, found: Enclosure) -> Bound:
        # No lower bound is known.
        return replace(
            Bound(upper=found.upper, method="renyi", theorem=self.theorem),
            assumptions=self.assumptions,
        )


def described(source: Guarantee) -> Description | None:
    r"""The :attr:`OneRelease.description` of a release; None for claims."""
    return source.description if isinstance(source, OneRelease) else None


def bits_of(relative: RationalLike | None) -> int:
    r"""The least integer k >= 8 with 2^-k <= ``relative``; 64 if ``relative`` is None.

    >>> bits_of(None), bits_of("1e-6")
    (64, 20)
    """
    exact = width(relative, Fraction(1, 1 << _BITS))
    return max((math.ceil(1 / exact) - 1).bit_length(), _LEAST_BITS)


class PairCurve(OneRelease):
    r"""The exact privacy curve of a release with known worst-case pairs of output laws.

    Raises :class:`InvalidParameter` if an argument is out of range, and :class:`NotDerived` if no
    theorem gives the number.
    """

    __slots__ = ()

    @abstractmethod
    def products(self) -> tuple[Coordinates, ...]:
        r"""Products of pairs, one per coordinate; at each epsilon one product is the worst case."""

    def worst(self) -> Coordinates:
        r"""The product of pairs with the largest loss and the largest zCDP parameter."""
        return self.products()[0]

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0: the hockey-stick divergence.

        With several coordinates, the relative width is at least about 1e-11.

        >>> from dpcore import DiscreteLaplace
        >>> curve = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)
        >>> curve.enclose_delta("1/10"), curve.enclose_delta(0)
        (Enclosure([0, 0]), Enclosure([0.049958374957879972, 0.049958374957879973]))
        """
        exact = at_least_zero("epsilon", epsilon)
        return largest(self._totals(partial(ComposedLoss.delta, epsilon=exact), bits))

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1].

        At delta = 0 it is the largest loss, possibly infinite. If epsilon is positive and below
        2^-bits times the smallest positive loss, the width is relative to that loss instead.

        >>> from dpcore import DiscreteLaplace
        >>> PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1).enclose_epsilon(0)
        Enclosure([0.1, 0.1])
        """
        exact = probability("delta", delta)
        bits = _checked(bits)
        if exact == 0:
            return _added(self.worst(), lambda pair: pair.largest_loss(), bits)
        found = largest(self._totals(partial(ComposedLoss.epsilon, delta=exact), bits))
        if found.lower < found.upper == math.inf:
            # The losses exceed the range of floats in the contour integral; a finite zCDP parameter
            # still bounds epsilon.
            with suppress(NotDerived):
                rho = self.enclose_zcdp().upper
                if isinstance(rho, Fraction):
                    return Enclosure(found.lower, ZCdp(rho).epsilon(exact).upper)
        return found

    def tradeoff(self, alpha: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least type II error of any test between neighbours with type I error ``alpha``.

        It is 1 - alpha if the release reveals nothing, and 0 if it reveals everything (Dong, Roth
        and Su 2022).
        """
        return replace(self._both(self.enclose_tradeoff(alpha, bits_of(relative))), safe="lower")

    def enclose_tradeoff(self, alpha: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least type II error, to a relative width of about 2^-bits.

        >>> from dpcore import DiscreteLaplace
        >>> curve = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)
        >>> curve.enclose_tradeoff("1/20"), curve.enclose_tradeoff(0)
        (Enclosure([0.94474145409621761, 0.94474145409621762]), Enclosure([1, 1]))
        """
        exact = probability("alpha", alpha)
        bits = _checked(bits)
        if exact == 1:
            return Enclosure.exactly(0)
        if exact == 0:
            finite = (_loss(partial(_finite_loss, each), bits) for each in self.products())
            return within(_smallest(finite), Fraction(0), Fraction(1))
        relative = Fraction(1, 1 << bits)
        found = (ComposedLoss(parts=each).tradeoff(exact, relative) for each in self.products())
        return within(_smallest(found), Fraction(0), Fraction(1))

    # -- Renyi --------------------------------------------------------------------------------

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The largest Renyi divergence D_alpha between neighbours, alpha = ``order`` > 1.

        >>> from dpcore import DiscreteGaussian
        >>> PrivacyCurve(noise=DiscreteGaussian(sigma_squared=1), sensitivity=1).enclose_renyi(3)
        Enclosure([1.5, 1.5])
        """
        exact = order_above_one(order)
        bits = _checked(bits)
        return largest(
            _added(each, lambda pair: pair.renyi(exact), bits) for each in self.products()
        )

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""The zCDP parameter rho: the supremum of D_alpha/alpha over all orders alpha > 1.

        For the discrete Gaussian rho is exactly D_2^2/(2 sigma^2), where D_2 is the l2 sensitivity.
        For the discrete Laplace, the rhos of the coordinates add. For other laws, the suprema of
        coordinates with different shifts may be at different orders. So coordinates with equal
        shifts form a group. The largest rho of a group is a lower bound, and the sum over all
        groups is an upper bound.
        """
        return self._both(self.enclose_zcdp(bits_of(relative)))

    def enclose_zcdp(self, bits: int = _BITS) -> Enclosure:
        r"""The zCDP parameter rho, to a relative width of 2^-bits; 1e-4 without a closed form."""
        return _added(self.worst(), lambda pair: pair.zcdp(), _checked(bits))

    def _totals(self, ask: Callable[..., Enclosure], bits: int) -> Iterator[Enclosure]:
        # For each product, its value, or an enclosure from an upper and a lower discretisation.
        finest = Fraction(1, 1 << _checked(bits))
        for each in self.products():
            total = ComposedLoss(parts=each)
            relative = finest if total.method == "direct" else max(finest, _FINEST)
            sides = (True,) if total.exact else (False, True)
            ends = [ask(replace(total, above=side), relative=relative) for side in sides]
            yield Enclosure(ends[0].lower, ends[-1].upper)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrivacyCurve(PairCurve):
    r"""The exact privacy curve of a query q with noise, M(D) = q(D) + noise, from the noise law.

    delta(epsilon) = sup over neighbours D, D' and events S of P(M(D) in S) - e^epsilon P(M(D') in
    S). Arguments are exact rationals (int, str, Decimal, Fraction, or a float read by its shortest
    decimal form).

    >>> from dpcore import DiscreteGaussian
    >>> curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    >>> curve.epsilon("1e-6")
    Bound([0.18920733922114999, 0.18920733922115], 'exact')
    >>> curve.zcdp(), curve.pure()
    (Bound([0.00125, 0.00125], 'exact'), Bound([infinity, infinity], 'exact'))

    Raises the errors of :class:`Mechanism`, :class:`InvalidParameter` if an argument is out of
    range, and :class:`NotDerived` if no theorem gives the number.
    """

    theorem: ClassVar[str] = "the curve of the noise"

    noise: Noise
    sensitivity: Sensitivity | int
    scope: InScope = InScope(groups=True)

    def __post_init__(self) -> None:
        check_fields(self)
        checked = Mechanism(noise=self.noise, sensitivity=self.sensitivity)
        object.__setattr__(self, "sensitivity", checked.sensitivity)
        self._moves.shared(self.scope.group)

    @property
    def _moves(self) -> Sensitivity:
        return Sensitivity.of(self.sensitivity)

    def dominating_pairs(self) -> DominatingPairs:
        return of_noise(self.noise, self._moves)

    def products(self) -> tuple[Coordinates, ...]:
        return candidates(self.noise, self._moves)

    def worst(self) -> Coordinates:
        return worst(self.noise, self._moves)

    @property
    def default_bits(self) -> int:
        # 20 if several coordinates change and their losses are discretised, otherwise 64.
        direct = additive(self.noise) or all(
            sum(count for _, count in each) == 1 for each in self.products()
        )
        return _BITS if direct else _TABLED_BITS

    def meets(self, epsilon: RationalLike, delta: RationalLike) -> bool:
        r"""Whether the release is (epsilon, delta)-DP.

        The answer is proven by two-sided bounds. Raises :class:`PrecisionExhausted` if
        delta(epsilon) is too close to ``delta`` to decide.

        >>> from dpcore import Binomial
        >>> bits = Binomial(trials=268, probability="1/2")
        >>> PrivacyCurve(noise=bits, sensitivity=1).meets("1/2", "1e-6")
        True
        """
        at, most = at_least_zero("epsilon", epsilon), at_least_zero("delta", delta)
        if self._by_shares(at, most):
            return True
        for relative in _WIDTHS:
            found = self.delta(at, relative)
            if found.upper <= most:
                return True
            if found.lower is not None and found.lower > most:
                return False
        raise PrecisionExhausted(f"delta({at}) could not be compared with {most}")

    def _by_shares(self, epsilon: Fraction, delta: Fraction) -> bool:
        # Basic composition of coordinates with equal shares of epsilon: a fast proof if there is
        # far more noise than needed, where the exact composition would resolve a tiny delta.
        amounts = self._moves.amount
        if not isinstance(amounts, tuple):
            return False
        share = epsilon / len(amounts)
        lost = [
            count * PrivacyCurve(noise=self.noise, sensitivity=step).delta(share).upper
            for step, count in Counter(amounts).items()
        ]
        return sum(lost) <= delta

    def enclose_zcdp(self, bits: int = _BITS) -> Enclosure:
        r"""The zCDP parameter rho: for unlike coordinates, the bounds that :meth:`zcdp` states."""
        bits = _checked(bits)
        found = [_added((one,), lambda pair: pair.zcdp(), bits) for one in self.worst()]
        lower, upper = ([getattr(each, end) for each in found] for end in ("lower", "upper"))
        # Coordinates with different shifts may reach their suprema at different orders.
        low = sum if additive(self.noise) else max
        return Enclosure(low(lower), sum(upper))


def _added(product: Coordinates, ask: Callable[[Pair], Loss | Enclosure], bits: int) -> Enclosure:
    # The losses of independent coordinates add.
    found = [(_loss(partial(ask, pair), bits), count) for pair, count in product]
    return Enclosure(
        sum((count * each.lower for each, count in found), Fraction(0)),
        sum((count * each.upper for each, count in found), Fraction(0)),
    )


def _finite_loss(product: Coordinates) -> arb:
    # P(L < oo): the type II error of the best test that never errs under Q.
    finite = ((1 - as_ball(pair.hidden())) ** count for pair, count in product)
    return math.prod(finite, start=arb(1))


def _loss(compute: Callable[[], Loss | Enclosure], bits: int) -> Enclosure:
    found = compute()
    if isinstance(found, Enclosure):
        return found
    if isinstance(found, Fraction):
        return Enclosure.exactly(found)

    return narrowed(lambda: cast("arb", compute()), bits)


def _smallest(found: Iterable[Enclosure]) -> Enclosure:
    kept = [*found]
    return Enclosure(min(each.lower for each in kept), min(each.upper for each in kept))


def _checked(bits: int) -> int:
    return integer("bits", bits, at_least=_LEAST_BITS, at_most=MOST_BITS)
