"""The command, and a folder to run it in."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.audit.command import Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "tests" / "support" / "audit" / "misbehaving.py", tmp_path / "targets.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    own = ("tests", "audit.")
    for name in [n for n in sys.modules if "targets" in n and not n.startswith(own)]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.fixture
def audit(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capfd)
