"""Tests of ``dpcore bandit run`` with returning users and dropouts, and on structured worlds."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from accounting.composition.composition_theorems import per_user
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.certificates.recheck import recheck
from bandits.cli.run import read_experiment
from bandits.privatizers.returning_users import RETURNING, steady_for
from tests.day_and_nightly import by_day, effort
from tests.support.bandits.command import Bandit

SMALL = ("--arms", "8", "--super-arm", "3", "-T", "600", "--instances", "2", "--epsilon", "2")
EVERY = "cucb,cucb-ldp1,cucb-ldp2,cucb-dp,cucb-dp2"


def rows(bandit: Bandit, *words: str) -> dict[str, Any]:
    answer = bandit("run", *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    return {row["algorithm"]: row for row in json.loads(answer.out)["rows"]}


@by_day(1)
@pytest.mark.parametrize("release", ["tree", "factorisation"])
def test_rows_have_the_fields_of_other_families(bandit: Bandit, release: str) -> None:
    found = rows(bandit, "csb/topk", *SMALL, "--algorithms", EVERY, "--release", release)
    assert [*found] == EVERY.split(",")
    for name, row in found.items():
        assert (row["epsilon"], row["instances"], row["horizon"]) == (2.0, 2, 600)
        assert 0 < row["regret_per_round"] < 1.2
        assert row["standard_error"] > 0
        numbers = 600 * (1 if name.endswith("2") else 3)
        assert row["communication"]["numbers"] == numbers
        assert row["communication"]["bits"] == numbers * (64 if "ldp" in name else 1)
        promised = row["guarantee"]
        if name == "cucb":
            assert promised["text"].startswith("none")
        elif "ldp" in name or release != "factorisation":
            assert promised["pure"] == "2"
            assert 0 < promised["epsilon_upper"] <= 2
        else:
            assert promised["pure"] is None
            assert 1.9 < promised["epsilon_upper"] <= 2


def test_an_interrupted_run_continues(bandit: Bandit) -> None:
    words = ("run", "csb/topk", *SMALL, "--algorithms", "cucb,cucb-dp", "--json")
    whole = bandit(*words, "--resume", "state")
    lines = Path("state").read_bytes().splitlines(keepends=True)
    Path("state").write_bytes(b"".join(lines[:2]))  # one of four cells is left
    again = bandit(*words, "--resume", "state")
    assert (again.code, again.out) == (0, whole.out)
    for option, value, said in (
        ("--super-arm", "2", "another value of super_arm"),
        ("--release", "tree", "another value of release"),
    ):
        other = bandit(*words, option, value, "--resume", "state")
        assert said in other.err


def test_a_hard_instance_prints_its_lower_bound(bandit: Bandit) -> None:
    words = ("csb/hard-paths", "-T", "300", "--instances", "1", "--algorithms", "cucb-ldp2")
    answer = bandit("run", *words, "--epsilon", "1/2", "--output", "out", "--json")
    assert answer.code == 0, answer.err
    (bound,) = json.loads(answer.out)["lower_bounds"]
    per_log = 16 * 4 / (64 * (math.exp(0.5) - 1) ** 2 * 0.8)
    assert bound["theorem"] == "Theorem 6"
    assert bound["regret_per_round"] == pytest.approx(per_log * math.log(300) / 300)
    assert "Theorem 6, T to infinity" in Path("out/regret.svg").read_text()
    # A plot from the folder has the lower bound; a plot from the table alone cannot.
    assert bandit("plot", "out", "--output", "again.svg").code == 0
    drawn = Path("again.svg").read_text()
    assert "Theorem 6, T to infinity" in drawn
    assert drawn == Path("out/regret.svg").read_text()
    assert bandit("plot", "out/regret.csv", "--output", "table.svg").code == 0
    assert "Theorem 6" not in Path("table.svg").read_text()
    document = json.loads(Path("out/rows.json").read_text())
    bad: list[dict[str, Any]] = [{"lower_bounds": [{}]}, {"lower_bounds": 3}, {"epsilons": []}]
    for wrong in bad:
        Path("out/rows.json").write_text(json.dumps({**document, **wrong}))
        answer = bandit("plot", "out", "--output", "again.svg")
        assert (answer.code, "contains invalid data" in answer.err) == (2, True)
    text = bandit("run", *words).out
    assert "Theorem 6 at epsilon 2: in the limit at least" in text
    assert "lower_bounds" not in bandit("run", "csb/topk", *SMALL, "--json").out


FEW = ("--arms", "60", "-T", "1000", "--instances", "2")
LINEAR = "dpe,cdp-dpe,ldp-dpe,sdp-dpe,dpe-fixedu"


def test_rows_have_epsilon_delta_regret_and_communication(bandit: Bandit) -> None:
    found = rows(bandit, "lzj/fig2", "--algorithms", LINEAR, *FEW)
    assert [*found] == LINEAR.split(",")
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


def test_pure_epsilon_of_linear_bandits_is_derived_and_certified(bandit: Bandit) -> None:
    """Li, Zhou and Ji, Remark C.9."""
    words = ("lzj/table2", "--algorithms", "pe,cdp-pe,ldp-pe", "--calibration", "pure")
    answer = bandit("run", *words, *FEW, "--json", "--output", "out")
    assert (answer.code, answer.err) == (0, "")
    found = {row["algorithm"]: row for row in json.loads(answer.out)["rows"]}
    for name in ("cdp-pe", "ldp-pe"):
        promised = found[name]["guarantee"]
        assert promised["text"].startswith("1-DP")
        assert (promised["pure"], promised["delta_upper"]) == ("1", 0.0)
    for path in Path("out").glob("*certificate*.json"):
        assert recheck(path.read_text()).holds


PLAIN = ("cz/easy", "-T", "6000", "--instances", "1", "--arms", "3", "--epsilon", "2")


@by_day(1)
@pytest.mark.parametrize("name", RETURNING)
def test_the_noise_for_all_visits_is_nearly_the_least(name: str) -> None:
    found = steady_for(name, epsilon=2, delta="1e-6", max_visits=4, failure="1e-9")
    curve = PrivacyCurve(noise=found.law, sensitivity=found.steps)
    assert per_user(curve, max_visits=4).delta(2).upper <= Fraction(1, 10**6)
    # The noise is within a few percent of the minimum; for bits slightly more, since 70 of them are
    # needed and not 69.
    least = per_user(curve, max_visits=4).epsilon("1e-6").lower
    assert least is not None
    assert least > Fraction(19, 10)


def test_the_guarantee_of_a_run_covers_all_visits(bandit: Bandit) -> None:
    found = rows(bandit, *PLAIN, "--visits", "4", "--algorithms", "dist-rdp-se,dist-dp-se")
    for row in found.values():
        promised = row["guarantee"]
        assert promised["text"].endswith("for each user, over at most 4 visits")
        assert 1.95 < promised["epsilon_upper"] <= 2
        assert "users are new" not in " ".join(promised["assumptions"])


def test_the_guarantee_of_new_users_is_unchanged(bandit: Bandit) -> None:
    words = ("--algorithms", "dist-dp-se")
    plain = bandit("run", *PLAIN, *words, "--json").json
    same = bandit("run", *PLAIN, *words, "--honest", "100%", "--dropouts", "0", "--json").json
    assert plain == same
    assert not {"max_visits", "honest", "dropouts", "aggregation", "users"} & plain.keys()


def test_only_algorithms_that_support_visits_are_played() -> None:
    found = read_experiment("cz/easy", visits="3", dropouts="5%")
    assert found.algorithms == ("dist-dp-se", "dist-rdp-se", "dist-cdp-se", "se")
    written = found.to_json()
    assert (written["max_visits"], written["dropouts"]) == (3, "1/20")
    gone = read_experiment("cz/easy", dropouts="5%").algorithms
    assert {*read_experiment("cz/easy").algorithms} - {*gone} == {"dp-se"}


def test_a_run_out_of_users_states_the_number_of_unused_rounds(bandit: Bandit) -> None:
    words = ("--visits", "4", "--algorithms", "dist-dp-se")
    # 10 users give at most 40 rewards, and the first batch of three arms needs more.
    found = bandit("run", *PLAIN, *words, "--users", "10", "--json").json
    (row,) = found["rows"]
    assert row["out_of_users"] == 6000 - row["communication"]["numbers"]
    (said,) = found["remarks"]
    assert said == (
        "dist-dp-se at epsilon 2 ran out of users: nothing was learned from "
        f"{row['out_of_users']:,.0f} of 6,000 rounds. Use more --users or --visits."
    )
    assert said in bandit("run", *PLAIN, *words, "--users", "10").out
    enough = bandit("run", *PLAIN, *words, "--json").json
    assert "remarks" not in enough
    assert enough["rows"][0]["out_of_users"] == 0


def test_masked_aggregation_is_executed(bandit: Bandit, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,0\n1,0.5\n0.5,0\n", encoding="utf-8")
    words = "--epsilon 4 --instances 1 --algorithms dist-dp-se --visits 16 --aggregation masked"
    more = ("-T", effort(250, 700), "--failure-probability", "0.01", "--rewards", table)
    deployed = ("--dropouts", "5%", "--honest", "90%")
    answer = bandit("run", "cz/easy", *words.split(), *more, *deployed)
    assert (answer.code, answer.err) == (0, "")
    assert "at most 16 visits, masked aggregation, honest 90%, dropouts 5%, seed 1" in answer.out
    assert "Assumed: the masked aggregation hides all but the sum" in answer.out
