r"""An entry says all that it must, and nothing else; the corpus itself is well-formed."""

from __future__ import annotations

import math
import re

import pytest

from audit.corpus.entry import entries, find, read_entry
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation

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


def test_an_entry_is_read_whole() -> None:
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


def test_an_infinite_truth_bounds_nothing() -> None:
    entry = read_entry("x", TEXT.replace('epsilon = "2"', 'epsilon = "infinite"'))
    assert entry.true_epsilon == math.inf
    entry = read_entry("x", TEXT.replace('epsilon = "2"', 'delta = "0.1"'))
    assert entry.true_epsilon == math.inf


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('package = "leaky"', "", "package"),
        ('package = "leaky"', 'package = ""', "package"),
        ('package = "leaky"', "package = 3", "package"),
        ("runs = 4000", "runs = 0", "runs"),
        ("runs = 4000", "runs = true", "runs"),
        ("runs = 4000", "runs = 4000\nruns_more = 1", "runs_more"),
        ("megabytes = 1", "megabytes = 0", "megabytes"),
        ("megabytes = 1", 'megabytes = 1\npython = "4"', "python"),
        ("megabytes = 1", 'megabytes = 1\nalone = "yes"', "alone"),
        ("megabytes = 1", 'megabytes = 1\nfeature = "no-such"', "feature"),
        ("https://example.org", "http://example.org", "source"),
        ('"add-remove"', '"substitute"', "relation"),
        ('[[], ["ada"]]', '[["ada"], ["ada"]]', "pair"),
        ('[[], ["ada"]]', '[[], ["ada", "bob"]]', "pair"),
        ('[[], ["ada"]]', "[[], [nan]]", "pair"),
        ('[[], ["ada"]]', "[[], [2026-01-01]]", "pair"),
        ('claim = "epsilon=1"', 'claim = "epsilon=-1"', "epsilon"),
        ('claim = "epsilon=1"', 'claim = "safe"', "claim"),
        ('epsilon = "2"', 'epsilon = "1"', "true.epsilon"),
        ('epsilon = "2"', 'epsilon = "much"', "true.epsilon"),
        ('epsilon = "2"', 'epsilon = "2"\ndelta = "0.1"', "true"),
        ('epsilon = "2"', 'delta = "infinite"', "true.delta"),
        ('epsilon = "2"', 'delta = "0"', "true.delta"),
        ('["leaky==1.0"]', "[]", "broken.requires"),
        ('["leaky==1.0"]', '["leaky"]', "broken.requires"),
        ('["leaky==1.0"]', '["--index-url=https://example.org"]', "broken.requires"),
        ('["leaky==1.1"]', '["leaky>1"]', "twin.requires"),
        ("seen = 1.5", "seen = 2.5", "broken.seen"),
        ("seen = 1.5", "seen = -1", "seen"),
        ("seen = 1.5", "seen = nan", "seen"),
        ('code = "output = len"', 'code = "output ="', "broken.code"),
        ('known = "fixed in 1.1"', "", "twin.known"),
        ("[twin]", "[twins]", "twins"),
        ("[claimed]", "[claimed", "(the file)"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, key: str) -> None:
    assert old in TEXT
    with pytest.raises(InvalidParameter, match=re.escape(key)):
        read_entry("leaky-count", TEXT.replace(old, new, 1))


def test_the_corpus_is_well_formed() -> None:
    found = entries()
    assert len(found) >= 25
    assert len({entry.name for entry in found}) == len(found)
    assert sum(entry.twin is not None for entry in found) >= 25
    for entry in found:
        # What the measured bounds say is what the verdicts must be.
        assert entry.broken.seen > 0, entry.name
        assert entry.broken.requires[0].lower().endswith(f"=={entry.version}".lower()), entry.name
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.name)


def test_a_name_that_is_almost_right_gets_a_hint() -> None:
    with pytest.raises(InvalidParameter, match="opendp-threshold"):
        find("opendp-treshold")
