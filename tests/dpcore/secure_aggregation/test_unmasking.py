r"""Tests of unmasking: users reveal one half of each user, and refuse a request for both."""

from __future__ import annotations

from typing import Any

import pytest

from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys import Channel
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import UnmaskReply, UnmaskRequest
from tests.support.dpcore.mutants import mutated
from tests.support.secure_aggregation.recorded_round import over_each_graph, refusal, rehearsed

PLAY = rehearsed()
STATE = PLAY.users[Step.UNMASK]["ann"]
REQUESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "both": (("ann", "bob", "eve", "joe", "zoë"), ("eve",), "'eve' both as surviving"),
    "all both": (
        ("ann", "bob", "eve", "joe", "zoë"),
        ("ann", "bob", "eve", "joe", "zoë"),
        "both as surviving",
    ),
    "not everyone": (("ann", "bob", "joe", "zoë"), (), "must name exactly"),
    "a stranger survives": (("ann", "bob", "joe", "mal", "zoë"), ("eve",), "must name exactly"),
    "a stranger dropped": (("ann", "bob", "joe", "zoë"), ("eve", "mal"), "must name exactly"),
    "its receiver dropped": (("bob", "eve", "joe", "zoë"), ("ann",), "lists its receiver"),
    "too many dropped": (("ann", "bob", "joe"), ("eve", "zoë"), "fewer than 4 survivors"),
}


over_graph = over_each_graph(
    __name__, STATE=lambda graph: rehearsed(graph).users[Step.UNMASK]["ann"]
)


def ask(survivors: tuple[str, ...], dropped: tuple[str, ...]) -> bytes:
    ways: Channel = PLAY.server[Step.KEYS].channels["ann"]
    return ways.send(UnmaskRequest(survivors=survivors, dropped=dropped))


def reply(act: Any, survivors: tuple[str, ...], dropped: tuple[str, ...]) -> UnmaskReply:
    _, data = act(STATE, ask(survivors, dropped))
    body = PLAY.server[Step.KEYS].channels["ann"].receive(data, UnmaskReply)
    assert isinstance(body, UnmaskReply)
    return body


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_for_both_halves_is_refused(name: str) -> None:
    survivors, dropped, reason = REQUESTS[name]
    refused = refusal(masked_user.unmask, STATE, ask(survivors, dropped))
    assert refused is not None
    assert reason in refused.reason
    assert (refused.message, refused.sender) == ("UnmaskRequest", "")


MUTANTS = {
    "both": ("if survivors & dropped:", "if False:"),
    "not everyone": ("if survivors | dropped != set(state.shares):", "if False:"),
    "its receiver dropped": ("if state.channel.own in dropped:", "if False:"),
    "too many dropped": ("if len(survivors) < state.channel.terms.threshold:", "if False:"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_user_without_one_check_reveals_both_halves(name: str) -> None:
    mutant = mutated(masked_user.unmask, *MUTANTS[name])
    survivors, dropped, _ = REQUESTS[name]
    assert refusal(mutant, STATE, ask(survivors, dropped)) is None


def reveals_both(act: Any) -> bool:
    body = reply(act, ("ann", "bob", "joe", "zoë"), ("eve",))
    held = STATE.shares
    right = body.seeds == {n: held[n].seed for n in ("ann", "bob", "joe", "zoë")}
    right = right and body.keys == {"eve": held["eve"].key}
    return not right or bool(set(body.seeds) & set(body.keys))


def test_a_reply_contains_one_half_for_each_user() -> None:
    assert not reveals_both(masked_user.unmask)


@pytest.mark.parametrize(
    "edit",
    [
        ("for name in request.dropped}", "for name in state.shares}"),
        ("for name in request.survivors}", "for name in state.shares}"),
    ],
    ids=["keys of all", "seeds of all"],
)
def test_a_user_that_reveals_both_halves_is_detected(edit: tuple[str, str]) -> None:
    assert reveals_both(mutated(masked_user.unmask, *edit))


def test_secrets_are_not_in_the_repr() -> None:
    private = [pair.private for pair in (PLAY.own, *PLAY.enrolled.values())]
    shared = PLAY.after[Step.SHARES]["ann"]
    private += [shared.seed, shared.masking.private, *shared.secrets.values()]
    shares = [share for pair in STATE.shares.values() for share in (pair.key, pair.seed)]
    states = [
        states[n] for table in (PLAY.users, PLAY.after) for states in table.values() for n in states
    ]
    shown = " ".join(map(repr, [*states, PLAY.server[Step.KEYS], PLAY.own]))
    assert not any(repr(secret) in shown for secret in private)
    assert not any(str(share) in shown for share in shares)
