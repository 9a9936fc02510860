r"""Which noise has which pair: the one place that knows every law.

To add a law, write its :class:`accounting.pair.Pair` in a file of its own and a case here. A law
without a case still gets a curve from its mass function when it is symmetric and log-concave.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from accounting.errors import NotDerived
from accounting.gaussian import GaussianPair, GaussianProduct
from accounting.laplace import LaplacePair, LaplaceProduct
from accounting.log_concave import ShiftedPair
from accounting.pair import Pair
from accounting.shift import Shift, heaviest, maximal
from dpcore.discrete_gaussian import DiscreteGaussian
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Norm, Sensitivity
from dpcore.noise import Noise

__all__ = ["candidates", "pair_of", "worst"]


def pair_of(noise: Noise, shift: Shift) -> Pair:
    r"""The pair of ``noise`` under one shift.

    Raises :class:`NotDerived` for a law whose largest shift is not known to be the worst, and for
    several coordinates of a law without a file of its own.
    """
    single = len(shift) == 1 and shift[0][1] == 1
    match noise:
        case DiscreteLaplace():
            scale = Fraction(noise.scale)
            if single:
                return LaplacePair(scale=scale, shift=shift[0][0])
            return LaplaceProduct(scale=scale, shift=shift)
        case DiscreteGaussian():
            return (GaussianPair if single else GaussianProduct)(noise=noise, shift=shift)
        case _ if not (noise.symmetric and noise.log_concave):
            raise NotDerived(
                f"the worst shift of {noise!r}",
                "the theorem needs a symmetric log-concave law; add the law's own to accounting",
            )
        case _ if single:
            return ShiftedPair(noise=noise, shift=shift[0][0])
    raise NotDerived(
        f"a curve of several coordinates of {noise!r}", "release one coordinate at a time"
    )


@lru_cache(maxsize=256)
def candidates(noise: Noise, sensitivity: Sensitivity) -> tuple[Pair, ...]:
    r"""The pairs of which, at every epsilon, one is the worst under ``sensitivity``.

    Discrete Laplace in l1 is worst with the whole shift in one coordinate, so one pair dominates.

    Raises :class:`NotDerived` as :func:`pair_of`, and when they are too many to try.
    """
    if isinstance(noise, DiscreteLaplace) and sensitivity.norm is Norm.L1:
        return (worst(noise, sensitivity),)
    return tuple(pair_of(noise, shift) for shift in maximal(sensitivity))


def worst(noise: Noise, sensitivity: Sensitivity) -> Pair:
    r"""The pair with the largest loss and the largest zCDP parameter under ``sensitivity``."""
    return pair_of(noise, heaviest(sensitivity))
