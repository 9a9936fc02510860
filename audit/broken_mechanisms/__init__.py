r"""Broken mechanisms, each with a correct twin: an audit must refute the one and not the other.

Every entry is a realistic error. To add an entry, write it in the module of its topic, with its
twin and the law that proves its epsilon (tests/audit/broken_mechanisms/test_catalogue.py requires
both). Each entry has a fixed number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from audit.broken_mechanisms.catalogue_entry import Entry, Layer, Runnable, Subject, Twin

if TYPE_CHECKING:
    ENTRIES: tuple[Entry, ...]

__all__ = ["ENTRIES", "Entry", "Layer", "Runnable", "Subject", "Twin", "find", "find_subject"]

_MODULES: Final = (
    "noise", "randomness", "selection", "randomised_response", "composition", "protocols",
    "false_paper_claims",
)  # fmt: skip


def _each() -> Iterator[Entry]:
    # Import each module on demand, because audits of users' code need none of them.
    for name in _MODULES:
        yield from import_module(f"audit.broken_mechanisms.{name}").ENTRIES


@cache
def __getattr__(name: str) -> Any:
    # ``ENTRIES``: all entries, in the order of their numbers.
    if name == "ENTRIES":
        return tuple(sorted(_each(), key=lambda entry: entry.number))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> Entry | None:
    r"""The catalogue entry with this name, or None.

    >>> entry = find("half-scale")
    >>> entry.epsilon, entry.true_epsilon.lower, find("no-such-slip")
    (Fraction(1, 1), Fraction(2, 1), None)
    """
    return next((entry for entry in _each() if entry.name == name), None)


def find_subject(name: str) -> Subject | None:
    r"""The catalogue entry or correct twin with this name, or None.

    >>> find_subject("count"), find_subject("no-such-slip")
    (Twin(name='count', ...), None)
    """
    subjects = (subject for entry in _each() for subject in (entry, entry.twin))
    return next((subject for subject in subjects if subject.name == name), None)
