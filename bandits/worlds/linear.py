r"""Simulated worlds of linear bandits, in which the users' parameters vary around one theta*.

The experiments of Li, Zhou and Ji (arXiv 2207.05827, Section 7) have dimension d = 20, k = 10^3
actions and 10^5 users, whose parameters differ from theta* by xi with standard deviation sigma =
0.1. The following choices are not in the paper: actions and theta* are uniform on the unit sphere,
xi and the noise of a round are normal, and the privatizer clips averages at B = 2.

The paper's Appendix C has no experiments. For it, and for the comparison in Section 8 of many
clients per phase with one client per round, rewards here are -1 and 1, which need no clipping, and
all users have the same parameter. Infinite sets of actions are represented by a finite cover
(:func:`bandits.actions.cover`, Remark 3.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import ClassVar, Final

import numpy as np

from bandits.actions import Actions, LinearModel, Shape, cover
from bandits.batch import Ask, Encoding
from bandits.worlds.arm_environments import Environment
from bandits.worlds.preset import Preset
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats, Integers

_CLIENTS: Final = 1 << 11
_DRAWS: Final = 1 << 16
_DIMENSION: Final = 20
_COVERED: Final = 3
_FINEST: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearWorld(Environment):
    r"""A world in which action x gives user u the reward <theta_u, x> plus noise.

    Let theta* = ``theta``. If the model ``of`` has bounded rewards, they are -B or B with mean
    <theta*, x>, and theta_u = theta* for every user. Otherwise theta_u - theta* and the noise of
    every round are normal with standard deviations sigma and 1.
    """

    lowest: ClassVar[int] = -1

    of: LinearModel
    theta: tuple[float, ...]

    @property
    def model(self) -> LinearModel:
        return self.of

    def __post_init__(self) -> None:
        theta = np.array(self.theta, dtype=np.float64)
        if theta.shape != (self.model.actions.dimension,) or not np.isfinite(theta).all():
            reason = f"must contain {self.model.actions.dimension} finite numbers"
            raise InvalidParameter("theta", self.theta, reason)
        if float(np.sqrt(theta @ theta)) > 1 + 1e-12:
            raise InvalidParameter("theta", self.theta, "must have norm at most 1")
        if self.model.bounded and self.model.deviation != 0:
            reason = "must be 0 for bounded rewards, where all users have the same theta"
            raise InvalidParameter("deviation", self.model.deviation, reason)

    @property
    def arms(self) -> int:
        return self.model.actions.count

    @property
    def means(self) -> tuple[float, ...]:
        found = self.model.actions.points @ np.array(self.theta)
        return tuple(np.clip(found, -1, 1).tolist())

    def encoded_sums(
        self, ask: Ask, encoding: Encoding, world: np.random.Generator
    ) -> tuple[int, ...]:
        points = self.model.actions.points[list(ask.actions)]
        times = ask.times or (1,) * len(points)
        if self.model.bounded:
            return self._signs(points, np.array(times, dtype=np.int64), ask.users, encoding, world)
        rows = _CLIENTS if len(points) > 1 else _DRAWS
        total = np.zeros(len(points), dtype=np.int64)
        theta, sigma = np.array(self.theta), float(self.model.deviation)
        noise = 1 / np.sqrt(np.array(times, dtype=np.float64))
        if len(points) == 1:
            # For a single action, only one component of xi matters.
            noise = np.sqrt(noise**2 + sigma**2 * (points * points).sum(axis=1))
        for start in range(0, ask.users, rows):
            count = min(rows, ask.users - start)
            y = world.standard_normal((count, len(points)))
            y *= noise
            y += points @ theta
            if sigma and len(points) > 1:
                y += world.standard_normal((count, len(theta))) @ (sigma * points.T)
            total += encoding.steps(y, world).sum(axis=0)
        return tuple(total.tolist())

    def _signs(
        self,
        points: Floats,
        times: Integers,
        users: int,
        encoding: Encoding,
        world: np.random.Generator,
    ) -> tuple[int, ...]:
        bound = float(self.model.bound)
        chances = np.clip((1 + points @ np.array(self.theta) / bound) / 2, 0, 1)
        whole = encoding.low == -self.model.bound and encoding.high == self.model.bound
        if whole and (times == 1).all():
            # -B and B are the ends of the range, so encoding needs no rounding.
            return tuple((world.binomial(users, chances) * encoding.precision).tolist())
        total = np.zeros(len(points), dtype=np.int64)
        for start in range(0, users, _CLIENTS):
            shape = (min(_CLIENTS, users - start), len(points))
            up = world.binomial(times, chances, shape) / times
            total += encoding.steps(bound * (2 * up - 1), world).sum(axis=0)
        return tuple(total.tolist())

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        del arm, pulls, world
        raise InvalidParameter(
            "precision", precision, "is not supported here: call encoded_sums, which takes averages"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredWorld(LinearWorld):
    """A world whose actions cover ``shape``; regret is relative to the best point of ``shape``."""

    shape: Shape

    @property
    def gaps(self) -> tuple[float, ...]:
        theta = np.abs(np.array(self.theta))
        best = math.sqrt(theta @ theta) if self.shape == "ball" else theta.sum() / len(theta) ** 0.5
        return tuple(max(float(best) - mean, 0.0) for mean in self.means)


def sphere_instance(seed: int, actions: int, *, dimension: int = _DIMENSION) -> LinearWorld:
    """Create instance ``seed`` of the worlds of Li, Zhou and Ji (2022), Figure 2.

    The points of the ``actions`` actions, and theta*, are uniform on the unit sphere.
    """
    points, theta = _sphere(seed, actions, dimension)
    model = LinearModel(actions=Actions(points), deviation="0.1")
    return LinearWorld(of=model, theta=theta)


def signs_instance(seed: int, actions: int, *, dimension: int = _DIMENSION) -> LinearWorld:
    r"""Create :func:`sphere_instance` with rewards -1 and 1; all users have the same parameter."""
    points, theta = _sphere(seed, actions, dimension)
    model = LinearModel(actions=Actions(points), deviation=0, bound=1, bounded=True)
    return LinearWorld(of=model, theta=theta)


def covered_instance(shape: Shape, seed: int, actions: int) -> CoveredWorld:
    r"""Create a world whose actions cover the unit ball of R^3, or the largest box in it.

    The cover has the radius 1/j for which there are ``actions`` actions; there must be such an
    integer j. theta* is uniform on the unit sphere.
    """
    _, theta = _sphere(seed, 0, _COVERED)
    model = LinearModel(actions=_cover_of(shape, actions), deviation="0.1")
    return CoveredWorld(of=model, theta=theta, shape=shape)


@lru_cache(maxsize=16)
def _cover_of(shape: Shape, size: int) -> Actions:
    # The cover of radius 1/j with this number of actions, which grows with j.
    for parts in range(1, _FINEST + 1):
        found = cover(shape, _COVERED, Fraction(1, parts))
        if found.count == size:
            return found
        if found.count > size:
            break
    reason = f"must be the size of a cover of radius 1/j, e.g. {found.count} for radius 1/{parts}"
    raise InvalidParameter("arms", size, reason)


def _sphere(seed: int, actions: int, dimension: int) -> tuple[Floats, tuple[float, ...]]:
    # numpy's legacy generator, which never changes.
    drawn = np.random.RandomState(seed).standard_normal((actions + 1, dimension))
    drawn /= np.sqrt((drawn * drawn).sum(axis=1))[:, None]
    return drawn[1:], tuple(drawn[0].tolist())


_FIGURE_2: Final = Preset(
    name="lzj/fig2",
    sentence="1000 actions in 20 dimensions, normal rewards, users differ "
    "(Li, Zhou and Ji 2022, Figure 2)",
    source=sphere_instance,
    algorithms=("dpe", "cdp-dpe", "ldp-dpe", "sdp-dpe", "dpe-fixedu"),
    epsilons=("10",),
    horizon=10**6,
    arms=1000,
    delta="0.25",
    kind="linear",
    users=10**5,
)

_BALL: Final = replace(
    _FIGURE_2,
    name="lzj/ball",
    sentence="the unit ball of R^3, by a cover of 1912 actions with radius 1/8 "
    "(Li, Zhou and Ji 2022, Remark 3.1)",
    source=partial(covered_instance, "ball"),
    algorithms=("dpe", "cdp-dpe", "sdp-dpe"),
    arms=1912,
)

_BOX: Final = replace(
    _BALL,
    name="lzj/box",
    sentence="the largest box in the unit ball, by a cover of 512 actions with radius 1/8 "
    "(Li, Zhou and Ji 2022, Remark 3.1)",
    source=partial(covered_instance, "box"),
    arms=512,
)

_TABLE_2: Final = Preset(
    name="lzj/table2",
    sentence="1000 actions in 20 dimensions, rewards -1 or 1, one user per round "
    "(Li, Zhou and Ji 2022, Table 2)",
    source=signs_instance,
    algorithms=("pe", "cdp-pe", "ldp-pe", "sdp-pe"),
    epsilons=("1",),
    horizon=10**6,
    arms=1000,
    kind="linear",
)

_CLIENTS_A_PHASE: Final = replace(
    _TABLE_2,
    name="lzj/clients",
    sentence="lzj/table2 with 2^(alpha l) clients per phase compared with one per round "
    "(Li, Zhou and Ji 2022, Section 8)",
    algorithms=("pe", "dpe", "cdp-pe", "cdp-dpe", "sdp-pe", "sdp-dpe"),
)

LZJ: Final = (_FIGURE_2, _BALL, _BOX, _TABLE_2, _CLIENTS_A_PHASE)
