r"""Run a target once on a random tape, and record what it did."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from audit.errors import TargetFailed, Unreadable
from audit.outputs.call_guard import RAISED, TimeUp, Watchdog, failure
from audit.outputs.copies import captured, copies
from audit.outputs.identity import identity, without_address
from audit.outputs.output_parser import kind, require_readable
from audit.outputs.rows import EXACT, Cell, Row, row_of
from audit.replay.rng_hooks import Session
from audit.replay.tape import Changes, Draw, Tape
from audit.targets.target import NoiseAdded, Scalar, Target, Vectorised

MOST_HANGS: Final = 12
r"""The number of runs that do not end after which the target has failed: each of them takes the
whole time limit.
"""

_MOST_PARTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    r"""The result of one dataset on one tape: an output, or an error.

    ``key`` is equal for indistinguishable outputs, ``kind`` is the type and shape; ``structure``
    and ``parts`` (the cells by path) are those of the output's row, but only the labels if it has
    more than 64 numbers. The ``key`` of an error is its type and text, which are also visible.
    """

    output: Any
    key: Hashable
    kind: str
    tape: Tape
    error: TargetFailed | None = None
    structure: str = ""
    parts: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def flow(self) -> tuple[Draw, ...]:
        r"""The sequence of requests to the tape: the control flow visible in the draws."""
        return tuple(self.tape.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRuns:
    r"""The runs of both datasets on one tape."""

    a: Execution
    b: Execution

    @property
    def failed(self) -> bool:
        return self.a.error is not None or self.b.error is not None

    @property
    def complete(self) -> bool:
        r"""Whether both runs gave an output, and all their draws are known."""
        return not (self.failed or self.a.tape.cut or self.b.tape.cut)

    def witness(self, **more: Any) -> dict[str, Any]:
        r"""The tape and both outputs, for reproduction."""
        changed = {f"{s}[{i}]": value for (s, i), value in self.a.tape.changes.items()}
        where: dict[str, Any] = {"tape": self.a.tape.seed, "changed": changed}
        return {**where, "a": self.a.output, "b": self.b.output, **more}


@dataclass(slots=True, kw_only=True)
class Runner:
    r"""Runs a target on tapes, with RNG hooks and a time limit, and counts the ``runs`` and the
    ``hangs``.

    Tapes are numbered from 0; ``first`` is the seed of the first one.
    """

    target: Target
    pair: tuple[Any, Any]
    session: Session
    watchdog: Watchdog
    first: int
    runs: int = 0
    hangs: int = 0
    _fresh: tuple[Callable[[], Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = tuple(copies(f"dataset {'AB'[i]}", self.pair[i]) for i in (0, 1))

    def on(self, world: int, number: int, changes: Changes | None = None) -> Execution:
        r"""Run a dataset (0 is A) on the tape with this number, with some draws changed."""
        return self.run(world, Tape(self.first + number, changes))

    def both(self, number: int, changes: Changes | None = None) -> PairedRuns:
        return PairedRuns(a=self.on(0, number, changes), b=self.on(1, number, changes))

    def run(self, world: int, tape: Tape) -> Execution:
        r"""Run dataset A (0) or B (1) on a new tape.

        Raises :class:`TargetFailed` after :data:`MOST_HANGS` runs that did not end.
        """
        self.runs += 1
        dataset = self._fresh[world]()

        def call() -> Any:
            self.watchdog.restart()
            output = _call(self.target, dataset, self.session)
            require_readable(output)
            return captured(output)

        try:
            output = self.session.play(tape, call)
            self.watchdog.stop()
            row = row_of(output)
            found = Execution(
                output=output,
                key=identity(output),
                kind=kind(output),
                tape=tape,
                structure=row.structure,
                parts=_parts(row),
            )
        except RAISED as error:
            self.watchdog.stop()
            failed = failure(self.target.spelling, error, dataset="AB"[world])
            hangs = isinstance(error, TimeUp)
            self.hangs += hangs
            if self.hangs >= MOST_HANGS:
                raise failed from error
            name = "hangs" if hangs else f"raises {type(error).__name__}"
            message = "" if hangs else without_address(str(error))
            found = Execution(
                output=name, key=("failed", name, message), kind=name, tape=tape, error=failed
            )
        return found


def function_of(target: Target) -> Callable[..., Any] | None:
    r"""The Python function to replay, or None if another process or language draws."""
    match target:
        case Scalar() | Vectorised():
            return target.function
        case NoiseAdded():
            return target.noise.sample
        case _:
            return None


def _call(target: Target, dataset: Any, session: Session) -> Any:
    match target:
        case NoiseAdded():
            return target.check((dataset, dataset))[0] + target.noise.sample()
        case Vectorised():
            outputs = target.function(dataset, n=1, rng=session.given(ours=target.ours))
            if not isinstance(outputs, np.ndarray | list | tuple) or len(outputs) != 1:
                raise Unreadable("did not return one output along the first axis for n = 1")
            return outputs[0]
        case Scalar():
            if target.seeded:
                return target.function(dataset, rng=session.given(ours=target.ours))
            return target.function(dataset)
        case _:  # function_of returned None
            raise Unreadable(f"{target.spelling} cannot be replayed")


def _parts(row: Row) -> dict[str, Cell]:
    # Numbers are compared exactly, so labels of what their floats do not represent are left out.
    cells = [(path, cell) for path, cell in row.cells if not path.endswith(EXACT)]
    if len(cells) <= _MOST_PARTS:
        return dict(cells)
    return {path: cell for path, cell in cells if is_label(cell)}


def is_label(cell: Cell) -> bool:
    r"""Whether a cell is a label, or not a finite number."""
    return isinstance(cell, str) or (isinstance(cell, float) and not math.isfinite(cell))
