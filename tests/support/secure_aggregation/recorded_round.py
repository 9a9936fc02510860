r"""A recorded seeded round: each state, each message, and the users present at each step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import Rng, SeededRng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys_and_masks import KeyPair
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.round_parameters import Neighbourhood, Round
from dpcore.secure_aggregation.server import Total

NAMES = ("ann", "bob", "eve", "joe", "zoë")
# The same round twice: with the complete graph, and with four neighbours out of five for each user.
# Ann's neighbours are all but Mia: every request to Ann is about the same five users.
GRAPHS: dict[str, dict[str, Any]] = {
    "everyone": {},
    "neighbours": {
        "names": ("ann", "bob", "eve", "joe", "mia", "zoë"),
        "neighbourhood": Neighbourhood(neighbours=4, threshold=4),
    },
}


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    r"""``users[step][name]`` and ``server[step]`` are the states *before* that step's messages."""

    terms: Round
    inputs: dict[str, Integers]
    own: KeyPair
    enrolled: dict[str, KeyPair]
    users: dict[Step, dict[str, Any]] = field(default_factory=dict)
    after: dict[Step, dict[str, Any]] = field(default_factory=dict)
    server: dict[Step, Any] = field(default_factory=dict)
    full: dict[Step, Any] = field(default_factory=dict)
    sent: dict[Step, dict[str, bytes]] = field(default_factory=dict)
    given: dict[Step, dict[str, bytes]] = field(default_factory=dict)
    total: Total | None = None

    def step(self, step: Step, name: str, received: bytes | None = None) -> Any:
        r"""Repeat a user's step from its recorded state, by default with the recorded bytes."""
        state, rng = self.users[step][name], SeededRng(99)
        data = self.given[step][name] if received is None and step > Step.KEYS else received
        return take_step(step, state, data, self.inputs[name], rng)


def take_step(step: Step, state: Any, data: bytes | None, values: Integers, rng: Rng) -> Any:
    match step, data:
        case Step.KEYS, None:
            return masked_user.advertise_keys(state, rng)
        case Step.SHARES, bytes():
            return masked_user.share_keys(state, data, rng)
        case Step.INPUT, bytes():
            return masked_user.mask_input(state, data, values)
        case Step.UNMASK, bytes():
            return masked_user.unmask(state, data)
    raise AssertionError


def rehearse(
    *,
    names: tuple[str, ...] = NAMES,
    dropouts: int = 1,
    coordinates: int = 4,
    modulus: int = 1000,
    vanish: Mapping[str, Step] | None = None,
    seed: int = 1,
    name: str = "rehearsal",
    inputs: Mapping[str, Integers] | None = None,
    neighbourhood: Neighbourhood | None = None,
) -> Rehearsal:
    rng = SeededRng(seed)
    parts = MaskedAggregation(
        users=len(names),
        dropouts=dropouts,
        coordinates=coordinates,
        modulus=modulus,
        neighbourhood=neighbourhood,
    )
    terms = parts.round(name)
    world = np.random.default_rng(seed)
    if inputs is None:
        inputs = {n: world.integers(0, modulus, coordinates) for n in names}
    enrolled = {n: KeyPair.draw(rng) for n in names}
    play = Rehearsal(terms=terms, inputs=dict(inputs), own=KeyPair.draw(rng), enrolled=enrolled)
    roster = [(n, pair.public) for n, pair in enrolled.items()]
    state: Any = masked_server.open_round(terms, play.own, roster, rng)
    states = {n: masked_user.sit(terms, n, enrolled[n], play.own.public) for n in names}
    given: dict[str, bytes] = dict.fromkeys(names, b"")
    closers: dict[Step, Any] = {
        Step.KEYS: masked_server.close_keys,
        Step.SHARES: masked_server.close_shares,
        Step.INPUT: masked_server.close_inputs,
    }
    for step in Step:
        present = [n for n in given if (vanish or {}).get(n, 5) > step]
        play.server[step] = state
        play.given[step] = given
        play.users[step] = {n: states[n] for n in present}
        done = {
            n: take_step(step, states[n], given[n] or None, play.inputs[n], rng) for n in present
        }
        play.after[step] = {n: after for n, (after, _) in done.items()}
        states = {**states, **play.after[step]}
        play.sent[step] = {n: message for n, (_, message) in done.items()}
        for message in play.sent[step].values():
            state = masked_server.receive(state, message)
        play.full[step] = state
        if step is Step.UNMASK:
            play.total = masked_server.finish(state)
        else:
            state, given = closers[step](state)
    return play


def plain_sum(inputs: Mapping[str, Integers], participants: tuple[str, ...], m: int) -> list[int]:
    r"""Return the sum in Python integers."""
    rows = [inputs[name].tolist() for name in participants]
    return [sum(column) % m for column in zip(*rows, strict=True)]


def refusal(act: Any, *arguments: Any) -> AggregationRefused | None:
    r"""Return the refusal, or None if the input was accepted. Any other exception is a fault."""
    try:
        act(*arguments)
    except AggregationRefused as error:
        return error
    return None


@cache
def rehearsed(graph: str = "everyone", name: str = "rehearsal") -> Rehearsal:
    r"""Return the round over this graph; Eve drops out before her input."""
    return rehearse(vanish={"eve": Step.INPUT}, name=name, **GRAPHS[graph])


def over_each_graph(module: str, **derived: Callable[[str], Any]) -> Any:
    r"""A fixture that runs each test of a module for each graph.

    It sets the globals of the module: ``PLAY`` is the round, ``derived`` finds others by the name
    of the graph.
    """

    @pytest.fixture(autouse=True, params=GRAPHS)
    def over_graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        globals_of: dict[str, Callable[[str], Any]] = {"PLAY": rehearsed, **derived}
        for name, find in globals_of.items():
            monkeypatch.setattr(sys.modules[module], name, find(request.param))

    return over_graph
