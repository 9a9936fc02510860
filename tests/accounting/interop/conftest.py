"""Fixtures: dp-accounting and its events, if it is installed."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def dp() -> Any:
    return pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")


@pytest.fixture
def events(dp: Any) -> Any:
    return dp.dp_event
