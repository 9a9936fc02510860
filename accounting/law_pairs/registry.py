r"""The registry of noise laws and their worst-case pairs, and the shifts of a query.

This is the only module that lists every law. To add a law, write its
:class:`accounting.pairs.pair.Pair` in a separate file and add a case here. The curve of a law
without a case is computed from its mass function if the law is symmetric and log-concave.

A shift between neighbouring datasets is an integer vector up to order and sign, since the noise has
the same symmetric law in every coordinate. A shift is given by its steps with their counts, e.g.
``((2, 1), (1, 3))`` for (2, 1, 1, 1). A norm sensitivity does not fix the number of coordinates: a
shift may change as many of them as the norm permits. Proofs: docs/proofs/curve.md.
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
    r"""The shift that changes one coordinate by each of ``steps`` >= 1.

    >>> shift_of([1, 2, 1, 1])
    ((2, 1), (1, 3))
    """
    return tuple(sorted(Counter(steps).items(), reverse=True))


def heaviest(sensitivity: Sensitivity) -> Shift:
    r"""The worst shift for the largest loss and for zCDP, for the laws that :func:`worst` accepts.

    Under l1 it is one step in one coordinate, under l2 a step of 1 in each of Delta_2^2
    coordinates, and in a box its corner.

    >>> heaviest(Sensitivity.l1(3)), heaviest(Sensitivity.l2_squared(3))
    (((3, 1),), ((1, 3),))
    """
    amount = sensitivity.amount
    if isinstance(amount, tuple):
        return shift_of(amount)
    return ((1, amount),) if sensitivity.norm is Norm.L2_SQUARED else ((amount, 1),)


def maximal(sensitivity: Sensitivity) -> tuple[Shift, ...]:
    r"""The maximal shifts under ``sensitivity``; at each epsilon, one of them is the worst.

    A shift is maximal if no coordinate can change by more within the norm. These are the partitions
    of the norm into steps (l1) or into squares of steps (l2), and the corner of a box.

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
                "use zcdp(), pure() or Sensitivity.box",
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

    If the two directions differ, the pair of a direction with the largest loss is returned. Raises
    :class:`NotDerived` if the largest shift of the law is not known to be the worst.
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
    r"""The pairs of the coordinates that ``shift`` changes, all in the same direction.

    Raises :class:`NotDerived` if :func:`pair_of` does not support the law.
    """
    return tuple((pair_of(noise, step), count) for step, count in shift)


def additive(noise: Noise) -> bool:
    r"""Whether D_alpha/alpha is non-increasing, so that the zCDP parameters of coordinates add."""
    return isinstance(noise, (DiscreteGaussian, DiscreteLaplace))


def shifts_of(noise: Noise, sensitivity: Sensitivity) -> tuple[Shift, ...]:
    r"""The candidates for the worst shift; at each epsilon, one of them is the worst.

    For discrete Laplace noise under l1, the worst shift changes only one coordinate.
    """
    one = isinstance(noise, DiscreteLaplace) and sensitivity.norm is Norm.L1
    return (heaviest(sensitivity),) if one else maximal(sensitivity)


def directions(pairs: Coordinates) -> tuple[Coordinates, ...]:
    r"""The products of ``pairs`` in which each coordinate increases or decreases.

    Equal coordinates are exchangeable: only the number of coordinates that decrease matters.
    Raises :class:`NotDerived` if there are more than 64 products.
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
    r"""The product in which ``downs[i]`` of the coordinates of kind i decrease.

    ``both[i]`` is the law of an increase, that of a decrease, and the number of coordinates.
    """
    parts = (
        part
        for (up, down, count), k in zip(both, downs, strict=True)
        for part in ((up, count - k), (down, k))
    )
    return tuple(part for part in parts if part[1])


@lru_cache(maxsize=256)
def candidates(noise: Noise, sensitivity: Sensitivity) -> tuple[Coordinates, ...]:
    r"""The candidate products of pairs; at each epsilon, one of them is the worst case.

    An asymmetric law has two directions in each coordinate.

    Raises :class:`NotDerived` if :func:`coordinates_of` does, or if there are too many products.
    """
    shifts = shifts_of(noise, sensitivity)
    return tuple(each for s in shifts for each in directions(coordinates_of(noise, s)))


def worst(noise: Noise, sensitivity: Sensitivity) -> Coordinates:
    r"""The product with the largest loss and the largest zCDP parameter under ``sensitivity``.

    Raises :class:`NotDerived` if :func:`coordinates_of` does, or under an l1 or l2 norm above 1 of
    other laws than the discrete Gaussian and Laplace, for which no shift is proven to be the worst.
    """
    corner = sensitivity.norm in (Norm.ABSOLUTE, Norm.BOX)
    if not (corner or sensitivity.amount == 1 or additive(noise)):
        raise NotDerived(
            f"the worst shift of {noise!r} under the norm {sensitivity.norm.value}",
            "use delta(epsilon), or a bound per coordinate: Sensitivity.box",
        )
    return coordinates_of(noise, heaviest(sensitivity))
