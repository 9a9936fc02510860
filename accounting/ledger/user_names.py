r"""Names of users and batches in a ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import PLAIN, name

_PLAIN_LINES: Final = re.compile(rf"(?:{PLAIN.pattern}\n)*+")


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
