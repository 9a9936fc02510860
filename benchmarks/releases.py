r"""Four queries on one table at the same guarantee, by ``dpcore release`` and by other libraries.

Each user has one row, neighbours differ by one user, and every answer costs epsilon = 1 (pure).
The result has, for each library, the lines of code of its queries, and for each query the mean
absolute error and the processor seconds from the CSV to the answer (those of a Java child included,
those of the first answer excluded). A library that is not installed or does not support a query is
omitted. Tumult needs older packages than the others: run it by name with the Python of its own
environment, and its rows are added to the stored rows.

python -m benchmarks.releases [LIBRARY ...]
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks.machine import RESULTS, machine, write

USERS: Final = 200_000
REPEATS: Final = 15
r"""At most: a question stops after ``SECONDS``, and 3 repeats at least."""

SECONDS: Final = 10.0
CITIES: Final = ("lima", "oslo", "paris", "rome")
LOW: Final = 0.0
HIGH: Final = 200.0

Answer = Callable[[str], Any]


def table(folder: str) -> str:
    r"""Write a CSV with a user, a city and an amount in cents in each row."""
    rng, path = np.random.default_rng(7), str(Path(folder, "visits.csv"))
    amounts = np.minimum(np.round(rng.exponential(40, USERS), 2), HIGH)
    cities = rng.choice(CITIES, USERS, p=(0.1, 0.2, 0.3, 0.4))
    users = [f"u{i}" for i in range(USERS)]
    frame = pl.DataFrame({"user": users, "city": cities, "amount": amounts})
    frame.write_csv(path)
    return path


def truths(path: str) -> dict[str, Any]:
    frame = pl.read_csv(path)
    counts = dict(frame["city"].value_counts().iter_rows())
    return {
        "count": frame.height,
        "sum": frame["amount"].sum(),
        "histogram": [counts[city] for city in CITIES],
        "median": frame["amount"].median(),
    }


def dpcore() -> dict[str, Answer]:
    from accounting.queries import (
        Count,
        Histogram,
        Quantile,
        Sum,
        Table,
        TableScope,
        Target,
        release,
    )

    scope, target = TableScope(user="user"), Target(epsilon=1)

    def count(path: str) -> Any:
        return release(Count(), Table.open(path), scope, target).value

    def total(path: str) -> Any:
        query = Sum(column="amount", low=0, high=200, step="0.01")
        return release(query, Table.open(path), scope, target).value

    def histogram(path: str) -> Any:
        query = Histogram(column="city", keys=CITIES)
        return list(release(query, Table.open(path), scope, target).value.values())

    def median(path: str) -> Any:
        query = Quantile(column="amount", low=0, high=200, step="0.5", q="0.5")
        return release(query, Table.open(path), scope, target).value

    return {"count": count, "sum": total, "histogram": histogram, "median": median}


def opendp() -> dict[str, Answer]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    texts = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()

    def count(path: str) -> Any:
        cities = pl.read_csv(path)["city"].to_list()
        return (texts >> dp.t.then_count() >> dp.m.then_laplace(scale=1.0))(cities)

    def total(path: str) -> Any:
        amounts = pl.read_csv(path)["amount"].to_list()
        clipped = numbers >> dp.t.then_clamp((LOW, HIGH)) >> dp.t.then_sum()  # type: ignore[no-untyped-call]  # of opendp
        chain = dp.binary_search_chain(lambda s: clipped >> dp.m.then_laplace(s), 1, 1.0)
        return chain(amounts)

    def histogram(path: str) -> Any:
        cities = pl.read_csv(path)["city"].to_list()
        counts = dp.t.then_count_by_categories(categories=list(CITIES), null_category=False)
        return (texts >> counts >> dp.m.then_laplace(scale=1.0))(cities)

    def median(path: str) -> Any:
        amounts = pl.read_csv(path)["amount"].to_list()
        candidates = np.arange(LOW, HIGH + 0.5, 0.5).tolist()
        scores = numbers >> dp.t.then_quantile_score_candidates(candidates, 0.5)
        best = dp.binary_search_chain(
            lambda s: scores >> dp.m.then_noisy_max(dp.max_divergence(), s, negate=True), 1, 1.0
        )
        return candidates[best(amounts)]

    return {"count": count, "sum": total, "histogram": histogram, "median": median}


def diffprivlib() -> dict[str, Answer]:
    import diffprivlib as ibm

    def count(path: str) -> Any:
        rows = np.ones(pl.read_csv(path).height)
        return ibm.tools.count_nonzero(rows, epsilon=1.0)

    def total(path: str) -> Any:
        amounts = pl.read_csv(path)["amount"].to_numpy()
        return ibm.tools.sum(amounts, epsilon=1.0, bounds=(LOW, HIGH))

    def histogram(path: str) -> Any:
        codes = np.searchsorted(CITIES, pl.read_csv(path)["city"].to_numpy().astype(str))
        counts, _ = ibm.tools.histogram(codes, epsilon=1.0, bins=len(CITIES), range=(-0.5, 3.5))
        return counts

    def median(path: str) -> Any:
        amounts = pl.read_csv(path)["amount"].to_numpy()
        return ibm.tools.median(amounts, epsilon=1.0, bounds=(LOW, HIGH))

    return {"count": count, "sum": total, "histogram": histogram, "median": median}


def pipeline_dp() -> dict[str, Answer]:
    import pipeline_dp as pdp

    def aggregated(path: str, metric: Any, key: Callable[[Any], Any], keys: list[Any]) -> Any:
        budget = pdp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
        engine = pdp.DPEngine(budget, pdp.LocalBackend())
        asked = pdp.AggregateParams(
            metrics=[metric],
            noise_kind=pdp.NoiseKind.LAPLACE,
            max_partitions_contributed=1,
            max_contributions_per_partition=1,
            min_value=LOW,
            max_value=HIGH,
        )
        columns = pdp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=key,
            value_extractor=lambda row: row[2],
        )
        rows = list(pl.read_csv(path).iter_rows())
        found = engine.aggregate(rows, asked, columns, public_partitions=keys)
        budget.compute_budgets()
        return [answer[0] for _, answer in sorted(found)]

    def count(path: str) -> Any:
        return aggregated(path, pdp.Metrics.COUNT, lambda _: "all", ["all"])[0]

    def total(path: str) -> Any:
        return aggregated(path, pdp.Metrics.SUM, lambda _: "all", ["all"])[0]

    def histogram(path: str) -> Any:
        return aggregated(path, pdp.Metrics.COUNT, lambda row: row[1], list(CITIES))

    return {"count": count, "sum": total, "histogram": histogram}


def tumult() -> dict[str, Answer]:
    from pyspark.sql import SparkSession  # type: ignore[import-not-found]  # an environment of its own
    from tmlt.analytics import (  # type: ignore[import-not-found]  # an environment of its own
        AddOneRow,
        KeySet,
        PureDPBudget,
        QueryBuilder,
        Session,
    )

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()

    def answered(path: str, query: Any) -> list[Any]:
        frame = spark.read.csv(path, header=True, inferSchema=True)
        budget, change = PureDPBudget(1), AddOneRow()
        session = Session.from_dataframe(budget, "visits", frame, protected_change=change)
        return [row[-1] for row in sorted(session.evaluate(query, budget).collect())]

    def count(path: str) -> Any:
        return answered(path, QueryBuilder("visits").count())[0]

    def total(path: str) -> Any:
        return answered(path, QueryBuilder("visits").sum("amount", low=LOW, high=HIGH))[0]

    def histogram(path: str) -> Any:
        keys = KeySet.from_dict({"city": list(CITIES)})
        return answered(path, QueryBuilder("visits").groupby(keys).count())

    def median(path: str) -> Any:
        return answered(path, QueryBuilder("visits").median("amount", low=LOW, high=HIGH))[0]

    return {"count": count, "sum": total, "histogram": histogram, "median": median}


def lines(library: Callable[[], dict[str, Answer]]) -> int:
    r"""The number of lines of all queries of a library, without blank lines and common code."""
    source = inspect.getsource(library).splitlines()
    return sum(bool(line.strip()) for line in source) - 2


def processor_seconds() -> float:
    r"""Processor seconds of this process and, on Linux, of its children, as Spark is one."""
    spent, me = time.process_time(), str(os.getpid())
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended meanwhile
            continue
        if fields[1] == me:
            spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def measured(answer: Answer, path: str, truth: Any) -> dict[str, Any]:
    answer(path)
    errors, seconds = list[float](), list[float]()
    while len(errors) < 3 or (len(errors) < REPEATS and sum(seconds) < SECONDS):
        start = processor_seconds()
        found = answer(path)
        seconds.append(processor_seconds() - start)
        errors.append(np.abs(np.asarray(found, float) - np.asarray(truth, float)).mean())
    return {
        "mean_absolute_error": float(f"{np.mean(errors):.3g}"),
        "processor_seconds": round(float(np.median(seconds)), 3),
        "repeats": len(errors),
    }


def main() -> None:
    found: dict[str, Any] = {}
    written: dict[str, dict[str, int]] = {}
    setting: dict[str, Any] = {"users": USERS, "epsilon": 1}
    if names := sys.argv[1:]:
        stored = json.loads((RESULTS / "releases.json").read_text(encoding="utf-8"))
        found, written = stored["questions"], stored["lines"]
        here, there = machine()["packages"], stored["machine"]["packages"]
        packages = {each: there.get(each) or here[each] for each in here}
        setting["machine"] = {**stored["machine"], "packages": packages}
    with tempfile.TemporaryDirectory() as folder:
        path = table(folder)
        known = truths(path)
        for library in (dpcore, opendp, diffprivlib, pipeline_dp, tumult):
            if names and library.__name__ not in names:
                continue
            try:
                questions = library()
            except ImportError:
                continue
            written[library.__name__] = {"questions": len(questions), "lines": lines(library)}
            for name, answer in questions.items():
                found.setdefault(name, {})[library.__name__] = measured(answer, path, known[name])
    write("releases", {**setting, "lines": written, "questions": found})


if __name__ == "__main__":
    main()
