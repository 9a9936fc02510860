r"""Draw the outputs on both datasets as bars: numbers along an axis, names below each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, product
from typing import TYPE_CHECKING, Any, Final

from audit.report.histogram import Bin, Histogram
from audit.report.markup import printable
from audit.report.svg import (
    INK,
    MARK,
    PAPER,
    WIDTH,
    A,
    B,
    Ticks,
    drawing,
    fit_ticks,
    number_ticks,
    svg,
    tick_text,
    width_of,
)  # fmt: skip
from audit.wording.shorten import distinct
from dpcore.command.picture import outside_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["cell_name", "histogram_figure"]

_LOGARITHMIC: Final = 25
_ROOM: Final = 150.0
r"""The most points that a name may be wide."""

_THROUGH: Final = 40
_STEPS: Final = (1, 2, 5, 10, 20, 50, 100)
_SEEN: Final = 0.1
r"""A stretch of the event is drawn no narrower than this share of a bin."""

_TALL: Final = 1 / 20
_PLAIN: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_ODD: Final = {"inf": "inf (infinite)", "-inf": "-inf (infinite)", "nan": "nan (not a number)"}


def histogram_figure(found: Histogram) -> str:
    r"""Bars for both datasets, cell by cell; runs in the witness are filled, the others pale.

    >>> cell = Bin(label="0", count_a=3, count_b=1, low=0.0, high=0.0)
    >>> histogram_figure(Histogram(bins=(cell,), runs_a=3, runs_b=1))[:21]
    '<svg class="figure" x'
    """
    upright = all(cell.low is not None or cell.high is not None for cell in found.bins)
    height = 3.3 if upright else 1.5 + 0.27 * len(found.bins)
    with drawing("histogram", height) as (figure, axes):
        runs, cells = (axes.yaxis, axes.xaxis) if upright else (axes.xaxis, axes.yaxis)
        largest = max((max(cell.count_a, cell.count_b) for cell in found.bins), default=0)
        inside = max((max(cell.inside_a, cell.inside_b) for cell in found.bins), default=0)
        logarithmic = bool(inside) and largest > _LOGARITHMIC * inside
        _witness(axes, found, upright=upright)
        _bars(axes, found, upright=upright)
        _empty(axes, found.bins, largest, upright=upright)
        runs.set_label_text("runs (logarithmic axis)" if logarithmic else "runs")
        (axes.set_yscale if upright else axes.set_xscale)("log" if logarithmic else "linear")
        low, high = (0.7, largest * 1.6) if logarithmic else (0.0, max(largest, 1) * 1.06)
        (axes.set_ylim if upright else axes.set_xlim)(low, high)
        _legend(figure, found, largest)
        through = "" if found.feature is None else f", read through {_cut(found.feature)}"
        if upright:
            axes.set_xlabel(f"output{through}")
            axes.set_xlim(-0.7, len(found.bins) - 0.3)
            fit_ticks(cells, _number_choices(found.bins))
        else:
            _names(figure, axes, [cell_name(cell) for cell in found.bins], f"output{through}")
        if logarithmic:
            powers = [10**k for k in range(len(str(largest)))]
            fit_ticks(runs, ([(n, f"{n:,}") for n in powers[::every]] for every in range(1, 9)))
            axes.minorticks_off()
        else:
            number_ticks(runs, lambda value: tick_text(value) if value.is_integer() else "")
        title = "How often each output came, on both datasets"
        return svg(figure, "histogram", title, _histogram_words(found))


def cell_name(cell: Bin) -> str:
    r"""What a reader calls the bin: numbers with thousands apart, a name as it is.

    >>> cell_name(Bin(label="8000 to 9999", low=8000.0, high=10000.0, count_a=1, count_b=0))
    '8,000 to 9,999'
    """
    if cell.low is None and cell.high is None:
        return _ODD.get(cell.label, cell.label)
    return " ".join(map(_grouped, cell.label.split(" ")))


def _grouped(word: str) -> str:
    whole, point, rest = word.partition(".")
    return f"{int(whole):,}{point}{rest}" if _PLAIN.fullmatch(word) else word


def _witness(axes: Axes, found: Histogram, *, upright: bool) -> None:
    span: Any = axes.axvspan if upright else axes.axhspan
    edge: dict[str, Any] = {"edgecolor": INK, "linestyle": ":", "linewidth": 0.6}
    stretches: list[list[float]] = []
    for low, high in chain.from_iterable(map(_stretches, range(len(found.bins)), found.bins)):
        if stretches and low <= stretches[-1][1]:
            stretches[-1][1] = max(high, stretches[-1][1])
        else:
            stretches.append([low, high])
    for i, (low, high) in enumerate(stretches):
        span(low, high, facecolor=MARK, gid=f"witness-{i}", **edge)
    for i, cell in enumerate(found.bins):
        if _is_part(cell):
            span(i - 0.47, i + 0.47, facecolor="none", gid=f"part-{i}", **edge)


def _stretches(i: int, cell: Bin) -> Iterator[tuple[float, float]]:
    for low, high in cell.covered:
        middle, half = i - 0.5 + (low + high) / 2, max(high - low, _SEEN) / 2
        yield middle - half, middle + half
    if not cell.covered and cell.in_witness == "all":
        yield i - 0.5, i + 0.5


def _is_part(cell: Bin) -> bool:
    # Where the event ends is not told by a place: in an open bin, or among other names.
    return cell.in_witness == "part" and not cell.covered


def _bars(axes: Axes, found: Histogram, *, upright: bool) -> None:
    draw: Any = axes.bar if upright else axes.barh
    wide = "width" if upright else "height"
    for i, cell in enumerate(found.bins):
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
    colour, hatch = (A, "") if world == "a" else (B, "//////")
    face, edge = (colour, PAPER if hatch else colour) if filled else (PAPER, colour)
    return {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 0.6}


def _empty(axes: Axes, bins: Sequence[Bin], largest: int, *, upright: bool) -> None:
    # The ratio of the worlds is infinite there, and no bar would say so.
    for i, cell in enumerate(bins):
        if _is_one_sided(cell, largest):
            world, place = ("a", i - 0.2) if not cell.count_a else ("b", i + 0.2)
            style: dict[str, Any] = {"color": A if world == "a" else B, "clip_on": False}
            (axes.plot if upright else _swapped(axes))(
                [place], [0.025], marker="x", markersize=4, gid=f"none-{world}-{i}",
                transform=axes.get_xaxis_transform() if upright else axes.get_yaxis_transform(),
                **style,
            )  # fmt: skip


def _swapped(axes: Axes) -> Any:
    return lambda x, y, **style: axes.plot(y, x, **style)


def _is_one_sided(cell: Bin, largest: int) -> bool:
    return not min(cell.count_a, cell.count_b) and cell.runs >= max(_TALL * largest, 2)


def _legend(figure: Figure, found: Histogram, largest: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    filled = found.event is not None
    edge: dict[str, Any] = {"edgecolor": INK, "linestyle": ":", "linewidth": 0.6}
    handles: list[Any] = [
        Patch(**_look("a", filled=filled), label=f"A: {found.runs_a:,} runs"),
        Patch(**_look("b", filled=filled), label=f"B: {found.runs_b:,} runs"),
    ]
    if filled:
        handles.append(Patch(facecolor=MARK, **edge, label="witness"))
    if any(map(_is_part, found.bins)):
        handles.append(Patch(facecolor="none", **edge, label="in part"))
    if any(_is_one_sided(cell, largest) for cell in found.bins):
        cross: dict[str, Any] = {"marker": "x", "markersize": 4, "linestyle": "", "color": INK}
        handles.append(Line2D([], [], **cross, label="no run: infinite ratio"))
    outside_legend(figure, "outside upper left", handles=handles)


def _number_choices(bins: Sequence[Bin]) -> Iterator[Ticks]:
    for every, beside in product(_STEPS, range(1 + len(bins) // 4)):
        yield list(_number_ticks(bins, every, beside))
    yield list(_number_ticks(bins, 1, len(bins)))


def _number_ticks(bins: Sequence[Bin], every: int, beside: int) -> Iterator[tuple[float, str]]:
    # Every so many of the edges, counted from 0 so that they are round, and what is beyond; none
    # where one or more bins ``beside`` it are open.
    lows = [cell.low for cell in bins if cell.low is not None]
    even = all(after == before + 1 for before, after in pairwise(lows))
    for i, cell in enumerate(bins):
        low, high = cell.low, cell.high
        if low is None or high is None:
            yield i, cell_name(cell)
        elif any(near.is_open for near in bins[max(i - beside, 0) : i + beside + 1]):
            continue
        elif low == high:
            if round(low if even else i) % every == 0:
                yield i, cell_name(cell)
        elif round(low / (high - low)) % every == 0:
            yield i - 0.5, tick_text(low)


def _names(figure: Figure, axes: Axes, names: Sequence[str], heading: str) -> None:
    # Placed by hand: their widths in the reader's font are not those that the layout would find.
    shown = distinct([printable(name) for name in names], lambda text: width_of(text) <= _ROOM)
    column = max(map(width_of, [*shown, "output"])) + 12
    share = column / (72 * WIDTH)
    figure.set_layout_engine("constrained", rect=(share, 0, 1 - share, 1))
    place: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False}
    for i, name in enumerate(shown):
        axes.annotate(
            name, (0, i), (-6, 0), xycoords=("axes fraction", "data"), ha="right", va="center",
            **place,
        ).set_in_layout(False)  # fmt: skip
    axes.annotate(
        heading, (0, -0.95), (4, 0), xycoords=("figure fraction", "data"), ha="left", va="center",
        **place,
    ).set_in_layout(False)  # fmt: skip
    axes.set_yticks(range(len(names)), [""] * len(names))
    axes.set_ylim(len(names) - 0.4, -1.4)
    axes.spines["left"].set_bounds(len(names) - 0.4, -0.6)


def _cut(text: str) -> str:
    return distinct([printable(text)], lambda cut: len(cut) <= _THROUGH)[0]


def _histogram_words(found: Histogram) -> str:
    inside_a = sum(cell.inside_a for cell in found.bins)
    inside_b = sum(cell.inside_b for cell in found.bins)
    words = f"{len(found.bins)} cells, {found.runs_a:,} runs of A and {found.runs_b:,} of B"
    if found.event is None:
        return f"{words}."
    return f"{words}. In the event of the witness: {inside_a:,} runs of A, {inside_b:,} of B."
