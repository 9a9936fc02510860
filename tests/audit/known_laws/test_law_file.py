"""Tests of `audit.known_laws.law_file`: parsing of exact masses, and errors that name the fault."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.known_laws.law_file import WrittenLaw, read_law
from audit.targets.target import Shifted
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace

File = Callable[[str, str], str]
HALVES = {"a": Fraction(1, 2), "b": Fraction(1, 2)}


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(name: str, content: str) -> str:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return write


def test_a_noise_is_read_with_its_shift() -> None:
    noise = DiscreteLaplace(scale="1/2")
    for text, shift in (("", 0), ("@0", 0), ("@-3", -3), ("@1,0,2", (1, 0, 2)), ("@1, 0", (1, 0))):
        written = read_law("P", f"discrete-laplace:scale=1/2{text}")
        assert written.law == Shifted(noise, shift)
        assert written.total == 1
        assert written.outputs is None
        assert written.checked() is written is written.normalised()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("law.json", '{"a": "1/2", "b": 0.5}'),
        ("law.json", '[["a", 0.5], ["b", "5e-1"]]'),
        ("law.csv", "output,mass\na,1/2\n\nb,0.5\n"),
        ("law.csv", "Output, Mass\r\n a , 1/2\r\nb, 0.50\r\n"),
        ("law", ' {"a": "1/2", "b": "1/2"}'),
        ("law.csv", "\ufeffa,1/2\nb,1/2"),
    ],
)
def test_the_same_law_is_read_from_every_file_format(file: File, name: str, content: str) -> None:
    assert read_law("P", file(name, content)).checked().law == HALVES


def test_outputs_in_files_are_distinguished_by_their_text(file: File) -> None:
    path = file("law.json", '[[0, "1/4"], [[0, "x", 0.5, null], "1/4"], [true, "1/2"]]')
    law = read_law("P", path).law
    assert law == {
        "0": Fraction(1, 4),
        '[0, "x", 0.5, null]': Fraction(1, 4),
        "true": Fraction(1, 2),
    }
    # The same law from CSV, where commas need quotes.
    text = '0,1/4\n"[0, ""x"", 0.5, null]",1/4\ntrue,1/2\n'
    assert read_law("P", file("law.csv", text)).law == law
    big = read_law("P", file("law.json", "[[12345678901234567890123, 1]]"))
    assert big.outputs == frozenset({"12345678901234567890123"})
    # A float is read by its shortest decimals: the sum of the binary floats is not 1.
    written = read_law("P", file("law.json", '{"a": 0.1, "b": 0.9}')).checked()
    assert written.law == {"a": Fraction(1, 10), "b": Fraction(9, 10)}
    assert Fraction(0.1) + Fraction(0.9) != 1


@pytest.mark.parametrize("header", ["output,probability", "Output, Mass"])
def test_a_header_is_not_an_output_and_outputs_without_mass_are_ignored(
    file: File, header: str
) -> None:
    assert read_law("P", file("law.csv", f"{header}\na,1\n")).law == {"a": 1}
    law = read_law("P", file("law.csv", f"a,1\n{header[:6]},0\n"))
    assert (law.law, law.outputs) == ({"a": 1, header[:6]: 0}, frozenset("a"))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("law.json", '{"a": "1/2", "b": "1/3"}', "sum to less than 1, by about 0.166"),
        ("law.csv", "a,0.5\nb,0.5000000000000001\n", "sum to 1.0000000000000001, not"),
        ("law.json", '{"a": "3/2", "b": "-1/2"}', "the probability of 'b' = -1/2: must be >= 0"),
        ("law.json", '{"a": "1/2", "a": "1/2"}', "lists the output 'a' twice"),
        ("law.json", '[[0, "1/2"], ["0", "1/2"]]', "lists the output '0' twice"),
        ("law.json", '{"a": "1/2"', "is not JSON"),
        ("law.json", '{"a": NaN}', "is not JSON: NaN is not a finite number"),
        ("law.json", '{"a": true}', "the probability of 'a' = True: must be a number"),
        ("law.json", '{"a": "one"}', "must be a finite number such as"),
        ("law.json", '[["a", 1, 2]]', r"must be {.*} or \[\[output, probability\], ...\]"),
        ("law.json", "[[{}, 1]]", "an output must be text, a number"),
        ("law.json", "[" * 100_000, "is not JSON"),
        ("law.json", "{}", "contains no outputs"),
        ("law.csv", "a,1/2\nb,1/4,1/4\n", "line 2 must have the form output,probability"),
        ("law.csv", 'a,1/2\n"b,1/2\n', "line 2: unexpected end"),
        (
            "law.csv",
            "a,1/2\noutput,mass\n",
            "the probability of 'output' = mass: must be a finite number",
        ),
        ("law.csv", "a,1e999999\n", "at most 4000 digits"),
    ],
)
def test_an_invalid_law_is_refused(file: File, name: str, content: str, complaint: str) -> None:
    with pytest.raises(InvalidParameter, match=complaint) as caught:
        read_law("P", file(name, content)).checked()
    assert str(caught.value).startswith("P")


def test_an_unreadable_law_file_is_refused(tmp_path: Path) -> None:
    for text, complaint in (
        ("nothing.csv", "P = nothing.csv: No such file"),
        (str(tmp_path), "is not a regular file"),
        ("laplace:scale=1@0", "or noise: discrete-laplace, discrete-gaussian"),
        ("discrete-laplace:scale=1@", "must have integers after the @"),
        ("discrete-laplace:scale=0@1", "scale = 0"),
        ("\0", "is not a valid file name"),
    ):
        with pytest.raises(InvalidParameter, match=complaint):
            read_law("P", text)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_normalised_masses_sum_to_one_and_keep_their_ratios(masses: list[float]) -> None:
    written = WrittenLaw(
        argument="P", spelling="law", law={str(i): repr(mass) for i, mass in enumerate(masses)}
    )
    total = written.total
    if not total:
        with pytest.raises(InvalidParameter, match="all its probabilities are 0"):
            written.normalised()
        return
    divided = written.normalised()
    assert divided.total == 1
    assert divided.divided_by == total
    assert isinstance(divided.law, dict)
    assert [mass * total for mass in map(Fraction, divided.law.values())] == [
        Fraction(repr(mass)) for mass in masses
    ]
