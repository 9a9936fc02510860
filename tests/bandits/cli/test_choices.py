"""Options that decide one thing each; a printed epsilon is no smaller than was asked for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from bandits.cli import render
from bandits.experiments import curves
from bandits.experiments.curves import Line
from bandits.experiments.experiment import Experiment, float_up
from bandits.policies.registry import read_algorithm
from bandits.policies.setting import PAPER, RELEASED, Setting
from bandits.radius.radius import PaperRadius
from dpcore.errors import InvalidParameter
from tests.support.bandits.command import Bandit
from tests.support.dpcore.mutants import rewired

SMALL = ("cz/easy", "-T", "3000", "--instances", 1, "--arms", 3, "--epsilon", "0.5")
RENYI = (*SMALL, "--algorithms", "dist-rdp-se", "--radius", "paper")


@pytest.mark.parametrize("schedule", ["paper", "released"])
@pytest.mark.parametrize("tail", [None, "printed", "released"])
def test_schedule_and_tail_are_chosen_apart(schedule: str, tail: str | None) -> None:
    setting = Setting(
        epsilon=1,
        delta="1e-6",
        horizon=10**4,
        arms=3,
        radius="paper",
        schedule=schedule,  # type: ignore[arg-type]  # two of the literals
        renyi_tail=tail,  # type: ignore[arg-type]  # two of the literals
    )
    policy: Any = read_algorithm("dist-rdp-se").policy(setting)
    assert policy.schedule == (PAPER if schedule == "paper" else RELEASED)
    own = "released" if schedule == "released" else "printed"
    assert policy.radius == PaperRadius(form=tail or own)  # type: ignore[arg-type]  # two of the literals
    # Without a choice of its own the tail follows a schedule that is replaced.
    if tail is None:
        other = replace(setting, schedule="paper")
        followed: Any = read_algorithm("dist-rdp-se").policy(other)
        assert followed.radius == PaperRadius()


def test_the_tail_that_is_played_is_said(bandit: Bandit) -> None:
    own = bandit("run", *RENYI)
    assert "schedule released, Renyi tail released, seed 1" in own.out.splitlines()[0]
    printed = bandit("run", *RENYI, "--renyi-tail", "printed")
    assert "schedule released, Renyi tail printed, seed 1" in printed.out.splitlines()[0]
    found = bandit("run", *RENYI, "--json").json
    same = bandit("run", *RENYI, "--renyi-tail", "released", "--json").json
    assert found["rows"] == same["rows"]
    assert "renyi_tail" not in found
    assert same["renyi_tail"] == "released"


def test_confidence_is_an_option(bandit: Bandit) -> None:
    words = (*SMALL, "--algorithms", "dist-dp-se,se", "--json")
    found = bandit("run", *words).json
    tenth = bandit("run", *words, "--confidence", "0.1").json
    assert found == tenth
    assert "confidence" not in found
    theorem = bandit("run", *words, "--confidence", "1/T").json
    assert theorem["confidence"] == "1/3000"
    assert bandit("run", *words, "--confidence", "1/3000").json == theorem
    assert theorem["rows"] != found["rows"]
    # A smaller p is a wider interval: the width that is played, of the policy that is made.
    setting = Setting(epsilon=1, delta="1e-6", horizon=3000, arms=3)
    sure = replace(setting, confidence=Fraction(1, 3000))
    policies: list[Any] = [read_algorithm("dist-dp-se").policy(each) for each in (setting, sure)]
    assert [policy.confidence for policy in policies] == [Fraction(1, 10), Fraction(1, 3000)]


RUN = ["run", "cz/easy", "-T", "500", "--instances", "1", "--arms", "3", "--algorithms", "cdp-se"]
EXACT = ["1/3", "2/3", "0.3", "0.50000000000000000001", "1e-6", "1000", "0.1234567890125", "1e-5"]


def experiment(*epsilons: str) -> Experiment:
    return Experiment(
        preset="cz/easy", algorithms=("se",), epsilons=epsilons, horizon=100, instances=1
    )


@pytest.mark.parametrize("text", EXACT)
def test_a_float_stands_for_no_less_and_hardly_more(text: str) -> None:
    exact = Fraction(text)
    found = float_up(exact)
    assert Fraction(repr(found)) >= exact
    assert Fraction(repr(math.nextafter(found, 0))) < exact
    assert Fraction(render._epsilon(found)) >= exact
    assert Fraction(curves._decimal(text)) >= exact


def test_short_epsilons_are_printed_as_they_are_written() -> None:
    for text in ("0.1", "0.3", "0.5", "1", "10", "1000"):
        assert float_up(Fraction(text)) == float(text)
        assert render._epsilon(float(text)) == curves._decimal(text) == text


def test_epsilons_below_are_caught() -> None:
    nearest = rewired(render._epsilon, up=lambda value, digits: f"{float(value):.{digits}g}")
    assert Fraction(nearest(float_up(Fraction(1, 3)))) < Fraction(1, 3)
    assert Fraction(repr(float(Fraction(1, 3)))) < Fraction(1, 3)


def test_a_run_prints_them_upwards_wherever_it_does(bandit: Bandit) -> None:
    words = ["--epsilon", "1/3", "--output", "out"]
    answer = bandit(*RUN, *words)
    assert answer.code == 0
    assert answer.out.splitlines()[3].split()[:2] == ["cdp-se", "0.333333333334"]
    (row,) = json.loads(Path("out/rows.json").read_text())["rows"]
    assert row["epsilon"] == 0.33333333333333337
    assert b"cz/easy, epsilon = 0.333333333334<" in Path("out/regret.svg").read_bytes()
    table = bandit("compare", "out", "out").out
    assert table.splitlines()[1].split()[:2] == ["cdp-se", "0.333333333334"]


def test_two_epsilons_of_one_float_are_refused(bandit: Bandit) -> None:
    both = ("0.50000000000000000001", "0.50000000000000000002")
    with pytest.raises(InvalidParameter, match="names one twice: two of them are printed as"):
        experiment(*both)
    answer = bandit(*RUN, "--epsilon", both[0], "--epsilon", both[1])
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: --epsilon = ")
    assert "names one twice" in answer.err


def test_compare_takes_every_document_that_run_writes(bandit: Bandit) -> None:
    answer = bandit(*RUN, "--epsilon", "0.5", "--epsilon", "0.50000000000000000001", "--json")
    assert [row["epsilon"] for row in answer.json["rows"]] == [0.5, 0.5000000000000001]
    Path("a.json").write_text(answer.out)
    found = bandit("compare", "a.json", "a.json", "--json").json
    assert [row["ratio"] for row in found["rows"]] == [1.0, 1.0]
    assert found["unmatched"] == []


def test_a_table_without_epsilons_has_no_picture(tmp_path: Path) -> None:
    lines = [
        Line(preset="x", algorithm="se", epsilon=text, t=(1,), mean=(0.5,), error=(0,))
        for text in ("1/0", "some")
    ]
    for line in lines:
        with pytest.raises(InvalidParameter, match="is no epsilon"):
            curves.draw_results([line], tmp_path / "regret.svg")
