r"""The errors of dpcore, and the exit codes of its commands.

Every error is a :class:`DpcoreError`, so one ``except`` clause catches them all. The errors of this
module also inherit from the built-in exceptions that Python users expect (``ValueError``,
``OverflowError``, ``ArithmeticError``). An invalid argument raises its error before anything is
drawn, charged or written, unless a docstring states otherwise.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import Final

# The exit codes of all commands, explained in docs/reference/exit_codes.md.
ANSWER: Final = 0
NEGATIVE_ANSWER: Final = 1
USAGE: Final = 2
FAILED: Final = 3
NO_ANSWER: Final = 4
DEFECT: Final = 70
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141

_SHOWN: Final = 80


class Absent(Enum):
    r"""The value that an error reports for an argument that was not given."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class DpcoreError(Exception):
    r"""The base class of all errors; each message is one line that says what to change.

    >>> issubclass(InvalidParameter, DpcoreError)
    True
    """


class InvalidParameter(DpcoreError, ValueError):
    r"""Raised if an argument is invalid; contains its name, its value and the reason.

    >>> raise InvalidParameter("scale", 0, "must be > 0: scale 0 adds no noise")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: scale = 0: must be > 0: scale 0 adds no noise

    The value is :data:`ABSENT` if no value was given, or if the error is not about the value:

    >>> raise InvalidParameter("--pair", ABSENT, "must be given")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --pair: must be given
    """

    def __init__(self, argument: str, value: object, reason: str) -> None:
        super().__init__(argument, value, reason)
        self.argument = argument
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        if self.value is ABSENT:
            return f"{self.argument}: {self.reason}"
        held = issubclass(type(self.value), str)
        text = str.__str__(self.value) if held else _repr(self.value)
        text = " ".join(text.split())
        if len(text) > _SHOWN:
            text = text[: _SHOWN - 3] + "..."
        return f"{self.argument} = {printable(text)}: {self.reason}"


def printable(text: str) -> str:
    r"""Return ``text`` on one line, with unprintable and bidirectional characters escaped."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _repr(value: object) -> str:
    # Formatting a message must not raise another error: integers beyond Python's limit for decimal
    # conversion, and objects with a broken repr, are described instead of printed.
    try:
        return str(value) if isinstance(value, Fraction) else repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


class Unrepresentable(DpcoreError, OverflowError):
    r"""Raised, before any draw, if an exact result does not fit the requested type.

    >>> issubclass(Unrepresentable, OverflowError)
    True
    """


class PrecisionExhausted(DpcoreError, ArithmeticError):
    r"""Raised if an enclosure is still too wide at the highest precision.

    >>> issubclass(PrecisionExhausted, ArithmeticError)
    True
    """


class Undecided(DpcoreError, ValueError):
    r"""Raised if a comparison is undecided: the true value may lie on either side.

    >>> raise Undecided("Bound([0.9, 1.1], 'contour') <= 1")
    Traceback (most recent call last):
    ...
    dpcore.errors.Undecided: Bound([0.9, 1.1], 'contour') <= 1 is undecided: ...
    """

    def __init__(self, comparison: str) -> None:
        super().__init__(comparison)
        self.comparison = comparison

    def __str__(self) -> str:
        return (
            f"{self.comparison} is undecided: request narrower bounds (relative=), or compare "
            ".upper or .lower instead"
        )
