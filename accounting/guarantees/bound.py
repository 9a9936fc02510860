r"""A numerical bound together with the theorem that proves it.

A bound encloses the true value between ``lower`` and ``upper``. If only an upper bound is known,
``lower`` is None rather than 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any, Final, Literal

from dpcore.cli.terminal import html_table
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, End, Ordered, round_down, round_up
from dpcore.numbers.rounding import down, up

_DIGITS: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bound(Ordered):
    r"""``lower <= true value <= upper``; ``lower`` is None if only an upper bound is known.

    ``method`` is the way in which the bound was computed, for example "exact", "direct", "contour"
    (a contour integral) or "basic"; ``theorem`` is the theorem used, and ``assumptions`` are the
    unproven assumptions. ``safe`` names the end to report: the upper one for an epsilon or a delta,
    the lower one for a type II error. ``float(bound)`` and ``f"{bound:.3f}"`` give this end,
    rounded to the safe side. A comparison is decided if it has the same result for all numbers from
    ``lower`` to ``upper``; otherwise it raises :class:`dpcore.Undecided`.

    >>> from fractions import Fraction
    >>> basic = Bound(upper=Fraction(5, 2), method="basic", theorem="epsilons add")
    >>> basic, float(basic), basic.lower_float
    (Bound(at most 2.5, 'basic'), 2.5, None)
    >>> third = Bound.of(Enclosure.exactly(Fraction(1, 3)), "exact", "a division")
    >>> f"{third:.3f}", third < 0.334, third >= 0.334
    ('0.334', True, False)
    >>> basic >= 2
    Traceback (most recent call last):
    ...
    dpcore.errors.Undecided: Bound(at most 2.5, 'basic') >= 2 is undecided: ...

    Raises :class:`InvalidParameter` if lower > upper, or if the safe end is missing.
    """

    upper: End
    lower: End | None = None
    method: str
    theorem: str
    assumptions: tuple[str, ...] = ()
    safe: Literal["upper", "lower"] = "upper"

    def __post_init__(self) -> None:
        if self.lower is not None and not self.lower <= self.upper:
            raise InvalidParameter("lower", self.lower, f"must be <= upper = {self.upper}")
        if self.safe == "lower" and self.lower is None:
            must = 'must be given if safe is "lower", the end that is reported'
            raise InvalidParameter("lower", None, must)

    @classmethod
    def of(cls, found: Enclosure, method: str, theorem: str) -> Bound:
        r"""Make a bound from the two ends of an enclosure."""
        return cls(upper=found.upper, lower=found.lower, method=method, theorem=theorem)

    @property
    def upper_float(self) -> float:
        r"""The smallest float >= ``upper``."""
        return round_up(self.upper)

    @property
    def lower_float(self) -> float | None:
        r"""The largest float <= ``lower``; None if ``lower`` is None."""
        return None if self.lower is None else round_down(self.lower)

    def __float__(self) -> float:
        if self.safe == "lower" and self.lower is not None:
            return round_down(self.lower)
        return round_up(self.upper)

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        number = float(self)
        if not math.isfinite(number):
            return format(number, spec)
        # The shortest decimals of the float are already on the safe side; rounding keeps them so.
        with localcontext(rounding=ROUND_CEILING if self.safe == "upper" else ROUND_FLOOR):
            return format(Decimal(repr(number)), spec)

    def __eq__(self, other: object) -> bool:
        self._refuse_number(other)
        if not isinstance(other, Bound):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self))

    def __hash__(self) -> int:
        return hash((self.lower, self.upper, self.method, self.theorem))

    def _interval(self) -> tuple[End, End]:
        return -math.inf if self.lower is None else self.lower, self.upper

    def __repr__(self) -> str:
        if self.lower is None:
            return f"Bound(at most {up(self.upper, _DIGITS)}, {self.method!r})"
        ends = f"{down(self.lower, _DIGITS)}, {up(self.upper, _DIGITS)}"
        return f"Bound([{ends}], {self.method!r})"

    def _repr_html_(self) -> str:
        rows = [] if self.lower is None else [("lower", down(self.lower, _DIGITS))]
        rows.append(("upper", up(self.upper, _DIGITS)))
        rows += [("method", self.method), ("theorem", self.theorem)]
        rows += [("assumes", assumed) for assumed in self.assumptions]
        return html_table("Bound", rows)

    def to_json(self) -> dict[str, Any]:
        r"""``{"lower": ..., "upper": ...}`` as floats rounded outwards; infinity as text.

        >>> Bound(upper=float("inf"), method="exact", theorem="the loss is unbounded").to_json()
        {'lower': None, 'upper': 'inf'}
        """
        return {"lower": _plain(self.lower_float), "upper": _plain(self.upper_float)}


def _plain(value: float | None) -> float | str | None:
    return str(value) if value in (float("inf"), float("-inf")) else value
