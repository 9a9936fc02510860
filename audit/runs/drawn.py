r"""The runs of an audit: outputs as they came, and as each feature shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.evidence.family import FamilyProcess, View, watch_views
from audit.outputs.features.feature import Feature, require_fixed
from audit.outputs.form import Form, Outputs, concatenate
from audit.outputs.guard import Watchdog, reading, stdout_to_stderr
from audit.runs.block import worlds_of
from audit.runs.plan import Plan, Planned
from audit.targets.target import Target

__all__ = ["Collected", "Drawn", "Kept"]

_PLAIN: Final = Form(lines=False, as_json=False, by_kind=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    r"""The runs of one block: outputs as they came, and as each feature shows them.

    ``shown`` is empty where a feature, or code of the outputs' own, failed. ``process`` is the
    anytime evidence after the block.
    """

    block: Planned
    outputs: Outputs
    worlds: NDArray[np.bool_]
    shown: tuple[Outputs, ...] = ()
    process: FamilyProcess | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    r"""The runs of an audit, and why there are no more.

    ``error`` is the target's, ``notes`` are what a reader should know, ``process`` is the evidence
    of a sequential audit. Nothing here was chosen by looking at the runs that are tested.
    """

    target: Target
    plan: Plan
    blocks: tuple[Kept, ...]
    forms: tuple[Form, ...]
    process: FamilyProcess | None
    stopped: str
    error: TargetFailed | None
    notes: tuple[str, ...]
    repeatable: bool

    @property
    def runs(self) -> int:
        r"""Runs drawn, both worlds and all pairs together."""
        return sum(len(kept.worlds) for kept in self.blocks)

    @property
    def runs_by_world(self) -> tuple[int, int]:
        r"""Runs drawn in each world, all pairs together."""
        in_b = sum(int(np.count_nonzero(kept.worlds)) for kept in self.blocks)
        return self.runs - in_b, in_b

    def outputs(self, pair: int = 0) -> Outputs:
        r"""The outputs of a pair in run order, as they came: of a program, lines of text."""
        return concatenate([kept.outputs for kept in self.blocks if kept.block.pair == pair])

    def worlds(self, pair: int = 0) -> NDArray[np.bool_]:
        r"""Which world each run of a pair is in, True for B."""
        mine = [kept.worlds for kept in self.blocks if kept.block.pair == pair]
        return np.concatenate([np.zeros(0, np.bool_), *mine])

    @contextmanager
    def reading(self) -> Iterator[None]:
        r"""The outputs are read inside, as :func:`audit.outputs.guard.reading` says, with the
        audit's time limit and its standard output kept clean.
        """
        with (
            stdout_to_stderr(),
            Watchdog(self.plan.timeout),
            reading(self.target.spelling),
        ):
            yield

    def untested(self) -> Drawn:
        r"""The same with no runs to test: for outputs whose own code fails when they are read."""
        return replace(self, blocks=(), process=_no_evidence(self.plan))

    @property
    def views(self) -> tuple[View, ...]:
        r"""What is tested: each pair through each feature, in the order of the outcomes."""
        return tuple(
            self._view(pair, i)
            for pair in range(len(self.plan.pairs))
            for i in range(len(_names(self.plan)))
        )

    def _view(self, pair: int, feature: int) -> View:
        mine = [kept for kept in self.blocks if kept.block.pair == pair and kept.shown]
        return View(
            pair=pair,
            feature=_names(self.plan)[feature],
            outputs=concatenate([kept.shown[feature] for kept in mine]),
            worlds=np.concatenate([np.zeros(0, np.bool_), *(kept.worlds for kept in mine)]),
        )


def _no_evidence(plan: Plan) -> FamilyProcess | None:
    if not plan.sequential:
        return None
    return watch_views(plan.claim, pairs=len(plan.pairs), features=_names(plan))


def _names(plan: Plan) -> tuple[str | None, ...]:
    return tuple(feature.name for feature in plan.features) or (None,)


@dataclass(slots=True, kw_only=True)
class Collected:
    r"""Collect the runs of an audit as they are drawn; the only object of an audit that changes.

    A block is kept by one append, so that Ctrl-C finds it whole or not at all.
    """

    plan: Plan
    target: Target
    blocks: list[Kept] = field(default_factory=list)
    forms: dict[tuple[int, int | None], Form] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    repeatable: bool = True
    error: TargetFailed | None = None

    def keep(self, block: Planned, outputs: Outputs) -> None:
        r"""Keep the runs of a block, all or its first ones, and look at them.

        Raises :class:`TargetFailed` where every output of the first block is None, or a feature or
        code of the outputs' own fails, with the runs kept; InvalidParameter for a feature that is
        no fixed map.
        """
        worlds = worlds_of(self.plan, block)[: len(outputs)]
        if not len(outputs):
            return
        process = self.process
        try:
            shown = self._shown(block.pair, outputs, worlds)
            with reading(self.target.spelling):
                if process is not None:
                    process = process.update(block.pair, shown, worlds)
        except TargetFailed:
            self.blocks.append(Kept(block=block, outputs=outputs, worlds=worlds))
            raise
        self.blocks.append(
            Kept(block=block, outputs=outputs, worlds=worlds, shown=shown, process=process)
        )
        if block.index == 0 and all(output is None for output in outputs):
            raise TargetFailed(self.target.spelling, "returns nothing: every output is None")

    def _shown(self, pair: int, outputs: Outputs, worlds: NDArray[np.bool_]) -> tuple[Outputs, ...]:
        # A pair's first block is for training: how outputs are read is learned there.
        form = self.forms.get((pair, None))
        first = form is None
        with reading(self.target.spelling):
            if form is None:
                form = Form.learn(outputs, worlds, lines=self.target.lines)
                self.forms[pair, None] = form
            if not self.plan.features:
                return (form.apply(outputs),)
            values = form.values(outputs)
        return tuple(
            self._through(feature, (pair, i), values, worlds, first=first)
            for i, feature in enumerate(self.plan.features)
        )

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
            seen = feature.shown(values)
            if view not in self.forms:
                self.forms[view] = Form.learn(seen, worlds, lines=False)
            return self.forms[view].apply(seen)

    @property
    def process(self) -> FamilyProcess | None:
        r"""The anytime evidence so far, None for a fixed number of runs."""
        found = next((kept.process for kept in reversed(self.blocks) if kept.process), None)
        return _no_evidence(self.plan) if found is None else found

    @property
    def runs(self) -> int:
        r"""Runs kept, both worlds and all pairs together."""
        return sum(len(kept.worlds) for kept in self.blocks)

    @property
    def rejected_at(self) -> int | None:
        r"""The number of runs at which a sequential audit had seen enough."""
        process = self.process
        return None if process is None else process.rejected_at(self.plan.alpha)

    def drawn(self, stopped: str) -> Drawn:
        r"""The collected runs, once drawing has stopped."""
        raw = [self.forms.get((pair, None), _PLAIN) for pair in range(len(self.plan.pairs))]
        return Drawn(
            target=self.target,
            plan=self.plan,
            blocks=tuple(self.blocks),
            forms=tuple(raw),
            process=self.process,
            stopped=stopped,
            error=self.error,
            notes=tuple(self.notes),
            repeatable=self.repeatable,
        )
