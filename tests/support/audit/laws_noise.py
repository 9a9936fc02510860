r"""Output laws of the catalogue: noise, local answers, shuffled bits, and what is released."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, product
from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import (
    Law,
    Masses,
    laplace,
    laplace_upto,
    number,
    polya_difference,
    vector,
)

__all__ = ["LAWS"]

_USERS: Final = 64
_FAR: Final = 24
_WIDE: Final = 200


# -- noise of the wrong size or shape, bounds read off the data ------------------------------------


def clamped_noise(value: int) -> Masses:
    """Ends of -4 and 4 hold what lies beyond them."""
    inner = {value + k: laplace(k, 1) for k in range(-3, 4)}
    return {value - 4: laplace_upto(-4, 1), **inner, value + 4: laplace_upto(-4, 1)}


def clamped_sum(value: int) -> Masses:
    """The same with ends of -4 and 5 wherever the value is."""
    inner = {k: laplace(k - value, 1) for k in range(-3, 5)}
    return {-4: laplace_upto(-4 - value, 1), **inner, 5: laplace_upto(value - 5, 1)}


def redrawn_noise(value: int) -> Masses:
    """Laplace noise, given that it is at most 6."""
    kept = mpmath.fsum(laplace(k, 1) for k in range(-6, 7))
    return {value + k: laplace(k, 1) / kept for k in range(-6, 7)}


def bounded_total(values: Sequence[int]) -> int:
    return sum(min(max(value, 0), 1) for value in values)


# -- Gaussian noise, and claims of papers run as mechanisms ----------------------------------------


def gaussian(sigma_squared: int, step: int, reach: int) -> Law:
    """A value in steps, and discrete Gaussian noise."""
    window = range(-reach, reach + 1)
    density = [mpmath.exp(-mpf(k * k) / (2 * sigma_squared)) for k in window]
    total = mpmath.fsum(density)
    noise = {k: mass / total for k, mass in zip(window, density, strict=True)}
    return lambda value: {k + step * value: mass for k, mass in noise.items()}


def bits(chance: str) -> Law:
    """A value in thirds, and eight noise bits."""
    p = mpf(chance)
    return lambda value: {
        3 * value + k: mpmath.binomial(8, k) * p**k * (1 - p) ** (8 - k) for k in range(9)
    }


def sum_and_coin(scale: int) -> Law:
    """The sum of 64 messages, and a coin about the first, split by the noise of the first."""
    u = mpf("1.284")
    likely, other = u / (1 + u), 1 / (u * (1 + u))

    def law(value: int) -> Masses:
        # The noise of the first user makes the message 1, and the others make up the sum.
        one = polya_difference(1 - value, mpf(1) / _USERS, scale)
        masses: Masses = {}
        for seen in range(-_FAR, _FAR + 2):
            whole: Any = laplace(seen - value, scale)
            hit = one * polya_difference(seen - 1, 1 - mpf(1) / _USERS, scale)
            masses[seen, 1] = likely * hit + other * (whole - hit)
            masses[seen, 0] = whole - masses[seen, 1]
        return masses

    return law


# -- answers that every person randomises alone ----------------------------------------------------


def answers(kept: str) -> Law:
    """One of four, the truth with that chance, the others alike."""
    p = mpf(kept)
    return lambda truth: {k: p if k == truth else (1 - p) / 3 for k in range(4)}


def response(present: int) -> Masses:
    """Yes or no, the truth with chance 0.731."""
    return {k: mpf("0.731") if k == present else mpf("0.269") for k in (0, 1)}


def _response(held: tuple[int, ...], flipped: Any) -> Masses:
    return {
        bits: mpmath.fprod(
            1 - flipped if b == h else flipped for b, h in zip(bits, held, strict=True)
        )
        for bits in product((0, 1), repeat=len(held))
    }


def _one_hot(value: int, width: int) -> tuple[int, ...]:
    return tuple(int(k == value) for k in range(width))


def permanent(flipped: str) -> Law:
    return lambda value: _response(_one_hot(value, 4), mpf(flipped))


def two_alone(value: int) -> Masses:
    """Two permanent responses of two bits."""
    one = _response(_one_hot(value, 2), mpf("0.378"))
    return {(*a, *b): one[a] * one[b] for a, b in product(one, repeat=2)}


def two_of_one(value: int) -> Masses:
    """One permanent response, reported twice with a tenth of the bits wrong."""
    masses: Masses = {}
    for kept, mass in _response(_one_hot(value, 2), mpf("0.378")).items():
        report = _response(kept, mpf("0.1"))
        for a, b in product(report, repeat=2):
            masses[*a, *b] = masses.get((*a, *b), mpf(0)) + mass * report[a] * report[b]
    return masses


# -- bits of bounded messages, shuffled ------------------------------------------------------------


def both(message: Any) -> Law:
    """The ones of two users, of whom the second holds 0."""

    def law(value: int) -> Masses:
        found: Masses = {}
        for i, p in message(value).items():
            for j, q in message(0).items():
                found[i + j] = found.get(i + j, mpf(0)) + p * q
        return found

    return law


def fitting(value: int) -> Masses:
    """A share of one half, given that it is -1, 0 or 1."""
    kept = {z: polya_difference(z, mpf(1) / 2, 1) for z in (-1, 0, 1)}
    return {1 + value + z: mass / sum(kept.values()) for z, mass in kept.items()}


def covered(value: int) -> Masses:
    """Two thirds of it as it is, and the rest on 0, 1, 2 and 3 alike."""
    kept = {z: polya_difference(z, mpf(1) / 2, 1) * 2 / 3 for z in (-1, 0, 1)}
    cover = (1 - sum(kept.values())) / 4
    return {y: cover + kept.get(y - 1 - value, mpf(0)) for y in range(4)}


# -- sums and choices that are released, and what comes with them ----------------------------------


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
    "five-percent": number(mpf(20) / 21),
    "clamped-noise": clamped_noise,
    "clamped-sum": clamped_sum,
    "redrawn-noise": redrawn_noise,
    "bounds-from-data": number(1, sum),
    "public-bounds": number(1, bounded_total),
    "sigma-for-its-square": gaussian(2, 1, 60),
    "gaussian-of-four": gaussian(4, 1, 80),
    "classical-gaussian": gaussian(322, 100, 700),
    "exact-gaussian": gaussian(611, 100, 900),
    "lemma-bits": bits("0.726"),
    "fair-bits": bits("0.5"),
    "relaxed-sum": sum_and_coin(2),
    "shuffled-as-printed": sum_and_coin(1),
    "found-early": response,
    "looked-at-all": response,
    "four-answers": answers("0.475"),
    "four-answers-as-two": answers("0.731"),
    "rappor": permanent("0.378"),
    "rappor-for-one-bit": permanent("0.269"),
    "memoised-rappor": two_of_one,
    "one-time-rappor-twice": two_alone,
    "uncovered-ends": both(fitting),
    "covered-ends": both(covered),
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
