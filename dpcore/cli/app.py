r"""The ``dpcore`` command, which draws exact noise and loads the commands of sibling packages.

Sibling packages add their command groups through the entry-point group ``dpcore.commands``; each
entry point names a click command (or a typer app) that becomes ``dpcore NAME``. The command
is imported only when it is called or when the help lists it, for a fast start.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpcore.cli.imports import prefer_own_packages, require_own_packages
from dpcore.cli.options import (
    AsJson,
    argument,
    command_group,
    flag,
    named,
    option,
    read_law,
    with_optional_time_limit,
    with_time_limit,
)
from dpcore.cli.terminal import say
from dpcore.errors import ANSWER, CLOSED_PIPE, DEFECT, INTERRUPTED, USAGE, DpcoreError
from dpcore.numbers.parameter import whole_number
from dpcore.spec_syntax import did_you_mean

# The error of the parser for a wrong command line; its module depends on typer's version.
_BARE: Final = "Value error, "
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
_COMPLETION: Final = "_DPCORE_COMPLETE"
_SIZES: Final = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
_SIZE: Final = re.compile("[1-9][0-9]{0,3}")
# A line end within a paragraph, except before exit codes and after a continuation backslash.
_LINE_END: Final = re.compile(r"(?<![\\\n])\n(?!\n|Exit code)")
_SHELLS: Final = re.compile("(complete|source)_(bash|zsh|fish|powershell|pwsh)")
_LINES: Final = 512
_PATIENCE: Final = 3.0
_GROUP: Final = "dpcore.commands"
_OUT_OF_RANGE: Final = re.compile("too large (for a|to convert to) float|integer string conversion")
# Names of options in other libraries and papers, and the corresponding options here.
_SYNONYMS: Final = {
    "steps num-steps iterations compositions": ("--rounds", "--batches"),
    "sampling-rate sample-rate sampling-probability rate q": (
        "--poisson",
        "--rate",
        "--batch-size",
    ),
    "dataset-size num-examples n": ("--examples", "--records", "--users"),
    "sigma std noise-scale": ("--noise-multiplier", "--noise"),
    "trials samples runs repetitions": ("--runs", "--instances"),
    "epsilon delta": ("--claim",),
}


class _Commands(TyperGroup):
    # The commands of this file, and those of every installed package that registers one.
    # Parameters are Any, because typer exports no public names for the types.

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_registered())]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.list_commands(ctx)).strip()
            ctx.fail(f"No such command {args[0]!r}{': ' if hint else ''}{hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        point = _registered().get(cmd_name)
        return own if own is not None or point is None else _load(point)


@cache  # reads the metadata of every installed package: 20 ms
def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


@cache  # built once: the parser loads it twice and reads all annotations each time
def _load(point: EntryPoint) -> Any:
    loaded = point.load()
    command = _reflowed(get_command(loaded) if isinstance(loaded, typer.Typer) else loaded)
    command.name = point.name
    return command


def _reflowed(command: Any) -> Any:
    # Line ends of the source are removed from the help, because the terminal wraps paragraphs.
    # Flags and arguments show no type: it would be <bool> or <str>.
    command.help = _LINE_END.sub(" ", command.help or "")
    help_option = command.get_help_option
    command.get_help_option = lambda context: _converted(_without_type(help_option(context)))
    for each in command.params:
        _converted(_without_type(each))
    for each in getattr(command, "commands", {}).values():
        _reflowed(each)
    return command


def _without_type(parameter: Any) -> Any:
    if getattr(parameter, "is_flag", True):  # positional arguments have no is_flag
        parameter.display_type_rich = lambda ctx: None  # noqa: ARG005  # called by this name
    return parameter


# Converters from the texts of a command line to values of a type.
_OF_TEXTS: Final[dict[Any, Callable[[Any], Any]]] = {
    Path: Path,
    list[str]: list,
    tuple[str, str]: tuple,
}


@dataclass(frozen=True, slots=True)
class _Conversion:
    # Replaces typer's conversion, which builds a pydantic adapter for every parameter, even if it
    # is not given; importing pydantic alone takes a tenth of a second.
    kind: Any
    several: bool
    others: Callable[[], Any]

    def coerce(self, value: Any, **where: Any) -> Any:
        if value is None:
            return () if self.several else None
        if isinstance(self.kind, type) and isinstance(value, self.kind):
            return value
        convert = _OF_TEXTS.get(self.kind)
        return convert(value) if convert else self.others().coerce(value, **where)


def _converted(parameter: Any) -> Any:
    if hasattr(parameter, "get_runtime_param"):
        parameter.get_runtime_param = partial(
            _Conversion,
            parameter.type_descriptor.annotation,
            getattr(parameter, "multiple", False) or parameter.nargs == -1,
            partial(type(parameter).get_runtime_param, parameter),
        )
    return parameter


app = command_group(
    "dpcore",
    cls=_Commands,
    add_completion=True,
    help=(
        "Differential privacy you can check: exact noise, proven privacy costs, and tests of the "
        "running code.\n\n"
        "Noise distributions are written the same way everywhere: "
        "[bold]name:key=value,key=value[/bold], for example "
        "[bold]discrete-laplace:scale=10[/bold] or "
        "[bold]discrete-gaussian:sigma_squared=1/4[/bold].\n\n"
        "Start with [bold]dpcore audit --help[/bold] or [bold]dpcore budget --help[/bold]."
    ),
)

Spelling = Annotated[
    str, argument("NOISE", "A noise distribution, e.g. discrete-laplace:scale=10.")
]
Seed = Annotated[
    str | None,
    option(
        "N",
        "Seed: equal seeds give equal draws, which are NOT PRIVATE. (default: random bits from "
        "the operating system)",
        default=...,
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpcore {version('dpcore')}")
        raise typer.Exit


@app.callback()
def _dpcore(
    debug: bool = flag("Show the traceback of an error instead of one line.", "--debug"),
    version: bool = flag(
        "Print the version and exit.", "--version", "-V", callback=_show_version, is_eager=True
    ),
) -> None:
    # Both options act before any command: main() reads --debug, the callback prints the version.
    del debug, version


@app.command()
@with_optional_time_limit
def sample(
    noise: Spelling,
    size: str = option("N", "The number of draws, e.g. 5 or 1e6.", "-n", "--size", default="1"),
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    r"""Draw noise from its exact law, one integer per line.

    Example: dpcore sample discrete-laplace:scale=10 -n 5
    """
    from dpcore.sampling.rng import SYSTEM, Rng, SeededRng

    law = read_law("NOISE", noise)
    count = whole_number("-n", size, at_least=0)
    start = None if seed is None else whole_number("--seed", seed, at_least=0)
    rng: Rng = SYSTEM if start is None else SeededRng(start)
    if count == 1:
        drawn = [law.sample(rng=rng)]
    else:
        with named(size="-n"):
            drawn = law.sample(count, rng=rng).tolist()
    if as_json:
        print(json.dumps({"schema": 1, "noise": law.to_json(), "seed": start, "values": drawn}))
    else:
        # Written in pieces: an unbuffered stream does not report a large write that was truncated.
        for first in range(0, count, _LINES):
            sys.stdout.write("".join(f"{value}\n" for value in drawn[first : first + _LINES]))


# Unknown options are parsed as values, so that -1 needs no -- before it.
@app.command(context_settings={"ignore_unknown_options": True})
@with_time_limit
def pmf(
    noise: Spelling,
    values: list[str] = argument("K", "Integers, e.g. -1 0 1."),
    bits: str = option(
        "N",
        "The relative width of the bounds is at most 2^-N before they are rounded outwards to "
        "floats.",
        default="64",
    ),
    as_json: AsJson = False,
) -> None:
    r"""Compute proven lower and upper bounds on the probability of each integer K.

    Example: dpcore pmf discrete-gaussian:sigma_squared=4 -1 0 1
    """
    law = read_law("NOISE", noise)
    precision = whole_number("--bits", bits, at_least=8, at_most=1 << 20)
    ends = [
        (k, law.enclose_pmf(k, precision)) for k in [whole_number("K", text) for text in values]
    ]
    rows = [(k, end.lower_float, end.upper_float) for k, end in ends]
    if as_json:
        masses = [{"k": k, "lower": lower, "upper": upper} for k, lower, upper in rows]
        print(json.dumps({"schema": 1, "noise": law.to_json(), "pmf": masses}))
        return
    for k, lower, upper in rows:
        print(f"{k}\t{lower!r}\t{upper!r}")


@cache
def _whole() -> Any:
    return _reflowed(get_command(app))


def run(arguments: Sequence[str]) -> int:
    r"""Run the command with ``arguments`` and return its exit code.

    - 0: success; 1: a negative answer;
    - 2: the command line or a parameter is invalid, or the output could not be written (one line on
      stderr states the reason);
    - 70: a bug in dpcore; 130: Ctrl-C; 141: the reader of the output closed the pipe.

    Other codes are specific to the command. ``--debug`` anywhere before ``--`` shows tracebacks;
    ``help COMMAND`` means ``COMMAND --help``.
    """
    arguments = list(arguments)
    head = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in head
    if debug:
        # --debug is also accepted after the command's name, where new users try it first.
        arguments.remove("--debug")
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        _ignore_wrong_variables()
        prefer_own_packages()
        require_own_packages()
        left = _whole().main(
            args=arguments or ["--help"], prog_name="dpcore", standalone_mode=False
        )
        # A full disk or a closed pipe raises here at the latest, where it can still be reported.
        sys.stdout.flush()
        if not arguments:
            return USAGE
        return left if isinstance(left, int) else ANSWER
    except BaseException as error:  # noqa: BLE001  # every error becomes one line
        try:
            if debug:
                say(traceback.format_exc().split("\n"), sys.stderr)
            return _explain(error, arguments)
        except BaseException:  # noqa: BLE001  # an error that cannot be printed
            return DEFECT


def _ignore_wrong_variables() -> None:
    # An impossible window size, or a completion request without the other variables that a shell
    # sets, comes from a stale environment variable and must not affect the command.
    for name in _SIZES:
        if not _SIZE.fullmatch(os.environ.get(name, "80")):
            del os.environ[name]
    request = os.environ.get(_COMPLETION, "")
    words = "COMP_WORDS" in os.environ and os.environ.get("COMP_CWORD", "").isdecimal()
    if not _SHELLS.fullmatch(request) or (request == "complete_bash" and not words):
        os.environ.pop(_COMPLETION, None)


def _explain(error: BaseException, arguments: Sequence[str]) -> int:
    # Prints one line on stderr and returns the exit code.
    match error:
        case DpcoreError():
            return _complain(str(error), int(getattr(error, "exit_code", USAGE)))
        case _UsageError():
            words = _usage(error, arguments)
            return _complain(words, USAGE) if words else USAGE
        case typer.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case SystemExit(code=code) if not isinstance(error.__context__, BrokenPipeError):
            return code if isinstance(code, int) else ANSWER
        case BrokenPipeError() | SystemExit():  # the parser raises SystemExit on a closed pipe
            _abandon_output()
            return CLOSED_PIPE
        case RecursionError():
            return _complain("the input is nested too deeply to be parsed", USAGE)
        case OverflowError() | ValueError() if _OUT_OF_RANGE.search(str(error)):
            words = "a number is too large or too small to compute with: use less extreme numbers"
            return _complain(words, USAGE)
        case OSError(filename=None):
            _abandon_output()
            return _complain(f"standard output: {error.strerror or error}", USAGE)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    description = " ".join(f"{type(error).__name__}: {error}".split())
    return _complain(
        f"a bug in dpcore, please report it: {description} at {place} (--debug)", DEFECT
    )


def _complain(message: str, code: int) -> int:
    # If stderr is also closed, no further error is raised.
    with suppress(OSError, ValueError, AttributeError):
        say([f"error: {message}"], sys.stderr)
    return code


def _usage(error: Any, arguments: Sequence[str]) -> str:
    # The parser's message on one line with a pointer to the help; empty for a command group without
    # a command, which has printed its help.
    if error.ctx is not None and hasattr(error, "possibilities"):
        options = {name for each in error.ctx.command.params for name in each.opts}
        typed = error.option_name.lstrip("-")
        meant = {name for key, ours in _SYNONYMS.items() if typed in key.split() for name in ours}
        # The parser compares names with their dashes, so that short names are always similar.
        close = [name for name in error.possibilities or () if _is_similar(typed, name)]
        error.possibilities = sorted(options & meant) or close
    words = _swallowed_option(error.ctx, arguments)
    words = words or " ".join(error.format_message().split()).rstrip(".").replace(_BARE, "", 1)
    if not words:
        return ""
    if error.ctx is not None and error.ctx.parent and words.startswith("No such command"):
        words = (
            f"{words.partition('. ')[0]}; the commands are {', '.join(error.ctx.command.commands)}"
        )
    command = _called(arguments) if error.ctx is None else " ".join(error.ctx.command_path.split())
    return f"{words}{'' if words.endswith('?') else ';'} see {command} --help"


def _called(arguments: Sequence[str]) -> str:
    # The command that the arguments name, such as "dpcore release count".
    names, command = ["dpcore"], _whole()
    for word in arguments:
        command = command.get_command(None, word) if hasattr(command, "get_command") else None
        if command is None:
            break
        names.append(word)
    return " ".join(names)


def _is_similar(typed: str, option: str) -> bool:
    name = option.lstrip("-")
    return name.startswith(typed) or bool(get_close_matches(typed, [name]))


def _swallowed_option(context: Any, arguments: Sequence[str]) -> str:
    # An option with two values reads the next two words even if one of them is an option, and the
    # parser then complains about what follows; empty if no option was read as a value.
    given = [] if context is None else context.command.params
    numbers = {opt: each.nargs for each in given for opt in each.opts if opt.startswith("-")}
    for at, name in enumerate(arguments):
        number = numbers.get(name, 0)
        words = arguments[at + 1 : at + 1 + number] if number > 1 else ()
        for word in words:
            if word.partition("=")[0] in numbers:
                return f"Option '{name}' requires {number} arguments, but {word} is one of them"
    return ""


def _abandon_output() -> None:
    # Otherwise the buffered output would raise again when the interpreter exits.
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def main() -> None:
    r"""Run the console script ``dpcore`` and exit with its code."""
    # In the order of their descriptors: no other file may get a descriptor that the parent closed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # open until exit
        elif mode == "w":
            # A character that the terminal cannot encode is printed as \xe9, not an error.
            stream.reconfigure(errors="backslashreplace")
    gc.set_threshold(100_000)  # imported modules are never freed, so rare scans suffice
    code = run(sys.argv[1:])
    mine = threading.current_thread()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not mine):
        threading.Thread(target=_leave, args=(code,), daemon=True).start()
    sys.exit(code)


def _leave(code: int) -> None:
    # The interpreter waits for all threads, including one that audited code left running forever.
    # All output is written by now, so the process ends after a short wait.
    time.sleep(_PATIENCE)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
