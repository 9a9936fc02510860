r"""What one round may look like to the two worlds: the pairs that a guarantee stands for.

A guarantee whose neighbours have one worst pair composes exactly: its pair, k times. Where several
pairs compete (both directions of an asymmetric noise, several shifts of an l2 sensitivity) a round
may be any of them, chosen after the rounds before it: then one pair above all of them (``dots``)
bounds the total from above, and the lists that repeat one of them bound it from below. Where the
direction belongs to the datasets (subsampling: who was added) it is the same in every round.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

from accounting.claims.claim import Approx, Pure
from accounting.claims.guarantee import Guarantee
from accounting.errors import NotDerived
from accounting.fourier.factor import LossPart
from accounting.fourier.real_loss import AllocatedLoss, TabledLoss
from accounting.laws.laplace import LaplacePair
from accounting.laws.registry import pair_of
from accounting.loss.allocation import Side
from accounting.loss.table import LossTable, Tables
from accounting.pairs.pair import Pair
from accounting.pairs.shift import Shift, heaviest, maximal
from accounting.release.allocation import RandomAllocation
from accounting.release.curve import PrivacyCurve
from accounting.release.dominating import dominating
from accounting.release.matrix import MatrixCurve
from accounting.release.real_curve import RealCurve, RealSample
from accounting.release.replaced import PoissonReplaced
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.release.truncated import PoissonTruncated
from accounting.totals.total import Law
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Norm, Sensitivity
from dpcore.noise import Noise

_MOST_SIGNS: Final = 16
_ROOT: Final = 1e-9

Laws: TypeAlias = tuple[tuple[Law, int], ...]
"""Independent laws of one round, with their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    r"""``above``: lists of which, direction by direction, one dominates every round that may be.

    ``attained``: lists that some neighbours have in every round; the same as ``above`` where the
    bound is exact, empty where none is known. ``lost`` is the delta of a claim. If ``aligned``,
    both have the same directions.
    """

    above: tuple[Laws, ...]
    attained: tuple[Laws, ...]
    lost: Fraction = Fraction(0)
    aligned: bool = False

    @classmethod
    def exactly(cls, *lists: Laws) -> Ways:
        r"""Lists that dominate every round and are attained."""
        return cls(above=lists, attained=lists, aligned=True)

    @classmethod
    def tabled(cls, *directions: Tables) -> Ways:
        r"""The two listings of the cells of a round, direction by direction."""
        above, below = (
            tuple(((TabledLoss(kinds=kinds, above=side), 1),) for kinds in directions)
            for side in (True, False)
        )
        return cls(above=above, attained=below, aligned=True)


@lru_cache(maxsize=256)
def ways(source: Guarantee) -> Ways:
    r"""The pairs of one round.

    >>> found = ways(Pure("1/10"))
    >>> found.above == found.attained == (((LaplacePair(scale=Fraction(10), shift=1), 1),),)
    True

    Raises :class:`NotDerived` for a claim in Renyi terms, which no one pair stands for.
    """
    match source:
        case PrivacyCurve():
            return _of_curve(source.noise, Sensitivity.of(source.sensitivity))
        case RealCurve() if (loss := source.loss()) is not None:
            return Ways.exactly(((loss, 1),))
        case RealCurve():
            return Ways.tabled(((Fraction(1), source.pair()),))
        case PoissonSampled() | RealSample():
            return _of_sample(source)
        case RandomAllocation() if source.listed:
            return _of_epoch(source)
        case MatrixCurve():
            low, high = source.losses()
            return Ways(above=(((high, 1),),), attained=(((low, 1),),))
        case Pure(stated_epsilon=epsilon):
            return Ways.exactly(_response(Fraction(epsilon)))
        case Approx(stated_epsilon=epsilon, stated_delta=delta):
            laws = (_response(Fraction(epsilon)),)
            return Ways(above=laws, attained=laws, lost=Fraction(delta))
        case FixedSizeSampled():
            return Ways(above=(((_tabled(source.pair()), 1),),), attained=())
    raise NotDerived(
        f"one pair of laws that {source!r} stands for",
        "a claim in Renyi terms composes order by order: use renyi(order) or epsilon(delta)",
    )


def _of_sample(source: PoissonSampled | RealSample) -> Ways:
    if isinstance(source, PoissonTruncated):
        if source.directions == source.least.directions:
            return ways(source.least)
        attained = ways(source.least).attained
        return replace(Ways.tabled(*source.directions), attained=attained, aligned=False)
    if isinstance(source, (PoissonSampled, PoissonReplaced)) and source.rate == 1:
        return ways(source.unsampled)
    found = Ways.tabled(*source.directions)
    if isinstance(source, PoissonSampled) and not source.attained:
        return replace(found, attained=(), aligned=False)
    return found


def _of_epoch(source: RandomAllocation) -> Ways:
    density, rounds = source.curve.density, source.rounds
    above, below = (
        tuple(
            ((AllocatedLoss(density=density, rounds=rounds, side=Side(above=end, present=at)), 1),)
            for at in (True, False)
        )
        for end in (True, False)
    )
    return Ways(above=above, attained=below, aligned=True)


def _response(epsilon: Fraction) -> Laws:
    # Randomised response has the curve of the claim: the discrete Laplace law under a shift of 1.
    return ((LaplacePair(scale=1 / epsilon, shift=1), 1),) if epsilon else ()


def _of_curve(noise: Noise, sensitivity: Sensitivity) -> Ways:
    if isinstance(noise, DiscreteLaplace) and sensitivity.norm is Norm.L1:
        shifts: tuple[Shift, ...] = (heaviest(sensitivity),)
    else:
        shifts = maximal(sensitivity)
    lists = [_coordinates(noise, shift) for shift in shifts]
    if len(lists) == 1:
        return lists[0]
    attained = tuple(one for each in lists for one in each.attained)
    return Ways(above=(((_above(noise, shifts), 1),),), attained=attained)


def _coordinates(noise: Noise, shift: Shift) -> Ways:
    # The coordinates of one shift are so many rounds of one coordinate each.
    each: list[tuple[Law, Law, int]] = []
    above: list[tuple[Law, int]] = []
    for step, count in shift:
        pair = pair_of(noise, ((step, 1),))
        mirror = pair.mirror()
        each.append((pair, mirror, count))
        above.append((pair if mirror is pair else _dotted((pair, mirror)), count))
    if all(pair == mirror for pair, mirror, _ in each) and above == [(p, k) for p, _, k in each]:
        return Ways.exactly(tuple(above))
    return Ways(above=(tuple(above),), attained=_signed(each))


def _signed(each: list[tuple[Law, Law, int]]) -> tuple[Laws, ...]:
    # Coordinates of one step are exchangeable: only how many of them move down matters. The two
    # aligned lists come first; of very many mixtures some are left out, evenly.
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


def _above(noise: Noise, shifts: Iterable[Shift]) -> LossPart:
    pairs: list[Pair] = []
    for shift in shifts:
        pair = pair_of(noise, shift)
        pairs += [pair] if pair.mirror() is pair else [pair, pair.mirror()]
    return _dotted(tuple(pairs))


def _dotted(pairs: tuple[Pair, ...]) -> LossPart:
    return _tabled(dominating(pairs))


def _tabled(table: LossTable) -> LossPart:
    return TabledLoss(kinds=((Fraction(1), table),), above=True)
