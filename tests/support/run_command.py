r"""Commands as they are typed: what is said, on which stream, and the exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

import dpcore.cli.app


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON document, without the words that JSON does not know."""
        found: dict[str, Any] = json.loads(self.out, parse_constant=_refused)
        return found


def _refused(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def typed(streams: pytest.CaptureFixture[str], *words: object) -> Answer:
    """The command in this process: the code of a real one from ``dpcore.cli.app.run`` on."""
    streams.readouterr()
    code = dpcore.cli.app.run([*map(str, words)])
    out, err = streams.readouterr()
    return Answer(code=code, out=out, err=err)


class Command:
    """``dpcore budget``, in this process."""

    def __init__(self, streams: pytest.CaptureFixture[str]) -> None:
        self.streams = streams

    def __call__(self, *words: object) -> Answer:
        return typed(self.streams, "budget", *words)
