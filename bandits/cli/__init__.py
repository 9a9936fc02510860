r"""The ``dpcore bandit`` commands; ``commands`` is what the entry point names."""

from __future__ import annotations

from typing import Final

import typer

from bandits.cli.results import compare, plot
from bandits.cli.run import run
from dpcore.command.options import AsJson, command_group
from dpcore.command.terminal import say, show

__all__ = ["commands"]

_SCHEMA: Final = "dpcore-bandit-list/1"
_OF_PRESETS: Final = ["name", "sentence", "algorithms", "epsilons", "horizon", "instances", "arms"]
_OF_ALGORITHMS: Final = ["name", "sentence", "parameter", "default"]
_USAGE: Final = 2

commands = command_group(
    "bandit",
    help=(
        "Run private bandit algorithms: their regret and their epsilon.\n\n"
        "Start with [bold]dpcore bandit run cz/easy --epsilon 0.5 -T 1e5 --instances 3[/bold]."
    ),
)


@commands.callback(invoke_without_command=True)
def _alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(_USAGE)


@commands.command("list")
def list_command(
    as_json: AsJson = False,
) -> None:
    r"""List the presets (simulated worlds and data sets) and the algorithms.

    Example: dpcore bandit list
    """
    from bandits.cli.render import list_lines
    from bandits.policies.registry import ALGORITHMS
    from bandits.worlds import PRESETS

    if not as_json:
        say(list_lines(PRESETS, ALGORITHMS))
        return
    presets = [{key: getattr(preset, key) for key in _OF_PRESETS} for preset in PRESETS]
    algorithms = [{key: getattr(entry, key) for key in _OF_ALGORITHMS} for entry in ALGORITHMS]
    show({"schema": _SCHEMA, "presets": presets, "algorithms": algorithms})


commands.command()(run)
commands.command()(compare)
commands.command()(plot)
