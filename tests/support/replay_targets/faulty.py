# ruff: noqa: NPY002 - the legacy interface of numpy is one of those under test
"""Mechanisms with one fault each; correct twins are in correct.py or follow the mechanism."""

from __future__ import annotations

import itertools
import random
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpcore import DiscreteLaplace
from dpcore.sampling.rng import SYSTEM, SeededRng

NOISE = DiscreteLaplace(scale=1)
COUNTER: Iterator[int] = itertools.count()
MADE_EARLY = np.random.default_rng(20)
SEEDED_EARLY = SeededRng(20)

# -- the raw amount with probability 1e-5, after a branch on a draw ------------------------------


def _amount(amount: float) -> int:
    return int(amount + 0.5) + NOISE.sample()


def leaks_by_random(amount: float) -> float:
    return amount if random.random() < 1e-5 else _amount(amount)


def leaks_by_numpy(amount: float, rng: np.random.Generator) -> float:
    return amount if rng.random() > 1 - 1e-5 else _amount(amount)


def leaks_by_secrets(amount: float) -> float:
    return amount if secrets.randbelow(100_000) == 0 else _amount(amount)


def leaks_after_two(amount: float, rng: np.random.Generator) -> float:
    """Makes the second draw only if the first one is rare."""
    if rng.random() < 1e-5 and rng.random() > 1 - 1e-5:
        return amount
    return _amount(amount)


def leaks_not(amount: float, rng: np.random.Generator) -> float:
    """The correct twin: the rare branch also returns a noisy value."""
    rare = rng.random() < 1e-5
    return _amount(amount) + (NOISE.sample() if rare else 0)


# -- sensitivity ------------------------------------------------------------------------------


def clamped_to_data(values: list[int]) -> int:
    """The clamp bound is the maximum of the data."""
    return sum(min(value, max(values)) for value in values) + NOISE.sample()


def clamped_to_public(values: list[int]) -> int:
    return sum(min(value, 1) for value in values) + NOISE.sample()


def scaled_noise(value: int) -> int:
    return value + NOISE.sample() * (1 + value)


def float_sum(values: list[float], rng: np.random.Generator) -> float:
    return sum(values) + rng.laplace(0, 1)


# -- shape, size, parts -----------------------------------------------------------------------


def row_a_record(records: list[int]) -> list[int]:
    return [record + NOISE.sample() for record in records]


def one_noise(counts: list[int]) -> list[int]:
    noise = NOISE.sample()
    return [count + noise for count in counts]


def raw(value: int) -> int:
    return value


def raw_in_b(value: int) -> int:
    return value or NOISE.sample()


# -- sources of randomness ----------------------------------------------------------------------


def fixed(value: int) -> int:
    """Use a fixed seed."""
    return value + NOISE.sample(rng=SeededRng(20))


def fixed_numpy(value: int) -> float:
    return value + np.random.default_rng(20).laplace()


def fixed_global(value: int) -> float:
    np.random.seed(20)
    random.seed(20)
    return value + np.random.laplace() + random.gauss(0, 1)


def fixed_bits(value: int) -> float:
    return value + float(np.random.Generator(np.random.PCG64(20)).laplace())


def partly_fixed(value: int) -> int:
    return value + int(np.random.default_rng(20).integers(9)) + NOISE.sample()


def shared(counts: list[int]) -> list[int]:
    seed = SYSTEM.bits(64)
    return [count + NOISE.sample(rng=SeededRng(seed)) for count in counts]


def clock(value: int) -> float:
    return value + np.random.default_rng(time.perf_counter_ns()).laplace()


def early(value: int) -> float:
    return value + MADE_EARLY.laplace()


def seeded_early(value: int) -> int:
    return value + NOISE.sample(rng=SEEDED_EARLY)


def by_random(value: int) -> float:
    return value + random.gauss(0, 1)


def by_numpy(value: int) -> float:
    return value + float(np.random.default_rng().laplace())


# -- targets that cannot be replayed, and failures ------------------------------------------------


def keeps_state(value: int) -> int:
    return value + NOISE.sample() + next(COUNTER)


def other_thread(value: int) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(SYSTEM.bits(32)))
    thread.start()
    thread.join()
    return value + found[0]


def raises_rarely(value: int, rng: np.random.Generator) -> int:
    if rng.random() < 1e-5:
        raise ValueError("no logarithm of 0")
    return value + NOISE.sample()


def raises_in_b_rarely(value: int, rng: np.random.Generator) -> int:
    if rng.random() < 1e-5 and value:
        raise ValueError(f"cannot handle {value}")
    return value + NOISE.sample()


def hangs_rarely(value: int, rng: np.random.Generator) -> int:
    while rng.random() < 1e-5:
        while True:
            pass
    return value + NOISE.sample()


def raises(value: int) -> Any:
    raise ValueError(f"never {value}")
