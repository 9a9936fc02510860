r"""Fuzz tests of ``dpcore``: every line gives a result or a one-line error; no traceback, no 70."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

import dpcore.cli.app
from tests.day_and_nightly import by_day, effort
from tests.repository.command_grammar import HOSTILE, TYPED, line
from tests.support.run_command import Answer, typed

LINES = effort(2, 8)


def wrong(answer: Answer, words: Sequence[str]) -> str | None:
    r"""Return the fault of the answer to a command, or None."""
    if answer.code not in ((0, 1, 2, 4) if words[:2] == ("budget", "check") else (0, 2)):
        return f"exit code {answer.code}: {answer.err[:200]}"
    if "Traceback" in answer.err or answer.err.count("\n") > 1:
        return f"more than one line of error: {answer.err[:200]}"
    if (answer.code != 2) == answer.err.startswith("error: "):
        return f"exit code {answer.code} and {answer.err[:200]!r}"
    return None


@pytest.mark.parametrize("words", TYPED, ids="-".join)
def test_hostile_command_lines_are_answered_or_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    rng = Random(12)
    for _ in range(LINES):
        asked = line(rng, words)
        assert (wrong(typed(capsys, *asked), words), asked) == (None, asked)


@by_day(16)
@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_every_hostile_value_of_a_fast_option_is_answered_or_refused(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    law = "discrete-laplace:scale=10"
    for words in (
        ["sample", f"discrete-laplace:scale={value}"],
        ["sample", law, "--seed", value],
        ["pmf", law, value, "--bits", "64"],
        ["budget", "epsilon", "--noise", law, "--delta", value],
        ["budget", "delta", "--noise", law, "--epsilon", value],
        ["budget", "calibrate", "--noise", "discrete-laplace", "--epsilon", value],
    ):
        assert (wrong(typed(capsys, *words), words), words) == (None, words)


def test_a_failing_command_is_detected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(argument: str, text: str) -> None:
        raise RuntimeError("slip")

    monkeypatch.setattr(dpcore.cli.app, "read_law", broken)
    asked = ("sample", "discrete-laplace:scale=1")
    assert "70" in str(wrong(typed(capsys, *asked), asked))
