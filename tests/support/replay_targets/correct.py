"""Mechanisms that stay correct for every value of their random draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcore import DiscreteLaplace
from dpcore.sampling.rng import SYSTEM

NOISE = DiscreteLaplace(scale=1)
THRESHOLD = DiscreteLaplace(scale=2)
ANSWER = DiscreteLaplace(scale=4)


def counter(value: int) -> int:
    """Noise that production code draws ahead in a buffer."""
    return value + NOISE.sample()


def reference_counter(value: int) -> int:
    """Coins of one bit each: some changes of them set the noise to 0."""
    return value + NOISE.sample_reference(SYSTEM)


def narrow_counter(value: int) -> int:
    """Epsilon = 3: the noise is almost always 0, and the mechanism is correct."""
    return value + DiscreteLaplace(scale="1/3").sample_reference(SYSTEM)


def numpy_counter(value: int, rng: np.random.Generator) -> int:
    return value + int(rng.geometric(0.632)) - int(rng.geometric(0.632))


def many(value: int, n: int, rng: np.random.Generator) -> Any:
    return value + rng.geometric(0.632, n) - rng.geometric(0.632, n)


def sparse_vector(answers: list[int]) -> list[int]:
    """Stops at the first answer above: draws and length depend on the data, correctly."""
    threshold = THRESHOLD.sample()
    found = []
    for answer in answers:
        found.append(int(answer + ANSWER.sample() >= threshold))
        if found[-1]:
            break
    return found


def noisy_max(counts: list[int]) -> int:
    return int(np.argmax([count + THRESHOLD.sample() for count in counts]))


def largest_of_histogram(counts: list[int]) -> int:
    """A function of a noisy histogram: one extreme draw decides the output."""
    return max(count + NOISE.sample() for count in counts)


def randomised_response(bit: int, rng: np.random.Generator) -> int:
    """Truth with probability 1/2, else a fair coin: a branch without noise, which is correct."""
    return bit if rng.random() < 0.5 else int(rng.random() < 0.5)


def of_many(value: int, rng: np.random.Generator) -> str:
    """Randomised response among 200 words, at epsilon = 3."""
    kept = rng.random() < 19.0855 / (19.0855 + 199)
    other = int(rng.integers(199))
    return f"word {value if kept else other + (other >= value)}"


def clamped(value: int) -> int:
    return min(max(value + NOISE.sample(), -4), 4)


def size_and_noise(records: list[int]) -> list[int]:
    """Add-remove neighbours: a noisy size, after one draw per record."""
    kept = [x for x in records if SYSTEM.flip() or x]
    return [len(kept) + NOISE.sample()]
