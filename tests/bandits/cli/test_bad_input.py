"""Experiments that can be made, and comparisons of rows that no run wrote."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bandits.audited.combinatorial_view import PAIR
from bandits.audited.linear_view import MODEL
from bandits.experiments.experiment import Experiment
from bandits.experiments.summary import promises_of
from bandits.policies.registry import ALGORITHMS, read_algorithm
from bandits.policies.setting import Setting
from bandits.rounds import cucb_of
from dpcore.errors import InvalidParameter, PrecisionExhausted
from tests.support.bandits.command import Bandit

PLAYED = {"arms": "cz/easy", "linear": "lzj/table2", "combinatorial": "csb/topk"}
"""A world of each kind."""


def test_no_command_is_help_and_no_empty_error(bandit: Bandit) -> None:
    answer = bandit()
    assert (answer.code, answer.err) == (2, "")
    assert "Start with dpcore bandit run" in answer.out


@pytest.mark.nightly
@pytest.mark.parametrize("kind", PLAYED)
@pytest.mark.parametrize("epsilon", ["1000", "1/10"])
def test_every_algorithm_is_made_at_both_ends(epsilon: str, kind: str) -> None:
    names = tuple(entry.name for entry in ALGORITHMS if entry.world == kind)
    ends = Experiment(
        preset=PLAYED[kind],
        algorithms=names,
        epsilons=(epsilon,),
        horizon=10_000,
        instances=1,
    )
    assert len(promises_of(ends, 10)) == len(names)


def test_what_cannot_be_promised_names_its_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*args: object) -> None:
        raise PrecisionExhausted("a search left every range")

    small = Experiment(
        preset="cz/easy", algorithms=("se",), epsilons=(1,), horizon=100, instances=1
    )
    monkeypatch.setattr(Experiment, "guarantee", lost)
    with pytest.raises(InvalidParameter, match="nothing can be promised") as refused:
        promises_of(small, 10)
    assert refused.value.argument == "epsilon (for se)"


def test_a_schedule_without_effect_is_known() -> None:
    def policies(name: str) -> list[Any]:
        algorithm = read_algorithm(name)
        super_arms = algorithm.entry.world == "combinatorial"
        made: Any = partial(cucb_of, algorithm) if super_arms else algorithm.policy
        model = PAIR if super_arms else MODEL
        setting = Setting(epsilon=1, delta="1e-6", horizon=10_000, arms=2, model=model)
        return [made(replace(setting, schedule=word)) for word in ("paper", "released")]

    for entry in ALGORITHMS:
        paper, released = policies(entry.name)
        one = Experiment(
            preset=PLAYED[entry.world],
            algorithms=(entry.name,),
            epsilons=(1,),
            horizon=1000,
            instances=1,
        )
        assert one.scheduled == (paper != released), entry.name


# -- compare ----------------------------------------------------------------------------------

ROW: dict[str, Any] = {"algorithm": "se", "epsilon": 1.0, "by_instance": [0.1, 0.2]}
HEAD: dict[str, Any] = {
    "schema": "dpcore-bandit/1", "preset": "x", "arms": 2, "horizon": 10, "data": None
}  # fmt: skip


def stored(name: str, *rows: dict[str, Any]) -> str:
    Path(name).write_text(json.dumps({**HEAD, "rows": rows}))
    return name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"by_instance": [10**400]}, "a regret per round outside of [-1000000, 1000000]"),
        ({"by_instance": [1e308] * 3}, "a regret per round outside of [-1000000, 1000000]"),
        ({"by_instance": [float("nan")]}, "a regret per round outside of [-1000000, 1000000]"),
        ({"by_instance": []}, "a row without regret"),
        ({"by_instance": "0.5"}, "a row without regret"),
        ({"by_instance": [True]}, "a regret per round"),
        ({"algorithm": ["se"]}, "an algorithm that is no name"),
        ({"epsilon": float("nan")}, "an epsilon that is no number > 0"),
        ({"epsilon": 10**400}, "int too large"),
        ({"epsilon": -1}, "an epsilon that is no number > 0"),
    ],
)
def test_rows_that_no_run_wrote_are_refused(
    bandit: Bandit, change: dict[str, Any], words: str
) -> None:
    stored("good", ROW)
    answer = bandit("compare", "good", stored("bad", {**ROW, **change}))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: B = bad: holds what dpcore bandit run does not write")
    assert words in answer.err


def test_a_row_twice_and_a_pipe_are_refused(bandit: Bandit) -> None:
    answer = bandit("compare", stored("good", ROW), stored("bad", ROW, ROW))
    assert "(an algorithm with the same epsilon twice)" in answer.err
    os.mkfifo("pipe")
    assert bandit("compare", "pipe", "good").err == "error: A = pipe: is not a plain file\n"


def test_hardly_any_regret_is_no_denominator(bandit: Bandit) -> None:
    tiny = stored("tiny", {**ROW, "by_instance": [5e-324, 5e-324]})
    (row,) = bandit("compare", stored("good", ROW), tiny, "--json").json["rows"]
    assert (row["ratio"], row["standard_error"]) == (None, None)


def test_rows_of_one_alone_are_named(bandit: Bandit) -> None:
    one = stored("one", ROW, {**ROW, "algorithm": "dp-se"})
    other = stored("other", {**ROW, "epsilon": 2.0}, {**ROW, "algorithm": "dp-se"})
    found = bandit("compare", one, other, "--json").json
    assert [row["algorithm"] for row in found["rows"]] == ["dp-se"]
    assert found["unmatched"] == [
        {"in": "A", "algorithm": "se", "epsilon": 1.0},
        {"in": "B", "algorithm": "se", "epsilon": 2.0},
    ]
    lines = bandit("compare", one, other).out.splitlines()
    assert lines[-2:] == ["Only in A: se at epsilon 1.", "Only in B: se at epsilon 2."]
