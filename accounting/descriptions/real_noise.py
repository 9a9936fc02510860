r"""Real-valued Gaussian and Laplace noise, which other code adds; used only for accounting.

These classes are not subclasses of :class:`dpcore.noise.Noise`: dpcore never draws such noise,
since no float follows such a law exactly. Results hold for the ideal law, and state this as an
assumption. ``released_by`` names the integer noise that can be drawn exactly instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar, Final

from dpcore.noise import LawType
from dpcore.numbers.parameter import Exact, check_fields, write_rational


@dataclass(frozen=True, slots=True, kw_only=True)
class RealNoise(metaclass=LawType):
    r"""A real-valued noise law with exact parameters."""

    name: ClassVar[str]
    released_by: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def parameters(self) -> dict[str, str]:
        r"""The parameters as exact text."""
        return {each.name: write_rational(getattr(self, each.name)) for each in fields(self)}

    @property
    def assumption(self) -> str:
        r"""The assumption that floating-point code draws this noise exactly from the law."""
        law = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return (
            f"the noise is exactly {self.name}:{law}, which floating-point code only approximates; "
            f"{self.released_by} needs no such assumption"
        )

    def to_json(self) -> dict[str, str]:
        r"""The law and its parameters, as text."""
        return {"law": self.name, **self.parameters}

    @property
    @abstractmethod
    def variance(self) -> Fraction:
        r"""The variance, exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian(RealNoise):
    r"""Gaussian noise Normal(0, sigma^2) per coordinate with exact sigma; only for accounting.

    >>> Gaussian(sigma="1.1")
    Gaussian(sigma=Fraction(11, 10))

    Raises :class:`InvalidParameter` unless sigma > 0.
    """

    name: ClassVar[str] = "gaussian"
    released_by: ClassVar[str] = "discrete-gaussian noise"

    sigma: Exact = Exact(zero="sigma 0 adds no noise")

    @property
    def variance(self) -> Fraction:
        r"""The variance sigma^2."""
        return self.sigma**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace(RealNoise):
    r"""Laplace noise of density e^(-\|x\|/scale)/(2 scale) per coordinate; only for accounting.

    >>> Laplace(scale=2).variance
    Fraction(8, 1)

    Raises :class:`InvalidParameter` unless scale > 0.
    """

    name: ClassVar[str] = "laplace"
    released_by: ClassVar[str] = "discrete-laplace noise"

    scale: Exact = Exact(zero="scale 0 adds no noise")

    @property
    def variance(self) -> Fraction:
        r"""The variance 2 scale^2."""
        return 2 * self.scale**2


REAL_LAWS: Final[Mapping[str, type[RealNoise]]] = MappingProxyType(
    {"gaussian": Gaussian, "laplace": Laplace}
)
r"""The real-valued laws by name."""
