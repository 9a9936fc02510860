r"""The curve of a composition as a picture: what is proven, from above and from below.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from accounting.bound import Bound
from dpcore.errors import InvalidParameter

__all__ = ["check_plot", "draw"]

_ENDINGS: Final = (".svg", ".png", ".pdf")
_SIZE: Final = (7.0, 4.5)
_DOTS: Final = 150
_TITLE: Final = 80


def check_plot(path: Path) -> None:
    r"""Whether a picture can be written there, before hours are spent on what it shows.

    Raises :class:`InvalidParameter` for an ending that is no picture's, a folder that is not there,
    and a missing matplotlib, by the name of the extra.
    """
    if path.suffix not in _ENDINGS:
        raise InvalidParameter("--plot", str(path), f"must end in {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise InvalidParameter("--plot", str(path), f"there is no folder {path.parent}")
    if find_spec("matplotlib") is None:
        raise InvalidParameter(
            "--plot", str(path), "needs matplotlib: pip install 'dpcore[plot]', or leave it out"
        )


def draw(path: Path, points: Sequence[tuple[float, Bound]], *, title: str) -> None:
    r"""``points``: (delta, bound of epsilon). Delta on a logarithmic axis, upwards.

    Written beside the target and moved there when it is whole.
    """
    from matplotlib.figure import Figure

    shown = [(delta, bound) for delta, bound in points if bound.upper_float < math.inf]
    if not shown:
        raise InvalidParameter("--plot", str(path), "every epsilon is infinite: nothing to draw")
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        [bound.upper_float for _, bound in shown],
        [delta for delta, _ in shown],
        color="black",
        label="proven upper bound: the promise",
    )
    below = [(bound.lower_float, delta) for delta, bound in shown if bound.lower_float is not None]
    if below:
        axes.plot(
            [lower for lower, _ in below],
            [delta for _, delta in below],
            color="tab:red",
            linestyle="--",
            label="proven lower bound: no analysis can promise less",
        )
    axes.set_yscale("log")
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta (chance that the promise of epsilon fails)")
    axes.set_title(title if len(title) <= _TITLE else f"{title[: _TITLE - 3]}...", fontsize="small")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial, dpi=_DOTS)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
