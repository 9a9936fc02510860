r"""The curve of several coordinates that may all move at once: a box sensitivity.

X is a log-concave noise, the same for every coordinate and independent; neighbouring data move
coordinate i by at most d_i, either way. P is the law of X and Q that of X + d: as p(x)/p(x-d) falls
in x, every test is a ray, and its payoff rises with d, so full shift dominates every smaller one of
the same sign. What is left is the sign of each coordinate: a maximum over the signs, of which a
symmetric law needs one. The total over coordinates is held between two lattice laws (``product``).
Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

from accounting.claims.bound import Bound
from accounting.claims.guarantee import Guarantee, at_least_zero, order_above_one, probability
from accounting.errors import NotDerived
from accounting.protocols.binomial_outcomes import binomial_outcomes
from accounting.protocols.product import Lattice, Outcomes, delta_of_one, merged, product, split
from accounting.release.guarantee import serve
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.binomial import Binomial
from dpcore.mechanism import Mechanism, Norm, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational

__all__ = ["BinomialBox", "box_of"]

Signs: TypeAlias = tuple[tuple[int, Fraction, int], ...]
"""(shift, probability, count): moving down is moving up with 1 - p in the place of p."""

_GUARD: Final = 64
_FIRST_BITS: Final = 160
_MOST_BITS: Final = 4096
_FINEST: Final = 18
_MOST_SIGNS: Final = 64
_MANY: Final = 1 << 18
_SMALLEST: Final = Fraction(1, 10**6)
_WIDTH: Final = Fraction(1, 1000)
_LATTICES: Final = "full shifts are the worst; their total lies between two lattice laws"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialBox(Guarantee):
    r"""Binomial(trials, probability) noise on each coordinate; i may move by ``bounds[i]``.

    The noise of the shuffle protocols: Cheu, Joseph, Mao and Peng 2021; one coordinate with
    bound 1 is binary summation.

    >>> BinomialBox(trials=268, bounds=(1,)).delta("1/2")
    Bound([9.8800924953414566e-7, 9.8800924953414567e-7], 'product')
    >>> BinomialBox(trials=268, bounds=(1,)).meets("1/2", "1e-6")
    True

    Raises :class:`InvalidParameter` for trials < 1, a probability outside (0, 1), no bounds or a
    bound < 1; :class:`NotDerived` when the signs of the coordinates are too many to try.
    """

    trials: int
    bounds: tuple[int, ...]
    probability: RationalLike = Fraction(1, 2)
    scope: Scope = field(default=Scope(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", integer("trials", self.trials, at_least=1))
        p = rational("probability", self.probability)
        if not 0 < p < 1:
            raise InvalidParameter("probability", self.probability, "must lie in (0, 1)")
        object.__setattr__(self, "probability", p)
        if not isinstance(self.bounds, tuple) or not self.bounds:
            raise InvalidParameter("bounds", self.bounds, "must be a tuple of one bound or more")
        for bound in self.bounds:
            integer("bounds", bound, at_least=1)

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least delta at ``epsilon`` >= 0, to that relative width (1e-3) or tighter.

        Raises :class:`PrecisionExhausted` when the finest lattice leaves it wider.
        """
        return _bound(self.enclose_delta(epsilon, _WIDTH if relative is None else relative))

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least epsilon at ``delta``, to that relative width (below 1e-6, of 1e-6).

        By default 1e-6 for one coordinate and 1e-3 for several, where each step costs a product.
        Infinite at delta = 0: each world shows values that the other never does.
        """
        return _bound(self.enclose_epsilon(delta, relative))

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""Infinite at every order: each world shows values that the other never does."""
        del relative
        order_above_one(order)
        return _bound(Enclosure.infinite())

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""Infinite, as every Renyi divergence is."""
        del relative
        return _bound(Enclosure.infinite())

    def to_json(self) -> dict[str, Any]:
        r"""Bits, their probability, the bounds and the scope, as text."""
        return {
            "claim": "binomial-box",
            "trials": self.trials,
            "probability": str(self.probability),
            "bounds": [*self.bounds],
            "scope": {"unit": self.scope.unit.value, "relation": self.scope.relation.value},
        }

    def enclose_delta(self, epsilon: RationalLike, relative: RationalLike = _WIDTH) -> Enclosure:
        r"""As :meth:`delta`."""
        at = at_least_zero("epsilon", epsilon)
        goal = at_least_zero("relative", relative)
        for found in self._narrowing(at):
            if found.upper - found.lower <= goal * found.lower:
                return found
        raise PrecisionExhausted(f"no enclosure of relative width {goal} on the finest lattice")

    def meets(self, epsilon: RationalLike, delta: RationalLike) -> bool:
        r"""Whether the release is (epsilon, delta)-DP, decided by certified bounds, both ways."""
        at, most = at_least_zero("epsilon", epsilon), at_least_zero("delta", delta)
        # More bits are post-processing of fewer: a quick yes where there are far more than enough.
        if self.trials > _MANY and replace(self, trials=_MANY).meets(at, most):
            return True
        for found in self._narrowing(at):
            if found.upper <= most:
                return True
            if found.lower > most:
                return False
        raise PrecisionExhausted(f"delta({at}) cannot be told from {most} on the finest lattice")

    def enclose_epsilon(
        self, delta: RationalLike, relative: RationalLike | None = None
    ) -> Enclosure:
        r"""As :meth:`epsilon`."""
        if relative is None:
            relative = "1e-6" if len(self.bounds) == 1 else _WIDTH
        most = probability("delta", delta)
        goal = positive_rational("relative", relative, "the search never ends on one number")
        if most == 0:
            return Enclosure.infinite()
        if self._hidden() > most:
            return Enclosure.infinite()
        if self.meets(0, most):
            return Enclosure.exactly(0)
        low, high = Fraction(0), Fraction(1)
        while not self.meets(high, most):
            low, high = high, 2 * high
            if high > _MOST_BITS:
                return Enclosure(low, math.inf)
        while high - low > goal * max(low, _SMALLEST):
            middle = (low + high) / 2
            low, high = (low, middle) if self.meets(middle, most) else (middle, high)
        return Enclosure(low, high)

    # -- the bounds, ever tighter -------------------------------------------------------------

    def _narrowing(self, epsilon: Fraction) -> Iterator[Enclosure]:
        bits, grain = _FIRST_BITS, self._coarsest()
        while bits <= _MOST_BITS:
            found = self._within(epsilon, bits, grain)
            yield found
            if len(self.bounds) == 1 or found.upper < Fraction(1, 1 << (bits - 2 * _GUARD)):
                # One coordinate has no lattice; or this is too small for these units to resolve.
                bits *= 2
            elif grain == Fraction(1, 1 << _FINEST):
                return
            else:
                grain = max(grain / 4, Fraction(1, 1 << _FINEST))

    def _within(self, epsilon: Fraction, bits: int, grain: Fraction) -> Enclosure:
        found = [self._one(signs, epsilon, bits, grain) for signs in self._signs()]
        lower, upper = max(e.lower for e in found), max(e.upper for e in found)
        return Enclosure(max(lower, Fraction(0)), min(upper, Fraction(1)))

    def _one(self, signs: Signs, epsilon: Fraction, bits: int, grain: Fraction) -> Enclosure:
        with precision(bits + _GUARD):
            if len(self.bounds) == 1:
                ((shift, p, _),) = signs
                return Enclosure.of(delta_of_one(_outcomes(self.trials, p, shift, bits), epsilon))
            low, high = (
                _total(self.trials, signs, bits, grain, upward=up).delta(epsilon)
                for up in (False, True)
            )
            return Enclosure(low.lower, high.upper)

    def _signs(self) -> Iterator[Signs]:
        # Coordinates of one bound are exchangeable: only how many of them move down matters.
        p, groups = Fraction(self.probability), sorted(Counter(self.bounds).items())
        if p == Fraction(1, 2):
            yield tuple((shift, p, count) for shift, count in groups)
            return
        if math.prod(count + 1 for _, count in groups) > _MOST_SIGNS:
            raise NotDerived(
                f"the worst signs of {len(self.bounds)} coordinates of an asymmetric noise",
                "use probability 1/2, which needs one sign",
            )
        for downs in itertools.product(*(range(count + 1) for _, count in groups)):
            both = (
                part
                for (shift, count), down in zip(groups, downs, strict=True)
                for part in ((shift, p, count - down), (shift, 1 - p, down))
            )
            yield tuple(part for part in both if part[2])

    def _coarsest(self) -> Fraction:
        # About a 64th of the deviation of the total loss.
        p = Fraction(self.probability)
        squared = sum(bound * bound for bound in self.bounds) / (self.trials * p * (1 - p))
        steps = max(math.ceil(6 - math.log2(min(math.sqrt(squared), 1.0))), 0)
        return Fraction(1, 1 << min(steps, _FINEST))

    def _hidden(self) -> Fraction:
        # At most P(L = oo), which delta never falls below.
        worst = Fraction(0)
        for signs in self._signs():
            shown = Fraction(1)
            with precision(_FIRST_BITS + _GUARD):
                for shift, p, count in signs:
                    seen = 1 - _outcomes(self.trials, p, shift, _FIRST_BITS).hidden
                    shown *= Fraction(Enclosure.of(seen).upper) ** count
            worst = max(worst, 1 - shown)
        return worst


def _bound(found: Enclosure) -> Bound:
    return Bound.of(found, "product", _LATTICES)


def box_of(mechanism: Mechanism) -> BinomialBox:
    r"""The guarantee of a release with binomial noise whose coordinates may all move at once.

    >>> from dpcore.laws.binomial import Binomial
    >>> noise = Binomial(trials=268, probability="1/2")
    >>> box_of(Mechanism(noise=noise, sensitivity=Sensitivity.box((1, 2))))
    BinomialBox(trials=268, bounds=(1, 2), probability=Fraction(1, 2))
    """
    noise, moves = mechanism.noise, Sensitivity.of(mechanism.sensitivity)
    if not isinstance(noise, Binomial):
        raise InvalidParameter("mechanism", mechanism, "must have binomial noise")
    if moves.norm not in (Norm.ABSOLUTE, Norm.BOX):
        raise NotDerived(
            f"the worst move of {noise!r} under {moves!r}", "bound each coordinate: Sensitivity.box"
        )
    amount = moves.amount
    return BinomialBox(
        trials=noise.trials,
        probability=noise.probability,
        bounds=amount if isinstance(amount, tuple) else (amount,),
        scope=mechanism.scope,
    )


def _several(mechanism: Mechanism) -> BinomialBox | None:
    # One coordinate has a curve of its own, with everything that a curve gives.
    amount = Sensitivity.of(mechanism.sensitivity).amount
    return box_of(mechanism) if isinstance(amount, tuple) and len(amount) > 1 else None


serve(Binomial, _several)


@lru_cache(maxsize=16)
def _outcomes(trials: int, p: Fraction, shift: int, bits: int) -> Outcomes:
    return binomial_outcomes(trials, p, shift, bits)


@lru_cache(maxsize=16)
def _total(trials: int, signs: Signs, bits: int, grain: Fraction, *, upward: bool) -> Lattice:
    make = split if upward else merged
    return product(
        (make(_outcomes(trials, p, shift, bits), grain, bits), count) for shift, p, count in signs
    )
