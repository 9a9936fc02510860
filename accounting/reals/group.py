r"""One round of Gaussian noise on a Poisson sample in which a group of units may be.

Each of k units is sampled by itself, so j of them are with chance w_j = binom(k, j) gamma^j
(1 - gamma)^(k-j), and at worst all move the sum the same way: P = sum_j w_j N(j, v) against
Q = N(0, v), and the mirrored pair. With u = (2x - 1)/2v and g = e^u the density of P over Q is

    B(u) = sum_j b_j g^j,    b_j = w_j e^(-j(j-1)/2v):

a polynomial of positive coefficients in place of 1 - gamma + gamma g. Proofs: docs/proofs/group.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import acb, acb_poly, arb, arb_poly, ctx

from accounting.fourier.discs import Floats
from accounting.reals.mixture import Ball, Direction
from accounting.reals.sampled_gaussian import SampledGaussian
from dpcore.numbers.enclosure import ball

__all__ = ["GroupDirection", "GroupGaussian", "ShiftDirection"]

_FAR: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDirection(Direction):
    r"""B(u) of a group of ``members``, under noise of v = ``variance``.

    >>> one = GroupDirection(rate=Fraction(1, 4), present=True, members=1, variance=Fraction(1))
    >>> one.mixed(arb(3)) == Direction(rate=Fraction(1, 4), present=True).mixed(arb(3)) == 1.5
    True
    """

    members: int
    variance: Fraction

    @property
    def degree(self) -> int:
        r"""k."""
        return self.members

    @property
    def least(self) -> Fraction:
        r"""B where u falls without end: nobody is sampled."""
        return (1 - self.rate) ** self.members

    @property
    def chances(self) -> tuple[Fraction, ...]:
        r"""w_0, ..., w_k."""
        k, rate = self.members, self.rate
        return tuple(math.comb(k, j) * rate**j * (1 - rate) ** (k - j) for j in range(k + 1))

    def mixed(self, growth: Ball) -> Ball:
        r"""B, from e^u, real or not."""
        return arb_poly(_coefficients(self, ctx.prec))(growth)

    def beside(self, growth: arb, angle: arb) -> tuple[arb, arb, arb]:
        r"""log |B|, arg B and a bound of Re s at u + i ``angle``, for 0 <= k angle < pi/2.

        All three rise in u: s = B'/B is the mean of j under weights b_j g^j, and beside the real
        line |s| is at most that of |g| over cos(k angle/2).
        """
        listed = _coefficients(self, ctx.prec)
        value = acb_poly(listed)(acb(growth * angle.cos(), growth * angle.sin()))
        real, imaginary = value.real, value.imag
        whole = arb_poly(listed)
        mean = growth * whole.derivative()(growth) / whole(growth)
        square = real * real + imaginary * imaginary
        share = mean / (self.members * angle / 2).cos()
        return square.log() / 2, (imaginary / real).atan(), share

    # -- the same in floats, on which only speed rests ---------------------------------------------

    def logs(self, u: Floats) -> Floats:
        r"""log B(u)."""
        found: Floats = np.logaddexp.reduce(self._terms(u), axis=0)
        return found

    def logs_beside(self, u: Floats, angle: float) -> tuple[Floats, Floats]:
        r"""log |B| and arg B at u + i angle."""
        terms = self._terms(np.minimum(u, _FAR))
        top = terms.max(axis=0)
        turns = np.exp(1j * angle * np.arange(self.members + 1))[:, None]
        value = (np.exp(terms - top) * turns).sum(axis=0)
        return top + np.log(np.abs(value)), np.angle(value)

    def share(self, u: float) -> float:
        r"""s(u)."""
        terms = self._terms(np.array([min(max(u, -2 * _FAR), 2 * _FAR)]))[:, 0]
        weights = np.exp(terms - terms.max())
        return float(weights @ np.arange(self.members + 1) / weights.sum())

    def _terms(self, u: Floats) -> Floats:
        v = float(self.variance)
        logs = _logs(self)
        return np.array([log - j * (j - 1) / (2 * v) + j * u for j, log in enumerate(logs)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftDirection(GroupDirection):
    r"""B(u) of any mixture of shifts by 0, ..., k = ``members``, with the chances ``weights``.

    ``rate`` is the chance of a shift that is not 0.

    >>> weights = (Fraction(3, 4), Fraction(1, 4))
    >>> one = ShiftDirection(
    ...     rate=Fraction(1, 4), present=True, members=1, variance=Fraction(1), weights=weights
    ... )
    >>> one.mixed(arb(3)) == 1.5
    True
    """

    weights: tuple[Fraction, ...]

    @property
    def least(self) -> Fraction:
        r"""w_0."""
        return self.weights[0]

    @property
    def chances(self) -> tuple[Fraction, ...]:
        r"""As they are given."""
        return self.weights


@lru_cache(maxsize=64)
def _coefficients(direction: GroupDirection, bits: int) -> list[arb]:
    del bits  # the precision around
    return [
        ball(w) * ball(Fraction(-j * (j - 1), 2) / direction.variance).exp()
        for j, w in enumerate(direction.chances)
    ]


@lru_cache(maxsize=64)
def _logs(direction: GroupDirection) -> tuple[float, ...]:
    return tuple(
        math.log(w.numerator) - math.log(w.denominator) if w else -math.inf
        for w in direction.chances
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGaussian(SampledGaussian):
    r"""The loss of one round in one direction; ``direction`` is a :class:`GroupDirection`.

    >>> here = GroupDirection(rate=Fraction(1, 9), present=True, members=2, variance=Fraction(4))
    >>> law = GroupGaussian(variance=Fraction(4), direction=here)
    >>> # M(1) = E e^(ij/v), i and j the sampled of two groups
    >>> round(law.cumulants(1.0)[0], 8)
    0.0144039
    """

    direction: GroupDirection
