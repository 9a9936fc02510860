r"""``dpcore audit TARGET``, the command itself. ``audit.cli`` registers :func:`run`."""

from __future__ import annotations

import io
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dpcore.command.output_file import check_writable, write_whole
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

_WHAT: Final = "What is doubted"
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
            "path), or a name that dpcore audit catalogue lists.",
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
            help="Look for the pair: a quarter of the runs searches a space such as "
            "vector:dimension=10,low=0,high=1, the rest tests what it found.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            help="Neighbours differ in one person: other data (replace), or there and not there "
            "(add-remove). (replace)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Read outputs through a feature: lowest-bit, sign, length, file.py:callable, ...; "
            "identity is the output itself. Several share the level.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            "-n", "--runs", help="Runs over both worlds together. (1e5)", rich_help_panel=_HOW
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="Stop as soon as the evidence is in.", rich_help_panel=_HOW
        ),
    ] = False,
    max_runs: Annotated[
        str | None,
        typer.Option("--max-n", help="The most runs of --sequential. (1e6)", rich_help_panel=_HOW),
    ] = None,
    alpha: Annotated[
        str, typer.Option(help="The chance of a false alarm.", rich_help_panel=_HOW)
    ] = "0.05",
    layers: Annotated[
        str | None,
        typer.Option(
            help="Of exact, fit, replay and sample, with commas between. (exact where the law is "
            "known, else sample)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Show another method's bound beside, for comparison only: "
            "clopper-pearson-split, ..., or all.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Repeat an audit.", rich_help_panel=_HOW)] = None,
    timeout: Annotated[
        str, typer.Option(help="The most seconds one call may take.", rich_help_panel=_WHERE)
    ] = "60",
    deadline: Annotated[
        str | None,
        typer.Option(help="Draw no more runs after so many seconds.", rich_help_panel=_WHERE),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option(
            "-j",
            "--jobs",
            help="Processes that draw, -1: one a core. The report is the same. (1)",
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
            help="Keep what is drawn in this file, and go on from what it holds.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(
            help="Exit with 4 unless an always-revealing output this rare would be seen.",
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
            "-o", "--output", help="Write the JSON report to a file, too.", rich_help_panel=_RESULT
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
    Exit code: 0 not refuted or proven, 1 refuted or a fault found, 2 usage, 3 the target failed,
    4 nothing measured, or less than --resolution asks for.
    """
    try:
        from audit.apart.room import Room
        from audit.cli import options as read
        from audit.layers import Wanted
        from audit.outputs.guard import stdout_to_stderr
        from audit.runs.plan import Plan

        _check_files(resume=resume, output=output, html=html, pairs=pairs)
        wanted_resolution = read.read_resolution(resolution)
        # Whatever the target prints, and its outputs when they are looked at, is not the report.
        seconds = read.read_seconds("--timeout", timeout)
        with stdout_to_stderr(), Room(seconds) as room:
            subject = room.target(target, seeded=seed is not None)
            features = read.read_features(subject, feature, room=room)
            stated = read.read_claim(subject, claim, relation)
            both = read.read_pairs(
                subject, pair, pairs, searched=search is not None, relation=stated.relation
            )
            asked = {
                "--search": search, "--feature": feature, "--baseline": baseline,
                "--resume": resume, "-n": runs, "--max-n": max_runs,
                "--sequential": sequential or None, "--resolution": resolution,
                "--deadline": deadline,
            }  # fmt: skip
            # A second start goes on with the seed of the first.
            kept = read.read_stored_seed(resume) if seed is None else None
            plan = Plan(
                claim=stated,
                pair=both[0] if both else (None, None),
                others=both[1:],
                features=features,
                runs=read.read_runs(runs, max_runs, sequential=sequential),
                sequential=sequential,
                alpha=alpha,
                seed=read.read_seed(seed) if kept is None else kept,
                jobs=read.read_jobs(jobs, scheduler),
                timeout=seconds,
                deadline=None if deadline is None else read.read_seconds("--deadline", deadline),
                allow_constant=allow_constant,
            )
            wanted = Wanted(
                layers=read.read_layers(subject, layers, asked),
                baselines=read.read_baselines(baseline),
                space=None if search is None else read.read_space(search, stated),
                state=resume,
                figures=html is not None,
            )
            report = _examined(subject, plan, wanted, scheduler)
            written = _Written.of(report, html=html)
    except KeyboardInterrupt:
        print("interrupted: no report", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    _publish(report, written, as_json=as_json, output=output, html=html)
    if report.error is not None:
        raise report.error
    coarse = wanted_resolution is not None and not report.resolution <= wanted_resolution
    if coarse and report.runs and report.verdict == "not_refuted" and report.exit_code == 0:
        say([f"error: --resolution = {resolution}: not reached: {written.resolution}"], sys.stderr)
        raise typer.Exit(_NOT_REACHED)
    raise typer.Exit(report.exit_code)


def _check_files(**files: Path | None) -> None:
    # Before a run is drawn: an hour of runs is not lost to a slip of the pen.
    places: dict[Path, str] = {}
    for name, path in files.items():
        option = f"--{name}"
        if path is None:
            continue
        if name != "pairs":
            check_writable(option, path)
        if path.exists() and not path.is_file():
            if name == "resume":
                raise InvalidParameter(option, str(path), "is not a plain file")
            continue
        other = places.setdefault(path.resolve(), option)
        if other != option:
            raise InvalidParameter(option, str(path), f"is the file of {other}, too")
    if files["html"] is not None:
        from audit.report.figures import check_figures

        check_figures(str(files["html"]))


def _examined(subject: Target, plan: Plan, wanted: Wanted, scheduler: str | None) -> AuditReport:
    from audit.layers import examine

    with progress_bar("runs", plan.runs) as progress:
        if scheduler is None:
            return examine(subject, plan, wanted, progress=progress)
        from audit.runs.jobs import backend

        with backend("dask", scheduler):
            return examine(subject, plan, wanted, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    # The report in its forms, made while nothing that an output's own code prints is seen.
    text: str
    table: str
    resolution: str
    page: str | InvalidParameter

    @classmethod
    def of(cls, report: AuditReport, *, html: Path | None) -> _Written:
        from audit.report.render import resolution_reached, show

        table = io.StringIO()
        if report.error is None or report.runs:
            show(report, table)
        page: str | InvalidParameter = ""
        if html is not None:
            from audit.report import html as pages

            try:
                page = pages.page(report.to_json(), command=shlex.join(["dpcore", *sys.argv[1:]]))
            except InvalidParameter as error:
                page = error
        return cls(
            text=report.to_text(),
            table=table.getvalue(),
            resolution=resolution_reached(report),
            page=page,
        )


def _publish(
    report: AuditReport, written: _Written, *, as_json: bool, output: Path | None, html: Path | None
) -> None:
    # To the files first: what fails on one way out still leaves by the others.
    unwritten: InvalidParameter | None = None
    for option, path, text in (
        ("--output", output, written.text),
        ("--html", html, written.page),
    ):
        try:
            if isinstance(text, InvalidParameter):
                raise text
            if path is not None:
                write_whole(option, path, text)
        except InvalidParameter as error:
            unwritten = error
    for warning in report.warnings:
        say([f"warning: {warning}"], sys.stderr)
    sys.stderr.flush()
    if as_json:
        sys.stdout.write(written.text)
    elif sys.stdout.isatty() and written.table:
        from audit.report.render import show

        show(report, sys.stdout)
    else:
        sys.stdout.write(written.table)
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
