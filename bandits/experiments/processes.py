r"""Calls in worker processes that end with their parent, and leave Ctrl-C to it.

A terminal sends Ctrl-C to all its processes. Workers never see it: they are born with the signal
blocked. The parent, which gets it, ends them.

A parent that is killed ends nobody. Its workers look for it from the moment that Python and this
module are loaded in them, before they are given any work, and end within half a second where it is
gone; one that was being started loads first and ends then. joblib's resource trackers end with the
last worker.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import current_process
from typing import Any, Final, TypeVar

from dpcore.errors import DpcoreError

__all__ = ["in_processes"]

_Found = TypeVar("_Found")
_GONE: Final = 1
_EVERY: Final = 0.5


def in_processes(
    function: Callable[..., _Found], calls: Sequence[tuple[Any, ...]], workers: int
) -> Generator[_Found, None, None]:
    r"""``function(*call)`` for each call, in order, by so many processes (1: by this one).

    >>> [*in_processes(max, [(1, 2), (4, 3)], 1)]
    [2, 4]

    What the function raises is raised here. Raises :class:`DpcoreError` where a worker died.
    Closing the generator gives up what is not done.
    """
    if workers <= 1:
        for call in calls:
            yield function(*call)
        return
    from multiprocessing import resource_tracker

    from joblib import Parallel, delayed

    # The policies of a worker are kept from cell to cell; a task is small beside them.
    parallel = Parallel(
        n_jobs=workers,
        return_as="generator",
        batch_size=1,
        # Where workers are not processes of this machine it is not called.
        initializer=_end_with,
        initargs=(os.getpid(),),
    )
    # It is started with the first worker, and unblocks the signal then: that has to be over.
    resource_tracker.ensure_running()
    results: Any = None
    try:
        with _interrupts_later():
            results = parallel(delayed(function)(*call) for call in calls)
        for found in results:  # noqa: UP028  # that would close them before the filter below
            yield found
    except (DpcoreError, GeneratorExit):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        words = f"a worker process was lost ({type(error).__name__}: {lines[0]})"
        raise DpcoreError(words) from error
    finally:
        with warnings.catch_warnings():
            # That tasks were given up is what closing is for.
            warnings.simplefilter("ignore")
            if results is not None:
                results.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    # An interrupt within the block is heard at its end. What the block starts inherits the blocked
    # signal, threads that start more workers later and, over exec, the workers.
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


def _end_with(parent: int) -> None:
    # A worker's first act. joblib's own processes watch also where their parent, whose number they
    # bring with them, ended while they were starting; what a server of forks started does not.
    if os.getppid() == parent or current_process().name.startswith("Loky"):
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os._exit(_GONE)
