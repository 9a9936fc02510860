r"""Panels with rows of marks; the marks of a row differ in shape and fill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from bandits.regret_plots import Curve, Look, Panel, Scale, log_ticks
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Dots", "draw_dots"]

_BARE, _ROW = 0.84, 0.29  # inches: a panel without rows, and a row
_INK: Final = "#222222"
_SHAPES: Final = (("o", "#222222"), ("s", "#ffffff"), ("^", "#9a9a9a"), ("D", "#222222"))
_APART: Final = 0.24


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots(Panel):
    r"""A panel; ``rows[name][k]`` is the value of mark ``marks[k]``, with its standard error.

    >>> Dots(title="", marks=("epsilon = 1",), rows={"se": [(1.0, 0.0)]}, x_label="ratio").marks
    ('epsilon = 1',)

    Raises :class:`InvalidParameter` if there are no rows, no marks or more than four, a row with
    another number of values, numbers that are not finite, errors below 0, or a value <= 0 on a
    logarithmic axis.
    """

    curves: Sequence[Curve] = field(default=())
    marks: Sequence[str]
    rows: Mapping[str, Sequence[tuple[float, float]]]
    x_scale: Scale = "linear"

    legend: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.marks) <= len(_SHAPES):
            reason = f"must be 1 to {len(_SHAPES)} marks, the number of shapes"
            raise InvalidParameter("marks", self.marks, reason)
        if not self.rows:
            raise InvalidParameter("rows", self.title, "must have at least one row")
        for name, values in self.rows.items():
            if len(values) != len(self.marks):
                raise InvalidParameter("rows", name, "must have one value for every mark")
            if not all(math.isfinite(number) for pair in values for number in pair):
                raise InvalidParameter("rows", name, "must have finite numbers")
            if any(error < 0 for _, error in values):
                raise InvalidParameter("rows", name, "must have errors >= 0")
            if self.x_scale == "log" and any(value <= 0 for value, _ in values):
                raise InvalidParameter("rows", name, "must be > 0 on a logarithmic axis")

    @property
    def height(self) -> float:
        return _BARE + _ROW * len(self.rows)

    def draw(self, axes: Axes, looks: dict[str, Look]) -> None:
        del looks
        draw_dots(axes, self)


def draw_dots(axes: Axes, panel: Dots) -> None:
    r"""Draw the rows from the top, the marks of a row one below the other, and a line at 1."""
    axes.set_xscale(panel.x_scale)
    pairs = [pair for values in panel.rows.values() for pair in values]
    low, high = 0.0, max(1.0, *(value + error for value, error in pairs)) * 1.05
    if panel.x_scale == "log":
        # On a logarithmic axis a bar that reaches 0 ends at the edge of the picture.
        least = min(1.0, *(value for value, _ in pairs))
        low = min([least, *(v - e for v, e in pairs if v - e > least / 2)]) / 1.15
        log_ticks(axes.xaxis)
    for k, (mark, (shape, fill)) in enumerate(zip(panel.marks, _SHAPES, strict=False)):
        height = ((len(panel.marks) - 1) / 2 - k) * _APART
        values = [pair[k] for pair in panel.rows.values()]
        places = [height - i for i in range(len(values))]
        ends = [(max(v - e, low), min(v + e, high)) for v, e in values]
        axes.hlines(places, *zip(*ends, strict=True), color=_INK, linewidth=1.0)
        axes.plot(
            [value for value, _ in values], places, linestyle="none", marker=shape, markersize=4.5,
            markerfacecolor=fill, markeredgecolor=_INK, markeredgewidth=0.8, label=mark,
        )  # fmt: skip
    axes.axvline(1.0, color=_INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(0.6 - len(panel.rows), 0.6)
    axes.set_yticks([-i for i in range(len(panel.rows))], [*panel.rows])
    axes.tick_params(axis="y", length=0)
