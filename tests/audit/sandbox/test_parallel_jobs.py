"""Tests of `audit.sandbox.parallel_jobs`: the report of one job, and workers that die or hang."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.features.parse_feature import read_feature
from audit.runs.draw_plan import block_of
from audit.sample_layer import sample
from audit.sandbox.parallel_jobs import dask_cluster
from audit.targets.target import Scalar, Vectorised
from audit.targets.target_syntax import content_of, read_target
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.audit import plans
from tests.support.audit.command import HEARS_CTRL_C, ROOT

AWK = "exec:awk -F '[:,}]' '{ srand($6); for (i = 0; i < $4; i++) print $2 + int(9 * rand()) }'"


pytestmark = pytest.mark.usefixtures("here")

plan = partial(plans.plan, alpha="1e-9", runs=3000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@by_day(2)
@pytest.mark.parametrize(
    ("spelling", "runs", "sequential"),
    [
        *((f"targets.py:{name}", 50_000, False) for name in ("raises_in_b", "leaves")),
        ("targets.py:raises_late", 50_000, False),
        ("targets.py:coin", 1000, False),
        ("targets.py:laplace", 10_000, True),
        ("discrete-laplace:scale=1", 10_000, False),
        ("count", 2000, True),
        (AWK, 200, False),
    ],
)
def test_two_jobs_give_the_report_of_one_or_fail_as_it_does(
    spelling: str, runs: int, sequential: bool
) -> None:
    target = read_target(spelling)
    one, two = (plan(runs=runs, sequential=sequential, jobs=jobs) for jobs in (1, 2))
    alone = sample(target, one)
    assert (alone.error is not None) is (runs == 50_000)
    assert alone.to_text() == sample(target, two).to_text()


def test_a_target_without_a_text_form_is_sent_to_workers() -> None:
    seen = []

    def closure(dataset: int, n: int, rng: np.random.Generator) -> Any:
        seen.append(n)  # a copy of the list, in the worker
        return dataset + rng.integers(9, size=n) + offset

    offset = 5
    target = Vectorised(spelling="closure", function=closure)
    assert sample(target, plan(jobs=2)).error is None
    assert not seen


def test_a_target_that_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()

    def locked(dataset: int) -> int:
        with lock:
            return dataset

    with pytest.raises(InvalidParameter, match="locked cannot be sent to another process") as bad:
        sample(Scalar(spelling="locked", function=locked, seeded=False), plan(jobs=2))
    assert bad.value.argument == "jobs"


def test_unpicklable_outputs_and_forked_children_stay_in_their_worker(here: Path) -> None:
    # The first target would run code when unpickled; the second cannot be pickled; the third
    # returns in a forked child too.
    for name in ("runs_when_unpickled", "locks", "forks"):
        report = sample(read_target(f"targets.py:{name}"), plan(jobs=2, runs=60))
        assert report.error is None
        assert report.runs == 60
    assert not (here / "unpickled").exists()


# -- the source files of a target -------------------------------------------------------------


def test_running_workers_reload_a_changed_file(here: Path) -> None:
    source = "def f(dataset, n, rng):\n    return rng.integers(9, size=n) + {offset}\n"
    found = []
    for offset in (0, "9 * dataset"):
        (here / "changing.py").write_text(source.format(offset=offset))
        found.append(sample(read_target("changing.py:f"), plan(jobs=2)).verdict)
    assert found == ["not_refuted", "refuted"]


def test_a_block_is_drawn_identically_twice() -> None:
    # Spawning changes a seed sequence; repeated draws of a block must not depend on this.
    planned = plan(runs=64)
    block = block_of(planned, next(planned.blocks()))
    one, again = (block.seed(0).spawn(1)[0].generate_state(1)[0] for _ in range(2))
    assert one == again


# -- how far workers draw ahead ---------------------------------------------------------------


@pytest.mark.nightly
def test_a_sequential_audit_draws_little_beyond_its_stop(tmp_path: Path) -> None:
    def counted(dataset: int, n: int, rng: np.random.Generator) -> Any:
        with (tmp_path / "drawn").open("a") as log:
            log.write(f"{n}\n")
        return np.full(n, dataset)

    target = Vectorised(spelling="counted", function=counted)
    planned = plan(jobs=2, runs=10**6, sequential=True)
    report = sample(target, planned)
    drawn = sum(map(int, (tmp_path / "drawn").read_text().split()))
    assert report.verdict == "refuted"
    # At most six blocks beyond the deciding one, and the runs that check reproducibility by seed.
    ends = [block.drawn + block.runs for block in islice(planned.blocks(), 40)]
    stop = next(i for i, end in enumerate(ends) if end >= report.runs)
    assert drawn <= ends[stop + 6] + 16


# -- workers that fail or are interrupted -----------------------------------------------------


def test_a_worker_that_dies_is_a_failure_of_the_target_and_earlier_runs_count() -> None:
    report = sample(read_target("targets.py:is_killed_late"), plan(jobs=2))
    assert report.error is not None
    assert report.error.reason == (
        "a worker process died (SIGKILL(-9)), e.g. from os._exit, a signal or lack of memory"
    )
    assert report.verdict is None
    assert 0 < report.runs < 3000


@pytest.mark.nightly
def test_time_limits_hold_in_workers_and_for_features() -> None:
    begun = time.monotonic()
    for name, more in (("hangs", ""), ("hangs_for_good", ", and its worker had to be killed")):
        report = sample(read_target(f"targets.py:{name}"), plan(jobs=2, timeout=0.3))
        assert report.error is not None
        assert report.error.reason.startswith(f"no answer within 0.3 s{more}")
    hung = read_feature("targets.py:map_hangs")
    noise = read_target("discrete-laplace:scale=1")
    report = sample(noise, plan(jobs=2, runs=100, timeout=0.3, features=(hung,)))
    assert report.error is not None
    assert report.error.target == "feature targets.py:map_hangs"
    assert report.error.reason.startswith("no answer within 0.3 s")
    assert time.monotonic() - begun < 30


def test_a_deadline_ends_the_drawing_of_workers() -> None:
    target = read_target("targets.py:tired")
    sample(target, plan(jobs=2, runs=2))  # starts the workers
    report = sample(target, plan(jobs=2, runs=100_000, deadline=0.6))
    assert report.stopped == "the deadline was reached"
    # Two workers, each run takes 0.01 s; runs of unfinished blocks count.
    assert 10 < report.runs <= 140


SCRIPT = f"""
import json, sys
sys.path.insert(0, {str(ROOT)!r})
from audit.claims import Claim
from audit.outputs.time_limit import stdout_to_stderr
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.targets.target_syntax import read_target
plan = Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=100_000, seed=7, jobs=2)
with stdout_to_stderr():
    target = read_target("targets.py:" + sys.argv[1])
told = lambda runs: print("drawn", runs, file=sys.stderr, flush=True)
report = sample(target, plan, progress=told)
print(json.dumps([report.runs, report.stopped, report.error and report.error.reason]))
"""


@by_day(1)
@pytest.mark.parametrize("killed", [False, True], ids=["Ctrl-C", "killed"])
def test_workers_end_with_their_audit_and_ctrl_c_keeps_the_drawn_runs(killed: bool) -> None:
    running, workers, before = at_work("tired_and_loud")
    if killed:
        running.kill()
    else:
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the whole process group
    out, err = running.communicate(timeout=20)
    await_end(workers)
    if killed:
        return
    runs, stopped, error = json.loads(out)
    assert (stopped, error) == ("interrupted", None)
    assert 0 < runs < 5000
    assert "Traceback" not in err
    # Output of workers goes to the streams of the auditor.
    for printed in ("hello from the target", "and again", "from a child", "from the descriptor"):
        assert printed in before + err


def at_work(name: str) -> tuple[subprocess.Popen[str], list[int], str]:
    """An audit in a process of its own, its workers, and what they printed up to a first block."""
    running = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C + SCRIPT, name], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert running.stderr is not None
    before = ""
    while not before.rpartition("\n")[0].rpartition("\n")[2].startswith("drawn"):
        line = running.stderr.readline()
        assert line
        before += line
    words = ["ps", "-o", "pid=,stat=", "--ppid", str(running.pid)]
    rows = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    workers = [int(row.split()[0]) for row in rows if not row.split()[1].startswith("Z")]
    assert workers
    return running, workers, before


def await_end(workers: list[int]) -> None:
    gone = time.monotonic() + 5
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < gone
        time.sleep(0.05)


@pytest.mark.nightly
def test_a_target_that_changes_the_working_folder_is_still_found(here: Path) -> None:
    (here / "moving.py").write_text(
        "import os\nos.chdir('/')\ndef f(dataset, n, rng):\n    return rng.integers(9, size=n)\n"
    )
    target = read_target("moving.py:f")
    assert Path.cwd() == Path("/")
    assert content_of(target) is not None
    assert sample(target, plan(jobs=2, runs=100)).error is None


# -- a Dask cluster --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("distributed is not installed: pip install 'dpcore[cluster]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import LocalCluster

        make: Any = LocalCluster  # Dask has no type annotations
        with make(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as made:
            yield str(made.scheduler_address)


@pytest.mark.nightly  # a cluster takes seconds to start
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_report_of_one_job(cluster: str) -> None:
    target = read_target("targets.py:laplace")
    for sequential in (False, True):
        one = sample(target, plan(runs=20_000, sequential=sequential, timeout=None))
        many = plan(runs=20_000, sequential=sequential, timeout=None, jobs=-1)
        with dask_cluster(cluster):
            assert sample(target, many).to_text() == one.to_text()


@pytest.mark.nightly  # a cluster takes seconds to start
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_reports_failures_and_missing_time_limits(cluster: str) -> None:
    with dask_cluster(cluster):
        report = sample(read_target("targets.py:raises_late"), plan(runs=50_000, jobs=-1))
    assert report.error is not None
    assert report.error.reason.startswith("raised MemoryError: too many")
    assert report.runs == 17_246
    assert "drawn in threads: calls of the target had no time limit" in report.warnings
    with dask_cluster(cluster):
        program = sample(read_target(AWK), plan(runs=100, jobs=-1))
    assert program.error is None
    assert not program.warnings
