r"""The report of a bench: its JSON and its table.

JSON, schema ``dpcore-bench/1``. Every key is always there; null where it does not apply.

    schema     "dpcore-bench/1"
    passed     whether all went as ``audit.bench.bench`` says it must
    alpha      the level of an entry's tries together, and of each twin
    seed       repeats the bench
    caught     entries that the layer which must catch them caught
    entries    how many there are
    twins      {"sampled", "refuted": how many, "chance": the probability of so many or more where
               each is refuted with probability alpha, "least_chance": below it the bench fails}
    rows       [{"number", "name", "claim", "layer", "true_epsilon": [lower, upper], "caught",
               "broken", "twin"}], in the order of the numbers. The last two are {"name", "claim",
               "runs": of the last try, 0 where the laws are known, "refuted": null where it failed,
               "tries", "epsilon_lower": "inf" where no epsilon holds, "p_value", "resolution": a
               sample of that size catches an output that only one dataset gives from this
               probability on, "finding": the error that a replay found, "error", "seconds"}
    left_out   names of entries that were not audited (--quick)
    versions   {"dpcore", "python", "numpy"}
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from audit.bench.bench import LEAST_CHANCE, Bench, BenchRow, Result
from audit.catalogue import Entry, Layer
from audit.claims.claim import Claim, shown
from audit.claims.levels import level_upper
from audit.wording.as_json import json_text
from audit.wording.formats import Case, Outcome
from audit.wording.result import out_of, plain
from dpcore.command.table import aligned
from dpcore.numbers.rounding import down, up

__all__ = ["SCHEMA", "bench_cases", "bench_lines", "bench_text"]

SCHEMA: Final = "dpcore-bench/1"

_WIDTH: Final = 100
_HEADINGS: Final = ("", "broken", "claim", "true", "runs", "verdict", "lower", "layer", "twin")
_RIGHT: Final = (0, 3, 4, 6)
_KEPT: Final = {
    Layer.EXACT: "proven",
    Layer.FIT: "not refuted",
    Layer.REPLAY: "nothing found",
    Layer.SAMPLE: "not refuted",
    Layer.TIME: "not refuted",
}
_BELOW: Final = "below the resolution of a sample"


def bench_text(bench: Bench, versions: dict[str, str], left_out: Sequence[Entry] = ()) -> str:
    r"""The JSON document, with a newline at its end.

    >>> import json
    >>> json.loads(bench_text(Bench(rows=(), alpha=Fraction(1, 20), seed=1), {}))["passed"]
    True
    """
    document = {
        "schema": SCHEMA,
        "passed": bench.passed,
        "alpha": level_upper(bench.alpha),
        "seed": bench.seed,
        "caught": bench.caught,
        "entries": len(bench.rows),
        "twins": {
            "sampled": len(bench.twins),
            "refuted": bench.twins_refuted,
            "chance": bench.chance,
            "least_chance": float(LEAST_CHANCE),
        },
        "rows": [_row(row) for row in bench.rows],
        "left_out": [entry.name for entry in left_out],
        "versions": versions,
    }
    return json_text(document)


def _row(row: BenchRow) -> dict[str, Any]:
    return {
        "number": row.entry.number,
        "name": row.entry.name,
        "claim": row.broken.claim,
        "layer": row.entry.layer.value,
        "true_epsilon": plain(row.entry.true_epsilon),
        "caught": row.caught,
        "broken": _result(row.broken),
        "twin": _result(row.twin),
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        **plain(result),
        "resolution": result.resolution if math.isfinite(result.resolution) else None,
        "seconds": round(result.seconds, 3),
    }


def bench_cases(bench: Bench) -> Iterator[Case]:
    r"""Each entry and each twin, and whether too many twins were refuted, for a test report."""
    for row in bench.rows:
        for result, right, role in (
            (row.broken, row.caught, "caught"),
            (row.twin, row.sampled or not row.twin.refuted, "not refuted"),
        ):
            answered: Outcome = "passed" if right else "failed"
            yield Case(
                target=result.name,
                name=f"{row.entry.name}: {role}",
                rule="dpcore-bench",
                outcome="error" if result.refuted is None else answered,
                message=result.error or f"{result.name} against {result.claim}",
                seconds=result.seconds,
            )
    yield Case(
        target="dpcore audit bench",
        name="twins refuted by chance",
        rule="dpcore-bench",
        outcome="passed" if bench.chance >= LEAST_CHANCE else "failed",
        message=f"{bench.twins_refuted} of {len(bench.twins)} correct twins are refuted",
    )


def bench_lines(bench: Bench, left_out: Sequence[Entry] = ()) -> list[str]:
    r"""The table, a line an entry, and what it comes to.

    "true" is the true epsilon and "lower" the bound that was found, at confidence 1 - alpha or, in
    the exact layer, proven; both are rounded down.
    """
    lines = aligned([_HEADINGS, *map(_cells, bench.rows)], right=_RIGHT)
    for sentence in _sentences(bench, left_out):
        lines += textwrap.wrap(sentence, _WIDTH, break_on_hyphens=False)
    return lines


def _cells(row: BenchRow) -> tuple[str, ...]:
    broken, twin = row.broken, row.twin
    runs = "" if row.entry.layer is Layer.EXACT else f"{broken.runs:,}"
    # A bound from a curve is at the delta of one of its points, and says nothing beside "true".
    curve = row.entry.curve is not None
    lower = None if curve else broken.epsilon_lower
    claim = Claim(epsilon=row.entry.epsilon, delta=row.entry.delta)
    epsilon, delta = map(shown, claim.exact)
    return (
        str(row.entry.number),
        row.entry.name,
        "its curve" if curve else epsilon if delta == "0" else f"{epsilon}, {delta}",
        _down(row.entry.true_epsilon.lower),
        runs,
        "failed" if broken.refuted is None else "caught" if broken.refuted else "MISSED",
        "" if lower is None else _down(lower),
        row.entry.layer.value,
        "failed" if twin.refuted is None else "REFUTED" if twin.refuted else _KEPT[row.entry.layer],
    )


def _down(value: Fraction | float) -> str:
    return "infinite" if value == math.inf else down(value, 4)


def _sentences(bench: Bench, left_out: Sequence[Entry]) -> Iterator[str]:
    alpha, cases = up(bench.alpha, 6), out_of(bench.alpha, 6)
    yield (
        f"caught: {bench.caught} of {len(bench.rows)}; a true claim would be refuted in at most "
        f"{cases} such audits"
    )
    other = [row for row in bench.rows if row.entry.layer is Layer.REPLAY]
    if other:
        names = ", ".join(row.entry.name for row in other)
        seen = min(row.broken.resolution for row in other)
        shown = f"; in {out_of(seen)} runs or more it would be seen" if math.isfinite(seen) else ""
        yield f"{_BELOW}, and looked for by replay: {names}{shown}"
    yield (
        f"twins: {bench.twins_refuted} of {len(bench.twins)} samples refuted, at level {alpha} "
        f"each; so many or more have probability <= {up(bench.chance, 3)} if their claims hold "
        f"({down(LEAST_CHANCE, 3)} or more passes)"
    )
    for row in bench.rows:
        for result in (row.broken, row.twin):
            if result.error is not None:
                yield f"failed: {result.name}: {result.error}"
        if not row.sampled and row.twin.finding is not None:
            yield f"found in {row.twin.name}: {row.twin.finding}"
    if left_out:
        yield f"left out, as they need more runs: {', '.join(entry.name for entry in left_out)}"
    yield f"{'PASSED' if bench.passed else 'FAILED'}; repeat with --seed {bench.seed}"
