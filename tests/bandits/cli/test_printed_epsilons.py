"""An epsilon that is printed is no smaller than the one that was asked for."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

from bandits.cli import render
from bandits.experiments import curves
from bandits.experiments.curves import Line
from bandits.experiments.experiment import Experiment, float_up
from dpcore.errors import InvalidParameter
from tests.support.bandits.command import Bandit
from tests.support.dpcore.mutants import rewired

RUN = ["run", "cz/easy", "-T", "500", "--instances", "1", "--arms", "3", "--algorithms", "cdp-se"]
EXACT = ["1/3", "2/3", "0.3", "0.50000000000000000001", "1e-6", "1000", "0.1234567890125", "1e-5"]


def experiment(*epsilons: str) -> Experiment:
    return Experiment(
        preset="cz/easy", algorithms=("se",), epsilons=epsilons, horizon=100, instances=1
    )


@pytest.mark.parametrize("text", EXACT)
def test_a_float_stands_for_no_less_and_hardly_more(text: str) -> None:
    exact = Fraction(text)
    found = float_up(exact)
    assert Fraction(repr(found)) >= exact
    assert Fraction(repr(math.nextafter(found, 0))) < exact
    assert Fraction(render._epsilon(found)) >= exact
    assert Fraction(curves._decimal(text)) >= exact


def test_short_epsilons_are_printed_as_they_are_written() -> None:
    for text in ("0.1", "0.3", "0.5", "1", "10", "1000"):
        assert float_up(Fraction(text)) == float(text)
        assert render._epsilon(float(text)) == curves._decimal(text) == text


def test_epsilons_below_are_caught() -> None:
    nearest = rewired(render._epsilon, up=lambda value, digits: f"{float(value):.{digits}g}")
    assert Fraction(nearest(float_up(Fraction(1, 3)))) < Fraction(1, 3)
    assert Fraction(repr(float(Fraction(1, 3)))) < Fraction(1, 3)


def test_a_run_prints_them_upwards_wherever_it_does(bandit: Bandit) -> None:
    words = ["--epsilon", "1/3", "--output", "out"]
    answer = bandit(*RUN, *words)
    assert answer.code == 0
    assert answer.out.splitlines()[3].split()[:2] == ["cdp-se", "0.333333333334"]
    (row,) = json.loads(Path("out/rows.json").read_text())["rows"]
    assert row["epsilon"] == 0.33333333333333337
    assert b"cz/easy, epsilon = 0.333333333334<" in Path("out/regret.svg").read_bytes()
    table = bandit("compare", "out", "out").out
    assert table.splitlines()[1].split()[:2] == ["cdp-se", "0.333333333334"]


def test_two_epsilons_of_one_float_are_refused(bandit: Bandit) -> None:
    both = ("0.50000000000000000001", "0.50000000000000000002")
    with pytest.raises(InvalidParameter, match="names one twice: two of them are printed as"):
        experiment(*both)
    answer = bandit(*RUN, "--epsilon", both[0], "--epsilon", both[1])
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: --epsilon = ")
    assert "names one twice" in answer.err


def test_compare_takes_every_document_that_run_writes(bandit: Bandit) -> None:
    answer = bandit(*RUN, "--epsilon", "0.5", "--epsilon", "0.50000000000000000001", "--json")
    assert [row["epsilon"] for row in answer.json["rows"]] == [0.5, 0.5000000000000001]
    Path("a.json").write_text(answer.out)
    found = bandit("compare", "a.json", "a.json", "--json").json
    assert [row["ratio"] for row in found["rows"]] == [1.0, 1.0]
    assert found["unmatched"] == []


def test_a_table_without_epsilons_has_no_picture(tmp_path: Path) -> None:
    lines = [
        Line(preset="x", algorithm="se", epsilon=text, t=(1,), mean=(0.5,), error=(0,))
        for text in ("1/0", "some")
    ]
    for line in lines:
        with pytest.raises(InvalidParameter, match="is no epsilon"):
            curves.draw_results([line], tmp_path / "regret.svg")
