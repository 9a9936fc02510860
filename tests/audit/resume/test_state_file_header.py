"""Tests of the header of a state file: features by their source files, and results of a search."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from audit.features.parse_feature import Feature, read_feature
from audit.resume.checkpoint import SCHEMA, header, resume, stored_search
from audit.runs.draw_plan import Plan
from audit.search.search import Candidate, SearchResult
from audit.targets.target_syntax import read_target
from dpcore.cli.state_file import next_record, started
from dpcore.errors import InvalidParameter
from tests.support.audit import plans

TARGET = read_target("count")
FOUND = SearchResult(
    space="integer:low=0,high=1",
    pair=(0, 1),
    runs=512,
    tried=(
        Candidate(pair=(0, 1), runs=256, score=0.5),
        Candidate(pair=([1], None), runs=9, score=-1.0),
    ),
).to_json()


plan = partial(plans.plan, runs=600)


def opened(path: Path, planned: Plan | None = None, search: dict[str, Any] | None = None) -> None:
    with resume(path, TARGET, planned or plan(), search):
        pass


def test_a_feature_whose_file_changed_is_refused_by_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped(spelling: str, text: str) -> Plan:
        (here / "maps.py").write_text(text)
        for name in ("maps", "audited_maps"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return plan(features=(read_feature("sign"), read_feature(spelling)))

    one, other = "def mine(x): return x > 0\n", "def mine(x): return x > 9\n"
    for i, name in enumerate(("maps.py:mine", "maps:mine", "sign+maps.py:mine")):
        path = here / f"state{i}"
        opened(path, mapped(name, one))
        opened(path, mapped(name, one))
        with pytest.raises(
            InvalidParameter, match="was started with a different version"
        ) as caught:
            opened(path, mapped(name, other))
        assert f"of the file of feature {name}: runs of two versions" in caught.value.reason
        opened(path, mapped(name, one))


def test_a_map_that_a_module_imports_is_read_where_it_is_written(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "shown.py").write_text("from written import mine\n")
    monkeypatch.syspath_prepend(here)

    def mapped(text: str) -> Plan:
        (here / "written.py").write_text(text)
        for name in ("shown", "written"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return plan(features=(read_feature("shown:mine"),))

    opened(here / "state", mapped("def mine(x): return 1\n"))
    with pytest.raises(
        InvalidParameter, match="a different version of the file of feature shown:mine"
    ):
        opened(here / "state", mapped("def mine(x): return 2\n"))


def test_features_without_a_file(here: Path) -> None:
    for feature in (read_feature("math:isnan"), Feature(name="mine", apply=lambda x: x)):
        opened(here / feature.name, plan(features=(feature,)))
        opened(here / feature.name, plan(features=(feature,)))
    (here / "maps.py").write_text("def mine(x): return x\n")
    gone = plan(features=(read_feature("maps.py:mine"),))
    (here / "maps.py").unlink()
    with pytest.raises(InvalidParameter, match=r"feature maps\.py:mine: maps\.py: No such file"):
        opened(here / "state", gone)


def test_a_search_is_kept_and_compared(tmp_path: Path) -> None:
    path, plain = tmp_path / "state", tmp_path / "plain"
    assert stored_search(path) is None
    opened(path, search=FOUND)
    opened(plain)
    assert stored_search(path) == FOUND
    assert stored_search(plain) is None
    opened(path, search=stored_search(path))
    for other in (None, {**FOUND, "space": "integer:low=0,high=2"}, {**FOUND, "runs": 3}):
        with pytest.raises(InvalidParameter, match="was started with another search: "):
            opened(path, search=other)
    with pytest.raises(InvalidParameter, match="was started with another search: null in the file"):
        opened(plain, search=FOUND)


NO_SEARCHES: list[Any] = [
    3, [], "x", {}, {**FOUND, "pair": [1]}, {**FOUND, "runs": "3"}, {**FOUND, "space": None},
    {**FOUND, "tried": [3]}, {**FOUND, "tried": [{"pair": [1, 2], "runs": 3}]},
    {**FOUND, "tried": [{"pair": [1, 2], "runs": 3, "score": None}]},
]  # fmt: skip


@pytest.mark.parametrize("held", NO_SEARCHES, ids=map(str, range(len(NO_SEARCHES))))
def test_a_search_that_is_none_is_refused(held: Any, tmp_path: Path) -> None:
    fields = {**json.loads(header(tmp_path, TARGET, plan(), None)), "search": held}
    path = tmp_path / "state"
    path.write_bytes(next_record(started(SCHEMA), json.dumps(fields).encode())[0])
    with pytest.raises(InvalidParameter, match="is damaged or forged: its search result"):
        stored_search(path)
