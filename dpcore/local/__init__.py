r"""Frequency oracles in the local model: users randomise their values, the server estimates counts.

``local_report`` defines the common base class, ``randomizers`` the mechanisms and their samplers,
``frequency_estimates`` the estimates with their intervals, and ``shuffled`` the release of reports
in a random order.
"""

from dpcore.local.frequency_estimates import Frequencies
from dpcore.local.local_report import LocalReport
from dpcore.local.randomizers import (
    FAMILIES,
    Encoding,
    HadamardResponse,
    LocalHashing,
    RandomisedResponse,
    SubsetSelection,
    UnaryEncoding,
    report_from_json,
)
from dpcore.local.shuffled import ShuffledReports

__all__ = [
    "FAMILIES",
    "Encoding",
    "Frequencies",
    "HadamardResponse",
    "LocalHashing",
    "LocalReport",
    "RandomisedResponse",
    "ShuffledReports",
    "SubsetSelection",
    "UnaryEncoding",
    "report_from_json",
]
