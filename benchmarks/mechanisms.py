r"""Speed of staircase noise, local reports and private selection, with a peer in the same run.

Times are processor seconds, the least of a few. Staircase noise is compared with Laplace noise at
the same epsilon by OpenDP and numpy; reports and their estimates with multi-freq-ldpy, which loops
over users; a selection among a million scores with OpenDP's noisy max and numpy's Gumbel noise.
numpy is neither exact nor private and serves as a reference for speed.

python -m benchmarks.mechanisms
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.machine import interleaved, write
from benchmarks.samplers import numpy_sampler, opendp_measurement
from dpcore import DiscreteLaplace, Staircase
from dpcore.local import (
    HadamardResponse,
    LocalHashing,
    LocalReport,
    RandomisedResponse,
    SubsetSelection,
    UnaryEncoding,
)
from dpcore.selection import NoisyMax, Rule, Selection

MANY: Final = 10**6
FEW: Final = 10**5
r"""The number of draws or users for a peer that loops."""

VALUES: Final = 16

Works = dict[str, Callable[[], object]]


def staircase(epsilon: int, sensitivity: int) -> dict[str, Any]:
    r"""Millions of draws per second, and the variances."""
    noise = Staircase(epsilon=epsilon, sensitivity=sensitivity)
    laplace = DiscreteLaplace(scale=f"{sensitivity}/{epsilon}")
    works: Works = {
        "staircase": lambda: noise.sample(MANY),
        "discrete Laplace": lambda: laplace.sample(MANY),
    }
    inexact, peer = numpy_sampler(laplace), opendp_measurement(laplace, vector=True)
    if inexact is not None:
        works["numpy, Laplace (inexact, not private)"] = lambda: inexact(MANY)
    if peer is not None:
        zeros = [0] * FEW
        works["opendp, Laplace"] = lambda: peer(zeros)
    variance = noise.variance.upper_float / laplace.variance.upper_float
    speeds = _speeds(works, {"opendp, Laplace": FEW})
    return {"noise": repr(noise), "variance_over_laplace": round(variance, 3), **speeds}


def local_reports() -> dict[str, Any]:
    r"""Millions of users per second, including the reports and the estimates of the counts."""
    users = np.random.default_rng(7).integers(0, VALUES, MANY)

    def estimated(mechanism: LocalReport) -> Callable[[], object]:
        return lambda: mechanism.estimate(mechanism.report(users)).counts

    kinds = RandomisedResponse, UnaryEncoding, SubsetSelection, LocalHashing, HadamardResponse
    works = {kind.name: estimated(kind(values=VALUES, epsilon=1)) for kind in kinds}
    counts = dict.fromkeys(works, MANY)
    try:
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    except ImportError:
        return _speeds(works, counts)
    name = "multi-freq-ldpy, randomised response"
    few = users[:FEW].tolist()
    works[name] = lambda: GRR_Aggregator_MI([GRR_Client(u, VALUES, 1.0) for u in few], VALUES, 1.0)
    return _speeds(works, {**counts, name: FEW})


def selection() -> dict[str, Any]:
    r"""Milliseconds of one selection among a million scores."""
    scores = np.random.default_rng(7).poisson(1000, MANY).astype(np.int64)
    rng = np.random.default_rng(1)

    def chooser(mechanism: Selection | NoisyMax) -> Callable[[], object]:
        return lambda: mechanism.release(scores)

    def gumbel() -> object:
        return np.argmax(scores / 2 + rng.gumbel(size=MANY))

    works: Works = {
        **{rule.value: chooser(Selection(epsilon=1, sensitivity=1, rule=rule)) for rule in Rule},
        "noisy max": chooser(NoisyMax(epsilon=1, sensitivity=1)),
        "numpy, Gumbel (inexact, not private)": gumbel,
    }
    try:
        import opendp.prelude as dp
    except ImportError:
        pass
    else:
        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        space = domain, dp.linf_distance(T="i64")
        peer = space >> dp.m.then_noisy_max(dp.max_divergence(), 2.0)
        listed = scores.tolist()
        works["opendp, noisy max"] = lambda: peer(listed)
    seconds = interleaved(works, repeats=2, clock=time.process_time)
    return {"milliseconds": {name: round(1e3 * each, 1) for name, each in seconds.items()}}


def _speeds(works: Works, counts: dict[str, int] | None = None) -> dict[str, Any]:
    seconds = interleaved(works, repeats=2, clock=time.process_time)
    millions = {name: (counts or {}).get(name, MANY) / 1e6 for name in works}
    return {"millions_a_second": {name: round(millions[name] / seconds[name], 3) for name in works}}


def main() -> None:
    found = {
        "staircase": [staircase(epsilon, 10) for epsilon in (1, 4)],
        "local": local_reports(),
        "selection": selection(),
    }
    write("mechanisms", found)


if __name__ == "__main__":
    main()
