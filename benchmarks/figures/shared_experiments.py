r"""The experiments that several studies use, each run once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeAlias

from bandits.experiments.experiment import Experiment
from bandits.experiments.results import label
from bandits.policies.registry import read_algorithm
from bandits.regret_plots import Curve
from benchmarks.figures.section import Effort
from benchmarks.figures.sweep import Contender, Outcome, Outcomes, of_contenders, of_experiment
from dpcore.numbers.parameter import write_rational

__all__ = ["CZ", "EXACT", "PAPER", "RADIUS", "Player", "Version", "curve", "label", "power"]

Version: TypeAlias = str

PAPER: Final[Version] = "paper"
"""All parameters of the paper, with batches of 4^b as in its code."""

RADIUS: Final[Version] = "exact radius"
"""Certified radius and tau instead of the paper's, and four times its g; also batches of 4^b."""

EXACT: Final[Version] = "exact"
"""The default of the command: the exact radius with the exact schedule."""

CZ: Final = (
    "se", "cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-rdp-se:s=100", "dist-cdp-se",
    "shuffled-se", "dp-se",
)  # fmt: skip
"""The algorithms of Chowdhury and Zhou's figures, se and shuffled-se; s = 10 unless stated."""


class Player:
    r"""Runs each experiment once for all studies; ``mslr`` is the file of Figure 5 or None."""

    def __init__(self, *, effort: Effort, seed: int, jobs: int, mslr: Path | None = None) -> None:
        self.effort, self.seed, self.jobs, self.mslr = effort, seed, jobs, mslr
        self.played: dict[Experiment, Outcomes] = {}

    def horizon(self, preset: str) -> int:
        r"""The horizon T of a preset."""
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
        r"""The outcomes of ``algorithms`` on the instances of ``preset``, by name and epsilon."""
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
        r"""The outcomes of an experiment, which is run once."""
        if experiment not in self.played:
            self.played[experiment] = of_experiment(experiment, jobs=self.jobs, data=data)
        return self.played[experiment]

    def contenders(self, contenders: Sequence[Contender]) -> Outcomes:
        r"""The outcomes of policies that the command does not know by a name."""
        return of_contenders(contenders, seed=self.seed, jobs=self.jobs)


def curve(outcome: Outcome, name: str | None = None) -> Curve:
    r"""The curve of an outcome, labelled with its algorithm or with ``name``."""
    return Curve(
        label=name or label(outcome.label),
        x=outcome.rounds,
        y=outcome.mean(),
        error=outcome.error(),
    )


def power(value: int) -> str:
    r"""Format a horizon.

    >>> power(10**6), power(4000)
    ('1e6', '4e3')
    """
    return f"{value:.0e}".replace("e+0", "e")
