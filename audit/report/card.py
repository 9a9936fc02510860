r"""The card of a report, for a notebook: its sentences in a frame that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from audit.claims.verdicts import Verdict
from audit.report.markup import definitions, document, head, section, several, text
from audit.wording.lines import Told

__all__ = ["card"]

_HEIGHT: Final = 560


def card(target: str, verdict: Verdict | None, told: Told, warnings: Sequence[str]) -> str:
    r"""The verdict on ``target``, what it rests on, and the warnings.

    The frame keeps the style of the card from that of the notebook, and no script runs in it.

    >>> told = Told(verdict="PROVEN", about="f keeps epsilon=1", rows=(), style="bold")
    >>> card("f", "proven", told, ())[:30]
    '<iframe sandbox title="Audit" '
    """
    rows = definitions((text(name.capitalize()), text(value)) for name, value in told.rows)
    items = several([f"<li>{text(warning)}</li>" for warning in warnings], "<li>{}</li>")
    body = (
        head(target, verdict, told.verdict, text(told.about))
        + f'<section aria-label="Summary">{rows}</section>'
        + section("Warnings", f'<ul class="warnings">{items}</ul>' if items else "")
    )
    page = escape(document(f"{text(told.verdict)}: {text(target)}", body))
    style = f"width:100%;height:{_HEIGHT}px;border:0"
    return f'<iframe sandbox title="Audit" style="{style}" srcdoc="{page}"></iframe>'
