r"""Tests of the feature ``time``, the duration of a call as an output."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

import audit
import audit.targets.target
from audit.features.parse_feature import read_feature
from audit.sample_layer import draw
from audit.targets.target import Scalar
from audit.targets.target_syntax import as_target
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.audit.targets.test_target import block
from tests.support.audit import plans
from tests.support.dpcore.mutants import mutated

ALPHA = buy_alpha("time: an even clock refutes nothing", "1e-9")


class Clock:
    """A fake clock; a target sets the duration of a call by advancing ``now``."""

    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(audit.targets.target, "time", found)
    return found


def test_a_time_that_depends_on_the_data_is_refuted_and_an_even_one_is_not(clock: Clock) -> None:
    def telling(value: int, rng: np.random.Generator) -> int:
        clock.now += int(rng.integers(1000)) + 900 * value
        return int(rng.integers(2))

    def even(value: int, rng: np.random.Generator) -> int:
        clock.now += int(rng.integers(1000))
        return int(rng.integers(2))

    def found(target: Any, **options: Any) -> Any:
        return audit.audit(
            target, "epsilon=1", pair=(0, 1), runs=2000, seed=7, confidence=1 - ALPHA, **options
        )

    told = found(telling, features=["identity", "time"])
    assert told.refuted
    assert "time(output)" in str(told.witness)
    assert not told.repeatable
    assert told.warnings[0].startswith("times depend on this machine")
    untimed, timed = found(telling), found(even, features=["identity", "time"])
    assert (untimed.verdict, timed.verdict) == ("not_refuted", "not_refuted")
    said = [dict(each.statement().rows)["not tested"] for each in (untimed, timed)]
    assert said[0] == "other pairs of datasets, and the time of a call (--feature time)"
    assert said[1] == "other pairs of datasets"
    assert "not tested" not in dict(told.statement().rows)


def test_time_is_refused_for_many_outputs_per_call_in_a_search_and_in_a_chain() -> None:
    options: Any = {"runs": 400, "features": ["time"]}
    for target in ("half-scale", "discrete-laplace:scale=1", "exec:true"):
        with pytest.raises(InvalidParameter, match="program, noise or a vectorised function"):
            audit.audit(target, "epsilon=1", pair=(0, 1), layers="sample", **options)
    options["search"] = "integer:low=0,high=3"
    with pytest.raises(InvalidParameter, match="cannot be combined with a search"):
        audit.audit(lambda value, rng: value + rng.laplace(), "epsilon=1", **options)
    with pytest.raises(InvalidParameter, match="--feature time --feature identity"):
        read_feature("time+identity")
    assert read_feature("time+sign").apply([("x", 90)]) == [1]


def test_timed_calls_draw_from_one_generator_in_random_order() -> None:
    # With two generators, one had better cache locality: a call whose time is independent of the
    # data was refuted in one audit of six.
    handed: list[tuple[int, np.random.Generator]] = []

    def noted(value: int, rng: np.random.Generator) -> float:
        handed.append((value, rng))
        return float(rng.random())

    for timed in (True, False):
        handed.clear()
        features = (read_feature("time"),) if timed else ()
        drawn = draw(as_target("noted", noted), plans.plan(runs=600, features=features))
        last = dict(handed)
        assert (last[0] is last[1]) == timed
        outputs = [each[0] if timed else each for each in drawn.outputs()]
        assert len(set(outputs)) == 600  # no draw occurs twice
        if timed:
            seen = [value for value, _ in handed]
            assert seen == [int(world) for world in drawn.worlds(0)]
            assert 200 < sum(a != b for a, b in pairwise(seen)) < 400


def made_last_and_handed_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each run, the dataset that was copied last and the dataset of the call."""
    made: list[int] = []

    def noting(_: str, dataset: int) -> Any:
        def make() -> int:
            made.append(dataset)
            return dataset

        return make

    monkeypatch.setattr(audit.targets.target, "copies", noting)
    handed: list[tuple[int, int]] = []

    def noted(value: int) -> int:
        handed.append((made[-1], value))
        return 0

    target = as_target("noted", noted)
    timed = replace(block((0, 1), runs=2000, seed=5), timed=True)
    assert len(list(target.draw(timed))) == len(handed) == 2000
    assert sorted(made) == [0] * 2000 + [1] * 2000
    return handed


def test_the_order_of_the_copies_is_independent_of_the_dataset_of_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # If dataset B is always copied last, it has better cache locality and correct targets are
    # refuted.
    def p_value() -> float:
        handed = made_last_and_handed_over(monkeypatch)
        table = [[handed.count((last, world)) for world in (0, 1)] for last in (0, 1)]
        return float(stats.fisher_exact(table).pvalue) if all(map(sum, table)) else 0.0

    assert p_value() > buy_alpha("time: the copy made last", "1e-9")
    old = mutated(Scalar.draw, "(order[i], 1 - order[i])", "(0, 1)")
    monkeypatch.setattr(Scalar, "draw", old)
    assert p_value() == 0.0
