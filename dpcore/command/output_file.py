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

from dpcore.errors import InvalidParameter


def check_writable(option: str, path: Path | None) -> None:
    r"""Raise an error, before any computation, if the path cannot be written."""
    if path is None:
        return
    with _named(option, path):
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


def check_folder(option: str, path: Path | None) -> None:
    r"""Create the folder if missing; raise an error if it cannot be written to."""
    if path is None:
        return
    with _named(option, path):
        if path.exists() and not path.is_dir():
            raise InvalidParameter(option, str(path), "is not a folder")
        path.mkdir(exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise InvalidParameter(option, str(path), "cannot be written to")


@contextmanager
def made_folder(option: str, path: Path | None) -> Iterator[None]:
    r"""Check or create the folder; remove a new folder if the block fails and it is empty."""
    fresh = False
    if path is not None:
        with _named(option, path):
            fresh = not path.exists()
    check_folder(option, path)
    try:
        yield
    except BaseException:
        if fresh and path is not None:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def whole_picture(option: str, path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, renamed to ``path`` if the block succeeds."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    _sweep(path.parent, f".{path.stem}.", path.suffix)
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}"
        raise InvalidParameter(option, str(path), reason) from error
    finally:
        partial.unlink(missing_ok=True)


def write_whole(option: str, path: Path, text: str) -> None:
    r"""Write a file atomically: to a temporary path, which is then renamed.

    A symbolic link is followed and its target replaced; a device or a pipe is written to directly.
    """
    with _named(option, path):
        _write(path if _special(path) else _target(path), text)


@contextmanager
def _named(option: str, path: Path) -> Iterator[None]:
    # Errors of the file system name the option.
    try:
        yield
    except OSError as error:
        raise InvalidParameter(option, str(path), error.strerror or str(error)) from error


def _target(path: Path) -> Path:
    # The file to which a symbolic link leads, even if it does not exist yet.
    with suppress(FileNotFoundError):
        return Path(os.path.realpath(path, strict=True))
    return path.resolve()


def _special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _sweep(folder: Path, before: str, after: str) -> None:
    # Removes temporary files of processes that no longer run. If the folder cannot be listed, this
    # step is skipped.
    with suppress(OSError):
        names = re.compile(re.escape(before) + r"(\d+)(\.\w{8})?" + re.escape(after))
        for place in folder.iterdir():
            found = names.fullmatch(place.name)
            if found and (found[2] is None) == bool(after) and not _runs(int(found[1])):
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


def _write(path: Path, text: str) -> None:
    if _special(path):
        path.write_text(text, encoding="utf-8")
        return
    _sweep(path.parent, f".{path.name}.", "")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{os.getpid()}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
