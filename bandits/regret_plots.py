r"""Plots of runs: panels with one line and one error band per algorithm.

The module needs matplotlib, an extra: ``pip install 'dpcore[plot]'``. Lines differ in colour (the
palette of Okabe and Ito, suitable for colour-blind readers) or dashes; their names and last values
are listed next to the axes, sorted by value. Equal data give equal files, byte for byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from dpcore.cli.figure_file import check_picture, fold, picture, tick_number
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


Look: TypeAlias = tuple[str, Any]
"""A colour and a dash pattern, as matplotlib expects them."""

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
"""The style of each algorithm and its variants, the same in every plot."""

SPARE: Final[tuple[Look, ...]] = (
    ("#000000", "-"),
    ("#d55e00", (0, (6, 2))),
    ("#0072b2", (0, (2, 1))),
    ("#8c5109", "-"),
    ("#56b4e9", (0, (4, 1, 1, 1))),
    ("#e69f00", "-"),
    ("#6e6e6e", (0, (6, 1.5, 1, 1.5))),
)
"""The styles of other names, in order of appearance in a plot."""


Scale: TypeAlias = Literal["linear", "log"]

_WIDTH, _HEIGHT, _HEAD = 8.6, 2.8, 0.55
r"""The width and height of a panel and the space above all panels, in inches."""

_NAMES: Final = 0.34
r"""The fraction of the width for a name next to a panel."""

_INK: Final = "#222222"
_FEW: Final = 12
r"""The largest number of points that are drawn individually, with error bars."""

_DODGE: Final = 0.012
r"""The distance between error bars at the same x, as a fraction of the axis."""

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
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.5,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    r"""A curve of a plot: values ``y`` and standard errors ``error`` at increasing ``x``.

    The legend contains ``label`` and the text ``last``, which is by default the last value of y.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    last: str = ""

    def __post_init__(self) -> None:
        if not self.x or not len(self.x) == len(self.y) == len(self.error):
            raise InvalidParameter(
                "curve", self.label, "must contain at least one x, and one y and one error for each"
            )
        if not all(map(math.isfinite, (*self.x, *self.y, *self.error))):
            raise InvalidParameter("curve", self.label, "must contain only finite numbers")
        if any(after <= before for before, after in zip(self.x, self.x[1:], strict=False)):
            raise InvalidParameter("curve", self.label, "x must be increasing")
        if min(self.error) < 0:
            raise InvalidParameter("curve", self.label, "errors must be >= 0")

    @property
    def name(self) -> str:
        return f"{self.last or f'{self.y[-1]:.3g}'} {self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    r"""One pair of axes with its curves and labels; the x-axis is logarithmic."""

    title: str
    curves: Sequence[Curve]
    x_label: str = "round t"
    y_label: str = "regret per round, Reg(t)/t"
    y_scale: Scale = "log"
    ticks: Sequence[float] = field(default=())

    legend: ClassVar[str] = "at the end"

    def __post_init__(self) -> None:
        if not self.curves:
            raise InvalidParameter("curves", self.curves, "must contain at least one curve")

    @property
    def height(self) -> float:
        return _HEIGHT

    def draw(self, axes: Axes, looks: dict[str, Look]) -> None:
        r"""Draw everything except the title, the x-label and the legend."""
        axes.set_xscale("log")
        axes.set_yscale(self.y_scale)
        low, high = _range(self)
        lasts = max(curve.x[-1] for curve in self.curves)
        firsts = min(curve.x[0] for curve in self.curves)
        few = all(len(curve.x) <= _FEW for curve in self.curves)
        margin = 1.15 if few else 1.0  # space for the markers at both ends
        axes.set_xlim(firsts / margin, lasts * margin)
        axes.set_ylim(low, high)
        for i, curve in sorted(enumerate(self.curves), key=lambda item: -item[1].y[-1]):
            beside = i - (len(self.curves) - 1) / 2
            _line(axes, curve, _moved(axes, curve, beside), *looks[curve.label], floor=low)
        if self.y_scale == "log":
            log_ticks(axes.yaxis)
        if self.ticks:
            axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
            axes.set_xticks([], minor=True)
        axes.set_ylabel(self.y_label)


def draw_panels(path: Path, panels: Sequence[Panel], *, title: str, note: str = ERROR_NOTE) -> None:
    """Draw panels in a column, one style per curve, as SVG, PNG or PDF (the extension decides)."""
    check_picture("path", path)
    if not panels:
        raise InvalidParameter("panels", panels, "must contain at least one panel")
    heights = [panel.height for panel in panels]
    looks = looks_of(curve.label for panel in panels for curve in panel.curves)
    given: dict[str, Any] = {"facecolor": "white", "layout": "constrained"}
    size = (_WIDTH, _HEAD + sum(heights))
    with picture("path", path, size=size, style=_STYLE, **given) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=[_HEAD, sum(heights)])
        head, body = parts
        place: dict[str, Any] = {"x": 0.014, "ha": "left"}
        if title:
            fold(head.text(y=0.7, s=title, fontsize=10.5, **place), 0.97 * figure.bbox.width, 1)
        head.text(y=0.25, s=note, fontsize=8, color=_INK, **place)
        drawn = body.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
        for panel, axes in zip(panels, drawn[:, 0], strict=True):
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x_label, labelpad=2)
            panel.draw(axes, looks)
            beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
            legend = axes.legend(**beside, title=panel.legend)
            for text in legend.get_texts():
                fold(text, _NAMES * figure.bbox.width, lines=1)


def log_ticks(axis: Axis) -> None:
    """Label the axis at 1, 2 and 5 times powers of ten, or at fewer such numbers on a long axis."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    axis.set_major_formatter(lambda value, _: tick_number(value))
    axis.set_minor_formatter("")


def _moved(axes: Axes, curve: Curve, beside: float) -> Sequence[float]:
    # Points of several lines at the same x are shifted, so that every error bar is visible.
    if len(curve.x) > _FEW:
        return curve.x
    low, high = axes.get_xlim()
    return [x * (high / low) ** (beside * _DODGE) for x in curve.x]


def _range(panel: Panel) -> tuple[float, float]:
    tops = [y + e for c in panel.curves for y, e in zip(c.y, c.error, strict=True)]
    bottoms = [y - e for c in panel.curves for y, e in zip(c.y, c.error, strict=True)]
    if panel.y_scale == "linear":
        return min(0.0, *bottoms), max(tops) * 1.08 or 1.0
    # A band that reaches 0 ends at the bottom of the axes.
    positive = [y for curve in panel.curves for y in curve.y if y > 0]
    if not positive:
        raise InvalidParameter("curves", panel.title, "must contain a y > 0 for a log axis")
    least = min(positive)
    return min([least, *(b for b in bottoms if b > least / 2)]) / 1.2, max(tops) * 1.2


def _line(
    axes: Axes, curve: Curve, x: Sequence[float], colour: str, dashes: Any, *, floor: float
) -> None:
    y = [max(value, floor) for value in curve.y]
    few = len(curve.x) <= _FEW
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.5} if few else {}
    look: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.5}
    axes.plot(x, y, label=curve.name, **look, **mark)
    low = [max(v - e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    high = [max(v + e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    if few:
        axes.vlines(x, low, high, color=colour, linewidth=1.0)
    else:
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    r"""The style of each name: that of its algorithm if it is free, otherwise one of ``SPARE``."""
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
    # The name as written in a command; s = 10 is the default and omitted.
    return re.sub("[ :]s=", ":s=", name).removesuffix(":s=10")


def _first_word(name: str) -> str:
    return (name.split() or [""])[0].rstrip(",").partition(":")[0]
