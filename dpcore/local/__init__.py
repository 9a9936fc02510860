r"""Frequency oracles in the local model: the server estimates counts from randomised values.

``local_report`` defines the common base class, and the release of reports in a random order.
``randomizers`` defines the mechanisms and their samplers. ``estimated_counts`` defines the
estimates with their variance and intervals.
"""

from dpcore.local.estimated_counts import Frequencies
from dpcore.local.local_report import LocalReport, ShuffledReports
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
