r"""The runs of an audit so far: outputs, and the values of each feature."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.features.parse_feature import Feature, default_features, require_fixed
from audit.outputs.output_parser import OutputParser, Outputs, concatenate
from audit.outputs.time_limit import Watchdog, reading, stdout_to_stderr
from audit.runs.draw_plan import Plan, Planned, worlds_of
from audit.statistical_tests.multiple_testing import FamilyProcess, View, watch_views
from audit.statistical_tests.prequential_fixed_runs_test import block_ends
from audit.targets.target import Target

if TYPE_CHECKING:
    from audit.features.fit_score_model import OnlineLearner, Score

_LOOKED_AT: Final = 64
_PLAIN: Final = OutputParser(lines=False, as_json=False, by_kind=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRuns:
    r"""The runs of one block: their raw outputs, datasets, and the values of each feature.

    ``worlds`` contains the dataset of each run, True for B. ``viewed`` contains the values of each
    feature; it is empty if computing a feature, or code of the outputs' classes, failed.
    ``process`` is the evidence of a sequential test after this block.
    """

    block: Planned
    outputs: Outputs
    worlds: NDArray[np.bool_]
    viewed: tuple[Outputs, ...] = ()
    process: FamilyProcess | None = None


@dataclass(slots=True, kw_only=True)
class DrawnRuns:
    r"""All runs of an audit so far, and the reason why they ended.

    - ``error``: the error of the target, if any;
    - ``notes``: remarks for the reader of the report;
    - ``forms``: parsers of the outputs of each pair of datasets, and of the values of each feature;
    - ``features``: the features of each pair. If there are none, the outputs themselves are tested.

    This mutable state fixes ``forms`` and ``features`` in the first block of a pair, which is not
    tested. A block is stored with a single append, so that Ctrl-C leaves it complete or absent.
    """

    plan: Plan
    target: Target
    blocks: list[BlockRuns] = field(default_factory=list)
    forms: dict[tuple[int, int | None], OutputParser] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    repeatable: bool = True
    error: TargetFailed | None = None
    stopped: str = ""
    pair: int = 0
    features: dict[int, tuple[Feature, ...]] = field(default_factory=dict)
    studies: dict[tuple[int, str], OnlineLearner] = field(default_factory=dict)
    _studied: dict[tuple[int, str, int], tuple[Any, Any]] = field(
        default_factory=dict, compare=False
    )

    @property
    def runs(self) -> int:
        return sum(len(kept.worlds) for kept in self.blocks)

    @property
    def runs_by_world(self) -> tuple[int, int]:
        in_b = sum(int(np.count_nonzero(kept.worlds)) for kept in self.blocks)
        return self.runs - in_b, in_b

    @property
    def process(self) -> FamilyProcess | None:
        r"""The evidence of a sequential test so far, or None if the number of runs is fixed."""
        if not self.plan.sequential:
            return None
        found = next((kept.process for kept in reversed(self.blocks) if kept.process), None)
        if found is None:
            found = watch_views(self.plan.claim, pairs=len(self.plan.pairs))
            for pair, features in enumerate(self._by_pair):
                found = _through(found, pair, features)
        return found

    @property
    def rejected_at(self) -> int | None:
        r"""The number of runs after which a sequential audit refuted the claim; else None."""
        process = self.process
        return None if process is None else process.rejected_at(self.plan.alpha)

    @property
    def _by_pair(self) -> list[tuple[Feature, ...]]:
        return [self.features.get(i, self.plan.features) for i in range(len(self.plan.pairs))]

    def form(self, pair: int) -> OutputParser:
        r"""The parser of the outputs of a pair of datasets."""
        return self.forms.get((pair, None), _PLAIN)

    def outputs(self, pair: int = 0) -> Outputs:
        r"""The outputs on a pair of datasets in run order; lines of text for a program."""
        return concatenate([kept.outputs for kept in self.blocks if kept.block.pair == pair])

    def worlds(self, pair: int = 0) -> NDArray[np.bool_]:
        r"""The dataset of each run on a pair of datasets; True for dataset B."""
        mine = [kept.worlds for kept in self.blocks if kept.block.pair == pair]
        return np.concatenate([np.zeros(0, np.bool_), *mine])

    @contextmanager
    def reading(self) -> Iterator[None]:
        r"""The context :func:`audit.outputs.time_limit.reading` with this audit's time limit.

        It also redirects standard output to standard error.
        """
        with (
            stdout_to_stderr(),
            Watchdog(self.plan.timeout),
            reading(self.target.spelling),
        ):
            yield

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(
            self._view(pair, i)
            for pair, features in enumerate(self._by_pair)
            for i in range(len(features) or 1)
        )

    @property
    def of_floats(self) -> bool:
        r"""Whether any of the first 64 outputs of a pair is a float or contains floats."""
        return any(
            _holds_floats(self.form(pair).values(self.outputs(pair)[:_LOOKED_AT]))
            for pair in range(len(self.plan.pairs))
        )

    def _view(self, pair: int, place: int) -> View:
        mine = [kept for kept in self.blocks if kept.block.pair == pair and kept.viewed]
        outputs = concatenate([kept.viewed[place] for kept in mine])
        worlds = np.concatenate([np.zeros(0, np.bool_), *(kept.worlds for kept in mine)])
        plain = View(pair=pair, outputs=outputs, worlds=worlds)
        if not self._by_pair[pair]:
            return plain
        feature = self._by_pair[pair][place]
        plain = replace(
            plain, feature=feature.name, weight=feature.share, followed=not feature.of_bits
        )
        if feature.learner is None:
            return plain
        learner, source = feature.learner, _source(feature)
        if self.plan.sequential:  # outputs were scored when they were drawn
            study = self.studies.get((pair, source))
            taught = {} if study is None else study.models
            return replace(plain, models={runs: each[learner] for runs, each in taught.items()})

        def scores(runs: int) -> tuple[NDArray[np.float64], dict[int, Score]]:
            # The learners of features with the same input are fitted together, once.
            from audit.features.fit_score_model import (
                learned_scores,  # most outputs need no learner
            )

            key = (pair, source, runs)
            if key not in self._studied:
                self._studied[key] = learned_scores(outputs[:runs], worlds[:runs], block_ends(runs))
            found, models = self._studied[key]
            return found[learner], {runs: each[learner] for runs, each in models.items()}

        found, models = scores(len(worlds))
        return replace(plain, outputs=found, models=models, first=lambda runs: scores(runs)[0])

    def keep(self, block: Planned, outputs: Outputs) -> None:
        r"""Parse and store the outputs of a block, which may be incomplete.

        If that raises :class:`TargetFailed`, the outputs are stored without values of features.
        """
        worlds = worlds_of(self.plan, block)[: len(outputs)]
        if not len(outputs):
            return
        first = block.pair not in self.features
        try:
            viewed, features = self._viewed(block.pair, outputs, worlds)
            process = self.process
            with reading(self.target.spelling):
                if process is not None:
                    if first:
                        process = _through(process, block.pair, features)
                    process = process.update(block.pair, viewed, worlds)
        except TargetFailed:
            self.blocks.append(BlockRuns(block=block, outputs=outputs, worlds=worlds))
            raise
        self.features[block.pair] = features
        self.blocks.append(
            BlockRuns(block=block, outputs=outputs, worlds=worlds, viewed=viewed, process=process)
        )

    def _viewed(
        self, pair: int, outputs: Outputs, worlds: NDArray[np.bool_]
    ) -> tuple[tuple[Outputs, ...], tuple[Feature, ...]]:
        # The first block of a pair is for training: it determines the parser of the outputs, and
        # the features if the plan contains none.
        form = self.forms.get((pair, None))
        first = form is None
        with reading(self.target.spelling):
            if form is None:
                form = OutputParser.learn(outputs, worlds, lines=self.target.lines)
                self.forms[pair, None] = form
            values = form.values(outputs)
            features = self.features.get(pair, self.plan.features)
            if first and not features and not form.by_kind:  # otherwise only types are tested
                features = default_features(values, floats=self.plan.floats == "test")
            if not features:
                return (form.apply(outputs),), features
        scores: dict[str, dict[str, Outputs]] = {}
        viewed: list[Outputs] = []
        for i, feature in enumerate(features):
            if not self.plan.features and feature.name == "identity":
                viewed.append(form.apply(outputs))
                continue
            seen = self._through(feature, (pair, i), values, worlds, first=first)
            if feature.learner is not None and self.plan.sequential:
                source = _source(feature)
                if source not in scores:
                    from audit.features.fit_score_model import OnlineLearner

                    with reading(self.target.spelling):
                        study = self.studies.setdefault((pair, source), OnlineLearner())
                        scores[source] = dict(study.watched(seen, worlds))
                seen = scores[source][feature.learner]
            viewed.append(seen)
        return tuple(viewed), features

    def _through(
        self,
        feature: Feature,
        view: tuple[int, int],
        values: Outputs,
        worlds: NDArray[np.bool_],
        *,
        first: bool,
    ) -> Outputs:
        with reading(f"feature {feature.name}"):
            if first:
                require_fixed(feature, values)
            seen = feature.viewed(values)
            if feature.learner is not None:
                return seen
            if view not in self.forms:
                self.forms[view] = OutputParser.learn(seen, worlds, lines=False)
            return self.forms[view].apply(seen)

    def finish(self, stopped: str) -> DrawnRuns:
        r"""Store the reason ``stopped`` why no more runs are drawn, and return self.

        Sets ``error`` if all outputs of a pair are None.
        """
        self.stopped = stopped
        several = len(self.plan.pairs) > 1
        for pair in range(len(self.plan.pairs)):
            self._together(pair)
            outputs = self.outputs(pair)
            empty = len(outputs) > 0 and all(output is None for output in outputs)
            if self.error is None and empty:
                where = f"on pair {pair + 1} of {len(self.plan.pairs)}, " if several else ""
                reason = f"{where}returned nothing: every output is None"
                self.error = TargetFailed(self.target.spelling, reason)
        return self

    def _together(self, pair: int) -> None:
        # Make the blocks of a pair slices of one array, so that reading all of them needs no copy.
        mine = [i for i, kept in enumerate(self.blocks) if kept.block.pair == pair]
        whole = concatenate([self.blocks[i].outputs for i in mine])
        if not isinstance(whole, np.ndarray):
            return
        start = 0
        for i in mine:
            kept = self.blocks[i]
            outputs = whole[start : (start := start + len(kept.outputs))]
            viewed = tuple(outputs if each is kept.outputs else each for each in kept.viewed)
            self.blocks[i] = replace(kept, outputs=outputs, viewed=viewed)


def _holds_floats(value: object) -> bool:
    match value:
        case np.ndarray():
            return bool(value.dtype.kind == "f")
        case dict():
            return any(map(_holds_floats, value.values()))
        case list() | tuple():
            return any(map(_holds_floats, value))
    return isinstance(value, float | np.floating)


def _source(feature: Feature) -> str:
    # The steps before a learner, as text; their values are the learner's input.
    return feature.name.rpartition("+")[0]


def _through(process: FamilyProcess, pair: int, features: tuple[Feature, ...]) -> FamilyProcess:
    own = watch_views(
        process.claim,
        features=tuple(feature.name for feature in features) or (None,),
        weights=tuple(feature.share for feature in features),
        learned=tuple(feature.learner is not None for feature in features),
    )
    return process.through(pair, own)
