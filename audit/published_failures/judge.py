r"""Audit entries of the corpus in their environments, and compare the verdicts with those expected.

The claim of a failure must be refuted, with a lower bound that does not exceed the true epsilon;
the claim of a twin must not be refuted. If a package computes its own claim, that claim must equal
the claim in the entry.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from audit.audit_spec import AuditSpec
from audit.formats.junit_and_sarif import Case, Outcome
from audit.formats.result import Result, Statement, computed, fact, json_text, members, plain
from audit.formats.result import aligned as named_rows
from audit.published_failures.corpus_entry import ROLES, Entry, Role, Side
from audit.published_failures.environment import (
    Environment,
    EnvironmentFailed,
    Installed,
    Worker,
    environments,
)
from audit.run_audit import Audit
from audit.statistical_tests.sample_outcome import versions
from dpcore.cli.terminal import aligned
from dpcore.cli.workers import in_processes
from dpcore.errors import ANSWER, FAILED, NEGATIVE_ANSWER, DpcoreError
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.formats.result import Section


_WIDTH: Final = 100


def listed(entries: Sequence[Entry]) -> list[str]:
    r"""Format entries of the corpus as a table: a header, and one line for each entry."""
    heads = ("name", "package", "claim", "true", "MB")
    rows = [
        (e.name, f"{e.package} {e.version}", e.broken.claim, true_words(e), f"{e.megabytes}")
        for e in entries
    ]
    return aligned([heads, *rows], right=(4,))


def entry_lines(entry: Entry) -> list[str]:
    r"""Format all fields of an entry of the corpus, including its code."""
    facts = [
        ("failure", entry.failure),
        ("source", entry.source),
        ("claim", f"{entry.broken.claim} ({entry.relation.value}): {entry.by}"),
        ("true", f"{true_words(entry)}: {entry.broken.known}"),
        ("pair", f"A = {entry.pair[0]}, B = {entry.pair[1]}"),
        ("runs", f"{entry.runs:,}" + (f", --feature {entry.feature}" if entry.feature else "")),
        ("installs", f"{', '.join(entry.broken.requires)}: {entry.megabytes} MB"),
        ("seen", f"epsilon >= {number(entry.broken.seen)}"),
    ]
    if entry.twin is not None:
        own = entry.twin.requires != entry.broken.requires
        installs = f" ({', '.join(entry.twin.requires)})" if own else ""
        facts.append(("twin", f"{entry.twin.known}{installs}"))
    title = f"{entry.name}: {entry.package} {entry.version}"
    code = textwrap.indent(entry.broken.code.strip("\n"), "    ").splitlines()
    return [title, *named_rows(facts, _WIDTH), "  code", *code]


def entries_text(entries: Sequence[Entry]) -> str:
    r"""The list of entries as a JSON document."""
    listed = [_entry(entry) for entry in entries]
    return json_text({"schema": "dpcore-corpus-list/1", "entries": listed})


def true_words(entry: Entry) -> str:
    r"""Format the known true value of an entry, such as "epsilon 2"."""
    quantity, value = entry.true
    return f"{quantity} {value}"


def number(value: float) -> str:
    r"""Format an epsilon with four digits, rounded down, or as "infinite"."""
    return "infinite" if value == math.inf else down(rational("epsilon", repr(value)), 4)


def _entry(entry: Entry) -> dict[str, Any]:
    fields = asdict(entry)
    by = fields.pop("by")
    return {
        **fields,
        "relation": entry.relation.value,
        "claimed_by": by,
        "true": dict([entry.true]),
        "broken": plain(entry.broken),
        "twin": plain(entry.twin),
    }


_HEADINGS: Final = ("name", "package", "claim", "true", "lower", "failure", "twin", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    r"""The result of the audit of a failure, or of the audit of its twin.

    If no audit was completed, ``verdict`` is None and ``error`` is the reason; ``missing`` is True
    if the environment could not be created. ``right`` is True if the verdict is as expected and,
    for a failure, the lower bound does not exceed the true epsilon.
    """

    side: Side = fact("the tested packages and claim", name="*", write=members("requires", "claim"))
    verdict: str | None = fact("the verdict, null if there was no audit", default=None)
    right: bool = fact("whether the verdict is as expected", default=False)
    epsilon_lower: float | None = fact(
        'a lower bound on epsilon; "inf" if no finite epsilon holds', default=None
    )
    runs: int = fact("the number of runs tested", default=0)
    seconds: float = fact("the duration", write=lambda value: round(value, 2), default=0.0)
    error: str | None = fact("the reason why there was no audit", default=None)
    missing: bool = fact("whether the environment could not be made", default=False)

    @property
    def words(self) -> str:
        r"""The verdict as text, in capitals if it is not as expected."""
        if self.missing:
            return "not installed"
        if self.verdict is None:
            return "failed"
        word = self.verdict.replace("_", " ")
        return word if self.right else word.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    r"""An entry of the corpus, with the results of the audits of its failure and of its twin."""

    entry: Entry = fact(
        "the entry, as in the list",
        name="*",
        write=members("name", "package", "version", "failure", "source"),
    )
    broken: Answer = fact("the result of the failure")
    twin: Answer | None = fact("the result of its twin, null if there is none")

    @property
    def results(self) -> dict[str, Answer]:
        return {"failure": self.broken} | ({} if self.twin is None else {"twin": self.twin})

    @computed("the name and value of the true quantity", before="broken")
    def true(self) -> dict[str, str]:
        return dict([self.entry.true])

    @computed("whether both verdicts are as expected", before="broken")
    def right(self) -> bool:
        return all(result.right for result in self.results.values())

    @property
    def missing(self) -> bool:
        return any(result.missing for result in self.results.values())

    def cells(self) -> tuple[str, ...]:
        lower = self.broken.epsilon_lower
        return (
            self.entry.name,
            f"{self.entry.package} {self.entry.version}",
            self.broken.side.claim,
            true_words(self.entry),
            "" if lower is None else number(lower),
            self.broken.words,
            "" if self.twin is None else self.twin.words,
            f"{sum(result.seconds for result in self.results.values()):.1f}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport(Result):
    r"""The report of the audits of several entries of the corpus."""

    SCHEMA: ClassVar[str] = "dpcore-corpus/1"

    rows: tuple[Judged, ...] = fact(
        '[{"name", "package", "version", "failure", "source", "true", "right", "broken", "twin"}]; '
        'the last two are null or {"requires", "claim", "verdict", "right", "epsilon_lower", '
        '"runs", "seconds", "error", "missing"}'
    )
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @computed("whether all verdicts are as expected", before="rows")
    def passed(self) -> bool:
        return all(row.right for row in self.rows)

    @property
    def subject(self) -> str:
        return "the corpus of published packages"

    @property
    def exit_code(self) -> int:
        r"""The exit code: 1 if a verdict is unexpected, else 3 if an environment failed, else 0."""
        if any(not row.right and not row.missing for row in self.rows):
            return NEGATIVE_ANSWER
        return FAILED if any(row.missing for row in self.rows) else ANSWER

    def statement(self) -> Statement:
        right = sum(row.right for row in self.rows)
        missing = sum(row.missing for row in self.rows)
        about = f"verdicts as expected: {right} of {len(self.rows)}"
        if missing:
            about += f"; {missing} could not be installed"
        return Statement(verdict="PASSED" if self.passed else "FAILED", about=about)

    def cases(self) -> Iterator[Case]:
        for row in self.rows:
            for role, result in row.results.items():
                answered: Outcome = "passed" if result.right else "failed"
                yield Case(
                    target=f"{row.entry.package} {row.entry.version}",
                    name=f"{row.entry.name}: {role}",
                    rule="dpcore-corpus",
                    outcome="error" if result.verdict is None else answered,
                    message=result.error or f"{result.words} on {row.broken.side.claim}",
                    seconds=result.seconds,
                )

    def sections(self) -> Iterator[Section]:
        from audit.formats.result import Section

        yield Section(title="Entries", columns=_HEADINGS, rows=[row.cells() for row in self.rows])

    def __str__(self) -> str:
        lines = aligned([_HEADINGS, *(row.cells() for row in self.rows)], right=(4, 7))
        for row in self.rows:
            for role, result in row.results.items():
                if result.error is not None:
                    words = f"{row.entry.name} ({role}): {result.error}"
                    lines += textwrap.wrap(words, _WIDTH, break_on_hyphens=False)
        return "\n".join([*lines, self.statement().about])


_RIGHT: Final[dict[Role, str]] = {"broken": "refuted", "twin": "not_refuted"}


def steps(entries: Sequence[Entry]) -> int:
    r"""The number of steps of :func:`judge`; a step creates an environment or runs an audit."""
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
    r"""Install the packages of the entries, and audit the failure and the twin of each entry.

    Environments are created in the folder ``cache``, one after the other. They are removed at the
    end unless ``keep`` is set. Audits have level ``alpha`` and the number of runs of the entry, and
    run in ``jobs`` processes. The random choices of an audit depend only on ``seed``, the name of
    the entry and whether it is a twin. If the package can be seeded, so do the outputs. ``done`` is
    called with the number of finished :func:`steps`.
    """
    exact = rational("alpha", AuditSpec(alpha=alpha, seed=seed, jobs=jobs).alpha)
    progress = done or (lambda _: None)
    with environments(cache, keep=keep) as make:
        places: dict[Environment, Path | EnvironmentFailed] = {}
        for environment in dict.fromkeys(_environment(e, r) for e in entries for r in e.sides):
            try:
                places[environment] = make(environment)
            except EnvironmentFailed as error:
                places[environment] = error
            progress(len(places))
        tasks = [
            _Task(entry=e, role=role, alpha=exact, seed=seed, place=places[_environment(e, role)])
            for e in entries
            for role in e.sides
        ]
        found: dict[tuple[str, Role], Answer] = {}
        results = in_processes(_Task.run, ((task,) for task in tasks), jobs)
        for task, result in zip(tasks, results, strict=True):
            found[task.entry.name, task.role] = result
            progress(len(places) + len(found))
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
                reason = f"the package claims {claimed}, but the entry states {side.claim}"
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
        possible = self.role == "twin" or lower <= entry.true_epsilon
        return Answer(
            side=side,
            verdict=str(report.verdict),
            right=report.verdict == _RIGHT[self.role] and possible,
            epsilon_lower=lower,
            runs=report.runs,
        )

    @property
    def _seed(self) -> int:
        words = [self.seed, ROLES.index(self.role), *self.entry.name.encode()]
        return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
