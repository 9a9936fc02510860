r"""What the sampling test gets out of its runs: tightness, false alarms, detection and time.

``python -m benchmarks.audit [--quick] [--jobs 2] [--rows bounds boundary ...]``.
Runs are counted over both worlds together, alpha is 0.05, and a share of repeats comes with its
exact 95% upper (false alarms) or lower (detections) bound. A plug-in ratio goes through the same
false-alarm harness as a negative control: a harness that lets it pass measures nothing.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from audit.baseline import clopper_pearson_split
from audit.catalogue import ENTRIES, Subject
from audit.confidence import draw_worlds, gather, interleave
from audit.sequential import LOOKS, EProcess, watch
from benchmarks.machine import best_seconds, machine, write

Outputs: TypeAlias = NDArray[Any]
Worlds: TypeAlias = NDArray[np.bool_]
Sampler: TypeAlias = Callable[[Worlds, np.random.Generator], Outputs]

_ALPHA = 0.05
_MOST_SEQUENTIAL = 400_000


def laplace(worlds: Worlds, rng: np.random.Generator, *, scale: float = 1.0) -> Outputs:
    r"""The world plus discrete Laplace noise, by numpy: exactly 1/scale-DP up to its floats."""
    p = -math.expm1(-1 / scale)
    return worlds + rng.geometric(p, len(worlds)) - rng.geometric(p, len(worlds))


def response(worlds: Worlds, rng: np.random.Generator) -> Outputs:
    r"""Randomised response at exactly epsilon = 1: every output is at the boundary."""
    return np.where(rng.random(len(worlds)) < 1 / (1 + math.exp(-1)), worlds, ~worlds)


def subject(entry: Subject, worlds: Worlds, rng: np.random.Generator) -> Outputs:
    r"""A mechanism of the catalogue on its pair."""
    in_b = int(np.count_nonzero(worlds))
    sides = (entry.run(entry.pair[0], len(worlds) - in_b, rng), entry.run(entry.pair[1], in_b, rng))
    return interleave(*sides, worlds, rng)


def at_most(hits: int, repeats: int) -> float:
    r"""Upper 95% bound on a rate."""
    return 1.0 if hits == repeats else float(betaincinv(hits + 1, repeats - hits, 0.95))


def at_least(hits: int, repeats: int) -> float:
    r"""Lower 95% bound on a rate."""
    return 0.0 if hits == 0 else float(betaincinv(hits, repeats - hits + 1, 0.05))


# -- one repeat of each kind; the seed is the only thing that changes -----------------------------


def both_bounds(runs: int, seed: int) -> tuple[float, float]:
    r"""Our bound and the baseline's on the same data."""
    rng = np.random.default_rng([1, runs, seed])
    worlds = draw_worlds(runs, rng)
    outputs = laplace(worlds, rng)
    return (
        gather(outputs, worlds, seed=seed).epsilon_lower(),
        clopper_pearson_split(outputs, worlds, seed=seed),
    )


def alarms(sampler: Sampler, runs: int, claim: tuple[Any, Any], seed: int) -> tuple[bool, ...]:
    r"""Whether fixed p, fixed bound, anytime (at every run) and a plug-in ratio speak up."""
    rng = np.random.default_rng([2, runs, seed])
    worlds = draw_worlds(runs, rng)
    outputs = sampler(worlds, rng)
    evidence = gather(outputs, worlds, seed=seed)
    process = watch(*claim).update(outputs, worlds)
    return (
        evidence.p_value(*claim) <= _ALPHA,
        evidence.epsilon_lower(_ALPHA, claim[1]) > claim[0],
        process.rejected_at(_ALPHA) is not None,
        plug_in(outputs, worlds) > claim[0],
    )


def plug_in(outputs: Outputs, worlds: Worlds) -> float:
    r"""The negative control: the largest ratio of counts, as if counts were probabilities."""
    if outputs.ndim > 1:
        outputs = outputs.sum(axis=tuple(range(1, outputs.ndim)))
    values, place = np.unique(outputs, return_inverse=True)
    both = [np.bincount(place[worlds == world], minlength=len(values)) for world in (False, True)]
    ratios = [math.log((b + 1) / (a + 1)) for a, b in zip(*both, strict=True)]
    return max(map(abs, ratios), default=0.0)


def detected(entry: Subject, runs: int, seed: int) -> bool:
    r"""Whether the fixed test refutes an entry's claim."""
    rng = np.random.default_rng([3, runs, seed])
    worlds = draw_worlds(runs, rng)
    evidence = gather(subject(entry, worlds, rng), worlds, seed=seed)
    return evidence.p_value(entry.epsilon, entry.delta) <= _ALPHA


def stopped(entry: Subject, seed: int) -> float:
    r"""Runs at which the anytime test refutes an entry, drawn from look to look; inf if never."""
    rng = np.random.default_rng([4, seed])
    process: EProcess = watch(entry.epsilon, entry.delta)
    for look in LOOKS:
        if look > _MOST_SEQUENTIAL:
            return math.inf
        worlds = draw_worlds(look - process.runs, rng)
        process = process.update(subject(entry, worlds, rng), worlds)
        if (stop := process.rejected_at(_ALPHA)) is not None:
            return stop
    return math.inf


# -- the rows ------------------------------------------------------------------------------------


class Effort:
    r"""How often to repeat, and the processes that do it."""

    def __init__(self, pool: ProcessPoolExecutor, *, quick: bool) -> None:
        self._pool = pool
        self.quick = quick

    def repeat(self, work: Callable[[int], Any], quick: int, full: int) -> list[Any]:
        r"""``work(seed)`` for each of ``quick`` or ``full`` seeds."""
        count = quick if self.quick else full
        return list(self._pool.map(work, range(count), chunksize=max(1, count // 16)))


def bounds(effort: Effort) -> list[dict[str, Any]]:
    r"""Row 1: discrete Laplace, epsilon = 1; ours beside Clopper-Pearson on the same data."""
    found = []
    for runs, target, repeats in (
        (20_000, 0.97, 400),
        (200_000, 0.99, 100),
        (2_000_000, 0.996, 25),
    ):
        pairs = np.array(effort.repeat(partial(both_bounds, runs), 8, repeats))
        ours, theirs = pairs.T
        found.append(
            {
                "runs": runs,
                "repeats": len(pairs),
                "median_epsilon_lower": round(float(np.median(ours)), 4),
                "median_clopper_pearson": round(float(np.median(theirs)), 4),
                "share_where_clopper_pearson_is_above": round(float(np.mean(theirs > ours)), 4),
                "over_claims": int(np.sum(ours > 1)),
                "to_reach": target,
                "reached": bool(np.median(ours) >= max(target, np.median(theirs))),
            }
        )
    return found


def _alarm_row(name: str, limit: float, found: Sequence[tuple[bool, ...]]) -> dict[str, Any]:
    repeats = len(found)
    row: dict[str, Any] = {"mechanism": name, "repeats": repeats, "limit": limit}
    kinds = ("p_value", "epsilon_lower", "anytime", "plug_in_control")
    for kind, hits in zip(kinds, np.sum(found, axis=0).tolist(), strict=True):
        row[kind] = {"alarms": hits, "at_most": round(at_most(hits, repeats), 4)}
    row["reached"] = all(row[kind]["at_most"] <= limit for kind in kinds[:3])
    row["control_caught"] = row["plug_in_control"]["alarms"] / repeats > limit
    return row


def boundary(effort: Effort) -> list[dict[str, Any]]:
    r"""Row 2, at the exact boundary, with a look at every run for the anytime test."""
    return [
        _alarm_row(name, 0.056, effort.repeat(partial(alarms, sampler, 1000, (1, 0)), 200, 6000))
        for name, sampler in (("randomised response", response), ("discrete Laplace", laplace))
    ]


def twins(effort: Effort) -> list[dict[str, Any]]:
    r"""Row 2, the catalogue's correct twins. Their control is not required to raise an alarm."""
    unique = {entry.twin.name: entry.twin for entry in ENTRIES}
    found = []
    for name, twin in list(unique.items())[: 3 if effort.quick else 12]:
        work = partial(alarms, partial(subject, twin), 400, (twin.epsilon, twin.delta))
        found.append(_alarm_row(name, 0.065, effort.repeat(work, 40, 1000)))
    return found


def catalogue(effort: Effort) -> list[dict[str, Any]]:
    r"""Row 3: each entry at its stated runs, and the median runs at which watching stops."""
    found = []
    for entry in ENTRIES[:8] if effort.quick else ENTRIES:
        few = 20 if entry.runs >= 10**5 else 60
        hits = sum(effort.repeat(partial(detected, entry, entry.runs), 10, few))
        repeats = 10 if effort.quick else few
        stops = effort.repeat(partial(stopped, entry), 5, 15)
        found.append(
            {
                "number": entry.number,
                "name": entry.name,
                "runs": entry.runs,
                "detected": hits / repeats,
                "at_least": round(at_least(hits, repeats), 3),
                "median_stop": float(np.median(stops)),
            }
        )
    return found


def seconds(_: Effort) -> dict[str, float]:
    r"""Row 4, the statistics alone: learning, p-value, bound and witness on given outputs."""
    found = {}
    for name, scale in (("scale 1", 1.0), ("scale 1000", 1000.0)):
        for runs in (100_000, 1_000_000):
            rng = np.random.default_rng(5)
            worlds = draw_worlds(runs, rng)
            outputs = laplace(worlds, rng, scale=scale)

            def fixed(outputs: Outputs = outputs, worlds: Worlds = worlds) -> None:
                evidence = gather(outputs, worlds, seed=1)
                evidence.p_value(1)
                evidence.epsilon_lower()
                evidence.witness(1)

            def anytime(outputs: Outputs = outputs, worlds: Worlds = worlds) -> None:
                process = watch(1).update(outputs, worlds)
                process.rejected_at()
                process.epsilon_lower()

            found[f"fixed, {runs} runs, {name}"] = round(best_seconds(fixed, repeats=3), 3)
            found[f"anytime, {runs} runs, {name}"] = round(best_seconds(anytime, repeats=3), 3)
    return found


def command(_: Effort) -> dict[str, Any]:
    r"""Row 4, start-up included: the whole command on a vectorised mechanism, 1e5 runs."""
    words = "audit count --claim epsilon=1 --pair 0 1 -n 1e5 --layers sample --seed 7 --json"
    line = [sys.executable, "-m", "dpcore.cli", *words.split()]
    start = time.perf_counter()
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return {
        "command": " ".join(["dpcore", *words.split()]),
        "seconds": round(time.perf_counter() - start, 3),
        "exit": done.returncode,
        "to_reach": 2.0,
    }


ROWS: dict[str, Callable[[Effort], Any]] = {
    "bounds": bounds,
    "boundary": boundary,
    "twins": twins,
    "catalogue": catalogue,
    "time": seconds,
    "whole_command": command,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.audit")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=machine()["cores"])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        effort = Effort(pool, quick=chosen.quick)
        found = {name: ROWS[name](effort) for name in chosen.rows}
    write("audit", {"alpha": _ALPHA, "quick": chosen.quick, **found})


if __name__ == "__main__":
    main()
