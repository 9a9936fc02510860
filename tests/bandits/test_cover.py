"""Covers of infinite sets: every point is near an action, and the size is as stated."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.spatial import KDTree

from bandits.actions import Actions, LinearModel, Shape, cover
from bandits.play import play
from bandits.policies.phased_elimination import PhasedElimination
from bandits.privatizers.averages import AveragePrivatizer
from bandits.worlds.linear import LinearWorld
from dpcore.errors import InvalidParameter
from dpcore.numbers.floating import Floats
from dpcore.sampling.rng import SeededRng


def somewhere(shape: Shape, dimension: int) -> Floats:
    """Points of the set, many of them on its edge, where a cover fails first."""
    coins = np.random.default_rng(3)
    if shape == "box":
        points = coins.uniform(-1, 1, (4000, dimension)) / math.sqrt(dimension)
        points[:1000] = np.sign(points[:1000]) / math.sqrt(dimension)
        return points
    drawn = coins.standard_normal((4000, dimension))
    drawn /= np.sqrt((drawn * drawn).sum(axis=1))[:, None]
    drawn[2000:] *= coins.uniform(0, 1, (2000, 1))
    return drawn


def farthest(actions: Actions, points: Floats) -> float:
    return float(KDTree(actions.points).query(points)[0].max())


CASES: list[tuple[Shape, int, str]] = [
    ("ball", 1, "1/3"), ("ball", 2, "1/4"), ("ball", 3, "0.3"), ("ball", 4, "1/2"),
    ("box", 1, "1/10"), ("box", 2, "0.07"), ("box", 3, "1/5"), ("box", 5, "1/2"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dimension", "radius"), CASES)
def test_every_point_is_near_an_action(shape: Shape, dimension: int, radius: str) -> None:
    actions = cover(shape, dimension, radius)
    far = float(Fraction(radius))
    assert farthest(actions, somewhere(shape, dimension)) <= far * (1 + 1e-12)
    # It is no cover for half the radius, and has no more actions than the remark allows.
    assert farthest(actions, somewhere(shape, dimension)) > far / 2
    assert actions.count <= (3 / far) ** dimension
    assert np.unique(actions.points, axis=0).shape == actions.points.shape
    if shape == "box":
        assert actions.count == math.ceil(1 / far * (1 - 1e-9)) ** dimension
        assert np.abs(actions.points).max() <= 1 / math.sqrt(dimension)


@pytest.mark.parametrize(
    ("shape", "dimension", "radius", "name"),
    [
        ("sphere", 2, "1/2", "shape"),
        ("ball", 0, "1/2", "dimension"),
        ("ball", 2, 0, "radius"),
        ("ball", 2, "nan", "radius"),
        ("ball", 2, 2, "radius"),
        ("ball", 20, "1/2", "radius = 1/2: needs a grid"),
        ("box", 2, "1/1000", "radius = 1/1000: needs a grid"),
    ],
)
def test_what_has_no_cover_is_refused(shape: Shape, dimension: int, radius: str, name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        cover(shape, dimension, radius)


def test_the_regret_against_the_whole_ball_is_that_of_the_cover_and_the_radius() -> None:
    theta, horizon = (0.48, -0.64), 200_000
    actions = cover("ball", 2, "1/5")
    world = LinearWorld(of=LinearModel(actions=actions, deviation="0.1"), theta=theta)
    policy = PhasedElimination(
        model=world.model, privatizer=AveragePrivatizer(trust="central", epsilon=10, delta="1/4")
    )
    run = play(policy, world, horizon=horizon, world=np.random.default_rng(1), rng=SeededRng(1))
    lost = math.hypot(*theta) - max(world.means)  # by the cover, a round
    assert 0 <= lost <= 0.2 * math.hypot(*theta)
    assert run.regret_per_round + lost < 0.25 * math.hypot(*theta)
    assert run.regret_per_round < 0.05
