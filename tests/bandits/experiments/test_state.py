"""Experiments that go on from a file: the same bytes, whenever and however they were ended."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.playing import _START, SCHEMA, _header, _line, _read, resume, run_cells
from bandits.worlds import Worlds
from bandits.worlds.environment import Bernoulli
from dpcore.command.state_file import open_state
from dpcore.errors import InvalidParameter
from tests.support.dpcore.mutants import mutated

ROOT = Path(__file__).parents[3]


def small(**more: Any) -> Experiment:
    given: dict[str, Any] = {
        "preset": "tkms/binary",
        "algorithms": ("cdp-se", "se"),
        "epsilons": (1,),
        "horizon": 500,
        "instances": 3,
        "arms": 3,
        "checkpoints": (100, 500),
    }
    return Experiment(**{**given, **more})


def kept(path: Path, experiment: Experiment | None = None) -> list[Cell]:
    wanted = experiment or small()
    worlds = wanted.worlds()
    with resume(path, wanted, worlds) as state:
        return run_cells(wanted, worlds, done=tuple(state.cells), store=state.append)


@pytest.fixture(name="whole")
def stored(tmp_path: Path) -> tuple[Path, bytes, list[Cell]]:
    path = tmp_path / "state.jsonl"
    cells = kept(path)
    return path, path.read_bytes(), cells


def test_a_file_holds_the_experiment_and_its_cells(whole: tuple[Path, bytes, list[Cell]]) -> None:
    path, data, cells = whole
    assert cells == run_cells(small(), small().worlds())
    lines = [json.loads(line) for line in data.splitlines()]
    assert lines[0]["schema"] == SCHEMA
    assert lines[0]["horizon"] == 500
    assert [line["instance"] for line in lines[1:]] == [0, 1, 2] * 2
    assert kept(path) == cells
    assert path.read_bytes() == data


def test_a_file_that_was_torn_anywhere_goes_on_to_the_same_bytes(
    whole: tuple[Path, bytes, list[Cell]],
) -> None:
    path, data, cells = whole
    rng = random.Random(3)
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for cut in (0, 1, *ends, *(end - 1 for end in ends), *rng.sample(range(len(data)), 12)):
        path.write_bytes(data[:cut])
        assert kept(path) == cells
        assert path.read_bytes() == data


def test_a_power_cut_that_leaves_zeros_is_a_torn_end(
    whole: tuple[Path, bytes, list[Cell]],
) -> None:
    path, data, cells = whole
    for cut in (0, data.index(b"\n") + 1, len(data) - 40):
        path.write_bytes(data[:cut] + bytes(200))
        assert kept(path) == cells
        assert path.read_bytes() == data


def test_what_is_stored_is_not_played_again(
    whole: tuple[Path, bytes, list[Cell]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> Cell:
        raise AssertionError

    path, _, cells = whole
    monkeypatch.setattr("bandits.experiments.playing.play_task", never)
    assert kept(path) == cells


OTHERS: dict[str, Any] = {
    "algorithms": ("se", "cdp-se"),
    "epsilons": (2,),
    "delta": "1e-7",
    "horizon": 501,
    "instances": 2,
    "radius": "paper",
    "schedule": "released",
    "arms": 4,
    "seed": 2,
    "preset": "cz/easy",
    "checkpoints": (200, 500),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_experiment_is_refused_by_name(
    whole: tuple[Path, bytes, list[Cell]], name: str
) -> None:
    path, data, _ = whole
    change = {name: OTHERS[name], **({"checkpoints": (501,)} if name == "horizon" else {})}
    words = name.rstrip("s") if name != "schedule" else "schedule"
    with pytest.raises(InvalidParameter, match=f"was begun with another .*{words}"):
        kept(path, small(**change))
    assert path.read_bytes() == data


def test_other_data_are_refused(whole: tuple[Path, bytes, list[Cell]]) -> None:
    path, _, _ = whole
    worlds = Worlds(environments=small().worlds().environments, data="0" * 64)
    with (
        pytest.raises(InvalidParameter, match="another data file"),
        resume(path, small(), worlds),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "words"), [("RECIPE", "another recipe of a cell"), ("means", "another set of worlds")]
)
def test_other_coins_and_other_worlds_are_refused(
    whole: tuple[Path, bytes, list[Cell]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    words: str,
) -> None:
    # The version says nothing of either: the code, or scikit-learn, may have changed under it.
    path, data, _ = whole
    worlds = small().worlds().environments
    if name == "RECIPE":
        monkeypatch.setattr("bandits.experiments.playing.RECIPE", "dpcore-bandit-cell/0")
    else:
        worlds = (*worlds[:-1], Bernoulli(means=(0.1, 0.2, 0.3)))
    with (
        pytest.raises(InvalidParameter, match=words),
        resume(path, small(), Worlds(environments=worlds)),
    ):
        pass
    assert path.read_bytes() == data


def test_zeros_that_are_no_torn_header_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    for size, taken in ((200, True), (100_000, False)):
        path.write_bytes(bytes(size))
        if taken:
            assert kept(path)
        else:
            with pytest.raises(InvalidParameter, match="is not the state"):
                kept(path)
            assert path.read_bytes() == bytes(size)


@pytest.mark.nightly
def test_a_full_disk_names_the_state_and_loses_no_cell(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL], cwd=tmp_path, capture_output=True, text=True, timeout=90,
        check=True,
    )  # fmt: skip
    assert ran.stdout == "resume = state: File too large\n"
    assert ran.stderr == ""
    # What was whole is kept, and what is torn is played again, to the same bytes.
    assert kept(tmp_path / "state") == kept(tmp_path / "other")
    assert (tmp_path / "state").read_bytes() == (tmp_path / "other").read_bytes()


FULL = f"""
import resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.bandits.experiments.test_state import kept, Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1700, 1700))
try:
    kept(Path("state"))
except Exception as error:
    print(error)
"""


def test_a_damaged_line_is_refused_by_its_number(
    whole: tuple[Path, bytes, list[Cell]],
) -> None:
    path, data, cells = whole
    lines = data.splitlines(keepends=True)
    broken = lines[2].replace(b'"instance":1', b'"instance":2')
    cases = {
        "damaged in line 3": [*lines[:2], broken, *lines[3:]],
        "damaged in line 2": [lines[0], *lines[2:]],
        "damaged in line 4": [*lines[:3], lines[2], *lines[3:]],
        "damaged in its first line": [b"{}\n", *lines[1:]],
    }
    for words, content in cases.items():
        path.write_bytes(b"".join(content))
        with pytest.raises(InvalidParameter, match=words):
            kept(path)
        assert path.read_bytes() == b"".join(content)
    # The last line may be torn inside, and is played again.
    path.write_bytes(b"".join([*lines[:-1], lines[-1].replace(b'"instance"', b'"instante"')]))
    assert kept(path) == cells
    assert path.read_bytes() == data


def test_a_reader_that_trusts_its_lines_is_caught(
    whole: tuple[Path, bytes, list[Cell]],
) -> None:
    path, data, _ = whole
    path.write_bytes(data.replace(b'"instance":1', b'"instance":2', 1))

    def trusting(line: bytes, chain: str) -> tuple[Any, str]:
        found = json.loads(line)
        return found, found.pop("sha256")

    broken = mutated(_read, "def _read", "def _read", _content=trusting)
    header = json.loads(data.splitlines()[0])
    header.pop("sha256")
    with open_state("resume", path, owner="experiment") as file:
        state = broken(path, file, header)
    assert state.cells[1].instance == 2
    with pytest.raises(InvalidParameter, match="damaged in line 3"):
        kept(path)


def test_a_file_in_use_is_refused(whole: tuple[Path, bytes, list[Cell]]) -> None:
    path, _, _ = whole
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InvalidParameter, match="is in use by another experiment"):
            kept(path)
    with pytest.raises(InvalidParameter, match="No such file"):
        kept(path / "below" / "x" if path.is_dir() else path.parent / "none" / "x")


# -- kill -9 ----------------------------------------------------------------------------------

# Imports once; each child is a process of its own, killed after it has stored something new.
SCRIPT = f"""
import os, random, signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
from bandits.experiments import playing as module
from bandits.experiments.experiment import Experiment
from bandits.experiments.playing import run_cells
from bandits.experiments.playing import resume
played = module.play_task
def slowly(*cell):
    time.sleep(0.01)
    return played(*cell)
module.play_task = slowly
wanted = Experiment(
    preset="tkms/binary", algorithms=("cdp-se", "se"), epsilons=(1,), horizon=500, instances=20,
    arms=3, checkpoints=(100, 500),
)
worlds = wanted.worlds()
rng, sizes = random.Random(5), [0]
while True:
    child = os.fork()
    if not child:
        with resume("state", wanted, worlds) as state:
            run_cells(wanted, worlds, done=tuple(state.cells), store=state.append)
        os._exit(0)
    ended = 0
    while not ended and len(sizes) <= 8:
        if os.path.exists("state") and os.path.getsize("state") > sizes[-1]:
            time.sleep(rng.uniform(0, 0.06))
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.001)
        ended, status = os.waitpid(child, os.WNOHANG)
    status = status if ended else os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        break
    sizes.append(os.path.getsize("state"))
print(*sizes)
"""


def test_kill_9_at_random_moments_changes_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    sizes = [int(word) for word in ran.stdout.split()]
    assert len(sizes) > 4
    # No cell that was stored is ever lost, and each process stored some.
    assert sizes == sorted(set(sizes))
    kept(tmp_path / "whole", small(instances=20))
    assert (tmp_path / "state").read_bytes() == (tmp_path / "whole").read_bytes()


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
