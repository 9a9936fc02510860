"""A law that is not registered in `accounting`: only its mass function is available."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from flint import arb

from dpcore.noise import SymmetricNoise
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.enclosure import ball
from dpcore.sampling.inversion import Batch
from dpcore.sampling.rng import Rng


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Triangle(SymmetricNoise):
    """P(X = k) = (n+1-|k|)/(n+1)^2 for |k| <= n: symmetric, log-concave, bounded, rational."""

    name: ClassVar[str] = "triangle"

    half: int

    @property
    def log_concave(self) -> bool:
        return True

    def pmf_ball(self, k: int) -> arb:
        return ball(Fraction(max(self.half + 1 - abs(k), 0), (self.half + 1) ** 2))

    def sf_ball(self, k: int) -> arb:
        above = sum(
            max(self.half + 1 - abs(j), 0) for j in range(max(k, -self.half - 1) + 1, self.half + 1)
        )
        return ball(Fraction(above, (self.half + 1) ** 2))

    @property
    def variance(self) -> Fraction:
        return Fraction(self.half * (self.half + 2), 6)

    def sample_reference(self, rng: Rng) -> int:
        return rng.below(self.half + 1) - rng.below(self.half + 1)

    def build_batch(self) -> Batch:
        raise NotImplementedError

    def check_float_range(self) -> None:
        raise NotImplementedError

    def _log_pmf(self, k: Integers) -> Floats:
        raise NotImplementedError

    def _pmf(self, k: Integers) -> Floats:
        raise NotImplementedError

    def _upper(self, k: Integers) -> Floats:
        raise NotImplementedError

    def _quantile_guess(self, p: Floats) -> Integers:
        raise NotImplementedError


class Lopsided(Triangle):
    """The same law, declared to be neither symmetric nor log-concave."""

    symmetric: ClassVar[bool] = False

    @property
    def log_concave(self) -> bool:
        return False
