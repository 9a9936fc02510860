"""How results are written: probabilities rounded up, one infinity, names below each other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from audit.wording.result import Told, between, json_ends, json_number, json_text, out_of
from audit.wording.shorten import cut, shortened
from dpcore.numbers.enclosure import Enclosure
from tests.support.dpcore.mutants import rewired

PROBABILITIES = [Fraction(k, n) for n in (7, 100, 1999, 10**6 + 3) for k in (1, 3, n - 1)]


def safe(write: Callable[[Fraction], str]) -> bool:
    """Whether what is written is never below the probability, and near it."""
    found = []
    for exact in PROBABILITIES:
        cases, group = write(exact).split(" of ")
        shown = Fraction(cases) / int(group.replace(",", ""))
        found.append(exact <= shown <= exact * Fraction(11, 10) and Fraction(cases) >= 1)
    return all(found)


def test_cases_of_a_round_number_are_never_too_few() -> None:
    assert safe(out_of)
    assert not safe(rewired(out_of, up=lambda value, digits: f"{float(value):.{digits}g}"))
    assert (out_of(0), out_of(1), out_of(Fraction(1, 10**6))) == (
        "0 of 100",
        "100 of 100",
        "1 of 1,000,000",
    )


def test_json_is_strict_and_says_infinity() -> None:
    ends = json_ends(Enclosure(Fraction(1, 10), math.inf))
    assert isinstance(ends[0], float)
    assert Fraction(ends[0]) <= Fraction(1, 10)
    assert json.loads(json_text({"ends": ends, "none": json_number(math.inf)})) == {
        "ends": [ends[0], "inf"],
        "none": "inf",
    }
    with pytest.raises(ValueError, match="Out of range float"):
        json_text({"bound": math.inf})


def test_an_interval_is_rounded_outwards() -> None:
    third = Enclosure(Fraction(1, 3), Fraction(1, 3))
    assert between(third, 3) == "between 0.333 and 0.334"
    assert between(Enclosure.exactly(Fraction(1, 10))) == "exactly 0.1"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_values_stand_below_each_other(width: int) -> None:
    told = Told(verdict="PROVEN", about="x", rows=(("a", "word " * 40), ("a long name", "y")))
    head, *lines = told.lines(width)
    assert head == "PROVEN  x"
    margin = lines[-1].index("y")
    assert {len(line) - len(line.lstrip()) for line in lines[1:-1]} == {margin}
    assert lines[0].index("word") == margin
    assert max(map(len, lines)) <= width


def test_what_is_cut_is_told_apart_and_counted() -> None:
    one, other = ("x" * 500 + end for end in "ab")
    assert shortened(one) != shortened(other)
    assert "501 characters" in shortened(one)
    assert cut(one, 20) == cut(other, 20) == "x" * 17 + "..."
