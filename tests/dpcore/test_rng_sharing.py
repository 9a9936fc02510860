r"""A draw is nobody else's: not of a forked child, not of another thread, not of an interruption.

Forks are real forks. Each check has a twin: a source without the property, which it must see.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore import DiscreteGaussian, DiscreteLaplace, SeededRng, SystemRng, rng
from dpcore.enclosure import precision
from dpcore.noise import batch_of
from dpcore.rng import _ForkSafe, _Keystream

BLOCK_WORDS = rng._BLOCK_WORDS


# -- forks -------------------------------------------------------------------------------------


def in_child(act: Callable[[], list[int]], seconds: int = 20) -> list[int]:
    r"""What ``act`` returns in a forked child; fails when the child does not answer."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # From 3.12 on Python warns when a process with threads forks, which is the point here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
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
WIDE_GAUSSIAN = DiscreteGaussian(sigma_squared=2**80)

FORK_DRAWS: dict[str, Callable[[], list[int]]] = {
    "words": lambda: SystemRng().words(50).tolist(),
    "bits": lambda: [SystemRng().bits(64) for _ in range(50)],
    "one by one": lambda: [WIDE.sample() for _ in range(50)],
    "one by one, Gaussian": lambda: [WIDE_GAUSSIAN.sample() for _ in range(50)],
    "a batch": lambda: WIDE.sample(50).tolist(),
    "a large batch": lambda: WIDE.sample(BLOCK_WORDS * 2).tolist()[:50],
}


def shared(act: Callable[[], list[int]]) -> set[int]:
    r"""What two children and their parent draw in common after a first draw by the parent."""
    act()
    child, sibling, parent = set(in_child(act)), set(in_child(act)), set(act())
    return child & sibling | child & parent | sibling & parent


@pytest.mark.parametrize("name", FORK_DRAWS)
def test_a_fork_shares_no_randomness(name: str) -> None:
    assert shared(FORK_DRAWS[name]) == set()


@pytest.mark.parametrize("name", FORK_DRAWS)
def test_a_fork_in_a_thread_shares_no_randomness(name: str) -> None:
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(shared(FORK_DRAWS[name])))
    thread.start()
    thread.join()
    assert found == [set()]


def test_a_grandchild_shares_no_randomness() -> None:
    act = FORK_DRAWS["one by one"]
    act()

    def twice() -> list[int]:
        below = in_child(act)
        return [*below, *act()]

    drawn = in_child(twice)
    assert len(set(drawn) | set(act())) == 150


def test_a_stream_that_is_not_registered_is_seen() -> None:
    careless = _Keystream(lambda: os.urandom(32))
    careful = _ForkSafe(lambda: os.urandom(32))
    assert len(shared(lambda: careless.take(50).tolist())) == 50
    assert shared(lambda: careful.take(50).tolist()) == set()


def test_scalars_drawn_ahead_that_survive_a_fork_are_seen() -> None:
    ahead = list(range(2000))
    assert len(shared(lambda: [ahead.pop() for _ in range(50)])) == 50


def test_a_fork_while_another_thread_works_on_balls_does_not_hang() -> None:
    # The precision lock is held by a thread that the child does not have: either the fork waits
    # for it, or the child makes its own.
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


# -- threads -----------------------------------------------------------------------------------


def in_threads(act: Callable[[], list[int]], threads: int = 6) -> list[list[int]]:
    drawn: list[list[int]] = []
    gate = threading.Barrier(threads)

    def work() -> None:
        gate.wait()
        drawn.append(act())

    crowd = [threading.Thread(target=work) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert len(drawn) == threads
    return drawn


@pytest.mark.parametrize("name", FORK_DRAWS)
def test_threads_share_no_randomness(name: str) -> None:
    drawn = in_threads(lambda: [x for _ in range(20) for x in FORK_DRAWS[name]()])
    every = [x for mine in drawn for x in mine]
    assert len(set(every)) == len(every)


def test_one_seeded_source_stays_whole_among_threads() -> None:
    source = SeededRng(3)
    drawn = in_threads(lambda: [w for _ in range(50) for w in source.words(7).tolist()])
    every = sorted(x for mine in drawn for x in mine)
    assert every == sorted(SeededRng(3).words(len(every)).tolist())


def test_an_instance_made_in_one_thread_serves_another() -> None:
    source = SystemRng()
    mine = source.words(20).tolist()
    (other,) = in_threads(lambda: source.words(20).tolist(), threads=1)
    assert not set(mine) & set(other)


def test_one_law_is_built_by_many_threads_at_once() -> None:
    noise = DiscreteGaussian(sigma_squared="333/7")
    batch_of.cache_clear()
    drawn = in_threads(lambda: noise.sample(100, rng=SeededRng(4)).tolist())
    assert all(mine == drawn[0] for mine in drawn)


def test_a_system_key_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    entropy = os.urandom

    def counted(size: int) -> bytes:
        asked.append(size)
        return entropy(size)

    monkeypatch.setattr(os, "urandom", counted)

    def draw() -> list[int]:  # in a new thread, which has no key yet
        return [SystemRng().bits(256), SystemRng().bits(256), *SystemRng().words(9).tolist()]

    first, second = in_threads(draw, threads=2)
    assert asked == [32, 32]
    assert not set(first) & set(second)


# -- in the middle of a draw ---------------------------------------------------------------------


def interrupted(act: Callable[[], list[int]], intruder: Callable[[], list[int]]) -> list[int]:
    r"""All that is drawn when ``intruder`` draws at every line of dpcore that ``act`` runs.

    So does a signal handler or a finalizer that draws noise of its own.
    """
    drawn: list[int] = []
    inside = str(Path(rng.__file__).parent)

    def trace(frame: Any, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(inside):
            return None
        if event == "line":
            drawn.extend(intruder())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        mine = act()
    finally:
        sys.settrace(before)
    assert drawn
    return drawn + mine


INTERRUPTED: dict[str, Callable[[], list[int]]] = {
    "bits": lambda: [SystemRng().bits(64) for _ in range(3)],
    "words": lambda: SystemRng().words(3).tolist(),
    "one by one": lambda: [WIDE.sample() for _ in range(3)],
    "a batch": lambda: WIDE.sample(3).tolist(),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_draw_in_the_middle_of_a_draw_shares_nothing(name: str) -> None:
    drawn = interrupted(INTERRUPTED[name], INTERRUPTED[name])
    assert len(set(drawn)) == len(drawn)


def test_a_stream_in_use_that_is_used_again_is_seen() -> None:
    stream = _Keystream(lambda: os.urandom(32))
    drawn = interrupted(lambda: [stream.word()], lambda: [stream.word()])
    assert len(set(drawn)) < len(drawn)
