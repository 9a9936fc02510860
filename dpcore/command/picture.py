r"""Pictures that a command draws: one set-up of matplotlib, and files that are whole or not there.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. No window is opened and no
global setting changed; the same data give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from dpcore.command.output_file import whole_picture
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NEEDED", "check_picture", "curve_picture", "picture", "require_matplotlib"]

NEEDED: Final = "needs matplotlib: pip install 'dpcore[plot]'"
r"""What is said where matplotlib is not installed."""

_ENDINGS: Final = (".svg", ".png", ".pdf")
_DOTS: Final = 150
_SIZE: Final = (7.0, 4.5)
_LINE: Final = 95
_LINES: Final = 3
# Text stays text, and a dollar sign a dollar sign.
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dpcore",
    "text.parse_math": False,
}
_METADATA: Final[dict[str, dict[str, None]]] = {
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    ".png": {"Software": None},
    ".pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
}


def require_matplotlib(argument: str, value: str) -> None:
    r"""Refuse to start where nothing can be drawn, before hours are spent on what it would show.

    Raises :class:`InvalidParameter`, naming the argument and the extra.
    """
    try:
        import_module("matplotlib")  # found is not enough: it may be half installed
    except ImportError:
        raise InvalidParameter(argument, value, f"{NEEDED}, or leave it out") from None


def check_picture(argument: str, path: Path) -> None:
    r"""Refuse a place where no picture can be written, before time is spent on what it shows.

    >>> check_picture("--output", Path("regret.gif"))
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --output = regret.gif: must end in .svg, .png, .pdf

    Raises :class:`InvalidParameter`, naming the argument, for an ending that is no picture's, a
    folder that is missing or cannot be written to, and a missing matplotlib.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise InvalidParameter(argument, str(path), f"must end in {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise InvalidParameter(argument, str(path), f"there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidParameter(argument, str(path), "is no place that a file can be written to")
    require_matplotlib(argument, str(path))


@contextmanager
def picture(
    argument: str,
    path: Path,
    *,
    size: tuple[float, float],
    style: dict[Any, Any] | None = None,
    **options: Any,
) -> Iterator[Figure]:
    r"""An empty figure of ``size`` inches, drawn on in the block and then written, whole or not.

    ``style`` are settings of matplotlib within the block, ``options`` those of the figure.

    Raises :class:`InvalidParameter`, naming the argument, for what the system refuses.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE | (style or {})):
        figure = Figure(figsize=size, **options)
        yield figure
        with whole_picture(argument, path) as partial:
            figure.savefig(partial, dpi=_DOTS, metadata=_METADATA[path.suffix.lower()])


@contextmanager
def curve_picture(argument: str, path: Path, *, title: str) -> Iterator[Axes]:
    r"""Axes for delta over epsilon, delta on a logarithmic axis: lines that join proven points.

    Raises :class:`InvalidParameter` as :func:`picture`.
    """
    with picture(argument, path, size=_SIZE, layout="constrained") as figure:
        axes = figure.add_subplot()
        yield axes
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        axes.set_xlabel("epsilon")
        axes.set_ylabel("delta")
        axes.set_title("\n".join(wrap(title, _LINE, max_lines=_LINES)), fontsize="small")
        axes.grid(visible=True, alpha=0.3)
        how = "dots are proven, lines join them"
        axes.legend(title=how, title_fontsize="small", fontsize="small")
