"""Tests of `dpcore.cli.workers`: workers end with their parent, without traceback; Ctrl-C."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from dpcore.cli.workers import Prefetch, WorkerLost, in_processes
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import positive_rational
from tests.day_and_nightly import by_day, effort
from tests.support.bandits.command import MAIN, ROOT


def wait_for(what: Callable[[], bool], seconds: float = 30) -> bool:
    late = time.monotonic() + seconds
    while not what() and time.monotonic() < late:
        time.sleep(0.05)
    return what()


# Creates a file as soon as a worker was started, long before the worker is ready.
STARTING = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from dpcore.cli.workers import in_processes
from joblib.externals.loky.backend import popen_loky_posix
begin = popen_loky_posix.Popen._launch
def launch(self, process):
    begin(self, process)
    open("started", "w").close()
popen_loky_posix.Popen._launch = launch
[*in_processes(time.sleep, [(60,), (60,)], 2)]
"""


def of_session(leader: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(place.parent.name))
    return found


@by_day(2)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who is alive")
@pytest.mark.parametrize(
    ("by", "wait"),  # after so long the workers are still starting, or (the last row) at work
    [*product([signal.SIGTERM, signal.SIGKILL], [0.3, 0, 0.8]), (signal.SIGKILL, 3)],
)
def test_workers_of_a_killed_parent_end(tmp_path: Path, by: signal.Signals, wait: float) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with parent:
        assert wait_for((tmp_path / "started").exists)
        time.sleep(wait)
        parent.send_signal(by)
        assert parent.wait() == -by
        ended = wait_for(lambda: not of_session(parent.pid), 10)
        for process in of_session(parent.pid):
            os.kill(process, signal.SIGKILL)
        # A process that reads their output, such as a pipe to tee, receives the end of file.
        parent.communicate(timeout=10)
    assert ended


def test_calls_are_dispatched_at_most_the_stated_number_ahead() -> None:
    ahead = Prefetch(calls=iter([(each,) for each in range(100)]), most=4)
    assert list(ahead) == [(0,), (1,), (2,), (3,)]
    assert list(ahead) == []
    ahead.read = 3
    assert len(list(ahead)) == 3
    assert not ahead.ended


def test_calls_are_made_in_order_and_errors_are_distinguished_from_a_lost_worker() -> None:
    calls = ((each, 1) for each in range(40))
    assert [*in_processes(max, calls, 2)] == [max(each, 1) for each in range(40)]
    with pytest.raises(InvalidParameter, match="scale = 0"):
        [*in_processes(positive_rational, [("scale", 0, "no noise")] * 2, 2)]
    with pytest.raises(WorkerLost, match="ZeroDivisionError") as caught:
        [*in_processes(divmod, [(1, 0)] * 2, 2)]
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# Prints a line when the workers are about to start; earlier output is Python's own.
BEGIN = MAIN.replace(
    "dpcore.cli.app.main()",
    "import bandits.experiments.runner as module\n"
    "played = module.run_cells\n"
    "def noisily(*words, **more):\n"
    "    open('begun', 'w').close()\n"
    "    return played(*words, **more)\n"
    "module.run_cells = noisily\n"
    "dpcore.cli.app.main()",
)


def test_ctrl_c_at_early_moments_gives_one_line(tmp_path: Path) -> None:
    rng = random.Random(1)
    words = ["run", "cz/easy", "-T", "1e5", "--instances", "2000", "--algorithms", "se"]
    words += ["--epsilon", "1", "--jobs", "2"]
    for wait in [0.02, *(rng.uniform(0, 1.0) for _ in range(3))][: effort(1, 4)]:
        (tmp_path / "begun").unlink(missing_ok=True)
        running = subprocess.Popen(
            [sys.executable, "-c", BEGIN, "bandit", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert wait_for((tmp_path / "begun").exists)
        time.sleep(wait)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
        assert (running.returncode, out, err) == (130, "", "interrupted: no result\n"), wait
