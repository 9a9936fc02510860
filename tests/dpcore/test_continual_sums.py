"""Tests of running sums: sensitivities by replay over all neighbours; errors; refusals."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore import (
    DiscreteGaussian,
    DiscreteLaplace,
    InvalidParameter,
    Poisson,
    Relation,
    Scope,
    Unrepresentable,
)
from dpcore.continual_sums import ContinualSum, DoublingSum, SquareRootSum, TreeSum, column, rounded
from tests.dpcore.test_forks import in_child
from tests.support.dpcore.refusals import refusal, refused
from tests.support.dpcore.running_sums import BareLevelTree, RedrawnTree, alignment, replayed
from tests.support.dpcore.scripted_rng import Acting

LAPLACE = DiscreteLaplace(scale=3)
KINDS: tuple[type[ContinualSum], ...] = (TreeSum, DoublingSum, SquareRootSum)
ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def neighbours(setting: ContinualSum) -> Iterator[tuple[list[int], list[int]]]:
    """Yield every stream of the horizon, with every other value in every place."""
    values = range(int(setting.low), int(setting.high) + 1)
    for stream in itertools.product(values, repeat=setting.horizon):
        for place, value in itertools.product(range(setting.horizon), values):
            if value != stream[place]:
                yield [*stream], [*stream[:place], value, *stream[place + 1 :]]


def amounts(setting: ContinualSum) -> tuple[int, ...]:
    amount = setting.sensitivity.amount
    assert isinstance(amount, tuple)
    return amount


def moved(setting: ContinualSum, seed: int = 1) -> list[list[int]]:
    """For all neighbours, return the sizes by which draws must move, the largest first."""
    world = random.Random(seed)
    found = set()
    for one, other in neighbours(setting):
        tape = [world.randint(-40, 40) for _ in one]
        sizes = sorted((abs(move) for move in alignment(setting, one, other, tape)), reverse=True)
        found.add(tuple(size for size in sizes if size))
    return [[*sizes] for sizes in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [1, 2, 3, 5])
def test_the_sensitivity_agrees_with_a_replay_of_all_neighbours(
    kind: type[ContinualSum], horizon: int
) -> None:
    setting = kind(horizon=horizon, noise=LAPLACE, high=1 if horizon > 3 else 2)
    box = sorted(amounts(setting), reverse=True)
    found = moved(setting)
    assert box in found  # attained, so exact
    for sizes in found:
        assert len(sizes) <= len(box)
        assert all(size <= bound for size, bound in zip(sizes, box, strict=False))


def test_redrawn_noise_and_a_level_without_noise_are_detected() -> None:
    redrawn = RedrawnTree(horizon=4, noise=LAPLACE)
    assert max(sum(sizes) for sizes in moved(redrawn)) > sum(amounts(redrawn))
    with pytest.raises(AssertionError, match="no noise hides"):
        moved(BareLevelTree(horizon=4, noise=LAPLACE))


def test_the_sensitivity_follows_from_horizon_relation_range_and_unit() -> None:
    for horizon in (1, 2, 3, 4, 5, 7, 8, 9, 1000, 1023, 1024, 1025):
        levels = [2**k for k in range(20) if 2**k <= horizon]
        tree = TreeSum(horizon=horizon, noise=LAPLACE)
        assert tree.sensitivity.amount == (1,) * len(levels)
        assert DoublingSum(horizon=horizon, noise=LAPLACE).sensitivity.amount == (1,)
    both: dict[str, Any] = {"low": "-1/4", "high": "1/2", "unit": "1/8"}
    assert TreeSum(horizon=1, noise=LAPLACE, **both).sensitivity.amount == (6,)
    scoped = TreeSum(horizon=1, noise=LAPLACE, scope=ADD_REMOVE, **both)
    assert scoped.sensitivity.amount == (4,)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_every_total_is_the_sum_of_its_items(
    kind: type[ContinualSum],
) -> None:
    setting = kind(horizon=13, noise=LAPLACE, low=-1, high=2, unit="1/4")
    items = [Fraction(i % 13 - 4, 4) for i in range(0, 13 * 5, 5)]
    released, _ = replayed(setting, items, [])
    for taken, total in enumerate(released, 1):
        assert total.items == setting.covered(taken)
        assert total.value == sum(items[: total.items])
    largest = [1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8]
    wanted = largest if kind is DoublingSum else [*range(1, 14)]
    assert [total.items for total in released] == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_agrees_with_the_response_to_each_draw(kind: type[ContinualSum]) -> None:
    setting = kind(horizon=11, noise=DiscreteGaussian(sigma_squared=50_000), unit="1/2")
    big = 10**9
    grid = setting.grid if isinstance(setting, SquareRootSum) else 1
    squares = np.zeros(11)
    for draw in range(11):
        released, _ = replayed(setting, [0] * 11, [0] * draw + [big])
        squares += [float(total.value / big) ** 2 for total in released]
    for taken in range(1, 12):
        found = setting.mean_squared_error(taken)
        expected = 50_000 * squares[taken - 1]
        root, aside = expected**0.5, 0.5 / (2 * grid) * (kind is SquareRootSum) + 1e-6
        assert (root - aside) ** 2 <= found.upper
        assert found.lower <= (root + aside) ** 2
        assert abs(float(found.upper) ** 0.5 - root) <= aside
    assert setting.mean_squared_error(0).upper == 0


def test_the_coefficients_agree_with_the_matrices() -> None:
    setting = SquareRootSum(horizon=50, noise=DiscreteGaussian(sigma_squared=10**6))
    root = [1.0]
    for k in range(49):
        root.append(root[-1] * (2 * k + 1) / (2 * k + 2))
    assert np.abs(np.array(setting.moves) / setting.grid - root).max() <= 1 / setting.grid
    C = sum(c * np.eye(50, k=-k) for k, c in enumerate(setting.moves))
    B = np.tril(np.ones((50, 50))) @ np.linalg.inv(C)
    expected = 1000 * float(np.sqrt((B[49] ** 2).sum()))
    found = setting.mean_squared_error(50)
    assert float(found.lower) ** 0.5 <= expected <= float(found.upper) ** 0.5
    assert column(600, 16)[-1] == 1  # never 0: each draw hides an item


def exactly_rounded(drawn: list[int], horizon: int, grid: int) -> int:
    """The same with Fractions alone: h c (1 - q) = grid, solved term by term."""
    c = column(horizon, grid)
    product = [c[0], *(c[k] - c[k - 1] for k in range(1, horizon))]
    h: list[Fraction] = []
    for k in range(horizon):
        rest = sum((product[j] * h[k - j] for j in range(1, k + 1)), Fraction(0))
        h.append(((grid if k == 0 else 0) - rest) / product[0])
    value = sum((h[k] * z for k, z in enumerate(reversed(drawn))), Fraction(0))
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


@pytest.mark.parametrize(("horizon", "grid"), [(1, 16), (2, 16), (9, 16), (40, 128)])
def test_rounding_is_exact_even_at_ties_and_from_one_bit(horizon: int, grid: int) -> None:
    world = random.Random(5)
    tried = [[world.randint(-9, 9) for _ in range(1 + i % horizon)] for i in range(60)]
    tried += [[z, 0] for z in range(-5, 6)] if horizon > 1 else []
    for drawn in tried:
        wanted = exactly_rounded(drawn, horizon, grid)
        assert rounded(drawn, horizon, grid) == rounded(drawn, horizon, grid, 1) == wanted
    assert exactly_rounded([7], 1, 16) == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_item_is_refused_before_anything_is_drawn(kind: type[ContinualSum]) -> None:
    rng = Acting(lambda: None)
    stream = kind(horizon=2, noise=LAPLACE).start(rng=rng)
    stream.add(1)
    before, asked = stream.total, rng.asked
    bad: list[Any] = [2, -1, "1/2", float("nan"), float("inf"), True, None, "one", [1], 10**40]
    for item in bad:
        with pytest.raises(InvalidParameter, match="item"):
            stream.add(item)
    assert (stream.total, stream.taken, rng.asked) == (before, 1, asked)
    assert asked > 0
    stream.add(1)


def test_a_refused_draw_keeps_the_stream_and_another_error_ends_it() -> None:
    errors: list[Exception] = [Unrepresentable("no bits"), OSError("no entropy")]

    def fail() -> None:
        if errors:
            raise errors.pop(0)

    stream = TreeSum(horizon=2, noise=LAPLACE).start(rng=Acting(fail))
    with pytest.raises(Unrepresentable):
        stream.add(1)
    with pytest.raises(OSError, match="no entropy"):
        stream.add(1)
    assert "start a new stream" in refusal(lambda: stream.add(1))
    assert stream.taken == 0


def test_a_reentrant_call_during_a_draw_is_refused() -> None:
    found: list[Exception] = []

    def again() -> None:
        try:
            stream.add(1)
        except InvalidParameter as error:
            found.append(error)

    stream = TreeSum(horizon=3, noise=LAPLACE).start(rng=Acting(again))
    assert stream.add(1).items == 1
    assert found
    assert "another item is being added" in str(found[0])


def test_a_stream_discarded_during_an_item_is_not_restored() -> None:
    # As in the child of a fork by a signal handler during the draw: the hooks have already run.
    def forget() -> None:
        stream.forget()

    stream = TreeSum(horizon=3, noise=LAPLACE).start(rng=Acting(forget))
    for _ in range(2):
        assert "fork" in refusal(lambda: stream.add(1))
    assert stream.taken == 0


def test_a_stream_is_refused_in_a_forked_process_and_cannot_be_copied() -> None:
    stream = TreeSum(horizon=2, noise=LAPLACE).start()
    stream.add(1)

    def asked() -> list[int]:
        assert "forked" in refusal(lambda: stream.add(1))
        return [stream.taken]

    assert in_child(asked) == [1]
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            make(stream)
    assert stream.add(1).items == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"horizon": 0}, "horizon"),
        ({"horizon": 2**41}, "horizon"),
        ({"noise": Poisson(mean=100)}, "noise"),
        ({"low": 1}, "high"),
        ({"low": "nan"}, "low"),
        ({"high": "1/2"}, "high"),
        ({"unit": 0}, "unit"),
        ({"scope": "user"}, "scope"),
        ({"low": 1, "high": 2, "scope": ADD_REMOVE}, "low, high"),
    ],
)
def test_a_bad_configuration_is_refused_by_name(
    kind: type[ContinualSum], change: dict[str, Any], named: str
) -> None:
    with refused(named):
        kind(**{"horizon": 4, "noise": LAPLACE, **change})
