r"""The Polya or negative binomial law, for any rational shape r > 0 and scale s > 0.

P(X = k) = Gamma(k+r)/(k! Gamma(r)) beta^k (1-beta)^r for k >= 0, beta = e^(-1/s). Shapes add: the
sum of n draws of shape r/n has shape r, and the difference of two draws of shape 1 is discrete
Laplace of scale s. So n parties can jointly add discrete Laplace noise if each adds the difference
of two Polya draws of shape 1/n (Goryczka and Xiong 2017). Proofs: docs/proofs/polya.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from flint import arb

from dpcore.analysis import polya_integral as branch_contour
from dpcore.analysis.law_floats import ByRatios, closer, one_sided, pointwise
from dpcore.analysis.polya_integral import Branch
from dpcore.laws.polya_jumps import LogJumps, sum_of_jumps
from dpcore.noise import Additive, Covered
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.floating import Floats
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import Exact
from dpcore.sampling.bernoulli import bernoulli, geometric_exp
from dpcore.sampling.discrete_laplace_batch import LaplaceDigits
from dpcore.sampling.inversion import (
    TABLE_BITS,
    Batch,
    InversionTable,
    Inverted,
    invert,
    table_of_masses,
)
from dpcore.sampling.rng import Rng

_MOST_WHOLE: Final = 1 << 12
_MOST_GEOMETRICS: Final = 1 << 17
_LONGEST_URN: Final = 1 << 12
_LONGEST_TABLE: Final = 1 << 17
_NEAR_SHAPE: Final = 64
_NEAR_SCALE: Final = 1 << 12
_NEAR_SCALES: Final = 16
_LEFT_BITS: Final = 72
_RIGHT_BITS: Final = 40

COVERED: Final = (Covered("scale", "1e-6", "2^46"), Covered("shape", "2^-30", "2^10"))
"""The parameters for which the float64 functions of Polya laws are available."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Polya(ByRatios, Additive):
    r"""Polya noise, a share of discrete Laplace noise: r = ``shape`` > 0, s = ``scale`` > 0.

    P(X = k) = Gamma(k+r)/(k! Gamma(r)) beta^k (1-beta)^r for k >= 0, beta = e^(-1/s).

    Mean r beta/(1-beta), variance r beta/(1-beta)^2. The values are never negative, so a release
    with Polya noise alone is never pure DP; the law serves as a share of other noise.

    The float64 functions cover 1e-6 <= scale <= 2^46 and 2^-30 <= shape <= 2^10; each isolated k
    costs about a millisecond, and up to fifty far in the tail. Raises :class:`InvalidParameter` for
    parameters that are not positive rationals.

    >>> noise = Polya(shape="1/4", scale=10)
    >>> noise.pmf(0), noise.quantile(0.975)
    (0.5554136568143118, 17)
    >>> Polya(shape=1, scale=10).enclose_sf(99).upper_float  # e^-10
    4.5399929762484854e-05
    """

    name: ClassVar[str] = "polya"
    adds: ClassVar[str] = "shape"
    floats: ClassVar[tuple[Covered, ...]] = COVERED

    shape: Exact = Exact(zero="shape 0 adds no noise")
    scale: Exact = Exact(zero="scale 0 adds no noise")

    @property
    def _branch(self) -> Branch:
        return Branch(right=self.shape, left=Fraction(0), scale=self.scale)

    @property
    def log_concave(self) -> bool:
        r"""True iff shape >= 1: for shape < 1 the ratio beta (k+r)/(k+1) increases in k."""
        return self.shape >= 1

    @property
    def mean(self) -> Enclosure:
        r"""The mean r beta/(1 - beta) = r/(e^(1/s) - 1), enclosed to 128 bits."""
        return narrow(lambda: ball(self.shape) / (1 / ball(self.scale)).expm1(), 128)

    @property
    def variance(self) -> Enclosure:
        r"""The variance r beta/(1 - beta)^2 = r/(4 sinh^2(1/(2s))), enclosed to 128 bits."""
        r, s = self.shape, self.scale
        return narrow(lambda: ball(r) / (2 * (1 / (2 * ball(s))).sinh()) ** 2, 128)

    def log_mass(self, k: int) -> arb:
        r"""log P(X = k) for k >= 0, as a ball."""
        peak = ball(self.shape) * one_minus_beta(self.scale)
        if k == 0:
            return peak
        shape = ball(self.shape)
        choices = (shape + k).lgamma() - shape.lgamma() - arb(k + 1).lgamma()
        return choices - k / ball(self.scale) + peak

    def pmf_ball(self, k: int) -> arb:
        r"""P(X = k), by the closed form for k >= 0; 0 for k < 0."""
        return self.log_mass(k).exp() if k >= 0 else arb(0)

    def cdf_ball(self, k: int) -> arb:
        r"""P(X <= k) = I_(1-beta)(r, k+1), the regularised beta function, or a contour integral."""
        if k < 0:
            return arb(0)
        if is_near(self.shape, self.scale, k):
            rest = -(-1 / ball(self.scale)).expm1()
            return rest.beta_lower(ball(self.shape), arb(k + 1), regularized=True)
        if k >= self._middle:
            return 1 - branch_contour.upper_tail(self._branch, k + 1)
        return branch_contour.lower_tail(self._branch, k)

    def sf_ball(self, k: int) -> arb:
        r"""P(X > k) = I_beta(k+1, r), the regularised beta function, or a contour integral."""
        if k < 0:
            return arb(1)
        if is_near(self.shape, self.scale, k):
            beta = (-1 / ball(self.scale)).exp()
            return beta.beta_lower(arb(k + 1), ball(self.shape), regularized=True)
        if k >= self._middle:
            return branch_contour.upper_tail(self._branch, k + 1)
        return 1 - branch_contour.lower_tail(self._branch, k)

    @property
    def _middle(self) -> int:
        # Approximately the mean. It only selects the tail that is integrated.
        about = self.mean.lower
        return math.floor(about) if isinstance(about, Fraction) else 0

    def ratios(self, first: int, last: int) -> list[arb]:
        r"""The ratios P(X = k)/P(X = k-1) = beta (k-1+r)/k for k = last, ..., first+1."""
        beta, shape = (-1 / ball(self.scale)).exp(), ball(self.shape)
        return [beta * (shape + (k - 1)) / k for k in range(last, first, -1)]

    def sample_reference(self, rng: Rng) -> int:
        r"""Sum floor(r) geometric draws and a Polya urn for the fractional part of r.

        All probabilities are rational. For scales above 2^12 exact log-series jumps replace the
        urn; for shapes above 2^12 the distribution function is inverted.
        """
        whole = math.floor(self.shape)
        if whole > _MOST_WHOLE:
            return invert(rng, self.cdf_ball, self._middle)
        total = sum(geometric_exp(rng, 1 / self.scale) for _ in range(whole))
        if whole == self.shape:
            return total
        part = sum_of_jumps if self.scale > _LONGEST_URN else urn
        return total + part(rng, self.shape - whole, self.scale)

    def build_batch(self) -> Batch:
        r"""Build a table if 2^17 values suffice; otherwise add geometric draws and jumps."""
        first, last = _support(self.shape, self.scale)
        if last - first < _LONGEST_TABLE:
            return _table(self, first, last)
        whole = math.floor(self.shape)
        if whole > _MOST_GEOMETRICS:
            return Inverted(self.cdf_ball, self._middle)
        parts: list[Batch] = []
        if whole:
            parts.append(_Geometrics(whole, self.scale))
        if whole < self.shape:
            parts.append(LogJumps(self.shape - whole, self.scale))
        return parts[0] if len(parts) == 1 else _Sum(parts)

    def _log_pmf(self, k: Integers) -> Floats:
        found = pointwise(np.maximum(k, 0), self.log_mass)
        return np.where(k < 0, -np.inf, found)

    def _pmf(self, k: Integers) -> Floats:
        return one_sided(self, k, "pmf")

    def _cdf(self, k: Integers) -> Floats:
        return one_sided(self, k, "cdf")

    def _sf(self, k: Integers) -> Floats:
        return one_sided(self, k, "sf")

    def _quantile_guess(self, p: Floats) -> Integers:
        from scipy.special import gammainccinv, gammaincinv  # local: importing dpcore stays fast

        # X/s is approximately a gamma variable.
        r = float(self.shape)
        x = np.where(p < 0.5, gammaincinv(r, p), gammainccinv(r, 1 - p))
        rounded = np.clip(np.ceil(float(self.scale) * x) - 1, 0, 2.0**61)
        guess: Integers = rounded.astype(np.int64)
        upper = p >= 0.5  # for p < 1/2 gammaincinv is already as accurate
        guess[upper] = closer(guess[upper], 1 - p[upper], self._sf, self._pmf)
        return guess


def one_minus_beta(scale: Fraction) -> arb:
    r"""The logarithm log(1 - beta) as a ball that is tight for every scale."""
    rate = -1 / ball(scale)
    return (-rate.exp()).log1p() if scale < 1 else (-rate.expm1()).log()


def is_near(shape: Fraction, scale: Fraction, k: int) -> bool:
    r"""Whether FLINT's hypergeometric functions are faster here than contour integrals."""
    near = shape <= _NEAR_SHAPE and scale <= _NEAR_SCALE
    return near and k <= _NEAR_SCALES * (scale + 1)


def urn(rng: Rng, shape: Fraction, scale: Fraction) -> int:
    r"""Draw from Polya(r, s) for 0 < r < 1, as one party's part of a geometric total.

    The party gets unit i = 0, 1, ... with probability (r + own)/(1 + i), own = its units so far.
    """
    own = 0
    for i in range(geometric_exp(rng, 1 / scale)):
        if bernoulli(rng, (shape + own) / (1 + i)):
            own += 1
    return own


class _Geometrics:
    # For discrete Laplace X, X given X >= 0 and -X-1 given X < 0 are geometric: both halves of the
    # law are proportional to beta^k.
    def __init__(self, count: int, scale: Fraction) -> None:
        self._count, self._laplace = count, LaplaceDigits(scale)

    def draw(self, rng: Rng, count: int) -> Integers:
        total = np.zeros(count, dtype=np.int64)
        for _ in range(self._count):
            drawn = self._laplace.draw(rng, count)
            total += drawn ^ (drawn >> 63)
        return total


class _Sum:
    def __init__(self, parts: list[Batch]) -> None:
        self._parts = parts

    def draw(self, rng: Rng, count: int) -> Integers:
        total = self._parts[0].draw(rng, count)
        for part in self._parts[1:]:
            total += part.draw(rng, count)
        return total


def _support(shape: Fraction, scale: Fraction) -> tuple[int, int]:
    # First and last value of a table, by floats: the mass below is less than 2^-72, the mass above
    # less than 2^-40. The table checks the former and refines draws that fall beyond the latter.
    if shape > _LONGEST_TABLE**2 or scale > Fraction(2) ** 600:
        return 0, _LONGEST_TABLE
    r, rate = float(shape), float(1 / scale)
    peak = r * (math.log(-math.expm1(-rate)) if rate < 700 else 0.0)

    def log_rest(k: int, sign: int) -> float:
        # log of P(X = k) times the geometric bound on the mass beyond k, on either side.
        mass = math.lgamma(k + r) - math.lgamma(k + 1) - math.lgamma(r) - k * rate + peak
        step = sign * (math.log((k + r) / (k + 1)) - rate)
        return mass - math.log(-math.expm1(step)) if step < 0 else math.inf

    middle = math.floor(r / math.expm1(rate)) if rate < 700 else 0
    left, right = -_LEFT_BITS * math.log(2), -_RIGHT_BITS * math.log(2)
    last = least(lambda d: d >= 0 and log_rest(middle + d, 1) < right, 0)
    keep = least(lambda d: d >= middle or (d >= 0 and log_rest(middle - d, -1) < left), 0)
    return max(middle - keep, 0), middle + last


def _table(noise: Polya, first: int, last: int) -> InversionTable:
    with precision(TABLE_BITS):
        masses = noise.masses(first, last)
        return table_of_masses(first, noise.cdf_ball(first - 1), masses, noise.cdf_ball)
