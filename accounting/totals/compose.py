r"""Many releases: what a list of guarantees costs together.

Lists of exact curves and of claims (epsilon, delta) compose through their privacy losses, enclosed
from both sides; a claim in Renyi terms composes order by order and gives an upper bound. What holds
under adaptive choice: a fixed dominating pair for each round, at times that depend on released
outputs. Guarantees chosen from earlier outputs need a filter (``filter``, ``ledger``).
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from accounting.claims.bound import Bound
from accounting.claims.claim import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.errors import NotDerived
from accounting.laws.laplace import LaplacePair
from accounting.pairs.enclose import narrowed
from accounting.release.curve import PrivacyCurve
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.theorems.convert import as_rdp, as_zcdp, points_of
from accounting.theorems.orders import approx_from_renyi, delta_from_renyi
from accounting.totals.rounds import Laws, Source, Ways, ways
from accounting.totals.total import Total
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational

__all__ = ["Composition", "Part", "compose", "over_totals"]

Part: TypeAlias = Source | Assumed
"""One guarantee in a list."""

RELATIVE: Final = Fraction(1, 10**8)
"""The relative width that totals are computed to unless asked otherwise."""

_FAR: Final = Fraction(10**9)
_SOURCES: Final = (PrivacyCurve, Pure, ZCdp, Rdp, Approx, PoissonSampled, FixedSizeSampled)
_LOSSES: Final = "privacy losses add (Koskela, Jalko and Honkela 2020); a fixed pair each round"
_MAXIMA: Final = "connect the dots above every pair a round may have (Doroshenko et al. 2022)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    r"""``parts``: guarantees with their rounds, in one scope. Made by :func:`compose`.

    >>> from dpcore import DiscreteGaussian
    >>> gaussian = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    >>> total = compose((gaussian, 1000))
    >>> total.epsilon("1e-6").upper_float
    8.3062...
    """

    parts: tuple[tuple[Source, int], ...]
    scope: Scope
    assumptions: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        r"""How many releases there are."""
        return sum(count for _, count in self.parts)

    def epsilon(self, delta: RationalLike, relative: RationalLike = RELATIVE) -> Bound:
        r"""epsilon at ``delta`` in [0, 1], enclosed to about this relative width.

        Where a part is a claim in Renyi terms the bound is from above only.
        """
        most, width = _probability("delta", delta), _width(relative)
        if not self.in_pairs:
            return approx_from_renyi(self.renyi_upper, most)
        return self._over_totals(lambda total: total.epsilon(most, width))

    def delta(self, epsilon: RationalLike, relative: RationalLike = RELATIVE) -> Bound:
        r"""delta at ``epsilon`` >= 0, enclosed to about this relative width."""
        at, width = rational("epsilon", epsilon), _width(relative)
        if at < 0:
            raise InvalidParameter("epsilon", epsilon, "must be >= 0")
        if at > _FAR:
            # delta falls in epsilon, and is >= 0: what no float holds needs no formula.
            nearer = self.delta(_FAR, width)
            return replace(nearer, lower=None if nearer.lower is None else Fraction(0))
        if not self.in_pairs:
            return delta_from_renyi(self.renyi_upper, at)
        return self._over_totals(lambda total: total.delta(at, width))

    def renyi(self, order: RationalLike) -> Bound:
        r"""D_alpha of the whole list at alpha = ``order`` > 1: divergences of rounds add."""
        at = rational("order", order)
        if at <= 1:
            raise InvalidParameter("order", order, "must be > 1")
        found = [(renyi_of(source, at), rounds) for source, rounds in self.parts]
        return _summed(found, "Renyi", "Renyi divergences add (Mironov 2017, Proposition 1)")

    def zcdp(self) -> Bound:
        r"""rho of the whole list: the parameters of the rounds add.

        Parts that differ may reach their suprema at different orders: then from above only.
        """
        found = [(zcdp_of(source), rounds) for source, rounds in self.parts]
        total = _summed(found, "zCDP", "rhos add (Bun and Steinke 2016, Lemma 1.7)")
        return total if len(found) == 1 else replace(total, lower=None)

    def pure(self) -> Bound:
        r"""The largest total loss, infinite where it is: epsilon at delta = 0."""
        return self.epsilon(0)

    def to_json(self) -> list[dict[str, Any]]:
        r"""The parts and their rounds, as text."""
        return [{"part": source.to_json(), "rounds": rounds} for source, rounds in self.parts]

    # -- totals -------------------------------------------------------------------------------

    @property
    def in_pairs(self) -> bool:
        r"""Whether every part stands for pairs: no claim in Renyi terms is among them."""
        return not any(isinstance(source, (ZCdp, Rdp)) for source, _ in self.parts)

    def _over_totals(self, ask: Callable[[Total], Enclosure]) -> Bound:
        return over_totals([(ways(source), rounds) for source, rounds in self.parts], ask)

    # -- orders -------------------------------------------------------------------------------

    def renyi_upper(self, order: Fraction) -> End:
        r"""The upper end of D_alpha, infinite where no theorem gives one."""
        try:
            return self.renyi(order).upper
        except NotDerived:
            return math.inf


def over_totals(found: list[tuple[Ways, int]], ask: Callable[[Total], Enclosure]) -> Bound:
    r"""What ``ask`` finds of the worst total of so many rounds of each of these ways."""
    try:
        return _between(found, ask)
    except NotDerived:
        # Some law has too many outcomes to be listed: bounds of either side stand for it.
        in_bins = [(each.in_bins(), rounds) for each, rounds in found]
        if in_bins == found:
            raise
        return _between(in_bins, ask)


def _between(found: list[tuple[Ways, int]], ask: Callable[[Total], Enclosure]) -> Bound:
    above = _totals([(each, each.above, rounds) for each, rounds in found])
    upper = [ask(total) for total in above]
    method = " and ".join(sorted({total.method for total in above}))
    highest = max(e.upper for e in upper)
    if all(each.above == each.attained for each, _ in found):
        lower: End | None = max(e.lower for e in upper)
        return Bound(upper=highest, lower=lower, method=method, theorem=_LOSSES)
    lower = None
    if all(each.attained for each, _ in found):
        reached = _totals([(each, each.attained, rounds) for each, rounds in found])
        lower = max(ask(total).lower for total in reached)
    return Bound(upper=highest, lower=lower, method=method, theorem=_MAXIMA)


def compose(*parts: Part | Composition | tuple[Part | Composition, int]) -> Composition:
    r"""The list of ``parts``: a guarantee, or a pair (guarantee, rounds).

    >>> compose(Pure(1), (Pure("1/2"), 3)).pure().upper
    Fraction(5, 2)

    Raises :class:`InvalidParameter` for no parts, rounds below 1, anything that is no guarantee,
    and for parts of different scopes, which never compose.
    """
    listed: list[tuple[Source, int]] = []
    scopes: list[Scope] = []
    assumptions: list[str] = []
    for part in parts:
        for source, rounds, scope, reasons in _read(part):
            listed.append((source, rounds))
            scopes.append(scope)
            assumptions += reasons
    if not listed:
        raise InvalidParameter("parts", parts, "must hold at least one guarantee")
    for scope in scopes:
        if scope != scopes[0]:
            raise InvalidParameter(
                "scope", scope, f"must be {scopes[0]!r}, as before: scopes never compose"
            )
    counts: dict[Source, int] = {}
    for source, rounds in listed:
        counts[source] = counts.get(source, 0) + rounds
    return Composition(
        parts=tuple(counts.items()), scope=scopes[0], assumptions=tuple(dict.fromkeys(assumptions))
    )


def renyi_of(source: Source, order: Fraction) -> Bound:
    r"""D_alpha of one round at one order."""
    match source:
        case ZCdp(rho=rho):
            return _only_upper(order * Fraction(rho), "zCDP", "rho alpha bounds D_alpha")
        case Rdp():
            return _only_upper(points_of(as_rdp(source, [order]))[0][1], "Renyi", "as claimed")
        case Pure(epsilon=epsilon) if epsilon == 0:
            return Bound.of(Enclosure.exactly(0), "exact", "nothing is lost")
        case Pure(epsilon=epsilon):
            pair = LaplacePair(scale=1 / Fraction(epsilon), shift=1)
            found = narrowed(lambda: pair.renyi(order), 64)
            return Bound.of(found, "exact", "randomised response dominates")
        case Approx():
            raise NotDerived(
                "a Renyi divergence from (epsilon, delta) with delta > 0", "no theorem gives one"
            )
    return Bound.of(source.renyi(order), "exact", "the curve of the noise")


def zcdp_of(source: Source) -> Bound:
    r"""The zCDP parameter of one round."""
    match source:
        case PrivacyCurve():
            return Bound.of(source.zcdp(), "exact", "the curve of the noise")
        case Pure() | ZCdp():
            return _only_upper(Fraction(as_zcdp(source).rho), "zCDP", "Bun and Steinke 2016")
    raise NotDerived(f"the zCDP parameter of {source!r}", "no theorem gives one")


def _only_upper(value: Fraction, method: str, theorem: str) -> Bound:
    return Bound(upper=value, method=method, theorem=theorem)


def _summed(found: Iterable[tuple[Bound, int]], method: str, theorem: str) -> Bound:
    upper: End = Fraction(0)
    lower: End | None = Fraction(0)
    for bound, rounds in found:
        upper += rounds * bound.upper
        lower = None if lower is None or bound.lower is None else lower + rounds * bound.lower
    return Bound(upper=upper, lower=lower, method=method, theorem=theorem)


def _totals(listed: list[tuple[Ways, tuple[Laws, ...], int]]) -> list[Total]:
    # Direction by direction; a part with one way has it in every direction.
    totals = []
    for at in range(max(len(choices) for _, choices, _ in listed)):
        laws = (
            (law, count * rounds)
            for _, choices, rounds in listed
            for law, count in choices[min(at, len(choices) - 1)]
        )
        lost = ((each.lost, rounds) for each, _, rounds in listed if each.lost)
        totals.append(Total.of(laws, lost))
    return totals


def _read(part: Any) -> Iterable[tuple[Source, int, Scope, tuple[str, ...]]]:
    rounds: int = 1
    if isinstance(part, tuple) and len(part) == 2:
        part, rounds = part[0], integer("rounds", part[1], at_least=1)
    match part:
        case Composition():
            # The scope is that of the whole: a user's rounds are contributions by themselves.
            return [(one, rounds * k, part.scope, part.assumptions) for one, k in part.parts]
        case Assumed(guarantee=claim, reason=reason):
            return [(claim, rounds, claim.scope, (f"{claim!r}: {reason}",))]
        case Pure() | ZCdp() | Rdp() | Approx():
            return [(part, rounds, part.scope, (f"{part!r}: taken as it is stated",))]
        case _ if isinstance(part, _SOURCES):
            return [(part, rounds, part.scope, ())]
    raise InvalidParameter("parts", part, "must be a guarantee, or a guarantee and its rounds")


def _probability(argument: str, value: RationalLike) -> Fraction:
    exact = rational(argument, value)
    if not 0 <= exact <= 1:
        raise InvalidParameter(argument, value, "must lie in [0, 1]: it is a probability")
    return exact


def _width(relative: RationalLike) -> Fraction:
    width = positive_rational("relative", relative, "no enclosure has width 0 unless it is exact")
    if width >= 1:
        raise InvalidParameter("relative", relative, "must be below 1")
    return width
