r"""``dpcore budget continual`` and ``matrix`` as a user types them."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.special import ndtr

from accounting import guarantee, verify
from accounting.budget.continual import MECHANISMS
from accounting.certificates.certificate import Certificate
from dpcore.noise_text import noise_from_json
from tests.support.typed import Command


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_rows_can_be_run_and_keep_the_target(command: Command, delta: str) -> None:
    answer = command("continual", "--horizon", 64, "--epsilon", 1, "--delta", delta, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert found["target"] == {"horizon": 64, "epsilon": 1.0, "delta": float(delta)}
    assert [row["mechanism"] for row in found["continual"]] == [*MECHANISMS]
    for row in found["continual"]:
        given = {key: row[key] for key in ("grid",) if key in row}
        setting = MECHANISMS[row["mechanism"]](
            horizon=64, noise=noise_from_json(row["noise"]), **given
        )
        assert guarantee(setting).epsilon(delta).upper <= 1
        ends = row["mean_squared_error"]
        times = range(1, 65)
        mean = sum(float(setting.mean_squared_error(t).upper) for t in times) / 64
        assert ends["lower"] <= mean * (1 + 1e-9)
        assert ends["upper"] == pytest.approx(mean, rel=1e-9)


def test_errors_beyond_floats_are_infinite(command: Command) -> None:
    asked = ("continual", "--horizon", 4, "--epsilon", "1e-400")
    assert command(*asked).out.splitlines()[1].split()[-2] == "infinity"
    found = command(*asked, "--json")
    assert (found.code, found.json["continual"][0]["mean_squared_error"]["upper"]) == (0, "inf")


def test_the_table(command: Command) -> None:
    lines = command("continual", "--horizon", "1e3", "--epsilon", 1).out.splitlines()
    assert lines[1].split()[:3] == ["tree", "discrete-laplace:scale=10", "1"]
    # Ten levels at scale 10; 512 items come before the last power of two.
    variance = 1 / (2 * math.sinh(1 / 20) ** 2)
    assert float(lines[1].split()[5]) == pytest.approx(math.sqrt(9 * variance), rel=1e-3)
    assert lines[2].split()[-1] == "488"


def test_the_answer_is_that_of_one_gaussian(command: Command, tmp_path: Path) -> None:
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
    told = command("matrix", *words).out
    assert "is in at most 2 rounds, 1 or more apart" in told
    assert "adaptively" in told


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
    assert (refused.code, "verify supports trees" in refused.err) == (2, True)


@pytest.mark.parametrize("rows", ["{}", '[["1", NaN], [1, 1]]', "[[1, 1], [0, 1]]"])
def test_bad_files_are_named(command: Command, tmp_path: Path, rows: str) -> None:
    file = tmp_path / "strategy.json"
    file.write_text(rows)
    words = ["--strategy", f"file:{file}", "--rounds", 2, "--noise", "gaussian:sigma=4"]
    answer = command("matrix", *words, "--delta", "1e-6")
    assert (answer.code, "--strategy" in answer.err) == (2, True)


def test_the_least_sigma_of_correlated_noise(command: Command) -> None:
    r"""Beside the closed form of a Gaussian of the sensitivity of the tree of four rounds."""
    words = ["--strategy", "tree", "--rounds", 4, "--delta", "1e-6"]
    found = command("matrix", *words, "--epsilon", 3, "--json").json
    moved, kept = math.sqrt(3), Fraction(found["sigma"]["value"])  # a leaf and the nodes above it
    less = Fraction(found["sigma"]["one_step_less"]["value"])
    assert 0 < 1 - less / kept <= Fraction(1, 10**4)

    def delta(sigma: Fraction) -> float:
        mu = moved / float(sigma)
        return float(ndtr(mu / 2 - 3 / mu) - math.exp(3) * ndtr(-mu / 2 - 3 / mu))

    assert delta(kept) <= 1e-6 < delta(less)
    for wrong in ([], ["--epsilon", 3, "--noise", "gaussian:sigma=1"], ["--epsilon", 0]):
        answer = command("matrix", *words, *wrong)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
