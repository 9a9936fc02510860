r"""An executable as a target: ``exec:./program arguments``.

One process is started for each block of runs and each dataset. The process reads one line of JSON
from standard input,

    {"dataset": ..., "n": 1000, "seed": 8123}

and writes n lines to standard output, with one output per line. If all lines of the first runs are
JSON, lines are parsed as JSON, otherwise as text. If the process fails, the end of its standard
error is shown. Writing more or fewer than n lines, or more than 2^28 bytes for one request, is a
failure.
"""

from __future__ import annotations

import errno
import json
import math
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from audit.errors import TargetFailed
from audit.outputs.output_parser import Outputs, join
from audit.outputs.time_limit import signal_name
from audit.targets.target import Block, Target
from dpcore.errors import InvalidParameter

_SEED_BITS: Final = 53  # exact in every JSON reader
_SHOWN: Final = 200
_FEW_DIGITS: Final = 4000  # below the limit of every Python
_MOST_BYTES: Final = 1 << 28
_PROTOCOL: Final = (
    "one output per line is required: n lines for a JSON request with dataset, n and seed"
)
_MORE_LINES: Final = 1000  # counted beyond n, for the error message
_PIECE: Final = 1 << 16
_RUNNERS: Final = {
    ".awk": "awk -f", ".jl": "julia", ".js": "node", ".lua": "lua", ".php": "php", ".pl": "perl",
    ".py": "python3", ".r": "Rscript", ".rb": "ruby", ".sh": "sh", ".ts": "node",
}  # fmt: skip
_PIPE: Final = 512  # a writable pipe accepts this many bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Target):
    r"""A command and its arguments, executed without a shell."""

    command: tuple[str, ...]
    lines: ClassVar[bool] = True
    limits_itself: ClassVar[bool] = True

    def check(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        r"""Return the pair. Raises :class:`InvalidParameter` if it cannot be written as JSON."""
        for name, dataset in zip("AB", pair, strict=True):
            try:
                json.dumps(dataset)
            except (TypeError, ValueError, RecursionError) as error:
                reason = f"must be a JSON value, because a program receives it as JSON: {error}"
                raise InvalidParameter(f"dataset {name}", dataset, reason) from error
        return pair

    def draw(self, block: Block) -> Iterator[Outputs]:
        sides = [self._side(block, world) if block.sizes[world] else [] for world in (0, 1)]
        yield join(sides[0], sides[1], block.worlds, block.mixer)

    def _side(self, block: Block, world: int) -> list[str]:
        runs = block.sizes[world]
        request = json.dumps(request_of(block, world)) + "\n"
        found = self._answer(request, runs, "AB"[world], block.timeout)
        lines = found.split("\n")
        if lines[-1] == "":
            lines.pop()
        failed = partial(TargetFailed, self.spelling, dataset="AB"[world])
        if len(lines) != runs:
            many = "1 line" if len(lines) == 1 else f"{len(lines):,} lines"
            raise failed(f"wrote {many} for n = {runs:,}: {_PROTOCOL}")
        if any(map(_is_beyond_json, lines)):
            raise failed("wrote an integer of more digits than Python reads as a number")
        return [line.removesuffix("\r") for line in lines]

    def _answer(self, request: str, runs: int, dataset: str, seconds: float | None) -> str:
        failed = partial(TargetFailed, self.spelling, dataset=dataset)
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # With a process group of its own, Ctrl-C reaches only the audit, and the program
                # can be killed together with its children.
                start_new_session=True,
            )
        except OSError as error:
            raise failed(f"could not be started: {self._no_start(error)}") from error
        received = _Received(process=process, runs=runs)
        try:
            received.exchange(request.encode(), seconds)
        except subprocess.TimeoutExpired as error:
            raise failed(f"{_late(received, error)}; set a longer limit with --timeout") from error
        except _TooMuch as error:
            raise failed(str(error)) from error
        finally:
            _end(process)
        if process.returncode:
            raise failed(f"{_ended(process.returncode)}{_stderr_end(received.err)}")
        return received.out.decode(errors="backslashreplace")

    def _no_start(self, error: OSError) -> str:
        if error.errno != errno.ENOEXEC:
            return error.strerror or str(error)
        words = shlex.split(self.spelling.partition(":")[2])
        runner = _RUNNERS.get(Path(words[0]).suffix.lower(), "INTERPRETER")
        return f"it has no #! line; try {shlex.quote(f'exec:{runner} {shlex.join(words)}')}"


class _TooMuch(Exception):
    pass


@dataclass(slots=True, kw_only=True)
class _Received:
    # The output of a program so far: all of its standard output, and the end of its standard
    # error.
    process: subprocess.Popen[bytes]
    runs: int
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    lines: int = 0

    def exchange(self, request: bytes, seconds: float | None) -> None:
        # Send the request while reading the answer, because either may be larger than the buffer of
        # a pipe.
        end = math.inf if seconds is None else time.monotonic() + seconds
        unsent = memoryview(request)
        pipes: list[Any] = [self.process.stdin, self.process.stdout, self.process.stderr]
        stdin, *outputs = pipes
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdin, selectors.EVENT_WRITE)
            for output in outputs:
                waiting.register(output, selectors.EVENT_READ)
            while waiting.get_map():
                left = end - time.monotonic()
                if left <= 0:
                    raise subprocess.TimeoutExpired(self.process.args, seconds or 0.0)
                for key, _ in waiting.select(None if left == math.inf else left):
                    pipe: Any = key.fileobj
                    if pipe is stdin:
                        unsent = unsent[_written(key.fd, unsent) :]
                        open_still = bool(unsent)
                    else:
                        open_still = self._keep(os.read(key.fd, _PIECE), pipe)
                    if not open_still:
                        waiting.unregister(pipe)
                        with suppress(OSError):
                            pipe.close()
        self.process.wait(None if end == math.inf else max(end - time.monotonic(), 0.0))

    def _keep(self, piece: bytes, pipe: Any) -> bool:
        if pipe is self.process.stderr:
            self.err += piece
            del self.err[: -4 * _SHOWN]
        else:
            self.out += piece
            self.lines += piece.count(b"\n")
            most = self.runs + _MORE_LINES
            if self.lines > most:
                reason = f"printed more than {most:,} lines for n = {self.runs:,}"
                raise _TooMuch(f"{reason}: {_PROTOCOL}")
            if len(self.out) > _MOST_BYTES:
                reason = f"printed more than {_MOST_BYTES:,} bytes for n = {self.runs:,}"
                raise _TooMuch(f"{reason}: use fewer runs, or shorter outputs")
        return bool(piece)


def _written(pipe: int, unsent: memoryview) -> int:
    try:
        return os.write(pipe, unsent[:_PIPE])
    except BrokenPipeError:  # a program need not read the request
        return len(unsent)


def _late(received: _Received, error: subprocess.TimeoutExpired) -> str:
    code = received.process.poll()
    if code is None:
        return f"no answer within {error.timeout:g} s"
    how = _ended(code) + _stderr_end(received.err) if code else "ended"
    return f"{how}, but a process that it started kept its output open for {error.timeout:g} s"


def _end(process: subprocess.Popen[bytes]) -> None:
    # Kill the whole group, even if the program has ended: children may still run.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _is_beyond_json(line: str) -> bool:
    if len(line) <= _FEW_DIGITS:
        return False
    try:
        json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    except ValueError:  # an int() error: the text is JSON
        return True
    return False


def _ended(code: int) -> str:
    if code > 0:
        return f"exited with {code}"
    return f"was killed by {signal_name(-code)}"


def _stderr_end(stderr: bytearray) -> str:
    words = " ".join(stderr.decode(errors="backslashreplace").split())
    if not words:
        return " and wrote nothing to standard error"
    return f": {words if len(words) <= _SHOWN else '...' + words[-_SHOWN:]}"


def request_of(block: Block, world: int) -> dict[str, Any]:
    r"""Return the request for runs on dataset A (``world`` 0) or B (1).

    The seed in the request is a number that every JSON reader represents exactly.
    """
    seed = int(block.seeds[world].generate_state(1, np.uint64)[0]) >> (64 - _SEED_BITS)
    return {"dataset": block.pair[world], "n": block.sizes[world], "seed": seed}


def read_program(spelling: str, text: str) -> Program:
    r"""Parse ``text``, a program and its arguments after "exec:", split as in a shell."""
    wrong = partial(InvalidParameter, "target", spelling)
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise wrong(f"cannot be split into words: {error}") from None
    if not command:
        raise wrong("does not name a program")
    found = shutil.which(command[0])
    if found is None:
        there = Path(command[0]).exists()
        fault = "is not executable: run chmod +x" if there else "was not found: check the path"
        raise wrong(f"the program {command[0]} {fault}")
    return Program(spelling=spelling, command=(found, *command[1:]))
