r"""Lazy imports of the public names of a package, and of modules of other packages."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    r"""Return a ``__getattr__`` for ``package`` that imports names listed in ``if TYPE_CHECKING:``.

    ``dir`` of the package lists the names of its ``__all__``, imported or not, so that an
    interactive shell can complete them.

    >>> lazy_names("dpcore")("walk")
    Traceback (most recent call last):
    ...
    AttributeError: module 'dpcore' has no attribute 'walk'
    >>> lazy_names("dpcore")("Laplace")
    Traceback (most recent call last):
    ...
    AttributeError: module 'dpcore' has no attribute 'Laplace': did you mean DiscreteLaplace?
    """
    space = vars(sys.modules[package])
    space["__dir__"] = lambda: sorted({*space, *space["__all__"]})

    def load(name: str) -> Any:
        module = _imported(package).get(name)
        if module is None:
            near = get_close_matches(name, space["__all__"], n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        value = getattr(import_module(module), name)
        # Set in the package, so that the next access finds it and not a submodule of the same name.
        setattr(sys.modules[package], name, value)
        return value

    return load


@cache
def _imported(package: str) -> Mapping[str, str]:
    # The module of each name, read from the source, so that type checkers and lazy imports share
    # one list. pytest's loader for plugins, which rewrites assertions, has no get_source.
    module: Any = sys.modules[package]
    source = module.__loader__.get_data(module.__file__)
    blocks = (each for each in ast.parse(source).body if type(each) is ast.If)
    imports = (each for block in blocks for each in block.body if type(each) is ast.ImportFrom)
    return {alias.name: each.module or package for each in imports for alias in each.names}


class LazyModule:
    r"""A module that is imported when one of its names is first used.

    >>> special = LazyModule("scipy.special")
    >>> float(special.expit(0))
    0.5
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)  # the next use finds it directly
        return value
