r"""Tests of `dpcore.cli.terminal`: commands never print control characters from names."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcore import errors
from dpcore.cli import app as cli
from dpcore.cli import terminal
from dpcore.cli.terminal import fact, page, printable, progress_bar
from dpcore.errors import DEFECT
from tests.day_and_nightly import by_day, effort

ROOT = Path(__file__).parents[3]
HOSTILE = "\x1b[2J\x1b]0;mine\x07\x9b31m\u202etxt.\u2066\x85ok\nPROVEN: all\r\x08[bold red]x[/]"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def steers(shown: str) -> bool:
    r"""Whether ``shown`` contains control characters other than the command's own colours."""
    plain = COLOUR.sub("", shown).replace("\n", "")
    return not plain.isprintable() or any(line.startswith("PROVEN") for line in shown.split("\n"))


def test_control_characters_are_escaped() -> None:
    # By day all of two planes and of the tags, and every 17th sign of the others; nightly all.
    rest = range(0x20000, 0x110000, 17 // effort(1, 17))
    every = "".join(map(chr, (*range(0x20000), *range(0xE0000, 0xE0200), *rest)))
    assert printable(every).isprintable()
    assert printable("Zoë, 雪, [bold], a b") == "Zoë, 雪, [bold], a b"
    assert "\\x1b" in printable(HOSTILE)
    assert steers(HOSTILE)
    assert not steers(page(["a", HOSTILE]))


# The command, and the text that its output must contain: "" if the name is not repeated.
COMMANDS = [
    [HOSTILE],
    ["sample", HOSTILE],
    ["sample", f"discrete-laplace:scale={HOSTILE}"],
    ["sample", "discrete-laplace:scale=1", f"--{HOSTILE}"],
    ["--debug", "sample", HOSTILE],
    ["budget", "epsilon", "--noise", HOSTILE, "--delta", "1e-6"],
    ["verify", HOSTILE],
    ["ledger", "show", "--db", HOSTILE],
    ["audit", f"{HOSTILE}.py:f", "--claim", "epsilon=1", "--pair", "0", "1"],
    ["audit", "math:" + HOSTILE, "--claim", "epsilon=1", "--pair", "0", "1"],
    ["audit", "half-scale", "--resume", f"/nowhere/{HOSTILE}"],
    ["bandit", "run", HOSTILE],
    ["bandit", "plot", HOSTILE, "--output", HOSTILE],
]


@by_day(5)
@pytest.mark.parametrize("arguments", COMMANDS, ids=range(len(COMMANDS)))
def test_no_command_prints_control_characters_of_names(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(arguments)
    shown = "".join(capsys.readouterr())
    assert code not in {0, DEFECT}, shown
    assert shown
    assert not steers(shown)


TARGET = """
def f(data):
    return {"a\\x1b[31m\\nPROVEN \\u202e": data}
def g(data):
    raise ValueError("\\x1b[2J\\nPROVEN \\u202e")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "t\x1b[31m\u202e[red]\x07.py"
    path.write_text(TARGET)
    return str(path)


def answers(file: str, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    for name in "fg":
        for kind in ([], ["replay"]):
            cli.run(["audit", *kind, f"{file}:{name}", "--pair", '"\\u001b[2J"', "1", "--seed", "1"]
                    + ([] if kind else ["-n", "50", "--claim", "epsilon=1"]))  # fmt: skip
            yield "".join(capsys.readouterr())


def test_no_target_prints_control_characters(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for shown in answers(file, capsys):
        assert not steers(shown)
        assert "\\x1b" in shown


def test_printing_text_without_escapes_is_detected(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (terminal, errors):
        monkeypatch.setattr(module, "printable", str)
    monkeypatch.setattr("audit.cli.options_and_output.printable", str)
    assert all(map(steers, answers(file, capsys)))
    cli.run(["sample", HOSTILE])
    assert steers("".join(capsys.readouterr()))


def prints(source: str) -> list[int]:
    r"""Return the lines that print in another way, and are not JSON, help or constant text."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {"print", "typer.echo"}:
            given = ast.unparse(call.args[0])
            plain = isinstance(call.args[0], ast.Constant)
            if not plain and not given.startswith(("json.dumps(", "context.get_help(")):
                found.append(call.lineno)
    return found


def test_commands_print_only_through_the_terminal_module() -> None:
    commands = [path for path in ROOT.glob("*/cli/*.py") if path.parts[-3] != "dpcore"]
    assert len(commands) > 15
    for path in commands:
        # A line of the ledger's export is a JSON document.
        source = path.read_text(encoding="utf-8").replace("print(line)", "print('')")
        assert prints(source) == [], path
    assert prints("print(f'warning: {name}')\nprint('done')\nprint(json.dumps(x))") == [1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("total", "shown"), [(8, "50%"), (None, "sizes: 4")])
def test_progress_is_shown(total: int | None, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("sizes", total) as advance:
        for done in (1, 2, 3, 4):
            advance(done)
    assert shown in screen.getvalue()


def test_a_long_label_is_separated_from_its_value() -> None:
    assert fact("spent", "epsilon=1", margin=11) == "spent      epsilon=1"
    assert fact("in 2026-11-29", "epsilon=1", margin=11) == "in 2026-11-29 epsilon=1"
