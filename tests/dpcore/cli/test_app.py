"""Tests of the top-level command: sample, pmf, options, variables, and every exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import IO

import mpmath
import pytest

import dpcore.cli.app
import dpcore.errors
from dpcore import DiscreteLaplace, SeededRng
from dpcore.cli import options
from dpcore.cli.options import OutOfTime, time_limit
from dpcore.errors import DEFECT
from tests.day_and_nightly import by_day
from tests.support.run_command import ROOT, python, typed

LAPLACE = "discrete-laplace:scale=10"
START = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); import dpcore.cli.app; dpcore.cli.app.main()"
)

Capture = pytest.CaptureFixture[str]


def start(
    *words: str, stdout: int | IO[bytes], env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a real process: its standard output may be a full disk or a closed pipe."""
    command = [sys.executable, "-c", START, *words]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=env)


def test_draws_are_those_of_the_library_one_per_line(capsys: Capture) -> None:
    assert dpcore.cli.app.run(["sample", LAPLACE, "-n", "1e2", "--seed", "1"]) == 0
    drawn = DiscreteLaplace(scale=10).sample(100, rng=SeededRng(1)).tolist()
    assert capsys.readouterr().out == "".join(f"{value}\n" for value in drawn)


@pytest.mark.parametrize("before", [[], ["--"]])
def test_printed_bounds_enclose_the_mass(capsys: Capture, before: list[str]) -> None:
    values = ["-1", "0", "12", "-30"]
    assert dpcore.cli.app.run(["pmf", LAPLACE, *before, *values]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == values
    with mpmath.workdps(40):
        for k, lower, upper in rows:
            mass = mpmath.tanh(mpmath.mpf(1) / 20) * mpmath.exp(-mpmath.mpf(abs(int(k))) / 10)
            assert mpmath.mpf(float(lower)) <= mass <= mpmath.mpf(float(upper))
            assert Fraction(upper) - Fraction(lower) <= Fraction(lower) / 2**51


def test_bounds_as_json_are_never_minus_zero(capsys: Capture) -> None:
    far = "1000000000000000000000000"
    assert dpcore.cli.app.run(["pmf", LAPLACE, "--json", "0", far]) == 0
    out = capsys.readouterr().out
    near, away = json.loads(out)["pmf"]
    assert near["lower"] < near["upper"]
    assert away == {"k": int(far), "lower": 0.0, "upper": 5e-324}
    assert "-0.0" not in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["sample", "laplace"], "NOISE = laplace: must start with one of discrete-laplace"),
        (["sample", "discrete-laplace:scale=0"], "NOISE = discrete-laplace:scale=0: scale must be"),
        (["sample", LAPLACE, "-n", "1.5"], "-n = 1.5: must be a whole number >= 0"),
        (["sample", LAPLACE, "-n", "1e30"], "-n = 1000000000000000000000000000000: does not fit"),
        (["sample", LAPLACE, "--seed", "-1"], "--seed = -1: must be a whole number >= 0"),
        (["sample"], "Missing argument 'NOISE'; see dpcore sample --help"),
        (["pmf", LAPLACE, "--nosuch"], "K = --nosuch: must be a whole number, e.g. 10"),
        (["pmf", LAPLACE, "1", "--bits", "0"], "--bits = 0: must be a whole number from 8 to 2^20"),
        (["smaple"], "No such command 'smaple': did you mean sample? see dpcore --help"),
        (["audit", "count", "--pair", "0"], "requires 2 arguments; see dpcore audit --help"),
        (["ledger", "spend"], "No such command 'spend'; the commands are open, charge, show, "),
        (["--nosuch"], "No such option: --nosuch"),
        (["pmf", LAPLACE, "0", "--within", "0"], "--within = 0"),
        (["pmf", LAPLACE, "0", "--within", "1/2"], "--within = 1/2"),
        (["pmf", LAPLACE, "0", "--within", "1e309"], "--within = 1"),
        (["budget", "dpsgd", "--steps", "1"], "--steps (Possible options: --rounds);"),
        (["budget", "epsilon", "--sampling-rate", "1"], "(Possible options: --poisson);"),
        (["audit", "count", "--epsilon", "1"], "--epsilon (Possible options: --claim);"),
        (["bandit", "run", "cz/easy", "--trials", "3"], "(Possible options: --instances);"),
        (["release", "mean", "x.csv", "--by", "city"], "No such option: --by; see dpcore release"),
        (["budget", "dpsgd", "--target-epsilon", "3"], "(Possible options: --epsilon);"),
        (
            ["release", "mean", "x.csv", "--clip", "0,9", "--user", "u", "--column", "x"],
            "Option '--clip' requires 2 arguments, but --user is one of them; see dpcore release m",
        ),
        (["audit", "count", "--pair", "0", "--claim=epsilon=1", "1"], "but --claim=epsilon=1 is"),
    ],
)
def test_bad_input_gives_a_one_line_error_and_exit_code_2(
    capsys: Capture, words: list[str], complaint: str
) -> None:
    assert dpcore.cli.app.run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert complaint in line


def test_debug_shows_the_traceback_at_any_position(capsys: Capture) -> None:
    for words in (["--debug", "sample", "x"], ["sample", "x", "--debug"]):
        assert dpcore.cli.app.run(words) == 2
        err = capsys.readouterr().err
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("error: NOISE = x")


def test_a_bug_never_looks_like_a_verdict(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(argument: str, text: str) -> None:
        raise RuntimeError(f"slip\nin {text}")

    monkeypatch.setattr(dpcore.cli.app, "read_law", broken)
    assert dpcore.cli.app.run(["sample", LAPLACE]) == DEFECT
    (line,) = capsys.readouterr().err.splitlines()
    assert f"RuntimeError: slip in {LAPLACE} at test_app.py:" in line


@pytest.mark.parametrize("words", [["sample", LAPLACE, "-n", "1"], ["--help"]])
def test_a_closed_pipe_gives_exit_code_141_silently(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    running = start(*words, stdout=write)
    os.close(write)
    _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (128 + signal.SIGPIPE, b"")


@by_day(1)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_may_close_the_pipe_early(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    words = ("sample", LAPLACE, "-n", "1e6", "--seed", "1")
    running = start(*words, stdout=subprocess.PIPE, env=environment)
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline() == b"-1\n"
    running.stdout.close()
    assert running.wait(timeout=30) == 128 + signal.SIGPIPE
    assert running.stderr.read() == b""
    running.stderr.close()


@by_day(1)
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["sample", LAPLACE], ["pmf", LAPLACE, "0", "--json"]])
def test_a_full_disk_gives_a_one_line_error_and_exit_code_2(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        running = start(*words, stdout=full)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 2
    assert err == b"error: standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (f"sample {LAPLACE} >&- 2>&-", 0, ""),
        ("verify - <&-", 2, "error: FILE = -: is not a certificate"),
        ("verify - <&- >&-", 2, "error: FILE = -: is not a certificate"),
    ],
)
def test_closed_streams_are_empty_and_not_an_error(words: str, code: int, said: str) -> None:
    begin = START.replace(repr(str(ROOT)), f'"{ROOT}"')
    command = ["sh", "-c", f"{sys.executable} -c '{begin}' {words}"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == code
    assert said in done.stderr


def busy(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_a_computation_is_stopped_only_beyond_its_time_limit() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(OutOfTime, match="no answer within 1 s of"), time_limit(1):
        busy(3)
    with time_limit(5):
        busy(0.01)
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_draws_have_no_default_time_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    @contextmanager
    def noted(seconds: int) -> Iterator[None]:
        limits.append(seconds)
        yield

    monkeypatch.setattr(options, "time_limit", noted)
    noise = "discrete-laplace:scale=1"
    assert typed(capsys, "sample", noise).code == 0
    assert limits == []
    assert typed(capsys, "sample", noise, "--within", "7").code == 0
    assert typed(capsys, "pmf", noise, "0").code == 0
    assert limits == [7, 60]


INTERRUPTED_IMPORT = """
import sys
from dpcore.__main__ import main
class Interrupted:
    def find_spec(self, name, *rest):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
main()
"""


def test_ctrl_c_while_the_command_is_imported_gives_its_exit_code() -> None:
    run = python("-c", INTERRUPTED_IMPORT)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")
    # The console script starts there.
    assert 'dpcore = "dpcore.__main__:main"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_only_a_valid_completion_request_of_a_shell_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    draw = ["sample", LAPLACE, "--seed", "1"]
    assert dpcore.cli.app.run(draw) == 0
    wanted = capsys.readouterr()
    invalid = (
        "",
        "_",
        "nonsense",
        "\x1b[31m_bash",
        "complete_bash",
        "complete_bash ",
        "bash_source",
    )
    for left in invalid:  # a valid one has two other variables
        monkeypatch.setenv("_DPCORE_COMPLETE", left)
        assert dpcore.cli.app.run(draw) == 0
        assert capsys.readouterr() == wanted
    with monkeypatch.context() as trusting:
        trusting.setattr(dpcore.cli.app, "_ignore_wrong_variables", lambda: None)
        trusting.setenv("_DPCORE_COMPLETE", "complete_bash")
        assert dpcore.cli.app.run(draw) == DEFECT
        trusting.delenv("_DPCORE_COMPLETE")
        trusting.setenv("COLUMNS", "99999999999999999999")
        assert dpcore.cli.app.run(["--help"]) == DEFECT
        capsys.readouterr()
    monkeypatch.setenv("_DPCORE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "dpcore sam")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert dpcore.cli.app.run([]) == 0
    assert capsys.readouterr().out == "sample\n"


def test_the_page_of_exit_codes_lists_those_that_commands_use() -> None:
    page = (ROOT / "docs/reference/exit_codes.md").read_text()
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert listed == sorted(
        v for name, v in vars(dpcore.errors).items() if type(v) is int and name[0] != "_"
    )
