r"""Tests of `dpcore.forks`: no randomness is shared after a fork, also if no Python hook runs."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from dpcore import DiscreteLaplace, SystemRng, forks, noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import precision
from dpcore.sampling import rng
from dpcore.sampling.rng import _LOCAL, Reservoir, _ForkSafe
from tests.day_and_nightly import effort
from tests.support.run_command import python

BLOCK_WORDS = rng._BLOCK_WORDS


Draw = Callable[[int], Integers]
Fork = Callable[[], int]


def native_fork() -> int:
    r"""Fork with the C library, as native code does: no Python hook runs."""
    child: int = ctypes.PyDLL(None).fork()
    return child


def in_child(act: Callable[[], list[int]], seconds: int = 20, fork: Fork = os.fork) -> list[int]:
    r"""Return the result of ``act`` in a forked child; fails if the child does not reply."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Since 3.12 Python warns when a process with threads forks, which is intended here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            os.write(writer, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    assert text, "the child of a fork hangs or fails"
    drawn: list[int] = json.loads(text)
    return drawn


WIDE = DiscreteLaplace(scale=2**40)

FORK_DRAWS: dict[str, Callable[[], list[int]]] = {
    "words": lambda: SystemRng().words(50).tolist(),
    "bits": lambda: [SystemRng().bits(64) for _ in range(50)],
    "one by one": lambda: [WIDE.sample() for _ in range(50)],
    "a batch": lambda: WIDE.sample(50).tolist(),
    "a large batch": lambda: WIDE.sample(BLOCK_WORDS * 2).tolist()[:50],
}


def shared(act: Callable[[], list[int]], fork: Fork = os.fork) -> set[int]:
    r"""Return common draws of two children and their parent after a first draw by the parent."""
    act()
    child, sibling = set(in_child(act, fork=fork)), set(in_child(act, fork=fork))
    parent = set(act())
    return child & sibling | child & parent | sibling & parent


@pytest.mark.parametrize("name", FORK_DRAWS)
def test_a_fork_shares_no_randomness_even_without_hooks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fork in (os.fork, native_fork):
        assert shared(FORK_DRAWS[name], fork) == set()
    for module in (rng, noise):  # a source that trusts fork hooks
        monkeypatch.setattr(module, "HERE", True)
    assert shared(FORK_DRAWS[name], native_fork)


@pytest.mark.parametrize("name", ["words", "one by one"])
def test_without_a_wiped_page_the_process_id_is_compared(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = forks._Process()
    numbered.value = True
    for module in (forks, rng, noise):
        monkeypatch.setattr(module, "HERE", numbered)
    for fork in (native_fork, os.fork):
        assert shared(FORK_DRAWS[name], fork) == set()
    # A reused process id is another process.
    assert in_child(lambda: [bool(numbered), numbered._home == []]) == [False, True]


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (forks, "_NO_ADVICE", 0),  # advice that every system accepts
        (forks, "_WIPE_ON_FORK", -1),  # advice that the kernel does not know
        (sys, "platform", "somewhere else"),
    ],
)
def test_advice_that_an_emulator_ignores_is_not_relied_on(
    owner: object, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, value)
    assert isinstance(forks._mark(), forks._Process)


# In each child a signal handler raises, during the hooks or soon after; Python continues.
STORM = """
import logging, os, random, signal, sys, threading, time
import numpy, scipy.special, flint  # their hooks come before the signal is due
class Storm(BaseException): pass
def strike(*given): raise Storm
signal.signal(signal.SIGALRM, strike)
os.register_at_fork(
    after_in_child=lambda: signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4)))
from dpcore import DiscreteLaplace, forks, noise
from dpcore.sampling import rng
noises = [DiscreteLaplace(scale=2**50 + 2**20 * i) for i in range(int(sys.argv[3]))]
draw = lambda: {law.sample() for law in noises}
draw()
if sys.argv[1] == "hooks alone":
    hook = [*forks._REGISTERED]
    noise.HERE = rng.HERE = True
    os.register_at_fork(after_in_child=lambda: [kept().forget() for kept in hook])
    forks.HERE = True
repeats = 0
for _ in range(int(sys.argv[2])):
    here, there = os.pipe()
    try:
        child = os.fork()
        if child == 0:
            time.sleep(0.002)
    except Storm:
        child = 0
    if child == 0:
        os.write(there, " ".join(map(str, draw())).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as answer:
        drawn = set(map(int, answer.read().split()))
    assert os.waitpid(child, 0)[1] == 0 and len(drawn) == len(noises)
    repeats += bool(drawn & draw())
print(repeats)
"""


def storm(what: str, times: int) -> int:
    done = python("-c", STORM, what, str(times), str(effort(10, 50)))
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_signal_within_a_fork_hook_leaves_no_shared_randomness() -> None:
    assert storm("as it is", effort(1, 2000)) == 0


@pytest.mark.nightly
def test_fork_hooks_interrupted_by_a_signal_are_detected() -> None:
    assert storm("hooks alone", 12) > 0


def test_a_forget_function_that_raises_is_called_again_at_the_next_draw() -> None:
    class Interrupted:
        times = 0

        def forget(self) -> None:
            self.times += 1
            if self.times < 3:
                signal.raise_signal(signal.SIGINT)

    def act() -> list[int]:
        while True:
            try:
                return FORK_DRAWS["one by one"]()
            except KeyboardInterrupt:
                pass

    act()
    kept = Interrupted()
    forks.forget_after_fork(kept)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the signal may be ignored
    try:
        child = in_child(lambda: [*act(), kept.times])
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.pop() == 3
    assert not set(child) & set(act())


def drawn_across_a_fork(act: Callable[[Reservoir, Draw], list[int]], fork: Fork) -> set[int]:
    r"""Return common values of a parent and a child forked during the draw of a reservoir."""
    values: list[int] = []

    def fork_within_a_draw() -> int:
        forked: list[int] = []

        def draw(count: int) -> Integers:
            words = SystemRng().words(count).view(np.int64)
            if not forked:  # as by a signal handler that interrupts the draw
                forked.append(fork())
            return words

        values.extend(act(Reservoir(), draw))
        return forked[0]

    return set(in_child(lambda: values, fork=fork_within_a_draw)) & set(values)


REFILLS: dict[str, Callable[[Reservoir, Draw], list[int]]] = {
    "one": lambda kept, draw: [kept.one(draw), *(kept.pop() for _ in range(20))],
    "many": lambda kept, draw: [each for _ in range(5) for each in kept.many(4, draw).tolist()],
}


@pytest.mark.parametrize("fork", [os.fork, native_fork])
@pytest.mark.parametrize("name", REFILLS)
def test_a_fork_during_a_draw_stores_no_values_in_both_processes(
    name: str, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drawn_across_a_fork(REFILLS[name], fork) == set()
    monkeypatch.setattr(Reservoir, "_is", lambda *_given: True)
    # A later call sees a fork without hooks, and discards the values that are still stored.
    common = drawn_across_a_fork(REFILLS[name], fork)
    assert len(common) >= (4 if fork is native_fork else 20)


def test_a_stream_discarded_during_a_draw_returns_nothing() -> None:
    # By another thread of a forked process: the words of this draw are already zeros.
    def forgets() -> bytes:
        for reference in forks._REGISTERED.copy():
            if isinstance(stream := reference(), _ForkSafe):
                stream.forget()
        return os.urandom(32)

    before = _LOCAL.idle[:]
    drawn: list[int] = []

    for draw in (lambda: [SystemRng().bits(64)], lambda: SystemRng().words(5).tolist()):
        _LOCAL.idle[:] = [_ForkSafe(forgets)]
        drawn += draw()
    _LOCAL.idle[:] = before
    assert all(drawn)


def test_a_fork_while_another_thread_computes_balls_does_not_hang() -> None:
    # The precision lock is held by a thread that the child does not have: either the fork waits for
    # it, or the child creates its own.
    held, done = threading.Event(), threading.Event()

    def work() -> None:
        with precision(100):
            held.set()
            done.wait(0.5)

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    try:
        fresh = DiscreteLaplace(scale="12345/677")
        assert len(in_child(lambda: fresh.sample(3).tolist(), seconds=5)) == 3
    finally:
        done.set()
        thread.join()
