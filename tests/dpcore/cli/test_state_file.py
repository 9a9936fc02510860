"""Tests of `dpcore.cli.state_file`: regular, locked, append-only files; system errors."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from dpcore.cli.files import require_plain
from dpcore.cli.state_file import StateFile, open_state
from dpcore.errors import InvalidParameter
from tests.support.dpcore.mutants import mutated
from tests.support.run_command import python


def test_appended_records_follow_existing_ones(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with open_state("--resume", path, owner="run") as file:
        assert path.read_bytes() == b""
        file.restart(b"one\n")
        file.append(b"two\n")
    with open_state("--resume", path, owner="run") as file:
        assert path.read_bytes() == b"one\ntwo\n"
        file.cut(4)
        file.append(b"three\n")
        assert path.read_bytes() == b"one\nthree\n"
    assert path.read_bytes() == b"one\nthree\n"


def test_a_state_file_is_private_from_its_creation_and_for_any_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Setting the mode after creation leaves a window.
    modes: list[int] = []
    really = os.open

    def watched(path: str | Path, flags: int, mode: int = 0o777) -> int:
        modes.append(mode)
        return really(path, flags, mode)

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(0)
    try:
        (tmp_path / "old").touch(0o666)
        for name in ("new", "old"):
            with open_state("--resume", tmp_path / name, owner="run") as file:
                assert (tmp_path / name).stat().st_mode & 0o777 == 0o600  # before any content
                assert modes.pop() == 0o600
                file.restart(b"one\n")
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/zero"])
def test_a_path_that_is_not_a_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidParameter, match="is not a regular file"):
        require_plain("--resume", tmp_path / name)
    with (
        pytest.raises(InvalidParameter, match="is not a regular file"),
        open_state("--resume", tmp_path / name, owner="run"),
    ):
        pytest.fail("the file was opened")


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with (
        open_state("--resume", path, owner="run"),
        pytest.raises(InvalidParameter, match="is in use by another run"),
        open_state("--resume", path, owner="run"),
    ):
        pass


def failing(path: Path, *pieces: bytes) -> None:
    with open_state("--resume", path, owner="run") as file:
        for piece in pieces:
            file.append(piece)
        raise KeyError


def test_a_refused_block_leaves_no_empty_file(tmp_path: Path) -> None:
    path, old = tmp_path / "state", tmp_path / "old"
    old.touch()
    for place in (path, old):
        with pytest.raises(KeyError):
            failing(place)
    assert [*tmp_path.iterdir()] == [old]
    with pytest.raises(KeyError):
        failing(path, b"kept")
    assert path.read_bytes() == b"kept"


FULL = """
import resource, signal
from dpcore.cli.state_file import open_state
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with open_state("--resume", "state", owner="run") as file:
        file.append(bytes(900))
        file.append(bytes(900))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_names_the_file_and_not_standard_output(tmp_path: Path) -> None:
    ran = python("-c", FULL, folder=tmp_path)
    assert ran.stdout == "InvalidParameter --resume = state: File too large\n"
    assert ran.stderr == ""
    assert (tmp_path / "state").stat().st_size == 1000


def test_an_unchecked_partial_write_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    path = tmp_path / "state"
    with open_state("--resume", path, owner="run") as file:
        file.append(b"12345678")
        assert path.read_bytes() == b"12345678"
        once = mutated(StateFile.append, "while left:", "if left:")
        once(file, b"abcdef")
        assert path.read_bytes() == b"12345678abc"


def test_a_file_that_was_removed_before_it_was_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its records would be lost with the file.
    path = tmp_path / "state"
    really = fcntl.flock

    def removed(handle: int, operation: int) -> None:
        path.unlink()
        really(handle, operation)

    def replaced(handle: int, operation: int) -> None:
        removed(handle, operation)
        path.touch()

    for late in (removed, replaced):
        monkeypatch.setattr(fcntl, "flock", late)
        with (
            pytest.raises(InvalidParameter, match=r"No such file|was replaced while"),
            open_state("--resume", path, owner="run"),
        ):
            pytest.fail("the file was opened")
    monkeypatch.undo()
    with open_state("--resume", path, owner="run") as file:
        file.append(b"one")
    assert path.read_bytes() == b"one"
