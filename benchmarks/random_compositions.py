r"""Random compositions between the optimistic and the pessimistic estimate of dp-accounting.

``python -m benchmarks.random_compositions [COUNT] [SEED]``. Each composition has one to three parts
of Gaussian or Laplace noise, on the reals or the integers, each Poisson-sampled or not, with up to
2,000 rounds. The result counts the compositions whose bounds do not meet the interval of
dp-accounting (up to the errors of its floats), and those wider than 1e-6, with the seconds of both.
"""

from __future__ import annotations

import random
import sys
import time
from fractions import Fraction
from importlib import import_module
from typing import Any, Final

from accounting import Gaussian, Laplace, compose
from accounting.descriptions.description import Description
from accounting.descriptions.sampling_schemes import EVERYONE, Poisson
from benchmarks.machine import write
from dpcore import DiscreteGaussian, DiscreteLaplace, Relation

pld: Any = import_module("dp_accounting.pld.privacy_loss_distribution")

WIDTH: Final = Fraction(1, 10**6)
_ROUNDING: Final = 1.001
_FLOATS: Final = 1e-13  # relative to delta: the errors of a transform of floats
_NOISE: Final[dict[str, tuple[Any, Any]]] = {
    "gaussian": (
        lambda s: Gaussian(sigma=s),
        pld.from_gaussian_mechanism,
    ),
    "laplace": (
        lambda s: Laplace(scale=s),
        pld.from_laplace_mechanism,
    ),
    "discrete-gaussian": (
        lambda s: DiscreteGaussian(sigma_squared=s * s),
        pld.from_discrete_gaussian_mechanism,
    ),
    "discrete-laplace": (
        lambda s: DiscreteLaplace(scale=s),
        lambda s, **more: pld.from_discrete_laplace_mechanism(1 / s, **more),
    ),
}


def drawn(rng: random.Random) -> list[tuple[str, Fraction, Fraction, int]]:
    r"""The parts of one composition: noise, its size, the sampling rate and the rounds."""
    parts = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        rate = rng.choice((Fraction(1), Fraction(1), *(Fraction(1, k) for k in (2, 10, 100))))
        rounds = int(10 ** rng.uniform(0, 3.3))
        size = rng.uniform(0.7, 30) * float(rounds * rate**2 + 1) ** 0.5
        kind = rng.choice([*_NOISE])
        parts.append((kind, Fraction(size).limit_denominator(100), rate, rounds))
    return parts


def ours(parts: list[tuple[str, Fraction, Fraction, int]], delta: Fraction) -> Any:
    r"""The bound of dpcore."""
    listed = []
    for kind, size, rate, rounds in parts:
        scheme = EVERYONE if rate == 1 else Poisson(rate=rate)
        noise = _NOISE[kind][0](size)
        listed.append(
            (Description(noise=noise, scheme=scheme, relation=Relation.ADD_REMOVE), rounds)
        )
    return compose(*listed).epsilon(delta)


def theirs(parts: list[tuple[str, Fraction, Fraction, int]], delta: Fraction, step: float) -> Any:
    r"""The optimistic and the pessimistic estimate of dp-accounting."""
    ends = []
    for above in (False, True):
        total: Any = None
        for kind, size, rate, rounds in parts:
            more: dict[str, Any] = {"sampling_prob": float(rate), "pessimistic_estimate": above}
            more |= {"value_discretization_interval": step, "use_connect_dots": False}
            one = _NOISE[kind][1](float(size), **more).self_compose(rounds)
            total = one if total is None else total.compose(one)
        ends.append(total.get_epsilon_for_delta(float(delta)))
    return ends


def main(count: int = 2000, seed: int = 7) -> None:
    r"""Compare ``count`` compositions and store the result."""
    rng, apart, wide, widest = random.Random(seed), 0, 0, 0.0  # not privacy noise
    seconds = {"dpcore": 0.0, "dp-accounting": 0.0}
    for done in range(1, count + 1):
        parts, delta = drawn(rng), Fraction(1, 10 ** rng.randint(2, 12))
        start = time.perf_counter()
        found = ours(parts, delta)
        seconds["dpcore"] += time.perf_counter() - start
        start = time.perf_counter()
        low, high = theirs(parts, delta, rng.choice((1e-3, 1e-4)))
        seconds["dp-accounting"] += time.perf_counter() - start
        upper = float(found.upper)
        slack = 1e-9 + 1e-7 * upper + _FLOATS / float(delta)
        if float(found.lower) > high + slack or upper < low - slack:
            apart += 1
            print(f"apart: {parts}, delta {delta}: {found}, {low} to {high}", file=sys.stderr)
        width = float((found.upper - found.lower) / found.upper) if found.upper else 0.0
        wide, widest = wide + (width > float(WIDTH) * _ROUNDING), max(widest, width)
        if done % 100 == 0:
            print(f"{done}: {apart} apart, {wide} wide", file=sys.stderr)
    kept = {name: round(total, 1) for name, total in seconds.items()}
    result = {"compositions": count, "seed": seed, "apart": apart, "wider_than_1e-6": wide}
    write("random_compositions", {**result, "widest": widest, "seconds": kept})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
