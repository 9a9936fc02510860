r"""A draw is nobody else's: not of another thread, not of an interruption.

Each check has a twin: a source without the property, which it must see.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore import DiscreteGaussian, SeededRng, SystemRng
from dpcore.noise import batch_of
from dpcore.sampling import rng
from dpcore.sampling.rng import _Keystream
from tests.dpcore.test_forks import FORK_DRAWS, WIDE


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


def interrupted(act: Callable[[], list[int]], intruder: Callable[[], list[int]]) -> list[int]:
    r"""All that is drawn when ``intruder`` draws at every line of dpcore that ``act`` runs.

    So does a signal handler or a finalizer that draws noise of its own.
    """
    drawn: list[int] = []
    inside = str(Path(rng.__file__).parents[1])

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
