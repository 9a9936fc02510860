r"""jax_privacy's bounds on given counts, for an interpreter that has it: a program of its own.

One JSON document on standard input, one on standard output. It imports nothing of this project, so
that its environment need not hold it.

    {"ask": "clopper-pearson" | "gdp", "alpha": 0.05, "delta": 0.0,
     "datasets": [{"seed": 0, "a": [[score, count], ...], "b": [[score, count], ...]}, ...]}
    {"version": "2.0.0", "answers": [{"split": 0.9, ...}, ...]}
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np


def scores(counts: list[list[float]]) -> Any:
    r"""The scores of a world, each as often as it came."""
    values, times = np.array(counts).T
    return np.repeat(values, times.astype(np.int64))


def answer(asked: dict[str, Any], dataset: dict[str, Any]) -> dict[str, float]:
    r"""Its lower bounds on epsilon: of every way to choose a threshold, or by its Gaussian-DP."""
    auditing = import_module("jax_privacy.auditing")
    auditor = auditing.CanaryScoreAuditor(scores(dataset["b"]), scores(dataset["a"]))
    alpha, delta, seed = asked["alpha"], asked["delta"], dataset["seed"]
    if asked["ask"] == "gdp":
        return {"gdp": float(auditor.epsilon_from_gdp(alpha, delta))}
    strategies = {
        "bonferroni": auditing.Bonferroni(),
        "split": auditing.Split(seed=seed),
        "split_a_tenth": auditing.Split(threshold_estimation_frac=0.1, seed=seed),
    }
    return {
        name: float(
            auditor.epsilon_clopper_pearson(
                alpha, delta, one_sided=False, threshold_strategy=strategy
            )
        )
        for name, strategy in strategies.items()
    }


def main() -> None:
    asked = json.load(sys.stdin)
    import_module("jax_privacy.auditing")
    answers = [answer(asked, dataset) for dataset in asked["datasets"]]
    json.dump({"version": version("jax_privacy"), "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
