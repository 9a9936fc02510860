r"""Local mechanisms: randomised response, unary encoding, subsets, hashing, Hadamard response.

All mechanisms except unary encoding have the following form. A fraction ``hit``/``total`` of all
possible reports agrees with the user's value. With probability

    own = hit e^epsilon / (hit e^epsilon + total - hit),

rounded down, the report is uniform among the reports that agree, and otherwise uniform among all
other reports. So the largest likelihood ratio of a report is own/(1 - own) (total - hit)/hit, which
is at most e^epsilon.

Sources: Warner 1965 and Kairouz, Bonawitz and Ramage 2016 (randomised response); Wang, Blocki, Li
and Jha 2017 (unary encoding, local hashing); Ye and Barg 2018 (subset selection); Acharya, Sun and
Zhang 2019 (Hadamard response).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.local.local_report import LocalReport, Outcome, Reports
from dpcore.mechanism import Scope
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow
from dpcore.numbers.parameter import Choice
from dpcore.sampling.rng import Rng
from dpcore.spec_syntax import parameter_names

Flags = npt.NDArray[np.bool_]

GRID: Final = 1 << 32
r"""The probabilities with which :func:`flip` draws are multiples of 1/GRID."""


def rounded_down(probability: Callable[[], arb]) -> Fraction:
    r"""The largest multiple of 1/``GRID`` that is proven to be at most ``probability``."""
    return Fraction(math.floor(narrow(probability, 96).lower * GRID), GRID)


def rounded_up(probability: Callable[[], arb]) -> Fraction:
    r"""The smallest multiple of 1/``GRID`` that is proven to be at least ``probability``."""
    return Fraction(math.ceil(narrow(probability, 96).upper * GRID), GRID)


def flip(probability: Fraction, count: int, rng: Rng) -> Flags:
    r"""Draw ``count`` Bernoulli variables; ``probability`` is a multiple of 1/``GRID`` below 1.

    One byte decides a variable unless it equals the first byte of the probability; then 24 more
    bits decide.
    """
    threshold = int(probability * GRID)
    first, rest = threshold >> 24, threshold & 0xFFFFFF
    words = rng.words(-(-count // 8))
    drawn = words.astype("<u8", copy=False).view(np.uint8)[:count]
    heads: Flags = drawn < first
    if rest:
        ties = np.flatnonzero(drawn == first)
        heads[ties] = (rng.words(len(ties)) >> np.uint64(40)) < rest
    return heads


def below(bound: int, count: int, rng: Rng) -> Integers:
    r"""Draw ``count`` independent integers, uniform on [0, bound), for a bound of at most 2^32.

    An integer is the high half of the product of 32 random bits and the bound. A product whose low
    half is below 2^32 mod bound is rejected, so all integers are equally likely (Lemire 2019).
    """
    words = rng.words(-(-count // 2)).astype("<u8", copy=False)
    products = words.view("<u4")[:count].astype(np.uint64) * np.uint64(bound)
    refused = GRID % bound
    if refused:
        low = products.astype(np.uint32)
        again = np.flatnonzero(low < refused)
        while len(again):
            fresh = (rng.words(len(again)) >> np.uint64(32)) * np.uint64(bound)
            products[again] = fresh
            again = again[fresh.astype(np.uint32) < refused]
    return (products >> np.uint64(32)).astype(np.int64)


def subset(wanted: int, size: int, rng: Rng) -> Flags:
    r"""Draw a random set of ``wanted`` < ``size`` positions: those with the smallest keys.

    Every position has an independent 64-bit key. All keys are drawn again if a key in the set
    equals a key outside the set, so all sets are equally likely.
    """
    while True:
        keys = rng.words(size)
        chosen: Flags = keys < np.partition(keys, wanted)[wanted]
        if np.count_nonzero(chosen) == wanted:
            return chosen


_ROOM: Final = 1 << 28
_WIDE: Final = 1 << 12


@lru_cache(maxsize=1 << 10)
def _kept(epsilon: Fraction, hit: int, total: int) -> Fraction:
    def chance() -> Any:
        weight = hit * ball(epsilon).exp()
        return weight / (weight + (total - hit))

    return rounded_down(chance)


class _OneOfTwoParts(LocalReport):
    # Mechanisms whose reports either agree with the value or do not.
    __slots__ = ()

    @property
    @abstractmethod
    def _parts(self) -> tuple[int, int]:
        r"""The pair (``hit``, ``total``) of the module docstring."""

    @property
    def own(self) -> Fraction:
        return _kept(self.epsilon, *self._parts)

    @property
    def ratio(self) -> Fraction:
        hit, total = self._parts
        return self.own / (1 - self.own) * Fraction(total - hit, hit)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedResponse(_OneOfTwoParts):
    r"""k-ary randomised response: the value, or another value chosen uniformly, as an integer.

    >>> from dpcore import SeededRng
    >>> mechanism = RandomisedResponse(epsilon=3, values=4)
    >>> mechanism.report([0, 1, 2, 3, 3], rng=SeededRng(2)).tolist()
    [0, 1, 2, 3, 3]
    """

    name: ClassVar[str] = "randomised-response"

    @property
    def _parts(self) -> tuple[int, int]:
        return 1, self.values

    @property
    def other(self) -> Fraction:
        return (1 - self.own) / (self.values - 1)

    @property
    def triple(self) -> Fraction:
        return Fraction(0)

    @property
    def outcomes(self) -> int:
        return self.values

    def _law(self, value: int) -> dict[Outcome, Fraction]:
        return {w: self.own if w == value else self.other for w in range(self.values)}

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        found = values.copy()
        lies = np.flatnonzero(~flip(self.own, len(values), rng))
        found[lies] = _another(values[lies], self.values, rng)
        return found

    def supports(self, reports: Reports) -> Integers:
        return np.bincount(reports, minlength=self.values)

    @property
    def _range(self) -> tuple[int, Any]:
        return 0, self.values - 1


def _another(values: Integers, total: int, rng: Rng) -> Integers:
    # Uniform among the other values.
    drawn = below(total - 1, len(values), rng)
    drawn += drawn >= values
    return drawn


class Encoding(Enum):
    r"""How :class:`UnaryEncoding` chooses its two probabilities."""

    SYMMETRIC = "symmetric"
    OPTIMISED = "optimised"


class _Bits(LocalReport):
    # A report is a row of bits, one per value: 1 if the report supports that value.
    __slots__ = ()

    @property
    def width(self) -> int:
        return self.values

    def supports(self, reports: Reports) -> Integers:
        most = 255  # the sum of this many bits fits into a byte
        whole = len(reports) // most * most
        bits = reports[:whole].astype(np.uint8).reshape(most, -1)
        sums = np.add.reduce(bits, axis=0, dtype=np.uint8).reshape(-1, self.values)
        found: Integers = np.count_nonzero(reports[whole:], axis=0) + sums.sum(0, dtype=np.int64)
        return found

    @property
    def _range(self) -> tuple[int, Any]:
        return 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryEncoding(_Bits):
    r"""Report one bit per value: P(1) is ``own`` for the true value, ``other`` for the rest.

    Symmetric (basic RAPPOR): own = 1 - other = e^(epsilon/2)/(e^(epsilon/2) + 1). Optimised, with
    less variance: own = 1/2, other = 1/(e^epsilon + 1). A report is a row of booleans.

    >>> UnaryEncoding(epsilon=2, values=5).variance(100) < UnaryEncoding(
    ...     epsilon=2, values=5, encoding="symmetric"
    ... ).variance(100)
    True
    """

    name: ClassVar[str] = "unary-encoding"

    encoding: Choice[Encoding] = Choice(Encoding, Encoding.OPTIMISED)

    @property
    def own(self) -> Fraction:
        if self.encoding is Encoding.SYMMETRIC:
            return _kept(Fraction(self.epsilon) / 2, 1, 2)
        return Fraction(1, 2)

    @property
    def other(self) -> Fraction:
        if self.encoding is Encoding.SYMMETRIC:
            return 1 - self.own
        return _least_other(self.epsilon)

    @property
    def ratio(self) -> Fraction:
        return self.own * (1 - self.other) / (self.other * (1 - self.own))

    @property
    def triple(self) -> Fraction:
        return self.own * self.other**2

    @property
    def outcomes(self) -> int:
        return 1 << self.values

    def _law(self, value: int) -> dict[Outcome, Fraction]:
        def mass(bits: tuple[int, ...]) -> Fraction:
            chances = (self.own if v == value else self.other for v in range(self.values))
            return math.prod(
                (c if bit else 1 - c for c, bit in zip(chances, bits, strict=True)),
                start=Fraction(1),
            )

        return {bits: mass(bits) for bits in product((0, 1), repeat=self.values)}

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        bits = flip(self.other, len(values) * self.values, rng).reshape(-1, self.values)
        bits[np.arange(len(values)), values] = flip(self.own, len(values), rng)
        return bits


@lru_cache(maxsize=1 << 10)
def _least_other(epsilon: Fraction) -> Fraction:
    return rounded_up(lambda: 1 / (ball(epsilon).exp() + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetSelection(_Bits, _OneOfTwoParts):
    r"""Report a random set of the values 0, ..., ``values`` - 1 that favours the user's value.

    The set has ``size`` elements: values/(e^epsilon + 1), rounded to an integer >= 1. A report is a
    row of booleans. The variance of the estimates is about the smallest of all mechanisms in this
    module.

    >>> SubsetSelection(epsilon=1, values=10).size
    3
    """

    name: ClassVar[str] = "subset-selection"

    @property
    def size(self) -> int:
        r"""The number of elements of a reported set."""
        return _size(self.epsilon, self.values)

    @property
    def _parts(self) -> tuple[int, int]:
        return self.size, self.values

    @property
    def other(self) -> Fraction:
        named = self.size - self.own  # the expected number of other values in a report
        return named / (self.values - 1)

    @property
    def triple(self) -> Fraction:
        pairs = Fraction((self.size - 1) * (self.size - 2), (self.values - 1) * (self.values - 2))
        return self.own * pairs

    @property
    def outcomes(self) -> int:
        return math.comb(self.values, self.size)

    def _law(self, value: int) -> dict[Outcome, Fraction]:
        k, size = self.values, self.size
        with_own = self.own / math.comb(k - 1, size - 1)
        without = (1 - self.own) / math.comb(k - 1, size)
        return {
            tuple(int(v in chosen) for v in range(k)): with_own if value in chosen else without
            for chosen in combinations(range(k), size)
        }

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        # The other values in a report are first drawn as a uniform subset of all values but the
        # last: with Floyd's algorithm for all users at once or, for long reports, with keys for
        # each user. The subset is smaller by one if the user's value is included. Then the user's
        # value and the last value are swapped.
        n, k = len(values), self.values
        found, starts = np.zeros(n * k, dtype=np.bool_), k * np.arange(n)
        inside = flip(self.own, n, rng)
        for wanted, rows in ((self.size - 1, inside), (self.size, ~inside)):
            group = k * np.flatnonzero(rows)
            if k > _WIDE:
                for start in group.tolist():
                    found[start : start + k - 1] = subset(wanted, k - 1, rng)
                continue
            for last in range(k - 1 - wanted, k - 1):
                place = group + below(last + 1, len(group), rng)
                found[np.where(found[place], group + last, place)] = True
        own = starts + values
        found[starts + (k - 1)] = found[own]
        found[own] = inside
        return found.reshape(n, k)


@lru_cache(maxsize=1 << 10)
def _size(epsilon: Fraction, values: int) -> int:
    best = narrow(lambda: values / (ball(epsilon).exp() + 1), 32)
    return max(1, round(best.lower))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHashing(_OneOfTwoParts):
    r"""Hash the value to one of ``base`` symbols and apply randomised response to the symbol.

    The hash of a value is the inner product, modulo the prime ``base``, of its digits in this base
    and the same number of random digits. So two values collide with probability exactly 1/base. A
    report is a row (seed, symbol).

    >>> LocalHashing(epsilon=2, values=1000).base
    7
    """

    name: ClassVar[str] = "local-hashing"

    @property
    def base(self) -> int:
        r"""The largest prime <= max(2, e^min(epsilon, 6) + 1) whose count table fits in memory.

        The count table has one entry for each possible report; :meth:`supports` computes it.
        """
        return _prime(self.epsilon, self.values)

    @property
    def _digits(self) -> int:
        return _digits(self.values, self.base)

    @property
    def _parts(self) -> tuple[int, int]:
        return 1, self.base

    @property
    def other(self) -> Fraction:
        return Fraction(1, self.base)

    @property
    def triple(self) -> Fraction:
        # With one digit, two hashes determine all others.
        return self.own / int(self.base ** min(self._digits, 2))

    @property
    def width(self) -> int:
        return 2

    @property
    def outcomes(self) -> int:
        return int(self.base ** (self._digits + 1))

    def _law(self, value: int) -> dict[Outcome, Fraction]:
        seeds, rest = self.base**self._digits, (1 - self.own) / (self.base - 1)
        return {
            (seed, symbol): (self.own if symbol == int(hashed) else rest) / seeds
            for seed, hashed in enumerate(self._hash(np.arange(seeds), np.array(value)))
            for symbol in range(self.base)
        }

    def _hash(self, seeds: Integers, values: Integers) -> Integers:
        total = np.zeros(len(seeds), dtype=np.int64)
        for _ in range(self._digits):
            seeds, own = np.divmod(seeds, self.base)
            values, digit = np.divmod(values, self.base)
            total += own * digit
        return total % self.base

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        seeds = below(self.base**self._digits, len(values), rng)
        symbols = self._hash(seeds, values)
        lies = np.flatnonzero(~flip(self.own, len(values), rng))
        symbols[lies] = _another(symbols[lies], self.base, rng)
        return np.stack((seeds, symbols), axis=1)

    def supports(self, reports: Reports) -> Integers:
        g, d = self.base, self._digits
        seeds, symbols = reports.astype(np.int64).T  # the product exceeds narrow integers
        table = np.bincount(seeds * g + symbols, minlength=g ** (d + 1))
        return inner_product_counts(table, g, d)[: self.values]

    @property
    def _range(self) -> tuple[int, Any]:
        return 0, np.array([self.base**self._digits - 1, self.base - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class HadamardResponse(_OneOfTwoParts):
    r"""Report the index of a column of a Hadamard matrix.

    For the user's value v, the columns whose entry in row v + 1 is 1 are more probable than those
    whose entry is -1. The number of columns is the smallest power of two above ``values``.

    >>> HadamardResponse(epsilon=1, values=100).other
    Fraction(1, 2)
    """

    name: ClassVar[str] = "hadamard-response"

    @property
    def _digits(self) -> int:
        return self.values.bit_length()  # 2^digits > values: row 0 is all 1 and belongs to no value

    @property
    def _parts(self) -> tuple[int, int]:
        return 1, 2

    @property
    def other(self) -> Fraction:
        return Fraction(1, 2)

    @property
    def triple(self) -> Fraction:
        # The product of the rows of values 0 and 1 is the row of value 2, but not the row of 3.
        return self.own / (4 if self.values > 3 else 2)

    @property
    def outcomes(self) -> int:
        return 1 << self._digits

    def _law(self, value: int) -> dict[Outcome, Fraction]:
        half = 1 << (self._digits - 1)
        return {
            y: ((1 - self.own) if (y & (value + 1)).bit_count() % 2 else self.own) / half
            for y in range(2 * half)
        }

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        found, rows = below(1 << self._digits, len(values), rng), values + 1
        odd = (np.bitwise_count(found & rows) & 1).astype(np.bool_)
        # Where the parity is wrong, one bit in which the row is 1 is flipped.
        turned = odd == flip(self.own, len(values), rng)
        return np.where(turned, found ^ (rows & -rows), found)

    def supports(self, reports: Reports) -> Integers:
        table = np.zeros((1 << self._digits, 2), dtype=np.int64)
        table[:, 0] = np.bincount(reports, minlength=len(table))
        return inner_product_counts(table, 2, self._digits)[1 : self.values + 1]

    @property
    def _range(self) -> tuple[int, Any]:
        return 0, (1 << self._digits) - 1


def inner_product_counts(table: Integers, base: int, digits: int) -> Integers:
    r"""Return, for every v, the sum over all s of table[s, <s, v> mod ``base``].

    v and s are vectors of ``digits`` digits in the base ``base``, and <s, v> is their inner
    product. Each step replaces one digit of s by one digit of v, in integer arithmetic.
    """
    for digit in range(digits):
        held = table.reshape(base ** (digits - 1 - digit), base, base**digit, base)
        table = np.zeros_like(held)
        for v in range(base):
            for s in range(base):
                table[:, v] += np.roll(held[:, s], -s * v % base, axis=-1)
    found: Integers = table.reshape(-1, base)[:, 0]
    return found


def _digits(values: int, base: int) -> int:
    digits = 1
    while base**digits < values:
        digits += 1
    return digits


@lru_cache(maxsize=1 << 10)
def _prime(epsilon: Fraction, values: int) -> int:
    # For larger epsilon the report almost surely equals the hash, and a larger base changes little.
    most = narrow(lambda: ball(min(epsilon, Fraction(6))).exp() + 1, 32).lower
    bases = range(2, math.floor(most) + 1)
    primes = [g for g in bases if all(g % d for d in range(2, math.isqrt(g) + 1))]
    fitting = (g for g in primes if g == 2 or g ** (_digits(values, g) + 2) <= _ROOM)
    return max(fitting, default=2)  # for a tiny epsilon the lower bound may be less than 2


FAMILIES: Final[dict[str, type[LocalReport]]] = {
    each.name: each
    for each in (
        RandomisedResponse,
        UnaryEncoding,
        SubsetSelection,
        LocalHashing,
        HadamardResponse,
    )
}
r"""All mechanisms by their names."""


def report_from_json(data: object) -> LocalReport:
    r"""Parse the result of :meth:`LocalReport.to_json`.

    >>> report = RandomisedResponse(epsilon=1, values=10)
    >>> report_from_json(report.to_json()) == report
    True

    Raises :class:`InvalidParameter` if ``data`` is not exactly the JSON of such a mechanism, for
    example if a probability differs.
    """
    kind = FAMILIES.get(str(data.get("mechanism"))) if isinstance(data, Mapping) else None
    if kind is not None and isinstance(data, Mapping):
        given = {name: data[name] for name in parameter_names(kind) if name in data}
        with suppress(TypeError):
            made = kind(**given, scope=Scope.from_json(data.get("scope")))
            if made.to_json() == data:
                return made
    raise InvalidParameter("report", data, "must be the JSON of a mechanism of dpcore.local")
