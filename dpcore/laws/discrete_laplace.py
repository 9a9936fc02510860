r"""The discrete Laplace law: P(X = k) = tanh(1/(2s)) e^(-|k|/s).

Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms" (2009),
call it the two-sided geometric law. A release with sensitivity Delta is (Delta/s)-DP, and no
smaller epsilon holds. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from flint import arb

from dpcore.noise import Covered, Noise, SymmetricNoise
from dpcore.numbers.arrays import Floats, Integers, Split, decayed, pair_of, product
from dpcore.numbers.enclosure import Enclosure, ball, narrow, nearest, precision
from dpcore.numbers.parameter import Exact, integer
from dpcore.sampling.bernoulli import geometric_exp
from dpcore.sampling.inversion import Batch, LaplaceDigits
from dpcore.sampling.rng import Rng


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DiscreteLaplace(SymmetricNoise):
    r"""Discrete Laplace noise: P(X = k) = tanh(1/(2s)) e^(-|k|/s), s = ``scale`` > 0.

    With beta = e^(-1/s): P(X = k) = (1 - beta)/(1 + beta) beta^|k|, P(X > m) = beta^(m+1)/(1+beta)
    for m >= 0, and the variance is 2 beta/(1 - beta)^2. The masses of adjacent integers have ratio
    e^(1/s), so a release with sensitivity Delta is (Delta/s)-DP and not epsilon-DP for any smaller
    epsilon.

    The float64 functions cover 1e-6 <= scale <= 2^46. Raises :class:`InvalidParameter` if
    the scale is not a positive rational.

    >>> noise = DiscreteLaplace(scale=10)
    >>> noise.pmf(3), noise.sf(0)
    (0.03701007444444673, 0.47502081252106)
    >>> noise.enclose_pmf(3).width < Fraction(1, 2**130)
    True
    """

    name: ClassVar[str] = "discrete-laplace"
    floats: ClassVar[tuple[Covered, ...]] = (Covered("scale", "1e-6", "2^46"),)

    scale: Exact = Exact(zero="scale 0 adds no noise")

    @property
    def log_concave(self) -> bool:
        # |k| is convex.
        return True

    @property
    def variance(self) -> Enclosure:
        r"""The variance 1/(2 sinh^2(1/(2 scale))), enclosed to 128 bits.

        >>> DiscreteLaplace(scale=10).variance.lower_float
        199.83341663360943
        """
        return narrow(lambda: 1 / (2 * (1 / (2 * ball(self.scale))).sinh() ** 2), 128)

    def pmf_ball(self, k: int) -> arb:
        rate = 1 / ball(self.scale)
        return (rate / 2).tanh() * (-rate * abs(k)).exp()

    def sf_ball(self, k: int) -> arb:
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        rate = 1 / ball(self.scale)
        return (-rate * (k + 1)).exp() / (1 + (-rate).exp())

    def sample_reference(self, rng: Rng) -> int:
        r"""Draw one value with Algorithm 2 of Canonne, Kamath and Steinke (arXiv 2004.00010v5).

        The value has a geometric magnitude and a fair sign. A negative zero is rejected, because
        zero would otherwise have twice its mass.
        """
        while True:
            magnitude = geometric_exp(rng, 1 / self.scale)
            negative = rng.flip()
            if not (negative and magnitude == 0):
                return -magnitude if negative else magnitude

    def build_batch(self) -> Batch:
        return LaplaceDigits(self.scale)

    def share(self, parties: int) -> Noise:
        r"""The law of one of k = ``parties`` shares: PolyaDifference with shape 1/k and this scale.

        >>> DiscreteLaplace(scale=10).share(4)
        PolyaDifference(shape='1/4', scale=10)
        """
        from dpcore.laws.polya import PolyaDifference  # local: it imports six modules

        parties = integer("parties", parties, at_least=1)
        return PolyaDifference(shape=Fraction(1, parties), scale=self.scale)

    def _exponent(self, k: Integers) -> Split:
        return product(pair_of(k), pair_of(1 / self.scale))

    def _pmf(self, k: Integers) -> Floats:
        with precision(96):
            peak = nearest((1 / (2 * ball(self.scale))).tanh())
        return peak * decayed(self._exponent(k))

    def _log_pmf(self, k: Integers) -> Floats:
        with precision(96):
            if self.scale < 1:  # the mass at 0 is near 1: use the rest of the mass
                beta = (-1 / ball(self.scale)).exp()
                peak = nearest((-2 * beta / (1 + beta)).log1p())
            else:
                peak = nearest((1 / (2 * ball(self.scale))).tanh().log())
        return peak - np.abs(self._exponent(k).high)

    def _upper(self, k: Integers) -> Floats:
        with precision(96):
            start = nearest(self.sf_ball(0))
        return start * decayed(self._exponent(k))

    def _quantile_guess(self, p: Floats) -> Integers:
        small = np.minimum(p, 1 - p)
        with precision(96):
            offset = float((1 + (-1 / ball(self.scale)).exp()).log().mid())
        # P(X > k) = beta^(k+1)/(1+beta) <= q  iff  k + 1 >= s (-log q - log(1+beta)).
        steps = np.maximum(np.ceil(float(self.scale) * (-np.log(small) - offset)), 0.0)
        k = steps.astype(np.int64)
        return np.where(p > 0.5, k - 1 + (k == 0), -k)
