r"""The regret of a run at its checkpoints, from the true means; no policy sees it.

For single arms it is sum_a gap_a N_a(t), with N_a(t) the pulls of arm a in t rounds. For super arms
it is the sum of alpha beta opt - r(S_t) over rounds, which may be negative for an approximate
oracle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import mul

import numpy as np

from bandits.combinatorial_problem import Problem
from bandits.super_arms import Bools
from bandits.worlds.combinatorial import BitWorld
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.numbers.parameter import integer


def checked_checkpoints(checkpoints: Sequence[int], horizon: int) -> tuple[int, ...]:
    r"""Check the rounds at which regret is recorded; the default is only T."""
    exact = tuple(integer("checkpoints", t, at_least=1) for t in checkpoints) or (horizon,)
    if any(b <= a for a, b in pairwise(exact)) or exact[-1] > horizon:
        reason = f"must be increasing and at most the horizon, {horizon}"
        raise InvalidParameter("checkpoints", checkpoints, reason)
    return exact


class ArmRegret:
    r"""The regret of one run in a world of single arms; :meth:`add` takes the pulls of a batch."""

    def __init__(self, gaps: tuple[float, ...], checkpoints: tuple[int, ...]) -> None:
        self.gaps, self.checkpoints = gaps, checkpoints
        self.pulls = [0] * len(gaps)
        self.rounds = 0
        self.regret: list[float] = []

    def add(self, counts: tuple[int, ...]) -> None:
        for arm, count in enumerate(counts):
            if not count:
                continue
            before = self.pulls[arm]
            for checkpoint in self.checkpoints[len(self.regret) :]:
                if checkpoint > self.rounds + count:
                    break
                self.pulls[arm] = before + checkpoint - self.rounds
                self.regret.append(math.fsum(map(mul, self.gaps, self.pulls)))
            self.pulls[arm] = before + count
            self.rounds += count


class SuperArmRegret:
    r"""The regret of several runs of one combinatorial problem, and the plays of each base arm."""

    def __init__(
        self, problem: Problem, worlds: Sequence[BitWorld], checkpoints: tuple[int, ...]
    ) -> None:
        self.reward, self.checkpoints = problem.reward, checkpoints
        self.means = np.array([world.means for world in worlds])
        self.target = problem.share * np.array([problem.best(means) for means in self.means])
        self.spent = np.zeros(len(worlds))
        self.pulls = np.zeros(self.means.shape, dtype=np.int64)
        self.regret: list[Floats] = []
        self.rounds = 0

    def add(self, played: Bools) -> None:
        each = self.spent + np.cumsum(self.target - self.reward.of(self.means, played), axis=0)
        for checkpoint in self.checkpoints[len(self.regret) :]:
            if checkpoint > self.rounds + len(played):
                break
            self.regret.append(each[checkpoint - self.rounds - 1])
        self.spent = each[-1]
        # With one byte per boolean and few rounds, sums of 16-bit integers are fast.
        self.pulls += played.view(np.uint8).sum(axis=0, dtype=np.uint16)
        self.rounds += len(played)
