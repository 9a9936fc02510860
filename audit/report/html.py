r"""An audit report as one self-contained HTML page: no network, no script, the verdict first.

A view of :class:`audit.report.report.AuditReport`: what the report lacks is left out of the page.
Every text of a target is shown as text, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

import json
from html import escape
from typing import Final

from audit.claims.claim import shown
from audit.report.card import counted
from audit.report.markup import (
    as_json,
    code,
    copied,
    definitions,
    document,
    folded,
    head,
    p_value,
    section,
    several,
    table,
    text,
    warning_list,
)
from audit.report.pictures import (
    claimed_section,
    histogram_section,
    trace_section,
    tradeoff_section,
)
from audit.report.report import SCHEMA, AuditReport, ExactWitness
from audit.report.sentences import confidence, refutals
from audit.wording.lines import between
from dpcore.numbers.rounding import down

__all__ = ["page"]

_EMBEDDED: Final = 300_000
r"""The most signs that the report as JSON may add to its page."""


def page(report: AuditReport, *, command: str | None = None) -> str:
    r"""The whole page; ``command`` is the command line that repeats the audit.

    >>> from audit.claims.claim import Claim
    >>> report = AuditReport(
    ...     target="<script>",
    ...     claim=Claim(epsilon=1),
    ...     pair=(0, 1),
    ...     verdict="not_refuted",
    ...     epsilon_lower=0.0,
    ...     alpha="0.05",
    ...     runs_by_world=(0, 0),
    ...     stopped="interrupted",
    ... )
    >>> shown = page(report)
    >>> "<h1><code>&lt;script&gt;</code></h1>" in shown, "<script" in shown
    (True, False)

    Needs matplotlib.
    """
    sections = (
        head(report.target, report.verdict, report.headline, _sentence(report)),
        _summary(report),
        warning_list(report.warnings),
        _witness(report),
        histogram_section(report),
        claimed_section(report),
        tradeoff_section(report),
        trace_section(report),
        _outcomes(report),
        _fit(report),
        _findings(report),
        _baselines(report),
        _search(report),
        _method(report),
        _repeat(report, command),
        _embedded(report),
    )
    title = f"{report.headline}: {text(report.target)}"
    return document(title, "\n".join(part for part in sections if part))


def _sentence(report: AuditReport) -> str:
    claim = code(report.claim)
    match report.verdict:
        case "refuted" if report.runs:
            return f"The claim {claim} does not hold. If it did, {refutals(report.alpha)}."
        case "refuted":
            return f"The claim {claim} does not hold: a proof, from the exact laws of the outputs."
        case "proven":
            return (
                f"The outputs on this pair keep {claim}: a proof, from their exact laws. It speaks "
                "of these laws and this pair, and of no other code or data."
            )
        case "not_refuted":
            return (
                f"The evidence does not contradict {claim}. That is no proof: what lies in the "
                "blind spot below may pass unseen."
            )
        case "nothing_measured":
            return (
                f"The runs do not measure {claim}: of at least one pair, the test could look at "
                "nothing in most of the outputs. The warnings below say why, and what to do."
            )
    said = "" if report.error is None else f"It {text(report.error.told)}. "
    return f"{said}There is no verdict on {claim}."


def _summary(report: AuditReport) -> str:
    relation = report.claim.to_json()["relation"]
    rows = [("claim", f"{text(report.claim)} ({text(relation)})")]
    pairs = report.pairs or (report.pair,)
    for i, pair in enumerate(pairs):
        datasets = (
            f"{world} = {code(as_json(data))}" for world, data in zip("AB", pair, strict=True)
        )
        rows.append(("pair" if len(pairs) == 1 else f"pair {i + 1}", ", ".join(datasets)))
    rows += [
        (name, text(value))
        for name, value in (*report.datasets(), *report.how())
        if name not in {"pair", "search", "repeat"}
    ]
    shown = definitions((text(name.capitalize()), value) for name, value in rows)
    return f'<section aria-label="Summary">{shown}</section>'


def _witness(report: AuditReport) -> str:
    witness = report.witness
    if witness is None:
        return ""
    if isinstance(witness, ExactWitness):
        return section("Witness", _exact_witness(witness))
    return section("Witness", counted(witness, report.verdict))


def _exact_witness(witness: ExactWitness) -> str:
    rows = [["A", between(witness.probability_a)], ["B", between(witness.probability_b)]]
    return (
        copied(witness.event, "witness")
        + table(["dataset", "probability (proven)"], rows, "The witness by dataset")
        + f'<p class="note">The event that is hardest on the claim; it points to dataset '
        f"{witness.world}.</p>"
    )


def _outcomes(report: AuditReport) -> str:
    if len(report.outcomes) < 2:
        return ""
    rows = [
        [
            str(row.pair + 1),
            "outputs themselves" if row.feature is None else code(row.feature),
            *map(shown, row.claim.exact),
            p_value(row.p_value) if row.e_value is None else down(row.e_value, 3),
            down(row.epsilon_lower),
            "<strong>refuted</strong>" if row.refuted else "no",
        ]
        for row in report.outcomes
    ]
    weight = "p-value" if report.outcomes[0].e_value is None else "e-value"
    columns = ["pair", "feature", "epsilon", "delta", weight, "epsilon at least", "refuted"]
    note = "The tests share the false-alarm level of the audit; each value is of its test alone."
    listed = table(columns, rows, "Every test of the audit")
    return section("All tests", f'{listed}<p class="note">{note}</p>')


def _fit(report: AuditReport) -> str:
    if report.fit is None:
        return ""
    rows = [
        (text(name.replace("_", " ")), text(value if isinstance(value, str) else as_json(value)))
        for name, value in report.to_json()["fit"].items()
        if value is not None
    ]
    return section("Does the sampler have its law?", definitions(rows))


def _findings(report: AuditReport) -> str:
    items = []
    for finding in report.findings:
        word = text(finding.severity) + (", refutes" if finding.refutes else "")
        told = f"<strong>{word}</strong>: {text(finding.statement)} "
        told += f'<span class="kind">[{text(finding.kind)}]</span>'
        if finding.witness:
            told += copied(as_json(finding.to_json()["witness"], indent=2))
        items.append(f"<li>{told}</li>")
    listed = several(items, "<li>{}</li>")
    return section("Replay findings", f'<ul class="findings">{listed}</ul>' if items else "")


def _baselines(report: AuditReport) -> str:
    rows = [
        [
            text(row.name),
            "none" if row.epsilon_lower is None else down(row.epsilon_lower),
            text(row.says),
            "yes" if row.valid else "<strong>no</strong>",
        ]
        for row in report.baselines
    ]
    if not rows:
        return ""
    columns = ["method", "epsilon", "what it says", "a confidence bound"]
    listed = table(columns, rows, "What other methods report on the same runs")
    note = "For comparison only: no verdict rests on these numbers."
    return section("Other methods", f'<p class="note">{note}</p>{listed}')


def _search(report: AuditReport) -> str:
    if report.search is None:
        return ""
    found = as_json(report.search.to_json(), indent=2)
    return section("Search for a pair", f"<pre>{text(found)}</pre>")


def _method(report: AuditReport) -> str:
    if not report.layers:
        return ""
    rows = [[text(each.layer), text(each.method), text(each.proves)] for each in report.layers]
    columns = ["layer", "method", "what its result proves"]
    shown = table(columns, rows, "The layers that ran")
    if report.runs:
        sure = confidence(report.alpha)
        shown = f'<p class="note">All bounds hold with {sure} confidence.</p>{shown}'
    return f"<section>{folded('Method: what ran, and what it proves', shown)}</section>"


def _repeat(report: AuditReport, command: str | None) -> str:
    how = dict(report.how())
    rows = [("Seed", text(how["repeat"]))] if "repeat" in how else []
    rows += [(text(name), text(version)) for name, version in sorted(report.versions.items())]
    rows.append(("Schema", SCHEMA))
    shown = "" if command is None else copied(command, "command")
    return section("To repeat", shown + definitions(rows))


def _embedded(report: AuditReport) -> str:
    # In ASCII: what no page can hold is escaped, and reads back as it was.
    whole, room = [], _EMBEDDED
    for piece in json.JSONEncoder(indent=2, default=str).iterencode(report.to_json()):
        whole.append(escape(piece))
        room -= len(whole[-1])
        if room < 0:
            shown = "<p>Too long for a page: dpcore audit --output keeps it.</p>"
            break
    else:
        shown = f'<pre id="report-json">{"".join(whole)}</pre>'
    return f"<section>{folded('This report as JSON', shown)}</section>"
