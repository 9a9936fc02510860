r"""The curve of a composition as a picture: what is proven, from above and from below.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from accounting.claims.bound import Bound
from dpcore.command.output_file import whole_picture
from dpcore.errors import InvalidParameter

__all__ = ["check_plot", "draw"]

_ENDINGS: Final = (".svg", ".png", ".pdf")
_SIZE: Final = (7.0, 4.5)
_DOTS: Final = 150
_LINE: Final = 95
_LINES: Final = 3
_SEEN: Final = 1 / 1000
"""Two lines that are closer than this part of the picture's width are one line to the eye."""


def check_plot(path: Path) -> None:
    r"""Whether a picture can be written there, before hours are spent on what it shows.

    Raises :class:`InvalidParameter` for an ending that is no picture's, a folder that is not there
    or that nothing may be written to, and a missing matplotlib, by the name of the extra.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise InvalidParameter("--plot", str(path), f"must end in {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise InvalidParameter("--plot", str(path), f"there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidParameter("--plot", str(path), "is no place that a file can be written to")
    try:
        import_module("matplotlib")  # found is not enough: it may be half installed
    except ImportError:
        reason = "needs matplotlib: pip install 'dpcore[plot]', or leave it out"
        raise InvalidParameter("--plot", str(path), reason) from None


def draw(path: Path, points: Sequence[tuple[float, Bound]], *, title: str) -> None:
    r"""``points``: (delta, bound of epsilon). Delta on a logarithmic axis, upwards.

    The picture is written beside the target and moved there when it is whole. What is proven are
    the points; the lines between them guide the eye, and the picture says so.

    Raises :class:`InvalidParameter` when no epsilon is finite, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    above = [(bound.upper_float, delta) for delta, bound in points]
    above = [(upper, delta) for upper, delta in above if upper < math.inf]
    if not above:
        raise InvalidParameter("--plot", str(path), "every epsilon is infinite: nothing to draw")
    below = [
        (bound.lower_float, delta)
        for delta, bound in points
        if bound.lower_float is not None and bound.lower_float < math.inf
    ]
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    marked: dict[str, Any] = {"marker": "o", "markersize": 2.5, "linewidth": 1.0}
    if _is_one_line(points):
        label = "proven: both bounds lie within this line"
        axes.plot(*zip(*above, strict=True), color="black", label=label, **marked)
    else:
        label = "proven upper bound: the promise"
        axes.plot(*zip(*above, strict=True), color="black", label=label, **marked)
        if below:
            label = "proven lower bound: nobody can promise less"
            axes.plot(*zip(*below, strict=True), color="tab:red", label=label, **marked)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta")
    axes.set_title("\n".join(wrap(title, _LINE, max_lines=_LINES)), fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(title="dots are proven, lines join them", title_fontsize="small", fontsize="small")
    with whole_picture("--plot", path) as partial:
        figure.savefig(partial, dpi=_DOTS)


def _is_one_line(points: Sequence[tuple[float, Bound]]) -> bool:
    ends = [(bound.lower_float, bound.upper_float) for _, bound in points]
    widest = max((upper for _, upper in ends if upper < math.inf), default=0.0)
    return all(
        lower is not None and (lower == upper or upper - lower <= _SEEN * widest)
        for lower, upper in ends
    )
