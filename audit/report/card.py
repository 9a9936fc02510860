r"""The card of a report, for a notebook: its sentences in a frame that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from html import escape
from typing import Final

from audit.claims.verdicts import VerdictWord
from audit.evidence.event import Witness
from audit.report.markup import (
    copied,
    definitions,
    document,
    head,
    section,
    table,
    text,
    warning_list,
)
from audit.report.sentences import leak, scored
from audit.wording.lines import Told
from audit.wording.shorten import shortened
from dpcore.numbers.rounding import down

__all__ = ["card", "counted"]

_HEIGHT: Final = 560
_EVENT: Final = 1_500


def card(
    target: str,
    verdict: VerdictWord | None,
    told: Told,
    warnings: Sequence[str],
    witness: Witness | None = None,
) -> str:
    r"""The verdict on ``target``, what it rests on, the counts of a ``witness``, and the warnings.

    The frame keeps the style of the card from that of the notebook, and no script runs in it.

    >>> told = Told(verdict="PROVEN", about="f keeps epsilon=1", rows=(), style="bold")
    >>> card("f", "proven", told, ())[:30]
    '<iframe sandbox title="Audit" '
    """
    rows = definitions((text(name.capitalize()), text(value)) for name, value in told.rows)
    body = (
        head(target, verdict, told.verdict, text(told.about))
        + f'<section aria-label="Summary">{rows}</section>'
        + section("Witness", "" if witness is None else counted(witness, verdict))
        + warning_list(warnings)
    )
    page = escape(document(f"{text(told.verdict)}: {text(target)}", body))
    style = f"width:100%;height:{_HEIGHT}px;border:0"
    return f'<iframe sandbox title="Audit" style="{style}" srcdoc="{page}"></iframe>'


def counted(witness: Witness, verdict: VerdictWord | None) -> str:
    r"""The counts of a witness as a table, and what they mean.

    >>> witness = Witness(
    ...     event="output >= 4", world="B", inside_a=0, runs_a=8, inside_b=6, runs_b=8
    ... )
    >>> "<td>75%</td>" in counted(witness, "refuted")
    True
    """
    rows = [
        [
            world,
            f"{inside:,}",
            f"{runs:,}",
            f"{down(Fraction(100 * inside, runs), 3)}%" if runs else "",
        ]
        for world, inside, runs in (
            ("A", witness.inside_a, witness.runs_a),
            ("B", witness.inside_b, witness.runs_b),
        )
    ]
    refuted = verdict not in {"not_refuted", "nothing_measured"}
    note = (
        "The event was fixed by earlier runs, and counted on the runs after them. "
        + ("It points" if refuted else "It does not refute the claim; it points")
        + f" to dataset {witness.world}. "
        "The ratio of the shares is no bound: the bound is the epsilon above."
    )
    if witness.score is not None:
        note += f" The score was {text(scored(witness.score))}."
    if refuted and (why := leak(witness.feature)) is not None:
        note += f" It reads {text(why)}."
    return (
        copied(replace(witness, event=shortened(witness.event, _EVENT)), "witness")
        + table(["dataset", "runs in the event", "runs", "share"], rows, "The witness by dataset")
        + f'<p class="note">{note}</p>'
    )
