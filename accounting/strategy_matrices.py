r"""Correlated noise: strategy matrices, participation patterns, and sensitivities.

Row t of a matrix x is the sum of the units' vectors in round t. The matrix mechanism adds noise z
to C x and releases B (C x + z). Here C is the strategy, B C is the workload, e.g. prefix sums, and
B is the decoder. Every C is lower triangular, so inputs may depend on earlier releases. Source:
Denisov, McMahan, Rush, Smith and Thakurta, "Improved Differential Privacy for SGD via Optimal
Private Linear Operators on Adaptive Streams" (2022).

Let G = C^T C. A pattern is the set of rounds in which one unit takes part, each time with a vector
of l2 norm at most 1. A unit with the pattern p changes C x in l2 norm by at most the square root of
the sum of \|G_ij\| over i and j in p. This bound is attained if no G_ij is negative. For such G the
squared sensitivity of C is therefore the largest sum of G_ij over the rounds i and j of a pattern.

A branch-and-bound search finds this maximum; dynamic programming gives the bounds of the search, or
the maximum itself if G_ij = 0 for all different rounds i, j of a pattern. The returned lower
and upper bounds are proven even if the search stops early. Source: Choquette-Choo, McMahan, Rush
and Thakurta (2023), "Multi-Epoch Matrix Factorization Mechanisms for Private Machine Learning".
Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import lcm
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from flint import arb, fmpz_mat

from accounting.errors import NotDerived
from dpcore.continual_sums import check_grid, column
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import (
    RationalLike,
    integer,
    make_integers,
    rational,
    whole_number,
    write_rational,
)
from dpcore.spec_syntax import find_name, read_keys, split_name

Products: TypeAlias = tuple[npt.NDArray[Any], Fraction]
"""(A, u) with C^T C = u A: a matrix of integers of any magnitude, and a rational unit."""

MOST_ROUNDS: Final = 1 << 16
r"""The largest number of rounds of a strategy."""

MOST_DENSE: Final = 1 << 12
r"""The largest number of rounds for which all products of columns are computed."""

_WORK: Final = 1 << 26
"""The array entries that a search reads (in about a second); more of them give tighter bounds."""

_SWEEPS: Final = 8
_BITS: Final = 256
_ROOM: Final = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy(ABC):
    r"""A strategy C of the matrix mechanism: a lower triangular matrix with ``rounds`` columns."""

    name: ClassVar[str]

    rounds: int

    def __post_init__(self) -> None:
        make_integers(self, "rounds", at_most=MOST_ROUNDS)

    @property
    @abstractmethod
    def integral(self) -> bool:
        r"""Whether all entries are integers, as integer noise requires."""

    @property
    def written(self) -> str:
        r"""The strategy in the syntax of :func:`read_strategy`; "matrix" for :class:`Dense`."""
        return self.name

    def to_json(self) -> dict[str, Any]:
        r"""The strategy and its number of rounds, as JSON."""
        return {"strategy": self.written, "rounds": self.rounds}

    def first_column(self) -> list[arb] | None:
        r"""Arb enclosures of the first column c, if C_ij = c_(i-j) with c_0 >= c_1 >= ... >= 0.

        Return None if C is not such a Toeplitz matrix, or is not recognised as such a matrix.
        """
        return None

    @abstractmethod
    def longest(self) -> arb:
        r"""An arb enclosure of the largest squared l2 norm of a column of C."""

    @abstractmethod
    def gram(self) -> Products:
        r"""(A, u) with C^T C = u A, exactly; raises :class:`NotDerived` if not supported."""

    def _few(self) -> None:
        if self.rounds > MOST_DENSE:
            reason = (
                "it needs the products of all pairs of columns, which are supported for at most "
                f"{MOST_DENSE} rounds"
            )
            raise NotDerived(f"the sensitivity of {self.written} over {self.rounds} rounds", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Strategy):
    r"""The tree strategy, where C x contains the sums of x over dyadic blocks of rounds."""

    name: ClassVar[str] = "tree"

    @property
    def integral(self) -> bool:
        return True

    def longest(self) -> arb:
        # The first round is in a block of each size, so the first column is the longest.
        return arb(self.rounds.bit_length())

    def gram(self) -> Products:
        # Entry (i, j) is the number of blocks that contain both round i and round j.
        self._few()
        found = np.zeros((self.rounds, self.rounds), dtype=np.int64)
        size = 1
        while size <= self.rounds:
            # Blocks that end at an odd multiple of their size.
            for start in range(0, self.rounds - size + 1, 2 * size):
                found[start : start + size, start : start + size] += 1
            size *= 2
        return found, Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toeplitz(Strategy):
    r"""A lower triangular C: C_ij = ``coefficients[i - j]``, or 0 beyond the last coefficient."""

    name: ClassVar[str] = "toeplitz"

    coefficients: Sequence[RationalLike] | npt.NDArray[Any]

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        given = _listed(self.coefficients)
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise InvalidParameter("coefficients", given, "must be a non-empty list of numbers")
        if len(given) > self.rounds:
            reason = f"must not contain more numbers than rounds ({self.rounds})"
            raise InvalidParameter("coefficients", given, reason)
        found = tuple(rational("coefficients", each) for each in given)
        if found[0] <= 0:
            raise InvalidParameter("coefficients", given, "must start with a number > 0")
        object.__setattr__(self, "coefficients", found)

    @property
    def integral(self) -> bool:
        return all(each.denominator == 1 for each in self._exact)

    @property
    def written(self) -> str:
        return f"{self.name}:c={' '.join(map(write_rational, self._exact))}"

    @property
    def _exact(self) -> list[Fraction]:
        return [Fraction(each) for each in self.coefficients]

    def first_column(self) -> list[arb] | None:
        given = [*self._exact, Fraction(0)]
        if any(a < b for a, b in pairwise(given)):
            return None
        return [*map(ball, self._exact), *([arb(0)] * (self.rounds - len(given) + 1))]

    def longest(self) -> arb:
        # The first column contains all coefficients.
        return sum((ball(each * each) for each in self._exact), arb(0))

    def gram(self) -> Products:
        # Entry (i, i + d) is the sum of c_s c_(s+d) over s < rounds - i - d.
        self._few()
        last, given = self.rounds, self._exact
        scale = lcm(*(each.denominator for each in given))
        steps = np.zeros(last, dtype=object)
        steps[: len(given)] = [int(each * scale) for each in given]
        found = np.zeros((last, last), dtype=object)
        for gap in range(len(given)):
            sums = np.cumsum(steps[: last - gap] * steps[gap:])[::-1]
            at = np.arange(last - gap)
            found[at, at + gap] = found[at + gap, at] = sums
        return found, Fraction(1, scale * scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Banded(Strategy):
    r"""The first ``bands`` diagonals of the square root of the prefix-sum matrix.

    Diagonal k has the entries c_k = binom(2k, k)/4^k. With as many bands as rounds (or ``bands`` 0)
    C is the strategy of the square-root factorisation; with one band the noise of each round is
    independent, as in DP-SGD. Sources: Fichtenberger, Henzinger and Upadhyay (2023); Kalinin and
    Lampert (2024), "Banded Square Root Matrix Factorization for Differentially Private Model
    Training". With a ``grid`` the entries are the integers max(floor(grid c_k), 1), as in
    ``dpcore.continual_sums.SquareRootSum``.
    """

    name: ClassVar[str] = "banded"

    bands: int = 0
    grid: int = 0

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        bands = integer("bands", self.bands, at_least=0)
        if bands > self.rounds:
            least = f"must be at most {self.rounds}, the number of rounds"
            raise InvalidParameter("bands", bands, least)
        object.__setattr__(self, "bands", bands or self.rounds)
        object.__setattr__(self, "grid", check_grid(self.grid))

    @property
    def integral(self) -> bool:
        return bool(self.grid)

    @property
    def written(self) -> str:
        whole = self.bands == self.rounds
        keys = [] if whole else [f"bands={self.bands}"]
        keys += [f"grid={self.grid}"] if self.grid else []
        name = "square-root" if whole else self.name
        return f"{name}:{','.join(keys)}" if keys else name

    def first_column(self) -> list[arb]:
        # The ratios (2k + 1)/(2k + 2) of adjacent coefficients are below 1.
        if self.grid:
            found = [arb(each) for each in column(self.bands, self.grid)]
        else:
            found, ratio = [], arb(1)
            for k in range(self.bands):
                found.append(ratio)
                ratio = ratio * (2 * k + 1) / (2 * k + 2)
        return found + [arb(0)] * (self.rounds - self.bands)

    def longest(self) -> arb:
        return sum((each * each for each in self.first_column()), arb(0))

    def gram(self) -> Products:
        # The first column is non-increasing, so the products are not needed.
        raise NotDerived(f"the products of columns of {self.written}", "use first_column()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(Strategy):
    r"""A lower triangular matrix given by its ``rows`` of exact numbers."""

    name: ClassVar[str] = "matrix"

    rows: Sequence[Sequence[RationalLike]] | npt.NDArray[Any]

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        given = _listed(self.rows)
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidParameter("rows", given, "must be a list of rows")
        if len(given) != self.rounds:
            raise InvalidParameter("rows", given, f"must contain {self.rounds} rows")
        found = []
        for i, row in enumerate(given):
            if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != self.rounds:
                raise InvalidParameter("rows", row, f"every row must contain {self.rounds} numbers")
            exact = tuple(rational("rows", each) for each in row)
            if any(exact[i + 1 :]):
                reason = "every row must be 0 after the diagonal; if C = Q L, Q orthogonal, use L"
                raise InvalidParameter("rows", row, reason)
            found.append(exact)
        if not any(any(row) for row in found):
            raise InvalidParameter("rows", given, "must contain a nonzero number")
        object.__setattr__(self, "rows", tuple(found))

    @property
    def integral(self) -> bool:
        return all(Fraction(each).denominator == 1 for row in self.rows for each in row)

    def to_json(self) -> dict[str, Any]:
        rows = [[write_rational(Fraction(each)) for each in row] for row in self.rows]
        return {"strategy": self.name, "rounds": self.rounds, "rows": rows}

    def longest(self) -> arb:
        products, unit = self.gram()
        return ball(unit * int(products.diagonal().max()))

    def gram(self) -> Products:
        self._few()
        exact = [[Fraction(each) for each in row] for row in self.rows]
        scale = lcm(*(each.denominator for row in exact for each in row))
        matrix = fmpz_mat([[int(each * scale) for each in row] for row in exact])
        found = (matrix.transpose() * matrix).tolist()
        return np.array([[int(each) for each in row] for row in found], dtype=object), Fraction(
            1, scale * scale
        )


def _listed(given: Any) -> Any:
    return given.tolist() if isinstance(given, np.ndarray) else given


STRATEGIES: Final[dict[str, tuple[str, ...]]] = {
    "tree": (),
    "square-root": ("grid",),
    "banded": ("bands", "grid"),
    "toeplitz": ("c",),
}
r"""The names that :func:`read_strategy` accepts, with their keys."""


def read_strategy(argument: str, text: str, rounds: int) -> Strategy:
    r"""Parse a strategy, e.g. ``tree``, ``square-root``, ``banded:bands=8``, ``toeplitz:c=1 1/2``.

    With a key ``grid``, as in ``banded:bands=32,grid=64``, the entries of C are integers.
    """
    name, rest = split_name(text)
    keys = find_name(argument, text, STRATEGIES, name=name)
    needed = [key for key in keys if key != "grid"]
    given = read_keys(argument, text, rest, keys, owner=name, needed=needed)
    try:
        if name == "tree":
            return Tree(rounds=rounds)
        if name == "toeplitz":
            return Toeplitz(rounds=rounds, coefficients=given["c"].split())
        numbers = {key: whole_number(key, value, at_least=1) for key, value in given.items()}
        return Banded(rounds=rounds, **numbers)
    except InvalidParameter as error:
        if error.argument == "rounds":
            raise
        raise InvalidParameter(argument, text, f"{error.argument} {error.reason}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    r"""The rounds in which one unit may take part: at most ``most`` rounds, at a minimum distance.

    Any two of these rounds differ by at least ``apart``. The default is a single round.
    ``Participation(most=6, apart=342)`` is six epochs of 342 rounds each; the order of the units
    may differ between epochs if each unit waits at least 342 rounds.
    """

    most: int = 1
    apart: int = 1

    def __post_init__(self) -> None:
        make_integers(self, "most", "apart")

    def patterns(self, rounds: int) -> int:
        r"""The largest number of rounds, out of ``rounds``, in which one unit may take part."""
        return min(self.most, -(-rounds // self.apart))


def best_pattern(
    products: Integers, participation: Participation, work: int = _WORK
) -> tuple[tuple[int, ...], int]:
    r"""Find the pattern with the largest sum of G_ij over its rounds i and j, and an upper bound.

    ``products`` is G: a symmetric matrix without negative entries, whose sums over a pattern fit
    int64. The upper bound holds for the sums of all patterns. It equals the sum of the returned
    pattern unless the search stopped early, after reading ``work`` entries of G.
    """
    return _Search(products, participation, work).run()


class _Search:
    # Best-first search. A node is an increasing list of rounds, with a bound on all its extensions.

    def __init__(self, products: Integers, participation: Participation, work: int) -> None:
        self.products, self.apart = products, participation.apart
        self.rounds = len(products)
        self.count = participation.patterns(self.rounds)
        self.left = work
        self.alone = np.ascontiguousarray(products.diagonal())
        self.rows = self._rows()
        self.best: tuple[int, ...] = ()
        self.value = -1

    def run(self) -> tuple[tuple[int, ...], int]:
        self._try(tuple(range(0, self.rounds, self.apart))[: self.count])
        self._try(self._path(self.rows[self.count]))
        heap: list[tuple[int, tuple[int, ...], int]] = []
        self._branch(heap, (), 0, np.zeros(self.rounds, dtype=np.int64))
        while heap and -heap[0][0] > self.value:
            if self.left < 0:
                return self.best, -heap[0][0]
            _, chosen, value = heapq.heappop(heap)
            crossed = self.products[list(chosen)].sum(axis=0)
            if value > self.value:
                self.best, self.value = chosen, value
            if len(chosen) < self.count:
                self._branch(heap, chosen, value, crossed)
        return self.best, self.value

    def _branch(
        self,
        heap: list[tuple[int, tuple[int, ...], int]],
        chosen: tuple[int, ...],
        value: int,
        crossed: Integers,
    ) -> None:
        # A bound for each possible next round: its products with the chosen rounds, a bound on its
        # row, and the largest total of both over the later rounds.
        rest = self.count - len(chosen)
        first = chosen[-1] + self.apart if chosen else 0
        after = self._tails(2 * crossed + self.rows[rest], rest)[rest - 1]
        gained = self.alone + 2 * crossed
        reached = value + 2 * crossed + self.rows[rest] + after[self.apart :][: self.rounds]
        self.left -= self.rounds * (rest + len(chosen) + 1)
        for at in np.flatnonzero(reached[first:] > self.value) + first:
            node = (*chosen, int(at))
            heapq.heappush(heap, (-int(reached[at]), node, value + int(gained[at])))

    def _tails(self, weights: Integers, count: int) -> list[Integers]:
        # For c = 0, 1, ...: the largest weight of c rounds from t on; 0 beyond the last round.
        size, apart = self.rounds, self.apart
        found = [np.zeros(size + apart, dtype=np.int64)]
        for _ in range(count):
            taken = np.zeros(size + apart, dtype=np.int64)
            taken[:size] = weights + found[-1][apart:]
            found.append(np.maximum.accumulate(taken[::-1])[::-1])
        return found

    def _path(self, weights: Integers) -> tuple[int, ...]:
        # The pattern of the largest weight, ignoring products of different rounds.
        tails = self._tails(weights, self.count)
        chosen: list[int] = []
        at = 0
        for c in range(self.count, 0, -1):
            best = tails[c][at]
            while at < self.rounds and weights[at] + tails[c - 1][at + self.apart] < best:
                at += 1
            if at >= self.rounds:
                break
            chosen.append(at)
            at += self.apart
            if at >= self.rounds:
                break
        return tuple(chosen)

    def _rows(self) -> list[Integers]:
        # rows[r][i]: the largest sum_(j in pattern) G_ij over patterns of r rounds that contain i.
        size, apart = self.rounds, self.apart
        at = np.arange(size)
        right, left = ([np.zeros(size, dtype=np.int64)] for _ in range(2))
        forward, backward = (np.zeros((size, size + apart), dtype=np.int64) for _ in range(2))
        for _ in range(self.count - 1):
            for table, found, flipped in ((forward, right, 1), (backward, left, -1)):
                table[:, :size] = self.products[:, ::flipped] + table[:, apart:]
                table[:, size:] = 0
                np.maximum.accumulate(table[:, ::-1], axis=1, out=table[:, ::-1])
                places = at if flipped == 1 else size - 1 - at
                found.append(table[at, np.minimum(places + apart, size)])
        found = [np.zeros(size, dtype=np.int64)]
        for r in range(1, self.count + 1):
            sides = [left[a] + right[r - 1 - a] for a in range(r)]
            found.append(self.alone + np.max(sides, axis=0))
        return found

    def _try(self, pattern: tuple[int, ...]) -> None:
        # Move one round at a time to its best position between its neighbours while this helps.
        chosen = list(pattern)
        for _ in range(_SWEEPS):
            before = list(chosen)
            for k in range(len(chosen)):
                low = chosen[k - 1] + self.apart if k else 0
                high = chosen[k + 1] - self.apart if k + 1 < len(chosen) else self.rounds - 1
                others = chosen[:k] + chosen[k + 1 :]
                gains = self.alone[low : high + 1] + 2 * self.products[others, low : high + 1].sum(
                    axis=0
                )
                chosen[k] = low + int(gains.argmax())
            if chosen == before:
                break
        value = int(self.products[np.ix_(chosen, chosen)].sum())
        if value > self.value:
            self.best, self.value = tuple(chosen), value


@dataclass(frozen=True, slots=True, kw_only=True)
class SquaredSensitivity:
    r"""An enclosure of the squared sensitivity, and how it was computed, as text."""

    squared: Enclosure
    how: str

    @property
    def exact(self) -> bool:
        r"""Whether the lower and the upper bound are known to differ only by rounding."""
        return self.how != _SEARCHED


_LONGEST: Final = "one round: the longest column"
_FALLING: Final = "the earliest rounds are the worst, as the coefficients are non-increasing"
_FOUND: Final = "the worst pattern of rounds"
_SEARCHED: Final = "from below by one pattern of rounds, from above by a bound on all patterns"


@lru_cache(maxsize=64)
def squared_sensitivity(strategy: Strategy, participation: Participation) -> SquaredSensitivity:
    r"""Enclose the squared sensitivity of C x to one unit, whose vectors have l2 norm at most 1.

    The sensitivity is the largest l2 norm by which a unit with any allowed pattern changes C x.
    """
    with precision(_BITS):
        if participation.patterns(strategy.rounds) == 1:
            return SquaredSensitivity(squared=Enclosure.of(strategy.longest()), how=_LONGEST)
        column = strategy.first_column()
        if column is not None:
            return SquaredSensitivity(
                squared=Enclosure.of(_falling(column, participation)), how=_FALLING
            )
    return _searched(strategy, participation)


def _falling(column: list[arb], participation: Participation) -> arb:
    # ||C u||^2 for u = 1 in k rounds 0, b, ..., (k-1) b: entry t is the sum of c_(t - jb) over j <
    # k.
    apart = participation.apart
    width = apart * participation.patterns(len(column))
    sums: list[arb] = []
    for t, each in enumerate(column):
        total = each + (sums[t - apart] if t >= apart else 0)
        sums.append(total - column[t - width] if t >= width else total)
    return sum((each * each for each in sums), arb(0))


def _searched(strategy: Strategy, participation: Participation) -> SquaredSensitivity:
    products, unit = strategy.gram()
    # Products of two rounds that are too close for one pattern count as 0.
    at = np.arange(len(products))
    gap = np.abs(at[:, None] - at[None, :])
    signed = np.where((gap == 0) | (gap >= participation.apart), products, 0)
    most = int(np.abs(signed).max())
    # Sums of count^2 entries must fit int64; the bits shifted out are rounded up.
    count = participation.patterns(strategy.rounds)
    shift = max(most.bit_length() + 2 * count.bit_length() - _ROOM, 0)
    above: Integers = (-((-np.abs(signed)) >> shift)).astype(np.int64)
    pattern, upper = best_pattern(above, participation)
    chosen = np.ix_(pattern, pattern)
    lower = max(int(signed[chosen].sum()), int(signed.diagonal().max()))
    with precision(_BITS):
        ends = Enclosure(unit * lower, unit * (upper << shift))
    exact = shift == 0 and ends.lower == ends.upper
    return SquaredSensitivity(squared=ends, how=_FOUND if exact else _SEARCHED)
