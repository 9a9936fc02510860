"""Mechanisms of dpcore as targets: the claim is proven or not refuted, a mutant is refuted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from accounting.composition.partition_selection_guarantee import least_threshold
from accounting.queries import Count, Histogram, Mean, Quantile, Sum, TableScope, Target, TopK
from accounting.queries.count_sum_mean_quantile import Moves, Query, noisy
from audit import audit
from audit.targets import continual
from audit.targets.local_and_selection import law_of
from audit.targets.release import target_of
from audit.targets.target import Catalogued
from audit.targets.target_syntax import read_target
from dpcore import DiscreteLaplace, SeededRng
from dpcore.continual_sums import TreeSum
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Sensitivity
from dpcore.selection import NoisyThreshold, Selection
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.dpcore.running_sums import BareLevelTree

PROTOCOLS = (
    "pure,users=8,epsilon=1",
    "pure,users=8,epsilon=1,honest_fraction=1/2",
    "renyi,users=8,epsilon=1,delta=1e-2",
    "concentrated,users=4,epsilon=1,delta=1e-2",
    "central,users=8,epsilon=1",
    "local,users=8,epsilon=1",
    "shuffled-pure,users=8,epsilon=2",
    "binary-shuffle,users=8,epsilon=1,delta=1e-2",
    "vector-shuffle,users=8,epsilon=1,delta=1e-1,coordinates=2,precision=2",
)
RUNNING_SUMS = (
    "tree,horizon=8,epsilon=1",
    "doubling,horizon=8,epsilon=1,high=2",
    "square-root,horizon=8,epsilon=1,delta=1e-2",
)
PRICES = ("epsilon=1", "rho=1/10", "epsilon=1/4,delta=1e-3")
NOISY = (
    "count",
    "sum,low=-3,high=2",
    "sum,low=1,high=2,step=1/2",
    "mean,low=0,high=6",
    "histogram,keys=a/b/c",
)
CHOSEN = (
    "quantile,low=0,high=4,q=1/3",
    "quantile,low=0,high=1,q=0.25 0.5",
    "top,keys=a/b/c,count=2",
)
THRESHOLDS = (
    "quantile,low=0,high=400",
    "histogram,delta=1e-2",
    "histogram,delta=1e-2,relation=replace",
)
LOCAL = (
    "randomised-response,values=4",
    "unary-encoding,values=6",
    "unary-encoding,values=6,encoding=symmetric",
    "subset-selection,values=9",
    "local-hashing,values=20",
    "hadamard-response,values=50",
)
SELECTIONS = (
    "permute-and-flip", "exponential", "noisy-max", "noisy-max,noise=laplace",
    "noisy-max,sensitivity=3", "noisy-max,noise=laplace,gap=yes",
    "above-threshold,count=2,sensitivity=2", "above-threshold,gap=yes", "above-threshold",
)  # fmt: skip

# The least epsilon of the pair, as a fraction of the claim: 1 if less noise would not suffice.
TIGHT, NEARLY, PLANNED, ABOVE_HALF, ANY = (
    Fraction(each) for each in ("1", "0.999999", "0.9", "0.5", "0")
)
PROVEN = (
    *((f"protocol:{words}", PLANNED) for words in PROTOCOLS),
    *(
        (
            f"release:{query},rows_per_user=2,relation={relation},{price}",
            TIGHT if query in NOISY and price == "epsilon=1" else ANY,
        )
        for query, price in [*product(NOISY, PRICES), *product(CHOSEN, PRICES[:2])]
        for relation in ("replace", "add-remove")
    ),
    *((f"local:{words},epsilon={e}", NEARLY) for words in LOCAL for e in ("1/2", "3/2")),
    *((f"select:{words},epsilon=1", ABOVE_HALF) for words in SELECTIONS),
)


@by_day(4)
@pytest.mark.parametrize(("text", "least"), PROVEN)
def test_the_claim_is_proven_and_a_smaller_one_refuted(text: str, least: Fraction) -> None:
    target: Any = read_target(text)
    report = audit(target)
    assert report.verdict == "proven"
    assert report.exact is not None
    derived, claim = report.exact.epsilon, target.subject
    assert least * claim.epsilon <= derived.upper <= claim.epsilon
    assert audit(target, claim=f"epsilon={derived.upper},delta={claim.delta}").verdict == "proven"
    less = Fraction(derived.lower) * Fraction(999, 1000)
    refuted = audit(target, claim=f"epsilon={less},delta={claim.delta}")
    assert refuted.verdict == "refuted"
    assert refuted.epsilon_lower <= derived.upper


SAMPLED = (
    *((f"continual:{words}", 200) for words in RUNNING_SUMS),
    *((f"release:{words},rows_per_user=2,epsilon=1", 1000) for words in THRESHOLDS),
    *((f"local:{words},epsilon=1", 2000) for words in LOCAL),
    *((f"select:{words},epsilon=1", 1000) for words in SELECTIONS),
)


@by_day(2)
@pytest.mark.parametrize(("text", "runs"), SAMPLED)
def test_runs_do_not_refute_the_claim(text: str, runs: int) -> None:
    alpha = Fraction(buy_alpha(f"runs of {text}", "1e-9"))
    report = audit(text, layers=("sample",), runs=runs, confidence=1 - alpha, seed=3)
    assert (report.error, report.verdict) == (None, "not_refuted")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("continual:", "^target = "),
        ("continual:trie,horizon=4,epsilon=1", "^mechanism = "),
        ("continual:tree,epsilon=1", "^target = .*horizon is missing"),
        ("continual:tree,horizon=4", "^target = .*epsilon is missing"),
        ("continual:tree,horizon=4,epsilon=1,depth=2", "^target = .*depth=2"),
        ("continual:tree,horizon=0,epsilon=1", "^horizon = "),
        ("continual:tree,horizon=4,epsilon=1,high=0", "^high = "),
        ("protocol:pure,users=8", "epsilon is missing"),
        ("protocol:pure,epsilon=1", "users is missing"),
        ("protocol:simple,users=8,epsilon=1", "instance = simple"),
        ("protocol:pure,users=8,epsilon=1,colour=red", "a protocol has the parameters"),
        ("protocol:pure,users=2.5,epsilon=1", "users = 2.5: must be a whole number"),
        ("protocol:pure,users=8,epsilon=1,functionality=none", "functionality = none"),
        ("protocol:local,users=8,epsilon=1,functionality=masked", "functionality = masked"),
        ("protocol:pure,users=4,epsilon=1,honest_fraction=1/2,functionality=masked", "dropouts"),
        ("protocol:renyi,users=8,epsilon=1", "delta = "),
        ("release:median,epsilon=1", "must name one of"),
        ("release:count,epsilon=1,low=2", "low"),
        ("release:sum,high=2,low=0,epsilon=0", "epsilon = 0"),
        ("release:count", "give either epsilon or rho"),
        ("local:coin,values=2,epsilon=1", "must be one of randomised-response"),
        ("local:randomised-response,epsilon=1", "values"),
        ("local:randomised-response,values=2,epsilon=1,encoding=symmetric", "parameters epsilon"),
        ("select:median,epsilon=1", "must name one of permute-and-flip"),
        ("select:exponential,epsilon=1,noise=laplace", "noise applies only to noisy-max"),
        ("select:noisy-max,epsilon=1,count=2", "count applies only to above-threshold"),
        ("select:exponential,epsilon=1,gap=yes", "gap applies only to noisy-max"),
        ("select:noisy-max,epsilon=1,gap=yes", "proven to be free"),
        ("select:above-threshold,epsilon=1,gap=1", "gap must be yes or no"),
    ],
)
def test_a_misspelt_target_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        read_target(text)


def test_the_law_of_sequential_selections_agrees_with_runs() -> None:
    choice = Selection(epsilon=4, sensitivity=1, count=2)
    law = law_of(choice, [3, 1, 2, 0], "scores")
    assert len(law) == 12
    assert sum(law.values()) == 1
    alpha = buy_alpha("release:top, two of four: cells", "1e-9")
    rng, runs = SeededRng(5), 3000
    seen: Counter[Any] = Counter()
    for _ in range(runs):
        chosen: Any = choice.release([3, 1, 2, 0], rng=rng)
        seen[tuple(chosen.tolist())] += 1
    wanted = [runs * law[row].enclose(64).upper_float for row in law]
    scale = runs / sum(wanted)
    assert chisquare([seen[row] for row in law], [scale * n for n in wanted]).pvalue > alpha


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
    """Broken if set: a threshold for one key, or noise for one row, of a user."""

    few_keys: ClassVar[bool] = False
    few_rows: ClassVar[bool] = False

    def mechanism(self, scope: TableScope, target: Target) -> NoisyThreshold:
        priced, one = Target(epsilon=target.epsilon), replace(scope, rows_per_user=1)
        added = noisy(self.moves(one if self.few_rows else scope), scope, priced)
        keys = 1 if self.few_keys else scope.rows_per_user
        threshold = least_threshold(added.noise, target.delta, keys)
        return NoisyThreshold(mechanism=added, threshold=threshold, rows_per_user=keys)


@by_day(1)
@pytest.mark.parametrize(
    ("few", "crowd"), [("few_keys", 0), ("few_rows", 60), ("none", 0), ("none", 60)]
)
def test_a_threshold_that_assumes_too_few_keys_or_rows_per_user_is_refuted(
    few: str, crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = TableScope(user="user", rows_per_user=6)
    priced = Target(epsilon=1, delta="1/100")
    others = [[f"u{n}", "own"] for n in range(crowd)]
    if crowd:  # a key with several users, whose count is released
        pair = (others, [*others, *[["ada", "own"]] * 6])
        monkeypatch.setattr("audit.targets.release._exposed", lambda *_: pair)
    if few != "none":
        monkeypatch.setattr(UnknownKeys, few, True)
    target = target_of(UnknownKeys(column="value"), scope, priced, spelling="release:query")
    expected = "not_refuted" if few == "none" else "refuted"
    assert audit(target, runs=4000, seed=1).verdict == expected


def narrow(kind: type[Query], moved: Callable[[Any, int], Sensitivity]) -> Any:
    """A broken query with this sensitivity, given the query and the rows per user."""

    def moves(self: Query, scope: TableScope) -> Moves:
        return Moves(moved(self, scope.rows_per_user), moved(self, scope.rows_per_user))

    return type(f"Narrow{kind.__name__}", (kind,), {"moves": moves})


BROKEN: tuple[tuple[type[Query], Callable[[Any, int], Sensitivity], dict[str, Any], str], ...] = (
    (Count, lambda query, rows: Sensitivity(1), {}, "add-remove"),  # ignores the scope
    (  # ignores that a user may have no row
        Sum,
        lambda query, rows: Sensitivity(rows * (query.ends[1] - query.ends[0])),
        {"low": 1, "high": 2},
        "add-remove",
    ),
    # The sensitivity for add-remove, used for replaced rows.
    (Histogram, lambda query, rows: Sensitivity.l1(rows), {"keys": ("a", "b")}, "replace"),
    (  # the sensitivity of the sum alone, as if the count were public
        Mean,
        lambda query, rows: Sensitivity.l1(rows * query.centre[1]),
        {"low": 0, "high": 2},
        "add-remove",
    ),
)


@by_day(4)
@pytest.mark.parametrize(("kind", "moved", "given", "relation"), BROKEN)
@pytest.mark.parametrize("price", [{"epsilon": 1}, {"rho": "1/10"}], ids=["pure", "zcdp"])
def test_each_wrong_sensitivity_is_refuted(
    kind: Any, moved: Any, given: dict[str, Any], relation: str, price: dict[str, Any]
) -> None:
    scope = TableScope(user="user", rows_per_user=2, relation=Relation(relation))
    column = {} if kind is Count else {"column": "value"}
    for made, verdict in ((narrow(kind, moved), "refuted"), (kind, "proven")):
        query = made(**column, **given)
        target = target_of(query, scope, Target(**price), spelling="release:query")
        assert audit(target).verdict == verdict


@by_day(2)
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
    assert audit(target, runs=300, seed=1).verdict == "refuted"


def test_bad_datasets_are_named() -> None:
    with pytest.raises(InvalidParameter, match=r"dataset = 3: must be a list of rows"):
        audit("release:count,epsilon=1", pair=(3, 4))
    assert audit("release:count,epsilon=1", pair=([], [["ada"] * 2])).verdict == "proven"
    assert str(audit("release:count,epsilon=1").claim) == "epsilon=1"


# -- running sums ------------------------------------------------------------------------------


def redrawn(T: int, *, anew: bool) -> Catalogued:
    """A tree over T items, in arrays; if ``anew``, a node gets new noise each time it is used."""
    noise = DiscreteLaplace(scale=Fraction(T.bit_length(), 4))
    claimed = continual.target_of(
        TreeSum(horizon=T, noise=noise), Fraction(4), spelling="tree in arrays"
    )

    def run(dataset: list[int], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        drawn = SeededRng(int(rng.integers(1 << 62)))
        sums = np.tile(np.cumsum(dataset), (n, 1))
        for level in range(T.bit_length()):
            times = np.array([t for t in range(1, T + 1) if t >> level & 1])
            nodes = times if anew else times >> level
            places = np.unique(nodes, return_inverse=True)[1]
            sums[:, times - 1] += noise.sample((n, places.max() + 1), rng=drawn)[:, places]
        return sums

    return replace(claimed, function=run, subject=replace(claimed.subject, run=run))


def test_missing_and_redrawn_noise_are_refuted_and_noise_drawn_once_is_not() -> None:
    bare = BareLevelTree(horizon=8, noise=DiscreteLaplace(scale=4))
    alpha = Fraction(buy_alpha("audit of a tree in arrays", "1e-9"))
    for target, runs, level, verdict in (
        (continual.target_of(bare, Fraction(1), spelling="bare"), 100, "1e-3", "refuted"),
        (redrawn(255, anew=True), 2000, "1e-3", "refuted"),
        (redrawn(255, anew=False), 3000, alpha, "not_refuted"),
    ):
        found = audit(target, runs=runs, confidence=1 - Fraction(level), seed=3)
        assert found.verdict == verdict


def test_a_dataset_is_a_stream_of_items() -> None:
    target: Any = read_target("continual:tree,horizon=4,epsilon=1")
    for dataset in ([1, 0], 3, "1111", [1, 0, 2, 0]):
        with pytest.raises(InvalidParameter, match=r"dataset|item"):
            target.function(dataset, 1, np.random.default_rng(1))
