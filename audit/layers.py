r"""Run the layers of an audit one after the other, and join their results in one report.

    exact     both laws are known: a proof or a refutation            audit.exact.proof
    fit       does what is drawn have the law that was proven about?  audit.fit.fit
    sample    black box, runs on both datasets                        audit.sample
    replay    one tape for both datasets                              audit.replay.replay

Layers that draw share the false-alarm level. Only what contradicts the claim refutes it. A sampler
that does not have its law, and a fault that replay found, are findings: they take a proof away,
because it was about something else, and the exit code says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from audit.claims.claim import Claim
from audit.claims.curve_claim import CurveClaim
from audit.claims.verdicts import INTERRUPTED, LayerRun
from audit.errors import TargetFailed
from audit.evidence.verdict import versions
from audit.replay.findings import Finding
from audit.report.report import AuditReport
from audit.runs.plan import Plan
from audit.search.neighbours import doubts
from audit.targets.spelling import read_target
from audit.targets.target import Catalogued, KnownLaw, Target
from audit.wording.result import plain
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational
from dpcore.spelling import write_noise

if TYPE_CHECKING:
    from audit.fit.report import FitReport
    from audit.search.search import Found
    from audit.search.space import Space

__all__ = ["LAYERS", "Wanted", "examine"]

LAYERS: Final = ("exact", "fit", "replay", "sample")
r"""The layers by name, strongest first."""

_REPLAY: Final = LayerRun(
    layer="replay",
    method="one random tape for both datasets, and tapes with draws at extremes",
    proves="a fault is an error in the code or breaks what was declared; it refutes no claim",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    r"""Which layers to run, and what else to put in the report.

    ``space`` is searched for the pair first, and ``found`` is what came of it; ``state`` is the
    file of a resumable audit.
    """

    layers: tuple[str, ...] = ("sample",)
    baselines: tuple[str, ...] = ()
    space: Space | None = None
    found: Found | None = None
    state: Path | None = None
    figures: bool = False


def examine(
    target: Target, plan: Plan, wanted: Wanted, *, progress: Callable[[int], None] | None = None
) -> AuditReport:
    r"""Audit a target by every wanted layer.

    >>> from audit.claims.claim import Claim
    >>> from audit.targets.spelling import read_target
    >>> plan = Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=2000, alpha="1e-9", seed=7)
    >>> wanted = Wanted(layers=("exact", "fit", "sample"))
    >>> report = examine(read_target("discrete-laplace:scale=1"), plan, wanted)
    >>> report.verdict, [layer.layer for layer in report.layers]
    ('proven', ['exact', 'fit', 'sample'])

    Raises :class:`InvalidParameter` for a layer that the target has not, and what the layers raise.
    """
    found = None
    if wanted.space is not None and plan.timed:
        raise InvalidParameter("feature", "time", "is for pairs that are given, not for a search")
    if wanted.space is not None:
        found = _kept_search(target, plan, wanted, wanted.space)
        if found is None:
            from audit.search.search import search

            found = search(
                target,
                plan.claim,
                wanted.space,
                runs=plan.runs,
                seed=plan.seed,
                timeout=plan.timeout,
                features=plan.features,
                jobs=plan.jobs,
                progress=progress,
            )
        plan = replace(plan, pair=found.pair, others=(), runs=plan.runs - found.runs)
    report = _of_layers(target, plan, replace(wanted, found=found), progress)
    said = () if found is not None else _doubted(target, plan)
    return replace(report, search=found, warnings=(*said, *report.warnings))


def _doubted(target: Target, plan: Plan) -> tuple[str, ...]:
    # Of the pairs that somebody wrote down; an entry of the catalogue knows its own.
    own = target.subject.pair if isinstance(target, Catalogued) else None
    several = len(plan.pairs) > 1
    return tuple(
        (f"pair {i}: " if several else "") + doubt
        for i, pair in enumerate(plan.pairs, 1)
        if pair is not own
        for doubt in doubts(pair, plan.claim.relation)
    )


def _kept_search(target: Target, plan: Plan, wanted: Wanted, space: Space) -> Found | None:
    # What the first start of a resumed audit found: a second one tests the same pair.
    if wanted.state is None:
        return None
    from audit.resume.checkpoint import stored_search, stored_seed
    from audit.search.search import Found, training_runs

    path = str(wanted.state)
    held = stored_search(path)
    if held is None:
        if stored_seed(path) is None:
            return None
        raise InvalidParameter("--resume", path, "was begun without a search")
    found = Found.of_json(held)
    if found.space != space.spelling:
        raise InvalidParameter("--resume", path, "was begun with another search")
    if not space.neighbours(*found.pair) or not 0 <= found.runs <= training_runs(plan.runs):
        reason = "is damaged or hostile: it holds a search of another space"
        raise InvalidParameter("--resume", path, reason)
    target.check(found.pair)
    return found


def _of_layers(
    target: Target, plan: Plan, wanted: Wanted, progress: Callable[[int], None] | None
) -> AuditReport:
    drawing = [layer for layer in ("fit", "sample") if layer in wanted.layers]
    shared = replace(plan, alpha=rational("alpha", plan.alpha) / max(len(drawing), 1))
    report: AuditReport | None = None
    if "exact" in wanted.layers:
        from audit.exact.proof import prove  # with accounting, which runs alone do not need

        report = prove(_known(target, "exact"), plan)
    fitted = _fitted(_known(target, "fit"), shared) if "fit" in wanted.layers else None
    ended = fitted is not None and (fitted.error is not None or fitted.stopped == INTERRUPTED)
    if "sample" in wanted.layers and not ended:
        sampled = _adjusted(_sampled(target, shared, wanted, progress), len(drawing))
        if report is None:
            report = sampled
        else:
            from audit.exact.proof import both

            report = both(report, sampled)
    report = report or _nothing_drawn(target, plan)
    if fitted is not None:
        report = _with_fit(report, fitted)
    # Last: what a target keeps from its tapes must not reach runs that are tested.
    if "replay" in wanted.layers and report.error is None and not report.interrupted:
        report = _with_replay(report, target, plan)
    return replace(report, alpha=rational("alpha", plan.alpha))


def _adjusted(report: AuditReport, layers: int) -> AuditReport:
    # What is held against the whole level, although the layers share it.
    return replace(
        report,
        p_value=None if report.p_value is None else min(1.0, report.p_value * layers),
        e_value=None if report.e_value is None else report.e_value / layers,
    )


def _known(target: Target, layer: str) -> KnownLaw:
    if isinstance(target, KnownLaw):
        return target
    reason = f"the law of {target.spelling} is not known: name a noise, or leave this layer out"
    raise InvalidParameter("layers", layer, reason)


def _nothing_drawn(target: Target, plan: Plan) -> AuditReport:
    return AuditReport(
        target=target.spelling,
        claim=plan.claim,
        pair=plan.pair,
        pairs=plan.pairs if plan.others else (),
        verdict="not_refuted",
        epsilon_lower=0.0,
        alpha=plan.alpha,
        runs_by_world=(0, 0),
        stopped="no runs: the sample layer was not asked for",
        seed=plan.seed,
        versions=versions(),
    )


# -- sample ---------------------------------------------------------------------------------------


def _sampled(
    target: Target, plan: Plan, wanted: Wanted, progress: Callable[[int], None] | None
) -> AuditReport:
    from audit.sample import beside, draw, report_of

    if wanted.state is None:
        drawn = draw(target, plan, progress=progress)
    else:
        from audit.resume.checkpoint import resume

        searched = None if wanted.found is None else wanted.found.to_json()
        with resume(wanted.state, target, plan, searched) as state:
            drawn = draw(target, plan, progress=progress, state=state)
    report = report_of(drawn)
    if drawn.runs and report.error is None and (wanted.baselines or wanted.figures):
        try:
            with drawn.reading():
                report = beside(report, drawn, wanted.baselines, figures=wanted.figures)
        except TargetFailed as failed:
            report = replace(report, verdict=None, error=failed)
    return report


# -- fit ------------------------------------------------------------------------------------------


def _fitted(target: KnownLaw, plan: Plan) -> FitReport:
    from audit.fit.fit import fit

    if not all(isinstance(place, int) for pair in plan.pairs for place in target.places(pair)):
        reason = f"is for one integer, and {target.spelling} has several"
        raise InvalidParameter("layers", "fit", reason)
    return fit(
        target,
        target.noise,
        runs=plan.runs,
        alpha=rational("alpha", plan.alpha),
        seed=plan.seed,
        sequential=plan.sequential,
        timeout=plan.timeout,
        deadline=plan.deadline,
    )


def _with_fit(report: AuditReport, fitted: FitReport) -> AuditReport:
    layer = LayerRun(layer="fit", method=fitted.method[0], proves=fitted.method[1])
    place = sum(layer.layer == "exact" for layer in report.layers)
    report = replace(
        report,
        fit=fitted,
        layers=(*report.layers[:place], layer, *report.layers[place:]),
        error=report.error or fitted.error,
        warnings=(*report.warnings, *(f"fit: {warning}" for warning in fitted.warnings)),
        interrupted=report.interrupted or fitted.stopped == INTERRUPTED,
    )
    if report.error is not None:
        return replace(report, verdict=None)
    if fitted.verdict != "refuted":
        return report
    found = Finding(
        kind="not-its-law",
        severity="error",
        statement=f"what is drawn does not have the law {write_noise(fitted.law)}",
        witness={} if fitted.witness is None else plain(fitted.witness),
    )
    return _without_proof(replace(report, findings=(*report.findings, found)))


def _without_proof(report: AuditReport) -> AuditReport:
    # It was about a law, or about code that uses its randomness properly: this code does neither.
    return replace(report, verdict="not_refuted") if report.verdict == "proven" else report


# -- replay ---------------------------------------------------------------------------------------


def _replayed(target: Target, plan: Plan) -> tuple[Finding, ...]:
    from audit.apart.room import Remote, done_apart, importing

    if not isinstance(target, Remote):
        return _of_replay(target, plan)

    def there() -> list[dict[str, Any]]:
        with importing(plan.timeout):
            subject = read_target(target.spelling)
        return [finding.to_json() for finding in _of_replay(subject, plan)]

    found = done_apart(target.spelling, there, timeout=plan.timeout)
    return tuple(Finding(**fields) for fields in found)


def _of_replay(target: Target, plan: Plan) -> tuple[Finding, ...]:
    from audit.replay.replay import replay

    found: list[Finding] = []
    for pair in plan.pairs:
        report = replay(
            target,
            pair,
            sensitivity=_declared(plan.claim),
            seed=plan.seed,
            timeout=plan.timeout,
            deadline=plan.deadline,
        )
        found += [finding for finding in report.findings if finding not in found]
    return tuple(found)


def _declared(claim: Claim | CurveClaim) -> Fraction | None:
    # NOISE@SENSITIVITY declares that the output is a query that moves by so much, plus noise.
    if not isinstance(claim, CurveClaim) or "@" not in claim.spelling:
        return None
    moves = claim.spelling.rpartition("@")[2]
    return Fraction(moves) if moves.isdecimal() else None


def _with_replay(report: AuditReport, target: Target, plan: Plan) -> AuditReport:
    # Whatever becomes of it, what was found before is kept.
    try:
        findings = _replayed(target, plan)
    except TargetFailed as error:
        return replace(report, verdict=None, error=error)
    except KeyboardInterrupt:
        if not report.runs:
            raise
        return replace(_without_proof(report), interrupted=True)
    empty = {"elsewhere", "own-entropy", *(() if plan.allow_constant else ("constant",))}
    if not report.layers and any(finding.kind in empty for finding in findings):
        # It was the only layer, and looked at nothing.
        report = replace(report, verdict="nothing_measured")
    report = replace(
        report, findings=(*report.findings, *findings), layers=(*report.layers, _REPLAY)
    )
    faults = any(finding.severity == "error" for finding in findings)
    return _without_proof(report) if faults else report
