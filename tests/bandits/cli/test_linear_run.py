"""``dpcore bandit run lzj/...``: rows, labels, certificates and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bandits.certificates.recheck import recheck
from bandits.experiments.experiment import Experiment
from bandits.experiments.playing import run_cells
from tests.effort import by_day
from tests.support.bandits.command import Bandit

SMALL = ("--arms", "60", "-T", "3000", "--instances", "2")
EVERY = "dpe,cdp-dpe,ldp-dpe,sdp-dpe,dpe-fixedu"


def rows(bandit: Bandit, *words: str) -> dict[str, Any]:
    answer = bandit("run", *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    return {row["algorithm"]: row for row in json.loads(answer.out)["rows"]}


def test_rows_have_epsilon_delta_regret_and_communication(bandit: Bandit) -> None:
    found = rows(bandit, "lzj/fig2", "--algorithms", EVERY, *SMALL)
    assert [*found] == EVERY.split(",")
    for name, row in found.items():
        assert (row["epsilon"], row["delta"]) == (10.0, 0.25)
        assert 0 < row["regret_per_round"] < 1.5
        assert row["standard_error"] > 0
        sent = row["communication"]
        # A client sends 20 to 40 numbers of at least 7 bits.
        assert sent["bits"] >= 7 * sent["numbers"] > 0
        promised = row["guarantee"]
        if name.startswith("dpe"):
            assert promised["text"].startswith("none")
        else:
            assert promised["text"].startswith("(10, 0.25)-DP")
            assert (promised["epsilon_upper"], promised["delta_upper"]) == (10.0, 0.25)
    assert found["sdp-dpe"]["communication"]["bits"] > found["cdp-dpe"]["communication"]["bits"]
    assert bandit("run", "lzj/fig2", "--algorithms", "dpe", *SMALL, "--json").out == bandit(
        "run", "lzj/fig2", "--algorithms", "dpe", *SMALL, "--json"
    ).out  # fmt: skip


@by_day(1)
@pytest.mark.parametrize("name", ["cdp-dpe", "ldp-dpe"])
def test_the_papers_calibration_is_labelled_with_the_true_delta(bandit: Bandit, name: str) -> None:
    words = ("lzj/fig2", "--algorithms", name, "--calibration", "paper", "--radius", "paper")
    promised = rows(bandit, *words, *SMALL)[name]["guarantee"]
    # Errata 3: 0.788621, of real Gaussian noise.
    assert 0.7886 < promised["delta_upper"] < 0.7892
    assert "at epsilon 10 the true delta is 0.788" in promised["text"]
    assert promised["epsilon_upper"] > 15


def test_a_client_a_round(bandit: Bandit) -> None:
    words = ("--algorithms", "pe,cdp-pe,sdp-pe", "--delta", "1/100")
    found = rows(bandit, "lzj/table2", *words, *SMALL)
    assert found["pe"]["communication"]["numbers"] <= 3000
    assert found["cdp-pe"]["guarantee"]["text"].startswith("(1, 0.01)-DP")


def test_pure_epsilon_is_promised_and_certified(bandit: Bandit) -> None:
    """LZJ, Remark C.9."""
    words = ("lzj/table2", "--algorithms", "pe,cdp-pe,ldp-pe", "--calibration", "pure")
    answer = bandit("run", *words, *SMALL, "--json", "--output", "out")
    assert (answer.code, answer.err) == (0, "")
    found = {row["algorithm"]: row for row in json.loads(answer.out)["rows"]}
    for name in ("cdp-pe", "ldp-pe"):
        promised = found[name]["guarantee"]
        assert promised["text"].startswith("1-DP")
        assert (promised["pure"], promised["delta_upper"]) == ("1", 0.0)
    for path in Path("out").glob("*certificate*.json"):
        assert recheck(path.read_text()).holds


def test_certificates_and_a_figure_are_written(bandit: Bandit) -> None:
    words = ("--algorithms", "dpe,cdp-dpe", "--arms", "60", "-T", "100", "--instances", "1")
    answer = bandit("run", "lzj/fig2", *words, "--output", "out")
    assert answer.code == 0, answer.err
    (certificate,) = Path("out").glob("*certificate*.json")
    document = json.loads(certificate.read_text())
    assert document["algorithm"] == "cdp-dpe"
    assert float(document["claims"][0]["epsilon"]) <= 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--users 88000 -T 1e6", "--users = 88000: are too few: 1000000 rounds of dpe need 88437"),
        ("-T 1e7", "--users = 100000: are too few: 10000000 rounds of dpe need 812649 clients"),
        ("--users 0", "--users = 0: must be >= 1"),
        ("--alpha 1", "--alpha = 1: must lie in (0, 1)"),
        ("--alpha nan", "--alpha = nan"),
        ("--calibration exactly", "--calibration = exactly: must be"),
        (
            "--calibration pure --radius paper --algorithms cdp-dpe",
            "--radius = paper: must be",
        ),
        ("--calibration pure --algorithms sdp-dpe", "--calibration = pure: must be exact or paper"),
        ("--algorithms pe", "--users = 100000: are too few: 1000000 rounds of pe need 1000000"),
        ("--algorithms se", "--algorithms = se: is played in worlds with independent arms"),
        ("--schedule exact", "--schedule = exact: has no effect on dpe"),
        ("--arms 0", "--arms = 0"),
        ("-T 999", "--horizon = 999: must be >= arms = 1000"),
        ("--delta 0", "--delta = 0: must lie in (0, 1)"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(bandit: Bandit, words: str, said: str) -> None:
    chosen = () if "--algorithms" in words else ("--algorithms", "dpe")
    answer = bandit("run", "lzj/fig2", *chosen, *words.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {said}"), answer.err


def test_more_users_or_a_smaller_alpha_will_do() -> None:
    """At ten million rounds: 812,649 clients at alpha = 0.8, and few at 0.5."""
    for more in ({"users": 812_649}, {"alpha": "1/2"}):
        experiment = Experiment(
            preset="lzj/fig2", algorithms=("cdp-dpe",), epsilons=(10,), delta="1/4",
            horizon=10**7, instances=1, **more,
        )  # fmt: skip
        assert experiment.guarantee("cdp-dpe", 10, 1000) is not None


@pytest.mark.nightly
def test_the_order_of_the_figure_with_true_guarantees() -> None:
    """An independent simulation: DPE < CDP < 3 DPE, SDP < 1.5 CDP, LDP > 50 CDP, uniform 0.65."""
    experiment = Experiment(
        preset="lzj/fig2",
        algorithms=("dpe", "cdp-dpe", "sdp-dpe", "ldp-dpe"),
        epsilons=("10",),
        delta="1/4",
        horizon=10**6,
        instances=10,
    )
    mean: dict[str, float] = {}
    for cell in run_cells(experiment, experiment.worlds()):
        mean[cell.algorithm] = mean.get(cell.algorithm, 0.0) + cell.regret[-1] / 10**7
        assert cell.batches >= 5
    assert mean["dpe"] < mean["cdp-dpe"] < 3 * mean["dpe"]
    assert mean["sdp-dpe"] < 1.5 * mean["cdp-dpe"]
    assert 50 * mean["cdp-dpe"] < mean["ldp-dpe"] < 0.65
