r"""The parts of an HTML report that show a picture, each with the numbers it was drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable

from audit.claims.claim import Claim, shown
from audit.evidence.verdict import Outcome
from audit.report.figures import Point, curve_figure, line_figure, trace_figure, tradeoff_figure
from audit.report.histogram_figure import cell_name, histogram_figure
from audit.report.markup import figure, folded, section, table, text
from audit.report.report import AuditReport
from audit.report.sentences import confidence
from audit.wording.lines import between
from dpcore.numbers.rounding import down, up

__all__ = ["claimed_section", "histogram_section", "trace_section", "tradeoff_section"]


def histogram_section(report: AuditReport) -> str:
    r"""The histogram of outputs, as bars and as counts; nothing without ``histogram``."""
    found = report.histogram
    if found is None:
        return ""
    several = len(report.pairs) > 1
    whole = f"All runs on pair {found.pair + 1}." if several else "All runs."
    note = (
        f"{whole} Filled bars: runs that lie in the event of the witness; open bars: the others. "
        "The witness itself is counted on fewer runs, those that had no part in choosing it."
        if found.event is not None
        else whole
    )
    rows = [
        [text(cell_name(c)), *map("{:,}".format, (c.count_a, c.count_b, c.inside_a, c.inside_b))]
        for c in found.bins
    ]
    columns = ["output", "A", "B", "A, in the witness", "B, in the witness"]
    return section(
        "Outputs on both datasets",
        figure(histogram_figure(found), note)
        + folded("The counts", table(columns, rows, "Runs by output")),
    )


def claimed_section(report: AuditReport) -> str:
    r"""The claim beside what was measured: a curve with its tested points, or one axis."""
    points = [_point(row) for row in report.outcomes]
    curve = list(report.curve)
    if curve or len({(point.epsilon, point.delta) for point in points}) > 1:
        note = (
            "A point is refuted where the measured epsilon at its delta is beyond it. "
            f"All bounds hold together with {confidence(report.alpha)} confidence."
        )
        return section("The claimed curve", figure(curve_figure(curve, _hardest(points)), note))
    claim, exact = report.claim, report.exact
    if not isinstance(claim, Claim) or not (report.runs or exact):
        return ""
    bound = report.epsilon_lower if exact is None else exact.epsilon.lower_float
    claimed, delta = claim.exact
    sure = f"{confidence(report.alpha)} confidence" if exact is None else "proven"
    words = f"at least {down(bound)}" if exact is None else between(exact.epsilon)
    if bound == math.inf:
        words = "infinite: no epsilon holds"
    picture = line_figure(claimed, bound, words)
    at = f" at delta = {shown(delta)}" if delta else ""
    out = "every epsilon" if bound == math.inf else "every smaller epsilon"
    note = f"Striped: {out} is ruled out{at} ({sure})."
    return section(
        "Claimed and measured" if exact is None else "Claimed and proven", figure(picture, note)
    )


def trace_section(report: AuditReport) -> str:
    r"""The bound against the runs; nothing without ``trace``."""
    found = report.trace
    if found is None or not found.points:
        return ""
    sure = confidence(found.alpha)
    note = (
        f"Each point is by itself a lower bound with {sure} confidence, from that many runs."
        if found.holds == "each"
        else f"All points are lower bounds at once, with {sure} confidence."
    )
    rows = [[f"{runs:,}", down(bound)] for runs, bound in found.points]
    return section(
        "The bound as runs came in",
        figure(trace_figure(found), note)
        + folded("The bounds", table(["runs", "epsilon at least"], rows, "Bounds by runs")),
    )


def tradeoff_section(report: AuditReport) -> str:
    r"""The measured trade-off curve beside the claimed one; nothing without ``tradeoff_band``."""
    found = report.tradeoff_band
    if found is None:
        return ""
    note = (
        "What a test of one run can do: the errors it must make. The true curve lies below the "
        f"measured one everywhere, with {confidence(found.alpha)} confidence; where that is below "
        "the claimed one, the claim does not hold."
    )
    rows = [[up(x, 4), up(y, 4)] for x, y in found.points]
    counts = table(["type I error", "type II error at most"], rows, "The measured curve")
    picture = figure(tradeoff_figure(found.points, found.claimed), note)
    return section("The trade-off curve", picture + folded("The corners", counts))


def _point(row: Outcome) -> Point:
    epsilon, delta = map(float, row.claim.exact)
    return Point(epsilon=epsilon, delta=delta, epsilon_lower=row.epsilon_lower, refuted=row.refuted)


def _hardest(points: Iterable[Point]) -> list[Point]:
    # Of several pairs and features, what was measured highest at each claimed point.
    found: dict[tuple[float, float], Point] = {}
    for point in sorted(points, key=lambda point: (point.refuted, point.epsilon_lower)):
        found[point.epsilon, point.delta] = point
    return sorted(found.values(), key=lambda point: (point.epsilon, point.delta))
