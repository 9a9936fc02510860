r"""Environments of their own for pinned packages: ``python -m venv`` and ``pip``.

Each is a folder below the cache directory, named after what is installed, and ready once it holds
a marker that is written last. Where packages come from is what pip is set up for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from dpcore.errors import DpcoreError

_MARKER: Final = "ready"
_PATIENCE: Final = 1800.0
_SHOWN: Final = 300
_OFFLINE: Final = "no matching distribution", "connection", "network", "resolution", "retries"


class EnvironmentFailed(DpcoreError):
    r"""The environment of an entry could not be made; nothing was audited. Exit code 3."""

    exit_code: ClassVar[int] = 3


def cache_folder() -> Path:
    r"""Where environments are made: ``dpcore/corpus`` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dpcore" / "corpus"


def suitable_python(newest: str | None) -> str:
    r"""A Python that is not newer than ``newest``: this one, or one that is on the path.

    >>> import sys
    >>> suitable_python(None) == sys.executable
    True

    Raises :class:`EnvironmentFailed` where there is none.
    """
    if newest is None or sys.version_info[:2] <= _version(newest):
        return sys.executable
    for minor in range(_version(newest)[1], 7, -1):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            return found
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    reason = f"needs Python {newest} or older: this is {mine}, and no older one is on the path"
    raise EnvironmentFailed(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    r"""What is installed, and on which Python: two entries that ask for the same share it.

    ``alone`` leaves out what the packages say that they depend on.
    """

    requires: tuple[str, ...]
    newest_python: str | None = None
    alone: bool = False

    def folder(self, cache: Path) -> Path:
        r"""Its folder, named after the first requirement and a digest of all."""
        version = "{}.{}".format(*sys.version_info[:2])
        text = "\n".join((version, f"{self.newest_python} {self.alone}", *self.requires))
        first = self.requires[0].replace("==", "-").replace("[", "-").replace("]", "")
        return cache / f"{first}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    def python(self, cache: Path) -> Path:
        return self.folder(cache) / "bin" / "python"

    def make(self, cache: Path) -> Path:
        r"""Make it, unless it was made before; its Python.

        Raises :class:`EnvironmentFailed`, and leaves nothing behind.
        """
        folder = self.folder(cache)
        if (folder / _MARKER).is_file():
            return self.python(cache)
        base = suitable_python(self.newest_python)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._install(folder, base)
            (folder / _MARKER).touch()
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise EnvironmentFailed(f"{folder}: {error.strerror or error}") from None
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return self.python(cache)

    def _install(self, folder: Path, base: str) -> None:
        # Our own pip serves an environment without one: making it takes a tenth of the time.
        outside = importlib.util.find_spec("pip") is not None
        _run("venv", [base, "-m", "venv", *(["--without-pip"] if outside else []), str(folder)])
        inside = str(folder / "bin" / "python")
        pip = (
            [sys.executable, "-m", "pip", "--python", inside] if outside else [inside, "-m", "pip"]
        )
        quiet = ["--quiet", "--no-compile", "--disable-pip-version-check", "--no-input"]
        if self.alone:
            quiet.append("--no-deps")
        _run(", ".join(self.requires), [*pip, "install", *quiet, *self.requires])


@contextmanager
def made(cache: Path, *, keep: bool) -> Iterator[Callable[[Environment], Path]]:
    r"""Makes environments below ``cache``; removes at the end those it made, unless ``keep``."""
    own: list[Path] = []

    def make(environment: Environment) -> Path:
        folder = environment.folder(cache)
        if not (folder / _MARKER).is_file():
            own.append(folder)
        return environment.make(cache)

    try:
        yield make
    finally:
        for folder in [] if keep else own:
            shutil.rmtree(folder, ignore_errors=True)


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _run(what: str, command: Sequence[str]) -> None:
    # Neither our own environment's variables nor a terminal: pip must not ask.
    told = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
            env=told,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFailed(f"{what}: not installed within {_PATIENCE:g} s") from None
    if done.returncode == 0:
        return
    said = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("ERROR")] or said or ["it said nothing"]
    words = " ".join(errors[0].removeprefix("ERROR:").split())[:_SHOWN]
    hint = ""
    if any(word in done.stderr.lower() for word in _OFFLINE):
        hint = "; is a package registry within reach?"
    raise EnvironmentFailed(f"{what} could not be installed: {words}{hint}")
