r"""Tests of neighbourhoods: bounds against enumeration and against randomly drawn graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from dpcore.sampling.rng import SeededRng, permutation
from dpcore.secure_aggregation import round_parameters as sizing
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation
from dpcore.secure_aggregation.round_parameters import (
    MOST_EXPOSURE,
    Neighbourhood,
    neighbourhood_risk,
    neighbours_of,
    size_neighbourhood,
)
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused
from tests.support.dpcore.scripted_rng import NeverAsked

Graph = dict[int, set[int]]


def circle(n: int, k: int) -> Graph:
    r"""Return the neighbours when 0 .. n-1 are in order, by the definition: at most k/2 apart."""
    return {
        u: {v for v in range(n) if v != u and min((u - v) % n, (v - u) % n) <= k // 2}
        for u in range(n)
    }


def corrupted(graph: Graph, corrupt: set[int], t: int) -> int:
    return sum(len(near & corrupt) >= t for u, near in graph.items() if u not in corrupt)


def groups(graph: Graph, left: set[int]) -> int:
    r"""Return the number of connected components of the remaining users."""
    found, waiting = 0, set(left)
    while waiting:
        found += 1
        reached = [waiting.pop()]
        while reached:
            more = graph[reached.pop()] & waiting
            waiting -= more
            reached += more
    return found


def stranded(graph: Graph, gone: set[int], t: int) -> int:
    return sum(len(near - gone) + (u not in gone) < t for u, near in graph.items())


def subsets(n: int, size: int) -> Iterable[set[int]]:
    return (set(chosen) for chosen in combinations(range(n), size))


SMALL = [(n, k) for n in (6, 7, 8) for k in (2, 4, 6) if k <= n - 2]


@pytest.mark.parametrize(("n", "k"), SMALL)
def test_failure_bounds_agree_with_enumeration(n: int, k: int) -> None:
    # In a circle of random order every set of users of one size has the same probability: the union
    # bound is the mean number of affected users, or pairs, over all sets of one size.
    graph = circle(n, k)
    for t in range(k // 2 + 1, k + 2):
        hood = Neighbourhood(neighbours=k, threshold=t)
        for size in range(n):
            risk = neighbourhood_risk(users=n, dropouts=size, colluding=size, neighbourhood=hood)
            ways = comb(n, size)
            found = [corrupted(graph, c, t) for c in subsets(n, size)]
            # The bound also holds if fewer users collude, so it counts n honest ones.
            assert risk.corrupted == min(1, Fraction(sum(found), ways) * Fraction(n, n - size))
            assert Fraction(sum(x > 0 for x in found), ways) <= risk.corrupted
            missing = [stranded(graph, d, t) for d in subsets(n, size)]
            assert risk.stranded == min(1, Fraction(sum(missing), ways))
            assert Fraction(sum(x > 0 for x in missing), ways) <= risk.stranded


def apart(n: int, k: int, removed: int) -> Fraction:
    graph = circle(n, k)
    torn = sum(groups(graph, set(range(n)) - r) > 1 for r in subsets(n, removed))
    return Fraction(torn, comb(n, removed))


def pairs_of_gaps(n: int, k: int, removed: int) -> Fraction:
    total = 0
    for r in subsets(n, removed):
        left = set(range(n)) - r
        after = [u for u in left if all((u + i) % n in r for i in range(1, k // 2 + 1))]
        total += comb(len(after), 2)
    return Fraction(total, comb(n, removed))


@pytest.mark.parametrize(("n", "k"), [(6, 2), (7, 4), (9, 2), (9, 4), (12, 4)])
def test_the_probability_of_a_disconnected_graph_agrees_with_enumeration(n: int, k: int) -> None:
    truth = [apart(n, k, removed) for removed in range(n)]
    assert any(truth)
    for removed in range(n):
        bound = sizing._disconnected(n, removed, k)
        if bound < 1:
            assert bound == pairs_of_gaps(n, k, removed)
        # For at most that many: the bound does not decrease.
        assert max(truth[: removed + 1]) <= bound
    late = mutated(sizing._disconnected, "removed > (left + 1) * (count // 2)", "False")
    assert late(9, 8, 2) < max(apart(9, 2, removed) for removed in range(9))
    hopeful = mutated(sizing._disconnected, "math.comb(left, 2)", "left")
    assert hopeful(9, 2, 2) < apart(9, 2, 2)


@pytest.mark.parametrize(("n", "marked", "k"), [(1000, 100, 44), (65535, 20, 8)])
def test_tails_agree_with_scipy(n: int, marked: int, k: int) -> None:
    tail = sizing._Tail(n - 1, marked, k)
    for j in range(k + 2):
        ours, theirs = float(tail.at_least(j)), hypergeom(n - 1, marked, k).sf(j - 1)
        assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-290)
    assert tail.at_least(0) == 1
    assert tail.at_least(k + 1) == 0


def test_the_graph_is_a_circle_in_the_order_of_a_uniform_permutation() -> None:
    names = [f"u{i}" for i in range(9)]
    for k in (2, 4, 6):
        near = neighbours_of(names, Neighbourhood(neighbours=k, threshold=k), SeededRng(k))
        # Every order has the same probability: tests/dpcore/protocols/test_shuffled_bits.py.
        order = permutation(9, SeededRng(k)).tolist()
        assert order != sorted(order)
        expected = {
            names[order[u]]: tuple(sorted(names[order[v]] for v in (u, *others)))
            for u, others in circle(9, k).items()
        }
        assert near == expected
    assert neighbours_of(names, None, NeverAsked()) == dict.fromkeys(names, tuple(names))


HOOD = Neighbourhood(neighbours=6, threshold=4)


def serves(n: int, d: int, c: int, k: int, t: int) -> bool:
    r"""By scipy alone; values within one part in a million below the bounds count as above."""
    left, ranks = n - d - c, np.arange(k)
    log_pairs = np.log(left * (left - 1) / 2) if left > 1 else -np.inf
    torn = np.exp(log_pairs + np.log(np.maximum(d + c - ranks, 0) / (n - 1 - ranks)).sum())
    corrupt = n * hypergeom(n - 1, c, k).sf(t - 1)
    lost = (n - d) * hypergeom(n - 1, d, k).sf(k - t + 1)
    lost += d * hypergeom(n - 1, d - 1, k).sf(k - t) if d else 0
    below = 1 - 1e-6
    return bool(corrupt + torn <= MOST_EXPOSURE * below and lost <= 1e-6 * below)


@by_day(2)
@pytest.mark.parametrize(
    ("n", "d", "c"), [(60, 0, 9), (1000, 100, 100), (300, 30, 30), (100, 10, 10)]
)
def test_the_least_neighbourhood_agrees_with_a_plain_search(n: int, d: int, c: int) -> None:
    every = ((k, t) for k in range(2, n - 1, 2) for t in range(k // 2 + 1, k + 2))
    found = size_neighbourhood(users=n, dropouts=d, colluding=c)
    assert found is not None
    with np.errstate(divide="ignore"):
        least = next(pair for pair in every if serves(n, d, c, *pair))
    assert (found.neighbours, found.threshold) == least
    risk = neighbourhood_risk(users=n, dropouts=d, colluding=c, neighbourhood=found)
    assert risk.exposure <= MOST_EXPOSURE
    assert risk.stranded <= Fraction(1, 10**6)


def test_no_neighbourhood_is_returned_if_none_suffices() -> None:
    assert size_neighbourhood(users=11, dropouts=5, colluding=4) is None
    assert size_neighbourhood(users=3, dropouts=1, colluding=0) is None
    # No user colludes or drops out: a ring, where all three shares may be requested.
    ring = size_neighbourhood(users=10, dropouts=0, colluding=0)
    assert ring == Neighbourhood(neighbours=2, threshold=2)


def test_an_aggregation_states_its_failure_probability() -> None:
    hood = Neighbourhood(neighbours=44, threshold=26)
    parts = MaskedAggregation(
        users=1000, dropouts=100, coordinates=1, modulus=2, neighbourhood=hood
    )
    risk = neighbourhood_risk(users=1000, dropouts=100, colluding=100, neighbourhood=hood)
    assert 0 < parts.exposure(100) == risk.corrupted + risk.disconnected < MOST_EXPOSURE
    assert parts.exposure(400) == 1
    assert parts.threshold == 26


SEVEN: dict[str, Any] = {"users": 7, "dropouts": 0, "coordinates": 1, "modulus": 2}
NINE: dict[str, Any] = {"users": 9, "dropouts": 0, "colluding": 0}


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("neighbours", partial(Neighbourhood, neighbours=3, threshold=3)),
        ("neighbours", partial(Neighbourhood, neighbours=1026, threshold=600)),
        ("threshold", partial(Neighbourhood, neighbours=4, threshold=2)),
        ("dropouts", partial(size_neighbourhood, **{**NINE, "dropouts": 9})),
        ("colluding", partial(size_neighbourhood, **{**NINE, "colluding": -1})),
        ("exposure", partial(size_neighbourhood, **NINE, exposure=0)),
        ("failure", partial(size_neighbourhood, **NINE, failure=1)),
        ("neighbours", partial(neighbourhood_risk, **{**NINE, "users": 5}, neighbourhood=HOOD)),
        ("neighbourhood", partial(MaskedAggregation, **SEVEN, neighbourhood=HOOD)),
        ("neighbourhood", partial(MaskedAggregation, **{**SEVEN, "neighbourhood": 4})),
    ],
)
def test_an_invalid_neighbourhood_is_refused(argument: str, call: Callable[[], object]) -> None:
    with refused(argument):
        call()
