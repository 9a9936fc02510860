r"""Exact integer noise, its probability laws, and private releases by one party or many users.

This package exports the public names of dpcore. Each name is documented in the module that defines
it, and is imported on first use.
"""

from typing import TYPE_CHECKING

from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from dpcore.errors import (
        DpcoreError,
        InvalidParameter,
        PrecisionExhausted,
        Undecided,
        Unrepresentable,
    )
    from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
    from dpcore.laws.discrete_laplace import DiscreteLaplace
    from dpcore.laws.poisson_and_binomial import Binomial, Poisson
    from dpcore.laws.polya import Polya, PolyaDifference
    from dpcore.laws.skellam import Skellam
    from dpcore.laws.staircase import Staircase
    from dpcore.laws.sum_of_shares import summed
    from dpcore.mechanism import Mechanism, Norm, Relation, Release, Scope, Sensitivity, Unit
    from dpcore.noise import Divisible, Noise
    from dpcore.numbers.enclosure import Enclosure
    from dpcore.parse_noise import read_noise, write_noise
    from dpcore.protocols.fixed_point_encoding import FixedPoint
    from dpcore.protocols.noisy_sums import (
        AggregatedSum,
        CentralSum,
        LocalSum,
        ShuffledPure,
        size_protocol,
    )
    from dpcore.protocols.run_protocol import IdealAggregation, Shuffler, run
    from dpcore.protocols.shuffled_bits import BinaryShuffle, VectorShuffle
    from dpcore.sampling.rng import Rng, SeededRng, SystemRng
    from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation

__all__ = [
    "AggregatedSum",
    "BinaryShuffle",
    "Binomial",
    "CentralSum",
    "DiscreteGaussian",
    "DiscreteGaussianSum",
    "DiscreteLaplace",
    "Divisible",
    "DpcoreError",
    "Enclosure",
    "FixedPoint",
    "IdealAggregation",
    "InvalidParameter",
    "LocalSum",
    "MaskedAggregation",
    "Mechanism",
    "Noise",
    "Norm",
    "Poisson",
    "Polya",
    "PolyaDifference",
    "PrecisionExhausted",
    "Relation",
    "Release",
    "Rng",
    "Scope",
    "SeededRng",
    "Sensitivity",
    "ShuffledPure",
    "Shuffler",
    "Skellam",
    "Staircase",
    "SystemRng",
    "Undecided",
    "Unit",
    "Unrepresentable",
    "VectorShuffle",
    "read_noise",
    "run",
    "size_protocol",
    "summed",
    "write_noise",
]

__getattr__ = lazy_names(__name__)
