r"""The command; by night every package is installed and judged, from empty environments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.corpus.entry import entries
from tests.support.audit.command import Shell


@pytest.mark.nightly
def test_every_entry_is_judged_as_it_should_be(audit: Shell, tmp_path: Path) -> None:
    answer = audit("corpus", "run", "--all", "--jobs", 2, "--cache", tmp_path / "cache", "--json")
    rows = json.loads(answer.out)["rows"]
    assert [row["name"] for row in rows if not row["right"]] == []
    assert len(rows) == len(entries())
    assert answer.code == 0
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "error: NAME: must be given, or --all"),
        (("--all", "opendp-threshold"), "error: --all: takes no names"),
        (("opendp-threshold", "--cache", "a-file"), "error: --cache = a-file: must be a folder"),
        (("opendp-threshold", "--cache", "a-file/in"), "error: --cache = a-file/in: must be a"),
    ],
)
def test_a_bad_option_is_named(
    audit: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    answer = audit("corpus", "run", *words)
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (2, "", 1)
    assert answer.err.startswith(said)
