r"""results.json as a page: tables, verdicts and pictures, and nothing that is not in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["page", "table"]

_HEAD: Final = """# Figures and tables of the bandits

Written by `make figures` from seeds; every number is in [results.json](results.json). What they
mean, and what the figures of the papers hide, is on the page [Bandits](../bandits.md).

Statements are read off the paired differences of the instances: **holds** and **does not hold**
where two standard errors decide, **not decided** where they do not. That two regrets are the same
*within a tenth* is decided in the same way, of the difference and a tenth of the second: an error
that is large decides nothing. The number is a ratio of mean regrets with its paired standard error,
the first algorithm named to the second.

A number after ± is one standard error over the instances, and so are the bands and bars of every
picture, to both sides. Marks that share their place on an axis stand beside each other.
"""


def page(results: Mapping[str, Any]) -> str:
    r"""The whole page."""
    parts = [_HEAD, _settings(results)]
    for section in results["sections"].values():
        parts.append(f"## {section['title']}\n{section['note']}\n")
        parts += [f"![{p['title']}]({p['name']}.svg)\n" for p in section["pictures"]]
        parts += _verdicts(section["checks"])
        parts.append(table(section["rows"]))
    return "\n".join(parts)


def _settings(results: Mapping[str, Any]) -> str:
    counts = results["checks"]
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return (
        f"{results['instances']} instances, seed {results['seed']}. Statements checked: {said}.\n"
    )


def _verdicts(checks: Sequence[Mapping[str, str]]) -> list[str]:
    # One table for the statements that were looked at in the same places.
    cells: dict[str, dict[str, str]] = {}
    for check in checks:
        verdict = check["verdict"]
        shown = verdict if verdict == "holds" else f"**{verdict}**"
        cells.setdefault(check["statement"], {})[check["where"]] = f"{shown}: {check['figures']}"
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for statement, places in cells.items():
        groups.setdefault(tuple(places), []).append({"statement": statement, **places})
    return [table(rows) for rows in groups.values()]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    r"""Rows of the same columns.

    >>> print(table([{"s": 3, "regret": {"value": 0.25, "error": 0.01}}]))
    | s | regret |
    |---|---|
    | 3 | 0.25 ± 0.01 |
    <BLANKLINE>
    """
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row[column]) for column in columns] for row in rows]
    first, second, *rest = lines
    shown = [f"| {' | '.join(first)} |", f"|{'|'.join(second)}|"]
    shown += [f"| {' | '.join(line)} |" for line in rest]
    return "\n".join(shown) + "\n"


def _cell(value: Any) -> str:
    match value:
        case {"value": middle, "error": error}:
            return f"{_number(middle)} ± {_number(error, 2)}"
        case float():
            return _number(value)
        case _:
            return str(value).replace("|", r"\|")


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}"
