r"""A program that the system cannot start says what to write instead."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from audit.errors import TargetFailed
from tests.support.audit.command import Shell


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("naive.js", "exec:node ./naive.js 3 'a b'"),
        ("naive.PY", "exec:python3 ./naive.PY 3 'a b'"),
        ("naive", "exec:INTERPRETER ./naive 3 'a b'"),
    ],
)
def test_without_a_first_line_the_interpreter_is_named(
    audit: Shell, tmp_path: Path, name: str, advice: str
) -> None:
    file = tmp_path / name
    file.write_text("console.log(1)\n")
    file.chmod(0o755)
    answer = audit(f"exec:./{name} 3 'a b'", "--claim", "epsilon=1", "--pair", 0, 1, "-n", 40)
    assert answer.code == TargetFailed.exit_code
    said = " ".join(answer.err.split())
    before, _, words = said.partition("could not be started: it has no #! line; try ")
    assert before
    assert shlex.split(words)[0] == advice


def test_another_reason_is_told_as_it_is(audit: Shell, tmp_path: Path) -> None:
    file = tmp_path / "lost"
    file.write_text("#!/no/such/interpreter\n")
    file.chmod(0o755)
    answer = audit("exec:./lost", "--claim", "epsilon=1", "--pair", 0, 1, "-n", 40)
    assert answer.code == TargetFailed.exit_code
    assert "could not be started: No such file" in " ".join(answer.err.split())
