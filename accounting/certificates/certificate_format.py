r"""Parse an untrusted certificate and check every field.

A certificate has parts and claims. A part is one kind of round: its noise, sensitivity and number
of rounds, or a stated guarantee. A claim is a bound on a privacy parameter of all rounds together.
Each value has exactly one encoding. Duplicate keys, unknown or missing fields, floats, and sizes
beyond the limits raise :class:`Malformed`, which names the location. No other exception is raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from accounting.certificates.canonical_text import (
    SCHEMA,
    THEOREMS,
    digest_of,
    required_assumptions,
)
from accounting.proof_kernel.convolution import Plan
from accounting.proof_kernel.worst_case_neighbours import (
    LAWS,
    NORMS,
    STRATEGIES,
    Correlated,
    Part,
    norms_of,
)

_MOST_TEXT: Final = 1 << 18
_MOST_ITEMS: Final = 64
_MOST_LETTERS: Final = 2000
_MOST_ROUNDS: Final = 10**7
MOST_DECIMALS: Final = 400
_MOST_SLOTS: Final = 1 << 17
_MOST_PLACES: Final = 1 << 22
_MOST_AMOUNTS: Final = 1 << 14
_MOST_MEMBERS: Final = 64
_MOST_IN_A_RUN: Final = 1 << 16
_RATIONAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:/[1-9][0-9]*)?")
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:\.([0-9]+))?")
_FIELDS: Final = frozenset(
    {"schema", "scope", "parts", "assumptions", "claims", "software", "digest"}
)
_SCOPES: Final = {"unit": ("contribution", "user"), "relation": ("replace", "add-remove")}
_STATED: Final = {"pure": ("epsilon",), "approx": ("epsilon", "delta"), "zcdp": ("rho",)}
_EXACT: Final = {"pure": "epsilon", "zcdp": "rho"}
_ENCLOSED: Final = {"epsilon": "delta", "delta": "epsilon", "renyi": "order"}
_WHOLE: Final = frozenset({"count", "trials", "sensitivity", "plateau"})
_SAMPLINGS: Final = {
    "poisson": "add-remove",
    "poisson-group": "add-remove",
    "poisson-replaced": "replace",
}


class Malformed(Exception):
    r"""A certificate is invalid; the message states the location and the error.

    >>> raise Malformed("claims[0].digits", "must be in 0..400")
    Traceback (most recent call last):
    ...
    accounting.certificates.certificate_format.Malformed: claims[0].digits: must be in 0..400
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    r"""The claim that a privacy parameter lies in [lower, upper].

    ``quantity`` is the name of this parameter, and ``at`` is its argument: a delta for an epsilon,
    an epsilon for a delta, or an order for a Renyi divergence. ``unit`` is one unit of the last
    stated digit. The bounds differ by at most one unit, unless the certificate has evidence. For a
    pure epsilon or a zCDP rho, ``at`` and both bounds are the same number, and ``unit`` is 0.
    """

    quantity: str
    at: Fraction
    lower: Fraction
    upper: Fraction
    unit: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    r"""A parsed certificate. ``plan`` is the resolution of the kernel, or None without evidence.

    ``complaints`` lists missing assumptions and a wrong digest, as pairs (location, error).
    """

    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    complaints: tuple[tuple[str, str], ...]
    plan: Plan | None = None


# -- values ----------------------------------------------------------------------------------------


def parsed(text: str | bytes, most: int = _MOST_TEXT) -> Any:
    r"""Parse the JSON text of a certificate, which may have ``most`` characters or bytes.

    Raises :class:`Malformed` if the text is not JSON, is too long, or contains duplicate keys,
    floats, NaN, or integers that are negative or too long.
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
        raise Malformed("certificate", f"must be valid JSON: {str(error)[:80]}") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Malformed(_printable(key), "is given twice")
        found[key] = value
    return found


def _printable(key: str) -> str:
    # A key is untrusted text: it must not contain terminal control characters.
    return key[:40] if key.isascii() and key.isprintable() else ascii(key[:40])


def _refused(text: str) -> Any:
    raise Malformed("certificate", f"{text[:40]} must be an integer, or a quoted number")


def _short(text: str) -> int:
    if len(text) > 20 or text.startswith("-"):
        raise Malformed("certificate", f"{text[:40]} must be an integer >= 0 of at most 20 digits")
    return int(text)


def rational(where: str, value: object) -> Fraction:
    r"""Parse a rational >= 0 in lowest terms from a string of at most 2000 characters."""
    text = text_of(where, value)
    if _RATIONAL.fullmatch(text) and str(exact := Fraction(text)) == text:
        return exact
    raise Malformed(where, "must be a rational >= 0 in lowest terms, e.g. 3 or 1/8")


def text_of(where: str, value: object) -> str:
    r"""Check that ``value`` is ASCII text of 1 to 2000 characters, and return it."""
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_LETTERS or not value.isascii():
        raise Malformed(where, f"must be ASCII text of 1 to {_MOST_LETTERS} characters")
    return value


def whole(where: str, value: object, least: int, most: int) -> int:
    r"""Check that the value is an integer from ``least`` to ``most``, not a Boolean; return it."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Malformed(where, f"must be an integer in {least}..{most}")
    return value


def mapping(where: str, value: object) -> Mapping[str, Any]:
    r"""Check that the value is a JSON object, and return it."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Malformed(where, "must be a JSON object")
    return value


def items(where: str, value: object, least: int = 1, most: int = _MOST_ITEMS) -> list[Any]:
    r"""Check that the value is a JSON array of ``least`` to ``most`` items, and return it."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise Malformed(where, f"must be a list of {least} to {most} items")
    return value


def exactly(where: str, item: Mapping[str, Any], wanted: Iterable[str]) -> None:
    r"""Check that the fields of the JSON object ``item`` are exactly those in ``wanted``."""
    needed = {*wanted}
    missing, extra = sorted(needed - set(item)), sorted(set(item) - needed)
    if missing:
        raise Malformed(where, f"must contain {', '.join(missing)}")
    if extra:
        raise Malformed(where, f"must not contain {', '.join(_printable(each) for each in extra)}")


def _one_of(where: str, value: object, choices: Iterable[str]) -> str:
    names = [*choices]
    if not isinstance(value, str) or value not in names:
        raise Malformed(where, f"must be one of {', '.join(names)}")
    return value


# -- the document ----------------------------------------------------------------------------------


def read(document: object) -> Read:
    r"""Parse a certificate from decoded JSON, without verifying its claims."""
    top = mapping("certificate", document)
    if top.get("schema") != SCHEMA:
        raise Malformed("schema", f"must be {SCHEMA}")
    exactly("certificate", top, _FIELDS | ({"evidence"} & top.keys()))
    plan = _plan("evidence", top["evidence"]) if "evidence" in top else None
    scope_of("scope", top["scope"])
    parts = [
        part_of(f"parts[{i}]", mapping(f"parts[{i}]", item))
        for i, item in enumerate(items("parts", top["parts"]))
    ]
    for i, part in enumerate(parts):
        needed = _SAMPLINGS.get(part.sampling or "")
        if needed is not None and top["scope"]["relation"] != needed:
            raise Malformed(f"parts[{i}].sampling", f"requires a scope with the relation {needed}")
    if len({part.members for part in parts if part.sampling}) > 1:
        raise Malformed("parts", "must not sample groups of different sizes")
    claims = [
        _claim(f"claims[{i}]", mapping(f"claims[{i}]", item), wide=plan is not None)
        for i, item in enumerate(items("claims", top["claims"]))
    ]
    if len(set(claims)) < len(claims):
        raise Malformed("claims", "must not repeat a claim")
    software = mapping("software", top["software"])
    exactly("software", software, {"name", "version"})
    for key, value in software.items():
        text_of(f"software.{key}", value)
    return Read(parts=tuple(parts), claims=tuple(claims), complaints=_complaints(top), plan=plan)


def _plan(where: str, value: object) -> Plan:
    # The resolution of the kernel. No plan makes a false claim hold; the limits bound the work.
    item = mapping(where, value)
    exactly(where, item, {"step", "digits", "slots", "cut"})
    step = rational(f"{where}.step", item["step"])
    if not Fraction(1, 10**9) <= step <= 1:
        raise Malformed(f"{where}.step", "must lie in [1/10^9, 1]")
    digits = whole(f"{where}.digits", item["digits"], 8, MOST_DECIMALS)
    slots = whole(f"{where}.slots", item["slots"], 64, _MOST_SLOTS)
    if digits * slots > _MOST_PLACES:
        raise Malformed(where, f"must satisfy digits * slots <= {_MOST_PLACES}")
    return Plan(step, digits, slots, whole(f"{where}.cut", item["cut"], 0, 10**20))


def scope_of(where: str, value: object) -> Mapping[str, Any]:
    r"""Parse the scope at the location ``where``: a privacy unit and a neighbouring relation."""
    scope = mapping(where, value)
    exactly(where, scope, _SCOPES)
    for key, choices in _SCOPES.items():
        _one_of(f"{where}.{key}", scope[key], choices)
    return scope


def _complaints(top: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    stated = [text_of("assumptions", item) for item in items("assumptions", top["assumptions"])]
    if len(set(stated)) < len(stated):
        raise Malformed("assumptions", "must not repeat an assumption")
    required = required_assumptions(top)
    found = [("assumptions", f"missing: {each}") for each in required if each not in stated]
    if text_of("digest", top["digest"]) != digest_of(top):
        found.append(("digest", "does not match the text: the certificate was changed"))
    return tuple(found)


# -- parts and claims ------------------------------------------------------------------------------


def part_of(where: str, item: Mapping[str, Any]) -> Part:
    r"""Parse the part at the location ``where``, which describes one kind of round."""
    rounds = whole(f"{where}.rounds", item.get("rounds"), 1, _MOST_ROUNDS)
    if "claim" in item:
        word = _one_of(f"{where}.claim", item["claim"], _STATED)
        exactly(where, item, {"claim", "rounds", *_STATED[word]})
        values = tuple(rational(f"{where}.{key}", item[key]) for key in _STATED[word])
        if word == "approx" and values[1] >= 1:
            raise Malformed(f"{where}.delta", "must be < 1")
        return Part(law=word, parameters=values, rounds=rounds)
    scheme = {"sampling", "correlated"} & item.keys()
    if len(scheme) > 1:
        raise Malformed(f"{where}.sampling", "is not allowed with correlated noise")
    exactly(where, item, {"noise", "sensitivity", "rounds", "honest"} | scheme)
    if not 0 < rational(f"{where}.honest", item["honest"]) <= 1:
        raise Malformed(f"{where}.honest", "must lie in (0, 1]")
    more: dict[str, Any] = {}
    if "sampling" in item:
        more = _sampling(f"{where}.sampling", item["sampling"])
    if "correlated" in item:
        more["correlated"] = _correlated(f"{where}.correlated", item["correlated"])
    kind = "correlated" if "correlated" in item else more.get("sampling")
    norm, amounts = _sensitivity(f"{where}.sensitivity", item["sensitivity"])
    law, parameters = _law(f"{where}.noise", mapping(f"{where}.noise", item["noise"]))
    covered = norms_of(law, kind, max(amounts))
    if not covered:
        field = "correlated" if kind == "correlated" else "sampling.kind"
        raise Malformed(f"{where}.{field}", f"is not covered by a theorem for {law} noise")
    if norm not in covered:
        noise = f"{kind} {law}" if kind else law
        must = f"must be {' or '.join(covered)}: no certificate covers {noise} noise under {norm}"
        raise Malformed(f"{where}.sensitivity.norm", must)
    return Part(law=law, parameters=parameters, norm=norm, amounts=amounts, rounds=rounds, **more)


def _sensitivity(where: str, value: object) -> tuple[str, tuple[int, ...]]:
    item = mapping(where, value)
    exactly(where, item, {"norm", "amount"})
    norm, amount = _one_of(f"{where}.norm", item["norm"], NORMS), item["amount"]
    place = f"{where}.amount"
    listed = items(place, amount, most=_MOST_AMOUNTS) if norm == "box" else [amount]
    return norm, tuple(whole(place, each, 1, 10**9) for each in listed)


def _correlated(where: str, value: object) -> Correlated:
    item = mapping(where, value)
    strategy = _one_of(f"{where}.strategy", item.get("strategy"), STRATEGIES)
    exactly(where, item, {"strategy", "rounds", "most", "apart", *STRATEGIES[strategy]})
    more: dict[str, Any] = {
        key: whole(f"{where}.{key}", item[key], 1, _MOST_IN_A_RUN)
        for key in ("rounds", "most", "apart")
    }
    if strategy == "banded":
        more["bands"] = whole(f"{where}.bands", item["bands"], 1, more["rounds"])
    if strategy == "toeplitz":
        place = f"{where}.coefficients"
        given = tuple(rational(place, each) for each in items(place, item["coefficients"]))
        if not given[0] or len(given) > more["rounds"]:
            reason = "must start with a value > 0 and contain at most one value per round"
            raise Malformed(place, reason)
        more["coefficients"] = given
    return Correlated(strategy=strategy, **more)


def _sampling(where: str, value: object) -> dict[str, Any]:
    item = mapping(where, value)
    kind = _one_of(f"{where}.kind", item.get("kind"), _SAMPLINGS)
    grouped = kind == "poisson-group"
    exactly(where, item, {"kind", "rate", "members"} if grouped else {"kind", "rate"})
    members = whole(f"{where}.members", item["members"], 2, _MOST_MEMBERS) if grouped else 1
    rate = rational(f"{where}.rate", item["rate"])
    if not 0 < rate < 1:
        raise Malformed(f"{where}.rate", "must lie in (0, 1)")
    return {"sampling": kind, "rate": rate, "members": members}


def _law(where: str, noise: Mapping[str, Any]) -> tuple[str, tuple[Fraction, ...]]:
    name = _one_of(f"{where}.law", noise.get("law"), LAWS)
    exactly(where, noise, {"law", *LAWS[name]})
    values = tuple(rational(f"{where}.{key}", noise[key]) for key in LAWS[name])
    for key, value in zip(LAWS[name], values, strict=True):
        if value <= 0 or (key == "probability" and value >= 1):
            most = ", and < 1" if key == "probability" else ""
            raise Malformed(f"{where}.{key}", f"must be > 0{most}")
        if key in _WHOLE and value.denominator != 1:
            raise Malformed(f"{where}.{key}", "must be an integer")
    if name == "staircase" and values[2] > values[1]:
        raise Malformed(f"{where}.plateau", "must be at most the sensitivity")
    return name, values


def _claim(where: str, item: Mapping[str, Any], *, wide: bool) -> Claim:
    quantity = _one_of(f"{where}.quantity", item.get("quantity"), THEOREMS)
    if item.get("theorem") != THEOREMS[quantity]:
        raise Malformed(f"{where}.theorem", f"must be: {THEOREMS[quantity]}")
    if quantity in _EXACT:
        key = _EXACT[quantity]
        exactly(where, item, {"quantity", "theorem", key})
        exact = rational(f"{where}.{key}", item[key])
        return Claim(quantity=quantity, at=exact, lower=exact, upper=exact, unit=Fraction(0))
    key = _ENCLOSED[quantity]
    exactly(where, item, {"quantity", "theorem", key, "lower", "upper", "digits"})
    at = rational(f"{where}.{key}", item[key])
    if (quantity == "epsilon" and not 0 <= at < 1) or (quantity == "renyi" and at <= 1):
        allowed = "must be > 1" if quantity == "renyi" else "must lie in [0, 1)"
        raise Malformed(f"{where}.{key}", allowed)
    digits = whole(f"{where}.digits", item["digits"], 0, MOST_DECIMALS)
    lower, upper = (_decimal(f"{where}.{end}", item[end], digits) for end in ("lower", "upper"))
    unit = Fraction(1, 10**digits)
    if wide and upper < lower:
        raise Malformed(where, "must satisfy upper >= lower")
    if not wide and upper - lower not in (0, unit):
        raise Malformed(where, "upper must be lower, or lower plus one unit of the last digit")
    return Claim(quantity=quantity, at=at, lower=lower, upper=upper, unit=unit)


def _decimal(where: str, value: object, digits: int) -> Fraction:
    text = text_of(where, value)
    match = _DECIMAL.fullmatch(text)
    if match and len(match[1] or "") == digits:
        return Fraction(text)
    raise Malformed(where, f"must be a decimal >= 0 with {digits} digits after the point")
