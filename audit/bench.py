r"""Audit the catalogue: every broken mechanism must be caught, and no correct twin refuted.

Sample layer: an entry has up to three tries, of N, 2N and 4N runs with fresh seeds, each at level
alpha/3. With N = ``Entry.runs``, 95 of 100 audits at level 0.05 refute the claim of the entry. If
the entry claims a privacy curve, N is at most 10,000. An entry is caught if one try refutes its
claim, so a true claim is refuted with probability at most alpha. ``epsilon_lower`` is the bound of
the last try; the bounds of all tries of an entry hold together with confidence 1 - alpha. Each of
the n sampled twins is audited once, with N runs at level alpha. If all their claims hold, the
probability that j or more twins are refuted is at most P(Bin(n, alpha) >= j).

Time layer: the procedure is that of the sample layer, but for the duration of each call on this
machine instead of the outputs.

Exact layer: the laws of the outputs are known (``Subject.laws``); an entry is caught if its claim
is refuted. The exact layer is deterministic.

Replay layer: an entry is caught if a replay finds an error in the entry. The only randomness of a
replay is in its tapes (recorded random draws).

A bench passes if all of these conditions hold, where j is the number of refuted sampled twins:

- every entry is caught;
- no audit of a twin fails, and the exact layer decides every claim that it tests;
- no twin is refuted, except by the sample or time layer;
- P(Bin(n, alpha) >= j) is at least 1/1000.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import numpy as np

from audit.audit_spec import AuditSpec
from audit.broken_mechanisms import Entry, Layer, Subject
from audit.claims import format_rational, level_upper
from audit.errors import TargetFailed
from audit.formats.junit_and_sarif import Case, Outcome
from audit.formats.result import Result, Statement, computed, fact, format_share, members
from audit.statistical_tests.sample_outcome import unmeasured_pairs, versions
from audit.targets.target import Catalogued
from dpcore.cli.terminal import aligned
from dpcore.cli.workers import in_processes
from dpcore.errors import ANSWER, NEGATIVE_ANSWER, InvalidParameter
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import down, up

if TYPE_CHECKING:
    from audit.formats.result import Section


LEAST_CHANCE: Final = Fraction(1, 1000)
r"""The bench fails if P(Bin(n, alpha) >= j) is below this, for j refuted of n sampled twins."""

_WIDTH: Final = 100
_HEADINGS: Final = ("", "broken", "claim", "true", "runs", "verdict", "lower", "layer", "twin")
_RIGHT: Final = (0, 3, 4, 6)
_KEPT: Final = {
    Layer.EXACT: "proven",
    Layer.FIT: "not refuted",
    Layer.REPLAY: "nothing found",
    Layer.SAMPLE: "not refuted",
    Layer.TIME: "not refuted",
}
_BELOW: Final = "below the resolution of a sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    r"""The result of the last audit of one mechanism, which is an entry or a twin."""

    name: str = fact("the name of the mechanism")
    claim: str = fact("the tested claim")
    runs: int = fact("the runs of the last try, 0 if the laws are known")
    refuted: bool | None = fact("whether the claim was refuted, null if the audit failed")
    tries: int = fact("the number of audits", default=1)
    epsilon_lower: float | None = fact(
        'a lower bound on epsilon; "inf" if no finite epsilon holds', default=None
    )
    p_value: float | None = fact("the p-value of the last try", default=None)
    resolution: float = fact(
        "the smallest probability at which a sample of this size catches an output that only one "
        "dataset produces",
        write=lambda value: value if math.isfinite(value) else None,
        default=math.inf,
    )
    finding: str | None = fact("the error found by replay", default=None)
    error: str | None = fact("the reason if the audit failed", default=None)
    seconds: float = fact(
        "the duration in seconds", write=lambda value: round(value, 3), default=0.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    r"""The results of a broken mechanism and of its correct twin."""

    entry: Entry = fact(
        '"layer" is the layer that must catch it, "true_epsilon" is [lower, upper]',
        name="*",
        write=members("number", "name", "layer", "true_epsilon"),
    )
    broken: Answer = fact("the result of the entry")
    twin: Answer = fact("the result of its correct twin")

    @computed("the tested claim", before="broken")
    def claim(self) -> str:
        return self.broken.claim

    @computed("whether the required layer caught it", before="broken")
    def caught(self) -> bool:
        return self.broken.refuted is True

    @property
    def sampled(self) -> bool:
        r"""Whether the entry must be caught by sampling, as opposed to another layer."""
        return self.entry.layer in {Layer.SAMPLE, Layer.TIME}

    def cases(self) -> Iterator[Case]:
        for result, right, role in (
            (self.broken, self.caught, "caught"),
            (self.twin, self.sampled or not self.twin.refuted, "not refuted"),
        ):
            answered: Outcome = "passed" if right else "failed"
            yield Case(
                target=result.name,
                name=f"{self.entry.name}: {role}",
                rule="dpcore-bench",
                outcome="error" if result.refuted is None else answered,
                message=result.error or f"{result.name} against {result.claim}",
                seconds=result.seconds,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench(Result):
    r"""The results of all audited entries, in the order of the catalogue."""

    SCHEMA: ClassVar[str] = "dpcore-bench/1"

    alpha: Fraction = fact(
        "the level of all tries of an entry together, and of each twin",
        write=level_upper,
        kind="float",
    )
    seed: int = fact("the seed that repeats the bench")
    rows: tuple[BenchRow, ...] = fact(
        '[{"number", "name", "claim", "layer", "true_epsilon": [lower, upper], "caught", "broken", '
        '"twin"}]; the last two are {"name", "claim", "runs", "refuted": null if it failed, '
        '"tries", "epsilon_lower", "p_value", "resolution", "finding", "error", "seconds"}'
    )
    left_out: tuple[str, ...] = fact("entries that were not audited (--quick)", default=())
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @computed("whether the conditions of audit.bench hold", before="alpha")
    def passed(self) -> bool:
        answered = all(row.twin.refuted is not None for row in self.rows)
        no_fault = not any(row.twin.refuted for row in self.rows if not row.sampled)
        usual = self.chance >= LEAST_CHANCE
        return self.caught == len(self.rows) and answered and no_fault and usual

    @computed("entries caught by their required layer", before="rows")
    def caught(self) -> int:
        return sum(row.caught for row in self.rows)

    @computed("the number of entries", before="rows")
    def entries(self) -> int:
        return len(self.rows)

    @computed(
        '{"sampled", "refuted": numbers of twins, "chance": the probability that at least as many '
        'are refuted if each is refuted with probability alpha, "least_chance": the smallest '
        "chance that passes}",
        before="rows",
    )
    def twins(self) -> dict[str, float]:
        return {
            "sampled": len(self.sampled_twins),
            "refuted": self.twins_refuted,
            "chance": self.chance,
            "least_chance": float(LEAST_CHANCE),
        }

    @property
    def sampled_twins(self) -> tuple[Answer, ...]:
        return tuple(row.twin for row in self.rows if row.sampled)

    @property
    def twins_refuted(self) -> int:
        return sum(twin.refuted is True for twin in self.sampled_twins)

    @property
    def chance(self) -> float:
        r"""P(Bin(n, alpha) >= j), where j of the n sampled twins are refuted."""
        from scipy.stats import binom

        sampled = len(self.sampled_twins)
        return float(binom.sf(self.twins_refuted - 1, sampled, float(self.alpha)))

    @property
    def subject(self) -> str:
        return "the catalogue of broken mechanisms"

    @property
    def exit_code(self) -> int:
        return ANSWER if self.passed else NEGATIVE_ANSWER

    def statement(self) -> Statement:
        return Statement(
            verdict="PASSED" if self.passed else "FAILED",
            about=f"caught {self.caught} of {len(self.rows)} broken mechanisms",
        )

    def cases(self) -> Iterator[Case]:
        for row in self.rows:
            yield from row.cases()
        yield Case(
            target="dpcore audit bench",
            name="twins refuted by chance",
            rule="dpcore-bench",
            outcome="passed" if self.chance >= LEAST_CHANCE else "failed",
            message=f"{self.twins_refuted} of {len(self.sampled_twins)} correct twins are refuted",
        )

    def sections(self) -> Iterator[Section]:
        from audit.formats.result import Section

        yield Section(title="Entries", columns=_HEADINGS, rows=list(map(_cells, self.rows)))

    def __str__(self) -> str:
        # Column "true" is the true epsilon, column "lower" a lower bound on the true epsilon. The
        # bound is proven (exact layer) or holds with confidence 1 - alpha. Both are rounded down.
        lines = aligned([_HEADINGS, *map(_cells, self.rows)], right=_RIGHT)
        for sentence in _sentences(self):
            lines += textwrap.wrap(sentence, _WIDTH, break_on_hyphens=False)
        return "\n".join(lines)


def _cells(row: BenchRow) -> tuple[str, ...]:
    broken, twin = row.broken, row.twin
    runs = "" if row.entry.layer is Layer.EXACT else f"{broken.runs:,}"
    # For a claimed curve the bound belongs to the delta of one tested point, but "true" to the
    # delta of the entry.
    curve = row.entry.curve is not None
    lower = None if curve else broken.epsilon_lower
    epsilon, delta = map(format_rational, (row.entry.epsilon, row.entry.delta))
    return (
        str(row.entry.number),
        row.entry.name,
        "its curve" if curve else epsilon if delta == "0" else f"{epsilon}, {delta}",
        _down(row.entry.true_epsilon.lower),
        runs,
        "failed" if broken.refuted is None else "caught" if broken.refuted else "MISSED",
        "" if lower is None else _down(lower),
        row.entry.layer.value,
        "failed" if twin.refuted is None else "REFUTED" if twin.refuted else _KEPT[row.entry.layer],
    )


def _down(value: Fraction | float) -> str:
    return "infinite" if value == math.inf else down(value, 4)


def _sentences(bench: Bench) -> Iterator[str]:
    alpha, cases = up(bench.alpha, 6), format_share(bench.alpha, 6)
    yield (
        f"caught: {bench.caught} of {len(bench.rows)}; a true claim would be refuted in at most "
        f"{cases} such audits"
    )
    other = [row for row in bench.rows if row.entry.layer is Layer.REPLAY]
    if other:
        names = ", ".join(row.entry.name for row in other)
        seen = min(row.broken.resolution for row in other)
        listed = (
            f"; sampling would detect it if it occurred in {format_share(seen)} runs or more"
            if math.isfinite(seen)
            else ""
        )
        yield f"{_BELOW}, and tested by replay: {names}{listed}"
    yield (
        f"twins: {bench.twins_refuted} of {len(bench.sampled_twins)} samples refuted, at level "
        f"{alpha} each; this many or more are refuted with probability <= {up(bench.chance, 3)} if "
        f"all their claims hold (required: at least {down(LEAST_CHANCE, 3)})"
    )
    for row in bench.rows:
        for result in (row.broken, row.twin):
            if result.error is not None:
                yield f"failed: {result.name}: {result.error}"
        if not row.sampled and row.twin.finding is not None:
            yield f"found in {row.twin.name}: {row.twin.finding}"
    if bench.left_out:
        yield f"left out because they need more runs: {', '.join(bench.left_out)}"
    yield f"{bench.statement().verdict}; repeat with --seed {bench.seed}"


TRIES: Final = (1, 2, 4)
r"""The number of runs of each try of an entry, as a multiple of N."""

_ON_A_CURVE: Final = 10_000
_SEEDS: Final = 1 << 32

_Role: TypeAlias = Literal["broken", "twin"]
_ROLES: Final[tuple[_Role, ...]] = ("broken", "twin")


def bench(
    entries: Sequence[Entry],
    *,
    alpha: RationalLike = "0.001",
    seed: int = 1,
    jobs: int = 1,
    done: Callable[[int], None] | None = None,
) -> Bench:
    r"""Audit each entry and its twin.

    For given ``alpha`` and ``seed``, the result of an entry does not depend on the other entries or
    on ``jobs``, the number of processes (-1: one per core). The time layer is not repeatable. After
    each entry or twin, ``done`` is called with the number of entries and twins audited so far.
    """
    exact = rational("alpha", AuditSpec(alpha=alpha, seed=seed, jobs=jobs).alpha)
    ordered = sorted(entries, key=lambda entry: entry.number)
    for entry in ordered:
        known = entry.laws is not None and entry.twin.laws is not None
        if entry.layer is Layer.FIT or (entry.layer is Layer.EXACT and not known):
            reason = f"requires known laws, which {entry.name} does not state"
            raise InvalidParameter("layer", entry.layer.value, reason)
    # Start the longest audits first, so that the processes end at about the same time.
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


def first_runs(entry: Entry) -> int:
    r"""The number of runs N of the first audit of an entry, and of the audit of its twin."""
    return entry.runs if entry.curve is None else min(entry.runs, _ON_A_CURVE)


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
        from audit.run_audit import Audit

        subject = self._subject
        spec = AuditSpec(
            target=self._target,
            features=("time",) if self.entry.layer is Layer.TIME else (),
            runs=runs,
            alpha=alpha,
            seed=self._seed_of(number),
        )
        report = Audit(spec).run()
        error = None if report.error is None else str(report.error)
        if report.verdict == "nothing_measured":
            error = f"nothing was measured: {unmeasured_pairs(report.coverage)[0].reason}"
        return Answer(
            name=subject.name,
            claim=str(report.claim),
            runs=report.runs,
            refuted={"refuted": True, "not_refuted": False}.get(str(report.verdict)),
            epsilon_lower=report.epsilon_lower,
            p_value=report.p_value,
            resolution=report.resolution,
            error=error,
        )

    def _decided(self) -> Answer:
        from audit.known_laws.compare_two_laws import decide
        from audit.known_laws.law_file import read_law

        subject, claim = self._subject, self._subject.claim()
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
            error="the claim cannot be decided" if undecided else None,
        )

    def _replayed(self) -> Answer:
        from audit.replay.replay_both import replay
        from audit.statistical_tests.prequential_fixed_runs_test import resolution

        subject, claim = self._subject, str(self._subject.claim())
        # The resolution of a sample of this size shows why this entry needs another layer.
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
            error=None if replayed else "the target cannot be replayed",
        )

    @property
    def _subject(self) -> Subject:
        return self.entry if self.role == "broken" else self.entry.twin

    @property
    def _target(self) -> Catalogued:
        subject = self._subject
        return Catalogued(spelling=subject.name, function=subject.run, subject=subject)

    def _seed_of(self, number: int) -> int:
        # Each entry, role and try has its own seed.
        words = [self.seed, number, _ROLES.index(self.role), *self.entry.name.encode()]
        return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
