r"""Output laws of the catalogue: sums and choices that are released, and what comes with them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses, laplace, laplace_upto, number, vector

__all__ = ["LAWS"]

_WIDE: Final = 200


def over_a_sample(bits: Sequence[int]) -> Masses:
    """Each one is taken with chance 3/8."""
    ones = sum(bits)
    taken = {
        k: mpmath.binomial(ones, k) * mpf(3) ** k * mpf(5) ** (ones - k) / mpf(8) ** ones
        for k in range(ones + 1)
    }
    return {
        s: mpmath.fsum(mass * laplace(s - k, 1) for k, mass in taken.items())
        for s in range(-40, 43)
    }


def size_and_sum(bits: Sequence[int]) -> list[int]:
    return [len(bits), sum(bits)]


def exact_size(bits: Sequence[int]) -> Masses:
    return {(len(bits), s): laplace(s - sum(bits), 1) for s in range(-40, 43)}


def running(stream: Sequence[int]) -> list[int]:
    return list(accumulate(stream))


def left_nodes(stream: Sequence[int]) -> list[int]:
    """The nodes of one, two and four events that hold the first."""
    return [sum(stream[:1]), sum(stream[:2]), sum(stream[:4])]


def weighed(weight: str) -> Law:
    """A candidate with a chance in proportion to 1 or ``weight``, by its score of 0 or 1."""

    def law(scores: Sequence[int]) -> Masses:
        weights = [mpf(weight) ** score for score in scores]
        return {i: w / mpmath.fsum(weights) for i, w in enumerate(weights)}

    return law


def clipped(values: Sequence[int]) -> int:
    return sum(0 if value < 0 else min(value, 2) for value in values)


def certain(values: Sequence[int]) -> Masses:
    return {clipped(values): mpf(1)}


def found_and_told(answers: Sequence[int]) -> Masses:
    """Thresholds of scale 2, answers of scale 4, and the one found with noise of scale 1."""
    found = [mpf(0)] * (len(answers) + 1)
    for threshold in range(-_WIDE, _WIDE + 1):
        below: Any = laplace(threshold, 2)
        for i, answer in enumerate(answers):
            under = laplace_upto(threshold - 1 - answer, 4)
            found[i] += below * (1 - under)
            below *= under
        found[-1] += below
    masses: Masses = {
        (i, v): found[i] * laplace(v - answer, 1)
        for i, answer in enumerate(answers)
        for v in range(-30, 31)
    }
    return {**masses, (len(answers), 0): found[-1]}


def in_eighths(amount: float) -> Masses:
    """Laplace noise of scale 80 eighths; every eighth is a float."""
    steps = round(8 * Fraction(amount))
    return {k / 8: laplace(k - steps, 80) for k in range(-400, 409)}


def raw_once_in(runs: int) -> Law:
    def law(amount: float) -> Masses:
        rare = mpf(1) / runs
        masses = {float(k): (1 - rare) * m for k, m in number(1, round)(amount).items()}
        return {**masses, amount: rare}

    return law


LAWS: Final[dict[str, Law]] = {
    "subsampled": over_a_sample,
    "subsampling-forgotten": number(1, sum),
    "prefix-sums": vector(4, 1, running),
    "prefix-sums-alone": vector(1, 1, running),
    "tree-sums": vector(3, 2, left_nodes),
    "tree-unsplit": vector(1, 2, left_nodes),
    "tree-of-log": vector(2, 2, left_nodes),
    "exponential": weighed("1.648"),
    "exponential-undivided": weighed("2.718"),
    "noisy-size": vector(2, 12, size_and_sum),
    "exact-size": exact_size,
    "clipped-sum": number(2, clipped),
    "clipped-copy-unused": number(2, sum),
    "lower-bound-twice": certain,
    "sparse-vector-told-for-free": found_and_told,
    "integer-laplace": in_eighths,
    "raw-in-a-thousand": raw_once_in(1_000),
    "raw-in-a-hundred-thousand": raw_once_in(100_000),
}
r"""One law a name, broken or twin."""
