"""Tests of `dpcore audit fit` and `dpcore audit replay`: exit codes, JSON and error messages."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from audit.cli.replay import replay_command
from audit.errors import TargetFailed
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.support.audit.command import Shell

ALPHA = buy_alpha("the fit command keeps true laws", "1e-9") / 10


SAMPLERS = """
def good(n, rng):
    print("a word of the target")
    return rng.geometric(0.5, n) - rng.geometric(0.5, n)

def one(rng):
    return int(rng.integers(0, 2))

def floats(n, rng):
    return rng.normal(size=n)

def of_a_dataset(dataset, n, rng):
    return rng.integers(0, 2, n)
"""
TWO = "discrete-laplace:scale=1"


@pytest.fixture
def shell(command: Callable[..., Shell]) -> Shell:
    Path("samplers.py").write_text(SAMPLERS)
    return command("fit")


def test_a_wrong_law_exits_with_one_and_names_a_witness(shell: Shell) -> None:
    answer = shell("samplers.py:good", "--law", TWO, "-n", "1e4", "--seed", 7)
    assert answer.code == 1
    assert answer.out.startswith("REFUTED  samplers.py:good does not follow")
    assert "of 10,000 draws" in answer.out
    assert "a word of the target" not in answer.out


def test_a_correct_law_exits_with_zero(shell: Shell) -> None:
    law = "binomial:trials=1,probability=1/2"
    answer = shell("samplers.py:one", "--law", law, "-n", 2000, "--seed", 7, "--alpha", ALPHA)
    assert answer.code == 0
    assert answer.out.startswith("NOT REFUTED AT THIS RESOLUTION")
    assert "--seed 7" in answer.out


def test_json_is_one_document_with_every_key(shell: Shell) -> None:
    answer = shell("half-scale", "--law", TWO, "--sequential", "-n", "1e4", "--seed", 7, "--json")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert list(found) == [
        "schema", "target", "law", "verdict", "alpha", "p_value", "e_value", "runs", "stopped",
        "witness", "resolution", "evidence", "method", "proves", "seed", "error", "warnings",
        "versions",
    ]  # fmt: skip
    assert (found["schema"], found["target"], found["law"]) == ("dpcore-fit/1", "half-scale", TWO)
    assert found["runs"] < 10**4
    assert found["e_value"] >= 20
    assert list(found["witness"]) == ["event", "count", "expected", "probability"]


def test_a_noise_and_a_program_are_targets(shell: Shell, tmp_path: Path) -> None:
    answer = shell(TWO, "--law", TWO, "--seed", 7, "--alpha", ALPHA, "-n", 3000)
    assert answer.code == 0
    program = tmp_path / "zeros"
    program.write_text("#!/bin/sh\nyes 0 | head -n 500\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert shell("exec:./zeros", "--law", TWO, "-n", 500).code == 1
    program.write_text("#!/bin/sh\nyes zero | head -n 500\n")
    answer = shell("exec:./zeros", "--law", TWO, "-n", 500)
    assert answer.code == 3
    assert "wrote 'zero': one integer per line is required" in answer.err


def test_a_target_that_fails_exits_with_three(shell: Shell) -> None:
    answer = shell("samplers.py:floats", "--law", TWO)
    assert answer.code == 3
    assert "samplers.py:floats: returned float64 values" in answer.err
    assert "warning" not in answer.err
    assert not answer.out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("samplers.py:good", "--law", "laplace:scale=1"), "must start with one of"),
        (("samplers.py:none", "--law", TWO), "the module has no none"),
        (("samplers.py:of_a_dataset", "--law", TWO), "must be a callable f(n, rng)"),
        (("samplers.py:good", "--law", TWO, "-n", "0.5"), "-n"),
        (("samplers.py:good", "--law", TWO, "--alpha", "2"), "alpha"),
    ],
)
def test_wrong_usage_exits_with_two(shell: Shell, words: tuple[object, ...], reason: str) -> None:
    answer = shell(*words)
    assert answer.code == 2
    assert reason in answer.err


def replayed(*words: str) -> tuple[int, str]:
    """Exit code and standard output; an error is raised, as ``dpcore.cli.app`` expects it."""
    app = typer.Typer()
    app.command()(replay_command)
    outcome = CliRunner().invoke(app, [*words])
    if isinstance(outcome.exception, InvalidParameter | TargetFailed):
        raise outcome.exception
    return outcome.exit_code, outcome.stdout


def test_a_refuted_declaration_exits_with_1() -> None:
    code, shown = replayed("clipped-to-two", "--sensitivity", "1", "--seed", "7")
    assert code == 1
    assert shown.startswith("REFUTED  the declared sensitivity of clipped-to-two on A = 0, B = 2")
    assert "--seed 7" in shown


def test_a_fault_exits_with_1_and_is_not_called_refuted() -> None:
    code, shown = replayed("raw-in-a-hundred")
    assert code == 1
    assert shown.startswith("FAULTS FOUND")


def test_nothing_found_exits_with_0() -> None:
    code, shown = replayed("clipped-to-one", "--sensitivity", "1", "--strict", "--json")
    assert code == 0
    found = json.loads(shown)
    assert found["verdict"] == "nothing_found"
    assert found["declared"] == {"sensitivity": "1", "norm": "l1", "strict": True}


def test_what_cannot_be_replayed_exits_with_3() -> None:
    code, shown = replayed("exec:cat", "--pair", "0", "1")
    assert code == 3
    assert shown.startswith("CANNOT BE REPLAYED")


def test_a_target_that_fails_exits_with_3() -> None:
    with pytest.raises(TargetFailed) as caught:
        replayed("operator:neg", "--pair", "[]", "[1]")
    assert caught.value.exit_code == 3


def test_a_pair_that_was_left_out_is_asked_for_by_name() -> None:
    # The target runs in another process, so the missing pair is detected there.
    with pytest.raises(InvalidParameter, match=r"^--pair: must be given"):
        replayed("examples/broken_counter.py:visitors")
