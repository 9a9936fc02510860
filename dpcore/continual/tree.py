r"""The tree mechanism for running sums, and sums of disjoint blocks of doubling length.

Both release sums of noisy blocks: :class:`TreeSum` after every item, from the nodes of a binary
tree; :class:`DoublingSum` when the number of items is a power of two. Dwork, Naor, Pitassi and
Rothblum, "Differential Privacy under Continual Observation" (2010); Chan, Shi and Song, "Private
and Continual Release of Statistics" (2011). Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeAlias

from dpcore.continual.continual_sum import ContinualSum, variance
from dpcore.numbers.enclosure import Enclosure
from dpcore.sampling.rng import Rng

Nodes: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlockSum(ContinualSum):
    # Every total is a sum of noisy blocks, with the error of one draw per block.

    @abstractmethod
    def _draws(self, covered: int) -> int:
        r"""The number of blocks in the total of ``covered`` items."""

    def mean_squared_error(self, taken: int) -> Enclosure:
        r"""The noise variance times the number of blocks in the total."""
        draws = self._draws(self.covered(self.checked_count(taken)))
        low, high = variance(self.noise)
        scale = draws * Fraction(self.unit) ** 2
        return Enclosure(scale * low, scale * high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSum(_BlockSum):
    r"""Release the sum after each of ``horizon`` items, from noisy nodes of a binary tree.

    The sum of the first t items adds the blocks of the binary expansion of t, e.g. 7 = 4 + 2 + 1;
    the noise of each block is drawn once. An item is in at most one block of each of the
    floor(log2 T) + 1 levels, T = ``horizon``, and the first item is in a block of every level:
    ``moves`` has a 1 per level. The error after t items is that of one draw per 1 bit of t.

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

    def _begin(self) -> Nodes:
        return ()

    def _next(self, state: Nodes, taken: int, item: int, rng: Rng) -> tuple[Nodes, Fraction]:
        # The state holds the blocks of taken - 1, largest first, as (exact, noisy). The number of
        # smallest blocks that are merged with the item is the number of trailing zeros of taken.
        merged = (taken & -taken).bit_length() - 1
        kept, last = state[: len(state) - merged], state[len(state) - merged :]
        exact = item + sum(each for each, _ in last)
        after = (*kept, (exact, exact + self.noise.sample(rng=rng)))
        return after, Fraction(sum(noisy for _, noisy in after))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublingSum(_BlockSum):
    r"""Release the sum when the number of items is a power of two, from disjoint noisy blocks.

    The blocks are item 1, item 2, items 3-4, items 5-8 and so on. Each item is in one block, so
    ``moves`` is (1,) for every horizon. Between two powers of two the last sum is returned again,
    with its number ``items`` of items. The error at 2^k items is that of k + 1 draws.

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
