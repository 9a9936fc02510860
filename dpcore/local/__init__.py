r"""Frequency oracles in the local model: users randomise their values, the server estimates counts.

``report`` defines the common base class, ``frequency_oracles`` the mechanisms and their samplers,
``frequencies`` the estimates with their intervals.
"""

from dpcore.local.frequencies import Frequencies
from dpcore.local.frequency_oracles import (
    Encoding,
    HadamardResponse,
    LocalHashing,
    RandomisedResponse,
    SubsetSelection,
    UnaryEncoding,
)
from dpcore.local.report import LocalReport

__all__ = [
    "Encoding",
    "Frequencies",
    "HadamardResponse",
    "LocalHashing",
    "LocalReport",
    "RandomisedResponse",
    "SubsetSelection",
    "UnaryEncoding",
]
