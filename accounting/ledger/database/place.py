r"""Where an SQLite ledger lies: in the folder it was made in, under one name, for its owner alone.

SQLite names the log and the locks of a file after its path. One file that is reached through two
folders would have two of each, and two processes would both spend the whole budget. So a file that
is mounted alone is refused, and so is one that lies in another folder than the one that it was made
in or adopted into: the file ``<name>-home`` beside it says which ledger lives here, and in which
folder. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from accounting.ledger.errors import LedgerUnavailable

__all__ = [
    "HOMELESS",
    "PRIVATE",
    "bring_to_disk",
    "home_of",
    "home_path",
    "identity",
    "made_private",
    "refuse_mounted",
    "settle_in",
]

PRIVATE: Final = 0o600
"""The mode of every file of a ledger: its owner reads and writes it, nobody else does."""

HOMELESS: Final = (
    "is not in the folder it was made in: it was moved, copied or restored, or is mounted without "
    "its folder; use it where it was made, or, if nobody uses it there any more: dpcore ledger "
    "adopt --db FILE"
)


def identity(path: Path, where: str) -> tuple[int, int] | None:
    r"""Device and inode of the file, or None where there is none.

    Raises :class:`LedgerUnavailable` for a file with a second name.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    if found.st_nlink > 1:
        raise LedgerUnavailable(
            where, "has a second name, a hard link: each would have a log of its own"
        )
    return found.st_dev, found.st_ino


def refuse_mounted(path: Path, where: str) -> None:
    r"""Refuse a file that is a mount point by itself, with :class:`LedgerUnavailable`.

    Where a system does not tell its mounts nothing is learnt here: :func:`home_of` decides.
    """
    real = path.resolve()
    mounts = [_mount_of(each) for each in (real, real.parent)]
    if None not in mounts and mounts[0] != mounts[1]:
        raise LedgerUnavailable(
            where, "is mounted without its folder, and would have a second log: mount the folder"
        )


def _mount_of(path: Path) -> str | None:
    # O_PATH, because closing an ordinary descriptor of the file would drop SQLite's locks on it.
    opened = getattr(os, "O_PATH", None)
    if opened is None:
        return None
    try:
        handle = os.open(path, opened | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        told = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii")
    except OSError:
        return None
    finally:
        os.close(handle)
    return next((line for line in told.splitlines() if line.startswith("mnt_id:")), None)


def home_path(path: Path) -> Path:
    r"""The file that says which ledger lives here."""
    real = path.resolve()
    return real.with_name(f"{real.name}-home")


def home_of(path: Path) -> str:
    r"""The identity of the ledger that lives in this place; "" where none does.

    The folder is known by its inode, which lasts as long as it does. Its device does not: numbers
    of devices are given anew when a machine starts.
    """
    home = home_path(path)
    try:
        ledger, folder = home.read_text(encoding="ascii").split()
        return ledger if folder == str(home.parent.stat().st_ino) else ""
    except (OSError, ValueError):
        return ""


def settle_in(path: Path, ledger: str) -> None:
    r"""Write, on the disk when this returns, that the ledger of this identity lives here."""
    home = home_path(path)
    partial = home.with_name(f"{home.name}.new")
    with suppress(FileNotFoundError):
        partial.unlink()
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        os.write(handle, f"{ledger} {home.parent.stat().st_ino}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    partial.replace(home)
    bring_to_disk(home.parent)


def bring_to_disk(path: Path, how: int = os.O_RDONLY) -> None:
    r"""Return when a file, or the names in a folder, are on the disk; ``how`` it is opened."""
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def made_private(path: Path) -> None:
    r"""An empty file at ``path``, if there is none, before SQLite makes it for everybody to read.

    Its log and the index of that take the mode of the file. A file with something in it keeps the
    mode that its owner gave it.
    """
    try:
        # Not opened: closing it would drop the locks of a thread that has it open by then.
        os.mknod(path, PRIVATE | stat.S_IFREG)
    except PermissionError:
        # A system on which only root makes nodes; or no right to the folder, which SQLite tells.
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
    except FileExistsError:
        with suppress(OSError):
            if not path.stat().st_size:
                path.chmod(PRIVATE)
    except (OSError, ValueError):
        return
