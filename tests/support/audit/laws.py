"""Output laws of the catalogue: noise, its lowest bit, local reports, shuffles and selection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, product
from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.accounting.brute_force import binomial
from tests.support.audit.catalogue_laws import LAWS as FIRST
from tests.support.audit.catalogue_laws import (
    Law,
    Masses,
    around,
    laplace,
    laplace_upto,
    number,
    polya_difference,
    vector,
)
from tests.support.dpcore.protocol_laws import summed

# The lowest bit of Laplace noise in double precision. A double x is a multiple of 2^(f - 52) where
# 2^f <= |x| < 2^(f+1). Noise is z = 16 ln u, whose significand is uniform: it is a multiple of g
# more powers of two with probability 2^-(g+1). 0 + z is z. 1 + z is exact if the result is no
# coarser than z. If it is d powers of two coarser, a share 2^-d of the sums lies halfway between
# two results and is rounded to the even one. The omitted cases (sums at the edge of a power of two,
# noise near 2^-50) have a share below 2^-40.
_SCALE: Final = 16
_POWERS: Final = range(-40, 10)
_DEEPEST: Final = 60


def _between(low: Any, high: Any) -> Any:
    # P(low <= z < high) for 0 <= low.
    return (mpmath.exp(-mpf(low) / _SCALE) - mpmath.exp(-mpf(high) / _SCALE)) / 2


def _plus_zero() -> Iterator[tuple[int, int, Any]]:
    # The power f of the grain 2^(f - 52) of the output, how much coarser it is than z, and the
    # mass.
    for f in _POWERS:
        yield f, 0, 2 * _between(mpf(2) ** f, mpf(2) ** (f + 1))


def _plus_one() -> Iterator[tuple[int, int, Any]]:
    for f in _POWERS:
        low, high = mpf(2) ** f, mpf(2) ** (f + 1)
        if f < 0:
            # 1 <= 1 + z < 2; and 1/2 < 1 - |z| < 1, or exact for |z| >= 1/2.
            yield 0, -f, _between(low, high)
            yield -1, -1 - f, _between(low, high)
        else:
            # 1 + z stays below the next power of two or passes it; 1 - |z| is exact.
            yield f, 0, _between(low, high - 1)
            yield f + 1, 1, _between(high - 1, high)
            yield f, 0, _between(low, high)


def float_laplace(amount: float) -> Masses:
    """The law of the largest power of two that divides the output, for an amount of 0 or 1."""
    masses: Masses = {}
    for f, coarser, mass in _plus_one() if amount else _plus_zero():
        halfway = mpf(2) ** -coarser if coarser else mpf(0)
        for g in range(_DEEPEST):
            share = (1 - halfway) / 2 if g == 0 else (1 + halfway) / mpf(2) ** (g + 1)
            masses[f - 52 + g] = masses.get(f - 52 + g, mpf(0)) + mass * share
    return masses


# Noise beyond this number of scales has mass below e^(-60).
_SCALES: Final = 60
_VALUES: Final = 30


def _wins(index: int, value: int, counts: Sequence[int], scale: Any) -> Any:
    # The first largest: strictly above the values before it, at least as large as those after it.
    others = (
        laplace_upto(value - count - (j < index), scale)
        for j, count in enumerate(counts)
        if j != index
    )
    return laplace(value - counts[index], scale) * mpmath.fprod(others)


def largest_index(scale: int) -> Law:
    """The index of the largest noisy count, the first one in a tie."""

    def law(counts: Sequence[int]) -> Masses:
        window = range(-_SCALES * scale, _SCALES * scale)
        return {
            i: mpmath.fsum(_wins(i, value, counts, scale) for value in window)
            for i in range(len(counts))
        }

    return law


def largest_count(counts: Sequence[int]) -> Masses:
    """The largest noisy count itself."""

    def upto(value: int) -> Any:
        return mpmath.fprod(laplace_upto(value - count, 2) for count in counts)

    return {v: upto(v) - upto(v - 1) for v in range(-30, 60)}


def keys_of_one_user(rows: int) -> Masses:
    """Each of three noisy counts independently reaches the threshold 6 or not."""
    seen = (1 - laplace_upto(5 - rows, 3)) if rows else mpf(0)
    return {
        keys: mpmath.fprod(seen if key else 1 - seen for key in keys)
        for keys in product((0, 1), repeat=3)
    }


def _thresholds(scale: Any) -> Iterator[tuple[int, Any]]:
    reach = int(_SCALES * scale)
    return ((t, laplace(t, scale)) for t in range(-reach, reach + 1))


def rows(threshold: Any, noise: Any, stop: int | None) -> Law:
    """0 below the threshold, 1 above, and -1 after ``stop`` answers above; None is no noise."""

    def below(answer: int, at: int) -> Any:
        return mpf(answer < at) if noise is None else laplace_upto(at - 1 - answer, noise)

    def law(answers: Sequence[int]) -> Masses:
        total: Masses = {}
        for at, weight in _thresholds(threshold):
            partial: Masses = {(): weight}
            for answer in answers:
                under = below(answer, at)
                grown: Masses = {}
                for row, mass in partial.items():
                    if row.count(1) == stop:
                        grown[(*row, -1)] = mass
                    else:
                        grown[(*row, 0)], grown[(*row, 1)] = mass * under, mass * (1 - under)
                partial = grown
            for row, mass in partial.items():
                total[row] = total.get(row, mpf(0)) + mass
        return total

    return law


def _first_above(answers: Sequence[int], scale: Any, at: int, weight: Any) -> Iterator[Any]:
    # The probability that the first k answers are below a threshold; finally that all are.
    yield weight
    for answer in answers:
        weight *= laplace_upto(at - 1 - answer, scale)
        yield weight


def value_reused(answers: Sequence[int]) -> Masses:
    """The number of answers below, and the noisy answer above; any threshold up to it fits."""
    none = len(answers)
    masses: Masses = {(none, 0): mpf(0)}
    upto = [mpf(0)] * none
    for at, weight in _thresholds(2):
        *some, all_below = _first_above(answers, 2, at, weight)
        masses[none, 0] += all_below
        upto = [mass + more for mass, more in zip(upto, some, strict=True)]
        if abs(at) <= _VALUES:
            masses |= {(i, at): mass * laplace(at - answers[i], 2) for i, mass in enumerate(upto)}
    return masses


def gap_law(scale: int | None) -> Law:
    """The number of answers below, and the gap above the threshold; with this noise, or none."""
    noise = 2 if scale is None else 4

    def law(answers: Sequence[int]) -> Masses:
        masses: Masses = {}
        for at, weight in [(0, mpf(1))] if scale is None else _thresholds(scale):
            *some, all_below = _first_above(answers, noise, at, weight)
            cells = {
                (i, g): mass * laplace(at + g - answers[i], noise)
                for i, mass in enumerate(some)
                for g in range(_VALUES)
            }
            for cell, mass in (((len(answers), 0), all_below), *cells.items()):
                masses[cell] = masses.get(cell, mpf(0)) + mass
        return masses

    return law


def value_anew(threshold: int, noise: int, released: int) -> Law:
    """The number of answers below, and the answer above with fresh noise; the scales of each."""

    def law(answers: Sequence[int]) -> Masses:
        below = [mpf(0)] * (len(answers) + 1)
        for at, weight in _thresholds(threshold):
            parts = _first_above(answers, noise, at, weight)
            below = [mass + more for mass, more in zip(below, parts, strict=True)]
        return {(len(answers), 0): below[-1]} | {
            (i, v): (below[i] - below[i + 1]) * laplace(v - answer, released)
            for i, answer in enumerate(answers)
            for v in range(-_VALUES, _VALUES + 1)
        }

    return law


_USERS: Final = 64
_FAR: Final = 24


# -- noise of the wrong size or shape, bounds computed from the data -------------------------------


def clamped_noise(value: int) -> Masses:
    """Noise clamped to the ends -4 and 4."""
    inner = {value + k: laplace(k, 1) for k in range(-3, 4)}
    return {value - 4: laplace_upto(-4, 1), **inner, value + 4: laplace_upto(-4, 1)}


def clamped_sum(value: int) -> Masses:
    """The noisy sum clamped to the ends -4 and 5, for any value."""
    inner = {k: laplace(k - value, 1) for k in range(-3, 5)}
    return {-4: laplace_upto(-4 - value, 1), **inner, 5: laplace_upto(value - 5, 1)}


def redrawn_noise(value: int) -> Masses:
    """Laplace noise, conditioned on an absolute value of at most 6."""
    kept = mpmath.fsum(laplace(k, 1) for k in range(-6, 7))
    return {value + k: laplace(k, 1) / kept for k in range(-6, 7)}


# -- claims of papers as mechanisms ----------------------------------------------------------------


def bits(chance: str) -> Law:
    """A value in thirds plus eight noise bits."""
    ones = binomial(8, mpf(chance))
    return lambda value: {3 * value + k: mass for k, mass in ones.items()}


def sum_and_coin(scale: int) -> Law:
    """The sum of 64 messages, and a coin of the first user that depends on that user's noise."""
    u = mpf("1.284")
    likely, other = u / (1 + u), 1 / (u * (1 + u))

    def law(value: int) -> Masses:
        # The noise of the first user completes its message to 1, and the other users complete the
        # sum.
        one = polya_difference(1 - value, mpf(1) / _USERS, scale)
        masses: Masses = {}
        for seen in range(-_FAR, _FAR + 2):
            whole: Any = laplace(seen - value, scale)
            hit = one * polya_difference(seen - 1, 1 - mpf(1) / _USERS, scale)
            masses[seen, 1] = likely * hit + other * (whole - hit)
            masses[seen, 0] = whole - masses[seen, 1]
        return masses

    return law


# -- local randomisers -----------------------------------------------------------------------------


def answers(kept: str, values: int) -> Law:
    """One of the values: the true one with probability ``kept``, the others uniformly."""
    p = mpf(kept)
    return lambda truth: {k: p if k == truth else (1 - p) / (values - 1) for k in range(values)}


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
    """One permanent response, reported twice, with a tenth of the bits flipped."""
    masses: Masses = {}
    for kept, mass in _response(_one_hot(value, 2), mpf("0.378")).items():
        report = _response(kept, mpf("0.1"))
        for a, b in product(report, repeat=2):
            masses[*a, *b] = masses.get((*a, *b), mpf(0)) + mass * report[a] * report[b]
    return masses


def _true(hit: int, total: int, epsilon: Any = 1) -> Any:
    """The probability of ``hit`` of ``total`` answers of weight e^epsilon, in steps of 2^-32."""
    weight = hit * mpmath.exp(epsilon)
    return mpmath.floor(weight / (weight + total - hit) * 2**32) / 2**32


def subsets(true: Any) -> Law:
    """Two of six values: 5 such sets contain a value, and 10 do not."""
    return lambda value: {
        tuple(int(k in pair) for k in range(6)): true / 5 if value in pair else (1 - true) / 10
        for pair in combinations(range(6), 2)
    }


def hashed(seeds: Callable[[int], Sequence[int]]) -> Law:
    """A seed and, with probability e/(e + 2), its last digit times a value of one digit, mod 3."""
    p = _true(1, 3)
    return lambda value: {
        (seed, k): (p if k == seed * value % 3 else (1 - p) / 2) / len(seeds(value))
        for seed, k in product(seeds(value), range(3))
    }


def two_columns(epsilon: Any) -> Law:
    """Two columns of the 4 by 4 Hadamard matrix, each likelier where row v + 1 has a 1."""
    p = _true(1, 2, epsilon)
    row = {0: (1, 0, 1, 0), 1: (1, 1, 0, 0), 2: (1, 0, 0, 1)}

    def law(value: int) -> Masses:
        one = [(p if sign else 1 - p) / 2 for sign in row[value]]
        return {(a, b): one[a] * one[b] for a, b in product(range(4), repeat=2)}

    return law


# -- bits of bounded messages, shuffled ------------------------------------------------------------


def both(message: Any) -> Law:
    """The number of ones of two users, of whom the second holds 0."""
    return lambda value: summed((message(value), message(0)))


def fitting(value: int) -> Masses:
    """A share of shape 1/2, conditioned on -1, 0 or 1."""
    kept = {z: polya_difference(z, mpf(1) / 2, 1) for z in (-1, 0, 1)}
    return {1 + value + z: mass / sum(kept.values()) for z, mass in kept.items()}


def covered(value: int) -> Masses:
    """Two thirds of the unconditioned share, and the remaining mass uniformly on 0, 1, 2 and 3."""
    kept = {z: polya_difference(z, mpf(1) / 2, 1) * 2 / 3 for z in (-1, 0, 1)}
    cover = (1 - sum(kept.values())) / 4
    return {y: cover + kept.get(y - 1 - value, mpf(0)) for y in range(4)}


# -- released sums and selections, and additional outputs ------------------------------------------


def over_a_sample(bits: Sequence[int]) -> Masses:
    """Each record is sampled with probability 3/8."""
    taken = binomial(sum(bits), mpf(3) / 8)
    return {
        s: mpmath.fsum(mass * laplace(s - k, 1) for k, mass in taken.items())
        for s in range(-40, 43)
    }


def running(stream: Sequence[int]) -> list[int]:
    return list(accumulate(stream))


def left_nodes(stream: Sequence[int]) -> list[int]:
    """The tree nodes of one, two and four events that contain the first event."""
    return [sum(stream[:1]), sum(stream[:2]), sum(stream[:4])]


def weighed(weight: str) -> Law:
    """A candidate with probability proportional to 1 or ``weight``, for a score of 0 or 1."""

    def law(scores: Sequence[int]) -> Masses:
        weights = [mpf(weight) ** score for score in scores]
        return {i: w / mpmath.fsum(weights) for i, w in enumerate(weights)}

    return law


def in_random_order(unit: Any) -> Law:
    """Candidates in random order flip coins of probability e^(-unit gap) until one has heads."""

    def law(scores: Sequence[int]) -> Masses:
        heads = [mpmath.exp(unit * (score - max(scores))) for score in scores]

        @cache
        def chosen(one: int, left: frozenset[int]) -> Any:
            tails = ((1 - heads[i]) * chosen(one, left - {i}) for i in left - {one})
            return (heads[one] + mpmath.fsum(tails)) / len(left)

        return {i: chosen(i, frozenset(range(len(scores)))) for i in range(len(scores))}

    return law


def medians(candidates: Callable[[Sequence[int]], Iterable[int]]) -> Law:
    """Weights of e^(-off/4), where one side of a candidate has off/2 values more than half."""

    def law(values: Sequence[int]) -> Masses:
        def weight(r: int) -> Any:
            less, more = sum(x < r for x in values), sum(x > r for x in values)
            return mpmath.exp(-mpf(max(0, less + more + abs(less - more) - len(values))) / 4)

        weights = {r: weight(r) for r in candidates(values)}
        return {r: each / mpmath.fsum(weights.values()) for r, each in weights.items()}

    return law


def clipped(values: Sequence[int]) -> int:
    return sum(0 if value < 0 else min(value, 2) for value in values)


def certain(values: Sequence[int]) -> Masses:
    return {clipped(values): mpf(1)}


def in_eighths(amount: float) -> Masses:
    """Laplace noise of scale 80 eighths; every multiple of 1/8 is a float."""
    steps = round(8 * Fraction(amount))
    return {k / 8: laplace(k - steps, 80) for k in range(-400, 409)}


LAWS: Final[dict[str, Law]] = FIRST | {
    "staircase": around("staircase:epsilon=1,sensitivity=3,plateau=2", 80),
    "staircase-narrow-steps": around("staircase:epsilon=1,sensitivity=2,plateau=1", 80),
    "noisy-max": largest_index(2),
    "noisy-max-value": largest_count,
    "noisy-max-half-noise": largest_index(1),
    # One draw is added to all counts, so their order stays.
    "noisy-max-one-draw": lambda counts: {list(counts).index(max(counts)): mpf(1)},
    "sparse-vector": rows(2, 4, 1),
    "threshold-for-one-key": keys_of_one_user,
    "threshold-for-three-keys": keys_of_one_user,
    "sparse-vector-two": rows(2, 8, 2),
    "sparse-vector-gap": gap_law(2),
    "sparse-vector-gap-public-threshold": gap_law(None),
    "sparse-vector-value": value_anew(4, 8, 2),
    "sparse-vector-value-reused": value_reused,
    "sparse-vector-unscaled": rows(4, mpf(4) / 3, 2),
    "sparse-vector-noiseless-answers": rows(2, None, None),
    "sparse-vector-endless": rows(2, 2, None),
    "five-percent": number(mpf(20) / 21),
    "clamped-noise": clamped_noise,
    "clamped-sum": clamped_sum,
    "redrawn-noise": redrawn_noise,
    "bounds-from-data": number(1, sum),
    "public-bounds": number(1, lambda values: sum(min(max(x, 0), 1) for x in values)),
    "lemma-bits": bits("0.726"),
    "fair-bits": bits("0.5"),
    "relaxed-sum": sum_and_coin(2),
    "shuffled-as-printed": sum_and_coin(1),
    "found-early": answers("0.731", 2),
    "looked-at-all": answers("0.731", 2),
    "four-answers": answers("0.475", 4),
    "four-answers-as-two": answers("0.731", 4),
    "rappor": permanent("0.378"),
    "rappor-for-one-bit": permanent("0.269"),
    "memoised-rappor": two_of_one,
    "one-time-rappor-twice": two_alone,
    "subset-selection": subsets(_true(2, 6)),
    "subset-as-two-answers": subsets(_true(1, 2)),
    "local-hashing": hashed(lambda _: range(9)),
    "hashing-seeded-by-value": hashed(lambda value: [(5 * value + 2) % 9]),
    "hadamard-two-coefficients": two_columns(1),
    "hadamard-composed": two_columns(mpf(1) / 2),
    "permute-and-flip": in_random_order(mpf(1) / 2),
    "permute-and-flip-undivided": in_random_order(1),
    "median": medians(lambda _: range(9)),
    "median-among-values": medians(set),
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
    "noisy-size": vector(2, 12, lambda bits: [len(bits), sum(bits)]),
    "exact-size": lambda bits: {(len(bits), s): laplace(s - sum(bits), 1) for s in range(-40, 43)},
    "clipped-sum": number(2, clipped),
    "clipped-copy-unused": number(2, sum),
    "lower-bound-twice": certain,
    "sparse-vector-told-for-free": value_anew(2, 4, 1),
    "integer-laplace": in_eighths,
    "float-laplace": float_laplace,  # the law of its lowest bit
}
r"""One law a name, broken or twin; of ``catalogue_laws`` as well."""
