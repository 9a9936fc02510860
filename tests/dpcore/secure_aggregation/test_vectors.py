"""Tests of the vectors: the code writes the same bytes; a second server computes the sums."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import TYPES
from tests.support.secure_aggregation.independent_server import SecondServer, x25519
from tests.support.secure_aggregation.recorded_round import plain_sum, rehearse
from tests.support.secure_aggregation.vectors import PATH, ROUNDS, good, verdict

VECTORS: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
BAD = VECTORS["bad"]["messages"]


def test_the_vectors_cover_every_message_type_and_round() -> None:
    assert VECTORS["types"] == {str(i): kind.__name__ for i, kind in enumerate(TYPES, start=1)}
    assert list(VECTORS["rounds"]) == list(ROUNDS)
    seen = {message["type"] for v in VECTORS["rounds"].values() for message in v["messages"]}
    assert seen == set(range(1, 8))


@pytest.mark.parametrize("name", ROUNDS)
def test_the_code_writes_the_bytes_of_the_vectors(name: str) -> None:
    now = json.loads(json.dumps(good(rehearse(**ROUNDS[name]), ROUNDS[name])))
    assert now == VECTORS["rounds"][name]


@pytest.mark.parametrize("name", ROUNDS)
def test_an_independent_server_computes_the_sum_from_the_bytes(name: str) -> None:
    vector = VECTORS["rounds"][name]
    total, there = SecondServer(vector).total(vector["messages"])
    assert total == vector["sum"] == plain_sum_of(vector)
    assert there == vector["participants"]


def plain_sum_of(vector: dict[str, Any]) -> list[int]:
    rows = [vector["inputs"][name] for name in vector["participants"]]
    return [sum(column) % vector["round"]["modulus"] for column in zip(*rows, strict=True)]


def test_a_changed_vector_is_detected() -> None:
    vector = VECTORS["rounds"]["no dropouts"]
    at = next(i for i, m in enumerate(vector["messages"]) if m["type"] == 5)
    message = vector["messages"][at]
    data = bytearray.fromhex(message["bytes"])
    data[-40] ^= 1
    edited = [*vector["messages"]]
    edited[at] = {**message, "bytes": data.hex()}
    with pytest.raises(AssertionError):
        SecondServer(vector).total(edited)


def test_the_montgomery_ladder_agrees_with_the_standard() -> None:
    # RFC 7748, section 5.2, the first vector.
    scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    product = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == product


@pytest.mark.parametrize("which", range(len(BAD)), ids=[row["what"] for row in BAD])
def test_bad_messages_are_refused_with_their_reason(which: int) -> None:
    row = BAD[which]
    play = rehearse(**ROUNDS[VECTORS["bad"]["round"]])
    said = verdict(play, row["to"], Step[row["step"]], bytes.fromhex(row["bytes"]))
    assert said == row["refused"]
    assert said != "accepted"


def test_a_good_message_is_accepted() -> None:
    play = rehearse(**ROUNDS[VECTORS["bad"]["round"]])
    assert verdict(play, "ann", Step.UNMASK, play.given[Step.UNMASK]["ann"]) == "accepted"
    assert play.total is not None
    assert play.total.sum.tolist() == plain_sum(play.inputs, play.total.participants, 1000)
