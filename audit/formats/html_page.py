r"""One self-contained HTML page, or a card for a notebook: no network, no script.

The markup is in ``templates/``. Jinja2 escapes every text; invisible characters are replaced, long
texts are cut, and the content security policy of the page forbids loading anything. The colours of
the datasets are distinguishable with every kind of colour vision (after Okabe and Ito's palette).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from markupsafe import Markup, escape

from audit.formats.shorten import printable, shortened

# Limits that keep a page below 2 MB, for all outputs of a target.
_MOST_SIGNS: Final = 500
_MOST_CODE: Final = 200
_MOST_COPIED: Final = 2_000
_EMBEDDED: Final = 300_000

_HEIGHT: Final = 560
_LOOKS: Final = {
    "bold red": ("refuted", "✗"),
    "bold yellow": ("open", "○"),
    "bold green": ("proven", "✓"),
    "bold magenta": ("failed", "!"),
}
r"""For each verdict style: its class in the style sheet, and a symbol next to the colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    r"""A part of a page, with optional text to copy, picture, note, facts and table.

    One click selects all of ``copied``; ``folded`` is the title of a collapsed table.
    """

    title: str = ""
    copied: str | Markup = ""
    id: str = ""
    svg: Markup = Markup()
    note: str | Markup = ""
    facts: Sequence[tuple[str, object]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    folded: str = ""


def card(document: str) -> str:
    r"""A page in an iframe, for a notebook, with its own style."""
    style = f"width:100%;height:{_HEIGHT}px;border:0"
    return f'<iframe sandbox title="Audit" style="{style}" srcdoc="{escape(document)}"></iframe>'


def code(value: object) -> Markup:
    r"""The text as HTML code, cut if it is long."""
    return Markup("<code>{}</code>").format(_escape_text(value, _MOST_CODE))


def copied(value: object) -> Markup:
    r"""The text escaped for copying; it may be longer than other texts."""
    return _escape_text(value, _MOST_COPIED)


def as_json(value: object, *, indent: int | None = None) -> str:
    r"""The value as JSON; values that JSON cannot represent become text."""
    return json.dumps(value, indent=indent, default=str, ensure_ascii=False)


def page(
    rows: Iterable[tuple[str, object]],
    sections: Iterable[Section],
    *,
    style: str,
    document: str = "",
    **texts: object,
) -> str:
    r"""The HTML page with ``rows``, ``sections`` and ``document``, the JSON of the result.

    ``style`` is the terminal style of the verdict; ``texts`` are the other texts of the template.
    """
    look, sign = _LOOKS.get(style, _LOOKS["bold yellow"])
    # The JSON is ASCII: characters that HTML cannot contain are escaped, so nothing is lost.
    embedded = escape(document)
    if len(embedded) > _EMBEDDED:
        embedded = Markup("Too long for a page: write it to a file with dpcore audit --output.")
    page: str = _template().render(
        look=look, sign=sign, code=code, document=embedded, sections=list(sections),
        rows=[(name.capitalize(), value) for name, value in rows], **texts,
    )  # fmt: skip
    return page


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow

    made = Environment(
        loader=PackageLoader("audit.formats"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("page.html")


def _escape_text(value: object, most: int = _MOST_SIGNS) -> Markup:
    # Escape any text; a long one is shortened to its start, length and digest.
    if isinstance(value, Markup):
        return value
    return escape(printable(shortened(str(value), most)))
