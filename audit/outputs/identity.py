r"""The identity of an output: a text that states its type and its exact value.

Two outputs are the same if their identities are equal: ``1``, ``1.0``, ``True`` and ``np.int64(1)``
are four outputs, and ``0.0`` and ``-0.0`` are two. All nan are the same. The order of items matters
in a dict, but not in a set. The identity of an object of an unknown class consists of its repr, its
attributes, and those of the objects in them. If the object is hashable, its own ``==`` is also
used. Tables of pandas, polars and Arrow are read as plain data (:mod:`audit.outputs.tables`).
"""

from __future__ import annotations

import copyreg
import dataclasses
import datetime as dt
import enum
import math
import re
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from audit.outputs.tables import LIBRARIES, VALUES, Table, is_table, read_table

Exact: TypeAlias = int | float | Fraction | Decimal
r"""The types of finite numbers that can be compared exactly with each other."""

TEXTS: Final = {"U": "str", "S": "bytes"}
r"""The names of numpy's text types, without the width, which depends on the other texts of a batch.
"""

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
BY_REPR: Final = (
    _PLAIN
    | {bytearray, range, type(...), Decimal, Fraction}
    | {dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
)
r"""The types whose repr determines the value; all except bytearray are immutable."""

_BARE: Final = frozenset({"int64", "float64", "bool"})
_JSON_NUMBER: Final = re.compile(r"\s*-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*")
_WRAPPED: Final = re.compile(r"np\.(?:int64|float64|bool|str|bytes)\((.*)\)", re.DOTALL)
_STRETCH: Final = 16384
_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset})
_DEEPEST: Final = 50
_MOST_OBJECTS: Final = 1000
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_NOT_OF_EXCEPTION: Final = frozenset({"args", "__dict__", "__traceback__"})
_ADDRESS: Final = re.compile(r" (?:at|@) 0x[0-9a-fA-F]+")
_PICKLED: Final = sys.stdlib_module_names | LIBRARIES
_HEAP_TYPE: Final = 1 << 9


@dataclass(frozen=True, slots=True)
class Written:
    r"""A number that was read from a text: its value, and the text."""

    value: Exact
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Name:
    r"""An identity that consists of a text and of objects that are compared with ``==``.

    For an array, the objects are its type, shape and bytes.
    """

    text: str
    objects: tuple[Hashable, ...]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, repr=False)
class _Array(Name):
    # An array of plain numbers, by type, shape and bytes. Its text is computed only on demand,
    # because formatting takes longer than the test.
    @classmethod
    def of(cls, value: Any) -> _Array:
        value = _one_form(value)
        return cls("", (value.dtype.str, value.shape, value.tobytes()))

    def __str__(self) -> str:
        form, shape, entries = cast("tuple[str, tuple[int, ...], bytes]", self.objects)
        return _text(np.frombuffer(entries, form).reshape(shape), [])


def _one_form(array: NDArray[Any]) -> NDArray[Any]:
    # Replace every nan with the same nan.
    if array.dtype.kind == "f" and (odd := np.isnan(array)).any():
        array = array.copy()
        array[odd] = math.nan
    return array


@dataclass(frozen=True, slots=True)
class Unread:
    r"""A placeholder for an attribute of class ``kind`` that :func:`attributes_of` cannot read."""

    kind: str


class Number(NamedTuple):
    r"""The value of a number, and its ``form``: the type and, if needed, the text as written."""

    value: Exact
    form: str


def identity(output: object) -> str | Name:
    r"""The identity of an output.

    Two identities are equal if and only if no recipient can distinguish the outputs.
    """
    if type(output) is np.ndarray and output.dtype.kind in "biuf" and output.dtype.itemsize <= 8:
        return _Array.of(output)
    objects: list[Hashable] = []
    text = _text(output, objects)
    return Name(text, tuple(objects)) if objects else text


@dataclass(frozen=True, slots=True, eq=False)
class _Rows(Sequence[Name]):
    # The identities of rows, computed on demand, because few are ever needed.
    form: str
    shape: tuple[int, ...]
    held: NDArray[Any]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return _Array("", (self.form, self.shape, self.held[self.rows[place]].tobytes()))


def distinct_rows(rows: NDArray[Any]) -> tuple[NDArray[np.int64], Sequence[Name]]:
    r"""The distinct identities of the rows of an array of plain numbers.

    Returns, for each row, the index of its identity, and the identities in order of first
    appearance. This is faster than :func:`identity` for each row.
    """
    rows = _one_form(rows)
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    size = flat.itemsize * flat.shape[1]
    words = flat.view(f"u{8 if size % 8 == 0 else flat.itemsize}")
    _, first, place = np.unique(_hashes(words), return_index=True, return_inverse=True)
    if not _alike(words, first[place]):  # a hash collision
        entries = flat.view(np.dtype((np.void, size))).ravel()
        _, first, place = np.unique(entries, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    names = _Rows(rows.dtype.str, rows.shape[1:], flat, first[order])
    return rank[place], names


def _alike(words: NDArray[Any], others: NDArray[np.int64]) -> bool:
    # Whether each row equals the given other row, compared a slice of rows at a time.
    parts = (slice(start, start + _STRETCH) for start in range(0, len(words), _STRETCH))
    return all(bool((words[part] == words[others[part]]).all()) for part in parts)


def _hashes(words: NDArray[Any]) -> NDArray[np.uint64]:
    # The hash of each row: sorting hashes is faster than sorting rows. Collisions are checked
    # later.
    found = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:
        found = (found ^ column) * _ODD
        found ^= found >> np.uint64(29)
    return found


def display_name(name: str | Name, others: object = ()) -> str:
    r"""Format an identity: ``np.str('x')`` as ``'x'``, unless ``'x'`` is one of ``others``."""
    text = str(name)
    match = _WRAPPED.fullmatch(text)
    short = text if match is None else match[1]
    return text if hasattr(others, "__contains__") and short in others else short


def number_in(output: object) -> Number | None:
    r"""Return ``output`` as a :class:`Number` if it is a finite number, not a bool; otherwise None.

    An array of dimension >= 1 with a single element counts as this element.
    """
    kind = type(output)
    if kind is int or kind is float:
        plain: Any = output
        return Number(plain, kind.__name__) if kind is int or math.isfinite(plain) else None
    match output:
        case bool() | np.bool_() | np.timedelta64():
            return None
        case Written():
            return Number(output.value, output.text)
        case np.ndarray() if kind is not np.ndarray:  # a subclass may contain more than a number
            return None
        case np.ndarray() if output.ndim and output.size == 1 and output.dtype.kind in "iuf":
            value = _numpy_value(output.reshape(1)[0])
            return None if value is None else Number(value, array_form(output.dtype, output.shape))
        case np.integer() | np.floating():
            value = _numpy_value(output)
            return None if value is None else Number(value, output.dtype.name)
        case Decimal() | Fraction() if kind in {Decimal, Fraction}:
            finite = isinstance(output, Fraction) or output.is_finite()
            return Number(output, repr(output)) if finite else None
        case int():
            return Number(int.__int__(output), _text(output, []))
        case float():
            bare = float.__float__(output)
            return Number(bare, _text(output, [])) if math.isfinite(bare) else None
        case _:
            return None


def array_form(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    r"""A text that states the type, the shape and any non-native byte order of an array."""
    return f"{dtype.name if dtype.isnative else dtype.str}{shape}"


def _numpy_value(number: Any) -> Exact | None:
    if number.dtype.kind != "f":
        return int(number)
    if not np.isfinite(number):
        return None
    as_float = float(number)
    if number.dtype.itemsize <= 8 or as_float == number:
        return as_float
    return Fraction(*number.as_integer_ratio())


def written(line: str) -> object:
    r"""Parse a program's line: a JSON number as int, float or Written, any other line as text."""
    match = _JSON_NUMBER.fullmatch(line)
    if match is None:
        return line
    number = int(line) if match[1] is match[2] is None else float(line)
    if repr(number) == line:
        return number
    try:
        return Written(Decimal(line.strip()), line)
    except ArithmeticError:  # the exponent is too large for Decimal
        return line


def _text(value: Any, objects: list[Hashable]) -> str:
    kind = type(value)
    if kind in BY_REPR:
        return repr(value)
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value, objects)
    match value:
        case np.generic():
            return _scalar(value, objects)
        case enum.Enum():
            return f"{kind.__qualname__}({_text(value.value, objects)})"
    fields = fields_of(value)
    if fields is not None:
        parts = [f"{field}={_text(item, objects)}" for field, item in fields]
        return f"{kind.__qualname__}({', '.join(parts)})"
    table = table_of(value)
    if table is not None:
        # The repr of a table omits rows and rounds numbers.
        return f"{kind.__qualname__}{_text(table, objects)}"
    for base, bare in ALL_BASES.items():
        if isinstance(value, base):
            own = all_attributes_of(value)
            more = f", {_text(own, objects)}" if own else ""
            return f"{kind.__qualname__}({_text(bare(value), objects)}{more})"
    return _object(value, objects)


def _object(value: Any, objects: list[Hashable]) -> str:
    # An address in an object's repr is omitted from the identity if the object's attributes, or its
    # class's == (if it is hashable), distinguish it from other objects.
    kind, own = type(value), attributes_of(value)
    text, plain = f"{kind.__qualname__}: {value!r}", cast("Any", object.__eq__)
    bare = without_address(text)
    same = kind.__eq__ is not plain or isinstance(value, StandIn) or (bare != text and not own)
    if own:
        bare += f", {_text(own, objects)}"
    if same:
        try:
            hash(value)
        except TypeError:
            return bare if own else text
        objects.append(value)
    return bare


def without_address(text: str) -> str:
    r"""Remove memory addresses, which differ between processes, from a repr."""
    return _ADDRESS.sub("", text)


@lru_cache(maxsize=256)
def _number_text(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def type_text(dtype: np.dtype[Any]) -> str:
    r"""The text of a dtype, cached for types of numbers because numpy recomputes it at each call.

    It is not cached for record types, because two equal record types may have different texts.
    """
    return _number_text(dtype) if dtype.kind in "biufc" else str(dtype)


def _scalar(value: Any, objects: list[Hashable]) -> str:
    kind = value.dtype.kind
    name = type_text(value.dtype) if kind in "biufc" else TEXTS.get(kind, value.dtype.name)
    if kind in "mM":
        return f"np.{name}({value!s})"
    item = value.item()
    bare = repr(value) if isinstance(item, np.generic) else _text(item, objects)
    more = f", dtype={value.dtype}" if value.dtype.names is not None else ""
    return f"np.{name}({bare}{more})"


def _array(value: Any, objects: list[Hashable]) -> str:
    dtype, name = value.dtype, str(value.dtype)
    more = "" if name in _BARE else f", dtype={name}"
    more += f", shape={value.shape}" if not value.size else ""
    items = value.astype(str) if dtype.kind in "mM" else value
    return f"array({_text(items.tolist(), objects)}{more})"


def _items(value: Any, objects: list[Hashable]) -> str:
    return ", ".join(_text(item, objects) for item in value)


def _row(value: Any, objects: list[Hashable]) -> str:
    # A list or a tuple, formatted as repr does.
    if _PLAIN.issuperset(map(type, value)):
        return repr(value)
    if type(value) is list:
        return f"[{_items(value, objects)}]"
    return f"({_items(value, objects)}{',' * (len(value) == 1)})"


def _set(value: Any, objects: list[Hashable]) -> str:
    parts: list[tuple[str, list[Hashable]]] = []
    for item in value:
        own: list[Hashable] = []
        parts.append((_text(item, own), own))
    parts.sort(key=lambda part: part[0])
    for _, own in parts:
        objects += own
    text = f"{{{', '.join(text for text, _ in parts)}}}"
    return text if type(value) is set and parts else f"{type(value).__name__}({text})"


def _dict(value: Any, objects: list[Hashable]) -> str:
    pairs = (f"{_text(k, objects)}: {_text(v, objects)}" for k, v in value.items())
    return f"{{{', '.join(pairs)}}}"


_Writer: TypeAlias = Callable[[Any, list[Hashable]], str]
_WRITERS: Final[dict[type, _Writer]] = {
    list: _row,
    tuple: _row,
    dict: _dict,
    set: _set,
    frozenset: _set,
    np.ndarray: _array,
    Written: lambda value, _: value.text,
    Unread: lambda value, _: f"not read: {value.kind}",
}

BASES: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    # dict.items of an OrderedDict is in the order of insertion, before any move_to_end.
    dict: lambda value: dict(
        (OrderedDict if isinstance(value, OrderedDict) else dict).items(value)
    ),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
r"""Functions that read the content of a subclass instance with methods of the base class only."""

ALL_BASES: Final[dict[type, Callable[[Any], Any]]] = {
    **BASES,
    np.ndarray: lambda value: value.view(np.ndarray),
}
r""":data:`BASES` with an additional entry for arrays."""

_WRITERS[Table] = lambda value, objects: _dict(
    {**value.fixed, **value.more, VALUES: value.values}, objects
)


# For some built-in classes, the state that the pickled form of an instance omits.
_STATES: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    re.Match: lambda value: {
        name: getattr(value, name) for name in ("string", "re", "regs", "pos", "endpos")
    },
    memoryview: lambda value: {"bytes": value.tobytes(), "type": value.format, "at": value.shape},
    types.MappingProxyType: lambda value: {"pairs": dict(value)},
    types.ModuleType: lambda value: {"content": Unread(value.__name__)},
    **dict.fromkeys(
        map(type, ({}.keys(), {}.values(), {}.items())), lambda value: {"items": [*value]}
    ),
}


_WITH_VALUE: Final = (*ALL_BASES, BaseException, np.generic)


class StandIn:
    r"""A placeholder for an object that remains in another process.

    For an object of a subclass of int, tuple or another built-in type, the placeholder is also an
    instance of this type and compared as such. Any other placeholder equals only itself. ``own``
    contains the object's attributes, ``fields`` the fields of a dataclass, and ``table`` the
    content of a table.
    """

    number: int
    text: str
    own: dict[str, Any]
    fields: tuple[tuple[str, Any], ...] | None = None
    table: Table | None = None

    def __repr__(self) -> str:
        return self.text


def fields_of(output: Any) -> tuple[tuple[str, Any], ...] | None:
    r"""The fields of a dataclass, named tuple or masked array as pairs (name, value); else None."""
    names = field_names(output)
    if names is not None:
        return *all_attributes_of(output).items(), *zip(names, tuple.__iter__(output), strict=True)
    if isinstance(output, StandIn):
        return output.fields
    if isinstance(output, np.ma.MaskedArray):
        if output is np.ma.masked:
            return ()
        own = {name: item for name, item in vars(output).items() if not name.startswith("_")}
        parts = {name: getattr(output, name) for name in ("mask", "fill_value", "hardmask")}
        return tuple({"data": np.ma.getdata(output), **parts, **own}.items())
    if not dataclasses.is_dataclass(type(output)):
        return None
    fields = {each.name: getattr(output, each.name) for each in dataclasses.fields(output)}
    return tuple((attributes_of(output) | fields).items())


def field_names(output: Any) -> tuple[str, ...] | None:
    r"""The names of the fields of a named tuple, or None for any other object."""
    if not isinstance(output, tuple):
        return None
    names: Any = getattr(type(output), "_fields", None)
    named = type(names) is tuple and len(names) == tuple.__len__(output)
    return names if named and all(type(name) is str for name in names) else None


def attributes_of(output: Any) -> dict[str, Any]:
    r"""The attributes of an object as plain data, including those that its repr omits.

    If an attribute contains another object, that object becomes a dict of its class and attributes,
    up to 1000 objects and 50 levels. Objects beyond these limits, or without readable data, become
    :class:`Unread`. The attributes of a class are included if it is defined in a function or
    created with ``type()``. The pickled state is read instead of attributes for objects without
    attributes, and for objects of Python's standard library or a table library. The result is empty
    for enum members and for tables (see :func:`table_of`).
    """
    if isinstance(output, StandIn):
        return output.own
    if is_table(type(output)):
        return {}
    return _attributes(output, {id(output): (0, output)}, _DEEPEST)


def all_attributes_of(output: Any) -> dict[str, Any]:
    r"""All attributes of an instance of a subclass of a plain type, without conversion."""
    return {**attributes_of(output), **getattr(output, "__dict__", {})}


def unread_attributes(output: Any) -> list[str]:
    r"""The paths and classes of the attributes that :func:`attributes_of` cannot read."""
    found = attributes_of(output)
    return list(_unread_in(found, type(output).__name__)) if _has_unread(found) else []


def _has_unread(value: Any) -> bool:
    # Whether _unread_in() yields a path: without paths this is many times faster.
    if type(value) not in (dict, list, tuple):
        return isinstance(value, Unread)
    return any(map(_has_unread, value.values() if type(value) is dict else value))


def _unread_in(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Unread):
        where = path.removesuffix(".content")
        yield where if where == value.kind else f"{where} ({value.kind})"
    if type(value) in (dict, list, tuple):
        for name, item in value.items() if type(value) is dict else enumerate(value):
            yield from _unread_in(item, f"{path}.{name}")


# For each object that was read, by id, its number and itself: later references are written as the
# number, so that cycles end. The object is kept alive, so that its id is not used again.
_Seen: TypeAlias = dict[int, tuple[int, object]]


def _attributes(value: Any, seen: _Seen, depth: int) -> dict[str, Any]:
    own = _own_attributes(value)
    found = {name: _data(item, seen, depth - 1) for name, item in own.items()}
    if _has_unread(found):
        # The class may pickle what such an attribute holds, as an image does.
        more = _of_state(value).items()
        read = {name: _data(item, seen, depth - 1) for name, item in more if name not in own}
        found |= {name: item for name, item in read.items() if not _has_unread(item)}
    return found


def _own_attributes(value: Any) -> dict[str, Any]:
    kind = type(value)
    if isinstance(value, type):
        return _of_local_classes(value)
    if isinstance(value, enum.Enum):
        return {}
    error = isinstance(value, BaseException)
    found = _of_exception(value) if error else {}
    if isinstance(value, defaultdict) and value.default_factory is not None:
        found["default_factory"] = value.default_factory
    if hasattr(kind, "n_unnamed_fields"):  # a tuple of C, some fields of which are not items
        found |= value.__reduce__()[1][1]
    # Instances of classes of Python and pandas may cache a text or a hash in an attribute that is
    # not pickled.
    if error or str(kind.__module__).partition(".")[0] not in _PICKLED:
        found |= _joined(object.__getstate__(value))
    if not found and kind not in BY_REPR and not isinstance(value, _WITH_VALUE):
        found = _of_state(value)
    return _of_local_classes(kind) | found


def _of_state(value: Any) -> dict[str, Any]:
    # The parts of an object's pickled state.
    kind: Any = type(value)
    reader = _STATES.get(kind)
    if reader is not None:
        return reader(value)
    try:
        by_class = copyreg.dispatch_table.get(kind)
        reduced = value.__reduce_ex__(4) if by_class is None else by_class(value)
    except Exception:  # noqa: BLE001 - code of any class
        reduced = None
    hidden = reduced is None or _is_local(kind)  # methods of a local class are not read
    if type(reduced) is not tuple:
        reduced = (None, ())
    _, args, state, items, pairs = (*reduced, None, None, None)[:5]
    parts = {
        "args": tuple(item for item in args if item is not kind),
        "state": None if _joined(state) else state,
        "items": items and list(items),
        "pairs": pairs and dict(pairs),
    }
    found = {name: part for name, part in parts.items() if part} | _joined(state)
    text = "" if found else repr(value)
    if "..." in text or (text != without_address(text) and hidden):
        return {"content": Unread(kind.__qualname__)}
    return found


def _joined(state: Any) -> dict[str, Any]:
    # The attributes in a state, which is a dict, or a tuple of a dict of attributes and a dict of
    # slots.
    both = state if type(state) is tuple else (state,)
    return {name: item for part in both if type(part) is dict for name, item in part.items()}


def _of_local_classes(kind: type) -> dict[str, Any]:
    # The attributes of local classes: each call creates a new class, with other attributes.
    return {
        name: item
        for base in reversed(kind.__mro__)
        if _is_local(base)
        for name, item in vars(base).items()
        if not name.startswith(("__", "_abc_")) and not hasattr(type(item), "__get__")
    }


def _is_local(kind: type) -> bool:
    # Whether a class is defined in a function, or made by ``type()``.
    if not kind.__flags__ & _HEAP_TYPE:
        return False
    found: Any = sys.modules.get(kind.__module__)
    if "<locals>" in kind.__qualname__ or found is None:
        return found is not None or "<locals>" in kind.__qualname__
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is not kind


def _of_exception(error: BaseException) -> dict[str, Any]:
    # The attributes of the built-in classes, such as __cause__ and filename, without the traceback,
    # which refers to all variables of the target. The arguments are in the repr, and are added here
    # only if the repr may shorten them.
    names = {
        name
        for base in type(error).__mro__
        if base.__module__ == "builtins" and base is not object
        for name, item in vars(base).items()
        if isinstance(item, types.MemberDescriptorType | types.GetSetDescriptorType)
    }
    found = {name: getattr(error, name, None) for name in sorted(names - _NOT_OF_EXCEPTION)}
    if not _PLAIN.issuperset(map(type, error.args)):
        found["args"] = error.args
    return {name: item for name, item in found.items() if item is not None and item is not False}


def _data(value: Any, seen: _Seen, depth: int) -> Any:
    kind = type(value)
    if _is_data(value, depth) or isinstance(value, enum.Enum | Unread) or is_table(kind):
        return value
    if id(value) in seen:
        return f"object {seen[id(value)][0]}"
    if depth > 0 and len(seen) < _MOST_OBJECTS:
        seen[id(value)] = len(seen), value
        if kind in (list, tuple):
            return kind(_data(item, seen, depth - 1) for item in value)
        if kind is dict and all(_is_data(key, depth) for key in value):
            return {key: _data(item, seen, depth - 1) for key, item in value.items()}
        with suppress(Exception):  # the code of any class may raise
            if found := _contents(value, seen, depth):
                return {"__class__": kind.__qualname__, **found}
    return Unread(kind.__qualname__)


def _contents(value: Any, seen: _Seen, depth: int) -> dict[str, Any]:
    # The attributes, with the value as an instance of a base type, or else the repr, unless the
    # repr is only an address.
    found, kind = _attributes(value, seen, depth), cast("Any", type(value))
    if names := field_names(value):
        items = zip(names, tuple.__iter__(value), strict=True)
        return {**found, "value": _data(dict(items), seen, depth - 1)}
    for base, bare in BASES.items():
        if isinstance(value, base):
            return {**found, "value": _data(bare(value), seen, depth - 1)}
    if isinstance(value, np.ndarray):
        items = _data(value.ravel().tolist(), seen, depth)
        return {**found, "type": str(value.dtype), "shape": value.shape, "items": items}
    if found and kind.__repr__ is object.__repr__:
        return found
    text = repr(value)
    bare_text = without_address(text)
    return {**found, "repr": bare_text} if found or bare_text == text else {}


def _is_data(value: Any, depth: int) -> bool:
    kind = type(value)
    if isinstance(value, np.ndarray | np.generic):
        return not value.dtype.hasobject
    if kind not in _CONTAINERS or not depth:
        return kind in BY_REPR
    items = chain(value.keys(), value.values()) if kind is dict else value
    return all(_is_data(item, depth - 1) for item in items)


def table_of(output: Any) -> Table | None:
    r"""The content of an output that is a table, or None for any other output."""
    if isinstance(output, StandIn):
        return output.table
    return read_table(output) if is_table(type(output)) else None
