"""Run a program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.run_command import ROOT

ALONE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
"""A shell that may mount what it likes, where nobody else sees it."""


def script(
    program: str, *arguments: object, before: tuple[object, ...] = (), **environment: str
) -> str:
    """Return the output of a program that exits with 0; ``before`` are words in front of Python."""
    words = [*before, sys.executable, "-c", program, *arguments]
    finds = {"PYTHONPATH": str(ROOT)}  # this tree's packages and tests
    run = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **finds, **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
