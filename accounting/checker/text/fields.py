r"""The values that a certificate may hold, each in the one spelling that is allowed.

What is anything else is refused by name, and nothing here raises but :class:`Malformed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

__all__ = [
    "Malformed",
    "decimal",
    "exactly",
    "items",
    "mapping",
    "parsed",
    "rational",
    "text_of",
    "whole",
]

_MOST_TEXT: Final = 1 << 18
_MOST_ITEMS: Final = 64
_MOST_LETTERS: Final = 2000
_RATIONAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:/[1-9][0-9]*)?")
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:\.([0-9]+))?")


class Malformed(Exception):
    r"""What is wrong with the text of a certificate, and where.

    >>> raise Malformed("claims[0].digits", "must be an integer in 0..400")
    Traceback (most recent call last):
    ...
    accounting.checker.text.fields.Malformed: claims[0].digits: must be an integer in 0..400
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


def parsed(text: str | bytes, most: int = _MOST_TEXT) -> Any:
    r"""JSON of at most ``most`` characters, without duplicate keys, floats, NaN or long integers.

    >>> parsed('{"a": 1, "a": 1}')
    Traceback (most recent call last):
    ...
    accounting.checker.text.fields.Malformed: a: is given twice
    """
    if len(text) > most:
        raise Malformed("certificate", f"must be at most {most} characters")
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(
            plain,
            object_pairs_hook=_without_twins,
            parse_float=_refused,
            parse_constant=_refused,
            parse_int=_short,
        )
    except (ValueError, RecursionError) as error:
        raise Malformed("certificate", f"must be JSON: {str(error)[:80]}") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Malformed(_shown(key), "is given twice")
        found[key] = value
    return found


def _shown(key: str) -> str:
    # A key is whatever somebody wrote: on a terminal it must stay a word.
    return key[:40] if key.isascii() and key.isprintable() else ascii(key[:40])


def _refused(text: str) -> Any:
    raise Malformed("certificate", f"{text[:40]} must be an integer, or exact text")


def _short(text: str) -> int:
    if len(text) > 20 or text.startswith("-"):
        raise Malformed("certificate", f"{text[:40]} must be an integer >= 0 of 20 digits at most")
    return int(text)


def rational(where: str, value: object) -> Fraction:
    r"""A rational >= 0 in lowest terms, as text, of 2000 characters at most.

    >>> rational("delta", "2/4")
    Traceback (most recent call last):
    ...
    accounting.checker.text.fields.Malformed: delta: must be a rational >= 0 in lowest terms
    """
    text = text_of(where, value)
    if _RATIONAL.fullmatch(text):
        exact = Fraction(text)
        if str(exact) == text:
            return exact
    raise Malformed(where, "must be a rational >= 0 in lowest terms")


def decimal(where: str, value: object, digits: int) -> Fraction:
    r"""A decimal >= 0, as text, with so many ``digits`` after the point."""
    text = text_of(where, value)
    match = _DECIMAL.fullmatch(text)
    if match and len(match[1] or "") == digits:
        return Fraction(text)
    raise Malformed(where, f"must be a decimal >= 0 with {digits} digits after the point")


def text_of(where: str, value: object) -> str:
    r"""ASCII text of 1 to 2000 characters."""
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_LETTERS or not value.isascii():
        raise Malformed(where, f"must be ASCII text of 1 to {_MOST_LETTERS} characters")
    return value


def whole(where: str, value: object, least: int, most: int) -> int:
    r"""An integer from ``least`` to ``most``; true is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Malformed(where, f"must be an integer in {least}..{most}")
    return value


def mapping(where: str, value: object) -> Mapping[str, Any]:
    r"""An object."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise Malformed(where, "must be an object")
    return value


def items(where: str, value: object, least: int = 1, most: int = _MOST_ITEMS) -> list[Any]:
    r"""A list of ``least`` to ``most``."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise Malformed(where, f"must be a list of {least} to {most}")
    return value


def exactly(where: str, item: Mapping[str, Any], wanted: Any) -> None:
    r"""Refuses fields that are missing, and fields beyond those ``wanted``."""
    missing, extra = sorted(set(wanted) - set(item)), sorted(set(item) - set(wanted))
    if missing:
        raise Malformed(where, f"misses {', '.join(missing)}")
    if extra:
        raise Malformed(where, f"has no field {', '.join(_shown(each) for each in extra)}")
