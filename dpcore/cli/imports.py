r"""Import dpcore's packages from their own location only, and import a user's file or module.

The names of the packages are common, so a user's folder ``accounting`` or another distribution can
shadow them, and the import errors would look like a bug in dpcore. The list of packages is read
from the installation's metadata. Loading :class:`UserCode` runs the user's code.
"""

from __future__ import annotations

import ast
import base64
import difflib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dpcore.errors import DpcoreError, InvalidParameter

_HOME: Final = Path(__file__).resolve().parents[2]
_OWN: Final = __name__.partition(".")[0]


class ShadowedPackage(DpcoreError):
    r"""Raised if another module shadows a package of dpcore."""

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
    r"""Make imports of dpcore's packages find the installed ones, for any value of ``sys.path``."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def require_own_packages() -> None:
    r"""Raise an error if a module on the import path shadows a package of dpcore.

    Such a module would be imported instead of the package, here or in a child process.
    """
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
                "folder, with a PYTHONPATH that does not contain the folder of this file",
            )


def _require_whole(name: str) -> None:
    # Two distributions that install the same package overwrite each other's files; pip gives no
    # warning.
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
    r"""Return the name of a file or folder in ``folder`` that shadows a package of dpcore, or None.

    If the source of a module is given as ``source``, only packages that it imports are considered.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    r"""Import the code that a user names in the command-line option ``argument``.

    ``spelling`` is the text that the user typed; error messages contain the option and this text. A
    file is imported under a module name that starts with ``prefix``, because the file may be named
    like a library. If the import raises an exception, ``failed`` is called with the exception and
    the folder of the code, and returns the error to raise.
    """

    argument: str
    spelling: str
    prefix: str
    failed: Callable[[BaseException, Path], Exception]

    def load(self, name: str) -> Any:
        r"""Import the object ``name``, written ``module:name`` or ``file.py:name``."""
        place, _, attribute = name.rpartition(":")
        if not attribute or not place or place.endswith(":"):
            raise self.refused("must have the form module:callable or file.py:callable")
        return self._attribute(self.module(place), attribute)

    def module(self, place: str) -> ModuleType:
        r"""Import a module, or a file if ``place`` ends with .py."""
        prefer_own_packages()
        return self._from_file(Path(place)) if place.endswith(".py") else self._by_name(place)

    def refused(self, reason: str) -> InvalidParameter:
        r"""The error that the code cannot be used, for the given reason."""
        return InvalidParameter(self.argument, self.spelling, reason)

    def _by_name(self, name: str) -> ModuleType:
        folder = Path.cwd()
        with _first_on_path(str(folder)):
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                lost = error.name
                if lost is not None and (name == lost or name.startswith(f"{lost}.")):
                    self._must_not_clash(name, folder)
                    missing = f"no module named {lost}: install it, or run dpcore in its folder"
                    raise self.refused(missing) from None
                raise self.failed(error, folder) from error
            except BaseException as error:
                raise self.failed(error, folder) from error

    def _from_file(self, path: Path) -> ModuleType:
        if not path.is_file():
            raise self.refused(f"there is no file {path}")
        own = f"{self.prefix}_{path.stem}"
        spec = importlib.util.spec_from_file_location(own, path)
        if spec is None or spec.loader is None:
            raise self.refused(f"{path} is not a Python file")
        folder = path.resolve().parent
        source = b""
        with suppress(OSError):  # the import reports the error
            source = path.read_bytes()
        if clash := clash_of(folder, source):
            raise self._clashes(folder, clash)
        module = importlib.util.module_from_spec(spec)
        with _first_on_path(str(folder)):
            sys.modules[own] = module
            try:
                spec.loader.exec_module(module)
            except BaseException as error:
                del sys.modules[own]
                raise self.failed(error, folder) from error
        return module

    def _attribute(self, module: ModuleType, attribute: str) -> Any:
        found: Any = module
        for part in attribute.split("."):
            if not hasattr(found, part):
                self._must_not_clash(module.__name__, Path.cwd())
                public = [name for name in dir(module) if callable(getattr(module, name))]
                close = difflib.get_close_matches(attribute, public, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise self.refused(f"the module has no {attribute}{hint}")
            found = getattr(found, part)
        return found

    def _must_not_clash(self, module: str, folder: Path) -> None:
        if module.partition(".")[0] in package_names() and (clash := clash_of(folder)):
            raise self._clashes(folder, clash)

    def _clashes(self, folder: Path, clash: str) -> InvalidParameter:
        reason = f"{folder / clash} has the name of a package of dpcore: rename it and its imports"
        return self.refused(reason)


@contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    # The folder is first on the path while the code is imported, as for a script, and last
    # afterwards, for later imports, so that its files do not shadow a library.
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
