r"""The ``dpcore`` command: exact noise from the shell, and the door to the sibling packages.

Sibling packages add their command groups through the entry-point group ``dpcore.commands``; each
entry point names a click command (or a typer app) that becomes ``dpcore NAME``. One is loaded
only when it is called or when help lists it, so a command pays for nothing it does not use.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.parameter import rational
from dpcore.rng import SYSTEM, Rng, SeededRng
from dpcore.spelling import read_noise

__all__ = ["app", "main", "run"]

USAGE: Final = 2
_GROUP: Final = "dpcore.commands"


class _Commands(TyperGroup):
    # The commands of this file, and those of every installed package that registers one. The
    # types are typer's own, which it does not export under a public name.

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_registered())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        point = _registered().get(cmd_name)
        return own if own is not None or point is None else _load(point)


def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def _load(point: EntryPoint) -> Any:
    loaded = point.load()
    command = get_command(loaded) if isinstance(loaded, typer.Typer) else loaded
    command.name = point.name
    return command


app = typer.Typer(
    cls=_Commands,
    name="dpcore",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help=(
        "Differential privacy you can check: exact noise, proven privacy budgets, and audits of "
        "the code that really runs.\n\n"
        "A noise is written the same everywhere: [bold]name:key=value,key=value[/bold], for "
        "example discrete-laplace:scale=10 or discrete-gaussian:sigma_squared=1/4.\n\n"
        "Start with [bold]dpcore audit --help[/bold]."
    ),
)

Spelling = Annotated[
    str, typer.Argument(metavar="NOISE", help="A noise, e.g. discrete-laplace:scale=10")
]
Seed = Annotated[
    int | None,
    typer.Option(help="Reproducible draws, NOT PRIVATE; without it the operating system's entropy"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpcore {version('dpcore')}")
        raise typer.Exit


@app.callback()
def _dpcore(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error instead of one line.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    # Both options act before any command: main() reads --debug, the callback prints the version.
    del debug, version


@app.command()
def sample(
    noise: Spelling,
    size: Annotated[str, typer.Option("-n", "--size", help="How many draws, e.g. 5 or 1e6.")] = "1",
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    r"""Draw from a noise, exactly, one integer a line.

    Example: dpcore sample discrete-laplace:scale=10 -n 5
    """
    law = read_noise(noise)
    count = _count("size", size)
    rng: Rng = SYSTEM if seed is None else SeededRng(seed)
    if count == 1:
        drawn = [law.sample(rng=rng)]
    else:
        drawn = law.sample(count, rng=rng).tolist()
    if as_json:
        print(json.dumps({"schema": 1, "noise": law.to_json(), "seed": seed, "values": drawn}))
    else:
        sys.stdout.write("".join(f"{value}\n" for value in drawn))


@app.command()
def pmf(
    noise: Spelling,
    values: Annotated[list[int], typer.Argument(metavar="K...", help="Integers; put -- before.")],
    bits: Annotated[int, typer.Option(help="Relative width of the bounds: 2^-bits.")] = 64,
    as_json: AsJson = False,
) -> None:
    r"""The probability of each integer K, between a proven lower and upper bound.

    Example: dpcore pmf discrete-gaussian:sigma_squared=4 -- -1 0 1
    """
    law = read_noise(noise)
    rows = [(k, law.enclose_pmf(k, bits)) for k in values]
    if as_json:
        masses = [{"k": k, "lower": row.lower_float, "upper": row.upper_float} for k, row in rows]
        print(json.dumps({"schema": 1, "noise": law.to_json(), "pmf": masses}))
        return
    for k, row in rows:
        print(f"{k}\t{row.lower_float!r}\t{row.upper_float!r}")


def _count(argument: str, text: str) -> int:
    exact = rational(argument, text)
    if exact.denominator != 1 or exact < 0:
        raise InvalidParameter(argument, text, "must be a whole number >= 0, e.g. 1000 or 1e6")
    return int(exact)


def run(arguments: Sequence[str]) -> int:
    r"""Run the command with ``arguments`` and return its exit code.

    0 done; 2 the command line or a parameter was wrong (one line on stderr says which); other
    codes are the command's own. ``--debug`` anywhere before ``--`` shows tracebacks.
    """
    arguments = list(arguments)
    head = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in head
    if debug:
        # It may stand after the command's name, where a newcomer tries it first.
        arguments.remove("--debug")
    try:
        get_command(app).main(args=arguments, prog_name="dpcore")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    except DpcoreError as error:
        if debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return int(getattr(error, "exit_code", USAGE))
    return 0


def main() -> None:
    r"""The console script ``dpcore``."""
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
