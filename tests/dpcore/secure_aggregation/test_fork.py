r"""Tests of devices after a fork: the child never replies, even if a fork hook was interrupted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from dpcore.secure_aggregation import network_round as masked_device
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.network_round import AggregationServer
from tests.dpcore.secure_aggregation.test_network_round import PLAY, Ann
from tests.dpcore.test_forks import Fork, in_child, native_fork
from tests.support.secure_aggregation.recorded_round import refusal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def child_answers(act: Callable[[], object], fork: Fork = os.fork) -> bool:
    r"""Whether ``act`` replies in a forked child; another refusal than for a lost state fails."""

    def answered() -> list[int]:
        refused = refusal(act)
        assert refused is None or refused.reason.startswith("has no state")
        return [refused is None]

    return bool(in_child(answered, fork=fork)[0])


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
    assert not child_answers(lambda: ann.ask(Step.UNMASK))
    assert not child_answers(lambda: ann.ask(Step.UNMASK), native_fork)
    assert not child_answers(lambda: desk.receive(PLAY.sent[Step.KEYS]["ann"]))
    assert not child_answers(lambda: desk.receive(PLAY.sent[Step.KEYS]["ann"]), native_fork)
    leave.set()
    other.join(10)
    assert ann.ask(Step.UNMASK) == PLAY.sent[Step.UNMASK]["ann"]
    monkeypatch.setattr(masked_device._SingleUse, "forget", lambda self: None)
    forgetful = Ann(Step.UNMASK)
    assert child_answers(lambda: forgetful.ask(Step.UNMASK))
