r"""Plan and draw the runs of an audit in blocks.

All randomness is a function of the audit's seed, the block number and the purpose. So a block does
not depend on the process in which it is drawn, or on the order in which blocks are drawn or read
back (``docs/decisions/0014-blocks-by-number.md``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.audit_spec import AuditSpec
from audit.claims import LOOKS, TRAINING, Claim
from audit.errors import TargetFailed
from audit.features.parse_feature import Feature, with_time
from audit.outputs.output_parser import Outputs, concatenate, draw_worlds, same
from audit.outputs.time_limit import current, reading
from audit.targets.target import Block, Target
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from audit.claims import CurveClaim


_LARGEST_BLOCK: Final = 8192
# A block has a quarter as many runs as all earlier blocks together. So workers finish at nearly the
# same time, and a target that starts a process for each block starts only a few processes.
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    r"""A block of ``runs`` runs that is to be drawn on one pair of datasets.

    ``index`` is the number of the block, ``pair`` the index of the pair, and ``drawn`` the total
    number of runs in all earlier blocks.
    """

    index: int
    pair: int
    runs: int
    drawn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(AuditSpec):
    r"""An audit specification whose claim, pairs, features, runs and seed are final.

    All layers of the audit use the same plan, and do not parse its fields again. ``pairs`` contains
    all pairs of datasets, by default only ``pair``. ``runs`` is the number of runs on both datasets
    of all pairs together. Raises :class:`InvalidParameter` if there are several pairs and fewer
    runs than pairs, or if a feature is given twice.
    """

    claim: Claim | CurveClaim
    pair: tuple[Any, Any]
    pairs: tuple[tuple[Any, Any], ...] = ()
    features: tuple[Feature, ...] = ()
    runs: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", self.pairs or (self.pair,))
        if len(self.pairs) > 1 and self.runs < len(self.pairs):
            reason = f"must be >= {len(self.pairs)}, the number of pairs"
            raise InvalidParameter("runs", self.runs, reason)
        object.__setattr__(self, "features", with_time(self.features))
        names = [feature.name for feature in self.features]
        for name in names:
            if names.count(name) > 1:
                raise InvalidParameter("features", name, "is given twice")

    @property
    def timed(self) -> bool:
        r"""Whether the duration of each call is measured, for the feature ``time``."""
        return any(feature.of_time for feature in self.features)

    def blocks(self) -> Iterator[Planned]:
        r"""Yield the blocks of the audit, which do not depend on any outputs.

        The pairs take turns, and their total numbers of runs differ by at most one. The first block
        of each pair is for training.
        """
        share, rest = divmod(self.runs, len(self.pairs))
        rounds = zip_longest(*(self._sizes(share + (i < rest)) for i in range(len(self.pairs))))
        index = drawn = 0
        for sizes in rounds:
            for pair, size in enumerate(sizes):
                if size is not None:
                    yield Planned(index=index, pair=pair, runs=size, drawn=drawn)
                    index += 1
                    drawn += size

    def _sizes(self, runs: int) -> Iterator[int]:
        # The sizes of the blocks of one pair.
        drawn = 0
        looks = iter(LOOKS)
        while drawn < runs:
            size = next(looks) - drawn if self.sequential else max(TRAINING, drawn // _GROWTH)
            end = min(drawn + size, runs)
            while drawn < end:
                part = min(end - drawn, _LARGEST_BLOCK)
                yield part
                drawn += part


_PROBES: Final = 8


class Stream(IntEnum):
    r"""The purposes of an audit's random streams.

    Changing one of these numbers changes the draws of every audit.
    """

    WORLDS = 0
    MIXING = 1
    WORLD_A = 2
    WORLD_B = 3
    PROBE = 4
    TEST = 5


def stream(seed: int, purpose: Stream, *place: int) -> np.random.SeedSequence:
    r"""The seed of a random stream; streams with different arguments are independent."""
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    r"""The outputs of a block in run order; those of the last runs may be missing.

    ``error`` is the error of the target, if any. ``interrupted`` states that Ctrl-C was pressed,
    and ``limited`` that the calls had a time limit, or that no limit was requested.
    """

    outputs: Outputs
    error: TargetFailed | None = None
    interrupted: bool = False
    limited: bool = True


def worlds_of(plan: Plan, block: Planned) -> NDArray[np.bool_]:
    r"""The dataset of each run of a block, True for B."""
    rng = np.random.default_rng(stream(plan.seed, Stream.WORLDS, block.index))
    return draw_worlds(block.runs, rng)


def block_of(plan: Plan, block: Planned, *, until: float = math.inf) -> Block:
    r"""Convert a block of a plan to the :class:`Block` that a target accepts."""
    several = len(plan.pairs) > 1
    return Block(
        pair=plan.pairs[block.pair],
        worlds=worlds_of(plan, block),
        seeds=(
            stream(plan.seed, Stream.WORLD_A, block.index),
            stream(plan.seed, Stream.WORLD_B, block.index),
        ),
        mixing=stream(plan.seed, Stream.MIXING, block.index),
        drawn=block.drawn,
        timeout=plan.timeout,
        until=until,
        label=f"on pair {block.pair + 1} of {len(plan.pairs)}, " if several else "",
        timed=plan.timed,
    )


def probe_of(plan: Plan) -> Block:
    r"""A block of a few runs that tests whether a target repeats its outputs."""
    return Block(
        pair=plan.pair,
        worlds=np.arange(min(_PROBES, plan.runs)) % 2 == 1,
        seeds=(stream(plan.seed, Stream.PROBE, 0), stream(plan.seed, Stream.PROBE, 1)),
        mixing=stream(plan.seed, Stream.PROBE, 2),
        timeout=plan.timeout,
    )


def draw_block(
    target: Target, block: Block, *, progress: Callable[[int], None] | None = None
) -> Drawing:
    r"""Draw a block; stop early if the target fails, Ctrl-C is pressed or the time is up."""
    pieces: list[Outputs] = []
    error: TargetFailed | None = None
    interrupted = False
    count, watchdog = 0, current()
    try:
        for piece in target.draw(block):
            pieces.append(piece)
            count += len(piece)
            if progress is not None:
                progress(block.drawn + count)
            if time.time() >= block.until:
                break
    except TargetFailed as failed:
        error = _labelled(failed, block.label)
    except KeyboardInterrupt:
        watchdog.stop()
        interrupted = True
    return Drawing(
        outputs=concatenate(pieces),
        error=error,
        interrupted=interrupted,
        limited=watchdog.active or block.timeout is None or target.limits_itself,
    )


def keeps_to_its_seed(target: Target, block: Block) -> bool:
    r"""Whether the target gives the same outputs if it runs again with the same seeds."""
    answers = []
    for _ in range(2):
        drawing = draw_block(target, block)
        if drawing.error is not None:
            raise drawing.error
        if drawing.interrupted:
            raise KeyboardInterrupt
        answers.append(drawing.outputs)
    with reading(target.spelling):
        return same(*answers)


def _labelled(failed: TargetFailed, label: str) -> TargetFailed:
    if not label:
        return failed
    renamed = TargetFailed(
        failed.target, label + failed.reason, dataset=failed.dataset, run=failed.run
    )
    return renamed.with_traceback(failed.__traceback__)
