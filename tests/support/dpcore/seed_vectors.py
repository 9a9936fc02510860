r"""Add rows to tests/vectors/seeded.json: draws of seeded batches and reference samplers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpcore import SeededRng, read_noise

FILE = Path(__file__).parents[2] / "vectors" / "seeded.json"
DRAWN = 8
SEEDS = (0, 1, 1 << 64)
ROWS = (
    *("discrete-laplace:scale=1/3", "discrete-laplace:scale=10"),
    *("discrete-laplace:scale=1000000", "discrete-laplace:scale=1099511627776"),
    *("discrete-gaussian:sigma_squared=1/4", "discrete-gaussian:sigma_squared=400"),
    *("discrete-gaussian:sigma_squared=1000000", "discrete-gaussian:sigma_squared=16777216"),
    "discrete-gaussian-sum:count=16,sigma_squared=1/4",
    "discrete-gaussian-sum:count=5,sigma_squared=20",
    "discrete-gaussian-sum:count=3,sigma_squared=4194304",
    *("staircase:epsilon=3,sensitivity=20", "staircase:epsilon=1/1000,sensitivity=1,plateau=1"),
    *("skellam:variance=10/3", "skellam:variance=100", "skellam:variance=16777216"),
    *("polya:shape=1/4,scale=10", "polya:shape=7/2,scale=3/2"),
    *("polya:shape=1/1024,scale=1000", "polya:shape=1/16,scale=1048576"),
    *("polya-difference:shape=9/10,scale=10", "polya-difference:shape=7/2,scale=3/2"),
    "polya-difference:shape=1/16,scale=1048576",
    *("poisson:mean=10/3", "poisson:mean=50", "poisson:mean=16777216"),
    *("binomial:trials=12,probability=1/3", "binomial:trials=268,probability=1/2"),
    "binomial:trials=100000000,probability=1/3",
)


def draws(text: str) -> dict[str, list[int]]:
    r"""Return a batch of draws for each seed."""
    return {str(s): read_noise(text).sample(DRAWN, rng=SeededRng(s)).tolist() for s in SEEDS}


def references(text: str) -> dict[str, list[int]]:
    r"""Return draws of the reference sampler for the first two seeds."""
    sources = {str(seed): SeededRng(seed) for seed in SEEDS[:2]}
    noise = read_noise(text)
    return {s: [noise.sample_reference(rng) for _ in range(DRAWN)] for s, rng in sources.items()}


def written(value: Any, depth: int = 0) -> str:
    r"""Return JSON with one list per line."""
    if not isinstance(value, dict):
        return json.dumps(value)
    pad = " " * (depth + 1)
    rows = (f"{pad}{json.dumps(key)}: {written(row, depth + 1)}" for key, row in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}"


def main() -> None:
    r"""Add the missing rows."""
    vectors = json.loads(FILE.read_text())
    for text in ROWS:
        vectors["draws"].setdefault(text, draws(text))
        vectors["reference"].setdefault(text, references(text))
    FILE.write_text(written(vectors) + "\n")


if __name__ == "__main__":
    main()
