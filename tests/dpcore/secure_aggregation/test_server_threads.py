r"""Tests of the server with threads: each step is closed once, and no message is lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.network_round import AggregationServer
from tests.support.secure_aggregation.recorded_round import (
    over_each_graph,
    plain_sum,
    refusal,
    rehearsed,
)

PLAY = rehearsed()
CLOSERS = ("close_keys", "close_shares", "close_inputs", "finish")


over_graph = over_each_graph(__name__)


def closed(desk: AggregationServer, step: Step) -> Any:
    return getattr(desk, CLOSERS[step - 1])()


def played(until: Step) -> AggregationServer:
    desk = AggregationServer(PLAY.server[Step.KEYS])
    for step in Step:
        if step > until:
            break
        for message in PLAY.sent[step].values():
            desk.receive(message)
        if step < until:
            assert closed(desk, step) == PLAY.given[Step(step + 1)]
    return desk


@pytest.mark.parametrize("step", Step)
def test_a_server_closes_each_step_once(step: Step) -> None:
    desk = played(step)
    for later in Step:
        if later > step:
            refused = refusal(closed, desk, later)
            assert refused is not None
            assert refused.reason == f"comes too early: {CLOSERS[step - 1]} is due"
    again = refusal(desk.receive, PLAY.sent[step]["ann"])
    assert again is not None
    assert again.reason == "was already received in this round"
    closed(desk, step)
    refused = refusal(closed, desk, step)
    assert str(refused) == f"the step {CLOSERS[step - 1]} of the server: was taken already"


def test_a_server_returns_the_sum_and_ends() -> None:
    desk = played(Step.UNMASK)
    total = desk.finish()
    assert total.sum.tolist() == plain_sum(PLAY.inputs, total.participants, 1000)
    assert desk.due == ""
    refused = refusal(desk.receive, PLAY.sent[Step.UNMASK]["ann"])
    assert str(refused) == "the step receive of the server: comes after the last step"


def test_a_step_with_too_few_messages_stays_open() -> None:
    desk = AggregationServer(PLAY.server[Step.KEYS])
    assert refusal(desk.close_keys) is not None
    for message in PLAY.sent[Step.KEYS].values():
        assert refusal(desk.receive, message + b"x") is not None
        desk.receive(message)
    assert desk.close_keys() == PLAY.given[Step.SHARES]


class Unheld:
    def here(self) -> Unheld:
        return self

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_no_message_of_concurrent_threads_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, arrived = masked_server.receive, threading.Barrier(len(PLAY.sent[Step.KEYS]))

    def slowly(state: Any, data: bytes) -> Any:
        after = plain(state, data)
        threading.Event().wait(0.02)
        return after

    monkeypatch.setattr(masked_server, "receive", slowly)

    def brought(lock: Any = None) -> int:
        desk = AggregationServer(PLAY.server[Step.KEYS])
        desk._lock = lock or desk._lock

        def bring(message: bytes) -> None:
            arrived.wait(10)
            refusal(desk.receive, message)

        threads = [threading.Thread(target=bring, args=(m,)) for m in PLAY.sent[Step.KEYS].values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return len(desk._state.arrived)

    assert brought() == len(PLAY.inputs)
    assert brought(Unheld()) < len(PLAY.inputs)
