r"""Draw what was claimed and what was measured: over the runs, on a line, on a curve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from audit.claims.claim import shown as exact_decimal
from audit.evidence.trace import Trace
from audit.report.svg import (
    FAINT,
    INK,
    PAPER,
    A,
    B,
    Side,
    Ticks,
    drawing,
    fit_ticks,
    number_ticks,
    say,
    svg,
)
from dpcore.command.picture import outside_legend
from dpcore.numbers.rounding import down

__all__ = ["Point", "curve_figure", "line_figure", "trace_figure", "tradeoff_figure"]

_NEAR: Final = 0.2
r"""Texts that are closer than this share of the axis may meet."""

_LONGEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    r"""A claimed (epsilon, delta) that was tested, and the bound measured at its delta."""

    epsilon: float
    delta: float
    epsilon_lower: float
    refuted: bool


def trace_figure(found: Trace) -> str:
    r"""The bound against the runs it was drawn from, beside the claimed epsilon."""
    epsilon = float(found.claim.exact[0])
    with drawing("trace", 3.0) as (figure, axes):
        runs, bounds = [n for n, _ in found.points], [bound for _, bound in found.points]
        axes.axhline(epsilon, color=B, linewidth=1.4, linestyle="--", gid="claim")
        axes.plot(runs, bounds, color=A, linewidth=1.0, marker="o", markersize=4, gid="bounds")
        axes.set_xscale("log")
        axes.set_xlim(min(runs) / 1.3, max(runs) * 1.9)
        axes.set_ylim(0, max(epsilon, *bounds) * 1.2 or 1.0)
        axes.set_xlabel("runs, both datasets together (logarithmic axis)")
        delta = found.claim.exact[1]
        # A bound at a delta is one at every smaller delta, too.
        axes.set_ylabel(f"epsilon at delta = {_exactly(delta)}" if delta else "epsilon")
        beyond = bounds[-1] >= epsilon
        last = f"at least {down(bounds[-1])}"
        first, end = bounds[:4], bounds[-6:]
        # Beside the dashed line, at the end where the bounds are further from it.
        place = max(end) if beyond else min(end)
        left = min(abs(b - epsilon) for b in first) > min(abs(b - epsilon) for b in end)
        left = left or abs(place - epsilon) < _NEAR * axes.get_ylim()[1]
        align: Side = "left" if left else "right"
        axis_near = epsilon < _NEAR * axes.get_ylim()[1]
        above = axis_near or epsilon >= max(first if left else end)
        claimed = f"claimed: {_exactly(found.claim.exact[0])}"
        say(axes, (axes.get_xlim()[not left], epsilon), claimed, align, above=above)
        low = place < _NEAR * axes.get_ylim()[1]  # below it stand the numbers of the axis
        say(axes, (runs[-1], max(end) if low else place), last, "right", above=beyond or low)
        number_ticks(axes.yaxis)
        fit_ticks(axes.xaxis, _run_ticks(min(runs), max(runs)))
        axes.minorticks_off()
        words = f"{len(runs)} bounds, from {runs[0]:,} to {runs[-1]:,} runs; the last is {last}."
        return svg(figure, "trace", "The lower bound on epsilon as runs came in", words)


def _run_ticks(low: int, high: int) -> Iterator[Ticks]:
    # Round numbers for a logarithmic axis: choices from many to few.
    for digits in ((1, 2, 5), (1, 3), (1,)):
        round_numbers = [digit * 10**k for k in range(19) for digit in digits]
        yield [(n, f"{n:,}") for n in round_numbers if low <= n <= high]
    for every in range(2, 9):
        yield [(n, f"{n:,}") for n in (10**k for k in range(0, 19, every)) if low <= n <= high]


def line_figure(epsilon: Fraction, bound: float, words: str) -> str:
    r"""One axis of epsilon: what is claimed, and all that the evidence rules out."""
    with drawing("line", 1.6) as (figure, axes):
        claimed, infinite = float(epsilon), bound == math.inf
        right = (2.5 * claimed if infinite else 1.25 * max(claimed, bound)) or 1.0
        end = right if infinite else bound
        axes.barh(0, end, height=0.5, facecolor=PAPER, edgecolor=A, hatch="/////", gid="out")
        if infinite:
            arrow: dict[str, Any] = {"marker": ">", "markersize": 9, "clip_on": False}
            axes.plot(right, 0, color=A, gid="infinite", **arrow)
        axes.plot([claimed] * 2, [-0.45, 0.85], color=B, linewidth=2.5, gid="claim")
        axes.set_xlim(0, right)
        axes.set_ylim(-0.55, 1.3)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("epsilon")
        side: Side = "center"
        if abs(claimed - end) < 0.25 * right:  # the line of the claim would cross the words
            side = "left" if end >= claimed else "right"
        if infinite:
            side = "right"
        elif end < 0.3 * right and claimed - end > 0.5 * right:
            side = "left"
        shown = _exactly(epsilon)
        say(axes, (claimed, 0.8), f"claimed: {shown}", "center", above=True)
        say(axes, (end, 0.2), words, side, above=True)
        number_ticks(axes.xaxis)
        title = "What is claimed, and what is ruled out"
        out = "every epsilon" if infinite else f"every epsilon below {down(bound)}"
        said = f"Striped: {out} is ruled out. The claim is {shown}."
        return svg(figure, "line", title, said)


def curve_figure(curve: Sequence[tuple[float, float]], points: Sequence[Point]) -> str:
    r"""The claimed curve, delta against epsilon, with the points that were tested on it."""
    deltas = [delta for delta in (*(d for _, d in curve), *(p.delta for p in points)) if delta > 0]
    least = min((p.delta for p in points if p.delta > 0), default=min(deltas, default=1e-6))
    floor = 10.0 ** (math.floor(math.log10(least)) - 1)
    with drawing("curve", 3.6) as (figure, axes):
        drawn = [(e, d) for e, d in curve if d >= floor]
        if drawn:
            axes.plot(*zip(*drawn, strict=True), color=INK, linewidth=1.0, label="claimed curve")
        for name, marker, refuted in (("not refuted", "o", False), ("refuted", "X", True)):
            chosen = [point for point in points if point.refuted is refuted]
            places = [(point.epsilon, max(point.delta, floor)) for point in chosen]
            if places:
                colour = B if refuted else PAPER
                axes.plot(
                    *zip(*places, strict=True), marker, markersize=8, markerfacecolor=colour,
                    markeredgecolor=B if refuted else INK, label=f"tested: {name}",
                    gid="refuted" if refuted else "kept",
                )  # fmt: skip
        finite = [p.epsilon_lower for p in points if p.epsilon_lower < math.inf]
        right = 1.06 * max([e for e, _ in drawn] + [p.epsilon for p in points] + finite + [0.0])
        for i, point in enumerate(points):
            at, infinite = max(point.delta, floor), point.epsilon_lower == math.inf
            end = (right or 1.0) if infinite else point.epsilon_lower
            style: dict[str, Any] = {"color": A, "clip_on": False, "zorder": 3}
            if point.refuted:
                axes.plot([point.epsilon, end], [at, at], linewidth=1.2, **style)
            marker = "D" if infinite else ">"
            axes.plot(end, at, marker, markersize=6, gid=f"measured-{i}", **style)
        for marker, label, there in (
            (">", "measured: at least this", bool(finite) or not points),
            ("D", "infinite: no epsilon holds", len(finite) < len(points)),
        ):
            if there:
                axes.plot([], [], marker, color=A, markersize=6, label=label)
        axes.set_yscale("log")
        axes.set_ylim(floor / 1.6, 1.0)
        axes.set_xlim(0, right or 1.0)
        axes.minorticks_off()
        axes.set_xlabel("epsilon")
        axes.set_ylabel("delta (logarithmic axis)")
        outside_legend(figure, "outside upper left")
        number_ticks(axes.xaxis)
        fit_ticks(axes.yaxis, _delta_ticks(floor))
        beyond = sum(point.refuted for point in points)
        words = f"{len(points)} points of the claimed curve were tested, {beyond} are refuted."
        return svg(figure, "curve", "The claimed curve and what was refuted", words)


def tradeoff_figure(
    band: Sequence[tuple[float, float]], claimed: Sequence[tuple[float, float]]
) -> str:
    r"""The trade-off curve that was measured, an upper bound, beside the claimed one."""
    with drawing("tradeoff", 3.6) as (figure, axes):
        axes.plot([0, 1], [1, 0], color=FAINT, linewidth=0.8, label="perfect privacy")
        if claimed:
            line: dict[str, Any] = {"color": B, "linewidth": 1.4, "linestyle": "--"}
            axes.plot(*zip(*claimed, strict=True), label="claimed: not below", gid="claim", **line)
        axes.plot(
            *zip(*band, strict=True), color=A, linewidth=1.2, marker="o", markersize=3,
            label="measured: not above", gid="band",
        )  # fmt: skip
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("type I error: a run on A taken for one on B")
        axes.set_ylabel("type II error")
        outside_legend(figure, "outside upper left")
        number_ticks(axes.xaxis)
        number_ticks(axes.yaxis)
        words = f"The measured curve has {len(band)} corners, from (0, 1) to (1, 0)."
        return svg(figure, "tradeoff", "The trade-off curve, measured and claimed", words)


def _delta_ticks(floor: float) -> Iterator[Ticks]:
    # Powers of ten, 0 where the axis begins; a tick too near to it is left out.
    last = round(-math.log10(floor))
    for every in (1, 2, 5, 10, 20, 50, 100):
        powers = [k for k in range(0, last, every) if last - k >= every]
        yield [(floor, "0"), *((10.0**-k, f"1e-{k}" if k else "1") for k in powers)]


def _exactly(value: Fraction) -> str:
    # A claimed value as it was written; the first digits of what is too long for a picture.
    exact = exact_decimal(value)
    return exact if len(exact) <= _LONGEST else f"{down(value, 9)}…"
