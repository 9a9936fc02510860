r"""``dpcore audit TARGET``, the command itself."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
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
    from audit.report.report import AuditReport

__all__ = ["run"]

_NOT_REACHED: Final = 4
_INTERRUPTED: Final = 128 + signal.SIGINT

# Options by the panel of the help that they are in.
_what = partial(typer.Option, rich_help_panel="What is tested")
_how = partial(typer.Option, rich_help_panel="How it is tested")
_where = partial(typer.Option, rich_help_panel="Where, and for how long")
_result = partial(typer.Option, rich_help_panel="The report")


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
        _what(
            metavar="CLAIM",
            help="The promise to test: epsilon=1 or epsilon=1,delta=1e-6; or a whole curve: "
            "rho=0.1, gdp=1, or NOISE@SENSITIVITY such as discrete-gaussian:sigma_squared=4@1.",
        ),
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        _what(metavar="A B", help="Two neighbouring datasets, as JSON: 0 1, or '[]' '[\"ada\"]'."),
    ] = None,
    pairs: Annotated[
        Path | None,
        _what(
            metavar="FILE",
            help="Several pairs: a .toml file of tables \\[\\[pair]], each with a = and b =, or a "
            ".json file with a list of pairs.",
        ),
    ] = None,
    search: Annotated[
        str | None,
        _what(
            metavar="SPACE",
            help="Search for the worst pair: a quarter of the runs searches a space such as "
            "vector:dimension=10,low=0,high=1; the others test the pair that was found.",
        ),
    ] = None,
    relation: Annotated[
        str | None,
        _what(
            metavar="WORD",
            help="How neighbouring datasets differ: one record replaced (replace), or added or "
            "removed (add-remove). (default: replace)",
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        _what(
            metavar="NAME",
            help="Test a feature instead of the output: lowest-bit, sign, length, time (of the "
            "call), file.py:callable, ...; repeatable; identity is the output itself.",
        ),
    ] = None,
    runs: Annotated[
        str | None,
        _how(
            "-n",
            "--runs",
            metavar="N",
            help="How many runs, on both datasets together. (default: 1e5)",
        ),
    ] = None,
    sequential: Annotated[
        bool, _how("--sequential", metavar="", help="Stop as soon as there is enough evidence.")
    ] = False,
    max_runs: Annotated[
        str | None,
        _how("--max-n", metavar="N", help="The most runs with --sequential. (default: 1e6)"),
    ] = None,
    alpha: Annotated[
        str,
        _how(metavar="P", help="The chance of a false alarm: REFUTED although the claim is true."),
    ] = "0.05",
    layers: Annotated[
        str | None,
        _how(
            metavar="NAMES",
            help="Which tests run, separated by commas: exact (proof from a known law), fit (are "
            "draws of this law?), replay (the same random draws on both datasets), sample (count "
            "the outputs of many runs). (default: exact where the law is known, else sample)",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        _how(
            metavar="NAME",
            help="Also show another method's bound, for comparison: clopper-pearson-split, dkw, "
            "bonferroni-thresholds, one-run, bayes, gaussian-dp, plug-in or all.",
        ),
    ] = None,
    seed: Annotated[
        str | None,
        _how(metavar="N", help="Repeat an audit exactly: the seed that its report shows."),
    ] = None,
    timeout: Annotated[
        str, _where(metavar="SECONDS", help="The most time one call of the target may take.")
    ] = "60",
    deadline: Annotated[
        str | None, _where(metavar="SECONDS", help="Stop drawing runs after this time, and report.")
    ] = None,
    jobs: Annotated[
        str | None,
        _where(
            "-j",
            "--jobs",
            metavar="N",
            help="How many processes draw runs; -1: one per core. The report is the same. "
            "(default: 1)",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        _where(
            metavar="ADDRESS",
            help="Draw on a Dask cluster, such as tcp://host:8786 (needs dpcore\\[cluster]).",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        _where(
            metavar="FILE",
            help="Store the runs in this file, and continue from it after an interruption.",
        ),
    ] = None,
    resolution: Annotated[
        str | None,
        _result(
            metavar="P",
            help="Exit with 4 if the runs could miss an output that gives the data away with this "
            "probability, such as 1e-3 (the blind spot).",
        ),
    ] = None,
    allow_constant: Annotated[
        bool,
        _result(
            "--allow-constant", metavar="", help="Accept a target whose every output is the same."
        ),
    ] = False,
    html: Annotated[
        Path | None,
        _result(
            metavar="FILE",
            help="Write the report as a web page with figures, in one file (needs dpcore\\[plot]).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        _result("-o", "--output", metavar="FILE", help="Also write the JSON report to a file."),
    ] = None,
    as_json: Annotated[
        bool, _result("--json", metavar="", help="Print one JSON document instead of text.")
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
        written = _audited(asked)
    except KeyboardInterrupt:
        print("interrupted: no report", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    written.publish(as_json=as_json, output=output, html=html)
    raise typer.Exit(_exit_code(written.report, asked))


def _audited(asked: Asked) -> Written:
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
        return Written.of(report, html=asked.html)


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
