r"""Run commands as typed, or a new interpreter; return exit code, output and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import dpcore.cli.app
from dpcore.cli.files import parse_json

ROOT = Path(__file__).parents[2]


def python(
    *words: str, folder: Path = ROOT, path: object = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a new interpreter in ``folder``, with ``path`` as its PYTHONPATH."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path), **environment},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=600,
        check=False,
    )


def pytest_alone(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in ``folder`` in a process of their own, with the settings of this tree."""
    ours = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"))
    words = ("-m", "pytest", "-q", *ours, "--rootdir", str(ROOT), *options, str(folder))
    return python(*words, ALPHA_SHARE="1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON document; NaN and Infinity are refused."""
        found: dict[str, Any] = parse_json(self.out)
        return found


Command: TypeAlias = Callable[..., Answer]
"""A fixture that runs a command with these words."""


def typed(streams: pytest.CaptureFixture[str], *words: object) -> Answer:
    """Run a command in this process, from ``dpcore.cli.app.run`` on."""
    streams.readouterr()
    code = dpcore.cli.app.run([*map(str, words)])
    out, err = streams.readouterr()
    return Answer(code=code, out=out, err=err)
