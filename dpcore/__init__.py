r"""One release: exact noise and its law.

The public names of dpcore; each is documented where it is defined.
"""

from dpcore.discrete_gaussian import DiscreteGaussian
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.enclosure import Enclosure
from dpcore.errors import DpcoreError, InvalidParameter, PrecisionExhausted, Unrepresentable
from dpcore.mechanism import Mechanism, Norm, Relation, Release, Scope, Sensitivity, Unit
from dpcore.noise import Noise
from dpcore.rng import Rng, SeededRng, SystemRng
from dpcore.spelling import read_noise, write_noise

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DpcoreError",
    "Enclosure",
    "InvalidParameter",
    "Mechanism",
    "Noise",
    "Norm",
    "PrecisionExhausted",
    "Relation",
    "Release",
    "Rng",
    "Scope",
    "SeededRng",
    "Sensitivity",
    "SystemRng",
    "Unit",
    "Unrepresentable",
    "read_noise",
    "write_noise",
]
