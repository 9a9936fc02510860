r"""Parse guarantees from JSON, including those of compositions and of ledger charges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from accounting.composition.compose import compose, for_a_user
from accounting.derive_guarantee import guarantee
from accounting.descriptions.description import LOCAL_REPORT, description_from_json
from accounting.descriptions.real_noise import REAL_LAWS
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import CLAIMS, claim_from_json
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
from accounting.strategy_matrices import Dense, Participation, Strategy, read_strategy
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope, Unit
from dpcore.numbers.parameter import text
from dpcore.parse_noise import noise_from_json, sensitivity_from_json

_MECHANISM: Final = ("noise", "sensitivity", "scope")
_OF_A_VALUE: Final = ("released", "question", "mechanism")
r"""The keys that a ledger adds to a guarantee if it stores the released value of the charge."""


def guarantee_from_json(data: Any) -> Guarantee:
    r"""Parse the JSON of a claim, of a release, or of a list of guarantees with their rounds.

    >>> from accounting import Pure
    >>> total = compose((Pure("1/10"), 3))
    >>> guarantee_from_json(total.to_json()) == total
    True

    Raises :class:`InvalidParameter` if a claim is unknown, a field is missing or unknown, or a
    value is out of range, and :class:`NotDerived` if the guarantee of a release is not derived.
    """
    if isinstance(data, list):
        return compose(*_parts(data))
    if isinstance(data, Mapping) and "released" in data:
        data = {key: each for key, each in data.items() if key not in _OF_A_VALUE}
    if not isinstance(data, Mapping) or data.get("claim") != "composition":
        return _part(data)
    reason = ("reason",) if "reason" in data else ()
    _check_fields("composition", data, "claim", "parts", "scope", *reason)
    scope, parts = Scope.from_json(data["scope"]), _parts(data["parts"])
    if scope.unit is Unit.USER and parts:
        found = for_a_user(parts, scope)
    else:
        found = compose(*parts)
        if scope != found.scope:
            raise InvalidParameter("scope", scope, f"must be {found.scope!r}, as for the parts")
    # The stored reason starts with the assumptions of the parts; the rest was stated separately.
    rest = str(data.get("reason", ""))
    for each in found.assumptions:
        rest = rest.removeprefix(each).removeprefix("; ")
    more = (rest,) if rest else ()
    return replace(found, assumptions=(*found.assumptions, *more))


def _parts(parts: Any) -> list[tuple[Guarantee, int]]:
    listed = []
    given: list[Any] = parts if isinstance(parts, list) else [None]
    for each in given:
        _check_fields("parts", each, "part", "rounds")
        listed.append((_part(each["part"]), each["rounds"]))
    return listed


def _part(data: Any) -> Guarantee:
    word = data.get("claim") if isinstance(data, Mapping) else None
    if isinstance(word, str) and word in CLAIMS:
        return claim_from_json(data)
    if word == LOCAL_REPORT and "report" not in data:
        _check_fields(LOCAL_REPORT, data, "claim", "ratio", "distance", "scope")
        return ReportCurve.from_json(data)
    return guarantee(_matrix(data) if word == "matrix" else description_from_json(data))


def _matrix(data: Mapping[str, Any]) -> MatrixMechanism:
    _check_fields("matrix", data, "claim", "strategy", "participation", *_MECHANISM)
    of: Any = data["strategy"]
    taken: Any = data["participation"]
    _check_fields("participation", taken, "most", "apart")
    if isinstance(of, Mapping) and "rows" in of:
        _check_fields("strategy", of, "strategy", "rounds", "rows")
        strategy: Strategy = Dense(rounds=of["rounds"], rows=of["rows"])
    else:
        _check_fields("strategy", of, "strategy", "rounds")
        name = text("strategy", of["strategy"], "must be the name of a strategy")
        strategy = read_strategy("strategy", name, of["rounds"])
    noise: Any = noise_from_json(data["noise"], REAL_LAWS)
    return MatrixMechanism(
        strategy=strategy,
        participation=Participation(**taken),
        noise=noise,
        sensitivity=sensitivity_from_json(data["sensitivity"]),
        scope=Scope.from_json(data["scope"]),
    )


def _check_fields(argument: str, data: Any, *names: str) -> None:
    if not isinstance(data, Mapping) or set(data) != {*names}:
        reason = f"must contain exactly the fields {', '.join(names)}"
        raise InvalidParameter(argument, data, reason)
