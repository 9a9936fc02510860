r"""The laws once more, by mpmath and plain sums: nothing here imports dpcore.

Every function works at the ambient ``mp.dps`` (see :func:`digits`) and returns an ``mpf`` with a
relative error of a few units of it. Scales and variances are exact rationals.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any

from mpmath import mp, mpf

Real = Any  # mpmath ships no types


@contextmanager
def digits(count: int) -> Iterator[None]:
    r"""Work at ``count`` decimal digits."""
    with mp.workdps(count):
        yield


def real(value: Fraction | int) -> Real:
    r"""A rational as an mpf, rounded once."""
    exact = Fraction(value)
    return mpf(exact.numerator) / exact.denominator


def floor_to(value: Real, bits: int) -> Fraction:
    r"""The multiple of 2^-bits at or below a positive mpf, as an exact rational."""
    return Fraction(int(mp.floor(mp.ldexp(value, bits))), 1 << bits)


def laplace_pmf(scale: Fraction, k: int) -> Real:
    r"""tanh(1/(2s)) e^(-|k|/s)."""
    return mp.tanh(1 / (2 * real(scale))) * mp.exp(-abs(k) / real(scale))


def laplace_log_pmf(scale: Fraction, k: int) -> Real:
    r"""log tanh(y) = log1p(-q) - log1p(q) with q = e^(-2y): no digit is lost near 0."""
    q = mp.exp(-1 / real(scale))
    return mp.log1p(-q) - mp.log1p(q) - abs(k) / real(scale)


def laplace_sf(scale: Fraction, k: int) -> Real:
    r"""P(X > k), by the geometric series of the pmf."""
    if k < 0:
        return 1 - laplace_sf(scale, -k - 1)
    return mp.exp(-(k + 1) / real(scale)) / (1 + mp.exp(-1 / real(scale)))


@cache
def _weight_sum(variance: Fraction, first: int, dps: int) -> Real:
    # sum_{k >= first} e^(-k^2/2v), first >= 0, by whichever of two ways is short.
    with mp.workdps(dps + 15):
        v = real(variance)
        if variance <= 4000 or first > variance:
            return _plain_sum(variance, first)
        # Euler and Maclaurin at the midpoint a = first - 1/2: the integral less the corrections
        # B_2m(1/2)/(2m)! f^(2m-1)(a), with f^(n)(a) = (-1)^n He_n(a/sigma) sigma^-n f(a).
        sigma = mp.sqrt(v)
        a = mpf(first) - mpf(1) / 2
        x = a / sigma
        total = sigma * mp.sqrt(mp.pi / 2) * mp.erfc(x / mp.sqrt(2))
        height = mp.exp(-x * x / 2)
        for m in range(1, 80):
            n = 2 * m - 1
            hermite = mp.hermite(n, x / mp.sqrt(2)) * mpf(2) ** (-mpf(n) / 2)
            term = mp.bernpoly(2 * m, mpf(1) / 2) / mp.factorial(2 * m) * hermite / sigma**n
            total += term * height
            if abs(term * height) < mp.eps * abs(total) and m > 3:
                return total
        raise AssertionError("the second path did not converge")


def _plain_sum(variance: Fraction, first: int) -> Real:
    # Terms fall faster than geometrically: w(k + j) <= w(k) e^(-j k/v) e^(-j^2/2v).
    v, total, k = real(variance), mpf(0), first
    while True:
        term = mp.exp(-mpf(k * k) / (2 * v))
        total += term
        if term < mp.eps * total * mpf(10) ** -10:
            return total
        k += 1


def gaussian_total(variance: Fraction) -> Real:
    r"""Z = sum over all integers of e^(-k^2/2v), by the shorter of the two theta series.

    Poisson summation: Z = sqrt(2 pi v) sum_j e^(-2 pi^2 v j^2).
    """
    v = real(variance)
    if variance < 1:
        return 2 * _plain_sum(variance, 1) + 1
    total, j = mpf(1), 1
    while True:
        term = 2 * mp.exp(-2 * mp.pi**2 * v * j * j)
        total += term
        if term < mp.eps:
            return mp.sqrt(2 * mp.pi * v) * total
        j += 1


def gaussian_pmf(variance: Fraction, k: int) -> Real:
    r"""e^(-k^2/2v)/Z."""
    return mp.exp(-real(Fraction(k * k) / (2 * variance))) / gaussian_total(variance)


def gaussian_log_pmf(variance: Fraction, k: int) -> Real:
    r"""-k^2/2v - log Z, with log1p where Z is next to 1."""
    log_total = (
        mp.log1p(2 * _plain_sum(variance, 1)) if variance < 1 else mp.log(gaussian_total(variance))
    )
    return -real(Fraction(k * k) / (2 * variance)) - log_total


def gaussian_sf(variance: Fraction, k: int) -> Real:
    r"""P(X > k) by a plain sum, or by Euler and Maclaurin for large v."""
    if k < 0:
        return 1 - gaussian_sf(variance, -k - 1)
    return +(_weight_sum(variance, k + 1, mp.dps) / gaussian_total(variance))
