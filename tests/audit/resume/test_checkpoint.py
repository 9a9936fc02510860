"""Tests of `audit.resume`: a resumed audit gives the report of an uninterrupted one."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.claims import Claim
from audit.features.parse_feature import Feature, read_feature
from audit.report.audit_report import AuditReport
from audit.resume import SCHEMA, header, resume
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.search.worst_pair_search import Candidate, SearchResult
from audit.targets.target import Scalar, Target, Vectorised
from audit.targets.target_syntax import read_target
from dpcore.cli.state_file import next_record, started
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.audit import plans
from tests.support.audit.command import ROOT, hearing_ctrl_c
from tests.support.audit.plans import stored_search, stored_seed
from tests.support.dpcore.refusals import refused

plan = partial(plans.plan, alpha="1e-9", runs=2000)


def audited(path: Path, target: Target, planned: Plan) -> AuditReport:
    with resume(path, target, planned) as state:
        return sample(target, planned, state=state)


COUNT, LAPLACE = read_target("count"), "discrete-laplace:scale=1"


def opened(
    path: Path,
    planned: Plan | None = None,
    search: SearchResult | None = None,
    target: str = "count",
) -> None:
    with resume(path, read_target(target), planned or plan(), search):
        pass


class Plain:
    pass


# -- an audit in parts ------------------------------------------------------------------------

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "scalar": ("targets.py:coin", {}),
    "vectorised": ("targets.py:laplace", {}),
    "noise": (LAPLACE, {}),
    "program": ("exec:awk -F '[:,}]' '{ for (i = 0; i < $4; i++) print $2 }'", {"runs": 150}),
    "sequential": ("half-scale", {"sequential": True}),
    "pairs": (LAPLACE, {"pairs": ((0, 1), (4, 5))}),
    "features": ("targets.py:laplace", {"features": (read_feature("sign"),)}),
    "worker": ("targets.py:laplace", {"jobs": 2}),
}


@by_day(1)
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_file_torn_anywhere_resumes_to_the_same_report(kind: str, tmp_path: Path) -> None:
    spelling, more = KINDS[kind]
    target, planned = read_target(spelling), plan(**{"runs": 600, **more})
    path = tmp_path / "state"
    whole = sample(target, planned)
    assert audited(path, target, planned) == whole
    data = path.read_bytes()
    again = audited(path, target, planned)
    assert again == whole
    assert path.read_bytes() == data
    rng = random.Random(3)
    few = 2 if kind in {"program", "worker"} else 6
    for cut in (0, 30, *(rng.randrange(len(data)) for _ in range(few)), len(data) - 1):
        path.write_bytes(data[:cut])
        assert audited(path, target, planned) == whole
        assert path.read_bytes() == data


def test_a_record_of_another_audit_or_of_another_size_is_refused(tmp_path: Path) -> None:
    one, other, sized = tmp_path / "one", tmp_path / "other", tmp_path / "sized"
    audited(one, COUNT, plan())
    audited(other, COUNT, plan(seed=8))
    head = 44 + int(struct.unpack_from("<Q", one.read_bytes())[0])  # the end of the header
    one.write_bytes(one.read_bytes()[:head] + other.read_bytes()[head:])
    with pytest.raises(InvalidParameter, match="is damaged at byte"):
        audited(one, COUNT, plan())
    with resume(sized, COUNT, plan()) as state:
        state.append(np.arange(5))
    with pytest.raises(InvalidParameter, match="block 0 contains 5 runs, but the audit plans 32"):
        audited(sized, COUNT, plan())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"claim": Claim(epsilon=2)}, "another claim: epsilon=1 .* in the file, epsilon=2 .* now"),
        ({"claim": Claim(epsilon=1, relation="add-remove")}, "another claim"),
        ({"pair": (0, 2)}, "another pairs"),
        ({"pairs": ((0, 1), (3, 4))}, "another pairs"),
        ({"features": (read_feature("sign"),)}, "another features"),
        ({"runs": 3000}, "another number of runs: 2000 in the file, 3000 now"),
        ({"sequential": True}, "another kind of test"),
        ({"alpha": "0.1"}, "another alpha"),
        ({"seed": 8}, "another seed: 7 in the file, 8 now"),
    ],
)
def test_a_state_file_of_another_plan_is_refused_by_name(
    more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "state"
    opened(path)
    with pytest.raises(InvalidParameter, match=words):
        opened(path, plan(**more))
    # Options that do not affect runs may change on resume.
    opened(path, plan(timeout=5.0, deadline=50.0))


def test_a_state_file_of_another_target_version_or_source_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, noise = here / "state", here / "noise"
    opened(path, target="targets.py:laplace")
    with pytest.raises(InvalidParameter, match=r'target: "targets\.py:laplace" in the file'):
        opened(path, target="targets.py:unnoised")
    with (here / "targets.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(InvalidParameter, match="a different version of the target's file"):
        opened(path, target="targets.py:laplace")
    opened(noise, target=LAPLACE)
    own = read_target(LAPLACE, seeded=False)
    with pytest.raises(InvalidParameter, match="another source of randomness: true in the file"):
        audited(noise, own, plan())
    monkeypatch.setattr(np, "__version__", "0.1")
    with pytest.raises(InvalidParameter, match=r'another numpy: .* in the file, "0.1" now'):
        opened(noise, target=LAPLACE)


def test_a_file_that_is_not_a_state_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for text in (b"my notes", b"my notes " * 100, b"{}\n" * 100):
        path.write_bytes(text)
        with pytest.raises(InvalidParameter, match="is not the state of an audit"):
            opened(path)
        assert path.read_bytes() == text
    with refused("--resume"):
        opened(tmp_path / "absent" / "state")


def test_the_seed_of_a_state_is_known_before_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert stored_seed(path) is None
    audited(path, COUNT, plan(seed=12))
    assert stored_seed(path) == 12
    data = path.read_bytes()
    # A torn header has no blocks, so another seed may start in this file.
    for torn in (data[:10], b"my notes " * 99, data[:100]):
        path.write_bytes(torn)
        assert stored_seed(path) is None
    assert audited(path, COUNT, plan(seed=13)) == sample(COUNT, plan(seed=13))


# -- outputs, failures, interruptions ---------------------------------------------------------


def test_outputs_that_cannot_be_stored_are_refused_or_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def objects(dataset: int) -> Plain:
        calls.append(dataset)
        return Plain()

    target = Scalar(spelling="objects", function=objects, seeded=False)
    with pytest.raises(InvalidParameter, match="outputs of type Plain cannot be stored"):
        audited(tmp_path / "state", target, plan())
    assert len(calls) == 32  # before more is drawn

    def later(dataset: int, n: int, rng: np.random.Generator) -> Any:
        return [Plain() if n > 100 else int(i) for i in rng.integers(9, size=n)]

    report = audited(tmp_path / "later", Vectorised(spelling="later", function=later), plan())
    assert report.runs == 2000
    (said,) = [text for text in report.warnings if text.startswith("stored only up to block")]
    assert said.endswith("outputs of type Plain cannot be stored without loss")
    with resume(tmp_path / "full", COUNT, plan()) as state:
        state.file.handle = -1  # writing fails
        state.append([0])
        assert (state.blocks, state.closed is None) == ([], False)
    monkeypatch.setattr("audit.resume.MOST", 200)
    with pytest.raises(InvalidParameter, match="384 bytes cannot be stored: the limit is 199"):
        audited(tmp_path / "long", COUNT, plan())


def test_an_interrupted_audit_can_be_resumed(tmp_path: Path) -> None:
    state, planned = {"stop": 700}, plan()

    def stops(dataset: int, rng: np.random.Generator) -> int:
        state["stop"] -= 1
        if not state["stop"]:
            os.kill(os.getpid(), signal.SIGINT)
        return dataset + int(rng.geometric(0.632)) - int(rng.geometric(0.632))

    target, path = Scalar(spelling="stops", function=stops), tmp_path / "state"
    with hearing_ctrl_c():
        first = audited(path, target, planned)
    assert first.stopped == "interrupted"
    assert 600 < first.runs < 700
    assert audited(path, target, planned) == sample(target, planned)


@pytest.mark.parametrize("seeded", [True, False])
def test_a_failed_target_is_called_again_only_if_it_follows_its_seed(
    seeded: bool, tmp_path: Path
) -> None:
    calls = {"left": 500}

    def moody(dataset: int, rng: Any = None) -> int:
        calls["left"] -= 1
        if calls["left"] < 0:
            raise OSError("disk full")
        return dataset if rng is None else int(rng.integers(9))

    target, path = Scalar(spelling="moody", function=moody, seeded=seeded), tmp_path / "state"
    first = audited(path, target, plan())
    calls["left"] = 10**6  # a further call would succeed now
    again = audited(path, target, plan())
    assert first.error is not None
    if seeded:
        assert again == sample(target, plan())
        return
    assert str(again.error) == str(first.error)
    assert calls["left"] == 10**6
    assert "resumed: the target was restarted, and draws its own randomness" in again.warnings


# -- kill -9 ----------------------------------------------------------------------------------

# Imports once. Each child is a process of its own, killed after it has stored a new record.
SCRIPT = f"""
import os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from audit.resume import resume
from audit.claims import Claim
from audit.outputs.time_limit import stdout_to_stderr
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.targets.target_syntax import read_target
plan = Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=3_000, seed=7, alpha="1e-9")
with stdout_to_stderr():
    target = read_target("targets.py:slow")
rng, sizes = random.Random(5), [0]
while True:
    child = os.fork()
    if not child:
        with resume(Path("state"), target, plan) as state:
            sys.stdout.write(sample(target, plan, state=state).to_text())
        sys.stdout.flush()
        os._exit(0)
    ended = 0
    while not ended and len(sizes) <= 4:
        if os.path.exists("state") and os.path.getsize("state") > sizes[-1]:
            time.sleep(rng.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.001)
        ended, status = os.waitpid(child, os.WNOHANG)
    status = status if ended else os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        break
    sizes.append(os.path.getsize("state"))
print(*sizes, file=sys.stderr)
"""


def test_kill_9_at_random_moments_does_not_change_the_result(here: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    sizes = [int(word) for word in ran.stderr.splitlines()[-1].split()]
    assert len(sizes) > 3
    # No stored block is lost, and each process stored at least one block.
    assert sizes == sorted(set(sizes))
    target = read_target("targets.py:slow")
    assert ran.stdout == sample(target, plan(runs=3_000)).to_text()


# -- the header: features by their source files, and results of a search ---------------------------


FOUND = SearchResult(
    space="integer:low=0,high=1",
    pair=(0, 1),
    runs=512,
    tried=(
        Candidate(pair=(0, 1), runs=256, score=0.5),
        Candidate(pair=([1], None), runs=9, score=-1.0),
    ),
)


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


def test_features_without_a_source_file_are_resumed(here: Path) -> None:
    for feature in (read_feature("math:isnan"), Feature(name="mine", apply=lambda x: x)):
        opened(here / feature.name, plan(features=(feature,)))
        opened(here / feature.name, plan(features=(feature,)))
    (here / "maps.py").write_text("def mine(x): return x\n")
    gone = plan(features=(read_feature("maps.py:mine"),))
    (here / "maps.py").unlink()
    with pytest.raises(InvalidParameter, match=r"maps\.py of feature maps\.py:mine cannot be read"):
        opened(here / "state", gone)


def test_the_result_of_a_search_is_stored_and_compared(tmp_path: Path) -> None:
    path, plain = tmp_path / "state", tmp_path / "plain"
    assert stored_search(path) is None
    for file, search in ((path, FOUND), (plain, None)):
        opened(file, search=search)
        assert stored_search(file) == search
        opened(file, search=search)
    for other in (None, replace(FOUND, space="integer:low=0,high=2"), replace(FOUND, runs=3)):
        with pytest.raises(InvalidParameter, match="was started with another search: "):
            opened(path, search=other)
    with pytest.raises(InvalidParameter, match="another search: null in the file"):
        opened(plain, search=FOUND)


def test_an_invalid_search_result_is_refused(tmp_path: Path) -> None:
    fields = json.loads(header(tmp_path, COUNT, plan(), None))
    path = tmp_path / "state"
    damaged: list[Any] = [
        *(3, [], "x", {}, {"pair": [1]}, {"runs": "3"}, {"space": None}, {"tried": [3]}),
        {"tried": [{"pair": [1, 2], "runs": 3}]},
        {"tried": [{"pair": [1, 2], "runs": 3, "score": None}]},
    ]
    for held in damaged:
        stored = FOUND.to_json() | held if held and isinstance(held, dict) else held
        text = json.dumps({**fields, "search": stored})
        path.write_bytes(next_record(started(SCHEMA), text.encode())[0])
        with pytest.raises(InvalidParameter, match="is damaged or forged: its search result"):
            stored_search(path)
