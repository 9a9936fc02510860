r"""Tests of environment variables: leftover variables do not change the command."""

from __future__ import annotations

import pytest

import dpcore.cli.app

DRAW = ["sample", "discrete-laplace:scale=10", "--seed", "1"]
Capture = pytest.CaptureFixture[str]

LEFT_OVER = [
    *("", "_", "1", "nonsense", "bash_source", "complete_", "source_nonsense", "\x1b[31m_bash"),
    *("complete_bash", "complete_bash ", "x_complete_bash"),
]


@pytest.mark.parametrize("left", LEFT_OVER)
def test_a_request_for_completions_that_no_shell_made_is_ignored(
    left: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert dpcore.cli.app.run(DRAW) == 0
    wanted = capsys.readouterr()
    monkeypatch.setenv("_DPCORE_COMPLETE", left)
    assert dpcore.cli.app.run(DRAW) == 0
    assert capsys.readouterr() == wanted


def test_a_shell_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("_DPCORE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "dpcore sam")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert dpcore.cli.app.run([]) == 0
    assert capsys.readouterr().out == "sample\n"


def test_variables_that_are_believed_are_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(dpcore.cli.app, "_ignore_wrong_variables", lambda: None)
    monkeypatch.setenv("_DPCORE_COMPLETE", "nonsense")
    assert dpcore.cli.app.run(DRAW) != 0
    monkeypatch.setenv("_DPCORE_COMPLETE", "complete_bash")
    assert dpcore.cli.app.run(DRAW) == dpcore.cli.app.DEFECT
    monkeypatch.delenv("_DPCORE_COMPLETE")
    monkeypatch.setenv("COLUMNS", "99999999999999999999")
    assert dpcore.cli.app.run(["--help"]) == dpcore.cli.app.DEFECT
    capsys.readouterr()
