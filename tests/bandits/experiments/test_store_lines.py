"""Lines of a state: on the disk before the next is played, and none but what was written."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from bandits.experiments.playing import _START, _header, _line, resume, run_cells
from bandits.worlds import Worlds
from dpcore.errors import InvalidParameter
from tests.bandits.experiments.test_state import small

WORLDS: Worlds = small().worlds()
CELLS = run_cells(small(), WORLDS)


def begun(path: Path) -> bytes:
    with resume(path, small(), WORLDS):
        pass
    return path.read_bytes()


def refused(path: Path, words: str) -> None:
    """It cannot be resumed, and stays as it is."""
    data = path.read_bytes()
    with pytest.raises(InvalidParameter, match=words), resume(path, small(), WORLDS):
        pass
    assert path.read_bytes() == data


def test_a_cell_is_on_the_disk_before_the_next_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.jsonl"
    synced: list[tuple[int, int]] = []

    def fsync(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, path.read_bytes().count(b"\n")))

    monkeypatch.setattr("dpcore.command.state_file.os.fsync", fsync)
    with resume(path, small(), WORLDS) as state:
        file, folder = path.stat().st_ino, tmp_path.stat().st_ino
        assert synced == [(file, 1), (folder, 1)]
        for number, cell in enumerate(CELLS, start=2):
            state.append(cell)
            assert synced[-1] == (file, number)


def test_a_file_that_an_experiment_holds_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    with resume(path, small(), WORLDS):
        refused(path, "is in use by another experiment")


def test_a_state_holds_what_was_appended(tmp_path: Path) -> None:
    with resume(tmp_path / "state.jsonl", small(), WORLDS) as state:
        state.append(CELLS[0])
        assert state.cells == [CELLS[0]]


@pytest.mark.parametrize("name", ["dpcore", "numpy"])
def test_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    begun(tmp_path / "state.jsonl")

    def other(package: str) -> str:
        return "0.0" if package == name else version(package)

    monkeypatch.setattr("bandits.experiments.playing.version", other)
    refused(tmp_path / "state.jsonl", f"was begun with another {name}")


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    line, _ = _line(_START, {**_header(small(), WORLDS), "schema": "dpcore-bandit-state/2"})
    path.write_bytes(line)
    refused(path, "is not of schema")


def test_cells_in_another_order_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    with resume(path, small(), WORLDS) as state:
        state.append(CELLS[1])
    refused(path, "holds cells in another order")


@pytest.mark.parametrize(
    "change",
    [
        {"batches": 1.0},
        {"pulls": [500, 0, False]},
        {"regret": [1, 2]},
        {"mean_bits_per_user": 3},
        {"regret": None},
        {"another": 1},
    ],
    ids=str,
)
def test_a_line_that_fits_but_holds_no_cell_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "state.jsonl"
    with resume(path, small(), WORLDS) as state:
        line, _ = _line(state.chain, {**CELLS[0].to_json(), **change})
    path.write_bytes(path.read_bytes() + line)
    refused(path, "holds what no experiment wrote .* in line 2")


def test_what_json_does_not_know_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        _line(_START, {"mean_bits_per_user": float("nan")})
