r"""The words of privacy: what is promised, as data.

A word is a statement about a pair of neighbouring datasets under one scope. It does not prove
itself: :func:`accounting.release.guarantee.guarantee` derives one from a mechanism, theorems turn
one into another, and what comes from neither enters only inside :class:`Assumed`, with a reason,
for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, rational

__all__ = ["Approx", "Assumed", "Claim", "Pure", "Rdp", "ZCdp", "claim_from_json"]


def _amount(argument: str, value: object) -> Fraction:
    exact = rational(argument, value)
    if exact < 0:
        raise InvalidParameter(
            argument, value, "must be >= 0: no mechanism loses less than nothing"
        )
    return exact


def _check_scope(scope: object) -> None:
    if not isinstance(scope, Scope):
        raise InvalidParameter("scope", scope, "must be a Scope")


def _written(word: str, scope: Scope, *arguments: str) -> str:
    shown = [*arguments] if scope == Scope() else [*arguments, f"scope={scope!r}"]
    return f"{word}({', '.join(shown)})"


def _exact(value: object) -> str:
    text = str(value)
    return repr(text) if "/" in text else text


def _scope_json(scope: Scope) -> dict[str, str]:
    return {"unit": scope.unit.value, "relation": scope.relation.value}


@dataclass(frozen=True, slots=True, repr=False)
class Pure:
    r"""P(M(D) in S) <= e^epsilon P(M(D') in S) for every event S and all neighbours D, D'.

    >>> Pure("1/10"), Pure(1).to_json()["epsilon"]
    (Pure('1/10'), '1')

    Raises :class:`InvalidParameter` for an epsilon that is not a rational >= 0.
    """

    word: ClassVar[str] = "pure"

    epsilon: RationalLike
    scope: Scope = field(default=Scope(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _amount("epsilon", self.epsilon))
        _check_scope(self.scope)

    def to_json(self) -> dict[str, Any]:
        r"""The claim as text; :func:`claim_from_json` reads it back."""
        return {"claim": self.word, "epsilon": str(self.epsilon), "scope": _scope_json(self.scope)}

    def __repr__(self) -> str:
        return _written("Pure", self.scope, _exact(self.epsilon))


@dataclass(frozen=True, slots=True, repr=False)
class ZCdp:
    r"""D_alpha(M(D) || M(D')) <= rho alpha for every order alpha > 1 (Bun and Steinke 2016).

    >>> ZCdp("1/800")
    ZCdp('1/800')

    Raises :class:`InvalidParameter` for a rho that is not a rational >= 0.
    """

    word: ClassVar[str] = "zcdp"

    rho: RationalLike
    scope: Scope = field(default=Scope(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", _amount("rho", self.rho))
        _check_scope(self.scope)

    def to_json(self) -> dict[str, Any]:
        r"""The claim as text; :func:`claim_from_json` reads it back."""
        return {"claim": self.word, "rho": str(self.rho), "scope": _scope_json(self.scope)}

    def __repr__(self) -> str:
        return _written("ZCdp", self.scope, _exact(self.rho))


@dataclass(frozen=True, slots=True, repr=False)
class Approx:
    r"""P(M(D) in S) <= e^epsilon P(M(D') in S) + delta for every event S, epsilon >= 0.

    >>> Approx(1, "1e-6")
    Approx(1, '1/1000000')

    Raises :class:`InvalidParameter` for an epsilon below 0 or a delta outside [0, 1].
    """

    word: ClassVar[str] = "approx"

    epsilon: RationalLike
    delta: RationalLike
    scope: Scope = field(default=Scope(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _amount("epsilon", self.epsilon))
        delta = rational("delta", self.delta)
        if not 0 <= delta <= 1:
            raise InvalidParameter("delta", self.delta, "must lie in [0, 1]: it is a probability")
        object.__setattr__(self, "delta", delta)
        _check_scope(self.scope)

    def to_json(self) -> dict[str, Any]:
        r"""The claim as text; :func:`claim_from_json` reads it back."""
        return {
            "claim": self.word,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "scope": _scope_json(self.scope),
        }

    def __repr__(self) -> str:
        return _written("Approx", self.scope, _exact(self.epsilon), _exact(self.delta))


# Any key: a mapping is invariant in it, and {2: ..., "3/2": ...} mixes types.
RdpPoints: TypeAlias = (
    Mapping[Any, RationalLike | Enclosure] | Iterable[tuple[RationalLike, RationalLike | Enclosure]]
)


def _pairs(points: RdpPoints) -> list[tuple[RationalLike, RationalLike | Enclosure]]:
    given = points.items() if isinstance(points, Mapping) else points
    try:
        return [(order, epsilon) for order, epsilon in given]
    except (TypeError, ValueError):
        raise InvalidParameter("points", points, "must map orders to epsilons") from None


@dataclass(frozen=True, slots=True, repr=False)
class Rdp:
    r"""D_alpha(M(D) || M(D')) <= epsilon(alpha) at each of the orders listed, alpha > 1.

    ``points`` maps an order to its epsilon: exact, or an :class:`Enclosure`, of which the upper
    end is promised. Kept as pairs (order, epsilon) in rising order (Mironov 2017).

    >>> Rdp({2: "1/400", "3/2": "3/1600"})
    Rdp({'3/2': '3/1600', 2: '1/400'})

    Raises :class:`InvalidParameter` for no points, an order that is not a rational > 1 or is
    given twice, and an epsilon that is not a rational >= 0.
    """

    word: ClassVar[str] = "rdp"

    points: RdpPoints
    scope: Scope = field(default=Scope(), kw_only=True)

    def __post_init__(self) -> None:
        exact: dict[Fraction, Fraction] = {}
        for order, epsilon in _pairs(self.points):
            at = rational("order", order)
            if at <= 1:
                raise InvalidParameter("order", order, "must be > 1")
            if at in exact:
                raise InvalidParameter("order", order, "is given twice")
            promised = epsilon.upper if isinstance(epsilon, Enclosure) else epsilon
            exact[at] = _amount("epsilon", promised)
        if not exact:
            raise InvalidParameter("points", self.points, "must hold at least one order")
        object.__setattr__(self, "points", tuple(sorted(exact.items())))
        _check_scope(self.scope)

    def to_json(self) -> dict[str, Any]:
        r"""The claim as text; :func:`claim_from_json` reads it back."""
        points = {str(order): str(epsilon) for order, epsilon in _pairs(self.points)}
        return {"claim": self.word, "points": points, "scope": _scope_json(self.scope)}

    def __repr__(self) -> str:
        points = (f"{_exact(order)}: {_exact(epsilon)}" for order, epsilon in _pairs(self.points))
        return _written("Rdp", self.scope, f"{{{', '.join(points)}}}")


@dataclass(frozen=True, slots=True, repr=False)
class Assumed:
    r"""A claim that this package did not derive, and the reason someone gave for believing it.

    It stays visible: no composition or conversion drops the reason.

    >>> Assumed(Pure(1), "vendor's data sheet, 2026-03")
    Assumed(Pure(1), reason="vendor's data sheet, 2026-03")

    Raises :class:`InvalidParameter` for an empty reason, or anything but one of the four words.
    """

    word: ClassVar[str] = "assumed"

    guarantee: Pure | ZCdp | Rdp | Approx
    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, (Pure, ZCdp, Rdp, Approx)):
            raise InvalidParameter(
                "guarantee", self.guarantee, "must be a Pure, ZCdp, Rdp or Approx claim"
            )
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise InvalidParameter("reason", self.reason, "must say why the claim is believed")

    @property
    def scope(self) -> Scope:
        r"""The scope of the claim that is assumed."""
        return self.guarantee.scope

    def to_json(self) -> dict[str, Any]:
        r"""The claim as text; :func:`claim_from_json` reads it back."""
        inner = self.guarantee.to_json()
        return {"claim": self.word, "guarantee": inner, "reason": self.reason}

    def __repr__(self) -> str:
        return f"Assumed({self.guarantee!r}, reason={self.reason!r})"


Claim: TypeAlias = Pure | ZCdp | Rdp | Approx | Assumed
"""A statement in one of the five words."""


def claim_from_json(data: Mapping[str, Any]) -> Claim:
    r"""The inverse of ``to_json``.

    >>> claim_from_json(Approx(1, "1e-6").to_json())
    Approx(1, '1/1000000')

    Raises :class:`InvalidParameter` for an unknown word, or fields missing or left over.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("claim", data, "must be a JSON object")
    words: dict[Any, tuple[type[Claim], tuple[str, ...]]] = {
        "pure": (Pure, ("epsilon", "scope")),
        "zcdp": (ZCdp, ("rho", "scope")),
        "approx": (Approx, ("epsilon", "delta", "scope")),
        "rdp": (Rdp, ("points", "scope")),
        "assumed": (Assumed, ("guarantee", "reason")),
    }
    name = data.get("claim")
    if not isinstance(name, str) or name not in words:
        raise InvalidParameter("claim", name, f"must be one of {', '.join(words)}")
    kind, wanted = words[name]
    if set(data) != {"claim", *wanted}:
        raise InvalidParameter("claim", dict(data), f"{name} has the fields {', '.join(wanted)}")
    given = {key: data[key] for key in wanted}
    if "scope" in given:
        given["scope"] = _scope_from_json(given["scope"])
    if "guarantee" in given:
        given["guarantee"] = claim_from_json(given["guarantee"])
    return kind(**given)


def _scope_from_json(data: object) -> Scope:
    if not isinstance(data, Mapping) or set(data) != {"unit", "relation"}:
        raise InvalidParameter("scope", data, "must have the fields unit, relation")
    return Scope(unit=data["unit"], relation=data["relation"])
