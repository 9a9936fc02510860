r"""The mean reward of a super arm, as a function of the means of its base arms.

Assumption 1 of Chen et al. (2020): it depends on nothing else. A reward that is not linear does so
only where base arms are independent (``independent``). All are monotone (Assumption 3), and smooth
(Assumption 2): |r(mu) - r(nu)| <= b1 sum |mu_i - nu_i| and <= b_infinity max |mu_i - nu_i| over the
base arms of a super arm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, compress
from typing import ClassVar, Final

import numpy as np

from bandits.combinatorial.decisions import Bools, Listed
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.floating import Floats
from dpcore.numbers.parameter import Exact, make_positive, rational

__all__ = ["AtLeastOne", "Coverage", "Influence", "Linear", "Reward"]

_MOST_EDGES: Final = 12


class Reward(ABC):
    r"""r_mu(S) for tables of means and super arms, and its constants B1 and B_infinity."""

    __slots__ = ()

    independent: ClassVar[bool] = True
    r"""Whether base arms must be independent for the mean reward to be this function."""

    @abstractmethod
    def of(self, means: Floats, chosen: Bools) -> Floats:
        r"""r_mu(S), row by row; ``means`` and ``chosen`` have a column for each base arm."""

    @property
    def b1(self) -> float:
        r"""B1."""
        return 1.0

    def b_infinity(self, most: int) -> float:
        r"""B_infinity for super arms of at most ``most`` base arms: K B1 (their Fact 1)."""
        return most * self.b1


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Reward):
    r"""scale sum_(i in S) (mu_i + offset); ``offset=-1`` gives minus the cost where mu = 1 - cost.

    >>> Linear().of(np.array([0.5, 0.25]), np.array([[True, True], [False, True]]))
    array([0.75, 0.25])

    Raises :class:`InvalidParameter` for a scale not > 0: rewards are monotone.
    """

    independent: ClassVar[bool] = False

    scale: Exact = Exact(1)
    offset: Exact = Exact(0)

    def __post_init__(self) -> None:
        make_positive(self, scale="it is B1")
        object.__setattr__(self, "offset", rational("offset", self.offset))

    def of(self, means: Floats, chosen: Bools) -> Floats:
        found: Floats = float(self.scale) * ((means + float(self.offset)) * chosen).sum(axis=-1)
        return found

    @property
    def b1(self) -> float:
        return float(self.scale)


@dataclass(frozen=True, slots=True)
class AtLeastOne(Reward):
    r"""The chance that some base arm of S is 1: the mean of the maximum of independent bits.

    >>> AtLeastOne().of(np.array([0.5, 0.5]), np.array([[True, True]]))
    array([0.75])
    """

    def of(self, means: Floats, chosen: Bools) -> Floats:
        found: Floats = 1 - np.prod(1 - means * chosen, axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class Coverage(Reward):
    r"""The expected number of targets covered: base arm i covers target ``targets[i]`` by chance.

    A target counts once. Chen et al. (2013), probabilistic maximum coverage.

    >>> Coverage((0, 0, 1)).of(np.array([0.5, 0.5, 0.5]), np.array([[True, True, True]]))
    array([1.25])

    Raises :class:`InvalidParameter` for targets that are no numbers 0, 1, ....
    """

    targets: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.targets or any(type(each) is not int or each < 0 for each in self.targets):
            raise InvalidParameter("targets", self.targets, "must be a number 0, 1, ... for each")

    def of(self, means: Floats, chosen: Bools) -> Floats:
        missed = 1 - means * chosen
        found = np.zeros(missed.shape[:-1])
        for each in sorted({*self.targets}):
            held = [arm for arm, target in enumerate(self.targets) if target == each]
            found += 1 - np.prod(missed[..., held], axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class Influence(Reward):
    r"""The expected number of nodes that seeds reach by ``edges`` (u, v) that are there by chance.

    Seeds are sources, nodes that no edge enters: a super arm is every edge that can be reached from
    its seeds (:meth:`super_arms`), so it names them. Independent cascade; exact, over all 2^m sets
    of edges: a small graph.

    >>> spread = Influence(((0, 2), (1, 2), (2, 3)))
    >>> spread.super_arms(1)
    Listed(count=3, sets=((0, 2), (1, 2)))
    >>> spread.of(np.array([0.5, 0.9, 0.5]), np.array([[True, False, True]]))
    array([1.75])

    Raises :class:`InvalidParameter` for more than 12 edges, an edge that is there twice and a graph
    without sources.
    """

    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.edges) <= _MOST_EDGES or len({*self.edges}) < len(self.edges):
            raise InvalidParameter("edges", self.edges, "must be 1 to 12 edges, none twice")
        if not self.sources:
            raise InvalidParameter("edges", self.edges, "must leave a node that no edge enters")

    @property
    def sources(self) -> tuple[int, ...]:
        r"""The nodes that no edge enters, in rising order."""
        return tuple(sorted({u for u, _ in self.edges} - {v for _, v in self.edges}))

    @property
    def b1(self) -> float:
        r"""An edge adds at most the nodes that are no sources."""
        return float(len({v for _, v in self.edges}))

    def super_arms(self, seeds: int) -> Listed:
        r"""What may be played with so many seeds: the edges that they can reach."""
        sets = tuple(
            tuple(i for i, (u, _) in enumerate(self.edges) if u in nodes)
            for chosen in combinations(self.sources, seeds)
            if (nodes := _reached(chosen, self.edges))
        )
        return Listed(len(self.edges), sets)

    def of(self, means: Floats, chosen: Bools) -> Floats:
        keys, reached = _spread(self)
        # The chance of each set of edges, bit i for edge i; then the mean of each super arm.
        chances = np.ones((*means.shape[:-1], 1))
        for edge in range(len(self.edges)):
            there = means[..., edge, None]
            chances = np.concatenate([chances * (1 - there), chances * there], axis=-1)
        worth = chances @ reached.T
        place = np.searchsorted(keys, chosen @ (1 << np.arange(len(self.edges))))
        shape = np.broadcast_shapes(place.shape, worth.shape[:-1])
        worth, place = np.broadcast_to(worth, (*shape, len(keys))), np.broadcast_to(place, shape)
        found: Floats = np.take_along_axis(worth, place[..., None], axis=-1)[..., 0]
        return found


def _reached(seeds: tuple[int, ...], edges: tuple[tuple[int, int], ...]) -> set[int]:
    nodes: set[int] = set()
    more = {*seeds}
    while more - nodes:
        nodes |= more
        more = {v for u, v in edges if u in nodes}
    return nodes


@lru_cache(maxsize=8)
def _spread(reward: Influence) -> tuple[Integers, Floats]:
    # Super arms as bits, in rising order, and how many nodes each reaches by any edges.
    edges, m = reward.edges, len(reward.edges)
    live = (np.arange(1 << m)[:, None] >> np.arange(m)) & 1 == 1
    found = {}
    for size in range(1, len(reward.sources) + 1):
        for seeds in combinations(reward.sources, size):
            nodes = _reached(seeds, edges)
            key = sum(1 << i for i, (u, _) in enumerate(edges) if u in nodes)
            found[key] = [len(_reached(seeds, (*compress(edges, row),))) for row in live]
    keys = sorted(found)
    return np.array(keys), np.array([found[key] for key in keys], dtype=np.float64)
