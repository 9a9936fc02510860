r"""Strategy matrices C of the matrix mechanism: noise z is added to C x, and B(C x + z) released.

Row t of x is the sum of round t; the workload is B C, e.g. prefix sums. Every C is lower
triangular, so inputs may depend on earlier releases. Denisov, McMahan, Rush, Smith and Thakurta,
"Improved Differential Privacy for SGD via Optimal Private Linear Operators on Adaptive Streams"
(2022). Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from flint import arb, fmpz_mat

from accounting.errors import NotDerived
from dpcore.continual.square_root import column
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import ball
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
"""Integers G of any size, and a unit u, with C^T C = u G."""

MOST_ROUNDS: Final = 1 << 16
r"""The largest number of rounds of a strategy."""

MOST_DENSE: Final = 1 << 12
r"""The largest number of rounds for which all products of columns are computed."""

_LEAST_GRID: Final = 16
_MOST_GRID: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy(ABC):
    r"""A lower triangular matrix C with ``rounds`` columns: noise is added to C x."""

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
        r"""The strategy in the syntax of :func:`read_strategy`."""
        return self.name

    def to_json(self) -> dict[str, Any]:
        r"""The name and the number of rounds."""
        return {"strategy": self.written, "rounds": self.rounds}

    def first_column(self) -> list[arb] | None:
        r"""The first column c as arb enclosures, if C_ij = c_(i-j) with c_0 >= c_1 >= ... >= 0.

        None if C is not such a Toeplitz matrix, or is not recognised as one.
        """
        return None

    @abstractmethod
    def longest(self) -> arb:
        r"""The squared l2 norm of the longest column, as an arb enclosure."""

    @abstractmethod
    def gram(self) -> Products:
        r"""Integers G and a unit u with C^T C = u G, exactly."""

    def _few(self) -> None:
        if self.rounds > MOST_DENSE:
            reason = (
                f"it needs all products of its columns, which is supported up to {MOST_DENSE} "
                "rounds"
            )
            raise NotDerived(f"the sensitivity of {self.written} over {self.rounds} rounds", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Strategy):
    r"""The noisy nodes of ``dpcore.continual.TreeSum``: dyadic blocks of rounds."""

    name: ClassVar[str] = "tree"

    @property
    def integral(self) -> bool:
        return True

    def longest(self) -> arb:
        r"""The squared norm of the first column, whose round is in a block of each size."""
        return arb(self.rounds.bit_length())

    def gram(self) -> Products:
        r"""The numbers G_ij of blocks that contain both rounds."""
        self._few()
        found = np.zeros((self.rounds, self.rounds), dtype=np.int64)
        size = 1
        while size <= self.rounds:
            # Blocks of this size that are the smallest block in the binary form of their end.
            for start in range(0, self.rounds - size + 1, 2 * size):
                found[start : start + size, start : start + size] += 1
            size *= 2
        return found, Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toeplitz(Strategy):
    r"""C_ij = ``coefficients[i - j]``, zero beyond the last coefficient: constant on diagonals."""

    name: ClassVar[str] = "toeplitz"

    coefficients: Sequence[RationalLike]

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        given = self.coefficients
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise InvalidParameter("coefficients", given, "must be a non-empty list of numbers")
        if len(given) > self.rounds:
            least = f"must be at most the number of rounds, {self.rounds}"
            raise InvalidParameter("coefficients", len(given), least)
        found = tuple(rational("coefficients", each) for each in given)
        if found[0] <= 0:
            raise InvalidParameter("coefficients", given, "the first coefficient must be > 0")
        object.__setattr__(self, "coefficients", found)

    @property
    def integral(self) -> bool:
        return all(each.denominator == 1 for each in self._exact)

    @property
    def written(self) -> str:
        r"""The strategy with its coefficients."""
        return f"{self.name}:c={' '.join(map(write_rational, self._exact))}"

    @property
    def _exact(self) -> list[Fraction]:
        return [Fraction(each) for each in self.coefficients]

    def first_column(self) -> list[arb] | None:
        r"""The first column, if the coefficients are nonnegative and non-increasing."""
        given = [*self._exact, Fraction(0)]
        if any(a < b for a, b in pairwise(given)):
            return None
        return [*map(ball, self._exact), *([arb(0)] * (self.rounds - len(given) + 1))]

    def longest(self) -> arb:
        r"""The squared norm of the first column, which contains all coefficients."""
        return sum((ball(each * each) for each in self._exact), arb(0))

    def gram(self) -> Products:
        r"""C^T C: entry (i, i + d) is the sum of c_s c_(s+d) over s < T - i - d."""
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
    r"""The square root of the prefix-sum matrix, c_k = binom(2k, k)/4^k, in ``bands`` diagonals.

    With as many bands as rounds (``bands`` 0) it is the square-root factorisation; with one band
    the noise of each round is independent, as in DP-SGD. Fichtenberger, Henzinger and Upadhyay
    (2023); Kalinin and Lampert (2024), "Banded Square Root Matrix Factorization for Differentially
    Private Model Training". With a ``grid`` the entries are integers, floor(grid c_k) but at least
    1, as in ``dpcore.continual.SquareRootSum``.
    """

    name: ClassVar[str] = "banded"

    bands: int = 0
    grid: int = 0

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        bands, grid = (integer(name, getattr(self, name), at_least=0) for name in ("bands", "grid"))
        if bands > self.rounds:
            least = f"must be at most the number of rounds, {self.rounds}"
            raise InvalidParameter("bands", bands, least)
        if grid and (grid & (grid - 1) or not _LEAST_GRID <= grid <= _MOST_GRID):
            raise InvalidParameter("grid", grid, "must be a power of two from 16 to 2^20")
        object.__setattr__(self, "bands", bands or self.rounds)
        object.__setattr__(self, "grid", grid)

    @property
    def integral(self) -> bool:
        r"""Whether a grid is given, so that all entries are integers."""
        return bool(self.grid)

    @property
    def written(self) -> str:
        r"""The strategy as text; its name is ``square-root`` if no diagonal is omitted."""
        whole = self.bands == self.rounds
        keys = [] if whole else [f"bands={self.bands}"]
        keys += [f"grid={self.grid}"] if self.grid else []
        name = "square-root" if whole else self.name
        return f"{name}:{','.join(keys)}" if keys else name

    def first_column(self) -> list[arb]:
        r"""The first column, which is non-increasing: its ratios are (2k + 1)/(2k + 2) < 1."""
        if self.grid:
            found = [arb(each) for each in column(self.bands, self.grid)]
        else:
            found, ratio = [], arb(1)
            for k in range(self.bands):
                found.append(ratio)
                ratio = ratio * (2 * k + 1) / (2 * k + 2)
        return found + [arb(0)] * (self.rounds - self.bands)

    def longest(self) -> arb:
        r"""The squared norm of the first column."""
        return sum((each * each for each in self.first_column()), arb(0))

    def gram(self) -> Products:
        r"""Always raises :class:`NotDerived`: the non-increasing first column suffices."""
        raise NotDerived(f"the products of columns of {self.written}", "use first_column()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(Strategy):
    r"""A lower triangular matrix given by its ``rows`` of exact numbers."""

    name: ClassVar[str] = "matrix"

    rows: Sequence[Sequence[RationalLike]]

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        given = self.rows
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidParameter("rows", given, "must be a list of rows")
        if len(given) != self.rounds:
            raise InvalidParameter("rows", len(given), f"must be {self.rounds}, one for each round")
        found = []
        for i, row in enumerate(given):
            if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != self.rounds:
                raise InvalidParameter("rows", row, f"must each contain {self.rounds} numbers")
            exact = tuple(rational("rows", each) for each in row)
            if any(exact[i + 1 :]):
                reason = "must be lower triangular; for another C = Q L with Q orthogonal, use L"
                raise InvalidParameter("rows", row, reason)
            found.append(exact)
        if not any(any(row) for row in found):
            raise InvalidParameter("rows", given, "must contain a nonzero number")
        object.__setattr__(self, "rows", tuple(found))

    @property
    def integral(self) -> bool:
        return all(Fraction(each).denominator == 1 for row in self.rows for each in row)

    def to_json(self) -> dict[str, Any]:
        r"""The strategy with its rows."""
        rows = [[write_rational(Fraction(each)) for each in row] for row in self.rows]
        return {"strategy": self.name, "rounds": self.rounds, "rows": rows}

    def longest(self) -> arb:
        r"""The squared norm of the longest column."""
        products, unit = self.gram()
        return ball(unit * int(products.diagonal().max()))

    def gram(self) -> Products:
        r"""G and u by exact multiplication."""
        self._few()
        exact = [[Fraction(each) for each in row] for row in self.rows]
        scale = lcm(*(each.denominator for row in exact for each in row))
        matrix = fmpz_mat([[int(each * scale) for each in row] for row in exact])
        found = (matrix.transpose() * matrix).tolist()
        return np.array([[int(each) for each in row] for row in found], dtype=object), Fraction(
            1, scale * scale
        )


STRATEGIES: Final[dict[str, tuple[str, ...]]] = {
    "tree": (),
    "square-root": ("grid",),
    "banded": ("bands", "grid"),
    "toeplitz": ("c",),
}
r"""The names that :func:`read_strategy` accepts, with their keys."""


def read_strategy(argument: str, text: str, rounds: int) -> Strategy:
    r"""Parse a strategy: ``tree``, ``square-root``, ``banded:bands=8``, ``toeplitz:c=1 1/2``.

    ``square-root:grid=64`` and ``banded:bands=32,grid=64`` have integer entries.
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
