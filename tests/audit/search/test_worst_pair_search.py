r"""Tests of the search for a pair: finds violations, tests only fresh runs, names errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from audit.claims import Claim
from audit.errors import TargetFailed
from audit.features.parse_feature import read_feature
from audit.outputs.output_parser import Outputs, draw_worlds, interleave
from audit.runs.draw_plan import Plan, Stream
from audit.search import worst_pair_search as module
from audit.search.neighbour_spaces import Space, key, read_space
from audit.search.worst_pair_search import SHARE, STREAM, SearchResult, training_runs
from audit.statistical_tests.prequential_fixed_runs_test import gather
from audit.targets.target import Block, Target
from audit.targets.target_syntax import as_target, read_target, target_of
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.mutants import mutated

ONE = Claim(epsilon=1)
RUNS = 200_000

# Entries of the catalogue that claim epsilon = 1, with the space to search. Thresholds are 0 and
# counts are not negative.
ENTRIES = {
    "sparse-vector-value-reused": "vector:dimension=6,low=-1,high=1",
    "sparse-vector-unscaled": "vector:dimension=5,low=-1,high=1",
    "sparse-vector-noiseless-answers": "vector:dimension=5,low=-1,high=1",
    "sparse-vector-endless": "vector:dimension=6,low=-1,high=1",
    "noisy-max-value": "vector:dimension=5,low=0,high=2",
    "noisy-max-half-noise": "vector:dimension=5,low=0,high=2",
}


def search(target: Target, space: Space, progress: Any = None, **more: Any) -> SearchResult:
    plan = Plan(claim=ONE, pair=(None, None), **{"seed": 7, **more})
    return module.search(target, plan, space, progress=progress)


def p_value(name: str, found: SearchResult, runs: int, seed: int) -> float:
    r"""The p-value of the claim on the found pair, from ``runs`` fresh runs."""
    target: Any = read_target(name)
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(runs, rng)
    in_b = int(worlds.sum())
    side_a = target.function(found.pair[0], runs - in_b, rng)
    side_b = target.function(found.pair[1], in_b, rng)
    return gather(interleave(side_a, side_b, worlds, rng), worlds, seed=seed).p_value(1)


@by_day(1)
@pytest.mark.parametrize("name", ENTRIES)
def test_the_search_finds_a_pair_that_refutes_with_nearly_every_seed(name: str) -> None:
    space, target, runs = read_space(ENTRIES[name]), read_target(name), effort(RUNS // 4, RUNS)
    first = effort(7, 100)
    refuted, seeds = 0, range(first, first + effort(1, 20))
    for seed in seeds:
        found = search(target, space, runs=runs, seed=seed)
        assert found.runs <= runs // SHARE
        assert space.neighbours(*found.pair)
        refuted += p_value(name, found, runs - found.runs, seed) <= 0.05
    assert refuted >= 0.95 * len(seeds)


@pytest.mark.parametrize("name", ["sparse-vector", "noisy-max"])
def test_a_correct_twin_is_not_refuted(name: str) -> None:
    alpha = buy_alpha(f"search: the pair found for {name}", "1e-9")
    target = read_target(name)
    space = read_space("vector:dimension=4,low=-1,high=1")
    found = search(target, space, runs=20_000)
    assert p_value(name, found, 15_000, 7) > alpha


def sharper_near_37(dataset: int, n: int, rng: np.random.Generator) -> Any:
    r"""The noise is smaller for datasets nearer to 37."""
    return np.rint(dataset + rng.laplace(0, 0.5 + abs(dataset - 37) / 10, n))


def test_small_steps_find_a_pair_that_no_pattern_contains() -> None:
    space = read_space("integer:low=0,high=100")
    found = search(as_target("sharp", sharper_near_37), space, runs=RUNS)
    nearest = min(abs(x - 37) for pair in space.patterns() for x in pair)
    assert max(abs(x - 37) for x in found.pair) <= 5 < nearest
    assert found.tried[0].score > max(tried.score for tried in found.tried[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder(Target):
    r"""Answers with randomness of its own, and records the seeds of each block."""

    blocks: list[Block] = field(default_factory=list)

    def draw(self, block: Block) -> Iterator[Outputs]:
        self.blocks.append(block)
        yield np.random.default_rng(block.seeds[0]).integers(2, size=len(block.worlds))


def test_every_draw_of_a_search_has_its_own_randomness() -> None:
    recorder = Recorder(spelling="recorder")
    search(recorder, read_space("integer:low=0,high=9"), runs=8000)
    keys = [seed.spawn_key for block in recorder.blocks for seed in block.seeds]
    assert len(set(keys)) == len(keys) > 10
    assert {first for first, *_ in keys} == {STREAM}
    # The seeds of an audit begin with the number of a stream.
    assert STREAM not in set(map(int, Stream))
    assert {seed.entropy for block in recorder.blocks for seed in block.seeds} == {7}


def test_a_search_uses_its_share_of_runs_and_counts_them() -> None:
    recorder = Recorder(spelling="recorder")
    heard: list[int] = []
    space = read_space("vector:dimension=3,low=0,high=1")
    found = search(recorder, space, runs=8000, progress=heard.append)
    drawn = sum(len(block.worlds) for block in recorder.blocks)
    assert found.runs == drawn == heard[-1] <= training_runs(8000)
    assert found.runs > 0.9 * training_runs(8000)
    assert heard == sorted(heard)
    assert sum(tried.runs for tried in found.tried) == drawn
    # Each candidate is tried once, and the chosen one comes first.
    assert len({key(tried.pair) for tried in found.tried}) == len(found.tried)
    assert found.tried[0].pair == found.pair
    alone = search(recorder, read_space("integer:low=0,high=1"), runs=1000)
    assert alone.pair == (0, 1)
    # A search is reproducible by its seed.
    target = read_target("noisy-max-value")
    one, again, other = (search(target, space, runs=2000, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def fails_at_two(dataset: Sequence[int], n: int, rng: np.random.Generator) -> Any:
    if sum(dataset) == 2:
        raise KeyError("two")
    return rng.integers(2, size=n)


def test_a_failing_target_names_the_dataset() -> None:
    target = as_target("two.py:f", fails_at_two)
    space = read_space("vector:dimension=2,low=0,high=1")
    with pytest.raises(TargetFailed) as caught:
        search(target, space, runs=1000)
    shown = str(caught.value)
    assert "in the search, on the dataset [1, 1]: raised KeyError: 'two'" in shown
    assert caught.value.dataset == "B"
    with pytest.raises(InvalidParameter, match=r"dataset A .* must be an integer"):
        search(read_target("discrete-laplace:scale=1"), space, runs=1000)


def hides_in_the_sum(dataset: int, n: int, rng: np.random.Generator) -> Any:
    # Only the sum of a row reveals the dataset; no row occurs twice.
    first = rng.integers(2**40, size=n)
    return np.stack((first, (dataset == 3) - first), axis=1)


def test_a_search_reads_outputs_through_features() -> None:
    target, space = as_target("f", hides_in_the_sum), read_space("integer:low=0,high=6")
    features = (read_feature("sum"),)
    found = search(target, space, runs=8000, features=features)
    assert 3 in found.pair


def test_a_search_with_too_few_runs_is_refused() -> None:
    for runs in (999, -5):
        with pytest.raises(InvalidParameter, match=r"must be >= 1,000, to leave enough runs"):
            training_runs(runs)


def test_the_score_of_a_private_mechanism_is_near_zero() -> None:
    r"""What chance explains is subtracted; a mutant without this reports a finding."""
    rng = np.random.default_rng(7)
    per_cell = rng.multinomial(4000, [1 / 200] * 200)
    counts = np.stack((in_a := rng.binomial(per_cell, 0.5), per_cell - in_a))
    score = module._advantage(counts, ONE.points, rng)
    greedy = mutated(module._advantage, "+ by_chance", "+ 0 * by_chance")
    assert abs(score) < 0.002
    assert greedy(counts, ONE.points, rng) > 5 * abs(score)
    # A delta is allowed.
    counts = np.array([[500, 0], [450, 50]])
    pure = module._advantage(counts, ONE.points, rng)
    assert pure > 0
    assert module._advantage(counts, Claim(epsilon=1, delta="0.2").points, rng) < 0 < pure


def few_of_three(data: Sequence[int], n: int, rng: np.random.Generator) -> Outputs:
    """Three floats, of which the last has a tenth of the noise it needs."""
    return np.asarray(data) + rng.normal(0, [40.0, 40.0, 0.5], (n, 3))


@pytest.mark.nightly
def test_vectors_are_searched_with_the_features_of_the_audit() -> None:
    space = read_space("vector:dimension=3,low=0,high=2,norm=l1", ONE.relation)
    for features in ((), (read_feature("learned"),)):
        found = search(target_of(few_of_three), space, runs=8000, features=features)
        assert found.pair[0][2] != found.pair[1][2]
