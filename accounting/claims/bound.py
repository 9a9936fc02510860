r"""A number that a theorem bounds, and by which theorem.

Where the truth is enclosed both ends are there. Where a theorem bounds it from above only, the
lower end is absent: it is not 0, and it is not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, End, round_down, round_up
from dpcore.numbers.rounding import down, up

__all__ = ["Bound"]

_DIGITS: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bound:
    r"""``lower <= truth <= upper``, ``lower`` None where only an upper bound is known.

    ``method`` names the route in a word, ``theorem`` says what it rests on.

    >>> from fractions import Fraction
    >>> basic = Bound(upper=Fraction(5, 2), method="basic", theorem="epsilons add")
    >>> basic, basic.upper_float, basic.lower_float
    (Bound(at most 2.5, 'basic'), 2.5, None)

    Raises :class:`InvalidParameter` when the ends are out of order.
    """

    upper: End
    lower: End | None = None
    method: str
    theorem: str

    def __post_init__(self) -> None:
        if self.lower is not None and not self.lower <= self.upper:
            raise InvalidParameter("lower", self.lower, f"must be <= upper = {self.upper}")

    @classmethod
    def of(cls, found: Enclosure, method: str, theorem: str) -> Bound:
        r"""Both ends of an enclosure."""
        return cls(upper=found.upper, lower=found.lower, method=method, theorem=theorem)

    @property
    def upper_float(self) -> float:
        r"""The smallest float >= ``upper``: the number to rely on."""
        return round_up(self.upper)

    @property
    def lower_float(self) -> float | None:
        r"""The largest float <= ``lower``, or None."""
        return None if self.lower is None else round_down(self.lower)

    def __repr__(self) -> str:
        if self.lower is None:
            return f"Bound(at most {up(self.upper, _DIGITS)}, {self.method!r})"
        ends = f"{down(self.lower, _DIGITS)}, {up(self.upper, _DIGITS)}"
        return f"Bound([{ends}], {self.method!r})"

    def to_json(self) -> dict[str, Any]:
        r"""``{"lower": ..., "upper": ...}`` as floats rounded outwards; infinity as text.

        >>> Bound(upper=float("inf"), method="exact", theorem="the loss is unbounded").to_json()
        {'lower': None, 'upper': 'inf'}
        """
        return {"lower": _plain(self.lower_float), "upper": _plain(self.upper_float)}


def _plain(value: float | None) -> float | str | None:
    return str(value) if value in (float("inf"), float("-inf")) else value
