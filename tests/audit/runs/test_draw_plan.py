"""Tests of `audit.runs.draw_plan`: blocks, pairs, and independent random seeds for each block."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from audit.claims import LOOKS, TRAINING
from audit.errors import TargetFailed
from audit.features.parse_feature import Feature, read_feature
from audit.outputs.output_parser import draw_worlds, interleave
from audit.runs.draw_plan import Stream, block_of, draw_block, probe_of, stream, worlds_of
from audit.sample_layer import draw, sample
from audit.statistical_tests.anytime_valid_test import watch
from audit.statistical_tests.prequential_fixed_runs_test import gather
from audit.targets.target import Vectorised
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.support.audit.plans import plan
from tests.support.dpcore.refusals import refused

PAIRS = ((0, 1), (1, 0), (5, 6))


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("pairs", [1, 2, 3])
@pytest.mark.parametrize("runs", [3, 31, 32, 33, 100, 1000, 123_457])
def test_sizes_of_blocks_add_up_to_the_planned_runs(
    runs: int, pairs: int, sequential: bool
) -> None:
    planned = plan(runs=runs, sequential=sequential, pairs=PAIRS[:pairs])
    blocks = list(planned.blocks())
    assert [block.index for block in blocks] == list(range(len(blocks)))
    ends = list(itertools.accumulate(block.runs for block in blocks))
    assert [block.drawn for block in blocks] == [0, *ends[:-1]]
    assert ends[-1] == runs
    assert all(1 <= block.runs <= 8192 for block in blocks)
    shares = [sum(b.runs for b in blocks if b.pair == i) for i in range(pairs)]
    assert max(shares) - min(shares) <= 1
    for i, share in enumerate(shares):
        mine = [block.runs for block in blocks if block.pair == i]
        assert mine[0] == min(share, TRAINING)
        if sequential:
            # Every look of the anytime-valid test is at the end of a block.
            assert set(LOOKS) & set(range(share)) <= set(itertools.accumulate(mine))


@pytest.mark.parametrize("runs", [TRAINING, 48, 100, 5000])
def test_no_run_of_a_pair_s_first_block_is_tested(runs: int) -> None:
    coins = np.arange(runs) % 2 == 0
    first = next(plan(runs=runs).blocks()).runs
    assert first == TRAINING
    assert sum(trial.runs for trial in gather(coins, coins, seed=7).trials) <= runs - first
    assert not watch(1).update(coins, coins).path[:TRAINING].any()


def test_an_invalid_plan_is_refused_by_name() -> None:
    with refused("runs"):
        plan(runs=2, pairs=PAIRS)
    with refused("features"):
        plan(features=(read_feature("sign"), read_feature("sign")))


# -- the randomness of a block ----------------------------------------------------------------


def test_no_two_purposes_or_blocks_share_randomness() -> None:
    planned = plan(runs=2000)
    blocks = [block_of(planned, block) for block in planned.blocks()]
    keys = [key for block in blocks for key in (*block.seeds, block.mixing)]
    keys += [stream(7, Stream.WORLDS, block.index) for block in planned.blocks()]
    probe = probe_of(planned)
    keys += [*probe.seeds, probe.mixing, stream(7, Stream.TEST)]
    states = {tuple(key.generate_state(4)) for key in keys}
    assert len(states) == len(keys)
    # Children that a target may spawn from a seed are distinct too.
    children = {tuple(key.spawn(1)[0].generate_state(4)) for key in keys}
    assert len(children | states) == 2 * len(keys)


def test_datasets_of_runs_are_fair_coins_and_independent_between_blocks() -> None:
    alpha = float(buy_alpha("worlds of blocks are fair coins", "1e-9"))
    planned = plan(runs=200_000, seed=11)
    worlds = [worlds_of(planned, block) for block in planned.blocks()]
    first, second = worlds[-3], worlds[-2]
    bound = np.sqrt(np.log(2 * 3 / alpha) / 2)  # Hoeffding's inequality, for three means
    everything = np.concatenate(worlds)
    for coins in (everything, first ^ second, everything[:-1] ^ everything[1:]):
        assert abs(coins.mean() - 0.5) * np.sqrt(len(coins)) < bound


def test_a_block_does_not_depend_on_the_blocks_before_it() -> None:
    planned = plan(runs=3000)
    target = read_target("discrete-laplace:scale=1")
    whole = draw(target, planned)
    *_, last = planned.blocks()
    alone = draw_block(target, block_of(planned, last))
    assert np.array_equal(alone.outputs, whole.outputs()[last.drawn :])


# -- several pairs, and features ---------------------------------------------------------------


def shows_five(dataset: int, n: int, rng: np.random.Generator) -> Any:
    """Private unless the dataset is 5 or 6."""
    noise = rng.geometric(0.632, n) - rng.geometric(0.632, n)
    return dataset + noise * (dataset < 5)


FIVE = Vectorised(spelling="shows_five", function=shows_five)


@pytest.mark.parametrize("sequential", [False, True])
def test_the_revealing_pair_is_found_among_several(sequential: bool) -> None:
    alpha = buy_alpha(f"a pair among several, sequential={sequential}", "1e-9")
    planned = plan(runs=3000, pairs=PAIRS, sequential=sequential, alpha=alpha)
    report = sample(FIVE, planned)
    assert report.verdict == "refuted"
    assert report.pair == (5, 6)
    assert [outcome.refuted for outcome in report.outcomes] == [False, False, True]
    assert [outcome.pair for outcome in report.outcomes] == [0, 1, 2]
    assert report.pairs == PAIRS
    assert "3 of 3: A = 5, B = 6 (replace)" in str(report)
    if not sequential:
        assert report.runs == 3000
    else:
        assert report.runs < 600
        assert report.stopped.startswith("the evidence sufficed at run ")


def test_a_feature_that_is_not_a_fixed_map_is_refused() -> None:
    counter = itertools.count()
    bad = Feature(name="when", apply=lambda outputs: [next(counter) for _ in outputs])
    with pytest.raises(InvalidParameter, match="when"):
        sample(FIVE, plan(runs=500, features=(bad,)))


def test_runs_that_a_failing_feature_could_not_read_are_counted() -> None:
    def fails(outputs: Any) -> Any:
        if len(outputs) > 100:
            raise TargetFailed("feature short", "too many")
        return [0 for _ in outputs]

    report = sample(FIVE, plan(runs=5000, features=(Feature(name="short", apply=fails),)))
    assert report.error is not None
    assert report.error.reason == "too many"
    assert report.runs > 400
    assert report.verdict is None


def test_interleave_keeps_each_dataset_and_refuses_other_sizes() -> None:
    rng = np.random.default_rng(0)
    worlds = draw_worlds(50, rng)
    in_b = int(worlds.sum())
    both = interleave(np.arange(50 - in_b), -1.0 - np.arange(in_b), worlds, rng).astype(float)
    assert sorted(both[~worlds]) == list(range(50 - in_b))
    assert (both[worlds] < 0).all()
    with pytest.raises(InvalidParameter, match="world_a: must contain 0 outputs"):
        interleave([1], [2, 3], np.array([True, True]), rng)
    with pytest.raises(InvalidParameter, match=r"world_b: must contain outputs of shape \(2,\)"):
        interleave([[1, 2]], [[1]], np.array([True, False]), rng)
