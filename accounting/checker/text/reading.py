r"""Reading a certificate that anybody may have written: every field checked, none guessed.

Duplicate keys, unknown or missing fields, floats, numbers that are not written the one canonical
way, and sizes beyond the limits are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from accounting.checker.laws.correlated import STRATEGIES, Correlated
from accounting.checker.laws.law import LAWS, REAL_LAWS, Law
from accounting.checker.laws.norms import NORMS, norms_of
from accounting.checker.text.fields import (
    Malformed,
    decimal,
    exactly,
    items,
    mapping,
    parsed,
    rational,
    text_of,
    whole,
)
from accounting.checker.text.form import SCHEMA, THEOREMS, digest_of, required_assumptions
from accounting.kernel.sums import Plan

__all__ = ["Claim", "Malformed", "Part", "Read", "parsed", "part_of", "read", "scope_of"]

_MOST_ROUNDS: Final = 10**7
_MOST_DECIMALS: Final = 400
_MOST_SLOTS: Final = 1 << 17
_MOST_PLACES: Final = 1 << 22
_MOST_AMOUNTS: Final = 1 << 14
_FIELDS: Final = frozenset(
    {"schema", "scope", "parts", "assumptions", "claims", "software", "digest"}
)
_SCOPES: Final = {"unit": ("contribution", "user"), "relation": ("replace", "add-remove")}
_STATED: Final = {"pure": ("epsilon",), "approx": ("epsilon", "delta"), "zcdp": ("rho",)}
_EXACT: Final = {"pure": "epsilon", "zcdp": "rho"}
_ENCLOSED: Final = {"epsilon": "delta", "delta": "epsilon", "renyi": "order"}
_WHOLE: Final = frozenset({"count", "trials"})
_LAWS: Final = {**LAWS, **REAL_LAWS}
_SAMPLINGS: Final = {
    "poisson": "add-remove",
    "poisson-group": "add-remove",
    "poisson-replaced": "replace",
}
_MOST_MEMBERS: Final = 64
_MOST_IN_A_RUN: Final = 1 << 16
_EVERYBODY: Final = object()
_ALONE: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    r"""One kind of round: a law under a sensitivity, or a claim that is stated.

    ``sampling`` is how a round is drawn, None for everybody: then ``rate`` is 1. ``members`` are
    the units that are all added, or all removed. ``correlated`` is the strategy of a run that
    counts as one round.
    """

    law: Law | None
    norm: str
    amounts: tuple[int, ...]
    stated: tuple[str, tuple[Fraction, ...]] | None
    rounds: int
    sampling: str | None = None
    rate: Fraction = Fraction(1)
    members: int = 1
    correlated: Correlated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    r"""``quantity`` at ``at`` lies in [lower, upper]; ``unit`` is one of the last digit.

    With evidence the ends may be any number of units apart, without it one.

    For an exact quantity all three are equal, and ``unit`` is 0.
    """

    quantity: str
    at: Fraction
    lower: Fraction
    upper: Fraction
    unit: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    r"""A certificate whose form is right; ``complaints`` are what its form alone refutes.

    ``plan`` is its evidence for the kernel, None where it carries none.
    """

    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    complaints: tuple[tuple[str, str], ...]
    plan: Plan | None = None


def read(document: object) -> Read:
    r"""The parts and claims of a certificate.

    Raises :class:`Malformed`, naming the first field that is not as the schema says.
    """
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
            raise Malformed(f"parts[{i}].sampling", f"must have a scope of the relation {needed}")
    if len({part.members for part in parts if part.sampling}) > 1:
        raise Malformed("parts", "must have one number of members in all that is sampled")
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
    # How finely the kernel computes. No plan makes a false claim hold; limits bound the work.
    item = mapping(where, value)
    exactly(where, item, {"step", "digits", "slots", "cut"})
    step = rational(f"{where}.step", item["step"])
    if not Fraction(1, 10**9) <= step <= 1:
        raise Malformed(f"{where}.step", "must lie in [1/10^9, 1]")
    digits = whole(f"{where}.digits", item["digits"], 8, _MOST_DECIMALS)
    slots = whole(f"{where}.slots", item["slots"], 64, _MOST_SLOTS)
    if digits * slots > _MOST_PLACES:
        raise Malformed(where, f"must have at most {_MOST_PLACES} digits in all slots")
    return Plan(step, digits, slots, whole(f"{where}.cut", item["cut"], 0, 10**20))


def scope_of(where: str, value: object) -> Mapping[str, Any]:
    r"""Whose data differs, and how: the object at ``where``."""
    scope = mapping(where, value)
    exactly(where, scope, _SCOPES)
    for key, choices in _SCOPES.items():
        if scope[key] not in choices:
            raise Malformed(f"{where}.{key}", f"must be one of {', '.join(choices)}")
    return scope


def _complaints(top: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = []
    stated = [text_of("assumptions", item) for item in items("assumptions", top["assumptions"])]
    if len(set(stated)) < len(stated):
        raise Malformed("assumptions", "must not repeat an assumption")
    found += [
        ("assumptions", f"missing: {needed}")
        for needed in required_assumptions(top)
        if needed not in stated
    ]
    if text_of("digest", top["digest"]) != digest_of(top):
        found.append(("digest", "is not that of the text: something was changed"))
    return tuple(found)


# -- parts and claims ------------------------------------------------------------------------------


def part_of(where: str, item: Mapping[str, Any]) -> Part:
    r"""One kind of round, read from the object at ``where``."""
    rounds = whole(f"{where}.rounds", item.get("rounds"), 1, _MOST_ROUNDS)
    if "claim" in item:
        word = item["claim"]
        if not isinstance(word, str) or word not in _STATED:
            raise Malformed(f"{where}.claim", f"must be one of {', '.join(_STATED)}")
        exactly(where, item, {"claim", "rounds", *_STATED[word]})
        values = tuple(rational(f"{where}.{key}", item[key]) for key in _STATED[word])
        if word == "approx" and values[1] >= 1:
            raise Malformed(f"{where}.delta", "must be < 1")
        return Part(law=None, norm="", amounts=(), stated=(word, values), rounds=rounds)
    sampling, rate, members = _sampling(f"{where}.sampling", item.get("sampling", _EVERYBODY))
    correlated = _correlated(f"{where}.correlated", item.get("correlated", _ALONE))
    if "sampling" in item and correlated is not None:
        raise Malformed(f"{where}.sampling", "must not be there with correlated noise")
    item = {key: value for key, value in item.items() if key not in ("sampling", "correlated")}
    exactly(where, item, {"noise", "sensitivity", "rounds", "honest"})
    honest = rational(f"{where}.honest", item["honest"])
    if not 0 < honest <= 1:
        raise Malformed(f"{where}.honest", "must lie in (0, 1]")
    sensitivity = mapping(f"{where}.sensitivity", item["sensitivity"])
    exactly(f"{where}.sensitivity", sensitivity, {"norm", "amount"})
    norm, amount = sensitivity["norm"], sensitivity["amount"]
    if norm not in NORMS:
        raise Malformed(f"{where}.sensitivity.norm", f"must be one of {', '.join(NORMS)}")
    place = f"{where}.sensitivity.amount"
    listed = items(place, amount, most=_MOST_AMOUNTS) if norm == "box" else [amount]
    amounts = tuple(whole(f"{where}.sensitivity.amount", each, 1, 10**9) for each in listed)
    law = _law(f"{where}.noise", mapping(f"{where}.noise", item["noise"]))
    _check_covered(where, law, norm, max(amounts), sampling if correlated is None else "correlated")
    return Part(
        law=law,
        norm=norm,
        amounts=amounts,
        stated=None,
        rounds=rounds,
        sampling=sampling,
        rate=rate,
        members=members,
        correlated=correlated,
    )


def _check_covered(where: str, law: Law, norm: str, most: int, scheme: str | None) -> None:
    covered = norms_of(law.name, scheme, most)
    if not covered:
        field = "correlated" if scheme == "correlated" else "sampling.kind"
        raise Malformed(f"{where}.{field}", f"has no theorem for {law.name} noise")
    if norm not in covered:
        kind = f"{scheme} {law.name}" if scheme else law.name
        must = f"must be {' or '.join(covered)}: no theorem covers {kind} noise under {norm}"
        raise Malformed(f"{where}.sensitivity.norm", must)


def _correlated(where: str, value: object) -> Correlated | None:
    if value is _ALONE:
        return None
    item = mapping(where, value)
    strategy = item.get("strategy")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise Malformed(f"{where}.strategy", f"must be one of {', '.join(STRATEGIES)}")
    exactly(where, item, {"strategy", "rounds", "most", "apart", *STRATEGIES[strategy]})
    rounds, most, apart = (
        whole(f"{where}.{key}", item[key], 1, _MOST_IN_A_RUN) for key in ("rounds", "most", "apart")
    )
    bands, coefficients = 0, tuple[Fraction, ...]()
    if strategy == "banded":
        bands = whole(f"{where}.bands", item["bands"], 1, rounds)
    if strategy == "toeplitz":
        place = f"{where}.coefficients"
        coefficients = tuple(rational(place, each) for each in items(place, item["coefficients"]))
        if not coefficients[0] or len(coefficients) > rounds:
            raise Malformed(place, "must begin with one > 0, and be no more than there are rounds")
    return Correlated(
        strategy=strategy,
        rounds=rounds,
        most=most,
        apart=apart,
        bands=bands,
        coefficients=coefficients,
    )


def _sampling(where: str, value: object) -> tuple[str | None, Fraction, int]:
    if value is _EVERYBODY:
        return None, Fraction(1), 1
    item = mapping(where, value)
    kind = item.get("kind")
    if not isinstance(kind, str) or kind not in _SAMPLINGS:
        raise Malformed(f"{where}.kind", f"must be one of {', '.join(_SAMPLINGS)}")
    grouped = kind == "poisson-group"
    exactly(where, item, {"kind", "rate", "members"} if grouped else {"kind", "rate"})
    members = whole(f"{where}.members", item["members"], 2, _MOST_MEMBERS) if grouped else 1
    rate = rational(f"{where}.rate", item["rate"])
    if not 0 < rate < 1:
        raise Malformed(f"{where}.rate", "must lie in (0, 1)")
    return kind, rate, members


def _law(where: str, noise: Mapping[str, Any]) -> Law:
    name = noise.get("law")
    if not isinstance(name, str) or name not in _LAWS:
        raise Malformed(f"{where}.law", f"must be one of {', '.join(_LAWS)}")
    exactly(where, noise, {"law", *_LAWS[name]})
    values = tuple(rational(f"{where}.{key}", noise[key]) for key in _LAWS[name])
    for key, value in zip(_LAWS[name], values, strict=True):
        if value <= 0 or (key == "probability" and value >= 1):
            raise Malformed(f"{where}.{key}", "is out of range")
        if key in _WHOLE and value.denominator != 1:
            raise Malformed(f"{where}.{key}", "must be an integer")
    return Law(name, values)


def _claim(where: str, item: Mapping[str, Any], *, wide: bool) -> Claim:
    quantity = item.get("quantity")
    if not isinstance(quantity, str) or quantity not in THEOREMS:
        raise Malformed(f"{where}.quantity", f"must be one of {', '.join(THEOREMS)}")
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
        raise Malformed(f"{where}.{key}", "is out of range")
    digits = whole(f"{where}.digits", item["digits"], 0, _MOST_DECIMALS)
    lower = decimal(f"{where}.lower", item["lower"], digits)
    upper = decimal(f"{where}.upper", item["upper"], digits)
    unit = Fraction(1, 10**digits)
    if wide and upper < lower:
        raise Malformed(where, "upper must be at least lower")
    if not wide and upper - lower not in (0, unit):
        raise Malformed(where, "upper must be lower, or lower and one unit of the last digit")
    return Claim(quantity=quantity, at=at, lower=lower, upper=upper, unit=unit)
