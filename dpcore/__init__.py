r"""One release: exact noise and its law, alone or added by many users.

The public names of dpcore; each is documented where it is defined. Protocols are run over the
functionalities of ``dpcore.aggregation`` by ``dpcore.protocol_run``.
"""

from dpcore.binomial import Binomial
from dpcore.discrete_gaussian import DiscreteGaussian
from dpcore.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.enclosure import Enclosure
from dpcore.encoding import FixedPoint
from dpcore.errors import DpcoreError, InvalidParameter, PrecisionExhausted, Unrepresentable
from dpcore.mechanism import Mechanism, Norm, Relation, Release, Scope, Sensitivity, Unit
from dpcore.noise import Divisible, Noise
from dpcore.poisson import Poisson
from dpcore.polya import Polya
from dpcore.polya_difference import PolyaDifference
from dpcore.protocol import AggregatedSum, CentralSum, LocalSum, ShuffledPure
from dpcore.rng import Rng, SeededRng, SystemRng
from dpcore.shuffled_bits import BinaryShuffle, VectorShuffle
from dpcore.sizing import size_protocol
from dpcore.skellam import Skellam
from dpcore.spelling import read_noise, write_noise
from dpcore.summed import summed

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
    "InvalidParameter",
    "LocalSum",
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
    "Skellam",
    "SystemRng",
    "Unit",
    "Unrepresentable",
    "VectorShuffle",
    "read_noise",
    "size_protocol",
    "summed",
    "write_noise",
]
