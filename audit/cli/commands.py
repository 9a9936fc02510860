r"""The ``dpcore audit`` commands; the package's entry point is ``commands`` in this module.

A first argument that is not a sub-command is a target: ``dpcore audit TARGET`` audits it. Write
``./fit.py:fit`` for a target with the name of a sub-command.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from audit.audit_spec import AuditSpec
from audit.cli.catalogue import bench_command, catalogue_command, corpus_commands
from audit.cli.layers import exact_command, fit_command, replay_command
from audit.cli.options_and_output import (
    Rendered,
    SpecOptions,
    check_files,
    named_by_options,
    read_pair,
    read_spec,
    with_spec,
)
from audit.cli.training import canaries_command, dpsgd_command
from audit.formats.junit_and_sarif import format_of
from dpcore.cli.options import FORMAT_HELP, Format, command_group, flag, option
from dpcore.cli.terminal import progress_bar, say
from dpcore.errors import ABSENT, INTERRUPTED, NO_ANSWER, InvalidParameter
from dpcore.numbers.parameter import rational

if TYPE_CHECKING:
    from audit.report.audit_report import AuditReport

__all__ = ["commands"]

_DEFAULT: Final = "run"
_RESULT: Final = {"rich_help_panel": "The report"}


@with_spec()
def run(
    options: SpecOptions,
    *,
    spec: Path | None = option(
        "FILE",
        "Read options from a .toml or .json file, by name: target, claim, pair, features, ...; "
        "options on the command line override the file.",
        rich_help_panel="What is tested",
    ),
    scheduler: str | None = option(
        "ADDRESS",
        "Draw the runs on a Dask cluster, such as tcp://host:8786 (needs dpcore\\[cluster]).",
        rich_help_panel="Where, and for how long",
    ),
    html: Path | None = option(
        "FILE",
        "Write the report as a web page with figures, in one file (needs dpcore\\[plot]).",
        **_RESULT,
    ),
    output: Path | None = option(
        "FILE", "Also write the JSON report to a file.", "-o", "--output", **_RESULT
    ),
    as_json: bool = flag("Print one JSON document instead of text.", "--json", **_RESULT),
    form: Format = option("FORMAT", FORMAT_HELP, "--format", default=Format.TEXT, **_RESULT),
) -> None:
    r"""Audit TARGET: does the code satisfy its claim on two neighbouring datasets?

    Example: dpcore audit half-scale --claim epsilon=1 --pair 0 1

    A callable is f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n outputs.
    rng is a numpy Generator, or a SeededRng of dpcore if it is annotated rng: Rng.

    exec: starts a program in any language. The program reads one line from standard input,
    {"dataset": 0, "n": 1000, "seed": 7}, writes n outputs to standard output, one per line, and
    ends with exit code 0.

    Exit code: 0 proven or not refuted, 1 refuted or a fault found, 2 usage, 3 the target failed, 4
    nothing measured, or --resolution not reached.
    """
    printed, given = format_of(form, as_json=as_json), options.given()
    try:
        with named_by_options():
            check_files(
                resume=given.get("resume"), output=output, html=html, pairs=given.get("pairs")
            )
            requested = _read_options(given, spec, scheduler)
            report, rendered = _audited(requested, scheduler, html, printed)
    except KeyboardInterrupt:
        print("interrupted: no report", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    rendered.publish(output=output, html=html, statement=printed == "text")
    raise typer.Exit(_exit_code(report, requested))


def _read_options(given: dict[str, Any], spec: Path | None, scheduler: str | None) -> AuditSpec:
    if "pair" in given:
        given["pair"] = read_pair(given["pair"])
    if scheduler is not None:
        if "jobs" in given:
            reason = "applies to local processes: omit it with --scheduler"
            raise InvalidParameter("--jobs", given["jobs"], reason)
        given["jobs"] = -1  # all workers of the cluster
    if spec is not None:
        given = read_spec(spec) | given
    target = given.get("target", ABSENT)
    if not isinstance(target, str):
        raise InvalidParameter("TARGET", target, "must be given; see dpcore audit --help")
    return AuditSpec(**given)


def _audited(
    spec: AuditSpec, scheduler: str | None, html: Path | None, form: str
) -> tuple[AuditReport, Rendered]:
    from audit.outputs.time_limit import stdout_to_stderr
    from audit.run_audit import Audit
    from audit.sandbox.sandboxed_target import Sandbox

    cluster: AbstractContextManager[object] = nullcontext()
    if scheduler is not None:
        from audit.sandbox.parallel_jobs import dask_cluster

        cluster = dask_cluster(scheduler)
    # Text that the target prints, also while outputs are read, must not mix with the report.
    with stdout_to_stderr(), Sandbox(spec.timeout) as sandbox:
        try:
            target = sandbox.target(spec.target, seeded=spec.seed is not None)
        except InvalidParameter as error:
            # An error about "horizon" concerns TARGET, as in continual:tree,horizon=0.
            name = "TARGET" if error.argument == "target" else f"TARGET: {error.argument}"
            raise InvalidParameter(name, error.value, error.reason) from None
        audit = Audit(replace(spec, target=target), feature=sandbox.feature)
        with progress_bar("runs", audit.plan.runs) as progress, cluster:
            report = audit.run(progress, figures=html is not None)
        return report, Rendered.of(report, form=form, html=html)


def _exit_code(report: AuditReport, spec: AuditSpec) -> int:
    # Raise the error of the target after the report has been written.
    if report.error is not None:
        raise report.error
    wanted = spec.resolution
    coarse = wanted is not None and not report.resolution <= rational("resolution", wanted)
    if coarse and report.runs and report.verdict == "not_refuted" and report.exit_code == 0:
        say([f"error: --resolution = {wanted}: not reached: {report.blind_spot}"], sys.stderr)
        return NO_ANSWER
    return report.exit_code


class _TargetOrCommand(TyperGroup):
    # Typer does not export these types under a public name.

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [_DEFAULT, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        # Keep the usage line "dpcore audit TARGET".
        return ("" if name == _DEFAULT else name), command, rest


class _Nameless(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        # List the sub-commands in a box, like the commands of a group.
        from rich import print as show_box
        from rich.panel import Panel
        from rich.table import Table

        super().format_help(ctx, formatter)
        rows = Table.grid(padding=(0, 2))
        for name, command in ctx.parent.command.commands.items():
            if not command.hidden:
                rows.add_row(f"[bold cyan]{name}[/]", command.get_short_help_str(200))
        title = "Commands: dpcore audit COMMAND --help"
        show_box(Panel(rows, title=title, title_align="left", border_style="dim"))

    def get_usage(self, ctx: Any) -> Any:
        # The name of the command is empty, which leaves two spaces.
        return super().get_usage(ctx).replace("  ", " ")


commands = command_group(
    "audit",
    cls=_TargetOrCommand,
    help="Test a mechanism: does the code satisfy its claimed epsilon?",
)
for _name, _command in (
    ("fit", fit_command),
    ("exact", exact_command),
    ("replay", replay_command),
    ("canaries", canaries_command),
    ("dpsgd", dpsgd_command),
    ("bench", bench_command),
    ("catalogue", catalogue_command),
):
    commands.command(_name)(_command)
commands.add_typer(corpus_commands)
commands.command(_DEFAULT, cls=_Nameless, hidden=True)(run)
