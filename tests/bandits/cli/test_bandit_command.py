"""Tests of ``dpcore bandit``: messages, written files and exit codes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from accounting import Status
from bandits.certificates.recheck import recheck
from bandits.experiments import summary as comparison
from bandits.experiments.experiment import Experiment
from bandits.experiments.results import certificate_name
from bandits.experiments.summary import compare, guarantees_of, read_document
from bandits.policies.registry import ALGORITHMS
from dpcore.errors import InvalidParameter, PrecisionExhausted
from tests.support.bandits.command import MAIN, Bandit
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


@pytest.mark.parametrize("words", [[], ["run"], ["compare"], ["plot"], ["list"]])
def test_help_shows_an_example(bandit: Bandit, words: list[str]) -> None:
    answer = bandit(*words, "--help")
    assert answer.code == 0
    assert "dpcore bandit" in answer.out
    assert ("Start with" if not words else "Example: dpcore bandit") in answer.out
    assert "[bold]" not in answer.out


ALL = "cdp-se,ldp-se,dist-dp-se,dist-rdp-se,dist-cdp-se,dp-se,se"


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
        if row["algorithm"] in ("cdp-se", "ldp-se", "dist-dp-se", "dp-se"):
            assert float(promised["epsilon_upper"]) <= row["epsilon"]


def test_the_same_seed_gives_the_same_document_also_when_resumed(bandit: Bandit) -> None:
    few = ["--epsilon", "1", "--algorithms", "dist-dp-se,se"]
    once = document(bandit, *few)
    assert document(bandit, *few) == once
    assert document(bandit, *few, "--resume", "state") == once
    data = Path("state").read_bytes()
    assert document(bandit, *few, "--resume", "state") == once
    assert Path("state").read_bytes() == data
    longer = [*few, "-T", "30000"]
    assert document(bandit, *longer)["rows"] != document(bandit, *longer, "--seed", 2)["rows"]


def test_without_json_a_table_is_printed(bandit: Bandit) -> None:
    answer = bandit("run", "cz/easy", *SMALL, "--epsilon", "1", "--algorithms", "dist-dp-se,se")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("cz/easy: T = 3,000, 3 instances, radius exact, schedule exact")
    assert lines[2].split() == ["algorithm", "epsilon", "regret/T", "+-", "bits", "guarantee"]
    assert lines[3].startswith("dist-dp-se        1")
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
    few = ["--epsilon", "1/2", "--epsilon", "1", "--algorithms", "dist-dp-se,se"]
    found = document(bandit, *few, "--output", "results")
    names = {path.name for path in Path("results").iterdir()}
    assert names == {
        "rows.json", "regret.csv", "regret.svg",
        "certificate-dist-dp-se-1.json", "certificate-dist-dp-se-1_2.json",
    }  # fmt: skip
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
    assert b"epsilon = 1" in picture
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


def test_ctrl_c_keeps_finished_runs(bandit: Bandit) -> None:
    words = ["run", "cz/easy", "-T", "1e5", "--instances", "2000", "--algorithms", "se"]
    words += ["--epsilon", "1", "--resume", "state"]
    running = subprocess.Popen(
        [sys.executable, "-c", MAIN, "bandit", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    late = time.monotonic() + 60
    while not Path("state").exists() or Path("state").read_bytes().count(b"\n") < 3:
        assert running.poll() is None
        assert time.monotonic() < late
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the whole process group
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err == "interrupted: no result; continue with --resume state\n"
    assert Path("state").read_bytes().count(b"\n") < 2000
    answer = bandit(*words, "--seed", 2)
    assert "was started with another value of seed: 1 instead of 2" in answer.err


def test_ratios_are_paired_by_instance(bandit: Bandit) -> None:
    few = ["--epsilon", "1", "--algorithms", "dist-dp-se,se"]
    for name, radius in (("a.json", "paper"), ("b.json", "exact")):
        answer = bandit("run", "cz/easy", *SMALL, *few, "--radius", radius, "--json")
        Path(name).write_text(answer.out)
    found = bandit("compare", "a.json", "b.json", "--json").json
    assert found["schema"] == "dpcore-bandit-compare/1"
    first, second = (json.loads(Path(name).read_text())["rows"] for name in ("a.json", "b.json"))
    for row, one, other in zip(found["rows"], first, second, strict=True):
        assert row["algorithm"] == one["algorithm"]
        assert row["ratio"] == pytest.approx(one["regret_per_round"] / other["regret_per_round"])
        assert row["paired"] is True
        left = [
            a - row["ratio"] * b
            for a, b in zip(one["by_instance"], other["by_instance"], strict=True)
        ]
        sd = (sum(x * x for x in left) / 2 / 3) ** 0.5
        assert row["standard_error"] == pytest.approx(sd / other["regret_per_round"])
    table = bandit("compare", "a.json", "b.json").out
    assert "Standard errors: 2 of 2 rows paired by instance." in table
    same = bandit("compare", "a.json", "a.json", "--json").json["rows"]
    assert [(row["ratio"], row["standard_error"]) for row in same] == [(1.0, 0.0)] * 2


def test_results_from_different_worlds_are_not_compared(bandit: Bandit) -> None:
    one = document(bandit, "--algorithms", "se", "--epsilon", 1)
    Path("a.json").write_text(json.dumps(one))
    for change, words in (
        ({"horizon": 4}, "horizon = 3000: must be the same in A and B, but is 4 in B"),
        ({"preset": "cz/hard"}, "preset = cz/easy: must be the same"),
        ({"arms": 9}, "arms = 4: must be the same in A and B, but is 9 in B"),
        ({"data": "b" * 64}, "data = None: must be the same in A and B"),
        ({"rows": []}, "A = 1 results: has no algorithm and epsilon in common with B"),
        ({"schema": "x"}, "B = b.json: must have schema dpcore-bandit/2"),
        ({"rows": [{}]}, "B = b.json: contains invalid data"),
    ):
        Path("b.json").write_text(json.dumps({**one, **change}))
        answer = bandit("compare", "a.json", "b.json")
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"error: {words}")
    Path("b.json").write_text("{")
    with pytest.raises(InvalidParameter, match=r"its rows\.json"):
        read_document(Path("b.json"))
    assert "No such file" in bandit("compare", "a.json", "none.json").err


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


def test_a_comparison_without_pairing_is_detected() -> None:
    def with_regret(*regret: float) -> dict[str, Any]:
        return {**HEAD, "rows": [{**ROW, "by_instance": [*regret]}]}

    both = with_regret(0.1, 0.5, 0.9)
    (paired,), (none,) = compare(both, both), compare(both, with_regret(0.0))
    assert (paired.standard_error, paired.paired) == (0.0, True)
    assert (none.ratio, none.standard_error) == (None, None)
    (row,) = both["rows"]
    forgets = mutated(comparison._ratio, "paired = len(a) == len(b)", "paired = False")
    assert forgets(row, row).standard_error > 0.3
    # Means 0.4 and 0.2, standard errors 0.2 and 0.1 of independent means: R = 2.
    (apart,) = compare(with_regret(0.2, 0.6), with_regret(0.1, 0.1, 0.4))
    assert not apart.paired
    assert apart.ratio == pytest.approx(2)
    assert apart.standard_error == pytest.approx(math.hypot(0.2, 2 * 0.1) / 0.2)


def stored(name: str, *rows: dict[str, Any]) -> str:
    Path(name).write_text(json.dumps({**HEAD, "rows": rows}))
    return name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"by_instance": [10**400]}, "a regret per round outside [-1000000, 1000000]"),
        ({"by_instance": []}, "a row without regret"),
        ({"by_instance": [True]}, "a regret per round"),
        ({"algorithm": ["se"]}, "an algorithm name that is not text"),
        ({"epsilon": 10**400}, "int too large"),
    ],
)
def test_invalid_rows_are_refused(bandit: Bandit, change: dict[str, Any], words: str) -> None:
    stored("good", ROW)
    answer = bandit("compare", "good", stored("bad", {**ROW, **change}))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: B = bad: contains invalid data")
    assert words in answer.err


def test_a_repeated_row_and_a_pipe_are_refused(bandit: Bandit) -> None:
    answer = bandit("compare", stored("good", ROW), stored("bad", ROW, ROW))
    assert "(two rows with the same algorithm and epsilon)" in answer.err
    os.mkfifo("pipe")
    assert bandit("compare", "pipe", "good").err == "error: A = pipe: is not a regular file\n"


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
