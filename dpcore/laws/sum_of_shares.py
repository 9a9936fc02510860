r"""The law of a sum of independent draws, if dpcore implements it.

``summed`` is the inverse of ``share``: ``summed(noise.share(n), n)`` has the law of ``noise``. If
users drop out, the remaining noise is a sum of fewer shares. Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.noise import Additive, Noise
from dpcore.numbers.parameter import integer


def summed(noise: Noise, count: int) -> Noise:
    r"""Find the exact law of the sum of ``count`` independent draws of ``noise``.

    >>> summed(DiscreteLaplace(scale=10), 4), summed(DiscreteGaussian(sigma_squared=4), 16)
    (PolyaDifference(shape=4, scale=10), DiscreteGaussianSum(count=16, sigma_squared=4))
    >>> summed(DiscreteLaplace(scale=10).share(1024), 1024)
    DiscreteLaplace(scale=10)

    Raises :class:`InvalidParameter` if the count is below 1, or if dpcore does not implement the
    law of the sum.
    """
    count = integer("count", count, at_least=1)
    if count == 1 and isinstance(noise, Noise):
        return noise
    match noise:
        case DiscreteLaplace(scale=scale):
            return PolyaDifference(shape=count, scale=scale)
        case DiscreteGaussian(sigma_squared=sigma_squared):
            return DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
        case PolyaDifference(scale=scale) if noise.shape * count == 1:
            return DiscreteLaplace(scale=scale)
        case Additive():
            return noise.summed(count)
    raise InvalidParameter("noise", noise, "must be a law whose sums dpcore implements")
