"""Tests of `dpcore audit fit` and `dpcore audit replay`: exit codes, JSON and error messages."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.alpha_budget import buy_alpha
from tests.support.audit.command import ROOT, Shell

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


def test_a_wrong_law_gives_exit_code_1_and_a_witness(shell: Shell) -> None:
    answer = shell("samplers.py:good", "--law", TWO, "-n", "1e4", "--seed", 7)
    assert answer.code == 1
    assert answer.out.startswith("REFUTED  samplers.py:good does not follow")
    assert "of 10,000 draws" in answer.out
    assert "a word of the target" not in answer.out


def test_a_correct_law_gives_exit_code_0(shell: Shell) -> None:
    law = "binomial:trials=1,probability=1/2"
    answer = shell("samplers.py:one", "--law", law, "-n", 2000, "--seed", 7, "--alpha", ALPHA)
    assert answer.code == 0
    assert answer.out.startswith("NOT REFUTED AT THIS RESOLUTION")
    assert "--seed 7" in answer.out


def test_json_is_one_document(shell: Shell) -> None:
    answer = shell("half-scale", "--law", TWO, "--sequential", "-n", "1e4", "--seed", 7, "--json")
    assert answer.code == 1
    found = answer.json
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
    assert "error: exec:./zeros: wrote 'zero': one integer per line is required" in answer.err


def test_a_failing_target_gives_exit_code_3(shell: Shell) -> None:
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
def test_wrong_usage_gives_exit_code_2(
    shell: Shell, words: tuple[object, ...], reason: str
) -> None:
    answer = shell(*words)
    assert answer.code == 2
    assert reason in answer.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("clipped-to-two", "--sensitivity", 1, "--seed", 7),
            1,
            "REFUTED  the declared sensitivity of clipped-to-two on A = 0, B = 2",
        ),
        (("raw-in-a-hundred",), 1, "FAULTS FOUND"),
        (("exec:cat", "--pair", 0, 1), 3, "CANNOT BE REPLAYED"),
        (("operator:neg", "--pair", "[]", "[1]"), 3, "error: operator:neg: raised TypeError"),
        # The target runs in another process, so the missing pair is detected there.
        ((f"{ROOT}/examples/broken_counter.py:visitors",), 2, "error: --pair: must be given"),
    ],
)
def test_the_exit_code_of_a_replay_follows_its_findings(
    command: Callable[..., Shell], words: tuple[object, ...], code: int, said: str
) -> None:
    answer = command("replay")(*words)
    assert answer.code == code
    assert (answer.out or answer.err).startswith(said)


def test_a_replay_without_findings_gives_exit_code_0(command: Callable[..., Shell]) -> None:
    answer = command("replay")("clipped-to-one", "--sensitivity", 1, "--strict", "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "nothing_found")
    assert answer.json["declared"] == {"sensitivity": "1", "norm": "l1", "strict": True}
