r"""The pictures of an audit report, as inline SVG: text stays text, colours follow the page.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. The same data give the same
bytes. Ink and fills are CSS variables of the page (``--ink``, ``--a``, ``--b``, ...), so that one
picture serves light, dark and print; whatever a colour says, a shape or a word says too.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from audit.histogram import Bin, Histogram
from audit.markup import printable
from audit.trace import Trace
from dpcore.decimals import down, up
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Point", "check_figures", "curve_figure", "histogram_figure", "line_figure"]
__all__ += ["trace_figure"]

_WIDTH: Final = 4.8
_INK, _FAINT, _A, _B, _MARK, _PAPER = (f"#00000{i}" for i in range(1, 7))
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _FAINT: "var(--faint)",
    _A: "var(--a)",
    _B: "var(--b)",
    _MARK: "var(--mark)",
    _PAPER: "var(--paper)",
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
}
_LOGARITHMIC: Final = 25
_TICKS: Final = 9
_NAME: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    r"""A claimed (epsilon, delta) that was tested, and the bound measured at its delta."""

    epsilon: float
    delta: float
    epsilon_lower: float
    refuted: bool


def check_figures(path: str) -> None:
    r"""Whether pictures can be drawn at all, before hours are spent on what they show.

    Raises :class:`InvalidParameter` without matplotlib, by the name of the extra.
    """
    try:
        import_module("matplotlib")  # found is not enough: it may be half installed
    except ImportError:
        reason = "needs matplotlib: pip install 'dpcore[plot]', or leave it out"
        raise InvalidParameter("--html", path, reason) from None


def histogram_figure(found: Histogram) -> str:
    r"""Bars for both worlds, cell by cell; runs in the witness are filled, the others pale.

    >>> cell = Bin(label="0", count_a=3, count_b=1, low=0.0, high=0.0)
    >>> histogram_figure(Histogram(bins=(cell,), runs_a=3, runs_b=1))[:21]
    '<svg class="figure" x'
    """
    upright = all(cell.low is not None or cell.high is not None for cell in found.bins)
    height = 3.3 if upright else 1.2 + 0.27 * len(found.bins)
    with _drawing("histogram", height) as (figure, axes):
        _bars(axes, found, upright=upright)
        largest = max((max(cell.count_a, cell.count_b) for cell in found.bins), default=0)
        inside = max((max(cell.inside_a, cell.inside_b) for cell in found.bins), default=0)
        runs, cells = (axes.yaxis, axes.xaxis) if upright else (axes.xaxis, axes.yaxis)
        label = "runs"
        if inside and largest > _LOGARITHMIC * inside:
            (axes.set_yscale if upright else axes.set_xscale)("log")
            (axes.set_ylim if upright else axes.set_xlim)(0.7, largest * 1.6)
            label = "runs (logarithmic axis)"
        runs.set_major_formatter(
            lambda value, _: f"{value:,.0f}" if value >= 1 or not value else ""
        )
        runs.set_label_text(label)
        through = "" if found.feature is None else f", read through {_cut(found.feature, 40)}"
        cells.set_label_text(f"output{through}")
        if upright:
            _number_ticks(axes, found.bins)
        else:
            axes.set_yticks(range(len(found.bins)), [_cut(cell.label) for cell in found.bins])
            axes.set_ylim(len(found.bins) - 0.4, -0.6)
        _legend(figure, found)
        title = "How the outputs fell in both worlds"
        return _svg(figure, "histogram", title, _histogram_words(found))


def _bars(axes: Axes, found: Histogram, *, upright: bool) -> None:
    draw: Any = axes.bar if upright else axes.barh
    wide = "width" if upright else "height"
    span: Any = axes.axvspan if upright else axes.axhspan
    for i, cell in enumerate(found.bins):
        if cell.in_witness != "none":
            span(i - 0.5, i + 0.5, color=_MARK, linewidth=0, antialiased=False, gid=f"witness-{i}")
        for world, offset, total, inside in (
            ("a", -0.2, cell.count_a, cell.inside_a),
            ("b", 0.2, cell.count_b, cell.inside_b),
        ):
            for name, runs, filled in (("bar", total, False), ("inside", inside, True)):
                if runs:
                    look = {**_look(world, filled=filled), wide: 0.4}
                    draw(i + offset, runs, **look)[0].set_gid(f"{name}-{world}-{i}")


def _look(world: str, *, filled: bool) -> dict[str, Any]:
    # B is striped: the worlds differ in more than their colour.
    colour, hatch = (_A, "") if world == "a" else (_B, "//////")
    face, edge = (colour, _PAPER if hatch else colour) if filled else (_PAPER, colour)
    return {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 0.6}


def _legend(figure: Figure, found: Histogram) -> None:
    from matplotlib.patches import Patch

    filled = found.event is not None
    handles = [
        Patch(**_look("a", filled=filled), label=f"A: {found.runs_a:,} runs"),
        Patch(**_look("b", filled=filled), label=f"B: {found.runs_b:,} runs"),
    ]
    if filled:
        handles.append(Patch(facecolor=_MARK, label="witness"))
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def _number_ticks(axes: Axes, bins: Sequence[Bin]) -> None:
    every = -(-len(bins) // _TICKS)
    shown: list[tuple[float, str]] = []
    for i, cell in enumerate(bins):
        is_open = cell.low is None or cell.high is None
        if is_open or (cell.low == cell.high and i % every == 0):
            shown.append((i, cell.label))
        elif cell.low != cell.high and i % every == 0 and 1 < i < len(bins) - 2:
            shown.append((i - 0.5, f"{cell.low:g}"))
    axes.set_xticks([place for place, _ in shown], [label for _, label in shown])
    axes.set_xlim(-0.7, len(bins) - 0.3)


def _histogram_words(found: Histogram) -> str:
    inside_a = sum(cell.inside_a for cell in found.bins)
    inside_b = sum(cell.inside_b for cell in found.bins)
    words = f"{len(found.bins)} cells, {found.runs_a:,} runs of A and {found.runs_b:,} of B"
    if found.event is None:
        return f"{words}."
    return f"{words}. In the event of the witness: {inside_a:,} runs of A, {inside_b:,} of B."


def trace_figure(found: Trace) -> str:
    r"""The bound against the runs it was drawn from, beside the claimed epsilon."""
    epsilon = float(found.claim.exact[0])
    with _drawing("trace", 3.0) as (figure, axes):
        runs, bounds = [n for n, _ in found.points], [bound for _, bound in found.points]
        axes.axhline(epsilon, color=_B, linewidth=1.4, linestyle="--", gid="claim")
        axes.plot(runs, bounds, color=_A, linewidth=1.0, marker="o", markersize=4, gid="bounds")
        axes.set_xscale("log")
        axes.set_xlim(min(runs) / 1.3, max(runs) * 1.9)
        axes.set_ylim(0, max(epsilon, *bounds) * 1.2 or 1.0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_formatter("")
        if max(runs) < 100 * min(runs):  # few powers of ten: name what is between them
            ticks = [m * 10**k for k in range(13) for m in (1, 2, 5)]
            axes.set_xticks([n for n in ticks if min(runs) <= n <= max(runs)])
        axes.set_xlabel("runs, both worlds together (logarithmic axis)")
        delta = found.claim.exact[1]
        axes.set_ylabel(f"epsilon at delta = {up(delta)}" if delta else "epsilon")
        beyond = bounds[-1] >= epsilon
        last = f"at least {down(bounds[-1])}"
        first, end = bounds[:4], bounds[-6:]
        # Beside the dashed line, at the end where the bounds are further from it.
        left = min(abs(b - epsilon) for b in first) > min(abs(b - epsilon) for b in end)
        align: _Side = "left" if left else "right"
        above = epsilon >= max(first if left else end)
        _say(
            axes, (axes.get_xlim()[not left], epsilon), f"claimed: {epsilon:g}", align, above=above
        )
        _say(axes, (runs[-1], max(end) if beyond else min(end)), last, "right", above=beyond)
        words = f"{len(runs)} bounds, from {runs[0]:,} to {runs[-1]:,} runs; the last is {last}."
        return _svg(figure, "trace", "The lower bound on epsilon as runs came in", words)


def line_figure(claimed: float, bound: float, words: str) -> str:
    r"""One axis of epsilon: what is claimed, and all that the evidence rules out."""
    with _drawing("line", 1.6) as (figure, axes):
        right = 1.25 * max(claimed, bound) or 1.0
        axes.barh(0, bound, height=0.5, facecolor=_PAPER, edgecolor=_A, hatch="/////", gid="out")
        axes.plot([claimed] * 2, [-0.45, 0.85], color=_B, linewidth=2.5, gid="claim")
        axes.set_xlim(0, right)
        axes.set_ylim(-0.55, 1.3)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("epsilon")
        side: _Side = "center"
        if abs(claimed - bound) < 0.25 * right:  # the line of the claim would cross the words
            side = "left" if bound >= claimed else "right"
        _say(axes, (claimed, 0.8), f"claimed: {claimed:g}", "center", above=True)
        _say(axes, (bound, 0.2), words, side, above=True)
        title = "What is claimed, and what is ruled out"
        said = f"Striped: every epsilon below {down(bound)} is ruled out. The claim is {claimed:g}."
        return _svg(figure, "line", title, said)


def curve_figure(curve: Sequence[tuple[float, float]], points: Sequence[Point]) -> str:
    r"""The claimed curve, delta against epsilon, with the points that were tested on it."""
    deltas = [delta for delta in (*(d for _, d in curve), *(p.delta for p in points)) if delta > 0]
    least = min((p.delta for p in points if p.delta > 0), default=min(deltas, default=1e-6))
    floor = 10.0 ** (math.floor(math.log10(least)) - 1)
    with _drawing("curve", 3.6) as (figure, axes):
        drawn = [(e, d) for e, d in curve if d >= floor]
        if drawn:
            axes.plot(*zip(*drawn, strict=True), color=_INK, linewidth=1.0, label="claimed curve")
        for name, marker, refuted in (("not refuted", "o", False), ("refuted", "X", True)):
            chosen = [point for point in points if point.refuted is refuted]
            places = [(point.epsilon, max(point.delta, floor)) for point in chosen]
            if places:
                colour = _B if refuted else _PAPER
                axes.plot(
                    *zip(*places, strict=True), marker, markersize=8, markerfacecolor=colour,
                    markeredgecolor=_B if refuted else _INK, label=f"tested: {name}",
                    gid="refuted" if refuted else "kept",
                )  # fmt: skip
        for i, point in enumerate(points):
            at = max(point.delta, floor)
            style: dict[str, Any] = {"color": _A, "linewidth": 1.2}
            if point.refuted:
                axes.plot([point.epsilon, point.epsilon_lower], [at, at], **style)
            axes.plot(point.epsilon_lower, at, ">", color=_A, markersize=6, gid=f"measured-{i}")
        axes.plot([], [], ">", color=_A, markersize=6, label="measured: at least this")
        axes.set_yscale("log")
        axes.set_ylim(floor / 1.6, 1.0)
        axes.set_xlim(left=0)
        axes.margins(x=0.06)
        ticks = [10.0**k for k in range(round(math.log10(floor)) + 1, 1)]
        ticks = ticks[:: -(-len(ticks) // 8)]
        axes.set_yticks([floor, *ticks], ["0", *(_power(tick) for tick in ticks)])
        axes.minorticks_off()
        axes.set_xlabel("epsilon")
        axes.set_ylabel("delta (logarithmic axis)")
        figure.legend(loc="outside upper left", ncols=2)
        beyond = sum(point.refuted for point in points)
        words = f"{len(points)} points of the claimed curve were tested, {beyond} are refuted."
        return _svg(figure, "curve", "The claimed curve and what was refuted", words)


def _power(value: float) -> str:
    return "1" if value == 1.0 else f"{value:.0e}".replace("e-0", "e-")


def _cut(text: str, most: int = _NAME) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - 3] + "..."


_Side: TypeAlias = Literal["left", "center", "right"]


def _say(axes: Axes, at: tuple[float, float], text: str, side: _Side, *, above: bool) -> None:
    aside = {"left": 4, "center": 0, "right": -4}[side]
    axes.annotate(
        text, at, (aside, 5 if above else -5), textcoords="offset points",
        ha=side, va="bottom" if above else "top",
    )  # fmt: skip


@contextmanager
def _drawing(name: str, height: float) -> Iterator[tuple[Figure, Axes]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text is never mathematics here: a dollar sign in a label is a dollar sign.
    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name, "text.parse_math": False}
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        yield figure, axes


_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def _svg(figure: Figure, name: str, title: str, words: str) -> str:
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # Text stays text: what matplotlib's own font lacks, the reader's may have.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="svg", metadata=_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    # The page has its own style, and says itself what the picture is.
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    # Several figures share a page: every id gets the name of its figure.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    opening, rest = text.split(">", 1)
    opening = re.sub(r' (?:width|height)="[^"]*"', "", opening).removeprefix("<svg")
    head = (
        f'<svg class="figure"{opening} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(words)}</desc>'
    )
    return head + rest
