r"""Import the file or module of a target, and look up its attribute.

Importing runs the user's code: whatever it raises is the target's failure, not a defect here.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from audit.errors import TargetFailed
from audit.outputs.guard import RAISED, failure
from dpcore.command.packages import clash_of, package_names, prefer_own_packages
from dpcore.errors import InvalidParameter


def load(spelling: str) -> Any:
    r"""Import the object that ``module:name`` or ``file.py:name`` names."""
    path, _, attribute = spelling.rpartition(":")
    if not attribute or not path:
        raise InvalidParameter("target", spelling, "must be written module:callable")
    prefer_own_packages()
    module = _from_file(spelling, path) if path.endswith(".py") else _by_name(spelling, path)
    return _attribute(spelling, module, attribute)


@contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    # First while the target is imported, as for a script; last afterwards, for what it imports
    # later, so that its files never stand in front of a library's.
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _by_name(spelling: str, name: str) -> ModuleType:
    folder = Path.cwd()
    with _first_on_path(str(folder)):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
                _must_not_clash(spelling, name, folder)
                missing = f"no module named {error.name}: install it, or start dpcore in its folder"
                raise InvalidParameter("target", spelling, missing) from None
            raise _import_failed(spelling, error, folder) from error
        except RAISED as error:
            raise _import_failed(spelling, error, folder) from error


def _from_file(spelling: str, name: str) -> ModuleType:
    path = Path(name)
    if not path.is_file():
        raise InvalidParameter("target", spelling, f"there is no file {name}")
    # Its own name may be that of a library that is already here.
    own = f"audited_{path.stem}"
    spec = importlib.util.spec_from_file_location(own, path)
    if spec is None or spec.loader is None:
        raise InvalidParameter("target", spelling, f"{name} is not a Python file")
    folder = path.resolve().parent
    source = b""
    with suppress(OSError):  # the import says what is wrong with it
        source = path.read_bytes()
    if clash := clash_of(folder, source):
        raise _clashes(spelling, folder, clash)
    module = importlib.util.module_from_spec(spec)
    with _first_on_path(str(folder)):
        sys.modules[own] = module
        try:
            spec.loader.exec_module(module)
        except RAISED as error:
            del sys.modules[own]
            raise _import_failed(spelling, error, folder) from error
    return module


def _clashes(spelling: str, folder: Path, clash: str) -> InvalidParameter:
    reason = f"{folder / clash} has the name of a package of dpcore: rename it and its imports"
    return InvalidParameter("target", spelling, reason)


def _must_not_clash(spelling: str, module: str, folder: Path) -> None:
    if module.partition(".")[0] in package_names() and (clash := clash_of(folder)):
        raise _clashes(spelling, folder, clash)


def _import_failed(spelling: str, error: BaseException, folder: Path) -> TargetFailed:
    reason = f"{failure(spelling, error).reason} while it was imported"
    if isinstance(error, (ImportError, AttributeError)) and (clash := clash_of(folder)):
        reason += (
            f" ({folder / clash} has the name of a package of dpcore's, which is used instead)"
        )
    return TargetFailed(spelling, reason)


def _attribute(spelling: str, module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            _must_not_clash(spelling, module.__name__, Path.cwd())
            public = [name for name in dir(module) if callable(getattr(module, name))]
            close = difflib.get_close_matches(attribute, public, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidParameter("target", spelling, f"the module has no {attribute}{hint}")
        found = getattr(found, part)
    return found
