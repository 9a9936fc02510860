r"""By night: every package of the corpus is installed and judged, from empty environments."""

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
