r"""Simulated worlds of combinatorial semi-bandits, whose base arms have outcomes 0 or 1.

The worlds are top-K, coverage of targets, paths through a grid, spanning trees, influence in a
small graph, and the hard instances of Chen et al. (2020), with their lower bounds on the regret. A
hard instance has m base arms, and K base arms in each super arm. All means are 1/2 or 1/2 minus a
gap. Theorem 5 is for a multi-armed bandit: every super arm is one base arm. Theorem 6 is for m/K
disjoint paths; the base arms of a path have equal outcomes. In Theorem 9 the best super arm has K
base arms of its own; all other super arms share K - 1 public base arms, and each contains one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from bandits.combinatorial_rewards_and_oracles import (
    Coverage,
    Exhaustive,
    GreedyCoverage,
    Influence,
    Linear,
    Problem,
)
from bandits.super_arms import Bools, Listed, Paths, SpanningTrees, Unions
from bandits.worlds.arm_environments import Environment
from bandits.worlds.preset import Preset
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, positive_rational

_HIGH, _LOW = 0.7, 0.3
_EDGES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BitWorld(Environment):
    r"""A world in which base arm i has outcome 1 with probability ``chances[i]`` in each round.

    Rounds are independent. ``together`` contains the number of the group of each base arm, or is
    None if all base arms are independent. The base arms of a group share a uniform number U in each
    round, and base arm i has outcome 1 if U < chances[i]. This is the strongest dependence of bits
    with these means.
    """

    of: Problem
    chances: tuple[float, ...]
    together: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        m = self.of.arms
        if len(self.chances) != m or not all(0 <= each <= 1 for each in self.chances):
            raise InvalidParameter("chances", self.chances, f"must contain {m} numbers in [0, 1]")
        if self.together is None:
            return
        if len(self.together) != m or any(each not in range(m) for each in self.together):
            reason = f"must contain a group from 0 to {m - 1} for each of {m} base arms"
            raise InvalidParameter("together", self.together, reason)
        if self.of.reward.independent and len({*self.together}) < m:
            reason = "must be None, because the mean reward needs independent base arms"
            raise InvalidParameter("together", self.together, reason)

    @property
    def model(self) -> Problem:
        return self.of

    @property
    def means(self) -> tuple[float, ...]:
        return self.chances

    def outcomes(self, rounds: int, world: np.random.Generator) -> Bools:
        r"""Draw the outcomes of all base arms in ``rounds`` rounds, one row per round."""
        groups = self.together
        uniform = world.random((rounds, self.of.arms if groups is None else 1 + max(groups)))
        if groups is not None:
            uniform = uniform[:, list(groups)]
        found: Bools = uniform < np.array(self.chances)
        return found

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        return int(world.binomial(pulls, self.chances[arm])) * precision


def top_k(seed: int, arms: int, size: int) -> BitWorld:
    """Create a world in which any K = ``size`` base arms form a super arm; its reward is their sum.

    K random base arms have mean 0.7, and all others have mean 0.3.
    """
    problem = Problem(decisions=Unions.subsets(arms, size))
    # numpy's legacy generator never changes.
    means = np.random.RandomState(seed).permutation([_HIGH] * size + [_LOW] * (arms - size))
    return BitWorld(of=problem, chances=tuple(means.tolist()))


def correlated(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create the world of :func:`top_k`, but all base arms share one uniform number per round."""
    alone = top_k(seed, arms, size)
    return BitWorld(of=alone.of, chances=alone.chances, together=(0,) * arms)


def coverage(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create a maximum-coverage world with six targets and a greedy oracle (alpha = 1 - 1/e).

    A base arm is an edge that covers a target if its outcome is 1. Each of ``arms``/2 places has
    edges to two targets, which do not depend on the seed. A super arm consists of all edges of any
    ``size``/2 places. The means of the edges are drawn from the seed, uniformly from [0, 1].
    """
    for argument, value in (("arms", arms), ("super_arm", size)):
        if value % _EDGES:
            reason = f"must be a multiple of {_EDGES}, because a place has two edges"
            raise InvalidParameter(argument, value, reason)
    places = tuple((i, i + 1) for i in range(0, arms, _EDGES))
    # The graph is the same in all instances.
    graph = np.random.RandomState(0)
    targets = tuple(int(each) for _ in places for each in graph.permutation(6)[:_EDGES])
    decisions, reward = Unions(places, size // _EDGES), Coverage(targets)
    problem = Problem(decisions=decisions, reward=reward, oracle=GreedyCoverage(decisions, reward))
    return _uniform(seed, problem)


def path(seed: int, arms: int, size: int) -> BitWorld:
    """Create a world of paths of 2 (n - 1) edges through an n by n grid; the cheapest is best."""
    n = _nodes(
        arms, lambda n: 2 * n * (n - 1), "2 n (n - 1), e.g. 4, 12, 24 or 40, for an n by n grid"
    )
    if size != 2 * (n - 1):
        reason = f"must be {2 * (n - 1)}, the number of edges in a path"
        raise InvalidParameter("super_arm", size, reason)
    at = range(n * n)
    right = [(each, each + 1) for each in at if each % n < n - 1]
    down = [(each, each + n) for each in at if each + n < n * n]
    problem = Problem(decisions=Paths(tuple(sorted(right + down))), reward=Linear(offset=-1))
    return _uniform(seed, problem)


def tree(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create a world whose super arms are the spanning trees of a complete graph of n nodes."""
    n = _nodes(arms, lambda n: n * (n - 1) // 2, "n (n - 1)/2, e.g. 3, 6, 10 or 15, for n nodes")
    if size != n - 1:
        raise InvalidParameter("super_arm", size, f"must be {n - 1}, the number of edges in a tree")
    problem = Problem(decisions=SpanningTrees((*combinations(range(n), 2),)))
    return _uniform(seed, problem)


def _nodes(arms: int, edges: Callable[[int], int], wanted: str) -> int:
    n = next(n for n in range(2, 1 << 16) if edges(n) >= arms)
    if edges(n) != arms:
        raise InvalidParameter("arms", arms, f"must be {wanted}")
    return n


def influence(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create an influence world of ten edges, whose super arms choose two of four source nodes."""
    edges = ((0, 4), (0, 5), (1, 5), (1, 6), (2, 6), (2, 7), (3, 7), (3, 4), (4, 8), (6, 8))
    reward = Influence(edges)
    decisions = reward.super_arms(2)
    if (arms, size) != (len(edges), decisions.most):
        raise InvalidParameter(
            "arms", arms, f"must be {len(edges)}, and super_arm must be {decisions.most}"
        )
    problem = Problem(decisions=decisions, reward=reward, oracle=Exhaustive(decisions, reward))
    return _uniform(seed, problem)


def _uniform(seed: int, problem: Problem) -> BitWorld:
    drawn = np.random.RandomState(seed).random_sample(problem.arms)
    return BitWorld(of=problem, chances=tuple(drawn.tolist()))


GAP: Final = 0.2
r"""The distance of a mean from 1/2, below 0.35 as the theorems require."""

_MIDDLE: Final = 0.5


class LowerBound(NamedTuple):
    r"""A lower bound on the regret of certain algorithms, as the horizon T tends to infinity.

    ``regret`` is c ln T with the constant c of the ``theorem``; ``of`` describes the algorithms.
    """

    theorem: str
    regret: float
    of: str


def hard_mab(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create the world of Chen et al. (2020), Theorem 5: single arms, the best with mean 1/2."""
    if size != 1:
        raise InvalidParameter(
            "super_arm", size, "must be 1: in Theorem 5 each super arm is a single base arm"
        )
    return hard_paths(seed, arms, 1)


def hard_paths(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create the world of Chen et al. (2020), Theorem 6: disjoint paths with one outcome each."""
    if arms % size:
        raise InvalidParameter("super_arm", size, f"must divide arms = {arms}")
    count = arms // size
    groups = tuple(tuple(range(start, start + size)) for start in range(0, arms, size))
    problem = Problem(decisions=Unions(groups, 1))
    best = int(np.random.RandomState(seed).randint(count))
    chances = tuple(_MIDDLE - GAP * (arm // size != best) for arm in range(arms))
    return BitWorld(of=problem, chances=chances, together=tuple(arm // size for arm in range(arms)))


def hard_public(seed: int, arms: int, size: int) -> BitWorld:
    r"""Create the world of Chen et al. (2020), Theorem 9, with m = ``arms`` and K = ``size``.

    The best super arm consists of K base arms with mean 1/2. Each of the other m - 2K + 1 super
    arms consists of the same K - 1 public base arms, which share one outcome, and one base arm of
    its own. All base arms of these super arms have mean 1/2 minus the gap.
    """
    if arms < 2 * size:
        raise InvalidParameter(
            "arms", arms, f"must be >= 2 super_arm = {2 * size}, as in Theorem 9"
        )
    order = np.random.RandomState(seed).permutation(arms - 2 * size + 1).tolist()
    best, public = tuple(range(size)), tuple(range(size, 2 * size - 1))
    others = tuple((*public, 2 * size - 1 + each) for each in sorted(order))
    problem = Problem(decisions=Listed(arms, (best, *others)))
    together = tuple(size if arm in public else arm for arm in range(arms))
    chances = (_MIDDLE,) * size + (_MIDDLE - GAP,) * (arms - size)
    return BitWorld(of=problem, chances=chances, together=together)


def lower_bound(
    preset: str, *, arms: int, super_arm: int, horizon: int, epsilon: RationalLike
) -> LowerBound | None:
    r"""The asymptotic lower bound on the regret in ``preset``, or None if no theorem gives one.

    For m base arms, K base arms in each super arm and a gap Delta of super arms, Theorem 9 states
    only the order m K (1/Delta + 1/epsilon) ln T of the bound; the constant here is 1.
    """
    exact = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise")
    m, k, log = arms, super_arm, math.log(horizon)
    delta = GAP * k  # of a super arm: each of its K base arms has this gap
    local = 64 * math.expm1(float(min(exact, Fraction(300)))) ** 2
    match preset:
        case "csb/hard-mab":
            found = LowerBound("Theorem 5", (m - 1) / (local * delta) * log, "consistent, local")
        case "csb/hard-paths":
            regret = (m - k) * k / (local * delta) * log
            found = LowerBound("Theorem 6", regret, "consistent, local")
        case "csb/hard-public":
            order = m * k * (1 / delta + 1 / float(exact)) * log
            found = LowerBound("Theorem 9", order, "consistent, private; the constant is ours")
        case _:
            return None
    return found


CSB: Final = tuple(
    Preset(
        name=f"csb/{name}",
        sentence=sentence,
        source=instance,
        algorithms=("cucb", "cucb-ldp1", "cucb-ldp2", "cucb-dp"),
        epsilons=("2",),
        horizon=10**5,
        arms=arms,
        super_arm=size,
        kind="combinatorial",
    )
    for name, instance, arms, size, sentence in (
        ("topk", top_k, 20, 2, "the sum of K of 20 base arms with mean 0.7 or 0.3"),
        ("correlated", correlated, 20, 2, "csb/topk with one random number per round"),
        ("coverage", coverage, 20, 6, "cover six targets from K/2 of ten places, greedy oracle"),
        ("path", path, 24, 6, "the cheapest path through a grid of 4 by 4 crossings"),
        ("tree", tree, 15, 5, "the heaviest spanning tree of six nodes"),
        ("influence", influence, 10, 6, "the two sources that reach the most of nine nodes"),
        (
            "hard-mab",
            hard_mab,
            20,
            1,
            "single base arms, means 0.5 and 0.3 (Chen et al. 2020, Theorem 5)",
        ),
        (
            "hard-paths",
            hard_paths,
            20,
            4,
            "disjoint paths, means 0.5 and 0.3 (Chen et al. 2020, Theorem 6)",
        ),
        (
            "hard-public",
            hard_public,
            20,
            4,
            "shared base arms, means 0.5 and 0.3 (Chen et al. 2020, Theorem 9)",
        ),
    )
)
r"""The presets, each with its number of base arms and the size of its super arms."""
