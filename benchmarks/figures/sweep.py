r"""Many runs become outcomes: of an experiment, algorithm by algorithm, or of policies at hand.

An experiment draws what ``dpcore bandit run`` draws from the same seed, so the command repeats
every number that comes from one.
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
from bandits.privatizers.privatizer import RunGuarantee
from bandits.worlds.environment import Environment
from dpcore.command.workers import in_processes, width_of
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, write_rational
from dpcore.sampling.rng import SeededRng

__all__ = ["DELTA", "Contender", "Outcome", "Outcomes", "Ratio", "best_of", "of_contenders"]
__all__ += ["of_experiment", "ratio"]

DELTA: Final = "1e-6"
"""Where the epsilon of a guarantee is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    r"""``regret[i][j]`` is Reg(t)/t of instance i at t = ``rounds[j]``.

    ``wrong`` counts the instances where no arm of the largest mean was among the arms of the last
    choice: the best was dropped. ``bits`` is the most that a user sent in any run, ``mean_bits``
    the mean over instances, ``numbers`` and ``sent`` the numbers and bits of all users together, in
    the mean; ``pure`` the derived pure epsilon and ``epsilon`` the proven upper
    bound at ``DELTA``, None where there is none.
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
        r"""Reg(T)/T, instance by instance."""
        return tuple(row[-1] for row in self.regret)

    def mean(self) -> tuple[float, ...]:
        r"""The mean over instances, at every t of ``rounds``."""
        return tuple(np.mean(self.regret, axis=0).tolist())

    def error(self) -> tuple[float, ...]:
        r"""Its standard error."""
        return tuple(mean_and_error(at)[1] or 0.0 for at in zip(*self.regret, strict=True))


Outcomes: TypeAlias = dict[tuple[str, str], Outcome]
"""By algorithm and epsilon, both as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    r"""A mean over another mean, with its standard error."""

    value: float
    error: float


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    r"""mean(above)/mean(below) of pairs; the error by the delta method, of the pairs.

    >>> found = ratio([1, 2, 3], [2, 4, 6])
    >>> found.value, round(found.error, 12)
    (0.5, 0.0)

    Raises :class:`InvalidParameter` for fewer than two pairs and a mean of 0 below.
    """
    if len(above) != len(below) or len(above) < 2:
        raise InvalidParameter("above", len(above), f"must be {len(below)} values, 2 or more")
    if not math.fsum(below) > 0:
        raise InvalidParameter("below", tuple(below), "must have a mean > 0")
    value, error = paired_ratio(above, below)
    return Ratio(value=value, error=error or 0.0)


def best_of(world: Environment) -> frozenset[int]:
    r"""The arms of the largest mean.

    >>> from bandits.worlds.environment import Bernoulli
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
    # Each world with its run.
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
    r"""The outcomes of all its algorithms at all its epsilons; told on standard error as they come.

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
    # A line on standard error for every tenth part of the work.
    def __init__(self, what: str, size: int) -> None:
        self.what, self.size, self.tenths, self.start = what, size, 0, time.monotonic()

    def __call__(self, done: int) -> None:
        tenths = 10 * done // max(self.size, 1)
        if tenths > self.tenths:
            self.tenths = tenths
            seconds = time.monotonic() - self.start
            sys.stderr.write(f"{self.what}: {done} of {self.size} runs, {seconds:.0f} s\n")
            sys.stderr.flush()


# -- policies that have no name ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    r"""``policy`` in each of ``worlds``, for ``horizon`` rounds, called ``label``."""

    label: str
    epsilon: RationalLike
    policy: Policy[Any]
    worlds: tuple[Environment, ...]
    horizon: int


def of_contenders(contenders: Sequence[Contender], *, seed: int, jobs: int) -> Outcomes:
    r"""The outcome of each.

    Rewards are drawn by the seed and the instance, the same for all contenders; noise by the label
    and epsilon as well.
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
