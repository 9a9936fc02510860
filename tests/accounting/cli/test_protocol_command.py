r"""Tests of ``dpcore protocol plan`` and ``simulate``: facts, refusals, exit codes."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any, get_args

import pytest

from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees import format_plan
from accounting.protocol_guarantees.plan_protocol import Instance
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from dpcore import Sensitivity
from dpcore.laws.sum_of_shares import summed
from dpcore.parse_noise import read_noise
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.run_command import Answer, Command, typed

INSTANCES = tuple(each for each in get_args(Instance) if each != "pure-shuffle")
SHUFFLED = ("binary-shuffle", "vector-shuffle")
PLAN_KEYS = {
    "schema", "instance", "parameters", "users", "honest", "target", "guarantee", "meets_target",
    "assumes", "assumed_epsilon", "noise_of_a_user", "noise_of_the_sum", "bits_per_user",
}  # fmt: skip
SUM_KEYS = {"precision", "threshold", "modulus", "wraparound_upper"}
NUMBERS = {
    "binary-shuffle": {"noise_bits", "probability"},
    "vector-shuffle": {"noise_bits", "probability", "precision", "coordinates"},
}
SIMULATION_KEYS = {
    "schema", "plan", "runs", "aggregation", "dropouts", "present", "mean_absolute_error",
    "root_mean_square_error", "noise_deviation_upper", "bits_per_user", "planned", "kept",
}  # fmt: skip


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(verb: str, instance: str, *words: object, users: object = 12) -> Answer:
        given = ["--instance", instance, "--users", users, "--epsilon", 1, *words]
        return typed(capsys, "protocol", verb, *given)

    return run


@pytest.mark.parametrize("instance", INSTANCES)
def test_plans_meet_their_target_and_say_so(command: Command, instance: str) -> None:
    answer = command("plan", instance, "--honest", "75%", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert set(found) == PLAN_KEYS | NUMBERS.get(instance, SUM_KEYS)
    assert found["schema"] == "dpcore-protocol-plan/1"
    assert (found["instance"], found["users"], found["honest"]) == (instance, 12, 9)
    bits = instance in ("renyi", "concentrated", *SHUFFLED)
    assert found["target"] == {"epsilon": "1", "delta": "1/1000000" if bits else "0"}
    assert found["meets_target"] is True
    assert (found["assumes"] is not None) == (instance == "shuffled-pure")
    # The printed epsilon is that of the printed law, recomputed from the text alone.
    ends = found["guarantee"]["epsilon"]
    assert 0 < ends["lower"] <= ends["upper"] <= (0.5 if instance == "shuffled-pure" else 1)
    assert recomputed_delta(found, Fraction(ends["upper"])) <= Fraction(found["target"]["delta"])
    out = command("plan", instance, "--honest", "75%").out
    lines = out.splitlines()
    assert lines[0] == f"{instance} for 12 users, parameters exact"
    assert lines[2].startswith("  guarantee   epsilon ")
    assert lines[2].endswith(": meets the target")
    assert lines[-1] == f"  bits        {found['bits_per_user']} per user"
    assert ("assumes" in out) == (instance == "shuffled-pure")
    assert all(len(line) <= 100 and not line.startswith(" " * 3) for line in lines)
    assert f" {found['noise_of_the_sum']}" in out  # the label ends before the value


def recomputed_delta(found: dict[str, Any], epsilon: Fraction) -> Fraction | float:
    r"""Return delta at ``epsilon`` of the honest noise, from the numbers of a JSON plan."""
    if found["instance"] in SHUFFLED:
        box = BinomialBox(
            trials=found["honest"] * found["noise_bits"],
            probability=found["probability"],
            bounds=(found.get("precision", 1),) * found.get("coordinates", 1),
        )
        return box.enclose_delta(epsilon).lower
    one = read_noise(found["noise_of_a_user"] or found["noise_of_the_sum"])

    count = 1 if found["instance"] in ("central", "local") else found["honest"]
    moved = Sensitivity(found["precision"])
    return PrivacyCurve(noise=summed(one, count), sensitivity=moved).enclose_delta(epsilon).lower


def test_a_plan_of_many_bits_ends_within_the_time_limit(command: Command) -> None:
    paper = ("--coordinates", 20, "--parameters", "paper", "--within", 1)
    answer = command("plan", "vector-shuffle", *paper, users=1000)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: no answer within 1 s of processor time: increase --within")


def test_a_plan_says_whether_it_meets_its_target(command: Command) -> None:
    paper = ("plan", "pure", "--parameters", "paper", "--honest", "50%")
    assert "NOT certified to meet the target" in command(*paper).out
    found = command(*paper, "--json").json
    assert found["meets_target"] is False
    assert found["guarantee"]["epsilon"]["lower"] > 1
    # No bound is printed above a target that is met.
    for instance, small in (("binary-shuffle", "1/1000"), ("vector-shuffle", "1/50")):
        found = command("plan", instance, "--epsilon", small, "--json", users=1000).json
        ends = found["guarantee"]["epsilon"]
        assert found["meets_target"]
        assert ends["lower"] <= ends["upper"] <= float(Fraction(small))
        assert ends["upper"] - ends["lower"] <= 1e-5 * ends["upper"]


def test_a_missing_pure_guarantee_is_printed_as_infinite(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert format_plan._number(math.inf) == "infinity"
    monkeypatch.setattr(
        format_plan, "_number", mutated(format_plan._number, 'else "infinity"', "else value")
    )
    # Two of twelve hide less than 1e-6 of the mass: no finite epsilon is enough.
    words = ("--dropouts", 11, "--runs", 1, "--json")
    with pytest.raises(json.JSONDecodeError):  # nothing is printed: Infinity is not JSON
        _ = command("simulate", "binary-shuffle", *words).json


@by_day(2)
@pytest.mark.parametrize("instance", INSTANCES)
def test_simulations_print_errors_and_the_remaining_guarantee(
    command: Command, instance: str
) -> None:
    words = ("--dropouts", "25%", "--runs", 20, "--seed", 3)
    answer = command("simulate", instance, *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert set(found) == SIMULATION_KEYS
    assert found["schema"] == "dpcore-protocol-simulation/1"
    assert found["plan"] == command("plan", instance, "--json").json
    assert (found["runs"], found["dropouts"], found["present"]) == (20, 3, 9)
    assert found["planned"] == found["plan"]["guarantee"]
    planned, kept = found["planned"]["epsilon"], found["kept"]["epsilon"]
    assert kept["upper"] >= kept["lower"] >= planned["lower"]
    assert (kept == planned) == (instance in ("central", "local"))
    assert 0 < found["mean_absolute_error"] <= found["root_mean_square_error"]
    assert command("simulate", instance, *words, "--json").json == found
    lines = command("simulate", instance, *words).out.splitlines()
    names = ["runs", "dropouts", "error", "noise", "bits", "planned", "remaining"]
    names += ["assumes", "sum"] if instance == "shuffled-pure" else []
    assert [line.split()[0] for line in lines[1:]] == names


def test_runs_with_a_seed_are_reproducible_and_others_are_not(command: Command) -> None:
    one, again, two, first, second = (
        command("simulate", "pure", "--runs", 5, "--json", *seed).json["root_mean_square_error"]
        for seed in (["--seed", 1], ["--seed", 1], ["--seed", 2], [], [])
    )
    assert one == again != two
    assert first != second
