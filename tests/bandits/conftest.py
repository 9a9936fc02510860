"""Fixture: the command, in a working folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpcore.cli.app
from tests.support.bandits.command import Bandit, registered


@pytest.fixture(name="bandit")
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Bandit:
    monkeypatch.setattr(dpcore.cli.app, "_registered", registered)
    monkeypatch.chdir(tmp_path)
    return Bandit(capsys)
