r"""Command groups, options and value parsers shared by the commands of all packages.

An invalid value raises an error that names the option, before any draw or computation.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import StrEnum
from fractions import Fraction
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, overload

import typer

from dpcore.cli.workers import checked_jobs
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.parameter import rational, whole_number

if TYPE_CHECKING:
    from dpcore.noise import Noise

_T = TypeVar("_T")

AsJson = Annotated[
    bool, typer.Option("--json", metavar="", help="Print one JSON document instead of text.")
]


class Format(StrEnum):
    r"""Output formats: text lines, one JSON document, or a report format that CI servers read."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"


FORMAT_HELP: Final = "Print text, json (one document), junit (a test report) or sarif (a log)."

AsFormat = Annotated[Format, typer.Option("--format", metavar="FORMAT", help=FORMAT_HELP)]
r"""The type of ``--format``; ``--json`` is the same as ``--format json``."""


def command_group(name: str, **given: Any) -> typer.Typer:
    r"""Create a typer app, for a group or a single command, with ``-h`` for help and no tracebacks.

    >>> command_group("budget", help="Compose privacy costs.").info.name
    'budget'
    """
    return typer.Typer(
        name=name,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        **{"add_completion": False, **given},
    )


def option(metavar: str, text: str, *names: str, default: Any = None, **given: Any) -> Any:
    r"""Declare an option as the default of a parameter; ``default=...`` makes it required.

    Within ``Annotated``, pass ``default=...`` and give the default in the signature. Further
    arguments are passed to :func:`typer.Option`, for instance the panel of the help text.

    >>> option("FILE", "Write the report to a file.", "-o", "--output").param_decls
    ('-o', '--output')
    """
    return typer.Option(default, *names, metavar=metavar, help=text, **given)


def flag(text: str, *names: str, **given: Any) -> Any:
    r"""Declare a switch, off by default, as the default of a parameter."""
    return typer.Option(False, *names, metavar="", help=text, **given)


def argument(metavar: str, text: str, *, default: Any = ..., **given: Any) -> Any:
    r"""Declare a positional argument as the default of a parameter."""
    return typer.Argument(default, metavar=metavar, help=text, **given)


def with_fields(command: Callable[..., None]) -> Callable[..., None]:
    r"""Wrap a command so that the fields of its dataclass parameters become options.

    Options that several commands share, or that are passed on together, are declared once, as
    fields of a dataclass; a command requests them with a parameter of that type.
    """
    own = inspect.signature(command, eval_str=True)
    groups = {name: one.annotation for name, one in own.parameters.items()}
    groups = {name: kind for name, kind in groups.items() if is_dataclass(kind)}

    @wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    parameters: list[inspect.Parameter] = []
    for name, one in own.parameters.items():
        inside = inspect.signature(groups[name], eval_str=True).parameters if name in groups else {}
        parameters += inside.values() or [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    return _with_parameters(called, parameters)


def _with_parameters(
    called: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    # The command-line parser reads the signature and the annotations of a command.
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # PEP 362
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


@contextmanager
def named(*same: str, **options: str) -> Iterator[None]:
    r"""Report errors of Python arguments under the names of their command-line options.

    ``options`` maps arguments to options; each argument in ``same`` has an option of its own name.

    >>> with named("delta", count="--rounds"):
    ...     raise InvalidParameter("delta", 2, "must lie in [0, 1]")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --delta = 2: must lie in [0, 1]
    """
    options = {name: f"--{name.replace('_', '-')}" for name in same} | options
    try:
        yield
    except InvalidParameter as error:
        # An argument such as "epsilon (for dp-se)" is reported under the option for epsilon.
        word, blank, rest = error.argument.partition(" ")
        option = options.get(word)
        if option is None:
            raise
        raise InvalidParameter(f"{option}{blank}{rest}", error.value, error.reason) from None


def read_jobs(text: str) -> int:
    r"""Parse ``--jobs``, a number of processes in [1, 1024], or -1 for one per core.

    >>> read_jobs("2"), read_jobs("-1")
    (2, -1)
    """
    with named("jobs"):
        return checked_jobs(whole_number("jobs", text))


@overload
def read_law(argument: str, text: str) -> Noise: ...
@overload
def read_law(argument: str, text: str, more: Mapping[str, type[_T]]) -> Noise | _T: ...
def read_law(argument: str, text: str, more: Mapping[str, type[Any]] | None = None) -> Any:
    r"""Parse noise such as ``skellam:variance=400``; errors report the option ``argument``.

    ``more`` maps additional names to law classes that are not subclasses of :class:`Noise`.

    >>> read_law("--noise", "skellam:variance=0")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --noise = skellam:variance=0: variance must be > 0: ...
    """
    from dpcore.parse_noise import NO_MORE, read_noise

    try:
        return read_noise(text, more or NO_MORE)
    except InvalidParameter as error:
        what = error.reason if error.argument == "noise" else f"{error.argument} {error.reason}"
        raise InvalidParameter(argument, text, what) from None


def share(argument: str, text: str) -> Fraction:
    r"""Parse a fraction in [0, 1], written as 90% or 0.9.

    >>> share("--honest", "90%")
    Fraction(9, 10)
    """
    try:
        exact = rational(argument, text[:-1]) / 100 if text.endswith("%") else rational("", text)
    except InvalidParameter:
        raise InvalidParameter(argument, text, "must be a fraction such as 90% or 0.9") from None
    if not 0 <= exact <= 1:
        raise InvalidParameter(argument, text, "must lie between 0% and 100%")
    return exact


class OutOfTime(DpcoreError):
    r"""Raised if a computation did not finish within the time limit."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    r"""Raise :class:`OutOfTime` if the block uses more than ``seconds`` of processor time.

    The load of the machine does not affect processor time. There is no limit on systems without a
    processor-time clock (Windows), or in threads other than the main thread.
    """
    clock, sign = getattr(signal, "ITIMER_PROF", None), getattr(signal, "SIGPROF", None)
    if clock is None or sign is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise OutOfTime(
            f"no answer within {seconds} s of processor time: increase --within, use less extreme "
            "numbers, or request a wider interval"
        )

    before = signal.signal(sign, stop)
    signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        signal.setitimer(clock, 0)
        signal.signal(sign, before)


_WITHIN: Final = Annotated[
    str | None,
    option("SECONDS", "Stop with an error after this many seconds of processor time.", default=...),
]


def with_time_limit(
    command: Callable[..., None], default: str | None = "60"
) -> Callable[..., None]:
    r"""Add ``--within`` to a command, by default with ``default`` seconds (None: no limit)."""

    @wraps(command)
    def bounded(*, within: str | None, **given: Any) -> None:
        if within is None:
            command(**given)
            return
        with time_limit(whole_number("--within", within, at_least=1, at_most=10**8)):
            command(**given)

    own = inspect.signature(command, eval_str=True).parameters.values()
    limit = inspect.Parameter(
        "within", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_WITHIN
    )
    return _with_parameters(bounded, [*own, limit])


with_optional_time_limit: Final = partial(with_time_limit, default=None)
r"""Add an option ``--within`` to a command, without a limit by default."""
