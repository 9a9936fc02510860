r"""The law of the difference of two Polya draws, for example of shares of discrete Laplace noise.

With beta = e^(-1/s), P(X = k) = (1-beta)^(2r) beta^|k| Gamma(|k|+r)/(Gamma(r) |k|!)
2F1(r, |k|+r; |k|+1; beta^2). Shape 1 gives the discrete Laplace of scale s, shape 1/n one of its n
shares, and r < 1 the noise that remains after dropouts. Proofs: docs/proofs/polya.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from flint import arb, ctx

from dpcore.analysis import polya_integral as branch_contour
from dpcore.analysis.law_floats import ByRatios, by_runs, closer, pointwise, sizes
from dpcore.analysis.polya_integral import Branch
from dpcore.laws.polya import COVERED, Polya, is_near, one_minus_beta
from dpcore.noise import Additive, Covered, SymmetricNoise, batch_of
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.floating import Floats
from dpcore.numbers.parameter import Exact
from dpcore.sampling.inversion import Batch, Difference
from dpcore.sampling.rng import Rng

_BITS_PER_SCALE: Final = Fraction(35, 100)
_FARTHEST: Final = 1 << 13


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PolyaDifference(ByRatios, Additive, SymmetricNoise):
    r"""Noise X - Y for independent Polya(r, s) draws X and Y, r = ``shape``, s = ``scale``.

    The variance is 2 r beta/(1-beta)^2. Shapes add. The law is log-concave iff r >= 1, so for
    smaller r the largest privacy loss need not lie at the ends.

    The float64 functions cover 1e-6 <= scale <= 2^46 and 2^-30 <= shape <= 2^10; each isolated k
    costs up to fifty milliseconds. Raises :class:`InvalidParameter` for parameters that are not
    positive rationals.

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
        r"""True iff shape >= 1: then both draws, and hence their difference, are log-concave."""
        return self.shape >= 1

    @property
    def variance(self) -> Enclosure:
        r"""The variance 2 r beta/(1 - beta)^2, enclosed to 128 bits."""
        r, s = self.shape, self.scale
        return narrow(lambda: ball(r) / (2 * (1 / (2 * ball(s))).sinh() ** 2), 128)

    def pmf_ball(self, k: int) -> arb:
        r"""P(X = k), by the closed form near 0 and by a contour integral in the tail."""
        k = abs(k)
        if not is_near(self.shape, self.scale, k):
            return branch_contour.mass(self._branch, k)
        shape = ball(self.shape)
        peak = (shape * one_minus_beta(self.scale)).exp()
        series = (-2 / ball(self.scale)).exp().hypgeom_2f1(shape, shape + k, arb(k + 1))
        return self._one.pmf_ball(k) * peak * series

    def sf_ball(self, k: int) -> arb:
        r"""P(X > k), by a contour integral for k >= 0 and by symmetry for k < 0."""
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        return branch_contour.upper_tail(self._branch, k + 1)

    def ratios(self, first: int, last: int) -> list[arb]:
        r"""The ratios P(X = k)/P(X = k-1), k = last, ..., first+1 >= 1, by a backward recurrence.

        (1 + beta^2) k p_k = beta (k-1+r) p_(k-1) + beta (k+1-r) p_(k+1), from the derivative of
        the generating function. p is the decaying solution, so the backward direction is stable.
        It multiplies a relative error by about beta^2, so the start is a bound far in the tail.
        """
        beta, shape = (-1 / ball(self.scale)).exp(), ball(self.shape)
        square, found = 1 + beta * beta, []

        def before(k: int, ratio: arb) -> arb:
            return beta * (shape + (k - 1)) / (square * k - beta * ((k + 1) - shape) * ratio)

        far = last + math.ceil(self.scale * ctx.prec * _BITS_PER_SCALE) + 3
        if far - last > _FARTHEST:
            ratio = self.pmf_ball(last + 1) / self.pmf_ball(last)
        else:
            # Between beta and beta (k-1+r)/k. The map is monotone, so each end stays narrow.
            low, high = beta, beta * (shape + far) / (far + 1)
            for k in range(far, last, -1):
                low, high = before(k, low), before(k, high)
            ratio = low.union(high)
        for k in range(last, first, -1):
            ratio = before(k, ratio)
            found.append(ratio)
        return found

    def sample_reference(self, rng: Rng) -> int:
        r"""Draw the difference of two independent Polya(r, s) draws."""
        one = self._one
        return one.sample_reference(rng) - one.sample_reference(rng)

    def build_batch(self) -> Batch:
        r"""Build the difference of two Polya(r, s) samplers, whose draws must also fit int64."""
        return Difference(batch_of(self._one))

    def log_mass(self, k: int) -> arb:
        r"""The log-mass log P(X = k) as a ball that is tight even if the mass is close to 1."""
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
        return 2 * shape * one_minus_beta(self.scale) + rest.log1p()

    def _log_pmf(self, k: Integers) -> Floats:
        return pointwise(sizes(k), self.log_mass)

    def _pmf(self, k: Integers) -> Floats:
        return by_runs(self, sizes(k), "pmf")

    def _upper(self, k: Integers) -> Floats:
        return by_runs(self, k, "sf")

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
