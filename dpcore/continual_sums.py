r"""Private running sums of a stream, by a binary tree, doubling blocks or correlated noise.

A :class:`ContinualSum` is an immutable configuration (horizon, noise, range of the items);
``start()`` returns a stream to which items are added one by one. Every released sum is computed
from noisy values. A noisy value is an integer that depends on the items, plus fresh noise. If the
first item changes by one unit, the noisy values change by the vector ``moves``; any other item
changes them by no more. So the whole stream has exactly the privacy cost of one release of
``mechanism``, even if items depend on earlier releases. ``accounting.guarantee`` derives the
guarantee.

:class:`TreeSum` and :class:`DoublingSum` add noisy blocks of items: Dwork, Naor, Pitassi and
Rothblum, "Differential Privacy under Continual Observation" (2010); Chan, Shi and Song, "Private
and Continual Release of Statistics" (2011). :class:`SquareRootSum` correlates its noise over time
by a square root of the matrix of prefix sums: Henzinger, Upadhyay and Upadhyay, "Almost Tight Error
Bounds on Differentially Private Continual Counting" (2023); Fichtenberger, Henzinger and Upadhyay,
"Constant Matters" (2023). Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias, final

from flint import arb, arb_series, ctx

from dpcore.errors import DpcoreError, InvalidParameter, PrecisionExhausted, Unrepresentable
from dpcore.forks import OwnedState
from dpcore.mechanism import A_NOISE, InScope, Mechanism, Relation, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, integer_below, precision
from dpcore.numbers.parameter import Exact, Of, Whole, check_fields, integer, rational
from dpcore.sampling.rng import SYSTEM, Rng

__all__ = ["ContinualSum", "DoublingSum", "RunningSum", "SquareRootSum", "Total", "TreeSum"]

_Nodes: TypeAlias = tuple[tuple[int, int], ...]
_Draws: TypeAlias = tuple[int, tuple[int, ...]]

_GUARD: Final = 64
_BITS: Final = 96
_EXTRA: Final = 64
_LEAST_GRID: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    r"""A released sum: ``value`` estimates the sum of the first ``items`` items.

    >>> Total(value=Fraction(7, 2), items=4).items
    4
    """

    value: Fraction
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualSum(ABC):
    r"""The immutable configuration of running sums of at most ``horizon`` items.

    Items are multiples of ``unit`` in [``low``, ``high``] (for example ``unit="1/16"``). Under the
    relation ``replace`` neighbouring streams differ in the value of one item; under ``add-remove``
    one stream has 0 in place of one item. The privacy unit is one item. If the unit of ``scope`` is
    ``user``, the caller must ensure that each user contributes at most one item.

    One draw of ``noise`` is added to each noisy value, in multiples of ``unit`` (for
    ``SquareRootSum``, of ``unit``/``grid``).

    Raises :class:`InvalidParameter` if

    - ``horizon`` is not an integer from 1 to ``most``;
    - ``noise`` is not a symmetric :class:`Noise`;
    - ``low`` >= ``high``, or one of them is not a multiple of ``unit``;
    - the relation is add-remove and 0 is not in [``low``, ``high``].
    """

    name: ClassVar[str]
    most: ClassVar[int] = 1 << 40
    r"""The largest horizon."""

    horizon: Whole = Whole()
    noise: Of[Noise] = Of(Noise, A_NOISE)
    low: Exact = Exact(0)
    high: Exact = Exact(1)
    unit: Exact = Exact(1, zero="items are multiples of the unit")
    scope: InScope = InScope()

    def __post_init__(self) -> None:
        check_fields(self)
        integer("horizon", self.horizon, at_most=self.most)
        for name in ("low", "high"):
            end = getattr(self, name)
            if (end / self.unit).denominator != 1:
                raise InvalidParameter(name, end, f"must be a multiple of the unit {self.unit}")
        if self.low >= self.high:
            raise InvalidParameter("high", self.high, f"must be > low = {self.low}")
        if not self.noise.symmetric:
            raise InvalidParameter("noise", self.noise, "must be symmetric, or totals are biased")
        if self.scope.relation is Relation.ADD_REMOVE and not self.low <= 0 <= self.high:
            reason = "the range must contain 0, the value of an absent item under add-remove"
            raise InvalidParameter("low, high", f"{self.low}, {self.high}", reason)

    @property
    def step(self) -> int:
        r"""The largest change of an item between neighbouring streams, in multiples of ``unit``."""
        ends = self.high, -self.low
        apart = max(ends) if self.scope.relation is Relation.ADD_REMOVE else sum(ends)
        return int(apart / self.unit)

    @property
    @abstractmethod
    def moves(self) -> tuple[int, ...]:
        r"""The nonzero changes of the noisy values if the first item changes by one unit.

        If another item changes by one unit, the k-th largest change is at most the k-th largest
        entry of ``moves``, for every k.
        """

    @property
    def sensitivity(self) -> Sensitivity:
        r"""The joint sensitivity of all noisy values: a box with simultaneously attained bounds."""
        return Sensitivity.box(tuple(self.step * move for move in self.moves))

    @property
    def mechanism(self) -> Mechanism:
        r"""A single release with the privacy cost of the whole stream."""
        return Mechanism(noise=self.noise, sensitivity=self.sensitivity, scope=self.scope)

    @abstractmethod
    def mean_squared_error(self, taken: int) -> Enclosure:
        r"""Enclose E[(value - s)^2] of the last total after ``taken`` items; s is its exact sum."""

    def covered(self, taken: int) -> int:
        r"""The number of items in the latest total after ``taken`` items; by default all."""
        return self.checked_count(taken)

    def start(self, *, rng: Rng = SYSTEM) -> RunningSum:
        r"""Return a new stream, before its first item."""
        return RunningSum(self, rng)

    def checked_count(self, taken: object) -> int:
        r"""Return ``taken`` as an integer, checked to lie between 0 and the horizon."""
        return integer("taken", taken, at_least=0, at_most=self.horizon, limit="horizon")

    @abstractmethod
    def _begin(self) -> Any: ...

    @abstractmethod
    def _next(self, state: Any, taken: int, item: int, rng: Rng) -> tuple[Any, Fraction | None]:
        r"""The state after item number ``taken``, and the new total in units or None."""

    def _units(self, item: object) -> int:
        exact = rational("item", item)
        if not self.low <= exact <= self.high:
            raise InvalidParameter("item", item, f"must lie in [{self.low}, {self.high}]")
        steps = exact / self.unit
        if steps.denominator != 1:
            raise InvalidParameter("item", item, f"must be a multiple of the unit {self.unit}")
        return int(steps)


def variance(noise: Noise) -> tuple[Fraction, Fraction]:
    found = noise.variance
    ends = (found, found) if isinstance(found, Fraction) else (found.lower, found.upper)
    if not (isinstance(ends[0], Fraction) and isinstance(ends[1], Fraction)):
        raise Unrepresentable(f"the variance of {noise!r} has no finite bound")
    return ends[0], ends[1]


@final
class RunningSum(OwnedState):
    r"""A stream to which items are added in order; :meth:`add` returns the released running sum.

    >>> from dpcore import DiscreteLaplace, SeededRng
    >>> from dpcore.continual_sums import TreeSum
    >>> tree = TreeSum(horizon=4, noise=DiscreteLaplace(scale=3))
    >>> stream = tree.start(rng=SeededRng(1))
    >>> [stream.add(item).items for item in (1, 0, 1, 1)]
    [1, 2, 3, 4]
    >>> stream.add(1)
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: item = 1: exceeds the horizon: the guarantee is for 4 items

    A :class:`DpcoreError`, for example for an invalid item, leaves the stream unchanged. After any
    other exception while an item is added, and in a forked process, every further ``add`` raises an
    error. Copying and pickling raise ``TypeError``: a second stream from the same state would draw
    noise for the same items again.
    """

    __slots__ = ("_rng", "_taken", "_total", "configuration")

    _one: ClassVar[str] = "a copy would add fresh noise to the same items"

    def __init__(self, configuration: ContinualSum, rng: Rng = SYSTEM) -> None:
        if not isinstance(configuration, ContinualSum):
            raise InvalidParameter("configuration", configuration, "must be a ContinualSum")
        if not isinstance(rng, Rng):
            raise InvalidParameter("rng", rng, "must be an Rng")
        self.configuration: Final = configuration
        self._rng = rng
        self._taken = 0
        self._total = Total(value=Fraction(0), items=0)
        super().__init__(configuration._begin())

    @property
    def taken(self) -> int:
        r"""The number of items so far."""
        return self._taken

    @property
    def total(self) -> Total:
        r"""The last released total; initially an exact 0."""
        return self._total

    def add(self, item: object) -> Total:
        r"""Add one item and return the new total; ``DoublingSum`` may return the previous total.

        Raises :class:`InvalidParameter`, before any draw, if the item is not a number, is out of
        range, is not a multiple of the unit, or exceeds the horizon.
        """
        with self._lock.here():
            state, taken, setting = self._state, self._taken + 1, self.configuration
            if state is None:
                reason = (
                    "cannot be added: another item is being added, an earlier one was interrupted, "
                    "or the process "
                )
                raise InvalidParameter("item", item, reason + "was forked: start a new stream")
            if taken > setting.horizon:
                reason = f"exceeds the horizon: the guarantee is for {setting.horizon} items"
                raise InvalidParameter("item", item, reason)
            units = setting._units(item)
            # While noise is drawn the state is None: a signal handler or an Rng that calls back is
            # refused.
            self._state = None
            try:
                after, value = setting._next(state, taken, units, self._rng)
            except DpcoreError:
                self._keep(state, item)  # nothing was released, and the drawn noise is dropped
                raise
            self._keep(after, item)
            self._taken = taken
            if value is not None:
                self._total = Total(value=value * setting.unit, items=taken)
            return self._total

    def _keep(self, state: Any, item: object) -> None:
        if self._gone():
            reason = "cannot be added: the process was forked; start a new stream"
            raise InvalidParameter("item", item, reason)
        self._state = state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.configuration.name}: {self._taken} items>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlockSum(ContinualSum):
    # Every total is a sum of noisy blocks, with the error of one draw per block.

    @abstractmethod
    def _draws(self, covered: int) -> int: ...

    def mean_squared_error(self, taken: int) -> Enclosure:
        draws = self._draws(self.covered(self.checked_count(taken)))
        low, high = variance(self.noise)
        scale = draws * Fraction(self.unit) ** 2
        return Enclosure(scale * low, scale * high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSum(_BlockSum):
    r"""Release the sum after each of ``horizon`` items, from noisy nodes of a binary tree.

    The sum of the first t items adds the blocks of the binary expansion of t, e.g. 7 = 4 + 2 + 1;
    the noise of each block is drawn once. The tree has floor(log2 T) + 1 levels, where T is the
    ``horizon``. An item is in at most one block of each level, and the first item is in a block of
    every level. ``moves`` therefore contains a 1 for each level. The error after t items is the sum
    of one draw for each 1 bit of t.

    >>> from dpcore import DiscreteLaplace
    >>> tree = TreeSum(horizon=1000, noise=DiscreteLaplace(scale=10))
    >>> len(tree.moves), tree.sensitivity.amount[:2]
    (10, (1, 1))
    """

    name: ClassVar[str] = "tree"

    @property
    def moves(self) -> tuple[int, ...]:
        return (1,) * self.horizon.bit_length()

    def _draws(self, covered: int) -> int:
        return covered.bit_count()

    def _begin(self) -> _Nodes:
        return ()

    def _next(self, state: _Nodes, taken: int, item: int, rng: Rng) -> tuple[_Nodes, Fraction]:
        # The state contains the blocks of taken - 1 items, largest first, as (exact, noisy). As
        # many of the smallest blocks are merged with the item as `taken` has trailing zeros.
        merged = (taken & -taken).bit_length() - 1
        kept, last = state[: len(state) - merged], state[len(state) - merged :]
        exact = item + sum(each for each, _ in last)
        after = (*kept, (exact, exact + self.noise.sample(rng=rng)))
        return after, Fraction(sum(noisy for _, noisy in after))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublingSum(_BlockSum):
    r"""Release the sum when the number of items is a power of two, from disjoint noisy blocks.

    The blocks are item 1, item 2, items 3-4, items 5-8 and so on. Each item is in one block, so
    ``moves`` is (1,) for every horizon. Between two powers of two the last total is returned again;
    its ``items`` is the number of items in it. The error at 2^k items is the sum of k + 1 draws.

    >>> from dpcore import DiscreteLaplace, SeededRng
    >>> doubling = DoublingSum(horizon=100, noise=DiscreteLaplace(scale=1))
    >>> stream = doubling.start(rng=SeededRng(1))
    >>> [stream.add(1).items for _ in range(9)]
    [1, 2, 2, 4, 4, 4, 4, 8, 8]
    """

    name: ClassVar[str] = "doubling"

    @property
    def moves(self) -> tuple[int, ...]:
        return (1,)

    def covered(self, taken: int) -> int:
        r"""The largest power of two that is at most ``taken``."""
        count = self.checked_count(taken)
        return 1 << (count.bit_length() - 1) if count else 0

    def _draws(self, covered: int) -> int:
        return covered.bit_length()

    def _begin(self) -> tuple[int, int]:
        return 0, 0

    def _next(
        self, state: tuple[int, int], taken: int, item: int, rng: Rng
    ) -> tuple[tuple[int, int], Fraction | None]:
        # The exact sum of the open block, and the noisy sum of the closed blocks.
        block, released = state[0] + item, state[1]
        if taken & (taken - 1):
            return (block, released), None
        released += block + self.noise.sample(rng=rng)
        return (0, released), Fraction(released)


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareRootSum(ContinualSum):
    r"""Release the sum after each of at most 2^14 items, with noise correlated over time.

    The matrix A of prefix sums is R R, where R is lower triangular and Toeplitz with first column
    r_k = binom(2k, k)/4^k. The Toeplitz matrix C of the integers c_k = max(1, floor(g r_k))
    approximates g R, where g is the ``grid``. The noisy values are y = C x + z, where x is the
    stream and z is integer noise. The release is A C^-1 y = A x + A C^-1 z, a function of y,
    rounded to a multiple of 1/g. A x is a multiple of 1/g, so the value is exactly the sum plus the
    rounded noise.

    The noise is added in steps of 1/``grid`` of a unit; ``grid`` is a power of two from 16 to 2^20,
    by default at least 16 sqrt(horizon). ``moves`` is the first column of C, about grid/sqrt(pi k)
    at index k. With a discrete Gaussian the error is below that of the tree at the same guarantee.
    The l1 norm of ``moves`` is large, so with Laplace noise the tree is better on long streams.

    >>> from dpcore import DiscreteGaussian
    >>> root = SquareRootSum(horizon=4, noise=DiscreteGaussian(sigma_squared=4096), grid=32)
    >>> root.moves
    (32, 16, 12, 10)
    >>> root.mean_squared_error(1)
    Enclosure([3.9377441406249999, 4.0627441406250001])

    Raises :class:`InvalidParameter` if the grid is not a power of two from 16 to 2^20.
    """

    name: ClassVar[str] = "square-root"
    most: ClassVar[int] = 1 << 14

    grid: int = 0

    def __post_init__(self) -> None:
        ContinualSum.__post_init__(self)
        default = _LEAST_GRID << -(-(self.horizon - 1).bit_length() // 2)
        object.__setattr__(self, "grid", check_grid(self.grid) or default)

    @property
    def moves(self) -> tuple[int, ...]:
        return column(self.horizon, self.grid)

    def mean_squared_error(self, taken: int) -> Enclosure:
        r"""Bounds on the mean squared error of the total after ``taken`` items.

        The error, in units, is the noise sum_(k < taken) (h_k/g) z_k rounded to a multiple of 1/g.
        Here g is ``grid``, the z_k are draws of ``noise``, and the h_k are those of
        :func:`rounded`.
        """
        count = self.checked_count(taken)
        if not count:
            return Enclosure.exactly(0)
        with precision(_BITS):
            size = _squares(self.horizon, self.grid)[count - 1]
            step = ball(Fraction(self.unit) / self.grid)
            low, high = ((ball(end) * size).sqrt() for end in variance(self.noise))
            # Rounding changes the root mean square by at most half a step.
            least, most = ((low - arb("0.5")) * step).max(0) ** 2, ((high + arb("0.5")) * step) ** 2
            return Enclosure(Enclosure.of(least).lower, Enclosure.of(most).upper)

    def _begin(self) -> _Draws:
        return 0, ()

    def _next(self, state: _Draws, taken: int, item: int, rng: Rng) -> tuple[_Draws, Fraction]:
        del taken
        exact, drawn = state[0] + item, (*state[1], self.noise.sample(rng=rng))
        noise = rounded(drawn, self.horizon, self.grid)
        return (exact, drawn), exact + Fraction(noise, self.grid)


def check_grid(grid: object) -> int:
    r"""Return ``grid`` if it is a power of two from 16 to 2^20, or 0, which means the default."""
    exact = integer("grid", grid)
    if exact and (exact & (exact - 1) or not _LEAST_GRID <= exact <= 1 << 20):
        raise InvalidParameter("grid", exact, "must be a power of two from 16 to 2^20")
    return exact


@lru_cache(maxsize=8)
def column(horizon: int, grid: int) -> tuple[int, ...]:
    r"""The first column c_0 = ``grid``, c_1, ... of the matrix C of :class:`SquareRootSum`."""
    found, ratio = [], grid << _GUARD
    for k in range(horizon):
        found.append(max(ratio >> _GUARD, 1))
        ratio = ratio * (2 * k + 1) // (2 * k + 2)
    return tuple(found)


def rounded(drawn: Sequence[int], horizon: int, grid: int, bits: int = _BITS) -> int:
    r"""Return floor(h_0 z_t + h_1 z_(t-1) + ... + 1/2) exactly for the draws z_0, ..., z_t.

    The h_k are the first column of g A C^-1 (see :class:`SquareRootSum`), with g = ``grid`` and
    h_0 = 1. Each h_k is enclosed with width 2^-``bits``, or less if that does not decide the floor.
    Every h_k is a multiple of 1/g^k, so the loop terminates.
    """
    while True:
        low = reach = 0
        for (at_least, slack), z in zip(
            _inverse(horizon, grid, bits), reversed(drawn), strict=False
        ):
            low += at_least * z + slack * min(z, 0)
            reach += slack * abs(z)
        half = 1 << (bits - 1)
        first, last = (low + half) >> bits, (low + reach + half) >> bits
        if first == last:
            return first
        if bits > 4 * (horizon * grid.bit_length() + _EXTRA):
            raise PrecisionExhausted(
                "the noise could not be rounded: its bounds contain a midpoint between integers"
            )
        bits *= 2


@lru_cache(maxsize=16)
def _inverse(horizon: int, grid: int, bits: int) -> tuple[tuple[int, int], ...]:
    # Pairs (n, slack) with h_k 2^bits in [n, n + slack].
    with precision(2 * bits + _EXTRA):
        found = []
        for h in series(horizon, grid):
            scaled = h * ball(1 << bits)
            low = integer_below(scaled)
            found.append((low, -integer_below(-scaled) - low))
    return tuple(found)


def series(horizon: int, grid: int) -> list[arb]:
    r"""The coefficients h_0, h_1, ... of g/((1 - q) c(q)) as a power series in q, as balls.

    g is ``grid``, and c(q) = sum_k c_k q^k for the c_k of :func:`column`.
    """
    before = ctx.cap
    ctx.cap = horizon
    try:
        ones = arb_series([1] * horizon, prec=horizon)
        found = grid * ones / arb_series(list(column(horizon, grid)), prec=horizon)
        return [found[k] for k in range(horizon)]
    finally:
        ctx.cap = before


@lru_cache(maxsize=8)
def _squares(horizon: int, grid: int) -> tuple[arb, ...]:
    # The sums of h_k^2 over k < t, for t = 1, 2, ...
    found, total = [], arb(0)
    with precision(2 * _BITS):
        for h in series(horizon, grid):
            total += h * h
            found.append(total)
    return tuple(found)
