r"""The database address of a ledger, and the location of an SQLite file in one private folder.

SQLite names the log and the locks of a file after its path. A file that is reached through two
folders would have two of each, and two processes would both spend the whole budget. So a file that
is mounted without its folder is refused, and so is a file in another folder than the one in which
it was created or adopted: the file ``<name>-home`` next to it records which ledger lives here, and
in which folder. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from accounting.ledger.errors import LedgerUnavailable
from dpcore.errors import InvalidParameter

PRIVATE: Final = 0o600
"""The mode of every file of a ledger: only its owner may read and write it."""

HOMELESS: Final = (
    "is not in the folder where it was created: it was moved, copied or restored, or is mounted "
    "without its folder; use it there, or, if nobody still uses it there, run dpcore ledger "
    "adopt --db FILE"
)
_KINDS: Final = "must be a path, sqlite:///path or postgresql://user@host/database"


def address_of(url: object) -> URL:
    r"""Parse a path or a URL."""
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str):
        raise InvalidParameter("url", url, _KINDS)
    scheme, split, rest = url.partition("://")
    printed = f"{scheme}://..." if rest else url
    if not url.strip() or not url.isprintable():
        raise InvalidParameter("url", ascii(printed), _KINDS)
    try:
        address = make_url(url) if split else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError):
        raise InvalidParameter("url", printed, _KINDS) from None
    if address.drivername in ("sqlite", "sqlite+pysqlite"):
        if address.database in (None, "", ":memory:"):
            raise InvalidParameter("url", printed, "must be a file, not in memory")
        if address.host or address.username or address.query:
            # For example, nolock=1 would let two processes charge simultaneously.
            raise InvalidParameter("url", printed, f"{_KINDS}, without options")
        return address
    if address.drivername in ("postgresql", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise InvalidParameter(
                "url", printed, "needs psycopg: pip install 'dpcore[postgresql]'"
            )
        return address.set(drivername="postgresql+psycopg")
    raise InvalidParameter("url", printed, _KINDS)


def where_of(address: URL) -> str:
    r"""The database's name for messages, without secrets."""
    if is_file(address):
        return address.database or ""
    hosts = address.query.get("host", "")
    host = address.host or (hosts if isinstance(hosts, str) else ",".join(hosts))
    return f"postgresql://{host}/{address.database or ''}"


def is_file(address: URL) -> bool:
    r"""Whether the address is an SQLite file."""
    return address.get_backend_name() == "sqlite"


def identity(path: Path, where: str) -> tuple[int, int] | None:
    r"""The device and inode of the file, or None if there is no file.

    Raises :class:`LedgerUnavailable` for a folder, a device, a pipe or a file with two links.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise LedgerUnavailable(where, "is not a regular file")
    if found.st_nlink > 1:
        reason = "has a second hard link, which would have a separate write-ahead log"
        raise LedgerUnavailable(where, reason)
    return found.st_dev, found.st_ino


def refuse_mounted(path: Path, where: str) -> None:
    r"""Raise :class:`LedgerUnavailable` for a file that is itself a mount point.

    ``path`` must not contain links. If a system does not list its mounts, no path is refused here:
    :func:`home_of` decides.
    """
    mounts = [_mount_of(each) for each in (path, path.parent)]
    if None not in mounts and mounts[0] != mounts[1]:
        reason = "is mounted without its folder, so its log would be separate: mount the folder"
        raise LedgerUnavailable(where, reason)


def _mount_of(path: Path) -> bytes | None:
    # O_PATH is needed: closing an ordinary descriptor of the file would drop SQLite's locks on it.
    opened = getattr(os, "O_PATH", None)
    if opened is None:
        return None
    with suppress(OSError):
        handle = os.open(path, opened | os.O_CLOEXEC)
        try:
            lines = _read(f"/proc/self/fdinfo/{handle}")
        finally:
            os.close(handle)
        return next((line for line in lines.splitlines() if line.startswith(b"mnt_id:")), None)
    return None


def _read(path: str) -> bytes:
    # For a small file Path.read_bytes takes several times as long, and each charge reads three.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 1 << 12)
    finally:
        os.close(handle)


def home_path(path: Path) -> Path:
    r"""The marker file that records which ledger is at this location."""
    real = path.resolve()
    return real.with_name(f"{real.name}-home")


def home_of(path: Path) -> str:
    r"""The identity of the ledger recorded at this location; "" if there is none.

    ``path`` must not contain links. The folder is identified by its inode, which is constant. Its
    device may change: device numbers are reassigned when a machine starts.
    """
    try:
        ledger, folder = _read(f"{path}-home").decode("ascii").split()
        return ledger if folder == str(path.parent.stat().st_ino) else ""
    except (OSError, ValueError):
        return ""


def settle_in(path: Path, ledger: str) -> None:
    r"""Record durably that the ledger of this identity is at this location."""
    home = home_path(path)
    partial = home.with_name(f"{home.name}.new")
    partial.unlink(missing_ok=True)
    partial.touch(PRIVATE, exist_ok=False)
    partial.write_text(f"{ledger} {home.parent.stat().st_ino}\n", encoding="ascii")
    bring_to_disk(partial)
    partial.replace(home)
    bring_to_disk(home.parent)


def bring_to_disk(path: Path, how: int = os.O_RDONLY) -> None:
    r"""Flush a file, or the names in a folder, to disk; ``how`` are the flags to open it."""
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def made_private(path: Path) -> None:
    r"""Create an empty private file at ``path``, if missing: SQLite would let others read its own.

    The log and its index take the mode of the file. A non-empty file keeps the mode that its owner
    gave it. ``path`` must not contain links, and must not be a device or a pipe.
    """
    try:
        # The file is not opened: closing it would drop the locks of a thread that has it open.
        os.mknod(path, PRIVATE | stat.S_IFREG)
    except PermissionError:
        # Only root may create nodes here, or the folder is not writable: SQLite reports the latter.
        with suppress(OSError):
            path.touch(PRIVATE, exist_ok=False)
    except FileExistsError:
        with suppress(OSError):
            if not path.stat().st_size:
                path.chmod(PRIVATE)
    except (OSError, ValueError):
        return
