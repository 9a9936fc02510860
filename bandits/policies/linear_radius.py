r"""Which actions of a linear bandit a phase may drop, and how sure that is.

With c = C v, C = T X V^+, the estimate of <theta*, v> is sum_x c_x y(x): a fixed combination of the
released averages y(x), so that its error is a sum of independent parts whose tails are known.
Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from bandits.actions import LinearModel
from bandits.policies.linear_design import Design, most_support
from dpcore.numbers.floating import Floats

__all__ = ["ExactWidth", "LinearWidth", "PaperWidth", "Phase"]

_RIVALS: Final = 256
_SLACK: Final = 1 + 1e-6
_UNSURE: Final = 1e-6
_HALF: Final = 2
_NEWTON: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    r"""What was played in a phase: ``times[i]`` rounds of ``design.support[i]``, seen by ``users``.

    ``apart``: every round has users of its own (LZJ Appendix C), and ``users`` is 1. ``local``:
    each user adds noise. ``noise`` and ``rounding`` are variance proxies of what a privatizer adds
    to each released average, ``tails`` how heavy the tails of the noise are
    (:meth:`bandits.privatizers.averages.AveragePrivatizer.tail`).
    """

    model: LinearModel
    design: Design
    active: tuple[int, ...]
    h: int
    times: tuple[int, ...]
    users: int
    noise: Floats
    rounding: Floats
    tails: Floats
    horizon: int
    apart: bool = False
    local: bool = False

    @property
    def chances(self) -> float:
        r"""1/beta = k T."""
        return float(self.model.actions.count) * self.horizon

    @property
    def weights(self) -> Floats:
        r"""C, of shape (support, d)."""
        points = self.model.actions.points[list(self.design.support)]
        times = np.array(self.times, dtype=np.float64)
        held = points @ self.design.basis
        inverse = np.linalg.inv((held * times[:, None]).T @ held)
        found: Floats = (times[:, None] * (held @ inverse)) @ self.design.basis.T
        return found


class LinearWidth(ABC):
    r"""Says which of the active actions stay, from the released averages of the support."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def staying(self, phase: Phase, averages: Floats) -> tuple[int, ...]:
        r"""The active actions that are not shown to be worse than another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperWidth(LinearWidth):
    r"""LZJ eq. 3 and 54: x is dropped if it is 2W below the best estimate.

    W = (sqrt(2d/(|U| h)) + sigma/sqrt|U| + sigma_n) sqrt(2 ln(kT)), sigma_n = 2 sigma_p sqrt(Sd),
    with sigma_p the deviation of the noise of an average and S the bound on the support. With a
    user a round (Appendix C, Table 4) |U| = 1, sigma = 0 and sigma_n = 2d sigma_s sqrt(s)/h, where
    sigma_s is the deviation of the noise of a sum; if every user adds noise 2d sigma_u sqrt(2s/h),
    sigma_u that of one user. It is reproduced, not proven.
    """

    name: ClassVar[str] = "paper"

    def staying(self, phase: Phase, averages: Floats) -> tuple[int, ...]:
        points = phase.model.actions.points[list(phase.active)]
        estimates = points @ (phase.weights.T @ averages)
        d = phase.model.actions.dimension
        spread = 0.0 if phase.apart else float(phase.model.deviation)
        private = self._private(phase)
        width = math.sqrt(2 * d / (phase.users * phase.h)) + spread / math.sqrt(phase.users)
        width = (width + private) * math.sqrt(2 * math.log(phase.chances))
        least = estimates.max() - 2 * width
        return tuple(x for x, e in zip(phase.active, estimates, strict=True) if e >= least)

    @staticmethod
    def _private(phase: Phase) -> float:
        # sigma_n.
        d, s, h = phase.model.actions.dimension, len(phase.times), phase.h
        if not phase.apart:
            return 2 * math.sqrt(float(phase.noise.max()) * most_support(d) * d)
        times = np.array(phase.times, dtype=np.float64)
        if phase.local:
            return 2 * d * math.sqrt(float((phase.noise * times).max()) * 2 * s / h)
        return 2 * d * math.sqrt(float((phase.noise * times**2).max()) * s) / h


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactWidth(LinearWidth):
    r"""Drop x if some b has an estimate of <theta*, b - x> above its own certified width.

    If b is no better than x, that happens with chance at most 1/(kT), for the noise that is really
    there; so a phase loses the best action with chance at most 1/T. Of the active actions the 256
    with the largest estimates may be b, which is sound for any b.
    """

    name: ClassVar[str] = "exact"

    def staying(self, phase: Phase, averages: Floats) -> tuple[int, ...]:
        points = phase.model.actions.points[list(phase.active)]
        weights = phase.weights
        estimates = points @ (weights.T @ averages)
        rivals = np.argsort(-estimates, kind="stable")[:_RIVALS]
        ahead = estimates[rivals][:, None] - estimates[None, :]
        dropped = (ahead > self.widths(phase, points[rivals], points)).any(axis=0)
        return tuple(phase.active[i] for i in np.flatnonzero(~dropped).tolist())

    def widths(self, phase: Phase, rivals: Floats, points: Floats) -> Floats:
        r"""The width of <theta*, b - x> for each row b of ``rivals`` and x of ``points``."""
        weights = phase.weights
        support = phase.model.actions.points[list(phase.design.support)]
        # What the combination is off by, of |theta*| <= 1, as computed: any C is an estimator.
        missed = points @ (weights.T @ support) - points
        off = 2 * float(np.sqrt((missed * missed).sum(axis=1)).max()) + 1e-12
        if not off <= _UNSURE:
            return np.full((len(rivals), len(points)), math.inf)
        n = phase.users
        times = np.array(phase.times, dtype=np.float64)
        sigma = float(phase.model.deviation)
        lengths = np.sqrt((support * support).sum(axis=1))
        rewards = 1 / (times * n) + phase.noise + phase.rounding
        whole = (weights * rewards[:, None]).T @ weights
        heavy = weights * phase.tails[:, None]
        apart = phase.apart
        if apart:
            spread = (weights * (sigma * lengths)[:, None] ** 2 / times[:, None]).T @ weights
        else:
            held = support.T @ weights
            spread = sigma**2 / n * held.T @ held
        if phase.model.bounded:
            return self._tail(whole + spread, heavy, rivals, points, 1 / phase.chances) + off
        deviations = np.sqrt((sigma * lengths) ** 2 + 1 / (1.0 if apart else times))
        clipped = 2 * _normal_tail((float(phase.model.bound) - lengths) / deviations)
        chance = float((clipped * (times if apart else n)).sum())
        if chance <= 1 / (_HALF * phase.horizon):
            # Nobody clips, but for half of the chance that a phase may fail.
            left = 1 / (_HALF * phase.chances)
            return self._tail(whole + spread, heavy, rivals, points, left) + off
        # A clip is 1-Lipschitz, so normal noise keeps its tails around another mean. Which
        # coordinates a client clips is unknown: the spread of clients may add up in any of them.
        if not apart:
            largest = float(np.linalg.norm(support, 2)) ** 2
            spread = sigma**2 / n * largest * (weights.T @ weights)
        bias = deviations * _beyond((float(phase.model.bound) - lengths) / deviations)
        moved = (weights * bias[:, None] ** 2).T @ weights * len(bias)
        found = self._tail(whole + spread, heavy, rivals, points, 1 / phase.chances)
        return found + np.sqrt(_squares(moved, rivals, points)) * _SLACK + off

    @staticmethod
    def _tail(
        proxy: Floats, heavy: Floats, rivals: Floats, points: Floats, chance: float
    ) -> Floats:
        # P(error > w) <= exp(-w^2/2 proxy), or what is left of that with tails of Laplace noise.
        least = math.log(1 / chance)
        squares = _squares(proxy, rivals, points)
        if heavy.any():
            from scipy.spatial.distance import cdist  # a fifth of a second that no other run pays

            scales = cdist(rivals @ heavy.T, points @ heavy.T, "chebyshev")
            scales += 1e-12 * float(np.abs(heavy).sum())
            return _heavy(squares, scales, least) * _SLACK
        found: Floats = math.sqrt(2 * least) * np.sqrt(squares) * _SLACK
        return found


def _heavy(squares: Floats, scales: Floats, least: float) -> Floats:
    # P(error > w) <= e^(-t w) (1 - c^2 t^2)^(-squares/2 c^2) for every t in (0, 1/c), and for any c
    # above the scale. With c t = sqrt(z/(1 + z)), a = squares/2 c^2, that is e^-least at
    # w = c (least + a log(1 + z)) sqrt((1 + z)/z). Any z > 0 is sound; the best one has
    # 2 z - log(1 + z) = least/a, which Newton's steps come down to.
    c = np.maximum(scales, _UNSURE * np.sqrt(squares))
    a = squares / (2 * c * c)
    ratio = least / a
    z = ratio
    for _ in range(_NEWTON):
        z = z - (2 * z - np.log1p(z) - ratio) / (2 - 1 / (1 + z))
    found: Floats = c * (least + a * np.log1p(z)) * np.sqrt((1 + z) / z)
    return found


def _squares(matrix: Floats, rivals: Floats, points: Floats) -> Floats:
    # (b - x)^T M (b - x), and above it by more than its rounding.
    along = rivals @ matrix
    own, other = (along * rivals).sum(axis=1), ((points @ matrix) * points).sum(axis=1)
    found: Floats = own[:, None] - 2 * along @ points.T + other[None, :]
    found += 1e-12 * float(np.abs(matrix).sum())
    return np.maximum(found, 0)


def _normal_tail(z: Floats) -> Floats:
    # P(Z > z) of a standard normal number, rounded up.
    found: Floats = np.vectorize(math.erfc, otypes=[float])(z / math.sqrt(2)) / 2 * (1 + 1e-9)
    return found


def _beyond(z: Floats) -> Floats:
    # E(Z - z)^+ of a standard normal number, and no less for rounding.
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    found: Floats = np.maximum(density - z * _normal_tail(z) / (1 + 1e-9), 0) + 1e-12
    return found
