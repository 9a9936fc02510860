"""Pairs of outputs of every type that a recipient can tell apart."""

from __future__ import annotations

import ast
import ctypes
import dataclasses
import datetime as dt
import enum
import math
import os
import re
import time
from collections import OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from email.message import EmailMessage
from fractions import Fraction
from pathlib import PurePath
from queue import Queue
from tarfile import TarInfo
from typing import Any, NamedTuple
from urllib.request import Request
from xml.etree.ElementTree import Element

import numpy as np


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@dataclasses.dataclass(frozen=True)
class Hidden:
    shown: int
    secret: Any = dataclasses.field(default=0, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Named:
    name: float


Point = namedtuple("Point", "x y")  # noqa: PYI024 - such as targets return


class Stated(NamedTuple):
    x: int
    z: int


Stated.__name__ = Stated.__qualname__ = "Point"


class Square(np.ndarray):
    """A subclass of arrays without attributes."""


class Covered(np.ma.MaskedArray[Any, Any]):
    """A subclass of masked arrays without attributes."""


def wide(value: int) -> Any:
    """An array whose repr omits the item in the middle."""
    return np.where(np.arange(1200) == 600, value, 0)


class Own:
    """An object compared by its own ``==``."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.value == other.value

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Own"


class Picture:
    """An object whose pixels are in native code, and in what it pickles."""

    def __init__(self, pixel: int) -> None:
        self.native: Any = lambda: pixel

    def __getstate__(self) -> list[Any]:
        return [bytes([self.native()])]


class Silent:
    """An object whose ``==`` and repr omit its attributes, one of which is in a slot."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, slot: Any, **attributes: Any) -> None:
        self.slot = slot
        vars(self).update(attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Silent)

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Silent"


class Bare:
    """An object without ``==`` and repr."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclasses.dataclass
class Noted:
    shown: int = 1

    def __post_init__(self) -> None:
        self.note: Any = None


def having(value: Any, **attributes: Any) -> Any:
    """The value with these attributes set."""
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def failed(
    *args: Any, cause: Any = None, context: Any = None, note: str = "", hides: bool = False
) -> Exception:
    found = OSError(*args) if args else ValueError("no")
    if cause is not None:
        found.__cause__ = cause
    found.__context__, found.__suppress_context__ = context, hides or cause is not None
    if note:
        found.add_note(note)
    return found


def local(value: Any, base: Any = object) -> Any:
    """An object of a class that is made anew by each call."""

    class Answer(base):  # type: ignore[misc]  # any base
        shared = value

    return Answer()


class Labelled(str):
    __slots__ = ("label",)


class Tagged(np.ndarray):
    """A subclass of arrays with an attribute."""


def under_mask(value: Any, note: Any = None, **options: Any) -> Any:
    found: Any = np.ma.array([(1, value)], mask=[(False, True)], **options)
    if note is not None:
        found.note = note
    return found


def queued(item: object) -> Any:
    found: Queue[object] = Queue()
    found.put(item)
    return found


def mailed(text: str) -> EmailMessage:
    found = EmailMessage()
    found.set_content(text)
    return found


TAGGED: Any = np.zeros(3).view(Tagged)
RECORDS: Any = np.ones(2, [("x", int)]).view(np.recarray)
RECORD = [("a", int), ("b", float)]
UTC, LATE = dt.UTC, dt.timezone(dt.timedelta(hours=1))


def row(name: str, form: str = "<i4") -> Any:
    return np.array([(1, 2)], [(name, form), ("n", "<i8")])


def ordered(*last: str) -> OrderedDict[str, int]:
    found = OrderedDict(a=1, b=2)
    for key in last:
        found.move_to_end(key)
    return found


NOON = dt.datetime(2024, 10, 27, 2, 30)  # noqa: DTZ001 - a time that comes twice
TINY = np.finfo(np.longdouble).eps

APART: list[tuple[Any, Any]] = [
    (10**17, 10**17 + 1), (2**53, 2**53 + 1), (2**63 - 1, 2**63 - 2), (10**400, 10**400 + 1),
    (10**17, 1e17), (0.0, -0.0), (0, 0.0), (1, 1.0), (1, True), (0, False), (1, "1"), ("1", b"1"),
    ("a", "a "), (None, "None"), (b"x", bytearray(b"x")), (1, 1 + 0j), (0j, complex(0.0, -0.0)),
    (0.1, math.nextafter(0.1, 1)), (5e-324, 0.0), (math.inf, -math.inf), (math.inf, math.nan),
    (math.nan, None), (math.nan, Decimal("nan")), ([1], [1.0]), ([0.0], [-0.0]), ([1], (1,)),
    ([], ()), ([], {}), ([1, 2], [2, 1]), ([None], [math.nan]), ({1}, {1.0}), ({1}, frozenset({1})),
    ({"a": 1}, {"a": 1.0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: "a"}, {1.0: "a"}),
    (Decimal("1.0"), Decimal("1.00")), (Decimal(1), 1), (Decimal("1E+2"), Decimal(100)),
    (Decimal(1), Decimal("1.0")), (Decimal(0), Decimal("0.0")), (ordered(), ordered("a")),
    (Silent(ordered()), Silent(ordered("a"))),
    (Decimal("inf"), math.inf), (Fraction(1), 1),
    (Fraction(1, 3), Fraction(10**30, 3 * 10**30 + 1)), (np.int64(1), 1),
    (np.int64(1), np.int32(1)), (np.uint8(1), np.int8(1)), (np.int64(10**17), np.int64(10**17 + 1)),
    (np.int64(1), np.float64(1)), (np.bool_(True), np.int64(1)), (np.str_("a"), np.bytes_(b"a")),
    (np.uint64(2**64 - 1), np.uint64(2**64 - 2)), (np.float64(1), 1.0),
    (np.float32(0.5), np.float64(0.5)), (np.longdouble(1), np.longdouble(1) + TINY),
    (np.longdouble(1), 1.0), (np.float64(0.0), np.float64(-0.0)), (np.float64(math.nan), math.nan),
    (np.bool_(True), True), (np.str_("x"), "x"), (np.bytes_(b"x"), b"x"),
    (np.complex128(1), 1 + 0j), (np.array([1]), 1), (np.array(1), np.int64(1)),
    (np.array([1, 2]), [1, 2]), (np.array([1, 2]), np.array([1.0, 2.0])),
    (np.array([1, 2]), np.array([[1, 2]])), (np.array([1, 2], np.int32), np.array([1, 2])),
    (np.array([0.0, 1.0]), np.array([-0.0, 1.0])),
    (np.array([10**17, 0]), np.array([10**17 + 1, 0])), (np.zeros(0), np.zeros((0, 3))),
    (np.arange(3000), np.arange(3000) + (np.arange(3000) == 1500)),
    (np.array(["a", "b"]), np.array([b"a", b"b"])),
    (np.array([1, "a"], dtype=object), np.array([True, "a"], dtype=object)),
    (np.datetime64("2024-01-01"), np.datetime64("2024-01-01T00")),
    (np.timedelta64(60, "s"), np.timedelta64(1, "m")),
    (np.timedelta64("NaT"), np.timedelta64(1, "s")), (NOON, NOON.replace(fold=1)),
    (NOON, NOON.replace(tzinfo=UTC)), (NOON.replace(tzinfo=UTC), NOON.replace(hour=3, tzinfo=LATE)),
    (dt.time(2, 30), dt.time(2, 30, fold=1)),
    (dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)),  # noqa: DTZ001 - a date and its midnight
    (dt.timedelta(days=1), dt.timedelta(days=1, microseconds=1)), (Colour.RED, Colour.BLUE),
    (Colour.RED, 1), (Level.ONE, 1), (Text("a"), Text("b")), (Text("a"), "a"),
    (Hidden(1, 2), Hidden(1, 3)), (Named(0.0), Named(-0.0)), (Named(1.0), Hidden(1)),
    (Point(1, 2), (1, 2)), (Own(1), Own(2)), ([Own(1)], [Own(2)]), (Silent(1), Silent(2)),
    (Silent(1, raw=[0.5]), Silent(1, raw=[0.25])),
    (Silent(1, cells=np.arange(3)), Silent(1, cells=np.arange(1, 4))), (Bare(1), Bare(2)),
    (Silent(Bare(1)), Silent(Bare(2))), (Picture(1), Picture(2)), ([Picture(1)], [Picture(2)]),
    (Silent(Picture(1)), Silent(Picture(2))),
    (Silent(1, held=[{"a": (Bare(1),)}]), Silent(1, held=[{"a": (Bare(2),)}])),
    (Silent(PurePath("a")), Silent(PurePath("b"))),
    (Silent(Silent(1, up=Bare(1))), Silent(Silent(1, up=Bare(2)))),
    (ValueError("a"), ValueError("b")), (having(Noted(), note=1), having(Noted(), note=2)),
    (range(3), range(4)),
    (np.array([1, 2], ">i8"), np.array([1, 2])), (np.array([1], ">i8"), np.array([1])),
    (np.array([0.5, math.nan], ">f4"), np.array([0.5, math.nan], "f4")),
    (np.array(["a"], "U10"), np.array(["a"], "U11")),
    (np.array([(1, 2)], [("a", "<i8"), ("b", "<i4")]),
     np.array([(1, 2)], [("a", "<i8"), ("b", ">i4")])),
    (under_mask(2), under_mask(3)), (under_mask(2, dtype=RECORD), under_mask(3, dtype=RECORD)),
    ([under_mask(2, dtype=object)], [under_mask(3, dtype=object)]),
    (under_mask(2, note="a"), under_mask(2, note="b")),
    (Silent(under_mask(2)), Silent(under_mask(3))),
    (np.ma.array(1.0, mask=True), np.ma.array(2.0, mask=True)),
    (np.ma.array([1]), np.ma.array([1], mask=[False])),
    (np.ma.array([1], mask=[True]), np.ma.array([1], mask=[False])),
    (np.ma.array([1], fill_value=2), np.ma.array([1], fill_value=3)),
    (np.ma.masked, np.ma.array(0.0, mask=True)),
    (having(TAGGED.copy(), tag=1), having(TAGGED.copy(), tag=2)),
    (failed(note="a"), failed(note="b")), (failed(cause=KeyError(1)), failed(cause=KeyError(2))),
    (failed(context=failed(note="a")), failed(context=failed(note="b"))),
    (failed(2, "no", "a"), failed(2, "no", "b")), (failed(), failed(hides=True)),
    (ExceptionGroup("no", [failed(note="a")]), ExceptionGroup("no", [failed(note="b")])),
    (local(1), local(2)), (type(local(1)), type(local(2))), (local(1, int), local(2, int)),
    (having(Labelled("a"), label=1), having(Labelled("a"), label=2)), (Point(1, 2), Stated(1, 2)),
    ([Point(1, 2)], [Stated(1, 2)]),
    (Silent([Point(1, 2)]), Silent([Stated(1, 2)])),
    (np.ones((1, 2)).view(np.matrix), np.ones((1, 2))), (np.ones(2).view(Square), np.ones(2)),
    (Covered([1, 2], mask=[False, True]), np.ma.array([1, 2], mask=[False, True])),
    (RECORDS, RECORDS.view(np.ndarray)), (RECORDS[0], np.asarray(RECORDS).view([("x", int)])[0]),
    (RECORDS.view(np.ndarray), np.asarray(RECORDS).view([("x", int)])),
    (row("a"), row("b")), (row("a")[0], row("b")[0]), (row("a", "O"), row("b", "O")),
    (row("a", "O")[0], row("b", "O")[0]), (row("a", "O"), row("a", "O").astype(object)),
    (np.array(["a"], np.dtypes.StringDType()), np.array(["a"], object)),
    (np.array(["a"], np.dtypes.StringDType()), np.array(["b"], np.dtypes.StringDType())),
    (np.array(["a"], np.dtypes.StringDType()),
     np.array(["a"], np.dtypes.StringDType(na_object=None))),
    (wide(1)[None].view(np.matrix), wide(2)[None].view(np.matrix)),
    (Silent(wide(1).astype(object)), Silent(wide(2).astype(object))),
    (ValueError(wide(1)), ValueError(wide(2))), (deque([Silent(1)]), deque([Silent(2)])),
    (re.match("a", "a 1"), re.match("a", "a 2")), (memoryview(b"1"), memoryview(b"2")),
    (defaultdict(int), defaultdict(float)),
    (having(Element("a"), text="1"), having(Element("a"), text="2")),
    (having(TarInfo("a"), size=1), having(TarInfo("a"), size=2)),
    (os.stat_result(range(10), {"st_atime_ns": 1}), os.stat_result(range(10), {"st_atime_ns": 2})),
    (time.struct_time(range(9), {"tm_zone": "a"}), time.struct_time(range(9), {"tm_zone": "b"})),
    (type("A", (), {"x": 1}), type("A", (), {"x": 2})), (mailed("1"), mailed("2")),
    (type("A", (), {"x": 1})(), type("A", (), {"x": 2})()), (queued(1), queued(2)),
    ((ctypes.c_int * 2)(1, 2), (ctypes.c_int * 2)(1, 3)), (ast.parse("1"), ast.parse("2")),
    (Request("http://a", b"1"), Request("http://a", b"2")), (b"1.0", b"1.00"),
    (np.clongdouble(1), np.clongdouble(1 + 1j)), ({True: 1}, {1.0: 1}), ({0.0: 1}, {-0.0: 1}),
    ("7 of 1.0", "007 of 1.00"), ("a\nb", "a\r\nb"),
]  # fmt: skip

LINES = [
    ("100000000000000000", "100000000000000001"), ("1e999", "1e998"),
    ("0.1", "0.10000000000000000000001"), ("1", "1.0"), ("1.0", "1.00"), ("1e2", "100"),
    ("0", "-0"), ("0.0", "-0.0"), ("1", " 1"), ("1e9999999999999999999", "1e9999999999999999998"),
    ('{"a":1,"a":2}', '{"a":2}'), ('{"a": 2}', '{"a":2}'), ("[1]", "[1.0]"), ("true", "1"),
    ('"1"', "1"), ('"\\u0061"', '"a"'), ("NaN", "null"), ("Infinity", "1e999"), ("a", ""),
]  # fmt: skip
