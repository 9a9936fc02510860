r"""Speed of the samplers and their peers, and the correlation of a draw's time with its value.

``python -m benchmarks.samplers [--quick]``. dpcore draws with the operating system's entropy.
OpenDP is exact and private; numpy is neither and serves as a reference for speed. Ratios are dpcore
/ peer.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks.machine import interleaved, write
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    Noise,
    Poisson,
    Polya,
    PolyaDifference,
    Skellam,
)
from dpcore.noise import batch_of
from dpcore.sampling.rng import SERVED

_DRAWS = 10**6
_PEER_DRAWS = 10**5
_SCALES = (1, 10, 1000)


def _float(noise: Noise, parameter: str) -> float:
    return float(noise.parameters[parameter])


def opendp_measurement(noise: Noise, *, vector: bool) -> Any:
    r"""OpenDP's mechanism with the same law on a vector or on one integer; None if it has none."""
    match noise:
        case DiscreteLaplace():
            scale = _float(noise, "scale")
        case DiscreteGaussian():
            scale = math.sqrt(_float(noise, "sigma_squared"))
        case _:
            return None
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
        return make(domain, dp.absolute_distance(T=kind), scale=scale)
    distance = dp.l1_distance if laplace else dp.l2_distance
    return make(dp.vector_domain(domain), distance(T=kind), scale=scale)


def numpy_sampler(noise: Noise) -> Callable[[int], object] | None:
    r"""numpy's inexact sampler of the law, if numpy has one for these parameters."""
    rng = np.random.default_rng(1)
    match noise:
        case DiscreteLaplace() if _float(noise, "scale") <= 2**20:
            p = -math.expm1(-1 / _float(noise, "scale"))
            return lambda count: rng.geometric(p, count) - rng.geometric(p, count)
        case DiscreteGaussian() if _float(noise, "sigma_squared") <= 2**40:
            sigma = math.sqrt(_float(noise, "sigma_squared"))
            return lambda count: np.rint(rng.normal(0, sigma, count)).astype(np.int64)
        case DiscreteGaussianSum():
            sigma = math.sqrt(noise.count * _float(noise, "sigma_squared"))
            return lambda count: np.rint(rng.normal(0, sigma, count)).astype(np.int64)
        case Skellam():
            half = _float(noise, "variance") / 2
            return lambda count: rng.poisson(half, count) - rng.poisson(half, count)
        case Poisson():
            mean = _float(noise, "mean")
            return lambda count: rng.poisson(mean, count)
        case Binomial():
            trials, probability = noise.trials, _float(noise, "probability")
            return lambda count: rng.binomial(trials, probability, count)
        case Polya():
            shape, p = _float(noise, "shape"), -math.expm1(-1 / _float(noise, "scale"))
            return lambda count: rng.negative_binomial(shape, p, count)
        case PolyaDifference():
            shape, p = _float(noise, "shape"), -math.expm1(-1 / _float(noise, "scale"))
            return lambda count: (
                rng.negative_binomial(shape, p, count) - rng.negative_binomial(shape, p, count)
            )
    return None


def batch_row(noise: Noise, repeats: int) -> dict[str, Any]:
    r"""Millions of draws per second of dpcore and the peers for one parameter set."""
    batch_of.cache_clear()
    start = time.perf_counter()
    noise.sample(1)
    first = time.perf_counter() - start
    works: dict[str, Callable[[], object]] = {"dpcore": lambda: noise.sample(_DRAWS)}
    draws = {"dpcore": _DRAWS}
    numpy_draw = numpy_sampler(noise)
    if numpy_draw is not None:
        works["numpy (inexact, not private)"] = lambda: numpy_draw(_DRAWS)
        draws["numpy (inexact, not private)"] = _DRAWS
    peer = opendp_measurement(noise, vector=True)
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


def scalar_row(noise: Noise, count: int) -> dict[str, Any]:
    r"""Single draws per second of a reused noise object and of OpenDP's scalar mechanism."""
    works: dict[str, Callable[[], object]] = {"dpcore": noise.sample}
    peer = opendp_measurement(noise, vector=False)
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
    r"""Spearman's correlation between |value| and the time of its draw."""
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
    r"""Spearman's correlation between the time of a batch and the mean magnitude of its values."""
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
    r"""The start time of an interpreter with ``import dpcore``, minus that without the import."""

    def start(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    seconds = interleaved(
        {"dpcore": start("import dpcore"), "bare": start("pass")}, repeats=repeats
    )
    return {"import_dpcore": round(seconds["dpcore"] - seconds["bare"], 3)}


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    repeats = 2 if quick else 7
    noises: list[Noise] = [
        noise
        for scale in (*_SCALES, 2**40)
        for noise in (DiscreteLaplace(scale=scale), DiscreteGaussian(sigma_squared=scale**2))
    ]
    noises += [Skellam(variance=scale**2) for scale in (*_SCALES, 2**20)]
    noises += [
        *(Polya(shape=Fraction(1, 2**20), scale=scale) for scale in (1024, 2**20)),
        PolyaDifference(shape="9/10", scale=1024),
        *(Poisson(mean=mean) for mean in (50, 2**40)),
        *(Binomial(trials=trials, probability="1/2") for trials in (268, 2**42)),
        DiscreteGaussianSum(count=16, sigma_squared=62500),
    ]
    draws = 2_000 if quick else 20_000
    laplace, gaussian = DiscreteLaplace(scale=10), DiscreteGaussian(sigma_squared=100)
    others = (
        Skellam(variance=100),
        PolyaDifference(shape="9/10", scale=10),
        Polya(shape="1/1024", scale=1024),
        Binomial(trials=268, probability="1/2"),
    )
    timing = [
        *(timing_row(repr(noise), noise.sample, draws) for noise in (laplace, gaussian, *others)),
        *(
            # The largest batches are drawn while the caller waits: see docs/known_limits.md.
            timing_of_batches(noise, draws if size <= SERVED else draws // 4, size)
            for size in (64, SERVED, 8 * SERVED)
            for noise in (laplace, gaussian)
        ),
    ]
    for noise in (laplace, gaussian):
        peer = opendp_measurement(noise, vector=False)
        if peer is not None:
            timing.append(timing_row(f"opendp, {noise!r}", partial(peer, 0), draws))
    write(
        "samplers",
        {
            "batch": [batch_row(noise, repeats) for noise in noises],
            "scalar": [scalar_row(noise, 10**5) for noise in (laplace, gaussian, *others[:2])],
            "timing": timing,
            "import_seconds": import_seconds(repeats),
        },
    )


if __name__ == "__main__":
    main()
