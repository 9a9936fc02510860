"""The second path to the epsilon of shuffled bits, against every composition, pair and output."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from accounting.checker import deadline, shuffled
from accounting.checker.clock import OutOfTime
from accounting.checker.laws.law import Unchecked
from accounting.checker.shuffled import MOST_BITS, Shuffle, shuffle_keeps
from accounting.protocols.pure_shuffle import plan_pure_shuffle, purity
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.protocols.pure_shuffle import PureShuffle
from tests.effort import by_day
from tests.support.accounting.shuffled_views import worst_loss
from tests.support.dpcore.mutants import mutated


def shuffle(
    users: int, precision: int, reach: int, cover: str, parties: int, scale: int
) -> PureShuffle:
    share = PolyaDifference(shape=Fraction(1, parties), scale=scale)
    return PureShuffle(users=users, precision=precision, reach=reach, cover=cover, share=share)


def stated(protocol: PureShuffle, honest: int | None = None) -> Shuffle:
    return Shuffle(
        honest=honest or protocol.users,
        precision=protocol.precision,
        reach=protocol.reach,
        cover=Fraction(protocol.cover),
        shape=Fraction(protocol.share.shape),
        scale=Fraction(protocol.share.scale),
    )


SMALL = [
    shuffle(12, 1, 20, "1/1000", 8, 1),
    shuffle(12, 1, 20, "1/1000", 12, 1),
    shuffle(6, 1, 4, f"1/{2**100}", 3, 1),
    shuffle(6, 1, 10, "1/100", 4, 1),
    shuffle(4, 3, 9, "1/16", 3, 3),
    shuffle(5, 2, 12, "1/64", 3, 2),
    shuffle(3, 5, 2, "1/3", 1, 4),
    shuffle(1, 2, 3, "1/8", 1, 1),
    plan_pure_shuffle(users=2, epsilon=1),
    plan_pure_shuffle(users=3, epsilon=2),
]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    shuffled._kept.cache_clear()


@pytest.mark.parametrize("protocol", SMALL)
def test_what_loses_more_in_some_composition_is_refused(protocol: PureShuffle) -> None:
    """A brute force over what the others hold; and what it finds safe by far is not refused."""
    true = Fraction(worst_loss(protocol, protocol.users))
    given = stated(protocol)
    for epsilon in (true * Fraction(999, 1000), true / 2, true - Fraction(1, 10**6)):
        assert shuffle_keeps(given, epsilon) != ""
    proved = Fraction(purity(protocol, protocol.users).guarantee.stated_epsilon)
    if proved == given.precision / given.scale:  # otherwise other covers than planned are counted
        assert shuffle_keeps(given, proved) == ""


@by_day(3)
@pytest.mark.parametrize("users", [2, 20, 80, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("epsilon", "precision"), [("3/2", 1), ("2", 2), ("1", 1)])
def test_every_plan_holds_and_its_twins_do_not(users: int, epsilon: str, precision: int) -> None:
    at = Fraction(epsilon)
    plan = plan_pure_shuffle(users=users, epsilon=at, precision=precision, failure="1e-9")
    given = stated(plan)
    assert shuffle_keeps(given, at) == ""
    assert shuffle_keeps(given, at - Fraction(1, 1000)) != ""
    assert shuffle_keeps(replace(given, scale=given.scale * Fraction(999, 1000)), at) != ""
    if users > 12:  # below that there are shares to spare
        fewer = replace(plan, share=replace(plan.share, shape=given.shape * Fraction(9, 10)))
        kept = Fraction(purity(fewer, users).guarantee.stated_epsilon) <= at
        assert (shuffle_keeps(stated(fewer), at) == "") == kept
        assert shuffle_keeps(replace(given, shape=given.shape * Fraction(3, 4)), at) != ""
        assert shuffle_keeps(replace(given, cover=given.cover / 2**30), at) != ""
        assert shuffle_keeps(replace(given, reach=given.reach // 2), at) != ""


@pytest.mark.parametrize("epsilon", ["1/2", pytest.param("1/10", marks=pytest.mark.nightly)])
def test_plans_of_small_epsilon_hold_and_their_twins_do_not(epsilon: str) -> None:
    """Long messages: fewer digits and a narrower window than the noise has must do."""
    at = Fraction(epsilon)
    given = stated(plan_pure_shuffle(users=500, epsilon=at))
    assert shuffle_keeps(given, at) == ""
    assert shuffle_keeps(given, at * Fraction(999, 1000)) != ""
    assert shuffle_keeps(replace(given, shape=given.shape * Fraction(9, 10)), at) != ""


def test_what_few_digits_cannot_show_is_tried_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    given = stated(plan_pure_shuffle(users=40, epsilon=1, failure="1e-6"))
    asked: list[int] = []

    def second(law: shuffled._Coded, *_: int) -> bool:
        asked.append(law.digits)
        return len(asked) == 2

    monkeypatch.setattr(shuffled, "_central", second)
    assert shuffle_keeps(given, Fraction(1)) == ""
    assert len(asked) == 2
    assert asked[0] < asked[1]


def test_fewer_honest_users_than_were_planned_for_are_seen() -> None:
    plan = plan_pure_shuffle(users=100, honest=80, epsilon=1, failure="1e-6")
    assert shuffle_keeps(stated(plan, 80), Fraction(1)) == ""
    assert shuffle_keeps(stated(plan, 100), Fraction(1)) == ""
    assert shuffle_keeps(stated(plan, 60), Fraction(1)) != ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("parts * turn * max", "2 * parts * turn * max"),
        ("(turn - 1) * max(known, 0)", "10**20 * (turn - 1) * max(known, 0)"),
    ],
)
def test_a_broken_rule_accepts_too_much(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant each of the two terms that must make up for the loss."""
    given = stated(plan_pure_shuffle(users=40, epsilon=1, failure="1e-6"))
    assert shuffle_keeps(given, Fraction(9, 10)) != ""
    shuffled._kept.cache_clear()
    monkeypatch.setattr(shuffled, "_holds", mutated(shuffled._holds, old, new))
    assert shuffle_keeps(given, Fraction(9, 10)) == ""


def test_what_a_window_dropped_is_added_to_the_larger_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At T = e: 2 e >= 5, and not 2 e >= 5 + 1. A place that noise does not lead to is free."""
    law = shuffled._Coded.of(stated(SMALL[0]), Fraction(1), 30)
    assert shuffled._holds(law, [2, 5], [0], 1, 0)
    assert not shuffled._holds(law, [2, 5], [0], 1, 1)
    assert shuffled._holds(law, [2, 5, -1, -1], [0, 10, 0], 1, 0)
    monkeypatch.setattr(shuffled, "_holds", mutated(shuffled._holds, " + lost", ""))
    assert shuffled._holds(law, [2, 5], [0], 1, 1)


def test_products_are_those_of_schoolbook() -> None:
    one, other = [3, 0, 999, 1000], [1000, 7, 1]
    found = shuffled._product(one, other, 3)
    exact = [0] * 6
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            exact[i + j] += a * b
    assert found == [each // 1000 for each in exact]
    assert shuffled._neighbours([1, 2, 3], 2) == [1, 3, 5, 3]
    assert shuffled._power([1000, 500], 3, 9, 3) == [1000, 1500, 750, 125]
    assert shuffled._power_above(1500, 3, 3) == 3375


def test_what_is_too_long_is_refused_by_name_and_time_is_bounded() -> None:
    long = Shuffle(honest=9, precision=1, reach=640, cover=Fraction(1, 9), shape=Fraction(1, 9),
                   scale=Fraction(1))  # fmt: skip
    with pytest.raises(Unchecked, match=f"messages of 1281 bits, more than {MOST_BITS}"):
        shuffle_keeps(long, Fraction(1))
    with pytest.raises(Unchecked, match="a shape above 1"):
        shuffle_keeps(replace(long, reach=9, shape=Fraction(2)), Fraction(1))
    plan = stated(plan_pure_shuffle(users=1000, epsilon=1))
    with deadline(0), pytest.raises(OutOfTime):
        shuffle_keeps(plan, Fraction(1))
