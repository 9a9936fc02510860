r"""The test run in parts, four at a time, with the linters beside them: ``python -m tests.parts``.

Each part is a pytest run of its own, with the options given and an equal share of the purse of
alpha. Two parts more than two cores have room for, so that neither core is idle while tests wait
for a server or another process. Whoever is done takes the next part. What a part prints is shown
whole when it has ended, which ones failed is said last, and the exit code is that of the first of
them. Ctrl-C, a closed pipe and SIGTERM end everything.

Parts are processes and not workers of one pytest (pytest-xdist): those answer their master from
threads, and tests that fork must be alone in their process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, Any

# The long ones first. A folder is all of it that no other part names.
PARTS = (
    ("tests/accounting",),
    ("tests/accounting/certificates", "tests/accounting/release"),
    ("tests/bandits", "bandits"),
    ("tests/audit",),
    ("tests/dpcore", "dpcore"),
    ("tests/audit/evidence", "tests/audit/report", "tests/audit/testing"),
    ("tests", "accounting", "audit"),
    ("tests/audit/catalogue", "tests/audit/cli", "tests/audit/targets"),
)
SHARE = "PURSE_SHARE"
AT_A_TIME = 4
NOTHING_RAN = 5  # what pytest says where the options choose no test of a part
LAST_WORDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command, and its name, which no other has."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A job that was started, and where its output goes."""

    job: Job
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    start: float


def paths(part: Sequence[str]) -> tuple[str, ...]:
    """What pytest is told: the folders of a part, and what other parts take out of them."""
    others = sorted({path for other in PARTS for path in other} - set(part))
    taken = [path for path in others if any(PurePosixPath(path).is_relative_to(p) for p in part)]
    return (*part, *(f"--ignore={path}" for path in taken))


def jobs(options: Sequence[str]) -> list[Job]:
    """The linters, and every part."""
    share = {SHARE: f"1/{len(PARTS)}"}
    pytest = (sys.executable, "-m", "pytest", *options)
    tests = [
        Job(name=" ".join(part), command=(*pytest, *paths(part)), environment=share)
        for part in PARTS
    ]
    return [Job(name="make lint", command=("make", "--no-print-directory", "lint")), *tests]


def run(waiting: Sequence[Job]) -> int:
    """Run all jobs, four at a time; the code of the first that failed."""
    left, running = list(waiting), list[Running]()
    codes: dict[str, int] = {}
    try:
        while left or running:
            while left and len(running) < AT_A_TIME:
                running.append(_started(left.pop(0)))
            ended = [one for one in running if one.process.poll() is not None]
            for one in ended:
                running.remove(one)
                codes[one.job.name] = one.process.returncode
                _show(one, len(codes), len(waiting))
            if not ended:
                time.sleep(0.05)
    finally:
        _end(running)
    told = [(job.name, codes[job.name]) for job in waiting]
    failed = [(name, code) for name, code in told if code not in {0, NOTHING_RAN}]
    for name, code in failed:
        print(f"FAILED: {name} (exit code {code})", flush=True)
    if failed:
        return failed[0][1]
    return NOTHING_RAN if told and all(code == NOTHING_RAN for _, code in told) else 0


def _started(job: Job) -> Running:
    said = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it has been shown
    process = subprocess.Popen(
        job.command,
        env={**os.environ, **job.environment},
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
    )
    return Running(job=job, process=process, said=said, start=time.monotonic())


def _show(one: Running, number: int, of: int) -> None:
    with one.said:
        one.said.seek(0)
        sys.stdout.buffer.write(one.said.read())
    spent = time.monotonic() - one.start
    print(f"({number} of {of}) {one.job.name}: {spent:.0f} s", flush=True)


def _end(running: Sequence[Running]) -> None:
    # A pytest that is interrupted ends what its tests started; a Ctrl-C reached it already.
    for one in running:
        one.process.send_signal(signal.SIGINT)
    until = time.monotonic() + LAST_WORDS
    for one in running:
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
        one.process.kill()
        one.process.wait()
        one.said.close()


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def main(options: Sequence[str]) -> int:
    """The whole run."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        return run(jobs(options))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Nobody reads: what is still to be written must not fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
