r"""The registry that maps each noise law to its dominating pair, and the worst shifts of a query.

This is the only module that lists all laws. To add a law, write its
:class:`accounting.pairs.pair.Pair` in a separate file and add a case here. A symmetric log-concave
law without a case is supported as well: its curve is computed from its mass function.

A shift is the difference of the query on two neighbouring datasets, an integer vector. The order of
its entries does not matter, because the noise has the same law in every coordinate. Their signs do
not matter for symmetric noise, and are chosen by :func:`directions` otherwise. So a shift is given
by its absolute entries with their counts, e.g. ``((2, 1), (1, 3))`` for (2, 1, 1, 1). A bound on a
norm does not fix the number of coordinates: a shift may change as many coordinates as the norm
permits. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Final, TypeAlias, TypeVar, cast

from accounting.errors import NotDerived
from accounting.law_pairs.discrete_gaussian import GaussianPair, GaussianSumPair
from accounting.law_pairs.discrete_laplace import LaplacePair
from accounting.law_pairs.one_sided import BinomialPair, PoissonPair, PolyaPair
from accounting.law_pairs.skellam_and_polya import (
    PolyaDifferenceAboveOne,
    PolyaDifferenceBelowOne,
    RevealingPair,
    SkellamPair,
)
from accounting.pairs.finite import StaircasePair
from accounting.pairs.pair import Pair, ShiftedPair
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.laws.staircase import Staircase
from dpcore.mechanism import Norm, Sensitivity
from dpcore.noise import Noise

Shift: TypeAlias = tuple[tuple[int, int], ...]
"""(step, count) with decreasing steps; the zero shift is excluded."""

_MOST_SHIFTS: Final = 256
_MOST_SIGNS: Final = 64

_Law = TypeVar("_Law")

_PAIRS: Final[dict[type[Noise], type[Pair]]] = {
    Binomial: BinomialPair,
    DiscreteGaussian: GaussianPair,
    DiscreteGaussianSum: GaussianSumPair,
    DiscreteLaplace: LaplacePair,
    Poisson: PoissonPair,
    Skellam: SkellamPair,
    Staircase: StaircasePair,
}

Coordinates: TypeAlias = tuple[tuple[Pair, int], ...]
"""The pairs of independent coordinates, with their counts."""


def shift_of(steps: Iterable[int]) -> Shift:
    r"""The shift whose nonzero entries have the absolute values ``steps`` >= 1.

    >>> shift_of([1, 2, 1, 1])
    ((2, 1), (1, 3))
    """
    return tuple(sorted(Counter(steps).items(), reverse=True))


def heaviest(sensitivity: Sensitivity) -> Shift:
    r"""The shift with the largest loss and zCDP parameter, for laws that :func:`worst` accepts.

    It does not depend on the law. Under an l1 norm it changes one coordinate; under an l2 norm D it
    changes D^2 coordinates by 1; in a box it changes every coordinate by its bound.

    >>> heaviest(Sensitivity.l1(3)), heaviest(Sensitivity.l2_squared(3))
    (((3, 1),), ((1, 3),))
    """
    amount = sensitivity.amount
    if isinstance(amount, tuple):
        return shift_of(amount)
    return ((1, amount),) if sensitivity.norm is Norm.L2_SQUARED else ((amount, 1),)


def maximal(sensitivity: Sensitivity) -> tuple[Shift, ...]:
    r"""The shifts in which no coordinate can change by more within the bound of ``sensitivity``.

    At each epsilon, one of them is the worst. For an l1 norm they are the partitions of the norm,
    for an l2 norm those of its square into squares. For a box there is only one such shift.

    >>> maximal(Sensitivity.l2_squared(4))
    (((2, 1),), ((1, 4),))

    Raises :class:`NotDerived` if there are more than 256 such shifts.
    """
    amount = sensitivity.amount
    if isinstance(amount, tuple) or sensitivity.norm is Norm.ABSOLUTE:
        return (heaviest(sensitivity),)
    power = 2 if sensitivity.norm is Norm.L2_SQUARED else 1
    largest = math.isqrt(amount) if power == 2 else amount
    found: list[Shift] = []
    for steps in _partitions(amount, largest, power):
        found.append(steps)
        if len(found) > _MOST_SHIFTS:
            raise NotDerived(
                f"the exact curve under {sensitivity!r}",
                f"there are more shifts than the limit of {_MOST_SHIFTS}: "
                "use Sensitivity.box or, for Gaussian and Laplace noise, zcdp() or pure()",
            )
    return tuple(found)


def _partitions(amount: int, largest: int, power: int) -> Iterator[Shift]:
    # Every way to write amount as a sum of step^power, with steps <= largest.
    if amount == 0:
        yield ()
        return
    for step in range(largest, 0, -1):
        # Steps of 1 make up the remainder, in exactly one way.
        fewest = amount if step == 1 else 1
        for count in range(amount // step**power, fewest - 1, -1):
            for rest in _partitions(amount - count * step**power, step - 1, power):
                yield ((step, count), *rest)


def pair_of(noise: Noise, step: int) -> Pair:
    r"""The pair of ``noise`` in one coordinate that changes by ``step`` >= 1.

    If the two directions differ, the returned direction has the largest loss. Raises
    :class:`NotDerived` if it is not known that the largest shift of one coordinate is the worst.
    """
    kind: type[Any] | None = next((p for law, p in _PAIRS.items() if isinstance(noise, law)), None)
    match noise:
        case PolyaDifference() if noise.shape == 1:
            # With shape 1 the difference is discrete Laplace.
            return LaplacePair(noise=DiscreteLaplace(scale=noise.scale), shift=step)
        case PolyaDifference():
            kind = PolyaDifferenceAboveOne if noise.shape > 1 else PolyaDifferenceBelowOne
        case Polya():
            kind = RevealingPair if noise.shape <= 1 else PolyaPair
        case _ if kind is None and noise.symmetric and noise.log_concave:
            kind = ShiftedPair
    if kind is None:
        raise NotDerived(
            f"the worst shift of {noise!r}",
            "the theorem needs a symmetric log-concave law; add a pair for this law to accounting",
        )
    return cast("Pair", kind(noise=noise, shift=step))


def coordinates_of(noise: Noise, shift: Shift) -> Coordinates:
    r"""The pairs of all coordinates that ``shift`` changes, with their counts.

    All pairs have the direction of :func:`pair_of`. Raises :class:`NotDerived` if :func:`pair_of`
    does not support the law.
    """
    return tuple((pair_of(noise, step), count) for step, count in shift)


def additive(noise: Noise) -> bool:
    r"""Whether the zCDP parameters of the coordinates are known to add, under ``noise``."""
    return isinstance(noise, (DiscreteGaussian, DiscreteLaplace))


def shifts_of(noise: Noise, sensitivity: Sensitivity) -> tuple[Shift, ...]:
    r"""The shifts that may be the worst for ``noise``; at each epsilon, one of them is the worst.

    For discrete Laplace noise under an l1 norm, the worst shift changes only one coordinate.
    """
    one = isinstance(noise, DiscreteLaplace) and sensitivity.norm is Norm.L1
    return (heaviest(sensitivity),) if one else maximal(sensitivity)


def directions(pairs: Coordinates) -> tuple[Coordinates, ...]:
    r"""All choices of a direction, increase or decrease, for each coordinate of ``pairs``.

    Equal coordinates are exchangeable, so only the number of decreases matters. Raises
    :class:`NotDerived` if there are more than 64 choices.
    """
    both = [(pair, pair.mirror(), count) for pair, count in pairs]
    if all(up == down for up, down, _ in both):
        return (pairs,)
    if math.prod(count + 1 for _, count in pairs) > _MOST_SIGNS:
        raise NotDerived(
            f"the worst directions of {sum(count for _, count in pairs)} coordinates",
            "use symmetric noise, for which the direction of each change does not matter",
        )
    return tuple(signed(both, downs) for downs in product(*(range(k + 1) for _, _, k in both)))


def signed(
    both: Sequence[tuple[_Law, _Law, int]], downs: Sequence[int]
) -> tuple[tuple[_Law, int], ...]:
    r"""The pairs of all coordinates, with counts, if ``downs[i]`` coordinates of group i decrease.

    A group consists of equal coordinates. ``both[i]`` contains the pair for an increase of a
    coordinate of group i, the pair for a decrease, and the number of coordinates of the group.
    """
    parts = (
        part
        for (up, down, count), k in zip(both, downs, strict=True)
        for part in ((up, count - k), (down, k))
    )
    return tuple(part for part in parts if part[1])


@lru_cache(maxsize=256)
def candidates(noise: Noise, sensitivity: Sensitivity) -> tuple[Coordinates, ...]:
    r"""The products of pairs among which there is a worst case at every epsilon.

    A product has one pair for each changed coordinate. For an asymmetric law, it is one choice of
    the direction of each change. Raises the errors of :func:`coordinates_of` and
    :func:`directions`.
    """
    shifts = shifts_of(noise, sensitivity)
    return tuple(each for s in shifts for each in directions(coordinates_of(noise, s)))


def worst(noise: Noise, sensitivity: Sensitivity) -> Coordinates:
    r"""The product of pairs with the largest loss and the largest zCDP parameter.

    Raises :class:`NotDerived` if :func:`coordinates_of` does, or under an l1 or l2 norm above 1
    unless the law is a discrete Gaussian or Laplace: no shift is proven to be the worst then.
    """
    corner = sensitivity.norm in (Norm.ABSOLUTE, Norm.BOX)
    if not (corner or sensitivity.amount == 1 or additive(noise)):
        raise NotDerived(
            f"the worst shift of {noise!r} under the norm {sensitivity.norm.value}",
            "use delta(epsilon), or a bound per coordinate: Sensitivity.box",
        )
    return coordinates_of(noise, heaviest(sensitivity))
