"""Tests of tables of running sums: equal to the streams of dpcore; sensitivity per user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from accounting.derive_guarantee import guarantee
from bandits.privatizers import continual_sums_per_arm as running_sums
from bandits.privatizers.continual_sums_per_arm import StreamPrivatizer, StreamRelease, Totals
from dpcore.continual_sums import DoublingSum, SquareRootSum, TreeSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import SeededRng
from tests.day_and_nightly import by_day, effort
from tests.support.bandits.worlds import not_none

HORIZON = 40
STREAM = {"tree": TreeSum, "doubling": DoublingSum}


def central(release: StreamRelease, horizon: int = HORIZON, sent: int = 1) -> StreamPrivatizer:
    return StreamPrivatizer(trust="central", epsilon=1, sent=sent, horizon=horizon, release=release)


class Scripted:
    """A noise source of a stream that returns given draws in order."""

    def __init__(self, draws: Sequence[int]) -> None:
        self.left: Iterator[int] = iter(draws)

    def sample(self, *, rng: object) -> int:
        del rng
        return next(self.left)


def streamed(
    release: str, outcomes: Sequence[int], draws: Sequence[int]
) -> list[tuple[float, int]]:
    """Value and count after each outcome of the stream with these draws."""
    setting = STREAM[release](horizon=HORIZON, noise=DiscreteLaplace(scale=1))
    object.__setattr__(setting, "noise", Scripted(draws))
    stream = setting.start(rng=SeededRng(1))
    return [(float(found.value), found.items) for found in map(stream.add, outcomes)]


def tabled(
    sums: Totals, outcomes: Integers, draws: Integers, cell: tuple[int, int] = (0, 0)
) -> list[tuple[float, int]]:
    place = np.array([cell[0] * sums.count.shape[1] + cell[1]])
    found = []
    for outcome, drawn in zip(outcomes, draws, strict=True):
        sums.add(place, np.array([outcome]), np.array([drawn]))
        found.append((float(sums.value[cell]), int(sums.count[cell])))
    return found


@pytest.mark.parametrize("release", ["tree", "doubling"])
def test_a_table_releases_the_values_of_the_stream(release: StreamRelease) -> None:
    world = np.random.default_rng(1)
    outcomes = world.integers(0, 2, HORIZON)
    sums = Totals(central(release), 2, [SeededRng(1), SeededRng(2)])
    draws = world.integers(-50, 50, HORIZON)
    if release == "doubling":  # drawn at the start, as sums of the closed blocks
        own = np.diff(sums.noise[2], prepend=0)
        draws[: len(own)] = own
    found = tabled(sums, outcomes, draws, (1, 0))
    assert found == streamed(release, outcomes.tolist(), draws.tolist())
    assert (sums.count[[0, 0, 1], [0, 1, 1]] == 0).all()  # the other cells are unchanged


@pytest.mark.parametrize("limit", [1 << 53, 0], ids=["floats", "integers"])
def test_a_factorised_table_equals_the_square_root_stream_of_blocks(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly A C^-1 (C x + z) = A x + A C^-1 z, in rational arithmetic."""
    monkeypatch.setattr(running_sums, "_EXACT_FLOATS", limit)
    setting = central("factorisation", horizon=4096)
    assert (setting.block, setting.items) == (4, 1024)
    sums = Totals(setting, 1, [SeededRng(1)])
    assert (sums.noise.dtype == np.int64) is (limit == 0)
    drawn = sums.noise[0].astype(np.int64)
    outcomes = np.random.default_rng(2).integers(0, 2, 40)
    found = tabled(sums, outcomes, np.zeros(40, dtype=np.int64))
    stream = SquareRootSum(horizon=1024, grid=setting.grid, noise=DiscreteLaplace(scale=1), high=4)
    object.__setattr__(stream, "noise", Scripted(drawn.tolist()))
    running = stream.start(rng=SeededRng(1))
    for block in range(10):
        total = running.add(int(outcomes[4 * block : 4 * block + 4].sum()))
        value, count = found[4 * block + 3]
        # The stream is rounded to 1/grid.
        assert abs(Fraction(value) - total.value) <= Fraction(501, 1000) / setting.grid
        assert count == 4 * (block + 1)
        assert found[4 * block + 2][1] == 4 * block  # within a block the last value is repeated


def test_local_and_plain_tables_are_sums() -> None:
    world = np.random.default_rng(3)
    outcomes, draws = world.integers(0, 2, 9), world.integers(-9, 9, 9)
    for trust, wanted in (("local", outcomes + draws), ("none", outcomes)):
        setting = StreamPrivatizer(trust=trust, epsilon=1, sent=1, horizon=9)  # type: ignore[arg-type]  # words of a Literal, or what is refused
        found = tabled(Totals(setting, 1, [SeededRng(1)]), outcomes, draws)
        assert found == [(float(s), i + 1) for i, s in enumerate(np.cumsum(wanted))]


def nodes_moved(release: StreamRelease, horizon: int, at: int) -> float:
    """The total change of the noisy sums, one per draw, if outcome ``at`` changes from 0 to 1."""
    found = []
    for outcome in (0, 1):
        sums = Totals(central(release, horizon), 1, [SeededRng(1)])
        if release == "doubling":
            sums.noise = np.zeros_like(sums.noise)
        outcomes = np.zeros(horizon, dtype=np.int64)
        outcomes[at] = outcome
        found.append(tabled(sums, outcomes, np.zeros(horizon, dtype=np.int64)))
    blocks: set[tuple[int, int]] = set()
    for t in range(1, horizon + 1):
        end = t if release == "tree" else 1 << (t.bit_length() - 1)
        while end:
            size = end & -end if release == "tree" else max(end // 2, 1)
            blocks.add((end - size, end))
            end -= size

    moved: list[float] = [0.0, *(one[0] - none[0] for none, one in zip(*found, strict=True))]
    return sum(abs(moved[end] - moved[start]) for start, end in blocks)


@pytest.mark.parametrize("release", ["tree", "doubling"])
@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 13])
def test_the_sensitivity_agrees_with_a_replay_over_neighbours(
    release: StreamRelease, horizon: int
) -> None:
    setting = central(release, horizon, sent=3)
    moved = max(nodes_moved(release, horizon, at) for at in range(horizon))
    assert moved == sum(setting.moves)
    law = setting.noise
    assert isinstance(law, DiscreteLaplace)
    assert law.scale == 3 * int(moved)  # epsilon = 1


@pytest.mark.parametrize("release", ["tree", "doubling", "factorisation"])
def test_one_outcome_changes_the_sums_by_their_sensitivity(release: StreamRelease) -> None:
    setting = central(release, horizon=1000)
    kind = {**STREAM, "factorisation": SquareRootSum}[release]
    grid = {"grid": setting.grid} if release == "factorisation" else {}
    assert setting.moves == kind(horizon=1000, noise=DiscreteLaplace(scale=1), **grid).moves


@by_day(1)
@pytest.mark.parametrize("sent", [1, 2, 8])
def test_the_guarantee_is_derived_from_the_noise(sent: int) -> None:
    """The guarantee is computed from the noise, so omitting the factor for the levels or for
    ``sent`` is detected.
    """
    for trust, release, wanted in (
        ("local", "tree", sent),
        ("central", "tree", 17 * sent),
        ("central", "doubling", sent),
    ):
        setting = StreamPrivatizer(
            trust=trust, epsilon="1/2", sent=sent, horizon=10**5, release=release,  # type: ignore[arg-type]  # words of a Literal, or what is refused
        )  # fmt: skip
        assert setting.noise == DiscreteLaplace(scale=2 * wanted)
        assert not_none(setting.guarantee()).pure().upper == Fraction(1, 2)
    root = not_none(central("factorisation", horizon=effort(10, 100), sent=sent).guarantee())
    assert 0.99 < root.epsilon("1e-6").upper_float <= 1


def test_the_papers_noise_for_four_rounds_costs_more_than_epsilon() -> None:
    """Erratum: Lemma 1 counts log2 T levels, but T = 4 has 3: 1.5 epsilon without the factor 2."""
    setting = central("tree", horizon=4)
    assert setting.noise == DiscreteLaplace(scale=3)
    printed = TreeSum(horizon=4, noise=DiscreteLaplace(scale=2))
    assert guarantee(printed).pure().upper == Fraction(3, 2)
