r"""The corpus as text and as JSON: its list, and an entry."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from audit.corpus.entry import Entry
from audit.wording.as_json import json_text
from audit.wording.result import aligned as named_rows
from audit.wording.result import plain
from dpcore.command.table import aligned
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import down

__all__ = ["entries_text", "listed", "number", "shown_lines", "true_words"]

_WIDTH: Final = 100


def listed(entries: Sequence[Entry]) -> list[str]:
    r"""The list: a line an entry."""
    heads = ("name", "package", "claim", "true", "MB")
    rows = [
        (e.name, f"{e.package} {e.version}", e.broken.claim, true_words(e), f"{e.megabytes}")
        for e in entries
    ]
    return aligned([heads, *rows], right=(4,))


def shown_lines(entry: Entry) -> list[str]:
    r"""All that an entry says."""
    facts = [
        ("failure", entry.failure),
        ("source", entry.source),
        ("claim", f"{entry.broken.claim} ({entry.relation.value}): {entry.by}"),
        ("true", f"{true_words(entry)}: {entry.broken.known}"),
        ("pair", f"A = {entry.pair[0]}, B = {entry.pair[1]}"),
        ("runs", f"{entry.runs:,}" + (f", --feature {entry.feature}" if entry.feature else "")),
        ("installs", f"{', '.join(entry.broken.requires)}: {entry.megabytes} MB"),
        ("seen", f"epsilon >= {number(entry.broken.seen)}"),
    ]
    if entry.twin is not None:
        own = entry.twin.requires != entry.broken.requires
        installs = f" ({', '.join(entry.twin.requires)})" if own else ""
        facts.append(("twin", f"{entry.twin.known}{installs}"))
    title = f"{entry.name}: {entry.package} {entry.version}"
    code = textwrap.indent(entry.broken.code.strip("\n"), "    ").splitlines()
    return [title, *named_rows(facts, _WIDTH), "  code", *code]


def entries_text(entries: Sequence[Entry]) -> str:
    r"""The JSON document of a list."""
    return json_text({"schema": "dpcore-corpus/1", "entries": [_entry(entry) for entry in entries]})


def true_words(entry: Entry) -> str:
    r"""The true value, by its name."""
    quantity, value = entry.true
    return f"{quantity} {value}"


def number(value: float) -> str:
    r"""An epsilon in four digits, rounded down."""
    return "infinite" if value == math.inf else down(rational("epsilon", repr(value)), 4)


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
