r"""``dpcore audit TARGET``, the command itself."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import typer

from audit.cli.asked import Asked, planned
from audit.cli.written import Written, check_files
from audit.wording.formats import format_of
from dpcore.command.options import named, with_fields
from dpcore.command.progress import progress_bar
from dpcore.command.terminal import say
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from audit.report.report import AuditReport

__all__ = ["run"]

_NOT_REACHED: Final = 4
_INTERRUPTED: Final = 128 + signal.SIGINT


@with_fields
def run(asked: Asked) -> None:
    r"""Audit TARGET: does the code keep its claim on two neighbouring datasets?

    Example: dpcore audit half-scale --claim epsilon=1 --pair 0 1

    A callable is f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n outputs.
    rng is a numpy Generator, or a SeededRng of dpcore if it is annotated rng: Rng.

    exec: starts a program in any language. The program reads one line from standard
    input, {"dataset": 0, "n": 1000, "seed": 7}, writes n outputs to standard
    output, one a line, and ends with exit code 0.

    Exit code: 0 not refuted or proven, 1 refuted or a fault found, 2 usage, 3 the target failed,
    4 nothing measured, or less than --resolution asks for.
    """
    form = format_of(asked.form, as_json=asked.as_json)
    try:
        written = _audited(asked, form)
    except KeyboardInterrupt:
        print("interrupted: no report", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    written.publish(form=form, output=asked.output, html=asked.html)
    raise typer.Exit(_exit_code(written.report, asked))


def _audited(asked: Asked, form: str) -> Written:
    from audit.apart.room import Room
    from audit.cli import options as read
    from audit.layers import examine
    from audit.outputs.guard import stdout_to_stderr

    check_files(resume=asked.resume, output=asked.output, html=asked.html, pairs=asked.pairs)
    read.read_resolution(asked.resolution)
    seconds = read.read_seconds("--timeout", asked.timeout)
    # What the target prints, also while its outputs are read, must not mix with the report.
    options = named(
        target="TARGET", alpha="--alpha", relation="--relation", feature="--feature",
        features="--feature",
    )  # fmt: skip
    with options, stdout_to_stderr(), Room(seconds) as room:
        with _of_target():
            subject = room.target(asked.target, seeded=asked.seed is not None)
        plan, wanted = planned(asked, subject, room=room, seconds=seconds)
        with progress_bar("runs", plan.runs) as progress, _drawn_on(asked.scheduler):
            report = examine(subject, plan, wanted, progress=progress)
        return Written.of(report, html=asked.html, form=form)


@contextmanager
def _of_target() -> Iterator[None]:
    # "horizon = 0" is of TARGET, as continual:tree,horizon=0.
    try:
        yield
    except InvalidParameter as error:
        name = "TARGET" if error.argument == "target" else f"TARGET: {error.argument}"
        raise InvalidParameter(name, error.value, error.reason) from None


def _drawn_on(scheduler: str | None) -> AbstractContextManager[object]:
    if scheduler is None:
        return nullcontext()
    from audit.runs.jobs import backend

    return backend("dask", scheduler)


def _exit_code(report: AuditReport, asked: Asked) -> int:
    # Raises what the target failed with, after its report is out.
    from audit.cli.options import read_resolution

    if report.error is not None:
        raise report.error
    wanted = read_resolution(asked.resolution)
    coarse = wanted is not None and not report.resolution <= wanted
    if coarse and report.runs and report.verdict == "not_refuted" and report.exit_code == 0:
        missed = f"not reached: {report.blind_spot}"
        say([f"error: --resolution = {asked.resolution}: {missed}"], sys.stderr)
        return _NOT_REACHED
    return report.exit_code
