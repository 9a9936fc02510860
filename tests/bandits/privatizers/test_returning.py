"""Users who come back: charged before every release, turned away when spent, promised the total."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from accounting.budget.returning import per_user
from accounting.claims.claim import Pure
from accounting.ledger import Ledger
from accounting.release.curve import PrivacyCurve
from accounting.theorems.convert import as_pure
from bandits.batch import Pulls, Released
from bandits.play import Run, play
from bandits.policies.elimination import BatchedElimination, EliminationState
from bandits.privatizers.returning import (
    Book,
    LedgerBook,
    MemoryBook,
    Names,
    Pool,
    SteadyPrivatizer,
    visits_budget,
)
from bandits.privatizers.sums import SumPrivatizer
from bandits.worlds.environment import Bernoulli
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused

LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-3")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=400), steps=4, failure="1e-3")
QUIET = SteadyPrivatizer(law=DiscreteLaplace(scale=6400), steps=8, failure="1e-3")

each_steady = pytest.mark.parametrize("steady", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])


@dataclass
class Noted(Book):
    """Writes down who took part in what."""

    of: Book
    visits: Counter[int] = field(default_factory=Counter)
    releases: dict[str, list[int]] = field(default_factory=dict)
    asked: int = 0

    @property
    def curve(self) -> PrivacyCurve:
        return self.of.curve

    @property
    def users(self) -> int | None:
        return self.of.users

    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        self.asked += 1
        return self.of.able(users)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        paid = self.of.pay(users, release)
        self.visits.update(users[paid].tolist())
        self.releases.setdefault(release.rsplit("/", 1)[0], []).extend(users.tolist())
        return paid


def pool_of(
    steady: SteadyPrivatizer, *, users: int, max_visits: int, book: Book | None = None
) -> Pool:
    return Pool(
        users=users,
        max_visits=max_visits,
        privatizer=steady,
        arrivals=np.random.default_rng(3),
        book=book,
    )


def run_with(pool: Pool, *, horizon: int = 600) -> Run:
    return play(
        BatchedElimination(privatizer=pool.privatizer),
        Bernoulli(means=(0.6, 0.5)),
        horizon=horizon,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
        users=pool,
    )


# -- one mechanism for every release -------------------------------------------------------------


def test_the_papers_noise_costs_more_in_some_releases() -> None:
    paper = SumPrivatizer(trust="renyi", epsilon=1, failure="1e-3")
    assert len({paper.guarantee(n) for n in (2, 16, 1024)}) == 3


# -- the pool ------------------------------------------------------------------------------------


@by_day(2)
@each_steady
@pytest.mark.parametrize("held", [3, 64], ids=["book of 3", "book of 64"])
def test_nobody_is_in_more_releases_than_allowed(steady: SteadyPrivatizer, held: int) -> None:
    book = Noted(MemoryBook(users=200, curve=steady.curve, max_visits=held))
    pool = pool_of(steady, users=200, max_visits=3, book=book)
    run = run_with(pool)
    assert max(book.visits.values()) == pool.most_visits == 3
    assert pool.turned_away > 0
    assert sum(book.visits.values()) >= sum(2**b * 2 for b in range(1, run.batches))


class Uncounted(Pool):
    _filled = mutated(Pool._filled, "self.visited[called[paid]] += 1", "pass")


def test_a_pool_that_does_not_count_is_noticed() -> None:
    book = Noted(MemoryBook(users=200, curve=LAPLACE.curve, max_visits=64))
    arrivals = np.random.default_rng(3)
    run_with(Uncounted(users=200, max_visits=3, privatizer=LAPLACE, arrivals=arrivals, book=book))
    assert max(book.visits.values()) > 3


def test_what_a_book_holds_is_kept_by_runs_together() -> None:
    book = Noted(MemoryBook(users=200, curve=LAPLACE.curve, max_visits=4))
    for _ in range(2):
        run_with(pool_of(LAPLACE, users=200, max_visits=3, book=book))
    assert max(book.visits.values()) == 4


def test_a_book_that_does_not_charge_is_noticed() -> None:
    class Free(MemoryBook):
        pay = mutated(MemoryBook.pay, "self.totals[users[paid]] += self._price", "pass")

    book = Noted(Free(users=200, curve=LAPLACE.curve, max_visits=4))
    for _ in range(2):
        run_with(pool_of(LAPLACE, users=200, max_visits=3, book=book))
    assert max(book.visits.values()) > 4


def test_nobody_is_twice_in_a_release() -> None:
    book = Noted(MemoryBook(users=150, curve=LAPLACE.curve, max_visits=2))
    run_with(pool_of(LAPLACE, users=150, max_visits=2, book=book))
    assert all(len(asked) == len(set(asked)) for asked in book.releases.values())


def test_who_could_pay_and_is_charged_by_another_is_replaced() -> None:
    @dataclass
    class Raced(Noted):
        """Somebody else charges half of those who were found able, once."""

        raced: bool = False

        def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
            if not self.raced:
                self.raced = True
                self.of.pay(users[: len(users) // 2], "of another run")
            return Noted.pay(self, users, release)

    book = Raced(MemoryBook(users=40, curve=LAPLACE.curve, max_visits=1))
    pool = pool_of(LAPLACE, users=40, max_visits=1, book=book)
    assert pool.admit(Pulls((10, 0)), "b")
    assert (pool.turned_away, sum(book.visits.values()), pool.visited.sum()) == (5, 10, 10)
    (asked,) = book.releases.values()
    assert len(asked) == len(set(asked)) == 15
    assert not pool.admit(Pulls((26, 0)), "c")


def test_an_exhausted_pool_asks_once(tmp_path: Path) -> None:
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE.curve, 1)) as ledger:
        book = Noted(LedgerBook(ledger=ledger, curve=LAPLACE.curve, run="first"))
        pool = pool_of(LAPLACE, users=300, max_visits=1, book=book)
        assert pool.admit(Pulls((300, 0)), "b1")
        # Another run on the same ledger does not know yet who is spent.
        again = Noted(LedgerBook(ledger=ledger, curve=LAPLACE.curve, run="second"))
        other = pool_of(LAPLACE, users=300, max_visits=1, book=again)
        assert not other.admit(Pulls((1, 0)), "b1")
        assert (other.turned_away, other.dry, again.asked, ledger.charges()) == (300, True, 2, 1)
        assert not pool.admit(Pulls((1, 0)), "b2")
        assert ledger.charges() == 1


def test_when_too_few_are_left_nothing_more_is_released() -> None:
    pool = pool_of(LAPLACE, users=40, max_visits=2)
    run = run_with(pool)
    assert sum(run.pulls) == 600
    # 2 arms of 2, 4 and 8 users fit into 80 visits, and of 16; 32 do not.
    assert run.batches == 4
    assert abs(run.pulls[0] - run.pulls[1]) <= 1


def test_a_release_larger_than_the_pool_has_too_few() -> None:
    pool = pool_of(LAPLACE, users=3, max_visits=10)
    assert not pool.admit(Pulls((4, 4)), "b")
    assert pool.admit(Pulls((3, 3)), "b")


def test_the_guarantee_is_that_of_all_visits() -> None:
    pool = pool_of(LAPLACE, users=400, max_visits=4)
    run = run_with(pool)
    assert run.guarantee is not None
    assert run.guarantee.parts == (per_user(LAPLACE.curve, max_visits=4),)
    pure = as_pure(run.guarantee)
    assert (pure.pure().upper, pure.scope.unit.value) == (Fraction(1, 2), "user")
    bound = run.guarantee.epsilon("1e-6")
    assert Fraction(1, 8) < bound.upper < Fraction(1, 2)
    assert run.guarantee.delta(bound.upper).upper <= Fraction(1 + 10**6, 10**12)
    (total,) = run.guarantee.parts
    assert any("at most 4 batches" in text for text in total.assumptions)


@pytest.mark.parametrize("horizon", [300, 600])
def test_a_pool_of_new_users_changes_no_run(horizon: int) -> None:
    pool = pool_of(LAPLACE, users=10**4, max_visits=1)
    policy = BatchedElimination(privatizer=LAPLACE)
    fresh = play(
        policy,
        Bernoulli(means=(0.6, 0.5)),
        horizon=horizon,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
    )
    pooled = run_with(pool, horizon=horizon)
    assert replace(pooled, guarantee=fresh.guarantee) == fresh


def test_another_privatizer_is_refused_before_anybody_is_charged(tmp_path: Path) -> None:
    observed = []

    class Watching(BatchedElimination):
        def observe(self, state: EliminationState, released: Released) -> EliminationState:
            observed.append(released)
            return BatchedElimination.observe(self, state, released)

    loud = SteadyPrivatizer(law=DiscreteLaplace(scale=1), steps=8, failure="1e-3")
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE.curve, 4)) as ledger:
        book = LedgerBook(ledger=ledger, curve=LAPLACE.curve, run="first")
        with refused("policy"):
            play(
                Watching(privatizer=loud),
                Bernoulli(means=(0.6, 0.5)),
                horizon=100,
                world=np.random.default_rng(1),
                rng=SeededRng(1),
                users=pool_of(LAPLACE, users=70, max_visits=4, book=book),
            )
        assert (ledger.charges(), ledger.users(), observed) == (0, 0, [])


def book_of(**given: Any) -> MemoryBook:
    return MemoryBook(**{"users": 10, "curve": LAPLACE.curve, "max_visits": 1, **given})


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"users": 0}, "users"),
        ({"users": 1 << 40}, "users"),
        ({"max_visits": 0}, "max_visits"),
        ({"max_visits": 1 << 30}, "max_visits"),
        ({"max_visits": 1 << 30, "book": book_of()}, "max_visits"),
        ({"privatizer": SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")}, "privatizer"),
        ({"arrivals": 3}, "arrivals"),
        ({"book": "abc"}, "book"),
        ({"book": ""}, "book"),
        ({"book": 0}, "book"),
        ({"book": book_of(curve=QUIET.curve)}, "book"),
        ({"book": book_of(curve=SKELLAM.curve)}, "book"),
        ({"book": book_of(users=9)}, "book"),
        ({"book": book_of(users=11)}, "book"),
    ],
    ids=str,
)
def test_a_pool_of_nobody_is_refused(arguments: dict[str, Any], argument: str) -> None:
    given = {
        "users": 10,
        "max_visits": 1,
        "privatizer": LAPLACE,
        "arrivals": np.random.default_rng(1),
        **arguments,
    }
    with refused(argument):
        Pool(**given)


# -- the ledger ----------------------------------------------------------------------------------


def test_a_ledger_for_many_runs_keeps_the_promise_of_each(tmp_path: Path) -> None:
    budget = visits_budget(LAPLACE.curve, 5)
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        together: Counter[int] = Counter()
        for name in ("first", "second", "third"):
            book = Noted(LedgerBook(ledger=ledger, curve=LAPLACE.curve, run=name))
            run = run_with(pool_of(LAPLACE, users=60, max_visits=2, book=book))
            assert max(book.visits.values()) == 2
            assert run.guarantee is not None
            assert as_pure(run.guarantee) == Pure(Fraction(1, 4), scope=budget.scope)
            together += book.visits
        assert max(together.values()) == 5
        assert ledger.remaining("user 0").keys() == {"epsilon"}
