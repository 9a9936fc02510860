"""What a cell draws and decides has a name; whoever changes it without another name is caught.

The world here draws from PCG64 itself, whose stream numpy keeps for ever, and noise from dpcore's
own streams: these numbers change with the code of dpcore, and with nothing else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from bandits.experiments import playing as module
from bandits.experiments.experiment import RECIPE, Experiment, Task
from bandits.experiments.playing import _coins, play_task
from bandits.worlds import Worlds
from bandits.worlds.environment import Bernoulli, Environment, Reordered, Table
from tests.support.dpcore.mutants import mutated, rewired

NAMES = ("cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se", "dp-se", "se")
SMALL = Experiment(
    preset="cz/easy",
    algorithms=(*NAMES, "shuffled-se", "vb-sdp-ae", "sdp-ae:m=500"),
    epsilons=(1,),
    horizon=3_000,
    instances=1,
)

KNOWN = ("dpcore-bandit-cell/3", "0d940e6efeb17cf64b642dba700ab9ee")
"""The recipe, and the digest of what it gives. Draws that change need a new pair of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Environment):
    """Rewards 0 or 1 from the words of the bit stream."""

    chances: tuple[float, ...] = (0.9, 0.5, 0.1)

    @property
    def means(self) -> tuple[float, ...]:
        return self.chances

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        words: Any = world.bit_generator.random_raw(pulls)
        return int((words < self.chances[arm] * 2.0**64).sum()) * precision


def digest(played: Any = play_task) -> str:
    found = hashlib.sha256()
    for task in SMALL.tasks():
        run = played(SMALL, Words(), task)
        found.update(json.dumps([task.algorithm, run.pulls, run.active, run.batches]).encode())
    return found.hexdigest()[:32]


def test_draws_change_only_with_the_name_of_the_recipe() -> None:
    assert (RECIPE, digest()) == KNOWN


def test_other_coins_are_other_draws() -> None:
    other = mutated(_coins, "[use, experiment.seed, *cell]", "[use, *cell, experiment.seed]")
    played = rewired(module.play_task, _coins=other)
    assert digest(played) != KNOWN[1]
    task = Task(algorithm="se", epsilon="1", instance=0)
    assert _coins("rewards", SMALL, task) != other("rewards", SMALL, task)


def test_a_digest_of_worlds_sees_all_that_defines_them() -> None:
    table = Table(rewards=([0, 1, "1/2", "1/2"], [1, 0]))
    worlds: list[Environment] = [
        Bernoulli(means=(0.5, 0.5)),
        Bernoulli(means=(0.5, 0.25)),
        Words(chances=(0.5, 0.5)),
        table,
        Table(rewards=([0, 1], [1, 0])),
        Table(rewards=([1, 0], [0, 1, "1/2", "1/2"])),
        Reordered(world=table, order=(0, 1)),
        Reordered(world=table, order=(1, 0)),
    ]
    assert len({Worlds(environments=(world,)).digest() for world in worlds}) == len(worlds)
    both = [Worlds(environments=tuple(worlds[:2])), Worlds(environments=tuple(worlds[1::-1]))]
    assert both[0].digest() != both[1].digest()
    again = Table(rewards=(["1/2", 0, "1/2", 1], [0, 1]))
    assert Worlds(environments=(again,)).digest() == Worlds(environments=(table,)).digest()
