r"""The sample layer: draw runs, test them, and report.

    sample(target, plan) = report_of(draw(target, plan))

All randomness of an audit is derived from its seed: the dataset of each run, the randomness passed
to the target for each dataset and block, and the randomisation of p-values. If the target uses no
other randomness, the same seed gives the same report. The report does not depend on the number of
processes, or on interruptions after which the audit is resumed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from audit.claims import Claim, CurveClaim
from audit.errors import TargetFailed
from audit.outputs.output_parser import UNREAD, oddities
from audit.outputs.rows import added_up
from audit.outputs.time_limit import stdout_to_stderr
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Drawing, Plan, Planned, Stream, block_of, probe_of, stream
from audit.runs.drawn_runs import DrawnRuns
from audit.sandbox.parallel_jobs import Drawer, check_reveals, drawer
from audit.statistical_tests.event import Witness
from audit.statistical_tests.multiple_testing import weigh, weigh_views
from audit.statistical_tests.sample_outcome import Weighed, unmeasured, versions
from audit.targets.target import Block, Target
from audit.verdict_words_and_exit_codes import INTERRUPTED
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational

if TYPE_CHECKING:
    from audit.resume import State

Progress = Callable[[int], None]
r"""A function that is called with the number of runs drawn so far."""

_CURVE_STEPS: Final = 60
_MOST_LEARNED: Final = 50_000
_FAILED: Final = "the target failed"
_DEADLINE: Final = "the deadline was reached"
_NO_LIMIT: Final = "drawn in threads: calls of the target had no time limit"


def sample(
    target: Target, plan: Plan, *, progress: Progress | None = None, state: State | None = None
) -> AuditReport:
    r"""Audit a target using only its outputs.

    If the target fails, the report contains the evidence before the failure, and ``error`` is set.
    After Ctrl-C the report contains the evidence so far, and ``error`` is None; if nothing was
    drawn, KeyboardInterrupt is raised.
    """
    return report_of(draw(target, plan, progress=progress, state=state))


def draw(
    target: Target, plan: Plan, *, progress: Progress | None = None, state: State | None = None
) -> DrawnRuns:
    r"""Draw all planned runs, or stop early at enough evidence, the deadline, a failure or Ctrl-C.

    ``state`` is an open state file (:func:`audit.resume.resume`) or None. The stored blocks of runs
    are not drawn again, and new blocks are stored.
    """
    found = _begun(target, plan)
    with stdout_to_stderr(), drawer(target, plan.jobs, plan.timeout, progress) as by:
        try:
            if found.repeatable and not by.keeps_to_its_seed(probe_of(plan)):
                found.repeatable = False
                found.notes.append(
                    "the target ignores the randomness it is given: --seed does not repeat its "
                    "outputs"
                )
            if not found.repeatable and plan.jobs != 1:
                found.notes.append(
                    "drawn by several processes: runs are independent only if the target seeds its "
                    "own randomness from the operating system"
                )
            stopped = _continue(found, by, state)
        except TargetFailed as error:
            found.error, stopped = error, _FAILED
            if state is None or error is not state.failed:  # a stored failure is not run again
                probe = replace(probe_of(plan), pair=plan.pairs[found.pair], drawn=found.runs)
                found.error = check_reveals(error, probe, by)
        except KeyboardInterrupt:
            if not found.runs:
                raise
            stopped = INTERRUPTED
    # The sequential test may end at any time; the test for a fixed number of runs may not.
    if stopped in {_DEADLINE, _FAILED, INTERRUPTED} and found.runs and not plan.sequential:
        found.notes.append(
            "ended before its planned runs: the confidence holds only if the time of the end does "
            "not depend on the outputs"
        )
    if state is not None and state.closed is not None:
        found.notes.append(f"stored only up to block {len(state.blocks):,}: {state.closed}")
    return found.finish(stopped)


def _begun(target: Target, plan: Plan) -> DrawnRuns:
    if plan.timed and not target.tells_time:
        reason = (
            "requires a Python function that is called once per run, f(dataset) or f(dataset, "
            "rng): a program, noise or a vectorised function has no time per run"
        )
        raise InvalidParameter("feature", "time", reason)
    found = DrawnRuns(plan=plan, target=target, repeatable=target.seeded and not plan.timed)
    if plan.timed:
        found.notes.append(
            "times depend on this machine and its load: another machine may reveal more or less, "
            "and --seed does not repeat them"
        )
    return found


def _continue(found: DrawnRuns, by: Drawer, state: State | None) -> str:
    # Continue after the stored blocks, one by one: the blocks of a plan may not fit in memory.
    blocks = found.plan.blocks()
    stored = [] if state is None else list(state.blocks)
    if stored and not found.repeatable:
        found.notes.append("resumed: the target was restarted, and draws its own randomness")
    for outputs, block in zip(stored, blocks, strict=False):
        found.keep(block, outputs)
        if found.rejected_at is not None:
            return f"the evidence sufficed at run {found.rejected_at:,}"
    if state is not None and state.failed is not None:
        raise state.failed
    try:
        return _draw(found, blocks, by, state)
    except TargetFailed as error:
        # A repeatable target fails again when it is drawn again. Any other target could be
        # restarted until it succeeds, and only its good runs would count; so its failure is stored.
        if state is not None and not found.repeatable:
            state.fail(error)
        raise


def _draw(found: DrawnRuns, rest: Iterator[Planned], by: Drawer, state: State | None) -> str:
    plan = found.plan
    until = math.inf if plan.deadline is None else time.time() + plan.deadline
    sent: deque[Planned] = deque()

    def blocks() -> Iterator[Block]:
        for block in rest:
            if time.time() >= until:
                return
            sent.append(block)
            yield block_of(plan, block, until=until)

    with closing(by.draw(blocks())) as drawings:
        for drawing in drawings:
            _keep(found, sent.popleft(), drawing, state)
            if found.rejected_at is not None:
                return f"the evidence sufficed at run {found.rejected_at:,}"
    return "as many as planned" if found.runs == plan.runs else _DEADLINE


def _keep(found: DrawnRuns, block: Planned, drawing: Drawing, state: State | None) -> None:
    found.pair = block.pair
    # Only complete blocks are stored. An incomplete block is drawn again when the audit is resumed.
    whole = found.runs + len(drawing.outputs) == block.drawn + block.runs
    if state is not None and whole:
        state.append(drawing.outputs)
    if not drawing.limited and _NO_LIMIT not in found.notes:
        found.notes.append(_NO_LIMIT)
    if whole or state is None or found.repeatable:
        found.keep(block, drawing.outputs)
    elif len(drawing.outputs):
        # A resumed audit draws new outputs for this block, so these outputs must not be tested too.
        found.notes.append("the unfinished block was not tested: a resumed audit draws it again")
    if drawing.error is not None:
        raise drawing.error
    if drawing.interrupted:
        raise KeyboardInterrupt


def seed_of_tests(plan: Plan) -> int:
    r"""The seed of the random draws that the tests use to make their p-values exact."""
    return int(stream(plan.seed, Stream.TEST).generate_state(1, np.uint64)[0])


def report_of(drawn: DrawnRuns) -> AuditReport:
    r"""Test the claim on the drawn runs, and return the report."""
    plan, alpha = drawn.plan, rational("alpha", drawn.plan.alpha)
    error, notes, several = drawn.error, list(drawn.notes), len(drawn.plan.pairs) > 1
    try:
        with drawn.reading():
            weighed = _weighed(drawn, alpha)
    except TargetFailed as failed:
        error = error or failed
        weighed = _weighed(replace(drawn, blocks=[]), alpha)
    try:
        with drawn.reading():
            for i in range(len(plan.pairs)):
                form = drawn.form(i)
                found = oddities(drawn.outputs(i), drawn.worlds(i), form)
                found += added_up(form.values(drawn.outputs(i)[:1]))
                notes += [f"pair {i + 1}: " * several + sentence for sentence in found]
    except TargetFailed as failed:
        error = error or failed
    unread = any(UNREAD in note for note in notes)
    if error is None:
        notes += unmeasured(weighed.coverage, several=several)
    return AuditReport(
        target=drawn.target.spelling,
        claim=plan.claim,
        pair=plan.pairs[weighed.outcomes[weighed.row].pair],
        pairs=plan.pairs if several else (),
        verdict=None if error is not None else weighed.verdict,
        epsilon_lower=weighed.epsilon_lower,
        at_delta=weighed.outcomes[weighed.row].claim.exact[1],
        alpha=alpha,
        p_value=weighed.p_value,
        e_value=weighed.e_value,
        runs_by_world=drawn.runs_by_world,
        stopped=drawn.stopped,
        interrupted=drawn.stopped == INTERRUPTED,
        witness=weighed.witness,
        resolution=math.inf if unread else weighed.resolution,
        features=tuple(dict.fromkeys(view.feature or "identity" for view in drawn.views)),
        floats=drawn.of_floats,
        coverage=weighed.coverage,
        layers=(weighed.layer,),
        outcomes=weighed.outcomes if len(weighed.outcomes) > 1 else (),
        row=weighed.row if len(weighed.outcomes) > 1 else 0,
        seed=plan.seed,
        repeatable=drawn.repeatable,
        error=error,
        warnings=tuple(notes),
        versions=versions(),
    )


def _weighed(drawn: DrawnRuns, alpha: Fraction) -> Weighed:
    plan, accept = drawn.plan, drawn.plan.allow_constant
    if drawn.process is not None:
        models = [view.models for view in drawn.views]
        return weigh(drawn.process, alpha, allow_constant=accept, models=models)
    return weigh_views(
        drawn.views, plan.claim, alpha, seed=seed_of_tests(plan), allow_constant=accept
    )


def run_baselines(
    report: AuditReport, drawn: DrawnRuns, baselines: tuple[str, ...], *, figures: bool
) -> AuditReport:
    r"""Add the bounds of other methods and, if ``figures`` is true, figure data to a report.

    The bounds of other methods are for the pair, feature and point of ``epsilon_lower``.
    """
    from audit.outputs.reading import read
    from audit.report.figure_data import histogram, tradeoff_band
    from audit.statistical_tests.clopper_pearson_and_other_baselines import compare
    from audit.statistical_tests.multiple_testing import LEADER
    from audit.statistical_tests.trace import trace

    plan = drawn.plan
    outcome = report.outcomes[report.row] if report.outcomes else None
    every = drawn.views
    place, feature = (0, every[0].feature) if outcome is None else (outcome.pair, outcome.feature)
    witness, named = report.witness, [(each.pair, each.feature) for each in every]
    test = (place, feature)
    if feature == LEADER:  # show the view that the leader followed
        followed = witness.feature if isinstance(witness, Witness) else None
        feature = followed or next(name for pair, name in named if pair == place)
    which = named.index((place, feature))
    view, views = every[which], len(named)
    part = view.weight / sum((each.weight for each in every), Fraction(0))
    found = compare(
        baselines,
        view.outputs,
        view.worlds,
        delta=report.at_delta,
        alpha=rational("alpha", report.alpha) * part,
        seed=plan.seed,
    )
    doubts = []
    if plan.sequential:  # baselines do not allow a number of runs that depends on the outputs
        doubts.append("for a number of runs fixed beforehand")
    if view.models is not None:  # a score depends on earlier runs
        doubts.append("on learned scores, for which it has no proof")
    if doubts:
        found = tuple(replace(b, valid=False, says="; ".join((b.says, *doubts))) for b in found)
    report = replace(report, baselines=found)
    if not figures:
        return report
    event = witness.where if isinstance(witness, Witness) else None
    band = tradeoff_band(
        view.outputs,
        view.worlds,
        learned=min(plan.runs // (2 * len(plan.pairs)), _MOST_LEARNED),
        alpha=rational("alpha", report.alpha) / views,
        claim=plan.claim.points,
    )
    return replace(
        report,
        tradeoff_band=None if band is None else replace(band, pair=place, feature=feature),
        histogram=histogram(
            view.outputs,
            view.worlds,
            None if witness is None else witness.event,
            None if event is None else event.holds(read(view.outputs)),
            () if event is None else event.spans(),
            pair=place,
            feature=feature,
        ),
        trace=trace(
            every,
            plan.claim,
            report.alpha,
            seed=seed_of_tests(plan),
            watched=plan.sequential,
            test=test,
            point=plan.claim.points[0] if outcome is None else outcome.claim,
        ),
        curve=_curve(plan.claim),
    )


def _curve(claim: Claim | CurveClaim) -> tuple[tuple[float, float], ...]:
    if isinstance(claim, Claim):
        return ()
    last = max(point.exact[0] for point in claim.points)
    epsilons = [last * i / _CURVE_STEPS for i in range(_CURVE_STEPS + 1)]
    return tuple((float(epsilon), claim.delta_upper(epsilon)) for epsilon in epsilons)
