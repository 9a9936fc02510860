r"""Summarise many runs as outcomes, for the algorithms of an experiment or for given policies.

An experiment uses the same random numbers as ``dpcore bandit run`` with the same seed, so the
command reproduces its numbers.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from bandits.experiments.experiment import Cell, Experiment, spaced_checkpoints
from bandits.experiments.runner import run_cells
from bandits.experiments.summary import mean_and_error, paired_ratio
from bandits.play import Run, play, run_guarantee
from bandits.policies.policy import Policy
from bandits.privatizers.run_guarantee import RunGuarantee
from bandits.worlds.arm_environments import Environment
from dpcore.cli.workers import in_processes, width_of
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, write_rational
from dpcore.sampling.rng import SeededRng

__all__ = ["DELTA", "Contender", "Outcome", "Outcomes", "Ratio", "best_of", "of_contenders"]
__all__ += ["of_experiment", "ratio"]

DELTA: Final = "1e-6"
"""The delta at which the epsilon of a guarantee is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    r"""The runs of one algorithm; ``regret[i][j]`` is Reg(t)/t of instance i at t = ``rounds[j]``.

    ``wrong`` counts the instances whose final choice contains no arm of the largest mean: the best
    arm was dropped. ``bits`` is the largest number of bits that a user sent in any run,
    ``mean_bits`` the mean over instances, and ``numbers`` and ``sent`` the mean numbers and bits of
    all users together. ``pure`` is the derived pure epsilon and ``epsilon`` the proven upper bound
    on epsilon at ``DELTA``; both are None if there is none.
    """

    label: str
    rounds: tuple[int, ...]
    regret: tuple[tuple[float, ...], ...]
    wrong: int
    bits: int
    mean_bits: float
    pure: str | None
    epsilon: float | None
    numbers: float = 0.0
    sent: float = 0.0

    @property
    def final(self) -> tuple[float, ...]:
        r"""Reg(T)/T of each instance."""
        return tuple(row[-1] for row in self.regret)

    def mean(self) -> tuple[float, ...]:
        r"""The mean regret over instances at every t of ``rounds``."""
        return tuple(np.mean(self.regret, axis=0).tolist())

    def error(self) -> tuple[float, ...]:
        r"""The standard error of the mean."""
        return tuple(mean_and_error(at)[1] or 0.0 for at in zip(*self.regret, strict=True))


Outcomes: TypeAlias = dict[tuple[str, str], Outcome]
"""Outcomes by algorithm and epsilon, both as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    r"""A ratio of two means, with its standard error."""

    value: float
    error: float


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    r"""The ratio mean(above)/mean(below) of pairs, with the error by the delta method for pairs.

    >>> found = ratio([1, 2, 3], [2, 4, 6])
    >>> found.value, round(found.error, 12)
    (0.5, 0.0)

    Raises :class:`InvalidParameter` if there are fewer than two pairs, or mean(below) is 0.
    """
    if len(above) != len(below) or len(above) < 2:
        raise InvalidParameter("above", len(above), f"must be {len(below)} values, at least 2")
    if not math.fsum(below) > 0:
        raise InvalidParameter("below", tuple(below), "must have a mean > 0")
    value, error = paired_ratio(above, below)
    return Ratio(value=value, error=error or 0.0)


def best_of(world: Environment) -> frozenset[int]:
    r"""The arms with the largest mean.

    >>> from bandits.worlds.arm_environments import Bernoulli
    >>> sorted(best_of(Bernoulli(means=(0.5, 0.25, 0.5))))
    [0, 2]
    """
    means = world.means
    return frozenset(arm for arm, mean in enumerate(means) if mean == max(means))


def _outcome(
    label: str,
    rounds: tuple[int, ...],
    runs: Sequence[tuple[Environment, Run | Cell]],
    promised: RunGuarantee | None,
) -> Outcome:
    # Pairs of a world and its run.
    largest = promised.pure().upper if promised else None
    pure = largest if isinstance(largest, Fraction) else None
    return Outcome(
        label=label,
        rounds=rounds,
        regret=tuple(
            tuple(regret / t for regret, t in zip(run.regret, rounds, strict=True))
            for _, run in runs
        ),
        wrong=sum(best_of(world).isdisjoint(run.active) for world, run in runs),
        bits=max(run.bits_per_user for _, run in runs),
        mean_bits=sum(run.mean_bits_per_user for _, run in runs) / len(runs),
        pure=None if pure is None else write_rational(pure),
        epsilon=promised.epsilon(DELTA).upper_float if promised else None,
        numbers=sum(run.numbers for _, run in runs) / len(runs),
        sent=sum(run.bits_sent for _, run in runs) / len(runs),
    )


def of_experiment(experiment: Experiment, *, jobs: int, data: Path | None = None) -> Outcomes:
    r"""The outcomes of an experiment by algorithm and epsilon; progress goes to standard error.

    >>> small = Experiment(
    ...     preset="cz/easy", algorithms=("se",), epsilons=("1/2",), horizon=9_000, instances=2
    ... )
    >>> [*of_experiment(small, jobs=1)]
    [('se', '1/2')]
    """
    worlds = experiment.worlds(data)
    told = _Told(f"{experiment.preset} by the {experiment.radius} radius", experiment.size)
    cells = run_cells(experiment, worlds, jobs=jobs, progress=told)
    groups: dict[tuple[str, str], list[tuple[Environment, Run | Cell]]] = {}
    for cell in cells:
        run = worlds.environments[cell.instance], cell
        groups.setdefault((cell.algorithm, cell.epsilon), []).append(run)
    return {
        (name, epsilon): _outcome(
            name, experiment.checkpoints, runs, experiment.guarantee(name, epsilon, worlds.arms)
        )
        for (name, epsilon), runs in groups.items()
    }


class _Told:
    # Print a line on standard error after every tenth of the work.
    def __init__(self, what: str, size: int) -> None:
        self.what, self.size, self.tenths, self.start = what, size, 0, time.monotonic()

    def __call__(self, done: int) -> None:
        tenths = 10 * done // max(self.size, 1)
        if tenths > self.tenths:
            self.tenths = tenths
            seconds = time.monotonic() - self.start
            sys.stderr.write(f"{self.what}: {done} of {self.size} runs, {seconds:.0f} s\n")
            sys.stderr.flush()


# -- policies without a name ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    r"""A policy to run in each of ``worlds`` for ``horizon`` rounds, with its ``label``."""

    label: str
    epsilon: RationalLike
    policy: Policy[Any]
    worlds: tuple[Environment, ...]
    horizon: int


def of_contenders(contenders: Sequence[Contender], *, seed: int, jobs: int) -> Outcomes:
    r"""Run the contenders and return their outcomes.

    Rewards depend on the seed and the instance, and are the same for all contenders; the noise also
    depends on the label and epsilon.
    """
    told = _Told("policies at hand", len(contenders))
    found: Outcomes = {}
    calls = [(contender, seed) for contender in contenders]
    outcomes = in_processes(_contended, calls, min(width_of(jobs), len(calls)))
    for done, (contender, outcome) in enumerate(zip(contenders, outcomes, strict=True), 1):
        found[contender.label, str(contender.epsilon)] = outcome
        told(done)
    return found


def _contended(contender: Contender, seed: int) -> Outcome:
    rounds = spaced_checkpoints(contender.horizon)
    runs = [
        play(
            contender.policy,
            world,
            horizon=contender.horizon,
            world=np.random.default_rng([seed, i]),
            rng=SeededRng(_coins(seed, contender, i)),
            checkpoints=rounds,
        )
        for i, world in enumerate(contender.worlds)
    ]
    promised = run_guarantee(contender.policy, contender.worlds[0].arms, contender.horizon)
    return _outcome(contender.label, rounds, [*zip(contender.worlds, runs, strict=True)], promised)


def _coins(seed: int, contender: Contender, instance: int) -> int:
    words = f"{seed}/{contender.label}/{contender.epsilon}/{instance}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest(), "big")
