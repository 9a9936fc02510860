r"""An audit report as one self-contained HTML page: no network, no script, the verdict first.

Made from the JSON document of a report (:meth:`audit.report.report.AuditReport.to_json`). What the
document lacks is left out of the page. Every text of a target is shown as text, and the page's own
policy forbids it to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from html import escape
from typing import Any, Final, TypeAlias

from audit.claims.claim import Claim
from audit.evidence.coverage import said
from audit.report.labels import short
from audit.report.markup import (
    STYLE,
    as_json,
    between,
    code,
    confidence,
    copied,
    decimal,
    definitions,
    folded,
    p_value,
    section,
    several,
    table,
    text,
)
from audit.report.pictures import claimed_section, histogram_section, trace_section
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import down, up

__all__ = ["page"]

Document: TypeAlias = Mapping[str, Any]

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
_EVENT: Final = 1_500
_EMBEDDED: Final = 300_000
r"""The most signs that the report as JSON may add to its page."""

_VERDICTS: Final[dict[str | None, tuple[str, str, str]]] = {
    "refuted": ("REFUTED", "refuted", "✗"),
    "not_refuted": ("NOT REFUTED AT THIS RESOLUTION", "open", "○"),
    "proven": ("PROVEN", "proven", "✓"),
    "nothing_measured": ("NOTHING MEASURED", "failed", "!"),
    None: ("THE TARGET FAILED", "failed", "!"),
}


def page(document: Document, *, command: str | None = None) -> str:
    r"""The whole page; ``command`` is the command line that repeats the audit.

    Beside the keys of the report's schema it shows, where they are there: ``pairs``, ``outcomes``
    (:meth:`audit.evidence.outcome.Outcome.to_json`), ``findings`` (of a replay), ``baselines``
    (name, epsilon_lower, says, valid), ``histogram`` and ``trace`` (their ``to_json``), ``curve``
    ([epsilon, delta] of the claimed curve), ``search`` and ``command``.

    >>> from audit.report.report import AuditReport
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
    >>> shown = page(report.to_json())
    >>> "<h1><code>&lt;script&gt;</code></h1>" in shown, "<script" in shown
    (True, False)

    Needs matplotlib; :func:`audit.report.figures.check_figures` says so before an audit starts.
    """
    sections = (
        _head(document),
        _summary(document),
        _warnings(document),
        _witness(document),
        histogram_section(document),
        claimed_section(document),
        trace_section(document),
        _outcomes(document),
        _fit(document),
        _findings(document),
        _baselines(document),
        _search(document),
        _layers(document),
        _repeat(document, command or document.get("command")),
        _embedded(document),
    )
    title = f"{_VERDICTS[document['verdict']][0]}: {text(document['target'])}"
    body = "\n".join(part for part in sections if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n"
        "</main>\n</body>\n</html>\n"
    )


def _head(document: Document) -> str:
    words, style, sign = _VERDICTS[document["verdict"]]
    return (
        f'<header><p class="kind">Audit of</p><h1>{code(document["target"])}</h1>'
        f'<div class="verdict {style}"><p class="word"><span aria-hidden="true">{sign}</span> '
        f"<strong>{words}</strong></p><p>{_sentence(document)}</p></div></header>"
    )


def _sentence(document: Document) -> str:
    claim = code(_claim(document))
    alpha = rational("alpha", document["alpha"])
    match document["verdict"]:
        case "refuted" if document["runs"]:
            return (
                f"The claim {claim} does not hold. If it did, and the runs are independent, an "
                f"audit would refute it with probability at most {up(alpha, 6)}."
            )
        case "refuted":
            return f"The claim {claim} does not hold: a proof, from the exact laws of the outputs."
        case "proven":
            return (
                f"The outputs on this pair keep {claim}: a proof, from their exact laws. It speaks "
                "of these laws and this pair, and of no other code or data."
            )
        case "not_refuted":
            return (
                f"The evidence does not contradict {claim}. That is no proof: what lies "
                "below the resolution may pass unseen."
            )
        case "nothing_measured":
            return (
                f"The runs say nothing about {claim}: there was nothing in the outputs that the "
                "test could look at. The warnings below say why, and what to do."
            )
    error = document.get("error") or {}
    where = [f"dataset {error['dataset']}"] if error.get("dataset") else []
    where += [f"run {error['run']:,}"] if error.get("run") else []
    shown = f" ({', '.join(where)})" if where else ""
    return f"It {text(error.get('reason', 'failed'))}{shown}. There is no verdict on {claim}."


def _summary(document: Document) -> str:
    rows = [("Claim", f"{text(_claim(document))} ({text(document['claim']['relation'])})")]
    pairs = document.get("pairs") or [document["pair"]]
    for i, pair in enumerate(pairs):
        name = "Pair" if len(pairs) == 1 else f"Pair {i + 1}"
        shown = ", ".join(
            f"{world} = {code(as_json(data))}" for world, data in zip("AB", pair, strict=True)
        )
        rows.append((name, shown))
    exact = document.get("exact")
    if exact is not None:
        rows.append(("Exact epsilon", f"{between(exact['epsilon'])} on this pair (proven)"))
        rows.append(("Exact delta", f"{between(exact['delta'])} at the claimed epsilon (proven)"))
    if document["runs"]:
        bound = float(document["epsilon_lower"])
        sure = confidence(document)
        at_delta = rational("at_delta", document.get("at_delta") or 0)
        at = f" at delta = {decimal(str(at_delta))}" if at_delta else ""
        rows.append(
            ("Epsilon", f"<strong>at least {down(bound)}</strong>{at}, with {sure} confidence")
        )
        rows.append(("Evidence", _evidence(document)))
        by_world = document["runs_by_world"]
        counts = f"{document['runs']:,} ({by_world['a']:,} in world A, {by_world['b']:,} in B)"
        rows.append(("Runs", f"{counts}: {text(document['stopped'])}"))
        rows.append(("Resolution", _seen(document)))
    return f'<section aria-label="Summary">{definitions(rows)}</section>'


def _evidence(document: Document) -> str:
    alpha = rational("alpha", document["alpha"])
    if document["e_value"] is not None:
        return f"e-value {down(document['e_value'], 3)}; {up(1 / alpha, 6)} or more refutes"
    return f"p-value {p_value(document['p_value'])}; {down(alpha, 6)} or less refutes"


def _seen(document: Document) -> str:
    if not document["runs"]:
        return "no run was drawn"
    if document["verdict"] == "nothing_measured":
        return "none: nothing was measured"
    if document["resolution"] is None:
        return "these are too few runs to count on refuting anything"
    return (
        "these runs would catch an output that only one dataset gives, from probability "
        f"{up(document['resolution'], 2)} on{said(document.get('coverage') or ())}; "
        "rarer ones and smaller leaks can pass unseen"
    )


def _warnings(document: Document) -> str:
    found = [f"<li>{text(warning)}</li>" for warning in document.get("warnings") or ()]
    items = several(found, "<li>{}</li>")
    return section("Warnings", f'<ul class="warnings">{items}</ul>' if items else "")


def _witness(document: Document) -> str:
    witness = document.get("witness")
    if witness is None:
        return ""
    if "probability_a" in witness:
        return section("Witness", _exact_witness(witness))
    counts = [
        (world, witness[f"inside_{world.lower()}"], witness[f"runs_{world.lower()}"])
        for world in "AB"
    ]
    shown = (
        f"{short(witness['event'], _EVENT)}: {counts[0][1]} of {counts[0][2]} runs in world A, "
        f"{counts[1][1]} of {counts[1][2]} in world B (points to {witness['world']})"
    )
    rows = [
        [
            world,
            f"{inside:,}",
            f"{runs:,}",
            f"{down(Fraction(100 * inside, runs), 3)}%" if runs else "",
        ]
        for world, inside, runs in counts
    ]
    weak = document["verdict"] in {"not_refuted", "nothing_measured"}
    note = (
        "The event was fixed by earlier runs, and counted on the runs after them. "
        + ("It does not refute the claim; it points" if weak else "It points")
        + f" to world {text(witness['world'])}. "
        "The ratio of the shares is no bound: the bound is the epsilon above."
    )
    return section(
        "Witness",
        copied(shown, "witness")
        + table(["world", "runs in the event", "runs", "share"], rows, "The witness by world")
        + f'<p class="note">{note}</p>',
    )


def _exact_witness(witness: Document) -> str:
    rows = [[world, between(witness[f"probability_{world.lower()}"])] for world in "AB"]
    return (
        copied(witness["event"], "witness")
        + table(["world", "probability (proven)"], rows, "The witness by world")
        + f'<p class="note">The event that is hardest on the claim; it points to world '
        f"{text(witness['world'])}.</p>"
    )


def _outcomes(document: Document) -> str:
    outcomes = document.get("outcomes") or []
    if len(outcomes) < 2:
        return ""
    evidence = "e-value" if outcomes[0].get("e_value") is not None else "p-value"
    rows = [
        [
            str(row["pair"] + 1),
            "outputs themselves" if row["feature"] is None else code(row["feature"]),
            decimal(row["epsilon"]),
            decimal(row["delta"]),
            p_value(row["p_value"]) if row["e_value"] is None else down(row["e_value"], 3),
            down(float(row["epsilon_lower"])),
            "<strong>refuted</strong>" if row["refuted"] else "no",
        ]
        for row in outcomes
    ]
    columns = ["pair", "feature", "epsilon", "delta", evidence, "epsilon at least", "refuted"]
    note = "The tests share the false-alarm level of the audit; each value is of its test alone."
    listed = table(columns, rows, "Every test of the audit")
    return section("All tests", f'{listed}<p class="note">{note}</p>')


def _fit(document: Document) -> str:
    found = document.get("fit")
    if not found:
        return ""
    rows = [
        (text(name.replace("_", " ")), text(value if isinstance(value, str) else as_json(value)))
        for name, value in found.items()
        if value is not None
    ]
    return section("Does the sampler have its law?", definitions(rows))


def _findings(document: Document) -> str:
    items = []
    for finding in document.get("findings") or ():
        word = text(finding["severity"]) + (", refutes" if finding.get("refutes") else "")
        shown = f"<strong>{word}</strong>: {text(finding['statement'])} "
        shown += f'<span class="kind">[{text(finding["kind"])}]</span>'
        if finding.get("witness"):
            shown += copied(as_json(finding["witness"], indent=2))
        items.append(f"<li>{shown}</li>")
    listed = several(items, "<li>{}</li>")
    return section("Replay findings", f'<ul class="findings">{listed}</ul>' if items else "")


def _baselines(document: Document) -> str:
    rows = [
        [
            text(row["name"]),
            "none" if row["epsilon_lower"] is None else down(float(row["epsilon_lower"])),
            text(row.get("says", "")),
            "yes" if row.get("valid") else "<strong>no</strong>",
        ]
        for row in document.get("baselines") or ()
    ]
    if not rows:
        return ""
    columns = ["method", "epsilon", "what it says", "a confidence bound"]
    listed = table(columns, rows, "What other methods report on the same runs")
    note = "For comparison only: no verdict rests on these numbers."
    return section("Other methods", f'<p class="note">{note}</p>{listed}')


def _search(document: Document) -> str:
    found = document.get("search")
    if not found:
        return ""
    shown = found if isinstance(found, str) else as_json(found, indent=2)
    return section("Search for a pair", f"<pre>{text(shown)}</pre>")


def _layers(document: Document) -> str:
    rows = [
        [text(layer["layer"]), text(layer["method"]), text(layer["proves"])]
        for layer in document.get("layers") or ()
    ]
    columns = ["layer", "method", "what its result proves"]
    return section("What ran, and what it proves", table(columns, rows, "The layers that ran"))


def _repeat(document: Document, command: str | None) -> str:
    shown = "" if command is None else copied(command, "command")
    rows = []
    if document["seed"] is not None:
        only = "" if document["repeatable"] else " (the coins of the audit; the target has its own)"
        rows.append(("Seed", f"{document['seed']}{only}"))
    for name, version in (document.get("versions") or {}).items():
        rows.append((text(name), text(version)))
    rows.append(("Schema", text(document["schema"])))
    return section("To repeat", shown + definitions(rows))


def _embedded(document: Document) -> str:
    # In ASCII: what no page can hold is escaped, and reads back as it was.
    whole, room = [], _EMBEDDED
    for piece in json.JSONEncoder(indent=2, default=str).iterencode(document):
        whole.append(escape(piece))
        room -= len(whole[-1])
        if room < 0:
            shown = "<p>Too long for a page: dpcore audit --output keeps it.</p>"
            break
    else:
        shown = f'<pre id="report-json">{"".join(whole)}</pre>'
    return f"<section>{folded('This report as JSON', shown)}</section>"


def _claim(document: Document) -> str:
    claim = document["claim"]
    if claim.get("epsilon") is None:
        return str(claim["claim"])
    return str(Claim(epsilon=claim["epsilon"], delta=claim["delta"]))
