r"""Privatize the outcomes of base arms in every round, with the noise of CUCB-LDP and CUCB-DP.

A user sends the outcomes, 0 or 1, of the requested base arms. In the ``local`` model the user adds
discrete Laplace noise to each outcome. In the ``central`` model a trusted server keeps a private
running sum for each base arm (``dpcore.continual_sums``) and publishes only what follows from these
sums. The guarantee covers all noisy values together and is derived from their noise; Chen et al.
(2020) state it for real-valued Laplace noise. Proofs: docs/proofs/radius.md.

:class:`Totals` stores the running sums of several runs in arrays. A *cell* is the running sum of
one base arm in one run; cells are numbered by run and then by base arm. The released ``value`` of a
cell is an estimate of the sum of its first ``count`` outcomes. The results are the same as those of
single streams of ``dpcore.continual_sums``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from accounting.errors import NotDerived
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.privatizers.deployment import NO_NOISE, TRUSTED
from bandits.privatizers.run_guarantee import NEW
from bandits.privatizers.vector_averages import least_gaussian
from bandits.super_arms import Bools
from dpcore.continual_sums import column, series
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.parameter import Exact, Whole, check_fields
from dpcore.sampling.rng import Rng
from dpcore.spec_syntax import word

StreamTrust: TypeAlias = Literal["none", "local", "central"]
StreamRelease: TypeAlias = Literal["tree", "doubling", "factorisation"]
r"""The methods by which a server releases running sums (see :mod:`dpcore.continual_sums`)."""

_MOST_HORIZON: Final = 10**8
_MOST_ITEMS: Final = 1 << 10
_LEAST_GRID: Final = 16
_WORD: Final = 64
_EXACT_FLOATS: Final = 1 << 53
_BITS: Final = "the outcomes that users send are bits, 0 or 1, before any noise"
_PUBLIC: Final = "which super arm is played depends on releases and on public coins only"
_ASSUMED: Final[dict[StreamTrust, tuple[str, ...]]] = {
    "none": (),
    "local": (_BITS, _PUBLIC, NEW),
    "central": (TRUSTED, _BITS, _PUBLIC, NEW),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPrivatizer:
    r"""Release the outcomes of users over ``horizon`` rounds, with one user per round.

    A user sends the outcomes of at most ``sent`` base arms. Local noise is discrete Laplace of
    scale sent/epsilon on each outcome. Central noise depends on ``release`` and T = ``horizon``:

    - ``tree``: a binary tree of L = floor(log2 T) + 1 levels, with noise of scale sent L/epsilon;
    - ``doubling``: blocks of doubling length, with noise of scale sent/epsilon;
    - ``factorisation``: blocks of ceil(T/1024) outcomes, with discrete Gaussian noise for (epsilon,
      ``delta``).
    """

    trust: StreamTrust = word(StreamTrust)
    epsilon: Exact = Exact(1, zero=NO_NOISE)
    sent: Whole = Whole()
    horizon: Whole = Whole(at_most=_MOST_HORIZON)
    release: StreamRelease = word(StreamRelease, "tree")
    delta: Exact = Exact("1e-6", within="(0, 1)")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def kind(self) -> Literal["plain", "each", "tree", "doubling", "factorisation"]:
        r"""How sums are released: exactly, from noisy outcomes, or by the mechanism ``release``."""
        if self.trust == "central":
            return self.release
        return "plain" if self.trust == "none" else "each"

    @property
    def block(self) -> int:
        r"""The number of outcomes in one item of the factorisation; 1 for other mechanisms."""
        return -(-self.horizon // _MOST_ITEMS) if self.kind == "factorisation" else 1

    @property
    def items(self) -> int:
        r"""The largest number of items (blocks) of a base arm, that of an arm in every round."""
        return -(-self.horizon // self.block)

    @property
    def grid(self) -> int:
        r"""The grid size g >= 16 sqrt(items) of the factorisation; its noise is in steps of 1/g."""
        return _LEAST_GRID << -(-(self.items - 1).bit_length() // 2)

    @property
    def moves(self) -> tuple[int, ...]:
        r"""For each noisy value of a base arm, a bound on its change if one outcome changes."""
        match self.kind:
            case "tree":
                return (1,) * self.horizon.bit_length()
            case "factorisation":
                return column(self.items, self.grid)
            case _:
                return (1,)

    @property
    def sensitivity(self) -> Sensitivity:
        r"""The joint sensitivity of all noisy values to one user, who sends ``sent`` outcomes."""
        return _sensitivity(self)

    @property
    def noise(self) -> Noise | None:
        r"""The law of the noise in each noisy value, or None without privacy."""
        return None if self.trust == "none" else _noise(self)

    @property
    def mechanism(self) -> Mechanism | None:
        r"""A single mechanism with the guarantee of all releases together; None without privacy."""
        noise = self.noise
        return None if noise is None else Mechanism(noise=noise, sensitivity=self.sensitivity)

    def guarantee(self) -> PrivacyCurve | None:
        noise = self.noise
        return None if noise is None else PrivacyCurve(noise=noise, sensitivity=self.sensitivity)

    def assumed(self) -> tuple[str, ...]:
        return _ASSUMED[self.trust]

    @property
    def bits(self) -> int:
        r"""The number of bits that a user sends for one outcome."""
        return _WORD if self.trust == "local" else 1

    def draw(self, shape: tuple[int, ...], rng: Rng) -> Integers:
        noise = self.noise
        if noise is None:
            raise NotDerived("the noise of a stream", "the stream is not private")
        return noise.sample(shape, rng=rng)


@lru_cache(maxsize=1 << 8)
def _sensitivity(privatizer: StreamPrivatizer) -> Sensitivity:
    moves = privatizer.moves * privatizer.sent
    return Sensitivity(1) if moves == (1,) else Sensitivity.box(moves)


@lru_cache(maxsize=1 << 8)
def _noise(privatizer: StreamPrivatizer) -> Noise:
    if privatizer.kind != "factorisation":
        return DiscreteLaplace(scale=len(privatizer.moves) * privatizer.sent / privatizer.epsilon)
    return least_gaussian(privatizer.epsilon, privatizer.delta, privatizer.sensitivity)


class Tables(NamedTuple):
    r"""The arrays of :class:`Totals`, as arguments of the compiled loop."""

    taken: Integers
    exact: Integers
    counts: Integers
    values: Floats
    noise: Integers
    items: Integers
    column: Integers
    inverse: Floats


class Totals:
    r"""The running sums of ``arms`` base arms in several runs, one run per generator in ``rngs``.

    Without privacy and in the local model, a released value is the sum of the values that users
    sent. In the central model, released values are stored separately from the exact sums. If
    ``each`` is true, the caller of :meth:`add` draws noise for every outcome; otherwise this class
    draws the noise.
    """

    def __init__(self, privatizer: StreamPrivatizer, arms: int, rngs: Sequence[Rng]) -> None:
        if not rngs:
            raise InvalidParameter("rngs", rngs, "must contain one generator for each run")
        self.privatizer, self.kind = privatizer, privatizer.kind
        self.each = self.kind in ("each", "tree")
        shape, size = (len(rngs), arms), len(rngs) * arms
        self.taken, self.exact = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self.count = self.taken.reshape(shape)
        self.value: Integers | Floats = self.exact.reshape(shape)
        if self.kind not in ("plain", "each"):
            self.count, self.value = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        self.noise = self.items = np.zeros((1, 1), dtype=np.int64)
        self.column, self.inverse = np.zeros(1, dtype=np.int64), np.zeros(1)
        match self.kind:
            case "tree":
                # noise[cell, j] is the noise of the sum at the last t with j trailing zeros: the
                # sum of the draws of the blocks in the binary expansion of t. The last column is
                # for t = 0.
                levels = len(privatizer.moves)
                self.noise = np.zeros((size, levels + 1), dtype=np.int64)
            case "doubling":
                # noise[cell, j] is the sum of the first j + 1 draws.
                blocks = privatizer.horizon.bit_length()
                self.noise = np.cumsum(self._drawn(arms, blocks, rngs), axis=1)
            case "factorisation":
                self._factorise(self._drawn(arms, privatizer.items, rngs))

    def _drawn(self, arms: int, numbers: int, rngs: Sequence[Rng]) -> Integers:
        drawn = np.array([self.privatizer.draw((arms, numbers), rng) for rng in rngs])
        return drawn.reshape(-1, numbers)

    def _factorise(self, drawn: Integers) -> None:
        # Items are sums of blocks, and ``exact`` is the sum of the open block. y = C x + z in
        # integers; noise[cell] is y up to the last item, then z. The release is a function of y
        # alone, A C^-1 y in floats: rounding errors affect the estimate, not the guarantee.
        held = self.privatizer
        weights = column(held.items, held.grid)
        # Floats are exact for integers up to 2^53 and faster. No partial sum of C x + z exceeds
        # ``largest``, because an item is at most ``block``. Larger sums use integers.
        largest = held.block * sum(weights) + int(np.abs(drawn).max())
        exact = np.float64 if largest <= _EXACT_FLOATS else np.int64
        self.noise = drawn.astype(exact)
        self.items = np.zeros(self.noise.shape, dtype=exact)
        # Reversed, so that the last i + 1 entries are the weights of items 0, ..., i.
        self.column = np.array(weights[::-1], dtype=exact)
        self.inverse = inverse(held.items, held.grid)[::-1].copy()

    def tables(self) -> Tables:
        r"""All arrays, not copied; ``values`` is empty if released and exact sums are the same."""
        own: Any = self.value.ravel() if self.value.dtype == np.float64 else np.zeros(0)
        every = (self.noise, self.items, self.column, self.inverse)
        return Tables(self.taken, self.exact, self.count.ravel(), own, *every)

    def add(self, cells: Integers, outcomes: Integers | Bools, drawn: Integers) -> Integers:
        r"""Add one outcome to each of the distinct ``cells``; return the newly released cells."""
        self.taken[cells] += 1
        self.exact[cells] += outcomes
        match self.kind:
            case "each":  # exact outcomes are not stored
                self.exact[cells] += drawn
            case "tree":
                self._set(cells, self.exact[cells] + self._tree(cells, drawn))
            case "doubling":  # a block closes when t is a power of two
                cells = cells[self.taken[cells] & (self.taken[cells] - 1) == 0]
                level = np.bitwise_count(self.taken[cells] - 1)
                self._set(cells, self.exact[cells] + self.noise[cells, level])
            case "factorisation":
                cells = cells[self.taken[cells] % self.privatizer.block == 0]
                self._set(cells, np.array([self._factorised(cell) for cell in cells.tolist()]))
        return cells

    def _set(self, cells: Integers, values: Integers | Floats) -> None:
        self.value.ravel()[cells] = values
        self.count.ravel()[cells] = self.taken[cells]

    def _tree(self, cells: Integers, drawn: Integers) -> Integers:
        taken = self.taken[cells]
        # t has ``level`` trailing zeros: that many blocks and the outcome are merged into a block
        # of 2^level. The other blocks are those of t - 2^level outcomes.
        rest = taken & (taken - 1)
        level = np.bitwise_count((taken ^ rest) - 1)
        others = np.bitwise_count((rest & -rest) - 1)
        others[rest == 0] = self.noise.shape[1] - 1
        noise: Integers = self.noise[cells, others] + drawn
        self.noise[cells, level] = noise
        return noise

    def _factorised(self, cell: int) -> float:
        i = int(self.taken[cell]) // self.privatizer.block - 1
        self.items[cell, i], self.exact[cell] = self.exact[cell], 0
        items, noised = self.items[cell], self.noise[cell]
        noised[i] += self.column[-i - 1 :] @ items[: i + 1]
        return _ordered_sum(self.inverse[-i - 1 :] * noised[: i + 1])


def _ordered_sum(terms: Floats) -> float:
    # Four running sums in a fixed order; the order in a matrix product is not fixed.
    few = len(terms) % 4
    one, two, three, four = np.cumsum([[0.0] * 4, *terms[few:].reshape(-1, 4)], axis=0)[-1]
    return float(sum(terms[:few], (one + two) + (three + four)))


def inverse(items: int, grid: int) -> Floats:
    r"""The first column of the Toeplitz matrix A C^-1, as floats.

    A computes prefix sums, and C is the strategy matrix of ``SquareRootSum`` on this ``grid``.
    """
    return np.array([float(h.mid()) for h in series(items, grid)]) / grid
