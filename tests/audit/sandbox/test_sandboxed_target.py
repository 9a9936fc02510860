"""Tests of `audit.sandbox.sandboxed_target`: the same report, and no child process is left."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from audit.errors import TargetFailed
from audit.sample_layer import sample
from audit.sandbox.child_process import Ended, IsolatedProcess, Pipe, SharedMemory
from audit.sandbox.sandboxed_target import Remote, Sandbox, run_isolated
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.audit import plans
from tests.support.audit.command import Shell, at, process

plan = partial(plans.plan, alpha="1e-9", runs=1000)


@pytest.fixture
def sandbox(here: Path) -> Iterator[Sandbox]:
    with Sandbox(60.0) as made:
        yield made


@by_day(2)
@pytest.mark.parametrize("name", ["coin", "raises_late", "masked_in_b"])
def test_a_target_has_the_same_report_with_and_without_sandbox(sandbox: Sandbox, name: str) -> None:
    runs = 50_000 if name == "raises_late" else 1000
    within = sample(read_target(f"targets.py:{name}"), plan(runs=runs))
    target = sandbox.target(f"targets.py:{name}")
    assert isinstance(target, Remote)
    assert target.tells_time is (name == "coin")  # one output per call
    assert sample(target, plan(runs=runs)).to_text() == within.to_text()


def test_built_in_targets_need_no_sandbox_and_missing_ones_are_refused(sandbox: Sandbox) -> None:
    assert sandbox.target("count") == read_target("count")
    assert sandbox.feature("sign") == sandbox.feature("sign")
    assert sandbox._process.process is None
    for name in ("word", "three", "nobody"):
        with pytest.raises(InvalidParameter) as within:
            read_target(f"targets.py:{name}")
        with pytest.raises(InvalidParameter) as there:
            sandbox.target(f"targets.py:{name}")
        assert str(there.value) == str(within.value)


def test_an_ended_process_names_the_run(sandbox: Sandbox) -> None:
    report = sample(sandbox.target("targets.py:exits_late"), plan(runs=3000))
    assert report.error is not None
    reason = "ended its process with exit code 7, for example by os._exit or os.exec"
    assert report.error.reason == reason
    assert report.error.dataset in {"A", "B"}
    assert 0 < report.runs < 3000
    # A map is still applied, by another process.
    assert sandbox.feature("targets.py:coin_of").apply([1, 2]) == [2, 4]


def test_a_map_receives_the_original_objects(audit: Shell) -> None:
    answer = audit(*at("counts"), "--feature", "targets.py:count_of", "--json")
    assert answer.code == 1, answer.err
    told = answer.json["witness"]["event"].replace("targets.py:count_of(output)", "it")
    assert told in {"it <= 0", "it >= 1"}


def last(answer: Any) -> Any:
    while True:
        try:
            next(answer)
        except StopIteration as end:
            return end.value


def children() -> set[int]:
    """The children of this process, including zombies and those of other tests."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def test_a_process_ends_with_its_children_and_leaves_no_zombie(tmp_path: Path) -> None:
    def starts() -> int:
        child = subprocess.Popen(["sleep", "600"])
        os.fork() or os._exit(0)  # a zombie
        return child.pid

    before = children()
    child = run_isolated("starts", starts, timeout=None)
    assert not Path(f"/proc/{child}").exists()
    assert children() <= before


def test_exit_handlers_of_the_child_run_and_those_of_the_auditor_do_not(tmp_path: Path) -> None:
    import atexit

    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    atexit.register(mine.touch)
    try:
        run_isolated("registers", lambda: atexit.register(theirs.touch) is None, timeout=None)
    finally:
        atexit.unregister(mine.touch)
    assert theirs.exists()
    assert not mine.exists()


@pytest.mark.parametrize("frozen", [True, False], ids=["kept out", "the twin"])
def test_objects_of_the_auditor_are_not_finalized_in_the_child(
    frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finalizer may wait for a lock of an auditor's thread; in the child it would hang."""
    if not frozen:
        monkeypatch.setattr(gc, "freeze", lambda: None)

    class Left:
        def __del__(self) -> None:
            (tmp_path / str(os.getpid())).touch()

    gc.disable()
    try:
        left = Left()
        left.itself = left  # type: ignore[attr-defined]  # only the collector of cycles finds it
        del left
        child = run_isolated("collects", lambda: (gc.collect(), os.getpid())[1], timeout=None)
    finally:
        gc.enable()
    assert (tmp_path / str(child)).exists() is not frozen


def glances(memory: SharedMemory, packs: bool) -> set[float]:
    """The values that a process reads while another one writes as fast as it can."""
    packed = struct.Struct("<Qd")
    if not (writer := os.fork()):
        for _ in range(60_000):
            for due in (1e4, math.inf):
                if packs:
                    packed.pack_into(memory.held, 0, 1, due)
                else:
                    memory.begin(due)
        os._exit(0)
    seen: set[float] = set()
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        seen |= {memory.read()[1] for _ in range(1000)}
    return seen


def test_shared_memory_is_never_read_half_written() -> None:
    assert glances(SharedMemory(), packs=False) <= {1e4, math.inf}
    # The mutant writes in two steps; readers saw wrong values, and live processes were ended.
    assert any(0.0 in glances(SharedMemory(), packs=True) for _ in range(100))


class Glimpsed(SharedMemory):
    """Shared memory of which one read, or every read, returns a wrong value."""

    times: float = 1

    def read(self) -> tuple[int, float]:
        calls, due = super().read()
        if calls and self.times:
            self.times -= 1
            return calls, due - 1000
        return calls, due


@pytest.mark.parametrize("times", [1, math.inf], ids=["once", "always"])
def test_one_wrong_read_of_shared_memory_ends_no_process(times: float) -> None:
    def works(pipe: Pipe) -> None:
        for _ in pipe.requests():
            pipe.memory.begin(time.monotonic() + 60)
            pipe.answer(lambda: time.sleep(0.6))

    memory = Glimpsed()
    memory.times = times
    with IsolatedProcess(name="works", work=works, seconds=60, memory=memory) as apart:
        if times == 1:
            assert last(apart.ask(None)) is None
        else:
            with pytest.raises(Ended, match="had to be killed"):
                last(apart.ask(None))


def test_an_unused_answer_does_not_end_the_process() -> None:
    def counted(pipe: Pipe) -> None:
        for request in pipe.requests():
            pipe.send("part", request)
            pipe.answer(os.getpid)

    with IsolatedProcess(name="counted", work=counted, seconds=None) as apart:
        answer = apart.ask("x")
        assert next(answer) == "x"
        answer.close()
        process = apart.process
        assert last(apart.ask("y")) == process


def test_invalid_data_from_a_process_is_its_failure() -> None:
    def forges(pipe: Pipe) -> None:
        for _ in pipe.requests():
            pipe.socket.sendall(b"\x03" + bytes(7) + b"cos")

    with (
        IsolatedProcess(name="forges", work=forges, seconds=None) as apart,
        pytest.raises(TargetFailed, match="its process sent invalid data: "),
    ):
        last(apart.ask(None))


def test_the_signal_state_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    with pytest.raises(Ended, match="ended its process with exit code 3"):
        run_isolated("leaves", lambda: os._exit(3), timeout=1.0)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before


# -- Ctrl-C -----------------------------------------------------------------------------------


@by_day(1)
@pytest.mark.parametrize(
    ("words", "times"),
    [
        (["targets.py:hangs_for_good", "--claim", "epsilon=1", "--pair", 0, 1], 2),
        (["targets.py:hangs", "--claim", "epsilon=1", "--pair", 0, 1], 1),
        (["importing.py:f", "--claim", "epsilon=1", "--pair", 0, 1], 1),
        (["targets.py:coin", "--feature", "targets.py:map_waits", "--claim", "epsilon=1",
          "--pair", 0, 1], 1),
        (["replay", "targets.py:hangs_for_good", "--pair", 0, 1], 2),
        (["fit", "targets.py:sampler_hangs", "--law", "discrete-laplace:scale=1"], 1),
    ],
    ids=["catches", "audit", "import", "feature", "replay", "fit"],
)  # fmt: skip
def test_ctrl_c_gives_exit_code_130_at_any_moment(
    here: Path, words: list[object], times: int
) -> None:
    (here / "importing.py").write_text(
        "import time\nopen('called', 'w').close()\ntime.sleep(600)\n"
    )
    running = process(*words, cwd=here)
    end = time.monotonic() + 30
    while not (here / "called").exists() and time.monotonic() < end:
        time.sleep(0.01)
    begun = time.monotonic()
    for _ in range(times):
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (130, "")
    assert err.endswith("interrupted: no report\n") or words[0] in {"replay", "fit"}
    assert "Traceback" not in err
    assert time.monotonic() - begun < 6
