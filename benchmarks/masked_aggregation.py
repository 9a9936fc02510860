r"""The cost of masked aggregation by number of users: seconds of each role, bytes of each user.

``python -m benchmarks.masked_aggregation [--quick | --large]``. All roles run in turn on one core
and exchange encoded messages; a tenth of the users drop out before their masked input. Seconds are
processor time; those of a user are the mean over users. Each number of users runs twice: with keys
between all users, and over the least neighbourhood for a tenth dropping out and a tenth colluding.
Only ``--large`` runs 1000 users with keys between all users, and 10,000 over neighbourhoods, which
takes many minutes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from benchmarks.machine import write
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys_and_masks import KeyPair
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation
from dpcore.secure_aggregation.round_parameters import Neighbourhood, size_neighbourhood

_COORDINATES = 1000
_MODULUS = 2**20 + 7

T = TypeVar("T")


class Clock:
    r"""Processor seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def run(self, name: str, work: Callable[[], T]) -> T:
        start = time.process_time()
        result = work()
        self.seconds[name] += time.process_time() - start
        self.calls[name] += 1
        return result


def row(users: int, neighbourhood: Neighbourhood | None) -> dict[str, Any]:
    r"""A row with one round of ``users`` and the time of every role."""
    dropouts = users // 10
    parts = MaskedAggregation(
        users=users,
        dropouts=dropouts,
        coordinates=_COORDINATES,
        modulus=_MODULUS,
        neighbourhood=neighbourhood,
    )
    names = [f"user {i:05}" for i in range(users)]
    world = np.random.default_rng(users)
    inputs = {name: world.integers(0, _MODULUS, _COORDINATES) for name in names}
    gone = set(names[:: users // dropouts][:dropouts])
    clock, sent, got = Clock(), defaultdict[str, int](int), defaultdict[str, int](int)
    terms, server = parts.round(), KeyPair.draw()
    enrolled = {name: KeyPair.draw() for name in names}
    roster = [(name, enrolled[name].public) for name in names]
    states: dict[str, Any] = {
        name: masked_user.sit(terms, name, enrolled[name], server.public) for name in names
    }
    state: Any = clock.run("server", lambda: masked_server.open_round(terms, server, roster))
    receive: Callable[[Any, bytes], Any] = masked_server.receive
    closers: list[Callable[[Any], Any]] = [
        masked_server.close_keys,
        masked_server.close_shares,
        masked_server.close_inputs,
        masked_server.finish,
    ]
    given: dict[str, bytes] = dict.fromkeys(names, b"")
    for step, close in enumerate(closers, start=1):
        for name, data in given.items():
            if step >= 3 and name in gone:
                continue
            act = ready(step, states[name], data, inputs[name])
            got[name] += len(data)
            states[name], message = clock.run(f"user, step {step}", act)
            sent[name] += len(message)
            state = clock.run("server", partial(receive, state, message))
        closed = clock.run("server", partial(close, state))
        if step < 4:
            state, given = closed
    there = [name for name in names if name not in gone]
    assert list(closed.participants) == there
    assert (closed.sum == sum(inputs[name] for name in there) % _MODULUS).all()
    per_user = {
        name: round(1e3 * clock.seconds[name] / clock.calls[name], 3)
        for name in clock.seconds
        if name != "server"
    }
    return {
        "users": users,
        "dropouts": dropouts,
        "neighbours": terms.holders - 1,
        "threshold": terms.threshold,
        "milliseconds_per_user": {**per_user, "all steps": round(sum(per_user.values()), 3)},
        "server_seconds": round(clock.seconds["server"], 3),
        "all_roles_seconds": round(sum(clock.seconds.values()), 2),
        "bytes_per_user": {"sent": max(sent.values()), "received": max(got.values())},
        "bytes_of_the_plain_vector": _COORDINATES * terms.value_bytes,
    }


def ready(step: int, state: Any, given: bytes, values: Any) -> Callable[[], Any]:
    r"""A step of a user as a function without arguments."""
    steps: list[Callable[[], Any]] = [
        lambda: masked_user.advertise_keys(state),
        lambda: masked_user.share_keys(state, given),
        lambda: masked_user.mask_input(state, given, values),
        lambda: masked_user.unmask(state, given),
    ]
    return steps[step - 1]


def rows(users: int, *, everyone: bool) -> list[dict[str, Any]]:
    r"""Rows with keys between all users (if fast enough) and over the least neighbourhood."""
    tenth = users // 10
    least = size_neighbourhood(users=users, dropouts=tenth, colluding=tenth)
    graphs = ([None] if everyone else []) + ([least] if least is not None else [])
    return [row(users, graph) for graph in graphs]


def main() -> None:
    quick, large = ("--quick" in sys.argv[1:], "--large" in sys.argv[1:])
    row(16, None)
    found = [each for users in (16, 32) for each in rows(users, everyone=True)]
    if not quick:
        found += [each for users in (100, 300) for each in rows(users, everyone=True)]
        found += rows(1000, everyone=large)
    if large:
        found += rows(10_000, everyone=False)
    write(
        "masked_aggregation",
        {"coordinates": _COORDINATES, "modulus": _MODULUS, "rows": found},
    )


if __name__ == "__main__":
    main()
