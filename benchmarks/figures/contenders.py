r"""The experiments that the studies share, each played once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeAlias

from bandits.experiments.experiment import Experiment
from bandits.experiments.regret_curves import label
from bandits.plots import Curve
from bandits.policies.registry import read_algorithm
from benchmarks.figures.section import Effort
from benchmarks.figures.sweep import Contender, Outcome, Outcomes, of_contenders, of_experiment
from dpcore.numbers.parameter import write_rational

__all__ = ["CZ", "EXACT", "PAPER", "RADIUS", "Player", "Version", "curve", "label", "power"]

Version: TypeAlias = str

PAPER: Final[Version] = "paper"
"""All numbers the paper's, batches of 4^b as in its code."""

RADIUS: Final[Version] = "exact radius"
"""Certified tails in the place of the paper's radius and tau, and four times its g; still 4^b."""

EXACT: Final[Version] = "exact"
"""What the command does by default: the exact schedule as well."""

CZ: Final = (
    "se", "cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-rdp-se:s=100", "dist-cdp-se",
    "shuffled-se", "dp-se",
)  # fmt: skip
"""The algorithms of Chowdhury and Zhou's figures, the floor, and shuffling; s = 10 if not said."""


class Player:
    r"""Plays experiments for the studies, each once; ``mslr`` is the file of Figure 5, if there."""

    def __init__(self, *, effort: Effort, seed: int, jobs: int, mslr: Path | None = None) -> None:
        self.effort, self.seed, self.jobs, self.mslr = effort, seed, jobs, mslr
        self.played: dict[Experiment, Outcomes] = {}

    def horizon(self, preset: str) -> int:
        r"""T of a preset here."""
        return self.effort.hard if preset == "cz/hard" else self.effort.easy

    def experiment(
        self,
        preset: str,
        version: Version,
        algorithms: Sequence[str] = CZ,
        *,
        epsilons: Sequence[str] = (),
        horizon: int | None = None,
        data: Path | None = None,
    ) -> Outcomes:
        r"""What ``algorithms`` gave on the instances of ``preset``, by the names that are given."""
        wanted = tuple(epsilons) or self.effort.epsilons
        exact = version != PAPER
        experiment = Experiment(
            preset=preset,
            algorithms=tuple(algorithms),
            epsilons=wanted,
            horizon=horizon or self.horizon(preset),
            instances=self.effort.instances,
            radius="exact" if exact else "paper",
            schedule="released" if version == RADIUS else None,
            seed=self.seed,
        )
        found = self.outcomes(experiment, data)
        return {
            (name, epsilon): found[str(read_algorithm(name)), write_rational(Fraction(epsilon))]
            for name in algorithms
            for epsilon in wanted
        }

    def outcomes(self, experiment: Experiment, data: Path | None = None) -> Outcomes:
        r"""What an experiment gave; it is played once."""
        if experiment not in self.played:
            self.played[experiment] = of_experiment(experiment, jobs=self.jobs, data=data)
        return self.played[experiment]

    def contenders(self, contenders: Sequence[Contender]) -> Outcomes:
        r"""What policies that have no name gave."""
        return of_contenders(contenders, seed=self.seed, jobs=self.jobs)


def curve(outcome: Outcome, name: str | None = None) -> Curve:
    r"""The line of an outcome, called as pictures call its algorithm, or ``name``."""
    return Curve(
        label=name or label(outcome.label),
        x=outcome.rounds,
        y=outcome.mean(),
        error=outcome.error(),
    )


def power(value: int) -> str:
    r"""A horizon as it is written.

    >>> power(10**6), power(4000)
    ('1e6', '4e3')
    """
    return f"{value:.0e}".replace("e+0", "e")
