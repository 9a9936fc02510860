"""Replay running sums on a tape of noise; trees with one defect each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from dpcore import DiscreteLaplace, Noise, Rng
from dpcore.continual_sums import ContinualSum, SquareRootSum, Total, TreeSum


def replayed(
    setting: ContinualSum, items: Sequence[Any], tape: Sequence[int]
) -> tuple[list[Total], list[int]]:
    """Return the releases when draw number i is tape[i], 0 past its end; and draws per item."""
    drawn = 0

    def sample(self: Noise, size: None = None, *, rng: Rng) -> int:
        nonlocal drawn
        drawn += 1
        return tape[drawn - 1] if drawn <= len(tape) else 0

    stream, released, draws = setting.start(), [], []
    with patch.object(Noise, "sample", sample), patch.object(DiscreteLaplace, "sample", sample):
        for item in items:
            released.append(stream.add(item))
            draws.append(drawn)
    return released, draws


def alignment(
    setting: ContinualSum, one: Sequence[Any], other: Sequence[Any], tape: Sequence[int]
) -> list[int]:
    """Return how far each draw must move for ``other`` to be released as ``one`` is on ``tape``.

    A total contains the last draw with the factor 1, so there is one such tape if each item draws
    at most once; it is found from the outputs alone. Fails if none exists.
    """
    grid = setting.grid if isinstance(setting, SquareRootSum) else 1
    shown, draws = replayed(setting, one, tape)
    found = [*tape]
    for i, total in enumerate(shown):
        if draws[i] > (draws[i - 1] if i else 0):
            found = [*found, *[0] * (draws[i] - len(found))]
            apart = total.value - replayed(setting, other[: i + 1], found)[0][-1].value
            move = apart / setting.unit * grid
            assert move.denominator == 1
            found[draws[i] - 1] += int(move)
    assert replayed(setting, other, found)[0] == shown, "no noise hides which stream it was"
    return [found[i] - (tape[i] if i < len(tape) else 0) for i in range(len(found))]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrawnTree(TreeSum):
    """A mutant: each node gets new noise whenever it is in a total."""

    def _next(self, state: Any, taken: int, item: int, rng: Rng) -> tuple[Any, Fraction]:
        after, _ = TreeSum._next(self, state, taken, item, rng)
        fresh = sum(exact + self.noise.sample(rng=rng) for exact, _ in after)
        return after, Fraction(fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class BareLevelTree(TreeSum):
    """A mutant: the nodes of one item have no noise."""

    def _next(self, state: Any, taken: int, item: int, rng: Rng) -> tuple[Any, Fraction]:
        after, value = TreeSum._next(self, state, taken, item, rng)
        if taken % 2:
            *kept, (exact, _) = after
            after = (*kept, (exact, exact))
            value = Fraction(sum(noisy for _, noisy in after))
        return after, value
