r"""What runs in a worker: a block drawn elsewhere, and a watch on who asked for it.

A worker that this machine's audit started ends with it, however that ends, and with a call that
nothing in the worker can interrupt. A worker of a cluster is somebody else's, and goes on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Final

from audit.errors import TargetFailed
from audit.outputs.guard import Watchdog, reading, stdout_to_stderr
from audit.outputs.wire import Objects, pack, unpack
from audit.runs.block import Drawing, Task, draw_block, keeps_to_its_seed
from audit.sandbox.pipe import answered, failed_of, result_of, told
from audit.targets.spelling import read_target
from audit.targets.target import Target
from dpcore.command.workers import leave_ctrl_c_to, watch_over
from dpcore.errors import InvalidParameter

_GRACE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    r"""How a worker gets a target: the same value is the same target, so one is made a process.

    ``content`` is a digest of the file it is written in, ``process`` the audit's.
    """

    spelling: str
    seeded: bool
    folder: str
    content: str | None
    pickled: bytes | None
    process: int


def work_block(sent: Sent, task: Task) -> bytes:
    r"""A drawing and the runs before it, or how the target failed, as ``audit.outputs.wire``."""

    def drawn(target: Target, watchdog: Watchdog) -> tuple[Any, ...]:
        drawing = draw_block(target, task, watchdog)
        error = None if drawing.error is None else told(drawing.error)
        return drawing.outputs, error, drawing.interrupted, drawing.limited, task.drawn

    return _work(sent, task, drawn)


def work_probe(sent: Sent, task: Task) -> bytes:
    r"""Whether the target keeps to its seed, or how it failed; as data."""
    return _work(sent, task, lambda target, dog: keeps_to_its_seed(target, task, dog))


def answer_of(data: bytes, known: dict[int, Any]) -> Any:
    r"""What a worker sent: a :class:`audit.runs.block.Drawing` and the runs before it, or a bool.

    ``known`` are the objects that stayed with the workers. Raises :class:`TargetFailed`.
    """
    match result_of("a worker", *unpack(data, known)):
        case bool(found):
            return found
        case (outputs, error, bool(interrupted), bool(limited), int(drawn)):
            failed = None if error is None else failed_of(error)
            return Drawing(
                outputs=outputs, error=failed, interrupted=interrupted, limited=limited
            ), drawn
    raise ValueError("no answer of a worker")


def _work(sent: Sent, task: Task, do: Callable[[Target, Watchdog], object]) -> bytes:
    leave_ctrl_c_to(sent.process)
    watch = watch_over(sent.process)
    with stdout_to_stderr(), Watchdog(task.timeout) as watchdog:

        def work() -> object:
            try:
                target = _received(sent)
            except InvalidParameter as error:
                raise TargetFailed(sent.spelling, f"in a worker: {error}") from error
            watch.due = partial(_overdue, watchdog)
            return do(target, watchdog)

        try:
            kind, value = answered(sent.spelling, work)
            # Read here: a class of the target's is in no other process.
            with reading(sent.spelling):
                return pack((kind, value), _objects())
        except TargetFailed as error:
            return pack(("failed", told(error)), _objects())
        finally:
            watch.due = None


def _overdue(watchdog: Watchdog) -> float | None:
    return None if watchdog.due is None else watchdog.due + _GRACE


@cache
def _objects() -> Objects:
    return Objects(shared=True)


@lru_cache(maxsize=4)
def _received(sent: Sent) -> Target:
    if sent.pickled is not None:
        import cloudpickle

        found = cloudpickle.loads(sent.pickled)  # of the audit's own process
        assert isinstance(found, Target)  # noqa: S101  # nothing else is sent
        return found
    if os.getpid() != sent.process:
        # Relative names mean what they mean to the user.
        with contextlib.suppress(OSError):
            os.chdir(sent.folder)
    return read_target(sent.spelling, seeded=sent.seeded)
