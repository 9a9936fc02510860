r"""Measure the auditor: tightness, false alarms, detection and time.

``python -m benchmarks.auditing [--quick] [--jobs 2] [--rows bounds boundary ...] [--output FILE]
[--peer-python /path/to/python] [--only rappor ...]``.

Runs are counted over both datasets together, alpha is 0.05 (except in ``default-level``), and rates
over repeats have exact one-sided 95% bounds. Methods that over-claim are tested for false alarms as
negative controls.

jax_privacy is run by the interpreter of ``--peer-python`` (by default this one) on the same data;
if it is not installed there, its bounds are re-derived, and the result says so. DP-Auditorium,
StatDP and DP-Sniper are re-derived from their publications.

The default rows take up to an hour on two idle cores, ``--quick`` takes minutes; the longest rows
are measured only if ``--rows`` names them. The results are in ``benchmarks/results/audit.json``,
where each section names its machine; a run of some rows keeps the sections of the others.
``--quick`` writes only to ``--output``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from joblib import Parallel
from rich.console import Console
from rich.table import Table

from benchmarks.auditing.alarms import anytime, boundary, controls, default_level, twins
from benchmarks.auditing.bounds import bounds, histogram
from benchmarks.auditing.canaries import canary_rows
from benchmarks.auditing.detection import catalogue, replayed, search, sequential
from benchmarks.auditing.harness import ALPHA, Effort, Row, timed
from benchmarks.auditing.speed import family, speed
from benchmarks.auditing.vectors import battery, battery_long, family_alarms, time_alarms, vectors
from benchmarks.machine import RESULTS, command, machine, store

__all__ = ["ASKED", "ROWS", "main"]

ROWS: Final[Mapping[str, Callable[[Effort], Iterator[Row]]]] = {
    "speed": speed,
    "family": family,
    "bounds": bounds,
    "histogram": histogram,
    "boundary": boundary,
    "default-level": default_level,
    "twins": twins,
    "anytime": anytime,
    "controls": controls,
    "canaries": canary_rows,
    "catalogue": catalogue,
    "replay": replayed,
    "sequential": sequential,
    "search": search,
    "vectors": vectors,
    "battery": battery,
    "family-alarms": family_alarms,
    "time-alarms": time_alarms,
    "battery-long": battery_long,
}
r"""The measurements by name. Times are measured first, before other work heats the machine."""

ASKED: Final = frozenset({"battery-long", "family-alarms"})
r"""The names of rows that are measured only if ``--rows`` names them."""

_RESULT: Final = RESULTS / "audit.json"
_WIDTH: Final = 150
_SHOWN: Final = 160


def measured(name: str, effort: Effort, before: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    r"""Measure a section and yield it after each row; each row is printed when it is finished.
    Until the last row, rows ``before`` remain if they have no new value; if only some mechanisms
    are measured, the rows of the others remain.
    """
    rows: list[dict[str, Any]] = []
    old = list(before.get("rows", ()))
    head = {
        "command": command("auditing"),
        "quick": effort.quick,
        "jobs": effort.jobs,
        "machine": machine(),
    }
    for row, seconds in timed(ROWS[name](effort)):
        mark = {None: "", True: ": reached", False: ": NOT REACHED"}[row.reached]
        print(f"{name}, {seconds:.1f} s: {row.what}{mark}", file=sys.stderr, flush=True)
        rows.append(row.to_json(seconds))
        fresh = {each["what"] for each in rows}
        yield head | {"rows": [each for each in old if each["what"] not in fresh] + rows}
    if not effort.only:
        yield head | {"rows": rows}


def kept(path: Path) -> dict[str, Any]:
    r"""Return the sections of an earlier result, on any machine."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["sections"])
    except (OSError, ValueError, KeyError):
        return {}


def short(value: Any) -> str:
    r"""Format a value on one line; a rate is followed by its bounds.

    >>> short({"runs": 100, "ours": {"hits": 1, "rate": 0.01, "at_least": 0.001, "at_most": 0.05}})
    'runs 100, ours 0.01 [0.001, 0.05]'
    """
    match value:
        case {"rate": rate, "at_least": low, "at_most": high, **rest}:
            more = {key: rest[key] for key in rest if key != "hits"}
            return f"{rate} [{low}, {high}]" + (f", {short(more)}" if more else "")
        case dict():
            return ", ".join(f"{key} {short(one)}" for key, one in value.items())
        case _:
            return str(value)


def show(sections: Mapping[str, Any]) -> None:
    r"""Print all rows as a table."""
    marks = [row["reached"] for section in sections.values() for row in section["rows"]]
    title = f"{marks.count(True)} of {len(marks) - marks.count(None)} reached"
    table = Table("row", "what", "value", "to reach", "reached", "s", title=title)
    for name, section in sections.items():
        for row in section["rows"]:
            mark = {None: "", True: "yes", False: "NO"}[row["reached"]]
            value = short(row["value"])
            cut = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."
            cells = (name, row["what"], cut, row["to_reach"] or "", mark, f"{row['seconds']:.1f}")
            table.add_row(*cells)
        table.add_section()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, markup=False, highlight=False)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.auditing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few repeats, as a test")
    parser.add_argument("--jobs", type=int, default=machine()["cores"], help="processes")
    usual = [name for name in ROWS if name not in ASKED]
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=usual)
    parser.add_argument("--output", type=Path, help="where the JSON goes")
    parser.add_argument(
        "--peer-python", default=sys.executable, help="an interpreter that has jax_privacy"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="NAME",
        help="mechanisms of battery and family-alarms",
    )
    chosen = parser.parse_args()
    path = chosen.output or (None if chosen.quick else _RESULT)
    sections = {} if path is None or chosen.quick else kept(path)
    with Parallel(n_jobs=chosen.jobs) as parallel:
        effort = Effort(
            parallel=parallel,
            jobs=chosen.jobs,
            quick=chosen.quick,
            peer_python=chosen.peer_python,
            only=tuple(chosen.only),
        )
        for name in (name for name in ROWS if name in chosen.rows):
            for section in measured(name, effort, sections.get(name, {})):
                sections[name] = section
                if path is not None:
                    ordered = {known: sections[known] for known in ROWS if known in sections}
                    store(path, {"benchmark": "audit", "alpha": ALPHA, "sections": ordered})
    show({name: sections[name] for name in ROWS if name in {*chosen.rows} & {*sections}})


if __name__ == "__main__":
    main()
