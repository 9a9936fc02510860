r"""``dpcore budget calibrate`` and ``returning`` as a user types them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from accounting.cli import composition_options as arguments
from dpcore import InvalidParameter
from dpcore.noise_text import noise_from_json, read_noise
from tests.support.typed import Command


def test_calibrate(command: Command) -> None:
    words = ["--rounds", 50, "--epsilon", 2, "--delta", "1e-6"]
    answer = command(
        "calibrate", "--noise", "discrete-gaussian", "--sensitivity", 1, *words, "--json"
    )
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert {"epsilon", "delta", "rounds", "method"} <= set(found)
    assert (found["delta"], found["rounds"], found["least"]) == (1e-6, 50, True)
    assert 1.99 < found["epsilon"]["lower"] <= found["epsilon"]["upper"] <= 2
    # What is printed keeps the promise, and one step less does not, asked again.
    for noise, keeps in ((found["noise"], True), (found["one_step_less"]["noise"], False)):
        spelled = f"discrete-gaussian:sigma_squared={noise['sigma_squared']}"
        again = command("delta", "--noise", spelled, "--rounds", 50, "--epsilon", 2, "--json").json
        assert (again["delta"]["upper"] <= 1e-6) is keeps
    text = command("calibrate", "--noise", "discrete-gaussian", *words).out
    assert " fails: " in text


def test_calibrate_pure_and_honest(command: Command) -> None:
    words = ["--noise", "discrete-laplace", "--epsilon", 2, "--rounds", 50]
    found = command("calibrate", *words, "--json").json
    assert noise_from_json(found["noise"]) == read_noise("discrete-laplace:scale=25")
    assert (found["delta"], found["epsilon"]) == (0.0, {"lower": 2.0, "upper": 2.0})
    less = command("calibrate", *words, "--honest", "90%", "--json").json
    assert less["honest_fraction"] == "9/10"
    assert Fraction(less["noise"]["scale"]) > 25


def test_returning(command: Command) -> None:
    words = ["returning", "--noise", "discrete-gaussian:sigma_squared=400", "--delta", "1e-6"]
    lines = command(*words, "--visits", "1,2,4,…,1024").out.splitlines()
    assert lines[2].split()[:3] == ["visits", "exact", "renyi"]
    rows = [line.split() for line in lines[3:14]]
    assert [int(row[0]) for row in rows] == [1 << power for power in range(11)]
    for row in rows:
        assert row[1].endswith("*")
        assert sum(cell.endswith("*") for cell in row) == 1
    assert any(line.startswith("paper: ") for line in lines)
    found = command(*words, "--visits", "1,16", "--json").json
    assert [row["visits"] for row in found["returning"]] == [1, 16]
    assert [row["tightest"] for row in found["returning"]] == ["exact", "exact"]
    methods = [route["method"] for route in found["returning"][0]["routes"]]
    assert methods == ["exact", "renyi", "paper", "zcdp", "optimal", "advanced", "basic"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", [1]),
        ("3, 1, 3", [3, 1, 3]),
        ("1,2,4,...,16", [1, 2, 4, 8, 16]),
        ("10,20,30,…,50", [10, 20, 30, 40, 50]),
        ("1,2,3,...,5,9", [1, 2, 3, 4, 5, 9]),
    ],
)
def test_counts(text: str, wanted: list[int]) -> None:
    assert arguments.counts("--visits", text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "1,,2", "0", "1,2,...,8", "1,2,4,...,9", "1,2,4,...", "1,2,4,...,...,8", "1,2,5,...,9",
     "4,2,1,...,8", "1,2,3,...,1e12", "x", "1.5"],
)  # fmt: skip
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(InvalidParameter, match="--visits"):
        arguments.counts("--visits", text)
