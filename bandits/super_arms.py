r"""Sets of playable super arms, and the super arm with the largest sum of its base arms' values.

Several independent runs advance together (``bandits.play_combinatorial``). ``values`` therefore
contains a row for each run and a column for each base arm. The chosen super arms are a boolean
array of the same shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.parameter import integer

Bools: TypeAlias = npt.NDArray[np.bool_]
"""Super arms, one per row: True for each base arm of the super arm."""

_MOST_ARMS: Final = 62
_MOST_LISTED: Final = 1 << 16
_ONE_TREE: Final = 0.5


class Decisions(ABC):
    r"""The playable super arms: sets of at most K = ``most`` of the m = ``arms`` base arms."""

    __slots__ = ()

    @property
    @abstractmethod
    def arms(self) -> int:
        r"""The number of base arms m."""

    @property
    @abstractmethod
    def most(self) -> int:
        r"""The largest number K of base arms in a super arm."""

    @abstractmethod
    def best(self, values: Floats) -> Bools:
        r"""For each row of ``values``, a super arm with exactly the largest sum of values."""

    @abstractmethod
    def contains(self, chosen: Bools) -> Bools:
        r"""Whether each row of ``chosen`` is a playable super arm."""

    @abstractmethod
    def listed(self) -> Bools:
        r"""All playable super arms, one per row."""


@dataclass(frozen=True, slots=True)
class Unions(Decisions):
    """The unions of any ``chosen`` of the ``groups``, which partition the base arms."""

    groups: tuple[tuple[int, ...], ...]
    chosen: int

    def __post_init__(self) -> None:
        held = sorted(chain.from_iterable(self.groups))
        if not held or held != [*range(len(held))] or not all(self.groups):
            raise InvalidParameter(
                "groups",
                self.groups,
                "must be non-empty groups that contain each base arm exactly once",
            )
        _check_arms(len(held))
        integer("chosen", self.chosen, at_least=1, at_most=len(self.groups), limit="groups")

    @classmethod
    def subsets(cls, arms: int, size: int) -> Unions:
        r"""Create the super arms that are the subsets of ``size`` of the ``arms`` base arms."""
        m = _check_arms(arms)
        k = integer("super_arm", size, at_least=1, at_most=m, limit="arms")
        return cls(tuple((arm,) for arm in range(m)), k)

    @property
    def arms(self) -> int:
        return sum(map(len, self.groups))

    @property
    def most(self) -> int:
        return sum(sorted(map(len, self.groups))[-self.chosen :])

    def best(self, values: Floats) -> Bools:
        groups = self.groups
        single = len(groups) == values.shape[1]  # groups of one base arm need no sums
        # Summed one by one, because the order of sums in a matrix product is not fixed.
        sums = values if single else np.stack([_sum(values, each) for each in groups], axis=1)
        first = len(groups) - self.chosen
        picked: Bools = sums >= np.partition(sums, first, axis=1)[:, first, None]
        if np.count_nonzero(picked) != len(sums) * self.chosen:  # ties go to the first
            top = np.argsort(-sums, axis=1, kind="stable")[:, : self.chosen]
            picked = np.zeros(sums.shape, dtype=np.bool_)
            picked[np.arange(len(values))[:, None], top] = True
        return picked if single else picked @ group_matrix(groups).T > 0

    def contains(self, chosen: Bools) -> Bools:
        if len(self.groups) == chosen.shape[1]:
            few: Bools = chosen.sum(axis=1) == self.chosen
            return few
        inside = group_matrix(self.groups)
        held = chosen @ inside
        whole = held == inside.sum(axis=0)
        found: Bools = ((held == 0) | whole).all(axis=1) & (whole.sum(axis=1) == self.chosen)
        return found

    def listed(self) -> Bools:
        return _rows(
            self.arms,
            (chain.from_iterable(each) for each in combinations(self.groups, self.chosen)),
        )


@dataclass(frozen=True, slots=True)
class Listed(Decisions):
    r"""A list ``sets`` of super arms, each a tuple of some of the ``count`` base arms."""

    count: int
    sets: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        m = _check_arms(self.count)
        distinct = {frozenset(each) for each in self.sets}
        if not self.sets or len(distinct) < len(self.sets):
            raise InvalidParameter(
                "sets", self.sets, "must contain at least one super arm and no duplicates"
            )
        for each in self.sets:
            inside = all(type(arm) is int and 0 <= arm < m for arm in each)
            if not each or not inside or len(set(each)) < len(each):
                reason = f"each super arm must be a non-empty tuple of distinct base arms below {m}"
                raise InvalidParameter("sets", each, reason)

    @property
    def arms(self) -> int:
        return self.count

    @property
    def most(self) -> int:
        return max(map(len, self.sets))

    def best(self, values: Floats) -> Bools:
        every = self.listed()
        found: Bools = every[(values @ every.T).argmax(axis=1)]
        return found

    def contains(self, chosen: Bools) -> Bools:
        return np.isin(_keys(chosen), _keys(self.listed()))

    def listed(self) -> Bools:
        return _listed(self.count, self.sets)


@dataclass(frozen=True, slots=True)
class _Graph(Decisions):
    # The base arms are ``edges`` (u, v) between nodes 0, 1, ...
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.edges or len(set(self.edges)) < len(self.edges):
            raise InvalidParameter(
                "edges", self.edges, "must contain at least one edge and no duplicates"
            )
        _check_arms(len(self.edges))
        if any(type(end) is not int or end < 0 for edge in self.edges for end in edge):
            raise InvalidParameter("edges", self.edges, "must be pairs of nodes 0, 1, ...")

    @property
    def arms(self) -> int:
        return len(self.edges)

    @property
    def nodes(self) -> int:
        return 1 + max(v for _, v in self.edges)


@dataclass(frozen=True, slots=True)
class Paths(_Graph):
    r"""The paths from node 0 to the last node, over ``edges`` (u, v) with u < v as base arms."""

    def __post_init__(self) -> None:
        _Graph.__post_init__(self)
        last = max((v for _, v in self.edges))
        ahead, behind = {0}, {last}
        for u, v in sorted(self.edges):
            if u in ahead:
                ahead.add(v)
        for u, v in sorted(self.edges, reverse=True):
            if v in behind:
                behind.add(u)
        for u, v in self.edges:
            if u >= v or u not in ahead or v not in behind:
                reason = f"an edge (u, v) must have u < v and lie on a path from node 0 to {last}"
                raise InvalidParameter("edges", (u, v), reason)

    @property
    def most(self) -> int:
        return int(self.best(np.ones((1, self.arms))).sum())

    def best(self, values: Floats) -> Bools:
        rows = len(values)
        far = np.full((rows, self.nodes), -np.inf)
        far[:, 0] = 0
        by = np.zeros((rows, self.nodes), dtype=np.int64)
        for edge, (u, v) in sorted(enumerate(self.edges), key=lambda item: item[1]):
            through = far[:, u] + values[:, edge]
            better = through > far[:, v]
            far[better, v] = through[better]
            by[better, v] = edge
        tails = np.array([u for u, _ in self.edges])
        chosen = np.zeros((rows, self.arms), dtype=np.bool_)
        at, going = np.full(rows, self.nodes - 1), np.arange(rows)
        while len(going):
            edge = by[going, at[going]]
            chosen[going, edge] = True
            at[going] = tails[edge]
            going = going[at[going] > 0]
        return chosen

    def contains(self, chosen: Bools) -> Bools:
        # The net flow out of each node: without cycles, one unit of flow is a single path.
        flow = np.zeros((self.arms, self.nodes))
        for edge, (u, v) in enumerate(self.edges):
            flow[edge, u], flow[edge, v] = 1, -1
        wanted = np.zeros(self.nodes)
        wanted[0], wanted[-1] = 1, -1
        found: Bools = (chosen @ flow == wanted).all(axis=1)
        return found

    def listed(self) -> Bools:
        return _rows(self.arms, self._from(0))

    def _from(self, node: int) -> Iterable[tuple[int, ...]]:
        if node == self.nodes - 1:
            yield ()
        for edge, (u, v) in enumerate(self.edges):
            if u == node:
                yield from ((edge, *rest) for rest in self._from(v))


@dataclass(frozen=True, slots=True)
class SpanningTrees(_Graph):
    r"""The spanning trees of a graph whose ``edges`` (u, v) with u < v are the base arms."""

    def __post_init__(self) -> None:
        _Graph.__post_init__(self)
        if any(u >= v for u, v in self.edges):
            raise InvalidParameter("edges", self.edges, "each edge (u, v) must have u < v")
        if self.best(np.ones((1, self.arms))).sum() < self.nodes - 1:
            raise InvalidParameter("edges", self.edges, "must connect all nodes")

    @property
    def most(self) -> int:
        return self.nodes - 1

    def best(self, values: Floats) -> Bools:
        # Kruskal's algorithm for all rows at once: ``part`` is the tree that contains a node.
        rows = np.arange(len(values))
        part = np.tile(np.arange(self.nodes), (len(values), 1))
        chosen = np.zeros(values.shape, dtype=np.bool_)
        ends = np.array(self.edges)
        for edge in np.argsort(-values, axis=1).T:
            one, other = part[rows, ends[edge, 0]], part[rows, ends[edge, 1]]
            chosen[rows, edge] = one != other
            part = np.where(part == other[:, None], one[:, None], part)
        return chosen

    def contains(self, chosen: Bools) -> Bools:
        # By Kirchhoff's theorem the determinant counts the spanning trees of the chosen edges.
        n = self.nodes
        laplacian = np.zeros((len(chosen), n, n))
        for edge, (u, v) in enumerate(self.edges):
            there = chosen[:, edge]
            for a, b, sign in ((u, u, 1), (v, v, 1), (u, v, -1), (v, u, -1)):
                laplacian[:, a, b] += sign * there
        trees = np.linalg.det(laplacian[:, 1:, 1:])
        found: Bools = (chosen.sum(axis=1) == n - 1) & (trees > _ONE_TREE)
        return found

    def listed(self) -> Bools:
        every = _rows(self.arms, combinations(range(self.arms), self.nodes - 1))
        found: Bools = every[self.contains(every)]
        return found


def _check_arms(arms: int) -> int:
    return integer("arms", arms, at_least=1, at_most=_MOST_ARMS)


def _rows(arms: int, sets: Iterable[Iterable[int]]) -> Bools:
    found: list[Bools] = []
    for each in sets:
        if len(found) == _MOST_LISTED:
            raise InvalidParameter("decisions", "more than 2^16 sets", "at most 2^16 can be listed")
        row = np.zeros(arms, dtype=np.bool_)
        row[[*each]] = True
        found.append(row)
    return np.array(found)


def _keys(chosen: Bools) -> Integers:
    found: Integers = chosen @ (1 << np.arange(chosen.shape[1], dtype=np.int64))
    return found


def _sum(values: Floats, arms: Iterable[int]) -> Floats:
    found = np.zeros(len(values))
    for arm in arms:
        found += values[:, arm]
    return found


@lru_cache(maxsize=1 << 8)
def _listed(count: int, sets: tuple[tuple[int, ...], ...]) -> Bools:
    return _rows(count, sets)


@lru_cache(maxsize=1 << 8)
def group_matrix(groups: tuple[tuple[int, ...], ...]) -> Floats:
    r"""Whether each base arm (row) is in each of the ``groups`` (columns), as 0 or 1."""
    found = np.zeros((sum(map(len, groups)), len(groups)))
    for at, group in enumerate(groups):
        found[list(group), at] = 1
    return found
