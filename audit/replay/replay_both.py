r"""Replay: run a target on two neighbouring datasets with the same random draws.

A target is run on both datasets, and reads every draw from a tape of recorded random draws
(``audit.replay.tape``, ``audit.replay.rng_hooks``). Unchanged tapes show the effect of the data on
the outputs. On changed tapes one draw is set to an extreme value, to reach rare branches.
docs/proofs/replay.md states the meaning of each finding: most are faults that need an explanation,
few refute a declaration.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any, Final

import numpy as np

from audit.audit_spec import AuditSpec, SensitivityNorm
from audit.errors import Unreadable
from audit.outputs.copies import captured, copies
from audit.outputs.identity import identity, without_address
from audit.outputs.output_parser import kind, require_readable
from audit.outputs.rows import EXACT, Cell, Row, row_of
from audit.outputs.time_limit import RAISED, TimeUp, Watchdog, failure, stdout_to_stderr
from audit.replay.findings_from_runs import (
    appearances,
    failures,
    flows,
    is_label,
    seeds,
    sources,
    unnoised_parts,
    within_reach,
    without_end,
)
from audit.replay.replay_report import Finding, ReplayReport, Severity
from audit.replay.rng_hooks import Session, hooked_rngs
from audit.replay.sensitivity import declarations, moves
from audit.replay.tape import EXTREMES, Changes, Execution, PairedRuns, Place, Seeded, Tape
from audit.targets.check_neighbours import pairs_of
from audit.targets.target import NoiseAdded, Scalar, Target, Vectorised
from audit.targets.target_syntax import target_of
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import RationalLike, rational

MOST_HANGS: Final = 12
r"""The replay fails as soon as this number of runs have exceeded the time limit."""

_LEARNING: Final = 4
_REPEATS: Final = 8
_SURE: Final = 100
_REDRAWN: Final = 6
_CONFIRMED: Final = 24
_KEPT_DEPTH: Final = 2
_TAPES_A_SEED: Final = 1 << 24
# Changed tapes are no longer run after this many calls that exceeded the time limit.
_FEW_HANGS: Final = 4
_WITH_NOISE: Final = 8
_REACH: Final = 500
_MOST_PARTS: Final = 64
# Another number near each extreme: a branch that is wider than 2^-50 is also taken for it, but
# noise that is computed from the number differs.
_NEAR: Final = {
    "lowest": 1 << 14,
    "low": (1 << 34) + (1 << 14),
    "highest": (1 << 64) - (1 << 14),
    "high": (1 << 64) - (1 << 34) - (1 << 14),
    "middle": (1 << 63) + (1 << 34),
}


def replay(  # noqa: PLR0913 - what is declared, and how far to look
    target: Target | Callable[..., Any],
    pair: tuple[Any, Any],
    *,
    sensitivity: RationalLike | None = None,
    norm: SensitivityNorm = "l1",
    strict: bool = False,
    tapes: int = 32,
    changes: int = 500,
    seed: int = 0,
    timeout: float | None = 60.0,
    deadline: float | None = None,
    allow_constant: bool = False,
) -> ReplayReport:
    r"""Run a target on two datasets with the same random draws, and report all findings.

    ``sensitivity`` declares that the output is a query plus noise, and that the query changes by at
    most ``sensitivity`` in ``norm``. ``strict`` declares that the draws and the shape of the output
    do not depend on the data. Declarations made with :func:`audit.declare` are also checked.

    Both datasets are run on ``tapes`` unchanged tapes, and on at most ``changes`` tapes with draws
    set to extremes. After ``deadline`` seconds no further changed tape is started. ``timeout``
    limits one call, in seconds. ``allow_constant`` accepts a target without draws.
    """
    subject = target_of(target)
    pair = pairs_of(subject, pair, relation=Relation.ADD_REMOVE)[0]  # or replace: no relation here
    AuditSpec(  # raises if invalid
        sensitivity=sensitivity, norm=norm, tapes=tapes, changes=changes, seed=seed,
        timeout=timeout, deadline=deadline,
    )  # fmt: skip
    declared = None if sensitivity is None else rational("sensitivity", sensitivity)
    function = function_of(subject)
    runs = 0
    end = math.inf if deadline is None else time.monotonic() + deadline
    replayed = _Replayed(end=end)

    def stated() -> Iterable[Finding]:  # checks of declarations
        return chain(
            moves(replayed.pairs, declared, norm),
            declarations(replayed.pairs),
            appearances(replayed.pairs, strict=strict),
            flows(replayed.pairs) if strict else (),
        )

    if function is None:
        replayed.note(
            Finding(
                kind="elsewhere",
                severity="warning",
                statement="the target draws randomness in another process, which replay cannot "
                "control: use the sample layer (--layers sample)",
            )
        )
    else:
        with stdout_to_stderr(), Watchdog(timeout) as watchdog, hooked_rngs(function) as session:
            runner = Runner(
                target=subject,
                pair=pair,
                session=session,
                watchdog=watchdog,
                first=seed * _TAPES_A_SEED,
            )
            _look(replayed, runner, tapes=tapes, changes=changes)
            if replayed.replayable:
                _confirm(replayed, runner, stated())
            runs = runner.runs
        if replayed.replayable:
            replayed.findings += chain(stated(), failures(replayed.pairs))
            if not replayed.constant:
                replayed.findings += unnoised_parts(replayed.pairs)
    return ReplayReport(
        target=subject.spelling,
        pair=pair,
        findings=tuple(replayed.findings),
        sensitivity=declared,
        norm=norm,
        strict=strict,
        replayable=replayed.replayable,
        runs=runs,
        tapes=len(replayed.pairs),
        changed=sum(bool(both.a.tape.changes) for both in replayed.pairs),
        seed=seed,
        allow_constant=allow_constant,
    )


def _confirm(replayed: _Replayed, runner: Runner, found: Iterable[Finding]) -> None:
    # Repeat the tapes of refuting findings: randomness that is rarely used and not on the tape may
    # have escaped the earlier check, and may have caused the largest difference over many tapes.
    for finding in found:
        if not finding.refutes:
            continue
        held = finding.witness.items()
        both = next(b for b in replayed.pairs if b.witness().items() <= held)
        for _ in range(_SURE):
            for world, run in ((0, both.a), (1, both.b)):
                again = runner.run(world, Tape(run.tape.seed, run.tape.changes))
                if again.key != run.key:
                    replayed.note(_unsteady(run, again, world))
                    return


@dataclass(slots=True, kw_only=True)
class _Replayed:
    # The state of a replay.
    end: float
    findings: list[Finding] = field(default_factory=list)
    pairs: list[PairedRuns] = field(default_factory=list)
    replayable: bool = True
    constant: bool = False

    # ``_silent``: for tuples of draws, whether all other draws have no effect. ``_reached``: the
    # runs on many unchanged tapes.
    _silent: dict[tuple[Place, ...], bool] = field(default_factory=dict)
    _reached: list[PairedRuns] = field(default_factory=list)

    def note(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.replayable = self.replayable and finding.kind not in {"own-entropy", "elsewhere"}

    def silent_beside(self, runner: Runner, places: tuple[Place, ...]) -> bool:
        # Whether the outputs on unchanged tapes never change if all draws but ``places`` are
        # redrawn.
        if places not in self._silent:
            numbers = range(_REDRAWN + 1, _REDRAWN + _CONFIRMED + 1)
            self._silent[places] = all(
                _still(runner, both, {p: both.a.tape.head(p) for p in places}, numbers)
                for both in self.pairs[:_WITH_NOISE]
                if not both.a.tape.changes
            )
        return self._silent[places]

    def reached(self, runner: Runner) -> list[PairedRuns]:
        if not self._reached:
            self._reached = [runner.both(number) for number in range(_REACH)]
        return self._reached


def _unsteady(once: Execution, then: Execution, world: int) -> Finding:
    return Finding(
        kind="own-entropy",
        severity="warning",
        statement="outputs vary although the tape is the same: the target draws from a source that "
        "is not replayed (native code, another thread or process), or keeps state; use the sample "
        "layer",
        witness={"dataset": "AB"[world], "once": once.output, "then": then.output},
    )


def _look(replayed: _Replayed, runner: Runner, *, tapes: int, changes: int) -> None:
    # The steps of a replay. If a repeated tape gives another output, the remaining steps are
    # skipped.
    session = runner.session
    _require_an_output(runner)
    session.constants = _constants(runner)
    first, again = ([runner.on(world, 0) for world in (0, 1)] for _ in range(2))
    ordinary = [runner.both(number) for number in range(tapes)]
    late = [both.a.error for both in ordinary[len(ordinary) // 2 :] if both.a.key == both.b.key]
    if 2 * len(late) >= max(len(ordinary), 2 * _REPEATS) and late[0] and None not in late:
        raise late[0]  # from some tape on, the target fails on both datasets
    runs = [run for both in ordinary for run in (both.a, both.b)]
    replayed.findings += seeds(session.constants, [*first, *runs], again[0])
    replayed.findings += sources(runs)
    silent = [not any(run.flow for run in runs[world::2]) for world in (0, 1)]
    if not _repeats(replayed, runner, first, _SURE if any(silent) else _REPEATS):
        return
    replayed.pairs += ordinary
    if any(silent):
        replayed.constant = True
        replayed.note(_silence(silent, ordinary))
    _change(replayed, runner, ordinary, changes)


def _require_an_output(runner: Runner) -> None:
    # Raise the error of the target if it returns no output on several unchanged tapes.
    failed: list[Execution] = []
    for number, world in product(range(_LEARNING), (0, 1)):
        failed.append(runner.on(world, number))
        if failed[-1].error is None:
            return
        if failed[-1].kind == "hangs":
            raise failed[-1].error
    if failed[0].error is not None:
        raise failed[0].error


def _constants(runner: Runner) -> frozenset[Seeded]:
    # The seeds that occur on each of several tapes. Meanwhile seeded generators draw as usual. The
    # first run is not counted, because it may fill caches.
    runner.session.learning = True
    found: Counter[Seeded] = Counter()
    for world in (0, 1):
        runner.on(world, 0)
        runs = [runner.on(world, i) for i in range(_LEARNING)]
        for seed in set.intersection(*(set(run.tape.seeds) for run in runs)):
            found[seed] += 1
    runner.session.learning = False
    return frozenset(found)


def _repeats(replayed: _Replayed, runner: Runner, first: list[Execution], times: int) -> bool:
    for world in (0, 1):
        for _ in range(times):
            run = runner.on(world, 0)
            if run.key == first[world].key:
                continue
            replayed.note(_unsteady(first[world], run, world))
            return False
    return True


def _silence(silent: list[bool], ordinary: list[PairedRuns]) -> Finding:
    # A run that reads nothing from its tape gives the same output on every tape.
    both, kind = ordinary[0], "no-noise"
    severity: Severity = "error"
    if not all(silent):
        one = silent.index(True)
        certain = (both.a, both.b)[one].key
        met = sum((other.a, other.b)[1 - one].key == certain for other in ordinary)
        # A release with a noisy threshold may draw nothing on an empty dataset.
        severity = "warning" if 2 * met >= len(ordinary) else "error"
        statement = (
            f"dataset {'AB'[one]} draws nothing, so its output is certain; the other dataset gave "
            f"this output on {met} of {len(ordinary)} tapes"
        )
    elif both.a.key == both.b.key:
        kind, severity = "constant", "warning"
        statement = "nothing is drawn: the output is certain, and the same for both datasets"
    else:
        statement = (
            "no draw was seen, but the outputs differ: each is constant, unless it contains noise "
            "from an earlier call, from native code, or from another thread or device; use the "
            "sample layer"
        )
    return Finding(kind=kind, severity=severity, statement=statement, witness=both.witness())


def _change(replayed: _Replayed, runner: Runner, ordinary: list[PairedRuns], most: int) -> None:
    # Set each draw of the first tape to each extreme. If a change leads to a new sequence of
    # requests, also set later draws, to reach a rare branch within a rare branch.
    known = {run.flow for both in ordinary for run in (both.a, both.b)}
    start = [*dict.fromkeys([*ordinary[0].a.tape.places(), *ordinary[0].b.tape.places()])]
    room = max(most // len(EXTREMES), 1)
    chosen = [start[i * len(start) // room] for i in range(room)] if len(start) > room else start
    queue: deque[dict[Place, str | int]] = deque({p: e} for p in chosen for e in EXTREMES)
    done = 0
    faulted = False
    skipped: list[PairedRuns] = []
    limit = runner.hangs + _FEW_HANGS
    while queue and done < most and time.monotonic() < replayed.end and runner.hangs < limit:
        change = queue.popleft()
        done += 1
        both = runner.both(0, change)
        if both.a.kind == both.b.kind == "hangs":
            skipped.append(both)
            continue
        replayed.pairs.append(both)
        if not faulted and both.a.key != both.b.key and not both.failed:
            branch = _unnoised_branch(replayed, runner, both)
            if branch is not None:
                replayed.note(branch)
                faulted = branch.severity == "error"
        for run in (both.a, both.b):
            if run.flow not in known and len(change) < _KEPT_DEPTH:
                known.add(run.flow)
                last = next(iter(change))
                places = run.tape.places()
                behind = places[places.index(last) + 1 :] if last in places else places
                queue.extend({**change, p: e} for p in behind[:room] for e in EXTREMES)
    if skipped:
        replayed.note(without_end(skipped))
    if not queue and len(chosen) == len(start):
        return
    replayed.note(
        Finding(
            kind="not-all-draws",
            severity="note",
            statement=f"the target makes {len(start):,} draws, and was run on {done:,} changed "
            "tapes: not every draw was set to every extreme",
        )
    )


def _unnoised_branch(replayed: _Replayed, runner: Runner, both: PairedRuns) -> Finding | None:
    # A branch without noise: with the changed draws fixed and all others redrawn, both outputs stay
    # the same, but with the original values of these draws fixed, the outputs vary. So the target
    # adds noise, but not in this branch.
    change = both.a.tape.changes
    near: Changes = {p: _NEAR[str(e)] for p, e in change.items()}
    if (
        replayed.silent_beside(runner, tuple(change))
        or not _still(runner, both, near, range(_REDRAWN))
        or not _still(runner, both, change, range(1, _REDRAWN + _CONFIRMED + 1))
    ):
        return None
    others = [o for o in (*replayed.pairs, *replayed.reached(runner)) if not o.failed]
    reached = within_reach(both.a, [o.b for o in others if o.b.key != both.b.key]) and within_reach(
        both.b, [o.a for o in others if o.a.key != both.a.key]
    )
    settings = ", ".join(f"{source}[{i}] at its {value}" for (source, i), value in change.items())
    cost = f"on {len(others):,} tapes the other dataset gave no such output"
    if reached:
        cost = (
            "both outputs are plausible for the other dataset, so the branch costs at most its "
            "probability"
        )
    return Finding(
        kind="unnoised-branch",
        severity="warning" if reached else "error",
        statement=f"with {settings}, the output depends on the data but on no other draw: a "
        f"branch without noise; {cost}",
        witness=both.witness(),
    )


def _still(runner: Runner, both: PairedRuns, change: Changes, numbers: range) -> bool:
    # Whether both datasets give the outputs of ``both`` on other tapes (``numbers``) with the draws
    # in ``change`` set.
    return all(
        runner.on(world, number, change).key == key
        for number in numbers
        for world, key in ((0, both.a.key), (1, both.b.key))
    )


# -- one run --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Runner:
    r"""Runs a target on tapes, with RNG hooks and a time limit.

    ``runs`` counts all runs, and ``hangs`` those that exceeded the time limit. Tapes are numbered
    from 0; ``first`` is the seed of tape 0, and the seeds increase by 1.
    """

    target: Target
    pair: tuple[Any, Any]
    session: Session
    watchdog: Watchdog
    first: int
    runs: int = 0
    hangs: int = 0
    _fresh: tuple[Callable[[], Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = tuple(copies(f"dataset {'AB'[i]}", self.pair[i]) for i in (0, 1))

    def on(self, world: int, number: int, changes: Changes | None = None) -> Execution:
        r"""Run dataset A (``world`` 0) or B (1) on tape ``number`` after ``changes``, if given."""
        return self.run(world, Tape(self.first + number, changes))

    def both(self, number: int, changes: Changes | None = None) -> PairedRuns:
        return PairedRuns(a=self.on(0, number, changes), b=self.on(1, number, changes))

    def run(self, world: int, tape: Tape) -> Execution:
        r"""Run dataset A (``world`` 0) or B (1) on ``tape``, which no earlier run has read.

        Raises :class:`TargetFailed` after :data:`MOST_HANGS` runs that exceeded the time limit.
        """
        self.runs += 1
        dataset = self._fresh[world]()

        def call() -> Any:
            self.watchdog.restart()
            output = _call(self.target, dataset, self.session)
            require_readable(output)
            return captured(output)

        try:
            output = self.session.play(tape, call)
            self.watchdog.stop()
            row = row_of(output)
            found = Execution(
                output=output,
                key=identity(output),
                kind=kind(output),
                tape=tape,
                structure=row.structure,
                parts=_parts(row),
            )
        except RAISED as error:
            self.watchdog.stop()
            failed = failure(self.target.spelling, error, dataset="AB"[world])
            hangs = isinstance(error, TimeUp)
            self.hangs += hangs
            if self.hangs >= MOST_HANGS:
                raise failed from error
            name = "hangs" if hangs else f"raises {type(error).__name__}"
            message = "" if hangs else without_address(str(error))
            found = Execution(
                output=name, key=("failed", name, message), kind=name, tape=tape, error=failed
            )
        return found


def function_of(target: Target) -> Callable[..., Any] | None:
    r"""The Python function to replay, or None if the draws are made outside of Python code."""
    match target:
        case Scalar() | Vectorised():
            return target.function
        case NoiseAdded():
            return target.noise.sample
        case _:
            return None


def _call(target: Target, dataset: Any, session: Session) -> Any:
    match target:
        case NoiseAdded():
            return target.check((dataset, dataset))[0] + target.noise.sample()
        case Vectorised():
            outputs = target.function(dataset, n=1, rng=session.given(ours=target.ours))
            if not isinstance(outputs, np.ndarray | list | tuple) or len(outputs) != 1:
                raise Unreadable("did not return one output along the first axis for n = 1")
            return outputs[0]
        case Scalar():
            if target.seeded:
                return target.function(dataset, rng=session.given(ours=target.ours))
            return target.function(dataset)
        case _:  # function_of returned None
            raise Unreadable(f"{target.spelling} cannot be replayed")


def _parts(row: Row) -> dict[str, Cell]:
    # Numbers are compared exactly here, so labels of digits that floats lose are omitted.
    cells = [(path, cell) for path, cell in row.cells if not path.endswith(EXACT)]
    if len(cells) <= _MOST_PARTS:
        return dict(cells)
    return {path: cell for path, cell in cells if is_label(cell)}
