"""Tests of a results folder and its regret table: ownership, file names and columns."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import ApproxBound, PureBound
from bandits.certificates import certify_run
from bandits.experiments import results, summary
from bandits.experiments import results as tidy
from bandits.experiments.experiment import Experiment
from bandits.experiments.results import (
    COLUMNS,
    PlotLine,
    bounds_of,
    draw_results,
    read_lines,
    write_csv,
)
from bandits.experiments.runner import play_task
from bandits.experiments.summary import guarantee_json, written_up
from bandits.privatizers.run_guarantee import RunGuarantee
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.bandits.command import MAIN, Bandit
from tests.support.bandits.experiments import SMALL, cells_of
from tests.support.dpcore.mutants import mutated, rewired

RUN = ["run", "cz/easy", "-T", "3000", "--instances", "2", "--arms", "4"]
PARTLY = ["rows.json", "regret.csv", "regret.svg"]


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


EXACT = ["1/3", "0.10000004", "1e-400", "1.23456499e-6", "12345649/100000000", "1/7000000000001"]


def sentence(part: Guarantee, delta: str) -> str:
    text = guarantee_json(RunGuarantee(parts=(part,), assumptions=()), delta)["text"]
    return str(text).removesuffix("-DP for each user, who is new at every pull")


@pytest.mark.parametrize("text", EXACT)
def test_no_number_in_the_text_of_a_guarantee_is_rounded_down(text: str) -> None:
    exact = Fraction(text)
    assert Fraction(sentence(PureBound(exact), "1e-6")) >= exact
    epsilon, delta = sentence(ApproxBound(exact, exact), text).strip("()").split(", ")
    assert exact <= Fraction(epsilon) <= exact * Fraction(1002, 1000)
    assert exact <= Fraction(delta) <= exact * Fraction(1002, 1000)


def test_short_numbers_are_printed_exactly_and_long_ones_rounded_up() -> None:
    for text in EXACT[:-1]:
        assert Fraction(written_up(Fraction(text))) == Fraction(text)
    long = Fraction(10**20 + 1, 3 * 10**20)
    assert Fraction(written_up(long)) > long
    nearest = rewired(summary.written_up, up=lambda value, digits: f"{float(value):g}")
    assert Fraction(nearest(long)) < long


@pytest.mark.nightly
@pytest.mark.parametrize("closed", ["| true", "> /dev/full"])
def test_results_are_written_even_if_standard_output_is_closed(tmp_path: Path, closed: str) -> None:
    words = [*RUN, "--algorithms", "se", "--epsilon", "1", "--output", "out", "--json"]
    (tmp_path / "start.py").write_text(MAIN)
    shell = f"{sys.executable} start.py bandit {' '.join(words)} {closed}"
    subprocess.run(shell, shell=True, cwd=tmp_path, stderr=subprocess.PIPE, timeout=90, check=False)  # noqa: S602  # the shell's redirections are what is tested
    assert json.loads((tmp_path / "out/rows.json").read_text())["schema"] == "dpcore-bandit/2"
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(PARTLY)


@by_day(2)
@pytest.mark.parametrize(
    ("preset", "algorithm", "more"),
    [
        ("tkms/binary", "dist-dp-se", {"max_visits": 2}),
        ("lzj/clients", "cdp-pe", {"arms": 12}),
        ("csb/topk", "cucb-dp", {}),
    ],
)
def test_the_certificate_of_a_cell_is_that_of_its_run(
    preset: str, algorithm: str, more: dict[str, Any]
) -> None:
    experiment = Experiment(
        preset=preset, algorithms=(algorithm,), epsilons=(1,), horizon=400, instances=2, **more
    )
    worlds, cells = experiment.worlds(), cells_of(experiment)
    assert [bool(cell.released) for cell in cells] == [True, False]
    run = play_task(experiment, worlds.environments[0], cells[0].task)
    ((_, text),) = results.certificates(experiment, worlds, cells)
    assert text == certify_run.certificate_of(run, deltas=[experiment.delta]).text()


def test_a_missing_certificate_names_its_reason(
    bandit: Bandit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise NotDerived("a certificate for cdp-se", "parts: must hold at most 1024")

    monkeypatch.setattr(certify_run, "certify_run", refused)
    answer = bandit(*RUN, "--epsilon", "1", "--algorithms", "cdp-se", "--output", str(tmp_path))
    wanted = "cannot derive a certificate for cdp-se: parts: must hold at most 1024"
    assert f"warning: no certificate-cdp-se-1.json: {wanted}" in answer.err


def line(algorithm: str, epsilon: str, mean: float) -> PlotLine:
    return PlotLine(
        preset="x", algorithm=algorithm, epsilon=epsilon, t=(1, 2), mean=(mean, mean), error=(0, 0)
    )


def test_runs_without_regret_are_omitted_from_the_figure_with_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "regret.svg"
    lines = [line("se", "1", 0.0), line("se", "2", 0.5), line("cdp-se", "2", 0.0)]
    said = draw_results(lines, path)
    assert b"epsilon = 2" in path.read_bytes()
    assert b"epsilon = 1" not in path.read_bytes()
    assert b"cdp-se" not in path.read_bytes()
    assert [words.split(" is omitted")[0] for words in said] == [
        "se at epsilon 1",
        "cdp-se at epsilon 2",
    ]
    with pytest.raises(InvalidParameter, match="contains no positive regret"):
        draw_results(lines[:1], path)


def test_the_curve_of_a_lower_bound_meets_its_number_at_the_horizon() -> None:
    stated = {"lower_bounds": [{"regret_per_round": 0.5, "theorem": "T"}], "epsilons": [1]}
    lines = [PlotLine(preset="x", algorithm="se", epsilon="1", t=(1, 10, 100), mean=(), error=())]
    curve = bounds_of({**stated, "horizon": 100}, lines)["1"]
    # c ln(t)/t with c = 0.5 * 100/ln(100)
    found = [(x, round(y, 9)) for x, y in zip(curve.x, curve.y, strict=True)]
    assert found == [(10, 2.5), (100, 0.5)]


def written(path: Path, experiment: Experiment = SMALL) -> list[str]:
    write_csv(path, experiment, cells_of(experiment))
    return path.read_text().splitlines(keepends=True)


def test_every_column_has_the_named_quantity(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    other = replace(
        SMALL, epsilons=("1/2", 2), radius="paper", schedule="released", seed=7, delta="1e-3"
    )
    cells = cells_of(other)
    written(path, other)
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
        (HEAD, "contains no runs"),
        (HEAD + "x," * 8 + "0,x,5,nan\n", "line 2 does not contain a valid round"),
        (HEAD + "x\n", "line 2 does not contain a valid round"),
        (HEAD + '"x\n', "is not valid CSV"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "regret.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter, match=words):
        read_lines(path)


def test_a_truncated_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    text = "".join(written(path))
    # A file cut within the last number has another number; a file cut after a line lacks the end of
    # a run.
    for cut, words in (
        (len(text) - 1, "its last line has no newline"),
        (-5, "last line has no newline"),
    ):
        path.write_text(text[:cut])
        with pytest.raises(InvalidParameter, match=words):
            read_lines(path)
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with pytest.raises(InvalidParameter, match="is truncated: se at epsilon 1 lacks rounds"):
        read_lines(path)
    # All runs are cut alike, before the horizon.
    ends = [line for line in text.splitlines(keepends=True) if line.split(",")[-2] != "500"]
    path.write_text("".join(ends))
    with pytest.raises(InvalidParameter, match="is truncated: cdp-se at epsilon 1"):
        read_lines(path)


def test_an_instance_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "regret.csv"
    lines = written(path)
    path.write_text("".join([*lines, *lines[1:]]))
    with pytest.raises(InvalidParameter, match="line 14 repeats instance 0 at t = 100"):
        read_lines(path)
    forgets = mutated(tidy.read_lines, "if t in run:", "if False:")
    assert len(forgets(path)) == 2
