r"""``dpcore budget`` as a user types it: the contract, curves, exit codes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.cli import composition_options
from accounting.release.curve import PrivacyCurve
from dpcore.local import FAMILIES
from dpcore.noise_text import read_noise
from tests.support.typed import Command

SKELLAM = ["--noise", "skellam:variance=400", "--sensitivity", "1"]
GAUSSIAN = ["--noise", "discrete-gaussian:sigma_squared=400"]
LAPLACE = ["--noise", "discrete-laplace:scale=20"]


def test_epsilon_of_a_thousand_skellam(command: Command) -> None:
    answer = command("epsilon", *SKELLAM, "--rounds", 1000, "--delta", "1e-6", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert {"epsilon", "delta", "rounds", "method"} <= set(found)
    assert found["delta"] == 1e-6
    assert found["rounds"] == 1000
    assert found["method"] == "contour"
    ends = found["epsilon"]
    assert set(ends) == {"lower", "upper"}
    assert 8.306 < ends["lower"] <= ends["upper"] < ends["lower"] * (1 + 2e-6) < 8.307


def test_epsilon_and_delta_are_inverse(command: Command) -> None:
    there = command("epsilon", *GAUSSIAN, "--rounds", 100, "--delta", "1e-6", "--json").json
    back = command(
        "delta", *GAUSSIAN, "--rounds", "1e2", "--epsilon", there["epsilon"]["upper"], "--json"
    ).json
    assert {"epsilon", "delta", "rounds", "method"} <= set(back)
    assert back["delta"]["lower"] == pytest.approx(1e-6, rel=1e-9)
    assert back["delta"]["upper"] == pytest.approx(1e-6, rel=1e-9)


def test_one_round_is_the_curve_of_the_noise(command: Command) -> None:
    found = command("delta", *LAPLACE, "--epsilon", "1/100", "--json").json["delta"]
    truth = PrivacyCurve(noise=read_noise(LAPLACE[1]), sensitivity=1).enclose_delta("1/100")
    assert Fraction(found["lower"]) <= truth.upper
    assert Fraction(found["upper"]) >= truth.lower
    assert found["upper"] - found["lower"] < 1e-15


def test_text_says_the_same(command: Command) -> None:
    lines = command("epsilon", *LAPLACE, "--rounds", 1000, "--delta", 0).out.splitlines()
    assert lines[0] == "epsilon      exactly 50 at delta = 0"
    assert lines[1] == "rounds       1000 x discrete-laplace:scale=20 --sensitivity 1"
    assert command("delta", *LAPLACE, "--epsilon", 1).out.startswith("delta        exactly 0 ")


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        (["--rounds", 1], "direct (sums over the outputs of one release): "),
        (["--rounds", 2], "contour ("),
    ],
)
def test_the_method_is_explained_in_text_and_one_word_in_json(
    command: Command, words: list[object], engine: str
) -> None:
    asked = ("epsilon", *LAPLACE, *words, "--delta", "1e-6")
    method = next(line for line in command(*asked).out.splitlines() if line.startswith("method"))
    assert method.split(maxsplit=1)[1].startswith(engine)
    assert command(*asked, "--json").json["method"] == engine.partition(" ")[0]


@pytest.mark.parametrize(
    ("noise", "delta", "reason"),
    [
        ("binomial:trials=20,probability=1/2", "1e-9", "have a probability above delta"),
        ("discrete-gaussian:sigma_squared=4", "0", "use a delta above 0"),
        ("discrete-laplace:scale=2", "0", ""),
    ],
)
def test_an_infinite_epsilon_says_why_and_what_to_do(
    command: Command, noise: str, delta: str, reason: str
) -> None:
    out = command("epsilon", "--noise", noise, "--delta", delta).out
    assert out.startswith("epsilon      infinite") is bool(reason)
    assert ("\nwhy          " in out) is bool(reason)
    assert reason in out


def test_unusual_points(command: Command) -> None:
    infinite = command("epsilon", *GAUSSIAN, "--delta", 0, "--json").json["epsilon"]
    assert infinite == {"lower": "inf", "upper": "inf"}
    assert command("epsilon", *GAUSSIAN, "--delta", 0).out.startswith("epsilon      infinite")
    one = command("epsilon", *GAUSSIAN, "--delta", 1, "--json").json["epsilon"]
    assert one == {"lower": 0.0, "upper": 0.0}
    nothing = command("delta", *GAUSSIAN, "--epsilon", 0, "--json").json
    assert (nothing["epsilon"], nothing["delta"]["lower"]) == (
        0.0,
        pytest.approx(0.01994, rel=1e-3),
    )
    million = command("epsilon", *GAUSSIAN, "--rounds", "1e6", "--delta", "1e-6", "--json").json
    assert million["rounds"] == 10**6
    assert 1400 < million["epsilon"]["lower"] <= million["epsilon"]["upper"] < 1600


def test_a_tiny_delta_is_not_zero(command: Command) -> None:
    small = command("epsilon", *GAUSSIAN, "--delta", "1e-300", "--json").json
    assert small["delta"] == 1e-300
    assert small["epsilon"]["lower"] < small["epsilon"]["upper"] * (1 + 1e-12)
    smaller = command("epsilon", *GAUSSIAN, "--delta", "1e-400", "--json").json
    assert smaller["delta"] == "1e-400"
    assert smaller["epsilon"]["lower"] > small["epsilon"]["upper"]
    assert command("epsilon", *GAUSSIAN, "--delta", "1/3", "--json").json["delta"] == "1/3"
    found = command("delta", *GAUSSIAN, "--epsilon", 3, "--json").json["delta"]
    assert found["upper"] > 0


@given(value=st.fractions(0, 1))
def test_numbers_in_json_read_back_exactly(value: Fraction) -> None:
    found = json.loads(json.dumps(composition_options.exact(value)))
    assert Fraction(found if isinstance(found, str) else repr(found)) == value


def test_groups_are_read_in_order(command: Command) -> None:
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
    shared = command(
        "epsilon", *GAUSSIAN, *LAPLACE, "--rounds", 5, "--delta", "1e-6", "--json"
    ).json
    assert shared["rounds"] == 10


def test_sampling(command: Command) -> None:
    words = ["--noise", "discrete-gaussian:sigma_squared=4", "--delta", "1e-6", "--json"]
    whole = command("epsilon", *words).json["epsilon"]
    always = command("epsilon", *words, "--poisson", "100%").json
    assert always["epsilon"] == whole
    assert always["parts"][0]["part"]["scope"]["relation"] == "add-remove"
    rare = command("epsilon", *words, "--poisson", "1%").json
    assert rare["epsilon"]["upper"] < 0.05 < whole["lower"]
    assert rare["parts"][0]["part"]["rate"] == "1/100"


@pytest.mark.parametrize("name", FAMILIES)
def test_local_reports_alone_and_shuffled(command: Command, name: str) -> None:
    report = [f"--noise={name}:epsilon=2,values=5", "--delta", "1e-6"]
    alone = command("epsilon", *report, "--json").json["epsilon"]
    assert 1.99 < alone["lower"] <= alone["upper"] <= 2
    shuffled = command("epsilon", *report, "--scheme", "shuffled:users=2e4", "--json").json
    assert 0.01 < shuffled["epsilon"]["lower"] <= shuffled["epsilon"]["upper"] < 0.08
    assert shuffled["parts"][0]["part"]["users"] == 20_000
    assert "follow the protocol" in shuffled["assumptions"][0]
    refused = command("epsilon", *GAUSSIAN, "--scheme", "shuffled:users=2e4", "--delta", "1e-6")
    assert refused.code == 2
    assert "applies to local reports only" in refused.err


def test_a_curve_falls(command: Command, tmp_path: Path) -> None:
    words = [*GAUSSIAN, "--rounds", 10, "--points", 6, "--least-delta", "1e-9"]
    found = command("curve", *words, "--json").json["curve"]
    deltas, epsilons = ([row[key] for row in found] for key in ("delta", "epsilon"))
    assert deltas[0] == 0.5
    assert deltas[-1] == 1e-9
    assert deltas == sorted(deltas, reverse=True)
    assert [e["upper"] for e in epsilons] == sorted(e["upper"] for e in epsilons)
    alone = command("epsilon", *GAUSSIAN, "--rounds", 10, "--delta", "1e-9", "--json").json
    assert epsilons[-1]["upper"] == pytest.approx(alone["epsilon"]["upper"], rel=1e-6)
    assert command("curve", *words).out.splitlines()[0].split() == ["delta", "epsilon"]
    answer = command("curve", *words, "--plot", tmp_path / "curve.svg")
    assert answer.code == 0
    assert (tmp_path / "curve.svg").stat().st_size > 1000


def test_a_curve_beyond_floats(command: Command) -> None:
    words = [*GAUSSIAN, "--points", 3, "--least-delta", "1e-400"]
    found = command("curve", *words, "--json").json["curve"]
    assert [row["delta"] for row in found] == [0.5, 7.071e-201, "1e-400"]
    answer = command("curve", *words, "--plot", "x.svg")
    assert answer.code == 2
    assert "--least-delta" in answer.err
