"""Tests of `audit.outputs.sandbox_encoding`: plain values cross unchanged; no code runs."""

from __future__ import annotations

import datetime as dt
import math
import os
import pickle
import threading
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from audit.outputs.identity import StandIn, identity, unread_attributes
from audit.outputs.rows import Schema
from audit.outputs.sandbox_encoding import Objects, pack, unpack

PLAIN = [
    *(None, True, 0, -(10**40), 1.5, -0.0, math.inf, 2 + 3j, "text", b"bytes", bytearray(b"x")),
    *([1, [2]], (1, (2,)), {"a": {1: None}}, {1, 2}, frozenset({3})),
    *(Fraction(1, 3), Decimal("1.00"), np.int64(3), np.float32(0.5), np.bool_(True), np.str_("s")),
    *(np.datetime64("2020-01-01", "D"), np.timedelta64(3, "s"), np.longdouble(1) / 3),
]


def through(value: object) -> Any:
    return unpack(pack(value, Objects()), {})


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_arrive_as_they_are(value: object) -> None:
    found = through([value])[0]
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.zeros((3, 0)),
        np.array(["a", "bc"]),
        np.array([1, None, [2, 3]], dtype=object),
        np.array([[1, 2], [3, 4]], dtype=object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array(5.0),
        np.array([np.nan, -0.0], dtype=">f4"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_arrive_as_they_are(array: Any) -> None:
    found = through(array)
    assert (found.dtype, found.shape, repr(found)) == (array.dtype, array.shape, repr(array))
    found.setflags(write=True)


Point = namedtuple("Point", "x y")  # noqa: PYI024  # as targets make them


class Colour(IntEnum):
    RED = 1


class Tagged(float):
    tag: str


class Equal:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.value == other.value

    def __hash__(self) -> int:
        return self.value


class Kind(Enum):
    ONE = 1


class Holder:
    def __init__(self, cells: Any) -> None:
        self.cells = cells


def test_subclasses_of_plain_values_arrive_as_values_with_their_class_name() -> None:
    point, colour = through([Point(1, 2), Colour.RED])
    assert (type(point).__name__, point, repr(point)) == ("Point", (1, 2), "Point(x=1, y=2)")
    assert (type(colour).__name__, colour, isinstance(colour, int)) == ("Colour", 1, True)
    assert (vars(point), type(point) is Point) == ({}, False)
    tagged = [Tagged(1.0), Tagged(1.0)]
    for number, tag in zip(tagged, "ab", strict=True):
        number.tag = tag
    assert [vars(each) for each in through(tagged)] == [{"tag": "a"}, {"tag": "b"}]


def test_other_objects_arrive_as_stand_ins_with_their_equality() -> None:
    one, same, other = through([Equal(1), Equal(1), Equal(2)])
    assert one is same
    assert one is not other
    assert isinstance(one, StandIn)
    assert type(one).__name__ == "Equal"
    today = through([dt.date(2020, 1, 1), os.getpid])
    assert repr(today[0]) == "datetime.date(2020, 1, 1)"
    assert isinstance(today[1], StandIn)  # also for a function that exists in this process


def test_stand_ins_return_as_the_original_objects() -> None:
    objects, known = Objects(), dict[int, Any]()
    mine = [Equal(5), (Point(1, Equal(5)),)]
    away = unpack(pack(mine, objects), known)
    home = unpack(pack(away, Objects()), {}, objects)
    assert home[0] is mine[0]
    assert home[1][0] is mine[1][0]  # type: ignore[index]  # a tuple within a list
    # In a third process that never saw the objects, the stand-ins have the same repr.
    assert repr(unpack(pack(away, Objects()), {}, Objects())) == repr(away)


def test_several_processes_identify_objects_by_their_repr_and_attributes() -> None:
    known = dict[int, Any]()
    first, second = (
        unpack(pack([Colour.RED, Equal(1)], Objects(shared=True)), known) for _ in range(2)
    )
    assert first[0] is second[0]
    assert first[1] is second[1]
    mine, other = (unpack(pack([object()], Objects(shared=True)), known)[0] for _ in range(2))
    assert mine is not other  # its repr contains its address, which differs between processes


def test_attributes_that_hold_data_arrive() -> None:
    (holder,) = through([Holder({"a": threading.Lock()})])
    assert unread_attributes(holder) == ["Holder.cells.a (lock)"]
    assert through([Kind.ONE])[0].own == {}  # its value is in its repr
    one, same, other = through([Equal(1), Equal(1), Equal(2)])
    assert (one.own, one is same, other.own) == ({"value": 1}, True, {"value": 2})
    assert identity(one) != identity(other)


class Hostile:
    def __reduce__(self) -> Any:
        return os._exit, (7,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return os._exit, (7,)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(os.getcwd),
        pickle.dumps(Hostile()),
        pickle.dumps(np.array([1])),
        pickle.dumps(Fraction(1, 2)),
        pack(Fraction(1, 2), Objects()).replace(b"_made", b"_rows"),
        pack(np.array([1]), Objects()).replace(b"<i8", b"|O8"),
        pack(np.array([1]), Objects()).replace(b"<i8", b"<i4"),
        pack([1], Objects())[:-1],
        b"",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="invalid data: "):
        unpack(data, {})


def test_no_pickling_code_of_an_object_runs() -> None:
    (found,) = through([Hostile()])  # unpickling it would end this process
    assert isinstance(found, StandIn)


@dataclass
class Answer:
    number: int
    rows: list[float] = field(repr=False)
    text: object = None


@pytest.mark.parametrize(
    "output",
    [
        Answer(3, [0.5, 2.25], Answer(1, [])),
        pd.DataFrame({"n": [1.0, math.nan], "city": ["Rome", None]}, index=["a", "b"]),
        [pl.Series("n", [1, 2])],
    ],
    ids=["dataclass", "DataFrame", "Series"],
)
def test_composite_outputs_arrive_with_their_parts(output: object) -> None:
    found = through([output])[0]
    table = Schema().read([output, found])
    assert str(identity(found)) == str(identity(output))
    assert table.structures[0] == table.structures[1]
    np.testing.assert_array_equal(table.numbers[0], table.numbers[1])
