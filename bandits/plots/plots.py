r"""Pictures of regret: lines with their standard errors, named where they end.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. A line differs from the others
in colour (those of Okabe and Ito, which colour-blind readers tell apart) or in its dashes, and its
name and its last value stand beside its end. The same data give the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bandits.plots.dots import Dots, Scale, draw_dots, round_numbers
from dpcore.command.picture import check_picture, fold, picture
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ERROR_NOTE", "LOOKS", "SPARE", "Curve", "Look", "Panel", "draw_panels", "looks_of"]

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


# Inches: the names of the lines stand right of the axes.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 8.6, 2.8, 0.85, 3.1, 0.34, 0.5
_TITLE, _NOTE = 0.28, 0.24
_ROW, _NAMES, _MARKS = 0.29, 1.5, 1.4
"""A row of marks, the names left of the rows, and the marks' names right of them."""

_NAME_SIZE: Final = 8.5
_EDGE: Final = 1 + (_RIGHT - 0.12) / (_WIDTH - _LEFT - _RIGHT)
"""The right edge of the picture, in widths of the axes."""

_POINTS: Final = 72.0
_INK: Final = "#222222"
_FEW: Final = 12
"""So many points or fewer are shown one by one, with bars."""

_DODGE: Final = 0.012
"""The bars of lines that share their x stand beside each other, this share of the axis apart."""

_DECADES: Final = 1000
"""A logarithmic axis that spans less names what lies between the powers of ten."""

ERROR_NOTE: Final = "bands and bars: one standard error"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    r"""A line: ``y`` at rising ``x``, each with its standard ``error``, called ``label``.

    ``last`` is what stands beside its end: the last y to three digits, if nothing is said. A bound
    is to be rounded in its direction.

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
        if not self.x or not len(self.x) == len(self.y) == len(self.error):
            raise InvalidParameter(
                "curve", self.label, "must have one y and one error for every x, and one x or more"
            )
        if not all(map(math.isfinite, (*self.x, *self.y, *self.error))):
            raise InvalidParameter("curve", self.label, "must have finite numbers")
        if any(after <= before for before, after in zip(self.x, self.x[1:], strict=False)):
            raise InvalidParameter("curve", self.label, "must have an x that rises")
        if min(self.error) < 0:
            raise InvalidParameter("curve", self.label, "must have errors >= 0")


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
    for i, curve in enumerate(panel.curves):
        beside = i - (len(panel.curves) - 1) / 2
        _line(axes, curve, _moved(axes, curve, beside), *looks[curve.label], floor=low)
    for axis, scale in ((axes.xaxis, "log"), (axes.yaxis, panel.y_scale)):
        if scale == "log":
            axis.set_major_formatter(lambda value, _: _number(value))
            axis.set_minor_formatter("")
        else:
            axis.set_major_formatter(lambda value, _: f"{value:g}")
    if panel.y_scale == "log" and high < low * _DECADES:  # few powers of ten: name what is between
        shown = round_numbers(low, high)
        axes.set_yticks([], minor=True)
        axes.set_yticks(shown, [_number(step) for step in shown])
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        axes.set_xticks([], minor=True)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label, labelpad=2)
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    _names(axes, panel, looks)


def _moved(axes: Axes, curve: Curve, beside: float) -> Sequence[float]:
    # Few points of several lines stand beside each other, so that every bar is seen.
    if len(curve.x) > _FEW:
        return curve.x
    low, high = axes.get_xlim()
    return [x * (high / low) ** (beside * _DODGE) for x in curve.x]


def _number(value: float) -> str:
    # A power of ten that is large is shown as one.
    return f"{value:.0e}".replace("e+0", "e") if value >= 1e4 else f"{value:g}"


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
) -> None:
    y = [max(value, floor) for value in curve.y]
    few = len(curve.x) <= _FEW
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.5} if few else {}
    axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.5, **mark)
    low = [max(v - e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    high = [max(v + e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    if few:
        axes.vlines(x, low, high, color=colour, linewidth=1.0)
    else:
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def _names(axes: Axes, panel: Panel, looks: dict[str, Look]) -> None:
    # Names right of the axes, as near to the ends of their lines as they find room.
    (low, high), (left, right) = axes.get_ylim(), axes.get_xlim()

    def share(value: float, bottom: float, top: float, scale: Scale) -> float:
        if scale == "log":
            value, bottom, top = (math.log(max(v, 1e-300)) for v in (value, bottom, top))
        return (value - bottom) / (top - bottom)

    ends = [
        (
            share(curve.x[-1], left, right, "log"),
            min(max(share(curve.y[-1], low, high, panel.y_scale), 0.0), 1.0),
        )
        for curve in panel.curves
    ]
    apart = 1.25 * _NAME_SIZE / _POINTS / (_HEIGHT - _TOP - _BOTTOM)
    places = spread([y for _, y in ends], apart)
    # Names that would leave the picture at the bottom or the top move back into it together.
    lift = max(0.0 - min(places), 0.0) + min(1.0 - max(places), 0.0)
    places = [place + lift for place in places]
    for curve, end, place in zip(panel.curves, ends, places, strict=True):
        colour, dashes = looks[curve.label]
        axes.plot(
            [end[0], 1.025, 1.045], [end[1], place, place], transform=axes.transAxes,
            color=colour, linewidth=0.6, clip_on=False,
        )  # fmt: skip
        axes.plot(
            [1.045, 1.115], [place, place], transform=axes.transAxes,
            color=colour, linestyle=dashes, linewidth=1.5, clip_on=False,
        )  # fmt: skip
        name = axes.text(
            1.13, place, curve.label, transform=axes.transAxes,
            color=_INK, fontsize=_NAME_SIZE, va="center",
        )  # fmt: skip
        value = axes.text(
            _EDGE, place, curve.last or f"{curve.y[-1]:.3g}", transform=axes.transAxes,
            color=_INK, fontsize=_NAME_SIZE, va="center", ha="right",
        )  # fmt: skip
        fold(name, value.get_window_extent().x0 - name.get_window_extent().x0 - 6, lines=1)
    head: dict[str, Any] = {"transform": axes.transAxes, "fontsize": _NAME_SIZE, "style": "italic"}
    axes.text(_EDGE, max(places) + 0.8 * apart, "at the end", ha="right", **head)


def spread(places: Sequence[float], apart: float) -> list[float]:
    r"""Places in the same order, ``apart`` or more from each other, each near where it was.

    >>> [round(place, 6) for place in spread([0.5, 0.5, 0.9], 0.2)]
    [0.4, 0.6, 0.9]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    # Neighbours that overlap become one block about their common centre.
    blocks: list[list[float]] = []  # the sum of the wanted places, and how many there are
    for i in order:
        blocks.append([places[i], 1])
        while len(blocks) > 1 and _start(blocks[-2], apart) + blocks[-2][1] * apart > _start(
            blocks[-1], apart
        ):
            total, size = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + size]
    spots = [_start(block, apart) + k * apart for block in blocks for k in range(int(block[1]))]
    found = [0.0] * len(places)
    for i, spot in zip(order, spots, strict=True):
        found[i] = spot
    return found


def _start(block: list[float], apart: float) -> float:
    total, size = block
    return total / size - (size - 1) * apart / 2
