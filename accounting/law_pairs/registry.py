r"""The registry of laws and their worst-case pairs; the only module that lists every law.

To add a law, write its :class:`accounting.pairs.pair.Pair` in a separate file and add a case here.
A law without a case still gets a curve from its mass function if it is symmetric and log-concave.
Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from accounting.errors import NotDerived
from accounting.law_pairs.discrete_gaussian import GaussianPair
from accounting.law_pairs.discrete_gaussian_sum import GaussianSumPair
from accounting.law_pairs.discrete_laplace import LaplacePair
from accounting.law_pairs.poisson_binomial_polya import BinomialPair, PoissonPair, PolyaPair
from accounting.law_pairs.polya import (
    PolyaDifferenceAboveOne,
    PolyaDifferenceBelowOne,
    RevealingPair,
)
from accounting.law_pairs.skellam import SkellamPair
from accounting.law_pairs.staircase import StaircasePair
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.pair import Pair
from accounting.pairs.shift import Shift, heaviest, maximal
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.laws.staircase import Staircase
from dpcore.mechanism import Norm, Sensitivity
from dpcore.noise import Noise

Coordinates: TypeAlias = tuple[tuple[Pair, int], ...]
"""The pairs of independent coordinates, with their counts."""


def pair_of(noise: Noise, step: int) -> Pair:
    r"""The pair of ``noise`` in one coordinate that moves by ``step`` >= 1.

    If the two directions differ, it is one with the largest loss. Raises :class:`NotDerived` for a
    law whose largest shift is not known to be the worst.
    """
    match noise:
        case DiscreteGaussian():
            return GaussianPair(noise=noise, shift=step)
        case DiscreteLaplace():
            return LaplacePair(noise=noise, shift=step)
        case Staircase():
            return StaircasePair(noise=noise, shift=step)
        case Skellam():
            return SkellamPair(noise=noise, shift=step)
        case DiscreteGaussianSum():
            return GaussianSumPair(noise=noise, shift=step)
        case PolyaDifference() | Polya():
            return _of_polya(noise, step)
        case Poisson():
            return PoissonPair(noise=noise, shift=step)
        case Binomial():
            return BinomialPair(noise=noise, shift=step)
        case _ if noise.symmetric and noise.log_concave:
            return ShiftedPair(noise=noise, shift=step)
    raise NotDerived(
        f"the worst shift of {noise!r}",
        "the theorem needs a symmetric log-concave law; add a pair for this law to accounting",
    )


def _of_polya(noise: Polya | PolyaDifference, step: int) -> Pair:
    if isinstance(noise, Polya):
        return (RevealingPair if noise.shape <= 1 else PolyaPair)(noise=noise, shift=step)
    if noise.shape == 1:
        # With shape 1 the difference is discrete Laplace.
        return LaplacePair(noise=DiscreteLaplace(scale=noise.scale), shift=step)
    return (PolyaDifferenceAboveOne if noise.shape > 1 else PolyaDifferenceBelowOne)(
        noise=noise, shift=step
    )


def coordinates_of(noise: Noise, shift: Shift) -> Coordinates:
    r"""The pairs of the coordinates that ``shift`` moves.

    Raises :class:`NotDerived` for a law that :func:`pair_of` does not support, and for several
    coordinates of a law other than the discrete Gaussian and the discrete Laplace.
    """
    single = len(shift) == 1 and shift[0][1] == 1
    if not single and not isinstance(noise, (DiscreteGaussian, DiscreteLaplace)):
        raise NotDerived(
            f"a curve of several coordinates of {noise!r}", "release one coordinate at a time"
        )
    return tuple((pair_of(noise, step), count) for step, count in shift)


def shifts_of(noise: Noise, sensitivity: Sensitivity) -> tuple[Shift, ...]:
    r"""Shifts, one of which is the worst at each epsilon.

    Discrete Laplace noise under l1 is worst with the whole shift in one coordinate.
    """
    one = isinstance(noise, DiscreteLaplace) and sensitivity.norm is Norm.L1
    return (heaviest(sensitivity),) if one else maximal(sensitivity)


def directions(pairs: Coordinates) -> tuple[Coordinates, ...]:
    r"""The product of ``pairs``, and that of their mirrors if it differs."""
    mirrored = tuple((pair.mirror(), count) for pair, count in pairs)
    return (pairs,) if mirrored == pairs else (pairs, mirrored)


@lru_cache(maxsize=256)
def candidates(noise: Noise, sensitivity: Sensitivity) -> tuple[Coordinates, ...]:
    r"""Products of pairs, one of which is the worst case under ``sensitivity`` at each epsilon.

    An asymmetric law has two directions.

    Raises :class:`NotDerived` as :func:`coordinates_of` does, and for too many products to try.
    """
    shifts = shifts_of(noise, sensitivity)
    return tuple(each for s in shifts for each in directions(coordinates_of(noise, s)))


def worst(noise: Noise, sensitivity: Sensitivity) -> Coordinates:
    r"""The products with the largest loss and the largest zCDP parameter under ``sensitivity``.

    Raises :class:`NotDerived` as :func:`coordinates_of` does: under l1 one coordinate is proven to
    be the worst only for the discrete Gaussian and the discrete Laplace.
    """
    if sensitivity.norm is Norm.L1 and isinstance(sensitivity.amount, int):
        coordinates_of(noise, ((1, sensitivity.amount),))
    return coordinates_of(noise, heaviest(sensitivity))
