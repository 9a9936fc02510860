r"""The cumulative pseudo-regret of runs, recorded at checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import numpy as np

from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.super_arms import Bools
from bandits.worlds.combinatorial import BitWorld
from dpcore.numbers.arrays import Floats


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
    r"""The regret of several runs of a combinatorial problem, and the plays of each base arm."""

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
