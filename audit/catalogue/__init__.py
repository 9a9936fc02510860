r"""Broken mechanisms, each with its correct twin: what an audit must refute, and what it must not.

Every entry is one slip that was, or could have been, made in earnest. To add one, write it beside
its kin with its twin and the law that proves its epsilon (tests/audit/catalogue/test_catalogue.py
asks for both); numbers are those of the catalogue in the audit chapter.
"""

from __future__ import annotations

from typing import Final

from audit.catalogue import (
    composition,
    noise,
    papers,
    protocols,
    randomised_response,
    randomness,
    selection,
)
from audit.catalogue.entry import Entry, Layer, Runnable, Subject, Twin

__all__ = ["ENTRIES", "Entry", "Layer", "Runnable", "Subject", "Twin", "find"]

_MODULES: Final = (
    noise, randomness, selection, randomised_response, composition, protocols, papers,
)  # fmt: skip

ENTRIES: Final[tuple[Entry, ...]] = tuple(
    sorted(
        (entry for module in _MODULES for entry in module.ENTRIES), key=lambda entry: entry.number
    )
)
r"""All entries, in the order of their numbers."""


def find(name: str) -> Entry | None:
    r"""The entry of that name.

    >>> entry = find("half-scale")
    >>> entry.epsilon, entry.true_epsilon.lower, find("no-such-slip")
    (Fraction(1, 1), Fraction(2, 1), None)
    """
    return next((entry for entry in ENTRIES if entry.name == name), None)
