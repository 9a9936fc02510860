r"""Tests of `run_protocol`: users in the sum, honest noise, and one law for every aggregation."""

from __future__ import annotations

import copy
import pickle
from collections import UserList
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpcore import DiscreteLaplace, SeededRng
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.protocols.noisy_sums import (
    AggregatedSum,
    CentralSum,
    LocalSum,
    ModularSum,
    ShuffledPure,
)
from dpcore.protocols.run_protocol import (
    IdealAggregation,
    RelaxedAggregation,
    RoundRefused,
    Shuffler,
    _crowd,
    _stacked,
    _sum,
    _sum_modulo,
    run,
    staying,
)
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.round_parameters import MOST_EXPOSURE, size_neighbourhood
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.dpcore.cells import least_p
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.protocol_laws import summed
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import NeverAsked

SHARE = DiscreteLaplace(scale=2).share(4)
PURE = AggregatedSum(users=4, precision=2, threshold=60, share=SHARE)
IDEAL = IdealAggregation(modulus=PURE.modulus)
PEOPLE = {"ann": 1, "bob": "1/2", "eve": Fraction(0), "joe": 0.5}


def parts(users: int, modulus: int, dropouts: int = 0) -> MaskedAggregation:
    return MaskedAggregation(users=users, dropouts=dropouts, coordinates=1, modulus=modulus)


def expected(protocol: AggregatedSum, x: list[Fraction]) -> dict[int, float]:
    r"""Return the law of the sum mod m, by convolution of encodings and shares."""
    share = {k: float(protocol.share.enclose_pmf(k, 64).lower) for k in range(-25, 26)}
    laws = [share] * len(x)
    for value in x:
        whole, up = divmod(value * protocol.precision, 1)
        laws.append({whole: float(1 - up), whole + 1: float(up)})
    folded = dict.fromkeys(range(protocol.modulus), 0.0)
    for k, mass in summed(laws).items():
        folded[k % protocol.modulus] += mass
    assert sum(folded.values()) > 1 - 1e-6
    return folded


TINY = AggregatedSum(users=3, precision=2, threshold=1, share=Skellam(variance="1/2"))
HELD = [Fraction(1, 4), Fraction(1), Fraction(5, 8)]


@by_day(1)
@pytest.mark.parametrize("per_user", [False, True])
def test_every_aggregation_has_the_exact_law(
    per_user: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = buy_alpha(f"aggregated Skellam mod m, {per_user}", "1e-9")
    ideal = IdealAggregation(modulus=TINY.modulus, per_user=per_user)

    def p_value() -> float:
        x, rng = np.array([float(value) for value in HELD]), SeededRng(77)
        sums: list[Any] = [run(TINY, x, ideal, batch="b", rng=rng).estimate for _ in range(1000)]
        residues = (int(total * TINY.precision) % TINY.modulus for total in sums)
        return least_p(residues, expected(TINY, HELD))

    assert p_value() > alpha
    if not per_user:  # one share for all users
        broken = mutated(ModularSum.sum_at_once, "summed(noise, held.size)", "noise")
        monkeypatch.setattr(ModularSum, "sum_at_once", broken)
        assert p_value() < alpha


def test_sums_beyond_int64_are_exact() -> None:
    m = (1 << 62) - 57
    rows = np.full((1000, 2), m - 1, dtype=np.int64)
    assert _sum_modulo(rows, m).tolist() == [1000 * (m - 1) % m] * 2
    # Without conversion, numpy would stack them as floats: 2^61 + 1 would lose its last bit.
    messages = {"ann": np.array([(1 << 61) + 1], dtype=np.uint64), "bob": np.array([1])}
    assert IdealAggregation(modulus=1 << 62).total(messages).sum.tolist() == [(1 << 61) + 2]
    broken = mutated(_stacked, "vector.astype(np.int64)", "vector")
    assert int(broken(messages, 1 << 62).astype(np.int64).sum()) != (1 << 61) + 2


def test_a_user_who_vanishes_before_the_input_is_not_in_the_sum() -> None:
    quiet = CentralSum(users=4, precision=2, threshold=9, noise=DiscreteLaplace(scale="1/1000"))
    for functionality in (
        IdealAggregation(modulus=quiet.modulus),
        IdealAggregation(modulus=quiet.modulus, per_user=True),
        parts(4, quiet.modulus, dropouts=1),
    ):
        # Masks do not change the sum.
        assert run(quiet, [1.0, 0.5, 0.0, 0.5], functionality, batch="b").estimate == 2
        for step in Step:
            outcome = run(quiet, PEOPLE, functionality, batch="b", vanish={"ann": step})
            counted = step == Step.UNMASK
            if not counted:
                assert outcome.participants == ("bob", "eve", "joe")
            assert outcome.estimate == 1 + counted
            assert outcome.release.participants == outcome.participants
            assert outcome.release.honest == 1


def test_the_record_contains_only_the_noise_of_honest_users() -> None:
    outcome = run(
        PURE, PEOPLE, IDEAL, batch="monday", vanish={"ann": Step.KEYS}, colluding=["ann", "bob"]
    )
    assert outcome.participants == ("bob", "eve", "joe")
    assert (outcome.honest, outcome.release.honest) == (2, Fraction(1, 2))
    assert outcome.release.mechanism == PURE.mechanism(2)
    assert outcome.release.mechanism.noise == PolyaDifference(shape="1/2", scale=2)
    assert outcome.release.batch == "monday"
    assert len(outcome.assumptions) == 1
    # ann drops out and does not collude: she must not be counted.
    assert _crowd(4, PEOPLE, {"ann": Step.KEYS}, ["bob"]).honest == 2
    everyone = mutated(_crowd, "staying(names, vanish)", "tuple(range(len(names)))")
    assert everyone(4, PEOPLE, {"ann": Step.KEYS}, ["bob"]).honest == 3
    late = {"ann": Step.UNMASK, "bob": Step.INPUT}
    assert staying(("ann", "bob", "eve"), late) == (0, 2)


def test_too_many_colluding_users_are_refused() -> None:
    masked = parts(4, PURE.modulus, dropouts=1)
    outcome = run(PURE, PEOPLE, masked, batch="b", colluding=["ann", "bob"])
    assert outcome.honest == 2

    def three(vanish: dict[str, Step]) -> object:
        colluding = ["ann", "bob", "eve"]
        return run(
            PURE, PEOPLE, masked, batch="b", vanish=vanish, colluding=colluding, rng=NeverAsked()
        )

    # Users who dropped out still hold shares of all users' secrets.
    for vanish in ({}, {"ann": Step.UNMASK}, {"ann": Step.INPUT}):
        assert names(refusal(lambda v=vanish: three(v)), "colluding", 3)  # type: ignore[misc]  # a default binds the loop variable
    # One honest user is enough with the ideal party, and where every message is private by itself.
    assert run(PURE, PEOPLE, IDEAL, batch="b", colluding=["ann", "bob", "eve"]).honest == 1
    local = LocalSum(users=4, precision=2, threshold=99, noise=DiscreteLaplace(scale=2))
    alone = parts(4, local.modulus, dropouts=1)
    assert run(local, PEOPLE, alone, batch="b", colluding=["ann", "bob", "eve"]).honest == 1
    crowd = _crowd(4, PEOPLE, {}, ["ann", "bob", "eve"])
    blind = mutated(_sum, "> MOST_EXPOSURE", "> 1")
    assert 0 <= blind(PURE, crowd, masked, {}, SeededRng(1)) < PURE.modulus


def test_a_run_over_neighbourhoods_lists_its_failure_probability() -> None:
    share = DiscreteLaplace(scale=2).share(100)
    crowd = AggregatedSum(users=100, precision=2, threshold=60, share=share)
    hood = size_neighbourhood(users=100, dropouts=10, colluding=10)
    assert hood is not None
    near = replace(parts(100, crowd.modulus, dropouts=10), neighbourhood=hood)
    names_of = [str(i) for i in range(100)]
    gone = dict.fromkeys(names_of[50:60], Step.INPUT)
    outcome = run(
        crowd, [0] * 100, near, batch="b", colluding=names_of[:10], vanish=gone, rng=SeededRng(1)
    )
    assert (outcome.honest, len(outcome.participants)) == (80, 90)
    said = outcome.assumptions[-1]
    assert said.startswith("collusion and dropouts do not depend on the graph; the graph fails")
    power = int(said.split("2^-")[1].split(",")[0])
    chance = near.exposure(10)
    assert Fraction(1, 2 ** (power + 1)) < chance <= Fraction(1, 2**power) <= MOST_EXPOSURE

    # With so few neighbours, 40 colluding users may hold enough shares.
    def forty() -> object:
        many = names_of[:40]
        return run(crowd, [0] * 100, near, batch="b", colluding=many, rng=NeverAsked())

    assert near.exposure(40) > MOST_EXPOSURE
    assert names(refusal(forty), "colluding", 40)
    assert len(run(PURE, PEOPLE, IDEAL, batch="b").assumptions) == 1
    assert len(run(PURE, PEOPLE, parts(4, PURE.modulus), batch="b").assumptions) == 1


def test_two_numbers_of_one_user_are_not_two_users() -> None:
    # Two rows of two are four numbers, and would fit four users: the noise and the sensitivity of
    # the record would be those of one number each.
    gone = {"2": Step.INPUT, "3": Step.INPUT}
    rows = np.ones((4, 2))
    ideal, each = IDEAL, IdealAggregation(modulus=PURE.modulus, per_user=True)
    for functionality in (ideal, each, parts(4, PURE.modulus, dropouts=1)):
        for values in (rows, rows[:, :1]):
            line = refusal(
                lambda f=functionality, v=values: run(  # type: ignore[misc]  # a default binds the loop variable
                    PURE, v, f, batch="b", vanish=gone, rng=NeverAsked()
                )
            )
            assert names(line, "values")
    line = refusal(lambda: run(PURE, {name: [1, 1] for name in PEOPLE}, ideal, batch="b"))
    assert names(line, "values")
    doubled = mutated(_sum, "crowd.held.ndim != 1", "False")
    assert 0 <= doubled(PURE, _crowd(4, rows, gone, []), ideal, gone, SeededRng(1)) < PURE.modulus


def test_a_relaxed_run_yields_its_assumption_and_no_release_record() -> None:
    shuffled = ShuffledPure(users=4, precision=2, threshold=60, share=SHARE)
    relaxed = RelaxedAggregation(modulus=shuffled.modulus, epsilon_hat="1/4", q_hat="1e-6")
    outcome = run(shuffled, PEOPLE, relaxed, batch="b", vanish={"ann": Step.INPUT})
    assert (outcome.record, outcome.honest) == (None, 3)
    assert "relaxed" in outcome.assumptions[0]
    assert names(refusal(lambda: outcome.release), "protocol")
    for protocol, below in ((shuffled, IDEAL), (PURE, relaxed), (shuffled, Shuffler())):
        line = refusal(lambda p=protocol, f=below: run(p, PEOPLE, f, batch="b", rng=NeverAsked()))  # type: ignore[misc]  # a default binds the loop variable
        assert names(line, "functionality")


def too_few_reply(play: Any = run, **more: Any) -> AggregationRefused:
    r"""Of four inputs in the sum, two users reply; three replies are necessary."""
    silent = {"bob": Step.UNMASK, "joe": Step.UNMASK}
    with pytest.raises(AggregationRefused) as refused:
        play(PURE, PEOPLE, parts(4, PURE.modulus, dropouts=1), batch="b", vanish=silent, **more)
    return refused.value


def carries_what_it_may_have_shown(refused: AggregationRefused) -> bool:
    # ann colludes: the sum is hidden by the shares of the three others.
    release = getattr(refused, "release", None)
    return (
        release is not None
        and release.mechanism.noise == PolyaDifference(shape="3/4", scale=2)
        and release.mechanism.sensitivity.amount == PURE.precision
        and (release.participants, release.honest) == (tuple(PEOPLE), Fraction(3, 4))
        and release.batch == "b"
    )


def test_a_refused_round_leaves_a_record_to_charge() -> None:
    refused = too_few_reply(colluding=["ann"])
    assert isinstance(refused, RoundRefused)
    assert carries_what_it_may_have_shown(refused)
    cause = refused.__cause__
    assert type(cause) is AggregationRefused
    assert (refused.message, refused.sender) == (cause.message, cause.sender)
    assert refused.message == "the step UnmaskReply"
    tail = "; charge the release of this error, and draw fresh noise for the next round"
    assert str(refused) == f"{cause}{tail}"
    # An error that is sent to another process keeps its record.
    unpickled = pickle.loads(pickle.dumps(refused))  # noqa: S301 - these bytes are our own
    for twin in (copy.copy(refused), unpickled):
        assert carries_what_it_may_have_shown(twin)
        assert str(twin) == str(refused)
    # Users who drop out before the input are not in the record.
    gone = {"ann": Step.INPUT, "bob": Step.UNMASK}
    masked = parts(4, PURE.modulus, dropouts=1)
    with pytest.raises(RoundRefused) as caught:
        run(PURE, PEOPLE, masked, batch="b", vanish=gone)
    assert caught.value.release.participants == ("bob", "eve", "joe")
    assert caught.value.release.mechanism == PURE.mechanism(3)


@pytest.mark.parametrize(
    "edit",
    [
        ("except AggregationRefused", "except ZeroDivisionError"),
        ("participants=crowd.present,\n            honest=Fraction(1)", "honest=Fraction(1)"),
    ],
    ids=["no record", "no participants"],
)
def test_a_refused_round_without_its_record_is_detected(edit: tuple[str, str]) -> None:
    assert not carries_what_it_may_have_shown(too_few_reply(mutated(run, *edit), colluding=["ann"]))


class Column(UserList[float]):
    index: Any = ("ann", "bob", "eve", "joe")


@pytest.mark.parametrize(
    ("argument", "more"),
    [
        ("values", {"values": {"ann": 1}}),
        ("values", {"values": 0.5}),
        ("values", {"values": Column([0.5] * 4)}),  # like a pandas series, whose index are names
        (
            "values",
            {"values": dict(zip("abcd", map(np.ones, [(2, 2), *[(2, 3)] * 3]), strict=True))},
        ),
        ("x", {"values": [0.5, 0.5, 0.5, 2.0]}),
        ("functionality", {"functionality": IdealAggregation(modulus=PURE.modulus + 1)}),
        ("vanish", {"vanish": {"zoe": Step.INPUT}}),
        ("vanish", {"vanish": dict.fromkeys(PEOPLE, Step.INPUT)}),
        ("colluding", {"colluding": "ann"}),
        ("colluding", {"colluding": list(PEOPLE)}),
        ("colluding", {"colluding": ["bob", "eve", "joe"], "vanish": {"ann": Step.INPUT}}),
        ("batch", {"batch": ""}),
        ("protocol", {"protocol": None}),
    ],
)
def test_invalid_runs_are_refused(argument: str, more: dict[str, Any]) -> None:
    good: dict[str, Any] = {"protocol": PURE, "values": PEOPLE, "functionality": IDEAL}
    good["batch"] = "b"
    assert names(refusal(lambda: run(**{**good, **more}, rng=NeverAsked())), argument)


def test_messages_outside_the_residues_are_refused() -> None:
    wrong: list[Any] = [[1], np.array([10]), np.array([-1]), np.array([0.5]), np.array([[1]])]
    two = {"ann": np.array([1]), "bob": np.array([1, 2])}
    bad: list[Any] = [None, {}, two, *({"ann": message} for message in wrong)]
    for messages in bad:
        line = refusal(partial(IdealAggregation(modulus=10).total, messages))
        assert names(line, "messages")
