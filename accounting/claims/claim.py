r"""Claims of privacy as data: one of the four words, or one that is assumed.

A claim does not prove itself: :func:`accounting.release.guarantee.guarantee` derives one from a
mechanism, theorems turn one into another, and what comes from neither enters only inside
:class:`Assumed`, with a reason, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, TypeAlias, cast

from accounting.claims.bound import Bound
from accounting.claims.guarantee import Guarantee
from accounting.claims.words import Approx, Pure, Rdp, ZCdp, points_of
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope
from dpcore.numbers.parameter import RationalLike
from dpcore.spec import read_keys

__all__ = [
    "Approx",
    "Assumed",
    "Pure",
    "Rdp",
    "StatedGuarantee",
    "Word",
    "ZCdp",
    "claim_from_json",
    "points_of",
    "read_claim",
    "said",
    "scope_from_json",
]


@dataclass(frozen=True, slots=True, repr=False)
class Assumed(Guarantee):
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

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._told(self.guarantee.epsilon(delta, relative))

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._told(self.guarantee.delta(epsilon, relative))

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._told(self.guarantee.renyi(order, relative))

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        return self._told(self.guarantee.zcdp(relative))

    def tradeoff(self, alpha: RationalLike, relative: RationalLike | None = None) -> Bound:
        return self._told(self.guarantee.tradeoff(alpha, relative))

    def _told(self, found: Bound) -> Bound:
        return replace(found, assumptions=(f"{self.guarantee!r}: {self.reason}",))

    def to_json(self) -> dict[str, Any]:
        r"""The claim as text; :func:`claim_from_json` reads it back."""
        inner = self.guarantee.to_json()
        return {"claim": self.word, "guarantee": inner, "reason": self.reason}

    def __repr__(self) -> str:
        return f"Assumed({self.guarantee!r}, reason={self.reason!r})"


Word: TypeAlias = Pure | ZCdp | Rdp | Approx
"""A claim that is not assumed."""

StatedGuarantee: TypeAlias = Word | Assumed
"""A statement in one of the five words."""


def said(claim: Word) -> str:
    r"""The claim in a few words, as a table shows it; its scope is that of the table.

    >>> said(Approx(0, 1)), said(Pure("1/2")), said(ZCdp("0.1"))
    ('epsilon=0,delta=1', 'epsilon=1/2', 'rho=1/10')
    """
    if isinstance(claim, Rdp):
        return f"Renyi divergences at {len(points_of(claim))} orders"
    return ",".join(f"{key}={value}" for key, value in claim.parameters().items())


def claim_from_json(data: Mapping[str, Any]) -> StatedGuarantee:
    r"""The inverse of ``to_json``.

    >>> claim_from_json(Approx(1, "1e-6").to_json())
    Approx(1, '1/1000000')

    Raises :class:`InvalidParameter` for an unknown word, or fields missing or left over.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("claim", data, "must be a JSON object")
    name = data.get("claim")
    kinds: dict[Any, type[StatedGuarantee]] = {
        kind.word: kind for kind in (Pure, ZCdp, Approx, Rdp, Assumed)
    }
    if not isinstance(name, str) or name not in kinds:
        raise InvalidParameter("claim", name, f"must be one of {', '.join(kinds)}")
    own = sorted(fields(kinds[name]), key=lambda each: each.name == "scope")
    wanted = [each.name.removeprefix("stated_") for each in own]
    if set(data) != {"claim", *wanted}:
        raise InvalidParameter("claim", dict(data), f"{name} has the fields {', '.join(wanted)}")
    if name == Assumed.word:
        return Assumed(cast(Word, claim_from_json(data["guarantee"])), data["reason"])
    given = [data[key] for key in wanted if key != "scope"]
    return cast("type[Word]", kinds[name])(*given, scope=scope_from_json(data["scope"]))


def scope_from_json(data: object) -> Scope:
    r"""The inverse of ``Scope.to_json``.

    >>> scope_from_json(Scope(unit="user").to_json()) == Scope(unit="user")
    True
    """
    if not isinstance(data, Mapping) or set(data) != {"unit", "relation"}:
        raise InvalidParameter("scope", data, "must have the fields unit, relation")
    return Scope(unit=data["unit"], relation=data["relation"])


def read_claim(argument: str, text: str, scope: Scope) -> Word:
    r"""``epsilon=1``, ``epsilon=1,delta=1e-6`` or ``rho=1/2``, as a claim under ``scope``.

    >>> read_claim("--budget", "epsilon=1,delta=1e-6", Scope())
    Approx(1, '1/1000000')

    Raises :class:`InvalidParameter`, naming the argument.
    """
    given = read_keys(argument, text, text, ("epsilon", "delta", "rho"), owner="a claim")
    kind = _BY_KEYS.get(tuple(sorted(given)))
    if kind is None:
        must = "must be epsilon=1, epsilon=1,delta=1e-6 or rho=1/2"
        raise InvalidParameter(argument, text, must)
    try:
        return kind(
            *(given[key] for key in ("rho", "epsilon", "delta") if key in given), scope=scope
        )
    except InvalidParameter as error:
        raise InvalidParameter(argument, error.value, error.reason) from None


_BY_KEYS: Final[dict[tuple[str, ...], type[Pure | ZCdp | Approx]]] = {
    ("epsilon",): Pure,
    ("delta", "epsilon"): Approx,
    ("rho",): ZCdp,
}
