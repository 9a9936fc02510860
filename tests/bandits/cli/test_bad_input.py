"""What no run can be made of is refused by name, before anything is played or left behind."""

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

PLACES = ("--output", "out", "--resume", "st")
SMALL = ("-T", "3000", "--instances", "2", "--arms", "4", "--algorithms")

NOT_MADE: dict[str, str] = {
    "se,dist-dp-se --epsilon=1e20": "--epsilon = 1e20: must lie in [1e-6, 1000]",
    "se,dist-dp-se --epsilon=1e400": "--epsilon = 1e400: must lie in [1e-6, 1000]",
    "se --epsilon=1e-400": "--epsilon = 1e-400: must lie in [1e-6, 1000]",
    "se,sdp-ae --epsilon=1e-5": "--epsilon = 1e-5: must be >= 0.01 for sdp-ae",
    "vb-sdp-ae --epsilon=1 --delta=1e-31": "--delta = 1e-31: must be >= 1e-30 for vb-sdp-ae",
    "se,dist-rdp-se:s=1e12 --epsilon=1": "--epsilon (for dist-rdp-se:s=1000000000000) = 1: "
    "it would need a precision of ",
    "se --epsilon=1 --jobs 1e3000": "--jobs = 1e3000: must be a whole number in [1, 1024]",
    "se --epsilon=1 --schedule=": "--schedule = : must be one of exact, paper, released",
    "dpe --epsilon=1": "--algorithms = dpe: is played in worlds with linear rewards",
    "se --epsilon=1 --alpha=0.5": "--alpha = 0.5: has no effect in cz/easy: leave it out",
    "se --epsilon=1 --users=50": "--users = 50: has no effect in cz/easy: leave it out",
    "se --epsilon=1 --calibration=paper": "--calibration = paper: has no effect in cz/easy",
    "dp-se,sdp-ae --epsilon=1 --schedule paper": "--schedule = paper: has no effect on dp-se, sdp",
}


@pytest.mark.parametrize("line", NOT_MADE)
def test_what_cannot_be_made_leaves_nothing_behind(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    def never(*args: object) -> None:
        raise AssertionError

    monkeypatch.setattr("bandits.experiments.playing.play_task", never)
    answer = bandit("run", "cz/easy", *PLACES, *SMALL, *line.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {NOT_MADE[line]}"), answer.err
    assert answer.err.count("\n") == 1
    assert "defect" not in answer.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "out", "--resume", "."], "--resume = .: is not a plain file"),
        (["--output", ""], "--output = '': must name a place"),
        (["--resume", ""], "--resume = '': must name a place"),
        (["--data", " "], "--data = ' ': must name a place"),
        (["--output", "q", "--resume", "st"], "--output = q/regret.csv: is a directory"),
        (["--output", "pipe", "--resume", "st"], "--output = pipe: is not a folder"),
        (["--output", "out", "--resume", "pipe"], "--resume = pipe: is not a plain file"),
        (["--output", "out", "--resume", "/dev/full"], "--resume = /dev/full: is not a plain"),
        (["--output", "out", "--resume", "zeros"], "--resume = zeros: is not the state"),
    ],
)
def test_refused_places_leave_nothing_behind(bandit: Bandit, words: list[str], said: str) -> None:
    Path("q/regret.csv").mkdir(parents=True)
    os.mkfifo("pipe")
    Path("zeros").write_bytes(bytes(100_000))
    before = sorted(Path().rglob("*"))
    answer = bandit("run", "cz/easy", *SMALL, "se", "--epsilon", 1, *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {said}"), answer.err
    assert sorted(Path().rglob("*")) == before
    assert Path("zeros").read_bytes() == bytes(100_000)


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
