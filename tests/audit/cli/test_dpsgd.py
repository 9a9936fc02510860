"""Tests of `dpcore audit dpsgd`, the check of a DP-SGD training step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.alpha_budget import buy_alpha
from tests.support.audit import training_steps
from tests.support.audit.command import Shell

ALPHA = buy_alpha("the dpsgd command passes a step as stated", "1e-9")
STATED = [
    "--records", 2000, "--rate", 0.05, "--noise-multiplier", 1.5, "--clip", 0.5,
    "--dimension", 200, "--draws", 4000, "--batches", 200, "--seed", 1, "--alpha", ALPHA,
]  # fmt: skip


@pytest.fixture
def shell(command: Callable[..., Shell]) -> Shell:
    shutil.copy(training_steps.__file__, "steps.py")
    return command("dpsgd")


def test_a_correct_step_passes_and_broken_steps_do_not(shell: Shell) -> None:
    found = shell("steps.py:Right", *STATED)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("NOT REFUTED AT THIS RESOLUTION  steps.py:Right")
    found = shell("steps.py:ActualSize", *STATED)
    assert found.code == 1
    assert "normaliser     FAULT" in found.out
    found = shell("steps.py:TenthLessNoise", *STATED, "--json")
    assert found.code == 1
    document = json.loads(found.out)
    assert [c["name"] for c in document["checks"] if c["verdict"] == "refuted"] == ["noise"]
    assert shell("steps.py:OwnNoise", *STATED).code == 4


@pytest.mark.parametrize(("library", "extra"), [("opacus", "opacus"), ("jax-privacy", "bench")])
def test_a_library_that_is_missing_is_named_with_its_extra(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, library: str, extra: str
) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("audit.training.library_steps.import_module", absent)
    found = shell(library, *STATED)
    assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)
    assert found.err.startswith(f"error: STEP = {library}: needs {library} (")
    assert found.err.endswith(f"pip install 'dpcore[{extra}]'\n")


def test_an_invalid_or_failing_step_gives_a_one_line_error(shell: Shell) -> None:
    found = shell("steps.py:RECORDS", *STATED)
    assert (found.code, len(found.err.splitlines())) == (2, 1)
    assert found.err.startswith("error: STEP = steps.py:RECORDS: must have a method sample")
    Path("bad.py").write_text(
        "class Step:\n"
        "    def sample(self, rng):\n        raise OSError('no data')\n"
        "    def update(self, gradients, rng):\n        return gradients[0]\n"
    )
    found = shell("bad.py:Step", *STATED)
    assert found.code == 3
    assert "no data" in found.err
