r"""Tests of devices after a fork: the child never replies, even if a fork hook was interrupted."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable

import pytest

from dpcore.secure_aggregation import network_round as masked_device
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.network_round import AggregationServer
from tests.dpcore.secure_aggregation.test_network_round import PLAY, Ann
from tests.dpcore.test_forks import native_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def child_answers(act: Callable[[], object], fork: Callable[[], int] = os.fork) -> bool:
    r"""Whether ``act`` replies in a forked child; fails if the child does not end by itself."""
    with warnings.catch_warnings():
        # Since 3.12 Python warns when a process with threads forks, which is intended here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = fork()
    if child == 0:
        status = 3
        try:
            act()
            status = 1
        except AggregationRefused as error:
            status = 0 if error.reason.startswith("has no state") else 2
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1), status
    return status == 1


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
