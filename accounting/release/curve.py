r"""Everything one release loses: delta at every epsilon, epsilon at every delta, Renyi, tests.

Every number is an :class:`Enclosure`, proven, of the exact worst case over all neighbouring data:
all shifts that the sensitivity allows, both directions. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, Final, cast

from flint import arb

from accounting.claims.claim import Pure
from accounting.laws.registry import candidates, worst
from accounting.pairs.enclose import MOST_BITS, enclose_delta, enclose_epsilon, narrowed, within
from accounting.pairs.pair import Loss, Pair
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, integer, rational

__all__ = ["PrivacyCurve"]

_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrivacyCurve:
    r"""The exact privacy curve of q(data) + noise, derived from the law of the noise.

    delta(epsilon) = sup over neighbours and events S of P(M(D) in S) - e^epsilon P(M(D') in S).
    Arguments are exact rationals (int, str, Decimal, Fraction, or a float read by its shortest
    decimal form); ``bits`` asks for a relative width of 2^-bits.

    >>> from dpcore import DiscreteGaussian
    >>> curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    >>> curve.epsilon("1e-6")
    Enclosure([0.18920733922114999, 0.18920733922115000])
    >>> curve.zcdp(), curve.pure()
    (Enclosure([0.00125, 0.00125]), None)

    Raises :class:`InvalidParameter` as :class:`Mechanism` does, and for arguments out of range;
    :class:`NotDerived` where no theorem gives the number.
    """

    noise: Noise
    sensitivity: Sensitivity | int
    scope: Scope = field(default=Scope())

    def __post_init__(self) -> None:
        checked = Mechanism(noise=self.noise, sensitivity=self.sensitivity, scope=self.scope)
        object.__setattr__(self, "sensitivity", checked.sensitivity)

    # -- the curve ----------------------------------------------------------------------------

    def delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0: the hockey-stick divergence.

        >>> from dpcore import DiscreteLaplace
        >>> curve = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)
        >>> curve.delta("1/10"), curve.delta(0)
        (Enclosure([0, 0]), Enclosure([0.049958374957879972, 0.049958374957879973]))
        """
        exact = _at_least_zero("epsilon", epsilon)
        bits = _checked(bits)
        return _largest(enclose_delta(pair, exact, bits) for pair in self._pairs())

    def epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1].

        At delta = 0 the largest loss, infinite where it is. Where epsilon is positive and below
        2^-bits of the smallest positive loss, the width is relative to that instead.

        >>> from dpcore import DiscreteLaplace
        >>> PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1).epsilon(0)
        Enclosure([0.1, 0.1])
        """
        exact = _at_least_zero("delta", delta)
        if exact > 1:
            raise InvalidParameter("delta", delta, "must lie in [0, 1]: it is a probability")
        bits = _checked(bits)
        if exact == 0:
            return worst(self.noise, self._moves).largest_loss()
        if exact == 1:
            return Enclosure.exactly(0)
        return _largest(enclose_epsilon(pair, exact, bits) for pair in self._pairs())

    def tradeoff(self, alpha: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least type II error of any test between neighbours with type I error ``alpha``.

        1 - alpha would be perfect privacy, 0 none (Dong, Roth and Su 2022).

        >>> from dpcore import DiscreteLaplace
        >>> curve = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)
        >>> curve.tradeoff("1/20"), curve.tradeoff(0)
        (Enclosure([0.94474145409621761, 0.94474145409621762]), Enclosure([1, 1]))
        """
        exact = _at_least_zero("alpha", alpha)
        if exact > 1:
            raise InvalidParameter("alpha", alpha, "must lie in [0, 1]: it is a probability")
        bits = _checked(bits)
        if exact == 1:
            return Enclosure.exactly(0)
        if exact == 0:
            shown = (_loss(partial(_shown, pair), bits) for pair in self._pairs())
            return within(_smallest(shown), Fraction(0), Fraction(1))
        found = (narrowed(partial(p.tradeoff, exact), bits) for p in self._pairs())
        return within(_smallest(found), Fraction(0), Fraction(1))

    # -- Renyi --------------------------------------------------------------------------------

    def renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The largest Renyi divergence D_alpha between neighbours, alpha = ``order`` > 1.

        >>> from dpcore import DiscreteGaussian
        >>> PrivacyCurve(noise=DiscreteGaussian(sigma_squared=1), sensitivity=1).renyi(3)
        Enclosure([1.5, 1.5])
        """
        exact = rational("order", order)
        if exact <= 1:
            raise InvalidParameter("order", order, "must be > 1")
        bits = _checked(bits)
        return _largest(_loss(partial(p.renyi, exact), bits) for p in self._pairs())

    def zcdp(self, bits: int = _BITS) -> Enclosure:
        r"""The least rho: the supremum of D_alpha/alpha over all orders alpha > 1.

        Exactly Delta_2^2/2v for the discrete Gaussian.
        """
        bits = _checked(bits)
        return _loss(worst(self.noise, self._moves).zcdp, bits)

    def pure(self) -> Pure | None:
        r"""The pure guarantee, exact, or None where the loss is unbounded.

        >>> from dpcore import DiscreteLaplace
        >>> PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=Sensitivity.l1(3)).pure()
        Pure('3/10')
        """
        largest = worst(self.noise, self._moves).largest_loss().upper
        return Pure(largest, scope=self.scope) if isinstance(largest, Fraction) else None

    # -- at the door --------------------------------------------------------------------------

    def epsilon_upper(self, delta: RationalLike) -> float:
        r"""epsilon(delta) rounded up to a float: an upper bound, possibly infinite."""
        return self.epsilon(delta).upper_float

    def delta_upper(self, epsilon: RationalLike) -> float:
        r"""delta(epsilon) rounded up to a float: an upper bound."""
        return self.delta(epsilon).upper_float

    def to_json(self) -> dict[str, Any]:
        r"""What the curve is of, as text: noise, sensitivity and scope."""
        amount = self._moves.amount
        return {
            "claim": "curve",
            "noise": self.noise.to_json(),
            "sensitivity": {
                "norm": self._moves.norm.value,
                "amount": list(amount) if isinstance(amount, tuple) else amount,
            },
            "scope": {"unit": self.scope.unit.value, "relation": self.scope.relation.value},
        }

    @property
    def _moves(self) -> Sensitivity:
        return Sensitivity.of(self.sensitivity)

    def _pairs(self) -> tuple[Pair, ...]:
        return candidates(self.noise, self._moves)

    def __repr__(self) -> str:
        scope = "" if self.scope == Scope() else f", scope={self.scope!r}"
        return f"PrivacyCurve(noise={self.noise!r}, sensitivity={self.sensitivity!r}{scope})"


def _shown(pair: Pair) -> Loss:
    # P(L < oo): what is left to a test that never errs under Q.
    return 1 - pair.hidden()


def _loss(compute: Callable[[], Loss | Enclosure], bits: int) -> Enclosure:
    found = compute()
    if isinstance(found, Enclosure):
        return found
    if isinstance(found, Fraction):
        return Enclosure.exactly(found)

    return narrowed(lambda: cast("arb", compute()), bits)


def _largest(found: Iterable[Enclosure]) -> Enclosure:
    enclosures: list[Enclosure] = []
    for each in found:
        if each.lower == math.inf:
            return each  # nothing exceeds it: the rest need not be computed
        enclosures.append(each)
    return Enclosure(max(e.lower for e in enclosures), max(e.upper for e in enclosures))


def _smallest(found: Iterable[Enclosure]) -> Enclosure:
    enclosures = [*found]
    return Enclosure(min(e.lower for e in enclosures), min(e.upper for e in enclosures))


def _at_least_zero(argument: str, value: RationalLike) -> Fraction:
    exact = rational(argument, value)
    if exact < 0:
        raise InvalidParameter(argument, value, "must be >= 0")
    return exact


def _checked(bits: int) -> int:
    bits = integer("bits", bits, at_least=8)
    if bits > MOST_BITS:
        raise InvalidParameter("bits", bits, f"must be at most {MOST_BITS}")
    return bits
