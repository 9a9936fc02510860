r"""Names of users and batches: text in one normal form, without invisible characters."""

from __future__ import annotations

import re
import unicodedata
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

PLAIN: Final = re.compile(rf"[!-~](?:[ -~]{{0,{_LONGEST - 2}}}[!-~])?")
r"""The names of ASCII, which need no further check."""


def name(argument: str, value: object) -> str:
    r"""Return ``value`` if it is a valid name of a user or a batch."""
    reason = f"must be a name of 1 to {_LONGEST} characters"
    if type(value) is str and PLAIN.fullmatch(value):
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
            "must be in Unicode normal form NFC: otherwise names that look the same would be "
            "different users",
        )
    return value
