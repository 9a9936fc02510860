r"""Tests of changed messages and of requests for both halves of a user: all are refused by name."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng
from dpcore.secure_aggregation import keys_and_masks as masked_keys
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys_and_masks import Channel, KeyPair
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
    refusal,
    rehearse,
    rehearsed,
)

EVERYONE = ("ann", "bob", "eve", "joe", "zoë")
OTHERS = ("ann", "bob", "joe", "zoë")
PLAY, OTHER, GRAPH = rehearsed(), rehearsed(name="another round"), GRAPHS["everyone"]
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


@pytest.mark.parametrize("step", Step)
def test_any_changed_message_is_refused(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    data, state = PLAY.sent[step]["zoë"], PLAY.server[step]
    assert reason(masked_server.receive, state, data) == ""
    changed = flips(data, spread(range(8 * len(data)), 100))
    changed += [data[:n] for n in range(len(data))] + [data + b"\0", data + data, b"\0" + data]
    assert all(refusal(masked_server.receive, state, message) for message in changed)
    for other in (bytearray(data), memoryview(data), None, ""):
        assert reason(masked_server.receive, state, other) == "is not bytes"
    # A receiver that does not compare the tag accepts a message with a changed tag.
    with monkeypatch.context() as careless:
        old = "if not hmac.compare_digest(tag, _tag(self.receiving, signed)):"
        careless.setattr(Channel, "receive", mutated(Channel.receive, old, "if False:"))
        assert reason(masked_server.receive, state, *flips(data, [8 * len(data) - 1])) == ""
    if step > Step.KEYS:
        given = PLAY.given[step]["zoë"]
        assert reason(PLAY.step, step, "zoë", given) == ""
        for flipped in flips(given, spread(range(8 * len(given)), 40)):
            assert refusal(PLAY.step, step, "zoë", flipped)


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
def test_a_second_message_is_refused(step: Step) -> None:
    state = PLAY.full[step]
    careless = mutated(masked_server.receive, "if name in state.arrived:", "if False:")
    for name, data in PLAY.sent[step].items():
        before = dict(state.arrived)
        assert "already received" in reason(masked_server.receive, state, data)
        assert state.arrived == before, name
        assert reason(careless, state, data) == ""


@pytest.mark.parametrize("step", Step)
def test_a_message_of_another_round_step_or_receiver_is_refused(step: Step) -> None:
    def at_server(data: bytes) -> str:
        return reason(masked_server.receive, PLAY.server[step], data)

    def at_ann(data: bytes) -> str:
        return reason(PLAY.step, step, "ann", data)

    ways = [(at_server, OTHER.sent)] + [(at_ann, OTHER.given)] * (step > Step.KEYS)
    for receive, other in ways:
        replayed = other[step]["ann"]
        assert "another round" in receive(replayed)
        renamed = replayed[:2] + PLAY.terms.identifier + replayed[34:]
        assert "not authentic" in receive(renamed)
    for came in Step:
        assert ("arrived, but" in at_server(PLAY.sent[came]["ann"])) == (step is not came)
    if step > Step.KEYS:
        assert "addressed to another user" in at_ann(PLAY.given[step]["bob"])
        # A user's own message, sent back to it.
        assert "unexpected sender" in at_ann(PLAY.sent[step]["ann"])


@pytest.mark.parametrize("terms", [{"coordinates": 5}, {"modulus": 1001}, {"dropouts": 2}], ids=str)
def test_a_user_with_other_terms_is_refused(terms: dict[str, int]) -> None:
    # The enrolled keys and the identifier are those of PLAY: only the terms differ.
    other = rehearse(vanish={"eve": Step.INPUT}, **GRAPH, **terms)  # type: ignore[arg-type]  # all are ints
    assert other.terms.identifier == PLAY.terms.identifier
    assert other.enrolled == PLAY.enrolled
    state, message = PLAY.server[Step.KEYS], other.sent[Step.KEYS]["ann"]
    assert "not authentic" in reason(masked_server.receive, state, message)


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
    seal = PLAY.full[Step.SHARES].arrived["ann"].sealed["bob"]
    shares = SealedShares(commitment=bytes(32), sealed=dict.fromkeys(OTHERS, seal))
    for gone, step, body in (
        (Step.KEYS, Step.SHARES, shares),
        (Step.SHARES, Step.INPUT, MaskedInput(values=PLAY.inputs["eve"])),
        (Step.INPUT, Step.UNMASK, UnmaskReply(seeds={}, keys={})),
    ):
        play = rehearse(vanish={"eve": gone}, **GRAPH)
        late = channel_of("eve", play).send(body)
        assert "dropped out in an earlier" in reason(masked_server.receive, play.server[step], late)


def test_shares_and_replies_for_other_users_are_refused() -> None:
    shares, reply = (PLAY.full[step].arrived["ann"] for step in (Step.SHARES, Step.UNMASK))
    one = shares.sealed["bob"]
    # In a graph mia is present, but no neighbour.
    wrong = [{**shares.sealed, name: one} for name in ("mal", "ann", "mia")]
    for sealed in (*wrong, {"bob": one, "eve": shares.sealed["eve"]}):
        message = channel_of("ann").send(SealedShares(commitment=shares.commitment, sealed=sealed))
        said = reason(masked_server.receive, PLAY.server[Step.SHARES], message)
        assert "every other user" in said
    both = {**reply.seeds, **reply.keys}
    halves: list[Any] = [(reply.keys, reply.seeds), (both, reply.keys), (reply.seeds, {})]
    for seeds, keys in (*halves, ({}, reply.keys)):
        message = channel_of("ann").send(UnmaskReply(seeds=seeds, keys=keys))
        said = reason(masked_server.receive, PLAY.server[Step.UNMASK], message)
        assert "exactly the request" in said


def relay(sealed: dict[str, bytes], play: Rehearsal | None = None) -> bytes:
    ways: Channel = (play or PLAY).server[Step.INPUT].channels["ann"]
    return ways.send(ShareDelivery(sealed=sealed))


def given_to(name: str, play: Rehearsal | None = None) -> dict[str, bytes]:
    sent = (play or PLAY).full[Step.SHARES].arrived
    return {other: body.sealed[name] for other, body in sent.items() if name in body.sealed}


def test_the_relay_cannot_change_misdirect_add_or_omit_shares() -> None:
    good = given_to("ann")

    def said(sealed: dict[str, bytes]) -> str:
        return reason(PLAY.step, Step.INPUT, "ann", relay(sealed))

    assert said(good) == ""
    for sealed in (
        *flips(good["bob"], spread(range(8 * len(good["bob"])), 40)),
        good["joe"],  # of another sender
        given_to("eve")["bob"],  # for another receiver
        given_to("ann", OTHER)["bob"],  # of another round
        PLAY.full[Step.SHARES].arrived["ann"].sealed["bob"],  # sent back
    ):
        assert "the shares of 'bob' must be sealed" in said({**good, "bob": sealed})
    for name in ("mal", "mia"):
        assert "advertised no keys" in said({**good, name: good["bob"]})
    assert "or from the receiver itself" in said({**good, "ann": good["bob"]})
    assert "fewer than 4" in said({"bob": good["bob"], "eve": good["eve"]})


def test_shares_that_are_not_bound_to_their_receiver_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masked_keys, "_names", lambda *identities: b"")
    unbound = rehearse(vanish={"eve": Step.INPUT}, **GRAPH)
    own = unbound.full[Step.SHARES].arrived["ann"].sealed["bob"]
    message = relay({**given_to("ann", unbound), "bob": own}, unbound)
    assert reason(unbound.step, Step.INPUT, "ann", message) == ""


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


def ask(survivors: tuple[str, ...], dropped: tuple[str, ...]) -> bytes:
    ways: Channel = PLAY.server[Step.KEYS].channels["ann"]
    return ways.send(UnmaskRequest(survivors=survivors, dropped=dropped))


@pytest.mark.parametrize(
    ("survivors", "dropped", "said", "check"),
    [
        (EVERYONE, ("eve",), "'eve' both as surviving", "survivors & dropped"),
        (EVERYONE, EVERYONE, "both as surviving", ""),
        (OTHERS, (), "must name exactly", "survivors | dropped != set(state.shares)"),
        (("ann", "bob", "joe", "mal", "zoë"), ("eve",), "must name exactly", ""),
        (OTHERS, ("eve", "mal"), "must name exactly", ""),
        (EVERYONE[1:], ("ann",), "lists its receiver", "state.channel.own in dropped"),
        (
            ("ann", "bob", "joe"),
            ("eve", "zoë"),
            "fewer than 4 survivors",
            "len(survivors) < state.channel.terms.threshold",
        ),
    ],
)
def test_a_request_for_both_halves_is_refused(
    survivors: tuple[str, ...], dropped: tuple[str, ...], said: str, check: str
) -> None:
    refused = refusal(masked_user.unmask, STATE, ask(survivors, dropped))
    assert refused is not None
    assert said in refused.reason
    assert (refused.message, refused.sender) == ("UnmaskRequest", "")
    if check:  # without it the user replies
        careless = mutated(masked_user.unmask, f"if {check}:", "if False:")
        assert refusal(careless, STATE, ask(survivors, dropped)) is None


def test_a_reply_contains_one_half_for_each_user() -> None:
    def reply(act: Any) -> UnmaskReply:
        _, data = act(STATE, ask(OTHERS, ("eve",)))
        body = PLAY.server[Step.KEYS].channels["ann"].receive(data, UnmaskReply)
        assert isinstance(body, UnmaskReply)
        return body

    held = STATE.shares
    right = UnmaskReply(seeds={n: held[n].seed for n in OTHERS}, keys={"eve": held["eve"].key})
    assert reply(masked_user.unmask) == right
    for half in ("dropped", "survivors"):
        both = (f"for name in request.{half}}}", "for name in state.shares}")
        assert reply(mutated(masked_user.unmask, *both)) != right


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
