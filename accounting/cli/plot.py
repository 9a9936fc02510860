r"""The curve of a composition as a picture: what is proven, from above and from below.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from accounting.claims.bound import Bound
from dpcore.command.picture import curve_picture
from dpcore.errors import InvalidParameter

__all__ = ["draw"]

_SEEN: Final = 1 / 1000
"""Two lines that are closer than this part of the picture's width are one line to the eye."""


def draw(path: Path, points: Sequence[tuple[float, Bound]], *, title: str) -> None:
    r"""``points``: (delta, bound of epsilon). Delta on a logarithmic axis, upwards.

    The picture is written beside the target and moved there when it is whole. What is proven are
    the points; the lines between them guide the eye, and the picture says so.

    Raises :class:`InvalidParameter` when no epsilon is finite, or the file cannot be written.
    """
    above = [(bound.upper_float, delta) for delta, bound in points]
    above = [(upper, delta) for upper, delta in above if upper < math.inf]
    if not above:
        raise InvalidParameter("--plot", str(path), "every epsilon is infinite: nothing to draw")
    below = [
        (bound.lower_float, delta)
        for delta, bound in points
        if bound.lower_float is not None and bound.lower_float < math.inf
    ]
    marked: dict[str, Any] = {"marker": "o", "markersize": 2.5, "linewidth": 1.0}
    with curve_picture("--plot", path, title=title) as axes:
        if _is_one_line(points):
            label = "proven: both bounds lie within this line"
            axes.plot(*zip(*above, strict=True), color="black", label=label, **marked)
        else:
            label = "proven upper bound: the promise"
            axes.plot(*zip(*above, strict=True), color="black", label=label, **marked)
            if below:
                label = "proven lower bound: nobody can promise less"
                axes.plot(*zip(*below, strict=True), color="tab:red", label=label, **marked)


def _is_one_line(points: Sequence[tuple[float, Bound]]) -> bool:
    ends = [(bound.lower_float, bound.upper_float) for _, bound in points]
    widest = max((upper for _, upper in ends if upper < math.inf), default=0.0)
    return all(
        lower is not None and (lower == upper or upper - lower <= _SEEN * widest)
        for lower, upper in ends
    )
