r"""The ``dpcore audit`` commands, which the entry point ``commands`` registers.

``dpcore audit TARGET`` is the command itself: a first argument that is not a sub-command is a
target (write ``./fit.py:fit`` for a target with the name of a sub-command).
"""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from audit.cli.audit_command import run
from audit.cli.bench import bench_command
from audit.cli.canaries import canaries_command
from audit.cli.corpus import corpus_commands
from audit.cli.dpsgd import dpsgd_command
from audit.cli.exact import exact_command
from audit.cli.fit import fit_command
from audit.cli.replay import replay_command
from dpcore.cli.options import AsJson, command_group
from dpcore.cli.terminal import say, show

__all__ = ["commands"]

_DEFAULT: Final = "run"


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
    help="Test a mechanism: does the code satisfy its epsilon?",
)
commands.command("fit")(fit_command)
commands.command("exact")(exact_command)
commands.command("replay")(replay_command)
commands.command("canaries")(canaries_command)
commands.command("dpsgd")(dpsgd_command)
commands.command("bench")(bench_command)
commands.add_typer(corpus_commands)
commands.command(_DEFAULT, cls=_Nameless, hidden=True)(run)


@commands.command()
def catalogue(as_json: AsJson = False) -> None:
    r"""List mechanisms that are broken on purpose, each with its correct twin.

    Example: dpcore audit catalogue

    Audit one by its name: dpcore audit half-scale.
    """
    from audit.broken_mechanisms import ENTRIES

    if as_json:
        from audit.formats.result import members

        columns = members("pair", "epsilon", "delta", "relation", "sentence")
        rows = [
            {"name": entry.name, "twin": entry.twin.name, **columns(entry)} for entry in ENTRIES
        ]
        show({"schema": "dpcore-catalogue/1", "entries": rows})
        return
    from audit.cli.output import catalogue_table

    say(catalogue_table(ENTRIES))
