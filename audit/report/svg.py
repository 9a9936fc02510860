r"""Draw with matplotlib as inline SVG: text stays text, colours follow the page.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``. The same data give the same
bytes. Ink and fills are CSS variables of the page (``--ink``, ``--a``, ``--b``, ...), so that one
picture serves light, dark and print; whatever a colour says, a shape or a word says too.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from dpcore.command.picture import number_log_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH: Final = 4.8
INK, FAINT, A, B, MARK, PAPER = (f"#00000{i}" for i in range(1, 7))
_VARIABLES: Final = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    A: "var(--a)",
    B: "var(--b)",
    MARK: "var(--mark)",
    PAPER: "var(--paper)",
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    # As wide as the fonts of common systems, or wider: the reader's font is not known here.
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
}
_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@contextmanager
def drawing(name: str, height: float) -> Iterator[tuple[Figure, Axes]]:
    r"""An empty figure of ``height`` inches, drawn on and turned to SVG within the block."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name}
    with rc_context(style), warnings.catch_warnings():
        # The reader may have the glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
        yield figure, figure.add_subplot(facecolor="none")


def svg(figure: Figure, name: str, title: str, words: str) -> Markup:
    r"""The figure as an element of the page; ``words`` describe it for those who cannot see it."""
    number_log_axes(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    # The page has its own style and its own description of the picture.
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
    return Markup(head + rest)  # noqa: S704  # matplotlib's own, and escaped words


def _tag(tag: str, name: str) -> str:
    # Several figures share a page: every id gets the name of its figure. What a target wrote
    # stands between the tags, and stays as it is.
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag
