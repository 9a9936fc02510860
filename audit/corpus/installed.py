r"""A target in another Python environment: one process there answers for a whole audit."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Self

from audit.errors import TargetFailed
from audit.outputs.form import Outputs, join
from audit.targets.program import seed_of
from audit.targets.target import Block, Target

_SCRIPT: Final = Path(__file__).with_name("worker.py")
_PATIENCE: Final = 300.0
_SHOWN: Final = 300


class Worker:
    r"""A process of the environment's Python that runs the code of an entry.

    A context manager: the process ends with it.
    """

    def __init__(self, name: str, python: Path, code: str) -> None:
        self.name = name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        # Isolated: neither the folder it is started in nor the caller's own packages are seen.
        self._process = subprocess.Popen(
            [str(python), "-I", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._code = code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def begin(self) -> str | None:
        r"""Run the code; the claim that the package itself computes, where the entry asks for it.

        Raises :class:`TargetFailed` where the code fails.
        """
        (line,) = self._ask({"code": self._code}, 1, None, _PATIENCE)
        claimed = json.loads(line)["claimed"]
        return None if claimed is None else str(claimed)

    def draw(
        self, dataset: Any, runs: int, seed: int, *, label: str, seconds: float | None
    ) -> list[str]:
        r"""The outputs of so many runs as lines of JSON.

        Raises :class:`TargetFailed` where the process ends, or does not answer in time.
        """
        request = {"dataset": dataset, "n": runs, "seed": seed}
        return self._ask(request, runs, label, seconds)

    def _ask(
        self, request: dict[str, Any], lines: int, label: str | None, seconds: float | None
    ) -> list[str]:
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101 - both are pipes
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        limit = threading.Timer(_PATIENCE if seconds is None else seconds, end)
        limit.start()
        try:
            with suppress(OSError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            found = [self._process.stdout.readline() for _ in range(lines)]
        finally:
            limit.cancel()
        if found[-1].endswith("\n"):
            return [line.removesuffix("\n") for line in found]
        reason = f"no answer within {seconds:g} s" if late.is_set() and seconds else "ended"
        raise TargetFailed(self.name, f"{reason}{self._last_words()}", dataset=label)

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        words = " ".join(self._errors.read().decode(errors="replace").split())
        return f": ...{words[-_SHOWN:]}" if words else " and wrote nothing to standard error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed(Target):
    r"""The mechanism of an entry, drawn by a worker that has begun."""

    worker: Worker = field(compare=False, repr=False)
    lines: ClassVar[bool] = True
    limits_itself: ClassVar[bool] = True

    def draw(self, block: Block) -> Iterator[Outputs]:
        sides = [
            self.worker.draw(
                block.pair[world],
                block.sizes[world],
                seed_of(block.seeds[world]),
                label="AB"[world],
                seconds=block.watchdog.seconds,
            )
            if block.sizes[world]
            else []
            for world in (0, 1)
        ]
        yield join(sides[0], sides[1], block.worlds, block.mixing)
