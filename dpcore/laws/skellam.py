r"""The Skellam law P(X = k) = e^(-v) I_|k|(v): the difference of two Poisson(v/2) draws.

The law is that of Skellam (1946); Agarwal, Kairouz and Liu use it as privacy noise in "The Skellam
Mechanism for Differentially Private Federated Learning" (arXiv 2110.04995). The law is closed under
sums, so it divides exactly into shares. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from flint import acb, arb

from dpcore.analysis import contour_sums as contour
from dpcore.analysis.law_floats import ByRatios, normal_guess, pointwise, sizes
from dpcore.laws.poisson_and_binomial import Poisson
from dpcore.noise import Additive, Covered, SymmetricNoise
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.enclosure import ball, precision
from dpcore.numbers.parameter import Exact
from dpcore.sampling.inversion import (
    TABLE_BITS,
    Batch,
    Difference,
    InversionTable,
    symmetric_table,
    table_reach,
)
from dpcore.sampling.rng import Rng

_TABLE_VARIANCE: Final = 1 << 22
_SERIES_VARIANCE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Skellam(ByRatios, Additive, SymmetricNoise):
    r"""Skellam noise: P(X = k) = e^(-v) I_|k|(v) on the integers, v = ``variance`` > 0.

    I_k is the modified Bessel function of the first kind. X = A - B for independent Poisson(v/2)
    draws A and B; Skellam(v) plus an independent Skellam(w) is Skellam(v + w). The law is
    log-concave. The privacy loss is unbounded; ``accounting`` derives the privacy curve.

    The float64 functions cover 1e-9 <= variance <= 2^60; each isolated k costs about a
    millisecond. Raises :class:`InvalidParameter` if the variance is not a
    positive rational.

    >>> noise = Skellam(variance=400)
    >>> noise.pmf(0), noise.quantile(0.975)
    (0.01995335628193999, 39)
    >>> noise.enclose_sf(500).upper < Fraction(1, 10**110)
    True
    """

    name: ClassVar[str] = "skellam"
    adds: ClassVar[str] = "variance"
    floats: ClassVar[tuple[Covered, ...]] = (Covered("variance", "1e-9", "2^60"),)

    variance: Exact = Exact(zero="variance 0 adds no noise")

    @property
    def log_concave(self) -> bool:
        # Limits of Bernoulli sums are log-concave (docs/proofs/coin_and_theta_sums.md).
        return True

    def pmf_ball(self, k: int) -> arb:
        if self.variance > _SERIES_VARIANCE and k * k > 16 * self.variance:
            return contour.mass(self, abs(k))
        return ball(self.variance).bessel_i(arb(abs(k)), scaled=True)

    def sf_ball(self, k: int) -> arb:
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        return contour.upper_tail(self, k + 1)

    def ratios(self, first: int, last: int) -> list[arb]:
        # The ratios r(k) = P(X = k)/P(X = k-1) satisfy r(k) = 1/(2k/v + r(k+1)), by I_(k-1) -
        # I_(k+1) = (2k/v) I_k. This map contracts errors.
        step, ratio = 2 / ball(self.variance), self.pmf_ball(last + 1) / self.pmf_ball(last)
        found = []
        for k in range(last, first, -1):
            ratio = 1 / (step * k + ratio)
            found.append(ratio)
        return found

    def log_moment(self, c: arb) -> arb:
        return 2 * ball(self.variance) * (c / 2).sinh() ** 2

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        across = -2 * c.cosh() * (theta / 2).sin() ** 2
        return (ball(self.variance) * acb(across, c.sinh() * theta.sin())).exp()

    def tilted_variance(self, c: arb) -> arb:
        return ball(self.variance) * c.cosh()

    def tilt(self, t: int) -> Fraction:
        return Fraction(float(ball(t / self.variance).asinh().mid()))

    def sample_reference(self, rng: Rng) -> int:
        half = Poisson(mean=self.variance / 2)
        return half.sample_reference(rng) - half.sample_reference(rng)

    def build_batch(self) -> Batch:
        if self.variance <= _TABLE_VARIANCE:
            return _table(self)
        # A - B = (A - c) - (B - c): the centre itself, which may not fit int64, never appears.
        return Difference(Poisson(mean=self.variance / 2).centred())

    def _log_pmf(self, k: Integers) -> Floats:
        return pointwise(sizes(k), lambda n: self.pmf_ball(n).log())

    def _quantile_guess(self, p: Floats) -> Integers:
        return normal_guess(p, self.variance)


def _table(noise: Skellam) -> InversionTable:
    reach = table_reach(noise.variance)
    with precision(TABLE_BITS):
        return symmetric_table(noise.masses(0, reach), noise.sf_ball(reach), noise.cdf_ball)
