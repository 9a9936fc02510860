r"""Running sums by the square-root factorisation: correlated noise, released exactly.

The matrix A of prefix sums is R R, where R is lower triangular and Toeplitz with first column r_k =
binom(2k, k)/4^k. The Toeplitz matrix C of the integers c_k = max(1, floor(g r_k)) approximates g R,
where g is the ``grid``. The noisy numbers are y = C x + z, x the stream, z integer noise; the
release is a function of y: A C^-1 y = A x + A C^-1 z, rounded to 1/g. A x is a multiple of 1/g, so
the value is exactly the sum plus the rounded noise. Henzinger, Upadhyay and Upadhyay, "Almost Tight
Error Bounds on Differentially Private Continual Counting" (2023); Fichtenberger, Henzinger and
Upadhyay, "Constant Matters" (2023). Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from flint import arb, arb_series, ctx

from dpcore.continual.continual_sum import ContinualSum, variance
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, ball, integer_below, precision
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import Rng

State: TypeAlias = tuple[int, tuple[int, ...]]

_GUARD: Final = 64
_BITS: Final = 96
_EXTRA: Final = 64
_LEAST_GRID: Final = 16
_MOST_GRID: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareRootSum(ContinualSum):
    r"""Release the sum after each of at most 2^14 items, with noise correlated over time.

    The noise is added in steps of 1/``grid`` of a unit; the grid is a power of two from 16 on (by
    default at least 16 sqrt(horizon)). ``moves`` is the first column of C, about grid/sqrt(pi k) at
    index k. With a discrete Gaussian the error is below that of the tree at the same guarantee. The
    l1 norm of ``moves`` is large, so with Laplace noise the tree is better over many items.

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
        grid = integer("grid", self.grid)
        if grid == 0:
            grid = _LEAST_GRID << -(-(self.horizon - 1).bit_length() // 2)
        if not _LEAST_GRID <= grid <= _MOST_GRID or grid & (grid - 1):
            raise InvalidParameter("grid", grid, "must be a power of two from 16 to 2^20")
        object.__setattr__(self, "grid", grid)

    @property
    def moves(self) -> tuple[int, ...]:
        return column(self.horizon, self.grid)

    def mean_squared_error(self, taken: int) -> Enclosure:
        r"""Bounds on the variance of sum_k (h_k/g) z_k, k < ``taken``, with the rounding error."""
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

    def _begin(self) -> State:
        return 0, ()

    def _next(self, state: State, taken: int, item: int, rng: Rng) -> tuple[State, Fraction]:
        del taken
        exact, drawn = state[0] + item, (*state[1], self.noise.sample(rng=rng))
        noise = rounded(drawn, self.horizon, self.grid)
        return (exact, drawn), exact + Fraction(noise, self.grid)


@lru_cache(maxsize=8)
def column(horizon: int, grid: int) -> tuple[int, ...]:
    r"""The first column of C: the integers c_0 = grid, c_1, ..."""
    found, ratio = [], grid << _GUARD
    for k in range(horizon):
        found.append(max(ratio >> _GUARD, 1))
        ratio = ratio * (2 * k + 1) // (2 * k + 2)
    return tuple(found)


def rounded(drawn: Sequence[int], horizon: int, grid: int, bits: int = _BITS) -> int:
    r"""The exact floor(h_0 z_t + h_1 z_(t-1) + ... + 1/2) for the draws z_0, ..., z_t.

    The h_k are the coefficients of g A C^-1 as a power series, with h_0 = 1. They are enclosed to
    2^-``bits``, and more finely while the floor is undecided. Every h_k is a multiple of 1/g^k, so
    the loop terminates.
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
    r"""The coefficients h_k of g A C^-1 = g/((1 - q) c(q)), as balls at the ambient precision."""
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
