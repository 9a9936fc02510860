r"""A number of the second path, with its error."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.checker.laws.masses import Number

__all__ = ["Value", "Wanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    r"""``value``, believed to be within ``error`` of the truth.

    >>> Value(value=2, error=1).value
    2
    """

    value: Number
    error: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    r"""How small an error must be: relative to delta, or as an error of epsilon, or both in sum.

    >>> Wanted(of_epsilon=1e-9).relative
    0.0
    """

    relative: float = 0.0
    of_epsilon: float = 0.0
