r"""The properties of outputs that a learner reads (columns), and step functions of them.

A *column* is a value in an output, a difference of two values, a remainder of a value modulo a
step, or a summary of all values, such as their sum. *Flags* are numbers that recur although other
values rarely do, such as -1 for "ended". Summaries and differences omit flags. In outputs with
several values, the number of occurrences of each flag is also a column. The flags, the repeated
labels of each column, and the step of the remainders are learned from earlier runs.

A step function assigns the learned log-likelihood ratio of the two datasets to each cell of a
column. The cells are intervals with equal counts, the single frequent numbers, and the single
labels (values that are not numbers). The ratio in an interval is shrunk towards that of its
neighbours along a binary tree. So few runs suffice to learn a smooth ratio, and discontinuities are
preserved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.features.built_in_features import LOWEST_BIT, parts_of_step
from audit.outputs.rows import ABSENT, CODES, OTHER, Codes, Floats, Schema, Table, display_path

_FLAG: Final = 0.01
_MOST_FLAGS: Final = 12
_LOOKED_AT: Final = 4096
_MOST_LABELS: Final = 1000
_STEPPED: Final = 48
_NAMES: Final = {
    "column": "{path}",
    "difference": "difference of {path} and the number before it",
    "number": "number of {path}",
    "lowest-bit": "lowest-bit of {path}",
    "modulo": "{path} modulo {value!r}",
    "count": "count of {value:g}",
    "zero": "sign of the zero {path}",
}
MOST_WIDE: Final = 64
r"""If outputs have more columns than this, differences, lowest bits and remainders are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    r"""A property of outputs that a learner reads, such as a value or a remainder.

    ``what`` is the kind of property. A property of single values is computed from the column of the
    outputs' :class:`Table` with index ``place`` and path ``path``. ``value`` is the flag to count,
    or the step of a remainder. ``labels`` contains the repeated labels of the column, each with its
    code in the :class:`Schema`.
    """

    what: str
    place: int = 0
    path: str = ""
    value: float = 0.0
    labels: tuple[tuple[int, str], ...] = ()

    @property
    def name(self) -> str:
        words = _NAMES.get(self.what, self.what)
        return words.format(path=display_path(self.path), value=self.value)

    def label(self, code: int) -> str:
        r"""The label with the given code, as numbered by :meth:`own`."""
        return CODES[code] if code in CODES else self.labels[code - OTHER - 1][1]

    def own(self, codes: Codes) -> Codes:
        r"""Convert a :class:`Schema`'s codes of labels to this column's codes.

        The column's repeated labels are numbered from ``OTHER + 1``; all other labels become
        ``OTHER``.
        """
        if not self.labels:
            return np.minimum(codes, OTHER)
        known = np.array([code for code, _ in self.labels])
        at = np.searchsorted(known, codes).clip(max=len(known) - 1)
        found = np.where(known[at] == codes, OTHER + 1 + at, np.minimum(codes, OTHER))
        return found.astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    r"""Reads the ``columns`` from outputs. Summaries of an output omit the numbers in ``flags``."""

    columns: tuple[Column, ...]
    flags: tuple[float, ...]
    paths: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.paths)

    @property
    def codes(self) -> int:
        r"""One more than the largest code of a label in any column."""
        return OTHER + 1 + max((len(column.labels) for column in self.columns), default=0)

    @property
    def names(self) -> list[str]:
        return [display_path(path) for path in self.paths]

    def number(self, place: int) -> Column:
        r"""The column that contains the numbers at index ``place`` of the outputs, except flags."""
        return Column(what="number", place=place, path=self.paths[place])

    def plain(self, table: Table) -> Floats:
        r"""The numbers in the outputs at ``paths``, with nan for flags and non-numbers."""
        if not self.flags and table.width == self.width:
            return table.numbers
        numbers = np.full((len(table), self.width), np.nan)
        width = min(self.width, table.width)
        numbers[:, :width] = table.numbers[:, :width]
        for flag in self.flags:
            numbers[numbers == flag] = np.nan
        return numbers

    def read(self, column: Column, table: Table, plain: Floats) -> tuple[Floats, Codes]:
        r"""The number (or nan) and the code (0 for a number) of a column in each run."""
        match column.what:
            case "column":
                numbers, codes = table.column(column.place)
                return numbers, column.own(codes)
            case "structure":
                return np.full(len(table), np.nan), column.own(table.structures)
            case "difference":
                return _coded(plain[:, column.place] - plain[:, column.place - 1])
            case "lowest-bit":
                return _coded(np.asarray(LOWEST_BIT(plain[:, column.place]), dtype=np.float64))
            case "modulo":
                return _coded(parts_of_step(plain[:, column.place], step=column.value))
            case "zero":
                numbers, _ = table.column(column.place)
                return _coded(np.where(numbers == 0.0, np.copysign(1.0, numbers), np.nan))
            case "count":
                return _coded(
                    (table.numbers[:, : self.width] == column.value).sum(axis=1).astype(np.float64)
                )
        return _coded(_summary(column.what, plain))


def _summary(what: str, plain: Floats) -> Floats:
    known = np.isfinite(plain)
    whole = bool(known.all()) and plain.shape[1] > 0
    some = None if whole else known.any(axis=1)

    def among(other: float) -> Floats:
        return plain if whole else np.where(known, plain, other)

    match what:
        case "numbers":
            found = known.sum(axis=1).astype(np.float64)
        case "sum":
            found = among(0.0).sum(axis=1)
        case "max":
            found = np.maximum.reduce(among(-np.inf).T.copy())
        case "argmax":
            found = among(-np.inf).argmax(axis=1).astype(np.float64)
        case _:
            found = np.minimum.reduce(among(np.inf).T.copy())
    return found if some is None or what == "numbers" else np.where(some, found, np.nan)


def _coded(numbers: Floats) -> tuple[Floats, Codes]:
    bad = ~np.isfinite(numbers)
    if not bool(bad.any()):
        return numbers, np.zeros(len(numbers), dtype=np.int32)
    return np.where(bad, np.nan, numbers), np.where(bad, ABSENT, 0).astype(np.int32)


def learn_reader(table: Table, schema: Schema) -> Reader:
    r"""Choose the flags, and the columns to read, from the training outputs ``table``."""
    width = table.width
    some = table.rows(slice(max(0, len(table) - _LOOKED_AT), None))
    known = some.known()
    values, counts = np.unique(some.numbers[known], return_counts=True)
    often = np.argsort(-counts)[:_MOST_FLAGS]
    share = counts[often] / max(len(some) * width, 1)
    # A flag occurs often, whereas other floats rarely occur twice.
    flags = np.sort(values[often[(share >= _FLAG) & (counts[often] >= _MOST_FLAGS)]])
    flagged = int(counts[np.isin(values, flags)].sum())
    paths = schema.paths[:width]
    columns = [
        Column(what="column", place=place, path=path, labels=_labels(codes, schema))
        for place, path in enumerate(paths)
        if _varies(*(found := table.column(place)))
        for codes in found[1:]
    ]
    if bool((table.structures != table.structures[:1]).any()):
        columns.append(Column(what="structure", labels=_labels(table.structures, schema)))
    zero, negative = some.numbers == 0.0, np.signbit(some.numbers)
    both_zeros = (zero & negative).any(axis=0) & (zero & ~negative).any(axis=0)
    columns += [
        Column(what="zero", place=place, path=paths[place])
        for place in np.flatnonzero(both_zeros).tolist()
    ]
    if width > 1:
        columns += [Column(what="count", value=float(flag)) for flag in flags]
    if int(known.sum()) - flagged > int(known.sum()) / 100:
        plain = known & ~np.isin(some.numbers, flags)
        if width <= MOST_WIDE:
            columns += _fine(some, plain, paths)
        if width > 1:
            columns += [Column(what=what) for what in ("sum", "max", "min", "argmax", "numbers")]
    return Reader(columns=tuple(columns), flags=tuple(map(float, flags)), paths=tuple(paths))


def _varies(numbers: Floats, codes: Codes) -> bool:
    if bool((codes != codes[:1]).any()):
        return True
    return not codes[:1].any() and bool((numbers != numbers[:1]).any())


def _labels(codes: Codes, schema: Schema) -> tuple[tuple[int, str], ...]:
    # The repeated labels; only the most frequent ones if there are too many.
    found, counts = np.unique(codes[codes > OTHER], return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:_MOST_LABELS]
    names = schema.names
    return tuple(
        (code, names[code - OTHER - 1]) for code in sorted(found[kept[counts[kept] > 1]].tolist())
    )


def _fine(some: Table, plain: NDArray[np.bool_], paths: list[str]) -> list[Column]:
    # Differences of adjacent numbers, lowest bits of floats, and remainders modulo a step.
    found = [
        Column(what="difference", place=place, path=paths[place]) for place in range(1, len(paths))
    ]
    fine = (plain & (some.numbers != np.rint(some.numbers))).sum(axis=0)
    for place, path in enumerate(paths):
        numbers = some.numbers[plain[:, place], place]
        if 2 * int(fine[place]) > len(numbers):
            found.append(Column(what="lowest-bit", place=place, path=path))
        if step := step_of(numbers[-_STEPPED:]):
            found.append(Column(what="modulo", place=place, path=path, value=step))
    return found


# -- step functions of a column --------------------------------------------------------------------

Places: TypeAlias = NDArray[np.int16]

_MOST: Final = 64
_DEPARTS: Final = 9.0  # three standard deviations, squared
_LEAST: Final = 1e-9
_MOST_NATS: Final = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    r"""A step function of a column, which may contain numbers and labels.

    Its value is ``heights[k]`` at a number x with cuts[k-1] <= x < cuts[k], and ``others[code]`` at
    a label.
    """

    cuts: Floats
    heights: Floats
    others: Floats

    def __call__(self, numbers: Floats, codes: Codes) -> Floats:
        places = cell_places(self.cuts, numbers, codes, len(self.heights))
        found: Floats = np.concatenate((self.heights, self.others))[places]
        return found


def cuts_of(numbers: Floats) -> Floats:
    r"""Divide the numbers of a column into cells, usually at most 64; return their boundaries."""
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
    r"""The index of each value's cell; the first ``cells`` cells are those of numbers."""
    place = np.searchsorted(cuts, numbers, side="right")
    return np.where(codes > 0, cells + codes, place).astype(np.int16)


def cell_counts(cells: int, places: Places, groups: NDArray[Any], many: int) -> Floats:
    r"""How many runs of each of ``many`` groups are in each cell: shape (``many``, ``cells``)."""
    flat = np.bincount(places + cells * groups.astype(np.int64), minlength=many * cells)
    return flat.reshape(many, cells).astype(np.float64)


def heights_of(counts: Floats, codes: int) -> tuple[Floats, Floats]:
    r"""The learned log-likelihood ratio of dataset B to A in each cell of each column.

    Also returns the information of each column about the dataset, in nats per run. ``counts`` has
    shape (columns, 2, cells), with dataset A first; the last ``codes`` cells are those of labels.
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
    # The gain in mean log-likelihood from using the rates, minus its expected value by chance,
    # which is 1/2 per cell.
    share = counts[:, 1] / np.maximum(total, 1.0)
    gained = share * np.log(rate / base) + (1.0 - share) * np.log((1.0 - rate) / (1.0 - base))
    chance = 0.5 * (np.count_nonzero(seen, axis=1) - 1)
    gains = ((total * gained).sum(axis=1) - chance) / np.maximum(total.sum(axis=1), 1.0)
    return heights, gains


def _smooth(leaves: Floats, base: float) -> Floats:
    # The rate of dataset B in each cell, shrunk to the rate in the cell's parent in the binary
    # tree, according to the spread among siblings.
    rate = np.full((len(leaves), 1), base)
    for counts in binary_tree(leaves):
        rate = np.repeat(rate, counts.shape[2] // rate.shape[1], axis=1)
        rate, _ = shrunk(counts, rate, part=SIBLINGS)
    found: Floats = np.clip(rate[:, : leaves.shape[2]], _LEAST, 1.0 - _LEAST)
    return found


def binary_tree(leaves: NDArray[Any]) -> list[NDArray[Any]]:
    r"""The counts in a binary tree over the cells, level by level from the root to the leaves.

    ``leaves`` contains the counts of the cells (last axis), and is padded with zeros to a power of
    two. The count of a parent is the sum of the counts of its two children.
    """
    more = (1 << (leaves.shape[-1] - 1).bit_length()) - leaves.shape[-1]
    levels = [np.pad(leaves, (*[(0, 0)] * (leaves.ndim - 1), (0, more)))]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0].reshape(*leaves.shape[:-1], -1, 2).sum(axis=-1))
    return levels


SIBLINGS: Final = 0.5
r"""The expected squared standardised deviation per cell, by chance, in a pair of siblings; it is
below 1 because their parent's rate is fitted to them.
"""


def shrunk(
    counts: NDArray[Any], rate: Floats, *, part: float, forced: NDArray[Any] | tuple[()] = ()
) -> tuple[Floats, NDArray[np.bool_]]:
    r"""The fraction of runs on dataset B in each cell, shrunk towards ``rate``.

    Also returns whether each cell departs from ``rate``, that is, whether its fraction is more than
    three standard deviations away, or its index is in ``forced``. Cells that depart are hardly
    shrunk. The other cells are shrunk less if the fractions vary more beyond chance. ``part`` is
    the mean over the cells of (deviation / standard deviation)^2 that is expected by chance. The
    last two axes of ``counts`` are the datasets and the cells.
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


# -- the step between the numbers of a column ------------------------------------------------------

_TRIPLES: Final = 96
_SURE: Final = 64.0  # the factor by which a remainder must drop to count as 0
_SLACK: Final = 4.0  # in units of rounding errors
_APART: Final = 2.0**-7  # the largest deviation from a whole number of steps, in steps
_NATS: Final = 7.0


def step_of(numbers: Sequence[float] | NDArray[np.floating[Any]]) -> float | None:
    r"""The largest step such that at least a third of the numbers differ by multiples of it.

    Returns None if no step was found. If all numbers lie on a grid, a multiple of the grid's step
    can qualify by chance. Therefore such a multiple is accepted only if significantly more numbers
    differ by its multiples than expected by chance.
    """
    x = np.asarray(numbers, dtype=np.float64)
    if len(x) < 3 or not bool(np.isfinite(x).all()):
        return None
    on = {step: _two_largest(x, step) for step in _steps(x)}
    finest = max((step for step, (first, _) in on.items() if first == len(x)), default=0.0)
    found = [
        step
        for step, (first, second) in on.items()
        if 3 * first >= len(x) and _more_than_chance(first + second, len(x), finest / step)
    ]
    return max(found, default=None)


def _steps(x: NDArray[np.float64]) -> set[float]:
    rng, unit = np.random.default_rng(len(x)), float(np.spacing(np.abs(x).max()))
    found = set()
    for _ in range(_TRIPLES):
        a, b, c = x[rng.permutation(len(x))[:3]].tolist()
        if step := _common(abs(a - b), abs(a - c), unit):
            found.add(_refined(x - a, step))
    return found


def _common(one: float, other: float, unit: float) -> float:
    # The common divisor of two numbers that are known up to a small multiple of ``unit``; 0 if it
    # cannot be determined.
    whole, high, low = max(one, other), max(one, other), min(one, other)
    while low > _SLACK * unit * whole / max(high, unit):
        high, low = low, abs(high - round(high / low) * low)
    return high if high * high > _SURE * _SLACK * unit * whole else 0.0


def _refined(moved: NDArray[np.float64], step: float) -> float:
    # Refit the step by least squares over the numbers that are a whole number of steps away, and
    # round it to as few digits as possible without noticeably changing its multiples.
    times = np.rint(moved / step)
    near = np.abs(moved / step - times) < _APART
    if bool(times[near].any()):
        step = float(times[near] @ moved[near] / (times[near] @ times[near]))
    if step > 0.5 and not bool((moved != np.rint(moved)).any()):
        return float(np.rint(step))
    for digits in range(1, 17):
        short = float(f"{step:.{digits}g}")
        if abs(short - step) * float(np.ptp(moved)) < _APART * step * step / 16.0:
            return short
    return step


def _two_largest(x: NDArray[np.float64], step: float) -> tuple[int, int]:
    # The sizes of the two largest classes of numbers; numbers are in one class if they are a whole
    # number of steps apart.
    counts = [0, 0]
    rest = (x - x[0]) / step % 1.0
    apart = _APART if bool((x != np.rint(x)).any()) else min(_APART, 0.5 / step)
    for place in (0, 1):
        if len(rest):
            near = np.abs((rest[:, None] - rest + 0.5) % 1.0 - 0.5) < apart
            best = int(near.sum(axis=1).argmax())
            counts[place] = int(near[best].sum())
            rest = rest[~near[best]]
    return counts[0], counts[1]


def _more_than_chance(many: int, of: int, part: float) -> bool:
    # Whether two classes contain significantly more than the fraction ``2 part`` of the numbers,
    # which they would contain by chance on a finer lattice (by Chernoff's bound, and a union bound
    # over all pairs of classes).
    if not part:
        return True
    share, by_chance = many / of, 2.0 * part
    if share <= by_chance:
        return False
    left = (1.0 - share) * math.log((1.0 - share) / (1.0 - by_chance)) if share < 1.0 else 0.0
    information = share * math.log(share / by_chance) + left
    return of * information > _NATS + 2.0 * math.log(1.0 / part)
