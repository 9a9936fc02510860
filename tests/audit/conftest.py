"""Fixtures: the audit command, and an empty working folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.audit.command import ROOT, Shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder; a file of tests may share one, and then its worker processes too."""
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "tests" / "support" / "audit" / "misbehaving.py", folder / "targets.py")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in [name for name in sys.modules if name.partition(".")[0].endswith("targets")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


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
