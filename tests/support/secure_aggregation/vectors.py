r"""The test vectors of masked aggregation: seeded rounds, good and bad messages with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpcore.sampling.rng import SeededRng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation.keys import Channel, KeyPair
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import (
    TYPES,
    KeyAdvertisement,
    MaskedInput,
    PublicKeys,
    UnmaskRequest,
)
from dpcore.secure_aggregation.round_parameters import Neighbourhood
from tests.support.secure_aggregation.recorded_round import GRAPHS, Rehearsal, refusal, rehearse

PATH = Path(__file__).parents[2] / "vectors" / "masked_aggregation.json"
ROUNDS: dict[str, dict[str, Any]] = {
    "no dropouts": {"seed": 1},
    "one dropout before the input": {"seed": 2, "vanish": {"eve": Step.INPUT}},
    "one dropout at each of two steps": {
        "seed": 3,
        "dropouts": 2,
        "modulus": 2**62,
        "coordinates": 2,
        "vanish": {"bob": Step.INPUT, "joe": Step.UNMASK},
    },
    "one dropout before the shares": {"seed": 4, "modulus": 2, "vanish": {"ann": Step.SHARES}},
    "four neighbours for each user": {
        "seed": 5,
        "vanish": {"eve": Step.INPUT},
        **GRAPHS["neighbours"],
    },
    "a ring": {
        "seed": 8,
        "dropouts": 2,
        "names": ("ann", "bob", "eve", "joe", "mia", "uli", "zoë"),
        "neighbourhood": Neighbourhood(neighbours=2, threshold=2),
        "vanish": {"bob": Step.SHARES, "joe": Step.UNMASK},
    },
}


def good(play: Rehearsal, how: dict[str, Any]) -> dict[str, Any]:
    terms, total = play.terms, play.total
    assert total is not None
    messages = [
        {"type": data[1], "user": name, "bytes": data.hex()}
        for step in Step
        for table in (play.given[step] if step > Step.KEYS else {}, play.sent[step])
        for name, data in table.items()
    ]
    graph = how.get("neighbourhood")
    return {
        "seed": how["seed"],
        "vanish": {name: step.name for name, step in how.get("vanish", {}).items()},
        "round": {f: getattr(terms, f) for f in ("users", "dropouts", "coordinates", "modulus")}
        | {f: getattr(graph, f) for f in ("neighbours", "threshold") if graph is not None}
        | {"name": "rehearsal", "identifier": terms.identifier.hex()},
        "server": play.own.private.hex(),
        "enrolled": {n: pair.private.hex() for n, pair in play.enrolled.items()},
        "inputs": {n: values.tolist() for n, values in play.inputs.items()},
        "messages": messages,
        "sum": total.sum.tolist(),
        "participants": list(total.participants),
    }


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def bad_messages(play: Rehearsal) -> list[tuple[str, str, Step, bytes]]:
    r"""Yield the defect, the receiver ("" is the server, after all messages), step and bytes."""
    other = rehearse(seed=2, vanish={"eve": Step.INPUT}, name="another round")
    ann: Channel = play.users[Step.KEYS]["ann"].channel
    mal = Channel.between(play.terms, "mal", "", KeyPair.draw(SeededRng(7)), play.own.public)
    to_ann: Channel = play.server[Step.KEYS].channels["ann"]
    keys = play.server[Step.SHARES].keys["ann"]
    low = PublicKeys(sharing=bytes(32), masking=keys.masking)
    everyone = ("ann", "bob", "eve", "joe", "zoë")
    sent, given = play.sent, play.given
    wide = ann.send(MaskedInput(values=play.inputs["ann"] * 0 + 1000))
    short = ann.send(MaskedInput(values=play.inputs["ann"][:3]))
    reply = sent[Step.UNMASK]["ann"]
    first = sent[Step.KEYS]["ann"]
    return [
        ("unknown version", "", Step.KEYS, b"\2" + first[1:]),
        ("unknown type", "", Step.KEYS, first[:1] + b"\x09" + first[2:]),
        ("truncated in the header", "", Step.KEYS, first[:20]),
        ("truncated in the body", "", Step.KEYS, first[:80]),
        ("extended", "", Step.INPUT, sent[Step.INPUT]["ann"] + b"\0"),
        ("one bit of a key", "", Step.KEYS, flipped(first, 8 * 50)),
        ("one bit of a masked input", "", Step.INPUT, flipped(sent[Step.INPUT]["ann"], 8 * 40)),
        ("one bit of a tag", "", Step.UNMASK, flipped(reply, 8 * len(reply) - 1)),
        ("another round", "", Step.INPUT, other.sent[Step.INPUT]["ann"]),
        ("a second message", "", Step.INPUT, sent[Step.INPUT]["ann"]),
        ("not enrolled", "", Step.KEYS, mal.send(KeyAdvertisement(keys=low))),
        ("a key of low order", "", Step.KEYS, ann.send(KeyAdvertisement(keys=low))),
        ("another step", "", Step.UNMASK, sent[Step.INPUT]["ann"]),
        ("a value equal to the modulus", "", Step.INPUT, wide),
        ("too few coordinates", "", Step.INPUT, short),
        ("for another user", "ann", Step.INPUT, given[Step.INPUT]["bob"]),
        ("one bit of sealed shares", "ann", Step.INPUT, flipped(given[Step.INPUT]["ann"], 8 * 60)),
        (
            "eve as surviving and dropped",
            "ann",
            Step.UNMASK,
            to_ann.send(UnmaskRequest(survivors=everyone, dropped=("eve",))),
        ),
        (
            "too few survivors",
            "ann",
            Step.UNMASK,
            to_ann.send(UnmaskRequest(survivors=everyone[:3], dropped=everyone[3:])),
        ),
    ]


def verdict(play: Rehearsal, to: str, step: Step, data: bytes) -> str:
    r"""Return the receiver's verdict: the refusal as text, or "accepted"."""
    if to:
        refused = refusal(play.step, step, to, data)
    else:
        refused = refusal(masked_server.receive, play.full[step], data)
    return "accepted" if refused is None else str(refused)


def vectors() -> dict[str, Any]:
    plays = {name: rehearse(**how) for name, how in ROUNDS.items()}
    play = plays["one dropout before the input"]
    bad = [
        {
            "what": what,
            "to": to,
            "step": step.name,
            "bytes": data.hex(),
            "refused": verdict(play, to, step, data),
        }
        for what, to, step, data in bad_messages(play)
    ]
    return {
        "types": {str(code): kind.__name__ for code, kind in enumerate(TYPES, start=1)},
        "rounds": {name: good(plays[name], how) for name, how in ROUNDS.items()},
        "bad": {"round": "one dropout before the input", "messages": bad},
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
