r"""Tests of `audit.published_failures.corpus_entry`: its fields, and the corpus."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from audit.published_failures.corpus_entry import Entry, entries, read_entry
from benchmarks.auditing.peers import PEERS
from benchmarks.auditing.peers_on_corpus import page_counts
from benchmarks.auditing.peers_on_corpus import page_table as peers_table
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.rounding import down
from tests.support.audit.command import Shell

TEXT = """
package = "leaky"
version = "1.0"
failure = "the noise is half of what it must be"
source = "https://example.org/issues/1"
relation = "add-remove"
pair = [[], ["ada"]]
runs = 4000
megabytes = 1

[claimed]
claim = "epsilon=1"
by = "its docstring"

[true]
epsilon = "2"
known = "the law is known"

[broken]
requires = ["leaky==1.0"]
seen = 1.5
code = "output = len"

[twin]
requires = ["leaky==1.1"]
known = "fixed in 1.1"
seen = 0.5
"""


def test_every_field_of_an_entry_is_read() -> None:
    entry = read_entry("leaky-count", TEXT)
    assert (entry.name, entry.package, entry.version) == ("leaky-count", "leaky", "1.0")
    assert entry.relation is Relation.ADD_REMOVE
    assert entry.pair == ([], ["ada"])
    assert entry.true_epsilon == 2
    assert entry.twin is not None
    assert entry.twin.code == entry.broken.code
    assert entry.twin.claim == "epsilon=1"
    assert entry.twin.requires == ("leaky==1.1",)
    assert list(entry.sides) == ["broken", "twin"]
    alone = read_entry("leaky-count", TEXT.partition("[twin]")[0])
    assert alone.twin is None
    assert list(alone.sides) == ["broken"]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('package = "leaky"', "", "package"),
        ("runs = 4000", "runs = 0", "runs"),
        ("runs = 4000", "runs = 4000\nruns_more = 1", "runs_more"),
        ("megabytes = 1", "megabytes = 0", "megabytes"),
        ("megabytes = 1", 'megabytes = 1\npython = "4"', "python"),
        ("megabytes = 1", 'megabytes = 1\nalone = "yes"', "alone"),
        ("megabytes = 1", 'megabytes = 1\nfeature = "no-such"', "feature"),
        ("https://example.org", "http://example.org", "source"),
        ('"add-remove"', '"substitute"', "relation"),
        ('[[], ["ada"]]', '[[], ["ada", "bob"]]', "pair"),
        ('[[], ["ada"]]', "[[], [nan]]", "pair"),
        ('[[], ["ada"]]', "[[], [2026-01-01]]", "pair"),
        ('claim = "epsilon=1"', 'claim = "epsilon=-1"', "epsilon"),
        ('epsilon = "2"', 'epsilon = "1"', "true.epsilon"),
        ('epsilon = "2"', 'epsilon = "2"\ndelta = "0.1"', "true"),
        ('["leaky==1.0"]', "[]", "broken.requires"),
        ('["leaky==1.0"]', '["leaky"]', "broken.requires"),
        ('["leaky==1.0"]', '["--index-url=https://example.org"]', "broken.requires"),
        ("seen = 1.5", "seen = 2.5", "broken.seen"),
        ("seen = 1.5", "seen = -1", "seen"),
        ('code = "output = len"', 'code = "output ="', "broken.code"),
        ('known = "fixed in 1.1"', "", "twin.known: must be of type str"),
        ("[twin]", "[twins]", "is unknown: did you mean twin? it must be one of alone, broken"),
        ("[claimed]", "[claimed", "the file is not valid TOML"),
    ],
)
def test_an_invalid_field_is_named(old: str, new: str, key: str) -> None:
    assert old in TEXT
    with pytest.raises(InvalidParameter, match=re.escape(key)):
        read_entry("leaky-count", TEXT.replace(old, new, 1))


def test_the_corpus_is_well_formed() -> None:
    found = entries()
    assert len(found) >= 25
    assert len({entry.name for entry in found}) == len(found)
    assert sum(entry.twin is not None for entry in found) >= 25
    for entry in found:
        # The expected verdicts must agree with the measured bounds.
        assert entry.broken.seen > 0, entry.name
        assert entry.broken.requires[0].lower().endswith(f"=={entry.version}".lower()), entry.name
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.name)


@pytest.mark.nightly
def test_every_entry_has_its_expected_verdict(audit: Shell, tmp_path: Path) -> None:
    answer = audit("corpus", "run", "--all", "--jobs", 2, "--cache", tmp_path / "cache", "--json")
    rows = json.loads(answer.out)["rows"]
    assert [row["name"] for row in rows if not row["right"]] == []
    assert len(rows) == len(entries())
    assert answer.code == 0
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run", "error: NAME: must be given, or use --all"),
        ("run no-such", "error: NAME = no-such: must be an entry"),
        ("run opendp-treshold", "error: NAME = opendp-treshold: did you mean opendp-threshold?"),
        ("run --all opendp-threshold", "error: --all: runs every entry"),
        ("run opendp-threshold --cache a-file", "error: --cache = a-file: must be a folder"),
        ("run opendp-threshold --cache a-file/in", "error: --cache = a-file/in: must be a"),
    ],
)
def test_a_bad_argument_is_named(
    audit: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    answer = audit("corpus", *words.split())
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (2, "", 1)
    assert answer.err.startswith(said)


ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "corpus.md"


def page_table(listed: Sequence[Entry]) -> str:
    """The table of docs/corpus.md."""
    lines = [
        "| entry, package | failure | claim | true | measured | twin |",
        "|---|---|---|---|---|---|",
    ]
    for e in listed:
        twin = "none" if e.twin is None else f"{_cell(e.twin.known)}: {_number(e.twin.seen)}"
        lines.append(
            f"| `{e.name}`, {e.package} {e.version} | {_cell(e.failure)} ([source]({e.source})) "
            f"| {e.broken.claim} | {' '.join(e.true)} | {_number(e.broken.seen)} | {twin} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")


def _number(value: float) -> str:
    return "infinite" if value == math.inf else down(Fraction(repr(value)), 4)


def test_the_page_agrees_with_every_entry() -> None:
    # To print the table for the page: print(page_table(entries())).
    page, (first, *others) = PAGE.read_text(encoding="utf-8"), entries()
    assert page_table([first, *others]) in page
    moved = replace(first, broken=replace(first.broken, seen=first.broken.seen / 2))
    assert page_table([moved, *others]) not in page


def peers_shown(found: dict[str, Any], page: str) -> bool:
    """Whether the page contains both tables of the auditors."""
    return page_counts(found) in page and peers_table(found["rows"]) in page


def test_the_page_agrees_with_the_results_of_other_auditors() -> None:
    # To print them for the page: print(page_counts(found), page_table(found["rows"])) of
    # benchmarks/auditing/peers_on_corpus.py.
    results = ROOT / "benchmarks" / "results" / "corpus.json"
    found = json.loads(results.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert peers_shown(found, page)
    assert {row["name"] for row in found["rows"]} <= {entry.name for entry in entries()}
    assert set(found["auditors"]) == {"dpcore", *(peer.name for peer in PEERS)}
    # A changed verdict is detected: for a failure in both tables, for a twin as a false alarm.
    for role, says in (("broken", "missed"), ("twin", "false alarm")):
        changed = deepcopy(found)
        changed["rows"][0][role]["dpcore"]["says"] = says
        assert not peers_shown(changed, page)
