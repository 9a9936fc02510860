r"""Load the names of a package when they are first asked for, so that importing it costs little."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    r"""The ``__getattr__`` of a package: ``places`` says in which of its modules each name is.

    >>> late_names("dpcore", {"run": "protocols.run"})("walk")
    Traceback (most recent call last):
    ...
    AttributeError: module 'dpcore' has no attribute 'walk'
    """

    def found(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{places[name]}"), name)
        # Bound there, so that the next look finds it, and a submodule of the same name does not.
        setattr(sys.modules[package], name, value)
        return value

    return found
