"""The replay of the papers: every erratum has its verdict, and a flipped one is noticed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pytest

from accounting.claims.bound import Bound
from bandits.papers.statement import LOOSE, Judgement, answer, shown
from bandits.papers.table import lines, replay, to_json
from dpcore.numbers.enclosure import Enclosure
from tests.support.dpcore.mutants import mutated

# What each printed claim must turn out as; rows of ours must hold.
EXPECTED = {
    "1": {"fails"},
    "2": {"unproven", "loose"},
    "3": {"fails"},
    "4": {"fails"},
    "5": {"loose", "fails"},
    "6": {"loose"},
    "7": {"fails"},
    "8": {"fails"},
    "9a": {"fails"},
    "9b": {"fails"},
}


@lru_cache(maxsize=1)
def quick() -> tuple[Judgement, ...]:
    return replay(quick=True)


def find(statement: str, *parameters: str, rows: Iterable[Judgement] | None = None) -> Judgement:
    (found,) = [
        row
        for row in (quick() if rows is None else rows)
        if row.statement.startswith(statement)
        and all(each in f"{row.parameters}, {row.quantity}" for each in parameters)
    ]
    return found


def as_design_states(rows: Iterable[Judgement]) -> bool:
    """Every erratum has a row of the verdict the design states; ours hold; nothing else fails."""
    listed = tuple(rows)
    for erratum, wanted in EXPECTED.items():
        printed = {r.verdict for r in listed if r.erratum == erratum and not r.ours}
        if not wanted <= printed:
            return False
    if any(row.verdict not in ("holds", "loose") for row in listed if row.ours):
        return False
    return all(row.verdict in ("holds", "loose") for row in listed if row.erratum is None)


# -- the whole --------------------------------------------------------------------------------


def test_the_quick_replay_says_what_the_design_states() -> None:
    seen: list[tuple[int, int]] = []
    start = time.process_time()
    rows = replay(quick=True, progress=lambda done, of: seen.append((done, of)))
    assert time.process_time() - start < 30
    assert as_design_states(rows)
    assert seen == [(done, len(rows)) for done in range(len(rows) + 1)]
    for erratum in EXPECTED:
        assert any(row.ours for row in rows if row.erratum == erratum), erratum


@pytest.mark.nightly
def test_the_whole_replay_says_the_same() -> None:
    start = time.process_time()
    rows = replay()
    assert time.process_time() - start < 60
    assert as_design_states(rows)
    statements = " ".join(row.statement for row in rows)
    for each in (
        *(f"Theorem {number}" for number in (1, 2, 3, 4, 5, 6, 7)),
        *("Lemma 3", "Lemma 4", "Lemma 10", "Appendix I, by zCDP", "Appendix I, by Renyi"),
        *("Theorem 4.2", "Theorem 4.4", "Theorem C.1", "Theorem C.3", "Theorem 4.6"),
        *("Theorem A.2", "Algorithm 2", "Lemma C.5", "Algorithm 4", "Algorithm 3", "Lemma 1"),
    ):
        assert each in statements, each
    assert {row.paper for row in rows} == {"CZ", "LZJ", "TKMS", "CSB"}


def test_a_flipped_verdict_is_noticed() -> None:
    # The claim and the truth of one row change places: the row then says the opposite.
    for erratum in EXPECTED:
        at = next(i for i, r in enumerate(quick()) if r.erratum == erratum and r.ours)
        none, one = Enclosure.exactly(0), Enclosure.exactly(1)
        flipped = replace(quick()[at], claimed=none, exact=one)
        assert not as_design_states((*quick()[:at], flipped, *quick()[at + 1 :]))
        kept = tuple(r for r in quick() if r.erratum != erratum)
        assert not as_design_states(kept)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('return "fails"', 'return "holds"'),
        ("exact.lower > claimed.upper", "exact.lower < claimed.upper"),
        ("exact.upper > claimed.lower", "exact.upper < claimed.lower"),
        ('claimed.lower >= LOOSE * exact.upper > 0 else "holds"', 'False else "holds"'),
        ("proof.lower > claimed.upper", "False"),
    ],
)
def test_a_broken_judge_is_noticed(old: str, new: str) -> None:
    judge: Callable[..., Any] = mutated(answer, old, new)
    right = [answer(row.claimed, row.exact, row.proof) for row in quick()]
    wrong = [judge(row.claimed, row.exact, row.proof) for row in quick()]
    assert [row.verdict for row in quick()] == right != wrong


def test_the_judge() -> None:
    one, two = Enclosure.exactly(1), Enclosure.exactly(LOOSE)
    wide = Enclosure(Fraction(1, 2), Fraction(3, 2))
    assert answer(one, wide) == "unproven"
    # Two numbers with one enclosure need not be equal.
    assert answer(wide, wide) == "unproven"
    assert answer(one, Bound(upper=one.upper, method="m", theorem="t")) == "holds"
    assert answer(two, Bound(upper=one.upper, method="m", theorem="t")) == "loose"
    assert answer(two, one, proof=Enclosure.exactly(3)) == "unproven"
    assert answer(two, Enclosure.exactly(3), proof=one) == "fails"
    assert answer(Enclosure.exactly(0), Enclosure.exactly(0)) == "holds"
    assert answer(one, Enclosure.infinite()) == "fails"


def test_as_text_and_as_data() -> None:
    text = list(lines(quick()))
    assert text[0] == "CZ"
    assert "fails     Theorem 3 [erratum 1]" in "\n".join(text)
    data = to_json(quick())
    assert json.loads(json.dumps(data, allow_nan=False))["counts"] == data["counts"]
    assert sum(data["counts"].values()) == len(data["rows"]) == len(quick())
    assert text[-1] == ", ".join(f"{n} {verdict}" for verdict, n in data["counts"].items())
    for row in data["rows"]:
        assert row["explanation"].count("\n") == 0
    assert shown(Enclosure(Fraction(1, 3), Fraction(2, 3))) == "[0.333333, 0.666667]"


def test_what_is_printed_holds_the_truth_also_where_it_is_known_to_many_digits() -> None:
    tight = Enclosure(Fraction("0.12345649"), Fraction("0.123456491"))
    assert shown(tight) == "[0.123456, 0.123457]"
    nearest = Fraction(f"{float(tight.lower):.6g}")
    assert nearest not in tight  # what was printed once
    for row in quick():
        for value in (row.claimed, row.exact):
            low, _, high = shown(value).removeprefix("at most ").strip("[]").partition(", ")
            ends = [math.inf if end == "infinity" else Fraction(end) for end in (low, high or low)]
            assert ends[1] >= value.upper
            assert value.lower is None or ends[0] <= value.lower
