r"""Add draws of the laws named as arguments to tests/vectors/seeded.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dpcore import SeededRng, read_noise

FILE = Path(__file__).parents[2] / "vectors" / "seeded.json"


def written(value: Any, depth: int = 0) -> str:
    r"""Return JSON with one list per line."""
    if not isinstance(value, dict):
        return json.dumps(value)
    pad = " " * (depth + 1)
    rows = (f"{pad}{json.dumps(key)}: {written(row, depth + 1)}" for key, row in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}"


if __name__ == "__main__":
    vectors = json.loads(FILE.read_text())
    for text in sys.argv[1:]:
        noise = read_noise(text)
        sources = {str(seed): SeededRng(seed) for seed in (0, 1, 1 << 64)}
        vectors["draws"][text] = {s: noise.sample(8, rng=r).tolist() for s, r in sources.items()}
        sources = {str(seed): SeededRng(seed) for seed in (0, 1)}
        vectors["reference"][text] = {
            s: [noise.sample_reference(rng) for _ in range(8)] for s, rng in sources.items()
        }
    FILE.write_text(written(vectors) + "\n")
