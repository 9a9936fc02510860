r"""Sums of independent draws: the law of a sum, where it is again a law of dpcore.

The inverse of ``share``: ``summed(noise.share(n), n)`` has the law of ``noise``. What is left of
planned noise when some users drop out is a shorter sum. Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

from fractions import Fraction

from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.parameter import integer

__all__ = ["summed"]


def summed(noise: Noise, count: int) -> Noise:
    r"""Find the exact law of the sum of ``count`` independent draws of ``noise``.

    >>> summed(DiscreteLaplace(scale=10), 4), summed(DiscreteGaussian(sigma_squared=4), 16)
    (PolyaDifference(shape=4, scale=10), DiscreteGaussianSum(count=16, sigma_squared=4))
    >>> summed(DiscreteLaplace(scale=10).share(1024), 1024)
    DiscreteLaplace(scale=10)

    Raises :class:`InvalidParameter` for a count below 1 and for a law without such a sum.
    """
    count = integer("count", count, at_least=1)
    if count == 1 and isinstance(noise, Noise):
        return noise
    match noise:
        case Skellam():
            return Skellam(variance=_times(noise, "variance", count))
        case PolyaDifference(scale=scale):
            shape = _times(noise, "shape", count)
            both = PolyaDifference(shape=shape, scale=scale)
            return DiscreteLaplace(scale=scale) if shape == 1 else both
        case DiscreteLaplace(scale=scale):
            return PolyaDifference(shape=count, scale=scale)
        case DiscreteGaussian(sigma_squared=sigma_squared):
            return DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
        case DiscreteGaussianSum(count=terms, sigma_squared=sigma_squared):
            return DiscreteGaussianSum(count=terms * count, sigma_squared=sigma_squared)
        case Binomial(trials=trials, probability=probability):
            return Binomial(trials=trials * count, probability=probability)
        case Poisson():
            return Poisson(mean=_times(noise, "mean", count))
        case Polya(scale=scale):
            return Polya(shape=_times(noise, "shape", count), scale=scale)
    raise InvalidParameter("noise", noise, "must be a law whose sums are laws of dpcore")


def _times(noise: Noise, name: str, count: int) -> Fraction:
    return Fraction(noise.parameters[name]) * count
