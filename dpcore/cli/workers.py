r"""Run calls in worker processes that end when their parent ends, and that ignore Ctrl-C.

joblib starts the workers, so ``joblib.parallel_config`` chooses where they run: as processes of
this machine by default, or on a cluster. A terminal sends Ctrl-C to all its processes. Only the
parent reacts: it terminates the workers, which start with the signal blocked and then ignore it. A
killed parent cannot terminate its workers, so each worker polls for its parent as soon as this
module is loaded, before it receives any work, and ends soon after the parent.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from typing import Any, Final, TypeVar

from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.parameter import integer

OVERDUE: Final = 124
r"""The exit code of a worker that ended itself because a call was overdue or its parent died."""

_Found = TypeVar("_Found")
_MOST_JOBS: Final = 1024
_LOOKAHEAD: Final = 3
_EVERY: Final = 0.25
_PATIENCE: Final = 10.0


class WorkerLost(DpcoreError):
    r"""Raised if a worker process died or cannot be reached."""


def checked_jobs(jobs: int) -> int:
    r"""Return ``jobs`` if it is a valid number of processes: -1 (one per core) or in [1, 1024]."""
    count = integer("jobs", jobs)
    if count != -1 and not 1 <= count <= _MOST_JOBS:
        reason = f"must be a whole number in [1, {_MOST_JOBS}], or -1 (one per core)"
        raise InvalidParameter("jobs", jobs, reason)
    return count


def width_of(jobs: int) -> int:
    r"""The number of worker processes for ``jobs``; -1 means as many as are available."""
    if jobs == 1:
        return 1
    from joblib import effective_n_jobs

    return int(effective_n_jobs(jobs))


def in_processes(
    function: Callable[..., _Found], calls: Iterable[tuple[Any, ...]], jobs: int
) -> Generator[_Found, None, None]:
    r"""Run ``function(*call)`` for each call in ``jobs`` processes and yield the results in order.

    With one job the calls run in this process and raise their own errors; -1 means one job per
    core. Only a few calls per process start before their results are read. A :class:`DpcoreError`
    of a worker is raised here; any other error of a worker is raised as a :class:`WorkerLost` with
    that error as its cause. Closing the generator abandons unfinished calls.
    """
    width = width_of(jobs)
    if width == 1:
        for call in calls:
            yield function(*call)
        return
    from multiprocessing import resource_tracker

    from joblib import Parallel, delayed

    # Started here, because it would otherwise start with the first worker and unblock the signal.
    resource_tracker.ensure_running()
    ahead = Prefetch(calls=iter(calls), most=_LOOKAHEAD * width)
    while not ahead.ended:
        # joblib dispatches calls as workers finish, however far behind the reader is. So each
        # Parallel ends before it is too far ahead of the reader, and another one continues.
        parallel = Parallel(
            n_jobs=jobs,
            backend=_backend(),
            return_as="generator",
            batch_size=1,
            pre_dispatch=width + 1,
            # The initializer is not called if workers are not processes of this machine.
            initializer=_begin,
            initargs=(os.getpid(), str(Path.cwd())),
        )
        results: Any = None
        try:
            with _interrupts_later():
                results = parallel(delayed(function)(*call) for call in ahead)
            for found in results:
                ahead.read += 1
                yield found
        except (DpcoreError, GeneratorExit):
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            words = f"a worker process was lost ({type(error).__name__}: {lines[0]})"
            raise WorkerLost(words) from error
        finally:
            if results is not None:
                with warnings.catch_warnings():
                    # joblib warns about abandoned calls, but closing is meant to abandon them.
                    warnings.simplefilter("ignore")
                    results.close()


@dataclass(slots=True, kw_only=True)
class Prefetch:
    r"""An iterator over ``calls`` that stops while ``most`` or more results are unread.

    A new iteration continues with the next call. joblib advances the iterator under a lock, so the
    iterator needs no lock of its own.
    """

    calls: Iterator[tuple[Any, ...]]
    most: int
    taken: int = 0
    read: int = 0
    ended: bool = False

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while self.taken - self.read < self.most:
            call = next(self.calls, None)
            if call is None:
                self.ended = True
                return
            self.taken += 1
            yield call


def _backend() -> Any:
    # joblib's default backend, but terminated without a race; None if a parallel_config chose
    # another backend.
    from joblib.parallel import BACKENDS, get_active_backend

    chosen, _ = get_active_backend()
    return _orderly()() if type(chosen) is BACKENDS["loky"] else None


@cache
def _orderly() -> Any:
    # joblib's thread raises a KeyError if workers are terminated while a submitted call is not yet
    # in a worker's queue. So after an abort no further call is submitted, and the abort waits until
    # every submitted call has reached a worker.
    from concurrent.futures import Future

    from joblib.parallel import BACKENDS

    theirs: Any = BACKENDS["loky"]

    class Orderly(theirs):  # type: ignore[misc]  # joblib has no types
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self._lock = threading.RLock()
            self._given_up = False
            self._sent: list[Any] = []

        def submit(self, func: Any, callback: Any = None) -> Any:
            with self._lock:
                if self._given_up:
                    return Future()
                self._sent = [sent for sent in self._sent if not sent.done()]
                found = self._workers.submit(func)
                self._sent.append(found)
            if callback is not None:
                found.add_done_callback(callback)
            return found

        def abort_everything(self, ensure_ready: bool = True) -> None:  # a name of joblib
            with self._lock:
                self._given_up = True
            late = time.monotonic() + _PATIENCE
            while not all(sent.running() or sent.done() for sent in self._sent):
                if time.monotonic() > late:
                    break
                time.sleep(0.001)
            super().abort_everything(ensure_ready)

    return Orderly


@contextmanager
def _interrupts_later() -> Iterator[None]:
    # An interrupt within the block is raised at its end. Threads that start workers later inherit
    # the blocked signal, and so do the workers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@dataclass(slots=True, kw_only=True)
class Watch:
    r"""A loop that ends this process if its parent has died or a call has exceeded its time limit.

    ``due()`` is the ``time.monotonic()`` at which the current call exceeds its limit, or None.
    """

    parent: int
    due: Callable[[], float | None] | None = None

    def run(self) -> None:
        while os.getppid() == self.parent:
            due = None if self.due is None else self.due()
            if due is not None and time.monotonic() > due:
                break
            time.sleep(_EVERY)
        os._exit(OVERDUE)


@cache
def watch_over(parent: int) -> Watch:
    r"""Start a thread that ends this process soon after ``parent``, the ID of its parent, ends.

    In a worker of a cluster no thread is started, so the worker is not terminated. A process that
    joblib starts itself also notices if its parent ended during startup; a process of a fork server
    does not.
    """
    watch = Watch(parent=parent)
    if os.getppid() == parent or current_process().name.startswith("Loky"):
        threading.Thread(target=watch.run, name="dpcore-watch", daemon=True).start()
    return watch


def leave_ctrl_c_to(parent: int) -> None:
    r"""Ignore Ctrl-C in this process, because the process with ID ``parent`` handles it.

    A handler is installed instead of SIG_IGN, because child processes would inherit SIG_IGN.
    """
    if os.getpid() != parent and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _begin(parent: int, folder: str) -> None:
    # The initializer of a worker. User code is named relative to the current folder, so it is an
    # argument: joblib compares arguments and does not reuse idle workers of another folder.
    with suppress(OSError):
        os.chdir(folder)
    watch_over(parent)
    leave_ctrl_c_to(parent)
