r"""Tests of changed messages and of requests for both halves of a user: all are refused by name."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng
from dpcore.secure_aggregation import keys as masked_keys
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys import Channel, KeyPair
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import (
    KeyAdvertisement,
    KeyList,
    MaskedInput,
    PublicKeys,
    SealedShares,
    ShareDelivery,
    UnmaskReply,
    UnmaskRequest,
)
from tests.day_and_nightly import spread
from tests.support.dpcore.mutants import mutated
from tests.support.secure_aggregation.recorded_round import (
    GRAPHS,
    NAMES,
    Rehearsal,
    over_each_graph,
    plain_sum,
    refusal,
    rehearse,
    rehearsed,
)

EVE: dict[str, Any] = {"vanish": {"eve": Step.INPUT}}
PLAY, OTHER, GRAPH = rehearsed(), rehearsed(name="another round"), GRAPHS["everyone"]
LATER = [step for step in Step if step > Step.KEYS]
STATE = PLAY.users[Step.UNMASK]["ann"]


over_graph = over_each_graph(
    __name__,
    OTHER=lambda graph: rehearsed(graph, "another round"),
    GRAPH=GRAPHS.__getitem__,
    STATE=lambda graph: rehearsed(graph).users[Step.UNMASK]["ann"],
)


def flips(data: bytes, places: Any) -> list[bytes]:
    return [
        data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]
        for at in places
    ]


def accepted_by_server(play: Rehearsal, step: Step, messages: list[bytes]) -> list[bytes]:
    state = play.server[step]
    taken = [m for m in messages if refusal(masked_server.receive, state, m) is None]
    assert state.arrived == {}
    return taken


def accepted_by_user(play: Rehearsal, step: Step, name: str, messages: list[bytes]) -> list[bytes]:
    return [m for m in messages if refusal(play.step, step, name, m) is None]


@pytest.mark.parametrize("step", Step)
def test_any_flipped_bit_to_the_server_is_refused(step: Step) -> None:
    name = "zoë"
    data = PLAY.sent[step][name]
    assert accepted_by_server(PLAY, step, [data]) == [data]
    assert accepted_by_server(PLAY, step, flips(data, spread(range(8 * len(data)), 300))) == []


@pytest.mark.parametrize("step", LATER)
def test_any_flipped_bit_to_a_user_is_refused(step: Step) -> None:
    name = "zoë"
    data = PLAY.given[step][name]
    assert accepted_by_user(PLAY, step, name, [data]) == [data]
    assert accepted_by_user(PLAY, step, name, flips(data, spread(range(8 * len(data)), 60))) == []


def test_a_receiver_that_skips_the_tag_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    old = "if not hmac.compare_digest(tag, _tag(self.receiving, signed)):"
    monkeypatch.setattr(Channel, "receive", mutated(Channel.receive, old, "if False:"))
    for step, place in ((Step.KEYS, 40), (Step.INPUT, 40), (Step.UNMASK, 50)):
        data = PLAY.sent[step]["ann"]
        assert accepted_by_server(PLAY, step, flips(data, [8 * place + 3]))
    data = PLAY.sent[Step.KEYS]["ann"]
    assert accepted_by_server(
        PLAY, Step.KEYS, flips(data, range(8 * len(data) - 256, 8 * len(data)))
    )


@pytest.mark.parametrize("step", Step)
def test_truncated_extended_and_empty_messages_are_refused(step: Step) -> None:
    data = PLAY.sent[step]["bob"] if step < Step.INPUT else PLAY.sent[step]["ann"]
    edited = [data[:n] for n in range(len(data))] + [data + b"\0", data + data, b"\0" + data]
    assert accepted_by_server(PLAY, step, edited) == []
    for other in (bytearray(data), memoryview(data), None, ""):
        assert reason(masked_server.receive, PLAY.server[step], other) == "is not bytes"


@pytest.mark.parametrize("step", Step)
def test_an_oversized_message_is_refused_before_hashing(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []

    def noted(key: bytes, data: bytes) -> bytes:
        hashed.append(len(data))
        return hmac.digest(key, data, "sha256")

    monkeypatch.setattr(masked_keys, "_tag", noted)
    longest = PLAY.sent[step]["ann"] + bytes(1 << 16)
    assert "is longer than any" in reason(masked_server.receive, PLAY.server[step], longest)
    given = PLAY.given[step]["ann"] + bytes(1 << 16)
    assert step is Step.KEYS or "is longer than any" in reason(PLAY.step, step, "ann", given)
    assert hashed == []
    monkeypatch.setattr(masked_keys, "most_bytes", lambda kind, terms: 1 << 20)
    reason(masked_server.receive, PLAY.server[step], longest)
    assert hashed[0] > 1 << 16


def reason(act: Any, *arguments: Any) -> str:
    refused = refusal(act, *arguments)
    return "" if refused is None else refused.reason


@pytest.mark.parametrize("step", Step)
def test_a_second_message_is_refused_and_the_sum_is_right(step: Step) -> None:
    state = PLAY.full[step]
    for name, data in PLAY.sent[step].items():
        before = dict(state.arrived)
        assert "already received" in reason(masked_server.receive, state, data)
        assert state.arrived == before, name
    assert PLAY.total is not None
    assert PLAY.total.sum.tolist() == plain_sum(PLAY.inputs, PLAY.total.participants, 1000)


def test_a_server_that_accepts_a_second_message_is_detected() -> None:
    mutant = mutated(masked_server.receive, "if name in state.arrived:", "if False:")
    assert reason(mutant, PLAY.full[Step.INPUT], PLAY.sent[Step.INPUT]["ann"]) == ""


@pytest.mark.parametrize("step", Step)
def test_a_message_of_another_round_is_refused(step: Step) -> None:
    replayed = OTHER.sent[step]["ann"]
    assert "another round" in reason(masked_server.receive, PLAY.server[step], replayed)
    renamed = replayed[:2] + PLAY.terms.identifier + replayed[34:]
    assert "not authentic" in reason(masked_server.receive, PLAY.server[step], renamed)
    if step > Step.KEYS:
        replayed = OTHER.given[step]["ann"]
        assert "another round" in reason(PLAY.step, step, "ann", replayed)
        renamed = replayed[:2] + PLAY.terms.identifier + replayed[34:]
        assert "not authentic" in reason(PLAY.step, step, "ann", renamed)


@pytest.mark.parametrize("terms", [{"coordinates": 5}, {"modulus": 1001}, {"dropouts": 2}], ids=str)
def test_a_user_with_other_terms_is_refused(terms: dict[str, int]) -> None:
    # The enrolled keys and the identifier are those of PLAY: only the terms differ.
    other = rehearse(**EVE, **GRAPH, **terms)  # type: ignore[arg-type]  # all are ints
    assert other.terms.identifier == PLAY.terms.identifier
    assert other.enrolled == PLAY.enrolled
    state, message = PLAY.server[Step.KEYS], other.sent[Step.KEYS]["ann"]
    assert "not authentic" in reason(masked_server.receive, state, message)


@pytest.mark.parametrize("due", Step)
@pytest.mark.parametrize("came", Step)
def test_a_message_of_another_step_is_refused(due: Step, came: Step) -> None:
    said = reason(masked_server.receive, PLAY.server[due], PLAY.sent[came]["ann"])
    assert ("arrived, but" in said) == (due is not came)


@pytest.mark.parametrize("step", LATER)
def test_a_message_for_another_receiver_is_refused(step: Step) -> None:
    said = reason(PLAY.step, step, "ann", PLAY.given[step]["bob"])
    assert "addressed to another user" in said
    # A user's own message, sent back to it.
    assert "unexpected sender" in reason(PLAY.step, step, "ann", PLAY.sent[step]["ann"])


def channel_of(name: str, play: Rehearsal | None = None) -> Channel:
    play = play or PLAY
    public = play.own.public
    return Channel.between(play.terms, name, "", play.enrolled[name], public)


def fresh_keys(seed: int) -> PublicKeys:
    rng = SeededRng(seed)
    return PublicKeys(sharing=KeyPair.draw(rng).public, masking=KeyPair.draw(rng).public)


def test_a_user_who_is_not_enrolled_is_refused() -> None:
    stranger = Channel.between(PLAY.terms, "mal", "", KeyPair.draw(), PLAY.own.public)
    message = stranger.send(KeyAdvertisement(keys=fresh_keys(1)))
    assert "not enrolled" in reason(masked_server.receive, PLAY.server[Step.KEYS], message)
    posing = Channel.between(PLAY.terms, "ann", "", KeyPair.draw(), PLAY.own.public)
    message = posing.send(KeyAdvertisement(keys=fresh_keys(1)))
    assert "not authentic" in reason(masked_server.receive, PLAY.server[Step.KEYS], message)


def test_two_users_with_one_identity_are_refused() -> None:
    roster: list[Any] = [(name, pair.public) for name, pair in PLAY.enrolled.items()]
    for edited, said in (
        ([*roster[:-1], ("ann", KeyPair.draw().public)], "each identity once"),
        ([*roster[:-1], ("mal", roster[0][1])], "each public key once"),
        (roster[:-1], f"must list {len(roster)} users"),
        ([*roster[:-1], ("", KeyPair.draw().public)], "1 to 255 bytes"),
        ([*roster[:-1], ("mal", bytes(32))], "large order"),
        # X25519 ignores the last bit: the same key in another encoding.
        ([*roster[:-1], ("mal", roster[0][1][:31] + bytes([roster[0][1][31] | 128]))], "canonical"),
        ([*roster[:-1], ("mal", roster[0][1][:31])], "canonical"),
        ([*roster[:-1], ("mal", None)], "canonical"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            masked_server.open_round(PLAY.terms, PLAY.own, edited)
    again = channel_of("ann").send(KeyAdvertisement(keys=fresh_keys(1)))
    assert "already received" in reason(masked_server.receive, PLAY.full[Step.KEYS], again)


def test_repeated_and_degenerate_keys_are_refused() -> None:
    first = masked_server.receive(PLAY.server[Step.KEYS], PLAY.sent[Step.KEYS]["bob"])
    bob, good = first.arrived["bob"].keys, fresh_keys(1)
    for keys in (
        PublicKeys(sharing=good.sharing, masking=good.sharing),
        PublicKeys(sharing=good.sharing, masking=bob.sharing),
        PublicKeys(sharing=bob.masking, masking=good.masking),
    ):
        message = channel_of("ann").send(KeyAdvertisement(keys=keys))
        assert "or a key of another user" in reason(masked_server.receive, first, message)
    for point in (bytes(32), b"\1" + bytes(31)):
        for keys in (
            PublicKeys(sharing=point, masking=good.masking),
            PublicKeys(sharing=good.sharing, masking=point),
        ):
            message = channel_of("ann").send(KeyAdvertisement(keys=keys))
            assert "low order" in reason(masked_server.receive, first, message)


def test_a_user_who_dropped_out_cannot_return() -> None:
    play = rehearse(vanish={"eve": Step.KEYS}, **GRAPH)
    seal = play.full[Step.SHARES].arrived["ann"].sealed["bob"]
    body = SealedShares(
        commitment=bytes(32), sealed=dict.fromkeys(("ann", "bob", "joe", "zoë"), seal)
    )
    late = channel_of("eve", play).send(body)
    assert "dropped out in an earlier" in reason(
        masked_server.receive, play.server[Step.SHARES], late
    )
    play = rehearse(vanish={"eve": Step.SHARES}, **GRAPH)
    late = channel_of("eve", play).send(MaskedInput(values=play.inputs["eve"]))
    assert "dropped out in an earlier" in reason(
        masked_server.receive, play.server[Step.INPUT], late
    )
    empty = channel_of("eve").send(UnmaskReply(seeds={}, keys={}))
    assert "dropped out in an earlier" in reason(
        masked_server.receive, PLAY.server[Step.UNMASK], empty
    )


def test_shares_for_users_without_advertised_keys_are_refused() -> None:
    shares = PLAY.full[Step.SHARES].arrived["ann"]
    for sealed in (
        {**shares.sealed, "mal": shares.sealed["bob"]},
        {**shares.sealed, "ann": shares.sealed["bob"]},
        {**shares.sealed, "mia": shares.sealed["bob"]},  # in a graph mia is present, no neighbour
        {name: shares.sealed[name] for name in ("bob", "eve")},
    ):
        body = SealedShares(commitment=shares.commitment, sealed=sealed)
        said = reason(masked_server.receive, PLAY.server[Step.SHARES], channel_of("ann").send(body))
        assert "every other user" in said


def test_a_reply_to_another_request_is_refused() -> None:
    reply = PLAY.full[Step.UNMASK].arrived["ann"]
    for seeds, keys in (
        (reply.keys, reply.seeds),
        ({**reply.seeds, **reply.keys}, reply.keys),
        (reply.seeds, {}),
        ({}, reply.keys),
    ):
        body = UnmaskReply(seeds=seeds, keys=keys)
        said = reason(masked_server.receive, PLAY.server[Step.UNMASK], channel_of("ann").send(body))
        assert "exactly the request" in said


def relay(sealed: dict[str, bytes]) -> bytes:
    ways: Channel = PLAY.server[Step.INPUT].channels["ann"]
    return ways.send(ShareDelivery(sealed=sealed))


def given_to(name: str, play: Rehearsal | None = None) -> dict[str, bytes]:
    sent = (play or PLAY).full[Step.SHARES].arrived
    return {other: body.sealed[name] for other, body in sent.items() if name in body.sealed}


def test_the_relay_cannot_change_shares() -> None:
    good = given_to("ann")
    assert reason(PLAY.step, Step.INPUT, "ann", relay(good)) == ""
    for flipped in flips(good["bob"], spread(range(8 * len(good["bob"])), 60)):
        said = reason(PLAY.step, Step.INPUT, "ann", relay({**good, "bob": flipped}))
        assert "the shares of 'bob' must be sealed" in said


def misdirected() -> dict[str, bytes]:
    own = PLAY.full[Step.SHARES].arrived["ann"].sealed
    return {
        "of another sender": given_to("ann")["joe"],
        "for another receiver": given_to("eve")["bob"],
        "of another round": given_to("ann", OTHER)["bob"],
        "sent back": own["bob"],
    }


@pytest.mark.parametrize("which", misdirected())
def test_the_relay_cannot_misdirect_shares(which: str) -> None:
    swapped = relay({**given_to("ann"), "bob": misdirected()[which]})
    assert "must be sealed" in reason(PLAY.step, Step.INPUT, "ann", swapped)


def test_shares_that_are_not_bound_to_their_receiver_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masked_keys, "_names", lambda *identities: b"")
    unbound = rehearse(**EVE, **GRAPH)
    own = unbound.full[Step.SHARES].arrived["ann"].sealed["bob"]
    message = (
        unbound.server[Step.INPUT]
        .channels["ann"]
        .send(ShareDelivery(sealed={**given_to("ann", unbound), "bob": own}))
    )
    assert reason(unbound.step, Step.INPUT, "ann", message) == ""


def test_the_relay_cannot_add_or_omit_too_many_shares() -> None:
    good = given_to("ann")
    for sealed, said in (
        ({**good, "mal": good["bob"]}, "advertised no keys"),
        ({**good, "mia": good["bob"]}, "advertised no keys"),
        ({**good, "ann": good["bob"]}, "or from the receiver itself"),
        ({"bob": good["bob"], "eve": good["eve"]}, "fewer than 4"),
    ):
        assert said in reason(PLAY.step, Step.INPUT, "ann", relay(sealed))


def test_an_impossible_list_of_keys_is_refused() -> None:
    keys = {n: PLAY.server[Step.SHARES].keys[n] for n in PLAY.server[Step.KEYS].near["ann"]}
    ways = PLAY.server[Step.KEYS].channels["ann"]
    low = PublicKeys(sharing=bytes(32), masking=fresh_keys(1).masking)
    for listed, said in (
        ({name: keys[name] for name in NAMES[:3]}, "must contain the keys of 4 to 5"),
        ({**keys, "mal": fresh_keys(1)}, "must contain the keys of 4 to 5"),
        ({**keys, "ann": fresh_keys(1)}, "does not contain the keys of its receiver"),
        ({name: keys[name] for name in NAMES[1:]}, "does not contain the keys of its receiver"),
        ({**keys, "bob": keys["eve"]}, "a key twice"),
        ({**keys, "bob": low}, "large order"),
    ):
        message = ways.send(KeyList(keys=listed))
        assert said in reason(PLAY.step, Step.SHARES, "ann", message)


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
