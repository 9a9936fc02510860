r"""Online learning: each block is scored by a model fitted on earlier blocks.

An :class:`OnlineLearner` learns from the earlier runs, scores a new block, and only then reads the
datasets of that block. So, given the past, a score is a fixed map of its output, and the test of
scores is valid for every learner (``docs/proofs/audit_tests.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.claims import LOOKS
from audit.features.additive_classifier import CANDIDATES, Parts, Score, learn_parts, rounded
from audit.outputs.output_parser import Outputs
from audit.outputs.rows import Floats, Schema, Table, joined
from dpcore.numbers.arrays import one_thread

LEARNERS: Final = ("coordinates", "learned", "grid")
r"""The names of the learned features: the best single column, the sum of all columns, and the sum
of the lowest bits.
"""

_FEWEST: Final = 64
_GROWTH: Final = 1.5
_SMALL: Final = 4096  # up to this many runs, the learner refits half as often
_MIXED: Final = 5  # all candidates but the grid
_RECALLED: Final = 0.5
_RIDGE: Final = 1e-2
_LEAST: Final = 1e-12
_UNIT: Final = 2.0**-3  # relative to a mean absolute score of 1
_LOOKS: Final = frozenset(LOOKS)


@dataclass(slots=True, kw_only=True)
class OnlineLearner:
    r"""The runs so far, the fitted models, and the performance of earlier candidates on new runs.

    ``models`` maps a number of training runs to the scores learned from them, by name.
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
        r"""Refit on all runs if there are enough, and clearly more than at the last fit."""
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
        # A sum of many columns is never repeated; without rounding it would have so many cells that
        # chance selects among them.
        self._units = {"learned": _UNIT if size else 0.0}
        self.models[runs] = {
            name: parts.score(each, self._units.get(name, 0.0))
            for name, each in self._mixtures.items()
        }

    def _size(self, mixed: Floats, fresh: int) -> float:
        # The mean absolute score of the runs that the previous model scored, regardless of blocks.
        # Dividing by it makes scores of different blocks comparable, so that the rule for a
        # threshold is learned from all blocks.
        if not self._past:
            return 0.0
        size = float(np.abs(np.concatenate(self._past)[-fresh:] @ mixed).mean())
        return float(f"{size:.9e}") if size > _LEAST else 0.0

    def _mixed(self, worlds: NDArray[np.bool_]) -> Floats:
        # Weight the candidates by the performance of their earlier versions on new runs.
        past = np.concatenate(self._past) if self._past else np.zeros((0, len(CANDIDATES)))
        past = past[int(_RECALLED * len(past)) :, :_MIXED]
        if len(past) < 2 * _FEWEST:
            return _only("joint")
        from scipy.optimize import nnls  # slow import, rarely needed

        y = worlds[len(worlds) - len(past) :] - 0.5
        size = past.std(axis=0)
        moves = np.where(size > 0, size, 1.0)
        moved = (past - past.mean(axis=0)) / moves
        root = np.linalg.cholesky(moved.T @ moved / len(past) + _RIDGE * np.eye(_MIXED))
        weights, _ = nnls(root.T, np.linalg.solve(root, moved.T @ y / len(past)))
        if not weights.any():
            return _only("joint")
        found: Floats = np.append(weights / moves, np.zeros(len(CANDIDATES) - _MIXED))
        return found

    def scores(self, outputs: Outputs, worlds: NDArray[np.bool_]) -> dict[str, Floats]:
        r"""The scores of a new block by the name of the learner; the block then becomes training
        data.

        Scores are 0 before the first fit. Call :meth:`learn` first, at the start of a block of the
        test.
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
        r"""The scores for a sequential test; the models are refitted at its looks."""
        if self.runs in _LOOKS:
            self.learn()
        return self.scores(outputs, worlds)


def _only(candidate: str) -> Floats:
    return np.array([float(name == candidate) for name in CANDIDATES])


def learned_scores(
    outputs: Outputs, worlds: NDArray[np.bool_], ends: list[int]
) -> tuple[dict[str, Floats], dict[int, dict[str, Score]]]:
    r"""The scores for a number of runs fixed beforehand, in blocks that end at ``ends``, and the
    models by their numbers of training runs.
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
