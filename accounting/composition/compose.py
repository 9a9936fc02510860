r"""Compose guarantees: the total privacy loss of many releases.

Exact curves and (epsilon, delta) claims compose through their privacy losses, whose sum is enclosed
from both sides. If one of the guarantees is a zCDP or Renyi claim, Renyi divergences are added at
each order, which gives only an upper bound. The guarantees must be fixed in advance, but the times
of the releases may depend on earlier outputs. If the guarantees themselves depend on earlier
outputs, use a filter (:mod:`accounting.privacy_filters`) or a ledger. Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

from accounting.amplification.subsampling import DescribedSample
from accounting.derive_guarantee import Derivable, guarantee
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import (
    Guarantee,
    check_width,
    order_above_one,
    probability,
    width,
)
from accounting.guarantees.renyi_and_zcdp_to_epsilon import (
    approx_from_renyi,
    delta_from_renyi,
    randomised_response_renyi,
)
from accounting.guarantees.stated_guarantees import (
    Approx,
    Assumed,
    BoundedRange,
    Pure,
    PureBound,
    Rdp,
    ZCdp,
)
from accounting.law_pairs.registry import pair_of
from accounting.pairs.enclose_curve import BEYOND_FLOATS
from accounting.pairs.finite import BoundedRangePair
from accounting.privacy_curves.dominating_pairs import (
    ComposedLoss,
    DominatingPairs,
    Laws,
    over_totals,
)
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.release_curve import ByOrder, OneRelease, PrivacyCurve
from dpcore.cli.terminal import html_table
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import RationalLike, at_least_zero, integer

RELATIVE: Final = Fraction(1, 10**6)
"""The default relative width of totals."""

Source: TypeAlias = Guarantee | Derivable
"""A guarantee, or an object from which one is derived."""

_Part: TypeAlias = tuple[Guarantee, int, Scope, tuple[str, ...]]

_FAR: Final = Fraction(10**9)
_NO_LESS: Final = "bounded below by a single round"
_NO_MORE: Final = "above by the unsampled cost"
_EACH: Final = Fraction(4, 5)
"""The share of the requested width for each discretisation, from above and from below.

For delta it is half of this share.
"""

_ALLOCATED: Final = Fraction(22, 10**5)
_NARROWEST: Final = Fraction(1, 10**4)
"""The usual and the least relative width of totals that contain allocated epochs."""

_ROUGH: Final = Fraction(1, 100)
"""A relative width of delta that usually shows which direction is the worst, in little time."""

_SIZE: Final = "the losses of this noise are outside the range of floats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition(Guarantee):
    r"""The guarantee of all releases together, made by :func:`compose`.

    ``parts`` lists the different guarantees, each with its number of rounds.

    >>> from accounting import PrivacyCurve
    >>> from dpcore import DiscreteGaussian
    >>> gaussian = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    >>> total = compose((gaussian, 1000))
    >>> total.epsilon("1e-6").upper_float
    8.3062...
    """

    parts: tuple[tuple[Guarantee, int], ...]
    scope: Scope
    assumptions: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return sum(count for _, count in self.parts)

    @property
    def text(self) -> str:
        r"""The guarantees in the syntax of the commands, each preceded by its number of rounds."""
        return " + ".join(f"{count} x {part.text}" for part, count in self.parts)

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The epsilon at ``delta`` in [0, 1], to a relative width of about 1e-6 by default.

        Only an upper bound is given if :attr:`in_pairs` is false, as for a zCDP or Renyi claim.
        """
        most, near = probability("delta", delta), width(relative, RELATIVE)
        if self._alone is not None:
            return self._alone.epsilon(most, relative)
        return self._of_total(
            lambda part: part.epsilon(most, near),
            lambda total, near: total.epsilon(most, near * _EACH),
            lambda: approx_from_renyi(self.renyi_upper, most),
            near,
        )

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The delta at ``epsilon`` >= 0, to a relative width of about 1e-6 by default."""
        at, near = at_least_zero("epsilon", epsilon), width(relative, RELATIVE)
        if at > _FAR:
            # delta decreases in epsilon and is >= 0, so the bounds at _FAR hold here too.
            nearer = self.delta(_FAR, near)
            return replace(nearer, lower=None if nearer.lower is None else Fraction(0))
        if self._alone is not None:
            return self._alone.delta(at, relative)
        return self._of_total(
            lambda part: part.delta(at, near),
            lambda total, near: total.delta(at, near * _EACH / 2),
            lambda: delta_from_renyi(self.renyi_upper, at),
            near,
        )

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The Renyi divergence at ``order`` > 1: the sum of the divergences of all rounds."""
        at = order_above_one(order)
        found = [(renyi_of(source, at, relative), rounds) for source, rounds in self.parts]
        theorem = "Renyi divergences add (Mironov 2017, Proposition 1)"
        return self._with_assumptions(_summed(found, "Renyi", theorem))

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""The zCDP parameter of the composition: the sum of the parameters of all rounds.

        If the rounds differ, only an upper bound is given, because their suprema over the orders
        may be at different orders.
        """
        found = [(source.zcdp(relative), rounds) for source, rounds in self.parts]
        total = self._with_assumptions(
            _summed(found, "zCDP", "rhos add (Bun and Steinke 2016, Lemma 1.7)")
        )
        return total if len(found) == 1 else replace(total, lower=None)

    def to_json(self) -> list[dict[str, Any]] | dict[str, Any]:
        r"""Guarantees and rounds as a JSON list, or :meth:`record` if a list loses information."""
        found = self.record()
        parts: list[dict[str, Any]] = found["parts"]
        alone = all(source.scope == self.scope for source, _ in self.parts)
        return parts if alone and compose(*self.parts) == self else found

    def record(self) -> dict[str, Any]:
        r"""The composition as JSON: its guarantees and rounds, its scope, and its assumptions."""
        parts = [{"part": source.to_json(), "rounds": rounds} for source, rounds in self.parts]
        found = {"claim": "composition", "parts": parts, "scope": self.scope.to_json()}
        return {**found, "reason": "; ".join(self.assumptions)} if self.assumptions else found

    def _repr_html_(self) -> str:
        rows = [(f"{rounds} x", source) for source, rounds in self.parts]
        assumed = [("assumes", each) for each in self.assumptions]
        return html_table(f"Composition of {self.rounds} releases", [*rows, *assumed])

    @property
    def _alone(self) -> OneRelease | BoundedRange | None:
        # The guarantee of a single round of real-valued noise, of an asymmetric law in several
        # coordinates, of shuffled reports or of a selection: its bounds are tighter than those of
        # the composed loss.
        source, rounds = self.parts[0]
        if len(self.parts) > 1 or rounds > 1:
            return None
        if isinstance(source, BoundedRange):
            return source if source.choices == 1 else None
        if isinstance(source, PrivacyCurve) and not source.noise.symmetric:
            return source if isinstance(Sensitivity.of(source.sensitivity).amount, tuple) else None
        return source if isinstance(source, OneRelease) and source.assumptions else None

    def _with_assumptions(self, found: Bound) -> Bound:
        return replace(found, assumptions=self.assumptions)

    # -- totals -------------------------------------------------------------------------------

    @property
    def in_pairs(self) -> bool:
        r"""Whether every composed guarantee has dominating pairs, unlike zCDP and Renyi claims."""
        return all(
            source.listed if isinstance(source, ByOrder) else not isinstance(source, (ZCdp, Rdp))
            for source, _ in self.parts
        )

    def _of_total(
        self,
        ask: Callable[[Guarantee], Bound],
        of_losses: Callable[[ComposedLoss, Fraction], Enclosure],
        by_orders: Callable[[], Bound],
        relative: Fraction,
    ) -> Bound:
        # A bound on one quantity: ``ask`` gets it from a guarantee, ``of_losses`` from the composed
        # loss, and ``by_orders`` from Renyi divergences.
        if not self.in_pairs:
            return self._informed(by_orders(), ask)
        orders = any(isinstance(source, ByOrder) for source, _ in self.parts)
        usual = _ALLOCATED if relative == RELATIVE else max(relative, _NARROWEST)
        near = usual if orders else relative
        try:
            rounds = [(dominating_pairs(source), count) for source, count in self.parts]
            # Allocated epochs need as many atoms for a rough bound as for a fine one.
            found = over_totals(rounds, of_losses, near, rough=Fraction(0) if orders else _ROUGH)
        except (OverflowError, ZeroDivisionError, PrecisionExhausted) as error:
            pure = self._sum_of_pure()
            if pure < math.inf:
                added = PureBound(Fraction(pure), scope=self.scope)
                found = replace(ask(added), theorem=f"{_SIZE}; the epsilons of pure rounds add")
            elif self._samples:
                # `_informed` adds the bounds that need no total.
                found = Bound(upper=math.inf, lower=Fraction(0), method="contour", theorem=_SIZE)
            elif isinstance(error, PrecisionExhausted):
                raise
            else:
                raise PrecisionExhausted(BEYOND_FLOATS) from error
        both = orders or any(isinstance(source, BoundedRange) for source, _ in self.parts)
        return self._informed(narrower(by_orders(), found) if both else found, ask)

    def _sum_of_pure(self) -> End:
        try:
            return sum((part.pure().upper * count for part, count in self.parts), Fraction(0))
        except (NotDerived, PrecisionExhausted):
            return math.inf

    @property
    def _samples(self) -> list[DescribedSample]:
        # The sampled releases with real-valued noise, and shuffled reports.
        return [s for s, _ in self.parts if isinstance(s, DescribedSample) and s.assumptions]

    def _informed(self, found: Bound, ask: Callable[[Guarantee], Bound]) -> Bound:
        # Fallback where the numerical bounds are wide: the cost without sampling is an upper bound,
        # the cost of one round a lower bound.
        found = self._with_assumptions(found)
        lower, chosen = found.lower, self._samples
        known = [s for s, _ in self.parts if lower is not None and isinstance(s, OneRelease)]
        releases = chosen or known
        if not releases or (lower is not None and 2 * lower >= found.upper):
            return found
        lows = (lower, *(ask(s).lower for s in releases))
        lower, upper = max((low for low in lows if low is not None), default=None), found.upper
        how = _NO_LESS
        if chosen:
            how = f"{_NO_LESS}, {_NO_MORE}"
            whole = compose(*((s.unsampled if s in chosen else s, k) for s, k in self.parts))
            upper = min(upper, ask(whole).upper)
        if (lower, upper) == (found.lower, found.upper):
            return found
        return replace(found, lower=lower, upper=upper, theorem=f"{found.theorem}; {how}")

    # -- orders -------------------------------------------------------------------------------

    def renyi_upper(self, order: Fraction) -> End:
        r"""An upper bound on D_alpha, alpha = ``order``; infinite if no theorem applies."""
        try:
            return self.renyi(order).upper
        except NotDerived:
            return math.inf


def narrower(one: Bound, other: Bound) -> Bound:
    r"""The intersection of two bounds on the same number."""
    lows = [end for end in (one.lower, other.lower) if end is not None]
    better = one if one.upper < other.upper else other
    return replace(better, upper=min(one.upper, other.upper), lower=max(lows, default=None))


@lru_cache(maxsize=256)
def dominating_pairs(source: Guarantee) -> DominatingPairs:
    r"""The dominating pairs of one round with the guarantee ``source``.

    >>> found, pair = dominating_pairs(Pure("1/10")), pair_of(DiscreteLaplace(scale=10), 1)
    >>> found.above == found.attained == (((pair, 1),),)
    True

    Raises :class:`NotDerived` for a zCDP or Renyi claim, which no single pair dominates.
    """
    match source:
        case OneRelease():
            return source.dominating_pairs()
        case BoundedRange(stated_epsilon=epsilon, choices=count):
            each = BoundedRangePair(length=Fraction(epsilon) / count)
            return DominatingPairs(above=(((each, count),) if epsilon else (),), attained=())
        case Pure(stated_epsilon=epsilon):
            exact = DominatingPairs.exactly(_response(Fraction(epsilon)))
            return exact if source.attained else replace(exact, attained=(), aligned=False)
        case Approx(stated_epsilon=epsilon, stated_delta=delta):
            laws = (_response(Fraction(epsilon)),)
            attained = laws if source.attained else ()
            return DominatingPairs(above=laws, attained=attained, lost=Fraction(delta))
    raise NotDerived(
        f"a single dominating pair for {source!r}",
        "a claim in Renyi terms composes order by order: use renyi(order) or epsilon(delta)",
    )


def _response(epsilon: Fraction) -> Laws:
    # Randomised response has the curve of the claim: the discrete Laplace law under a shift of 1.
    return ((pair_of(DiscreteLaplace(scale=1 / epsilon), 1), 1),) if epsilon else ()


def compose(*parts: Source | tuple[Source, int]) -> Composition:
    r"""Compose guarantees: each of ``parts`` is a guarantee, or a pair (guarantee, rounds).

    A mechanism, a local report or the description of a release (:mod:`accounting.descriptions`) is
    replaced by the guarantee that :func:`accounting.derive_guarantee.guarantee` derives from it.

    >>> compose(Pure(1), (Pure("1/2"), 3)).pure()
    Bound([2.5, 2.5], 'contour')
    >>> from dpcore import DiscreteLaplace, Mechanism
    >>> compose((Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1), 5)).pure()
    Bound([0.5, 0.5], 'contour')

    Raises :class:`InvalidParameter` if ``parts`` is empty, if a number of rounds is below 1, if an
    element of ``parts`` is none of these objects, or if their scopes differ. Raises
    :class:`NotDerived` if a guarantee cannot be composed.
    """
    read = [each for part in parts for each in _read(part)]
    if not read:
        raise InvalidParameter("parts", parts, "must contain at least one guarantee")
    first = read[0][2]
    for _, _, scope, _ in read:
        if scope != first:
            must = f"must be {first!r}, as for the other parts: different scopes do not compose"
            raise InvalidParameter("scope", scope, must)
    return _together(read, first)


def for_a_user(parts: Iterable[tuple[Guarantee, int]], scope: Scope) -> Composition:
    r"""Compose the guarantees of single rows to a guarantee for the user who owns all of them.

    The result has the scope ``scope``. Raises :class:`InvalidParameter` unless all parts have the
    relation of this scope.
    """
    read = [each for part in parts for each in _read(part)]
    for _, _, own, _ in read:
        if own.relation is not scope.relation:
            raise InvalidParameter(
                "scope", scope, f"must have the relation {own.relation.value}, as for the parts"
            )
    return _together(read, scope)


def _together(read: Iterable[_Part], scope: Scope) -> Composition:
    parts: dict[Guarantee, tuple[Guarantee, int]] = {}
    assumptions: dict[str, None] = {}
    for source, rounds, _, reasons in read:
        first, count = parts.get(source, (source, 0))
        if isinstance(first, ReportCurve) and first.text != source.text:
            first = replace(first, report="")  # two mechanisms with one curve have no common name
        parts[source] = (first, count + rounds)
        assumptions |= dict.fromkeys(reasons)
    return Composition(parts=tuple(parts.values()), scope=scope, assumptions=tuple(assumptions))


def renyi_of(source: Guarantee, order: Fraction, relative: RationalLike | None = None) -> Bound:
    r"""The Renyi divergence of one round of a composition, alpha = ``order``.

    A Pure claim gives the exact divergence of randomised response, its worst case.
    """
    if not isinstance(source, Pure) or isinstance(source, BoundedRange):
        return source.renyi(order, relative)
    check_width(relative)
    found = randomised_response_renyi(source.stated_epsilon, order)
    bound = Bound.of(found, "exact", "randomised response dominates")
    return bound if source.attained else replace(bound, lower=None)


def _summed(found: Iterable[tuple[Bound, int]], method: str, theorem: str) -> Bound:
    upper: End = Fraction(0)
    lower: End | None = Fraction(0)
    for bound, rounds in found:
        upper += rounds * bound.upper
        lower = None if lower is None or bound.lower is None else lower + rounds * bound.lower
    return Bound(upper=upper, lower=lower, method=method, theorem=theorem)


def _read(part: Any) -> Iterable[_Part]:
    rounds: int = 1
    if isinstance(part, tuple) and len(part) == 2:
        part, rounds = part[0], integer("rounds", part[1], at_least=1)
    match part:
        case Composition():
            # The scope is that of the whole: in a user's composition, the parts have the unit
            # contribution.
            return [(one, rounds * k, part.scope, part.assumptions) for one, k in part.parts]
        case Assumed(guarantee=claim, reason=reason):
            return [(claim, rounds, claim.scope, (f"{claim!r}: {reason}",))]
        case Pure() | ZCdp() | Rdp() | Approx():
            return [(part, rounds, part.scope, (f"{part.text}: taken as stated",))]
        case OneRelease():
            return [(part, rounds, part.scope, part.assumptions)]
        case _ if isinstance(part, Derivable):
            return _read((guarantee(part), rounds))
        case Guarantee():
            raise NotDerived(f"a composition of {part!r}", "compose the guarantees of its releases")
    raise InvalidParameter(
        "parts", part, "must be a guarantee or a mechanism, or a pair such as (guarantee, 1000)"
    )
