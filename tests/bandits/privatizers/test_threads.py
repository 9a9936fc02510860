"""Threads that share a pool or a book: nobody gets more than B visits between them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from bandits.batch import Pulls
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.privatizers.visits import MemoryBook
from dpcore.laws.discrete_laplace import DiscreteLaplace

STEADY = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-6")
PEOPLE, THREADS, TIMES = 20_000, 4, 20


@pytest.fixture(autouse=True)
def _often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(call: Callable[[], int]) -> int:
    """The sum of what every thread was given, all of them started at once."""
    barrier, found = threading.Barrier(THREADS), [0] * THREADS

    def run(number: int) -> None:
        barrier.wait()
        found[number] = call()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


class Slow(MemoryBook):
    """Long between looking and charging: others look meanwhile."""

    def able(self, users: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = super().able(users)
        time.sleep(0.02)
        return found


def test_a_book_in_memory_sells_every_visit_once() -> None:
    book = Slow(users=10, curve=STEADY.curve, max_visits=1)
    assert together(lambda: int(book.pay(np.arange(10), "x").sum())) == 10


class Open(MemoryBook):
    """A book that never refuses: the pool alone counts."""

    def able(self, users: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.ones(len(users), dtype=np.bool_)


def test_a_pool_admits_nobody_beyond_b() -> None:
    for _ in range(TIMES):
        pool = Pool(
            users=PEOPLE,
            max_visits=1,
            privatizer=STEADY,
            arrivals=np.random.default_rng(1),
            book=Open(users=PEOPLE, curve=STEADY.curve, max_visits=1 << 20),
        )
        half = Pulls((PEOPLE // 2,))
        admitted = together(lambda pool=pool, half=half: int(pool.admit(half, "x")))  # type: ignore[misc]  # bound now
        assert admitted <= 2
        assert pool.most_visits <= 1
