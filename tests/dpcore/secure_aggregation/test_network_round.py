r"""Tests of devices and servers: each step is taken once, not again, concurrently or by a copy."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from dpcore.errors import DpcoreError
from dpcore.sampling.rng import Rng, SeededRng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.masked_aggregation import AggregationServer, Device, Step, _SingleUse
from dpcore.secure_aggregation.messages import AggregationRefused
from tests.dpcore.test_forks import Fork, in_child, native_fork
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted_rng import Acting
from tests.support.dpcore.threads import at_once
from tests.support.secure_aggregation.recorded_round import (
    over_each_graph,
    plain_sum,
    refusal,
    rehearsed,
)

PLAY = rehearsed()
ANN = PLAY.users[Step.KEYS]["ann"]
STEPS = ("advertise_keys", "share_keys", "mask_input", "unmask")
CLOSERS = ("close_keys", "close_shares", "close_inputs", "finish")


over_graph = over_each_graph(
    __name__,
    ANN=lambda graph: rehearsed(graph).users[Step.KEYS]["ann"],
)


class Ann:
    r"""A device of the recorded round, with the requests that Ann received."""

    def __init__(self, step: Step, rng: Rng | None = None) -> None:
        self.device = Device(ANN)
        self.device._state = PLAY.users[step]["ann"]
        self.rng = rng or SeededRng(99)

    def ask(self, step: Step, data: bytes | None = None) -> bytes:
        received = PLAY.given[step].get("ann", b"") if data is None else data
        match step:
            case Step.KEYS:
                return self.device.advertise_keys(self.rng)
            case Step.SHARES:
                return self.device.share_keys(received, self.rng)
            case Step.INPUT:
                return self.device.mask_input(received, PLAY.inputs["ann"])
            case Step.UNMASK:
                return self.device.unmask(received)


@pytest.mark.parametrize("step", Step)
def test_a_step_equals_its_function_and_is_taken_once_and_in_order(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = Ann(step)
    assert ann.device.due == STEPS[step - 1]
    for later in Step:
        if later > step:  # refused without effect
            early = refusal(ann.ask, later)
            assert early is not None
            assert early.reason == f"comes too early: {STEPS[step - 1]} is due"
    _, expected = PLAY.step(step, "ann")
    assert ann.ask(step) == expected
    for other in Step:
        if other <= step:
            refused = refusal(ann.ask, other)
            assert str(refused) == f"the step {STEPS[other - 1]} of 'ann': was taken already"
    if step is Step.SHARES:  # the twin finds the state of another step
        monkeypatch.setattr(Device, "_step", mutated(Device._step, "step != self.due", "False"))
        with pytest.raises(AttributeError):
            Ann(step).ask(Step.UNMASK)


def survives_refusals(step: Step) -> bool:
    ann = Ann(step)
    for data in (b"", b"x", PLAY.given[Step.SHARES]["bob"], 7):
        assert refusal(ann.ask, step, data) is not None
    if step is Step.INPUT:
        with pytest.raises(DpcoreError):
            ann.device.mask_input(PLAY.given[step]["ann"], [1, 2, 3])
    return refusal(ann.ask, step) is None


@pytest.mark.parametrize("step", [step for step in Step if step > Step.KEYS])
def test_a_refused_message_may_be_followed_by_the_right_one(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert survives_refusals(step)
    monkeypatch.setattr(Device, "_step", mutated(Device._step, "self._keep(state, step)", "pass"))
    assert not survives_refusals(step)


def test_an_interrupted_step_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def answers_after(step: Step) -> bool:
        ann = Ann(step, Acting(interrupted))
        with pytest.raises(KeyboardInterrupt):
            ann.ask(step)
        ann.rng = SeededRng(99)
        refused = refusal(ann.ask, step)
        assert refused is None or refused.reason.startswith("has no state")
        return refused is None

    assert not answers_after(Step.KEYS)
    assert not answers_after(Step.SHARES)
    monkeypatch.setattr(
        Device, "_step", mutated(Device._step, "except DpcoreError", "except BaseException")
    )
    assert answers_after(Step.SHARES)


def test_a_state_discarded_within_a_step_is_not_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept() -> bool:
        ann = Ann(Step.SHARES)
        ann.rng = Acting(ann.device.forget)
        refused = refusal(ann.ask, Step.SHARES)
        assert refused is None or refused.reason.startswith("has no state")
        return refused is None or ann.device.due != ""

    assert not kept()
    monkeypatch.setattr(Device, "_keep", mutated(Device._keep, "self._gone()", "False"))
    assert kept()


def answers_within(step: Step) -> list[bytes]:
    r"""Return the result of a step whose source of randomness, or a signal, repeats the request."""
    sent: list[bytes] = []
    ann = Ann(step)

    def again() -> None:
        ann.rng = SeededRng(5)
        refusal(lambda: sent.append(ann.ask(step)))

    ann.rng = Acting(again)
    sent.append(ann.ask(step))
    return sent


@pytest.mark.parametrize("step", [Step.KEYS, Step.SHARES])
def test_a_step_within_a_step_is_refused(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(answers_within(step)) == 1
    monkeypatch.setattr(Device, "_step", mutated(Device._step, "self._state = None", "pass"))
    assert len(answers_within(step)) > 1


def test_only_one_of_several_racing_threads_takes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    meet, plain = threading.Barrier(2), masked_user.unmask

    def slowly(state: Any, received: bytes) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):  # no other thread is admitted
            meet.wait(0.5)
        return plain(state, received)

    monkeypatch.setattr(masked_user, "unmask", slowly)
    ann = Ann(Step.UNMASK)

    def ask() -> bytes | str:
        try:
            return ann.ask(Step.UNMASK)
        except AggregationRefused as error:
            return error.reason

    assert {*at_once(ask, ask)} == {PLAY.sent[Step.UNMASK]["ann"], "was taken already"}


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_state_cannot_be_copied(make: Callable[[Any], object]) -> None:
    for end in (Device(ANN), AggregationServer(PLAY.server[Step.KEYS])):
        with pytest.raises(TypeError, match="cannot be copied or pickled: it holds the state"):
            make(end)


def test_the_repr_of_a_device_contains_no_secret() -> None:
    for step in Step:
        assert repr(Ann(step).device) == f"<Device of 'ann': {STEPS[step - 1]} is due>"
    desk = AggregationServer(PLAY.server[Step.KEYS])
    assert repr(desk) == "<AggregationServer: close_keys is due>"
    assert not hasattr(Device(ANN), "__dict__")
    ann = Ann(Step.UNMASK)
    ann.ask(Step.UNMASK)
    assert repr(ann.device) == "<Device of 'ann': nothing is due>"


def child_answers(act: Callable[[], object], fork: Fork = os.fork) -> bool:
    r"""Whether ``act`` replies in a forked child; another refusal than for a lost state fails."""

    def answered() -> list[int]:
        refused = refusal(act)
        assert refused is None or refused.reason.startswith("has no state")
        return [refused is None]

    return bool(in_child(answered, fork=fork)[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_has_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    ann, desk = Ann(Step.UNMASK), AggregationServer(PLAY.server[Step.KEYS])
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with ann.device._lock.here():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    assert inside.wait(10)
    for fork in (os.fork, native_fork):
        assert not child_answers(lambda: ann.ask(Step.UNMASK), fork)
        assert not child_answers(lambda: desk.receive(PLAY.sent[Step.KEYS]["ann"]), fork)
    leave.set()
    other.join(10)
    assert ann.ask(Step.UNMASK) == PLAY.sent[Step.UNMASK]["ann"]
    monkeypatch.setattr(_SingleUse, "forget", lambda self: None)
    forgetful = Ann(Step.UNMASK)
    assert child_answers(lambda: forgetful.ask(Step.UNMASK))


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
    total = closed(desk, step)
    refused = refusal(closed, desk, step)
    assert str(refused) == f"the step {CLOSERS[step - 1]} of the server: was taken already"
    if step is Step.UNMASK:
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


def test_no_message_of_concurrent_threads_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = masked_server.receive

    def slowly(state: Any, data: bytes) -> Any:
        after = plain(state, data)
        threading.Event().wait(0.02)
        return after

    monkeypatch.setattr(masked_server, "receive", slowly)

    def brought(lock: Any = None) -> int:
        desk = AggregationServer(PLAY.server[Step.KEYS])
        desk._lock = lock or desk._lock
        at_once(*(partial(refusal, desk.receive, sent) for sent in PLAY.sent[Step.KEYS].values()))
        return len(desk._state.arrived)

    assert brought() == len(PLAY.inputs)
    assert brought(SimpleNamespace(here=contextlib.nullcontext)) < len(PLAY.inputs)
