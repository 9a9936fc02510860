"""Tests of output identity: two constants that a recipient can tell apart are refuted."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import io
import math
import threading
import types
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import PurePath
from tarfile import TarInfo
from typing import Any, ClassVar
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.claims import Claim
from audit.outputs import identity as told
from audit.outputs.copies import captured
from audit.outputs.identity import identity
from audit.outputs.output_parser import UNREAD, Outputs, join
from audit.outputs.reading import NumberLine, read
from audit.outputs.rows import row_of
from audit.outputs.sandbox_encoding import Objects, pack, unpack
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.targets.target import Block, Scalar, Target, Vectorised
from tests.day_and_nightly import by_day, effort, spread
from tests.support.audit.distinct_constants import (
    APART,
    LINES,
    TAGGED,
    Bare,
    Hidden,
    Labelled,
    Own,
    Point,
    Silent,
    failed,
    having,
    local,
    queued,
    under_mask,
)

PLAN = Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=200, alpha="1e-3", seed=7)


def verdict(one: Any, other: Any) -> str | None:
    """The verdict on a target that returns ``one`` on dataset A and ``other`` on dataset B."""
    target = Scalar(spelling="constants", function=lambda d: (one, other)[d], seeded=False)
    return sample(target, PLAN).verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Target):
    """A program that prints one constant line on each dataset."""

    lines: ClassVar[bool] = True
    one: str
    other: str

    def draw(self, block: Block) -> Iterator[Outputs]:
        both = zip((self.one, self.other), block.sizes, strict=True)
        sides = [[line] * size for line, size in both]
        yield join(sides[0], sides[1], block.worlds, block.mixer)


@by_day(3)
@pytest.mark.parametrize(("one", "other"), APART, ids=map(str, range(len(APART))))
def test_constants_that_differ_between_datasets_are_refuted(one: Any, other: Any) -> None:
    assert verdict(one, other) == "refuted"
    for same in (one, other):  # a target that only returns None counts as failed
        assert verdict(same, same) == (None if same is None else "nothing_measured")


def seen(value: Any) -> tuple[Any, ...]:
    reading, code = read([value]), int(read([value]).codes[0])
    number = reading.names[code] if code >= 0 else reading.numbers.listed()
    return identity(value), number, _told(value)


def test_constants_that_differ_are_different_in_this_and_in_another_process() -> None:
    for one, other in [*APART, (_parent(1), _parent(2))]:
        known = dict[int, Any]()
        objects = Objects(shared=True)
        first, same, second = (unpack(pack([x], objects), known)[0] for x in (one, one, other))
        assert seen(first) == seen(same)
        assert seen(captured(one)) == seen(one)
        for here, there in ((first, second), (one, other)):
            assert all(a != b for a, b in zip(seen(here), seen(there), strict=True)), one


def _told(value: Any) -> str:
    # The structure and cells of a row, in which nan equals nan and -0.0 equals 0.0.
    row = row_of(value)
    return str((row.structure, [(path, cell or 0) for path, cell in row.cells]))


def test_lines_of_a_program_that_differ_are_refuted_and_have_different_rows() -> None:
    def judged(here: str, there: str) -> str | None:
        return sample(Lines(spelling="lines", one=here, other=there), PLAN).verdict

    for one, other in LINES:
        assert _told(one) != _told(other)
        assert _told([one, b"\xff"]) != _told([other, b"\xff"])
    for one, other in spread(LINES, 7):
        assert judged(one, other) == "refuted"
        assert judged(one, one) == "nothing_measured"


def constants(one: Any, other: Any) -> Any:
    return lambda d, n, rng: np.full(n, (one, other)[d])


def rows_of(*types: Any) -> Any:
    return lambda d, n, rng: np.array([(1,)] * n, types[d])


def masked_batch(n: int, rng: Any, under: int, fill: int) -> Any:
    numbers = rng.integers(0, 3, n)
    hidden = numbers == 1
    return np.ma.array(np.where(hidden, under, numbers), mask=hidden, fill_value=fill)


LEAKING = (
    *(constants(a, b) for a, b in APART if isinstance(a, np.generic) and isinstance(b, np.generic)),
    *(rows_of([("a", "i4")], [other]) for other in (("b", "i4"), ("a", "f4"), ("b", "O"))),
    lambda d, n, rng: masked_batch(n, rng, d, 7),  # under the mask
    lambda d, n, rng: masked_batch(n, rng, 1, 7 + d),  # the fill value
    lambda d, n, rng: np.ones((n, 1), int).view((np.ndarray, np.matrix)[d]),
)
TWINS = (
    lambda d, n, rng: masked_batch(n, rng, 1, 7),
    lambda d, n, rng: rng.integers(0, 3, (n, 1)).view(np.matrix),
)


def test_batches_of_outputs_that_differ_are_refuted_and_their_twins_are_not() -> None:
    for expected, cases in (("refuted", LEAKING), ("not_refuted", TWINS)):
        for place, made in enumerate(spread(cases, 8)):
            found = sample(Vectorised(spelling="batches", function=made), PLAN).verdict
            assert found == expected, (expected, place)


EQUAL = [
    (math.nan, -math.nan),
    (Bare(1), Bare(1)),
    (ValueError(1), ValueError(1)),
    ("x", bytes([120]).decode()),
    ({1, 2}, {2, 1}),
    (np.array([1.0, math.nan]), np.array([1.0, -math.nan])),
    (np.ones((2, 3)), np.ones((2, 3), order="F")),
    (np.frombuffer(b"12", "u1"), np.array([49, 50], "u1")),  # the first is read-only
    (under_mask(2), under_mask(2)),
    (failed(2, "no", "a", cause=failed(note="b")), failed(2, "no", "a", cause=failed(note="b"))),
    (local(1), local(1)),
    (type(local(1)), type(local(1))),
    (local(1, int), local(1, int)),
    (having(Labelled("a"), label=1), having(Labelled("a"), label=1)),
    (having(TAGGED.copy(), tag=1), having(TAGGED.copy(), tag=1)),
    (Own(1), Own(1)),
    (Hidden(1), Hidden(1)),
    (Silent(threading.Lock()), Silent(threading.Lock())),  # named in the report
    (having(Element("a"), text="1"), having(Element("a"), text="1")),
    (having(TarInfo("a"), size=1), having(TarInfo("a"), size=1)),
    (queued(1), queued(1)),
    (type("A", (), {"x": 1})(), type("A", (), {"x": 1})()),
    ((ctypes.c_int * 2)(1, 2), (ctypes.c_int * 2)(1, 2)),
]


def _parent(number: int) -> Silent:
    child = Silent(number)
    child.slot, child.__dict__["number"] = Silent(0, up=child), number
    return child


def _chain(length: int, end: int) -> Silent:
    found = Silent(end)
    for _ in range(length):
        found = Silent(found)
    return found


def test_the_byte_order_of_a_batch_does_not_change_its_numbers() -> None:
    batch = np.ones((2, 1), ">i8")
    assert read(batch).numbers.listed() == read(list(batch)).numbers.listed()
    assert read(batch).numbers.form != read(batch.astype(int)).numbers.form


def test_an_object_that_occurs_many_times_is_read_once() -> None:
    assert len(str(identity(Silent([Silent(0)] * 5000)))) < 10**6


def test_the_report_names_the_attributes_that_were_not_read() -> None:
    def noted(made: Any) -> list[str]:
        function = lambda _, rng: made(int(rng.integers(2)))  # noqa: E731 - one line says it
        found = sample(
            Scalar(spelling="objects", function=function), replace(PLAN, runs=effort(16, 32))
        )
        return [each for each in found.warnings if "not measured" in each]

    assert noted(lambda n: Silent(n, inner=Bare(n), text="not read: lock")) == []
    (found,) = noted(lambda n: Silent(n, lock=threading.Lock(), deep=[Bare(print)]))
    assert "Silent.lock (lock)" in found
    (found,) = noted(lambda n: Silent(n, deep=_chain(60, n)))
    assert "(Silent)" in found


class Elided:
    """An object that can only be read by its repr, which omits its value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Elided(1, ..., 3)"


def measured(function: Any) -> AuditReport:
    return sample(Scalar(spelling="objects", function=function), replace(PLAN, runs=400))


@by_day(2)
@pytest.mark.parametrize(
    "made",
    [
        lambda n: lambda: n,
        lambda n: hashlib.sha256(bytes([n])),
        lambda n: {"a": threading.local()},
        lambda n: types.ModuleType("a"),
        lambda n: defaultdict(lambda: n),
        lambda n: [Hidden(1, lambda: n)],
        lambda n: Elided(),
        lambda n: type("A", (), {"value": lambda self: n})(),
    ],
    ids=range(8),
)
def test_objects_that_hold_no_data_are_named_and_leave_no_blind_spot(made: Any) -> None:
    report = measured(functools.partial(_noisy, made))
    assert (report.verdict, report.resolution) == ("not_refuted", math.inf)
    assert any(each.startswith(UNREAD) for each in report.warnings)
    assert report.blind_spot.startswith("not known: parts of the outputs contain no plain data")


def test_objects_that_hold_data_have_a_resolution() -> None:
    held = measured(functools.partial(_noisy, lambda _: Silent(1)))
    assert (held.verdict, held.resolution < 1, held.warnings) == ("not_refuted", True, ())


def test_an_iterator_is_refused_at_any_depth() -> None:
    for made in (
        lambda n: (item for item in [n]),
        lambda n: {"rows": zip([n])},
        lambda n: (1, [io.StringIO(str(n))]),
        lambda n: Point(1, [Hidden(1, map(str, [n]))]),
        lambda n: pd.DataFrame({"a": pd.Series([iter([n])], dtype=object)}),
    ):
        function = functools.partial(_noisy, made)
        report = sample(Scalar(spelling="iterators", function=function), PLAN)
        assert report.error is not None
        assert "return plain values instead" in report.error.reason


def _noisy(made: Any, dataset: int, rng: Any) -> Any:
    return [int(rng.integers(2)), made(dataset)]


def test_masked_arrays_and_matrices_have_the_columns_of_their_data() -> None:
    cells = row_of(np.ma.array([1, 5], mask=[False, True])).cells
    assert cells[:4] == [("[0]", 1), ("[1]", 5), (".mask[0]", False), (".mask[1]", True)]
    assert row_of(np.ma.masked).structure == "MaskedConstant"
    matrix = np.array([[1, 2]]).view(np.matrix)
    assert row_of(matrix).cells[-2:] == [("[0, 0]", 1), ("[0, 1]", 2)]


def test_indistinguishable_outputs_are_equal_in_every_reading() -> None:
    one, other = PurePath("a/b"), PurePath("a/b")
    str(other)  # Python caches this text in an attribute
    for here, there in [*EQUAL, (one, other), (_parent(1), _parent(1))]:
        assert seen(here) == seen(there), here


FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, math.inf]), st.floats(allow_nan=False))
INTEGERS = st.one_of(st.sampled_from([0, 1, 2**53, 2**53 + 1, 10**17, 10**17 + 1]), st.integers())


def test_mutants_that_compare_floats_or_by_python_equality_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_floats(cls: Any, numbers: Any, form: str = "int") -> NumberLine:
        return NumberLine.of_floats(np.array(numbers, dtype=np.float64), form)

    with monkeypatch.context() as patch:
        patch.setattr(NumberLine, "of_int", classmethod(as_floats))
        assert verdict(10**17, 10**17 + 1) != "refuted"
        assert verdict(1, 2) == "refuted"
    monkeypatch.setattr("audit.outputs.reading.identity", tuple)
    monkeypatch.setattr("audit.features.parse_feature.default_family", lambda _: {})
    assert verdict([1], [1.0]) != "refuted"
    assert verdict([1], [2]) == "refuted"


def test_an_output_is_read_independently_of_the_others() -> None:
    values = [value for pair in [*APART, *LINES] for value in pair]
    beside = read(values)
    for place, value in enumerate(values):
        alone, code = read([value]), int(beside.codes[place])
        assert (int(alone.codes[0]) < 0) is (code < 0)
        if code >= 0:
            assert beside.names[code] == alone.names[int(alone.codes[0])]
        else:
            both = NumberLine.joined([beside.numbers[place : place + 1], alone.numbers])
            assert len(both.unique()[0]) == 1


@given(st.lists(st.one_of(INTEGERS, FLOATS, st.fractions()), min_size=1, max_size=12))
def test_numbers_are_ordered_exactly(numbers: list[Any]) -> None:
    finite = [x for x in numbers if not isinstance(x, float) or math.isfinite(x)]
    line = read(finite).numbers.unique()[0]
    places = line.listed()
    assert [Fraction(p.value) for p in places] == sorted(Fraction(p.value) for p in places)
    assert len(places) == len({repr(x) for x in finite})
    found = line.search(read(finite).numbers)
    assert found.tolist() == [1 + [repr(p.value) for p in places].index(repr(x)) for x in finite]


_ODD = np.array([0x7FF8000000000001, 0x7FF8000000000000, 1 << 63, 0], dtype=np.uint64).view(float)


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(_ODD[np.random.default_rng(1).integers(0, 4, (300, 3))], id="nan and zeros"),
        pytest.param(np.random.default_rng(2).integers(0, 3, (300, 2, 2)), id="integers"),
        pytest.param(np.random.default_rng(3).integers(0, 9, (300, 2)).astype(">i4"), id="swapped"),
        pytest.param(np.random.default_rng(4).random((300, 4)) < 0.5, id="booleans"),
        pytest.param(np.random.default_rng(5).random((50, 6), np.float32)[:, ::2], id="strided"),
        pytest.param(np.zeros((0, 3)), id="no rows"),
    ],
)
def test_rows_of_an_array_are_distinguished_like_single_outputs(
    rows: Any, collide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if collide:  # all rows have the same hash
        monkeypatch.setattr(told, "_hashes", lambda words: np.zeros(len(words), np.uint64))
    found, names = read(rows), [identity(row) for row in rows]
    assert tuple(found.names) == tuple(dict.fromkeys(names))
    assert [found.names[code] for code in found.codes] == names
    assert [str(name) for name in found.names] == [str(name) for name in dict.fromkeys(names)]
