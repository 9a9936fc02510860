"""Tests of `dpcore audit`: verdicts, exit codes, JSON, files, invalid input."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from audit.broken_mechanisms import ENTRIES
from audit.cli.commands import commands
from audit.formats.result import json_schema
from audit.report.audit_report import AuditReport
from audit.targets.target_syntax import _AUDITS
from tests.support.audit.command import ALPHA, START, Shell, arguments, at

# -- verdicts and exit codes ------------------------------------------------------------------


def test_a_false_claim_is_refuted_with_a_witness(audit: Shell, here: Path) -> None:
    shutil.copy(here / "targets.py", here / "catalogue.py")  # a name of a subcommand needs its path
    words = ("./catalogue.py:coin", *at("coin", epsilon=0.8, n=20_000)[1:])
    answer = audit(*words, "-o", "found.json")
    assert answer.code == 1
    assert answer.out.startswith("REFUTED  ./catalogue.py:coin violates epsilon=0.8\n")
    witness = json.loads((here / "found.json").read_text())["witness"]
    assert witness["event"] in {"output in {True}", "output in {False}"}
    inside, runs = ("inside_b", "runs_b") if witness["world"] == "B" else ("inside_a", "runs_a")
    assert 0.7 < witness[inside] / witness[runs] < 0.8


def test_a_true_claim_is_not_refuted_and_the_json_document_has_every_key(audit: Shell) -> None:
    answer = audit(*at("laplace"), "--json", "-o", "found.json")
    found = answer.json
    assert [*found] == json_schema(AuditReport)["required"]
    assert found["claim"] == {"epsilon": "1", "delta": "0", "relation": "replace"}
    assert (answer.code, found["pair"], found["verdict"]) == (0, [0, 1], "not_refuted")
    assert found["runs"] == 2000 == sum(found["runs_by_world"].values())
    assert ALPHA < found["p_value"] <= 1
    assert found["e_value"] is found["error"] is None
    assert found["warnings"] == []
    assert found["stopped"] == "as many as planned"
    assert answer.err == "imported\n"
    # The same audit as text, and both in files: a seed determines the whole report.
    Path("again.json").write_text("old")
    told = audit(*at("laplace"), "-o", "again.json").out
    assert told.startswith("NOT REFUTED AT THIS RESOLUTION  targets.py:laplace on epsilon=1\n")
    assert Path("found.json").read_text() == Path("again.json").read_text() == answer.out
    assert [*Path.cwd().glob(".*")] == []
    assert audit(*at("laplace", seed=8), "--json").json["p_value"] != found["p_value"]


def test_an_entry_of_the_catalogue_brings_its_pair_claim_and_relation(audit: Shell) -> None:
    answer = audit("half-scale", "-n", 2000, "--seed", 7, "--json")
    assert (answer.code, answer.json["pair"]) == (1, [0, 1])
    other = audit("half-scale", "--claim", "epsilon=2", "-n", 2000, "--alpha", ALPHA, "--json")
    assert (other.code, other.json["claim"]["epsilon"]) == (0, "2")
    assert audit("inverted-scale", "-n", 500, "--json").json["claim"]["relation"] == "add-remove"


def test_the_catalogue_is_listed(audit: Shell) -> None:
    answer = audit("catalogue")
    assert answer.code == 0
    names = {line.split()[0] for line in answer.out.splitlines()[1:] if not line.startswith(" ")}
    assert names == {entry.name for entry in ENTRIES}
    rows = audit("catalogue", "--json").json["entries"]
    assert [row["name"] for row in rows] == [entry.name for entry in ENTRIES]


def test_resolution_not_reached_exits_with_4_unless_refuted(audit: Shell) -> None:
    assert audit(*at("laplace"), "--resolution", "0.5").code == 0
    answer = audit(*at("laplace"), "--resolution", "1e-4", "--json")
    assert answer.code == 4
    assert answer.json["verdict"] == "not_refuted"
    assert answer.json["resolution"] > 1e-4
    assert "error: --resolution = 1e-4: not reached: a revealing output in fewer than" in answer.err
    few = audit(*at("laplace", n=2), "--resolution", "1e-4")
    assert few.code == 4
    assert few.out.startswith("NOTHING MEASURED")
    assert "nothing was measured: 2 runs are too few to refute the claim reliably" in few.err
    assert audit(*at("unnoised"), "--resolution", "1e-4").code == 1


def test_a_seed_that_was_drawn_is_stated_and_repeats_the_audit(audit: Shell) -> None:
    drawn = audit("half-scale", "-n", 500, "--json")
    again = audit("half-scale", "-n", 500, "--seed", drawn.json["seed"], "--json")
    assert again.out == drawn.out
    assert drawn.json["repeatable"]


def test_a_target_with_its_own_randomness_is_not_called_reproducible(audit: Shell) -> None:
    Path("own.py").write_text(
        "import json, random, sys\n"
        "for _ in range(json.load(sys.stdin)['n']): print(random.randrange(10**6))\n"
    )
    for target in ("discrete-laplace:scale=1", f"exec:{sys.executable} own.py"):
        answer = audit(target, "--claim", "epsilon=1", "--pair", 0, 1, "-n", 200,
                       "--layers", "sample", "--json")  # fmt: skip
        assert not answer.json["repeatable"]


def test_a_report_is_written_to_a_pipe_and_never_in_part(
    audit: Shell, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(here / "pipe")
    reader = os.open(here / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    answer = audit(*at("laplace", n=100), "--json", "-o", "pipe")
    assert os.read(reader, 1 << 16).decode() == answer.out
    os.close(reader)
    (here / "kept.json").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = audit(*at("laplace", n=200), "-o", "kept.json")
    assert answer.code == 2
    assert "error: --output = kept.json: No space left on device" in answer.err
    assert answer.out.startswith("NOT REFUTED")  # a finished audit is still printed
    assert (here / "kept.json").read_text() == "old"
    assert [path.name for path in here.iterdir() if "kept" in path.name] == ["kept.json"]


def test_the_file_is_written_even_if_standard_output_fails(here: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    words = arguments(*at("unnoised", n=500), "-o", "kept.json")
    running = subprocess.run(
        [sys.executable, "-c", START, *words], cwd=here, stdout=write, check=False, timeout=60
    )
    os.close(write)
    assert running.returncode == 141  # not 1, which would mean "refuted"
    assert json.loads((here / "kept.json").read_text())["verdict"] == "refuted"


@pytest.mark.nightly
def test_a_locale_that_lacks_characters_is_no_error(here: Path) -> None:
    (here / "letters.py").write_text("def same(text):\n    return text\n", encoding="utf-8")
    words = ("letters.py:same", "--claim", "epsilon=1", "--pair", '"\\u00e9"', '"x"', "-n", 200)
    answer = subprocess.run(
        [sys.executable, "-c", START, *arguments(*words)],
        cwd=here,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (1, b"")
    assert rb"output in {'\xe9'}" in answer.stdout or b"output in {'x'}" in answer.stdout


# -- invalid input ----------------------------------------------------------------------------


def test_a_misspelt_subcommand_is_suggested() -> None:
    assert {*_AUDITS, "run"} == {*vars(get_command(commands))["commands"]}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "TARGET: must be given; see dpcore audit --help"),
        (["targets.py:absent"], "TARGET = targets.py:absent: the module has no absent"),
        (["targets.py:word"], "is of type str, not a callable"),
        (["targets.py:three"], "must be callable as f(dataset), f(dataset, rng) or"),
        (["absent.py:f"], "there is no file absent.py"),
        (["absent.py::f"], "must have the form module:callable or file.py:callable"),
        (["no.such.module:f"], "no module named no"),
        (["half-scal"], "did you mean half-scale?"),
        (["laplace:scale=1"], "did you mean discrete-laplace:scale=1?"),
        (["exec:"], "does not name a program"),
        (["exec:./absent"], "the program ./absent was not found"),
        (["exec:./targets.py"], "the program ./targets.py is not executable: run chmod +x"),
        (["exec:'"], "cannot be split into words"),
        (["discrete-laplace:scale=1", "--pair", "0", "0.5"], "dataset B = 0.5: must be an integer"),
        (["half-scale", "--claim", "sigma=0.1"], "accepted forms are epsilon=E and epsilon=E,"),
        (["half-scale", "--pair", "0", "x"], "--pair: dataset B = x: must be JSON"),
        (["catalog"], "did you mean catalogue? a target is module:callable"),
        (["half-scale", "extra"], "Got unexpected extra argument(s) (extra)"),
        (["half-scale", "--pair", "0", "1", "--pairs", "x.toml"], "--pairs = "),
        (["half-scale", "--html", "."], ": is a directory"),
        (["half-scale", "--scheduler", "tcp://127.0.0.1:1"], "--scheduler = tcp://127.0.0.1:1"),
        (["targets.py:laplace", "--pair", "0", "1"], "--claim: must be given"),
    ],
)
def test_bad_input_gives_a_one_line_error_and_exit_code_2(
    audit: Shell, words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.sandbox.parallel_jobs._PATIENCE", 0.5)
    if "".join(words[:1]).startswith(("exec", "discrete", "no.", "absent")):
        words = [words[0], "--claim", "epsilon=1", "--pair", "0", "1", *words[1:]]
    answer = audit(*words)
    assert answer.code == 2
    assert answer.out == ""
    (line,) = [line for line in answer.err.splitlines() if line != "imported"]
    assert line.startswith("error: ")
    assert complaint in line


def test_a_file_that_fails_while_imported_gives_exit_code_3(audit: Shell, here: Path) -> None:
    (here / "broken.py").write_text("import absent_library\n")
    for target in ("broken.py:f", "broken:f"):
        answer = audit(target, "--claim", "epsilon=1", "--pair", 0, 1)
        assert answer.code == 3
        assert answer.err == (
            f"error: {target}: raised ModuleNotFoundError: No module named 'absent_library' at "
            "broken.py:1 while it was imported\n"
        )
    (here / "misspelt.py").write_text("\ndef f(:\n")
    answer = audit("misspelt.py:f", "--claim", "epsilon=1", "--pair", 0, 1)
    assert (answer.code, "at misspelt.py:2 while it was imported" in answer.err) == (3, True)


def test_debug_shows_the_traceback(audit: Shell) -> None:
    answer = audit(*at("raises_in_b"), "--debug")
    assert answer.code == 3
    assert re.search(r"Traceback[^$]*ValueError: no such user", answer.err)


def test_the_progress_bar_is_for_terminals_and_on_stderr(here: Path) -> None:
    keyboard, screen = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", START, *arguments(*at("tired", n=60), "--json")],
        cwd=here,
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=screen,
        text=True,
    )
    os.close(screen)
    shown = b""
    with contextlib.suppress(OSError):  # as if the terminal closed
        while piece := os.read(keyboard, 4096):
            shown += piece
    os.close(keyboard)
    out, _ = running.communicate(timeout=20)
    assert running.returncode == 4  # too few runs to measure anything
    assert re.search(rb"runs.*%", shown, re.DOTALL)
    assert json.loads(out)["runs"] == 60


COUNTED = """
def count(dataset, rng):
    with open("calls", "a") as file:
        file.write("x")
    return dataset + int(rng.integers(4))
"""


def test_an_audit_draws_no_run_twice(audit: Shell, here: Path) -> None:
    (here / "t.py").write_text(COUNTED)
    for claim in ("epsilon=1", "discrete-laplace:scale=1@1"):
        audit("t.py:count", "--pair", 0, 1, "--claim", claim, "-n", 200, "--seed", 7)
    # Per audit, the only extra runs are 8 per dataset, never tested, that check reproducibility.
    assert len((here / "calls").read_text()) == 2 * (200 + 2 * 8)
