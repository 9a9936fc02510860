r"""A report as a person reads it: half a screen, the verdict first, every number with its side.

What is printed as a bound is rounded in the direction that keeps it one.
"""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from audit.claims.claim import Claim
from audit.claims.claim import shown as written
from audit.claims.levels import shown_p_value
from audit.claims.verdicts import Verdict
from audit.evidence.coverage import said
from audit.evidence.event import Witness
from audit.report.report import AuditReport, ExactWitness
from dpcore.command.terminal import printable
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import down, up
from dpcore.spelling import write_noise

if TYPE_CHECKING:
    from audit.catalogue import Entry
    from audit.fit.report import FitReport

__all__ = ["catalogue_table", "resolution_reached", "show", "table"]

_WORDS: Final[dict[Verdict | None, tuple[str, str]]] = {
    "refuted": ("REFUTED", "bold red"),
    "not_refuted": ("NOT REFUTED AT THIS RESOLUTION", "bold yellow"),
    "proven": ("PROVEN", "bold green"),
    "nothing_measured": ("NOTHING MEASURED", "bold magenta"),
    None: ("THE TARGET FAILED", "bold magenta"),
}
_FAULTS: Final = ("FAULTS FOUND", "bold red")
_SEVERITIES: Final = {"error": "fault", "warning": "warning", "note": "note"}
_SHOWN: Final = 60
_NAMED: Final = 3
_NARROWEST, _WIDEST = 40, 100


def _between(value: Enclosure, digits: int) -> str:
    low, high = down(value.lower, digits), up(value.upper, digits)
    return f"exactly {low}" if low == high else f"between {low} and {high}"


def table(report: AuditReport, width: int) -> list[str]:
    r"""The lines, none longer than ``width`` where words allow; the first begins with the verdict.

    >>> from audit.claims.claim import Claim
    >>> report = AuditReport(
    ...     target="f.py:f",
    ...     claim=Claim(epsilon=1),
    ...     pair=(0, 1),
    ...     verdict="not_refuted",
    ...     epsilon_lower=0.25,
    ...     alpha="0.05",
    ...     runs_by_world=(0, 0),
    ...     stopped="interrupted",
    ... )
    >>> table(report, 80)
    ['NOT REFUTED AT THIS RESOLUTION  f.py:f on epsilon=1', '  pair  A = 0, B = 1 (replace)']
    """
    rows = list(_rows(report))
    margin = max(len(name) for name, _ in rows) + 4
    lines = textwrap.wrap(
        f"{_words(report)[0]}  {_headline(report)}", width, break_on_hyphens=False
    )
    for name, value in rows:
        first = f"  {name}".ljust(margin)
        wrapped = textwrap.wrap(
            value,
            width,
            initial_indent=first,
            subsequent_indent=" " * margin,
            break_on_hyphens=False,
        )
        lines += wrapped
    return lines


def show(report: AuditReport, file: TextIO) -> None:
    r"""Print the table; in colour on a terminal that has some."""
    lines = [printable(line) for line in table(report, _width())]
    if not file.isatty():
        file.write("\n".join(lines) + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    words, style = _words(report)
    for line in lines:
        text = Text(line)
        text.stylize(style, 0, len(words) if line.startswith(words) else 0)
        console.print(text)


def catalogue_table(entries: Sequence[Entry]) -> list[str]:
    r"""One line an entry: what to type, what it claims, what is wrong with it.

    >>> from audit.catalogue import ENTRIES
    >>> catalogue_table(ENTRIES)[1].startswith("half-scale")
    True
    """
    margin = max(len(entry.name) for entry in entries) + 2
    lines = ["dpcore audit TARGET, with TARGET one of"]
    for entry in entries:
        claim = Claim(epsilon=entry.epsilon, delta=entry.delta, relation=entry.relation)
        lines += textwrap.wrap(
            f"{claim}. {entry.sentence} The correct twin: {entry.twin.name}.",
            _width(),
            initial_indent=entry.name.ljust(margin),
            subsequent_indent=" " * margin,
            break_on_hyphens=False,
        )
    return lines


def _width() -> int:
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def _words(report: AuditReport) -> tuple[str, str]:
    open_ended = report.verdict in {"not_refuted", "nothing_measured"}
    return _FAULTS if report.faults and open_ended else _WORDS[report.verdict]


def _headline(report: AuditReport) -> str:
    match report.verdict:
        case "refuted":
            return f"{report.target} does not keep {report.claim}"
        case "proven":
            return f"{report.target} keeps {report.claim}"
        case _:
            return f"{report.target} on {report.claim}"


def _rows(report: AuditReport) -> Iterator[tuple[str, str]]:
    yield from _datasets(report)
    yield from _bounds(report)
    if report.witness is not None and report.verdict == "refuted":
        yield "witness", _witness(report.witness)
    if report.outcomes:
        yield "tests", _outcomes(report)
    if report.fit is not None:
        yield "fit", _fit(report.fit)
    for finding in report.findings:
        yield _SEVERITIES[finding.severity], f"{finding.statement} [{finding.kind}]"
    for baseline in report.baselines:
        bound = baseline.epsilon_lower
        said = baseline.says if bound is None else f"{down(bound)} ({baseline.says})"
        yield "compare", f"{baseline.name}: {said}"
    if report.runs:
        yield "runs", f"{report.runs:,}: {report.stopped}"
        yield "resolution", resolution_reached(report)
    yield from _layers(report)
    if report.seed is not None and report.runs:
        only = "" if report.repeatable else " (the coins of the audit; the target has its own)"
        yield "repeat", f"--seed {report.seed}{only}"


def _datasets(report: AuditReport) -> Iterator[tuple[str, str]]:
    shown = [_short(dataset) for dataset in report.pair]
    which = ""
    if report.pairs:
        which = f"{report.pairs.index(report.pair) + 1} of {len(report.pairs)}: "
    relation = report.claim.to_json()["relation"]
    yield "pair", f"{which}A = {shown[0]}, B = {shown[1]} ({relation})"
    if report.search is not None:
        yield "search", f"found by {report.search.runs:,} further runs in {report.search.space}"


def _bounds(report: AuditReport) -> Iterator[tuple[str, str]]:
    at = f" at delta = {written(report.at_delta)}" if report.outcomes else ""
    if report.exact is not None:
        yield "epsilon", f"{_between(report.exact.epsilon, 9)} on this pair{at}"
        yield "delta", f"{_between(report.exact.delta, 9)} at the claimed epsilon"
    if not report.runs:
        return
    # Of two layers the bound is the proven one, unless only the runs refute.
    if report.exact is None or isinstance(report.witness, Witness):
        name = "epsilon" if report.exact is None else "sampled"
        sure = down(100 * (1 - rational("alpha", report.alpha)), 6)
        yield name, f"at least {down(report.epsilon_lower)}{at}, with {sure}% confidence"
    yield "evidence", _evidence(report)


def _layers(report: AuditReport) -> Iterator[tuple[str, str]]:
    for layer in report.layers:
        if layer.layer in {"exact", "replay"}:
            yield layer.layer, layer.proves
        elif report.runs and layer.layer == "sample":
            alpha = up(rational("alpha", report.alpha), 6)
            yield "sample", f"assumes independent runs; a false alarm has probability <= {alpha}"


def _outcomes(report: AuditReport) -> str:
    refuted = [outcome for outcome in report.outcomes if outcome.refuted]
    found = f"{len(refuted)} of {len(report.outcomes)} refuted"
    named = [
        str(outcome.claim)
        + (f" on pair {outcome.pair + 1}" if report.pairs else "")
        + (f" by {outcome.feature}" if outcome.feature is not None else "")
        for outcome in refuted[:_NAMED]
    ]
    more = ", ..." if len(refuted) > _NAMED else ""
    return found + (f": {'; '.join(named)}{more}" if named else "")


def _fit(fitted: FitReport) -> str:
    law = write_noise(fitted.law)
    if fitted.verdict == "refuted":
        return f"{fitted.runs:,} draws do not have the law {law}: {fitted.witness}"
    if fitted.e_value is not None:
        return f"{fitted.runs:,} draws, e-value {down(fitted.e_value, 3)} against the law {law}"
    return f"{fitted.runs:,} draws, p-value {shown_p_value(fitted.p_value or 0.0)} of the law {law}"


def _evidence(report: AuditReport) -> str:
    alpha = rational("alpha", report.alpha)
    if report.e_value is not None:
        return f"e-value {down(report.e_value, 3)}; {up(1 / alpha, 6)} or more refutes"
    return f"p-value {shown_p_value(report.p_value or 0.0)}; {down(alpha, 6)} or less refutes"


def _witness(witness: Any) -> str:
    if not isinstance(witness, ExactWitness):
        return str(witness)
    shown = [
        f"P in [{down(p.lower, 6)}, {up(p.upper, 6)}] in world {world}"
        for world, p in (("A", witness.probability_a), ("B", witness.probability_b))
    ]
    return f"{witness.event}: {', '.join(shown)} (points to {witness.world})"


def resolution_reached(report: AuditReport) -> str:
    r"""What these runs would have seen; a probability rounded up."""
    if report.verdict == "nothing_measured":
        (first, *_) = [each.reason for each in report.coverage] or ["no run was drawn"]
        return f"none: {first}"
    if not math.isfinite(report.resolution):
        return "these are too few runs to count on refuting anything"
    seen = up(report.resolution, 2)
    but = said([each.to_json() for each in report.coverage])
    return f"would catch an output that only one dataset gives, from probability {seen} on{but}"


def _short(dataset: Any) -> str:
    text = json.dumps(dataset, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
