r"""The reader of descriptions: ``name:key=value`` and the JSON of ``Description.to_json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from accounting.claims.claim import scope_from_json
from accounting.mechanism.description import (
    GROUP_SAMPLED,
    REAL_CURVE,
    SCHEMES,
    Description,
    Poisson,
    Scheme,
)
from accounting.mechanism.real_noise import REAL_LAWS
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import whole_number
from dpcore.spec import find_name, read_keys, split_name
from dpcore.spelling import noise_from_json, sensitivity_from_json

__all__ = ["description_from_json", "read_scheme"]

_NAMES: Final = {kind.name: kind for kind in SCHEMES}
_WORDS: Final[dict[str, tuple[type[Scheme], Relation]]] = {
    word: (kind, relation) for kind in SCHEMES for relation, word in kind.words.items()
} | {GROUP_SAMPLED: (Poisson, Relation.ADD_REMOVE)}
_CURVES: Final = ("curve", REAL_CURVE)


def read_scheme(argument: str, text: str) -> Scheme:
    r"""A sampling scheme: ``poisson:rate=1/100``, ``fixed-size:sample=10,population=1000``.

    >>> read_scheme("--scheme", "allocated:rounds=100")
    Allocation(rounds=100, picks=1)

    Raises :class:`InvalidParameter`, naming the argument.
    """
    name, rest = split_name(text)
    kind = find_name(argument, text, _NAMES, name=name)
    known = {each.name: each.type for each in fields(kind)}
    needed = [each.name for each in fields(kind) if each.default is MISSING]
    written = read_keys(argument, text, rest, known, owner=name, needed=needed)
    given: dict[str, Any] = {}
    for key, value in written.items():
        if known[key] == "int":
            given[key] = whole_number(argument, value)
        else:
            given[key] = value.split() if key == "weights" else value
    try:
        return kind(**given)
    except InvalidParameter as error:
        raise InvalidParameter(argument, text, f"{error.argument} {error.reason}") from None


def description_from_json(data: object) -> Description:
    r"""The inverse of ``Description.to_json``; also of any version before.

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> asked = Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/9"), group=2)
    >>> description_from_json(asked.to_json()) == asked
    True

    Raises :class:`InvalidParameter` for an unknown word, fields missing or left over, and values
    out of range.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("part", data, "must be a JSON object")
    word = data.get("claim")
    if not isinstance(word, str) or word not in (*_WORDS, *_CURVES):
        known = ", ".join(dict.fromkeys((*_CURVES, *_WORDS)))
        raise InvalidParameter("claim", word, f"must be one of {known}")
    kind, relation = _WORDS["curve" if word in _CURVES else word]
    inner = data if word in _CURVES else data.get("curve")
    keys = ("claim", "noise", "sensitivity", "scope")
    if not isinstance(inner, Mapping) or set(inner) != {*keys} or inner["claim"] not in _CURVES:
        raise InvalidParameter("curve", inner, f"has the fields {', '.join(keys)}")
    scope = scope_from_json(inner["scope"])
    given: dict[str, Any] = {}
    if inner is not data:
        given = {key: value for key, value in data.items() if key not in ("claim", "curve")}
        names = {each.name for each in fields(kind)}
        names |= {"members"} if word == GROUP_SAMPLED else set()
        names |= {"relation"} if word == "poisson-truncated" else set()
        if set(given) != names:
            raise InvalidParameter(
                "claim", word, f"has the fields curve, {', '.join(sorted(names))}"
            )
    group = given.pop("members", 1)
    between = given.pop("relation", scope.relation if inner is data else relation)
    found = Description(
        noise=noise_from_json(inner["noise"], REAL_LAWS),
        sensitivity=sensitivity_from_json(inner["sensitivity"]),
        scheme=kind(**given),
        relation=between,
        unit=scope.unit,
        group=group,
    )
    if found.added is not scope.relation:
        must = f"must have the relation {found.added.value!r}: the sensitivity is one of it"
        raise InvalidParameter("scope", inner["scope"], must)
    return found
