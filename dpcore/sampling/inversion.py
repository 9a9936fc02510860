r"""Certified inversion: exact draws at the speed of a table lookup.

Let V be uniform on [0, 1) and X the smallest k with V < F(k); then X has distribution function F.
Only the top 64 bits u of V are drawn at first. With thresholds c_k = floor(2^64 F(k)),

    u < c_k  implies  V < F(k),      u > c_k  implies  V >= F(k),

so u decides X unless it equals a threshold (probability about table size / 2^64). Then further bits
of V are drawn and F(k) is enclosed more tightly until the comparison is decided. No tail is
truncated and nothing is rounded: X has exactly the distribution function F. Proof:
docs/proofs/samplers.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
from flint import arb, ctx

from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, integer_below, precision
from dpcore.numbers.integer_search import least
from dpcore.sampling.rng import Rng, Words

TABLE_BITS: Final = 224
r"""The precision of the balls from which a table is built."""

BLOCK: Final = 1 << 15
_FULL: Final = 1 << 64
_WORDS: Final = arb(_FULL)
_UNDECIDED: Final = -1
_MOST_BITS: Final = 1 << 23


class Batch(Protocol):
    r"""A batch sampler: ``draw(rng, count)`` returns ``count`` independent int64 values."""

    def draw(self, rng: Rng, count: int) -> Integers: ...


def in_blocks(count: int, fill: Callable[[Integers], None]) -> Integers:
    r"""Draw ``count`` values by calls of ``fill`` on blocks that fit in the CPU cache."""
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, BLOCK):
        fill(drawn[start : start + BLOCK])
    return drawn


class Uniform:
    r"""A uniform real V in [0, 1) whose bits are drawn lazily."""

    __slots__ = ("_bits", "_rng", "_value")

    def __init__(self, rng: Rng, word: int) -> None:
        self._rng = rng
        self._value = word
        self._bits = 64

    def below(self, value: Callable[[], arb]) -> bool:
        r"""Whether V < x, where ``value()`` returns a ball around x at the current precision.

        More bits are drawn until the comparison is certain; once the ball is tight, 64 more bits
        are needed with probability 2^-64. Raises :class:`PrecisionExhausted` if eight million bits
        do not suffice.
        """
        while self._bits <= _MOST_BITS:
            with precision(self._bits + 64):
                scaled = value() * arb(2) ** self._bits
                if scaled >= self._value + 1:
                    return True
                if scaled <= self._value:
                    return False
            # The bits double, so a tail that starts at 2^-1000000 is decided in a few rounds.
            self._value = (self._value << self._bits) | self._rng.bits(self._bits)
            self._bits *= 2
        raise PrecisionExhausted("a uniform real could not be compared with a threshold")


def certified_threshold(value: arb, exact: Callable[[], arb]) -> int:
    r"""Return an integer c with c <= 2^64 F <= c + 1, where F in [0, 1] lies in the ball ``value``.

    Let u be the first 64 bits of a uniform V. Then u < c implies V < F, and u > c implies V >= F.
    ``exact`` returns a ball around F at the current precision; it is called at a higher precision
    if ``value`` does not determine c.
    """
    scaled = value * _WORDS
    threshold = max(integer_below(scaled), 0)
    if threshold >= _FULL - 1 or scaled <= threshold + 1:
        return min(threshold, _FULL - 1)
    bits = 2 * ctx.prec
    if bits > _MOST_BITS:
        raise PrecisionExhausted(
            f"{_MOST_BITS} bits of precision do not determine a probability; change the parameters"
        )
    with precision(bits):
        return certified_threshold(exact(), exact)


class InversionTable:
    r"""A sampler of a law on consecutive integers by certified inversion.

    F is the distribution function of the law, and ``cdf(k)`` is a ball around F(k) at the current
    precision, for every integer k. ``thresholds[i]`` is the threshold of F(first + i) (see
    :func:`certified_threshold`). The first threshold is 0 or belongs to the smallest value of the
    law. If the last one is less than 2^64 - 1, the table omits the largest values. A 64-bit random
    word that equals a threshold, or lies above the last one, needs further bits (:meth:`refine`).
    Any other word determines the draw.
    """

    __slots__ = ("_cdf", "_certain", "_guide", "_open", "_shift", "_thresholds", "first")

    def __init__(self, first: int, thresholds: Iterable[int], cdf: Callable[[int], arb]) -> None:
        self.first = first
        self._cdf = cdf
        given = np.array([*thresholds], dtype=np.uint64)
        if not len(given) or bool(np.any(given[1:] < given[:-1])):
            raise InvalidParameter("thresholds", given, "must be non-empty and increasing")
        # A word whose index is at least this number lies above an open table and is refined.
        self._certain = len(given)
        closed = int(given[-1]) == _FULL - 1
        self._thresholds = given if closed else np.append(given, np.uint64(_FULL - 1))
        # The guide maps a cell, the top bits of a word, to the index of the word. With 16 cells per
        # value most words fall in cells without a threshold; beyond 2^18 cells the guide exceeds
        # the CPU cache and costs more than the searches it saves.
        bits = min(max(len(self._thresholds).bit_length() + 4, 10), 18)
        self._shift = np.uint64(64 - bits)
        edges = np.arange(1 << bits, dtype=np.uint64) << self._shift
        inside = (np.uint64(1) << self._shift) - np.uint64(1)
        below = np.searchsorted(self._thresholds, edges, side="left")
        reached = np.searchsorted(self._thresholds, edges | inside, side="right")
        guide = np.where((below == reached) & (below < self._certain), below, _UNDECIDED)
        self._open = float(np.count_nonzero(guide < 0)) / len(guide)
        self._guide = guide.astype(np.int16 if len(self._thresholds) < 1 << 15 else np.int32)

    def __len__(self) -> int:
        return self._certain

    @property
    def thresholds(self) -> Words:
        r"""A copy of the thresholds, for verification."""
        return self._thresholds[: self._certain].copy()

    def draw(self, rng: Rng, count: int) -> Integers:
        return in_blocks(count, lambda piece: self.fill(rng, piece))

    def fill(self, rng: Rng, target: Integers) -> None:
        r"""Overwrite ``target`` with independent draws; fastest for at most ``BLOCK`` draws."""
        if not len(target):
            return
        words = rng.words(len(target))
        found = self._guide.take((words >> self._shift).view(np.int64))
        np.add(found, self.first, out=target, dtype=np.int64)
        # The undecided words are searched. Their number depends on the values, so a fixed number of
        # searches is made: the work reveals nothing about the draws, unless the number exceeds its
        # mean by six standard deviations. Searching a decided word again is harmless.
        unsure = np.flatnonzero(found == _UNDECIDED)
        spread = math.sqrt(len(words) * self._open)
        searches = math.ceil(len(words) * self._open + 6 * spread) + (4 if self._open else 0)
        places = np.zeros(max(searches, len(unsure)), dtype=np.int64)
        places[: len(unsure)] = unsure
        searched = words[places]
        index = np.searchsorted(self._thresholds, searched, side="left")
        target[places] = index + self.first
        undecided = (self._thresholds[index] == searched) | (index >= self._certain)
        for tie in np.flatnonzero(undecided):
            # A word is refined once: a second tie at its index is its copy in the padding.
            if tie < len(unsure):
                target[places[tie]] = self.refine(rng, int(searched[tie]))

    def refine(self, rng: Rng, word: int) -> int:
        r"""Return the draw for a uniform real whose first 64 bits are ``word``."""
        guess = self.first + int(np.searchsorted(self._thresholds, np.uint64(word)))
        uniform = Uniform(rng, word)
        return least(lambda k: uniform.below(lambda: self._cdf(k)), guess)


def invert(rng: Rng, cdf: Callable[[int], arb], guess: int) -> int:
    r"""Draw one value by certified inversion of the distribution function F of a law.

    ``cdf(k)`` is a ball around F(k). The search starts at ``guess``, which only affects speed.
    """
    uniform = Uniform(rng, rng.bits(64))
    return least(lambda k: uniform.below(lambda: cdf(k)), guess)


class Inverted:
    r"""A batch sampler that uses :func:`invert`, for laws without a faster sampler."""

    def __init__(self, cdf: Callable[[int], arb], guess: int) -> None:
        self._cdf, self._guess = cdf, guess

    def draw(self, rng: Rng, count: int) -> Integers:
        drawn = (invert(rng, self._cdf, self._guess) for _ in range(count))
        return np.fromiter(drawn, dtype=np.int64, count=count)


class Difference:
    r"""A batch sampler of the difference of two independent draws of the sampler ``one``."""

    __slots__ = ("_one",)

    def __init__(self, one: Batch) -> None:
        self._one = one

    def draw(self, rng: Rng, count: int) -> Integers:
        drawn = self._one.draw(rng, count)
        drawn -= self._one.draw(rng, count)
        return drawn


def table_of_sums(first: int, values: Iterable[arb], cdf: Callable[[int], arb]) -> InversionTable:
    r"""Build the inversion table of a law from balls around F(first), F(first + 1), ...

    F is the distribution function of the law, which ``cdf`` computes.
    """
    thresholds = []
    for k, value in enumerate(values, first):
        floor = (value * _WORDS).floor().unique_fmpz()  # None if the ball does not determine it
        exact = _FULL if floor is None else int(floor)
        if exact >= _FULL:
            exact = certified_threshold(value, partial(cdf, k))
        thresholds.append(exact)
    return InversionTable(first, thresholds, cdf)


def table_of_masses(
    first: int, below: arb, masses: Iterable[arb], cdf: Callable[[int], arb]
) -> InversionTable:
    r"""Build the inversion table of a law from balls around its masses.

    For a draw X of the law, ``masses[i]`` contains P(X = first + i), and the ball ``below``
    contains P(X < first), at the precision ``TABLE_BITS``. If ``first`` is the smallest value of
    the law, ``below`` must be exactly 0; otherwise P(X <= first) must be less than 2^-64. If P(X <
    first) and the masses sum to less than 1 - 2^-64, the table omits the largest values of the law,
    which are drawn by :meth:`InversionTable.refine`. The balls should be narrow, because each
    threshold that they leave undecided costs an evaluation of ``cdf``.
    """
    _, *sums = accumulate(masses, initial=below)
    if not below.is_zero() and not (sums and sums[0] * _WORDS < 1):
        raise InvalidParameter("first", first, "P(X <= first) must be < 2^-64: decrease it")
    return table_of_sums(first, sums, cdf)


EXTRA: Final = 64
r"""The number of values in a table beyond a multiple of the standard deviation, for laws whose
variance is too small for a nearly Gaussian tail."""


def table_reach(variance: Fraction) -> int:
    r"""The half-width of a table in integers, at least 9 standard deviations.

    The table checks that the tails beyond it are below 2^-64.
    """
    return math.isqrt(86 * math.ceil(variance)) + EXTRA


def symmetric_table(
    masses: Sequence[arb], beyond: arb, cdf: Callable[[int], arb]
) -> InversionTable:
    r"""Build the inversion table of a symmetric law from balls around its masses.

    ``masses[k]`` contains P(X = k) for k = 0, ..., n, and ``beyond`` contains P(X > n).
    """
    return table_of_masses(1 - len(masses), beyond, [*masses[:0:-1], *masses], cdf)


_TABLE_SCALE: Final = 64
_DIGIT_BITS: Final = 10
_WORD: Final = 2.0**-64


class LaplaceDigits:
    r"""A batch sampler of the discrete Laplace law of ``scale``, with draws modulo 2^64."""

    # X = 2^t H + L with L in [0, 2^t). For X >= 0 the digits of the geometric X are independent:
    # e^(-x/s) factorises over the digits. For X < 0 the same holds for ~X = -X-1, whose low digits
    # are the complements of those of X. H has the sign, so one table decides sign and top digit.

    def __init__(self, scale: Fraction) -> None:
        low_bits = max(0, math.ceil(math.log2(scale / _TABLE_SCALE))) if scale > 1 else 0
        self._low: list[tuple[int, InversionTable]] = []
        for start in range(0, low_bits, _DIGIT_BITS):
            width = min(_DIGIT_BITS, low_bits - start)
            self._low.append((start, _digit(scale / 2**start, 1 << width)))
        self._low_bits = low_bits
        self._top = _top(scale, 1 << low_bits)

    def draw(self, rng: Rng, count: int) -> Integers:
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        self._top.fill(rng, target)
        if not self._low:
            return
        low = (target >> 63) & ((1 << self._low_bits) - 1)
        target <<= self._low_bits
        digit = np.empty_like(target)
        for start, table in self._low:
            table.fill(rng, digit)
            digit <<= start
            low ^= digit
        target |= low


def _digit(scale: Fraction, size: int) -> InversionTable:
    # P(L <= k) = (1 - q^(k+1))/(1 - q^size), q = e^(-1/scale): a geometric truncated to one digit.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        if k + 1 >= size:
            return arb(1)
        return (rate * max(k + 1, 0)).expm1() / (rate * size).expm1()

    with precision(TABLE_BITS):
        return table_of_sums(0, map(cdf, range(size)), cdf)


def _top(scale: Fraction, unit: int) -> InversionTable:
    # H for X = unit H + L: P(H > m) = g^(m+1)/(1+beta) and P(H <= -1-m) = beta g^m/(1+beta),
    # m >= 0, with g = beta^unit; for unit = 1 this is the law of X itself.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        beta = rate.exp()
        if k < 0:
            return beta * (rate * unit * (-k - 1)).exp() / (1 + beta)
        return 1 - (rate * unit * (k + 1)).exp() / (1 + beta)

    with precision(TABLE_BITS):
        ratio = (-ball(Fraction(unit)) / ball(scale)).exp()
        beta = (-1 / ball(scale)).exp()
        below = [*_powers(beta / (1 + beta), ratio)]
        above = [1 - power for power in _powers(ratio / (1 + beta), ratio)]
        return table_of_sums(-len(below), [*reversed(below), *above], cdf)


def _powers(power: arb, ratio: arb) -> Iterator[arb]:
    # power * ratio^m for m = 0, 1, ..., until one lies below 2^-64.
    yield power
    while not power < _WORD:
        power *= ratio
        yield power
