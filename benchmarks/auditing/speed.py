r"""Times of whole commands on one core, of the statistics alone, and of families of tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np

from audit.broken_mechanisms import find
from audit.claims import Claim, CurveClaim
from audit.features.parse_feature import Feature, read_feature
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.statistical_tests.anytime_valid_test import watch
from audit.statistical_tests.multiple_testing import View, weigh_views
from audit.statistical_tests.prequential_fixed_runs_test import gather
from audit.targets.target import Vectorised
from benchmarks.auditing.harness import ALPHA, LAPLACE, Effort, Row, drawn
from benchmarks.machine import AS_INSTALLED, best_seconds, interleaved

__all__ = ["family", "speed"]

_SEED: Final = 5
_MOST_SECONDS: Final = 2.0
_AUDIT: Final = "audit count --claim epsilon=1 --pair 0 1 --layers sample --seed 7 --json"
_MOST_RATIO: Final = 5.0
_FAMILY_RUNS: Final = 100_000
_FEATURES: Final = ("identity", "sign", "last-bits:2")
_PAIRS: Final = 5
_THREADS: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def one_core() -> Iterator[None]:
    r"""Run child processes on one core, if the system supports this."""
    if sys.platform == "linux":
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
    else:
        yield


def _seconds(line: list[str], repeats: int) -> list[float]:
    found = []
    environment = {**AS_INSTALLED, **_THREADS}
    with one_core():
        # The first run writes bytecode and is not counted.
        subprocess.run(line, capture_output=True, check=True, env=environment)
        for _ in range(repeats):
            start = time.perf_counter()
            subprocess.run(line, capture_output=True, check=True, env=environment)
            found.append(round(time.perf_counter() - start, 3))
    return found


def _timed(what: str, line: list[str], shown: str, repeats: int, limit: float | None = None) -> Row:
    found = _seconds(line, repeats)
    median = float(np.median(found))
    return Row(
        what=what,
        value={"command": shown, "median_seconds": round(median, 3), "least_seconds": min(found)},
        to_reach=None if limit is None else f"< {limit:g} s",
        reached=None if limit is None else median < limit,
        repeats=repeats,
        seed=7,
    )


def speed(effort: Effort) -> Iterator[Row]:
    r"""Times of separate processes on one core, with start-up, and of the statistics alone."""
    repeats = effort.count(2, 7)
    for module in ("audit", "audit.sample_layer"):
        code = f"import {module}"
        yield _timed(code, [sys.executable, "-c", code], f"python -c '{code}'", repeats)
    for spelled, limit in (("1e5", _MOST_SECONDS), ("1e6", None)):
        words = [*_AUDIT.split(), "-n", spelled]
        yield _timed(
            f"an audit of {spelled} runs, vectorised, one core, start-up included",
            [sys.executable, "-m", "dpcore.cli.app", *words],
            " ".join(["dpcore", *words]),
            repeats,
            limit,
        )
    for runs in (100_000,) if effort.quick else (100_000, 1_000_000):
        outputs, worlds = drawn(LAPLACE, runs, np.random.default_rng([_SEED, runs]))
        for name, work in (("fixed n", _fixed), ("anytime", _anytime)):
            seconds = best_seconds(partial(work, outputs, worlds), repeats=repeats)
            yield Row(
                what=f"the statistics alone: {name}, {runs:,} runs",
                value={"least_seconds": round(seconds, 3)},
                repeats=repeats,
                seed=_SEED,
            )


def _fixed(outputs: Any, worlds: Any) -> None:
    evidence = gather(outputs, worlds, seed=1)
    evidence.p_value(1)
    evidence.epsilon_lower()
    evidence.followed(1)


def _anytime(outputs: Any, worlds: Any) -> None:
    process = watch(1).update(outputs, worlds)
    process.rejected_at()
    process.epsilon_lower()


def family(effort: Effort) -> Iterator[Row]:
    r"""Times of a claimed curve, of features and of pairs, divided by the time of one test.

    All have the same total number of runs; the time includes the application of the features.
    """
    repeats = effort.count(2, 7)
    for what, several, alone in (
        ("a claimed curve", *_curve()),
        (f"{len(_FEATURES)} features", *_features()),
        (f"{_PAIRS} pairs", *_pairs()),
    ):
        found = interleaved({"several": several, "alone": alone}, repeats=repeats)
        yield Row(
            what=f"{what}, {_FAMILY_RUNS:,} runs: seconds over those of one test",
            value={
                "ratio": round(found["several"] / found["alone"], 2),
                "seconds": round(found["several"], 3),
                "seconds_of_one_test": round(found["alone"], 3),
            },
            repeats=repeats,
            seed=_SEED,
        )
    for law, one in ((number, "identity"), (histogram, "coordinate:0")):
        several, alone = (
            partial(_audited, law, features) for features in ((), (read_feature(one),))
        )
        found = interleaved({"several": several, "alone": alone}, repeats=repeats)
        ratio = found["several"] / found["alone"]
        yield Row(
            what=f"the default family: {law.__name__}, {_FAMILY_RUNS:,} runs: seconds of an "
            f"audit over those of one with --feature {one}",
            value={
                "ratio": round(ratio, 2),
                "seconds": round(found["several"], 3),
                "seconds_of_one_test": round(found["alone"], 3),
            },
            to_reach=f"<= {_MOST_RATIO:g}",
            reached=effort.verdict(ratio <= _MOST_RATIO),
            repeats=repeats,
            seed=_SEED,
        )


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    # On a grid, so that the lowest bits reveal nothing: finding a large bound would take longer.
    return np.rint(rng.laplace(scale=2**20, size=shape)) / 2**20


def number(value: int, n: int, rng: np.random.Generator) -> Any:
    r"""One float per run, tested by its value and its lowest bits."""
    return value + _noise(rng, (n,))


def histogram(value: int, n: int, rng: np.random.Generator) -> Any:
    r"""Five floats per run, one of which changes; tested by coordinates, a score and grids."""
    return np.array([value, 0, 0, 0, 0]) + _noise(rng, (n, 5))


def _audited(law: Callable[..., Any], features: tuple[Feature, ...]) -> object:
    plan = Plan(
        claim=Claim(epsilon=1),
        pair=(0, 1),
        runs=_FAMILY_RUNS,
        seed=_SEED,
        alpha=str(ALPHA),
        timeout=None,
        features=features,
    )
    return sample(Vectorised(spelling=law.__name__, function=law), plan)


_Works = tuple[Callable[[], object], Callable[[], object]]


def _weigh(views: list[View], claim: Claim | CurveClaim) -> Callable[[], object]:
    return partial(weigh_views, views, claim, str(ALPHA), seed=_SEED)


def _curve() -> _Works:
    entry = find("sigma-for-its-square")
    assert entry is not None
    assert entry.curve is not None
    outputs, worlds = drawn(entry.twin, _FAMILY_RUNS, np.random.default_rng(_SEED))
    view = View(outputs=outputs, worlds=worlds)
    # Parsed before the clock starts: the points of a claim are fixed once, before any run.
    curve = CurveClaim(spelling=entry.curve)
    return _weigh([view], curve), _weigh([view], Claim(epsilon=entry.epsilon, delta=entry.delta))


def _features() -> _Works:
    outputs, worlds = drawn(LAPLACE, _FAMILY_RUNS, np.random.default_rng(_SEED))
    features = [read_feature(name) for name in _FEATURES]

    def several() -> object:
        views = [
            View(feature=feature.name, outputs=feature.apply(outputs), worlds=worlds)
            for feature in features
        ]
        return _weigh(views, Claim(epsilon=1))()

    return several, _weigh([View(outputs=outputs, worlds=worlds)], Claim(epsilon=1))


def _pairs() -> _Works:
    outputs, worlds = drawn(LAPLACE, _FAMILY_RUNS, np.random.default_rng(_SEED))
    views = [
        View(pair=i, outputs=outputs[i::_PAIRS], worlds=worlds[i::_PAIRS]) for i in range(_PAIRS)
    ]
    claim = Claim(epsilon=1)
    return _weigh(views, claim), _weigh([View(outputs=outputs, worlds=worlds)], claim)
