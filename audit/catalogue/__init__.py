r"""Broken mechanisms, each with a correct twin: an audit must refute the one and not the other.

Every entry is a realistic error. To add one, write it in the module of its topic, with its twin and
the law that proves its epsilon (tests/audit/catalogue/test_catalogue.py requires both); the numbers
are those of the catalogue in the audit chapter.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from audit.catalogue.entry import Entry, Layer, Runnable, Subject, Twin

if TYPE_CHECKING:
    ENTRIES: tuple[Entry, ...]

__all__ = ["ENTRIES", "Entry", "Layer", "Runnable", "Subject", "Twin", "find"]

_MODULES: Final = (
    "noise", "randomness", "selection", "randomised_response", "composition", "protocols", "papers",
)  # fmt: skip


@cache
def _entries() -> tuple[Entry, ...]:
    # Read when they are first asked for: an audit of code of your own needs none of them.
    modules = [import_module(f"audit.catalogue.{name}") for name in _MODULES]
    found = (entry for module in modules for entry in module.ENTRIES)
    return tuple(sorted(found, key=lambda entry: entry.number))


def __getattr__(name: str) -> Any:
    # ``ENTRIES``: all entries, in the order of their numbers.
    if name == "ENTRIES":
        return _entries()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> Entry | None:
    r"""The entry with this name.

    >>> entry = find("half-scale")
    >>> entry.epsilon, entry.true_epsilon.lower, find("no-such-slip")
    (Fraction(1, 1), Fraction(2, 1), None)
    """
    return next((entry for entry in _entries() if entry.name == name), None)
