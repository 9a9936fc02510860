r"""The corpus as text: a list, an entry, a table of results, JSON.

schema     "dpcore-corpus/1"
passed     whether every side of every entry was judged as it should be
rows       of run: per entry {"name", "package", "version", "failure", "source", "true",
           "right", "broken", "twin"}, the last two null or {"requires", "claim", "verdict",
           "right", "epsilon_lower": "inf" where no epsilon holds, "runs", "seconds", "error",
           "missing": whether the environment could not be made}
entries    of list and show: what the file of each entry says
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from audit.corpus.entry import Entry, Side
from audit.corpus.judge import Judged, Result
from audit.wording.as_json import json_text
from audit.wording.formats import Case, Outcome
from audit.wording.result import aligned as named_rows
from audit.wording.result import plain
from dpcore.command.table import aligned
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import down

__all__ = ["SCHEMA", "listed", "results_lines", "results_text", "shown_lines"]
__all__ += ["entries_text", "judged_cases"]

SCHEMA: Final = "dpcore-corpus/1"

_WIDTH: Final = 100


def listed(entries: Sequence[Entry]) -> list[str]:
    r"""The list: a line an entry."""
    heads = ("name", "package", "claim", "true", "MB")
    rows = [
        (e.name, f"{e.package} {e.version}", e.broken.claim, _true(e), f"{e.megabytes}")
        for e in entries
    ]
    return aligned([heads, *rows], right=(4,))


def shown_lines(entry: Entry) -> list[str]:
    r"""All that an entry says."""
    facts = [
        ("failure", entry.failure),
        ("source", entry.source),
        ("claim", f"{entry.broken.claim} ({entry.relation.value}): {entry.by}"),
        ("true", f"{_true(entry)}: {entry.broken.known}"),
        ("pair", f"A = {entry.pair[0]}, B = {entry.pair[1]}"),
        ("runs", f"{entry.runs:,}" + (f", --feature {entry.feature}" if entry.feature else "")),
        ("installs", f"{', '.join(entry.broken.requires)}: {entry.megabytes} MB"),
        ("seen", f"epsilon >= {_number(entry.broken.seen)}"),
    ]
    if entry.twin is not None:
        own = entry.twin.requires != entry.broken.requires
        installs = f" ({', '.join(entry.twin.requires)})" if own else ""
        facts.append(("twin", f"{entry.twin.known}{installs}"))
    title = f"{entry.name}: {entry.package} {entry.version}"
    code = textwrap.indent(entry.broken.code.strip("\n"), "    ").splitlines()
    return [title, *named_rows(facts, _WIDTH), "  code", *code]


def results_lines(judged: Sequence[Judged]) -> list[str]:
    r"""The table of a run, and what it comes to."""
    heads = ("name", "package", "claim", "true", "lower", "failure", "twin", "seconds")
    rows = [
        (
            row.entry.name,
            f"{row.entry.package} {row.entry.version}",
            row.broken.claim,
            _true(row.entry),
            "" if row.broken.epsilon_lower is None else _number(row.broken.epsilon_lower),
            _verdict(row.broken),
            "" if row.twin is None else _verdict(row.twin),
            f"{sum(result.seconds for result in row.results):.1f}",
        )
        for row in judged
    ]
    told = aligned([heads, *rows], right=(4, 7))
    for row in judged:
        for role, result in zip(("failure", "twin"), row.results, strict=False):
            if result.error is not None:
                said = f"{row.entry.name} ({role}): {result.error}"
                told += textwrap.wrap(said, _WIDTH, break_on_hyphens=False)
    right = sum(row.right for row in judged)
    missing = sum(row.missing for row in judged)
    last = f"judged as they should be: {right} of {len(judged)}"
    if missing:
        last += f"; {missing} could not be installed"
    return [*told, last]


def judged_cases(judged: Sequence[Judged]) -> Iterator[Case]:
    r"""Each failure and each twin, for a test report."""
    for row in judged:
        for role, result in zip(("failure", "twin"), row.results, strict=False):
            answered: Outcome = "passed" if result.right else "failed"
            yield Case(
                target=f"{row.entry.package} {row.entry.version}",
                name=f"{row.entry.name}: {role}",
                rule="dpcore-corpus",
                outcome="error" if result.verdict is None else answered,
                message=result.error or f"{_verdict(result)} on {row.broken.claim}",
                seconds=result.seconds,
            )


def results_text(judged: Sequence[Judged], versions: dict[str, str]) -> str:
    r"""The JSON document of a run."""
    return json_text(
        {
            "schema": SCHEMA,
            "passed": all(row.right for row in judged),
            "rows": [_row(row) for row in judged],
            "versions": versions,
        }
    )


def entries_text(entries: Sequence[Entry]) -> str:
    r"""The JSON document of a list."""
    return json_text({"schema": SCHEMA, "entries": [_entry(entry) for entry in entries]})


def _true(entry: Entry) -> str:
    quantity, value = entry.true
    return f"{quantity} {value}"


def _number(value: float) -> str:
    return "infinite" if value == math.inf else down(rational("epsilon", repr(value)), 4)


def _verdict(result: Result) -> str:
    if result.missing:
        return "not installed"
    if result.verdict is None:
        return "failed"
    word = result.verdict.replace("_", " ")
    return word if result.right else word.upper()


def _row(row: Judged) -> dict[str, Any]:
    entry = row.entry
    return {
        "name": entry.name,
        "package": entry.package,
        "version": entry.version,
        "failure": entry.failure,
        "source": entry.source,
        "true": dict([entry.true]),
        "right": row.right,
        "broken": _result(row.broken, entry.broken),
        "twin": None if row.twin is None or entry.twin is None else _result(row.twin, entry.twin),
    }


def _result(result: Result, side: Side) -> dict[str, Any]:
    return {"requires": side.requires, **plain(result), "seconds": round(result.seconds, 2)}


def _entry(entry: Entry) -> dict[str, Any]:
    fields = asdict(entry)
    by = fields.pop("by")
    return {
        **fields,
        "relation": entry.relation.value,
        "claimed_by": by,
        "true": dict([entry.true]),
        "broken": plain(entry.broken),
        "twin": plain(entry.twin),
    }
