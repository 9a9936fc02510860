r"""The discrete Gaussian law: P(X = k) = e^(-k^2/2v) / sum_j e^(-j^2/2v), v = sigma squared.

Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (arXiv 2004.00010v5).
With sensitivity Delta it satisfies ZCdp(Delta^2/2v). The sum of two draws is not a discrete
Gaussian. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from flint import arb

from dpcore.analysis import theta
from dpcore.analysis.law_floats import by_runs, normal_guess
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.noise import Covered, SymmetricNoise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, narrow, nearest, precision
from dpcore.numbers.floating import Floats, Split, decayed, pair_of, product, square
from dpcore.numbers.parameter import Exact
from dpcore.sampling.bernoulli import bernoulli_exp
from dpcore.sampling.inversion import (
    EXTRA,
    TABLE_BITS,
    Batch,
    InversionTable,
    symmetric_table,
)
from dpcore.sampling.rng import Rng
from dpcore.sampling.unimodal_rejection import Centred

_TABLE_VARIANCE: Final = 1 << 22
_SERIES_VARIANCE: Final = 1 << 12
# B_2m(1/2)/(2m)! for m = 1, ..., 8: values of Bernoulli polynomials (DLMF 24.4.27).
_MIDPOINT: Final = tuple(
    float(Fraction(*bernoulli) * (Fraction(2) ** (1 - 2 * m) - 1) / math.factorial(2 * m))
    for m, bernoulli in enumerate(
        ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)), 1
    )
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DiscreteGaussian(SymmetricNoise):
    r"""Discrete Gaussian noise: P(X = k) = e^(-k^2/2v)/Z, v = ``sigma_squared`` > 0.

    Z = sum_j e^(-j^2/2v). ``sigma_squared`` is the parameter of the law; the variance is slightly
    smaller (Canonne, Kamath and Steinke, Corollary 9). A release with sensitivity Delta is
    ZCdp(Delta^2/2v) and not pure DP for any epsilon.

    The float64 functions cover 1e-12 <= sigma_squared <= 2^92. Raises :class:`InvalidParameter`
    for a parameter that is not a positive rational.

    >>> noise = DiscreteGaussian(sigma_squared=400)
    >>> noise.pmf(0), noise.quantile(0.975)
    (0.019947114020071634, 39)
    >>> noise.enclose_sf(500).upper < Fraction(1, 10**130)
    True
    """

    name: ClassVar[str] = "discrete-gaussian"
    floats: ClassVar[tuple[Covered, ...]] = (Covered("sigma_squared", "1e-12", "2^92"),)

    sigma_squared: Exact = Exact(zero="variance 0 adds no noise")

    @property
    def log_concave(self) -> bool:
        r"""True, because k^2 is convex."""
        return True

    @property
    def variance(self) -> Enclosure:
        r"""The variance E[X^2], enclosed to 128 bits; at most ``sigma_squared``.

        >>> DiscreteGaussian(sigma_squared=1).variance.lower_float
        0.999999788767728
        """
        return narrow(lambda: theta.second_moment(self.sigma_squared), 128)

    def pmf_ball(self, k: int) -> arb:
        r"""e^(-k^2/2v)/Z."""
        v = self.sigma_squared
        return (-ball(Fraction(k * k) / (2 * v))).exp() / theta.partition(v)

    def masses(self, first: int, last: int) -> list[arb]:
        r"""P(X = k) for k = ``first``, ..., ``last``."""
        rate, whole = 1 / (2 * ball(self.sigma_squared)), theta.partition(self.sigma_squared)
        return [(-rate * (k * k)).exp() / whole for k in range(first, last + 1)]

    def sf_ball(self, k: int) -> arb:
        r"""P(X > k), from a theta series for k >= 0 and by symmetry for k < 0."""
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        return theta.upper_tail(self.sigma_squared, k + 1)

    def sample_reference(self, rng: Rng) -> int:
        r"""Draw one value by Canonne, Kamath and Steinke (arXiv 2004.00010v5), Algorithm 3."""
        scale = math.isqrt(math.floor(self.sigma_squared)) + 1
        proposal = DiscreteLaplace(scale=scale)
        while True:
            candidate = proposal.sample_reference(rng)
            gap = abs(candidate) - self.sigma_squared / scale
            if bernoulli_exp(rng, gap * gap / (2 * self.sigma_squared)):
                return candidate

    def build_batch(self) -> Batch:
        r"""Build a table up to sigma = 2^11; above, rejection from staircase proposals."""
        if self.sigma_squared <= _TABLE_VARIANCE:
            return _table(self)
        return Centred(self, self.sigma_squared)

    def _exponent(self, k: Integers) -> Split:
        return product(square(pair_of(k)), pair_of(1 / (2 * self.sigma_squared)))

    def _pmf(self, k: Integers) -> Floats:
        with precision(96):
            peak = nearest(self.pmf_ball(0))
        return peak * decayed(self._exponent(k))

    def _log_pmf(self, k: Integers) -> Floats:
        with precision(128):
            if self.sigma_squared < 1:  # P(X = 0) is near 1: use the other masses
                peak = nearest((-2 * theta.upper_tail(self.sigma_squared, 1)).log1p())
            else:
                peak = nearest(-theta.partition(self.sigma_squared).log())
        return peak - self._exponent(k).high

    def _upper(self, k: Integers) -> Floats:
        if self.sigma_squared < _SERIES_VARIANCE:
            return by_runs(self, k, "sf")
        return self._upper_by_series(np.minimum(k, 1 << 60))

    def _upper_by_series(self, k: Integers) -> Floats:
        # Euler-Maclaurin at the midpoint a = k + 1/2, relative to f(a) = e^(-a^2/2v):
        #   sum_{j > k} f(j) = int_a^oo f - sum_m B_2m(1/2)/(2m)! f^(2m-1)(a),
        # f^(n)(a) = (-1)^n He_n(a/sigma) sigma^-n f(a). With sigma >= 64 and a <= 38 sigma the
        # error after eight terms is below 1e-15.
        from scipy.special import erfcx  # here, not above: importing dpcore stays fast

        sigma = math.sqrt(self.sigma_squared)
        middle = pair_of(2 * k + 1)
        height = decayed(product(square(middle), pair_of(1 / (8 * self.sigma_squared))))
        x = np.minimum(middle.high / (2 * sigma), 40.0)
        total = sigma * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
        before, hermite = np.ones_like(x), x / sigma  # He_n(x)/sigma^n for n = 0, 1
        for m, coefficient in enumerate(_MIDPOINT, 1):
            total += coefficient * hermite
            for n in (2 * m, 2 * m + 1):
                before, hermite = hermite, x / sigma * hermite - (n - 1) / sigma**2 * before
        result: Floats = height * total / (sigma * math.sqrt(2 * math.pi))
        return result

    def _quantile_guess(self, p: Floats) -> Integers:
        return normal_guess(p, self.sigma_squared)


def _table(noise: DiscreteGaussian) -> InversionTable:
    # Where w < 2^-80, the tail is also far below 2^-64.
    with precision(TABLE_BITS):
        return symmetric_table(*_masses(noise.sigma_squared, 2.0**-80), noise.cdf_ball)


def _masses(variance: Fraction, least: float) -> tuple[list[arb], arb]:
    # w(k)/Z for k = 0, 1, ..., n by w(k+1) = w(k) r(k), r(k+1) = r(k) q^2, until w < ``least``, and
    # P(X > n). The values next to 0 are always included, even if the law is narrow.
    ratio = (-1 / (2 * ball(variance))).exp()
    mass, shrink = 1 / theta.partition(variance), ratio * ratio
    found: list[arb] = []
    while len(found) < EXTRA or mass > least:
        found.append(mass)
        mass, ratio = mass * ratio, ratio * shrink
    return found, theta.upper_tail(variance, len(found))
