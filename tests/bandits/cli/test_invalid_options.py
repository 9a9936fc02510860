"""Tests of ``dpcore bandit run`` options: invalid values are refused, epsilons are rounded up."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from bandits.cli import run as command
from bandits.experiments import results
from bandits.policies.registry import Setting, read_algorithm
from dpcore.numbers.enclosure import decimal_up
from tests.support.bandits.command import Bandit
from tests.support.dpcore.mutants import rewired

REFUSED: dict[str, str] = {
    "cz/easy --arms 0": "--arms = 0: must be >= 1",
    "cz/easy -T 5": "--horizon = 5: must be >= arms = 10",
    "cz/easy --epsilon 0": "--epsilon = 0: must lie in [1e-6, 1000]",
    "cz/easy --epsilon 0.50000000000000000001 --epsilon 0.50000000000000000002": "--epsilon = ",
    "cz/easy --delta 0": "--delta = 0: must lie in (0, 1)",
    "cz/easy --algorithms cpd-se": "--algorithms = cpd-se: did you mean cdp-se? it must be one of",
    "cz/easy --algorithms se,se": "--algorithms = se, se: must be distinct",
    "cz/esay": "PRESET = cz/esay: did you mean cz/easy? it must be one of",
    "cz/easy --jobs 0": "--jobs = 0: must be a whole number in [1, 1024], or -1",
    "cz/easy --radius best": "--radius = best: must be 'exact' or 'paper'",
    "cz/easy --data x": "--data = x: must be omitted: cz/easy is simulated",
    "cz/mslr": "PRESET = cz/mslr: needs --data FILE",
    "obd --data none.csv": "--data = none.csv: No such file",
    "cz/easy --algorithms se --output here": "--output = here: is not a folder",
    "cz/easy --algorithms se --resume here": "--resume = here: is not the state",
    "cz/easy --algorithms se,sdp-ae --epsilon=1e-5": "--epsilon = 1e-5: must be >= 0.01 for sdp-ae",
    "cz/easy --algorithms vb-sdp-ae --delta=1e-31": "--delta = 1e-31: must be >= 1e-30 for vb",
    "cz/easy --algorithms dist-rdp-se:s=1e12": "--epsilon (for dist-rdp-se:s=1000000000000) = ",
    "cz/easy --algorithms dpe": "--algorithms = dpe: requires a world with linear rewards",
    "cz/easy --algorithms se --alpha=0.5": "--alpha = 0.5: has no effect in cz/easy: omit it",
    "cz/easy --algorithms dp-se --schedule paper": "--schedule = paper: has no effect on dp-se",
    "cz/easy --algorithms se --output ''": "--output = '': must not be empty",
    "cz/easy --algorithms se --output q --resume st": "--output = q/regret.csv: is a directory",
    "cz/easy --algorithms se --output out --resume pipe": "--resume = pipe: is not a regular file",
    "cz/easy --algorithms se --output out --resume zeros": "--resume = zeros: is not the state",
    "cz/easy --algorithms dist-rdp-se --radius paper --renyi-tail new": "--renyi-tail = new: must",
    "cz/easy --renyi-tail printed": "--renyi-tail = printed: applies only to dist-rdp-se with",
    "cz/easy --algorithms dist-rdp-se --failure-probability 0.5": "--failure-probability = 0.5",
    "tkms/binary -T 3000 --algorithms sdp-ae --confidence 0.2": "--failure-probability = 0.2: has",
    "cz/easy --algorithms dist-dp-se --failure-probability 95%": "--failure-probability = 19/20",
    "cz/easy --confidence 0.2 --failure-probability 0.2": "--confidence = 0.2: is the former name",
    "cz/easy --visits 0": "--visits = 0",
    "cz/easy --dropouts 100%": "--dropouts = 1",
    "cz/easy --dropouts 60% --honest 50%": "--dropouts = 3/5",
    "cz/easy --aggregation masked --algorithms cdp-se": "--algorithms = cdp-se",
    "cz/easy --visits 2 --algorithms ldp-se": "--algorithms = ldp-se",
    "cz/easy --aggregation masked --algorithms dist-dp-se -T 3e6 --epsilon 1": "--epsilon (for",
    "cz/easy --dropouts 5% --algorithms dp-se": "--algorithms = dp-se",
    "cz/easy --visits 2 --radius paper": "--radius = paper",
    "cz/easy --honest 90% --radius paper": "--radius = paper",
    "csb/topk --super-arm 21": "--super-arm = 21: must be <= arms = 20",
    "csb/topk --algorithms cucb --release tree": "--release = tree: has no effect on cucb",
    "cz/easy --super-arm 3": "--super-arm = 3: cz/easy has no super arms: omit this option",
    "csb/path --arms 25": "--arms = 25: must be 2 n (n - 1)",
    "csb/topk --algorithms cucb-ldp1:c=1": "cucb-ldp1:c = 1: must be a number in [2",
    "csb/topk --algorithms cucb-ldp1:c=8": "--algorithms = cucb-ldp1:c=8: c applies only",
    "csb/topk --visits 2": "--algorithms = cucb: does not support returning users",
    "lzj/fig2 --algorithms dpe --users 88000 -T 1e6": "--users = 88000: is too small: 1000000",
    "lzj/fig2 --calibration pure --radius paper --algorithms cdp-dpe": "--radius = paper: must be",
    "lzj/fig2 --calibration pure --algorithms sdp-dpe": "--calibration = pure: must be exact or",
    "lzj/fig2 --algorithms dpe --schedule exact": "--schedule = exact: has no effect on dpe",
}


@pytest.mark.usefixtures("never_played")
@pytest.mark.parametrize("line", REFUSED)
def test_an_impossible_run_is_refused_by_name_and_leaves_no_files(
    bandit: Bandit, line: str
) -> None:
    Path("q/regret.csv").mkdir(parents=True)
    os.mkfifo("pipe")
    Path("zeros").write_bytes(bytes(100_000))
    Path("here").write_text("mine\n")
    before = sorted(Path().rglob("*"))
    words = shlex.split(line)
    places = ("--output", "out", "--resume", "state")
    kept = () if {*places} & {*words} else places
    answer = bandit("run", *words, *kept)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {REFUSED[line]}"), answer.err
    assert answer.err.count("\n") == 1
    assert "defect" not in answer.err
    assert sorted(Path().rglob("*")) == before
    assert Path("here").read_text() == "mine\n"
    assert Path("zeros").read_bytes() == bytes(100_000)


SMALL = ("cz/easy", "-T", "3000", "--instances", 1, "--arms", 3, "--epsilon", "0.5")


def test_the_failure_probability_is_an_option(bandit: Bandit) -> None:
    words = (*SMALL, "--algorithms", "dist-dp-se,se", "--json")
    found = bandit("run", *words).json
    tenth = bandit("run", *words, "--failure-probability", "0.1").json
    assert found == tenth
    assert "failure_probability" not in found
    assert bandit("run", *words, "--failure-probability", "10%").json == tenth
    theorem = bandit("run", *words, "--failure-probability", "1/T").json
    assert theorem["failure_probability"] == "1/3000"
    for name in ("--failure-probability", "--confidence"):  # the former name is still accepted
        assert bandit("run", *words, name, "1/3000").json == theorem
    assert theorem["rows"] != found["rows"]
    # A smaller p gives wider intervals, both in the run and for a policy made in Python.
    setting = Setting(epsilon=1, delta="1e-6", horizon=3000, arms=3)
    sure = replace(setting, failure_probability=Fraction(1, 3000))
    policies: list[Any] = [read_algorithm("dist-dp-se").policy(each) for each in (setting, sure)]
    assert [policy.failure_probability for policy in policies] == [
        Fraction(1, 10),
        Fraction(1, 3000),
    ]


RUN = ["run", "cz/easy", "-T", "500", "--instances", "1", "--arms", "3", "--algorithms", "cdp-se"]


def test_an_epsilon_is_printed_as_the_next_number_above() -> None:
    nearest = rewired(command.short_epsilon, up=lambda value, digits: f"{float(value):.{digits}g}")
    assert Fraction(nearest(decimal_up(Fraction(1, 3)))) < Fraction(1, 3)
    for text in ("1/3", "0.3", "0.50000000000000000001", "1e-6"):
        assert Fraction(command.short_epsilon(decimal_up(Fraction(text)))) >= Fraction(text)
        assert Fraction(results._decimal(text)) >= Fraction(text)


def test_a_run_prints_every_epsilon_rounded_up(bandit: Bandit) -> None:
    words = ["--epsilon", "1/3", "--output", "out"]
    answer = bandit(*RUN, *words)
    assert answer.code == 0
    assert answer.out.splitlines()[3].split()[:2] == ["cdp-se", "0.333333333334"]
    (row,) = json.loads(Path("out/rows.json").read_text())["rows"]
    assert row["epsilon"] == 0.33333333333333337
    assert b"cz/easy, epsilon = 0.333333333334<" in Path("out/regret.svg").read_bytes()
    table = bandit("compare", "out", "out").out
    assert table.splitlines()[1].split()[:2] == ["cdp-se", "0.333333333334"]
