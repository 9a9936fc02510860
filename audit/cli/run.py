r"""``dpcore audit TARGET``, the command itself. ``audit.cli`` registers :func:`run`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from audit.cli.asked import Asked, planned
from audit.cli.written import Written, check_files
from dpcore.command.options import named
from dpcore.command.progress import progress_bar
from dpcore.command.terminal import say
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from audit.layers import Wanted
    from audit.report.report import AuditReport
    from audit.runs.plan import Plan
    from audit.targets.target import Target

__all__ = ["run"]

_NOT_REACHED: Final = 4
_INTERRUPTED: Final = 128 + signal.SIGINT

_WHAT: Final = "What is tested"
_HOW: Final = "How it is tested"
_WHERE: Final = "Where, and for how long"
_RESULT: Final = "The report"


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="module:callable, file.py:callable, 'exec:./program args', a noise such as "
            "discrete-laplace:scale=1, a protocol such as protocol:pure,users=64,epsilon=1, a "
            "bandit such as bandit:dist-dp-se,epsilon=1 (further keys: delta, scaling, radius, "
            "path) or bandit:file.py:Policy, running sums such as continual:tree,horizon=64,"
            "epsilon=1, or a name that dpcore audit catalogue lists.",
        ),
    ],
    *,
    claim: Annotated[
        str | None,
        typer.Option(
            metavar="CLAIM",
            help="The promise to test: epsilon=1 or epsilon=1,delta=1e-6; or a whole curve: "
            "rho=0.1, gdp=1, or NOISE@SENSITIVITY such as discrete-gaussian:sigma_squared=4@1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Two neighbouring datasets, as JSON: 0 1, or '[]' '[\"ada\"]'.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Several pairs: a .toml file of tables \\[\\[pair]], each with a = and b =, or a "
            ".json file with a list of pairs.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="SPACE",
            help="Search for the worst pair: a quarter of the runs searches a space such as "
            "vector:dimension=10,low=0,high=1; the others test the pair that was found.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="How neighbouring datasets differ: one record replaced (replace), or added or "
            "removed (add-remove). (default: replace)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Test a feature instead of the output: lowest-bit, sign, length, time (of the "
            "call), file.py:callable, ...; repeatable; identity is the output itself.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--runs",
            metavar="N",
            help="How many runs, on both datasets together. (default: 1e5)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential",
            metavar="",
            help="Stop as soon as there is enough evidence.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    max_runs: Annotated[
        str | None,
        typer.Option(
            "--max-n",
            metavar="N",
            help="The most runs with --sequential. (default: 1e6)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    alpha: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="The chance of a false alarm: REFUTED although the claim is true.",
            rich_help_panel=_HOW,
        ),
    ] = "0.05",
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Which tests run, separated by commas: exact (proof from a known law), fit (are "
            "draws of this law?), replay (the same random draws on both datasets), sample (count "
            "the outputs of many runs). (default: exact where the law is known, else sample)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also show another method's bound, for comparison: clopper-pearson-split, dkw, "
            "bonferroni-thresholds, one-run, bayes, gaussian-dp, plug-in or all.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Repeat an audit exactly: the seed that its report shows.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="SECONDS",
            help="The most time one call of the target may take.",
            rich_help_panel=_WHERE,
        ),
    ] = "60",
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Stop drawing runs after this time, and report.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            "-j",
            "--jobs",
            metavar="N",
            help="How many processes draw runs; -1: one per core. The report is the same. "
            "(default: 1)",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Draw on a Dask cluster, such as tcp://host:8786 (needs dpcore\\[cluster]).",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store the runs in this file, and continue from it after an interruption.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Exit with 4 if the runs could miss an output that gives the data away with this "
            "probability, such as 1e-3 (the blind spot).",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    allow_constant: Annotated[
        bool,
        typer.Option(
            "--allow-constant",
            metavar="",
            help="Accept a target whose every output is the same.",
            rich_help_panel=_RESULT,
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the report as a web page with figures, in one file (needs dpcore\\[plot]).",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Also write the JSON report to a file.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            metavar="",
            help="Print one JSON document instead of text.",
            rich_help_panel=_RESULT,
        ),
    ] = False,
) -> None:
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
    asked = Asked(
        target=target, claim=claim, pair=pair, pairs=pairs, search=search, relation=relation,
        feature=feature, runs=runs, sequential=sequential, max_runs=max_runs, alpha=alpha,
        layers=layers, baseline=baseline, seed=seed, timeout=timeout, deadline=deadline,
        jobs=jobs, scheduler=scheduler, resume=resume, resolution=resolution,
        allow_constant=allow_constant, html=html, output=output,
    )  # fmt: skip
    try:
        report, written = _audited(asked)
    except KeyboardInterrupt:
        print("interrupted: no report", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    written.publish(as_json=as_json, output=output, html=html)
    raise typer.Exit(_exit_code(report, asked))


def _audited(asked: Asked) -> tuple[AuditReport, Written]:
    from audit.apart.room import Room
    from audit.cli import options as read
    from audit.outputs.guard import stdout_to_stderr

    check_files(resume=asked.resume, output=asked.output, html=asked.html, pairs=asked.pairs)
    read.read_resolution(asked.resolution)
    seconds = read.read_seconds("--timeout", asked.timeout)
    # Whatever the target prints, and its outputs when they are looked at, is not the report.
    options = named(
        target="TARGET", alpha="--alpha", relation="--relation", feature="--feature",
        features="--feature",
    )  # fmt: skip
    with options, stdout_to_stderr(), Room(seconds) as room:
        with _of_target():
            subject = room.target(asked.target, seeded=asked.seed is not None)
        plan, wanted = planned(asked, subject, room=room, seconds=seconds)
        report = _examined(subject, plan, wanted, asked.scheduler)
        return report, Written.of(report, html=asked.html)


@contextmanager
def _of_target() -> Iterator[None]:
    # "horizon = 0" is of TARGET, as continual:tree,horizon=0.
    try:
        yield
    except InvalidParameter as error:
        name = "TARGET" if error.argument == "target" else f"TARGET: {error.argument}"
        raise InvalidParameter(name, error.value, error.reason) from None


def _examined(subject: Target, plan: Plan, wanted: Wanted, scheduler: str | None) -> AuditReport:
    from audit.layers import examine

    with progress_bar("runs", plan.runs) as progress:
        if scheduler is None:
            return examine(subject, plan, wanted, progress=progress)
        from audit.runs.jobs import backend

        with backend("dask", scheduler):
            return examine(subject, plan, wanted, progress=progress)


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
