r"""The Polya or negative binomial law, and the law of the difference of two Polya draws.

For any rational shape r > 0 and scale s > 0, with beta = e^(-1/s), Polya(r, s) has the masses
P(X = k) = Gamma(k+r)/(k! Gamma(r)) beta^k (1-beta)^r for k >= 0, and the difference of two draws

    P(X = k) = (1-beta)^(2r) beta^|k| Gamma(|k|+r)/(Gamma(r) |k|!) 2F1(r, |k|+r; |k|+1; beta^2).

Shapes add: the sum of n draws of shape r/n has shape r. A difference of shape 1 is discrete Laplace
of scale s. So n parties can jointly add discrete Laplace noise if each adds a difference of shape
1/n (Goryczka and Xiong 2017); after dropouts the remaining noise has a shape r < 1.

For large scales the law is sampled as a compound Poisson law: a draw is the sum of a random number
of positive integers, called jumps. The number of jumps of size m is Poisson with mean r e^(-m/s)/m,
independently for m = 1, 2, ... (Quenouille 1949). Jumps are sampled by rejection. Let T = 2^t be
the smallest power of two >= s. The possible sizes are divided into t + 1 cells. In each cell a
Poisson(r) number of candidates is drawn. A candidate of size m is accepted with a probability
c <= 1 that gives the stated means:

    cell o < t:         m uniform on [2^o, 2^(o+1)),            c = (2^o/m) e^(-m/s);
    cell t (the last):  w = 0, 1, ... with probability 2^(-w-1),
                        m uniform on [T (w+1), T (w+2)),        c = (T/m) 2^(w+1) e^(-m/s).

So the number of candidates is Poisson(r (t+1)), with a rational mean, and c <= (2/e)^(w+1) in the
last cell. In a batch, floats decide about a candidate only if their certified error cannot change
the decision; the reference sampler uses exact draws. Proofs: docs/proofs/polya.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, Final

import numpy as np
from flint import arb, ctx

from dpcore.analysis import polya_integral as branch_contour
from dpcore.analysis.law_floats import ByRatios, closer, pointwise, sizes
from dpcore.analysis.polya_integral import Branch
from dpcore.errors import Unrepresentable
from dpcore.laws.poisson_and_binomial import Poisson
from dpcore.noise import Additive, Covered, SymmetricNoise, batch_of
from dpcore.numbers.arrays import Floats, Integers, exp_neg
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import Exact
from dpcore.sampling.bernoulli import bernoulli, bernoulli_exp, geometric_exp
from dpcore.sampling.inversion import (
    BLOCK,
    TABLE_BITS,
    Batch,
    Difference,
    InversionTable,
    Inverted,
    LaplaceDigits,
    Uniform,
    in_blocks,
    invert,
    table_of_masses,
)
from dpcore.sampling.rng import Rng, below

_MOST_WHOLE: Final = 1 << 12
_MOST_GEOMETRICS: Final = 1 << 17
_LONGEST_URN: Final = 1 << 12
_LONGEST_TABLE: Final = 1 << 17
_NEAR_SHAPE: Final = 64
_NEAR_SCALE: Final = 1 << 12
_NEAR_SCALES: Final = 16
_LEFT_BITS: Final = 72
_RIGHT_BITS: Final = 40
_BITS_PER_SCALE: Final = Fraction(35, 100)
_FARTHEST: Final = 1 << 13
_MARGIN: Final = 2.0**-40
_GRAIN: Final = 2.0**-63
_MOST_OCTAVES: Final = 58
_RUN_BITS: Final = 8
# The number of trailing zeros of each byte; the exact path handles the byte 0.
_ZEROS: Final = np.array([(v & -v).bit_length() - 1 if v else _RUN_BITS for v in range(256)])

COVERED: Final = (Covered("scale", "1e-6", "2^46"), Covered("shape", "2^-30", "2^10"))
"""The parameter ranges in which the float64 functions of Polya laws are available."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Polya(ByRatios, Additive):
    r"""Polya noise with shape r = ``shape`` > 0 and scale s = ``scale`` > 0.

    P(X = k) = Gamma(k+r)/(k! Gamma(r)) beta^k (1-beta)^r for k >= 0, beta = e^(-1/s).

    The mean is r beta/(1-beta), the variance r beta/(1-beta)^2. The values are never negative, so a
    release with Polya noise is never pure DP. The difference of two draws of shape 1/n is one of n
    shares of discrete Laplace noise (:class:`PolyaDifference`).

    The float64 functions cover 1e-6 <= scale <= 2^46 and 2^-30 <= shape <= 2^10; each isolated k
    costs about a millisecond, and up to fifty milliseconds far in the tail. Raises
    :class:`InvalidParameter` if a parameter is not a positive rational.

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
        # For shape < 1 the ratio beta (k+r)/(k+1) of successive masses increases in k.
        return self.shape >= 1

    @property
    def mean(self) -> Enclosure:
        r"""The mean 1/(e^(1/scale) - 1) times ``shape``, enclosed to 128 bits."""
        return narrow(lambda: ball(self.shape) / (1 / ball(self.scale)).expm1(), 128)

    @property
    def variance(self) -> Enclosure:
        r, s = self.shape, self.scale
        return narrow(lambda: ball(r) / (2 * (1 / (2 * ball(s))).sinh()) ** 2, 128)

    def log_mass(self, k: int) -> arb:
        r"""log P(X = k) for k >= 0, as a ball."""
        peak = ball(self.shape) * log_one_minus_beta(self.scale)
        if k == 0:
            return peak
        shape = ball(self.shape)
        choices = (shape + k).lgamma() - shape.lgamma() - arb(k + 1).lgamma()
        return choices - k / ball(self.scale) + peak

    def pmf_ball(self, k: int) -> arb:
        return self.log_mass(k).exp() if k >= 0 else arb(0)

    def cdf_ball(self, k: int) -> arb:
        if k < 0:
            return arb(0)
        if is_near(self.shape, self.scale, k):
            rest = -(-1 / ball(self.scale)).expm1()
            return rest.beta_lower(ball(self.shape), arb(k + 1), regularized=True)
        if k >= self._middle:
            return 1 - branch_contour.upper_tail(self._branch, k + 1)
        return branch_contour.lower_tail(self._branch, k)

    def sf_ball(self, k: int) -> arb:
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
        beta, shape = (-1 / ball(self.scale)).exp(), ball(self.shape)
        return [beta * (shape + (k - 1)) / k for k in range(last, first, -1)]

    def sample_reference(self, rng: Rng) -> int:
        # floor(r) geometric draws, and one draw of the remaining shape.
        whole = math.floor(self.shape)
        if whole > _MOST_WHOLE:
            return invert(rng, self.cdf_ball, self._middle)
        total = sum(geometric_exp(rng, 1 / self.scale) for _ in range(whole))
        if whole == self.shape:
            return total
        part = sum_of_jumps if self.scale > _LONGEST_URN else urn
        return total + part(rng, self.shape - whole, self.scale)

    def build_batch(self) -> Batch:
        first, last = _support(self.shape, self.scale)
        if last - first < _LONGEST_TABLE:
            return _table(self, first, last)
        whole = math.floor(self.shape)
        if whole > _MOST_GEOMETRICS:
            return Inverted(self.cdf_ball, self._middle)
        parts: list[Batch] = [_Geometric(self.scale)] * whole if whole else []
        if whole < self.shape:
            parts.append(LogJumps(self.shape - whole, self.scale))
        return _Sum(parts)

    def _log_pmf(self, k: Integers) -> Floats:
        found = pointwise(np.maximum(k, 0), self.log_mass)
        return np.where(k < 0, -np.inf, found)

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


def log_one_minus_beta(scale: Fraction) -> arb:
    r"""log(1 - beta) for beta = e^(-1/scale), as a ball that is tight for every scale."""
    rate = -1 / ball(scale)
    return (-rate.exp()).log1p() if scale < 1 else (-rate.expm1()).log()


def is_near(shape: Fraction, scale: Fraction, k: int) -> bool:
    r"""Whether FLINT's hypergeometric functions are faster than contour integrals at ``k``."""
    near = shape <= _NEAR_SHAPE and scale <= _NEAR_SCALE
    return near and k <= _NEAR_SCALES * (scale + 1)


def urn(rng: Rng, shape: Fraction, scale: Fraction) -> int:
    r"""Draw one value of Polya(r, s), 0 < r < 1, by splitting a geometric total with a Polya urn.

    r is ``shape`` and s is ``scale``. Each unit i = 0, 1, ... of the total is counted with
    probability (r + own)/(1 + i), where own is the number of units counted before. The drawn value
    is the final own.
    """
    own = 0
    for i in range(geometric_exp(rng, 1 / scale)):
        if bernoulli(rng, (shape + own) / (1 + i)):
            own += 1
    return own


class _Geometric:
    # For discrete Laplace X, X given X >= 0 and -X-1 given X < 0 are geometric: both halves of the
    # law are proportional to beta^k.
    def __init__(self, scale: Fraction) -> None:
        self._laplace = LaplaceDigits(scale)

    def draw(self, rng: Rng, count: int) -> Integers:
        drawn = self._laplace.draw(rng, count)
        return drawn ^ (drawn >> 63)


class _Sum:
    def __init__(self, parts: list[Batch]) -> None:
        self._parts = parts

    def draw(self, rng: Rng, count: int) -> Integers:
        total = np.zeros(count, dtype=np.int64)
        for part in self._parts:
            total += part.draw(rng, count)
        return total


def _support(shape: Fraction, scale: Fraction) -> tuple[int, int]:
    # The first and the last value of a table, from floats: the mass below is less than 2^-72, the
    # mass above less than 2^-40. The table checks the former bound, and refines draws beyond the
    # last value.
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


def octaves(scale: Fraction) -> int:
    r"""The smallest t >= 0 with 2^t >= ``scale``."""
    return (-(-scale.numerator // scale.denominator) - 1).bit_length()


def sum_of_jumps(rng: Rng, shape: Fraction, scale: Fraction) -> int:
    r"""Draw one value of Polya(shape, scale) exactly, as a sum of jumps (module docstring)."""
    cells = octaves(scale) + 1
    arrived = Poisson(mean=shape * cells).sample_reference(rng)
    return sum(jump(rng, scale, rng.below(cells)) for _ in range(arrived))


def jump(rng: Rng, scale: Fraction, cell: int) -> int:
    r"""Draw a candidate jump in the cell number ``cell`` (module docstring).

    Return its size, or 0 if it is rejected.
    """
    unit, run = 1 << cell, 0
    if cell == octaves(scale):
        while rng.flip():
            run += 1
        # 2^(w+1) e^(-m/s) = (2/e)^(w+1) e^(w+1-m/s), and m/s >= w + 1.
        size = unit * (run + 1) + rng.bits(cell)
        excess = size / scale - (run + 1)
        kept = all(_two_over_e(rng) for _ in range(run + 1))
    else:
        size = unit + rng.bits(cell)
        excess = size / scale
        kept = True
    kept = kept and bernoulli(rng, Fraction(unit, size)) and bernoulli_exp(rng, excess)
    return size if kept else 0


def _two_over_e(rng: Rng) -> bool:
    # Let K be the first k >= 3 with a failed Bernoulli(1/k): P(K > k) = 2/k!, so that
    # P(K odd) = 1 - 1/3 + 1/12 - 1/60 + ... = 2/e.
    trial = 3
    while bernoulli(rng, Fraction(1, trial)):
        trial += 1
    return trial % 2 == 1


class LogJumps:
    r"""A batch sampler of Polya(shape, scale) by sums of jumps, for shape < 1 and large scales."""

    __slots__ = ("_arrivals", "_cells", "_piece", "_rate", "_scale")

    def __init__(self, shape: Fraction, scale: Fraction) -> None:
        self._cells = octaves(scale) + 1
        if self._cells > _MOST_OCTAVES + 1:
            raise Unrepresentable(
                f"a batch of draws of scale {scale} could overflow int64; draw single values"
            )
        self._scale = scale
        self._rate = float(1 / scale)
        mean = shape * self._cells
        self._arrivals = batch_of(Poisson(mean=mean))
        # About one block of candidates at a time, so that they stay in the CPU cache.
        self._piece = max(1, BLOCK // max(1, math.ceil(mean)))

    def draw(self, rng: Rng, count: int) -> Integers:
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        for start in range(0, len(target), self._piece):
            piece = target[start : start + self._piece]
            arrived = self._arrivals.draw(rng, len(piece))
            ends = np.cumsum(arrived)
            sums = np.zeros(int(ends[-1]) + 1, dtype=np.int64)
            # Sums may wrap around, but their differences are still right modulo 2^64.
            np.cumsum(self.jumps(rng, len(sums) - 1), out=sums[1:])
            np.subtract(sums[ends], sums[ends - arrived], out=piece)

    def jumps(self, rng: Rng, count: int) -> Integers:
        r"""Draw ``count`` candidate jumps; return the size of each, or 0 if it is rejected."""
        cell = below(rng, self._cells, count)
        unit = np.int64(1) << cell
        low = (rng.words(count) >> np.uint64(1)) >> (np.uint64(63) - cell.astype(np.uint64))
        # The acceptance probability is share/m e^(-m/s); run = w in the last cell, -1 in an octave.
        run = np.full(count, -1)
        last = np.flatnonzero(cell == self._cells - 1)
        run[last] = _ZEROS[(rng.words(len(last)) & np.uint64(255)).view(np.int64)]
        size = unit + low.view(np.int64)
        size[last] += unit[last] * run[last]
        share = np.ldexp(unit.astype(np.float64), run + 1)
        # m/s <= 9 has error below 2^-47, exp_neg below 2^-48, and the quotient adds two roundings:
        # the margin covers these errors. The grain covers the interval that a word stands for.
        words = rng.words(count)
        chance = exp_neg(size.astype(np.float64) * self._rate) * (share / size)
        uniform = words.astype(np.float64) * 2.0**-64
        unsure = np.abs(uniform - chance) <= _MARGIN * chance + _GRAIN
        unsure |= run == _RUN_BITS
        drawn = np.where(uniform < chance, size, 0)
        for place in np.flatnonzero(unsure).tolist():
            exact, bits = int(size[place]), int(run[place])
            while bits >= _RUN_BITS and rng.flip():
                exact, bits = exact + int(unit[place]), bits + 1
            kept = self.keeps(rng, int(words[place]), exact, int(unit[place]) << (bits + 1))
            drawn[place] = exact if kept else 0
        return drawn

    def keeps(self, rng: Rng, word: int, size: int, share: int) -> bool:
        r"""Decide exactly whether a candidate jump of size m = ``size`` is accepted.

        It is accepted if V < (share/m) e^(-m/scale), where V is uniform with the first 64 bits
        ``word``.
        """

        def chance() -> arb:
            return (-ball(size / self._scale)).exp() * share / size

        return Uniform(rng, word).below(chance)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PolyaDifference(ByRatios, Additive, SymmetricNoise):
    r"""Noise X - Y for independent Polya(r, s) draws X and Y, r = ``shape``, s = ``scale``.

    The variance is 2 r beta/(1-beta)^2, where beta = e^(-1/s). Shapes add. The law is log-concave
    iff r >= 1; for smaller r the privacy loss need not be largest in the tails.

    The float64 functions cover 1e-6 <= scale <= 2^46 and 2^-30 <= shape <= 2^10; each isolated k
    costs up to fifty milliseconds. Raises :class:`InvalidParameter` if a parameter is not a
    positive rational.

    >>> noise = PolyaDifference(shape="0.9", scale=10)
    >>> noise.pmf(0), noise.quantile(0.975)
    (0.05751383973322589, 29)
    >>> noise.enclose_pmf(0).width < 2**-130
    True
    """

    name: ClassVar[str] = "polya-difference"
    adds: ClassVar[str] = "shape"
    floats: ClassVar[tuple[Covered, ...]] = COVERED

    shape: Exact = Exact(zero="shape 0 adds no noise")
    scale: Exact = Exact(zero="scale 0 adds no noise")

    @property
    def _one(self) -> Polya:
        return Polya(shape=self.shape, scale=self.scale)

    @property
    def _branch(self) -> Branch:
        return Branch(right=self.shape, left=self.shape, scale=self.scale)

    @property
    def log_concave(self) -> bool:
        # For shape >= 1 both draws, and hence their difference, are log-concave.
        return self.shape >= 1

    @property
    def variance(self) -> Enclosure:
        r, s = self.shape, self.scale
        return narrow(lambda: ball(r) / (2 * (1 / (2 * ball(s))).sinh() ** 2), 128)

    def pmf_ball(self, k: int) -> arb:
        k = abs(k)
        if not is_near(self.shape, self.scale, k):
            return branch_contour.mass(self._branch, k)
        shape = ball(self.shape)
        peak = (shape * log_one_minus_beta(self.scale)).exp()
        series = (-2 / ball(self.scale)).exp().hypgeom_2f1(shape, shape + k, arb(k + 1))
        return self._one.pmf_ball(k) * peak * series

    def sf_ball(self, k: int) -> arb:
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        return branch_contour.upper_tail(self._branch, k + 1)

    def ratios(self, first: int, last: int) -> list[arb]:
        # The masses p_k = P(X = k) satisfy, by the derivative of the generating function, (1 +
        # beta^2) k p_k = beta (k-1+r) p_(k-1) + beta (k+1-r) p_(k+1). The masses are the decaying
        # solution of this recurrence, so running it backwards is stable: each step multiplies a
        # relative error by about beta^2. The recurrence starts far in the tail from bounds on the
        # ratio, or at ``last`` if the tail would be too long.
        beta, shape = (-1 / ball(self.scale)).exp(), ball(self.shape)
        square, found = 1 + beta * beta, []

        def before(k: int, ratio: arb) -> arb:
            return beta * (shape + (k - 1)) / (square * k - beta * ((k + 1) - shape) * ratio)

        far = last + math.ceil(self.scale * ctx.prec * _BITS_PER_SCALE) + 3
        if far - last > _FARTHEST:
            ratio = self.pmf_ball(last + 1) / self.pmf_ball(last)
        else:
            # The ratio lies between beta and beta (k-1+r)/k. The map is monotone, so each bound is
            # computed separately and stays tight.
            low, high = beta, beta * (shape + far) / (far + 1)
            for k in range(far, last, -1):
                low, high = before(k, low), before(k, high)
            ratio = low.union(high)
        for k in range(last, first, -1):
            ratio = before(k, ratio)
            found.append(ratio)
        return found

    def sample_reference(self, rng: Rng) -> int:
        one = self._one
        return one.sample_reference(rng) - one.sample_reference(rng)

    def build_batch(self) -> Batch:
        return Difference(batch_of(self._one))

    def log_mass(self, k: int) -> arb:
        r"""log P(X = k), as a ball that is tight even if P(X = k) is close to 1."""
        if k or self.scale >= 1:
            return self.pmf_ball(k).log()
        # P(X = 0) = (1-beta)^(2r) (1 + rest), rest = sum_{j>0} (Gamma(j+r)/(Gamma(r) j!))^2 beta^2j
        # = r^2 beta^2 3F2: the first term, and FLINT's hypergeometric sum of the others.
        shape, square = ball(self.shape), (-2 / ball(self.scale)).exp()
        rest = (
            square
            * shape
            * shape
            * square.hypgeom([shape + 1, shape + 1, arb(1)], [arb(2), arb(2)])
        )
        return 2 * shape * log_one_minus_beta(self.scale) + rest.log1p()

    def _log_pmf(self, k: Integers) -> Floats:
        return pointwise(sizes(k), self.log_mass)

    def _quantile_guess(self, p: Floats) -> Integers:
        from scipy.special import gammainccinv, ndtri  # local: importing dpcore stays fast

        # Far out P(X > k) is about (1+beta)^(-r) P(Polya > k); near 0 and for a large shape
        # the law is about normal.
        small = np.minimum(p, 1 - p)
        r, s = float(self.shape), float(self.scale)
        if self.shape > 2:
            steps = -ndtri(small) * math.sqrt(2 * r) * s
        else:
            beta = math.exp(-1 / s)
            steps = s * gammainccinv(r, np.minimum(small * (1 + beta) ** r, 1.0))
        k = closer(
            np.clip(np.ceil(steps) - 1, 0, 2.0**61).astype(np.int64), small, self._upper, self._pmf
        )
        return np.where(p > 0.5, k, ~k)
