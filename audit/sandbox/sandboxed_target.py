r"""Run the targets and feature maps of a command in a child process.

The auditor's process never imports the code of these targets and maps. A sandbox is a process that
loads a target, draws blocks of its runs and applies feature maps to outputs. A sandbox returns only
data (``audit.outputs.sandbox_encoding``), and any unexpected end of the process is a failure of the
target (``audit.sandbox.child_process``). Callables that are passed to the Python functions of
``audit`` run in the caller's process instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.features.parse_feature import Feature, own_map, read_feature
from audit.outputs.output_parser import Outputs, concatenate
from audit.outputs.time_limit import Watchdog
from audit.sandbox.child_process import Ended, IsolatedProcess, Pipe
from audit.targets.target import Block, Scalar, Target
from audit.targets.target_syntax import files_of, read_target, source_of

_IMPORT: Final = 60.0
_OFTEN: Final = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(Target):
    r"""A target from a file or module that is loaded and run only in a sandbox.

    ``one`` is True if each call returns one output. ``source`` is the target's source file.
    """

    sandbox: Sandbox = field(compare=False, repr=False)
    one: bool
    source: str | None
    limits_itself: ClassVar[bool] = True

    @property
    def tells_time(self) -> bool:  # type: ignore[override]  # depends on the instance here
        return self.one

    def draw(self, block: Block) -> Iterator[Outputs]:
        try:
            yield from self.sandbox.ask(("draw", self.spelling, *_block_fields(block)))
        except Ended as error:
            # If each call returns several outputs, there is one call per dataset with runs.
            sides = [world for world in (0, 1) if block.sizes[world]]
            at = error.calls - 1
            if at < 0:
                raise
            dataset = block.worlds[at] if self.one else sides[at]
            run = block.drawn + at + 1 if self.one else None
            raise TargetFailed(
                self.spelling, error.reason, dataset="AB"[int(dataset)], run=run
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Map:
    spelling: str
    sandbox: Sandbox
    sources: tuple[str, ...]

    def __call__(self, outputs: Outputs) -> Outputs:
        try:
            found: Outputs = _last(self.sandbox.ask(("map", self.spelling, outputs)))
        except Ended as error:
            raise TargetFailed(f"feature {self.spelling}", error.reason) from error
        return found


class Sandbox:
    r"""A process that runs targets and feature maps, started when something is first loaded."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._process = IsolatedProcess(name="the target", work=self._serve, seconds=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def target(self, spelling: str, *, seeded: bool = True) -> Target:
        r"""Parse a target as ``read_target`` does, but import its code only in the sandbox."""

        def elsewhere(spelling: str) -> Target:
            self._process.name = spelling
            own, one, source = _last(self.ask(("target", spelling)))
            return Remote(spelling=spelling, seeded=own, sandbox=self, one=one, source=source)

        return read_target(spelling, seeded=seeded, found=elsewhere)

    def feature(self, text: str) -> Feature:
        r"""Parse a feature as ``read_feature`` does, but run a user's map in the sandbox."""

        def elsewhere(spelling: str) -> Callable[[Outputs], Outputs]:
            sources = _last(self.ask(("feature", spelling)))
            return _Map(spelling=spelling, sandbox=self, sources=tuple(sources))

        return read_feature(text, own=elsewhere)

    def ask(self, request: tuple[Any, ...]) -> Generator[Any, None, Any]:
        return self._process.ask(request)

    def _serve(self, pipe: Pipe) -> None:
        # This runs in the sandbox's process. Targets are cached, because they may have state.
        found = _SandboxServer(pipe=pipe, timeout=self._timeout)
        for verb, spelling, *rest in pipe.requests():
            pipe.name = f"feature {spelling}" if verb in {"feature", "map"} else spelling
            with Watchdog(self._timeout):
                pipe.answer(partial(found.do, verb, spelling, rest))


@dataclass(slots=True, kw_only=True)
class _SandboxServer:
    # Answers requests in the sandbox's process, and caches its targets and maps.
    pipe: Pipe
    timeout: float | None
    target: Callable[[str], Target] = field(default_factory=lambda: cache(read_target))
    feature: Callable[[str], Callable[[Outputs], Outputs]] = field(
        default_factory=lambda: cache(own_map)
    )

    def do(self, verb: str, spelling: str, rest: list[Any]) -> Any:
        match verb:
            case "target":
                with importing(self.timeout):
                    target = self.target(spelling)
                    source = source_of(getattr(target, "function", None))
                    return target.seeded, isinstance(target, Scalar), source
            case "feature":
                with importing(self.timeout):
                    return files_of(spelling, Feature(name=spelling, apply=self.feature(spelling)))
            case "map":
                return self.feature(spelling)(rest[0])
        return _send_pieces(self.target(spelling), self.pipe, _block(*rest))


def _block_fields(block: Block) -> tuple[Any, ...]:
    # A block as plain data.
    seeds = [(seed.entropy, seed.spawn_key) for seed in (*block.seeds, block.mixing)]
    return block.pair, block.worlds, seeds, block.drawn, block.timeout, block.timed


def _block(pair: tuple[Any, Any], worlds: NDArray[np.bool_], seeds: Any, *rest: Any) -> Block:
    a, b, mixing = (np.random.SeedSequence(entropy, spawn_key=key) for entropy, key in seeds)
    more = dict(zip(("drawn", "timeout", "timed"), rest, strict=True))
    return Block(pair=pair, worlds=worlds, seeds=(a, b), mixing=mixing, **more)


def _send_pieces(target: Target, pipe: Pipe, block: Block) -> None:
    pieces: list[Outputs] = []
    sent = time.monotonic()
    try:
        for piece in target.draw(block):
            pieces.append(piece)
            if time.monotonic() > sent + _OFTEN:
                pipe.send("part", concatenate(pieces))
                pieces.clear()
                if pipe.memory.stopped:
                    break
                sent = time.monotonic()
    finally:
        if pieces:
            pipe.send("part", concatenate(pieces))


@contextmanager
def importing(timeout: float | None) -> Iterator[None]:
    r"""A context that limits imports to max(``timeout``, 60) seconds; None means no limit."""
    with Watchdog(None if timeout is None else max(timeout, _IMPORT)) as watchdog:
        watchdog.restart()
        yield


def _last(answer: Generator[Any, None, Any]) -> Any:
    # The final value of an answer; its parts are ignored.
    while True:
        try:
            next(answer)
        except StopIteration as end:
            return end.value


def run_isolated(name: str, work: Callable[[], T], *, timeout: float | None) -> T:
    r"""Run ``work()`` in a separate process and return the result, which must be plain data.

    The process is forked, so its imports do not affect the current process. The process also
    receives Ctrl-C.
    """

    def serve(pipe: Pipe) -> None:
        for _ in pipe.requests():
            pipe.answer(work)

    with IsolatedProcess(name=name, work=serve, seconds=timeout, forwards_ctrl_c=True) as process:
        found: T = _last(process.ask(None))
    return found
