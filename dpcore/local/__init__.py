r"""Frequency oracles in the local model: the server estimates counts from randomised values.

``local_report`` defines the common base class, the estimates with their intervals, and the release
of reports in a random order. ``randomizers`` defines the mechanisms and their samplers.
"""

from dpcore.local.local_report import Frequencies, LocalReport, ShuffledReports
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
