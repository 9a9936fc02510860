"""Files that commands read: plain ones, of a bounded size, and a reason for every other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from audit.exact.law_file import read_law
from audit.targets.neighbours import read_pairs_file
from dpcore.command.input_file import read_text
from dpcore.errors import InvalidParameter

MOST = 1 << 10


def test_text_of_a_plain_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "text"
    for text in ("", "a\nb", "é" * (MOST // 2)):
        file.write_text(text, encoding="utf-8")
        assert read_text("--x", file, most=MOST) == text
    file.write_text("marked", encoding="utf-8-sig")
    assert read_text("--x", str(file), most=MOST) == "marked"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("link", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("nothing", "No such file"),
        ("large", "must have at most 1,024 bytes"),
        ("bytes", "is not text in UTF-8"),
        ("\0", "is not a valid file name"),
    ],
)
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: to open it would wait for ever
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"x" * (MOST + 1))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidParameter, match=reason):
        read_text("--x", tmp_path / name, most=MOST)


def test_readers_of_audits_wait_for_no_pipe(tmp_path: Path) -> None:
    for name in ("pairs.toml", "law.csv"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(InvalidParameter, match=r"toml: is not a regular file$"):
        read_pairs_file(tmp_path / "pairs.toml")
    with pytest.raises(InvalidParameter, match="is not a regular file"):
        read_law("P", str(tmp_path / "law.csv"))
