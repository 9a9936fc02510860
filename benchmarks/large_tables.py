r"""Releases from a table with many rows, compared with the engine's own group-by of the users.

Each measurement is a separate process: processor seconds, including its start, and peak memory. The
group-by counts the rows of each user and adds up the amounts, streamed by Polars.

python -m benchmarks.large_tables [ROWS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks.machine import AS_INSTALLED, write

ROWS: Final = 10**7
ROWS_OF_CSV: Final = 10**6
A_USER: Final = 5

REPEATS: Final = 2

MAKE: Final = """
import sys
from pathlib import Path
from benchmarks.large_tables import table
table(Path(sys.argv[1]), int(sys.argv[2]))
"""
GROUP_BY: Final = """
import sys, polars as pl
path = sys.argv[1]
rows = pl.scan_csv(path, infer_schema=False) if path.endswith("csv") else pl.scan_parquet(path)
amounts = pl.col("amount").cast(pl.Float64).sum()
print(rows.group_by("user").agg(pl.len(), amounts).sum().collect(engine="streaming"))
"""
SCOPE: Final = ("--user", "user", "--epsilon", "1")
MOST_ROWS: Final = (10, 3)
r"""Values of ``--rows-per-user``: 1 user in 70 has over ten rows, most users have over three."""
NUMBERS: Final = ("--column", "amount", "--clip", "0", "200", "--step", "0.5")
QUESTIONS: Final = {
    "count": (),
    "sum": NUMBERS,
    "quantile": NUMBERS,
    "histogram": ("--column", "city", "--keys", "{keys}"),
}


def table(path: Path, rows: int) -> None:
    r"""Write a file with a user, a city and an amount per row, five rows per user on average."""
    rng = np.random.default_rng(7)
    users = pl.Series(rng.integers(0, rows // A_USER, rows))
    amounts = np.minimum(np.round(rng.exponential(40, rows), 2), 200)
    frame = pl.LazyFrame({"user": users, "amount": amounts})
    named = frame.with_columns(
        pl.format("u{}", "user").alias("user"),
        pl.format("city{}", pl.col("user") % 50).alias("city"),
    )
    (named.sink_csv if path.suffix == ".csv" else named.sink_parquet)(path)


def measured(*words: str) -> dict[str, float]:
    r"""Processor seconds and peak memory in MB of a Python process: the least of a few."""
    seconds, peaks = zip(*(ran(*words) for _ in range(REPEATS)), strict=True)
    return {"processor_seconds": round(min(seconds), 2), "peak_mb": round(min(peaks) / 1024)}


def ran(*words: str) -> tuple[float, int]:
    r"""Processor seconds and peak memory in KB of one process."""
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, *words],
        AS_INSTALLED,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(words)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss


def main() -> None:
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else ROWS
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys.txt")
        keys.write_text("".join(f"city{n}\n" for n in range(50)), encoding="utf-8")
        for kind, count in (("parquet", rows), ("csv", ROWS_OF_CSV)):
            path = Path(folder, f"rows.{kind}")
            # Written by another process: the peak memory of a child is at least that of its parent.
            ran("-c", MAKE, str(path), str(count))
            engine = measured("-c", GROUP_BY, str(path))
            each: dict[str, Any] = {"rows": count, "group-by": engine}
            for most, (name, words) in product(MOST_ROWS, QUESTIONS.items()):
                asked = [word.format(keys=keys) for word in (*words, *SCOPE)]
                asked += ["--rows-per-user", str(most)]
                taken = measured("-m", "dpcore", "release", name, str(path), *asked)
                ratio = taken["processor_seconds"] / engine["processor_seconds"]
                found_for = each.setdefault(f"{most} rows a user", {})
                found_for[name] = {**taken, "times_the_group_by": round(ratio, 2)}
            found[kind] = each
    write("large_tables", found)


if __name__ == "__main__":
    main()
