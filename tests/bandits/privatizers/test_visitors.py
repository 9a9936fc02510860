"""Who comes to a pool is charged once, for the release of that name, and refusals are counted."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from bandits.batch import Pulls
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.privatizers.visits import MemoryBook, Names
from dpcore.errors import InvalidParameter
from dpcore.laws.skellam import Skellam
from dpcore.protocols.sums import AggregatedSum
from tests.bandits.privatizers.test_returning import LAPLACE, each_steady, pool_of, run_with

# -- what a visit is -----------------------------------------------------------------------------


def test_epsilon_and_deviation_are_rounded_up() -> None:
    for variance in (2, 3, 401, 12345):
        steady = SteadyPrivatizer(law=Skellam(variance=variance), steps=7, failure="1e-3")
        less = steady.epsilon - Fraction(1, 10**6)
        assert less**2 * variance < 49 <= steady.epsilon**2 * variance
        assert (Fraction(steady.deviation) * 7) ** 2 >= variance
    assert LAPLACE.epsilon == Fraction(1, 8)


@each_steady
def test_a_steady_sum_is_read_wrongly_no_more_often_than_asked(steady: SteadyPrivatizer) -> None:
    protocol, law = steady.protocol(9), steady.law
    assert isinstance(protocol, AggregatedSum)
    tau = protocol.threshold
    assert law.enclose_tail(tau).upper <= Fraction(1, 1000)
    assert law.enclose_tail(tau - 1).lower > Fraction(1, 1000)
    with pytest.raises(InvalidParameter, match="encoded_sum"):
        steady.release(9 * steady.steps + 1, 9)


def test_what_a_pool_takes_for_granted_is_said() -> None:
    run = run_with(pool_of(LAPLACE, users=400, max_visits=4))
    assert run.guarantee is not None
    assert any("the sum and who is in it only" in text for text in run.guarantee.assumptions)
    assert any("never on rewards" in text for text in run.guarantee.assumptions)


# -- who is charged ------------------------------------------------------------------------------


@pytest.mark.parametrize("max_visits", [1, 3])
def test_a_pool_without_a_book_keeps_one_for_its_visits(max_visits: int) -> None:
    pool = pool_of(LAPLACE, users=2, max_visits=max_visits)
    admitted = [pool.admit(Pulls((2,)), f"b{i}") for i in range(max_visits)]
    assert admitted == [True] * max_visits
    assert not pool.book.able(np.arange(2)).any()
    assert not pool.admit(Pulls((2,)), "one more")


def test_who_is_charged_is_charged_for_the_release_of_that_name() -> None:
    names: list[str] = []

    class Named(MemoryBook):
        def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
            names.append(release)
            return super().pay(users, release)

    book = Named(users=2000, curve=LAPLACE.curve, max_visits=1)
    run = run_with(pool_of(LAPLACE, users=2000, max_visits=1, book=book))
    assert names == [f"{release.batch}/call 1" for release in run.releases]


def passed_over(seed: int) -> Iterator[int]:
    """How many of four stand before the last of two who are taken, in two releases of a pool."""
    arrivals = np.random.default_rng(seed)
    first, second = arrivals.permutation(4), arrivals.permutation(4)
    yield 0
    yield int(np.flatnonzero(~np.isin(second, first[:2]))[-1]) + 1 - 2


@pytest.mark.parametrize("seed", range(8))
def test_the_last_who_can_pay_are_found_and_refusals_are_counted(seed: int) -> None:
    arrivals = np.random.default_rng(seed)
    pool = Pool(users=4, max_visits=1, privatizer=LAPLACE, arrivals=arrivals)
    assert pool.admit(Pulls((2, 2)), "b")
    assert pool.visited.tolist() == [1, 1, 1, 1]
    assert pool.turned_away == sum(passed_over(seed))
    # Nobody is left: all four are turned away once more.
    assert not pool.admit(Pulls((1, 0)), "c")
    assert (pool.turned_away, pool.dry) == (sum(passed_over(seed)) + 4, True)


@pytest.mark.parametrize("seed", range(8))
def test_who_is_spent_by_the_book_alone_is_passed_over(seed: int) -> None:
    # Another pool had 0, 1 and 2: of the six the book alone knows.
    book = MemoryBook(users=6, curve=LAPLACE.curve, max_visits=1)
    book.pay(np.arange(3), "of another pool")
    arrivals = np.random.default_rng(seed)
    pool = Pool(users=6, max_visits=1, privatizer=LAPLACE, arrivals=arrivals, book=book)
    assert pool.admit(Pulls((2,)), "b")
    assert (pool.visited[:3].sum(), pool.visited[3:].sum()) == (0, 2)
    came = np.random.default_rng(seed).permutation(6)
    assert pool.turned_away == int(np.flatnonzero(came > 2)[1]) + 1 - 2


def test_too_few_people_share_the_rest_among_the_arms_that_were_asked_for() -> None:
    # Ten people once: 2 + 2 users of batch 1, and not 4 + 4 of batch 2; 25 rounds, 21 are left.
    run = run_with(pool_of(LAPLACE, users=10, max_visits=1), horizon=25)
    assert (run.batches, run.pulls) == (1, (13, 12))
