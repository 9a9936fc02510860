r"""Who draws the blocks: this process, several, or a cluster; always in the order of the tasks.

One job draws here and needs no joblib. More go through joblib, so that ``joblib.parallel_config``
chooses where: processes of this machine by default, the workers of a Dask cluster with
``backend="dask"`` (:func:`backend` sets it up for the command). What a task draws does not depend
on where it is drawn, for a target that keeps to the randomness it is given.

A worker makes a target anew from its spelling where it came from one (a file must then be at the
same path on every machine), else gets it by cloudpickle. One without a spelling or with randomness
of its own starts in each worker as it was: a generator that its module seeds on import gives every
worker the same numbers.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np

from audit.errors import REPEATS, TargetFailed
from audit.outputs.guard import Watchdog
from audit.runs.block import Drawing, Task, draw_block, keeps_to_its_seed
from audit.sandbox.worker import Sent, answer_of, work_block, work_probe
from audit.targets.content import content_of
from audit.targets.target import Target
from dpcore.command.workers import OVERDUE, WorkerLost, in_processes, width_of
from dpcore.errors import ABSENT, InvalidParameter

BACKENDS: Final = ("processes", "dask")
r"""Where the command can draw."""

_EXIT_CODES: Final = re.compile(r"exit codes of the workers are \{(.*?)\}")
_PATIENCE: Final = "10s"
_LATE: Final = ("no answer within", "kept its output open")  # reasons of a time limit


class Drawer(Protocol):
    r"""Draws tasks one after the other or side by side; the results come in the tasks' order."""

    def keeps_to_its_seed(self, task: Task) -> bool:
        r"""Whether two drawings of the same task are the same."""

    def draw(self, tasks: Iterable[Task]) -> Generator[Drawing, None, None]:
        r"""The drawings; closing the iterator ends those that are under way.

        Raises :class:`TargetFailed` where a worker was lost.
        """


def revealing(failed: TargetFailed, task: Task, by: Drawer) -> TargetFailed:
    r"""The same error; ``reveals`` is set where its dataset fails in a few more runs of the task's
    pair and the other one does not. These runs are not tested.

    A call that ran into the time limit is not repeated: each would wait for it again.
    """
    if failed.dataset is None or any(limit in failed.reason for limit in _LATE):
        return failed
    world = failed.dataset == "B"
    with suppress(KeyboardInterrupt):  # what was found is reported
        if all(
            _fails(task, which, number, by) == (which == world)
            for number in range(REPEATS)
            for which in (world, not world)
        ):
            failed.reveals = True
    return failed


def _fails(task: Task, world: bool, number: int, by: Drawer) -> bool:  # noqa: FBT001 - as in Block
    seeds = [
        np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
        for seed in (*task.seeds, task.mixing)
    ]
    one = replace(
        task, worlds=np.array([world]), seeds=(seeds[0], seeds[1]), mixing=seeds[2], until=math.inf
    )
    try:
        (drawing,) = by.draw([one])
    except TargetFailed:
        return True
    if drawing.interrupted:
        raise KeyboardInterrupt
    return drawing.error is not None


@contextmanager
def drawer(
    target: Target,
    jobs: int,
    timeout: float | None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Drawer]:
    r"""Whoever draws for this number of jobs (-1: as many as there are).

    Raises :class:`InvalidParameter` for a target that cannot be sent to another process.
    """
    # Wherever the target runs, what reads its outputs does so here.
    with Watchdog(timeout) as watchdog:
        if width_of(jobs) == 1:
            yield _Here(target=target, watchdog=watchdog, progress=progress)
        else:
            sent = _send(target, jobs)
            yield _Elsewhere(sent=sent, jobs=jobs, timeout=timeout, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Here:
    target: Target
    watchdog: Watchdog
    progress: Callable[[int], None] | None

    def keeps_to_its_seed(self, task: Task) -> bool:
        return keeps_to_its_seed(self.target, task, self.watchdog)

    def draw(self, tasks: Iterable[Task]) -> Generator[Drawing, None, None]:
        for task in tasks:
            yield draw_block(self.target, task, self.watchdog, progress=self.progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elsewhere:
    sent: Sent
    jobs: int
    timeout: float | None
    progress: Callable[[int], None] | None
    known: dict[int, Any] = field(default_factory=dict)

    def keeps_to_its_seed(self, task: Task) -> bool:
        (answer,) = self._results(work_probe, iter([task]))
        return bool(answer)

    def draw(self, tasks: Iterable[Task]) -> Generator[Drawing, None, None]:
        for drawing, drawn in self._results(work_block, iter(tasks)):
            if self.progress is not None:
                self.progress(drawn + len(drawing.outputs))
            yield drawing

    def _results(self, work: Callable[[Sent, Task], bytes], tasks: Iterator[Task]) -> Iterator[Any]:
        calls = ((self.sent, task) for task in tasks)
        with closing(in_processes(work, calls, self.jobs)) as answers:
            try:
                for packed in answers:
                    yield answer_of(packed, self.known)
            except WorkerLost as error:
                cause = error.__cause__
                lost = cause if isinstance(cause, Exception) else error
                raise _lost(self.sent.spelling, self.timeout, lost) from error


def _send(target: Target, jobs: int) -> Sent:
    pickled = None
    if not target.named:
        import cloudpickle

        try:
            pickled = cloudpickle.dumps(target)
        # What its objects raise when they are pickled can be anything.
        except Exception as error:
            reason = f"the target {target.spelling} cannot be sent to another process ({error})"
            raise InvalidParameter("jobs", jobs, f"must be 1: {reason}") from error
    return Sent(
        spelling=target.spelling,
        seeded=target.seeded,
        folder=target.folder,
        content=content_of(target),
        pickled=pickled,
        process=os.getpid(),
    )


def _lost(target: str, timeout: float | None, error: Exception) -> TargetFailed:
    # A worker that is no more, or that cannot be reached: never a traceback of joblib's.
    codes = _EXIT_CODES.search(str(error))
    if codes is not None and timeout is not None and f"EXIT({OVERDUE})" in codes[1]:
        reason = f"no answer within {timeout:g} s, and its worker had to be ended: nothing else "
        reason += "interrupts it; a longer limit is set with --timeout"
    elif codes is not None:
        how = ", ".join(sorted(set(codes[1].split(", "))))
        reason = f"a worker process died ({how}): os._exit, a signal, or no memory left"
    else:
        lines = str(error).strip().splitlines() or [""]
        reason = f"a worker was lost ({type(error).__name__}: {lines[0]})"
    return TargetFailed(target, reason)


# -- where workers are ------------------------------------------------------------------------


@contextmanager
def backend(name: str, scheduler: str | None = None) -> Iterator[None]:
    r"""Audits inside with ``jobs`` other than 1 draw on processes here, or on a Dask cluster.

    ``scheduler`` is the address of the cluster's, e.g. ``tcp://host:8786``. All its workers draw,
    whatever the number of jobs. They need the same dpcore and numpy, and a target's file at the
    same path. They run threads: only ``exec:`` targets have a time limit for each call there.

    >>> with backend("processes"):
    ...     pass

    Raises :class:`InvalidParameter` for another name, a scheduler that is missing, not needed or
    not reached, and where ``distributed`` is not installed.
    """
    if name not in BACKENDS:
        raise InvalidParameter("backend", name, f"must be {' or '.join(BACKENDS)}")
    if name == "processes":
        if scheduler is not None:
            raise InvalidParameter("--scheduler", scheduler, "is for the backend dask")
        yield
        return
    if scheduler is None:
        reason = "is needed: the address of a cluster, e.g. tcp://host:8786"
        raise InvalidParameter("--scheduler", ABSENT, reason)
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        reason = "needs dask.distributed: pip install 'dpcore[cluster]'"
        raise InvalidParameter("--scheduler", scheduler, reason) from None
    from joblib import parallel_config

    connect: Any = Client  # it has no types
    try:
        get_address_host_port(scheduler)  # a client of a misspelt address would wait at its end
        client = connect(scheduler, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidParameter("--scheduler", scheduler, f"is not reached: {lines[0]}") from error
    with client, parallel_config(backend="dask", client=client):
        yield
