r"""Pictures of regret: lines with their standard errors, named where they end.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. A line differs from the others
in colour (those of Okabe and Ito, which colour-blind readers tell apart), in its dashes and in its
name beside its end. The same data give the same bytes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from dpcore.errors import InvalidParameter
from dpcore.output_file import whole_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "Panel", "check_picture", "draw_panels", "draw_regret"]

Scale: TypeAlias = Literal["linear", "log"]
_Look: TypeAlias = tuple[str, Any]

_ENDINGS: Final = (".svg", ".png", ".pdf")
_DOTS: Final = 150
# Inches: the names of the lines stand right of the axes.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 8.0, 2.8, 0.85, 2.5, 0.34, 0.5
_HEAD: Final = 0.4
_NAME_SIZE: Final = 8.5
_POINTS: Final = 72.0
_INK: Final = "#222222"
_FEW: Final = 12
"""So many points or fewer are shown one by one, with bars."""

_LOOKS: Final[dict[str, _Look]] = {
    "se": ("#6e6e6e", (0, (1, 1.2))),
    "cdp-se": ("#000000", (0, (4, 2.5))),
    "ldp-se": ("#d55e00", "-"),
    "dist-dp-se": ("#0072b2", "-"),
    "dist-rdp-se": ("#009e73", (0, (7, 1.5))),
    "dist-rdp-se:s=100": ("#56b4e9", (0, (7, 1.5, 1.2, 1.5))),
    "dist-cdp-se": ("#cc79a7", "-"),
    "dp-se": ("#e69f00", (0, (3, 1))),
    "shuffled-se": ("#8c5109", (0, (5, 1.5, 1, 1.5, 1, 1.5))),
}
"""The looks of the algorithms that appear most, the same in every picture."""

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bandits",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.parse_math": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "grid.linewidth": 0.5,
    "grid.color": "#dddddd",
}
_METADATA: Final[dict[str, dict[str, None]]] = {
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    ".png": {"Software": None},
    ".pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    r"""A line: ``y`` at rising ``x``, each with its standard ``error``, called ``label``.

    >>> Curve(label="se", x=(1, 10), y=(0.25, 0.1), error=(0.0, 0.01)).label
    'se'

    Raises :class:`InvalidParameter` for no point, lengths that differ, numbers that are not finite,
    an x that does not rise and an error below 0.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]

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
    r"""One pair of axes, with the names and units of both."""

    title: str
    curves: Sequence[Curve]
    x_label: str = "round t"
    y_label: str = "regret per round, Reg(t)/t"
    x_scale: Scale = "log"
    y_scale: Scale = "log"
    ticks: Sequence[float] = field(default=())

    def __post_init__(self) -> None:
        if not self.curves:
            raise InvalidParameter("curves", self.title, "must hold one curve or more")


def check_picture(argument: str, path: Path) -> None:
    r"""Whether a picture can be written there, before time is spent on what it shows.

    >>> check_picture("--output", Path("regret.gif"))
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --output = regret.gif: must end in .svg, .png, .pdf

    Raises :class:`InvalidParameter`, naming ``argument``, for an ending that is no picture's, a
    folder that is not there or not to be written to, and a missing matplotlib, by the extra's name.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise InvalidParameter(argument, str(path), f"must end in {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise InvalidParameter(argument, str(path), f"there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidParameter(argument, str(path), "is no place that a file can be written to")
    if find_spec("matplotlib") is None:
        raise InvalidParameter(argument, str(path), "needs matplotlib: pip install 'dpcore[plot]'")


def draw_regret(path: Path, curves: Sequence[Curve], *, title: str) -> None:
    r"""Time-averaged regret Reg(t)/t against t, both axes logarithmic, bands of one standard error.

    ``x`` of a curve is t, ``y`` the mean of Reg(t)/t over instances, ``error`` its standard error.
    Errors as :func:`draw_panels`.
    """
    draw_panels(path, (Panel(title=title, curves=curves),), title="")


def draw_panels(path: Path, panels: Sequence[Panel], *, title: str) -> None:
    r"""The panels one above the other, a curve's look the same in all; SVG, PNG or PDF by ending.

    Bands, or bars where points are few, are one standard error to both sides. The picture is
    written beside its place and moved there when it is whole.

    Raises :class:`InvalidParameter` for no panel, what :func:`check_picture` refuses, and a value
    <= 0 on a logarithmic axis where no curve has one above.
    """
    check_picture("path", path)
    if not panels:
        raise InvalidParameter("panels", panels, "must hold one panel or more")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    head = _HEAD if title else 0.0
    height = head + len(panels) * _HEIGHT
    looks = _looks(curve.label for panel in panels for curve in panel.curves)
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), facecolor="white")
        if title:
            place = (_LEFT / _WIDTH, 1 - 0.12 / height)
            figure.suptitle(title, x=place[0], y=place[1], ha="left", va="top", fontsize=10.5)
        for row, panel in enumerate(panels):
            low = height - head - (row + 1) * _HEIGHT + _BOTTOM
            box = (
                _LEFT / _WIDTH,
                low / height,
                (_WIDTH - _LEFT - _RIGHT) / _WIDTH,
                (_HEIGHT - _TOP - _BOTTOM) / height,
            )
            _draw(figure.add_axes(box), panel, looks)
        _save(figure, path)


def _looks(labels: Iterable[str]) -> dict[str, _Look]:
    # By its name, by the first word of it where no other has that look, or the next that is free.
    found: dict[str, _Look] = {}
    names = dict.fromkeys(labels)
    for key in (str, _first_word):
        for name in names:
            look = _LOOKS.get(key(name))
            if name not in found and look is not None and look not in found.values():
                found[name] = look
    free = [look for look in _LOOKS.values() if look not in found.values()] or [*_LOOKS.values()]
    others = [name for name in names if name not in found]
    return found | {name: free[i % len(free)] for i, name in enumerate(others)}


def _first_word(name: str) -> str:
    return (name.split() or [""])[0].rstrip(",").partition(":")[0]


def _draw(axes: Axes, panel: Panel, looks: dict[str, _Look]) -> None:
    axes.set_xscale(panel.x_scale)
    axes.set_yscale(panel.y_scale)
    low, high = _range(panel)
    lasts = max(curve.x[-1] for curve in panel.curves)
    firsts = min(curve.x[0] for curve in panel.curves)
    for curve in panel.curves:
        _line(axes, curve, *looks[curve.label], floor=low)
    axes.set_ylim(low, high)
    if any(len(curve.x) > _FEW for curve in panel.curves):
        axes.set_xlim(firsts, lasts)
    elif panel.x_scale == "log":  # room for the marks at both ends
        axes.set_xlim(firsts / 1.15, lasts * 1.15)
    else:
        room = 0.05 * (lasts - firsts) or 1.0
        axes.set_xlim(firsts - room, lasts + room)
    for axis, scale in ((axes.xaxis, panel.x_scale), (axes.yaxis, panel.y_scale)):
        if scale == "log":
            axis.set_major_formatter(lambda value, _: _number(value))
            axis.set_minor_formatter("")
        else:
            axis.set_major_formatter(lambda value, _: f"{value:g}")
    if panel.y_scale == "log" and high < low * 50:  # few powers of ten: name what is between
        steps = [m * 10.0**k for k in range(-12, 12) for m in (1, 2, 5)]
        shown = [step for step in steps if low <= step <= high]
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


def _line(axes: Axes, curve: Curve, colour: str, dashes: Any, *, floor: float) -> None:
    y = [max(value, floor) for value in curve.y]
    few = len(curve.x) <= _FEW
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.5} if few else {}
    axes.plot(curve.x, y, color=colour, linestyle=dashes, linewidth=1.5, **mark)
    low = [max(v - e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    high = [max(v + e, floor) for v, e in zip(curve.y, curve.error, strict=True)]
    if few:
        axes.vlines(curve.x, low, high, color=colour, linewidth=1.0)
    else:
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0)


def _names(axes: Axes, panel: Panel, looks: dict[str, _Look]) -> None:
    # Names right of the axes, as near to the ends of their lines as they find room.
    (low, high), (left, right) = axes.get_ylim(), axes.get_xlim()

    def share(value: float, bottom: float, top: float, scale: Scale) -> float:
        if scale == "log":
            value, bottom, top = (math.log(max(v, 1e-300)) for v in (value, bottom, top))
        return (value - bottom) / (top - bottom)

    ends = [
        (
            share(curve.x[-1], left, right, panel.x_scale),
            min(max(share(curve.y[-1], low, high, panel.y_scale), 0.0), 1.0),
        )
        for curve in panel.curves
    ]
    apart = 1.25 * _NAME_SIZE / _POINTS / (_HEIGHT - _TOP - _BOTTOM)
    places = spread([y for _, y in ends], apart)
    # Names that would leave the picture at the bottom or the top move back into it together.
    lift = max(0.0 - min(places), 0.0) + min(1.0 - max(places), 0.0)
    for curve, end, place in zip(panel.curves, ends, [y + lift for y in places], strict=True):
        colour, dashes = looks[curve.label]
        axes.plot(
            [end[0], 1.025, 1.045], [end[1], place, place], transform=axes.transAxes,
            color=colour, linewidth=0.6, clip_on=False,
        )  # fmt: skip
        axes.plot(
            [1.045, 1.115], [place, place], transform=axes.transAxes,
            color=colour, linestyle=dashes, linewidth=1.5, clip_on=False,
        )  # fmt: skip
        axes.text(
            1.13, place, curve.label, transform=axes.transAxes,
            color=_INK, fontsize=_NAME_SIZE, va="center",
        )  # fmt: skip


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


def _save(figure: Figure, path: Path) -> None:
    with whole_picture("path", path) as partial:
        figure.savefig(partial, dpi=_DOTS, metadata=_METADATA[path.suffix.lower()])
