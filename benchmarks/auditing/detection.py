r"""Detection by number of runs on the catalogue, with the audit that a user would run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from audit.audit_spec import AuditSpec
from audit.broken_mechanisms import ENTRIES, Entry, Layer, Subject
from audit.claims import Claim, CurveClaim
from audit.features.parse_feature import read_feature
from audit.replay.replay_both import replay
from audit.run_audit import Audit
from audit.runs.draw_plan import Plan
from audit.sample_layer import draw, sample
from audit.statistical_tests.prequential_fixed_runs_test import resolution
from audit.targets.target import Catalogued
from benchmarks.auditing.harness import ALPHA, Effort, Row, share

__all__ = ["RUNGS", "SPACES", "catalogue", "replayed", "search", "sequential"]

RUNGS: Final = {5_000: 21, 10_000: 25, 20_000: 28, 100_000: 31, 200_000: 32}
r"""Numbers of runs, and the goal for the detected ones of the first 34 entries of the catalogue."""

SPACES: Final = {
    "sparse-vector-value-reused": "vector:dimension=6,low=-1,high=1",
    "sparse-vector-unscaled": "vector:dimension=5,low=-1,high=1",
    "sparse-vector-noiseless-answers": "vector:dimension=5,low=-1,high=1",
    "sparse-vector-endless": "vector:dimension=6,low=-1,high=1",
    "noisy-max-value": "vector:dimension=5,low=0,high=2",
    "noisy-max-half-noise": "vector:dimension=5,low=0,high=2",
}
r"""Six entries of the catalogue, and the spaces in which their pairs are searched."""

_SEED: Final = 3
_FIRST: Final = 34
_QUICK: Final = frozenset({1, 2, 8, 15, 22})
_DETECTED: Final = 0.95
# (repeats, hits): with fewer hits among the repeats, the next number of runs is tried.
_LOOK: Final = (20, 15)
_SOON: Final = frozenset({1, 4, 5, 8, 15, 16, 17, 18})
_SOON_BY: Final = 250
_MOST_SEQUENTIAL: Final = 400_000
_ON_CURVE: Final = 10_000
_SEARCHED: Final = 200_000


def _target(subject: Subject) -> Catalogued:
    return Catalogued(spelling=subject.name, function=subject.run, subject=subject)


def _plan(subject: Subject, claim: Claim | CurveClaim, seed: int, **more: Any) -> Plan:
    features = tuple(read_feature(text) for text in subject.features)
    return Plan(
        claim=claim, pair=subject.pair, features=features, seed=seed, alpha=str(ALPHA), **more
    )


def _seed(*words: int) -> int:
    return int(np.random.SeedSequence([_SEED, *words]).generate_state(1, np.uint64)[0])


def _refuted(entry: Entry, claim: Claim | CurveClaim, runs: int, repeat: int) -> bool:
    plan = _plan(entry, claim, _seed(entry.number, runs, repeat), runs=runs)
    return sample(_target(entry), plan).verdict == "refuted"


def _point(entry: Entry) -> Claim:
    return Claim(epsilon=entry.epsilon, delta=entry.delta, relation=entry.relation)


def _ladder(effort: Effort, entry: Entry) -> tuple[int | None, dict[str, Any]]:
    r"""The least number of runs that refutes an entry's claimed point often enough, and all rates.

    A number of runs is abandoned after a few repeats if most fail. This can only lose a detection,
    so the lower bound on an accepted rate remains valid.
    """
    repeats, looks = effort.count(40, 200), {}
    few, least = _LOOK
    for runs in RUNGS:
        work = partial(_refuted, entry, _point(entry), runs)
        hits = sum(effort.repeat(work, few))
        done = few
        if hits >= least:
            hits += sum(effort.repeat(work, repeats - few, start=few))
            done = repeats
        looks[str(runs)] = {"repeats": done, **share(hits, done)}
        if hits >= _DETECTED * done:
            return runs, looks
    return None, looks


def catalogue(effort: Effort) -> Iterator[Row]:
    r"""The first 34 entries by number of runs, at one point of their claims; one on its curve."""
    entries = [entry for entry in ENTRIES if entry.number <= _FIRST]
    if effort.quick:
        entries = [entry for entry in entries if entry.number in _QUICK]
    by: dict[int, int | None] = {}
    for entry in entries:
        by[entry.number], looks = _ladder(effort, entry)
        yield Row(
            what=f"#{entry.number} {entry.name}: detected at 95%",
            value={"by_runs": by[entry.number], "looks": looks, "stated_runs": entry.runs},
            repeats=effort.count(40, 200),
            seed=_SEED,
        )
    for runs, least in RUNGS.items():
        caught = [number for number, first in by.items() if first is not None and first <= runs]
        yield Row(
            what=f"entries detected at 95% by {runs:,} runs",
            value={"detected": len(caught), "of": len(entries), "numbers": caught},
            to_reach=f">= {least} of the first {_FIRST}",
            reached=effort.verdict(len(caught) >= least),
            repeats=effort.count(40, 200),
            seed=_SEED,
        )
    for entry in (entry for entry in ENTRIES if entry.curve is not None):
        yield _on_curve(effort, entry)


def _on_curve(effort: Effort, entry: Entry) -> Row:
    repeats = effort.count(6, 200)
    hits = sum(effort.repeat(partial(_refuted, entry, entry.claim(), _ON_CURVE), repeats))
    return Row(
        what=f"#{entry.number} {entry.name}: detected on the claimed curve {entry.curve}, "
        f"{_ON_CURVE:,} runs",
        value=share(hits, repeats),
        to_reach=f">= {_DETECTED}",
        reached=effort.verdict(hits >= _DETECTED * repeats),
        repeats=repeats,
        seed=_SEED,
    )


def replayed(effort: Effort) -> Iterator[Row]:
    r"""A leak of probability 1e-5: samples miss it and report the resolution; a replay finds it."""
    for entry in (entry for entry in ENTRIES if entry.layer is Layer.REPLAY):
        repeats = effort.count(3, 20)
        found = effort.repeat(partial(_faults, entry), repeats)
        twin = effort.repeat(partial(_faults, entry.twin), repeats)
        leak = 1e-5
        declared = resolution(entry.runs, entry.epsilon, str(ALPHA), entry.delta)
        yield Row(
            what=f"#{entry.number} {entry.name}: found by replay, below the resolution of a sample",
            value={
                "found": share(sum(found), repeats),
                "found_in_its_twin": share(sum(twin), repeats),
                "resolution": declared,
                "of_runs": entry.runs,
                "leak": leak,
            },
            to_reach="found each time, its twin never, and the leak below the resolution",
            reached=all(found) and not any(twin) and leak < declared,
            repeats=repeats,
            seed=_SEED,
        )


def _faults(subject: Subject, repeat: int) -> bool:
    report = replay(_target(subject), subject.pair, seed=repeat)
    return any(finding.severity == "error" for finding in report.findings)


def _stopped(entry: Entry, repeat: int) -> float:
    plan = _plan(
        entry,
        entry.claim(),
        _seed(entry.number, 0, repeat),
        runs=_MOST_SEQUENTIAL,
        sequential=True,
    )
    process = draw(_target(entry), plan).process
    stop = None if process is None else process.rejected_at(str(ALPHA))
    return math.inf if stop is None else stop


def sequential(effort: Effort) -> Iterator[Row]:
    r"""The run at which a sequential audit stops; a claimed curve is audited as a whole."""
    for entry in ENTRIES:
        if entry.number > _FIRST or entry.layer is not Layer.SAMPLE:
            continue
        soon = entry.number in _SOON
        if effort.quick and not soon:
            continue
        repeats = effort.count(15, 200 if soon else 15)
        median = float(np.median(effort.repeat(partial(_stopped, entry), repeats)))
        yield Row(
            what=f"#{entry.number} {entry.name}: median run at which watching stops",
            value={"median": median if math.isfinite(median) else None, "most": _MOST_SEQUENTIAL},
            to_reach=f"<= {_SOON_BY}" if soon else None,
            reached=median <= _SOON_BY if soon else None,
            repeats=repeats,
            seed=_SEED,
        )


def _searched(entry: Entry, repeat: int) -> tuple[bool, int]:
    spec = AuditSpec(
        target=_target(entry),
        claim=_point(entry),
        search=SPACES[entry.name],
        runs=_SEARCHED,
        alpha=ALPHA,
        seed=_seed(entry.number, 1, repeat),
    )
    report = Audit(spec).run()
    found = report.search
    return report.verdict == "refuted", report.runs + (0 if found is None else found.runs)


def search(effort: Effort) -> Iterator[Row]:
    r"""Six entries without their pairs, with 2e5 runs for search and test together."""
    for entry in (entry for entry in ENTRIES if entry.name in SPACES):
        repeats = effort.count(2, 40)
        found = effort.repeat(partial(_searched, entry), repeats)
        hits = sum(refuted for refuted, _ in found)
        most = max(runs for _, runs in found)
        yield Row(
            what=f"#{entry.number} {entry.name}: refuted on a pair found in {SPACES[entry.name]}",
            value={**share(hits, repeats), "most_runs": most},
            to_reach=f">= {_DETECTED} within {_SEARCHED:,} runs",
            reached=hits >= _DETECTED * repeats and most <= _SEARCHED,
            repeats=repeats,
            seed=_SEED,
        )
