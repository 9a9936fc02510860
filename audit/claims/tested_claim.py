r"""A claim to test: exact (epsilon, delta) under a neighbouring relation."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import Exact, check_fields, write_rational
from dpcore.spec_syntax import pairs_of, read_keys

_MOST_EPSILON: Final = 10**300  # representable as a float, which bounds and statistics need
_DIGITS: Final = 12
ACCEPTED: Final = "accepted are epsilon=E and epsilon=E,delta=D, e.g. epsilon=1,delta=1e-6"
r"""The message of :meth:`Claim.read` for text that it cannot parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    r"""P(M(D) in S) <= e^epsilon P(M(D') in S) + delta for every S and all neighbours D, D'.

    >>> print(Claim.read("epsilon=1/2,delta=1e-6"))
    epsilon=0.5,delta=1e-6

    Raises :class:`InvalidParameter` for epsilon < 0 and delta outside [0, 1).
    """

    epsilon: Exact = Exact()
    delta: Exact = Exact(0, within="[0, 1)")
    relation: Relation | str = Relation.REPLACE

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.epsilon <= _MOST_EPSILON:
            raise InvalidParameter("epsilon", self.epsilon, "must be >= 0 and <= 1e300")
        object.__setattr__(self, "relation", read_relation("relation", self.relation))

    @classmethod
    def read(cls, text: str, relation: str | Relation = Relation.REPLACE) -> Claim:
        r"""Parse a claim: ``epsilon=1`` or ``epsilon=1,delta=1e-6``."""
        keys, typed = ("epsilon", "delta"), {key for key, _ in pairs_of(text)}
        if not typed <= {*keys} or "epsilon" not in typed:
            raise InvalidParameter("claim", text, ACCEPTED)
        given = read_keys("claim", text, text, keys, owner="a claim", needed=keys[:1])
        return cls(epsilon=given["epsilon"], delta=given.get("delta", 0), relation=relation)

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        r"""The claimed (epsilon, delta) as fractions."""
        return self.epsilon, self.delta

    @property
    def points(self) -> tuple[Claim, ...]:
        r"""The tested points (epsilon, delta): only this claim.

        A :class:`audit.claims.curve_claim.CurveClaim` has several.
        """
        return (self,)

    def __str__(self) -> str:
        epsilon, delta = self.exact
        return f"epsilon={format_rational(epsilon)}" + (
            f",delta={format_rational(delta)}" if delta else ""
        )

    def to_json(self) -> dict[str, str]:
        r"""The exact epsilon, delta and relation as text."""
        epsilon, delta = self.exact
        return {
            "epsilon": write_rational(epsilon),
            "delta": write_rational(delta),
            "relation": Relation(self.relation).value,
        }


def read_relation(name: str, value: object) -> Relation:
    r"""Parse a neighbouring relation, given as a member or by its value."""
    try:
        return Relation(value)
    except ValueError:
        choices = " or ".join(relation.value for relation in Relation)
        raise InvalidParameter(name, value, f"must be {choices}") from None


def format_rational(value: Fraction) -> str:
    r"""The short exact decimal, if there is one, otherwise the fraction."""
    with localcontext(prec=_DIGITS):
        short = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    if Fraction(short) != value:
        return write_rational(value)
    plain = -6 < short.adjusted() < _DIGITS
    return f"{short:f}" if plain else f"{short:e}".replace("e+", "e")
