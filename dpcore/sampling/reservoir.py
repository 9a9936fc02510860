r"""Noise drawn ahead of its release, so that the release time is independent of it.

The running time of a sampler can reveal the value that it drew (Jin, McMurtry, Rubinstein and
Ohrimenko, "Are we there yet?", 2022). Here a release uses values that were drawn earlier, thousands
at a time, so its time does not depend on the value. The stored values are as secret as the random
bits: they are dropped in a forked child, erased when used, and never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dpcore.forks import HERE, forget_after_fork, forget_inherited
from dpcore.numbers.arrays import Integers

SERVED: Final = 1 << 12
"""Batches up to this size come from the reservoir; larger ones are drawn directly."""

_SCALARS: Final = 1 << 11
_BLOCK: Final = 1 << 15


class Reservoir(list[int]):
    r"""Drawn noise: a list of values (``pop`` is atomic), and blocks for batches."""

    __slots__ = ("__weakref__", "_blocks", "_era")
    __hash__ = object.__hash__  # type: ignore[assignment]  # identity: the fork registry holds it

    def __init__(self) -> None:
        super().__init__()
        self.forget()
        forget_after_fork(self)

    def forget(self) -> None:
        r"""Discard all values; called in the child of a fork."""
        # Replaced first: a call in progress then finds that its values are inherited.
        self._era = object()
        self.clear()
        # Idle blocks, each with the index of its first unused value.
        self._blocks: list[tuple[Integers, int]] = []

    def one(self, draw: Callable[[int], Integers]) -> int:
        r"""Refill the empty list and return one value."""
        while True:
            if not HERE:
                forget_inherited()
            era = self._era
            fresh = draw(_SCALARS).tolist()
            first: int = fresh.pop()
            self.extend(fresh)
            if self._is(era):
                return first

    def many(self, count: int, draw: Callable[[int], Integers]) -> Integers:
        r"""Return ``count`` <= ``SERVED`` values; no value is ever returned twice."""
        while True:
            if not HERE:
                forget_inherited()
            era = self._era
            # A block in use is in no list: another thread, or a signal handler that interrupts this
            # call, gets another block, and a block whose use raised an exception is never used
            # again.
            try:
                block, start = self._blocks.pop()
            except IndexError:
                block, start = draw(_BLOCK), 0
            if len(block) - start < count:
                block, start = draw(_BLOCK), 0
            piece = block[start : start + count]
            taken = piece.copy()
            piece[:] = 0
            self._blocks.append((block, start + count))
            if self._is(era):
                return taken

    def _is(self, era: object) -> bool:
        # False if the process was forked since ``era``, for example by a signal handler during a
        # draw: the parent has the values that were stored since then, so they are discarded.
        if HERE and self._era is era:
            return True
        self.forget()
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        # Two copies must never return the same values, so a copy starts empty.
        return Reservoir, ()
