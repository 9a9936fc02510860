"""Build certificates without the engine: arbitrary parts and claims."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from accounting.certificates.canonical_text import (
    SCHEMA,
    THEOREMS,
    digest_of,
    required_assumptions,
    with_decimals,
)

_KEYS = {"epsilon": "delta", "delta": "epsilon", "renyi": "order"}


def certificate(
    parts: Sequence[dict[str, Any]],
    claims: Sequence[dict[str, Any]],
    scope: tuple[str, str] = ("contribution", "replace"),
) -> str:
    """Return the text, with the assumptions that its parts require and a matching digest."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "scope": dict(zip(("unit", "relation"), scope, strict=True)),
        "parts": [*parts],
        "claims": [*claims],
        "software": {"name": "dpcore", "version": "0.1.0"},
    }
    document["assumptions"] = [*required_assumptions(document)]
    return json.dumps({**document, "digest": digest_of(document)})


def noise(law: str, sensitivity: Any, rounds: int = 1, /, **parameters: str) -> dict[str, Any]:
    """Return rounds of a law; the sensitivity is an integer, a list (a box), or (norm, amount)."""
    norm, amount = ("box", sensitivity) if isinstance(sensitivity, list) else ("absolute", 0)
    if isinstance(sensitivity, tuple):
        norm, amount = sensitivity
    elif isinstance(sensitivity, int):
        amount = sensitivity
    return {
        "noise": {"law": law, **parameters},
        "sensitivity": {"norm": norm, "amount": amount},
        "honest": "1",
        "rounds": rounds,
    }


def stated(word: str, rounds: int = 1, **values: str) -> dict[str, Any]:
    """Return rounds of a stated guarantee: pure, approx or zcdp."""
    return {"claim": word, **values, "rounds": rounds}


def enclosed(quantity: str, at: str, lower: str, upper: str) -> dict[str, Any]:
    """Claim that the quantity lies between two decimals."""
    digits = len(lower.partition(".")[2])
    return {
        "quantity": quantity,
        _KEYS[quantity]: at,
        "lower": lower,
        "upper": upper,
        "digits": digits,
        "theorem": THEOREMS[quantity],
    }


def cell(quantity: str, at: str, place: int, digits: int, width: int = 1) -> dict[str, Any]:
    """Claim that the quantity lies in cell ``place`` of the grid, or equals its left end."""
    ends = (with_decimals(place, digits), with_decimals(place + width, digits))
    return {**enclosed(quantity, at, *ends), "digits": digits}


def exactly(quantity: str, value: Fraction) -> dict[str, Any]:
    """Claim that the pure epsilon, or the rho, is this rational."""
    key = {"pure": "epsilon", "zcdp": "rho"}[quantity]
    return {"quantity": quantity, key: str(value), "theorem": THEOREMS[quantity]}
