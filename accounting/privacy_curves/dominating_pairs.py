r"""The dominating pairs of one round of a guarantee, and the total loss of a composition.

If one pair of output laws is the worst case of a guarantee, k rounds compose exactly: the pair is
repeated k times. Otherwise several pairs may be the worst, such as both directions of an asymmetric
noise law, or several shifts of an l2 sensitivity. The worst pair may then differ between rounds and
depend on earlier outputs. So the total loss is bounded from above by one pair that dominates all of
them (:mod:`accounting.privacy_curves.connect_the_dots`), and from below by repeating one of them.
Under subsampling the datasets determine the direction, so it is the same in every round.

The total loss is a sum of independent losses L_i with k_i copies each (:class:`ComposedLoss`). It
is computed from

- the loss of the pair, for one release;
- the law of the summed noise, if all noise is Gaussian, discrete or not, with one shift;
- an enumeration of the outcomes, if there are few;
- otherwise a contour integral of discretised losses
  (:mod:`accounting.pld_composition.delta_of_total_loss`).

An (epsilon, delta) claim has an infinite loss with probability delta (``lost``). Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from typing import Final, TypeAlias, TypeVar

from flint import arb

from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.law_pairs.discrete_gaussian import NEARLY_REAL, GaussianPair, GaussianSumPair
from accounting.law_pairs.discrete_laplace import LaplacePair
from accounting.law_pairs.registry import Shift, directions, pair_of, shifts_of, signed
from accounting.law_pairs.skellam_and_polya import RevealingPair
from accounting.pairs.enclose_curve import (
    MOST_BITS,
    better,
    narrowed,
)
from accounting.pairs.pair import ClosedPair, Pair, largest_known
from accounting.pld.discretise_round import LossTable, Tables
from accounting.pld.integer_cells import table_of
from accounting.pld.noise_density import NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.pld_composition.delta_of_total_loss import ContourIntegral
from accounting.pld_composition.enumerate_outcomes import MANY_OUTCOMES, MOST_OUTCOMES, Enumeration
from accounting.pld_composition.factor import LossPart
from accounting.pld_composition.few_large_losses import FewLargeLosses
from accounting.pld_composition.gaussian_factor import LEAST_VARIANCE, GaussianPart
from accounting.privacy_curves.connect_the_dots import dominating, revealing_or_nothing
from accounting.privacy_curves.real_gaussian_closed_form import NormalLoss
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow, precision

_HIDDEN_BITS: Final = 128
_MOST_EXACT: Final = 1 << 20
_FEWEST_BITS: Final = 64
_WIDE: Final = 4  # outcomes are enumerated if an integral is wider than requested by this factor

_MUCH: Final = 30  # only widths larger than the requested one by at least this factor are tried
_ROUGHER: Final = tuple(Fraction(1, each) for each in (2, 100, 10**4, 10**6, 10**8, 10**10))

_FEW_ROUNDS: Final = 16
_MOST_MERGED: Final = 4096  # rounds
_ROUGH: Final = Fraction(1, 10**4)
_NARROW: Final = 10**4
_UNSEEN: Final = 1e-30  # outcomes of less mass are not enumerated

_Counted = TypeVar("_Counted")

_Engine: TypeAlias = "Enumeration | ContourIntegral | FewLargeLosses"

Law: TypeAlias = Pair | NormalLoss | LossPart
"""An independent part of a round: a pair of laws, or a loss that bounds it from one side."""

_MOST_SIGNS: Final = 16
_ROOT: Final = 1e-9
_LOSSES: Final = "the privacy losses of all rounds are added (Koskela, Jalko and Honkela 2020)"
_MAXIMA: Final = "one pair that dominates every possible pair (Doroshenko et al. 2022)"

Laws: TypeAlias = tuple[tuple[Law, int], ...]
"""The independent laws of one round, with their counts."""


def loss_of(law: Law, *, above: bool, closed: bool = False) -> LossPart:
    r"""The privacy loss of a pair of laws, in the form that a contour integral needs.

    It is exact if ``closed`` and a closed form exists. Otherwise it is discretised, from above if
    ``above`` is true, else from below.
    """
    table: LossTable
    match law:
        case GaussianPair(noise=noise) if closed and float(noise.sigma_squared) >= LEAST_VARIANCE:
            return GaussianPart(variance=noise.sigma_squared, shift=law.shift)
        case NormalLoss():
            table = RealPair.sampled(NormalDensity(1 / law.variance), Fraction(1))
        case RevealingPair():
            table = revealing_or_nothing(law, above=above)
        case Pair():
            table = table_of(law)
        case _:
            return law
    return TabledLoss.of(table, above=above)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedLoss:
    r"""The total privacy loss of independent rounds.

    ``parts`` lists the pairs (pair of output laws, number of rounds). ``lost`` lists the pairs
    (delta, number of rounds) of all (epsilon, delta) claims, whose loss is infinite with
    probability delta. If losses must be discretised, the total is bounded from above if ``above``
    is true, otherwise from below.

    >>> from accounting.law_pairs.discrete_laplace import LaplacePair
    >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
    >>> part = LaplacePair(noise=DiscreteLaplace(scale=20), shift=1)
    >>> ComposedLoss(parts=((part, 100),)).epsilon(Fraction(1, 10**6))
    Enclosure([2.20753270..., 2.20753270...])
    """

    parts: tuple[tuple[Law, int], ...]
    lost: tuple[tuple[Fraction, int], ...] = ()
    above: bool = True

    @classmethod
    def of(
        cls,
        parts: Iterable[tuple[Law, int]],
        lost: Iterable[tuple[Fraction, int]] = (),
        *,
        above: bool = True,
    ) -> ComposedLoss:
        r"""The total loss of these rounds, where equal laws are merged and their counts added."""
        return cls(parts=_merged(parts), lost=_merged(lost), above=above)

    @property
    def exact(self) -> bool:
        r"""Whether the bounds are computed without discretising the privacy loss."""
        engine = self._engine()
        if not isinstance(engine, ContourIntegral):
            return True
        return all(part.above is None for part, _ in engine.parts)

    @property
    def method(self) -> str:
        r"""The method of computation: "contour" for a contour integral, otherwise "direct"."""
        return "contour" if isinstance(self._engine(), ContourIntegral) else "direct"

    def delta(self, epsilon: Fraction, relative: Fraction = Fraction(1, 10**8)) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0, to a relative width of about ``relative``."""
        found = self._delta_of_finite(epsilon, relative)
        if not self.lost:
            return found
        # h + (1 - h) delta', which increases in both.
        hidden = narrow(self._hidden, _HIDDEN_BITS) if self._known() else Enclosure.exactly(1)
        low, high = (
            share + (1 - share) * end
            for share, end in ((hidden.lower, found.lower), (hidden.upper, found.upper))
        )
        return Enclosure(low, min(high, 1))

    def epsilon(self, delta: Fraction, relative: Fraction = Fraction(1, 10**8)) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1], to a relative width of about ``relative``."""
        if delta >= 1:
            return Enclosure.exactly(0)
        if not self.lost:
            return self._epsilon_of_finite(delta, relative)
        share = self._share(delta) if self._known() else Enclosure.exactly(-1)
        if share.upper < 0:
            return Enclosure.infinite()
        # epsilon decreases in the remaining share of delta.
        low = self._epsilon_of_finite(Fraction(share.upper), relative).lower
        if share.lower < 0:
            return Enclosure(low, math.inf)
        return Enclosure(low, self._epsilon_of_finite(Fraction(share.lower), relative).upper)

    def _delta_of_finite(self, epsilon: Fraction, relative: Fraction) -> Enclosure:
        if epsilon >= self.largest().upper:
            return Enclosure.exactly(0)
        match self._engine():
            case None:
                return Enclosure.exactly(0)
            case ContourIntegral() as line:
                return self._composed(
                    lambda each, width: each.delta(epsilon, width),
                    line,
                    relative,
                    lambda best: (float(epsilon), float(best.upper)),
                )
            case NormalLoss() as normal:
                return normal.delta(epsilon, _bits(relative))
            case pair:
                try:
                    return pair.enclose_delta(epsilon, _bits(relative))
                except NotDerived:
                    # The pair does not determine losses this far in the tail, so a listing bounds
                    # delta, on one side only.
                    found = self._line().delta(epsilon, relative)
                    if self.above:
                        return Enclosure(Fraction(0), found.upper)
                    return Enclosure(found.lower, Fraction(1))

    def _epsilon_of_finite(self, delta: Fraction, relative: Fraction) -> Enclosure:
        if delta == 0:
            return self.largest()
        match self._engine():
            case None:
                return Enclosure.exactly(0)
            case ContourIntegral() as line:
                found = self._composed(
                    lambda each, width: each.epsilon(delta, width),
                    line,
                    relative,
                    lambda best: (float(best.upper), float(delta)),
                )
                largest, low = self.largest().upper, found.lower
                if not self.above:
                    low = max(low, self._from_top(delta))
                return Enclosure(min(low, largest), min(max(low, found.upper), largest))
            case NormalLoss() as normal:
                return normal.epsilon(delta, _bits(relative))
            case pair:
                found = pair.enclose_epsilon(delta, _bits(relative))
                return Enclosure(found.lower, min(found.upper, self.largest().upper))

    def _from_top(self, delta: Fraction) -> End:
        # A lower bound for any number of rounds and any size of losses: all rounds have their
        # largest losses, in total M, with probability q, so epsilon >= M + log(1 - delta/q).
        laws = [(law, k) for law, k in self.parts if isinstance(law, LaplacePair)]
        if len(laws) < len(self.parts):
            return Fraction(0)
        largest = sum(k * law.shift / law.noise.scale for law, k in laws)
        with precision(_HIDDEN_BITS):
            log_q = -sum((k * ball(-1 / law.noise.scale).exp().log1p() for law, k in laws), arb(0))
            kept = 1 - ball(delta) * (-log_q).exp()
            return Enclosure.of(ball(largest) + kept.log()).lower if kept > 0 else Fraction(0)

    def _composed(
        self,
        ask: Callable[[_Engine, Fraction], Enclosure | None],
        line: ContourIntegral,
        relative: Fraction,
        point: Callable[[Enclosure], tuple[float, float]],
    ) -> Enclosure:
        # Few outcomes are enumerated immediately, more of them if the integral is too wide. Merged
        # outcomes show where rounds with rare large losses are to be divided. Slow engines are
        # tried only if the bounds are rough.
        few, many = (Enumeration(parts=line.parts, most=k) for k in (MOST_OUTCOMES, MANY_OUTCOMES))
        first = replace(line, patient=len(line.parts) > 1)
        merged, wide = (replace(each, coarse=True) for each in (few, many))
        engines: list[_Engine] = [few, first]
        best, located = Enclosure(Fraction(0), math.inf), engines[1]
        for engine in engines:
            slow = engine is line or engine is wide
            found = None if slow and _width(best) <= _ROUGH else ask(engine, relative)
            best = best if found is None else better(best, found, line.side, relative)
            if best.lower == math.inf or _width(best) <= _WIDE * relative:
                return best
            if engine is first and _listed(line):
                engines.append(located := merged)
            if engine is located:
                divided = FewLargeLosses.of(line, *point(best))
                engines += [many, *([] if divided is None else [divided])]
                engines += [wide] if located is merged else []
                engines += [] if divided is None else [line]
        for rough in _ROUGHER:
            # An integral of a larger requested width may still be narrower.
            found = ask(line, rough) if _MUCH * relative < rough < _width(best) else None
            if found is not None:
                before, best = best, better(best, found, line.side, relative)
                if best == before:
                    break
        return best

    def tradeoff(self, alpha: Fraction, relative: Fraction = Fraction(1, 10**8)) -> Enclosure:
        r"""The least type II error of a test with type I error ``alpha``.

        ``lost`` is ignored. Raises :class:`NotDerived` if there are too many outcomes to list.
        """
        engine = self._engine()
        if isinstance(engine, ClosedPair):
            return narrowed(partial(engine.tradeoff, alpha), _bits(relative))
        ends = []
        for above in (True, False):
            parts = tuple((loss_of(law, above=above), count) for law, count in self.parts)
            named = Enumeration(parts=parts, most=MANY_OUTCOMES).listing(_UNSEEN)
            if named is None:
                reason = "it has too many outcomes: use delta(epsilon)"
                raise NotDerived(f"the trade-off function of {self!r}", reason)
            ends.append(Fraction(named.tradeoff(alpha)[0 if above else 1]))
        return Enclosure(*ends)

    def largest(self) -> Enclosure:
        r"""The sum of the largest losses of ``parts``, possibly infinite; ``lost`` is ignored."""
        low: End = Fraction(0)
        high: End = Fraction(0)
        for law, count in self.parts:
            found = largest_known(law)
            low, high = low + count * found.lower, high + count * found.upper
        return Enclosure(low, high)

    def _known(self) -> bool:
        return all(delta < 1 for delta, _ in self.lost)

    def _hidden(self) -> arb:
        # h = 1 - prod (1 - d)^k, without cancellation.
        return -self._log_kept().expm1()

    def _log_kept(self) -> arb:
        return sum((count * (-ball(delta)).log1p() for delta, count in self.lost), arb(0))

    def _share(self, delta: Fraction) -> Enclosure:
        # (delta - h)/(1 - h), the remaining share of delta. Whether it is 0 is decided exactly.
        bits = sum(count * (1 - d).denominator.bit_length() for d, count in self.lost)
        if bits <= _MOST_EXACT and 1 - delta == math.prod((1 - d) ** k for d, k in self.lost):
            return Enclosure.exactly(0)
        return narrow(lambda: -((-ball(delta)).log1p() - self._log_kept()).expm1(), _HIDDEN_BITS)

    def _engine(self) -> ClosedPair | NormalLoss | ContourIntegral | None:
        match self.parts:
            case ():
                return None
            case ((ClosedPair() as pair, 1),):
                return pair
            case ((GaussianPair(noise=noise, shift=step), count),) if (
                noise.sigma_squared >= NEARLY_REAL
            ):
                # The loss of the sum of all outputs is the total loss of all rounds.
                whole = DiscreteGaussianSum(count=count, sigma_squared=noise.sigma_squared)
                return GaussianSumPair(noise=whole, shift=count * step)
        normal = [count * law.variance for law, count in self.parts if isinstance(law, NormalLoss)]
        if len(normal) == len(self.parts):
            return NormalLoss(variance=sum(normal, Fraction(0)))
        return self._line()

    def _line(self) -> ContourIntegral:
        # A few narrow Gaussians have few outcomes.
        few = sum(count for _, count in self.parts) <= _FEW_ROUNDS and all(
            law.noise.sigma_squared <= _NARROW
            for law, _ in self.parts
            if isinstance(law, GaussianPair)
        )
        losses = (loss_of(law, above=self.above, closed=not few) for law, _ in self.parts)
        counts = (count for _, count in self.parts)
        return ContourIntegral(parts=tuple(zip(losses, counts, strict=True)))


def _listed(line: ContourIntegral) -> bool:
    # Whether merging the outcomes of these rounds takes at most seconds.
    short = sum(count for _, count in line.parts) <= _MOST_MERGED
    return short and all(law.few_atoms(_UNSEEN) is not None for law, _ in line.parts)


def _merged(parts: Iterable[tuple[_Counted, int]]) -> tuple[tuple[_Counted, int], ...]:
    counts: dict[_Counted, int] = {}
    for law, count in parts:
        counts[law] = counts.get(law, 0) + count
    # The order of the parts is canonical, so that a total has the same digits for any input order.
    return tuple(sorted(counts.items(), key=repr))


def _width(found: Enclosure) -> End:
    # Relative to the upper end.
    return found.width / found.upper if 0 < found.upper < math.inf else found.width


def _bits(relative: Fraction) -> int:
    # A width of 2^-bits or less is within `relative`; pairs are computed at least to float width.
    ratio = relative.denominator // relative.numerator
    return min(max(ratio.bit_length() + 1, _FEWEST_BITS), MOST_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DominatingPairs:
    r"""The pairs of output laws that bound one round from above and from below.

    A list of independent pairs with their counts describes a round with several coordinates.
    ``above`` has one such list for each direction; it dominates every possible round in that
    direction. ``attained`` has lists that some neighbouring datasets attain in every round. It
    equals ``above`` if the bound is exact, and is empty if no such list is known. ``aligned``
    states that ``attained`` has one list for each list in ``above``, in the same direction.
    ``lost`` is the delta of an (epsilon, delta) claim.
    """

    above: tuple[Laws, ...]
    attained: tuple[Laws, ...]
    lost: Fraction = Fraction(0)
    aligned: bool = False

    @classmethod
    def exactly(cls, *lists: Laws) -> DominatingPairs:
        r"""Dominating pairs that are attained in every round, with one list for each direction."""
        return cls(above=lists, attained=lists, aligned=True)

    @classmethod
    def tabled(cls, *directions: Tables) -> DominatingPairs:
        r"""The pessimistic and the optimistic discretisation of one round, in each direction."""
        above, below = (
            tuple(((TabledLoss(kinds=kinds, above=side), 1),) for kinds in directions)
            for side in (True, False)
        )
        return cls(above=above, attained=below, aligned=True)


def of_table(table: LossTable) -> DominatingPairs:
    r"""The dominating pair of the round ``table``, which neighbouring datasets need not attain."""
    return DominatingPairs(above=(((TabledLoss.of(table, above=True), 1),),), attained=())


@lru_cache(maxsize=256)
def of_noise(noise: Noise, sensitivity: Sensitivity) -> DominatingPairs:
    r"""The dominating pairs of one release of integer noise."""
    shifts = shifts_of(noise, sensitivity)
    lists = [_of_shift(noise, shift) for shift in shifts]
    revealing = [each for each in lists if each.lost]
    if revealing or len(lists) == 1:
        return (revealing or lists)[0]
    attained = tuple(one for each in lists for one in each.attained)
    pairs = (tuple((pair_of(noise, step), count) for step, count in shift) for shift in shifts)
    table = dominating(tuple(both for each in pairs for both in directions(each)))
    return replace(of_table(table), attained=attained)


def _of_shift(noise: Noise, shift: Shift) -> DominatingPairs:
    # Each coordinate of a shift acts like a round with one coordinate.
    each: list[tuple[Law, Law, int]] = []
    above: list[tuple[Law, int]] = []
    if any(_disjoint(pair_of(noise, step)) for step, _ in shift):
        return DominatingPairs(above=((),), attained=((),), lost=Fraction(1), aligned=True)
    for step, count in shift:
        pair = pair_of(noise, step)
        mirror = pair.mirror()
        each.append((pair, mirror, count))
        if mirror is pair:
            above.append((pair, count))
        else:
            either = dominating((((pair, 1),), ((mirror, 1),)))
            above.append((TabledLoss.of(either, above=True), count))
    if all(pair == mirror for pair, mirror, _ in each) and above == [(p, k) for p, _, k in each]:
        return DominatingPairs.exactly(tuple(above))
    return DominatingPairs(above=(tuple(above),), attained=_signed(each))


def _disjoint(pair: Pair) -> bool:
    # Whether the two laws have no common output: each of them reveals its dataset.
    try:
        return bool(pair.hidden() == 1)
    except NotDerived:
        return False


def _signed(each: list[tuple[Law, Law, int]]) -> tuple[Laws, ...]:
    # Coordinates with equal steps are exchangeable: only the number of coordinates that move down
    # matters. The two aligned lists come first; of many mixtures an evenly spaced selection is
    # tried.
    tried = max(int(_MOST_SIGNS ** (1 / len(each)) + _ROOT), 2)
    downs = [sorted({count * i // (tried - 1) for i in range(tried)}) for _, _, count in each]
    mixed = product(*downs) if tried ** len(each) <= _MOST_SIGNS else ()
    aligned = (tuple(0 for _ in each), tuple(count for _, _, count in each))
    return tuple(dict.fromkeys(signed(each, down) for down in (*aligned, *mixed)))


def over_totals(
    found: list[tuple[DominatingPairs, int]],
    ask: Callable[[ComposedLoss, Fraction], Enclosure],
    relative: Fraction,
    *,
    rough: Fraction = Fraction(0),
) -> Bound:
    r"""Bounds on ``ask(total loss)`` for the worst composition of rounds.

    ``found`` lists the pairs (dominating pairs of a round, number of rounds). ``relative`` is the
    width for the direction that is evaluated first, usually the worst. For the other directions the
    width ``rough`` suffices if it shows that they are not the worst.
    """
    above = _totals([(each, each.above, rounds) for each, rounds in found], above=True)
    upper = [ask(above[0], relative)]
    for total in above[1:]:
        each = ask(total, max(relative, rough))
        if relative < rough and each.upper >= max(e.lower for e in upper):
            each = ask(total, relative)
        upper.append(each)
    highest = max(e.upper for e in upper)
    aligned = all(each.aligned for each, _ in found)
    lower: End | None = None
    if all(each.attained for each, _ in found):
        reached = _totals([(each, each.attained, rounds) for each, rounds in found], above=False)
        if aligned:
            # The direction with the largest upper bound gives a lower bound as good as any.
            reached = [reached[[e.upper for e in upper].index(highest)]]
        known = {total.parts: each for total, each in zip(above, upper, strict=True) if total.exact}
        lower = max(
            (known[total.parts] if total.parts in known else ask(total, relative)).lower
            for total in reached
        )
    return Bound(
        upper=highest,
        lower=lower,
        method=" and ".join(sorted({total.method for total in above})),
        theorem=_LOSSES if aligned else _MAXIMA,
    )


def _totals(
    listed: list[tuple[DominatingPairs, tuple[Laws, ...], int]], *, above: bool
) -> list[ComposedLoss]:
    # There is one total for each direction; a part with a single direction has that direction in
    # every total. The two lists of a sampled round are those of the two directions, in the same
    # order in all parts.
    totals = []
    for at in range(max(len(choices) for _, choices, _ in listed)):
        laws = (
            (law, count * rounds)
            for _, choices, rounds in listed
            for law, count in choices[at % len(choices)]
        )
        lost = ((each.lost, rounds) for each, _, rounds in listed if each.lost)
        totals.append(ComposedLoss.of(laws, lost, above=above))
    return totals
