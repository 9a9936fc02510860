r"""Any executable as a target: ``exec:./program arguments``.

One process draws the runs of one world in a block. It reads one line of JSON from standard input,

    {"dataset": ..., "n": 1000, "seed": 8123}

and writes n lines to standard output, one output each: JSON where all lines of the first runs are,
else text. What it writes to standard error is shown when it fails.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from audit.errors import TargetFailed
from audit.outputs import Outputs, join
from audit.target import Block, Target
from dpcore.errors import InvalidParameter

__all__ = ["Program", "read_program"]

_SEED_BITS: Final = 53  # every JSON reader holds such an integer exactly
_SHOWN: Final = 200
_FEW_DIGITS: Final = 4000  # any Python reads so many


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Target):
    r"""A command and its arguments; no shell reads them."""

    command: tuple[str, ...]
    lines: ClassVar[bool] = True
    limits_itself: ClassVar[bool] = True

    def draw(self, block: Block) -> Iterator[Outputs]:
        sides = [self._side(block, world) if block.sizes[world] else [] for world in (0, 1)]
        yield join(sides[0], sides[1], block.worlds, block.mixing)

    def _side(self, block: Block, world: int) -> list[str]:
        runs = block.sizes[world]
        request = {"dataset": block.pair[world], "n": runs, "seed": _seed_of(block.seeds[world])}
        found = self._answer(json.dumps(request) + "\n", "AB"[world], block.watchdog.seconds)
        lines = found.split("\n")
        if lines[-1] == "":
            lines.pop()
        if len(lines) != runs:
            reason = f"wrote {_lines(len(lines))} for n = {runs:,}: one output a line is needed"
            raise TargetFailed(self.spelling, reason, dataset="AB"[world])
        if any(map(_is_beyond_json, lines)):
            reason = "wrote an integer of more digits than Python reads as a number"
            raise TargetFailed(self.spelling, reason, dataset="AB"[world])
        return [line.removesuffix("\r") for line in lines]

    def _answer(self, request: str, dataset: str, seconds: float | None) -> str:
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Its own group: Ctrl-C is for the audit, and an end reaches its children too.
                start_new_session=True,
            )
        except OSError as error:
            reason = f"could not be started: {error.strerror or error}"
            raise TargetFailed(self.spelling, reason, dataset=dataset) from error
        try:
            out, err = process.communicate(request.encode(), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            reason = f"{_late(process, error)}; a longer limit is set with --timeout"
            raise TargetFailed(self.spelling, reason, dataset=dataset) from error
        finally:
            _end(process)
        if process.returncode:
            reason = f"{_ended(process.returncode)}{_last_words(err)}"
            raise TargetFailed(self.spelling, reason, dataset=dataset)
        return out.decode(errors="backslashreplace")


def _late(process: subprocess.Popen[bytes], error: subprocess.TimeoutExpired) -> str:
    code = process.poll()
    if code is None:
        return f"no answer within {error.timeout:g} s"
    how = _ended(code) + _last_words(error.stderr or b"") if code else "ended"
    return f"{how}, but what it started kept its output open for {error.timeout:g} s"


def _end(process: subprocess.Popen[bytes]) -> None:
    # The whole group, also where the program itself has ended: it may have left others behind.
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
    except ValueError:  # of a number: the text is JSON so far
        return True
    return False


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _ended(code: int) -> str:
    if code > 0:
        return f"exited with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _last_words(stderr: bytes) -> str:
    words = " ".join(stderr.decode(errors="backslashreplace").split())
    if not words:
        return " and wrote nothing to standard error"
    return f": {words if len(words) <= _SHOWN else '...' + words[-_SHOWN:]}"


def _seed_of(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint64)[0]) >> (64 - _SEED_BITS)


def read_program(spelling: str, text: str) -> Program:
    r"""The program that ``exec:text`` names, with its arguments as a shell would split them.

    >>> read_program("exec:env -i true", "env -i true").command[1:]
    ('-i', 'true')

    Raises :class:`InvalidParameter` when there is no such program or it cannot be executed.
    """
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidParameter("target", spelling, f"cannot be split into words: {error}") from None
    if not command:
        raise InvalidParameter("target", spelling, "names no program")
    found = shutil.which(command[0])
    if found is None:
        there = Path(command[0]).exists()
        reason = "is not executable (chmod +x)" if there else "is not there"
        raise InvalidParameter("target", spelling, f"{command[0]} {reason}")
    return Program(spelling=spelling, command=(found, *command[1:]))
