r"""What every symmetric law shares: one tail gives everything."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from flint import arb

from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.floating import Floats


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SymmetricNoise(Noise):
    r"""A law with P(X = k) = P(X = -k): one tail gives everything."""

    symmetric: ClassVar[bool] = True

    @abstractmethod
    def _upper(self, k: Integers) -> Floats:
        r"""P(X > k) for k >= 0 as floats, to the stated relative error."""

    @property
    def mean(self) -> Fraction:
        r"""0, by symmetry."""
        return Fraction(0)

    def cdf_ball(self, k: int) -> arb:
        r"""P(X <= k) = P(X > -k-1)."""
        return self.sf_ball(-k - 1)

    def tail_ball(self, t: int) -> arb:
        r"""P(|X| > t) = 2 P(X > t) for t >= 0."""
        return 2 * self.sf_ball(t)

    def _sf(self, k: Integers) -> Floats:
        # ~k = -k-1 without overflow at either end of int64.
        tail = self._upper(np.where(k >= 0, k, ~k))
        return np.where(k >= 0, tail, 1 - tail)

    def _cdf(self, k: Integers) -> Floats:
        return self._sf(~k)
