"""Audits of table releases on their worst pairs, with a mutant of each sensitivity rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from scipy.stats import chisquare

from accounting.composition.partition_selection_guarantee import least_threshold
from accounting.queries import Count, Histogram, Mean, Quantile, Sum, TableScope, Target, TopK
from accounting.queries.query import Moves, Query, noisy
from audit import audit
from audit.targets.local_and_selection import law_of
from audit.targets.release import target_of
from dpcore import SeededRng
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Sensitivity
from dpcore.selection import NoisyThreshold, Selection
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day


def test_the_law_of_sequential_selections_agrees_with_runs() -> None:
    choice = Selection(epsilon=4, sensitivity=1, count=2)
    law = law_of(choice, [3, 1, 2, 0], "scores")
    assert len(law) == 12
    assert sum(law.values()) == 1
    alpha = buy_alpha("release:top, two of four: cells", "1e-9")
    rng, runs = SeededRng(5), 6000
    seen: Counter[Any] = Counter()
    for _ in range(runs):
        chosen: Any = choice.release([3, 1, 2, 0], rng=rng)
        seen[tuple(chosen.tolist())] += 1
    wanted = [runs * law[row].enclose(64).upper_float for row in law]
    scale = runs / sum(wanted)
    assert chisquare([seen[row] for row in law], [scale * n for n in wanted]).pvalue > alpha


class NarrowCount(Count):
    """Broken: one row per user, ignoring the scope."""

    def moves(self, scope: TableScope) -> Moves:
        del scope
        return Moves(Sensitivity(1), Sensitivity(1))


class NarrowSum(Sum):
    """Broken: the width of the range, ignoring that a user may have no row."""

    def moves(self, scope: TableScope) -> Moves:
        low, high = self.ends
        moved = Sensitivity(scope.rows_per_user * (high - low))
        return Moves(moved, moved)


class NarrowMean(Mean):
    """Broken: the sensitivity of the sum alone, as if the count were public."""

    def moves(self, scope: TableScope) -> Moves:
        _, half = self.centre
        moved = Sensitivity.l1(scope.rows_per_user * half)
        return Moves(moved, moved)


class NarrowHistogram(Histogram):
    """Broken: the sensitivity for add-remove, used for replaced rows."""

    def moves(self, scope: TableScope) -> Moves:
        moved = Sensitivity.l1(scope.rows_per_user)
        return Moves(moved, moved)


class NarrowQuantile(Quantile):
    """Broken: one row per user."""

    def mechanism(self, scope: TableScope, target: Target) -> Selection:
        del scope
        given: Any = target.epsilon
        return Selection(epsilon=given, sensitivity=1, count=len(self.all))


class NarrowTop(TopK):
    """Broken: one row per user."""

    def mechanism(self, scope: TableScope, target: Target) -> Selection:
        del scope
        return Selection(epsilon=target.epsilon, sensitivity=1)  # type: ignore[arg-type]  # it is given here


class UnknownKeys(Histogram):
    """Broken in subclasses: a threshold for one key, or noise for one row, of a user."""

    few_keys: ClassVar[bool] = False
    few_rows: ClassVar[bool] = False

    def mechanism(self, scope: TableScope, target: Target) -> NoisyThreshold:
        priced, one = Target(epsilon=target.epsilon), replace(scope, rows_per_user=1)
        added = noisy(self.moves(one if self.few_rows else scope), scope, priced)
        keys = 1 if self.few_keys else scope.rows_per_user
        threshold = least_threshold(added.noise, target.delta, keys)
        return NoisyThreshold(mechanism=added, threshold=threshold, rows_per_user=keys)


class FewKeys(UnknownKeys):
    few_keys = True


class FewRows(UnknownKeys):
    few_rows = True


@pytest.mark.parametrize(
    ("kind", "crowd", "verdict"),
    [
        (FewKeys, 0, "refuted"),
        (FewRows, 60, "refuted"),
        (UnknownKeys, 0, "not_refuted"),
        (UnknownKeys, 60, "not_refuted"),
    ],
)
def test_a_threshold_that_assumes_too_few_keys_or_rows_per_user_is_refuted(
    kind: type[UnknownKeys], crowd: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = TableScope(user="user", rows_per_user=6)
    priced = Target(epsilon=1, delta="1/100")
    others = [[f"u{n}", "own"] for n in range(crowd)]
    if crowd:  # a key with several users, whose count is released
        pair = (others, [*others, *[["ada", "own"]] * 6])
        monkeypatch.setattr("audit.targets.release._exposed", lambda *_: pair)
    target = target_of(kind(column="value"), scope, priced, spelling="release:query")
    assert audit(target, runs=4000, seed=1).verdict == verdict


BROKEN: tuple[tuple[Query, Query, str], ...] = (
    (NarrowCount(), Count(), "add-remove"),
    (NarrowSum(column="value", low=1, high=2), Sum(column="value", low=1, high=2), "add-remove"),
    (
        NarrowHistogram(column="value", keys=("a", "b")),
        Histogram(column="value", keys=("a", "b")),
        "replace",
    ),
    (NarrowMean(column="value", low=0, high=2), Mean(column="value", low=0, high=2), "add-remove"),
)


@by_day(4)
@pytest.mark.parametrize(("broken", "right", "relation"), BROKEN, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("price", [{"epsilon": 1}, {"rho": "1/10"}], ids=["pure", "zcdp"])
def test_each_wrong_sensitivity_is_refuted(
    broken: Query, right: Query, relation: str, price: dict[str, Any]
) -> None:
    scope = TableScope(user="user", rows_per_user=2, relation=Relation(relation))
    for query, verdict in ((broken, "refuted"), (right, "proven")):
        target = target_of(query, scope, Target(**price), spelling="release:query")
        assert audit(target).verdict == verdict


@pytest.mark.parametrize(
    "query",
    [
        NarrowQuantile(column="value", low=0, high=1),
        pytest.param(NarrowQuantile(column="value", low=0, high=1, q=("1/4", "1/2")), id="two"),
        NarrowTop(column="value", keys=("a", "b")),
    ],
    ids=lambda q: type(q).__name__,
)
def test_a_release_by_selection_with_too_small_a_sensitivity_is_refuted(query: Query) -> None:
    scope = TableScope(user="user", rows_per_user=8, relation=Relation.REPLACE)
    target = target_of(query, scope, Target(epsilon=1), spelling="release:query")
    assert audit(target, runs=4000, seed=1).verdict == "refuted"


def test_bad_datasets_are_named() -> None:
    with pytest.raises(InvalidParameter, match=r"dataset = 3: must be a list of rows"):
        audit("release:count,epsilon=1", pair=(3, 4))
    assert audit("release:count,epsilon=1", pair=([], [["ada"] * 2])).verdict == "proven"
    assert str(audit("release:count,epsilon=1").claim) == "epsilon=1"
