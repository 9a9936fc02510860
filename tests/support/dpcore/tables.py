r"""The tables of the batch samplers, their probabilities by mpmath, and their draws for V."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from dpcore.noise import batch_of
from dpcore.sampling.inversion import InversionTable, LaplaceDigits
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.scripted_rng import Digits
from tests.support.laws import second

WORDS = 1 << 64
LAST = WORDS - 1
Cdf = Callable[[int], Any]
real = mpmath_precision.real


def laplace_digits(scale: Fraction) -> LaplaceDigits:
    sampler = batch_of(DiscreteLaplace(scale=scale))
    assert isinstance(sampler, LaplaceDigits)
    return sampler


def top_cdf(scale: Fraction, unit: int) -> Cdf:
    r"""P(H <= k) for X = unit H + L, X discrete Laplace: P(X < unit (k + 1))."""
    noise = DiscreteLaplace(scale=scale)
    return lambda k: second(noise, "cdf", unit * (k + 1) - 1)


def digit_cdf(scale: Fraction, start: int, size: int) -> Cdf:
    r"""P(D <= k) for the digit of weight 2^start: a plain sum of e^(-d 2^start/s)."""
    with mpmath_precision.digits(80):
        ratio = mp.exp(-real(Fraction(2**start) / scale))
        sums = [ratio * 0]
        for d in range(size):
            sums.append(sums[-1] + ratio**d)
    return lambda k: sums[min(max(k + 1, 0), size)] / sums[size]


MOST_SUMMED = 3000
r"""A longer table is looked at in some places only, each by its own tail."""


def sums_of(noise: Noise, first: int, last: int) -> Cdf:
    r"""F(k) for first - 1 <= k <= last, by one running sum of masses."""
    with mpmath_precision.digits(80):
        found = [second(noise, "cdf", first - 1)]
        for k in range(first, last + 1):
            found.append(found[-1] + second(noise, "pmf", k))
    return lambda k: found[k - first + 1]


def wrong_thresholds(noise: Noise, table: InversionTable) -> list[int]:
    r"""Return the k whose threshold is not at F(k), and ends beyond which too much mass remains."""
    thresholds, first, last = table.thresholds.tolist(), table.first, len(table) - 1
    assert thresholds == sorted(thresholds)
    if last < MOST_SUMMED:
        wrong = misplaced(thresholds, first, sums_of(noise, first, first + last))
    else:
        step = last // 24
        picked = sorted({0, 1, 2, last - 2, last - 1, last, *range(0, last, step)})
        wrong = []
        for i in picked:
            wrong += misplaced([thresholds[i]], first + i, lambda k: second(noise, "cdf", k))
    with mpmath_precision.digits(60):
        if second(noise, "cdf", first - 1) * WORDS > 1:
            wrong.append(first - 1)
        # A word above every threshold is refined, which is slow: it must be rare.
        assert int(table._thresholds[-1]) == LAST, "such a word would be decided by nobody"
        if second(noise, "sf", first + last) > mp.mpf(2) ** -39:
            wrong.append(first + last + 1)
    return wrong


LAPLACE_SCALES = [Fraction(s) for s in ("1/1000000", "1/3", "1", "10", "64", "129/2")]
LARGE_SCALES = [Fraction(s) for s in ("1048577", "3000000.7", "1099511627776", "36028797018963967")]


def table_of(noise: Noise) -> InversionTable:
    table = batch_of(noise)
    assert isinstance(table, InversionTable)
    return table


def misplaced(thresholds: list[int], first: int, cdf: Cdf) -> list[int]:
    r"""Return the k whose threshold c does not separate at F(k): c <= 2^64 F(k) <= c + 1 fails."""
    with mpmath_precision.digits(70):
        slack = mp.mpf(10) ** -40
        wrong = []
        for k, c in enumerate(thresholds, first):
            scaled = cdf(k) * WORDS
            if not c - slack <= scaled <= c + 1 + slack:
                wrong.append(k)
    return wrong


def check_table(table: InversionTable, cdf: Cdf) -> None:
    r"""Check that every threshold separates; words above all of them are refined or impossible."""
    thresholds = table.thresholds.tolist()
    assert thresholds == sorted(thresholds)
    assert len(table) == len(thresholds) == table._certain
    assert int(table._thresholds[-1]) == LAST, "a word above would be decided by nobody"
    assert misplaced(thresholds, table.first, cdf) == []


def hair(value: Any, depth: int) -> list[Fraction]:
    r"""Return three numbers 2^-depth below, at, and 2^-depth above a real number in (0, 1)."""
    cell = int(mp.floor(mp.ldexp(value, depth)))
    return [Fraction(n, 1 << depth) for n in (cell - 1, cell, cell + 1) if 0 < n < 1 << depth]


def wrong_draws(table: Any, cdf: Cdf, numbers: list[Fraction], draw: Any = None) -> list[Fraction]:
    r"""Return the V for which the table's draw is not the k with F(k-1) <= V < F(k)."""
    wrong = []
    for v in numbers:
        rng = Digits([v])
        target = np.empty(1, dtype=np.int64)
        (draw or InversionTable.fill)(table, rng, target)
        k, exact = int(target[0]), real(v)
        if not cdf(k - 1) <= exact < cdf(k):
            wrong.append(v)
    return wrong


def next_to_thresholds(cdf: Cdf, ks: list[int]) -> list[Fraction]:
    return [v for k in ks for depth in (64, 66, 128, 192, 250) for v in hair(cdf(k), depth)]


def case(name: str) -> tuple[InversionTable, Cdf, list[int]]:
    law, _, text = name.partition(" ")
    value = Fraction(text)
    if law == "laplace":
        ks = [0] if value < Fraction(1, 100) else [-30, -7, -1, 0, 1, 2, 9, 40]
        return laplace_digits(value)._top, top_cdf(value, 1), ks
    ks = [-1, 0, 1] if value <= 1 else [-50, -3, -1, 0, 1, 2, 60]
    noise = DiscreteGaussian(sigma_squared=value)
    return table_of(noise), lambda k: second(noise, "cdf", k), ks


TIES = ["laplace 1/3", "laplace 10", "gaussian 1/4", "gaussian 400"]
