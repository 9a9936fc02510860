r"""A report on canaries as one self-contained HTML page: the verdict first, no script."""

from __future__ import annotations

from typing import Final

from audit.report.markup import (
    copied,
    definitions,
    document,
    folded,
    head,
    section,
    table,
    text,
    warning_list,
)
from audit.training.canary_report import CanaryReport

__all__ = ["page"]

_COLUMNS: Final = ("scores from", "to", "included", "excluded")


def page(report: CanaryReport, *, command: str | None = None) -> str:
    r"""The whole page: verdict, bounds, assumptions, scores; ``command`` repeats the audit.

    >>> from audit.training.canaries import canaries
    >>> shown = page(canaries(list(range(200)), [i >= 100 for i in range(200)], "epsilon=1"))
    >>> "<strong>REFUTED</strong>" in shown, "<script" in shown
    (True, False)
    """
    told = report.told()
    cells = [
        [f"{cell.low:.6g}", f"{cell.high:.6g}", f"{cell.included:,}", f"{cell.excluded:,}"]
        for cell in report.histogram
    ]
    body = (
        head("one run of a training", report.verdict, told.verdict, text(told.about)),
        warning_list(report.warnings),
        section(
            "What was found",
            definitions((text(name.capitalize()), text(value)) for name, value in told.rows),
        ),
        section("Scores", table(_COLUMNS, cells, "Canaries by their score")),
        section("To repeat", "" if command is None else copied(command, "command")),
        folded("This report as JSON", copied(report.to_text(), "report-json")),
    )
    return document(f"{text(told.verdict)}: canaries", "\n".join(part for part in body if part))
