r"""Local reports: each user randomises an own value; frequencies are estimated from all reports.

``report`` defines what the mechanisms share, ``frequency_oracles`` defines and samples them,
``frequencies`` holds estimates with their intervals.
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
