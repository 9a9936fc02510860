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

from bandits.environment import Environment
from bandits.experiment import Experiment, run_cells, spaced_checkpoints
from bandits.play import RunGuarantee, play, run_guarantee
from bandits.policy import Policy
from dpcore.errors import InvalidParameter
from dpcore.parameter import RationalLike, write_rational
from dpcore.rng import SeededRng

__all__ = ["DELTA", "Contender", "Outcome", "Outcomes", "Ratio", "of_contenders", "of_experiment"]
__all__ += ["ratio"]

DELTA: Final = "1e-6"
"""Where the epsilon of a guarantee is read."""

_LOST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    r"""``regret[i][j]`` is Reg(t)/t of instance i at t = ``rounds[j]``.

    ``wrong`` counts the instances where some arm had more than five times the rounds of the best:
    it was dropped. (A batch that the horizon cuts may leave the best arm behind fourfold.)
    ``bits`` is the most that a user sent in any run, ``mean_bits`` the mean over instances;
    ``pure`` the derived pure epsilon and ``epsilon`` the proven upper bound at ``DELTA``, None
    where there is none.
    """

    label: str
    rounds: tuple[int, ...]
    regret: tuple[tuple[float, ...], ...]
    wrong: int
    bits: int
    mean_bits: float
    pure: str | None
    epsilon: float | None

    @property
    def final(self) -> tuple[float, ...]:
        r"""Reg(T)/T, instance by instance."""
        return tuple(row[-1] for row in self.regret)

    def mean(self) -> tuple[float, ...]:
        r"""The mean over instances, at every t of ``rounds``."""
        return tuple(np.mean(self.regret, axis=0).tolist())

    def error(self) -> tuple[float, ...]:
        r"""Its standard error."""
        rows = np.array(self.regret)
        return tuple((rows.std(axis=0, ddof=1) / math.sqrt(len(rows))).tolist())


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
    a, b = np.array(above, dtype=float), np.array(below, dtype=float)
    if not b.mean() > 0:
        raise InvalidParameter("below", tuple(below), "must have a mean > 0")
    value = a.mean() / b.mean()
    rest = (a - value * b).std(ddof=1) / math.sqrt(len(a))
    return Ratio(value=float(value), error=float(rest / b.mean()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    # One run: Reg(t) and what else an outcome is made of.
    regret: tuple[float, ...]
    pulls: tuple[int, ...]
    bits: int
    mean_bits: float
    best: int


def _outcome(
    label: str, rounds: tuple[int, ...], runs: Sequence[_Played], promised: RunGuarantee | None
) -> Outcome:
    pure = promised.pure() if promised else None
    return Outcome(
        label=label,
        rounds=rounds,
        regret=tuple(
            tuple(regret / t for regret, t in zip(run.regret, rounds, strict=True)) for run in runs
        ),
        wrong=sum(max(run.pulls) > _LOST * run.pulls[run.best] for run in runs),
        bits=max(run.bits for run in runs),
        mean_bits=sum(run.mean_bits for run in runs) / len(runs),
        pure=None if pure is None else write_rational(Fraction(pure.epsilon)),
        epsilon=promised.epsilon(DELTA).upper_float if promised else None,
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
    groups: dict[tuple[str, str], list[_Played]] = {}
    for cell in cells:
        means = worlds.environments[cell.instance].means
        groups.setdefault((cell.algorithm, cell.epsilon), []).append(
            _Played(
                regret=cell.regret,
                pulls=cell.pulls,
                bits=cell.bits_per_user,
                mean_bits=cell.mean_bits_per_user,
                best=means.index(max(means)),
            )
        )
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
    r"""The outcome of each; worlds and noise by the seed, the label, epsilon and the instance."""
    told = _Told("policies at hand", len(contenders))
    found: Outcomes = {}
    if jobs == 1:
        outcomes = (_contended(contender, seed) for contender in contenders)
    else:
        from joblib import Parallel, delayed

        work = Parallel(n_jobs=jobs, return_as="generator", batch_size=1)
        outcomes = work(delayed(_contended)(contender, seed) for contender in contenders)
    for done, (contender, outcome) in enumerate(zip(contenders, outcomes, strict=True), 1):
        found[contender.label, str(contender.epsilon)] = outcome
        told(done)
    return found


def _contended(contender: Contender, seed: int) -> Outcome:
    rounds = spaced_checkpoints(contender.horizon)
    runs = []
    for i, world in enumerate(contender.worlds):
        run = play(
            contender.policy,
            world,
            horizon=contender.horizon,
            world=np.random.default_rng([seed, i]),
            rng=SeededRng(_coins(seed, contender, i)),
            checkpoints=rounds,
        )
        best = world.means.index(max(world.means))
        runs.append(
            _Played(
                regret=run.regret,
                pulls=run.pulls,
                bits=run.bits_per_user,
                mean_bits=run.mean_bits_per_user,
                best=best,
            )
        )
    promised = run_guarantee(contender.policy, contender.worlds[0].arms, contender.horizon)
    return _outcome(contender.label, rounds, runs, promised)


def _coins(seed: int, contender: Contender, instance: int) -> int:
    words = f"{seed}/{contender.label}/{contender.epsilon}/{instance}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest(), "big")
