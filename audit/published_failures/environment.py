r"""Isolated environments for pinned packages: ``python -m venv`` and ``pip``.

Each environment is a folder in the cache directory, named after its packages. An environment is
complete if it contains a marker file, which is written last. Packages are installed from the index
for which pip is configured. An audit starts one process in the environment for all its runs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Self

from audit.errors import TargetFailed
from audit.outputs.output_parser import Outputs, join
from audit.targets.program import request_of
from audit.targets.target import Block, Target
from dpcore.errors import FAILED, DpcoreError

_MARKER: Final = "ready"
_INSTALL_SECONDS: Final = 1800.0
_SHOWN: Final = 300
_OFFLINE: Final = "no matching distribution", "connection", "network", "resolution", "retries"


class EnvironmentFailed(DpcoreError):
    r"""Raised if the environment of an entry cannot be created, so that no audit of it is run."""

    exit_code: ClassVar[int] = FAILED


def cache_folder() -> Path:
    r"""The folder for all environments: ``dpcore/corpus`` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dpcore" / "corpus"


def suitable_python(newest: str | None) -> str:
    r"""The path of a Python no newer than ``newest``: the current Python, or one on the PATH."""
    if newest is None or sys.version_info[:2] <= _version(newest):
        return sys.executable
    for minor in range(_version(newest)[1], 7, -1):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            return found
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    reason = f"needs Python {newest} or older, but this is {mine} and PATH contains no older one"
    raise EnvironmentFailed(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    r"""An environment, given by its packages and Python version.

    Entries with the same packages and Python version share an environment. ``alone`` installs the
    packages without their dependencies.
    """

    requires: tuple[str, ...]
    newest_python: str | None = None
    alone: bool = False

    def folder(self, cache: Path) -> Path:
        r"""The folder of the environment in ``cache``, named after a package and a digest."""
        version = "{}.{}".format(*sys.version_info[:2])
        text = "\n".join((version, f"{self.newest_python} {self.alone}", *self.requires))
        first = self.requires[0].replace("==", "-").replace("[", "-").replace("]", "")
        return cache / f"{first}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    def python(self, cache: Path) -> Path:
        return self.folder(cache) / "bin" / "python"

    def make(self, cache: Path) -> Path:
        r"""Create the environment if it is missing, and return the path of its interpreter."""
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
            raise EnvironmentFailed(
                f"{folder} could not be created: {error.strerror or error}"
            ) from None
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return self.python(cache)

    def _install(self, folder: Path, base: str) -> None:
        # Use our own pip: an environment without pip is made in a tenth of the time.
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
def environments(cache: Path, *, keep: bool) -> Iterator[Callable[[Environment], Path]]:
    r"""A context with a function that creates an environment and returns the path of its Python.

    The folder of an environment is in ``cache``. Unless ``keep`` is set, environments that were
    created in the context are removed at its end.
    """
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
    # Without PYTHON* variables and without a terminal, so that pip cannot prompt.
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INSTALL_SECONDS,
            check=False,
            env=variables,
        )
    except subprocess.TimeoutExpired:
        reason = f"{what} could not be installed within {_INSTALL_SECONDS:g} s"
        raise EnvironmentFailed(reason) from None
    if done.returncode == 0:
        return
    output = [line for line in done.stderr.splitlines() if line.strip()]
    errors = (
        [line for line in output if line.startswith("ERROR")] or output or ["it printed nothing"]
    )
    words = " ".join(errors[0].removeprefix("ERROR:").split())[:_SHOWN]
    hint = ""
    if any(word in done.stderr.lower() for word in _OFFLINE):
        hint = "; check that the package index can be reached"
    raise EnvironmentFailed(f"{what} could not be installed: {words}{hint}")


_SCRIPT: Final = Path(__file__).with_name("worker.py")
_ANSWER_SECONDS: Final = 300.0


class Worker:
    r"""A process that runs the code of an entry with the Python interpreter of an environment.

    The worker is a context manager; its process is stopped on exit.
    """

    def __init__(self, name: str, python: Path, code: str) -> None:
        self.name = name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        # Isolated from the working folder and from the packages of the caller.
        self._process = subprocess.Popen(
            [str(python), "-I", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._code = code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def begin(self) -> str | None:
        r"""Run the code of the entry; return the claim that the package computes, or None."""
        (line,) = self.ask({"code": self._code}, 1, None, _ANSWER_SECONDS)
        claimed = json.loads(line)["claimed"]
        return None if claimed is None else str(claimed)

    def ask(
        self, request: dict[str, Any], lines: int, label: str | None, seconds: float | None
    ) -> list[str]:
        r"""Send a request and return an answer of ``lines`` lines, or raise TargetFailed."""
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101 - both are pipes
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        most = _ANSWER_SECONDS if seconds is None else seconds
        limit = threading.Timer(most, end)
        limit.start()
        try:
            with suppress(OSError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            found = [self._process.stdout.readline() for _ in range(lines)]
        finally:
            limit.cancel()
        if found[-1].endswith("\n"):
            return [line.removesuffix("\n") for line in found]
        reason = "the process ended before it answered"
        if late.is_set():
            reason = f"the process gave no answer within {most:g} s"
        raise TargetFailed(self.name, f"{reason}{self._last_output()}", dataset=label)

    def _last_output(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        words = " ".join(self._errors.read().decode(errors="replace").split())
        return f": ...{words[-_SHOWN:]}" if words else "; it wrote nothing to standard error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed(Target):
    r"""A target that samples the mechanism of an entry in a running worker."""

    worker: Worker = field(compare=False, repr=False)
    lines: ClassVar[bool] = True
    limits_itself: ClassVar[bool] = True

    def draw(self, block: Block) -> Iterator[Outputs]:
        sides = [self._side(block, world) if block.sizes[world] else [] for world in (0, 1)]
        yield join(sides[0], sides[1], block.worlds, block.mixer)

    def _side(self, block: Block, world: int) -> list[str]:
        request = request_of(block, world)
        return self.worker.ask(request, block.sizes[world], "AB"[world], block.timeout)
