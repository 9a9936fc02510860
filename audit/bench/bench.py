r"""Audit the catalogue: every broken mechanism must be caught, and no correct twin refuted.

Sample layer: an entry has up to three tries, of N, 2N and 4N runs with fresh seeds, each at level
alpha/3, where N refutes it at alpha in 95 cases of 100 (``Entry.runs``; of an entry with a claimed
curve, on that curve, 10,000). It is caught when one of them refutes: a true claim would be with
probability at most alpha. ``epsilon_lower`` is that of the last try; the tries of an entry hold
together with confidence 1 - alpha. Each twin is audited once, with N runs at level alpha. If the
claims of n twins hold, the probability that j or more are refuted is at most that of Bin(n, alpha).

Time layer: the same of how long each call takes, on the clock of this machine.

Exact layer: the laws of the outputs are known (``Subject.laws``), an entry is caught when the claim
is refuted of them, and its twin's is proven. Replay layer: an entry is caught when a replay finds
an error, and nothing is found in its twin. No chance decides either, but for the tapes of a replay.

A bench passes when every entry is caught, every twin answers, only samples refute a twin, and that
binomial probability is at least 1/1000.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal, TypeAlias

import numpy as np

from audit.bench.report import Answer, Bench, BenchRow
from audit.catalogue import Entry, Layer, Subject
from audit.claims.levels import level
from audit.errors import TargetFailed
from audit.evidence.coverage import idle
from audit.evidence.verdict import versions
from audit.report.report import AuditReport
from audit.spec import AuditSpec
from audit.targets.target import Catalogued
from dpcore.command.workers import checked_jobs, in_processes
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, integer

__all__ = ["TRIES", "Answer", "Bench", "BenchRow", "Done", "bench", "first_runs"]

TRIES: Final = (1, 2, 4)
r"""The runs of each try of an entry, in units of N."""

_ON_A_CURVE: Final = 10_000
_SEEDS: Final = 1 << 32

_Role: TypeAlias = Literal["broken", "twin"]
_ROLES: Final[tuple[_Role, ...]] = ("broken", "twin")

Done: TypeAlias = Callable[[int], None]
r"""Called with the number of audits that are done."""


def bench(
    entries: Sequence[Entry],
    *,
    alpha: RationalLike = "0.001",
    seed: int = 1,
    jobs: int = 1,
    done: Done | None = None,
) -> Bench:
    r"""Audit each entry and its twin.

    What an entry gives depends on ``seed`` and its name, not on which others are there or on
    ``jobs``, the number of processes (-1: one for each core).

    >>> from audit.catalogue import find
    >>> found = bench([find("half-scale")])
    >>> found.caught, found.twins_refuted, found.passed
    (1, 0, True)

    Raises :class:`InvalidParameter` for what is out of range, and for an entry of a layer that
    needs laws which are not known.
    """
    exact = level("alpha", alpha)
    integer("seed", seed, at_least=0)
    checked_jobs(jobs)
    ordered = sorted(entries, key=lambda entry: entry.number)
    for entry in ordered:
        _refuse_lawless(entry)
    # The longest first, so that no process ends alone.
    tasks = [
        _Task(entry=entry, role=role, alpha=exact, seed=seed)
        for entry in sorted(ordered, key=first_runs, reverse=True)
        for role in _ROLES
    ]
    found: dict[tuple[str, _Role], Answer] = {}
    for name, role, result in in_processes(_Task.run, [(task,) for task in tasks], jobs):
        found[name, role] = result
        if done is not None:
            done(len(found))
    rows = (
        BenchRow(entry=entry, broken=found[entry.name, "broken"], twin=found[entry.name, "twin"])
        for entry in ordered
    )
    return Bench(rows=tuple(rows), alpha=exact, seed=seed, versions=versions())


def _refuse_lawless(entry: Entry) -> None:
    known = entry.laws is not None and entry.twin.laws is not None
    if entry.layer is Layer.FIT or (entry.layer is Layer.EXACT and not known):
        raise InvalidParameter("layer", entry.layer.value, f"the laws of {entry.name} are unknown")


def first_runs(entry: Entry) -> int:
    r"""The N of the module: the runs of an entry's first try, and of its twin.

    >>> from audit.catalogue import find
    >>> first_runs(find("ten-percent"))
    20000
    """
    return entry.runs if entry.curve is None else min(entry.runs, _ON_A_CURVE)


def _nothing_said(report: AuditReport) -> str | None:
    if report.verdict == "nothing_measured":
        return f"nothing was measured: {idle(report.coverage)[0].reason}"
    return None if report.error is None else str(report.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    entry: Entry
    role: _Role
    alpha: Fraction
    seed: int

    def run(self) -> tuple[str, _Role, Answer]:
        begun = time.perf_counter()
        match self.entry.layer, self.role:
            case Layer.EXACT, _:
                result = self._decided()
            case Layer.REPLAY, _:
                result = self._replayed()
            case _, "twin":
                result = self._sampled(0, first_runs(self.entry), self.alpha)
            case _:
                result = self._tried()
        seconds = time.perf_counter() - begun
        return self.entry.name, self.role, replace(result, seconds=seconds)

    def _tried(self) -> Answer:
        result: Answer
        for number, times in enumerate(TRIES):
            runs = times * first_runs(self.entry)
            result = self._sampled(number, runs, self.alpha / len(TRIES))
            if result.refuted is not False:
                break
        return replace(result, tries=number + 1)

    def _sampled(self, number: int, runs: int, alpha: Fraction) -> Answer:
        from audit.assembly import Audit

        subject = self._subject
        spec = AuditSpec(
            target=self._target,
            features=("time",) if self.entry.layer is Layer.TIME else (),
            runs=runs,
            alpha=alpha,
            seed=self._seed_of(number),
        )
        report = Audit(spec).run()
        return Answer(
            name=subject.name,
            claim=str(report.claim),
            runs=report.runs,
            refuted={"refuted": True, "not_refuted": False}.get(str(report.verdict)),
            epsilon_lower=report.epsilon_lower,
            p_value=report.p_value,
            resolution=report.resolution,
            error=_nothing_said(report),
        )

    def _decided(self) -> Answer:
        from audit.exact.law_file import read_law
        from audit.exact.points import decide

        subject, claim = self._subject, self._target.claim()
        p, q = (read_law("law", text).checked().law for text in subject.laws or ())
        decisions = [decide(p, q, point) for point in claim.points]
        reached = [point.epsilon.worse.lower_float for point in decisions if point.epsilon]
        verdicts = {point.verdict for point in decisions}
        undecided = "undecided" in verdicts and "refuted" not in verdicts
        return Answer(
            name=subject.name,
            claim=str(claim),
            runs=0,
            refuted=None if undecided else "refuted" in verdicts,
            epsilon_lower=max(reached, default=0.0),
            error="it cannot be decided" if undecided else None,
        )

    def _replayed(self) -> Answer:
        from audit.evidence.fixed import resolution
        from audit.replay.replay import replay

        subject, claim = self._subject, str(self._target.claim())
        # What a sample of the entry's runs would see: the reason why this layer is asked.
        seen = resolution(self.entry.runs, subject.epsilon, self.alpha, subject.delta)
        try:
            report = replay(self._target, subject.pair, seed=self._seed_of(0) % _SEEDS)
        except TargetFailed as error:
            return Answer(name=subject.name, claim=claim, runs=0, refuted=None, error=str(error))
        errors = [found for found in report.findings if found.severity == "error"]
        replayed = report.verdict != "not_replayable"
        return Answer(
            name=subject.name,
            claim=claim,
            runs=report.runs,
            refuted=bool(errors) if replayed else None,
            resolution=seen,
            finding=errors[0].statement if errors else None,
            error=None if replayed else "it cannot be replayed",
        )

    @property
    def _subject(self) -> Subject:
        return self.entry if self.role == "broken" else self.entry.twin

    @property
    def _target(self) -> Catalogued:
        subject = self._subject
        return Catalogued(spelling=subject.name, function=subject.run, subject=subject)

    def _seed_of(self, number: int) -> int:
        # Each entry, role and try has a seed of its own.
        words = [self.seed, number, _ROLES.index(self.role), *self.entry.name.encode()]
        return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
