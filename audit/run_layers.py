r"""Run the layers of an audit in order, and merge their results in one report.

    exact     both laws are known: a proof or a refutation            audit.known_laws.exact_layer
    fit       do the draws follow the law that the proof assumes?      audit.fit.fit
    sample    black box, runs on both datasets                        audit.sample_layer
    replay    one tape for both datasets                              audit.replay.replay_both

Layers that draw share the false-alarm level. Only evidence against the claim refutes it. A sampler
that does not follow its law, and a fault found by replay, are findings: they violate the
assumptions of a proof, so they invalidate it, and they change the exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from audit.claims.claim import Claim, CurveClaim
from audit.claims.verdicts import INTERRUPTED, LayerRun
from audit.errors import TargetFailed
from audit.formats.result import plain
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.statistical_tests.sample_outcome import versions
from audit.targets.target import KnownLaw, Shifted, Target
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational

if TYPE_CHECKING:
    from audit.fit.fit import FitReport
    from audit.replay.replay_report import Finding
    from dpcore.noise import Noise

_REPLAY: Final = LayerRun(
    layer="replay",
    method="one random tape for both datasets, and tapes with draws set to extremes",
    proves="a fault is an error in the code or a violated declaration; it does not refute the "
    "claim",
)


def run_layers(
    target: Target,
    plan: Plan,
    layers: tuple[str, ...],
    sampled_with: Callable[[Plan], AuditReport],
) -> AuditReport:
    r"""Run the layers of these names; ``sampled_with(plan)`` is the sample layer."""
    drawing = [layer for layer in ("fit", "sample") if layer in layers]
    level = rational("alpha", plan.alpha)
    shared = replace(plan, alpha=level / max(len(drawing), 1))
    report: AuditReport | None = None
    fitted: FitReport | None = None
    if isinstance(target, KnownLaw) and "exact" in layers:
        from audit.known_laws.exact_layer import prove  # imports accounting: slow

        report = prove(target, plan)
    if isinstance(target, KnownLaw) and target.noise is not None and "fit" in layers:
        fitted = _fitted(target, target.noise, shared)
    ended = fitted is not None and (fitted.error is not None or fitted.stopped == INTERRUPTED)
    if "sample" in layers and not ended:
        sampled = _adjusted(sampled_with(shared), len(drawing))
        if report is None:
            report = sampled
        else:
            from audit.known_laws.exact_layer import join_layers

            report = join_layers(report, sampled)
    report = _nothing_drawn(target, plan) if report is None else report
    if fitted is not None:
        report = _with_fit(report, fitted)
    # Replay is last, so that state which the target keeps from a replay cannot affect tested runs.
    if "replay" in layers and report.error is None and not report.interrupted:
        report = _with_replay(report, target, plan)
    return replace(report, alpha=level)


def _adjusted(report: AuditReport, layers: int) -> AuditReport:
    # Scale the evidence, so that it is compared with the whole level although the layers share it.
    return replace(
        report,
        p_value=None if report.p_value is None else min(1.0, report.p_value * layers),
        e_value=None if report.e_value is None else report.e_value / layers,
    )


def _nothing_drawn(target: Target, plan: Plan) -> AuditReport:
    return AuditReport(
        target=target.spelling,
        claim=plan.claim,
        pair=plan.pair,
        pairs=plan.pairs if len(plan.pairs) > 1 else (),
        verdict="not_refuted",
        epsilon_lower=0.0,
        alpha=plan.alpha,
        runs_by_world=(0, 0),
        stopped="no runs: the sample layer was not requested",
        seed=plan.seed,
        versions=versions(),
    )


# -- fit ------------------------------------------------------------------------------------------


def _fitted(target: KnownLaw, noise: Noise, plan: Plan) -> FitReport:
    from audit.fit.fit import fit

    laws = [law for pair in plan.pairs for law in target.laws(pair)]
    if not all(isinstance(law, Shifted) and isinstance(law.shift, int) for law in laws):
        reason = (
            f"needs outputs that are single integers, but {target.spelling} has several coordinates"
        )
        raise InvalidParameter("layers", "fit", reason)
    own = plan.only("runs", "alpha", "seed", "sequential", "timeout", "deadline")
    return fit(target, noise, **own)


def _with_fit(report: AuditReport, fitted: FitReport) -> AuditReport:
    place = sum(layer.layer == "exact" for layer in report.layers)
    report = replace(
        report,
        fit=fitted,
        layers=(*report.layers[:place], fitted.method, *report.layers[place:]),
        error=report.error or fitted.error,
        warnings=(*report.warnings, *(f"fit: {warning}" for warning in fitted.warnings)),
        interrupted=report.interrupted or fitted.stopped == INTERRUPTED,
    )
    if report.error is not None:
        return replace(report, verdict=None)
    if fitted.verdict != "refuted":
        return report
    from audit.replay.replay_report import Finding
    from dpcore.parse_noise import write_noise

    found = Finding(
        kind="not-its-law",
        severity="error",
        statement=f"the draws do not follow {write_noise(fitted.law)}",
        witness={} if fitted.witness is None else plain(fitted.witness),
    )
    return _without_proof(replace(report, findings=(*report.findings, found)))


def _without_proof(report: AuditReport) -> AuditReport:
    # The proof assumed that the code follows its law and uses its randomness properly; it does not.
    return replace(report, verdict="not_refuted") if report.verdict == "proven" else report


# -- replay ---------------------------------------------------------------------------------------


def _replayed(target: Target, plan: Plan) -> tuple[Finding, ...]:
    from audit.sandbox.sandboxed_target import Remote, importing, run_isolated

    if not isinstance(target, Remote):
        return _replay_findings(target, plan)

    def there() -> list[dict[str, Any]]:
        with importing(plan.timeout):
            subject = read_target(target.spelling)
        return [finding.to_json() for finding in _replay_findings(subject, plan)]

    from audit.replay.replay_report import Finding

    found = run_isolated(target.spelling, there, timeout=plan.timeout)
    return tuple(Finding(**fields) for fields in found)


def _replay_findings(target: Target, plan: Plan) -> tuple[Finding, ...]:
    from audit.replay.replay_both import replay

    own = plan.only("norm", "strict", "tapes", "changes", "seed", "timeout", "deadline")
    own["sensitivity"] = _declared(plan.claim) if plan.sensitivity is None else plan.sensitivity
    found: list[Finding] = []
    for pair in plan.pairs:
        report = replay(target, pair, **own)
        found += [finding for finding in report.findings if finding not in found]
    return tuple(found)


def _declared(claim: Claim | CurveClaim) -> Fraction | None:
    # NOISE@SENSITIVITY declares that the output is a query with this sensitivity, plus noise.
    if not isinstance(claim, CurveClaim) or "@" not in claim.spelling:
        return None
    moves = claim.spelling.rpartition("@")[2]
    return Fraction(moves) if moves.isdecimal() else None


def _with_replay(report: AuditReport, target: Target, plan: Plan) -> AuditReport:
    # The results of the earlier layers are kept for every outcome of the replay.
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
        # Replay was the only layer, and it could not examine anything.
        report = replace(report, verdict="nothing_measured")
    report = replace(
        report, findings=(*report.findings, *findings), layers=(*report.layers, _REPLAY)
    )
    faults = any(finding.severity == "error" for finding in findings)
    return _without_proof(report) if faults else report
