r"""An audit from beginning to end: runs are drawn, tested and reported.

Every coin of an audit comes from its seed: which world each run is in, what a target gets as
randomness in each world and block, and the coins that make p-values exact. The same seed and a
target that keeps to the randomness it is given repeat the report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.confidence import draw_worlds
from audit.errors import TargetFailed
from audit.guard import Watchdog, stdout_to_stderr
from audit.outputs import Form, Outputs, concatenate, oddities, same
from audit.plan import Plan
from audit.report import AuditReport
from audit.sequential import EProcess, watch
from audit.target import Block, Target
from audit.verdict import versions, weigh, weigh_process
from dpcore.parameter import rational

__all__ = ["Progress", "sample"]

Progress = Callable[[int], None]
r"""Called with the number of runs drawn so far."""

_PROBES: Final = 8


@dataclass(slots=True, kw_only=True)
class _Drawn:
    # What has been drawn so far; the only thing here that changes. A block is kept by one append,
    # so that Ctrl-C finds it whole or not at all.
    plan: Plan
    target: Target
    blocks: list[tuple[Outputs, NDArray[np.bool_], EProcess | None]] = field(default_factory=list)
    form: Form | None = None
    stopped: str = "nothing was drawn"
    error: TargetFailed | None = None

    def keep(self, pieces: list[Outputs], worlds: NDArray[np.bool_]) -> None:
        outputs = concatenate(pieces)
        if not len(outputs):
            return
        worlds = worlds[: len(outputs)]
        if self.form is None:
            self.form = Form.learn(outputs, worlds, lines=self.target.lines)
        process = self.process
        if process is not None:
            process = process.update(self.form.apply(outputs), worlds)
        self.blocks.append((outputs, worlds, process))

    @property
    def process(self) -> EProcess | None:
        if self.blocks:
            return self.blocks[-1][2]
        return watch(*self.plan.claim.exact) if self.plan.sequential else None

    @property
    def outputs(self) -> Outputs:
        return concatenate([outputs for outputs, _, _ in self.blocks])

    @property
    def worlds(self) -> NDArray[np.bool_]:
        return np.concatenate([np.zeros(0, np.bool_), *(worlds for _, worlds, _ in self.blocks)])

    @property
    def runs(self) -> int:
        return sum(len(worlds) for _, worlds, _ in self.blocks)

    @property
    def rejected_at(self) -> int | None:
        process = self.process
        return None if process is None else process.rejected_at(self.plan.alpha)


def sample(target: Target, plan: Plan, *, progress: Progress | None = None) -> AuditReport:
    r"""Audit a target as a black box.

    A failing target gives a report with ``error`` set and the evidence drawn before; Ctrl-C one
    without ``error``, unless nothing was drawn: then KeyboardInterrupt goes on.

    >>> from audit.claim import Claim
    >>> from audit.target import Vectorised
    >>> def bit(dataset, n, rng):
    ...     return np.full(n, dataset)  # no noise at all
    >>> plan = Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=1000, seed=7)
    >>> sample(Vectorised(spelling="bit", function=bit), plan).verdict
    'refuted'
    """
    coins, mixing, tapes, probe, test = np.random.SeedSequence(plan.seed).spawn(5)
    drawn = _Drawn(plan=plan, target=target)
    noted = [_EQUAL] if repr(plan.pair[0]) == repr(plan.pair[1]) else []
    with stdout_to_stderr(), Watchdog(plan.timeout) as watchdog:
        draws = _Draws(
            plan=plan,
            coins=np.random.default_rng(coins),
            mixing=np.random.default_rng(mixing),
            tapes=tapes,
            watchdog=watchdog,
        )
        try:
            noted += _probe(target, replace(draws, tapes=probe))
            drawn.stopped = _draw(drawn, draws, progress)
        except TargetFailed as error:
            drawn.error, drawn.stopped = error, _FAILED
        except KeyboardInterrupt:
            if not drawn.runs:
                raise
            drawn.stopped = _INTERRUPTED
    # The anytime test may end at any time.
    if drawn.stopped in {_DEADLINE, _FAILED, _INTERRUPTED} and drawn.runs and not plan.sequential:
        noted.append(_CUT_SHORT)
    return _report(drawn, int(test.generate_state(1, np.uint64)[0]), noted)


_EQUAL: Final = "both datasets are the same: nothing tells the worlds apart"
_IGNORES: Final = (
    "the target ignores the randomness it is given: --seed does not repeat its outputs"
)
_FAILED: Final = "the target failed"
_INTERRUPTED: Final = "interrupted"
_DEADLINE: Final = "the deadline was reached"
_CUT_SHORT: Final = (
    "ended before its planned runs: alpha stands if the outputs had no part in when that was"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draws:
    # Where the randomness of an audit comes from.
    plan: Plan
    coins: np.random.Generator
    mixing: np.random.Generator
    tapes: np.random.SeedSequence
    watchdog: Watchdog

    def block(self, worlds: NDArray[np.bool_], drawn: int) -> Block:
        seed_a, seed_b = self.tapes.spawn(2)
        return Block(
            pair=self.plan.pair,
            worlds=worlds,
            seeds=(seed_a, seed_b),
            mixing=self.mixing,
            watchdog=self.watchdog,
            drawn=drawn,
        )


def _probe(target: Target, draws: _Draws) -> list[str]:
    # A few runs twice, with the same randomness: does the target keep to it? Never tested.
    if not target.seeded:
        return []
    runs = min(_PROBES, draws.plan.runs)
    first = draws.block(np.arange(runs) % 2 == 1, 0)
    answers = [
        concatenate(list(target.draw(replace(first, mixing=np.random.default_rng(0)))))
        for _ in range(2)
    ]
    if same(*answers):
        return []
    return [_IGNORES]


def _draw(drawn: _Drawn, draws: _Draws, progress: Progress | None) -> str:
    plan = drawn.plan
    end = math.inf if plan.deadline is None else time.monotonic() + plan.deadline
    for size in plan.blocks():
        worlds = draw_worlds(size, draws.coins)
        pieces: list[Outputs] = []
        count = drawn.runs
        try:
            for piece in drawn.target.draw(draws.block(worlds, drawn.runs)):
                pieces.append(piece)
                count += len(piece)
                if progress is not None:
                    progress(count)
                if time.monotonic() >= end:
                    break
        finally:
            drawn.keep(pieces, worlds)
        _refuse_nothing(drawn)
        if drawn.rejected_at is not None:
            return f"the evidence sufficed at run {drawn.rejected_at:,}"
        if time.monotonic() >= end and drawn.runs < plan.runs:
            return _DEADLINE
    return "as many as planned"


def _refuse_nothing(drawn: _Drawn) -> None:
    first = drawn.blocks[0][0]
    if len(drawn.blocks) == 1 and all(output is None for output in first):
        raise TargetFailed(drawn.target.spelling, "returns nothing: every output is None")


def _report(drawn: _Drawn, seed: int, noted: list[str]) -> AuditReport:
    plan, claim = drawn.plan, drawn.plan.claim
    outputs, worlds, process = drawn.outputs, drawn.worlds, drawn.process
    in_b = int(np.count_nonzero(worlds))
    if drawn.form is not None:
        noted = noted + oddities(outputs, worlds, drawn.form)
        outputs = drawn.form.apply(outputs)
    alpha = rational("alpha", plan.alpha)
    if process is None:
        weighed = weigh(outputs, worlds, claim, alpha, seed=seed)
    else:
        weighed = weigh_process(process, claim, alpha)
    return AuditReport(
        target=drawn.target.spelling,
        claim=claim,
        pair=plan.pair,
        verdict=None if drawn.error is not None else weighed.verdict,
        epsilon_lower=weighed.epsilon_lower,
        alpha=alpha,
        p_value=weighed.p_value,
        e_value=weighed.e_value,
        runs_by_world=(len(worlds) - in_b, in_b),
        stopped=drawn.stopped,
        witness=weighed.witness,
        resolution=weighed.resolution,
        layers=(weighed.layer,),
        seed=plan.seed,
        repeatable=drawn.target.seeded and _IGNORES not in noted,
        error=drawn.error,
        warnings=tuple(noted),
        versions=versions(),
    )
