"""Options that decide one thing each: the tail of Renyi noise, and the confidence."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from bandits.policies.registry import read_algorithm
from bandits.policies.setting import PAPER, RELEASED, Setting
from bandits.radius.radius import PaperRadius
from tests.support.bandits.command import Bandit

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*RENYI, "--renyi-tail", "new"), "--renyi-tail = new: must be 'printed' or 'released'"),
        ((*SMALL, "--renyi-tail", "printed"), "--renyi-tail = printed: is of dist-rdp-se with"),
        ((*RENYI, "--confidence", "0"), "--confidence = 0"),
        ((*RENYI, "--confidence", "0.5"), "--confidence = 0.5"),
        ((*RENYI, "--confidence", "nan"), "--confidence = nan"),
        ((*RENYI, "--confidence", "2/T"), "--confidence = 2/T"),
        (
            ("tkms/binary", "-T", "3000", "--algorithms", "sdp-ae", "--confidence", "0.2"),
            "--confidence = 0.2: has no effect on sdp-ae",
        ),
    ],
)
def test_choices_without_effect_or_sense_are_refused(
    bandit: Bandit, words: tuple[object, ...], said: str
) -> None:
    answer = bandit("run", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
