r"""Draw with matplotlib as inline SVG: text stays text, colours follow the page.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. The same data give the same
bytes. Ink and fills are CSS variables of the page (``--ink``, ``--a``, ``--b``, ...), so that one
picture serves light, dark and print; whatever a colour says, a shape or a word says too.

The reader's font is not known here. What is placed is placed by the widths of DejaVu Sans, which
is as wide as the fonts of common systems or wider; a sign that it lacks counts as 1.25 em.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["FAINT", "INK", "MARK", "PAPER", "WIDTH", "A", "B", "Side", "Ticks"]
__all__ += ["drawing", "fit_ticks", "number_ticks", "say", "svg", "tick_text", "width_of"]

WIDTH: Final = 4.8
r"""Of every figure, in inches."""

INK, FAINT, A, B, MARK, PAPER = (f"#00000{i}" for i in range(1, 7))
_VARIABLES: Final = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    A: "var(--a)",
    B: "var(--b)",
    MARK: "var(--mark)",
    PAPER: "var(--paper)",
}
_SIZE: Final = 8.5
_STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": _SIZE,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": _SIZE,
    "hatch.linewidth": 0.6,
}
_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_FINER: Final = 16
r"""Measured so much larger: a small font is moved to whole dots."""

_LACKING: Final = 1.25
_APART: Final = 0.7

Side: TypeAlias = Literal["left", "center", "right"]
Ticks: TypeAlias = Sequence[tuple[float, str]]


@contextmanager
def drawing(name: str, height: float) -> Iterator[tuple[Figure, Axes]]:
    r"""An empty figure of ``height`` inches, drawn on and turned to SVG within the block."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text is never mathematics here: a dollar sign in a label is a dollar sign.
    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name, "text.parse_math": False}
    with rc_context(style), warnings.catch_warnings():
        # Text stays text: what matplotlib's own font lacks, the reader's may have.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        yield figure, axes


def width_of(text: str) -> float:
    r"""How wide ``text`` may be, in points.

    >>> 0 < width_of("iii") < width_of("WWW") < width_of("漢漢漢")
    True
    """
    font, known = _font()
    shown = "".join(sign for sign in text if ord(sign) in known)
    font.set_size(_FINER * _SIZE, 72)  # matplotlib has one object for all sizes of a font
    font.set_text(shown)
    wide = float(font.get_width_height()[0]) / 64 / _FINER
    return wide + _LACKING * _SIZE * (len(text) - len(shown))


@cache
def _font() -> tuple[Any, frozenset[int]]:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    return font, frozenset(font.get_charmap())


def tick_text(value: float) -> str:
    r"""A round number beside an axis, thousands apart.

    >>> tick_text(12000.0), tick_text(0.25), tick_text(-0.0), tick_text(2.5e-7)
    ('12,000', '0.25', '0', '2.5e-7')
    """
    value += 0.0
    plain = value.is_integer() and abs(value) < 1e15
    return f"{int(value):,}" if plain else re.sub("(?<=e[+-])0", "", f"{value:,.10g}")


def fit_ticks(axis: Axis, choices: Iterable[Ticks]) -> None:
    r"""Set the first of ``choices`` whose texts stand apart along ``axis``; else the last one.

    A choice is what stands where: places on the axis, and texts.
    """
    # The room that other texts take is known only when they are laid out, and changes with these.
    figure: Any = axis.figure
    figure.draw_without_rendering()
    for ticks in choices:
        if _stand_apart(axis, ticks):
            axis.set_ticks([place for place, _ in ticks], labels=[text for _, text in ticks])
            figure.draw_without_rendering()
            if _stand_apart(axis, ticks):
                return
    axis.set_ticks([place for place, _ in ticks], labels=[text for _, text in ticks])


def _stand_apart(axis: Axis, ticks: Ticks) -> bool:
    upright = axis is axis.axes.yaxis
    ends = []
    for place, text in ticks:
        at = axis.get_transform().transform([place])[0]
        low, high = axis.get_transform().transform(axis.get_view_interval())
        middle = (at - low) / (high - low) * _length(axis)
        half = _SIZE / 2 if upright else width_of(text) / 2
        ends.append((middle - half, middle + half))
    return all(after[0] - before[1] >= _APART * _SIZE for before, after in pairwise(sorted(ends)))


def _length(axis: Axis) -> float:
    box = axis.axes.get_window_extent()
    return (box.height if axis is axis.axes.yaxis else box.width) * 72 / axis.figure.dpi


def number_ticks(axis: Axis, shown: Callable[[float], str] = tick_text) -> None:
    r"""Round numbers between the limits of a linear ``axis``, as many as stand apart."""
    from matplotlib.ticker import MaxNLocator

    low, high = axis.get_view_interval()
    choices = (MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]) for most in (7, 5, 4, 3, 2, 1))
    fit_ticks(
        axis,
        (
            [(float(x), shown(float(x))) for x in found.tick_values(low, high) if low <= x <= high]
            for found in choices
        ),
    )


def say(axes: Axes, at: tuple[float, float], text: str, side: Side, *, above: bool) -> None:
    r"""A text beside a place of the axes."""
    aside = {"left": 4, "center": 0, "right": -4}[side]
    axes.annotate(
        text, at, (aside, 5 if above else -5), textcoords="offset points",
        ha=side, va="bottom" if above else "top",
    )  # fmt: skip


def svg(figure: Figure, name: str, title: str, words: str) -> str:
    r"""The figure as an element of the page; ``words`` describe it for those who cannot see it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    # The page has its own style, and says itself what the picture is.
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub("<[^>]*>", lambda tag: _tag(tag[0], name), text)
    opening, rest = text.split(">", 1)
    opening = re.sub(r' (?:width|height)="[^"]*"', "", opening).removeprefix("<svg")
    head = (
        f'<svg class="figure"{opening} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(words)}</desc>'
    )
    return head + rest


def _tag(tag: str, name: str) -> str:
    # Several figures share a page: every id gets the name of its figure. What a target wrote
    # stands between the tags, and stays as it is.
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag
