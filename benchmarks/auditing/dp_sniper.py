r"""DP-Sniper itself on the mechanisms of its battery, with 10^6 runs over both datasets.

``python -m benchmarks.auditing.dp_sniper [NAME ...] [--peer /path/to/python]``: the interpreter
must have dpsniper. Without names the results are written to ``results/dp_sniper.json``.

A fifth of the runs on each dataset is used for training, a fifth on the second dataset to choose
the threshold, and a fifth on each for the estimate. Each classifier is used separately at level
alpha, with the order of the datasets that the battery gives, which DP-Sniper would have to find.
Special values are encoded by flags as its authors do. ``seconds`` are of one core, without the
sampling.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any, Final

import numpy as np

from benchmarks.auditing.battery import BATTERY, Case
from benchmarks.auditing.harness import ALPHA
from benchmarks.auditing.peers import DP_SNIPER, Question
from benchmarks.machine import write

__all__ = ["main"]

_RUNS: Final = 1_000_000
_SEED: Final = 1
_CLASSIFIERS: Final = ("logistic", "network")
_FLAGGED: Final = {
    "sparse-vector-1": (-1.0,),
    "sparse-vector-2": (-1.0,),
    "sparse-vector-3": (-1000.0, -2000.0),
    "sparse-vector-4": (-1.0,),
    "sparse-vectors-side-by-side": (-1.0, -1000.0, -2000.0),
}


def attacked(case: Case, python: str) -> dict[str, Any]:
    r"""The version of DP-Sniper, and its bounds and seconds for each classifier."""
    sizes = (_RUNS * 2 // 5, _RUNS * 3 // 5)
    a, b = (
        np.asarray(case.run(data, n, np.random.default_rng([_SEED, n])), np.float64).reshape(n, -1)
        for data, n in zip(case.pair, sizes, strict=True)
    )
    asked = [
        Question(
            sides=(a, b),
            marks=_FLAGGED.get(case.name, ()),
            more=(("classifiers", [name]), ("ordered", True)),
        )
        for name in _CLASSIFIERS
    ]
    told = DP_SNIPER.ask(python, asked, seed=_SEED)
    bounds = [round(answer["epsilon_lower"], 4) for answer in told["answers"]]
    return {
        "version": told["version"],
        "epsilon_lower": dict(zip(_CLASSIFIERS, bounds, strict=True)),
        "seconds": dict(zip(_CLASSIFIERS, told["seconds"], strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON")
    options = parser.parse_args()
    rows = []
    for case in BATTERY:
        if options.names and case.name not in options.names:
            continue
        try:
            rows.append({"name": case.name, **attacked(case, options.peer)})
        except subprocess.CalledProcessError as error:
            print(f"nothing measured: {error.stderr[-300:]}", file=sys.stderr)
            return
        print(rows[-1], file=sys.stderr, flush=True)
    if not options.names:
        write("dp_sniper", {"alpha": ALPHA, "runs": _RUNS, "seed": _SEED, "rows": rows})


if __name__ == "__main__":
    main()
