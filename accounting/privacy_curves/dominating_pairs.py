r"""The dominating pairs of one round of a guarantee.

A guarantee whose neighbours have one worst pair composes exactly: its pair, k times. If several
pairs compete (both directions of an asymmetric noise, several shifts of an l2 sensitivity), each
round may have any of them, depending on earlier rounds: then one pair that dominates all of them
(:mod:`accounting.privacy_curves.connect_the_dots`) bounds the total from above, and lists that
repeat one of them bound it from below. If the datasets determine the direction (subsampling: which
dataset has the added unit), it is the same in every round. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.law_pairs.registry import Shift, directions, pair_of, shifts_of
from accounting.numerical_composition.cell_refinement import TabledLoss
from accounting.pairs.pair import Pair
from accounting.pld.pessimistic_discretisation import LossTable, Tables
from accounting.privacy_curves.choose_composition_method import ComposedLoss, Law
from accounting.privacy_curves.connect_the_dots import dominating
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, End

_MOST_SIGNS: Final = 16
_ROOT: Final = 1e-9
_LOSSES: Final = "the privacy losses of all rounds are added (Koskela, Jalko and Honkela 2020)"
_MAXIMA: Final = "one pair that dominates every possible pair (Doroshenko et al. 2022)"

Laws: TypeAlias = tuple[tuple[Law, int], ...]
"""The independent laws of one round, with their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DominatingPairs:
    r"""``above`` has lists of pairs: for each direction, one of them dominates every possible
    round.

    ``attained`` has lists that some neighbours have in every round; it equals ``above`` if the
    bound is exact, and is empty if no such list is known. ``lost`` is the delta of a claim. If
    ``aligned``, both have the same directions.
    """

    above: tuple[Laws, ...]
    attained: tuple[Laws, ...]
    lost: Fraction = Fraction(0)
    aligned: bool = False

    @classmethod
    def exactly(cls, *lists: Laws) -> DominatingPairs:
        r"""Lists that dominate every round and are attained."""
        return cls(above=lists, attained=lists, aligned=True)

    @classmethod
    def tabled(cls, *directions: Tables) -> DominatingPairs:
        r"""The two discretisations of the cells of a round, per direction."""
        above, below = (
            tuple(((TabledLoss(kinds=kinds, above=side), 1),) for kinds in directions)
            for side in (True, False)
        )
        return cls(above=above, attained=below, aligned=True)


def of_table(table: LossTable) -> DominatingPairs:
    r"""A pair that dominates every round but need not be attained."""
    return DominatingPairs(above=(((TabledLoss.of(table, above=True), 1),),), attained=())


@lru_cache(maxsize=256)
def of_noise(noise: Noise, sensitivity: Sensitivity) -> DominatingPairs:
    r"""The pairs of one release of integer noise.

    Raises the errors of :func:`accounting.law_pairs.registry.candidates`.
    """
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
    # Each coordinate of a shift acts as a round of one coordinate.
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
    # Coordinates with equal steps are exchangeable: only the number that move down matters. The two
    # aligned lists come first; of many mixtures an evenly spaced selection is tried.
    tried = max(int(_MOST_SIGNS ** (1 / len(each)) + _ROOT), 2)
    downs = [sorted({count * i // (tried - 1) for i in range(tried)}) for _, _, count in each]
    mixed = product(*downs) if tried ** len(each) <= _MOST_SIGNS else ()
    aligned = (tuple(0 for _ in each), tuple(count for _, _, count in each))
    found: dict[Laws, None] = {}
    for down in (*aligned, *mixed):
        parts = (
            part
            for (pair, mirror, count), k in zip(each, down, strict=True)
            for part in ((pair, count - k), (mirror, k))
        )
        found[tuple(part for part in parts if part[1])] = None
    return tuple(found)


def over_totals(
    found: list[tuple[DominatingPairs, int]],
    ask: Callable[[ComposedLoss, Fraction], Enclosure],
    relative: Fraction,
    *,
    rough: Fraction = Fraction(0),
) -> Bound:
    r"""Evaluate ``ask`` on the worst composition of the ``found`` pairs, each with its rounds.

    ``relative`` is the width for the worst direction, usually the first one. The others need only
    the width ``rough`` if it shows that they are not the worst.
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
    # One total for each direction; a part with one direction has it in every total. The lists of
    # samples alternate between the two orders of the datasets, which are the same in all parts.
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
