r"""Tests of options in texts: each option exists in the command with which it is mentioned."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dpcore.cli.app import app
from tests.day_and_nightly import spread

ROOT: Final = Path(__file__).parents[2]
TEXTS: Final = [
    *(ROOT / name for name in ("README.md", "pyproject.toml", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "Makefile",
    *sorted((ROOT / "docs").rglob("*.md")),
]
OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# From `dpcore` to the end of the code span, of the line, or of the command in a shell.
COMMAND: Final = re.compile(r"(?<![\w/.-])dpcore ((?:(?!dpcore )[^`|#\n])*)")
# Options of pytest, make, pip, the linters and the plugin, and of modules run by their name.
OTHERS: Final = {
    *("--deselect", "--dist", "--doctest-modules", "--import-mode", "--lf", "--maxfail"),
    *("--check", "--disable-pip-version-check", "--no-cache", "--no-compile", "--no-logo"),
    *("--durations", "--durations-min", "--ignore"),
    *("--keep-going", "--no-print-directory", "--output-sync"),
    *("--dp-alpha", "--dp-effort", "--dp-seed"),
    *("--mslr", "--rows", "--update"),
}


def tree(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    r"""Return every command by its words, including groups."""
    command = get_command(app) if command is None else command
    yield path, command
    for name in getattr(command, "list_commands", lambda context: [])(None):
        yield from tree(command.get_command(None, name), (*path, name))


COMMANDS: Final = dict(tree())
# `dpcore audit TARGET` is the short form.
UNLISTED: Final = {("audit", "run")}
# Options of `python -m benchmarks.figures`, and of pip and venv, which the corpus calls.
PARSED: Final = {"--only"} | {"--no-deps", "--no-input", "--python", "--quiet", "--without-pip"}
EXTRAS: Final = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
TARGETS: Final = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PATH: Final = re.compile(
    r"`((?:dpcore|accounting|audit|bandits|tests|benchmarks|docs|examples)/[\w./*-]+)`"
)


def options(path: tuple[str, ...]) -> set[str]:
    r"""Return the options of a command; for a group, also those of its default command."""
    found = {"--help", "--debug"}
    for words, command in COMMANDS.items():
        if words[: len(path)] == path:
            found |= {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return found


def mentioned_with(words: str) -> tuple[str, ...]:
    path: tuple[str, ...] = ()
    for word in words.split():
        if (*path, word) not in COMMANDS:
            break
        path = (*path, word)
    return path


def wrong(text: str) -> list[str]:
    r"""Return the options in ``text`` that do not exist where they are mentioned."""
    found = []
    for mention in COMMAND.findall(text):
        path = mentioned_with(mention)
        known = options(path)
        asked = OPTION.findall(mention.partition(" -- ")[0])
        found += [f"dpcore {' '.join(path)} {option}" for option in asked if option not in known]
    everywhere = options(()) | OTHERS
    return found + [option for option in OPTION.findall(text) if option not in everywhere]


def absent(text: str) -> list[str]:
    r"""Return the extras, make targets and paths of the tree in ``text`` that do not exist."""
    extras = re.findall(r"\(extra `(\w+)`\)", text)
    for listed in re.findall(r"dpcore\[([\w,]+)\]", text):
        extras = [*listed.split(","), *extras]
    found = [extra for extra in extras if extra not in EXTRAS]
    targets = re.findall(r"`make (\w+)`|^\$ make (\w+)", text, re.MULTILINE)
    found += [f"make {one or other}" for one, other in targets if (one or other) not in TARGETS]
    return found + [path for path in PATH.findall(text) if not any(ROOT.glob(path.rstrip("/")))]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_extra_target_and_path_that_a_text_mentions_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert wrong(text) == []
    assert absent(text) == []


def test_every_option_that_a_help_text_mentions_exists() -> None:
    helps = [
        (path, text)
        for path, command in COMMANDS.items()
        for text in (command.help, *(getattr(one, "help", None) for one in command.params))
        if text
    ]
    assert len(helps) > 100
    for path, text in helps:
        assert wrong(text) == [], path


def test_help_shows_the_value_of_each_option_and_cuts_no_word_on_80_columns() -> None:
    for path, command in COMMANDS.items():
        for one in command.params:
            if one.param_type_name == "option" and "completion" not in one.name:
                assert bool(one.metavar) is not one.is_flag, (path, one.name)
    for path in spread(sorted(COMMANDS.keys() - UNLISTED), 20):
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).output
        assert "Usage" in shown
        assert "\N{HORIZONTAL ELLIPSIS}" not in shown, path


SAMPLES: Final[dict[Any, list[Any]]] = {
    str: ["a b", "", "-", "é\udce9"],
    bool: [True, "1"],
    Path: ["./x/../y", "-", "~"],
    list[str]: [(), ("a",), ["a", "b"]],
    tuple[str, str]: [("a", "b"), ["a", ""]],
}


def test_values_are_converted_like_by_the_parser() -> None:
    kinds = set()
    for command in COMMANDS.values():
        for one in command.params:
            ours, theirs = one.get_runtime_param(), type(one).get_runtime_param(one)
            for value in [None, one.default, *SAMPLES.get(kind := theirs.annotation, [])]:
                mine, found = (each.coerce(value, param=one, ctx=None) for each in (ours, theirs))
                assert (type(mine), mine) == (type(found), found), (one.name, value)
            kinds |= {kind} if ours is not theirs else set()
    assert kinds > SAMPLES.keys()


def test_every_option_that_an_error_names_exists() -> None:
    known = options(()) | OTHERS
    for package in ("dpcore", "accounting", "audit", "bandits"):
        for path in (ROOT / package).rglob("*.py"):
            named = re.findall(r'"(--[a-z][a-z-]*)[" =]', path.read_text(encoding="utf-8"))
            assert set(named) <= known | PARSED, path


def test_a_missing_option_extra_target_or_path_is_detected() -> None:
    for text, found in (
        ("dpcore audit --backend dask.", ["dpcore audit --backend", "--backend"]),
        ("`dpcore sample NOISE --claim 1`, `--claim`", ["dpcore sample --claim"]),
        ("`dpcore audit exact A B --jobs 2`", ["dpcore audit exact --jobs"]),
        ("`dpcore audit half-scale --jobs 2 --seed 1`, `dpcore pmf LAW -- --1`", []),
    ):
        assert wrong(text) == found
    for text, found in (
        ("`pip install dpcore[plot,plots]` (extra `nope`)", ["plots", "nope"]),
        ("`make test`, `make nonsense`, make a face", ["make nonsense"]),
        ("`dpcore/sampling/rng.py`, `audit/broken_mechanisms/*.py`, `docs/proofs/<law>.md`", []),
        ("`dpcore/rngs.py`, `audit/features_*.py`", ["dpcore/rngs.py", "audit/features_*.py"]),
    ):
        assert absent(text) == found


def test_the_readme_lists_every_command() -> None:
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in said.splitlines() if line.startswith("| `dpcore")]
    listed = set()
    for row in rows:
        first, *more = re.findall(r"`([^`]*)`", row)
        path = mentioned_with(first.removeprefix("dpcore "))
        listed.add(path)
        for other in more:
            whole = mentioned_with(other.removeprefix("dpcore "))
            listed.add(whole or (*path[:-1], other))
    missing = {path for path in listed if path not in COMMANDS}
    assert missing == set()
    leaves = {
        path
        for path, command in COMMANDS.items()
        if not hasattr(command, "list_commands") and not command.hidden
    }
    # A listed group includes its commands.
    assert {path for path in leaves if not {path, path[:-1]} & listed} <= UNLISTED
