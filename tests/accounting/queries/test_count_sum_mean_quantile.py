"""Tests of `accounting.queries.count_sum_mean_quantile`: sensitivities over all small tables.

The errors are compared with exact sums.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from datetime import date, datetime
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import chisquare

from accounting.law_pairs.registry import heaviest
from accounting.queries import (
    Count,
    Histogram,
    Mean,
    Quantile,
    Sum,
    Table,
    TableScope,
    Target,
    TopK,
)
from accounting.queries.count_sum_mean_quantile import Additive, Moves, Query, noisy, spread
from accounting.queries.release_answer import epsilon_at, guarantee_of, plan, release
from dpcore import DiscreteGaussian, DiscreteLaplace, SeededRng
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Relation, Sensitivity
from dpcore.selection import Selection
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day

ROWS = 2
OTHERS: tuple[tuple[tuple[str, float, str], ...], ...] = (
    (),
    (("bob", 1.0, "a"), ("bob", 3.0, "b"), ("bob", 2.0, "a"), ("eve", 9.0, "c")),
)
# All values that one user may have: up to one row more than count, at the ends, inside and beyond.
CELLS = [(-9.0, "a"), (1.0, "b"), (2.6, "a"), (9.0, "c")]
OWN = [c for k in range(ROWS + 2) for c in itertools.combinations_with_replacement(CELLS, k)]
QUERIES: tuple[Query, ...] = (
    Count(),
    Sum(column="x", low=-1, high=3),
    Sum(column="x", low=1, high=3, step="1/2"),
    Mean(column="x", low=-1, high=3),
    Mean(column="x", low=0, high=3),
    Histogram(column="key", keys=("a", "b", "z")),
    Quantile(column="x", low=-1, high=3, q="1/3"),
    Quantile(column="x", low=-1, high=3),
    TopK(column="key", keys=("a", "b")),
    Quantile(column="x", low=-1, high=3, q=("1/4", "1/3", "1/2")),
)


def scope_of(relation: Relation) -> TableScope:
    return TableScope(user="user", rows_per_user=ROWS, relation=relation)


def encoded(query: Query, rows: Any, relation: Relation) -> list[int]:
    table = pl.DataFrame(rows, schema=["user", "x", "key"], orient="row") if rows else None
    if table is None:
        table = pl.DataFrame(schema={"user": pl.String, "x": pl.Float64, "key": pl.String})
    found = query.encode(Table.of(table), scope_of(relation), SeededRng(4))
    numbers: list[int] = np.ravel(found).tolist()
    return numbers


@cache
def reached(query: Query, relation: Relation) -> tuple[int, int, int]:
    """Return the largest change by one user's rows: of one number, in l1 and in l2 squared."""
    changes = [(0, 0, 0)]
    for others in OTHERS:
        seen = {
            tuple(encoded(query, [*others, *(("ada", *cell) for cell in own)], relation))
            for own in OWN
        }
        without = tuple(encoded(query, list(others), relation))
        pairs = itertools.product(seen, seen if relation is Relation.REPLACE else [without])
        for a, b in pairs:
            steps = [abs(x - y) for x, y in zip(a, b, strict=True)]
            changes.append((max(steps), sum(steps), sum(s * s for s in steps)))
    one, total, squared = map(max, zip(*changes, strict=True))
    return one, total, squared


def said(sensitivity: Sensitivity) -> tuple[int, int]:
    steps = heaviest(sensitivity)
    return sum(s * n for s, n in steps), sum(s * s * n for s, n in steps)


@by_day(3)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("query", QUERIES, ids=repr)
def test_no_user_changes_a_query_by_more_than_its_sensitivity(
    query: Query, relation: Relation
) -> None:
    one, total, squared = reached(query, relation)
    if isinstance(query, (Quantile, TopK)):
        chosen = query.mechanism(scope_of(relation), Target(epsilon=1))
        assert isinstance(chosen, Selection)
        assert one <= chosen.sensitivity <= 2 * one
        return
    assert isinstance(query, Additive)
    moves = query.moves(scope_of(relation))
    assert total <= said(moves.laplace)[0]
    assert squared <= said(moves.gaussian)[1]
    if not isinstance(query, Mean):
        assert total == said(moves.laplace)[0]  # the bound is attained
        assert squared == said(moves.gaussian)[1]


def kept(rows: Any, scope: TableScope, seed: int) -> list[int]:
    table = Table.of(pl.DataFrame(rows, schema=["user", "x", "key"], orient="row"))
    parts = table.steps(scope, "x", (-1, 1000), Fraction(1), SeededRng(seed))
    return sorted(int(value) for part in parts for value in part)


def test_the_selection_of_rows_does_not_depend_on_other_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = [("ada", float(v), "a") for v in range(-1, 4)]
    scope = scope_of(Relation.ADD_REMOVE)
    apart = sorted(kept(own, scope, 7) + kept(OTHERS[1], scope, 7))
    for place in range(3):
        rows = [*OTHERS[1][:place], *own, *OTHERS[1][place:]]
        assert kept(rows, scope, 7) == apart
    # The choice does not depend on the number of rows in memory at once either.
    many = [(f"u{n % 97}", float(n), "a") for n in range(1000)]
    whole = kept(many, scope, 7)
    assert len(whole) == 97 * ROWS
    for rows_in_memory, rows_in_a_part in ((1 << 25, 100), (200, 50), (300, 1000)):
        monkeypatch.setattr("accounting.queries.table_with_rows_per_user._A_PASS", rows_in_memory)
        monkeypatch.setattr("accounting.queries.table_with_rows_per_user._A_PART", rows_in_a_part)
        monkeypatch.setattr("accounting.queries.table_with_rows_per_user._A_BATCH", 128)
        assert kept(many, scope, 7) == whole
        table = Table.of(pl.DataFrame(many, schema=["user", "x", "key"], orient="row"))
        assert table.count(scope) == len(whole)
        ten = pl.DataFrame(
            [(u, x, f"{x % 10:g}") for u, x, _ in many], ["user", "x", "key"], orient="row"
        )
        keys = Table.of(ten).keys(scope, "key", SeededRng(7))
        assert keys == Counter(f"{value % 10}" for value in whole)
    # Users whose hashes are equal are distinguished.
    monkeypatch.setattr(pl.Series, "hash", lambda self: self.str.len_bytes().cast(pl.UInt64))
    assert len(kept(many, scope, 7)) == 97 * ROWS


def test_each_selection_of_rows_is_equally_likely() -> None:
    alpha = buy_alpha("rows of a user that count: subsets of 3 among 6", "1e-9")
    scope = TableScope(user="user", rows_per_user=3)
    counts: Counter[tuple[int, ...]] = Counter()
    users = [(f"u{n}", float(v), "a") for v in range(6) for n in range(500)]
    places = {name: n for n, (name, _, _) in enumerate(users[:500])}
    rows = [(name, float(8 * places[name] + v), key) for name, v, key in users]
    table = Table.of(pl.DataFrame(rows, schema=["user", "x", "key"], orient="row"))
    for seed in range(20):
        found: dict[int, list[int]] = defaultdict(list)
        for part in table.steps(scope, "x", (0, 4000), Fraction(1), SeededRng(seed)):
            for value in part.tolist():
                found[value // 8].append(value % 8)
        counts.update(tuple(sorted(chosen)) for chosen in found.values())
    assert len(counts) == math.comb(6, 3)
    assert chisquare(list(counts.values())).pvalue > alpha


def test_noise_meets_its_target_and_is_nearly_the_least() -> None:
    moves, scope = Moves(Sensitivity.l1(2), Sensitivity.l2_squared(2)), TableScope(user="user")
    pure = noisy(moves, scope, Target(epsilon="1/2"))
    assert pure.noise == DiscreteLaplace(scale=4)
    assert guarantee_of(pure).pure().upper == Fraction(1, 2)
    zcdp = noisy(moves, scope, Target(rho="1/50"))
    assert guarantee_of(zcdp).zcdp().upper == Fraction(1, 50)
    wide = Moves(Sensitivity.l1(400), Sensitivity.l2_squared(3200))  # no exact curve
    for each in (moves, wide):
        mechanism = noisy(each, scope, Target(epsilon=1, delta="1e-6"))
        kept = epsilon_at(guarantee_of(mechanism), Fraction("1e-6"))
        assert Fraction(9, 10) < kept <= 1
    smaller = noisy(moves, scope, Target(epsilon="1/10", delta="1/100"))
    assert isinstance(smaller.noise, DiscreteGaussian)


@pytest.mark.parametrize("noise", [DiscreteLaplace(scale=6), DiscreteGaussian(sigma_squared=50)])
def test_intervals_cover_according_to_exact_sums(noise: Any) -> None:
    inside = [noise.enclose_pmf(0).lower]
    for k in range(1, 60):
        inside.append(inside[-1] + 2 * noise.enclose_pmf(k).lower)
    deviation = sum(2 * k * k * noise.pmf(k) for k in range(1, 401)) ** 0.5
    for level in ("1/2", "95/100", "999/1000"):
        confidence = Fraction(level)
        error, reach = spread(noise, confidence)
        assert inside[reach] >= confidence - Fraction(1, 10**12)
        assert inside[reach - 1] < confidence
        assert error == pytest.approx(deviation, rel=1e-9)


def test_the_interval_of_a_mean_covers() -> None:
    """Corners of two intervals contain the true mean; an interval a quarter as wide does not."""
    query, scope = Mean(column="x", low=0, high=10), TableScope(user="user")
    mechanism = query.mechanism(scope, Target(epsilon=1))
    assert isinstance(mechanism, Mechanism)
    rng, missed, narrow = SeededRng(3), 0, 0
    true = np.array([2 * 300, 5 * 300])  # 300 rows of 7
    for _ in range(200):
        found = query.answer(mechanism.release(true, rng=rng), mechanism, Fraction(9, 10))
        low, high = found.interval
        missed += not low <= 7 <= high
        half = (high - low) / 8
        narrow += not found.value - half <= 7 <= found.value + half
    assert missed <= 200 / 10
    assert narrow > 200 / 10


def test_a_quantile_is_scored_by_rank() -> None:
    table = Table.of(pl.DataFrame({"user": list("abcde"), "x": [1.0, 1.0, 2.0, 5.0, 9.0]}))
    scope = TableScope(user="user")
    scores = Quantile(column="x", low=0, high=9).encode(table, scope, SeededRng(1))
    values = [1, 1, 2, 5, 9]
    for at, score in enumerate(scores.tolist()):
        below, upto = sum(v < at for v in values), sum(v <= at for v in values)
        assert score == -max(0, 2 * below - 5, 5 - 2 * upto)
    assert scores.argmax() == 2


def test_several_quantiles_are_released_in_order_with_their_own_scores() -> None:
    rows = [(f"u{n}", float(n % 101)) for n in range(1010)]
    table = Table.of(pl.DataFrame(rows, schema=["user", "x"], orient="row"))
    asked = Quantile(column="x", low=0, high=100, q=("1/10", "1/2", "9/10"))
    for relation in Relation:
        scope = TableScope(user="user", relation=relation)
        found = release(asked, table, scope, Target(epsilon=10**6), rng=SeededRng(1))
        assert found.value == {"0.1": 10, "0.5": 50, "0.9": 90}
        assert found.privacy_parameters() == {"epsilon": 10**6}
        assert ",count=3" in found.noise
        # Each score has the effect of a row that all other users have, up to one part in 64.
        alone = [Quantile(column="x", low=0, high=100, q=q).factors(relation)[1] for q in asked.all]
        factors, most = asked.factors(relation)
        assert all(
            most * 63 < 64 * f * each <= 64 * most for f, each in zip(factors, alone, strict=True)
        )
    noisy = release(asked, table, scope, Target(epsilon="1/100"), rng=SeededRng(8)).value
    assert [*noisy.values()] == sorted(noisy.values())


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Quantile(column="x", low=0, high=1, q=("1/2", "1/2")),
            "q = 1/2, 1/2: must be one or more numbers",
        ),
        (lambda: Sum(column="x", low=3, high=3), "clip = 3 3: LOW must be below HIGH"),
        (lambda: Sum(column="x", low=0, high=10, step=3), "step = 3: must divide both bounds"),
        (lambda: Sum(column="x", low=0, high=10**9, step="1/100"), "is too fine"),
        (lambda: Quantile(column="x", low=0, high=10**7), "the limit of 2.22"),
        (
            lambda: Quantile(column="x", low=0, high=3 * 10**6, q=("1/4", "1/2")),
            "in total for all quantiles",
        ),
        (lambda: Histogram(column="x", keys=("a", "b", "a")), "keys = a: appears twice"),
        (lambda: Histogram(column="x", keys=()), "non-empty"),
        (lambda: Histogram(column="x", keys=3), "keys = 3: must be a non-empty"),  # type: ignore[arg-type]  # no sequence
        *(
            (partial(Histogram, column="x", keys=("a", key)), "must be text, as in the table")  # type: ignore[arg-type]  # no texts
            for key in (True, np.True_, 1.0, datetime(2020, 1, 1))  # noqa: DTZ001 - no instant
        ),
        (lambda: TopK(column="x", keys=("a",), count=2), "count = 2"),
        (lambda: Target(epsilon=1, rho=1), "epsilon: give either"),
        (lambda: Target(epsilon=0), "epsilon = 0"),
        (lambda: TableScope(user="u", rows_per_user=0), "rows_per_user = 0"),
        (lambda: Sum(column="x", low=0, high=10, step=0), "step"),
        (lambda: Quantile(column="x", low=0, high=1, q=()), "numbers in increasing"),
        (lambda: Quantile(column="x", low=0, high=1, q=2), "q = 2"),
        (lambda: plan(Count(), TableScope(user="u"), Target(rho=1, delta="1/2")), "delta"),
        (
            lambda: plan(Histogram(column="x"), TableScope(user="u"), Target(epsilon=1)),
            "delta = 0: must be given",
        ),
        (
            lambda: plan(
                Histogram(column="x"),
                TableScope(user="u", rows_per_user=1 << 20),
                Target(epsilon=1, delta="1e-6"),
            ),
            "rows_per_user = 1048576: must be <= 1024",
        ),
    ],
)
def test_an_invalid_query_is_refused(make: Any, match: str) -> None:
    with pytest.raises(InvalidParameter, match=match):
        make()


def test_keys_of_other_libraries_are_read_as_the_table_writes_them() -> None:
    for keys in (["1", "2"], np.array(["1", "2"]), pl.Series(["1", "2"]), np.array([1, 2])):
        assert Histogram(column="x", keys=keys).keys == ("1", "2")  # type: ignore[arg-type]  # any sequence
    assert TopK(column="x", keys=(date(2020, 1, 31),)).keys == ("2020-01-31",)  # type: ignore[arg-type]  # any sequence
