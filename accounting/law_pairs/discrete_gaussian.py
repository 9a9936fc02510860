r"""The pairs (X, X - d) for discrete Gaussian noise X, and for a sum X of n discrete Gaussians.

D_alpha is the Renyi divergence of the pair. For one discrete Gaussian with v = sigma^2, the output
x has the privacy loss d (2x + d)/2v. So D_alpha = d^2/2v + log E[e^((alpha-1) d X/v)]/(alpha-1),
which is at most alpha d^2/2v, with equality if (alpha-1) d is an integer.

For the sum of n variables let V = n sigma^2 and Z = sum_j e^(-j^2/2 sigma^2), over all integers j.
The sum has the masses p(m) = e^(-m^2/2V) phi(m). Here phi(m) is Z^-n times the sum of
e^(-|x - m/n|^2/2 sigma^2) over the vectors x of n integers with sum m; phi is positive and has
period n. So the loss at m is d(2m + d)/2V + log phi(m)/phi(m+d), where the second term is 0 if n
divides d. With k = alpha - 1,

    D_alpha = alpha d^2/2V + log(sum_m phi(m)^alpha phi(m+d)^(1-alpha) e^(-(m-kd)^2/2V))/k.

By Poisson summation, the ratio of phi to its mean lies between 1 - e and 1 + e, where 1 + e is the
ratio at m = 0. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, cast

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.enclose_curve import hull, middle, supremum_over_orders
from accounting.pairs.pair import Cell, RayPair, ShiftedPair
from dpcore.analysis import theta
from dpcore.laws.discrete_gaussian import (
    DiscreteGaussian,
    DiscreteGaussianSum,
    deviation_from_gaussian,
    log_factor,
    mean_factor,
)
from dpcore.numbers.enclosure import Enclosure, ball, precision

NEARLY_REAL: Final = 4
"""For a larger sigma^2 the curve is close to that of real Gaussian noise."""

_SUMMED: Final = 64
_NEWTON: Final = 40
_SHORT: Final = 1e-6
_CLOSE: Final = 1e-9
_ASYMPTOTIC: Final = 25.0
_TERMS: Final = 9
_MOST_RESIDUES: Final = 1 << 12
_MOST_TERMS: Final = 1 << 20
_NEGLIGIBLE: Final = Fraction(1, 2**40)
_TOLERANCE: Final = Fraction(1, 10**4)
_BITS: Final = 192
_GUARD: Final = 32


class _Gaussian(ShiftedPair):
    # The pair of a sum of n discrete Gaussians with V = n sigma^2, for losses without the phi term.
    __slots__ = ()

    everywhere: ClassVar[bool] = True
    noise: DiscreteGaussian | DiscreteGaussianSum

    @property
    def _count(self) -> int:
        return self.noise.count if isinstance(self.noise, DiscreteGaussianSum) else 1

    @property
    def _whole(self) -> Fraction:
        # V, which is about the variance.
        return self._count * self.noise.sigma_squared

    @property
    def _limit(self) -> Fraction:
        # d^2/2V, the limit of D_alpha/alpha for large alpha.
        return self.shift**2 / (2 * self._whole)

    def loss(self, m: int) -> Fraction | arb:
        return self.shift * (2 * m + self.shift) / (2 * self._whole)

    def near(self, epsilon: Fraction) -> int:
        return math.floor(epsilon * self._whole / self.shift - Fraction(self.shift, 2)) + 1

    def ray(self, epsilon: Fraction) -> Cell | None:
        return (self.near(epsilon),) * 2

    def start(self, delta: Fraction) -> Fraction:
        # rho + 2 sqrt(rho log(1/delta)) is about 10% above epsilon(delta).
        rho = ball(self._limit)
        return middle(rho + 2 * (rho * abs(ball(delta).log()).upper()).sqrt())

    def guess(self, delta: Fraction) -> int | None:
        near = real_gaussian_epsilon(2 * self._limit, delta)
        if self.noise.sigma_squared < NEARLY_REAL or not near > 0:
            return RayPair.guess(self, delta)
        return self.near(Fraction(near))

    def largest_loss(self) -> Enclosure:
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> Fraction | arb:
        # alpha d^2/2V if n divides (alpha-1) d, otherwise a ball below that value.
        excess = order - 1
        if (excess * self.shift / self._count).denominator == 1:
            return order * self._limit
        tilt = ball(excess * self.shift / self._whole)
        moment = self._count * theta.log_moment(self.noise.sigma_squared, tilt)
        return ball(self._limit) + moment / ball(excess)

    def zcdp(self) -> Fraction | Enclosure:
        return self._limit


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianPair(_Gaussian):
    r"""The pair (X, X - ``shift``) for a discrete Gaussian X.

    >>> GaussianPair(noise=DiscreteGaussian(sigma_squared=400), shift=1).zcdp()
    Fraction(1, 800)
    """

    noise: DiscreteGaussian

    def tails(self, m: int) -> tuple[arb, arb]:
        if self.shift > _SUMMED:
            return ShiftedPair.tails(self, m)
        rate = 1 / (2 * ball(self.noise.sigma_squared))
        masses = ((-rate * (m + j) ** 2).exp() for j in range(self.shift))
        whole = theta.partition(self.noise.sigma_squared)
        return sum(masses, arb(0)) / whole, self.noise.sf_ball(m + self.shift - 1)


def mills(x: float) -> float:
    r"""Mills' ratio P(Z > x)/phi(x) of a standard normal Z with density phi.

    It is accurate to about 1e-13, without a proven error. SciPy's functions are as accurate, but
    importing them takes longer than most commands run.

    >>> mills(0), mills(1e9)
    (1.2533141373155..., 1e-09)
    """
    if x < _ASYMPTOTIC:
        return math.erfc(x / math.sqrt(2)) * math.exp(x * x / 2) * math.sqrt(math.pi / 2)
    term = total = 1.0
    for k in range(1, _TERMS):
        term *= -(2 * k - 1) / (x * x)
        total += term
    return total / x


def real_gaussian_epsilon(squared: Fraction, delta: Fraction) -> float:
    r"""The approximate epsilon of Gaussian noise, (shift/sigma)^2 = ``squared``; NaN on failure."""
    # With a = epsilon/mu - mu/2 and Mills' ratio R, delta = phi(a) (R(a) - R(a+mu)). Newton's
    # method is applied to log delta, whose slope in a is -mu R(a+mu)/(R(a) - R(a+mu)). The result
    # only starts a search.
    try:
        mu = math.sqrt(squared)
        goal = math.log(delta.numerator) - math.log(delta.denominator)
        a = math.sqrt(-2 * goal)
        for _ in range(_NEWTON):
            gap = mills(a) - mills(a + mu) if mu > _SHORT else mu * (1 - a * mills(a))
            value = -a * a / 2 - math.log(2 * math.pi) / 2 + math.log(gap)
            step = (value - goal) * gap / (mu * mills(a + mu))
            a += step
            if abs(step) <= _CLOSE:
                return mu * (a + mu / 2)
    except (ArithmeticError, ValueError):
        pass
    return math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSumPair(_Gaussian):
    r"""The pair (X, X - d) for the sum X of ``noise.count`` discrete Gaussians; d is ``shift``.

    >>> noise = DiscreteGaussianSum(count=16, sigma_squared=4)
    >>> pair = GaussianSumPair(noise=noise, shift=16)
    >>> pair.zcdp(), pair.loss(0)
    (Fraction(2, 1), Fraction(2, 1))
    """

    noise: DiscreteGaussianSum

    @property
    def _on_lattice(self) -> bool:
        return self.shift % self.noise.count == 0

    def loss(self, m: int) -> Fraction | arb:
        linear = cast("Fraction", _Gaussian.loss(self, m))
        return linear if self._on_lattice else ball(linear) + self._excess(m)

    def ray(self, epsilon: Fraction) -> Cell | None:
        exact = epsilon == 0 or self._on_lattice
        return _Gaussian.ray(self, epsilon) if exact else ShiftedPair.ray(self, epsilon)

    def mass_balls(self, first: int, last: int) -> list[arb]:
        flat, rate = _flat(self.noise, ctx.prec), 1 / (2 * ball(self._whole))
        if flat is None:
            return [(self._log_phi(m) - rate * m * m).exp() for m in range(first, last + 1)]
        return [(-rate * m * m).exp() * flat[0] for m in range(first, last + 1)]

    # -- orders -------------------------------------------------------------------------------

    def renyi(self, order: Fraction) -> Fraction | arb:
        # The module's formula, which is exact if n divides d and (alpha-1) d.
        if self._on_lattice:
            return _Gaussian.renyi(self, order)
        excess = order - 1
        line = ball(order * self._limit)
        # For many draws S(0)^n loses digits, so the precision is doubled. The remaining width is
        # that of phi itself, which more precision does not reduce.
        with precision(2 * ctx.prec):
            near = self._by_the_mean(order)
        found = line + near / ball(excess)
        if found.is_finite() and found.rel_accuracy_bits() >= ctx.prec // 2:
            return found
        return line + self._by_the_sum(order) / ball(excess)

    def zcdp(self) -> Fraction | Enclosure:
        # d^2/2V if n divides d, otherwise larger by at most E, an upper bound on log
        # phi(m)/phi(m+d). If E is not negligible, branch and bound gives a relative width of 1e-4.
        if self._on_lattice:
            return self._limit
        with precision(_BITS):
            spread = Enclosure.of(self._largest_excess()).upper
        if spread <= self._limit * _NEGLIGIBLE:
            return Enclosure(self._limit, self._limit + Fraction(spread))
        return supremum_over_orders(
            self.renyi,
            lambda order: self._limit + Fraction(spread) / order,
            known=self._limit,
            tolerance=_TOLERANCE,
        )

    def _by_the_mean(self, order: Fraction) -> arb:
        # log sum_m phi(m)^alpha phi(m+d)^-k e^(-(m-kd)^2/2V) with phi replaced by its mean: then
        # the Gaussian sum is sqrt(2 pi V) S, |S - 1| <= sum_j 2 e^(-2 pi^2 V j^2).
        ripple = _ripple(self.noise, ctx.prec)
        if not ripple < 1:
            return arb(0, arb("inf"))
        nome = (-2 * arb.pi() ** 2 * ball(self._whole)).exp()
        whole = 2 * nome / (1 - nome)
        high, low = ripple.log1p().upper(), (-ripple).log1p().lower()
        base = (mean_factor(_law(self.noise)) * (2 * arb.pi() * ball(self._whole)).sqrt()).log()
        spread = hull([low, high]) * ball(order) - hull([low, high]) * ball(order - 1)
        return base + spread + (1 + hull([-whole, whole])).log()

    def _by_the_sum(self, order: Fraction) -> arb:
        # A sum over |m - kd| <= w and two geometric series beyond, where phi(m)^alpha phi(m+d)^-k
        # is at most phi(0) e^(kE).
        excess, whole = order - 1, ball(self._whole)
        most = self._largest_excess()
        need = 7 * ctx.prec // 10 + math.ceil(abs(middle(most) * excess)) + 4
        width = math.isqrt(math.ceil(2 * self._whole * need)) + 2
        if 2 * width > _MOST_TERMS or min(2 * width, self.noise.count) > _MOST_RESIDUES:
            raise NotDerived(
                f"the Renyi divergence of order {order} of {self.noise!r}",
                f"{2 * width} terms over {self.noise.count} residues exceed the limit of a sum: "
                "use epsilon(delta)",
            )
        center = excess * self.shift
        floor = math.floor(center)
        total, rate = arb(0), 1 / (2 * whole)
        for m in range(floor - width, floor + width + 2):
            power = ball(order) * self._log_phi(m) - ball(excess) * self._log_phi(m + self.shift)
            total += (power - rate * ball(m - center) ** 2).exp()
        edge = (-rate * width * width).exp() / (1 - (-2 * rate * width).exp())
        rest = (2 * edge * (self._log_phi(0) + ball(excess) * most).exp()).upper()
        return (total + arb(rest / 2, rest / 2)).log()

    # -- phi ----------------------------------------------------------------------------------

    def _excess(self, m: int) -> arb:
        # log phi(m)/phi(m+d), from the relative variation of phi alone if that is accurate enough.
        flat = _flat(self.noise, ctx.prec)
        if flat is not None:
            return flat[1]
        return self._log_phi(m) - self._log_phi(m + self.shift)

    def _log_phi(self, m: int) -> arb:
        return log_factor(_law(self.noise), m)

    def _largest_excess(self) -> arb:
        # An upper bound E on log phi(m)/phi(m+d) for all m: from the variation of phi, or by
        # Jensen's inequality for a shift of the n coordinates by steps that differ by at most 1.
        many, rest = divmod(self.shift, self.noise.count)
        squares = rest * (many + 1) ** 2 + (self.noise.count - rest) * many**2
        least = Fraction(self.shift**2, self.noise.count)
        jensen = (squares - least) / (2 * self.noise.sigma_squared)
        ripple = _ripple(self.noise, ctx.prec)
        if not ripple < 1:
            return ball(jensen)
        return ball(jensen).min(((1 + ripple) / (1 - ripple)).log().upper())


def _law(noise: DiscreteGaussianSum) -> theta.ThetaSum:
    return theta.ThetaSum(variance=noise.sigma_squared, count=noise.count)


@lru_cache(maxsize=64)
def _flat(noise: DiscreteGaussianSum, bits: int) -> tuple[arb, arb] | None:
    # Balls for phi(m) and log phi(m)/phi(m+d) if phi varies negligibly; `bits` is the precision.
    ripple = _ripple(noise, bits)
    if not ripple < arb(2) ** (-bits // 2 - _GUARD):
        return None
    wide = ((1 + ripple) / (1 - ripple)).log().upper()
    return mean_factor(_law(noise)) * (1 + arb(0, ripple)), arb(0, wide)


@lru_cache(maxsize=64)
def _ripple(noise: DiscreteGaussianSum, bits: int) -> arb:
    # An upper bound on e = phi(0)/mean - 1; `bits` is the precision.
    return deviation_from_gaussian(_law(noise), bits).max(arb(0)).upper()
