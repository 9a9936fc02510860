"""Tests of `dpcore audit canaries` and `dpcore audit dpsgd`: exit codes, files and errors."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from tests.alpha_budget import buy_alpha
from tests.support.audit import training_steps
from tests.support.audit.command import Shell


@pytest.fixture
def shell(command: Callable[..., Shell]) -> Shell:
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, 2000)
    for name, mu in (("leaking", 3.0), ("null", 0.0)):
        scores = mu * coins + rng.normal(size=2000)
        rows = [f"{i},{s},{c}" for i, (s, c) in enumerate(zip(scores, coins, strict=True))]
        Path(f"{name}.csv").write_text("\n".join(["canary,score,included", *rows]) + "\n")
    return command("canaries")


def test_a_leak_is_refuted_and_null_scores_are_not(shell: Shell) -> None:
    found = shell("leaking.csv", "--claim", "epsilon=1,delta=1e-5")
    assert (found.code, found.err) == (1, "")
    assert found.out.startswith("REFUTED  the training violates epsilon=1,delta=0.00001")
    found = shell("null.csv", "--claim", "epsilon=1,delta=1e-5", "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json["verdict"] == "not_refuted"
    assert found.json["epsilon_lower"] < 0.5


def test_a_claim_beyond_reach_gives_exit_code_4(shell: Shell) -> None:
    found = shell("leaking.csv", "--claim", "epsilon=9,delta=1e-5")
    assert found.code == 4
    assert found.out.startswith("NOTHING MEASURED")
    assert "2,000 canaries cannot refute epsilon=9" in found.err
    found = shell("null.csv", "--claim", "epsilon=1", "--alpha", "1e-400")
    assert "at most 1 of 10^400 such audits" in " ".join(found.out.split())


CLAIM = ("--claim", "epsilon=1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "score"),
        ("score\n1\n", "included"),
        ("score,included\n", "no canaries"),
        ("score,included\n1,0\nx,1\n", "line 3: score = x: must be a finite number"),
        ("score,included\n1,0\n2,maybe\n", "line 3: included = maybe: must be 1 or 0"),
        ("score,included\n1,0\n2\n", "line 3"),
        ('score,included\n"1,0\n', "CSV"),
        ({"score": [1.0]}, "two arrays of equal length: score and included"),
        ({"score": [1.0, np.nan], "included": [1, 0]}, "scores[1] = nan: must be a finite number"),
        ({"score": [object()], "included": [1]}, "is not an .npz file of numbers"),
        (b"PK\x03\x04 no archive", "is not an .npz file of numbers"),
        (None, "scores.npz: "),
    ],
    ids=str,
)
def test_a_bad_file_gives_a_one_line_error(shell: Shell, text: Any, said: str) -> None:
    name = "bad.csv" if isinstance(text, str) else "scores.npz"
    if isinstance(text, dict):
        saved(**text)
    elif text is not None:
        Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    found = shell(name, *CLAIM)
    assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)
    assert said in found.err


def saved(**arrays: Any) -> str:
    np.savez("scores.npz", **arrays)
    return "scores.npz"


def test_arrays_of_numpy_and_standard_input_give_the_result_of_the_csv_file(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("leaking.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    score = np.array([float(row["score"]) for row in rows])
    included = np.array([row["included"] == "1" for row in rows])
    expected = shell("leaking.csv", *CLAIM, "--json").out
    for kind in (np.bool_, np.int8, np.float64):
        given = saved(score=score, included=included.astype(kind), id=3)
        assert shell(given, *CLAIM, "--json").out == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    gdp = ("--claim", "gdp=1", "--json")
    assert shell("-", *gdp).out == shell("leaking.csv", *gdp).out


def test_the_html_page_agrees_with_the_report(shell: Shell) -> None:
    found = shell("leaking.csv", *CLAIM, "--html", "page.html", "--json")
    report, shown = found.json, Path("page.html").read_text()
    assert "<strong>REFUTED</strong>" in shown
    assert f"{report['right']:,} of {report['guesses']:,} right" in shown
    assert all(escape(sentence) in shown for sentence in report["assumptions"])
    cells = report["histogram"]
    assert all(f"<td>{cell[2]:,}</td><td>{cell[3]:,}</td>" in shown for cell in cells)
    assert "src=" not in shown
    before = Path("leaking.csv").read_text()
    found = shell("leaking.csv", *CLAIM, "--html", "leaking.csv")
    why = "would overwrite the file of SCORES: choose another path"
    assert (found.code, found.err) == (2, f"error: --html = leaking.csv: {why}\n")
    assert Path("leaking.csv").read_text() == before


ALPHA = buy_alpha("the dpsgd command passes a step as stated", "1e-9")
STATED = [
    "--records", 2000, "--rate", 0.05, "--noise-multiplier", 1.5, "--clip", 0.5,
    "--dimension", 200, "--draws", 4000, "--batches", 200, "--seed", 1, "--alpha", ALPHA,
]  # fmt: skip


@pytest.fixture
def step_shell(command: Callable[..., Shell]) -> Shell:
    shutil.copy(training_steps.__file__, "steps.py")
    return command("dpsgd")


def test_a_correct_step_passes_and_broken_steps_do_not(step_shell: Shell) -> None:
    found = step_shell("steps.py:Right", *STATED)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("NOT REFUTED AT THIS RESOLUTION  steps.py:Right")
    found = step_shell("steps.py:ActualSize", *STATED)
    assert found.code == 1
    assert "normaliser     FAULT" in found.out
    found = step_shell("steps.py:TenthLessNoise", *STATED, "--json")
    assert found.code == 1
    document = json.loads(found.out)
    assert [c["name"] for c in document["checks"] if c["verdict"] == "refuted"] == ["noise"]
    assert step_shell("steps.py:OwnNoise", *STATED).code == 4


@pytest.mark.parametrize(("library", "extra"), [("opacus", "opacus"), ("jax-privacy", "bench")])
def test_a_library_that_is_missing_is_named_with_its_extra(
    step_shell: Shell, monkeypatch: pytest.MonkeyPatch, library: str, extra: str
) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("audit.training.opacus_and_jax_adapters.import_module", absent)
    found = step_shell(library, *STATED)
    assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)
    assert found.err.startswith(f"error: STEP = {library}: needs {library} (")
    assert found.err.endswith(f"pip install 'dpcore[{extra}]'\n")


def test_an_invalid_or_failing_step_gives_a_one_line_error(step_shell: Shell) -> None:
    found = step_shell("steps.py:RECORDS", *STATED)
    assert (found.code, len(found.err.splitlines())) == (2, 1)
    assert found.err.startswith("error: STEP = steps.py:RECORDS: must have a method sample")
    Path("bad.py").write_text(
        "class Step:\n"
        "    def sample(self, rng):\n        raise OSError('no data')\n"
        "    def update(self, gradients, rng):\n        return gradients[0]\n"
    )
    found = step_shell("bad.py:Step", *STATED)
    assert found.code == 3
    assert "no data" in found.err
