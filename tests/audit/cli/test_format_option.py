"""Tests of the `--format` option, the GitHub action and the pre-commit hook."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.day_and_nightly import by_day
from tests.support.audit.command import Shell

ROOT = Path(__file__).parents[3]
LEAK = "def leak(x, n, rng):\n    return x + rng.geometric(0.999, n)\n"
ASKED = ("leak.py:leak", "--claim", "epsilon=1", "--pair", "0", "1", "-n", "2000", "--seed", "1")


@pytest.fixture(autouse=True)
def shell(command: Callable[..., Shell]) -> Shell:
    Path("leak.py").write_text(LEAK, encoding="utf-8")
    return command()


def test_every_audit_supports_each_format(shell: Shell) -> None:
    noise = "discrete-laplace:scale=1"
    (result,) = json.loads(shell(*ASKED, "--format", "sarif").out)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    for asked, code in (
        (ASKED, 1),
        (("fit", noise, "--law", "discrete-laplace:scale=9", "-n", "999"), 1),
        (("exact", f"{noise}@0", f"{noise}@1", "--claim", "epsilon=1"), 0),
        (("replay", "leak.py:leak", "--pair", "0", "1"), 0),
        (("bench", "half-scale", "--jobs", "1"), 0),
    ):
        found = shell(*asked, "--format", "junit")
        assert (found.code, found.out[:14]) == (code, "<?xml version=")
        found = shell(*asked, "--format", "sarif", "--json")
        refused = "error: --format = sarif: contradicts --json: give only one of the two\n"
        assert (found.code, found.out, found.err) == (2, "", refused)
        assert shell(*asked, "--format", "xml").code == 2


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@by_day(1)
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (ASKED, 1),
        (("discrete-laplace:scale=1", "--claim", "epsilon=1", "--pair", "0", "1"), 0),
        (("leak.py:leak", "--claim", "epsilon"), 2),
    ],
)
def test_the_action_runs_the_audit_and_returns_its_exit_code(
    asked: tuple[str, ...], code: int
) -> None:
    action = read("action.yml")
    install, audit = action["runs"]["steps"][1:]
    inputs = {name: given.get("default") for name, given in action["inputs"].items()}
    inputs["arguments"] = shlex.join(asked)
    for step in (install, audit):
        for name, value in step["env"].items():
            assert value in {f"${{{{ inputs.{name.lower()} }}}}", "${{ github.action_path }}"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {name: inputs[name.lower()] for name in audit["env"]}
    done = subprocess.run(
        ["bash", "-e", "-c", audit["run"]],
        env={**os.environ, "PATH": path, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    report = Path(action["inputs"]["report"]["default"]).read_text(encoding="utf-8")
    log = {0: "No findings.\n", 1: "The claim epsilon=1 does not hold.", 2: ""}[code]
    assert done.stdout.startswith(log)
    assert (len(json.loads(report)["runs"][0]["results"]) == code) if code < 2 else report == ""


def test_the_pre_commit_hook_names_an_existing_command(shell: Shell) -> None:
    (hook,) = read(".pre-commit-hooks.yaml")
    about = (hook["id"], hook["language"], hook["pass_filenames"])
    assert about == ("dpcore-audit", "python", False)
    program, group, *words = hook["entry"].split()
    assert (program, group) == ("dpcore", "audit")
    found = shell(*words, *ASKED)
    assert (found.code, found.out[:7]) == (1, "REFUTED")
