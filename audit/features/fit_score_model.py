r"""Learned scores: features that are learned from earlier runs to distinguish two datasets.

An :class:`OnlineLearner` learns from the earlier runs, scores the outputs of a new block of runs,
and only then reads which dataset each run of that block used. So, given the earlier runs, the score
is a fixed function of the output, and the test of the scores is valid for every learner
(``docs/proofs/audit_tests.md``).

The learner reads *columns* of an output: its coordinates (the numbers in it) and other properties
(:mod:`audit.features.learner_columns`). It fits (:func:`learn_parts`), in stages,

- a step function of each column: the log-likelihood ratio of the two datasets in each interval. The
  sum of these ratios is the naive Bayes score;
- two linear forms: one of the standardised coordinates, and one of their signs relative to the
  medians;
- joint weights, by least squares, of both linear forms and all step functions except those of
  lowest bits. In this fit, the ratios of a run are learned from the half of the runs that does not
  contain this run.

The learned score is one sum of step functions and linear forms, which can be computed by hand.

A linear form is fitted by ridge regression of the dataset on the coordinates. The amount of
shrinkage, and its target (0 or the common mean), are chosen by cross-validation on the two halves
of the runs. Weak shrinkage to 0 is Fisher's linear discriminant, which removes correlated noise.
Strong shrinkage to 0 is the difference of the means. Strong shrinkage to the common mean is the sum
of all coordinates, which requires no learning.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.claims import LOOKS
from audit.features.learner_columns import (
    Column,
    Reader,
    Steps,
    cell_counts,
    cell_places,
    cuts_of,
    heights_of,
    learn_reader,
)
from audit.outputs.output_parser import Outputs
from audit.outputs.rows import OTHER, Floats, Schema, Table, joined
from dpcore.numbers.arrays import one_thread

LEARNERS: Final = ("coordinates", "learned", "grid")
r"""The names of the learned features: the best single column, a weighted sum of all columns except
the lowest bits, and a sum of step functions of the lowest bits.
"""

CANDIDATES: Final = ("naive", "joint", "linear", "sides", "best", "grid")
r"""The names of the candidate scores.

In order: naive Bayes, the joint fit of all columns and the linear forms, the linear form of the
coordinates, the linear form of their signs relative to the medians, the most informative column,
and the sum over the lowest bits of all coordinates.
"""

# The refits, and the mixture of the candidates.
_FEWEST: Final = 64
_GROWTH: Final = 1.5
_SMALL: Final = 4096  # up to this many runs, the learner refits half as often
_MIXED: Final = 5  # all candidates but the grid
_RECALLED: Final = 0.5
_MIXED_RIDGE: Final = 1e-2
_LEAST: Final = 1e-12
_UNIT: Final = 2.0**-3  # relative to a mean absolute score of 1
_LOOKS: Final = frozenset(LOOKS)

# The fit of the candidates.
_CUT_FROM: Final = 20_000
_CELLS: Final = 30_000_000
_MOST_CELLS: Final = 128  # more than cuts_of returns
_NAMED: Final = 5
_RIDGE: Final = 1e-3
_RIDGES: Final = (1.0, 10.0, 100.0, 1e3, 1e5)
_STRETCH: Final = 16384
_LARGEST: Final = 1e100
_CHANCE: Final = 4.0  # two standard deviations, squared


@dataclass(slots=True, kw_only=True)
class OnlineLearner:
    r"""Learns to distinguish two datasets from earlier runs, and scores the outputs of later runs.

    ``models[runs]`` contains the scores, by name, that were learned from the first ``runs`` runs.
    """

    models: dict[int, dict[str, Score]] = field(default_factory=dict)
    schema: Schema = field(default_factory=Schema)
    _tables: list[Table] = field(default_factory=list)
    _worlds: list[NDArray[np.bool_]] = field(default_factory=list)
    _past: list[Floats] = field(default_factory=list)
    _parts: Parts | None = None
    _mixtures: dict[str, Floats] = field(default_factory=dict)
    _units: dict[str, float] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        return sum(map(len, self._worlds))

    def learn(self) -> None:
        r"""Refit on all runs so far, if their number has grown much since the last fit."""
        runs, before = self.runs, 0 if self._parts is None else self._parts.runs
        growth = _GROWTH if before > _SMALL else _GROWTH**2
        if runs < max(_FEWEST, growth * before - 2):
            return
        table, worlds = joined(self._tables), np.concatenate(self._worlds)
        self._tables, self._worlds = [table], [worlds]
        if not table.width or worlds.all() or not worlds.any():
            return
        with one_thread():
            self._parts = parts = learn_parts(table, worlds, self.schema)
            mixed = self._mixed(worlds)
        size = self._size(mixed, runs - before)
        self._mixtures = {
            "coordinates": _only("best"),
            "learned": mixed / size if size else mixed,
            "grid": _only("grid"),
        }
        # A sum of many columns is never repeated, so without rounding the test would have so many
        # cells that its choice of cells would be due to chance.
        self._units = {"learned": _UNIT if size else 0.0}
        self.models[runs] = {
            name: parts.score(each, self._units.get(name, 0.0))
            for name, each in self._mixtures.items()
        }

    def _size(self, mixed: Floats, fresh: int) -> float:
        # The mean absolute score of the runs since the last fit, which earlier models scored.
        # Dividing by it makes scores of different blocks comparable, so that a threshold can be
        # learned from all blocks.
        if not self._past:
            return 0.0
        size = float(np.abs(np.concatenate(self._past)[-fresh:] @ mixed).mean())
        return float(f"{size:.9e}") if size > _LEAST else 0.0

    def _mixed(self, worlds: NDArray[np.bool_]) -> Floats:
        # Weight the candidates by how well their earlier versions scored runs that were then new.
        past = np.concatenate(self._past) if self._past else np.zeros((0, len(CANDIDATES)))
        past = past[int(_RECALLED * len(past)) :, :_MIXED]
        if len(past) < 2 * _FEWEST:
            return _only("joint")
        from scipy.optimize import nnls  # slow import, rarely needed

        y = worlds[len(worlds) - len(past) :] - 0.5
        size = past.std(axis=0)
        scale = np.where(size > 0, size, 1.0)
        standard = (past - past.mean(axis=0)) / scale
        root = np.linalg.cholesky(standard.T @ standard / len(past) + _MIXED_RIDGE * np.eye(_MIXED))
        weights, _ = nnls(root.T, np.linalg.solve(root, standard.T @ y / len(past)))
        if not weights.any():
            return _only("joint")
        found: Floats = np.append(weights / scale, np.zeros(len(CANDIDATES) - _MIXED))
        return found

    def scores(self, outputs: Outputs, worlds: NDArray[np.bool_]) -> dict[str, Floats]:
        r"""Score the outputs of a new block of runs, and then add the block to the training data.

        Returns the scores by the name of the learned feature. All scores are 0 before the first
        fit. Call :meth:`learn` before each block.
        """
        table = self.schema.read(outputs)
        found = {name: np.zeros(len(table)) for name in LEARNERS}
        if self._parts is not None:
            with one_thread():
                tried = self._parts.scores(table)
            found = {
                name: rounded(tried @ mixture, self._units.get(name, 0.0))
                for name, mixture in self._mixtures.items()
            }
            self._past.append(tried)
        self._tables.append(table)
        self._worlds.append(worlds)
        return found

    def watched(self, outputs: Outputs, worlds: NDArray[np.bool_]) -> dict[str, Floats]:
        r"""Refit if the number of runs is in :data:`audit.claims.LOOKS`, then score a new block."""
        if self.runs in _LOOKS:
            self.learn()
        return self.scores(outputs, worlds)


def _only(candidate: str) -> Floats:
    return np.array([float(name == candidate) for name in CANDIDATES])


def learned_scores(
    outputs: Outputs, worlds: NDArray[np.bool_], ends: list[int]
) -> tuple[dict[str, Floats], dict[int, dict[str, Score]]]:
    r"""Score all runs of a test whose number of runs is fixed beforehand.

    ``ends`` contains the numbers of runs after which the blocks end. Returns the scores by the name
    of the learned feature, and the :attr:`OnlineLearner.models`.
    """
    study = OnlineLearner()
    parts: dict[str, list[Floats]] = {name: [] for name in LEARNERS}
    for start, end in pairwise([0, *ends]):
        study.learn()
        for name, found in study.scores(outputs[start:end], worlds[start:end]).items():
            parts[name].append(found)
    return {
        name: np.concatenate([np.zeros(0), *each]) for name, each in parts.items()
    }, study.models


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    r"""A learned function of outputs, whose larger values indicate dataset B.

    The score of an output is the sum of weight * step function over ``columns``, and of slope * (x
    - center) over all coordinates x. A coordinate contributes 0 if it is not a number, or is a flag
    (a frequent special number such as -1). The sum is rounded to multiples of ``unit``, unless
    ``unit`` is 0. ``most`` lists the columns with the largest influence on the score, with their
    shares of the total influence.
    """

    reader: Reader
    columns: tuple[tuple[Column, float, Steps], ...]
    center: Floats
    slope: Floats
    most: tuple[tuple[str, float], ...] = ()
    unit: float = 0.0

    def words(self, threshold: float, *, above: bool) -> str | None:
        r"""Describe the outputs with a score >= ``threshold``, or < ``threshold`` if not ``above``.

        Returns None if the score depends on several columns or has no short description.
        """
        if len(self.columns) != 1 or self.slope.any():
            return None
        ((column, weight, steps),) = self.columns
        name, ends = column.name, steps.cuts.tolist()
        scores = rounded(weight * np.concatenate((steps.heights, steps.others)), self.unit)
        chosen = (scores >= threshold) == above
        cells = chosen[: len(ends) + 1]
        edges = np.flatnonzero(np.diff(cells, prepend=False, append=False)).reshape(-1, 2)
        pieces = []
        for start, stop in edges.tolist():
            low = f"{ends[start - 1]:.17g} <= " if start else ""
            high = f" < {ends[stop - 1]:.17g}" if stop <= len(ends) else ""
            pieces.append(f"{low}{name}{high}" if low or high else f"{name} is a number")
        labels = [
            column.label(code)
            for code, (inside, height) in enumerate(
                zip(chosen[len(steps.heights) :].tolist(), steps.others.tolist(), strict=True)
            )
            if inside and height
        ]
        pieces += [f"{name} is {label}" for label in labels]
        return " or ".join(pieces) if 0 < len(pieces) <= _NAMED else None

    def to_json(self) -> dict[str, Any]:
        r"""The coefficients as JSON data, from which the score can be computed by hand.

        Each column in ``steps`` with a number x contributes ``heights[k]``, where ``cuts[k-1] <= x
        < cuts[k]``. A column with a label contributes the entry of ``others`` for this label. Each
        coordinate in ``linear`` contributes slope * (x - center), if x is a number that is not in
        ``flags``. The sum is rounded to multiples of ``unit``, unless ``unit`` is 0.
        """
        return {
            "unit": self.unit,
            "most": [{"column": name, "share": round(share, 3)} for name, share in self.most],
            "flags": list(self.reader.flags),
            "steps": [
                {
                    "column": column.name,
                    "cuts": steps.cuts.tolist(),
                    "heights": (weight * steps.heights[: len(steps.cuts) + 1]).tolist(),
                    "others": {
                        column.label(code): weight * height
                        for code, height in enumerate(steps.others.tolist())
                        if height
                    },
                }
                for column, weight, steps in self.columns
            ],
            "linear": [
                {"column": name, "center": center, "slope": slope}
                for name, center, slope in zip(
                    self.reader.names, self.center.tolist(), self.slope.tolist(), strict=True
                )
                if slope
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    r"""The fitted candidate scores (:data:`CANDIDATES`), each a sum over columns and coordinates.

    ``runs`` is the number of training runs. ``steps`` contains the step function of each column,
    and ``spread`` their standard deviations. ``weights`` contains each candidate's weights of the
    step functions; its shape is (candidates, columns). ``slopes`` contains each candidate's weights
    of the coordinates minus ``center``, and ``sides`` its weights of the coordinates' signs: +1
    above ``middle`` and -1 below. Both have shape (candidates, coordinates). ``scale`` is the
    standard deviation of each coordinate.
    """

    runs: int
    reader: Reader
    steps: tuple[Steps, ...]
    spread: Floats
    scale: Floats
    center: Floats
    middle: Floats
    weights: Floats
    slopes: Floats
    sides: Floats

    def scores(self, table: Table) -> Floats:
        r"""The score of each output by every candidate, of shape (runs, candidates)."""
        plain = self.reader.plain(table)
        first: Floats = _known(plain - self.center) @ self.slopes.T
        first += _sides(plain, self.middle) @ self.sides.T
        found = list(np.ascontiguousarray(first.T))
        for column, steps, weights in zip(
            self.reader.columns, self.steps, self.weights.T, strict=True
        ):
            if weights.any():
                heights = steps(*self.reader.read(column, table, plain))
                for each in np.flatnonzero(weights).tolist():
                    found[each] += heights * weights[each]
        return rounded(np.stack(found, axis=1), 0.0)

    def score(self, mixture: Floats, unit: float = 0.0) -> Score:
        r"""The sum of the candidate scores with weights ``mixture``, as one score."""
        weights, slopes = mixture @ self.weights, mixture @ self.slopes
        sides = mixture @ self.sides
        names = [*self.reader.names, *(column.name for column in self.reader.columns)]
        scale = np.where(np.isfinite(self.scale), self.scale, 0.0)
        influence = (np.abs(slopes) * scale + np.abs(sides), np.abs(weights) * self.spread)
        by_name: dict[str, float] = defaultdict(float)
        for name, part in zip(names, np.concatenate(influence).tolist(), strict=True):
            by_name[name] += part
        total = sum(by_name.values()) or 1.0
        ranked = sorted(by_name.items(), key=lambda each: -each[1])
        columns = [*zip(self.reader.columns, weights.tolist(), self.steps, strict=True)]
        columns += [
            (self.reader.number(place), weight, _step(self.middle[place]))
            for place, weight in enumerate(sides.tolist())
            if weight
        ]
        return Score(
            reader=self.reader,
            columns=tuple(each for each in columns if each[1]),
            center=self.center,
            slope=slopes,
            most=tuple((name, part / total) for name, part in ranked[:_NAMED] if part),
            unit=unit,
        )


def rounded(scores: Floats, unit: float) -> Floats:
    r"""Clip scores so that their squares are finite; round to multiples of ``unit`` unless 0."""
    bounded: Floats = np.clip(scores, -_LARGEST, _LARGEST)
    return np.rint(bounded / unit) * unit + 0.0 if unit else bounded


def learn_parts(table: Table, worlds: NDArray[np.bool_], schema: Schema) -> Parts:
    r"""Fit all candidate scores (:data:`CANDIDATES`) on the same runs."""
    reader = learn_reader(table, schema)
    plain = reader.plain(table)
    fold = np.arange(len(table)) % 2 == 0
    sampled = slice(None, None, -(-len(table) // _CUT_FROM))
    # The stride is odd, so that it selects equally from both halves.
    thin = slice(None, None, len(table) * len(reader.columns) // _CELLS | 1)
    cuts, read, cells = [], [], _MOST_CELLS + reader.codes
    for column in reader.columns:
        numbers, codes = reader.read(column, table, plain)
        cuts.append(cuts_of(numbers[sampled][codes[sampled] == 0]))
        read.append(cell_places(cuts[-1], numbers, codes, _MOST_CELLS))
    # The group of each run: its dataset, plus 2 if it is not in ``fold``.
    groups = worlds + 2 * ~fold
    halves = np.stack([cell_counts(cells, places, groups, 4) for places in read])
    halves = np.ascontiguousarray(halves.reshape(len(read), 2, 2, -1).swapaxes(0, 1))
    heights, gains = heights_of(halves[0] + halves[1], reader.codes)
    # For each half of the runs, the heights learned from the other half.
    others = np.stack([heights_of(half, reader.codes)[0] for half in halves], axis=1).astype(
        np.float32
    )
    behind = cells * fold[thin].astype(np.int32)
    kept = [places[thin] for places in read]
    known, y = plain[thin], worlds[thin] - np.mean(worlds)

    def ratio(i: int, part: slice) -> Any:
        return others[i].ravel().take(behind[part] + kept[i][part])

    def learned(rows_of: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        rows = Stretches(
            runs=len(known), width=reader.width, rows=lambda part: rows_of(known[part])
        )
        return learn_linear(rows, y, fold[thin])

    middle = _middle(plain[sampled])
    side, crossed = learned(lambda rows: _sides(rows, middle))
    center, scale = _standard(Stretches.of(plain))
    slope, linear = learned(lambda rows: _known((rows - center) / scale))
    sure = _sure((ratio(i, slice(None)) for i in range(len(kept))), y)
    joint = _joint(reader, ratio, (linear, crossed), y)
    what = np.array([column.what for column in reader.columns])
    grid = what == "lowest-bit"
    best = np.zeros(len(what))
    best[int(np.argmax(np.where(grid, -np.inf, gains)))] = 1.0
    none, slopes = np.zeros(len(what)), slope / scale
    return Parts(
        runs=len(table),
        reader=reader,
        steps=tuple(
            Steps(cuts=cut, heights=h[:_MOST_CELLS], others=h[_MOST_CELLS:])
            for cut, h in zip(cuts, heights, strict=True)
        ),
        spread=_spread(heights, (halves[0] + halves[1]).sum(axis=1)),
        scale=scale,
        center=center,
        middle=middle,
        weights=np.stack(
            [
                ((what == "column") | (what == "structure")) * sure,
                joint[0] * sure,
                none,
                none,
                best,
                grid,
            ]
        ),
        slopes=np.outer([0.0, joint[1], 1.0, 0.0, 0.0, 0.0], slopes),
        sides=np.outer([0.0, joint[2], 0.0, 1.0, 0.0, 0.0], side),
    )


def _middle(plain: Floats) -> Floats:
    # The medians of coordinates, 0 where there are no numbers.
    known = np.isfinite(plain).any(axis=0)
    found = np.zeros(plain.shape[1])
    found[known] = np.nanmedian(plain[:, known], axis=0)
    return found


def _known(numbers: Floats) -> Floats:
    # Replace missing numbers with 0.
    whole = bool(np.isfinite(numbers).all())
    return numbers if whole else np.nan_to_num(numbers)


def _sides(plain: Floats, middle: Floats) -> Floats:
    return _known(np.sign(plain - middle))


def _step(middle: float) -> Steps:
    # The step function that is -1 below the median, 1 above it, and 0 at it and for non-numbers.
    cuts = np.array([middle, np.nextafter(middle, np.inf)])
    return Steps(cuts=cuts, heights=np.array([-1.0, 0.0, 1.0]), others=np.zeros(OTHER + 1))


def _sure(ratios: Iterable[Any], y: Floats) -> Floats:
    # The fraction of each column's effect that is not due to chance, estimated with ratios learned
    # from the other half (a James-Stein factor). An uninformative column is omitted instead of
    # adding noise.
    sums = [(float(each @ y), float(each @ each)) for each in ratios]
    information, chance = np.array(sums).reshape(-1, 2).T
    chance = chance * float(np.mean(y**2))
    found: Floats = np.clip(1.0 - _CHANCE * chance / np.maximum(information, _LEAST) ** 2, 0.0, 1.0)
    return found


def _spread(heights: Floats, runs: Floats) -> Floats:
    # The standard deviation of each column's height over the runs.
    share = runs / np.maximum(runs.sum(axis=1, keepdims=True), 1.0)
    mean = (share * heights).sum(axis=1)
    found: Floats = np.sqrt(np.maximum((share * heights**2).sum(axis=1) - mean**2, 0.0))
    return found


def _standard(plain: Stretches) -> tuple[Floats, Floats]:
    # The mean and the standard deviation of each column of numbers.
    count, total = np.zeros(plain.width), np.zeros(plain.width)
    squares = np.zeros(plain.width)
    with np.errstate(over="ignore", invalid="ignore"):
        for _, rows in plain:
            count += np.isfinite(rows).sum(axis=0)
            total += _known(rows).sum(axis=0)
        count = np.maximum(count, 1)
        center = total / count
        for _, rows in plain:
            squares += (_known(rows - center) ** 2).sum(axis=0)
        scale = np.nan_to_num(np.sqrt(squares / count), nan=np.inf, posinf=np.inf)
    scale = np.where(scale > 0, scale, 1.0)
    # A column is omitted from the linear forms if squares of its numbers overflow.
    wild = ~np.isfinite(scale)
    return np.where(wild, 0.0, center), np.where(wild, np.inf, scale)


def _joint(
    reader: Reader, ratio: Callable[[int, slice], Any], forms: tuple[Floats, Floats], y: Floats
) -> tuple[Floats, float, float]:
    # The least-squares weights of the columns, and then of the two linear forms, with a ridge
    # penalty that decreases with the number of runs. A constant column has weight 0.
    kept = [i for i, column in enumerate(reader.columns) if column.what != "lowest-bit"]
    runs, width = len(y), len(kept) + len(forms)
    columns = Stretches(
        runs=runs,
        width=width,
        rows=lambda part: np.stack(
            [*(ratio(i, part) for i in kept), *(form[part] for form in forms)], axis=1
        ).astype(np.float64),
    )
    sums = Moments.of(columns, y, np.ones(runs, dtype=np.bool_))
    gram, rows = sums.gram, sums.columns
    if rows is None:
        gram, sizes = gram / runs, np.diag(gram) / runs
    else:
        rows, sizes = rows / np.sqrt(runs), (rows**2).mean(axis=0)
    sizes = np.maximum(sizes, _LEAST)
    penalty = sizes * (_RIDGE + width / runs) + _LEAST
    found = solve_ridge(gram, rows, penalty, sums.cross / runs)
    weights = np.zeros(len(reader.columns))
    weights[kept] = found[:-2]
    return weights, float(found[-2]), float(found[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    r"""A matrix with one row per run; ``rows(part)`` computes a slice of rows, to save memory."""

    runs: int
    width: int
    rows: Callable[[slice], Floats]

    @classmethod
    def of(cls, columns: Floats) -> Stretches:
        return cls(runs=len(columns), width=columns.shape[1], rows=lambda part: columns[part])

    def __iter__(self) -> Iterator[tuple[slice, Floats]]:
        for start in range(0, self.runs, _STRETCH):
            part = slice(start, min(start + _STRETCH, self.runs))
            yield part, self.rows(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    r"""The sums over some runs that a ridge regression of the dataset on columns needs.

    ``gram`` contains the sums of products of two columns, and ``cross`` the sums of products of a
    column and the dataset. If there are fewer runs than columns, ``gram`` is None and ``columns``
    contains the centred columns instead.
    """

    gram: Any
    columns: Floats | None
    cross: Floats
    runs: int

    @classmethod
    def of(cls, columns: Stretches, y: Floats, chosen: NDArray[np.bool_]) -> Moments:
        r"""Compute the sums over the chosen runs, with centred columns and datasets ``y``."""
        runs = int(np.count_nonzero(chosen))
        if runs < columns.width:
            some = np.concatenate([rows[chosen[part]] for part, rows in columns])
            centred = some - some.mean(axis=0)
            return cls(gram=None, columns=centred, cross=centred.T @ y[chosen], runs=runs)
        total, cross = np.zeros(columns.width), np.zeros(columns.width)
        gram = np.zeros((columns.width, columns.width))
        for part, rows in columns:
            some = rows[chosen[part]]
            total += some.sum(axis=0)
            cross += some.T @ y[part][chosen[part]]
            gram += some.T @ some
        mean = total / runs
        gram -= runs * np.outer(mean, mean)
        return cls(gram=gram, columns=None, cross=cross - mean * y[chosen].sum(), runs=runs)

    def __add__(self, other: Moments) -> Moments:
        cross = self.cross + other.cross
        if self.columns is not None and other.columns is not None:
            both = np.concatenate((self.columns, other.columns))
            return Moments(gram=None, columns=both, cross=cross, runs=len(both))
        gram = self.products() + other.products()
        return Moments(gram=gram, columns=None, cross=cross, runs=self.runs + other.runs)

    def products(self) -> Floats:
        if self.columns is None:
            return np.asarray(self.gram)
        return self.columns.T @ self.columns

    def correlation(self, slope: Floats) -> float:
        r"""The correlation of the dataset and a linear form, up to a constant factor."""
        if self.columns is None:
            squares = float(slope @ self.gram @ slope)
        else:
            squares = float(((self.columns @ slope) ** 2).sum())
        return float(slope @ self.cross) / math.sqrt(max(squares * max(self.runs, 1), _LEAST))

    def slopes(self, ridge: float) -> tuple[Floats, Floats]:
        r"""Two vectors of ridge weights: shrunk towards 0, and shrunk towards their common mean."""
        width = len(self.cross)
        penalty = ridge * (_RIDGE + width / max(self.runs, 1)) * max(self.runs, 1)
        same = np.full(width, width**-0.5)
        drawn = np.full(width, penalty + _LEAST)
        right = np.stack((self.cross, same), axis=1)
        to_zero, towards = solve_ridge(self.gram, self.columns, drawn, right).T
        # Sherman-Morrison: the same system without a penalty on the mean.
        left = max(1.0 - penalty * float(same @ towards), _LEAST)
        return to_zero, to_zero + towards * (penalty * float(same @ to_zero) / left)


def solve_ridge(gram: Any, columns: Floats | None, penalty: Floats, right: Floats) -> Floats:
    r"""Solve (gram + diag(penalty)) x = right for x.

    If ``columns`` is not None, gram stands for columns^T columns. Then a smaller system, of size
    the number of rows of ``columns``, is solved (Woodbury's identity).
    """
    if columns is None:
        found: Floats = np.linalg.solve(gram + np.diag(penalty), right)
        return found
    share = right / (penalty if right.ndim == 1 else penalty[:, None])
    lighter = columns / penalty
    inner = lighter @ columns.T + np.eye(len(columns))
    return share - lighter.T @ np.linalg.solve(inner, columns @ share)


def learn_linear(columns: Stretches, y: Floats, fold: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    r"""Fit a linear form of ``columns`` to the datasets ``y`` by ridge regression.

    Returns the weights, fitted on all runs, and a cross-fitted value of the form for each run. This
    value uses weights that are fitted on the half of the runs that does not contain the run.
    ``fold`` states which half a run is in.
    """
    halves = [Moments.of(columns, y, half) for half in (~fold, fold)]
    tried = []
    for ridge in _RIDGES:
        for first, second in zip(*(half.slopes(ridge) for half in halves), strict=True):
            seen = halves[1].correlation(first) + halves[0].correlation(second)
            tried.append((seen, first, second))
    best = max(range(len(tried)), key=lambda i: tried[i][0])
    ridge, target = divmod(best, 2)
    crossed = np.zeros(len(y))
    _, first, second = tried[best]
    for part, rows in columns:
        crossed[part] = np.where(fold[part], rows @ first, rows @ second)
    return (halves[0] + halves[1]).slopes(_RIDGES[ridge])[target], crossed
