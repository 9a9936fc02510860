"""Tests of `dpcore.cli.files`: complete or unchanged files; removal of temporary files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpcore.cli import files
from dpcore.cli.files import check_writable, made_folder, read_text, write_whole
from dpcore.errors import InvalidParameter
from tests.support.dpcore.mutants import rewired
from tests.support.run_command import python


def gone() -> int:
    """Return the id of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_temporary_files_of_killed_processes_are_removed_by_the_next_write(tmp_path: Path) -> None:
    dead, alive = gone(), os.getppid()
    kept = [
        f".rows.json.{alive}.abcd_123", f".other.{dead}.abcd_123", ".rows.json",
        ".rows.json.mine", f".rows.json.{dead}.abc",
    ]  # fmt: skip
    for name in (f".rows.json.{dead}.abcd_123", *kept):
        (tmp_path / name).touch()
    write_whole("--output", tmp_path / "rows.json", "{}")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "rows.json"}
    # The twin also removes the files of processes that still run.
    rewired(files._sweep, _runs=lambda process: False)(tmp_path / "rows.json")
    assert not (tmp_path / kept[0]).exists()


def test_a_dash_is_not_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameter, match="--output = -: must be a file"):
        check_writable("--output", Path("-"))
    check_writable("--output", Path("--"))
    with (
        pytest.raises(InvalidParameter, match="--output = -: must be a folder"),
        made_folder("--output", Path("-")),
    ):
        pytest.fail("a folder was made")
    with made_folder("--output", Path("--")):
        assert [*tmp_path.iterdir()] == [tmp_path / "--"]


KILLED = """
import os, signal
from pathlib import Path
from dpcore.cli import files
files.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
files.write_whole("--output", Path("it.svg"), "text")
"""


def test_kill_9_during_a_write_leaves_only_temporary_files(tmp_path: Path) -> None:
    python("-c", KILLED, folder=tmp_path)
    assert len([*tmp_path.iterdir()]) == 1
    write_whole("--output", tmp_path / "it.svg", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["it.svg"]
    assert (tmp_path / "it.svg").read_text() == "whole"


def failing(place: Path | None, *names: str) -> None:
    with made_folder("--output", place):
        for name in names:
            assert place is not None
            (place / name).touch()
        raise KeyError


def test_a_folder_created_for_a_failed_write_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    for place in (old, new, None):
        with pytest.raises(KeyError):
            failing(place)
    assert [*tmp_path.iterdir()] == [old]
    with pytest.raises(KeyError):
        failing(new, "result")
    assert (new / "result").exists()
    with pytest.raises(InvalidParameter, match="is not a folder"):
        failing(new / "result")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("loop", "Too many levels of symbolic links"),
        ("n" * 300, "File name too long"),
        ("folder", "is a directory"),
        ("nowhere/file", "there is no folder"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    before = {*tmp_path.iterdir()}
    with pytest.raises(InvalidParameter, match=reason):
        check_writable("--output", tmp_path / name)
    with pytest.raises(InvalidParameter):
        write_whole("--output", tmp_path / name, "text")
    assert {*tmp_path.iterdir()} == before


def test_a_link_is_followed_and_permissions_are_kept(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    for text in ("first", "second"):
        check_writable("--output", tmp_path / "link")
        write_whole("--output", tmp_path / "link", text)
        assert (tmp_path / "target").read_text(encoding="utf-8") == text
        (tmp_path / "target").chmod(0o600)
    write_whole("--output", tmp_path / "link", "third")
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_behind_a_link_is_written_to(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{writer}")
    check_writable("--output", tmp_path / "link")
    write_whole("--output", tmp_path / "link", "text")
    os.close(writer)
    with os.fdopen(reader) as file:
        assert file.read() == "text"


MOST = 1 << 10


def test_text_of_a_regular_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "text"
    for text in ("", "a\nb", "é" * (MOST // 2)):
        file.write_text(text, encoding="utf-8-sig" if text == "a\nb" else "utf-8")
        assert read_text("--x", str(file), most=MOST) == text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pipe", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("nothing", "No such file"),
        ("large", "must be at most 1,024 bytes long"),
        ("bytes", "is not UTF-8 text"),
        ("\0", "is not a valid file name"),
    ],
)
def test_a_path_that_is_not_a_regular_file_is_refused_at_once(
    tmp_path: Path, name: str, reason: str
) -> None:
    os.mkfifo(tmp_path / "pipe")  # the FIFO has no writer: opening it would block for ever
    (tmp_path / "large").write_bytes(b"x" * (MOST + 1))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidParameter, match=reason):
        read_text("--x", tmp_path / name, most=MOST)
