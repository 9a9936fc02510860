r"""Float64 masses and tails of laws that are evaluated in ball arithmetic; guesses of quantiles.

For a few integers, each value is computed as a ball and then rounded (:func:`pointwise`). Values at
many consecutive integers, called a run, are computed together (:func:`by_runs`): the masses of the
run and the tails at its two ends are computed as balls (:mod:`dpcore.numbers.enclosure`), and the
other tails are sums of these balls. Runs are cached. :func:`normal_guess` and :func:`closer` guess
quantiles. They affect only speed, because quantiles are certified afterwards.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from operator import mul
from typing import Final, Literal, Protocol

import numpy as np
from flint import arb

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.enclosure import narrow, nearest, precision

_BITS: Final = 60
_LENGTH: Final = 1 << 12
_FEW: Final = 16
_STEPS: Final = 12
_LEAST: Final = 2.0**-1020
_MOST_BITS: Final = 1 << 14

Column = Literal["pmf", "cdf", "sf"]


class RunLaw(Hashable, Protocol):
    r"""The interface of a law that computes the masses of many consecutive integers in one call."""

    def pmf_ball(self, k: int) -> arb: ...
    def cdf_ball(self, k: int) -> arb: ...
    def sf_ball(self, k: int) -> arb: ...
    def masses(self, first: int, last: int) -> list[arb]:
        r"""The masses P(X = k) for k = first, first+1, ..., last, as balls."""
        ...


class ByRatios:
    r"""A law that computes masses from the ratios of the masses of consecutive integers."""

    __slots__ = ()

    @abstractmethod
    def pmf_ball(self, k: int) -> arb:
        r"""P(X = k), as a ball."""

    @abstractmethod
    def ratios(self, first: int, last: int) -> list[arb]:
        r"""The ratios P(X = k)/P(X = k-1) for k = last, last-1, ..., first+1, as balls."""

    def masses(self, first: int, last: int) -> list[arb]:
        ratios = reversed(self.ratios(first, last))
        return [*accumulate(ratios, mul, initial=self.pmf_ball(first))]


def pointwise(k: Integers, value: Callable[[int], arb]) -> Floats:
    """Return the float64 of ``value(k)`` for each entry of ``k``, with relative error < 2^-51.

    ``value`` returns a ball and is called once for each distinct k.
    """
    distinct, places = np.unique(k, return_inverse=True)
    found = [float(narrow(partial(value, int(one)), _BITS).lower) for one in distinct]
    # + 0.0, because the logarithm of a mass close to 1 may round to -0.
    floats: Floats = np.array(found, dtype=np.float64)[places.reshape(k.shape)] + 0.0
    return floats


def sizes(k: Integers) -> Integers:
    r"""Return the absolute values of int64 numbers as uint64, which can represent |-2^63|."""
    return np.abs(k).view(np.uint64)


def by_runs(law: RunLaw, k: Integers, column: Column) -> Floats:
    r"""Return the function ``column`` (pmf, cdf or sf) of ``law`` at each number in ``k``.

    The relative error is below 2^-51, except that values below 2^-1020 may become 0. Negative
    numbers in ``k`` need a law on 0, 1, 2, ...: their pmf and cdf are 0, and their sf is 1.
    """
    values = np.full(len(k), 1.0 if column == "sf" else 0.0)
    index = k // _LENGTH
    for number in np.unique(index[k >= 0]).tolist():
        here = index == number
        if len(np.unique(k[here])) < _FEW:
            values[here] = pointwise(k[here], getattr(law, f"{column}_ball"))
        else:
            values[here] = _run(law, number)[column][k[here] - number * _LENGTH]
    return values


def normal_guess(p: Floats, variance: Fraction, skew: Fraction = Fraction(0)) -> Integers:
    r"""Guess the p-quantiles of X - E[X] for a nearly normal X.

    ``skew`` is E[(X-E[X])^3]/Var[X]. The guess is the normal quantile with the first correction of
    Cornish and Fisher (1938). It is not certified.
    """
    from scipy.special import ndtri  # local: importing dpcore stays fast

    z = ndtri(p)
    steps = np.ceil(math.sqrt(variance) * z + float(skew) * (z * z - 1) / 6 - 0.5)
    guess: Integers = steps.astype(np.int64)
    return guess


def closer(
    k: Integers,
    level: Floats,
    tail: Callable[[Integers], Floats],
    mass: Callable[[Integers], Floats],
) -> Integers:
    r"""Improve guesses of the integers k >= 0 at which the tail P(X > k) falls to ``level``.

    The guesses move by Newton steps on log P(X > k). ``tail(k)`` returns P(X > k), and ``mass(k)``
    the decrease of the tail from one integer to the next. The results are not certified.
    """
    for _ in range(_STEPS):
        rest, step = tail(k), mass(k)
        with np.errstate(all="ignore"):
            move = np.ceil(rest / step * np.log(rest / level) - 1e-9)
        move = np.clip(np.nan_to_num(move), -(2.0**60), 2.0**60).astype(np.int64)
        moved = np.clip(k + move, 0, 1 << 61)
        if bool(np.all(moved == k)):
            break
        k = moved
    return k


@lru_cache(maxsize=256)
def _run(law: RunLaw, number: int) -> dict[Column, Floats]:
    # The floats at the integers of one run.
    first, last = number * _LENGTH, (number + 1) * _LENGTH - 1
    bits = 192
    while True:
        try:
            with precision(bits):
                return _rounded(law, first, last)
        except PrecisionExhausted:
            if bits > _MOST_BITS:
                raise
            bits *= 2


def _rounded(law: RunLaw, first: int, last: int) -> dict[Column, Floats]:
    masses = law.masses(first, last)
    below = accumulate(masses, initial=law.cdf_ball(first - 1))
    above = accumulate(masses[:0:-1], initial=law.sf_ball(last))
    return {"pmf": _floats(masses), "cdf": _floats(below)[1:], "sf": _floats(above)[::-1]}


def _floats(values: Iterable[arb]) -> Floats:
    return np.array([0.0 if value < _LEAST else nearest(value) for value in values])
