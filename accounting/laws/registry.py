r"""Which noise has which pair: the one place that knows every law.

To add a law, write its :class:`accounting.pairs.pair.Pair` in a file of its own and a case here. A
law without a case still gets a curve from its mass function when it is symmetric and log-concave.
Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

from functools import lru_cache

from accounting.errors import NotDerived
from accounting.laws.counts import BinomialPair, PoissonPair, PolyaPair
from accounting.laws.gaussian import GaussianPair, GaussianProduct
from accounting.laws.gaussian_sum import GaussianSumPair
from accounting.laws.laplace import LaplacePair, LaplaceProduct
from accounting.laws.polya import DisclosingPair, LeanDifferencePair, RichDifferencePair
from accounting.laws.skellam import SkellamPair
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.pair import Pair
from accounting.pairs.shift import Shift, heaviest, maximal
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Norm, Sensitivity
from dpcore.noise import Noise


def pair_of(noise: Noise, shift: Shift) -> Pair:
    r"""The pair of ``noise`` under one shift: of its two directions one with the largest loss.

    Raises :class:`NotDerived` for a law whose largest shift is not known to be the worst, and for
    several coordinates of a law without products of its own.
    """
    single = len(shift) == 1 and shift[0][1] == 1
    match noise:
        case DiscreteLaplace() if not single:
            return LaplaceProduct(scale=noise.scale, shift=shift)
        case DiscreteGaussian():
            return (GaussianPair if single else GaussianProduct)(noise=noise, shift=shift)
        case _ if single:
            return _of_one(noise, shift[0][0])
    raise NotDerived(
        f"a curve of several coordinates of {noise!r}", "release one coordinate at a time"
    )


def _of_one(noise: Noise, step: int) -> Pair:
    match noise:
        case DiscreteLaplace():
            return LaplacePair(scale=noise.scale, shift=step)
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
        "the theorem needs a symmetric log-concave law; add the law's own to accounting",
    )


def _of_polya(noise: Polya | PolyaDifference, step: int) -> Pair:
    if isinstance(noise, Polya):
        return (DisclosingPair if noise.shape <= 1 else PolyaPair)(noise=noise, shift=step)
    if noise.shape == 1:
        # The discrete Laplace law itself.
        return LaplacePair(scale=noise.scale, shift=step)
    return (RichDifferencePair if noise.shape > 1 else LeanDifferencePair)(noise=noise, shift=step)


@lru_cache(maxsize=256)
def candidates(noise: Noise, sensitivity: Sensitivity) -> tuple[Pair, ...]:
    r"""The pairs of which, at every epsilon, one is the worst under ``sensitivity``.

    Discrete Laplace in l1 is worst with the whole shift in one coordinate, so one pair dominates. A
    law that is not symmetric has two directions.

    Raises :class:`NotDerived` as :func:`pair_of`, and when they are too many to try.
    """
    if isinstance(noise, DiscreteLaplace) and sensitivity.norm is Norm.L1:
        return (worst(noise, sensitivity),)
    found: list[Pair] = []
    for shift in maximal(sensitivity):
        pair = pair_of(noise, shift)
        found += [pair] if pair.mirror() is pair else [pair, pair.mirror()]
    return tuple(found)


def worst(noise: Noise, sensitivity: Sensitivity) -> Pair:
    r"""The pair with the largest loss and the largest zCDP parameter under ``sensitivity``."""
    return pair_of(noise, heaviest(sensitivity))
