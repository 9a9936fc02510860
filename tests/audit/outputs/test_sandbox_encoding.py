"""Tests of `audit.outputs.sandbox_encoding`: plain values cross unchanged; no code runs."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from audit.outputs.identity import StandIn, identity, unread_attributes
from audit.outputs.sandbox_encoding import Objects, pack, unpack
from tests.audit.outputs.test_serialise import EMPTY, VALUES, shown
from tests.support.audit.distinct_constants import Bare, Colour, Level, Own, Point

PLAIN = [
    *VALUES,
    *EMPTY,
    np.ndarray(2, "U0"),
    *(np.datetime64("2020-01-01", "D"), np.timedelta64(3, "s"), np.longdouble(1) / 3),
    np.array([1, None, [2, 3]], dtype=object),
    np.array([[1, 2], [3, 4]], dtype=object),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array(["2020-01-01"], dtype="M8[D]"),
    np.array([np.nan, -0.0], dtype=">f4"),
]


def through(value: object) -> Any:
    return unpack(pack(value, Objects()), {})


def test_plain_values_and_arrays_arrive_as_they_are() -> None:
    for value in PLAIN:
        for found in (through(value), through([value])[0]):
            assert type(found) is type(value)
            assert shown(found) == shown(value)
            if isinstance(found, np.ndarray):
                assert found.dtype == value.dtype
                found.setflags(write=True)


class Tagged(float):
    tag: str


def test_subclasses_of_plain_values_arrive_as_values_with_their_class_name() -> None:
    point, colour = through([Point(1, 2), Level.ONE])
    assert (type(point).__name__, point, repr(point)) == ("Point", (1, 2), "Point(x=1, y=2)")
    assert (type(colour).__name__, colour, isinstance(colour, int)) == ("Level", 1, True)
    assert (vars(point), type(point) is Point) == ({}, False)
    tagged = [Tagged(1.0), Tagged(1.0)]
    for number, tag in zip(tagged, "ab", strict=True):
        number.tag = tag
    assert [vars(each) for each in through(tagged)] == [{"tag": "a"}, {"tag": "b"}]


def test_other_objects_arrive_as_stand_ins_with_their_equality_and_data() -> None:
    one, same, other = through([Own(1), Own(1), Own(2)])
    assert one is same
    assert isinstance(one, StandIn)
    assert type(one).__name__ == "Own"
    assert (one.own, other.own) == ({"value": 1}, {"value": 2})
    assert identity(one) != identity(other)
    today = through([dt.date(2020, 1, 1), os.getpid, Colour.RED])
    assert repr(today[0]) == "datetime.date(2020, 1, 1)"
    assert isinstance(today[1], StandIn)  # also for a function that exists in this process
    assert today[2].own == {}  # its value is in its repr
    (holder,) = through([Bare({"a": threading.Lock()})])
    assert unread_attributes(holder) == ["Bare.value.a (lock)"]


def test_stand_ins_return_as_the_original_objects() -> None:
    objects, known = Objects(), dict[int, Any]()
    mine = [Own(5), (Point(1, Own(5)),)]
    away = unpack(pack(mine, objects), known)
    home = unpack(pack(away, Objects()), {}, objects)
    assert home[0] is mine[0]
    assert home[1][0] is mine[1][0]  # type: ignore[index]  # a tuple within a list
    # In a third process that never saw the objects, the stand-ins have the same repr.
    assert repr(unpack(pack(away, Objects()), {}, Objects())) == repr(away)


def test_several_processes_identify_objects_by_their_repr_and_attributes() -> None:
    known = dict[int, Any]()
    first, second = (
        unpack(pack([Level.ONE, Own(1)], Objects(shared=True)), known) for _ in range(2)
    )
    assert first[0] is second[0]
    assert first[1] is second[1]
    mine, other = (unpack(pack([object()], Objects(shared=True)), known)[0] for _ in range(2))
    assert mine is not other  # its repr contains its address, which differs between processes


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
