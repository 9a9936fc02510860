r"""The parts of an HTML report that show a picture, each with the numbers it was drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from audit.evidence.trace import Trace
from audit.report.figures import Point, curve_figure, line_figure, trace_figure
from audit.report.histogram import Bin, Histogram
from audit.report.histogram_figure import cell_name, histogram_figure
from audit.report.markup import between, confidence, decimal, figure, folded, section, table, text
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import down

__all__ = ["claimed_section", "histogram_section", "trace_section"]


def histogram_section(document: Mapping[str, Any]) -> str:
    r"""How the outputs fell, as bars and as counts; nothing without ``histogram``."""
    if not document.get("histogram"):
        return ""
    found = Histogram.of_json(document["histogram"])
    several = len(document.get("pairs") or ()) > 1
    whole = f"All runs on pair {found.pair + 1}." if several else "All runs."
    note = (
        f"{whole} Filled bars: runs that lie in the event of the witness; open bars: the others. "
        "The witness itself is counted on fewer runs, those that had no part in choosing it."
        if found.event is not None
        else whole
    )
    rows = [
        [
            text(cell_name(c)),
            f"{c.count_a:,}",
            f"{c.count_b:,}",
            f"{c.inside_a:,}",
            f"{c.inside_b:,}",
        ]
        for c in found.bins
    ]
    columns = ["output", "A", "B", "A, in the witness", "B, in the witness"]
    return section(
        "Outputs in both worlds",
        figure(histogram_figure(found), note)
        + folded("The counts", table(columns, rows, "Runs by output")),
    )


def _counts(cell: Bin) -> tuple[int, ...]:
    return cell.count_a, cell.count_b, cell.inside_a, cell.inside_b


def claimed_section(document: Mapping[str, Any]) -> str:
    r"""The claim beside what was measured: a curve with its tested points, or one axis."""
    points = [_point(row) for row in document.get("outcomes") or ()]
    curve = [(float(e), float(d)) for e, d in document.get("curve") or ()]
    if curve or len({(point.epsilon, point.delta) for point in points}) > 1:
        note = (
            "A point is refuted where the measured epsilon at its delta is beyond it. "
            f"All bounds hold together with {confidence(document)} confidence."
        )
        return section("The claimed curve", figure(curve_figure(curve, _hardest(points)), note))
    claimed = document["claim"]["epsilon"]
    exact = document.get("exact")
    bound = float(document["epsilon_lower"] if exact is None else exact["epsilon"][0])
    if claimed is None or not (document["runs"] or exact):
        return ""
    sure = f"{confidence(document)} confidence" if exact is None else "proven"
    words = f"at least {down(bound)}" if exact is None else between(exact["epsilon"])
    if bound == math.inf:
        words = "infinite: no epsilon holds"
    picture = line_figure(rational("epsilon", claimed), bound, words)
    delta = document["claim"]["delta"]
    at = f" at delta = {decimal(delta)}" if rational("delta", delta) else ""
    out = "every epsilon" if bound == math.inf else "every smaller epsilon"
    note = f"Striped: {out} is ruled out{at} ({sure})."
    return section(
        "Claimed and measured" if exact is None else "Claimed and proven", figure(picture, note)
    )


def trace_section(document: Mapping[str, Any]) -> str:
    r"""The bound against the runs; nothing without ``trace``."""
    if not document.get("trace") or not document["trace"]["points"]:
        return ""
    found = Trace.of_json(document["trace"])
    sure = f"{down(100 * (1 - rational('alpha', found.alpha)), 6)}%"
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


def _point(row: Mapping[str, Any]) -> Point:
    return Point(
        epsilon=float(rational("epsilon", row["epsilon"])),
        delta=float(rational("delta", row["delta"])),
        epsilon_lower=float(row["epsilon_lower"]),
        refuted=row["refuted"],
    )


def _hardest(points: Iterable[Point]) -> list[Point]:
    # Of several pairs and features, what was measured highest at each claimed point.
    found: dict[tuple[float, float], Point] = {}
    for point in sorted(points, key=lambda point: (point.refuted, point.epsilon_lower)):
        found[point.epsilon, point.delta] = point
    return sorted(found.values(), key=lambda point: (point.epsilon, point.delta))
