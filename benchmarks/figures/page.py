r"""Render results.json as a page of tables, verdicts and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["page", "table"]

_HEAD: Final = """# Figures and tables of the bandits

This page is written by `make figures` from seeds; [results.json](results.json) has every number.
The page [Bandits](../bandits.md) explains the results and compares them with the papers.

Each statement is judged by the mean paired difference over the instances. It **holds** or **does
not hold** if this mean is more than two standard errors from 0, depending on its sign; otherwise it
is **not decided**. The statement that two regrets are equal *within a tenth* compares their
difference with a tenth of the second regret in the same way, so it
is not decided if the standard error is large. The number after a verdict is the ratio of the mean
regrets of the first and the second named algorithm, with its paired standard error.

A number after ± is one standard error over the instances; bands and error bars in pictures extend
by one standard error to both sides. Marks at the same position on an axis are drawn side by side.
"""


def page(results: Mapping[str, Any]) -> str:
    r"""Return the page in Markdown."""
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
    # Statements that were checked in the same settings share a table.
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
    r"""Format rows with the same columns as a Markdown table.

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
