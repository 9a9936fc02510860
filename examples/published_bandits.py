r"""Audit the code that was published with a paper on private bandits, without changes.

    python examples/published_bandits.py MABPrivate.py

The file is that of the repository sayakrc/Differentially-Private-Bandits; it is not part of dpcore.
The outputs of two of its algorithms on one batch are audited at the claimed epsilon. Section 9 of
docs/errata.md explains the faults.
"""

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import dpcore.cli.app

FILE = "MAB_PRIVATE"  # the path of the file, for the processes that an audit may start
EPSILON, USERS = 0.5, 64


def made(kind: str, growth: int) -> Any:
    r"""Create an algorithm of the file for three arms, with the parameters of the paper's figures.

    The main part of the file does not run.
    """
    world = SimpleNamespace(K=3, epsilon=EPSILON)
    settings = {"crs": 1, "delta": 0.1, "dc": growth}
    return runpy.run_path(os.environ[FILE])[kind](world, 10**6, settings)


def lead(sums: list[int], n: int, rng: np.random.Generator) -> list[int]:
    r"""The lead of the first arm over the second in DP-SE, in thousandths, which decides drops."""
    del rng  # the published code has its own generator
    algorithm, leads = made("DPSE", 2), []
    for _ in range(n):
        algorithm.rewards = np.array(sums, dtype=float)
        released = algorithm.central_rand()
        leads.append(round(1000 * float(released[0] - released[1])))
    return leads


def total(reward: int, n: int, rng: np.random.Generator) -> list[int]:
    r"""The sum that Dist-DP-SE reads for 64 users, in steps: one has ``reward``, all others 0."""
    del rng
    algorithm, totals = made("BatchSEDistDP", 4), []
    algorithm.BatchSize = USERS
    for _ in range(n):
        algorithm.RoundCount = 0
        sent = [algorithm.local_rand(x) for x in [reward] + [0] * (USERS - 1)]
        algorithm.rewards = np.array([sum(sent)], dtype=float)
        totals.append(round(float(algorithm.central_rand()[0] * algorithm.precision)))
    return totals


def main() -> int:
    r"""Run both audits and return 1 if one of them refutes, the exit code of ``dpcore audit``."""
    if len(sys.argv) != 2:
        print("usage: python examples/published_bandits.py MABPrivate.py", file=sys.stderr)
        return 2
    os.environ[FILE] = str(Path(sys.argv[1]).resolve())
    codes = []
    for target, pair, runs in (("lead", ("[5, 4, 3]", "[6, 4, 3]"), 200), ("total", "01", 1000)):
        words = ["audit", f"{__file__}:{target}", "--claim", f"epsilon={EPSILON}"]
        codes.append(dpcore.cli.app.run([*words, "--pair", *pair, "-n", str(runs), "--seed", "1"]))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
