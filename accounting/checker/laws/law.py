r"""A law as a certificate names it: its name and its rational parameters."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

__all__ = ["LAWS", "REAL_LAWS", "Law", "Unchecked"]

LAWS: Final = {
    "discrete-laplace": ("scale",),
    "discrete-gaussian": ("sigma_squared",),
    "discrete-gaussian-sum": ("count", "sigma_squared"),
    "skellam": ("variance",),
    "polya": ("shape", "scale"),
    "polya-difference": ("shape", "scale"),
    "poisson": ("mean",),
    "binomial": ("trials", "probability"),
}
"""The parameters of every law on the integers."""

REAL_LAWS: Final = {"gaussian": ("sigma",), "laplace": ("scale",)}
"""The parameters of the laws on the reals."""

_SYMMETRIC: Final = frozenset(LAWS) - {"polya", "poisson", "binomial"}


class Unchecked(Exception):
    r"""The claim is neither proven nor refuted: too large, or outside what can be computed.

    >>> raise Unchecked("a law of a million values")
    Traceback (most recent call last):
    ...
    accounting.checker.laws.law.Unchecked: a law of a million values
    """


@dataclass(frozen=True, slots=True)
class Law:
    r"""A law by name, with its parameters in the order of :data:`LAWS`.

    >>> Law("skellam", (Fraction(400),)).symmetric
    True
    """

    name: str
    parameters: tuple[Fraction, ...]

    @property
    def symmetric(self) -> bool:
        r"""Whether X and -X have one law (a fair binomial up to a shift, which costs nothing)."""
        return self.name in _SYMMETRIC or (
            self.name == "binomial" and self.parameters[1] == Fraction(1, 2)
        )
