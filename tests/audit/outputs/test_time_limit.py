"""Tests of `audit.outputs.time_limit`: time limits, standard streams, attribution of errors."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from typing import Any

import pytest

import dpcore.cli.app
from audit.claims import Claim
from audit.errors import TargetFailed
from audit.outputs.time_limit import TimeUp, Watchdog, failure, reading, stdout_to_stderr
from audit.runs.draw_plan import Plan
from audit.runs.drawn_runs import DrawnRuns
from audit.sample_layer import report_of
from audit.targets.target import Scalar
from dpcore.errors import DEFECT


def test_streams_closed_by_a_target_are_reopened(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with contextlib.suppress(ZeroDivisionError), stdout_to_stderr():
        with sys.stdout as lent:
            lent.write("one ")
        sys.stderr.close()
        print("two", end=" ")
        sys.stdout = None
        os.system("echo child")  # noqa: S605 - what a target may do
        raise ZeroDivisionError
    assert (sys.stdout, sys.stderr) == before
    print("out")
    print("three", file=sys.stderr)
    out, err = capfd.readouterr()
    assert (out, {*err.split()}) == ("out\n", {"one", "two", "child", "three"})


def namespace(source: str, name: str = "somebody_else_s") -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": name}
    exec(source, found)  # noqa: S102  # code that is not the auditor's
    return found


def test_an_error_while_reading_an_output_is_attributed_to_the_target_and_ours_is_not() -> None:
    theirs = namespace("def show(): raise KeyError('x')\ndef leave(): raise SystemExit(2)")
    for name, reason in (("show", "raised KeyError"), ("leave", r"called sys.exit\(2\)")):
        with pytest.raises(TargetFailed, match=reason), reading("t.py:f"):
            theirs[name]()
    with pytest.raises(ValueError, match="empty range"), reading("t.py:f"):
        random.randrange(0)


def test_an_error_is_described_by_its_type_and_both_ends_of_its_message() -> None:
    for error, words in (
        (ValueError("one\ntwo"), "raised ValueError: one two"),
        (ValueError("one\ntwo\n three"), "raised ValueError: one ... three"),
        (SyntaxError("bad", ("f.py", 3, 1, "x = ;")), "raised SyntaxError: bad"),
    ):
        assert failure("target", error).reason == words


def test_an_endless_read_is_stopped_and_many_short_reads_are_not() -> None:
    theirs = namespace(
        "import time\ndef nap(): time.sleep(0.02)\ndef hang():\n    while True: pass"
    )
    reads = namespace("def often(call):\n    for _ in range(10): call()", "audit.reads")
    with Watchdog(0.1), reading("t.py:f"):
        reads["often"](theirs["nap"])
    late = pytest.raises(TargetFailed, match=r"no answer within 0\.1 s")
    with Watchdog(0.1), late, reading("t.py:f"):
        reads["often"](theirs["hang"])
    sum(range(10**6))  # no alarm is pending


def test_a_report_is_complete_even_if_outputs_fail_late() -> None:
    theirs = namespace(
        "class Late:\n"
        "    told = []\n"
        "    def __hash__(self):\n"
        "        if self.told: raise RuntimeError('late')\n"
        "        return 1\n"
    )
    plan = Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=100)
    target = Scalar(spelling="late", function=lambda _: theirs["Late"](), seeded=False)
    collected = DrawnRuns(plan=plan, target=target)
    for block in plan.blocks():
        collected.keep(block, [theirs["Late"]() for _ in range(block.runs)])
    theirs["Late"].told.append(1)
    report = report_of(collected.finish("as many as planned"))
    assert report.error is not None
    assert report.error.reason.startswith("raised RuntimeError: late")
    assert (report.verdict, report.exit_code, report.runs) == (None, 3, 100)


# -- exit codes at the end of the process -----------------------------------------------------


class Closed:
    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file.")

    def flush(self) -> None:
        raise ValueError("I/O operation on closed file.")


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [RuntimeError("x"), Untold(), TimeUp("x"), GeneratorExit()])
@pytest.mark.parametrize("words", [[], ["--debug"]])
def test_no_exit_of_a_target_looks_like_a_verdict(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, words: list[str]
) -> None:
    def broken(argument: str, text: str) -> None:
        raise error

    for stream in (Closed(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert dpcore.cli.app.run(["sample", "x"]) == 2
        with monkeypatch.context() as patch:
            patch.setattr(dpcore.cli.app, "read_law", broken)
            code = dpcore.cli.app.run(["sample", "discrete-laplace:scale=1", *words])
        assert code == DEFECT
