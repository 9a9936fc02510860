r"""Poisson batches truncated to a maximum size: the increase of delta due to truncation.

A trainer whose batches have a fixed shape samples each example with the same probability, and drops
examples at random if more than B were sampled. If no round is truncated, the run equals a run
without truncation. So delta increases by at most eta (1 + e^epsilon), where eta is the probability
that any round is truncated: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha and Zhang (2024),
"Scalable DP-SGD: Shuffling vs. Poisson Subsampling". Proofs: docs/proofs/subsampling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from flint import arb

from accounting.composition.compose import Composition
from accounting.descriptions.sampling_schemes import Everyone, Poisson
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee, probability, width
from accounting.pairs.enclose_curve import within
from accounting.privacy_curves.release_curve import described
from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Scope
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import RationalLike, at_least_zero, make_integers

_BITS: Final = 192
_TRIES: Final = 12
_NEAR: Final = Fraction(1, 10**6)
_THEOREM: Final = (
    "adds at most eta (1 + e^epsilon) to delta, where eta is the probability that any batch is "
    "truncated"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(Guarantee):
    r"""The guarantee of Poisson batches that are truncated to at most ``most`` examples.

    ``total`` is the composition without truncation, which must consist of Poisson samples. The
    choice of dropped examples may depend on anything but the released values. ``examples`` is the
    size of the larger of the neighbouring datasets.

    >>> from accounting.descriptions.real_noise import Gaussian
    >>> from accounting import PoissonSampled
    >>> from accounting.privacy_curves.real_noise_curve import RealCurve
    >>> from accounting.composition.compose import compose
    >>> curve = RealCurve(
    ...     noise=Gaussian(sigma=1), sensitivity=1, scope=Scope(relation="add-remove")
    ... )
    >>> total = compose((PoissonSampled(curve=curve, rate="1/100"), 100))
    >>> cut = Truncated(total=total, examples=10_000, most=180)
    >>> more = cut.delta(1, "1/10").upper - total.delta(1, "1/10").upper
    >>> cut.cut_at_all.upper_float, float(more)
    (1.6...e-11, 6.0...e-11)

    Raises :class:`InvalidParameter` if ``total`` has a part that is not a Poisson sample, or if
    ``most`` or ``examples`` is not an integer >= 1.
    """

    total: Composition
    examples: int
    most: int

    def __post_init__(self) -> None:
        if not isinstance(self.total, Composition):
            raise InvalidParameter("total", self.total, "must be a Composition")
        for source, _ in self.total.parts:
            if _rate(source) is None:
                raise InvalidParameter(
                    "total",
                    source,
                    "must be a Poisson sample, like every part of a truncated composition",
                )
        make_integers(self, "examples", "most")

    @property
    def scope(self) -> Scope:
        return self.total.scope

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.total.assumptions

    @property
    def cut_at_all(self) -> Enclosure:
        r"""The probability eta that at least one batch is truncated, for the larger dataset."""
        kept = arb(0)
        with precision(_BITS):
            for source, rounds in self.total.parts:
                once = self._cut_once(source)
                if once.upper >= 1:
                    return Enclosure(once.lower, 1)
                low, high = ((-ball(Fraction(end))).log1p() for end in (once.lower, once.upper))
                kept += rounds * low.union(high)
            return within(Enclosure.of(-kept.expm1()), Fraction(0), Fraction(1))

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The delta at ``epsilon``, within eta (1 + e^epsilon) of that without truncation."""
        at = at_least_zero("epsilon", epsilon)
        found = self.total.delta(at, relative)
        more = self._more(at)
        lower = None if found.lower is None else max(found.lower - more, Fraction(0))
        return self._with_assumptions(found, min(found.upper + more, Fraction(1)), lower)

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The epsilon at ``delta``, infinite if truncation alone may exceed this delta."""
        most = probability("delta", delta)
        found = self.total.epsilon(most, relative)
        upper = self._least(most, found, relative)
        if upper == math.inf:
            return self._with_assumptions(found, upper, None)
        spent = most + self._more(Fraction(upper))
        lower = self.total.epsilon(min(spent, Fraction(1)), relative).lower
        return self._with_assumptions(found, upper, lower)

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": "truncated-batches",
            "examples": self.examples,
            "most": self.most,
            "total": self.total.to_json(),
        }

    def _cut_once(self, source: Guarantee) -> Enclosure:
        # P(Bin(N, q) > B).
        if self.most >= self.examples:
            return Enclosure.exactly(0)
        rate = _rate(source)
        if rate is None or rate == 1:
            return Enclosure.exactly(1)
        return Binomial(trials=self.examples, probability=rate).enclose_sf(self.most)

    def _more(self, epsilon: Fraction) -> Fraction:
        # eta (1 + e^epsilon), rounded up; at most 1.
        with precision(_BITS):
            found = ball(Fraction(self.cut_at_all.upper)) * (1 + ball(epsilon).exp())
            return Fraction(min(Enclosure.of(found).upper, 1))

    def _least(
        self, delta: Fraction, found: Bound, relative: RationalLike | None
    ) -> Fraction | float:
        # An epsilon E with total.epsilon(delta - eta (1 + e^E)) <= E: such an E is an upper bound.
        # E increases in steps of growing length until the inequality holds.
        at, longer = found.upper, width(relative, _NEAR)
        for _ in range(_TRIES):
            if not isinstance(at, Fraction) or (share := delta - self._more(at)) <= 0:
                return math.inf
            needed = self.total.epsilon(share, relative).upper
            if needed <= at:
                return at
            if not isinstance(needed, Fraction):
                return math.inf
            at, longer = needed * (1 + longer), 8 * longer
        return math.inf

    def _with_assumptions(self, found: Bound, upper: Any, lower: Any) -> Bound:
        theorem = f"{found.theorem}; {_THEOREM}"
        return replace(found, upper=upper, lower=lower, theorem=theorem)


def _rate(source: Guarantee) -> Fraction | None:
    # The rate of a Poisson sample, 1 without sampling, or None for other schemes and for claims.
    description = described(source)
    match description and description.scheme:
        case Poisson(rate=rate):
            return Fraction(rate)
        case Everyone():
            return Fraction(1)
    return None
