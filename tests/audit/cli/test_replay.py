"""``dpcore audit replay``: what it prints and what it exits with."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from audit.cli.single import replay_command
from audit.errors import TargetFailed
from dpcore.errors import InvalidParameter


def replayed(*words: str) -> tuple[int, str]:
    """Exit code and standard output; a refusal is raised, as ``dpcore.command.app`` expects it."""
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


@pytest.mark.parametrize(
    ("option", "value"),
    [("--norm", "l3"), ("--tapes", "1"), ("--tapes", "2.5"), ("--changes", "-1"),
     ("--seed", "-1"), ("--timeout", "0"), ("--deadline", "x"), ("--sensitivity", "-1")],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(InvalidParameter, match=option.strip("-")):
        replayed("clipped-to-one", option, value)


def test_a_target_that_fails_exits_with_3() -> None:
    with pytest.raises(TargetFailed) as caught:
        replayed("operator:neg", "--pair", "[]", "[]")
    assert caught.value.exit_code == 3


def test_a_pair_that_was_left_out_is_asked_for_by_name() -> None:
    # The target is called by another process, which is who finds out.
    with pytest.raises(InvalidParameter, match=r"^--pair: must be given"):
        replayed("examples/broken_counter.py:visitors")
