"""The tidy table and two documents side by side: no curve of runs that do not belong."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bandits.experiments import curves as tidy
from bandits.experiments.curves import COLUMNS, lines_of, read_lines, write_csv
from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.playing import run_cells
from bandits.experiments.summary import compare
from dpcore.errors import InvalidParameter
from tests.support.dpcore.mutants import mutated

SMALL = Experiment(
    preset="tkms/binary",
    algorithms=("cdp-se", "se"),
    epsilons=(1,),
    horizon=500,
    instances=3,
    arms=3,
    checkpoints=(100, 500),
)
CELLS = run_cells(SMALL, SMALL.worlds())


def written(path: Path, experiment: Experiment = SMALL, cells: list[Cell] = CELLS) -> list[str]:
    write_csv(path, experiment, cells)
    return path.read_text().splitlines(keepends=True)


def test_the_table_holds_every_run_at_every_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    written(path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 12
    assert [float(row["regret"]) for row in rows[:2]] == [*CELLS[0].regret]
    assert {row["preset"] for row in rows} == {"tkms/binary"}
    assert [row["t"] for row in rows[:2]] == ["100", "500"]
    assert read_lines(path) == lines_of(SMALL, CELLS)
    first, second = read_lines(path)
    assert (first.algorithm, second.algorithm, first.t) == ("cdp-se", "se", (100, 500))
    means = [sum(cell.regret[-1] for cell in CELLS[:3]) / 1500]
    assert first.mean[1:] == pytest.approx(means)
    assert list(tmp_path.iterdir()) == [path]


def test_every_column_is_what_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    other = replace(
        SMALL, epsilons=("1/2", 2), radius="paper", schedule="released", seed=7, delta="1e-3"
    )
    cells = run_cells(other, other.worlds())
    written(path, other, cells)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert rows == [
        {
            "preset": "tkms/binary",
            "algorithm": cell.algorithm,
            "epsilon": cell.epsilon,
            "delta": "1/1000",
            "radius": "paper",
            "schedule": "released",
            "horizon": "500",
            "seed": "7",
            "instance": str(cell.instance),
            "bits_per_user": str(cell.bits_per_user),
            "t": str(t),
            "regret": repr(regret),
        }
        for cell in cells
        for t, regret in zip((100, 500), cell.regret, strict=True)
    ]
    lines = read_lines(path)
    assert [(line.preset, line.algorithm, line.epsilon) for line in lines] == [
        ("tkms/binary", name, epsilon) for name in ("cdp-se", "se") for epsilon in ("1/2", "2")
    ]
    for line, own in zip(lines, (cells[i : i + 3] for i in (0, 3, 6, 9)), strict=True):
        last = [cell.regret[-1] / 500 for cell in own]
        assert line.mean[-1] == pytest.approx(np.mean(last))
        assert line.error[-1] == pytest.approx(np.std(last, ddof=1) / 3**0.5)


HEAD = ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column preset"),
        ("t,regret\n1,2\n", "no column preset"),
        (HEAD, "holds no runs"),
        (HEAD + "x," * 8 + "0,x,0,1\n", "line 2 holds no round"),
        (HEAD + "x," * 8 + "0,x,5,nan\n", "line 2 holds no round"),
        (HEAD + "x," * 8 + "y,x,5,1\n", "line 2 holds no round"),
        (HEAD + "x\n", "line 2 holds no round"),
        (HEAD + '"x\n', "is no CSV text"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "regret.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter, match=words):
        read_lines(path)


def test_a_table_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    text = "".join(written(path))
    # In the last number a cut leaves another number; after a line a run misses its end.
    for cut, words in ((len(text) - 1, "its last line has no end"), (-5, "last line has no end")):
        path.write_text(text[:cut])
        with pytest.raises(InvalidParameter, match=words):
            read_lines(path)
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with pytest.raises(InvalidParameter, match="was cut: se at epsilon 1 misses rounds"):
        read_lines(path)
    # All runs alike, but none to the horizon.
    ends = [line for line in text.splitlines(keepends=True) if line.split(",")[-2] != "500"]
    path.write_text("".join(ends))
    with pytest.raises(InvalidParameter, match="was cut: cdp-se at epsilon 1"):
        read_lines(path)


def test_runs_of_two_settings_are_no_instances_of_one(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    lines = written(path)
    for name, old, new in (
        ("seed", ",500,1,", ",500,2,"),
        ("radius", ",exact,", ",paper,"),
        ("delta", "1/1000000", "1/1000"),
    ):
        others = [line.replace(old, new, 1) for line in lines[1:]]
        assert others != lines[1:], name
        path.write_text("".join([*lines, *others]))
        with pytest.raises(InvalidParameter, match="line 14 is of another setting than line 2"):
            read_lines(path)
    # Other algorithms, or other epsilons, are curves of their own.
    others = [line.replace("cdp-se", "ldp-se").replace(",se,", ",dp-se,") for line in lines[1:]]
    path.write_text("".join([*lines, *others]))
    assert len(read_lines(path)) == 4


def test_an_instance_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    lines = written(path)
    path.write_text("".join([*lines, *lines[1:]]))
    with pytest.raises(InvalidParameter, match="line 14 has instance 0 at t = 100 a second time"):
        read_lines(path)
    forgets = mutated(tidy.read_lines, "if point.t in run:", "if False:")
    assert len(forgets(path)) == 2


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidParameter, match="is not a plain file"):
        read_lines(tmp_path / "pipe")


SHARED: dict[str, Any] = {"preset": "x", "arms": 2, "horizon": 10, "data": None}


def document(*regret: float, **more: Any) -> dict[str, Any]:
    row = {"algorithm": "se", "epsilon": 1.0, "by_instance": [*regret]}
    return {**SHARED, **more, "rows": [row]}


def test_errors_apart_add_up_as_those_of_independent_means() -> None:
    # Means 0.4 and 0.2, errors 0.2 and 0.1: R = 2.
    (found,) = compare(document(0.2, 0.6), document(0.1, 0.1, 0.4))
    assert not found.paired
    assert found.ratio == pytest.approx(2)
    assert found.error == pytest.approx(math.hypot(0.2, 2 * 0.1) / 0.2)
