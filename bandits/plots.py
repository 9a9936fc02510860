r"""Pictures of regret: lines with their standard errors, and rows of marks.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. A line differs from the others
in colour (those of Okabe and Ito, which colour-blind readers tell apart) or in its dashes; the
legend beside it has its name and its last value, in the order of these values. Marks of a row
differ in shape and in fill, so that they are told apart in grey. The same data give the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from dpcore.command.picture import check_picture, fold, picture
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ERROR_NOTE", "LOOKS", "SPARE", "Curve", "Dots", "Look", "Panel", "Scale", "draw_dots"]
__all__ += ["draw_panels", "looks_of", "round_numbers"]

Scale: TypeAlias = Literal["linear", "log"]

Look: TypeAlias = tuple[str, Any]
"""A colour, and dashes as matplotlib takes them."""

LOOKS: Final[dict[str, Look]] = {
    "se": ("#6e6e6e", (0, (1, 1.2))),
    "cdp-se": ("#000000", (0, (4, 2.5))),
    "ldp-se": ("#d55e00", "-"),
    "dist-dp-se": ("#0072b2", "-"),
    "dist-rdp-se": ("#009e73", (0, (7, 1.5))),
    "dist-rdp-se:s=100": ("#56b4e9", (0, (7, 1.5, 1.2, 1.5))),
    "dist-cdp-se": ("#cc79a7", "-"),
    "dp-se": ("#e69f00", (0, (3, 1))),
    "shuffled-se": ("#8c5109", (0, (5, 1.5, 1, 1.5, 1, 1.5))),
    "sdp-ae": ("#009e73", "-"),
    "vb-sdp-ae": ("#cc79a7", (0, (5, 1.5))),
}
"""An algorithm, or a variant of it where it is not there itself, looks so in every picture."""

SPARE: Final[tuple[Look, ...]] = (
    ("#000000", "-"),
    ("#d55e00", (0, (6, 2))),
    ("#0072b2", (0, (2, 1))),
    ("#8c5109", "-"),
    ("#56b4e9", (0, (4, 1, 1, 1))),
    ("#e69f00", "-"),
    ("#6e6e6e", (0, (6, 1.5, 1, 1.5))),
)
"""For other names, by turns in the order in which a picture names them."""

ERROR_NOTE: Final = "bands and bars: one standard error"

# Inches: the legends stand right of the axes.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 8.6, 2.8, 0.85, 3.1, 0.34, 0.5
_TITLE, _NOTE = 0.28, 0.24
_ROW, _NAMES, _MARKS = 0.29, 1.5, 1.4
"""A row of marks, the names left of the rows, and the marks' names right of them."""

_NAME_WIDTH: Final = 0.75
"""The share of the place right of the axes that a name may take."""

_INK: Final = "#222222"
_FEW: Final = 12
"""So many points or fewer are shown one by one, with bars."""

_DODGE: Final = 0.012
"""The bars of lines that share their x stand beside each other, this share of the axis apart."""

_DECADES: Final = 1000
"""A logarithmic axis that spans less names what lies between the powers of ten."""

_SHAPES: Final = (("o", "#222222"), ("s", "#ffffff"), ("^", "#9a9a9a"), ("D", "#222222"))
_APART: Final = 0.24
_STEPS: Final = (1, 2, 5)
_FINE: Final = (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
_WIDE: Final = 8

_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "bandits",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "grid.linewidth": 0.5,
    "grid.color": "#dddddd",
}
_BESIDE: Final[dict[str, Any]] = {
    "bbox_to_anchor": (1.02, 1.0), "loc": "upper left", "frameon": False, "borderaxespad": 0.0
}  # fmt: skip


# -- what is drawn ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    r"""A line: ``y`` at rising ``x``, each with its standard ``error``, called ``label``.

    ``last`` is what the legend has of its end: the last y to three digits, if nothing is said. A
    bound is to be rounded in its direction.

    >>> Curve(label="se", x=(1, 10), y=(0.25, 0.1), error=(0.0, 0.01)).label
    'se'

    Raises :class:`InvalidParameter` for no point, lengths that differ, numbers that are not finite,
    an x that does not rise and an error below 0.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    last: str = ""

    def __post_init__(self) -> None:
        whole = bool(self.x) and len(self.x) == len(self.y) == len(self.error)
        rises = all(a < b for a, b in pairwise(self.x))
        for right, reason in (
            (whole, "must have one y and one error for every x, and one x or more"),
            (all(map(math.isfinite, (*self.x, *self.y, *self.error))), "must have finite numbers"),
            (rises, "must have an x that rises"),
            (min(self.error, default=0) >= 0, "must have errors >= 0"),
        ):
            if not right:
                raise InvalidParameter("curve", self.label, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    r"""One pair of axes, with the names and units of both; x is logarithmic."""

    title: str
    curves: Sequence[Curve]
    x_label: str = "round t"
    y_label: str = "regret per round, Reg(t)/t"
    y_scale: Scale = "log"
    ticks: Sequence[float] = field(default=())

    def __post_init__(self) -> None:
        if not self.curves:
            raise InvalidParameter("curves", self.title, "must hold one curve or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    r"""``rows[name][k]`` is the value called ``marks[k]`` of that row, and its standard error.

    >>> Dots(title="", marks=("epsilon = 1",), rows={"se": [(1.0, 0.0)]}, x_label="ratio").marks
    ('epsilon = 1',)

    Raises :class:`InvalidParameter` for no row, no mark or more than four, a row of another number
    of values, numbers that are not finite, errors below 0, and a value <= 0 on a logarithmic axis.
    """

    title: str
    marks: Sequence[str]
    rows: Mapping[str, Sequence[tuple[float, float]]]
    x_label: str
    x_scale: Scale = "linear"

    def __post_init__(self) -> None:
        if not 1 <= len(self.marks) <= len(_SHAPES):
            reason = f"must be one to {len(_SHAPES)}: there are as many shapes"
            raise InvalidParameter("marks", self.marks, reason)
        if not self.rows:
            raise InvalidParameter("rows", self.title, "must hold one row or more")
        for name, pairs in self.rows.items():
            for right, reason in (
                (len(pairs) == len(self.marks), "must have one value for every mark"),
                (all(math.isfinite(n) for pair in pairs for n in pair), "must have finite numbers"),
                (all(error >= 0 for _, error in pairs), "must have errors >= 0"),
                (
                    self.x_scale == "linear" or all(value > 0 for value, _ in pairs),
                    "must be > 0 on a logarithmic axis",
                ),
            ):
                if not right:
                    raise InvalidParameter("rows", name, reason)


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    r"""A look for each name: its algorithm's, or a spare one where another has that already.

    >>> looks_of(["dp-se", "dp-se, exact radius"])["dp-se"] == LOOKS["dp-se"]
    True
    """
    found: dict[str, Look] = {}
    wanted = dict.fromkeys(names)
    for key in (_algorithm, _first_word):
        for name in wanted:
            look = LOOKS.get(key(name))
            if name not in found and look is not None and look not in found.values():
                found[name] = look
    others = [name for name in wanted if name not in found]
    return found | {name: SPARE[i % len(SPARE)] for i, name in enumerate(others)}


def _algorithm(name: str) -> str:
    # As it is written in a command; s = 10 is what a name without s means.
    return re.sub("[ :]s=", ":s=", name).removesuffix(":s=10")


def _first_word(name: str) -> str:
    return (name.split() or [""])[0].rstrip(",").partition(":")[0]


# -- how it is drawn --------------------------------------------------------------------------


def draw_panels(
    path: Path, panels: Sequence[Panel | Dots], *, title: str, note: str = ERROR_NOTE
) -> None:
    r"""The panels one above the other, a curve's look the same in all; SVG, PNG or PDF by ending.

    Bands, or bars where points are few, are one standard error to both sides; ``note``, a line
    under the title, says so. The picture is written beside its place and moved there when it is
    whole.

    Raises :class:`InvalidParameter` for no panel, what :func:`check_picture` refuses, and a value
    <= 0 on a logarithmic axis where no curve has one above.
    """
    check_picture("path", path)
    if not panels:
        raise InvalidParameter("panels", panels, "must hold one panel or more")
    head = (_TITLE if title else 0.0) + _NOTE
    heights = [_height(panel) for panel in panels]
    height = head + sum(heights)
    looks = looks_of(c.label for panel in panels if isinstance(panel, Panel) for c in panel.curves)
    size = (_WIDTH, height)
    with picture("path", path, size=size, style=_STYLE, facecolor="white") as figure:
        place: dict[str, Any] = {"x": 0.12 / _WIDTH, "ha": "left", "va": "top"}
        if title:
            head_line = figure.text(y=1 - 0.1 / height, s=title, fontsize=10.5, **place)
            fold(head_line, (1 - 0.24 / _WIDTH) * figure.bbox.width, lines=1)
        figure.text(y=1 - (head - _NOTE + 0.1) / height, s=note, fontsize=8, color=_INK, **place)
        top = height - head
        for panel, own in zip(panels, heights, strict=True):
            top -= own
            left, right = (_NAMES, _MARKS) if isinstance(panel, Dots) else (_LEFT, _RIGHT)
            box = (
                left / _WIDTH,
                (top + _BOTTOM) / height,
                (_WIDTH - left - right) / _WIDTH,
                (own - _TOP - _BOTTOM) / height,
            )
            axes = figure.add_axes(box)
            match panel:
                case Dots():
                    draw_dots(axes, panel)
                case Panel():
                    _draw(axes, panel, looks)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x_label, labelpad=2)
            axes.grid(visible=True)
            axes.set_axisbelow(True)


def _height(panel: Panel | Dots) -> float:
    return _HEIGHT if isinstance(panel, Panel) else _TOP + _BOTTOM + _ROW * len(panel.rows)


def _draw(axes: Axes, panel: Panel, looks: dict[str, Look]) -> None:
    axes.set_xscale("log")
    axes.set_yscale(panel.y_scale)
    low, high = _range(panel)
    lasts = max(curve.x[-1] for curve in panel.curves)
    firsts = min(curve.x[0] for curve in panel.curves)
    axes.set_ylim(low, high)
    if any(len(curve.x) > _FEW for curve in panel.curves):
        axes.set_xlim(firsts, lasts)
    else:  # room for the marks at both ends
        axes.set_xlim(firsts / 1.15, lasts * 1.15)
    handles = []
    for i, curve in enumerate(panel.curves):
        beside = i - (len(panel.curves) - 1) / 2
        line = _line(axes, curve, _moved(axes, curve, beside), *looks[curve.label], floor=low)
        handles.append((curve.y[-1], line))
    if panel.y_scale == "log" and high < low * _DECADES:  # few powers of ten: name what is between
        shown = round_numbers(low, high)
        axes.set_yticks([], minor=True)
        axes.set_yticks(shown, [f"{step:g}" for step in shown])
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        axes.set_xticks([], minor=True)
    axes.set_ylabel(panel.y_label)
    ordered = [line for _, line in sorted(handles, key=lambda pair: -pair[0])]
    legend = axes.legend(handles=ordered, title="value at the end", fontsize=8.5, **_BESIDE)
    for text in legend.get_texts():
        fold(text, _NAME_WIDTH * _RIGHT / _WIDTH * axes.figure.bbox.width, lines=2)


def _moved(axes: Axes, curve: Curve, beside: float) -> Sequence[float]:
    # Few points of several lines stand beside each other, so that every bar is seen.
    if len(curve.x) > _FEW:
        return curve.x
    low, high = axes.get_xlim()
    return [x * (high / low) ** (beside * _DODGE) for x in curve.x]


def _range(panel: Panel) -> tuple[float, float]:
    tops = [y + e for c in panel.curves for y, e in zip(c.y, c.error, strict=True)]
    bottoms = [y - e for c in panel.curves for y, e in zip(c.y, c.error, strict=True)]
    if panel.y_scale == "linear":
        return min(0.0, *bottoms), max(tops) * 1.08 or 1.0
    # A band that reaches 0 ends at the floor of the picture.
    positive = [y for curve in panel.curves for y in curve.y if y > 0]
    if not positive:
        raise InvalidParameter("curves", panel.title, "must have a y > 0 for a logarithmic axis")
    least = min(positive)
    return min([least, *(b for b in bottoms if b > least / 2)]) / 1.2, max(tops) * 1.2


def _line(
    axes: Axes, curve: Curve, x: Sequence[float], colour: str, dashes: Any, *, floor: float
) -> Any:
    y = [max(value, floor) for value in curve.y]
    few = len(curve.x) <= _FEW
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.5} if few else {}
    name = f"{curve.last or f'{curve.y[-1]:.3g}'}  {curve.label}"
    (line,) = axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.5, label=name, **mark)
    low = [max(v - e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    high = [max(v + e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    if few:
        axes.vlines(x, low, high, color=colour, linewidth=1.0)
    else:
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    return line


def draw_dots(axes: Axes, panel: Dots) -> None:
    r"""The rows from the top, the marks of a row one below the other, and a line at 1."""
    axes.set_xscale(panel.x_scale)
    low, high = _span_of_dots(panel)
    for k, mark in enumerate(panel.marks):
        shape, fill = _SHAPES[k]
        height = ((len(panel.marks) - 1) / 2 - k) * _APART
        values = [pair[k] for pair in panel.rows.values()]
        places = [height - i for i in range(len(values))]
        axes.hlines(
            places,
            [max(value - error, low) for value, error in values],
            [min(value + error, high) for value, error in values],
            color=_INK,
            linewidth=1.0,
        )
        axes.plot(
            [value for value, _ in values], places, linestyle="none", marker=shape, markersize=4.5,
            markerfacecolor=fill, markeredgecolor=_INK, markeredgewidth=0.8, label=mark,
        )  # fmt: skip
    axes.axvline(1.0, color=_INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(0.6 - len(panel.rows), 0.6)
    axes.set_yticks([-i for i in range(len(panel.rows))], [*panel.rows])
    axes.tick_params(axis="y", length=0)
    if panel.x_scale == "log":
        ticks = round_numbers(low, high)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    axes.legend(**_BESIDE)


def round_numbers(low: float, high: float) -> list[float]:
    r"""Ticks of a logarithmic axis: 1, 2 and 5 of every power of ten, more where it spans few.

    >>> round_numbers(0.6, 20), round_numbers(0.95, 1.5)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 1.1, 1.2, 1.4])
    """
    steps = _STEPS if high > low * _WIDE else _FINE
    return [m * 10.0**k for k in range(-12, 13) for m in steps if low <= m * 10.0**k <= high]


def _span_of_dots(panel: Dots) -> tuple[float, float]:
    pairs = [pair for values in panel.rows.values() for pair in values]
    high = max(1.0, *(value + error for value, error in pairs))
    if panel.x_scale == "linear":
        return 0.0, high * 1.05
    # A bar that reaches 0 ends at the edge of the picture.
    least = min(1.0, *(value for value, _ in pairs))
    return min([least, *(v - e for v, e in pairs if v - e > least / 2)]) / 1.15, high * 1.15
