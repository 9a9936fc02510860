r"""Tightness of our bound, jax_privacy's and DP-Auditorium's on the same data."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from audit.statistical_tests.prequential_fixed_runs_test import gather
from benchmarks.auditing.harness import ALPHA, LAPLACE, Effort, Row, drawn, share
from benchmarks.auditing.peers import (
    JAX_PRIVACY,
    Question,
    clopper_pearson,
    dp_auditorium_lower,
    histogram_by_loop,
    histogram_by_numpy,
)

__all__ = ["bounds", "histogram"]

_SEED: Final = 1
# Runs, the goal for the median, and repeats (with --quick and in full).
_SIZES: Final = (
    (20_000, 0.97, 60, 2000),
    (200_000, 0.99, 30, 1000),
    (2_000_000, 0.996, 6, 300),
)
# The peer's default methods: our bound must reach these two as well.
_DEFAULTS: Final = ("bonferroni", "split")


def _bounds(runs: int, python: str | None, repeats: range) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []

    def questions() -> Iterator[Question]:
        for repeat in repeats:
            outputs, worlds = drawn(LAPLACE, runs, np.random.default_rng([_SEED, runs, repeat]))
            found.append({"ours": gather(outputs, worlds, seed=repeat).epsilon_lower(str(ALPHA))})
            if python is None:
                found[-1].update(clopper_pearson(np.asarray(outputs), worlds, repeat))
            yield Question.of_worlds(np.asarray(outputs), worlds, ask="each", seed=repeat)

    if python is None:
        deque(questions(), maxlen=0)
        return found
    answers = JAX_PRIVACY.ask(python, questions())["answers"]
    return [{**row, **answer} for row, answer in zip(found, answers, strict=True)]


def bounds(effort: Effort) -> Iterator[Row]:
    r"""Discrete Laplace at epsilon = 1: medians, and how often each bound exceeds epsilon."""
    python = effort.peer_python
    known = JAX_PRIVACY.version(python)
    peer = (
        "re-derived: audit.statistical_tests.clopper_pearson_and_other_baselines"
        if known is None
        else f"jax_privacy {known}"
    )
    for runs, target, few, repeats in _SIZES:
        count = effort.count(few, repeats)
        work = partial(_bounds, runs, None if known is None else python)
        found = effort.batches(work, count)
        by_name = {name: np.array([row[name] for row in found]) for name in found[0]}
        medians = {name: round(float(np.median(all_)), 4) for name, all_ in by_name.items()}
        ours = medians.pop("ours")
        least = max(target, *(medians[name] for name in _DEFAULTS))
        yield Row(
            what=f"discrete Laplace, epsilon 1, {runs:,} runs: median lower bound",
            value={
                "runs": runs,
                "median_epsilon_lower": ours,
                "peer": peer,
                "peer_medians": medians,
                "above_the_truth": {
                    name: share(int((all_ > 1).sum()), count) for name, all_ in by_name.items()
                },
                "larger_than_ours": {
                    name: share(int((by_name[name] > by_name["ours"]).sum()), count)
                    for name in medians
                },
            },
            to_reach=f">= {target}, and >= the peer's median with a threshold by Bonferroni or "
            "from one half",
            reached=effort.verdict(ours >= least),
            repeats=count,
            seed=_SEED,
        )


def _once(work: Callable[[], float]) -> dict[str, Any]:
    start = time.perf_counter()
    value = work()
    return {"epsilon_lower": round(value, 4), "seconds": round(time.perf_counter() - start, 3)}


def histogram(effort: Effort) -> Iterator[Row]:
    r"""Bound and time of DP-Auditorium's histogram tester, re-derived, and of our audit."""
    for a_world in (100_000,) if effort.quick else (500_000, 1_000_000):
        runs = 2 * a_world
        outputs, worlds = drawn(LAPLACE, runs, np.random.default_rng([_SEED, runs]))
        said = np.asarray(outputs)
        ours = _once(partial(_ours, said, worlds))
        loop = _once(partial(dp_auditorium_lower, said, worlds, histogram_by_loop))
        by_numpy = _once(partial(dp_auditorium_lower, said, worlds, histogram_by_numpy))
        yield Row(
            what=f"discrete Laplace, epsilon 1, {a_world:,} runs a world: DP-Auditorium's "
            "histogram tester, inverted over epsilon",
            value={
                "runs": runs,
                "peer": "re-derived: benchmarks.auditing.peers.dp_auditorium_lower",
                "ours": ours,
                "dp_auditorium_with_its_loop": loop,
                "dp_auditorium_vectorised": by_numpy,
            },
            to_reach="a larger bound in less time than its loop",
            reached=ours["epsilon_lower"] > loop["epsilon_lower"]
            and ours["seconds"] < loop["seconds"],
            seed=_SEED,
        )


def _ours(outputs: Any, worlds: Any) -> float:
    return gather(outputs, worlds, seed=0).epsilon_lower(str(ALPHA))
