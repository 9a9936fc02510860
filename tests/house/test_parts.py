"""The test run in parts: all of the suite and nothing twice, every failure told, and all ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import parts

ROOT = Path(__file__).parents[2]
NO_TESTS = ("__init__", "conftest")

RUNNER = """
import json, signal, sys
from tests import parts
signal.signal(signal.SIGINT, signal.default_int_handler)
commands = json.loads(sys.argv[1])
jobs = [parts.Job(name=f"job {i}", command=tuple(words)) for i, words in enumerate(commands)]
parts.jobs = lambda options: jobs
sys.exit(parts.main([]))
"""


def started(*bodies: str, **options: Any) -> subprocess.Popen[str]:
    """Jobs that are one line of Python each."""
    commands = json.dumps([[sys.executable, "-c", body] for body in bodies])
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, commands],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ran(*bodies: str) -> tuple[int, str]:
    running = started(*bodies)
    out, err = running.communicate(timeout=60)
    assert err == ""
    return running.returncode, out


def told(part: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """The folders that pytest is told to look into, and to leave out."""
    words, ignore = parts.paths(part), "--ignore="
    left_out = [ROOT / one.removeprefix(ignore) for one in words if one.startswith(ignore)]
    return [ROOT / one for one in words if not one.startswith(ignore)], left_out


def test_the_parts_of_a_run_are_all_of_it_and_share_one_purse(pytestconfig: pytest.Config) -> None:
    whole = [ROOT / path for path in pytestconfig.getini("testpaths")]
    files = {p for folder in whole for p in folder.rglob("*.py") if p.stem not in NO_TESTS}
    assert len(files) > 500
    every = [told(part) for part in parts.PARTS]
    for file in sorted(files):
        looked_into = [
            any(map(file.is_relative_to, inside)) and not any(map(file.is_relative_to, left_out))
            for inside, left_out in every
        ]
        assert sum(looked_into) == 1, file
    assert all((ROOT / path).is_dir() for part in parts.PARTS for path in part)
    lint, *tests = parts.jobs(["-x"])
    assert lint.command[-1] == "lint"
    assert [job.environment[parts.SHARE] for job in tests] == [f"1/{len(tests)}"] * len(parts.PARTS)
    assert all("-x" in job.command for job in tests)


def test_what_each_says_is_shown_whole_and_every_failure_is_named() -> None:
    talks = "import time\nfor i in range(9): print('{0}', i, flush=True); time.sleep(0.01)"
    code, out = ran(
        talks.format("first"),
        talks.format("second") + "\nraise SystemExit(3)",
        talks.format("third") + "\nraise SystemExit(1)",
    )
    assert code == 3
    for name in ("first", "second", "third"):
        assert "".join(f"{name} {i}\n" for i in range(9)) in out
    told = out.splitlines()[-2:]
    assert told == ["FAILED: job 1 (exit code 3)", "FAILED: job 2 (exit code 1)"]


@pytest.mark.parametrize(("codes", "code"), [((0, 5), 0), ((5, 5), 5), ((5, 1), 1), ((0, 0), 0)])
def test_a_part_in_which_nothing_was_chosen_is_no_failure(codes: list[int], code: int) -> None:
    assert ran(*(f"raise SystemExit({each})" for each in codes))[0] == code


def test_four_run_at_a_time_and_no_more(tmp_path: Path) -> None:
    body = f"""
import os, pathlib, time
folder = pathlib.Path({str(tmp_path)!r})
mine = folder / str(os.getpid())
mine.touch()
end = time.monotonic() + 0.8
most = 0
while time.monotonic() < end: most = max(most, len(list(folder.iterdir()))); time.sleep(0.01)
mine.unlink()
print("together:", most)
"""
    _, out = ran(*[body] * 5)
    seen = [int(line.split()[-1]) for line in out.splitlines() if line.startswith("together")]
    assert len(seen) == 5
    assert max(seen) == parts.AT_A_TIME == 4


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("how", "code"), [("ctrl-c", 130), ("terminated", 143), ("a closed pipe", 1)]
)
def test_whatever_ends_it_ends_every_job(how: str, code: int, tmp_path: Path) -> None:
    name = f"pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()"
    sleeps = f"import os, pathlib, time\n{name}\ntime.sleep(60)"
    # It ends when the other one sleeps: to show that fails where nobody reads.
    speaks = f"import os, time\nwhile not os.listdir({str(tmp_path)!r}): time.sleep(0.01)"
    running = started(*([sleeps, speaks] if how == "a closed pipe" else [sleeps, sleeps]))
    assert running.stdout is not None
    if how == "a closed pipe":
        running.stdout.close()
    wanted = 1 if how == "a closed pipe" else 2
    until = time.monotonic() + 30
    while len(jobs := [int(each.name) for each in tmp_path.iterdir()]) < wanted:
        assert time.monotonic() < until
        time.sleep(0.01)
    if how == "ctrl-c":
        running.send_signal(signal.SIGINT)
    elif how == "terminated":
        running.terminate()
    assert running.wait(timeout=60) == code
    assert all(map(gone, jobs))
    for stream in (running.stdout, running.stderr):
        assert stream is not None
        stream.close()
