r"""The discrete Gaussian law, and the exact law of a sum of independent discrete Gaussians.

One draw has P(X = k) = e^(-k^2/2v) / sum_j e^(-j^2/2v), v = ``sigma_squared`` (Canonne, Kamath and
Steinke, "The Discrete Gaussian for Differential Privacy", arXiv 2004.00010v5). A release with
sensitivity Delta satisfies (Delta^2/2v)-zCDP.

Draws of a single discrete Gaussian use an inversion table for v <= 2^22, and
``step_function_rejection.Centred`` for v between 2^22 and 2^116. The reference is Algorithm 3
of the paper; it also draws single values for v >= 2^116, which could overflow int64.

The sum of n draws is not a discrete Gaussian; Kairouz, Liu and Steinke (arXiv 2102.06387,
Proposition 13) bound the difference. This module computes the law itself. The moment generating
function M of one draw satisfies M(z + 1/v) = M(z) e^(z + 1/2v), hence

    P(X = k + n) = P(X = k) e^(-(k + n/2)/v),

for the sum X, and the masses at |k| <= n/2 determine all others.

Batches of draws of a sum of large variance use rejection sampling. With V = n v, the sum X has
P(X = k) = e^(-k^2/2V) f(k). The factor f has period n and its maximum at 0, by Poisson summation
over the lattice of integer vectors with sum 0. So a draw k of a discrete Gaussian with parameter V
is accepted with probability f(k)/f(0) >= 1 - 2S. Here S (:func:`deviation_from_gaussian`) is the
largest relative deviation of f from its mean, computed beforehand. It is tiny unless v is small.
Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import ClassVar, Final

import numpy as np
from flint import arb, ctx

from dpcore.analysis import contour_sums as contour
from dpcore.analysis import theta
from dpcore.analysis.law_floats import normal_guess, pointwise
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.noise import Additive, Covered, SymmetricNoise, batch_of
from dpcore.numbers.arrays import Floats, Integers, Split, decayed, pair_of, product
from dpcore.numbers.enclosure import Enclosure, ball, narrow, nearest, precision
from dpcore.numbers.parameter import Exact, Whole, check_fields
from dpcore.sampling.bernoulli import bernoulli_exp
from dpcore.sampling.inversion import (
    EXTRA,
    TABLE_BITS,
    Batch,
    InversionTable,
    Inverted,
    Uniform,
    in_blocks,
    invert,
    symmetric_table,
    table_reach,
)
from dpcore.sampling.rng import Rng
from dpcore.sampling.step_function_rejection import Centred

_TABLE_VARIANCE: Final = 1 << 22
_SERIES_VARIANCE: Final = 1 << 12
_LEAST_VARIANCE: Final = Fraction(1, 10**6)  # of a draw in a sum
_MOST_BASES: Final = 512
_MOST_RIPPLE: Final = Fraction(1, 1 << 16)
_MOST_DRAWS: Final = 1 << 12
_BITS: Final = 512
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
    smaller (Canonne, Kamath and Steinke, Corollary 9). A release with sensitivity Delta satisfies
    (Delta^2/2v)-zCDP, and is not epsilon-DP for any epsilon.

    The float64 functions cover 1e-12 <= sigma_squared <= 2^92. Raises :class:`InvalidParameter` if
    ``sigma_squared`` is not a positive rational.

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
        # k^2 is convex.
        return True

    @property
    def variance(self) -> Enclosure:
        r"""The variance E[X^2], enclosed to 128 bits; at most ``sigma_squared``.

        >>> DiscreteGaussian(sigma_squared=1).variance.lower_float
        0.999999788767728
        """
        return narrow(lambda: theta.second_moment(self.sigma_squared), 128)

    def pmf_ball(self, k: int) -> arb:
        v = self.sigma_squared
        return (-ball(Fraction(k * k) / (2 * v))).exp() / theta.partition(v)

    def masses(self, first: int, last: int) -> list[arb]:
        rate, whole = 1 / (2 * ball(self.sigma_squared)), theta.partition(self.sigma_squared)
        return [(-rate * (k * k)).exp() / whole for k in range(first, last + 1)]

    def sf_ball(self, k: int) -> arb:
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        return theta.upper_tail(self.sigma_squared, k + 1)

    def sample_reference(self, rng: Rng) -> int:
        r"""Draw one value with Algorithm 3 of Canonne, Kamath and Steinke (arXiv 2004.00010v5)."""
        scale = math.isqrt(math.floor(self.sigma_squared)) + 1
        proposal = DiscreteLaplace(scale=scale)
        while True:
            candidate = proposal.sample_reference(rng)
            gap = abs(candidate) - self.sigma_squared / scale
            if bernoulli_exp(rng, gap * gap / (2 * self.sigma_squared)):
                return candidate

    def build_batch(self) -> Batch:
        if self.sigma_squared <= _TABLE_VARIANCE:
            return _table(self)
        return Centred(self, self.sigma_squared)

    def _exponent(self, k: Integers) -> Split:
        pair = pair_of(k)
        return product(product(pair, pair), pair_of(1 / (2 * self.sigma_squared)))

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
            return SymmetricNoise._upper(self, k)
        return self._upper_by_series(np.minimum(k, 1 << 60))

    def _upper_by_series(self, k: Integers) -> Floats:
        # Euler-Maclaurin at the midpoint a = k + 1/2, relative to f(a) = e^(-a^2/2v):
        #   sum_{j > k} f(j) = int_a^oo f - sum_m B_2m(1/2)/(2m)! f^(2m-1)(a),
        # f^(n)(a) = (-1)^n He_n(a/sigma) sigma^-n f(a). With sigma >= 64 and a <= 38 sigma the
        # error after eight terms is below 1e-15.
        from scipy.special import erfcx  # here, not above: importing dpcore stays fast

        sigma = math.sqrt(self.sigma_squared)
        middle = pair_of(2 * k + 1)
        height = decayed(product(product(middle, middle), pair_of(1 / (8 * self.sigma_squared))))
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
    # P(X > n). The values next to 0 are always included, even for a small variance.
    ratio = (-1 / (2 * ball(variance))).exp()
    mass, shrink = 1 / theta.partition(variance), ratio * ratio
    found: list[arb] = []
    while len(found) < EXTRA or mass > least:
        found.append(mass)
        mass, ratio = mass * ratio, ratio * shrink
    return found, theta.upper_tail(variance, len(found))


def mean_factor(law: theta.ThetaSum) -> arb:
    r"""The mean (2 pi v)^((n-1)/2)/(sqrt(n) Z^n) of the periodic factor f in the module docstring.

    ``law`` is the sum of n draws of parameter v, and Z = sum_j e^(-j^2/2v) over all integers j.
    """
    around = 2 * arb.pi() * ball(law.variance)
    dual = theta.partition(law.variance) / around.sqrt()
    return 1 / (dual**law.count * (law.count * around).sqrt())


def log_factor(law: theta.ThetaSum, k: int) -> arb:
    r"""log f(k) for the periodic factor f in the module docstring.

    f(k) = P(X = k) e^(k^2/2V) is evaluated at the residue of k nearest to 0 modulo the period n.
    """
    rest = abs(k) % law.count
    return _log_factor(law, min(rest, law.count - rest), ctx.prec)


@lru_cache(maxsize=1 << 13)
def _log_factor(law: theta.ThetaSum, rest: int, bits: int) -> arb:
    lift = Fraction(rest * rest, 2 * law.count) / law.variance
    return _mass(law, rest, bits).log() + ball(lift)


def deviation_from_gaussian(law: theta.ThetaSum, bits: int = _BITS) -> arb:
    r"""The S >= 0 with f(0) = (1 + S) m, where f is a periodic factor and m its mean.

    f is the factor in the module docstring. Every k has f(k) >= (1 - S) m.
    """
    with precision(bits + law.count.bit_length()):
        return _mass(law, 0, ctx.prec) / mean_factor(law) - 1


class GaussianSumBatch:
    r"""Draw values of the sum ``law`` exactly, by rejection from a discrete Gaussian.

    ``proposal`` samples a discrete Gaussian whose parameter is that of all draws of the sum
    together. ``most`` < 1/2 is an upper bound on :func:`deviation_from_gaussian`. A 64-bit random
    word below 2^64 (1 - 2 most) accepts any proposal. For other words, interval arithmetic and
    further bits decide.
    """

    __slots__ = ("_law", "_proposal", "_sure")

    def __init__(self, law: theta.ThetaSum, proposal: Batch, most: Fraction) -> None:
        self._law = law
        self._proposal = proposal
        self._sure = np.uint64(math.floor((1 - 2 * most) * (1 << 64)) - 1)

    def draw(self, rng: Rng, count: int) -> Integers:
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        done = 0
        while done < len(target):
            proposed = self._proposal.draw(rng, len(target) - done)
            words = rng.words(len(proposed))
            kept = words < self._sure
            for place in np.flatnonzero(~kept):
                kept[place] = self.keeps(rng, int(words[place]), int(proposed[place]))
            proposed = proposed[kept]
            target[done : done + len(proposed)] = proposed
            done += len(proposed)

    def keeps(self, rng: Rng, word: int, proposed: int) -> bool:
        r"""Decide exactly whether a uniform real that starts with ``word`` accepts ``proposed``."""
        return Uniform(rng, word).below(partial(self._chance, proposed))

    def _chance(self, k: int) -> arb:
        return (log_factor(self._law, k) - log_factor(self._law, 0)).exp()  # f(k)/f(0)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DiscreteGaussianSum(Additive, SymmetricNoise):
    r"""The sum of n = ``count`` independent discrete Gaussians with v = ``sigma_squared``.

    The law is log-concave, with n times the variance of one draw. ``accounting`` derives its
    privacy curve; its zCDP parameter has no closed form, unlike that of one discrete Gaussian.

    The float64 functions cover count sigma_squared <= 2^60; beyond a variance of 2^22, or for more
    than 1024 draws, each distinct k costs about a millisecond. Raises :class:`InvalidParameter`
    unless ``count`` is an integer >= 1 and ``sigma_squared`` is a rational >= 1e-6.

    >>> noise = DiscreteGaussianSum(count=16, sigma_squared=4)
    >>> noise.pmf(3), noise.quantile(0.975)
    (0.04648188673372111, 16)
    >>> noise.enclose_sf(500).upper < Fraction(1, 10**100)
    True
    """

    name: ClassVar[str] = "discrete-gaussian-sum"
    adds: ClassVar[str] = "count"
    floats: ClassVar[tuple[Covered, ...]] = (
        Covered("_whole", "0", "2^60", argument="sigma_squared", written="count sigma_squared"),
    )

    count: Whole = Whole()
    sigma_squared: Exact = Exact(zero="variance 0 adds no noise")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sigma_squared < _LEAST_VARIANCE:
            reason = "must be >= 1e-6: for smaller values P(X != 0) is less than 1e-217000"
            raise InvalidParameter("sigma_squared", self.sigma_squared, reason)

    @property
    def _whole(self) -> Fraction:
        return self.count * self.sigma_squared

    @property
    def log_concave(self) -> bool:
        # Sums of independent log-concave variables are log-concave.
        return True

    @property
    def variance(self) -> Enclosure:
        r"""``count`` times the variance of one draw, enclosed to 128 bits.

        >>> DiscreteGaussianSum(count=16, sigma_squared=4).variance.upper_float
        64.0
        """
        return narrow(lambda: self.count * theta.second_moment(self.sigma_squared), 128)

    def pmf_ball(self, k: int) -> arb:
        n = self.count
        moves, rest = divmod(abs(k) + n // 2, n)
        rest -= n // 2
        # P(X = r + jn) = P(X = r) e^(-(jr + n j^2/2)/v).
        exponent = (moves * rest + Fraction(n * moves * moves, 2)) / self.sigma_squared
        return _mass(self._law, abs(rest), ctx.prec) * (-ball(exponent)).exp()

    def sf_ball(self, k: int) -> arb:
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        return contour.upper_tail(self._law, k + 1)

    @property
    def _law(self) -> theta.ThetaSum:
        return theta.ThetaSum(variance=self.sigma_squared, count=self.count)

    def sample_reference(self, rng: Rng) -> int:
        if self.count > _MOST_DRAWS:
            return invert(rng, self.cdf_ball, 0)
        one = DiscreteGaussian(sigma_squared=self.sigma_squared)
        return sum(one.sample_reference(rng) for _ in range(self.count))

    def build_batch(self) -> Batch:
        # The batch is a table if few masses suffice, otherwise it uses rejection from a discrete
        # Gaussian. If the sum is far from a discrete Gaussian (sigma_squared below about 1.4) and
        # count is large, it is a table of all masses or, if the variance is also large, an
        # inversion sampler.
        small = self._whole <= _TABLE_VARIANCE
        if small and min(self.count // 2, table_reach(self._whole)) <= _MOST_BASES:
            return _sum_table(self)
        most = Enclosure.of(deviation_from_gaussian(self._law)).upper
        if most <= _MOST_RIPPLE:
            proposal = batch_of(DiscreteGaussian(sigma_squared=self._whole))
            return GaussianSumBatch(self._law, proposal, Fraction(most))
        return _sum_table(self) if small else Inverted(self.cdf_ball, 0)

    @property
    def _tabled(self) -> bool:
        # Whether the masses at |k| <= n/2, or those above 1e-300, are few: then floats use runs.
        reach = min(self.count // 2, math.ceil(39 * math.sqrt(self._whole)))
        return self._whole <= _TABLE_VARIANCE and reach <= _MOST_BASES

    def _log_pmf(self, k: Integers) -> Floats:
        return pointwise(k, self._log_mass)

    def _log_mass(self, k: int) -> arb:
        if k == 0 and self.sigma_squared < 1:  # near 1: use the other masses
            return (-2 * self.sf_ball(0)).log1p()
        return self.pmf_ball(k).log()

    def _pmf(self, k: Integers) -> Floats:
        return SymmetricNoise._pmf(self, k) if self._tabled else pointwise(k, self.pmf_ball)

    def _upper(self, k: Integers) -> Floats:
        return SymmetricNoise._upper(self, k) if self._tabled else pointwise(k, self.sf_ball)

    def _quantile_guess(self, p: Floats) -> Integers:
        return normal_guess(p, self._whole)


def _sum_table(noise: DiscreteGaussianSum) -> InversionTable:
    reach = table_reach(noise._whole)
    with precision(TABLE_BITS):
        bases = contour.central_masses(noise._law, min(noise.count // 2, reach))
        masses = _extended(noise, bases, reach)
        return symmetric_table(masses, noise.sf_ball(reach), noise.cdf_ball)


@lru_cache(maxsize=1 << 12)
def _mass(law: theta.ThetaSum, k: int, bits: int) -> arb:
    # `bits` is the current precision, part of the cache key.
    del bits
    return contour.mass(law, k)


def _extended(noise: DiscreteGaussianSum, masses: list[arb], reach: int) -> list[arb]:
    # P(X = k) = P(X = |k - n|) e^(-(k - n/2)/v) for n/2 < k <= reach, where |k - n| < k.
    first = len(masses)
    step = (-1 / ball(noise.sigma_squared)).exp()
    factor = (-ball((first - Fraction(noise.count, 2)) / noise.sigma_squared)).exp()
    for k in range(first, reach + 1):
        masses.append(masses[abs(k - noise.count)] * factor)
        factor *= step
    return masses
