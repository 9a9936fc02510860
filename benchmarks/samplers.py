r"""Speed of the samplers beside their peers, and what the time of a draw tells of its value.

``python -m benchmarks.samplers [--quick]``. Ours draw with the operating system's entropy. OpenDP
is exact and private; numpy is neither and is here as the speed of light. Ratios are ours / peer.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.machine import interleaved, write
from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from dpcore.noise import batch_of
from dpcore.reservoir import SERVED

_DRAWS = 10**6
_PEER_DRAWS = 10**5
_SCALES = (1, 10, 1000)


def opendp_measurement(noise: Noise, scale: float, *, vector: bool) -> Any:
    r"""OpenDP's mechanism of the same law on a vector or on one integer; None where missing."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    laplace = isinstance(noise, DiscreteLaplace)
    make = dp.m.make_laplace if laplace else dp.m.make_gaussian
    kind = "i64" if laplace else "f64"
    domain = dp.atom_domain(T="i64")
    if not vector:
        return make(domain, dp.absolute_distance(T=kind), scale=float(scale))
    distance = dp.l1_distance if laplace else dp.l2_distance
    return make(dp.vector_domain(domain), distance(T=kind), scale=float(scale))


def numpy_sampler(noise: Noise, scale: float) -> Callable[[int], object]:
    r"""The usual inexact recipe: a difference of geometrics, or a rounded normal."""
    rng = np.random.default_rng(1)
    if isinstance(noise, DiscreteLaplace):
        p = -math.expm1(-1 / scale)
        return lambda count: rng.geometric(p, count) - rng.geometric(p, count)
    return lambda count: np.rint(rng.normal(0, scale, count)).astype(np.int64)


def batch_row(noise: Noise, scale: float, repeats: int) -> dict[str, Any]:
    r"""Million draws a second of ours and the peers for one parameter."""
    batch_of.cache_clear()
    start = time.perf_counter()
    noise.sample(1)
    first = time.perf_counter() - start
    works: dict[str, Callable[[], object]] = {"dpcore": lambda: noise.sample(_DRAWS)}
    draws = {"dpcore": _DRAWS}
    if scale <= 2**20:
        numpy_draw = numpy_sampler(noise, scale)
        works["numpy (inexact, not private)"] = lambda: numpy_draw(_DRAWS)
        draws["numpy (inexact, not private)"] = _DRAWS
    peer = opendp_measurement(noise, scale, vector=True)
    if peer is not None:
        zeros = [0] * _PEER_DRAWS
        works["opendp"] = lambda: peer(zeros)
        draws["opendp"] = _PEER_DRAWS
    seconds = interleaved(works, repeats=repeats)
    speed = {name: draws[name] / 1e6 / seconds[name] for name in works}
    return {
        "noise": repr(noise),
        "million_draws_per_second": {name: round(value, 3) for name, value in speed.items()},
        "ratio": {
            name: round(speed["dpcore"] / value, 1)
            for name, value in speed.items()
            if name != "dpcore"
        },
        "first_draw_ms": round(first * 1e3, 2),
    }


def scalar_row(noise: Noise, scale: float, count: int) -> dict[str, Any]:
    r"""Single draws a second of a reused noise object, beside OpenDP's scalar mechanism."""
    works: dict[str, Callable[[], object]] = {"dpcore": noise.sample}
    peer = opendp_measurement(noise, scale, vector=False)
    if peer is not None:
        works["opendp"] = lambda: peer(0)

    def repeat(draw: Callable[[], object], times: int) -> Callable[[], object]:
        def loop() -> None:
            for _ in range(times):
                draw()

        return loop

    times = {name: count if name == "dpcore" else count // 20 for name in works}
    seconds = interleaved({n: repeat(work, times[n]) for n, work in works.items()}, repeats=3)
    return {
        "noise": repr(noise),
        "draws_per_second": {name: round(times[name] / seconds[name]) for name in works},
    }


def timing_row(name: str, draw: Callable[[], Any], count: int) -> dict[str, Any]:
    r"""Spearman correlation of |value| and the time of the draw that gave it."""
    from scipy.stats import spearmanr

    for _ in range(1000):
        draw()
    sizes, times = np.empty(count), np.empty(count)
    clock = time.perf_counter_ns
    for i in range(count):
        start = clock()
        value = draw()
        times[i] = clock() - start
        sizes[i] = abs(value)
    rho = spearmanr(sizes, times)
    return {"draw": name, "draws": count, "spearman": round(float(rho.statistic), 4)}


def timing_of_batches(noise: Noise, count: int, size: int) -> dict[str, Any]:
    r"""The same for a batch: its time against the mean magnitude of its values."""
    noise.sample(size)
    name = f"{noise!r}, batches of {size}"
    sums: list[float] = []
    times: list[int] = []
    for _ in range(count):
        start = time.perf_counter_ns()
        drawn = noise.sample(size)
        times.append(time.perf_counter_ns() - start)
        sums.append(float(np.abs(drawn).mean()))
    from scipy.stats import spearmanr

    rho = spearmanr(sums, times)
    return {
        "draw": name,
        "draws": count,
        "spearman": round(float(rho.statistic), 4),
        "detectable_at_5_percent": round(1.96 / math.sqrt(count), 4),
    }


def import_seconds(repeats: int) -> dict[str, float]:
    r"""A fresh interpreter with ``import dpcore``, less one without it."""

    def start(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    seconds = interleaved(
        {"dpcore": start("import dpcore"), "bare": start("pass")}, repeats=repeats
    )
    return {"import_dpcore": round(seconds["dpcore"] - seconds["bare"], 3)}


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    repeats = 2 if quick else 7
    pairs: list[tuple[Noise, float]] = []
    for scale in (*_SCALES, 2**40):
        pairs.append((DiscreteLaplace(scale=scale), scale))
        pairs.append((DiscreteGaussian(sigma_squared=scale**2), scale))
    draws = 2_000 if quick else 20_000
    laplace, gaussian = DiscreteLaplace(scale=10), DiscreteGaussian(sigma_squared=100)
    timing = [
        timing_row(repr(laplace), laplace.sample, draws),
        timing_row(repr(gaussian), gaussian.sample, draws),
        *(
            # The largest are drawn while the caller waits: see docs/known_limits.md.
            timing_of_batches(noise, draws if size <= SERVED else draws // 4, size)
            for size in (64, SERVED, 8 * SERVED)
            for noise in (laplace, gaussian)
        ),
    ]
    for noise in (laplace, gaussian):
        peer = opendp_measurement(noise, 10, vector=False)
        if peer is not None:
            timing.append(timing_row(f"opendp, {noise!r}", partial(peer, 0), draws))
    write(
        "samplers",
        {
            "batch": [batch_row(noise, scale, repeats) for noise, scale in pairs],
            "scalar": [scalar_row(noise, 10, 10**5) for noise in (laplace, gaussian)],
            "timing": timing,
            "import_seconds": import_seconds(repeats),
        },
    )


if __name__ == "__main__":
    main()
