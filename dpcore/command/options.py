r"""What the commands of every package share: groups, options, and how their values are read.

Each value is refused by the name of the option that was typed, before anything is drawn or
computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Annotated, Any

import typer

from dpcore.command.workers import checked_jobs
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.numbers.parameter import rational, whole_number
from dpcore.spelling import read_noise

__all__ = ["AsJson", "command_group", "named", "read_jobs", "read_law", "share"]

AsJson = Annotated[
    bool, typer.Option("--json", metavar="", help="Print one JSON document instead of text.")
]


def command_group(name: str, **given: Any) -> typer.Typer:
    r"""A group of commands, or one command, with the conventions of all: -h, no own tracebacks.

    >>> command_group("budget", help="What releases cost together.").info.name
    'budget'
    """
    return typer.Typer(
        name=name,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        **{"add_completion": False, **given},
    )


@contextmanager
def named(**options: str) -> Iterator[None]:
    r"""Errors about an argument name the option instead: ``named(delta="--delta")``.

    >>> with named(delta="--delta"):
    ...     raise InvalidParameter("delta", 2, "must lie in [0, 1]")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --delta = 2: must lie in [0, 1]
    """
    try:
        yield
    except InvalidParameter as error:
        # "epsilon (for dp-se)" is about epsilon.
        word, blank, rest = error.argument.partition(" ")
        option = options.get(word)
        if option is None:
            raise
        raise InvalidParameter(f"{option}{blank}{rest}", error.value, error.reason) from None


def read_jobs(text: str) -> int:
    r"""``--jobs``: how many processes, in [1, 1024]; -1: one for each core.

    >>> read_jobs("2"), read_jobs("-1")
    (2, -1)
    """
    try:
        return checked_jobs(whole_number("--jobs", text))
    except InvalidParameter as error:
        raise InvalidParameter("--jobs", text, error.reason) from None


def read_law(argument: str, text: str) -> Noise:
    r"""A noise such as ``skellam:variance=400``; errors name the option.

    >>> read_law("--noise", "skellam:variance=0")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --noise = skellam:variance=0: variance must be > 0: ...
    """
    try:
        return read_noise(text)
    except InvalidParameter as error:
        what = error.reason if error.argument == "noise" else f"{error.argument} {error.reason}"
        raise InvalidParameter(argument, text, what) from None


def share(argument: str, text: str) -> Fraction:
    r"""A part of the whole: 90% or 0.9.

    >>> share("--honest", "90%")
    Fraction(9, 10)
    """
    try:
        exact = rational(argument, text[:-1]) / 100 if text.endswith("%") else rational("", text)
    except InvalidParameter:
        raise InvalidParameter(argument, text, "must be a share such as 90% or 0.9") from None
    if not 0 <= exact <= 1:
        raise InvalidParameter(argument, text, "must lie between 0% and 100%")
    return exact
