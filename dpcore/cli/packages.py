r"""The packages installed with dpcore, imported only from their own location.

The names are common, so a user's folder ``accounting`` or another distribution can shadow them,
and the import errors would look like a bug. The list of packages is read from the installation.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any, Final

from dpcore.errors import DpcoreError

_HOME: Final = Path(__file__).resolve().parents[2]
_OWN: Final = __name__.partition(".")[0]


class ShadowedPackage(DpcoreError):
    r"""Another module shadows a package of dpcore."""

    def __str__(self) -> str:
        name, reason = self.args
        return f"dpcore's own package {name}: {reason}"


@cache
def package_names() -> frozenset[str]:
    r"""The names of dpcore and of the packages installed with it."""
    try:
        points = distribution(_OWN).entry_points
    except PackageNotFoundError:
        return frozenset({_OWN})
    return frozenset({_OWN, *(point.value.partition(":")[0].partition(".")[0] for point in points)})


class _OwnPackageFinder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, _: Any = None) -> ModuleSpec | None:
        if path is not None or fullname not in package_names():
            return None
        _require_whole(fullname)
        return PathFinder.find_spec(fullname, [str(_HOME)])


_FINDER: Final = _OwnPackageFinder()


def prefer_own_packages() -> None:
    r"""Make imports of these names find dpcore's packages first, whatever ``sys.path`` is."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def require_own_packages() -> None:
    r"""Raise an error if another module shadows a package of dpcore, here or in a child process."""
    for name in sorted(package_names()):
        found = PathFinder.find_spec(name)
        if found is None:
            continue  # found in another way or not installed: the import itself reports this
        there = [found.origin] if found.origin else [*(found.submodule_search_locations or ())]
        where = Path(there[0]).resolve()
        if not where.is_relative_to(_HOME / name):
            raise ShadowedPackage(
                name,
                f"{where} shadows it; rename this file, or run the command dpcore from another "
                "folder, with a PYTHONPATH that does not include it",
            )


def _require_whole(name: str) -> None:
    # Two distributions with one package name overwrite each other's files, and pip does not warn.
    file = f"{name}/__init__.py"
    try:
        record = distribution(_OWN).read_text("RECORD") or ""
        present = (_HOME / file).read_bytes()
    except (OSError, PackageNotFoundError):
        return
    digest = base64.urlsafe_b64encode(hashlib.sha256(present).digest()).decode().rstrip("=")
    for line in record.splitlines():
        if line.startswith(f"{file},sha256=") and f"={digest}," not in line:
            others = sorted({*packages_distributions().get(name, ())} - {_OWN})
            raise ShadowedPackage(
                name,
                f"{_HOME / file} is not the file that dpcore installed; "
                + (f"{', '.join(others)} also installs this name: " if others else "")
                + "reinstall dpcore in an environment without the other package",
            )


def clash_of(folder: Path, source: bytes | None = None) -> str | None:
    r"""A module in ``folder`` with the name of a package of dpcore, or None."""
    wanted = package_names() if source is None else package_names() & {*_imported(source)}
    if folder.resolve() != _HOME:
        for name in sorted(wanted):
            if (folder / f"{name}.py").is_file():
                return f"{name}.py"
            if any((folder / name).glob("*.py")):
                return name
    return None


def _imported(source: bytes) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the import itself reports this
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
