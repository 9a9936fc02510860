"""The figures of docs/combinatorial.md are those that were measured, and say what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from benchmarks.combinatorial import PARTS, measure, slope

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "combinatorial.md").read_text("utf-8")
FOUND: Final[dict[str, Any]] = json.loads(
    (ROOT / "benchmarks" / "results" / "combinatorial.json").read_text("utf-8")
)
NAMES: Final = {"cucb-dp": "`cucb-dp`, doubling"}


def lines() -> list[str]:
    """The rows of both tables."""
    ratios = [
        f"| {row['super_arm']} | {row['ldp1']:.3f} | {row['ldp2']:.3f} "
        f"| {row['ldp1_over_ldp2']:.1f} "
        f"| {row['tree']:.3f} | {row['doubling']:.3f} | {row['tree_over_doubling']:.1f} "
        f"| {row['factorisation']:.3f} |"
        for row in FOUND["ratios"]["rows"]
    ]
    slopes: dict[str, list[str]] = {}
    for row in FOUND["exponents"]["rows"]:
        name = NAMES.get(row["algorithm"], f"`{row['algorithm']}`")
        slopes.setdefault(name, []).append(f"{row['exponent']:.2f} ± {row['two_se']:.2f}")
    return ratios + [f"| {name} | {' | '.join(cells)} |" for name, cells in slopes.items()]


def reasons() -> list[str]:
    """The table of what was tried, a row for each reason."""
    cells: dict[str, list[str]] = {}
    for row in FOUND["reasons"]["rows"]:
        cells.setdefault(row["what"], []).append(f"{row['exponent']:.2f} ± {row['two_se']:.2f}")
    words = {
        "clipped": "as played",
        "not clipped": "bounds not clipped at 1",
        "less that without privacy": "less the regret without privacy",
    }
    assert [*cells] == ["clipped", "less that without privacy", "not clipped"]
    return [
        f"| {words[what]} | {' | '.join((*found, *['-'] * (3 - len(found))))} |"
        for what, found in cells.items()
    ]


def test_what_the_reasons_showed_is_on_the_page() -> None:
    assert [line for line in reasons() if line not in PAGE] == []
    by = {(row["algorithm"], row["rounds"], row["what"]): row for row in FOUND["reasons"]["rows"]}
    for name, rounds in (("cucb-ldp2", 50_000), ("cucb-dp", 50_000), ("cucb-ldp2", 500_000)):
        played, rest = (by[name, rounds, w] for w in ("clipped", "less that without privacy"))
        assert rest["exponent"] - rest["two_se"] > played["exponent"] + played["two_se"]
        assert rest["exponent"] + rest["two_se"] < 2
    clipped, free = (by["cucb-ldp2", 50_000, what] for what in ("clipped", "not clipped"))
    assert abs(clipped["exponent"] - free["exponent"]) <= clipped["two_se"] + free["two_se"]
    halves = [b / a for a, b in zip(clipped["regret"], free["regret"], strict=True)]
    assert all(0.45 < each < 0.55 for each in halves)


def gaps() -> list[str]:
    """The table of gaps, a row for each algorithm."""
    cells: dict[str, list[str]] = {}
    for row in FOUND["gaps"]["rows"]:
        name = NAMES.get(row["algorithm"], f"`{row['algorithm']}`")
        cells.setdefault(name, []).append(f"{row['exponent']:.2f} ± {row['two_se']:.2f}")
    return [f"| {name} | {' | '.join(found)} |" for name, found in cells.items()]


def test_the_page_shows_what_was_measured() -> None:
    assert (len(lines()), len(gaps())) == (6, 3)
    assert [line for line in lines() + gaps() if line not in PAGE] == []


def test_what_the_page_says_of_them_is_so() -> None:
    for row, wanted in zip(FOUND["ratios"]["rows"], (3, 6, 11), strict=True):
        assert round(row["ldp1_over_ldp2"]) == wanted
        assert 7 <= row["tree_over_doubling"] <= 8
        assert row["factorisation"] < 1.02 * row["doubling"]
        assert row["ldp2"] < row["ldp1"] < row["uniform"]
    seconds = [row["seconds"] for row in FOUND["speed"]["rows"]]
    shown = f"{round(min(seconds))} to {round(max(seconds))} seconds"
    assert shown in PAGE
    assert all(row["holds"] for row in FOUND["speed"]["rows"])
    times = [row["seconds"] / row["bare_seconds"] for row in FOUND["speed"]["rows"]]
    assert f"{round(min(times))} to {round(max(times))} times the bare" in PAGE.replace("\n", " ")


def test_a_slope_is_that_of_its_law_within_its_error() -> None:
    world = np.random.default_rng(1)
    points = [(x, 3 * x**1.5 * world.normal(1, 0.05, 40)) for x in (1.0, 2.0, 4.0, 8.0)]
    found, error = slope(points)
    assert abs(found - 1.5) < 4 * error < 0.1
    wrong, _ = slope([(x, y * x) for x, y in points])
    assert abs(wrong - 1.5) > 4 * error


@pytest.mark.nightly
@pytest.mark.parametrize("part", PARTS)
def test_the_benchmark_runs(part: str) -> None:
    assert measure(part, quick=True)["rows"]
