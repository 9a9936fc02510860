r"""Speed of bandit runs: rounds, drawn rounds, and the time of only drawing the same rewards.

``OPENBLAS_NUM_THREADS=1 python -m benchmarks.bandits [--quick]`` uses one core, because the waiting
time of several BLAS threads would be counted as processor time.

A run draws the rewards of the batches that are released; pulls after an algorithm has committed to
an arm, or in a batch that the horizon cuts off, are counted but not drawn. The result has both
counts; seconds are processor time. In the case ``identical means`` no arm can be eliminated and the
horizon is the end of a batch, so every round is drawn. The bare work is ``rng.normal`` and ``clip``
for the same number of rewards, in chunks that stay in the cache, on the same core. The first run of
an algorithm also builds the tables of noise and the radii, which later runs reuse.

For ``lzj/fig2``, a run of 10^6 rounds is compared with drawing and clipping the same number of
averages.

The code released with Chowdhury and Zhou runs 0.09 to 0.12 million rounds per second; this speed is
cited, not measured here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np

from bandits.elimination_radii import ExactRadius
from bandits.experiments.experiment import Experiment
from bandits.experiments.runner import play_task
from bandits.play import play
from bandits.policies.policy import Policy
from bandits.policies.successive_elimination import RELEASED, BatchedElimination, DpSe
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer, Trust
from bandits.privatizers.privatizer import Unprotected
from bandits.worlds.arm_environments import ClippedNormal, Environment, cz_instance
from benchmarks.machine import write
from dpcore.sampling.rng import SeededRng

__all__ = ["Counting", "bare_seconds", "measure", "policies"]

ARMS: Final = 10
_SECONDS: Final = 20.0
_RATIO: Final = 2.0
_CHUNK: Final = 1 << 15
_CLIENTS: Final = 1 << 11
_DIMENSION: Final = 20
_NUMBERS: Final = 28
_LINEAR_SECONDS: Final = 0.5
_PEER: Final = [0.09, 0.12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting(Environment):
    r"""A wrapper of an environment that counts the draws in ``drawn``."""

    of: ClippedNormal
    drawn: list[int] = field(default_factory=list)

    @property
    def means(self) -> tuple[float, ...]:
        return self.of.means

    @property
    def arms(self) -> int:
        return self.of.arms

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        self.drawn.append(pulls)
        return self.of.encoded_sum(arm, pulls, precision, world)


def policies(horizon: int) -> dict[str, Policy[Any]]:
    r"""One policy per trust model, at epsilon = 1/2, with batches of 4^b and the exact radius."""
    rule = ExactRadius(batches=RELEASED.batches(horizon))

    def eliminate(trust: Trust, scaling: int = 1) -> BatchedElimination:
        privatizer = SumPrivatizer(
            trust=trust, epsilon="1/2", failure=Fraction(1, horizon), scaling=scaling
        )
        return BatchedElimination(privatizer=privatizer, schedule=RELEASED, radius=rule)

    return {
        "se": BatchedElimination(privatizer=Unprotected(), schedule=RELEASED, radius=rule),
        "dist-dp-se": eliminate("pure"),
        "dist-rdp-se s=10": eliminate("renyi", 10),
        "dist-cdp-se s=10": eliminate("concentrated", 10),
        "cdp-se": eliminate("central"),
        "ldp-se": eliminate("local"),
        "dp-se": DpSe(epsilon="1/2", failure=Fraction(1, horizon), radius=ExactRadius()),
    }


def bare_seconds(count: int) -> float:
    r"""The time to draw ``count`` normal rewards and clip them to [0, 1]."""
    world = np.random.default_rng(1)
    start = time.process_time()
    for first in range(0, count, _CHUNK):
        rewards = world.normal(0.5, 0.1, min(_CHUNK, count - first))
        np.clip(rewards, 0.0, 1.0, out=rewards)
    return time.process_time() - start


def measure(
    name: str, policy: Policy[Any], worlds: Sequence[ClippedNormal], horizon: int
) -> dict[str, Any]:
    r"""The time of one run in each of ``worlds``, without and with its tables in the cache."""

    def once() -> tuple[float, int]:
        drawn, start = 0, time.process_time()
        for i, of in enumerate(worlds):
            environment = Counting(of=of)
            world = np.random.default_rng([1, i])
            run = play(policy, environment, horizon=horizon, world=world, rng=SeededRng(i))
            assert sum(run.pulls) == horizon
            drawn += sum(environment.drawn)
        return time.process_time() - start, drawn

    first, drawn = once()
    again, _ = once()
    bare = min(bare_seconds(drawn) for _ in range(2))
    rounds = horizon * len(worlds)
    return {
        "algorithm": name,
        "instances": len(worlds),
        "horizon": horizon,
        "rounds": rounds,
        "drawn_rounds": drawn,
        "seconds_first": round(first, 3),
        "seconds": round(again, 3),
        "bare_seconds": round(bare, 3),
        "ratio_to_bare": round(again / bare, 2),
        "million_rounds_per_second": round(rounds / again / 1e6, 1),
        "million_drawn_rounds_per_second": round(drawn / again / 1e6, 1),
    }


def bare_averages(drawn: Sequence[tuple[int, int]]) -> float:
    r"""The time to draw and clip the averages of the clients of phases (clients, actions)."""
    world = np.random.default_rng(1)
    start = time.process_time()
    for clients, actions in drawn:
        for first in range(0, clients, _CLIENTS):
            rows = min(_CLIENTS, clients - first)
            rewards = world.normal(0.0, 1.0, (rows, actions))
            rewards += world.normal(0.0, 0.1, (rows, _DIMENSION)) @ np.ones((_DIMENSION, actions))
            np.clip(rewards, -2.0, 2.0, out=rewards)
            world.random((rows, actions))  # the coins of stochastic rounding
    return time.process_time() - start


def measure_linear(name: str, instances: int, horizon: int) -> dict[str, Any]:
    r"""The time of the first run of ``lzj/fig2``, with tables to compute, and of a later run."""
    experiment = Experiment(
        preset="lzj/fig2",
        algorithms=(name,),
        epsilons=("10",),
        delta="0.25",
        horizon=horizon,
        instances=instances,
    )
    worlds = experiment.worlds()
    tasks = [*experiment.tasks()]

    def once() -> tuple[float, list[tuple[int, int]]]:
        drawn: list[tuple[int, int]] = []
        start = time.process_time()
        for task in tasks:
            run = play_task(experiment, worlds.environments[task.instance], task)
            drawn.append((run.numbers, run.batches))
        return (time.process_time() - start) / instances, drawn

    first, found = once()
    again, _ = once()
    # The same number of values as the clients sent, about 28 per client.
    phases = [(numbers // _NUMBERS, _NUMBERS) for numbers, _ in found]
    bare = bare_averages(phases) / instances
    return {
        "case": "lzj/fig2",
        "algorithm": name,
        "instances": instances,
        "horizon": horizon,
        "seconds_first": round(first, 3),
        "seconds_per_run": round(again, 3),
        "numbers_per_run": sum(numbers for numbers, _ in found) // instances,
        "bare_seconds": round(bare, 3),
        "reached": again < _LINEAR_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bandits", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, results are not written")
    quick = parser.parse_args().quick
    instances, horizon, last = (2, 10**5, 6) if quick else (20, 10**7, 10)
    # The horizon is the end of batch ``last`` of all arms, so every round is drawn.
    stress = ARMS * sum(RELEASED.pulls(batch) for batch in range(1, last + 1))
    same = [ClippedNormal(centers=(0.5,) * ARMS)] * instances
    cases = {
        "cz/easy": ([cz_instance("0.5", i) for i in range(instances)], horizon),
        "cz/hard": ([cz_instance("0.1", i) for i in range(instances)], horizon),
        "identical means": (same, stress),
    }
    rows = []
    for case, (worlds, rounds) in cases.items():
        for name, policy in policies(rounds).items():
            row = {"case": case, **measure(name, policy, worlds, rounds)}
            # The goal is for 10^7 rounds in each of 20 instances; a longer run is scaled.
            row["seconds_per_20_runs_of_1e7"] = round(row["seconds"] * 2e8 / row["rounds"], 2)
            quick_enough = row["seconds_per_20_runs_of_1e7"] < _SECONDS
            row["reached"] = quick_enough and row["ratio_to_bare"] <= _RATIO
            rows.append(row)
    linear = [
        measure_linear(name, instances, horizon // 10)
        for name in ("dpe", "cdp-dpe", "ldp-dpe", "sdp-dpe", "dpe-fixedu")
    ]
    result = {
        "to_reach": (
            f"20 runs of 10^7 rounds, K = 10, under {_SECONDS:g} s on one core, and at most "
            f"{_RATIO:g} times the bare drawing of the rewards that were drawn (of ldp-se every "
            "user draws noise as well)"
        ),
        "peer_million_rounds_per_second": {"cz code, cited": _PEER},
        "rows": rows,
        "linear_to_reach": f"one run of lzj/fig2 under {_LINEAR_SECONDS:g} s on one core",
        "linear": linear,
    }
    if quick:
        for row in (*rows, *linear):
            print(row)
    else:
        write("bandits", result)


if __name__ == "__main__":
    main()
