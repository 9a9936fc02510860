r"""Import a user's file or module, and look up an attribute.

Importing runs the user's code; the caller converts any exception of that code to its own error.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dpcore.cli.packages import clash_of, package_names, prefer_own_packages
from dpcore.errors import InvalidParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    r"""User code that is given by its name, ``spelling``, as the value of ``argument``.

    Error messages refer to ``argument``.
    ``prefix`` starts the module name of a file, because the file may have the name of a library.
    ``failed`` converts an exception during the import, with the folder of the code, to an error.
    """

    argument: str
    spelling: str
    prefix: str
    failed: Callable[[BaseException, Path], Exception]

    def load(self, name: str) -> Any:
        r"""Import the object ``name``, written ``module:name`` or ``file.py:name``."""
        place, _, attribute = name.rpartition(":")
        if not attribute or not place:
            raise self.refused("must be written module:callable")
        return self._attribute(self.module(place), attribute)

    def module(self, place: str) -> ModuleType:
        r"""Import a module, or a file if ``place`` ends with .py."""
        prefer_own_packages()
        return self._from_file(Path(place)) if place.endswith(".py") else self._by_name(place)

    def refused(self, reason: str) -> InvalidParameter:
        r"""The error for code that cannot be used."""
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
