r"""The corpus of real failures, by dpcore's auditor and by the peer that can be installed.

``python -m benchmarks.corpus [NAME ...] [--peer-python /path/to/python] [--cache FOLDER]``,
with a package index within reach. Without names it writes ``results/corpus.json``.

Each failure and each twin is audited by ``dpcore audit corpus``, and then as many runs anew go to
jax_privacy's three Clopper-Pearson bounds (the interpreter of ``--peer-python``), the largest of
which at level alpha/3 counts as its answer: it finds a failure where that exceeds the claimed
epsilon, and raises a false alarm where it does so for a twin. It reads numbers; where an output is
a list, a word or NaN it cannot be asked, and a claimed curve is not its question.

Of the other auditors, dp-recorder, DP-Auditorium and DP-Sniper are not on the package index: they
were not tried here. ``seconds`` are those of the draws and of the answer, which includes the start
of its interpreter.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.claims.claim import Claim
from audit.claims.curve_claim import read_claim
from audit.corpus.entry import ROLES, Entry, Role, entries, find
from audit.corpus.environment import Environment, cache_folder
from audit.corpus.installed import Worker
from audit.corpus.judge import Result, judge
from audit.errors import TargetFailed
from benchmarks.auditing.harness import ALPHA
from benchmarks.auditing.peers import ask_jax_privacy, counts_of, jax_privacy_version
from benchmarks.machine import write
from dpcore.numbers.rounding import down

__all__ = ["main", "page_table"]

_BLOCK: Final = 1000
_SEED: Final = 1
_METHODS: Final = 3


def numbers(lines: list[str]) -> NDArray[np.float64] | None:
    r"""Outputs as scores; None where one of them is no number.

    >>> numbers(["1", "2.5", "true"]), numbers(["1", '"raised"']), numbers(["NaN"])
    (array([1. , 2.5, 1. ]), None, None)
    """
    found = [json.loads(line) for line in lines]
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in found):
        return None
    return np.array(found, dtype=np.float64)


def drawn(entry: Entry, role: Role, python: Path) -> tuple[list[str], list[str]]:
    r"""Half of the entry's runs on each dataset."""
    sides: tuple[list[str], list[str]] = ([], [])
    with Worker(f"{entry.name} ({role})", python, entry.sides[role].code) as worker:
        worker.begin()
        for world, side in enumerate(sides):
            while len(side) < entry.runs // 2:
                size = min(_BLOCK, entry.runs // 2 - len(side))
                seed = _SEED + 2 * len(side) + world
                side.extend(
                    worker.draw(entry.pair[world], size, seed, label="AB"[world], seconds=None)
                )
    return sides


def by_peer(entry: Entry, role: Role, python: Path, peer: str) -> dict[str, Any]:
    r"""What jax_privacy says of one side: found, missed, a false alarm, silent, or not asked."""
    claim = read_claim(entry.sides[role].claim, entry.relation)
    if not isinstance(claim, Claim):
        return {"says": "not asked: the claim is a curve"}
    begun = time.perf_counter()
    try:
        sides = drawn(entry, role, python)
    except TargetFailed as error:
        return {"says": f"not asked: {error.reason}"}
    scores = [numbers(side) for side in sides]
    if scores[0] is None or scores[1] is None:
        return {"says": "not asked: an output is no number"}
    outputs = np.concatenate([scores[0], scores[1]])
    worlds = np.repeat([False, True], [len(scores[0]), len(scores[1])])
    epsilon, delta = claim.exact
    # Its guess is "a large score is world B": the other direction is a question of its own.
    asked = [counts_of(signed, worlds, seed=_SEED) for signed in (outputs, -outputs)]
    level = ALPHA / _METHODS / len(asked)
    told = ask_jax_privacy(peer, "clopper-pearson", asked, delta=float(delta), alpha=level)
    lower = max(max(answer.values()) for answer in told["answers"])
    says = {
        ("broken", True): "found",
        ("broken", False): "missed",
        ("twin", True): "false alarm",
        ("twin", False): "silent",
    }[role, lower > epsilon]
    return {"says": says, "epsilon_lower": lower, "seconds": round(time.perf_counter() - begun, 2)}


def by_dpcore(result: Result, role: Role) -> dict[str, Any]:
    r"""What ``dpcore audit corpus`` says of one side, in the same words."""
    words = {"broken": ("missed", "found"), "twin": ("silent", "false alarm")}[role]
    return {
        "says": words[result.verdict == "refuted"] if result.error is None else result.error,
        "epsilon_lower": result.epsilon_lower,
        "seconds": round(result.seconds, 2),
    }


def page_table(rows: list[dict[str, Any]]) -> str:
    r"""The results as docs/corpus.md shows them, in Markdown.

    >>> ours = {"says": "found", "epsilon_lower": 1.5, "seconds": 2.0}
    >>> row = {"name": "x", "runs": 9, "broken": {"dpcore": ours, "jax_privacy": {"says": "no"}}}
    >>> print(page_table([row]).splitlines()[-1])
    | `x` | 9 | found, 1.5 (2 s) | no |  |  |
    """
    lines = [
        "| entry | runs | dpcore | jax_privacy | dpcore on the twin | jax_privacy on the twin |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            _cell(row[role][auditor]) if role in row else ""
            for role in ROLES
            for auditor in ("dpcore", "jax_privacy")
        ]
        lines.append(f"| `{row['name']}` | {row['runs']:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(said: dict[str, Any]) -> str:
    lower = said.get("epsilon_lower")
    if lower is None:
        return str(said["says"])
    return f"{said['says']}, {down(Fraction(lower), 3)} ({said['seconds']:.0f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--cache", type=Path, default=cache_folder())
    options = parser.parse_args()
    rows = []
    for entry in tuple(map(find, options.names)) or entries():
        judged = judge([entry], cache=options.cache, keep=True, alpha=str(ALPHA), seed=_SEED)[0]
        row: dict[str, Any] = {"name": entry.name, "runs": entry.runs}
        for role, result in zip(entry.sides, judged.results, strict=True):
            environment = Environment(
                requires=entry.sides[role].requires, newest_python=entry.python, alone=entry.alone
            )
            row[role] = {
                "dpcore": by_dpcore(result, role),
                "jax_privacy": by_peer(
                    entry, role, environment.python(options.cache), options.peer_python
                ),
            }
        rows.append(row)
        print(entry.name, {role: row[role] for role in entry.sides}, file=sys.stderr, flush=True)
    if not options.names:
        peer = jax_privacy_version(options.peer_python)
        write("corpus", {"alpha": ALPHA, "jax_privacy": peer, "rows": rows})


if __name__ == "__main__":
    main()
