r"""Rows of marks: a few values of each name, where lines would cover each other.

A row is an algorithm, a mark of it a value with a bar of one standard error to both sides. Marks
differ in shape and in fill, so that they are told apart in grey. ``bandits.plots.plots`` draws
panels of this kind beside those of lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Dots", "Scale", "draw_dots", "round_numbers"]

Scale: TypeAlias = Literal["linear", "log"]

_INK: Final = "#222222"
_SHAPES: Final = (("o", "#222222"), ("s", "#ffffff"), ("^", "#9a9a9a"), ("D", "#222222"))
_APART: Final = 0.24
_STEPS: Final = (1, 2, 5)
_FINE: Final = (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
_WIDE: Final = 8


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
        for name, values in self.rows.items():
            if len(values) != len(self.marks):
                raise InvalidParameter("rows", name, "must have one value for every mark")
            if not all(math.isfinite(number) for pair in values for number in pair):
                raise InvalidParameter("rows", name, "must have finite numbers")
            if any(error < 0 for _, error in values):
                raise InvalidParameter("rows", name, "must have errors >= 0")
            if self.x_scale == "log" and any(value <= 0 for value, _ in values):
                raise InvalidParameter("rows", name, "must be > 0 on a logarithmic axis")


def draw_dots(axes: Axes, panel: Dots) -> None:
    r"""The rows from the top, the marks of a row one below the other, and a line at 1."""
    axes.set_xscale(panel.x_scale)
    low, high = _range(panel)
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
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label, labelpad=2)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, borderaxespad=0.0)


def round_numbers(low: float, high: float) -> list[float]:
    r"""Ticks of a logarithmic axis: 1, 2 and 5 of every power of ten, more where it spans few.

    >>> round_numbers(0.6, 20), round_numbers(0.95, 1.5)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 1.1, 1.2, 1.4])
    """
    steps = _STEPS if high > low * _WIDE else _FINE
    return [m * 10.0**k for k in range(-12, 13) for m in steps if low <= m * 10.0**k <= high]


def _range(panel: Dots) -> tuple[float, float]:
    pairs = [pair for values in panel.rows.values() for pair in values]
    high = max(1.0, *(value + error for value, error in pairs))
    if panel.x_scale == "linear":
        return 0.0, high * 1.05
    # A bar that reaches 0 ends at the edge of the picture.
    least = min(1.0, *(value for value, _ in pairs))
    return min([least, *(v - e for v, e in pairs if v - e > least / 2)]) / 1.15, high * 1.15
