r"""Any guarantee from the JSON that ``to_json`` of a guarantee, a composition or a charge wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from accounting.claims.claim import (
    Approx,
    Assumed,
    Pure,
    Rdp,
    ZCdp,
    claim_from_json,
    scope_from_json,
)
from accounting.claims.guarantee import Guarantee
from accounting.mechanism.parse import description_from_json
from accounting.release.guarantee import guarantee
from accounting.totals.compose import Composition, compose
from dpcore.errors import InvalidParameter

__all__ = ["guarantee_from_json"]

_CLAIMS: Final = {kind.word for kind in (Pure, ZCdp, Rdp, Approx, Assumed)}
_FIELDS: Final = {"claim", "parts", "scope", "reason"}


def guarantee_from_json(data: Any) -> Guarantee:
    r"""What JSON describes: a claim, a release, or a list of parts with their rounds.

    >>> total = compose((Pure("1/10"), 3))
    >>> guarantee_from_json(total.to_json()) == total
    True

    Raises :class:`InvalidParameter` for an unknown word, fields missing or left over, and values
    out of range; :class:`NotDerived` as :func:`guarantee` does.
    """
    if isinstance(data, list):
        return _composed(data)
    if not isinstance(data, Mapping) or data.get("claim") != "composition":
        return _part(data)
    if not {"claim", "parts", "scope"} <= set(data) <= _FIELDS:
        raise InvalidParameter("composition", dict(data), "has the fields parts, scope, reason")
    reasons = (str(data["reason"]),) if "reason" in data else ()
    found = _composed(data["parts"])
    return replace(
        found,
        scope=scope_from_json(data["scope"]),
        assumptions=tuple(dict.fromkeys((*found.assumptions, *reasons))),
    )


def _composed(parts: Any) -> Composition:
    listed = []
    for each in parts if isinstance(parts, list) else [None]:
        if not isinstance(each, Mapping) or set(each) != {"part", "rounds"}:
            raise InvalidParameter("parts", each, "must be a list of objects with part, rounds")
        listed.append((_part(each["part"]), each["rounds"]))
    return compose(*listed)


def _part(data: Any) -> Guarantee:
    word = data.get("claim") if isinstance(data, Mapping) else None
    if isinstance(word, str) and word in _CLAIMS:
        return claim_from_json(data)
    return guarantee(description_from_json(data))
