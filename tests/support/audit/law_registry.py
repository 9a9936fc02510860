r"""Every law that the catalogue's tests know, from ``catalogue_laws`` and each ``laws_*.py`` here.

A file of laws gives ``LAWS``, a law a name (broken or twin), and where an entry's epsilon is
infinite although no outcome tells the worlds apart, ``GROWING``: for its name, the epsilon seen
within a window, as a function of its reach, which must grow by a step with each doubling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar

from tests.support.audit.catalogue_laws import Law

__all__ = ["FILES", "GROWING", "LAWS", "Growth", "gathered"]

Growth: TypeAlias = Callable[[int], Any]
_Kept = TypeVar("_Kept")

FILES: Final = (
    "catalogue_laws",
    *sorted(path.stem for path in Path(__file__).parent.glob("laws_*.py")),
)
r"""The files of laws by name, in the order in which they are read."""

_MODULES: Final = tuple(import_module(f"tests.support.audit.{name}") for name in FILES)


def gathered(tables: Iterable[Mapping[str, _Kept]]) -> dict[str, _Kept]:
    r"""All tables as one; a name that is given twice is refused, whatever it says.

    >>> gathered([{"count": 1}, {"sum": 2}])
    {'count': 1, 'sum': 2}
    """
    found: dict[str, _Kept] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        if twice:
            raise AssertionError(f"two files give a law to {sorted(twice)}")
        found.update(table)
    return found


def _tables(modules: Iterable[ModuleType], name: str) -> list[Any]:
    return [getattr(module, name, {}) for module in modules]


LAWS: Final[dict[str, Law]] = gathered(_tables(_MODULES, "LAWS"))
r"""One law a name, broken or twin."""

GROWING: Final[dict[str, Growth]] = gathered(_tables(_MODULES, "GROWING"))
r"""For an entry of infinite epsilon without a revealing outcome: the epsilon within a reach."""
