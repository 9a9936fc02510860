"""Tests of resumed experiments: the file has the bytes of an uninterrupted experiment."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.runner import SCHEMA, _json, resume, run_cells
from bandits.worlds import Worlds
from bandits.worlds.arm_environments import Bernoulli
from dpcore.cli.state_file import next_record, read_records, started
from dpcore.errors import InvalidParameter
from tests.support.bandits.experiments import SMALL, cells_of

WORLDS = SMALL.worlds()
_START = started(SCHEMA)


def kept(path: Path, experiment: Experiment = SMALL) -> list[Cell]:
    worlds = experiment.worlds()
    with resume(path, experiment, worlds) as state:
        return run_cells(experiment, worlds, done=tuple(state.cells), store=state.append)


def records(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [record.payload for record in read_records(file, _START)]


def write(path: Path, *payloads: bytes) -> None:
    """Write records with valid digests."""
    written, digest = [], _START
    for payload in payloads:
        record, digest = next_record(digest, payload)
        written.append(record)
    path.write_bytes(b"".join(written))


@pytest.fixture(name="whole")
def stored(tmp_path: Path) -> tuple[Path, bytes, list[Cell]]:
    path = tmp_path / "state.jsonl"
    cells = kept(path)
    return path, path.read_bytes(), cells


def test_a_state_file_contains_the_experiment_and_its_cells(
    whole: tuple[Path, bytes, list[Cell]],
) -> None:
    path, data, cells = whole
    assert cells == cells_of(SMALL)
    first, *others = (json.loads(record) for record in records(path))
    assert (first["schema"], first["horizon"]) == (SCHEMA, 500)
    assert [each["instance"] for each in others] == [0, 1, 2] * 2
    assert kept(path) == cells
    assert path.read_bytes() == data


def test_a_state_file_torn_anywhere_resumes_to_the_same_bytes(
    whole: tuple[Path, bytes, list[Cell]],
) -> None:
    path, data, cells = whole
    rng = random.Random(3)
    with path.open("rb") as file:
        ends = [record.end for record in read_records(file, _START)]
    for cut in (0, 1, *ends, *(end - 1 for end in ends), *rng.sample(range(len(data)), 12)):
        path.write_bytes(data[:cut])
        assert kept(path) == cells
        assert path.read_bytes() == data


@pytest.mark.usefixtures("never_played")
def test_stored_cells_are_not_played_again(tmp_path: Path) -> None:
    path, cells = begun(tmp_path / "state"), cells_of(SMALL)
    write(path, *records(path), *(_json(cell.to_json()) for cell in cells))
    assert kept(path) == cells


OTHERS: dict[str, Any] = {
    "algorithms": ("se", "cdp-se"),
    "horizon": 501,
    "seed": 2,
    "checkpoints": (200, 500),
}


@pytest.mark.parametrize("name", [*OTHERS, "data", "recipe", "worlds", "dpcore", "numpy"])
def test_a_state_file_of_another_experiment_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, experiment, worlds = begun(tmp_path / "state"), SMALL, WORLDS
    match name:
        case "data":
            worlds = replace(worlds, data="0" * 64)
        case "worlds":  # the version does not identify the code or scikit-learn
            other = Bernoulli(means=(0.1, 0.2, 0.3))
            worlds = replace(worlds, environments=(*worlds.environments[:-1], other))
        case "recipe":
            monkeypatch.setattr("bandits.experiments.runner.RECIPE", "dpcore-bandit-cell/0")
        case "dpcore" | "numpy":
            versions = {each: version(each) for each in ("dpcore", "numpy")}
            versions[name] = "0.0"
            monkeypatch.setattr("bandits.experiments.runner.version", versions.__getitem__)
        case _:
            change = {"checkpoints": (501,)} if name == "horizon" else {}
            experiment = replace(SMALL, **{**change, name: OTHERS[name]})
    refused(path, f"was started with another value of {name}", worlds, experiment)


def begun(path: Path) -> Path:
    with resume(path, SMALL, WORLDS):
        pass
    return path


def refused(
    path: Path, words: str, worlds: Worlds = WORLDS, experiment: Experiment = SMALL
) -> None:
    """Assert that the file cannot be resumed and stays unchanged."""
    data = path.read_bytes()
    with pytest.raises(InvalidParameter, match=words), resume(path, experiment, worlds):
        pass
    assert path.read_bytes() == data


def test_a_cell_is_flushed_before_the_next_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.jsonl"
    synced: list[tuple[int, int]] = []

    def fsync(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, len(records(path))))

    monkeypatch.setattr("dpcore.cli.state_file.os.fsync", fsync)
    with resume(path, SMALL, WORLDS) as state:
        file, folder = path.stat().st_ino, tmp_path.stat().st_ino
        assert synced == [(file, 1), (folder, 1)]
        for number, cell in enumerate(cells_of(SMALL), start=2):
            state.append(cell)
            assert synced[-1] == (file, number)


def test_cells_in_another_order_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with resume(path, SMALL, WORLDS) as state:
        state.append(cells_of(SMALL)[1])
    refused(path, "contains runs in another order")


@pytest.mark.parametrize(
    "change", [{"pulls": [500, 0, False]}, {"regret": [1, 2]}, {"another": 1}], ids=str
)
def test_a_record_without_a_cell_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = begun(tmp_path / "state")
    write(path, *records(path), _json({**cells_of(SMALL)[0].to_json(), **change}))
    refused(path, "contains invalid data .* in run 1")


@pytest.mark.parametrize("header", [b"{", b"7", b"[" * 100_000])
def test_an_invalid_header_is_refused(tmp_path: Path, header: bytes) -> None:
    write(tmp_path / "state", header, _json(cells_of(SMALL)[0].to_json()))
    refused(tmp_path / "state", "contains invalid data")


def test_nan_and_infinity_are_never_written_as_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        _json({"mean_bits_per_user": float("nan")})
