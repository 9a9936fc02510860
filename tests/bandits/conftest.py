"""Fixtures: the command, in a working folder of its own, and no run of a cell."""

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


@pytest.fixture(name="never_played")
def _never_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> None:
        raise AssertionError

    monkeypatch.setattr("bandits.experiments.runner.play_task", never)
