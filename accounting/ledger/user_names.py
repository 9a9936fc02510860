r"""Names of users and batches in a ledger."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import text

_LONGEST: Final = 200
# Letters and marks that count as printable but are invisible: fillers, joiners, variation
# selectors, the empty Braille pattern.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

_PLAIN: Final = re.compile(rf"[!-~](?:[ -~]{{0,{_LONGEST - 2}}}[!-~])?")
_PLAIN_LINES: Final = re.compile(rf"(?:{_PLAIN.pattern}\n)*+")


def name(argument: str, value: object) -> str:
    r"""Return ``value`` if it is a valid name of a user or a batch."""
    reason = f"must be a name of 1 to {_LONGEST} characters"
    if type(value) is str and _PLAIN.fullmatch(value):
        return value
    value = text(argument, value, reason)
    if not 1 <= len(value) <= _LONGEST:
        raise InvalidParameter(argument, value, reason)
    if not value.isprintable() or value != value.strip():
        must = "must be printable, without leading or trailing space"
        raise InvalidParameter(argument, value, must)
    if _UNSEEN.search(value):
        raise InvalidParameter(argument, ascii(value), "must not contain invisible characters")
    if not unicodedata.is_normalized("NFC", value):
        raise InvalidParameter(
            argument,
            value,
            "must be in normal form NFC: otherwise equal-looking names would have separate budgets",
        )
    return value


def sorted_names(users: object) -> tuple[str, ...]:
    r"""Distinct names, sorted by code point."""
    if isinstance(users, (str, bytes)) or not isinstance(users, Iterable):
        raise InvalidParameter("users", users, "must be a collection of names, e.g. a list")
    names = [*users]
    lines = "\n".join([*names, ""]) if {*map(type, names)} == {str} else ""
    if lines.count("\n") != len(names) or not _PLAIN_LINES.fullmatch(lines):
        names = [name("users", user) for user in names]
    names.sort()
    if not names:
        raise InvalidParameter("users", names, "must contain at least one user")
    for one, following in pairwise(names):
        if one == following:
            raise InvalidParameter("users", one, "appears twice: list each user once per batch")
    return tuple(names)


def without(names: tuple[str, ...], left_out: tuple[str, ...]) -> tuple[str, ...]:
    r"""Return the ``names`` that are not in ``left_out``, in order."""
    out = frozenset(left_out)
    return tuple(name for name in names if name not in out) if out else names
