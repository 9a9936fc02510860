"""Tests of masked aggregation: an exact sum for all planned dropouts; no sum after one more."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.sampling.rng import SeededRng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.round_parameters import Neighbourhood
from dpcore.secure_aggregation.shamir import PRIME
from tests.day_and_nightly import effort
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import NeverAsked
from tests.support.secure_aggregation.recorded_round import plain_sum, rehearse

MODULI = [2, 3, 1000, 2**31, 2**62 - 57, 2**62]


def sum_is_right(aggregation: MaskedAggregation, vanish: dict[str, Step], seed: int) -> bool:
    world = np.random.default_rng(seed)
    names = [f"user {i}" for i in range(aggregation.users)]
    shape = (aggregation.users, aggregation.coordinates)
    rows = world.integers(0, aggregation.modulus, shape)
    rows[0] = aggregation.modulus - 1
    inputs = dict(zip(names, rows, strict=True))
    total = aggregation.total(inputs, vanish, rng=SeededRng(seed))
    there = tuple(n for n in names if vanish.get(n, Step.UNMASK) > Step.INPUT)
    right = plain_sum(inputs, there, aggregation.modulus)
    return total.participants == there and total.sum.tolist() == right


@st.composite
def rounds(draw: st.DrawFn, spare: int = 0) -> tuple[MaskedAggregation, dict[str, Step], int]:
    users = draw(st.integers(2 + spare, 8))
    dropouts = draw(st.integers(0, (users - 1) // 2))
    graphs: list[Neighbourhood | None] = [None]
    for k in range(2, users - 1, 2):
        # With this many spare shares, any dropouts leave a sum, wherever they are on the circle.
        graphs += [
            Neighbourhood(neighbours=k, threshold=t)
            for t in range(k // 2 + 1, k + 2)
            if dropouts <= k + 1 - t
        ]
    parts = MaskedAggregation(
        users=users,
        dropouts=dropouts,
        coordinates=3,
        modulus=draw(st.sampled_from(MODULI)),
        neighbourhood=draw(st.sampled_from(graphs)),
    )
    gone = draw(st.permutations(range(users)))
    count = dropouts + 1 if spare else draw(st.integers(0, dropouts))
    steps = draw(st.lists(st.sampled_from(Step), min_size=count, max_size=count))
    vanish = {f"user {i}": step for i, step in zip(gone, steps, strict=False)}
    return parts, vanish, draw(st.integers(0, 1000))


@settings(max_examples=effort(20, 1000))
@given(rounds())
def test_planned_dropouts_at_any_step_leave_an_exact_sum(
    drawn: tuple[MaskedAggregation, dict[str, Step], int],
) -> None:
    assert sum_is_right(*drawn)


@settings(max_examples=effort(20, 1000))
@given(rounds(spare=1))
def test_one_dropout_more_than_planned_is_refused(
    drawn: tuple[MaskedAggregation, dict[str, Step], int],
) -> None:
    parts, vanish, seed = drawn
    with pytest.raises(AggregationRefused, match="are needed") as refused:
        sum_is_right(parts, vanish, seed)
    assert refused.value.message.startswith("the step ")


@pytest.mark.parametrize(
    ("step", "named"),
    [*zip(Step, ("KeyAdvertisement", "SealedShares", "MaskedInput", "UnmaskReply"), strict=True)],
)
def test_too_few_users_are_refused_at_the_step_of_their_dropout(step: Step, named: str) -> None:
    parts = MaskedAggregation(users=5, dropouts=1, coordinates=2, modulus=97)
    with pytest.raises(AggregationRefused) as refused:
        sum_is_right(parts, {"user 0": Step.KEYS, "user 3": step}, 5)
    assert str(refused.value) == (
        f"the step {named} of the server: 3 of 5 users remain, but 4 are needed: "
        "more than 1 dropped out"
    )


FOUR = Neighbourhood(neighbours=4, threshold=3)
TWO = Neighbourhood(neighbours=2, threshold=2)
RING = MaskedAggregation(users=7, dropouts=2, coordinates=2, modulus=97, neighbourhood=TWO)


MUTANTS: list[tuple[Any, str, str, str]] = [
    (masked_user, "add_pair_masks", "add if own < other else subtract", "add"),
    (masked_user, "masked", "add(inputs, self_mask, terms.modulus)", "inputs"),
    (masked_server, "add_pair_masks", "(add if own < other", "(add if own > other"),
]


@pytest.mark.parametrize("graph", [None, FOUR], ids=["everyone", "neighbours"])
def test_a_mutant_of_the_masks_gives_another_sum(
    graph: Neighbourhood | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = MaskedAggregation(users=7, dropouts=2, coordinates=2, modulus=1000, neighbourhood=graph)
    assert sum_is_right(parts, {"user 2": Step.INPUT}, 5)
    for module, function, old, new in MUTANTS:
        with monkeypatch.context() as broken:
            broken.setattr(module, function, mutated(getattr(module, function), old, new))
            assert not sum_is_right(parts, {"user 2": Step.INPUT}, 5), function


@pytest.mark.parametrize("step", Step)
def test_too_few_neighbours_of_one_user_are_refused_at_that_step(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a ring both neighbours of a user drop out: two are necessary to remove its masks.
    def refusals() -> dict[int, str]:
        said = {}
        for other in range(1, 7):
            try:
                assert sum_is_right(RING, {"user 0": step, f"user {other}": step}, 5)
            except AggregationRefused as refused:
                said[other] = refused.reason
        return said

    said = refusals()
    # Two users are two places apart; the two neighbours keep one share each of the other, which
    # fails after they have shared: at the third step and the fourth.
    assert len(said) == (2 if step < Step.INPUT else 4)
    assert all("of 3 users remain who hold shares of 'user " in reason for reason in said.values())
    assert all(", but 2 are needed" in reason for reason in said.values())
    if step is Step.UNMASK:  # without the count the commitment fails, where it should be refused
        blind = mutated(masked_server._check_enough, "terms.neighbourhood is None", "True")
        monkeypatch.setattr(masked_server, "_check_enough", blind)
        assert {"do not reconstruct" in reason for reason in refusals().values()} == {True}


WITHOUT_BOB = rehearse(dropouts=2, vanish={"bob": Step.INPUT})
HEARD = ("ann", "eve", "joe")  # their shares are combined: the first three replies


def lied(liar: str, which: str, about: str, error: int) -> masked_server.Unmasking:
    r"""Return the server's last state, with one share of one reply changed by ``error``."""
    state = WITHOUT_BOB.full[Step.UNMASK]
    reply = state.arrived[liar]
    wrong = {**getattr(reply, which)}
    wrong[about] = (wrong[about] + error) % PRIME
    fields = {"seeds": reply.seeds, "keys": reply.keys, which: wrong}
    arrived = {**state.arrived, liar: type(reply)(**fields)}
    return dataclasses.replace(state, arrived=arrived)  # type: ignore[no-any-return]  # states are kept as Any


# Ann, Eve and Joe are at 1, 3 and 4: the weight of Ann's share is 2.
SEED = int.from_bytes(WITHOUT_BOB.after[Step.SHARES]["ann"].seed, "big")
INVALID = [(value - SEED) * pow(2, -1, PRIME) for value in (PRIME - 1, 2**256)]


@given(
    st.sampled_from(HEARD),
    st.sampled_from([("seeds", "ann"), ("seeds", "zoë"), ("keys", "bob")]),
    st.integers(1, PRIME - 1),
)
def test_a_wrong_share_gives_no_sum(liar: str, half: tuple[str, str], error: int) -> None:
    with pytest.raises(AggregationRefused, match="do not reconstruct"):
        masked_server.finish(lied(liar, *half, error))


@pytest.mark.parametrize("error", INVALID)
def test_an_invalid_secret_gives_no_sum(error: int) -> None:
    with pytest.raises(AggregationRefused, match="do not reconstruct a secret of 'ann'"):
        masked_server.finish(lied("ann", "seeds", "ann", error))


def test_a_seeded_round_is_reproducible_and_a_private_one_is_not() -> None:
    one, two = rehearse(seed=4), rehearse(seed=4)
    assert one.sent == two.sent
    assert one.given == two.given
    assert one.sent != rehearse(seed=5).sent
    other = rehearse(seed=4, name="another")
    assert one.sent[Step.INPUT]["ann"][-64:] != other.sent[Step.INPUT]["ann"][-64:]
    parts = MaskedAggregation(users=2, dropouts=0, coordinates=1, modulus=10)
    assert parts.total({"a": [3], "b": [9]}).sum.tolist() == [2]


PARTS = MaskedAggregation(users=2, dropouts=0, coordinates=2, modulus=10)


@pytest.mark.parametrize(
    ("argument", "messages", "vanish"),
    [
        ("messages", {"a": [1, 2], "b": [1, 2], "c": [1, 2]}, {}),
        ("identity", {"a": [1, 2], "": [1, 2]}, {}),
        ("values", {"a": [1, 2], "b": [1]}, {}),
        ("values", {"a": [1, 2], "b": [1, [2]]}, {}),
        ("values", {"a": [1, 2], "b": [1, 7_654_321]}, {}),
        ("values", {"a": [1, 2], "b": [1.0, 1.0]}, {}),
        ("values", {"a": [1, 2], "b": np.array([2**64 - 1, 1], dtype=np.uint64)}, {}),
        ("vanish", {"a": [1, 2], "b": [1, 2]}, {"c": Step.KEYS}),
        ("vanish", {"a": [1, 2], "b": [1, 2]}, {"a": 3}),
        ("messages", None, {}),
    ],
)
def test_invalid_input_is_refused_before_any_draw(
    argument: str, messages: Any, vanish: Any
) -> None:
    line = refusal(lambda: PARTS.total(messages, vanish, rng=NeverAsked()))
    assert names(line, argument)
    assert "654" not in line  # no input is in the error
