"""Tests of ``dpcore bandit``: messages, written files and exit codes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from accounting import Status
from bandits.certificates.recheck import recheck
from bandits.experiments import summary as comparison
from bandits.experiments.experiment import Experiment
from bandits.experiments.results import certificate_name
from bandits.experiments.summary import guarantees_of
from bandits.policies.registry import ALGORITHMS
from dpcore.errors import InvalidParameter, PrecisionExhausted
from tests.support.bandits.command import Bandit
from tests.support.dpcore.mutants import mutated

SMALL = ["-T", "3000", "--instances", 3, "--arms", 4]


def document(bandit: Bandit, *words: object) -> dict[str, Any]:
    answer = bandit("run", "cz/easy", *SMALL, "--json", *words)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


def test_the_list_names_presets_and_algorithms(bandit: Bandit) -> None:
    answer = bandit("list")
    assert answer.code == 0
    found = bandit("list", "--json").json
    assert found["schema"] == "dpcore-bandit-list/1"
    assert [row["name"] for row in found["presets"]][:2] == ["cz/easy", "cz/hard"]
    for row in (*found["presets"], *found["algorithms"]):
        assert row["name"] in answer.out
        assert row["sentence"] in answer.out


ALL = "cdp-se,dist-rdp-se,dp-se,se"


def test_the_document_has_a_row_for_each_algorithm_and_epsilon(bandit: Bandit) -> None:
    found = document(
        bandit, "--epsilon", "0.5", "--epsilon", "1", "--algorithms", ALL, "--radius", "paper",
        "--seed", 1,
    )  # fmt: skip
    assert found["schema"] == "dpcore-bandit/2"
    assert (found["preset"], found["radius"], found["schedule"]) == ("cz/easy", "paper", "released")
    assert [(row["algorithm"], row["epsilon"]) for row in found["rows"]] == [
        (name, epsilon) for name in ALL.split(",") for epsilon in (0.5, 1.0)
    ]
    for row in found["rows"]:
        assert {
            "algorithm", "epsilon", "horizon", "instances", "regret_per_round", "standard_error",
            "bits_per_user", "guarantee",
        } <= set(row)  # fmt: skip
        assert (row["horizon"], row["instances"]) == (3000, 3)
        assert row["regret_per_round"] == pytest.approx(sum(row["by_instance"]) / 3)
        assert row["standard_error"] > 0
        assert row["bits_per_user"] > 0
        promised = row["guarantee"]
        assert promised["delta"] == "1/1000000"
        assert (promised["epsilon_upper"] is None) == (row["algorithm"] == "se")
        if row["algorithm"] in ("cdp-se", "dp-se"):
            assert float(promised["epsilon_upper"]) <= row["epsilon"]


def test_without_json_a_table_is_printed(bandit: Bandit) -> None:
    answer = bandit("run", "cz/easy", *SMALL, "--epsilon", "1", "--algorithms", "dist-dp-se,se")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("cz/easy: T = 3,000, 3 instances, radius exact, schedule exact")
    assert lines[2].split() == ["algorithm", "epsilon", "regret/T", "+-", "bits", "guarantee"]
    assert lines[3].startswith("dist-dp-se        1")
    assert "bits is the most of one visit." in answer.out
    assert lines[3].endswith("1-DP")
    shown = "the aggregation shows the server only the sum and which users are in it"
    assert f"Assumed: {shown}." in lines


def test_a_run_that_is_too_short_to_use_a_reward_says_so(bandit: Bandit) -> None:
    words = ("run", "cz/easy", "--arms", 2, "--instances", 1, "--epsilon", 1)
    reason = "\ndp-se used no reward and is 0-DP: its first batch ends after round 2. "
    short = bandit(*words, "--horizon", 2, "--algorithms", "dp-se,cdp-se").out
    assert reason in short
    assert short.count("used no reward") == 1
    assert [line.split()[4:] for line in short.splitlines() if line.startswith("dp-se  ")] == [
        ["0", "0-DP"]
    ]
    longer = bandit(*words, "--horizon", 5000, "--algorithms", "dp-se").out
    assert "1-DP" in longer
    assert "used no reward" not in longer


def test_a_folder_contains_rows_table_certificates_and_figure(bandit: Bandit) -> None:
    few = ["--epsilon", "1/2", "--algorithms", "dist-dp-se,se"]
    found = document(bandit, *few, "--output", "results")
    names = {path.name for path in Path("results").iterdir()}
    assert names == {"rows.json", "regret.csv", "regret.svg", "certificate-dist-dp-se-1_2.json"}
    name = certificate_name("dist-rdp-se:s=20", "1/2")
    assert name == "certificate-dist-rdp-se_s=20-1_2.json"
    assert json.loads(Path("results/rows.json").read_text()) == found
    text = Path("results/certificate-dist-dp-se-1_2.json").read_text()
    certificate = json.loads(text)
    assert certificate["horizon"] == 3000
    assert float(certificate["claims"][0]["epsilon"]) <= 0.5
    assert "from a seed" in certificate["assumptions"][-1]
    assert Status.FAILS not in {finding.status for finding in recheck(text).findings}
    picture = Path("results/regret.svg").read_bytes()
    for source, name in (("results", "a.svg"), ("results/regret.csv", "b.svg")):
        answer = bandit("plot", source, "--output", name)
        assert (answer.code, answer.out) == (0, f"{name}\n")
        assert Path(name).read_bytes() == picture
    assert b"epsilon = 0.5" in picture
    for words, said in (
        (["results", "--output", "a.gif"], "--output = a.gif: must end in"),
        (["none", "--output", "a.svg"], "SOURCE = none: No such file"),
        (
            ["results/rows.json", "--output", "a.svg"],
            "SOURCE = results/rows.json: is not a regret.csv",
        ),
    ):
        answer = bandit("plot", *words)
        assert answer.code == 2
        assert answer.err.startswith(f"error: {said}")


def test_without_matplotlib_only_the_figure_is_missing(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bandits.experiments.results.find_spec", lambda name: None)
    answer = bandit("run", "cz/easy", *SMALL, "--algorithms", "se", "--output", "results")
    assert answer.code == 0
    assert answer.err == "warning: no regret.svg: needs matplotlib: pip install 'dpcore[plot]'\n"
    assert not Path("results/regret.svg").exists()


PLAYED = {"arms": "cz/easy", "linear": "lzj/table2", "combinatorial": "csb/topk"}
"""A world of each kind."""


def test_without_a_subcommand_the_help_is_printed(bandit: Bandit) -> None:
    answer = bandit()
    assert (answer.code, answer.err) == (2, "")
    assert "Start with dpcore bandit run" in answer.out


@pytest.mark.nightly
@pytest.mark.parametrize("kind", PLAYED)
@pytest.mark.parametrize("epsilon", ["1000", "1/10"])
def test_every_algorithm_can_be_set_up_at_both_ends_of_its_range(epsilon: str, kind: str) -> None:
    names = tuple(entry.name for entry in ALGORITHMS if entry.world == kind)
    ends = Experiment(
        preset=PLAYED[kind], algorithms=names, epsilons=(epsilon,), horizon=10_000, instances=1
    )
    assert len(guarantees_of(ends, 10)) == len(names)


def test_an_impossible_guarantee_names_its_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*args: object) -> None:
        raise PrecisionExhausted("the search left the supported range")

    small = Experiment(
        preset="cz/easy", algorithms=("se",), epsilons=(1,), horizon=100, instances=1
    )
    monkeypatch.setattr(Experiment, "guarantee", lost)
    with pytest.raises(InvalidParameter, match="there is no guarantee") as refused:
        guarantees_of(small, 10)
    assert refused.value.argument == "epsilon (for se)"


ROW: dict[str, Any] = {"algorithm": "se", "epsilon": 1.0, "by_instance": [0.1, 0.2]}
HEAD: dict[str, Any] = {
    "schema": "dpcore-bandit/2", "preset": "x", "arms": 2, "horizon": 10, "data": None
}  # fmt: skip


def stored(name: str, *rows: dict[str, Any], **change: object) -> str:
    Path(name).write_text(json.dumps({**HEAD, "rows": rows, **change}))
    return name


def test_ratios_are_paired_by_instance(bandit: Bandit) -> None:
    above, below = [0.2, 0.5, 0.8], [0.1, 0.3, 0.35]
    one, other = ({**ROW, "by_instance": regret} for regret in (above, below))
    words = ("compare", stored("a", one), stored("b", other))
    found = bandit(*words, "--json").json
    assert (found["schema"], found["unmatched"]) == ("dpcore-bandit-compare/1", [])
    (row,) = found["rows"]
    assert (row["algorithm"], row["ratio"], row["paired"]) == ("se", pytest.approx(2), True)
    left = sum((a - 2 * b) ** 2 for a, b in zip(above, below, strict=True))
    assert row["standard_error"] == pytest.approx((left / 2 / 3) ** 0.5 / 0.25)
    assert "Standard errors: 1 of 1 rows paired by instance." in bandit(*words).out
    forgets = mutated(comparison._ratio, "paired = len(a) == len(b)", "paired = False")
    assert forgets(one, one).standard_error > 0.3
    # Means 0.4 and 0.2, standard errors 0.2 and 0.1 of independent means: R = 2.
    apart, none, same = (
        comparison._ratio({**ROW, "by_instance": a}, {**ROW, "by_instance": b})
        for a, b in (([0.2, 0.6], [0.1, 0.1, 0.4]), (above, [0.0]), (above, above))
    )
    assert apart.ratio == pytest.approx(2)
    assert not apart.paired
    assert apart.standard_error == pytest.approx(math.hypot(0.2, 2 * 0.1) / 0.2)
    assert (none.ratio, none.standard_error) == (None, None)
    assert (same.ratio, same.standard_error) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"horizon": 4}, "horizon = 10: must be the same in A and B, but is 4 in B"),
        ({"preset": "cz/hard"}, "preset = x: must be the same"),
        ({"arms": 9}, "arms = 2: must be the same in A and B, but is 9 in B"),
        ({"data": "b" * 64}, "data = None: must be the same in A and B"),
        ({"rows": []}, "A = 1 results: has no algorithm and epsilon in common with B"),
        ({"schema": "x"}, "B = bad: must have schema dpcore-bandit/2"),
        ({"rows": [{}]}, "B = bad: contains invalid data"),
        ({"rows": [ROW, ROW]}, "(two rows have the same algorithm and epsilon)"),
        ({"by_instance": [10**400]}, "a regret per round is outside [-1000000, 1000000]"),
        ({"by_instance": []}, "a row contains no regret"),
        ({"by_instance": [True]}, "a regret per round"),
        ({"algorithm": ["se"]}, "an algorithm name is not text"),
        ({"epsilon": 10**400}, "int too large"),
    ],
    ids=lambda each: each[:20] if isinstance(each, str) else "",
)
def test_invalid_or_incomparable_results_are_refused(
    bandit: Bandit, change: dict[str, Any], said: str
) -> None:
    of_row = {key: value for key, value in change.items() if key in ROW}
    stored("bad", {**ROW, **of_row}, **({} if of_row else change))
    answer = bandit("compare", stored("good", ROW), "bad")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.startswith("error: B = bad: contains invalid data" if of_row else "error: ")


def test_files_that_are_not_results_are_refused(bandit: Bandit) -> None:
    Path("torn").write_text("{")
    os.mkfifo("pipe")
    for path, said in (
        ("torn", "its rows.json"),
        ("none", "No such file"),
        ("pipe", "error: A = pipe: is not a regular file\n"),
    ):
        assert said in bandit("compare", path, stored("good", ROW)).err


def test_rows_that_only_one_side_has_are_listed(bandit: Bandit) -> None:
    one = stored("one", ROW, {**ROW, "algorithm": "dp-se"})
    other = stored("other", {**ROW, "epsilon": 2.0}, {**ROW, "algorithm": "dp-se"})
    found = bandit("compare", one, other, "--json").json
    assert [row["algorithm"] for row in found["rows"]] == ["dp-se"]
    assert found["unmatched"] == [
        {"in": "A", "algorithm": "se", "epsilon": 1.0},
        {"in": "B", "algorithm": "se", "epsilon": 2.0},
    ]
    lines = bandit("compare", one, other).out.splitlines()
    assert lines[-2:] == ["Only in A: se at epsilon 1.", "Only in B: se at epsilon 2."]
