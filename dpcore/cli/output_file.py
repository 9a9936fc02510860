r"""Output files of a command: checked before the computation, and written atomically.

A file is written under a temporary name in the same folder (a dot, the name and the process ID) and
then renamed. Temporary files of a killed process are removed when the file is next written.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.cli.input_file import file_errors
from dpcore.errors import InvalidParameter


def check_writable(option: str, path: Path | None) -> None:
    r"""Raise an error, before any computation, if the path cannot be written."""
    if path is None:
        return
    if str(path) == "-":
        raise InvalidParameter(
            option, "-", "must be a file: this option cannot write to standard output"
        )
    with file_errors(option, path):
        if path.is_dir():
            raise InvalidParameter(option, str(path), "is a directory")
        if path.exists() and not os.access(path, os.W_OK):
            raise InvalidParameter(option, str(path), "cannot be written to")
        if _special(path):
            return
        folder = _target(path).parent
        if not folder.is_dir():
            raise InvalidParameter(option, str(path), f"there is no folder {path.parent}")
        if not os.access(folder, os.W_OK):
            raise InvalidParameter(option, str(path), "is in a folder that cannot be written to")


@contextmanager
def made_folder(option: str, path: Path | None) -> Iterator[None]:
    r"""Create the folder if missing; remove a new folder if the block fails and it is empty."""
    if path is None:
        yield
        return
    if str(path) == "-":
        raise InvalidParameter(
            option, "-", "must be a folder: this option cannot write to standard output"
        )
    with file_errors(option, path):
        fresh = not path.exists()
        if not fresh and not path.is_dir():
            raise InvalidParameter(option, str(path), "is not a folder")
        path.mkdir(exist_ok=True)
    try:
        if not os.access(path, os.W_OK | os.X_OK):
            raise InvalidParameter(option, str(path), "cannot be written to")
        yield
    except BaseException:
        if fresh:
            with suppress(OSError):
                path.rmdir()
        raise


def write_whole(option: str, path: Path, content: str | bytes) -> None:
    r"""Write a file atomically: to a temporary path, which is then renamed.

    A symbolic link is followed and its target replaced; a device or a pipe is written to directly.
    """
    data = content.encode() if isinstance(content, str) else content
    with file_errors(option, path):
        if _special(path):
            path.write_bytes(data)
        else:
            _replace(_target(path), data)


def _target(path: Path) -> Path:
    # The file to which a symbolic link leads, even if it does not exist yet.
    with suppress(FileNotFoundError):
        return Path(os.path.realpath(path, strict=True))
    return path.resolve()


def _special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _sweep(path: Path) -> None:
    # Removes temporary files of processes that no longer run. If the folder cannot be listed, this
    # step is skipped.
    with suppress(OSError):
        names = re.compile(re.escape(f".{path.name}.") + r"(\d+)\.\w{8}")
        for place in path.parent.iterdir():
            found = names.fullmatch(place.name)
            if found and not _runs(int(found[1])):
                place.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _mode(path: Path) -> int:
    # The permissions of the file that is replaced, or those of a new file.
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _replace(path: Path, data: bytes) -> None:
    _sweep(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{os.getpid()}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
