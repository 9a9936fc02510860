"""Users who come back: charged before every release, turned away when spent, promised the total."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from accounting.claim import Pure
from accounting.filter import filter_for
from accounting.ledger import Ledger
from accounting.returning import per_user, routes
from bandits.elimination import BatchedElimination
from bandits.environment import Bernoulli
from bandits.play import Run, play
from bandits.policy import Pulls
from bandits.privatizer_sum import SumPrivatizer
from bandits.returning import (
    Book,
    LedgerBook,
    MemoryBook,
    Names,
    Pool,
    SteadyPrivatizer,
    visits_budget,
)
from bandits.returning_table import Route, returning_table, visit_noise
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.rng import SeededRng
from dpcore.skellam import Skellam
from tests.dpcore.mutants import mutated

LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-3")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=400), steps=4, failure="1e-3")

each_steady = pytest.mark.parametrize("steady", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])


@dataclass
class Noted(Book):
    """Writes down who took part in what."""

    of: Book
    visits: Counter[int] = field(default_factory=Counter)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        paid = self.of.pay(users, release)
        self.visits.update(users[paid].tolist())
        return paid


def pool_of(steady: SteadyPrivatizer, *, users: int, visits: int, book: Book | None = None) -> Pool:
    return Pool(
        users=users,
        visits=visits,
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


@each_steady
def test_a_visit_costs_the_same_in_every_release(steady: SteadyPrivatizer) -> None:
    assert {steady.guarantee(n) for n in (1, 2, 17, 1000)} == {steady.curve}
    assert {steady.noise(n) for n in (1, 2, 17, 1000)} == {steady.law}
    assert {steady.protocol(n).threshold for n in (1, 17, 1000)} == {steady.protocol(2).threshold}


def test_the_papers_noise_costs_more_in_some_releases() -> None:
    paper = SumPrivatizer(trust="renyi", epsilon=1, failure="1e-3")
    assert len({paper.guarantee(n) for n in (2, 16, 1024)}) == 3


@each_steady
def test_a_release_is_the_sum_and_its_noise(steady: SteadyPrivatizer) -> None:
    rng = SeededRng(4)
    released = [float(steady.release(5 * steady.steps, 9, rng)) for _ in range(2000)]
    assert abs(np.mean(released) - 5) < 6 * steady.deviation / math.sqrt(2000)
    assert 0.85 < np.std(released) / steady.deviation < 1.15


# -- the budget ----------------------------------------------------------------------------------


@each_steady
@pytest.mark.parametrize("visits", [1, 2, 3, 7, 13, 64, 100, 999])
def test_a_budget_holds_its_visits_and_no_more(steady: SteadyPrivatizer, visits: int) -> None:
    budget = visits_budget(steady.curve, visits)
    keeper = filter_for(budget)
    price = keeper.price(replace(steady.curve, scope=budget.scope))
    assert keeper.admits([a * (visits - 1) for a in price.amounts], price)
    assert not keeper.admits([a * visits for a in price.amounts], price)


def test_a_plain_budget_would_lose_a_visit() -> None:
    scope = visits_budget(LAPLACE.curve, 13).scope
    keeper = filter_for(Pure(Fraction(13, 8), scope=scope))
    price = keeper.price(replace(LAPLACE.curve, scope=scope))
    assert not keeper.admits([a * 12 for a in price.amounts], price)


# -- the pool ------------------------------------------------------------------------------------


@each_steady
def test_nobody_is_in_more_releases_than_allowed(steady: SteadyPrivatizer) -> None:
    book = Noted(MemoryBook(users=200, curve=steady.curve, visits=3))
    pool = pool_of(steady, users=200, visits=3, book=book)
    run = run_with(pool)
    assert max(book.visits.values()) == 3
    assert pool.turned_away > 0
    assert sum(book.visits.values()) >= sum(2**b * 2 for b in range(1, run.batches))


def test_a_book_that_does_not_charge_is_noticed() -> None:
    class Free(MemoryBook):
        pay = mutated(MemoryBook.pay, "self.totals[users[able]] = after[able]", "pass")

    book = Noted(Free(users=200, curve=LAPLACE.curve, visits=3))
    run_with(pool_of(LAPLACE, users=200, visits=3, book=book))
    assert max(book.visits.values()) > 3


def test_nobody_is_twice_in_a_release() -> None:
    @dataclass
    class Seen(Book):
        of: Book
        by_release: dict[str, list[int]] = field(default_factory=dict)

        def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
            self.by_release.setdefault(release.rsplit("/", 1)[0], []).extend(users.tolist())
            return self.of.pay(users, release)

    book = Seen(MemoryBook(users=150, curve=LAPLACE.curve, visits=2))
    run_with(pool_of(LAPLACE, users=150, visits=2, book=book))
    assert all(len(asked) == len(set(asked)) for asked in book.by_release.values())


def test_when_too_few_are_left_nothing_more_is_released() -> None:
    pool = pool_of(LAPLACE, users=40, visits=2)
    run = run_with(pool)
    assert sum(run.pulls) == 600
    # 2 arms of 2, 4 and 8 users fit into 80 visits, and of 16; 32 do not.
    assert run.batches == 4
    assert abs(run.pulls[0] - run.pulls[1]) <= 1


def test_a_release_larger_than_the_pool_has_too_few() -> None:
    pool = pool_of(LAPLACE, users=3, visits=10)
    assert not pool.admit(Pulls((4, 4)), "b")
    assert pool.admit(Pulls((3, 3)), "b")


def test_the_guarantee_is_that_of_all_visits() -> None:
    pool = pool_of(LAPLACE, users=400, visits=4)
    run = run_with(pool)
    assert run.guarantee is not None
    assert run.guarantee.parts == (per_user(LAPLACE.curve, max_visits=4),)
    pure = run.guarantee.pure()
    assert pure is not None
    assert (pure.epsilon, pure.scope.unit.value) == (Fraction(1, 2), "user")
    bound = run.guarantee.epsilon("1e-6")
    assert Fraction(1, 8) < bound.upper < Fraction(1, 2)
    assert run.guarantee.delta(bound.upper).upper <= Fraction(1 + 10**6, 10**12)
    assert any("at most 4 batches" in text for text in pool.total.assumptions)


@pytest.mark.parametrize("horizon", [300, 600])
def test_a_pool_of_new_users_changes_no_run(horizon: int) -> None:
    pool = pool_of(LAPLACE, users=10**4, visits=1)
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


def test_another_privatizer_is_refused() -> None:
    pool = pool_of(LAPLACE, users=100, visits=1)
    with pytest.raises(InvalidParameter) as refused:
        play(
            BatchedElimination(privatizer=SKELLAM),
            Bernoulli(means=(0.6, 0.5)),
            horizon=100,
            world=np.random.default_rng(1),
            rng=SeededRng(1),
            users=pool,
        )
    assert refused.value.argument == "policy"


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"users": 0}, "users"),
        ({"visits": 0}, "visits"),
        ({"privatizer": SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")}, "privatizer"),
        ({"arrivals": 3}, "arrivals"),
    ],
    ids=["users", "visits", "privatizer", "arrivals"],
)
def test_a_pool_of_nobody_is_refused(arguments: dict[str, Any], argument: str) -> None:
    given = {
        "users": 10,
        "visits": 1,
        "privatizer": LAPLACE,
        "arrivals": np.random.default_rng(1),
        **arguments,
    }
    with pytest.raises(InvalidParameter) as refused:
        Pool(**given)
    assert refused.value.argument == argument


# -- the ledger ----------------------------------------------------------------------------------


@each_steady
def test_a_ledger_and_its_arithmetic_in_memory_agree(
    steady: SteadyPrivatizer, tmp_path: Path
) -> None:
    in_memory = Noted(MemoryBook(users=60, curve=steady.curve, visits=2))
    pool = pool_of(steady, users=60, visits=2, book=in_memory)
    run = run_with(pool)
    budget = visits_budget(steady.curve, 2)
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        on_disk = Noted(LedgerBook(ledger=ledger, curve=steady.curve, run="first"))
        other = pool_of(steady, users=60, visits=2, book=on_disk)
        assert run_with(other) == run
        assert on_disk.visits == in_memory.visits
        assert other.turned_away == pool.turned_away > 0
        assert not ledger.check()


def test_a_run_is_not_played_twice_on_one_charge(tmp_path: Path) -> None:
    with Ledger.create(
        str(tmp_path / "ledger.db"), budget=visits_budget(LAPLACE.curve, 4)
    ) as ledger:
        for attempt in range(2):
            book = LedgerBook(ledger=ledger, curve=LAPLACE.curve, run="first")
            pool = pool_of(LAPLACE, users=60, visits=4, book=book)
            if attempt:
                with pytest.raises(InvalidParameter) as refused:
                    run_with(pool)
                assert refused.value.argument == "run"
            else:
                run_with(pool)


# -- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [1, 4, 16])
def test_each_route_certifies_its_noise_and_looser_ones_need_more(visits: int) -> None:
    found = {
        route: visit_noise(
            law="discrete-laplace", epsilon=1, delta="1e-6", visits=visits, route=route
        )
        for route in get_args(Route)
    }
    scales = {
        route: SteadyPrivatizer(law=noise, steps=16, failure="1e-3").deviation
        for route, noise in found.items()
    }
    assert scales["exact"] <= scales["renyi"] * 1.01
    assert scales["exact"] <= scales["advanced"] * 1.01
    for route in ("exact", "renyi"):
        steady = SteadyPrivatizer(law=found[route], steps=16, failure="1e-3")
        bounds = {each.method: each.bound for each in routes(total_of(steady, visits), "1e-6")}
        bound = bounds[route]
        assert bound is not None
        assert bound.upper <= 1


def total_of(steady: SteadyPrivatizer, visits: int) -> Any:
    return per_user(steady.curve, max_visits=visits)


def test_less_noise_than_a_route_found_is_not_certified() -> None:
    noise = visit_noise(law="discrete-laplace", epsilon=1, delta="1e-6", visits=64, route="renyi")
    assert isinstance(noise, DiscreteLaplace)
    less = DiscreteLaplace(scale=Fraction(noise.scale) * Fraction(99, 100))
    steady = SteadyPrivatizer(law=less, steps=16, failure="1e-3")
    bound = next(
        each.bound for each in routes(total_of(steady, 64), "1e-6") if each.method == "renyi"
    )
    assert bound is not None
    assert bound.upper > 1


def test_the_table_says_what_coming_back_costs() -> None:
    rows = returning_table(
        horizon=4000, instances=3, visits=(1, 16), algorithms=("dist-dp-se",), epsilon=2
    )
    assert [(row.visits, row.route) for row in rows] == [
        (b, route) for b in (1, 16) for route in get_args(Route)
    ]
    assert all(row.epsilon <= 2 for row in rows)
    assert all(row.epsilon_exact <= 2 for row in rows)
    once, often = rows[0], rows[3]
    assert often.deviation > 5 * once.deviation
    assert often.regret_per_round > once.regret_per_round
    assert rows == returning_table(
        horizon=4000, instances=3, visits=(1, 16), algorithms=("dist-dp-se",), epsilon=2
    )


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"law": "discrete-gaussian"}, "law"),
        ({"route": "basic"}, "route"),
        ({"delta": 0}, "delta"),
        ({"epsilon": 0}, "epsilon"),
        ({"visits": 0}, "visits"),
    ],
    ids=["law", "route", "delta", "epsilon", "visits"],
)
def test_noise_of_nothing_is_refused(arguments: dict[str, Any], argument: str) -> None:
    given: dict[str, Any] = {
        "law": "discrete-laplace",
        "epsilon": 1,
        "delta": "1e-6",
        "visits": 4,
        "route": "exact",
        **arguments,
    }
    with pytest.raises(InvalidParameter) as refused:
        visit_noise(**given)
    assert refused.value.argument == argument


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(InvalidParameter) as refused:
        returning_table(algorithms=("thompson",))
    assert refused.value.argument == "algorithm"
