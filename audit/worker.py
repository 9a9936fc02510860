r"""What runs in a worker: a block drawn elsewhere, and a watch on who asked for it.

A worker that this machine's audit started ends with it, however that ends, and with a call that
nothing in the worker can interrupt. A worker of a cluster is somebody else's, and goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing import current_process
from typing import Final

from audit.drawing import Task, draw_block, keeps_to_its_seed
from audit.errors import TargetFailed
from audit.guard import Watchdog, stdout_to_stderr
from audit.target import Target, read_target
from dpcore.errors import DpcoreError

__all__ = ["OVERDUE", "Sent", "begin", "work_block", "work_probe"]

OVERDUE: Final = 124
r"""The exit code of a worker whose call nothing could interrupt."""

_GRACE: Final = 2.0
_LOOKS: Final = 0.25


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
    r"""A drawing and the runs before it, or a TargetFailed; pickled."""
    return _work(sent, task, lambda target, dog: (draw_block(target, task, dog), task.drawn))


def work_probe(sent: Sent, task: Task) -> bytes:
    r"""Whether the target keeps to its seed, or a TargetFailed; pickled."""
    return _work(sent, task, lambda target, dog: keeps_to_its_seed(target, task, dog))


def _work(sent: Sent, task: Task, do: Callable[[Target, Watchdog], object]) -> bytes:
    # The answer is packed here: what cannot be sent back is then the target's failure by name.
    import cloudpickle

    _leave_ctrl_c_to(sent.process)
    watch = _watch(sent.process)
    with stdout_to_stderr():
        try:
            target = _received(sent)
            with Watchdog(task.timeout) as watchdog:
                watch.kept_on = watchdog
                found = do(target, watchdog)
        except TargetFailed as failed:
            found = failed
        except DpcoreError as error:
            found = TargetFailed(sent.spelling, f"in a worker: {error}")
        finally:
            watch.kept_on = None
        try:
            return bytes(cloudpickle.dumps(found))
        except Exception as error:  # noqa: BLE001  # whatever an output raises when it is pickled
            reason = f"returned what cannot be sent from a worker ({error}); use one job"
            return bytes(cloudpickle.dumps(TargetFailed(sent.spelling, reason)))


@dataclass(slots=True, kw_only=True)
class _Watch:
    # Ends this process when its parent has ended, or a call that is long over its time.
    parent: int
    kept_on: Watchdog | None = None

    def run(self) -> None:
        while os.getppid() == self.parent:
            watchdog = self.kept_on
            due = None if watchdog is None else watchdog.due
            if due is not None and time.monotonic() > due + _GRACE:
                os._exit(OVERDUE)
            time.sleep(_LOOKS)
        os._exit(OVERDUE)


def begin(process: int) -> None:
    r"""Keep watch over the audit of this process number; a worker's first act."""
    _watch(process)


@cache
def _watch(process: int) -> _Watch:
    watch = _Watch(parent=process)
    # joblib's own processes, also where the audit ended while they were starting.
    if os.getppid() == process or current_process().name.startswith("Loky"):
        threading.Thread(target=watch.run, name="dpcore-watch", daemon=True).start()
    return watch


def _leave_ctrl_c_to(process: int) -> None:
    # A terminal's Ctrl-C reaches all its processes: the audit ends its workers itself. A handler
    # and not SIG_IGN, which the target's own children would inherit.
    elsewhere = os.getpid() != process
    if elsewhere and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _not_here)


def _not_here(number: int, frame: object) -> None:
    del number, frame


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
