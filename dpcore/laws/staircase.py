r"""The staircase law on the integers: P(X = k) is a step function of |k|.

From one step to the next, the mass falls by a factor b = e^(-epsilon). For integer queries and a
given epsilon, a staircase law has the least variance among all laws of pure epsilon-DP noise that
do not depend on the data (Geng, Kairouz, Oh and Viswanath, "The Staircase Mechanism in Differential
Privacy", 2015). Let Delta be the sensitivity and r in [1, Delta] the plateau, which is where the
first step ends. Then

    P(X = k) = a b^l(k),  l(k) = floor((|k| - r)/Delta) + 1,  1/a = 2r - 1 + 2 Delta b/(1-b),

where a = P(X = 0), and l(k) is the number of steps between 0 and k. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.noise import Covered, SymmetricNoise, batch_of
from dpcore.numbers.arrays import Floats, Integers, Split, decayed, pair_of, product
from dpcore.numbers.enclosure import Enclosure, ball, narrow, nearest, precision
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import Exact, Whole
from dpcore.sampling.bernoulli import geometric_exp
from dpcore.sampling.inversion import TABLE_BITS, invert, table_of_sums
from dpcore.sampling.rng import Rng, below


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Staircase(SymmetricNoise):
    r"""Staircase noise for queries of sensitivity ``sensitivity``: exactly epsilon-DP.

    The masses are equal for |k| < ``plateau`` and fall by a factor e^(-epsilon) at ``plateau`` and
    after each further ``sensitivity`` integers. The plateau is an integer from 1 to
    ``sensitivity``; 0, the default, selects the plateau that is proven to have the least variance.
    At sensitivity 1 the law is DiscreteLaplace(scale=1/epsilon). At larger sensitivities it is not
    log-concave, and it has less variance than DiscreteLaplace(scale=sensitivity/epsilon), much less
    for epsilon > 2.

    The float64 functions cover 2^-46 sensitivity <= epsilon <= 1e6. Raises
    :class:`InvalidParameter` if epsilon is not a positive rational, if the sensitivity is not an
    integer from 1 to 2^30, or if the plateau is above the sensitivity.

    >>> noise = Staircase(epsilon=4, sensitivity=10)
    >>> noise
    Staircase(epsilon=4, sensitivity=10, plateau=2)
    >>> noise.variance.upper_float, DiscreteLaplace(scale="10/4").variance.upper_float
    (6.66..., 12.33...)
    """

    name: ClassVar[str] = "staircase"
    floats: ClassVar[tuple[Covered, ...]] = (
        Covered("epsilon", "2^-46", "1e6"),
        Covered("_slope", "2^-46", "1e6", argument="epsilon", written="epsilon/sensitivity"),
    )

    epsilon: Exact = Exact(zero="noise of epsilon 0 would be uniform on all integers")
    sensitivity: Whole = Whole(at_most=1 << 30)
    plateau: Whole = Whole(0, at_least=0)

    def __post_init__(self) -> None:
        SymmetricNoise.__post_init__(self)
        if self.plateau > self.sensitivity:
            raise InvalidParameter("plateau", self.plateau, "must be at most the sensitivity")
        if not self.plateau:
            plateau = _best_plateau(self.epsilon, self.sensitivity)
            object.__setattr__(self, "plateau", plateau)

    @property
    def log_concave(self) -> bool:
        # Otherwise equal masses follow the drop between two steps.
        return self.sensitivity == 1

    @property
    def variance(self) -> Enclosure:
        return narrow(lambda: _variance(self.epsilon, self.sensitivity, self.plateau), 128)

    @property
    def _slope(self) -> Fraction:
        return self.epsilon / self.sensitivity

    def level(self, k: int) -> int:
        r"""The number l(k) of steps up to k, with P(X = k) = P(X = 0) e^(-epsilon l(k))."""
        return (abs(k) - self.plateau) // self.sensitivity + 1

    def pmf_ball(self, k: int) -> arb:
        top = _top(self.epsilon, self.sensitivity, self.plateau)
        return top * (-ball(self.epsilon) * self.level(k)).exp()

    def sf_ball(self, k: int) -> arb:
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        rest = self.sensitivity - (k + 1 - self.plateau) % self.sensitivity
        return self.pmf_ball(k + 1) * (rest + self.sensitivity * _behind(self.epsilon))

    def sample_reference(self, rng: Rng) -> int:
        side = invert(rng, self._side, 0)
        if not side:
            return rng.below(2 * self.plateau - 1) - (self.plateau - 1)
        step = self.sensitivity * geometric_exp(rng, self.epsilon)
        return side * (self.plateau + step + rng.below(self.sensitivity))

    def _side(self, k: int) -> arb:
        # P(S <= k), where S is the sign of a draw outside the plateau and 0 for a draw on it.
        if not -1 <= k <= 0:
            return arb(k > 0)
        beyond = self.sf_ball(self.plateau - 1)
        return beyond if k < 0 else 1 - beyond

    def build_batch(self) -> _Steps:
        return _Steps(self)

    # -- floats -------------------------------------------------------------------------------

    def _exponent(self, level: Integers) -> Split:
        return product(pair_of(level), pair_of(self.epsilon))

    def _levels(self, k: Integers) -> Integers:
        # Levels of negative k are negated: those of the smallest int64 fit int64.
        r, step = self.plateau, self.sensitivity
        left = (np.minimum(k, 0) + r - 1) // step
        return np.where(k >= 0, (np.maximum(k, 0) - r) // step + 1, left)

    def _pmf(self, k: Integers) -> Floats:
        with precision(96):
            peak = nearest(self.pmf_ball(0))
        return peak * decayed(self._exponent(self._levels(k)))

    def _log_pmf(self, k: Integers) -> Floats:
        with precision(96):
            if self.plateau == 1 and self.epsilon > 1:  # the mass at 0 may be close to 1
                peak = nearest((-2 * self.sf_ball(0)).log1p())
            else:
                peak = nearest(self.pmf_ball(0).log())
        return peak - np.abs(self._exponent(self._levels(k)).high)

    def _upper(self, k: Integers) -> Floats:
        # The tail falls by the factor b over each step; within a step, and on the plateau, it is
        # linear in k. The mass of an integer may be below 1e-308 where the tail is not.
        with precision(96):
            peak, behind = nearest(self.pmf_ball(0)), nearest(_behind(self.epsilon))
            start = nearest(self.sf_ball(self.plateau - 1))
        step = self.sensitivity
        level, place = np.divmod(k - (self.plateau - 1), step)
        rest = (step - place) / step + behind
        beyond = start * decayed(self._exponent(np.maximum(level, 0))) * (rest / (1 + behind))
        return np.where(level < 0, peak * step * rest, beyond)

    def _quantile_guess(self, p: Floats) -> Integers:
        # P(X > k) falls by the factor b over each step and is linear within a step.
        rate, step = float(self.epsilon), self.sensitivity
        with precision(96):
            top = float((self.pmf_ball(0) * step * (1 + _behind(self.epsilon))).log().mid())
        levels = np.maximum(top - np.log(np.minimum(p, 1 - p)), 0.0) / rate
        part = levels - np.floor(levels)
        place = np.floor(levels) * step + step * np.expm1(-rate * part) / np.expm1(-rate)
        first = place + (self.plateau - 1 - step)
        found: Floats = np.where(p > 0.5, np.ceil(first), -np.floor(first) - 1)
        return found.astype(np.int64)


class _Steps:
    # Draws the sign from a table, and the step from a discrete Laplace J: J given J >= 0, and
    # -J - 1 given J < 0, are geometric.

    def __init__(self, noise: Staircase) -> None:
        self._step, self._plateau = noise.sensitivity, noise.plateau
        with precision(TABLE_BITS):
            sums = (noise._side(k) for k in (-1, 0, 1))
            self._side = table_of_sums(-1, sums, noise._side)
        self._levels = batch_of(DiscreteLaplace(scale=1 / noise.epsilon))

    def draw(self, rng: Rng, count: int) -> Integers:
        found, levels = self._side.draw(rng, count), self._levels.draw(rng, count)
        inner = np.flatnonzero(found == 0)
        places = self._plateau + below(rng, self._step, count)
        found *= np.where(levels < 0, ~levels, levels) * self._step + places
        found[inner] = below(rng, 2 * self._plateau - 1, len(inner)) - (self._plateau - 1)
        return found


def _behind(epsilon: Fraction) -> arb:
    # b + b^2 + ... = b/(1-b).
    return 1 / ball(epsilon).expm1()


def _top(epsilon: Fraction, sensitivity: int, plateau: int) -> arb:
    # The mass a: the total mass divided by a is 2r - 1 + 2 Delta b/(1-b).
    return 1 / (2 * plateau - 1 + 2 * sensitivity * _behind(epsilon))


def _squares(epsilon: Fraction, sensitivity: int, first: int) -> arb:
    # sum_j b^j (first + j Delta)^2 over j >= 1, from the sums of b^j, j b^j and j^2 b^j.
    behind = _behind(epsilon)
    once = behind * (1 + behind)
    return (
        first**2 * behind
        + 2 * first * sensitivity * once
        + sensitivity**2 * once * (1 + 2 * behind)
    )


def _variance(epsilon: Fraction, sensitivity: int, plateau: int) -> arb:
    # The mean of (r + (j-1) Delta + i)^2 over the positions i of a step is (m + j Delta)^2 plus the
    # variance of i; all times 4, to keep 2m = 2r - Delta - 1 an integer.
    inner = plateau * (plateau - 1) * (2 * plateau - 1)
    middle, spread = 2 * plateau - sensitivity - 1, sensitivity * (sensitivity**2 - 1)
    outer = sensitivity * _squares(epsilon, 2 * sensitivity, middle) / 4
    outer += spread * _behind(epsilon) / 12
    return _top(epsilon, sensitivity, plateau) * (ball(Fraction(inner, 3)) + 2 * outer)


@lru_cache(maxsize=256)
def _best_plateau(epsilon: Fraction, sensitivity: int) -> int:
    # From r to r + 1 the points +-(r + j Delta) gain mass b^j - b^(j+1). The variance increases if
    # their mean square exceeds it; once it increases, it increases for all larger r.
    def rises(r: int) -> bool:
        def excess() -> arb:
            gained = r**2 + _squares(epsilon, sensitivity, r)
            return gained / (1 + _behind(epsilon)) - _variance(epsilon, sensitivity, r)

        return narrow(excess, 8).lower > 0

    return least(lambda r: r >= sensitivity or (r >= 1 and rises(r)), 1)
