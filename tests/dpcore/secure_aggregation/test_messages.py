r"""Tests of `dpcore.secure_aggregation.messages`: encodings are unique; other bytes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import InvalidParameter
from dpcore.secure_aggregation import messages as masked_messages
from dpcore.secure_aggregation.messages import (
    SEALED_BYTES,
    TYPES,
    AggregationRefused,
    KeyAdvertisement,
    KeyList,
    MaskedInput,
    PublicKeys,
    SealedShares,
    ShareDelivery,
    UnmaskReply,
    UnmaskRequest,
    decode,
    encode,
    most_bytes,
)
from dpcore.secure_aggregation.round_parameters import Neighbourhood, Round, check_identity
from dpcore.secure_aggregation.shamir import PRIME
from tests.support.dpcore.mutants import mutated
from tests.support.secure_aggregation.recorded_round import refusal

TERMS = Round(identifier=bytes(range(32)), users=4, dropouts=1, coordinates=3, modulus=1000)
HEAD = 2 + 32 + (1 + 3) + 1  # of messages from "ann" to the server

names = st.text("abz é漢😀", min_size=1, max_size=20)
keys = st.integers(0, 2**255 - 20).map(lambda n: n.to_bytes(32, "little"))
public = st.builds(PublicKeys, sharing=keys, masking=keys)
seals = st.dictionaries(names, st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES), max_size=4)
elements = st.dictionaries(names, st.integers(0, PRIME - 1), max_size=4)
listed = st.lists(names, unique=True, max_size=4).map(lambda them: tuple(sorted(them)))
vectors = st.lists(st.integers(0, 999), min_size=3, max_size=3)
BODIES: dict[Any, st.SearchStrategy[Any]] = {
    KeyAdvertisement: st.builds(KeyAdvertisement, keys=public),
    KeyList: st.builds(KeyList, keys=st.dictionaries(names, public, max_size=4)),
    SealedShares: st.builds(
        SealedShares, commitment=st.binary(min_size=32, max_size=32), sealed=seals
    ),
    ShareDelivery: st.builds(ShareDelivery, sealed=seals),
    MaskedInput: st.builds(MaskedInput, values=vectors.map(np.array)),
    UnmaskRequest: st.builds(UnmaskRequest, survivors=listed, dropped=listed),
    UnmaskReply: st.builds(UnmaskReply, seeds=elements, keys=elements),
}
bodies = st.one_of(*BODIES.values())
assert tuple(BODIES) == TYPES


def written(body: Any) -> bytes:
    return encode(body, TERMS, sender="ann", receiver="")


def zeros(count: int) -> MaskedInput:
    return MaskedInput(values=np.zeros(count, dtype=np.int64))


def test_no_message_exceeds_the_length_bound() -> None:
    users = ["x" * 254 + end for end in "abcd"]  # identities of 255 bytes
    seals, shares = dict.fromkeys(users, bytes(SEALED_BYTES)), dict.fromkeys(users, PRIME - 1)
    largest = (
        KeyAdvertisement(keys=ONE),
        KeyList(keys=dict.fromkeys(users, ONE)),
        SealedShares(commitment=bytes(32), sealed=seals),
        ShareDelivery(sealed=seals),
        zeros(3),
        UnmaskRequest(survivors=tuple(users), dropped=()),
        UnmaskReply(seeds=shares, keys={}),
    )
    assert tuple(map(type, largest)) == TYPES
    for body in largest:
        length = len(encode(body, TERMS, sender=users[0], receiver=users[0])) + 32
        assert length <= most_bytes(type(body), TERMS)
        if isinstance(body, (KeyAdvertisement, MaskedInput)):
            assert length == most_bytes(type(body), TERMS)


@given(bodies, names, names)
def test_a_message_survives_a_round_trip_and_no_other_length(
    body: Any, sender: str, receiver: str
) -> None:
    data = encode(body, TERMS, sender=sender, receiver=receiver)
    header, read = decode(data, TERMS)
    assert (header.type, header.sender, header.receiver) == (type(body), sender, receiver)
    assert header.identifier == TERMS.identifier
    if isinstance(body, MaskedInput):
        assert isinstance(read, MaskedInput)
        assert read.values.tolist() == body.values.tolist()
    else:
        assert read == body
    for end in range(len(data)):
        assert refusal(decode, data[:end], TERMS), f"the first {end} of {len(data)} bytes"
    longer = refusal(decode, data + b"\0", TERMS)
    assert longer is not None
    assert "longer" in longer.reason


def uncanonical(read: Any, data: bytes) -> bool:
    try:
        header, body = read(data, TERMS)
    except AggregationRefused:
        return False
    return encode(body, TERMS, sender=header.sender, receiver=header.receiver) != data


@given(bodies, st.data())
def test_every_message_has_a_unique_encoding(body: Any, data: st.DataObject) -> None:
    edited = bytearray(written(body))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(edited) - 1))
        edited[place] = data.draw(st.integers(0, 255))
    assert not uncanonical(decode, bytes(edited))


@given(st.binary(max_size=200))
def test_random_bytes_are_decoded_or_refused(data: bytes) -> None:
    start = bytes([1, 1 + len(data) % 7]) + TERMS.identifier
    assert not uncanonical(decode, data)
    assert not uncanonical(decode, start + data)


def swapped() -> bytes:
    request = UnmaskRequest(survivors=("ann", "bob"), dropped=())
    return written(request).replace(b"\x03ann\x03bob", b"\x03bob\x03ann")


def test_a_decoder_that_accepts_any_order_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not uncanonical(decode, swapped())
    reader = masked_messages._Reader
    monkeypatch.setattr(reader, "listed", mutated(reader.listed, "name <= last", "not name"))
    assert uncanonical(decode, swapped())


def edited(body: Any, place: int, new: bytes) -> bytes:
    data = written(body)
    return data[: HEAD + place] + new + data[HEAD + place + len(new) :]


ONE = PublicKeys(sharing=b"\1" * 32, masking=b"\2" * 32)
BAD = {
    "empty": (b"", "is truncated"),
    "type 0": (b"\1\0" + written(KeyAdvertisement(keys=ONE))[2:], "type 0, which is unknown"),
    "version 2": (b"\2" + written(KeyAdvertisement(keys=ONE))[1:], "version 2, which is unknown"),
    "round": (edited(KeyAdvertisement(keys=ONE), -9, b"\x77"), "belongs to another round"),
    "name": (edited(KeyAdvertisement(keys=ONE), -4, b"\xff\xfe"), "is not UTF-8"),
    "second key": (
        edited(KeyAdvertisement(keys=ONE), 32, (2**255 - 19).to_bytes(32, "little")),
        "not canonical",
    ),
    "value": (edited(zeros(3), 2, b"\x03\xe8"), "not below the modulus"),
    "fewer values": (written(zeros(2)), "is truncated"),
    "share": (
        edited(UnmaskReply(seeds={"bob": 0}, keys={}), 6, PRIME.to_bytes(33, "big")),
        "outside the field",
    ),
    "nobody": (edited(UnmaskReply(seeds={"bob": 0}, keys={}), 2, b"\0"), "not in increasing order"),
    "twice": (
        written(UnmaskRequest(survivors=("abc", "bob"), dropped=())).replace(b"abc", b"bob"),
        "not in increasing order",
    ),
    "swapped": (swapped(), "not in increasing order"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_messages_are_refused_by_name(name: str) -> None:
    data, reason = BAD[name]
    refused = refusal(decode, data, TERMS)
    assert refused is not None
    assert reason in refused.reason
    if name == "fewer values":
        assert (refused.message, refused.sender) == ("MaskedInput", "ann")
        assert str(refused) == "MaskedInput of 'ann': is truncated"


def test_a_refusal_without_a_sender_names_the_server_or_only_a_message() -> None:
    assert str(AggregationRefused("KeyList", "", "x")) == "KeyList of the server: x"
    assert str(refusal(decode, b"\1", TERMS)) == "message: is truncated"


@pytest.mark.parametrize("modulus", [2, 256, 257, 2**62])
def test_residues_of_every_width_survive_a_round_trip(modulus: int) -> None:
    terms = Round(identifier=bytes(32), users=2, dropouts=0, coordinates=3, modulus=modulus)
    values = np.array([0, 1, modulus - 1])
    data = encode(MaskedInput(values=values), terms, sender="ann", receiver="")
    width = 1
    while 256**width < modulus:
        width += 1
    assert data[-3 * width :] == b"".join(int(v).to_bytes(width, "big") for v in values)
    _, body = decode(data, terms)
    assert isinstance(body, MaskedInput)
    assert body.values.tolist() == values.tolist()
    assert not body.values.flags.writeable


@pytest.mark.parametrize("identity", ["", "x" * 256, "é" * 128, "\ud800", 7, b"ann", None])
def test_an_invalid_identity_is_refused(identity: Any) -> None:
    with pytest.raises(InvalidParameter, match="identity"):
        check_identity(identity)


GOOD: dict[str, Any] = {
    "identifier": bytes(32),
    "users": 5,
    "dropouts": 2,
    "coordinates": 1,
    "modulus": 2,
}


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("identifier", b"short"),
        ("users", 1),
        ("users", 4),  # two of five may drop out, but not two of four
        ("users", 2**16),
        ("dropouts", 3),
        ("dropouts", True),
        ("coordinates", 0),
        ("modulus", 1),
        ("modulus", 2**62 + 1),
        ("neighbourhood", 4),
        ("neighbourhood", Neighbourhood(neighbours=4, threshold=3)),
    ],
)
def test_invalid_parameters_of_a_round_are_refused(argument: str, value: Any) -> None:
    assert Round(**GOOD).threshold == 3
    with pytest.raises(InvalidParameter) as refused:
        Round(**{**GOOD, argument: value})
    assert refused.value.argument in {argument, "dropouts"}


def test_the_context_depends_on_every_term() -> None:
    base = {**GOOD, "users": 9}
    graphs = ((4, 3), (4, 4), (6, 4), (6, 5))
    rounds = [
        base,
        {**base, "identifier": bytes(31) + b"\1"},
        *({**base, field: value + 1} for field, value in base.items() if type(value) is int),
        *({**base, "neighbourhood": Neighbourhood(neighbours=k, threshold=t)} for k, t in graphs),
    ]
    assert len({Round(**terms).context for terms in rounds}) == len(rounds) == 10
