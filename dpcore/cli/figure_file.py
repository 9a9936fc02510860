r"""Create the plots of all commands in one style, and write their files atomically.

The module needs matplotlib, an optional dependency: ``pip install 'dpcore[plot]'``. It opens no
window and changes no global setting. Plots of the same data are identical byte by byte.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, Literal

from dpcore.cli.files import check_writable, write_whole
from dpcore.errors import ABSENT, InvalidParameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text


NEEDED: Final = "needs matplotlib: pip install 'dpcore[plot]'"
r"""The message if matplotlib is not installed."""

_ENDINGS: Final = (".svg", ".png", ".pdf")
_DOTS: Final = 150
_SIZE: Final = (7.0, 4.5)
_LINE: Final = 95
_LINES: Final = 3
_INSIDE, _LABEL = 0.98, 0.85
r"""The largest widths of the legend and of one of its entries, as fractions of the plot's width."""

_PLAIN: Final = (5e-4, 1e4)
r"""The range of tick labels on a logarithmic axis that are written without an exponent."""

# Text in SVG files stays text instead of paths, and dollar signs do not start formulas.
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


def require_matplotlib(argument: str, value: object) -> None:
    r"""Raise an error, before any computation, if matplotlib cannot be imported."""
    try:
        import_module("matplotlib")  # finding it is not enough: the installation may be broken
    except ImportError:
        raise InvalidParameter(argument, value, NEEDED) from None


def axes_or_new(ax: Axes | None) -> Axes:
    r"""Return ``ax``, or the axes of a new figure if ``ax`` is None.

    Raises :class:`InvalidParameter` if matplotlib cannot be imported.
    """
    require_matplotlib("plot", ABSENT)
    if ax is None:
        from matplotlib.pyplot import subplots

        _, ax = subplots(layout="constrained")
    return ax


def check_picture(argument: str, path: Path) -> None:
    r"""Raise an error, before any computation, if no plot can be written to the path.

    >>> check_picture("--output", Path("regret.gif"))
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --output = regret.gif: must end in .svg, .png or .pdf

    Raises :class:`InvalidParameter` if the file extension is unknown, if the folder is missing or
    not writable, or if matplotlib cannot be imported.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise InvalidParameter(argument, str(path), "must end in .svg, .png or .pdf")
    check_writable(argument, path)
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
    r"""Yield a new figure of ``size`` inches, and write it atomically when the block ends."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE | (style or {})):
        figure = Figure(figsize=size, **options)
        yield figure
        number_log_axes(figure)
        ending, drawn = path.suffix.lower(), io.BytesIO()
        figure.savefig(drawn, format=ending[1:], dpi=_DOTS, metadata=_METADATA[ending])
    write_whole(argument, path, drawn.getvalue())


@contextmanager
def curve_picture(
    argument: str,
    path: Path,
    *,
    title: str,
    x_label: str = "epsilon",
    y_label: str = "delta (logarithmic axis)",
    y_scale: Literal["log", "linear"] = "log",
) -> Iterator[Axes]:
    r"""Yield the axes of a plot of proven points joined by lines, such as delta against epsilon."""
    with picture(argument, path, size=_SIZE, layout="constrained") as figure:
        axes = figure.add_subplot()
        yield axes
        axes.set_yscale(y_scale)
        axes.set_xlim(left=0)
        if y_scale == "linear":
            axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(visible=True, alpha=0.3)
        fold(figure.suptitle(title, fontsize="small"), _INSIDE * figure.bbox.width)
        outside_legend(
            figure,
            "outside lower center",
            title="dots are proven, lines join them",
            title_fontsize="small",
            fontsize="small",
        )


def outside_legend(
    figure: Figure, place: Literal["outside lower center", "outside upper left"], **options: Any
) -> None:
    r"""Add a legend next to the axes, with up to three columns."""
    for columns in (3, 2, 1):
        legend = figure.legend(loc=place, ncols=columns, **options)
        for text in legend.get_texts():
            fold(text, _LABEL * figure.bbox.width)
        if columns == 1 or legend.get_window_extent().width <= _INSIDE * figure.bbox.width:
            return
        legend.remove()


def fold(text: Text, width: float, lines: int = _LINES) -> None:
    r"""Wrap a text to ``lines`` lines or fewer of at most ``width`` pixels, or truncate it."""
    words = text.get_text()
    for letters in range(_LINE, 9, -5):
        text.set_text("\n".join(wrap(words, letters, max_lines=lines)))
        if text.get_window_extent().width <= width:  # letters have different widths
            return


def number_log_axes(figure: Figure) -> None:
    r"""Label logarithmic axes with plain numbers instead of matplotlib's formulas."""
    from matplotlib.ticker import LogFormatter, LogFormatterMathtext

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return tick_number(x) if super().__call__(x, pos) else ""

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
                axis.set_major_formatter(Plain())
            if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
                axis.set_minor_formatter(Plain(labelOnlyBase=False))


def tick_number(value: float) -> str:
    r"""Format a tick label of a logarithmic axis."""
    plain = _PLAIN[0] <= value < _PLAIN[1]
    return f"{value:g}" if plain else re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.0e}")
