r"""``dpcore audit TARGET``, the command itself. ``audit.cli`` registers :func:`run`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from audit.cli.asked import Asked, planned
from audit.cli.written import Written, check_files
from dpcore.command.options import named
from dpcore.command.progress import progress_bar
from dpcore.command.terminal import say

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
            help="epsilon=1 or epsilon=1,delta=1e-6; or a whole curve: rho=0.1, gdp=1, or "
            "NOISE@SENSITIVITY such as discrete-gaussian:sigma_squared=4@1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B", help="Two neighbouring datasets, as JSON.", rich_help_panel=_WHAT
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Several pairs: a TOML file of tables named pair, each with a and b.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="SPACE",
            help="Search for the pair: a quarter of the runs searches a space such as "
            "vector:dimension=10,low=0,high=1; the other runs test the best pair.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            help="How neighbours differ in one person: another record (replace) or one record "
            "more (add-remove). (default: replace)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Test a feature of the output: lowest-bit, sign, length, file.py:callable, ...; "
            "identity is the output itself, time how long its call took. May be repeated.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--runs",
            help="Number of runs, both datasets together. (default: 1e5)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="Stop as soon as there is enough evidence.", rich_help_panel=_HOW
        ),
    ] = False,
    max_runs: Annotated[
        str | None,
        typer.Option(
            "--max-n",
            help="The most runs with --sequential. (default: 1e6)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    alpha: Annotated[
        str,
        typer.Option(
            help="The chance of a false alarm: REFUTED although the claim is true.",
            rich_help_panel=_HOW,
        ),
    ] = "0.05",
    layers: Annotated[
        str | None,
        typer.Option(
            help="Which tests run: exact, fit, replay, sample, separated by commas. (default: "
            "exact where the law is known, else sample)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also show another method's bound, for comparison only: "
            "clopper-pearson-split, ..., or all.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(help="Seed: repeat an audit exactly.", rich_help_panel=_HOW),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(
            help="The most seconds one call of the target may take.", rich_help_panel=_WHERE
        ),
    ] = "60",
    deadline: Annotated[
        str | None,
        typer.Option(help="Stop drawing runs after this many seconds.", rich_help_panel=_WHERE),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            "-j",
            "--jobs",
            help="How many processes draw runs; -1: one per core. The report does not change. "
            "(default: 1)",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Draw on a Dask cluster, such as tcp://host:8786 (extra: cluster).",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store the runs in this file; an interrupted audit goes on from it.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(
            help="Exit with 4 if the blind spot is larger than this probability, such as 1e-3.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    allow_constant: Annotated[
        bool,
        typer.Option(
            "--allow-constant",
            help="Accept a target whose every output is the same.",
            rich_help_panel=_RESULT,
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page with figures: one file, no network (extra: plot).",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Also write the JSON report to a file.", rich_help_panel=_RESULT
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="One JSON document on standard output.", rich_help_panel=_RESULT
        ),
    ] = False,
) -> None:
    r"""Audit TARGET: does the code keep its claim on two neighbouring datasets?

    Example: dpcore audit half-scale --claim epsilon=1 --pair 0 1

    A callable is f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n outputs.
    rng is a numpy Generator; written rng: Rng, a SeededRng of dpcore.

    exec: starts a program in any language. It reads one line from its standard
    input, {"dataset": 0, "n": 1000, "seed": 7}, writes n lines to standard
    output, one output a line, and ends with exit code 0.

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
    options = named(alpha="--alpha", relation="--relation", feature="--feature")
    with options, stdout_to_stderr(), Room(seconds) as room:
        subject = room.target(asked.target, seeded=asked.seed is not None)
        plan, wanted = planned(asked, subject, room=room, seconds=seconds)
        report = _examined(subject, plan, wanted, asked.scheduler)
        return report, Written.of(report, html=asked.html)


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
