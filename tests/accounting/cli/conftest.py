"""``dpcore budget`` as a user types it, for the tests of this folder that name no other command."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Final

import pytest

import dpcore.command.app
from tests.support.typed import Command

POINT: Final = EntryPoint("budget", "accounting.cli.budget:budget", "dpcore.commands")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setattr(dpcore.command.app, "_registered", lambda: {"budget": POINT})
    return Command(capsys)
