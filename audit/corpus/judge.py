r"""Audit entries of the corpus in their environments: which are judged as they should be?

A failure is judged right when its claim is refuted and the lower bound does not exceed the true
epsilon; a twin when its claim is not refuted. A package that computes its own claim must compute
the one that the entry states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np

from audit.assembly import Audit
from audit.claims.levels import level
from audit.corpus.entry import ROLES, Entry, Role
from audit.corpus.environment import Environment, EnvironmentFailed, made
from audit.corpus.installed import Installed, Worker
from audit.corpus.report import Answer, CorpusReport, Judged
from audit.evidence.verdict import versions
from dpcore.command.workers import checked_jobs, in_processes
from dpcore.errors import DpcoreError
from dpcore.numbers.parameter import RationalLike, integer

__all__ = ["judge", "steps"]

_RIGHT: Final[dict[Role, str]] = {"broken": "refuted", "twin": "not_refuted"}


def steps(entries: Sequence[Entry]) -> int:
    r"""How many steps :func:`judge` takes: environments and audits."""
    return len({_environment(e, r) for e in entries for r in e.sides}) + sum(
        len(entry.sides) for entry in entries
    )


def judge(
    entries: Sequence[Entry],
    *,
    cache: Path,
    keep: bool = False,
    alpha: RationalLike = "0.001",
    seed: int = 1,
    jobs: int = 1,
    done: Callable[[int], None] | None = None,
) -> CorpusReport:
    r"""Install what the entries pin below ``cache``, and audit each failure and each twin.

    Each audit is at level ``alpha``, with the entry's runs; its coins depend on ``seed`` and the
    entry's name, and so do the outputs where the package's randomness can be seeded. ``jobs``
    processes audit; environments are made one after the other, and removed at the end unless
    ``keep``. ``done`` is told the number of finished :func:`steps`.

    Raises :class:`InvalidParameter` for what is out of range.
    """
    exact = level("alpha", alpha)
    integer("seed", seed, at_least=0)
    checked_jobs(jobs)
    tell = done or (lambda _: None)
    with made(cache, keep=keep) as make:
        places: dict[Environment, Path | EnvironmentFailed] = {}
        for environment in dict.fromkeys(_environment(e, r) for e in entries for r in e.sides):
            try:
                places[environment] = make(environment)
            except EnvironmentFailed as error:
                places[environment] = error
            tell(len(places))
        tasks = [
            _Task(
                entry=entry,
                role=role,
                alpha=exact,
                seed=seed,
                place=places[_environment(entry, role)],
            )
            for entry in entries
            for role in entry.sides
        ]
        found: dict[tuple[str, Role], Answer] = {}
        results = in_processes(_Task.run, ((task,) for task in tasks), jobs)
        for task, result in zip(tasks, results, strict=True):
            found[task.entry.name, task.role] = result
            tell(len(places) + len(found))
    rows = (
        Judged(entry=e, broken=found[e.name, "broken"], twin=found.get((e.name, "twin")))
        for e in entries
    )
    return CorpusReport(rows=tuple(rows), versions=versions())


def _environment(entry: Entry, role: Role) -> Environment:
    return Environment(
        requires=entry.sides[role].requires, newest_python=entry.python, alone=entry.alone
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    entry: Entry
    role: Role
    alpha: Fraction
    seed: int
    place: Path | EnvironmentFailed

    def run(self) -> Answer:
        begun, side = time.perf_counter(), self.entry.sides[self.role]
        if isinstance(self.place, EnvironmentFailed):
            return Answer(side=side, error=str(self.place), missing=True)
        try:
            result = self._audited(self.place)
        except DpcoreError as error:
            result = Answer(side=side, error=str(error))
        return replace(result, seconds=time.perf_counter() - begun)

    def _audited(self, python: Path) -> Answer:
        entry, side = self.entry, self.entry.sides[self.role]
        name = f"{entry.name} ({self.role})"
        with Worker(name, python, side.code) as worker:
            claimed = worker.begin()
            if claimed is not None and claimed != side.claim:
                reason = f"the package claims {claimed}, and the entry {side.claim}"
                return Answer(side=side, error=reason)
            spec = replace(
                entry.spec,
                target=Installed(spelling=name, worker=worker),
                claim=side.claim,
                alpha=self.alpha,
                seed=self._seed,
            )
            report = Audit(spec).completed()
        lower = report.epsilon_lower
        right = report.verdict == _RIGHT[self.role]
        if self.role == "broken":
            right = right and lower <= entry.true_epsilon
        return Answer(
            side=side,
            verdict=str(report.verdict),
            right=right,
            epsilon_lower=lower,
            runs=report.runs,
        )

    @property
    def _seed(self) -> int:
        words = [self.seed, ROLES.index(self.role), *self.entry.name.encode()]
        return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
