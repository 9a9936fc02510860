"""Tests of the header of a state file: features by their source files, and results of a search."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
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
)


plan = partial(plans.plan, runs=600)


def opened(path: Path, planned: Plan | None = None, search: SearchResult | None = None) -> None:
    with resume(path, TARGET, planned or plan(), search):
        pass


def test_a_feature_whose_file_changed_is_refused_by_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "shown.py").write_text("from maps import mine\n")
    monkeypatch.syspath_prepend(here)

    def mapped(spelling: str, text: str) -> Plan:
        (here / "maps.py").write_text(text)
        for name in ("maps", "audited_maps", "shown"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return plan(features=(read_feature("sign"), read_feature(spelling)))

    one, other = "def mine(x): return x > 0\n", "def mine(x): return x > 9\n"
    # The last one is a name of a module that imports it.
    names = ("maps.py:mine", "maps:mine", "sign+maps.py:mine", "shown:mine")
    for i, name in enumerate(names):
        path = here / f"state{i}"
        opened(path, mapped(name, one))
        opened(path, mapped(name, one))
        with pytest.raises(
            InvalidParameter, match="was started with a different version"
        ) as caught:
            opened(path, mapped(name, other))
        assert f"of the file of feature {name}: runs of two versions" in caught.value.reason
        opened(path, mapped(name, one))


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
    for other in (None, replace(FOUND, space="integer:low=0,high=2"), replace(FOUND, runs=3)):
        with pytest.raises(InvalidParameter, match="was started with another search: "):
            opened(path, search=other)
    with pytest.raises(InvalidParameter, match="was started with another search: null in the file"):
        opened(plain, search=FOUND)


@pytest.mark.parametrize(
    "held",
    [
        3, [], "x", {}, {"pair": [1]}, {"runs": "3"}, {"space": None}, {"tried": [3]},
        {"tried": [{"pair": [1, 2], "runs": 3}]},
        {"tried": [{"pair": [1, 2], "runs": 3, "score": None}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_search_that_is_none_is_refused(held: Any, tmp_path: Path) -> None:
    held = FOUND.to_json() | held if held and isinstance(held, dict) else held
    fields = {**json.loads(header(tmp_path, TARGET, plan(), None)), "search": held}
    path = tmp_path / "state"
    path.write_bytes(next_record(started(SCHEMA), json.dumps(fields).encode())[0])
    with pytest.raises(InvalidParameter, match="is damaged or forged: its search result"):
        stored_search(path)
