"""The README's figures are those of the committed benchmark results, and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
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
}


def result(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def sampler_lines(samplers: Any) -> list[str]:
    lines = []
    for row in samplers["batch"]:
        speed = row["million_draws_per_second"]
        numpy = f"{speed[NUMPY]:.0f}" if NUMPY in speed else "-"
        cells = (ROWS[row["noise"]], f"{speed['dpcore']:.0f}", f"{speed['opendp']:.2f}", numpy)
        lines.append(f"| {' | '.join(cells)} |")
    for row in samplers["scalar"]:
        speed = {name: value / 1e6 for name, value in row["draws_per_second"].items()}
        law = ROWS[row["noise"]]
        cells = (f"single values: {law}", f"{speed['dpcore']:.0f}", f"{speed['opendp']:.2f}", "-")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def missing(lines: list[str], text: str) -> str:
    return "\n".join(line for line in lines if line not in text)


def test_the_speed_table_is_the_committed_result() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert not missing(sampler_lines(result("samplers")), text)


def test_a_table_of_other_figures_is_refused() -> None:
    samplers = result("samplers")
    samplers["batch"][0]["million_draws_per_second"]["dpcore"] *= 2
    assert missing(sampler_lines(samplers), (ROOT / "README.md").read_text("utf-8"))


def test_the_limits_page_tells_what_time_told() -> None:
    timing = [row for row in result("samplers")["timing"] if not row["draw"].startswith("opendp")]
    large = [abs(row["spearman"]) for row in timing if row["draw"].endswith("of 32768")]
    page = " ".join((ROOT / "docs" / "known_limits.md").read_text("utf-8").split())
    assert f"({max(large):.2f} at 32768 values)" in page
    # "no correlation is detectable" is said of the others: within 4 standard deviations of none.
    others = [row for row in timing if not row["draw"].endswith("of 32768")]
    assert len(others) == 6
    assert all(abs(row["spearman"]) < 4 / row["draws"] ** 0.5 for row in others)
    assert not all(value < 4 / 5_000**0.5 for value in large)


@pytest.mark.parametrize("name", ["samplers", "accounting", "audit"])
def test_a_result_names_its_machine_and_command(name: str) -> None:
    found = result(name)
    assert found["machine"]["processor"]
    assert found["machine"]["packages"]["dpcore"]
    assert found["command"].startswith("python")
    assert f"-m benchmarks.{name}" in found["command"]
