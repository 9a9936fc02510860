r"""Draw blocks of runs in this process, in several processes, or on a cluster.

Results come in the order of the blocks. With one job, blocks are drawn in this process, without
joblib. Several jobs use joblib, so ``joblib.parallel_config`` chooses where they run: by default in
processes of this machine, with ``backend="dask"`` on the workers of a Dask cluster (which
:func:`dask_cluster` sets up for the command). The draws of a block do not depend on where it is
drawn, if the target uses only the generator that it is given.

A worker builds a target that was given as text from the text (a file must then be at the same path
on every machine). A worker receives any other target through cloudpickle. A target that was not
given as text, or that uses its own generator, starts in the same state in each worker. For example,
if its module seeds a generator on import, all workers draw the same numbers.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np

from audit.errors import REPEATS, TargetFailed
from audit.outputs.sandbox_encoding import Objects, pack, unpack
from audit.outputs.time_limit import Watchdog, reading, stdout_to_stderr
from audit.runs.draw_plan import Drawing, draw_block, keeps_to_its_seed
from audit.sandbox.child_process import error_fields, error_from_fields, result_of, run_work
from audit.targets.target import Block, Target
from audit.targets.target_syntax import content_of, read_target
from dpcore.cli.workers import (
    OVERDUE,
    WorkerLost,
    in_processes,
    leave_ctrl_c_to,
    watch_over,
    width_of,
)
from dpcore.errors import InvalidParameter

_EXIT_CODES: Final = re.compile(r"exit codes of the workers are \{(.*?)\}")
_PATIENCE: Final = "10s"
_LATE: Final = ("no answer within", "kept its output open")  # parts of a time limit's error message


def check_reveals(failed: TargetFailed, block: Block, by: Drawer) -> TargetFailed:
    r"""Return the error ``failed``, after checking whether the error reveals the dataset.

    ``failed.reveals`` is set if a few more runs all fail on the dataset of the error, and none
    fails on the other dataset of the pair. The outputs of these runs are not tested. The check is
    omitted if a call exceeded the time limit, because each further run could take that long.
    """
    if failed.dataset is None or any(limit in failed.reason for limit in _LATE):
        return failed
    world = failed.dataset == "B"
    with suppress(KeyboardInterrupt):  # the error is reported anyway
        if all(
            _fails(block, which, number, by) == (which == world)
            for number in range(REPEATS)
            for which in (world, not world)
        ):
            failed.reveals = True
    return failed


def _fails(block: Block, world: bool, number: int, by: Drawer) -> bool:  # noqa: FBT001 - as in Block
    seeds = [
        np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
        for seed in (*block.seeds, block.mixing)
    ]
    one = replace(
        block, worlds=np.array([world]), seeds=(seeds[0], seeds[1]), mixing=seeds[2], until=math.inf
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
    r"""A context with a :class:`Drawer` that uses ``jobs`` jobs (-1: one job per core)."""
    # Outputs are read in this process, wherever the target runs.
    with Watchdog(timeout):
        sent = None if width_of(jobs) == 1 else _send(target, jobs)
        yield Drawer(target=target, sent=sent, jobs=jobs, timeout=timeout, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawer:
    r"""Draws blocks of runs, in this process if ``sent`` is None, otherwise in worker processes.

    The results are in the order of the blocks. ``sent`` is the target as it is sent to workers.
    """

    target: Target
    sent: SentTarget | None
    jobs: int
    timeout: float | None
    progress: Callable[[int], None] | None
    known: dict[int, Any] = field(default_factory=dict)

    def keeps_to_its_seed(self, block: Block) -> bool:
        r"""Whether the target gives the same outputs if the same block is drawn twice."""
        if self.sent is None:
            return keeps_to_its_seed(self.target, block)
        (answer,) = self._results(self.sent, work_probe, iter([block]))
        return bool(answer)

    def draw(self, blocks: Iterable[Block]) -> Generator[Drawing, None, None]:
        r"""Yield the drawn runs of each block; closing the iterator stops unfinished blocks."""
        if self.sent is None:
            for block in blocks:
                yield draw_block(self.target, block, progress=self.progress)
            return
        for drawing, drawn in self._results(self.sent, work_block, iter(blocks)):
            if self.progress is not None:
                self.progress(drawn + len(drawing.outputs))
            yield drawing

    def _results(
        self,
        sent: SentTarget,
        work: Callable[[SentTarget, Block], bytes],
        blocks: Iterator[Block],
    ) -> Iterator[Any]:
        with closing(in_processes(work, ((sent, block) for block in blocks), self.jobs)) as answers:
            try:
                for packed in answers:
                    yield answer_of(packed, self.known)
            except WorkerLost as error:
                cause = error.__cause__
                lost = cause if isinstance(cause, Exception) else error
                raise _lost(sent.spelling, self.timeout, lost) from error


def _send(target: Target, jobs: int) -> SentTarget:
    pickled = None
    if not target.named:
        import cloudpickle

        try:
            pickled = cloudpickle.dumps(target)
        # Pickling an object can raise anything.
        except Exception as error:
            reason = f"the target {target.spelling} cannot be sent to another process ({error})"
            raise InvalidParameter("jobs", jobs, f"must be 1, because {reason}") from error
    return SentTarget(
        spelling=target.spelling,
        seeded=target.seeded,
        folder=target.folder,
        content=content_of(target),
        pickled=pickled,
        process=os.getpid(),
    )


def _lost(target: str, timeout: float | None, error: Exception) -> TargetFailed:
    # The error for a worker that died or cannot be reached, instead of joblib's traceback.
    codes = _EXIT_CODES.search(str(error))
    if codes is not None and timeout is not None and f"EXIT({OVERDUE})" in codes[1]:
        reason = (
            f"no answer within {timeout:g} s, and its worker had to be killed, because nothing "
            "else interrupts it; set a longer limit with --timeout"
        )
    elif codes is not None:
        how = ", ".join(sorted(set(codes[1].split(", "))))
        reason = f"a worker process died ({how}), e.g. from os._exit, a signal or lack of memory"
    else:
        lines = str(error).strip().splitlines() or [""]
        reason = f"a worker was lost ({type(error).__name__}: {lines[0]})"
    return TargetFailed(target, reason)


# -- workers ----------------------------------------------------------------------------------


@contextmanager
def dask_cluster(scheduler: str) -> Iterator[None]:
    r"""A context in which audits with ``jobs`` other than 1 draw their runs on a Dask cluster.

    ``scheduler`` is the address of the cluster, e.g. ``tcp://host:8786``. All workers of the
    cluster are used, regardless of the number of jobs. Each worker needs the same versions of
    dpcore and numpy, and the target's file at the same path. Workers run calls in threads, so a
    time limit applies only to ``exec:`` targets.
    """
    wrong = partial(InvalidParameter, "--scheduler", scheduler)
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        raise wrong("needs dask.distributed: pip install 'dpcore[cluster]'") from None
    from joblib import parallel_config

    connect: Any = Client  # untyped
    try:
        get_address_host_port(scheduler)  # with an invalid address, a client would hang on close
        client = connect(scheduler, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise wrong(f"cannot be reached: {lines[0]}") from error
    with client, parallel_config(backend="dask", client=client):
        yield


_GRACE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTarget:
    r"""The data from which a worker process builds a target.

    ``content`` is a digest of the target's source file, ``process`` the ID of the audit's process.
    A worker builds the target once, and reuses it if it receives equal data.
    """

    spelling: str
    seeded: bool
    folder: str
    content: str | None
    pickled: bytes | None
    process: int


def work_block(sent: SentTarget, block: Block) -> bytes:
    r"""Draw a block in a worker.

    Returns the :class:`Drawing` and the number of runs before the block, or the target's failure.
    The result is encoded with ``audit.outputs.sandbox_encoding``.
    """

    def drawn(target: Target) -> tuple[Any, ...]:
        drawing = draw_block(target, block)
        error = None if drawing.error is None else error_fields(drawing.error)
        return drawing.outputs, error, drawing.interrupted, drawing.limited, block.drawn

    return _work(sent, block, drawn)


def work_probe(sent: SentTarget, block: Block) -> bytes:
    r"""Test in a worker whether the target uses only its seed; return the encoded result."""
    return _work(sent, block, lambda target: keeps_to_its_seed(target, block))


def answer_of(data: bytes, known: dict[int, Any]) -> Any:
    r"""Decode an answer of :func:`work_block` or :func:`work_probe`.

    An answer of :func:`work_block` is a ``Drawing`` and the number of runs before its block; an
    answer of :func:`work_probe` is a bool. ``known`` contains objects that represent objects of the
    workers. Raises :class:`TargetFailed` if the target failed in the worker.
    """
    match result_of("a worker", *unpack(data, known)):
        case bool(found):
            return found
        case (outputs, error, bool(interrupted), bool(limited), int(drawn)):
            failed = None if error is None else error_from_fields(error)
            return Drawing(
                outputs=outputs, error=failed, interrupted=interrupted, limited=limited
            ), drawn
    raise ValueError("invalid answer from a worker")


def _work(sent: SentTarget, block: Block, do: Callable[[Target], object]) -> bytes:
    leave_ctrl_c_to(sent.process)
    watch = watch_over(sent.process)
    with stdout_to_stderr(), Watchdog(block.timeout) as watchdog:

        def work() -> object:
            try:
                target = _received(sent)
            except InvalidParameter as error:
                raise TargetFailed(sent.spelling, f"in a worker: {error}") from error
            watch.due = lambda: None if watchdog.due is None else watchdog.due + _GRACE
            return do(target)

        try:
            kind, value = run_work(sent.spelling, work)
            # Outputs are encoded here, because the target's classes exist only in this process.
            with reading(sent.spelling):
                return pack((kind, value), _objects())
        except TargetFailed as error:
            return pack(("failed", error_fields(error)), _objects())
        finally:
            watch.due = None


@cache
def _objects() -> Objects:
    return Objects(shared=True)


@lru_cache(maxsize=4)
def _received(sent: SentTarget) -> Target:
    if sent.pickled is not None:
        import cloudpickle

        found = cloudpickle.loads(sent.pickled)  # pickled by the audit's own process
        assert isinstance(found, Target)  # noqa: S101  # nothing else is sent
        return found
    if os.getpid() != sent.process:
        # Relative file names are relative to the folder in which the audit was started.
        with contextlib.suppress(OSError):
            os.chdir(sent.folder)
    return read_target(sent.spelling, seeded=sent.seeded)
