r"""Reading a certificate that anybody may have written: every field checked, none guessed.

Duplicate keys, unknown or missing fields, floats, numbers that are not written the one canonical
way, and sizes beyond the limits are refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from accounting.checker.form import SCHEMA, THEOREMS, digest_of, required_assumptions
from accounting.checker.laws import LAWS, Law

__all__ = ["Claim", "Malformed", "Part", "Read", "parsed", "part_of", "read"]

_MOST_TEXT: Final = 1 << 18
_MOST_ITEMS: Final = 64
_MOST_LETTERS: Final = 2000
_MOST_ROUNDS: Final = 10**7
_MOST_DECIMALS: Final = 400
_FIELDS: Final = frozenset(
    {"schema", "scope", "parts", "assumptions", "claims", "software", "digest"}
)
_SCOPES: Final = {"unit": ("contribution", "user"), "relation": ("replace", "add-remove")}
_NORMS: Final = ("absolute", "l1", "l2-squared", "box")
_STATED: Final = {"pure": ("epsilon",), "approx": ("epsilon", "delta"), "zcdp": ("rho",)}
_EXACT: Final = {"pure": "epsilon", "zcdp": "rho"}
_ENCLOSED: Final = {"epsilon": "delta", "delta": "epsilon", "renyi": "order"}
_WHOLE: Final = frozenset({"count", "trials"})
_RATIONAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:/[1-9][0-9]*)?")
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:\.([0-9]+))?")


class Malformed(Exception):
    r"""What is wrong with the text of a certificate, and where.

    >>> raise Malformed("claims[0].digits", "must be an integer in 0..400")
    Traceback (most recent call last):
    ...
    accounting.checker.reading.Malformed: claims[0].digits: must be an integer in 0..400
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    r"""One kind of round: a law under a sensitivity, or a claim that is stated."""

    law: Law | None
    norm: str
    amounts: tuple[int, ...]
    stated: tuple[str, tuple[Fraction, ...]] | None
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    r"""``quantity`` at ``at`` lies in [lower, upper]; ``unit`` is one of the last digit.

    For an exact quantity all three are equal, and ``unit`` is 0.
    """

    quantity: str
    at: Fraction
    lower: Fraction
    upper: Fraction
    unit: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    r"""A certificate whose form is right; ``complaints`` are what its form alone refutes."""

    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    complaints: tuple[tuple[str, str], ...]


def parsed(text: str | bytes) -> Any:
    r"""JSON without duplicate keys, floats, NaN or long integers.

    >>> parsed('{"a": 1, "a": 1}')
    Traceback (most recent call last):
    ...
    accounting.checker.reading.Malformed: a: is given twice
    """
    if len(text) > _MOST_TEXT:
        raise Malformed("certificate", f"must be at most {_MOST_TEXT} characters")
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
            raise Malformed(key[:40], "is given twice")
        found[key] = value
    return found


def _refused(text: str) -> Any:
    raise Malformed("certificate", f"{text[:40]} must be an integer, or exact text")


def _short(text: str) -> int:
    if len(text) > 20 or text.startswith("-"):
        raise Malformed("certificate", f"{text[:40]} must be an integer >= 0 of 20 digits at most")
    return int(text)


def read(document: object) -> Read:
    r"""The parts and claims of a certificate.

    Raises :class:`Malformed`, naming the first field that is not as the schema says.
    """
    top = _object("certificate", document)
    if top.get("schema") != SCHEMA:
        raise Malformed("schema", f"must be {SCHEMA}")
    _exactly("certificate", top, _FIELDS)
    scope = _object("scope", top["scope"])
    _exactly("scope", scope, _SCOPES)
    for key, choices in _SCOPES.items():
        if scope[key] not in choices:
            raise Malformed(f"scope.{key}", f"must be one of {', '.join(choices)}")
    parts = [
        part_of(f"parts[{i}]", _object(f"parts[{i}]", item))
        for i, item in enumerate(_items("parts", top["parts"]))
    ]
    claims = [
        _claim(f"claims[{i}]", _object(f"claims[{i}]", item))
        for i, item in enumerate(_items("claims", top["claims"]))
    ]
    if len(set(claims)) < len(claims):
        raise Malformed("claims", "must not repeat a claim")
    software = _object("software", top["software"])
    _exactly("software", software, {"name", "version"})
    for key, value in software.items():
        _text(f"software.{key}", value)
    return Read(parts=tuple(parts), claims=tuple(claims), complaints=_complaints(top))


def _complaints(top: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = []
    stated = [_text("assumptions", item) for item in _items("assumptions", top["assumptions"])]
    if len(set(stated)) < len(stated):
        raise Malformed("assumptions", "must not repeat an assumption")
    found += [
        ("assumptions", f"missing: {needed}")
        for needed in required_assumptions(top)
        if needed not in stated
    ]
    if _text("digest", top["digest"]) != digest_of(top):
        found.append(("digest", "is not that of the text: something was changed"))
    return tuple(found)


# -- parts and claims ------------------------------------------------------------------------------


def part_of(where: str, item: Mapping[str, Any]) -> Part:
    r"""One kind of round, read from the object at ``where``."""
    rounds = _whole(f"{where}.rounds", item.get("rounds"), 1, _MOST_ROUNDS)
    if "claim" in item:
        word = item["claim"]
        if not isinstance(word, str) or word not in _STATED:
            raise Malformed(f"{where}.claim", f"must be one of {', '.join(_STATED)}")
        _exactly(where, item, {"claim", "rounds", *_STATED[word]})
        values = tuple(rational(f"{where}.{key}", item[key]) for key in _STATED[word])
        if word == "approx" and values[1] >= 1:
            raise Malformed(f"{where}.delta", "must be < 1")
        return Part(law=None, norm="", amounts=(), stated=(word, values), rounds=rounds)
    _exactly(where, item, {"noise", "sensitivity", "rounds", "honest"})
    honest = rational(f"{where}.honest", item["honest"])
    if not 0 < honest <= 1:
        raise Malformed(f"{where}.honest", "must lie in (0, 1]")
    sensitivity = _object(f"{where}.sensitivity", item["sensitivity"])
    _exactly(f"{where}.sensitivity", sensitivity, {"norm", "amount"})
    norm, amount = sensitivity["norm"], sensitivity["amount"]
    if norm not in _NORMS:
        raise Malformed(f"{where}.sensitivity.norm", f"must be one of {', '.join(_NORMS)}")
    listed = _items(f"{where}.sensitivity.amount", amount) if norm == "box" else [amount]
    amounts = tuple(_whole(f"{where}.sensitivity.amount", each, 1, 10**9) for each in listed)
    law = _law(f"{where}.noise", _object(f"{where}.noise", item["noise"]))
    return Part(law=law, norm=norm, amounts=amounts, stated=None, rounds=rounds)


def _law(where: str, noise: Mapping[str, Any]) -> Law:
    name = noise.get("law")
    if not isinstance(name, str) or name not in LAWS:
        raise Malformed(f"{where}.law", f"must be one of {', '.join(LAWS)}")
    _exactly(where, noise, {"law", *LAWS[name]})
    values = tuple(rational(f"{where}.{key}", noise[key]) for key in LAWS[name])
    for key, value in zip(LAWS[name], values, strict=True):
        if value <= 0 or (key == "probability" and value >= 1):
            raise Malformed(f"{where}.{key}", "is out of range")
        if key in _WHOLE and value.denominator != 1:
            raise Malformed(f"{where}.{key}", "must be an integer")
    return Law(name, values)


def _claim(where: str, item: Mapping[str, Any]) -> Claim:
    quantity = item.get("quantity")
    if not isinstance(quantity, str) or quantity not in THEOREMS:
        raise Malformed(f"{where}.quantity", f"must be one of {', '.join(THEOREMS)}")
    if item.get("theorem") != THEOREMS[quantity]:
        raise Malformed(f"{where}.theorem", f"must be: {THEOREMS[quantity]}")
    if quantity in _EXACT:
        key = _EXACT[quantity]
        _exactly(where, item, {"quantity", "theorem", key})
        exact = rational(f"{where}.{key}", item[key])
        return Claim(quantity=quantity, at=exact, lower=exact, upper=exact, unit=Fraction(0))
    key = _ENCLOSED[quantity]
    _exactly(where, item, {"quantity", "theorem", key, "lower", "upper", "digits"})
    at = rational(f"{where}.{key}", item[key])
    if (quantity == "epsilon" and not 0 < at < 1) or (quantity == "renyi" and at <= 1):
        raise Malformed(f"{where}.{key}", "is out of range")
    digits = _whole(f"{where}.digits", item["digits"], 0, _MOST_DECIMALS)
    lower = _decimal(f"{where}.lower", item["lower"], digits)
    upper = _decimal(f"{where}.upper", item["upper"], digits)
    unit = Fraction(1, 10**digits)
    if upper - lower not in (0, unit):
        raise Malformed(where, "upper must be lower, or lower and one unit of the last digit")
    return Claim(quantity=quantity, at=at, lower=lower, upper=upper, unit=unit)


# -- values ----------------------------------------------------------------------------------------


def rational(where: str, value: object) -> Fraction:
    r"""A rational >= 0 in lowest terms, as text, of 2000 characters at most.

    >>> rational("delta", "2/4")
    Traceback (most recent call last):
    ...
    accounting.checker.reading.Malformed: delta: must be a rational >= 0 in lowest terms
    """
    text = _text(where, value)
    if _RATIONAL.fullmatch(text):
        exact = Fraction(text)
        if str(exact) == text:
            return exact
    raise Malformed(where, "must be a rational >= 0 in lowest terms")


def _decimal(where: str, value: object, digits: int) -> Fraction:
    text = _text(where, value)
    match = _DECIMAL.fullmatch(text)
    if match and len(match[1] or "") == digits:
        return Fraction(text)
    raise Malformed(where, f"must be a decimal >= 0 with {digits} digits after the point")


def _text(where: str, value: object, most: int = _MOST_LETTERS) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isascii():
        raise Malformed(where, f"must be ASCII text of 1 to {most} characters")
    return value


def _whole(where: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Malformed(where, f"must be an integer in {least}..{most}")
    return value


def _object(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise Malformed(where, "must be an object")
    return value


def _items(where: str, value: object) -> list[Any]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_ITEMS:
        raise Malformed(where, f"must be a list of 1 to {_MOST_ITEMS}")
    return value


def _exactly(where: str, item: Mapping[str, Any], wanted: Any) -> None:
    missing, extra = sorted(set(wanted) - set(item)), sorted(set(item) - set(wanted))
    if missing:
        raise Malformed(where, f"misses {', '.join(missing)}")
    if extra:
        raise Malformed(where, f"has no field {', '.join(each[:40] for each in extra)}")
