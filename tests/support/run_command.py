r"""Run commands as typed, and return exit code, standard output and standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

import dpcore.cli.app


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON document; NaN and Infinity are refused."""
        found: dict[str, Any] = json.loads(self.out, parse_constant=_refused)
        return found


Command: TypeAlias = Callable[..., Answer]
"""A fixture that runs a command with these words."""


def _refused(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def typed(streams: pytest.CaptureFixture[str], *words: object) -> Answer:
    """Run a command in this process, from ``dpcore.cli.app.run`` on."""
    streams.readouterr()
    code = dpcore.cli.app.run([*map(str, words)])
    out, err = streams.readouterr()
    return Answer(code=code, out=out, err=err)
