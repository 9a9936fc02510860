"""Fixtures: the commands of `accounting`, without those of other packages."""

from __future__ import annotations

from functools import partial
from importlib.metadata import EntryPoint
from typing import Final

import pytest

import dpcore.cli.app
from tests.support.run_command import Command, typed

POINTS: Final = {
    name: EntryPoint(name, f"accounting.cli.{module}:{name}", "dpcore.commands")
    for name, module in (
        *((name, name) for name in ("budget", "ledger", "protocol", "release")),
        *((name, "certificate") for name in ("certify", "verify")),
    )
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpcore.cli.app, "_registered", lambda: POINTS)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return partial(typed, capsys, "budget")
