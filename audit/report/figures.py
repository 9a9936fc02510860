r"""Plot the claim and the measurements with matplotlib (``pip install 'dpcore[plot]'``).

Figures are inline SVG: text stays text, and the same data give the same bytes. Colours are CSS
variables of the page (``--ink``, ``--a``, ``--b``, ...), so that one figure serves a light page, a
dark page and print. Every colour is accompanied by a shape or a word.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from audit.claims import format_rational as exact_decimal
from audit.formats.shorten import distinct, printable
from audit.report.figure_data import Bin, Histogram
from audit.statistical_tests.sample_outcome import Outcome
from audit.statistical_tests.trace import Trace
from dpcore.cli.figure_file import axes_or_new, number_log_axes, outside_legend, tick_number
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


_WIDTH: Final = 4.8
# Placeholder colours, which become CSS variables of the page.
INK, FAINT, A, B, MARK, PAPER = (f"#00000{i}" for i in range(1, 7))
_NAMES: Final = {INK: "ink", FAINT: "faint", A: "a", B: "b", MARK: "mark", PAPER: "paper"}
_STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    # A font at least as wide as those of common systems, because the reader's font is unknown.
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # no mathematics in labels: a dollar sign is text
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
}
_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@contextmanager
def drawing(name: str, height: float) -> Iterator[tuple[Figure, Axes]]:
    r"""A context with a new figure of ``height`` inches and its axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name}
    with rc_context(style), warnings.catch_warnings():
        # Glyphs missing in matplotlib's font may exist on the reader's system.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
        yield figure, figure.add_subplot(facecolor="none")


def svg(figure: Figure, name: str, title: str, words: str) -> Markup:
    r"""Convert a figure to an SVG element with the alternative text ``words``."""
    number_log_axes(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    # The page provides the style and the description of the picture.
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub("<[^>]*>", lambda tag: _tag(tag[0], name), text)
    opening, rest = text.split(">", 1)
    opening = re.sub(r' (?:width|height)="[^"]*"', "", opening).removeprefix("<svg")
    head = (
        f'<svg class="figure"{opening} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(words)}</desc>'
    )
    return Markup(head + rest)  # noqa: S704  # matplotlib's own, and escaped words


def _tag(tag: str, name: str) -> str:
    # Prefix every id with the name of its figure, because several figures share a page. Text of the
    # target is outside of tags and stays unchanged.
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    for colour, variable in _NAMES.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return tag


_LONGEST: Final = 20  # characters of a claimed value in a picture
_NAME: Final = 32  # characters of an output's name: this many of the widest ones fit
_ROOM: Final = 56  # characters that fit along the axis of numbers
_RARE: Final = (
    25  # the axis is logarithmic if the highest bar is this many times that of the witness
)
_SEEN: Final = 0.1  # the least drawn width of an interval of the event, as a fraction of a bin
_TALL: Final = 1 / 20
_ODD: Final = {"inf": "inf (infinite)", "-inf": "-inf (infinite)", "nan": "nan (not a number)"}
_DOTTED: Final[dict[str, Any]] = {"edgecolor": INK, "linestyle": ":", "linewidth": 0.6}


def histogram_figure(found: Histogram) -> Markup:
    r"""Draw a bar for each bin and dataset; the runs in the event of the witness are filled."""
    numbers = not any(_is_label(cell) for cell in found.bins)
    with drawing("histogram", 3.3 if numbers else 1.3 + 0.4 * len(found.bins)) as (figure, axes):
        upright = (axes.yaxis, axes.set_yscale, axes.set_ylim)
        flat = (axes.xaxis, axes.set_xscale, axes.set_xlim)
        runs, scale, limits = upright if numbers else flat
        largest = max((max(cell.count_a, cell.count_b) for cell in found.bins), default=0)
        inside = max((max(cell.inside_a, cell.inside_b) for cell in found.bins), default=0)
        _cells(axes, found, largest, upright=numbers)
        through = ""
        if found.feature is not None:
            through = f", read through {distinct([printable(found.feature)], _NAME)[0]}"
        if numbers:
            axes.set_xlabel(f"output{through}")
            axes.set_xlim(-0.7, len(found.bins) - 0.3)
            _number_cells(axes, found.bins)
        else:
            axes.set_title(f"output{through}", loc="left", fontsize="medium")
            axes.set_ylim(len(found.bins) - 0.4, -0.6)
            axes.set_yticks([])
            names = distinct([printable(cell_name(cell)) for cell in found.bins], _NAME)
            for i, name in enumerate(names):
                place = axes.get_yaxis_transform()
                axes.text(0.01, i - 0.32, name, va="center", transform=place)
        if inside and largest > _RARE * inside:
            scale("log")
            limits(0.7, largest * 1.6)
            runs.set_label_text("runs (logarithmic axis)")
        else:
            limits(0.0, max(largest, 1) * 1.06)
            runs.set_label_text("runs")
            _rounded(runs, "{x:,.0f}", integer=True)
        _histogram_legend(figure, found, largest)
        title = "Frequencies of the outputs on both datasets"
        return svg(figure, "histogram", title, _histogram_words(found))


def cell_name(cell: Bin) -> str:
    r"""The label of a bin: numbers with thousands separators, names unchanged."""
    if _is_label(cell):
        return _ODD.get(cell.label, cell.label)
    return " ".join(map(_grouped, cell.label.split(" ")))


def _is_label(cell: Bin) -> bool:
    return cell.low is None and cell.high is None


def _grouped(word: str) -> str:
    whole, point, rest = word.partition(".")
    plain = whole.removeprefix("-").isdecimal() and (rest.isdecimal() or not point)
    return f"{int(whole):,}{point}{rest}" if plain else word


def _cells(axes: Axes, found: Histogram, largest: int, *, upright: bool) -> None:
    # B is striped, so that the datasets differ in more than colour. A name is above its bars.
    span: Any = axes.axvspan if upright else axes.axhspan
    bar: Any = axes.bar if upright else axes.barh
    transform = axes.get_xaxis_transform() if upright else axes.get_yaxis_transform()
    wide, thick, middle = ("width", 0.4, 0.0) if upright else ("height", 0.29, 0.13)
    for i, cell in enumerate(found.bins):
        for low, high in cell.covered or ([(0.0, 1.0)] if cell.in_witness == "all" else []):
            centre, half = i - 0.5 + (low + high) / 2, max(high - low, _SEEN) / 2
            span(centre - half, centre + half, facecolor=MARK, linewidth=0, gid=f"witness-{i}")
        if _is_part(cell):
            span(i - 0.47, i + 0.47, facecolor="none", gid=f"part-{i}", **_DOTTED)
        for world, side, total, inside in (
            ("a", -0.5, cell.count_a, cell.inside_a),
            ("b", 0.5, cell.count_b, cell.inside_b),
        ):
            place = i + middle + side * thick
            for name, runs, filled in (("bar", total, False), ("inside", inside, True)):
                if runs:
                    look = {**_look(world, filled=filled), wide: thick}
                    bar(place, runs, **look)[0].set_gid(f"{name}-{world}-{i}")
            if not total and _is_one_sided(cell, largest):
                at = ([place], [0.025]) if upright else ([0.025], [place])
                style: dict[str, Any] = {"color": INK, "markersize": 4}
                axes.plot(*at, "x", gid=f"none-{world}-{i}", transform=transform, **style)


def _is_part(cell: Bin) -> bool:
    # In an unbounded bin, or among other names, the end of the event has no position.
    return cell.in_witness == "part" and not cell.covered


def _is_one_sided(cell: Bin, largest: int) -> bool:
    # Mark cells where only one dataset has runs: the ratio is infinite, which no bar shows.
    return not min(cell.count_a, cell.count_b) and cell.runs >= max(_TALL * largest, 2)


def _look(world: str, *, filled: bool) -> dict[str, Any]:
    colour, hatch = (A, "") if world == "a" else (B, "//////")
    face, edge = (colour, PAPER if hatch else colour) if filled else (PAPER, colour)
    return {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 0.6}


def _number_cells(axes: Axes, bins: Sequence[Bin]) -> None:
    # The label of a bin is its number, or the lower end of its interval. Unbounded bins are always
    # labelled; the other bins are labelled as space permits, rounder numbers first.
    beyond = [(float(i), cell_name(cell)) for i, cell in enumerate(bins) if cell.is_open]
    closed = [(i, cell) for i, cell in enumerate(bins) if not cell.is_open]
    named = [
        (float(i), cell_name(cell)) if cell.low == cell.high else (i - 0.5, _number(cell.low))
        for i, cell in closed
    ]
    low, high = (closed[0][1].low, closed[0][1].high) if closed else (0.0, 0.0)
    origin = round((low or 0.0) / (((high or 0.0) - (low or 0.0)) or 1.0))
    ticks = beyond
    for every in (1, 2, 5, 10, 20, 50):
        kept = [one for k, one in enumerate(named) if not (origin + k) % every]
        kept = [one for one in kept if all(_apart(one, end, len(bins)) for end in beyond)]
        ticks = sorted([*beyond, *kept])
        if all(_apart(one, other, len(bins)) for one, other in pairwise(ticks)):
            break
    axes.set_xticks([place for place, _ in ticks], [name for _, name in ticks])


def _apart(one: tuple[float, str], other: tuple[float, str], bins: int) -> bool:
    (left, name), (right, after) = one, other
    return abs(right - left) * _ROOM / bins >= (len(name) + len(after)) / 2 + 2


def _number(value: float | None) -> str:
    whole = value is not None and value.is_integer() and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.6g}"


def _rounded(axis: Axis, write: str = "{x:,.10g}", *, integer: bool = False) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=integer))
    low, high = axis.get_view_interval()
    if 1e-4 < high - low < 1e6:
        axis.set_major_formatter(StrMethodFormatter(write))


def _histogram_legend(figure: Figure, found: Histogram, largest: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    filled = found.event is not None
    handles: list[Any] = [
        Patch(**_look("a", filled=filled), label=f"A: {found.runs_a:,} runs"),
        Patch(**_look("b", filled=filled), label=f"B: {found.runs_b:,} runs"),
    ]
    if filled:
        handles.append(Patch(facecolor=MARK, **_DOTTED, label="witness"))
    if any(map(_is_part, found.bins)):
        handles.append(Patch(facecolor="none", **_DOTTED, label="in part"))
    if any(_is_one_sided(cell, largest) for cell in found.bins):
        cross: dict[str, Any] = {"marker": "x", "markersize": 4, "linestyle": "", "color": INK}
        handles.append(Line2D([], [], **cross, label="no run: infinite ratio"))
    outside_legend(figure, "outside upper left", handles=handles)


def _histogram_words(found: Histogram) -> str:
    words = f"{len(found.bins)} cells, {found.runs_a:,} runs of A and {found.runs_b:,} of B."
    if found.event is None:
        return words
    inside_a = sum(cell.inside_a for cell in found.bins)
    inside_b = sum(cell.inside_b for cell in found.bins)
    return f"{words} In the event of the witness: {inside_a:,} runs of A, {inside_b:,} of B."


def trace_figure(found: Trace) -> Markup:
    r"""Draw the lower bound on epsilon against the number of runs, and the claimed epsilon."""
    epsilon, delta = found.claim.exact
    runs, bounds = [n for n, _ in found.points], [bound for _, bound in found.points]
    last = f"at least {down(bounds[-1])}"
    with drawing("trace", 3.2) as (figure, axes):
        claimed: dict[str, Any] = {"color": B, "linewidth": 1.4, "linestyle": "--"}
        axes.axhline(float(epsilon), label=f"claimed: {_exactly(epsilon)}", gid="claim", **claimed)
        measured: dict[str, Any] = {"color": A, "linewidth": 1.0, "marker": "o", "markersize": 4}
        axes.plot(runs, bounds, label=f"measured: {last}", gid="bounds", **measured)
        axes.set(
            xscale="log",
            ylim=(0, max(float(epsilon), *bounds) * 1.2 or 1.0),
            xlabel="runs, both datasets together (logarithmic axis)",
            # A lower bound on epsilon at some delta also holds at every smaller delta.
            ylabel=f"epsilon at delta = {_exactly(delta)}" if delta else "epsilon",
        )
        outside_legend(figure, "outside upper left")
        _rounded(axes.yaxis)
        words = f"{len(runs)} bounds, from {runs[0]:,} to {runs[-1]:,} runs; the last is {last}."
        return svg(figure, "trace", "The lower bound on epsilon over the runs", words)


def line_figure(epsilon: Fraction, bound: float, words: str) -> Markup:
    r"""Draw an epsilon axis with the claimed value, and the values that the audit rules out."""
    claimed, infinite, written = float(epsilon), bound == math.inf, _exactly(epsilon)
    right = (2.5 * claimed if infinite else 1.25 * max(claimed, bound)) or 1.0
    with drawing("line", 1.6) as (figure, axes):
        out: dict[str, Any] = {"facecolor": PAPER, "edgecolor": A, "hatch": "/////", "gid": "out"}
        axes.barh(0, right if infinite else bound, height=0.7, label=words, **out)
        if infinite:
            axes.plot(right, 0, ">", color=A, markersize=9, clip_on=False, gid="infinite")
        mark: dict[str, Any] = {"color": B, "linewidth": 2.5, "gid": "claim"}
        axes.plot([claimed] * 2, [-0.55, 0.55], label=f"claimed: {written}", **mark)
        axes.set(xlim=(0, right), ylim=(-0.6, 0.6), yticks=[], xlabel="epsilon")
        axes.spines["left"].set_visible(False)
        outside_legend(figure, "outside upper left")
        _rounded(axes.xaxis)
        ruled = "every epsilon" if infinite else f"every epsilon below {down(bound)}"
        described = f"Striped: {ruled} is ruled out. The claim is {written}."
        return svg(figure, "line", "The claim, and the values that are ruled out", described)


def plot_points(
    rows: Sequence[tuple[Fraction, Fraction, float]], ax: Axes | None, *, title: str
) -> Axes:
    r"""Draw claimed points, given as (epsilon, delta, lower bound on epsilon), on ``ax``."""
    axes = axes_or_new(ax)
    ends = [float(epsilon) for epsilon, _, _ in rows] + [b for *_, b in rows if b < math.inf]
    right = 1.25 * max(ends) or 1.0
    out: dict[str, Any] = {"height": 0.7, "facecolor": "white", "edgecolor": "tab:red"}
    for i, (epsilon, _, bound) in enumerate(rows):
        label = "ruled out: every smaller epsilon" if i == 0 else None
        axes.barh(i, min(bound, right), hatch="///", label=label, **out)
        if bound == math.inf:
            axes.plot(right, i, ">", color="tab:red", markersize=9, clip_on=False)
        label = "claimed epsilon" if i == 0 else None
        axes.plot([float(epsilon)] * 2, [i - 0.45, i + 0.45], "k", linewidth=2.5, label=label)
    axes.set_yticks(range(len(rows)), [f"delta = {float(delta):.3g}" for _, delta, _ in rows])
    axes.set(xlim=(0, right), ylim=(-0.8, len(rows)), xlabel="epsilon", title=title)
    axes.legend(loc="upper right")
    return axes


def curve_figure(curve: Sequence[tuple[float, float]], tested: Sequence[Outcome]) -> Markup:
    r"""Draw the claimed curve, delta over epsilon, with the tested points."""
    deltas = [float(row.claim.exact[1]) for row in tested]
    least = min([d for d in deltas if d > 0] or [d for _, d in curve if d > 0] or [1e-6])
    decades = 1 - math.floor(math.log10(least))
    floor = 10.0**-decades  # where a delta of 0 is drawn
    points = [
        (float(row.claim.exact[0]), max(delta, floor), row.epsilon_lower, row.refuted)
        for row, delta in zip(tested, deltas, strict=True)
    ]
    drawn = [(e, d) for e, d in curve if d >= floor]
    ends = [e for e, _ in drawn] + [e for e, _, _, _ in points]
    right = 1.06 * max([*ends, *(m for _, _, m, _ in points if m < math.inf)], default=0) or 1.0
    with drawing("curve", 3.6) as (figure, axes):
        if drawn:
            axes.plot(*zip(*drawn, strict=True), color=INK, linewidth=1.0, label="claimed curve")
        labels: dict[str, str] = {}
        for i, (epsilon, delta, measured, refuted) in enumerate(points):
            infinite = measured == math.inf
            end = right if infinite else measured
            style: dict[str, Any] = {"clip_on": False, "zorder": 3}
            if refuted:
                axes.plot([epsilon, end], [delta, delta], color=A, linewidth=1.2, **style)
            edge, face = (B, B) if refuted else (INK, PAPER)
            marks = (
                (epsilon, "X" if refuted else "o", edge, face, 8,
                 f"tested: {'refuted' if refuted else 'not refuted'}", "tested"),
                (end, "D" if infinite else ">", A, A, 6,
                 "infinite: no finite epsilon holds" if infinite else "measured: at least this",
                 "measured"),
            )  # fmt: skip
            for x, marker, colour, fill, size, label, kind in marks:
                axes.plot(
                    x, delta, marker, markersize=size, color=colour, markerfacecolor=fill,
                    label=labels.get(label, label), gid=f"{kind}-{i}", **style,
                )  # fmt: skip
                labels[label] = "_again"
        axes.set(yscale="log", ylim=(floor / 1.6, 1.0), xlim=(0, right))
        axes.set(xlabel="epsilon", ylabel="delta (logarithmic axis)")
        every = math.ceil(decades / 12)
        powers = [10.0**-k for k in range(0, decades - every + 1, every)]
        axes.set_yticks([floor, *powers], ["0", *map(tick_number, powers)])
        axes.minorticks_off()
        if points or drawn:
            outside_legend(figure, "outside upper left")
        _rounded(axes.xaxis)
        beyond = sum(row.refuted for row in tested)
        words = f"{len(tested)} points of the claimed curve were tested, {beyond} were refuted."
        return svg(figure, "curve", "The claimed curve and the refuted points", words)


def tradeoff_figure(
    band: Sequence[tuple[float, float]], claimed: Sequence[tuple[float, float]]
) -> Markup:
    r"""Draw the claimed trade-off curve and the measured upper bound on the trade-off curve."""
    with drawing("tradeoff", 3.6) as (figure, axes):
        axes.plot([0, 1], [1, 0], color=FAINT, linewidth=0.8, label="perfect privacy")
        if claimed:
            line: dict[str, Any] = {"color": B, "linewidth": 1.4, "linestyle": "--"}
            axes.plot(*zip(*claimed, strict=True), label="claimed: not below", gid="claim", **line)
        axes.plot(
            *zip(*band, strict=True), color=A, linewidth=1.2, marker="o", markersize=3,
            label="measured: not above", gid="band",
        )  # fmt: skip
        axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="type II error")
        axes.set_xlabel("type I error: a run on A taken for one on B")
        outside_legend(figure, "outside upper left")
        words = f"The measured curve has {len(band)} corners, from (0, 1) to (1, 0)."
        return svg(figure, "tradeoff", "The trade-off curve, measured and claimed", words)


def _exactly(value: Fraction) -> str:
    # A claimed value as written, or its first digits if it is too long for a picture.
    exact = exact_decimal(value)
    return exact if len(exact) <= _LONGEST else f"{down(value, 9)}…"
