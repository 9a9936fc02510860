r"""Tests of ``dpcore budget``: totals, curves, calibration, running sums, matrices."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import verify
from accounting.calibration.calibrate_continual_sums import MECHANISMS, compare_sums
from accounting.certificates.certify import Certificate
from accounting.cli import answers, composition_options
from dpcore.local import FAMILIES
from dpcore.parse_noise import noise_from_json, read_noise
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import normal_delta, real
from tests.support.dpcore.refusals import refusal
from tests.support.run_command import Command

GAUSSIAN = ["--noise", "discrete-gaussian:sigma_squared=400"]
LAPLACE = ["--noise", "discrete-laplace:scale=20"]


def test_text_and_json_agree(command: Command) -> None:
    lines = command("epsilon", *LAPLACE, "--rounds", 1000, "--delta", 0).out.splitlines()
    assert lines[0] == "epsilon      exactly 50 at delta = 0"
    assert lines[1] == "rounds       1000 x discrete-laplace:scale=20 --sensitivity 1"
    assert command("delta", *LAPLACE, "--epsilon", 1).out.startswith("delta        exactly 0 ")
    method = "\nmethod       direct (sums over the outputs of one release): "
    assert method in command("epsilon", *LAPLACE, "--delta", "1e-6").out
    for rounds, engine in ((1, "direct"), (2, "contour")):
        found = command("epsilon", *LAPLACE, "--rounds", rounds, "--delta", "1e-6", "--json").json
        assert found["method"] == engine


@pytest.mark.parametrize(
    ("noise", "delta", "reason"),
    [
        ("binomial:trials=20,probability=1/2", "1e-9", "have a probability above delta"),
        ("discrete-gaussian:sigma_squared=4", "0", "use a delta above 0"),
        ("discrete-laplace:scale=2", "0", ""),
    ],
)
def test_an_infinite_epsilon_is_explained_with_advice(
    command: Command, noise: str, delta: str, reason: str
) -> None:
    out = command("epsilon", "--noise", noise, "--delta", delta).out
    assert out.startswith("epsilon      infinite") is bool(reason)
    assert ("\nwhy          " in out) is bool(reason)
    assert reason in out


def test_epsilon_and_delta_at_extreme_points(command: Command) -> None:
    def epsilon(delta: object) -> Any:
        return command("epsilon", *GAUSSIAN, "--delta", delta, "--json").json

    assert epsilon(0)["epsilon"] == {"lower": "inf", "upper": "inf"}
    assert epsilon(1)["epsilon"] == {"lower": 0.0, "upper": 0.0}
    assert epsilon("1/3")["delta"] == "1/3"
    nothing = command("delta", *GAUSSIAN, "--epsilon", 0, "--json").json
    assert (nothing["epsilon"], nothing["delta"]["lower"]) == (0, pytest.approx(0.01994, rel=1e-3))
    small, smaller = epsilon("1e-300"), epsilon("1e-400")
    assert (small["delta"], smaller["delta"]) == (1e-300, "1e-400")
    assert small["epsilon"]["lower"] < small["epsilon"]["upper"] * (1 + 1e-12)
    assert smaller["epsilon"]["lower"] > small["epsilon"]["upper"]
    found = command("delta", *GAUSSIAN, "--epsilon", 3, "--json").json["delta"]
    assert found["upper"] > 0


@given(value=st.fractions(0, 1))
def test_numbers_in_json_read_back_exactly(value: Fraction) -> None:
    found = json.loads(json.dumps(answers.exact(value)))
    assert Fraction(found if isinstance(found, str) else repr(found)) == value


def test_options_of_several_parts_are_read_in_order(command: Command) -> None:
    both = command(
        "epsilon", *GAUSSIAN, "--rounds", 3, *LAPLACE, "--rounds", 5, "--sensitivity", 2,
        "--sensitivity", 1, "--delta", "1e-6", "--json",
    ).json  # fmt: skip
    assert both["rounds"] == 8
    listed = [
        (each["part"]["noise"]["law"], each["part"]["sensitivity"]["amount"], each["rounds"])
        for each in both["parts"]
    ]
    assert listed == [("discrete-gaussian", 2, 3), ("discrete-laplace", 1, 5)]
    shared = command("epsilon", *GAUSSIAN, *LAPLACE, "--rounds", 5, "--delta", "1e-6", "--json")
    assert shared.json["rounds"] == 10


def test_sampling_options_are_read(command: Command) -> None:
    words = ["--noise", "discrete-gaussian:sigma_squared=4", "--delta", "1e-6", "--json"]
    whole = command("epsilon", *words).json["epsilon"]
    always = command("epsilon", *words, "--poisson", "100%").json
    assert always["epsilon"] == whole
    assert always["parts"][0]["part"]["scope"]["relation"] == "add-remove"
    rare = command("epsilon", *words, "--poisson", "1%").json
    assert rare["epsilon"]["upper"] < 0.05 < whole["lower"]
    assert rare["parts"][0]["part"]["rate"] == "1/100"


@by_day(1)
@pytest.mark.parametrize("name", FAMILIES)
def test_local_reports_alone_and_shuffled(command: Command, name: str) -> None:
    report = [f"--noise={name}:epsilon=2,values=5", "--delta", "1e-6"]
    alone = command("epsilon", *report, "--json").json["epsilon"]
    assert 1.99 < alone["lower"] <= alone["upper"] <= 2
    # The line of the rounds can be given as options again.
    shown = next(at for at in command("epsilon", *report).out.splitlines() if at[:6] == "rounds")
    again = command("epsilon", "--noise", shown.split("x ", 1)[1], "--delta", "1e-6", "--json")
    assert again.json["epsilon"] == alone
    shuffled = command("epsilon", *report, "--scheme", "shuffled:users=2e4", "--json").json
    assert 0.01 < shuffled["epsilon"]["lower"] <= shuffled["epsilon"]["upper"] < 0.08
    assert shuffled["parts"][0]["part"]["users"] == 20_000
    assert "20000 users follow the protocol" in shuffled["assumptions"][0]
    one = composition_options.Releases(noise=[report[0][8:]], scheme=["shuffled:users=1"])
    assert "1 user follows the protocol" in one.composed().assumptions[0]


def test_a_curve_falls(command: Command, tmp_path: Path) -> None:
    words = [*GAUSSIAN, "--rounds", 10, "--points", 4, "--least-delta", "1e-9"]
    found = command("curve", *words, "--json").json["curve"]
    deltas, epsilons = ([row[key] for row in found] for key in ("delta", "epsilon"))
    assert deltas[0] == 0.5
    assert deltas[-1] == 1e-9
    assert deltas == sorted(deltas, reverse=True)
    assert [e["upper"] for e in epsilons] == sorted(e["upper"] for e in epsilons)
    alone = command("epsilon", *GAUSSIAN, "--rounds", 10, "--delta", "1e-9", "--json").json
    assert epsilons[-1]["upper"] == pytest.approx(alone["epsilon"]["upper"], rel=1e-6)
    answer = command("curve", *words, "--plot", tmp_path / "curve.svg")
    assert (answer.code, answer.out.splitlines()[0].split()) == (0, ["delta", "epsilon"])
    assert (tmp_path / "curve.svg").stat().st_size > 1000
    # Deltas below floats are printed, and cannot be plotted.
    words = [*GAUSSIAN, "--points", 3, "--least-delta", "1e-400"]
    found = command("curve", *words, "--json").json["curve"]
    assert [row["delta"] for row in found] == [0.5, 7.071e-201, "1e-400"]
    answer = command("curve", *words, "--plot", "x.svg")
    assert answer.code == 2
    assert "--least-delta" in answer.err


def test_calibrated_noise_meets_the_target_and_one_step_less_does_not(command: Command) -> None:
    words = ["--rounds", 50, "--epsilon", 2, "--delta", "1e-6"]
    answer = command("calibrate", "--noise", "discrete-gaussian", *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert {"epsilon", "delta", "rounds", "method"} <= set(found)
    assert (found["delta"], found["rounds"], found["least"]) == (1e-6, 50, True)
    assert 1.99 < found["epsilon"]["lower"] <= found["epsilon"]["upper"] <= 2
    # The printed noise meets the target, and noise one step smaller does not; both are recomputed.
    for noise, keeps in ((found["noise"], True), (found["one_step_less"]["noise"], False)):
        spelled = f"discrete-gaussian:sigma_squared={noise['sigma_squared']}"
        again = command("delta", "--noise", spelled, "--rounds", 50, "--epsilon", 2, "--json").json
        assert (again["delta"]["upper"] <= 1e-6) is keeps
    assert " fails: " in command("calibrate", "--noise", "discrete-gaussian", *words).out
    pure = ["calibrate", "--noise", "discrete-laplace", "--epsilon", 2, "--rounds", 50, "--json"]
    found = command(*pure).json
    assert noise_from_json(found["noise"]) == read_noise("discrete-laplace:scale=25")
    assert (found["delta"], found["epsilon"]) == (0.0, {"lower": 2.0, "upper": 2.0})
    less = command(*pure, "--honest", "90%").json
    assert less["honest_fraction"] == "9/10"
    assert Fraction(less["noise"]["scale"]) > 25


def test_the_cost_of_returning_users_is_listed_by_theorem(command: Command) -> None:
    words = ["returning", "--noise", "discrete-gaussian:sigma_squared=400", "--delta", "1e-6"]
    lines = command(*words, "--visits", "1,2,4,…,16").out.splitlines()
    assert lines[2].split()[:3] == ["visits", "exact", "renyi"]
    rows = [line.split() for line in lines[3:8]]
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16]
    for row in rows:
        assert row[1].endswith("*")
        assert sum(cell.endswith("*") for cell in row) == 1
    assert any(line.startswith("paper: ") for line in lines)
    found = command(*words, "--visits", "1,16", "--json").json
    assert [row["visits"] for row in found["returning"]] == [1, 16]
    assert [row["tightest"] for row in found["returning"]] == ["exact", "exact"]


def test_lists_and_ranges_of_counts_are_parsed() -> None:
    for text, wanted in (
        ("3, 1, 3", [3, 1, 3]),
        ("1,2,4,...,16", [1, 2, 4, 8, 16]),
        ("10,20,30,…,50", [10, 20, 30, 40, 50]),
        ("1,2,3,...,5,9", [1, 2, 3, 4, 5, 9]),
    ):
        assert composition_options.counts("--visits", text) == wanted
    ranges = ("1,2,...,8", "1,2,4,...,9", "1,2,4,...", "1,2,4,...,...,8", "1,2,5,...,9")
    for text in (*ranges, "4,2,1,...,8", "1,2,3,...,1e12", "", "1,,2", "0", "x", "1.5"):
        assert "--visits" in refusal(partial(composition_options.counts, "--visits", text))


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_calibrated_noise_of_each_running_sum_is_printed(command: Command, delta: str) -> None:
    answer = command("continual", "--horizon", 32, "--epsilon", 1, "--delta", delta, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert found["target"] == {"horizon": 32, "epsilon": 1.0, "delta": float(delta)}
    assert [row["mechanism"] for row in found["continual"]] == [*MECHANISMS]
    least = [each.setting.noise for each in compare_sums(horizon=32, epsilon=1, delta=delta)]
    assert [noise_from_json(row["noise"]) for row in found["continual"]] == least


def test_the_table_of_running_sums_is_correct(command: Command) -> None:
    lines = command("continual", "--horizon", "1e3", "--epsilon", 1).out.splitlines()
    assert lines[1].split()[:3] == ["tree", "discrete-laplace:scale=10", "1"]
    # Ten levels at scale 10; 512 items precede the last power of two.
    variance = 1 / (2 * math.sinh(1 / 20) ** 2)
    assert float(lines[1].split()[5]) == pytest.approx(math.sqrt(9 * variance), rel=1e-3)
    assert lines[2].split()[-1] == "488"
    # Errors beyond floats are infinite.
    asked = ("continual", "--horizon", 4, "--epsilon", "1e-400")
    assert command(*asked).out.splitlines()[1].split()[-2] == "infinity"
    found = command(*asked, "--json").json["continual"][0]
    assert found["mean_squared_error"]["upper"] == "inf"


def test_the_cost_of_correlated_noise_is_that_of_one_gaussian(
    command: Command, tmp_path: Path
) -> None:
    r"""Rows (1, 0), (1/2, 1), both rounds: C u = (1, 3/2), as l2-squared = 13/4 of one release."""
    file = tmp_path / "strategy.json"
    file.write_text("[[1, 0], [0.5, 1]]")
    words = ["--strategy", f"file:{file}", "--rounds", 2, "--participations", 2]
    words += ["--noise", "gaussian:sigma=10", "--delta", "1e-6"]
    found = command("matrix", *words, "--json").json
    one = ["--noise", "gaussian:sigma=20", "--sensitivity", "l2-squared=13", "--delta", "1e-6"]
    truth = command("epsilon", *one, "--json").json
    assert found["epsilon"]["upper"] == pytest.approx(truth["epsilon"]["upper"], rel=1e-6)
    assert (found["exact"], found["l2_sensitivity"]["upper"]) == (True, pytest.approx(3.25**0.5))
    assert "is in at most 2 rounds, 1 or more apart" in command("matrix", *words).out
    for rows in ("{}", '[["1", NaN], [1, 1]]', "[[1, 1], [0, 1]]"):
        file.write_text(rows)
        answer = command("matrix", *words)
        assert (answer.code, "--strategy" in answer.err) == (2, True)


def test_a_certificate_of_the_answer(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    words = ["--rounds", 20, "--noise", "gaussian:sigma=4", "--delta", "1e-6"]
    many = ["--strategy", "tree", "--participations", 2, "--apart", 6]
    found = command("matrix", *many, *words, "--certificate", file, "--json").json
    assert verify(file.read_text(encoding="utf-8")).holds
    (claim, *_) = Certificate.from_text(file.read_text(encoding="utf-8")).claims
    assert float(claim["lower"]) <= found["epsilon"]["upper"] <= float(claim["upper"])
    grid = ["--strategy", "square-root:grid=64", *words, "--certificate", tmp_path / "none.json"]
    refused = command("matrix", *grid)
    assert (refused.code, "verify supports only the strategies tree" in refused.err) == (2, True)
    nowhere = command("matrix", *many, *words, "--certificate", tmp_path / "none" / "c.json")
    assert (nowhere.code, "--certificate" in nowhere.err) == (2, True)


def test_the_least_sigma_of_correlated_noise(command: Command) -> None:
    r"""Compare with the closed form of a Gaussian of the sensitivity of the tree of four rounds."""
    words = ["--strategy", "tree", "--rounds", 4, "--delta", "1e-6"]
    found = command("matrix", *words, "--epsilon", 3, "--json").json
    kept = Fraction(found["sigma"]["value"])
    less = Fraction(found["sigma"]["one_step_less"]["value"])
    assert 0 < 1 - less / kept <= Fraction(1, 10**4)

    # A leaf and the two nodes above it.
    assert normal_delta(real(3 / kept**2), 3) <= 1e-6 < normal_delta(real(3 / less**2), 3)
