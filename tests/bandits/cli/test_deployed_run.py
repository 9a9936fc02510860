"""Tests of ``dpcore bandit run`` with --visits, --honest, --dropouts, --aggregation: guarantees."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from accounting.composition.composition_theorems import per_user
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.certificates.recheck import recheck
from bandits.cli.run import read_experiment
from bandits.privatizers.returning_users import RETURNING, steady_for
from tests.bandits.certificates.test_certify_run import sealed
from tests.day_and_nightly import by_day
from tests.support.bandits.command import Bandit

SMALL = ("cz/easy", "-T", "6000", "--instances", "1", "--arms", "3", "--epsilon", "2")


def rows(bandit: Bandit, *words: str) -> dict[str, Any]:
    answer = bandit("run", *SMALL, *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    return {row["algorithm"]: row for row in json.loads(answer.out)["rows"]}


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
    found = rows(bandit, "--visits", "4", "--algorithms", "dist-rdp-se,dist-dp-se")
    for row in found.values():
        promised = row["guarantee"]
        assert promised["text"].endswith("for each user, over at most 4 visits")
        assert 1.95 < promised["epsilon_upper"] <= 2
        assert "users are new" not in " ".join(promised["assumptions"])


def test_the_guarantee_of_new_users_is_unchanged(bandit: Bandit) -> None:
    words = ("--algorithms", "dist-dp-se")
    plain = bandit("run", *SMALL, *words, "--json").json
    same = bandit("run", *SMALL, *words, "--honest", "100%", "--dropouts", "0", "--json").json
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
    found = bandit("run", *SMALL, *words, "--users", "10", "--json").json
    (row,) = found["rows"]
    assert row["out_of_users"] == 6000 - row["communication"]["numbers"]
    (said,) = found["remarks"]
    assert said == (
        "dist-dp-se at epsilon 2 ran out of users: nothing was learned from "
        f"{row['out_of_users']:,.0f} of 6,000 rounds. Use more --users or --visits."
    )
    assert said in bandit("run", *SMALL, *words, "--users", "10").out
    enough = bandit("run", *SMALL, *words, "--json").json
    assert "remarks" not in enough
    assert enough["rows"][0]["out_of_users"] == 0


def certificate(bandit: Bandit, folder: Path, *words: str) -> dict[str, Any]:
    answer = bandit("run", *SMALL, *words, "--output", str(folder))
    assert (answer.code, answer.err) == (0, "")
    (place,) = folder.glob("certificate-*.json")
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def holds(found: dict[str, Any]) -> bool:
    return recheck(sealed(found)).holds


def test_a_certificate_covers_all_visits_and_noise_for_one_fails(
    bandit: Bandit, tmp_path: Path
) -> None:
    words = ("--algorithms", "dist-dp-se")
    found = certificate(bandit, tmp_path / "four", *words, "--visits", "4")
    assert holds(found)
    (part,) = found["parts"]
    assert part["is"]["rounds_of"][0]["rounds"] == 4
    assert not [each for each in found["assumptions"] if "unknown" in each]
    # Noise for one visit, with a claim for four visits.
    once = certificate(bandit, tmp_path / "one", *words, "--visits", "1")
    assert holds(once)
    once["parts"][0]["is"]["rounds_of"][0]["rounds"] = 4
    assert not holds(once)
    once["parts"][0]["certificate"] = None
    once["parts"][0]["unchecked"] = "it takes long"
    assert not holds({**found, "parts": once["parts"]})


def test_a_certificate_states_the_planned_dropouts(bandit: Bandit, tmp_path: Path) -> None:
    words = ("--algorithms", "dist-dp-se", "--dropouts", "5%", "--honest", "90%")
    found = certificate(bandit, tmp_path / "gone", *words)
    (said,) = [each for each in found["assumptions"] if "drop out" in each]
    assert said.startswith("of the users of a release at most 1/20 drop out, and 1/10")
    assert holds(found)
    for without in ("of the users of a release at most few drop out", "all is well"):
        changed = [without if each == said else each for each in found["assumptions"]]
        assert not holds({**found, "assumptions": changed})


def test_masked_aggregation_is_executed(bandit: Bandit, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,0\n1,0.5\n0.5,0\n", encoding="utf-8")
    answer = bandit(
        *("run", "cz/easy", "--epsilon", "4", "-T", "700", "--instances", "1"),
        *("--algorithms", "dist-dp-se", "--visits", "16", "--aggregation", "masked"),
        *("--dropouts", "5%", "--failure-probability", "0.01", "--rewards", str(table)),
    )
    assert (answer.code, answer.err) == (0, "")
    assert "at most 16 visits, masked aggregation, dropouts 5%, seed 1" in answer.out
    assert "Assumed: the masked aggregation hides all but the sum" in answer.out


def test_a_release_too_large_for_masks_is_refused_before_the_run(bandit: Bandit) -> None:
    words = ("--aggregation", "masked", "--algorithms", "dist-dp-se", "-T", "3000000")
    answer = bandit("run", "cz/easy", "--epsilon", "1", "--instances", "1", *words)
    assert answer.code == 2
    assert "supports 2 to 65,535 users" in answer.err
