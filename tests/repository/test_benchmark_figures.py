"""Tests of docs/benchmarks.md: its figures equal the committed results."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
NUMPY = "numpy (inexact, not private)"
ROWS = {
    "DiscreteLaplace(scale=1)": "discrete Laplace, scale 1",
    "DiscreteLaplace(scale=10)": "discrete Laplace, scale 10",
    "DiscreteLaplace(scale=1000)": "discrete Laplace, scale 1000",
    f"DiscreteLaplace(scale={2**40})": "discrete Laplace, scale 2^40",
    "DiscreteGaussian(sigma_squared=1)": "discrete Gaussian, sigma 1",
    "DiscreteGaussian(sigma_squared=100)": "discrete Gaussian, sigma 10",
    "DiscreteGaussian(sigma_squared=1000000)": "discrete Gaussian, sigma 1000",
    f"DiscreteGaussian(sigma_squared={2**80})": "discrete Gaussian, sigma 2^40",
    "Skellam(variance=100)": "Skellam, sigma 10",
    f"Skellam(variance={2**40})": "Skellam, sigma 2^20",
    "PolyaDifference(shape='9/10', scale=1024)": "Polya difference, shape 9/10, scale 1024",
    "Binomial(trials=268, probability='1/2')": "binomial, 268 fair coins",
}
# The laws with timed single draws, by their names on the limits page.
LAWS = {
    "DiscreteLaplace": "discrete Laplace",
    "DiscreteGaussian": "discrete Gaussian",
    "DiscreteGaussianSum": "sum of discrete Gaussians",
    "Skellam": "Skellam",
    "PolyaDifference": "Polya difference",
    "Polya": "Polya",
    "Poisson": "Poisson",
    "Binomial": "binomial",
}
WAYS = ("sent", "received")


def result(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def line(label: str, speed: dict[str, float]) -> str:
    opendp = f"{speed['opendp']:.2f}" if "opendp" in speed else "-"
    numpy = f"{speed[NUMPY]:.0f}" if NUMPY in speed else "-"
    return f"| {label} | {speed['dpcore']:.0f} | {opendp} | {numpy} |"


def sampler_lines(samplers: Any) -> list[str]:
    """Return the rows of the speed table: the measured ones of ROWS."""
    lines = [
        line(ROWS[row["noise"]], row["million_draws_per_second"])
        for row in samplers["batch"]
        if row["noise"] in ROWS
    ]
    for row in samplers["scalar"]:
        if row["noise"] in ROWS:
            speed = {name: value / 1e6 for name, value in row["draws_per_second"].items()}
            lines.append(line(f"single values: {ROWS[row['noise']]}", speed))
    return lines


def saved_lines(saved: Any) -> list[str]:
    """Return the rows of the table of saved noise, from the first case of each kind."""
    bits, skellam, gaussian = (
        saved[kind][case]
        for kind, case in (("binary_shuffle", 0), ("skellam", 0), ("gaussian_sum", 1))
    )
    rows = [("shuffled bits", bits, f"{bits['paper_bits']} bits", f"{bits['exact_bits']} bits")]
    for label, case in (
        ("Skellam, sensitivity 1", skellam),
        ("16 discrete Gaussians, sensitivity 4", gaussian),
    ):
        theirs, ours = up(case["paper_variance"]), up(case["exact_variance"])
        rows.append((label, case, f"variance {theirs}", f"variance {ours}"))
    return [f"| {label}, {case['guarantee']}-DP | {a} | {b} |" for label, case, a, b in rows]


def total_lines(accounting: Any) -> list[str]:
    """Return the rows of the table of totals: our bound to its width, and the peer's PLD."""
    lines = []
    for row in accounting["totals"]:
        if row["relative"] == "1e-6" or row["delta"] in ("1e-12", "0"):
            continue
        said = row.get("pld", {})
        peer = f"{said['epsilon']:.6f}" if isinstance(said.get("epsilon"), float) else "-"
        peer = "infinite" if said.get("epsilon") == "inf" else peer
        theirs = f"{said['ms']:.0f}" if "ms" in said else "-"
        width, truth = row["ours"]["width"], row["truth"]
        lines.append(
            f"| {row['case']}; {row['delta']} | {truth} | {width:.0e} | {row['ours_ms']:.1f} "
            f"| {peer} | {theirs} |"
        )
    return lines


def masked_lines(masked: Any) -> list[str]:
    """Return the rows of the table of secure aggregation, from a hundred users on."""
    lines = []
    for row in masked["rows"]:
        users, others = row["users"], row["neighbours"]
        if users < 100:
            continue
        whom = f"{others} others" + (": everyone" if others == users - 1 else "")
        time = f"{row['milliseconds_per_user']['all steps']:.0f} ms"
        sent, received = (f"{row['bytes_per_user'][way] / 1000:.0f} kB" for way in WAYS)
        lines.append(f"| {users} | {whom} | {time} | {sent} | {received} |")
    return lines


def battery_lines(audit: Any) -> list[str]:
    """Return the rows of the table of DP-Sniper's battery: the mechanisms that were measured."""
    lines = []
    for row in audit["sections"]["battery"]["rows"]:
        value, (name, runs) = row["value"], row["what"].split(", ", 1)
        assert runs == "1,000,000 runs"
        figures = (value[key] for key in ("epsilon_lower", "by_value", "oracle", "dp_sniper"))
        cells = [name, f"{value['refuted']} of {row['repeats']}", *(f"{x:.3f}" for x in figures)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def sniper_lines(sniper: Any) -> list[str]:
    """Return the rows of the table of DP-Sniper itself on its battery."""
    assert sniper["runs"] == 1_000_000
    lines = []
    for row in sniper["rows"]:
        bounds, times = (row[key].values() for key in ("epsilon_lower", "seconds"))
        cells = [*(f"{bound:.3f}" for bound in bounds), *(f"{time:.0f}" for time in times)]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return lines


def up(variance: float) -> str:
    """Round up to a hundredth."""
    return f"{math.ceil(variance * 100) / 100:.2f}"


TABLES: dict[str, Callable[[Any], list[str]]] = {
    "samplers": sampler_lines,
    "noise_saved": saved_lines,
    "accounting": total_lines,
    "masked_aggregation": masked_lines,
    "audit": battery_lines,
    "dp_sniper": sniper_lines,
}


def expected(**changed: Any) -> list[str]:
    """Return every row of every table, from the committed results or from given ones."""
    tables = [table(changed.get(name) or result(name)) for name, table in TABLES.items()]
    return sorted(line for lines in tables for line in lines)


def shown(text: str) -> list[str]:
    """Return the rows of the tables of a page, without their headers, in order."""
    lines = [*text.splitlines(), ""]
    table = [i for i, line in enumerate(lines) if line.startswith("| ")]
    return sorted(lines[i] for i in table if not lines[i + 1].startswith("|---"))


def test_every_table_equals_the_committed_results() -> None:
    page = PAGE.read_text("utf-8")
    assert shown(page) == expected()
    assert shown(page + "\n| made up | 1 | 2 |\n") != expected()


def test_the_page_states_the_result_of_random_compositions() -> None:
    found = result("random_compositions")
    page = " ".join(PAGE.read_text("utf-8").split())
    for figure in (
        f"compares {found['compositions']} random compositions",
        f"In {found['apart']} of them our bounds lie outside these estimates",
        f"and in {found['wider_than_1e-6']} they are wider than 1e-6",
    ):
        assert figure in page


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("samplers", ["batch", 0, "million_draws_per_second", "dpcore"]),
        ("noise_saved", ["binary_shuffle", 0, "exact_bits"]),
        ("accounting", ["totals", 0, "ours_ms"]),
        ("masked_aggregation", ["rows", -1, "bytes_per_user", "sent"]),
        ("audit", ["sections", "battery", "rows", 0, "value", "by_value"]),
        ("dp_sniper", ["rows", 0, "epsilon_lower", "network"]),
    ],
    ids=TABLES,
)
def test_a_table_with_a_changed_figure_is_detected(name: str, path: list[Any]) -> None:
    changed = result(name)
    *parents, last = path
    reduce(getitem, parents, changed)[last] *= 2
    assert expected(**{name: changed}) != shown(PAGE.read_text("utf-8"))


def test_the_readme_states_the_measured_speed_of_batches() -> None:
    told = re.search(r"at least (\d+) times as fast", (ROOT / "README.md").read_text("utf-8"))
    speeds = [row["million_draws_per_second"] for row in result("samplers")["batch"]]
    beside = [speed["dpcore"] / speed["opendp"] for speed in speeds if "opendp" in speed]
    assert told
    assert min(beside) >= int(told[1])
    assert min(beside) < 2 * int(told[1])


def test_the_page_of_limits_states_the_measured_correlation_of_time() -> None:
    rows = result("samplers")["timing"]
    peers = [row for row in rows if row["draw"].startswith("opendp")]
    timing = [row for row in rows if row not in peers]
    large = [abs(row["spearman"]) for row in timing if row["draw"].endswith("of 32768")]
    page = " ".join((ROOT / "docs" / "known_limits.md").read_text("utf-8").split())
    assert f"({max(large):.2f} at 32768 values)" in page
    # For these the page states "no correlation is detectable": within 4 standard deviations of 0.
    others = [row for row in timing if not row["draw"].endswith("of 32768")]
    assert len(others) >= 6
    assert {LAWS[row["draw"].partition("(")[0]] for row in others} == timed_laws(page)
    assert all(abs(row["spearman"]) < 4 / row["draws"] ** 0.5 for row in others)
    # Counterexample: by the same measure the time of OpenDP's single draws depends on the value.
    assert len(peers) == 2
    assert not any(abs(row["spearman"]) < 4 / row["draws"] ** 0.5 for row in peers)


def timed_laws(page: str) -> set[str]:
    """Return the laws that the limits page lists after "was measured for"."""
    named = page.partition("was measured for ")[2].partition(" noise (")[0]
    return {name.removeprefix("and ") for name in named.replace(" and ", ", ").split(", ")}
