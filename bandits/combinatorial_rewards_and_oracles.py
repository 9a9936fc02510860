r"""A combinatorial problem: its super arms, their mean rewards, and an oracle that chooses one.

An oracle maps estimated means of the base arms to a super arm. It is applied to many independent
runs at once: ``values`` contains the estimated means, with a row for each run and a column for each
base arm. ``luck`` contains a public uniform number in [0, 1) for each run, which a randomised
oracle may use. With probability at least ``beta`` the reward of the chosen super arm is at least
``alpha`` times the best reward for these values (Chen et al. 2020, Definition 1).

The mean reward of a super arm is a function of the means of its base arms (their Assumption 1). If
the reward is nonlinear, base arms must be ``independent``. All rewards are monotone (Assumption 3)
and smooth (Assumption 2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, compress
from typing import ClassVar, Final

import numpy as np

from bandits.super_arms import Bools, Decisions, Listed, Unions, group_matrix
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.parameter import Exact, Of, check_fields

_MOST_EDGES: Final = 12


class Reward(ABC):
    r"""The mean reward r_mu(S) of a super arm S, as a function of the means mu of the base arms."""

    __slots__ = ()

    independent: ClassVar[bool] = True
    r"""Whether this function is the mean reward only for independent base arms."""

    @abstractmethod
    def of(self, means: Floats, chosen: Bools) -> Floats:
        r"""The mean reward r_mu(S) for corresponding rows mu of ``means`` and S of ``chosen``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Reward):
    """The reward ``scale`` * sum_(i in S) (mu_i + ``offset``) of super arm S.

    Here mu_i is the mean of base arm i. With ``offset`` -1 each term is the negative of a cost 1 -
    mu_i.
    """

    independent: ClassVar[bool] = False

    scale: Exact = Exact(1, zero="rewards must increase with the means")
    offset: Exact = Exact(0)

    def __post_init__(self) -> None:
        check_fields(self)

    def of(self, means: Floats, chosen: Bools) -> Floats:
        found: Floats = float(self.scale) * ((means + float(self.offset)) * chosen).sum(axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class AtLeastOne(Reward):
    """The probability that at least one base arm of the super arm has outcome 1.

    This is the mean reward only if the base arms are independent.
    """

    def of(self, means: Floats, chosen: Bools) -> Floats:
        found: Floats = 1 - np.prod(1 - means * chosen, axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class Coverage(Reward):
    r"""The expected number of covered targets, where base arm i covers ``targets[i]`` by outcome 1.

    A target that is covered by several base arms counts once. This is probabilistic maximum
    coverage (Chen et al. 2013).
    """

    targets: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.targets or any(type(each) is not int or each < 0 for each in self.targets):
            raise InvalidParameter(
                "targets", self.targets, "must contain an integer >= 0 for each base arm"
            )

    def of(self, means: Floats, chosen: Bools) -> Floats:
        missed = 1 - means * chosen
        found = np.zeros(missed.shape[:-1])
        for each in sorted({*self.targets}):
            held = [arm for arm, target in enumerate(self.targets) if target == each]
            found += 1 - np.prod(missed[..., held], axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class Influence(Reward):
    r"""The expected number of nodes reached from the seed nodes in the independent cascade model.

    Base arms are the directed ``edges`` (u, v); an edge is open if its outcome is 1, and open edges
    spread influence. Only nodes without incoming edges can be seeds. A super arm is the set of all
    edges that are reachable from its seeds (:meth:`super_arms`). The expectation is exact: it is a
    sum over all 2^m sets of open edges of a graph with m edges, at most 12.
    """

    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.edges) <= _MOST_EDGES or len({*self.edges}) < len(self.edges):
            raise InvalidParameter("edges", self.edges, "must contain 1 to 12 distinct edges")
        if not self.sources:
            raise InvalidParameter(
                "edges",
                self.edges,
                "must leave at least one node without incoming edges, as a source",
            )

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(sorted({u for u, _ in self.edges} - {v for _, v in self.edges}))

    def super_arms(self, seeds: int) -> Listed:
        r"""All super arms that have exactly ``seeds`` seed nodes."""
        sets = tuple(
            tuple(i for i, (u, _) in enumerate(self.edges) if u in nodes)
            for chosen in combinations(self.sources, seeds)
            if (nodes := _reached(chosen, self.edges))
        )
        return Listed(len(self.edges), sets)

    def of(self, means: Floats, chosen: Bools) -> Floats:
        keys, reached = _spread(self)
        # The probability of each set of edges (bit i is edge i), then the mean of each super arm.
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
    # Super arms as increasing bit masks, and the number of nodes reached for each set of edges.
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


class Oracle(ABC):
    r"""An oracle that chooses one of the super arms ``decisions``, given estimated means."""

    __slots__ = ()

    decisions: Decisions

    @property
    def alpha(self) -> float:
        r"""The fraction of the best reward that the oracle reaches with probability ``beta``."""
        return 1.0

    @property
    def beta(self) -> float:
        r"""The probability that the oracle reaches the fraction ``alpha`` of the best reward."""
        return 1.0

    @abstractmethod
    def fits(self, reward: Reward) -> bool:
        r"""Whether ``alpha`` and ``beta`` are proven for this reward function."""

    @abstractmethod
    def choose(self, values: Floats, luck: Floats) -> Bools:
        r"""Choose a super arm for each row of ``values``; ``luck`` has a uniform number per row."""


@dataclass(frozen=True, slots=True)
class LargestSum(Oracle):
    r"""The oracle that chooses the super arm with the largest sum of (value + ``offset``)."""

    decisions: Decisions
    offset: Exact = Exact(0)

    def __post_init__(self) -> None:
        check_fields(self)

    def fits(self, reward: Reward) -> bool:
        if isinstance(reward, AtLeastOne):
            sets = self.decisions
            return isinstance(sets, Unions) and all(len(group) == 1 for group in sets.groups)
        return isinstance(reward, Linear) and reward.offset == self.offset

    def choose(self, values: Floats, luck: Floats) -> Bools:
        del luck
        return self.decisions.best(values + float(self.offset) if self.offset else values)


@dataclass(frozen=True, slots=True)
class Exhaustive(Oracle):
    r"""An exact oracle for any reward: it compares all super arms, so they must be few."""

    decisions: Decisions
    reward: Reward

    def __post_init__(self) -> None:
        self.decisions.listed()

    def fits(self, reward: Reward) -> bool:
        return reward == self.reward

    def choose(self, values: Floats, luck: Floats) -> Bools:
        del luck
        every = self.decisions.listed()
        worth = self.reward.of(np.clip(values, 0, 1)[:, None, :], every[None])
        found: Bools = every[worth.argmax(axis=1)]
        return found


@dataclass(frozen=True, slots=True)
class GreedyCoverage(Oracle):
    r"""The greedy oracle for :class:`Coverage`, with alpha = 1 - 1/e.

    Super arms are unions of groups of base arms. The oracle repeatedly adds the group with the
    largest gain. The reward is submodular in the set of groups (Nemhauser, Wolsey and Fisher 1978).
    """

    decisions: Unions
    reward: Coverage

    def __post_init__(self) -> None:
        if len(self.reward.targets) != self.decisions.arms:
            reason = f"must contain one target for each of {self.decisions.arms} base arms"
            raise InvalidParameter("targets", self.reward.targets, reason)

    @property
    def alpha(self) -> float:
        return 1 - 1 / math.e

    def fits(self, reward: Reward) -> bool:
        return reward == self.reward

    def choose(self, values: Floats, luck: Floats) -> Bools:
        del luck
        targets, groups = np.array(self.reward.targets), self.decisions.groups
        count, rows = 1 + targets.max(), np.arange(len(values))
        # missed[r, g, j] is the probability that group g leaves target j uncovered.
        missed = np.ones((len(values), len(groups), count))
        for g, group in enumerate(groups):
            for arm in group:
                missed[:, g, targets[arm]] *= 1 - np.clip(values[:, arm], 0, 1)
        left = np.ones((len(values), count))
        chosen = np.zeros(values.shape, dtype=np.bool_)
        free = np.ones(missed.shape[:2], dtype=np.bool_)
        inside = group_matrix(groups).T > 0
        for _ in range(self.decisions.chosen):
            gain = (left[:, None, :] * (1 - missed)).sum(axis=2)
            best = np.where(free, gain, -1.0).argmax(axis=1)
            free[rows, best] = False
            left *= missed[rows, best]
            chosen |= inside[best]
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing(Oracle):
    """An oracle (``of``) modified to fail with probability 1 - ``chance``, so that beta < 1.

    If it fails, it chooses the super arm with the smallest sum of values.
    """

    of: Oracle
    chance: Exact = Exact(within="(0, 1)")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def decisions(self) -> Decisions:  # type: ignore[override]  # a field of other oracles
        return self.of.decisions

    @property
    def alpha(self) -> float:
        return self.of.alpha

    @property
    def beta(self) -> float:
        return float(self.chance) * self.of.beta

    def fits(self, reward: Reward) -> bool:
        return self.of.fits(reward)

    def choose(self, values: Floats, luck: Floats) -> Bools:
        share = float(self.chance)
        works = luck < share
        good = self.of.choose(values, np.where(works, luck / share, 0.0))
        return np.where(works[:, None], good, self.decisions.best(-values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    r"""A combinatorial problem: super arms, their mean reward, and the oracle that chooses one."""

    decisions: Of[Decisions] = Of(Decisions, "must be Decisions")
    reward: Of[Reward] = Of(Reward, "must be a Reward", Linear())
    oracle: Oracle = None  # type: ignore[assignment]  # __post_init__ sets LargestSum

    def __post_init__(self) -> None:
        check_fields(self)
        if self.oracle is None:
            offset = self.reward.offset if isinstance(self.reward, Linear) else Fraction(0)
            object.__setattr__(self, "oracle", LargestSum(self.decisions, offset))
        if not isinstance(self.oracle, Oracle) or self.oracle.decisions != self.decisions:
            raise InvalidParameter("oracle", self.oracle, "must be an Oracle for these decisions")
        if not self.oracle.fits(self.reward):
            reason = f"has no guarantee for the reward {self.reward!r}; use Exhaustive"
            raise InvalidParameter("oracle", self.oracle, reason)

    @property
    def arms(self) -> int:
        return self.decisions.arms

    @property
    def most(self) -> int:
        return self.decisions.most

    @property
    def share(self) -> float:
        r"""The product alpha beta; regret is relative to this fraction of the best reward."""
        return self.oracle.alpha * self.oracle.beta

    def choose(self, values: Floats, luck: Floats) -> Bools:
        chosen = self.oracle.choose(values, luck)
        if type(self.oracle) is LargestSum:  # always returns one of ``decisions``
            return chosen
        table = isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_
        if not table or chosen.shape != values.shape:
            reason = "must return a boolean for each base arm in each row"
            raise InvalidParameter("oracle", type(self.oracle).__name__, reason)
        allowed = self.decisions.contains(chosen)
        if not allowed.all():
            wrong = np.flatnonzero(chosen[int(np.argmin(allowed))]).tolist()
            reason = f"returned the base arms {wrong}, which are not a super arm"
            raise InvalidParameter("oracle", type(self.oracle).__name__, reason)
        return chosen

    def best(self, means: Floats) -> float:
        r"""The largest mean reward of a super arm, for these ``means`` of the base arms."""
        if isinstance(self.reward, Linear):
            chosen = self.decisions.best((means + float(self.reward.offset))[None, :])
        else:
            chosen = self.decisions.listed()
        return float(self.reward.of(means, chosen).max())
