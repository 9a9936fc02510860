r"""A column as evidence: cells, and in each the learned log-likelihood ratio of the two datasets.
Cells of numbers are intervals of equal count, and a separate cell for each frequent number; a cell
borrows from its neighbours through a binary tree, so that a smooth ratio is learned from few runs
and jumps are kept. Each code of a non-number has its own cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.outputs.rows import Codes, Floats

Places: TypeAlias = NDArray[np.int16]

_MOST: Final = 64
_DEPARTS: Final = 9.0  # three standard deviations, squared
_LEAST: Final = 1e-9
_MOST_NATS: Final = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    r"""A step function of a column: ``heights[k]`` if cuts[k-1] <= x < cuts[k], and
    ``others[code]`` for a non-number.
    """

    cuts: Floats
    heights: Floats
    others: Floats

    def __call__(self, numbers: Floats, codes: Codes) -> Floats:
        places = cell_places(self.cuts, numbers, codes, len(self.heights))
        found: Floats = np.concatenate((self.heights, self.others))[places]
        return found


def cuts_of(numbers: Floats) -> Floats:
    r"""The boundaries of a column's cells, from a sample of its numbers: at most about 64 cells."""
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= _MOST:
        return values[1:]
    total = int(counts.sum())
    heavy = counts >= max(4, 2 * total // _MOST)
    # Quantiles, finer in the tails, because a revealing tail may have few runs.
    ends = 0.5 ** np.arange(6, max(7, int(np.log2(total)) - 2))[: _MOST // 8]
    shares = np.concatenate((np.arange(1, _MOST // 2) / (_MOST // 2), ends, 1.0 - ends))
    starts = np.searchsorted(np.cumsum(counts), np.unique(shares) * total)
    starts = starts[(starts > 0) & (starts < len(values))]
    cuts = np.concatenate((values[starts], values[heavy], np.nextafter(values[heavy], np.inf)))
    return np.unique(cuts[cuts > values[0]])


def cell_places(cuts: Floats, numbers: Floats, codes: Codes, cells: int) -> Places:
    r"""The index of each value's cell; the ``cells`` cells of numbers precede those of codes."""
    place = np.searchsorted(cuts, numbers, side="right")
    return np.where(codes > 0, cells + codes, place).astype(np.int16)


def cell_counts(cells: int, places: Places, groups: NDArray[Any], many: int) -> Floats:
    r"""The number of runs in each cell, one row per group of runs."""
    flat = np.bincount(places + cells * groups.astype(np.int64), minlength=many * cells)
    return flat.reshape(many, cells).astype(np.float64)


def heights_of(counts: Floats, codes: int) -> tuple[Floats, Floats]:
    r"""The log-likelihood ratio of B to A in each cell, and the information of each column in nats
    per run, from counts of shape (columns, 2, cells and ``codes``).
    """
    cells = counts.shape[2] - codes
    sides = np.maximum(counts[0].sum(axis=1), 1.0)
    total, base = counts.sum(axis=1), float(sides[1] / sides.sum())
    inner = _smooth(counts[:, :, :cells], base)
    outer = (counts[:, 1, cells:] + base) / (total[:, cells:] + 1.0)
    rate = np.concatenate((inner, outer), axis=1)
    ratio = np.log(rate / (1.0 - rate)) - np.log(base / (1.0 - base))
    seen = total > 0
    heights = np.where(seen, np.clip(ratio, -_MOST_NATS, _MOST_NATS), 0.0)
    # The gain in mean log-likelihood from the rates, minus the expected gain by chance: 1/2 per
    # cell.
    share = counts[:, 1] / np.maximum(total, 1.0)
    gained = share * np.log(rate / base) + (1.0 - share) * np.log((1.0 - rate) / (1.0 - base))
    spent = 0.5 * (np.count_nonzero(seen, axis=1) - 1)
    gains = ((total * gained).sum(axis=1) - spent) / np.maximum(total.sum(axis=1), 1.0)
    return heights, gains


def _smooth(leaves: Floats, base: float) -> Floats:
    # The rate of dataset B in each cell, shrunk to its parent's according to the siblings' spread.
    rate = np.full((len(leaves), 1), base)
    for counts in binary_tree(leaves):
        rate = np.repeat(rate, counts.shape[2] // rate.shape[1], axis=1)
        rate, _ = shrunk(counts, rate, part=SIBLINGS)
    found: Floats = np.clip(rate[:, : leaves.shape[2]], _LEAST, 1.0 - _LEAST)
    return found


def binary_tree(leaves: NDArray[Any]) -> list[NDArray[Any]]:
    r"""The sums of pairs of adjacent cells (the last axis), of pairs of these, ..., the total
    first; the leaves are padded with zeros to a power of two.
    """
    more = (1 << (leaves.shape[-1] - 1).bit_length()) - leaves.shape[-1]
    levels = [np.pad(leaves, (*[(0, 0)] * (leaves.ndim - 1), (0, more)))]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0].reshape(*leaves.shape[:-1], -1, 2).sum(axis=-1))
    return levels


SIBLINGS: Final = 0.5
r"""The expected surprise (squared standardised deviation) per cell by chance in a pair of siblings,
to which the rate of their parent is fitted.
"""


def shrunk(
    counts: NDArray[Any], rate: Floats, *, part: float, forced: NDArray[Any] | tuple[()] = ()
) -> tuple[Floats, NDArray[np.bool_]]:
    r"""The rates of dataset B, shrunk towards ``rate``, and whether each departs from it. The
    shrinkage decreases with the spread of the rates beyond chance; ``part`` is the expected
    surprise per cell by chance. A rate departs, and is hardly shrunk, if it is more than three
    standard deviations away or its index is ``forced``.

    The last two axes of ``counts`` are the datasets and the cells.
    """
    total = counts.sum(axis=-2)
    variance = np.maximum(total * rate * (1.0 - rate), _LEAST)
    surprise = (counts[..., 1, :] - total * rate) ** 2 / variance
    noise = np.count_nonzero(total, axis=-1) * part
    spread = (surprise.sum(axis=-1) - noise) / np.maximum(total.sum(axis=-1) * part, 1.0)
    departs = surprise > _DEPARTS
    departs[..., np.asarray(forced, dtype=np.int64)] = True
    shrink = np.where(departs, 1.0, 1.0 / np.maximum(spread, _LEAST)[..., None])
    return (counts[..., 1, :] + shrink * rate) / (total + shrink), departs
