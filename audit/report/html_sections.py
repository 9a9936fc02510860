r"""Sections of an audit's page: witness, figures, tests, and method.

Bounds are rounded down, p-values and probabilities up. The pictures need matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from audit.claims.claim import Claim, format_rational
from audit.claims.verdicts import format_p_value
from audit.formats.html_page import Section, as_json, code, copied
from audit.formats.result import format_enclosure
from audit.formats.shorten import shortened
from audit.report.audit_record import AuditRecord, ExactWitness
from audit.report.sentences import confidence, leak, scored
from audit.statistical_tests.event import Witness
from audit.statistical_tests.sample_outcome import Outcome
from dpcore.numbers.rounding import down, up

if TYPE_CHECKING:
    from audit.replay.replay_report import Finding
    from audit.report.figure_data import Histogram, TradeoffBand
    from audit.statistical_tests.clopper_pearson_baselines import BaselineFinding
    from audit.statistical_tests.trace import Trace

_EVENT: Final = 1_500
_STRONG: Final = Markup("<strong>{}</strong>")


def pairs(report: AuditRecord) -> Iterator[tuple[str, object]]:
    r"""The claim and the audited pairs, in full."""
    yield "claim", f"{report.claim} ({report.claim.to_json()['relation']})"
    listed = report.pairs or (report.pair,)
    for i, (a, b) in enumerate(listed):
        name = f"pair {i + 1}" if len(listed) > 1 else "pair"
        yield name, Markup("A = {}, B = {}").format(code(as_json(a)), code(as_json(b)))


def witness(report: AuditRecord) -> Iterator[Section]:
    r"""The section on the witness: the event and its counts or probabilities."""
    found = report.witness
    if isinstance(found, Witness):
        yield _sampled(found, refutes=report.verdict not in {"not_refuted", "nothing_measured"})
    elif found is not None:
        yield _proven(found)


def sections(report: AuditRecord) -> Iterator[Section]:
    r"""The sections of a report that have content."""
    yield from witness(report)
    yield from _pictures(report)
    yield from _tables(report)


def _pictures(report: AuditRecord) -> Iterator[Section]:
    if report.histogram is not None:
        yield _histogram(report.histogram, several=len(report.pairs) > 1)
    if report.curve or len({row.claim.exact for row in report.outcomes}) > 1:
        yield _claimed_curve(report)
    elif isinstance(report.claim, Claim) and (report.runs or report.exact):
        yield _claimed_point(report, report.claim)
    if report.tradeoff_band is not None:
        yield _tradeoff(report.tradeoff_band)
    if report.trace is not None and report.trace.points:
        yield _trace(report.trace)


def _tables(report: AuditRecord) -> Iterator[Section]:
    if len(report.outcomes) > 1:
        yield _outcomes(report.outcomes)
    if report.fit is not None:
        yield Section(
            title="Does the sampler follow its claimed distribution?",
            facts=[
                (name.replace("_", " "), value if isinstance(value, str) else as_json(value))
                for name, value in report.to_json()["fit"].items()
                if value is not None
            ],
        )
    if report.findings:
        yield Section(title="Replay findings", facts=list(map(_finding, report.findings)))
    if report.baselines:
        yield _baselines(report.baselines)
    if report.search is not None:
        found = as_json(report.search.to_json(), indent=2)
        yield Section(title="Search for a pair", copied=copied(found))
    if report.layers:
        sure = f"All bounds hold with {confidence(report.alpha)} confidence."
        yield Section(
            note=sure if report.runs else "",
            columns=("layer", "method", "meaning of its result"),
            rows=[(each.layer, each.method, each.proves) for each in report.layers],
            folded="Method: the layers, and the meaning of their results",
        )


def _sampled(found: Witness, *, refutes: bool) -> Section:
    note = (
        "The event was fixed by earlier runs, and counted on later ones. "
        f"{'It' if refutes else 'It does not refute the claim; it'} points to dataset "
        f"{found.world}. The ratio of the shares is not a bound: the bound is the epsilon above."
    )
    if found.score is not None:
        note += f" The score was {scored(found.score)}."
    if refutes and (why := leak(found.feature)) is not None:
        note += f" It reads {why}."
    return Section(
        title="Witness",
        copied=copied(replace(found, event=shortened(found.event, _EVENT))),
        id="witness",
        columns=("dataset", "runs in the event", "runs", "share"),
        rows=[
            ("A", *_counted(found.inside_a, found.runs_a)),
            ("B", *_counted(found.inside_b, found.runs_b)),
        ],
        note=copied(note),
    )


def _counted(inside: int, runs: int) -> tuple[str, str, str]:
    share = f"{down(Fraction(100 * inside, runs), 3)}%" if runs else ""
    return f"{inside:,}", f"{runs:,}", share


def _proven(found: ExactWitness) -> Section:
    return Section(
        title="Witness",
        copied=copied(found),
        id="witness",
        columns=("dataset", "probability (proven)"),
        rows=[
            ("A", format_enclosure(found.probability_a)),
            ("B", format_enclosure(found.probability_b)),
        ],
        note=f"The event that violates the claim most; it points to dataset {found.world}.",
    )


def _histogram(found: Histogram, *, several: bool) -> Section:
    from audit.report.figures import cell_name, histogram_figure

    note = f"All runs on pair {found.pair + 1}." if several else "All runs."
    if found.event is not None:
        note += (
            " Filled bars: runs in the event of the witness; open bars: the others. The witness "
            "itself is counted on fewer runs, those that were not used to choose it."
        )
    return Section(
        title="Outputs on both datasets",
        svg=histogram_figure(found),
        note=note,
        folded="The counts",
        columns=("output", "A", "B", "A, in the witness", "B, in the witness"),
        rows=[
            (cell_name(c), *map("{:,}".format, (c.count_a, c.count_b, c.inside_a, c.inside_b)))
            for c in found.bins
        ],
    )


def _claimed_curve(report: AuditRecord) -> Section:
    from audit.report.figures import curve_figure

    return Section(
        title="The claimed curve",
        svg=curve_figure(report.curve, [*report.hardest().values()]),
        note="A point is refuted if the measured epsilon at its delta exceeds its epsilon. All "
        f"bounds hold together with {confidence(report.alpha)} confidence.",
    )


def _claimed_point(report: AuditRecord, claim: Claim) -> Section:
    from audit.report.figures import line_figure

    epsilon, delta = claim.exact
    proven = None if report.exact is None else report.exact.epsilon
    sure = f"{confidence(report.alpha)} confidence" if proven is None else "proven"
    bound = report.epsilon_lower if proven is None else proven.lower_float
    words = f"at least {down(bound)}" if proven is None else format_enclosure(proven)
    out = "every smaller epsilon"
    if bound == math.inf:
        words, out = "infinite: no finite epsilon holds", "every epsilon"
    at = f" at delta = {format_rational(delta)}" if delta else ""
    return Section(
        title="Claimed and measured" if proven is None else "Claimed and proven",
        svg=line_figure(epsilon, bound, words),
        note=f"Striped: {out} is ruled out{at} ({sure}).",
    )


def _tradeoff(band: TradeoffBand) -> Section:
    from audit.report.figures import tradeoff_figure

    return Section(
        title="The trade-off curve",
        svg=tradeoff_figure(band.points, band.claimed),
        note=(
            "The least errors of any test of a single run. The true curve lies below the measured "
            f"one everywhere, with {confidence(band.alpha)} confidence; if the measured curve is "
            "below the claimed one anywhere, the claim does not hold."
        ),
        folded="The corners",
        columns=("type I error", "type II error at most"),
        rows=[(up(x, 4), up(y, 4)) for x, y in band.points],
    )


def _trace(found: Trace) -> Section:
    from audit.report.figures import trace_figure

    sure = f"with {confidence(found.alpha)} confidence"
    return Section(
        title="The bound over the runs",
        svg=trace_figure(found),
        note=f"Each single point is a lower bound {sure}, from that many runs."
        if found.holds == "each"
        else f"All points are simultaneous lower bounds, {sure}.",
        folded="The bounds",
        columns=("runs", "epsilon at least"),
        rows=[(f"{runs:,}", down(bound)) for runs, bound in found.points],
    )


def _outcomes(rows: Sequence[Outcome]) -> Section:
    weight = "p-value" if rows[0].e_value is None else "e-value"
    return Section(
        title="All tests",
        columns=("pair", "feature", "epsilon", "delta", weight, "epsilon at least", "refuted"),
        rows=list(map(_outcome, rows)),
        note=(
            "The tests share the false-alarm level of the audit; each value refers to its own test."
        ),
    )


def _outcome(row: Outcome) -> tuple[object, ...]:
    weight = "none" if row.p_value is None else format_p_value(row.p_value)
    return (
        str(row.pair + 1),
        "outputs themselves" if row.feature is None else code(row.feature),
        *map(format_rational, row.claim.exact),
        weight if row.e_value is None else down(row.e_value, 3),
        down(row.epsilon_lower),
        _STRONG.format("refuted") if row.refuted else "no",
    )


def _finding(found: Finding) -> tuple[str, Markup]:
    kind = Markup('<span class="kind">[{}]</span>').format(copied(found.kind))
    statement = Markup("{} {}").format(copied(found.statement), kind)
    if found.witness:
        evidence = as_json(found.to_json()["witness"], indent=2)
        statement += Markup('<pre class="copy">{}</pre>').format(copied(evidence))
    return found.named, statement


def _baselines(found: Sequence[BaselineFinding]) -> Section:
    return Section(
        title="Other methods",
        note="Only for comparison: these numbers do not affect the verdict.",
        columns=("method", "epsilon", "remark", "a confidence bound"),
        rows=[
            (
                row.name,
                "none" if row.epsilon_lower is None else down(row.epsilon_lower),
                row.says,
                "yes" if row.valid else _STRONG.format("no"),
            )
            for row in found
        ],
    )
