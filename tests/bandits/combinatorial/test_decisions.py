"""Super arms: what may be played by brute force over all sets, and the best of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra
from scipy.sparse.csgraph import minimum_spanning_tree as lightest

from bandits.combinatorial.decisions import Decisions, Listed, Paths, SpanningTrees, Unions
from dpcore.errors import InvalidParameter

COMPLETE = tuple(itertools.combinations(range(5), 2))
ROADS = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4))
EVERY: list[Decisions] = [
    Unions.subsets(7, 3),
    Unions.subsets(4, 4),
    Unions.subsets(1, 1),
    Unions(((0, 1), (2,), (3, 4, 5)), 2),
    Listed(4, ((0, 1), (2, 3), (1, 3, 0))),
    Paths(ROADS),
    SpanningTrees(COMPLETE),
]


def matrix(nodes: int, edges: list[tuple[int, int]], weights: object = None) -> csr_array:
    """A graph as scipy takes it."""
    found = np.zeros((nodes, nodes))
    for (u, v), weight in zip(edges, weights or [1.0] * len(edges), strict=True):  # type: ignore[call-overload]  # weights, if any
        found[u, v] = weight
    return csr_array(found)


def allowed(sets: Decisions, chosen: tuple[int, ...]) -> bool:
    """Whether a set of base arms is a super arm, from what the words mean."""
    match sets:
        case Unions(groups=groups, chosen=count):
            whole = [group for group in groups if {*group} <= {*chosen}]
            return len(whole) == count and sum(map(len, whole)) == len(chosen)
        case Listed(sets=given):
            return {*chosen} in map(set, given)
        case Paths(edges=edges):
            graph = matrix(sets.nodes, [edges[each] for each in chosen])
            reached, before = breadth_first_order(graph, 0)
            walk = [sets.nodes - 1]
            while walk[-1] > 0:
                walk.append(int(before[walk[-1]]))
            return {*walk} == {*reached.tolist()} and len(walk) == len(chosen) + 1
        case SpanningTrees(edges=edges):
            parts, _ = connected_components(matrix(sets.nodes, [edges[each] for each in chosen]))
            return parts == 1 and len(chosen) == sets.nodes - 1
    raise AssertionError(sets)


def row(arms: int, chosen: tuple[int, ...]) -> np.ndarray:
    return np.isin(np.arange(arms), chosen)


@pytest.mark.parametrize("sets", EVERY, ids=repr)
def test_super_arms_are_those_that_the_words_mean(sets: Decisions) -> None:
    every = [
        chosen
        for size in range(sets.arms + 1)
        for chosen in itertools.combinations(range(sets.arms), size)
    ]
    table = np.array([row(sets.arms, chosen) for chosen in every])
    wanted = [bool(chosen) and allowed(sets, chosen) for chosen in every]
    assert sets.contains(table).tolist() == wanted
    listed = {tuple(np.flatnonzero(each).tolist()) for each in sets.listed()}
    assert listed == {chosen for chosen, there in zip(every, wanted, strict=True) if there}
    assert sets.most == max(map(len, listed))


@pytest.mark.parametrize("sets", EVERY, ids=repr)
def test_the_best_super_arm_is_the_best_of_all(sets: Decisions) -> None:
    values = np.random.default_rng(1).standard_normal((200, sets.arms))
    best = sets.best(values)
    assert sets.contains(best).all()
    worth = (values * best).sum(axis=1)
    assert worth == pytest.approx((values @ sets.listed().T).max(axis=1))
    # A check that could not fail would pass the smallest as well.
    if len(sets.listed()) > 1:
        assert (worth > (values * sets.best(-values)).sum(axis=1)).all()


def test_the_cheapest_path_and_the_heaviest_tree_are_those_of_scipy() -> None:
    world = np.random.default_rng(2)
    for _ in range(20):
        weights = world.random(len(COMPLETE))
        tree = -lightest(matrix(5, [*COMPLETE], (-weights).tolist())).sum()
        found = SpanningTrees(COMPLETE).best(weights[None, :])[0]
        assert weights[found].sum() == pytest.approx(tree)
        costs = world.random(len(ROADS))
        cheapest = dijkstra(matrix(5, [*ROADS], costs.tolist()), indices=0)[4]
        # Rewards are 1 - cost, less 1: minus the cost.
        path = Paths(ROADS).best((1 - costs)[None, :] - 1)[0]
        assert costs[path].sum() == pytest.approx(cheapest)


def test_what_is_no_set_of_super_arms_is_refused_by_name() -> None:
    for make, argument in (
        (lambda: Unions((), 1), "groups"),
        (lambda: Unions(((0, 1), (1,)), 1), "groups"),
        (lambda: Unions(((0,), ()), 1), "groups"),
        (lambda: Unions(((0,), (1,)), 3), "chosen"),
        (lambda: Unions(((0,), (1,)), 0), "chosen"),
        (lambda: Unions.subsets(0, 1), "arms"),
        (lambda: Unions.subsets(63, 1), "arms"),
        (lambda: Unions.subsets(3, 4), "super_arm"),
        (lambda: Unions.subsets(3, 0), "super_arm"),
        (lambda: Listed(3, ()), "sets"),
        (lambda: Listed(3, ((0, 1), (1, 0))), "sets"),
        (lambda: Listed(3, ((0, 3),)), "sets"),
        (lambda: Listed(3, ((0, 0),)), "sets"),
        (lambda: Listed(3, ((),)), "sets"),
        (lambda: Paths(()), "edges"),
        (lambda: Paths(((0, 1), (0, 1))), "edges"),
        (lambda: Paths(((1, 0),)), "edges"),
        (lambda: Paths(((0, 1), (0, 2), (1, 3))), "edges"),
        (lambda: Paths(((0, 2), (1, 2))), "edges"),
        (lambda: Paths(((0, -1),)), "edges"),
        (lambda: SpanningTrees(((1, 0),)), "edges"),
        (lambda: SpanningTrees(((0, 1), (2, 3))), "edges"),
        (lambda: Unions.subsets(40, 20).listed(), "decisions"),
    ):
        with pytest.raises(InvalidParameter) as caught:
            make()
        assert caught.value.argument == argument
