"""Fixtures: the audit command, and an empty working folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.audit.command import Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "tests" / "support" / "audit" / "misbehaving.py", tmp_path / "targets.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in [name for name in sys.modules if name.partition(".")[0].endswith("targets")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Shell]:
    """A shell that starts every command with these words, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(Shell, monkeypatch, capfd)


@pytest.fixture
def audit(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capfd)
