r"""The ``dpcore audit`` commands; ``commands`` is what the entry point names.

``dpcore audit TARGET`` is the command itself: a first word that is no sub-command is a target (one
that has a sub-command's name is written with its path, ``./fit.py:fit``).
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from audit.fit_command import fit
from audit.output_file import check_writable, write_whole
from audit.progress import progress_bar
from audit.replay_command import replay_command
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from audit.plan import Plan
    from audit.report import AuditReport
    from audit.target import Target

__all__ = ["commands"]

_DEFAULT: Final = "run"
_NOT_REACHED: Final = 4
_INTERRUPTED: Final = 128 + signal.SIGINT


class _TargetOrCommand(TyperGroup):
    # The types are typer's own, which it does not export under a public name.

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [_DEFAULT, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        # The usage line reads "dpcore audit TARGET", as it is written.
        return ("" if name == _DEFAULT else name), command, rest


class _Nameless(TyperCommand):
    def get_usage(self, ctx: Any) -> Any:
        # Its name is the empty word between the two blanks.
        return super().get_usage(ctx).replace("  ", " ")


commands = typer.Typer(
    cls=_TargetOrCommand,
    name="audit",
    help="Doubt: what the code that runs really does.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
commands.command()(fit)
commands.command("replay")(replay_command)


@commands.command(_DEFAULT, cls=_Nameless, hidden=True)
def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="module:callable, file.py:callable, 'exec:./program args', a noise such as "
            "discrete-laplace:scale=1, a protocol such as protocol:pure,users=64,epsilon=1, or a "
            "name that dpcore audit catalogue lists.",
        ),
    ],
    *,
    claim: Annotated[
        str | None, typer.Option(help="What to doubt: epsilon=1 or epsilon=1,delta=1e-6.")
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Two neighbouring datasets, as JSON."),
    ] = None,
    runs: Annotated[
        str | None, typer.Option("-n", "--runs", help="Runs over both worlds together. (1e5)")
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Stop as soon as the evidence is in.")
    ] = False,
    max_runs: Annotated[
        str | None, typer.Option("--max-n", help="The most runs of --sequential. (1e6)")
    ] = None,
    alpha: Annotated[str, typer.Option(help="The chance of a false alarm.")] = "0.05",
    relation: Annotated[
        str | None,
        typer.Option(
            help="Neighbours differ in one person: other data (replace), or there and not there "
            "(add-remove). (replace)"
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="exact, sample or both; by default the strongest there is.")
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(help="Exit with 4 unless an always-revealing output this rare would be seen."),
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Repeat an audit.")] = None,
    timeout: Annotated[str, typer.Option(help="The most seconds one call may take.")] = "60",
    deadline: Annotated[
        str | None, typer.Option(help="Draw no more runs after so many seconds.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the JSON report to a file, too.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output.")
    ] = False,
) -> None:
    r"""Audit TARGET: does the code keep its claim on two neighbouring datasets?

    Example: dpcore audit half-scale --claim epsilon=1 --pair 0 1

    A callable is f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n outputs.
    Exit code: 0 not refuted or proven, 1 refuted, 2 usage, 3 the target failed, 4 resolution not
    reached.
    """
    try:
        from audit.arguments import (
            read_claim,
            read_layers,
            read_pair,
            read_resolution,
            read_runs,
            read_seconds,
            read_seed,
        )
        from audit.guard import stdout_to_stderr
        from audit.plan import Plan
        from audit.target import read_target

        check_writable("--output", output)
        wanted = read_resolution(resolution)
        with stdout_to_stderr():
            subject = read_target(target, seeded=seed is not None)
        plan = Plan(
            claim=read_claim(subject, claim, relation),
            pair=read_pair(subject, pair),
            runs=read_runs(runs, max_runs, sequential=sequential),
            sequential=sequential,
            alpha=alpha,
            seed=read_seed(seed),
            timeout=read_seconds("--timeout", timeout),
            deadline=None if deadline is None else read_seconds("--deadline", deadline),
        )
        report = _examine(subject, plan, read_layers(subject, layers))
    except KeyboardInterrupt:
        print("interrupted: no report", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    _publish(report, as_json=as_json, output=output)
    if report.error is not None:
        raise report.error
    coarse = wanted is not None and report.runs and not report.resolution <= wanted
    if coarse and report.verdict == "not_refuted":
        from audit.render import resolution_reached

        reached = resolution_reached(report)
        print(f"error: --resolution = {resolution}: not reached: {reached}", file=sys.stderr)
        raise typer.Exit(_NOT_REACHED)
    raise typer.Exit(report.exit_code)


@commands.command()
def catalogue(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output.")
    ] = False,
) -> None:
    r"""List the broken mechanisms that come with the toolkit, each with its correct twin."""
    from audit.catalogue import ENTRIES

    if as_json:
        rows = [
            {
                "name": entry.name,
                "twin": entry.twin.name,
                "pair": list(entry.pair),
                "epsilon": str(entry.epsilon),
                "delta": str(entry.delta),
                "relation": entry.relation.value,
                "sentence": entry.sentence,
            }
            for entry in ENTRIES
        ]
        print(json.dumps({"schema": "dpcore-catalogue/1", "entries": rows}, indent=2, default=str))
        return
    from audit.render import catalogue_table

    print("\n".join(catalogue_table(ENTRIES)))


def _examine(subject: Target, plan: Plan, layers: tuple[str, ...]) -> AuditReport:
    from audit.target import KnownLaw

    if "exact" not in layers or not isinstance(subject, KnownLaw):
        return _sampled(subject, plan)
    from audit.proof import both, prove

    proven = prove(subject, plan)
    return both(proven, _sampled(subject, plan)) if "sample" in layers else proven


def _sampled(subject: Target, plan: Plan) -> AuditReport:
    from audit.run import sample

    with progress_bar("runs", plan.runs) as progress:
        return sample(subject, plan, progress=progress)


def _publish(report: AuditReport, *, as_json: bool, output: Path | None) -> None:
    # To the file first: what fails on one way out still leaves by the other.
    unwritten: InvalidParameter | None = None
    if output is not None:
        try:
            write_whole("--output", output, report.to_text())
        except InvalidParameter as error:
            unwritten = error
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    sys.stderr.flush()
    if as_json:
        sys.stdout.write(report.to_text())
    elif report.error is None or report.runs:
        from audit.render import show

        show(report, sys.stdout)
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
