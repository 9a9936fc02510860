r"""Encode values that are sent between the auditor and the process that runs audited code.

Only data are sent. Numbers, text, arrays and containers of them arrive unchanged. An object of any
other class remains in its process, and the receiver gets a placeholder, a
:class:`audit.outputs.identity.StandIn`. The placeholder contains a number, the name of the object's
class, its repr, its attributes that hold data, the fields of a dataclass, and the content of a
table. Two placeholders are the same if their objects have the same class and identity. The bytes
are a pickle that may refer only to :func:`_made`, so unpacking runs none of the sender's code.

An instance of a subclass of list, tuple, array, ... arrives as an instance of a class with the same
name, whose items are plain data. A named tuple keeps the names of its fields.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from audit.outputs.identity import (
    ALL_BASES,
    Name,
    StandIn,
    Unread,
    all_attributes_of,
    attributes_of,
    field_names,
    fields_of,
    identity,
    table_of,
)
from audit.outputs.tables import Table

_PLAIN: Final = "biufcSUmM"
_ARRAYS: Final = frozenset({np.ndarray, np.ma.MaskedArray, type(np.ma.masked)})
_PARTS: Final = tuple(each.name for each in dataclasses.fields(Table))
_TOKEN: Final = 40  # the number of random bits appended to a counter


@dataclass(slots=True, kw_only=True)
class Objects:
    r"""The objects of this process to which other processes refer by number.

    Set ``shared=True`` if several processes send to the same receiver. All of them then use the
    same number for equal objects, except for objects with only the default repr and no attributes.
    """

    shared: bool = False
    _numbers: dict[Any, int] = field(default_factory=dict)
    _first: dict[int, Any] = field(default_factory=dict)
    _token: int = field(default_factory=lambda: secrets.randbits(_TOKEN))

    def number(self, value: Any, text: str, which: str | Name) -> int:
        r"""The number of an object; objects of one class and identity have the same number."""
        kind = type(value)
        # The default repr is only an address.
        address, own = getattr(kind, "__repr__", None) is object.__repr__, _own(value)
        content = ("" if address else text, repr(own), str(identity(own)), str(which))
        mark = content if own or not address else None
        alike = (kind, which)
        found = self._numbers.get(alike)
        if found is None:
            found = len(self._numbers)
            if self.shared and mark is not None:
                name = f"{kind.__module__}.{kind.__qualname__} {mark}".encode(errors="replace")
                found = -int.from_bytes(hashlib.sha256(name).digest()[:16]) - 1
            elif self.shared:
                found = (found << _TOKEN) + self._token
            self._numbers[alike] = found
            self._first.setdefault(found, value)
        return found

    def find(self, number: int, otherwise: Callable[[], Any]) -> Any:
        r"""Return the object with this number, or ``otherwise()`` if there is none."""
        return self._first[number] if number in self._first else otherwise()


def pack(value: object, objects: Objects) -> bytes:
    r"""Serialise a value for another process.

    Serialising runs code of the value's class (its hash, equality and repr); see
    :func:`audit.outputs.time_limit.reading`.
    """
    file = io.BytesIO()
    _Pickler(file, objects).dump(value)
    return file.getvalue()


def unpack(data: bytes, known: dict[int, Any], objects: Objects | None = None) -> Any:
    r"""Parse the bytes that :func:`pack` returned. Raises ValueError if they are invalid.

    ``known`` contains earlier placeholders from the same sender, by number, and receives the new
    placeholders. If ``objects`` is given, placeholders for this process's own objects are converted
    back to these objects.
    """
    try:
        return _Unpickler(io.BytesIO(data), known, objects).load()
    except Exception as error:  # a forged pickle can raise anything
        raise ValueError(f"invalid data: {type(error).__name__}: {error}") from error


class _Pickler(pickle.Pickler):
    # The reducer is called for all objects except those of Python's plain types.
    def __init__(self, file: io.BytesIO, objects: Objects) -> None:
        super().__init__(file, protocol=5)
        self._objects = objects

    def reducer_override(self, value: Any) -> Any:
        if value is _made:
            return NotImplemented
        return _made, _described(value, self._objects)


_SENT: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    complex: lambda value: ("complex", value.real, value.imag),
    Fraction: lambda value: ("Fraction", value.numerator, value.denominator),
    Decimal: lambda value: ("Decimal", str(value)),
    Unread: lambda value: ("unread", value.kind),
    Table: lambda value: ("table", *value.parts()),
}


def _described(value: Any, objects: Objects) -> tuple[Any, ...]:
    kind = type(value)
    if isinstance(value, np.generic) and kind.__module__ == "numpy":
        if value.dtype.kind in _PLAIN:
            return "scalar", value.dtype.str, value.tobytes()
        if not value.dtype.hasobject:
            return "row", *_npy(np.asarray(value).reshape(1))
        if value.dtype.names is not None:
            return "entry", *_array(np.asarray(value).reshape(1))[1:]
    if kind in _SENT:
        return _SENT[kind](value)
    if kind in _ARRAYS:
        return _array(value)
    name, fields, table = kind.__name__, fields_of(value), table_of(value)
    # The repr of a dataclass may omit fields; the repr of a table omits rows and rounds numbers.
    which = identity(value if table is None else table)
    if table is not None:
        text = f"{name}{which}"
    else:
        text = repr(value) if fields is None else str(which)
    number = value.number if isinstance(value, StandIn) else objects.number(value, text, which)
    for base, plainly in ALL_BASES.items():
        if isinstance(value, base) and not isinstance(value, np.ma.MaskedArray):
            plain, names = plainly(value), field_names(value)
            return "like", number, name, text, base.__name__, plain, _own(value), names
    return "object", number, name, text, _own(value), fields, table


def _own(value: Any) -> dict[str, Any]:
    # All attributes if the value's class is a subclass of a plain type, otherwise only those that
    # hold data.
    plain = any(isinstance(value, base) for base in ALL_BASES)
    return all_attributes_of(value) if plain else attributes_of(value)


def _array(value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ma.MaskedArray):
        return "masked", dict(cast("Any", fields_of(value)))
    if value.dtype.hasobject:
        return "objects", value.shape, value.ravel().tolist(), *_form(value.dtype)
    if value.dtype.kind in _PLAIN and value.dtype.names is None:
        return "array", value.dtype.str, value.shape, value.tobytes()
    return "rows", *_npy(value)


def _form(dtype: Any) -> tuple[Any, bool]:
    # A type with objects or texts as plain data, and whether its rows are records.
    if dtype.kind == "T":
        options = ("na_object", "coerce")
        return {key: getattr(dtype, key) for key in options if hasattr(dtype, key)}, False
    return np.lib.format.dtype_to_descr(dtype), dtype.type is np.record


def _npy(array: Any) -> tuple[bytes, bool]:
    # The bytes, and whether the rows are records, which the format does not store.
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue(), array.dtype.type is np.record


def _made(*described: Any) -> Any:
    raise AssertionError(described)  # the unpickler replaces this function


def _masked(parts: dict[str, Any]) -> Any:
    names = {"data": "data", "mask": "mask", "fill_value": "fill_value", "hardmask": "hard_mask"}
    if not parts:
        return np.ma.masked
    found = np.ma.MaskedArray(**{word: parts.pop(name) for name, word in names.items()})
    vars(found).update({name: part for name, part in parts.items() if name[:1] != "_"})
    return found


def _objects(
    shape: tuple[int, ...],
    items: list[Any],
    form: Any,
    records: bool,  # noqa: FBT001 - as sent
) -> Any:
    if form == "|O":
        return np.fromiter(items, dtype=object).reshape(shape)
    strings = isinstance(form, dict)
    dtype = np.dtypes.StringDType(**form) if strings else np.lib.format.descr_to_dtype(form)
    return np.array(items, np.dtype((np.record, dtype)) if records else dtype).reshape(shape)


def _values(name: str, shape: Any, data: bytes) -> Any:
    dtype = np.dtype(name)
    if not dtype.itemsize:  # empty texts, which numpy cannot read from bytes
        return np.ndarray(shape, dtype)
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()


def _rows(data: bytes, records: bool) -> Any:  # noqa: FBT001 - as sent
    found = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return found.view(np.dtype((np.record, found.dtype))) if records else found


_MADE: Final[dict[str, Callable[..., Any]]] = {
    "scalar": lambda dtype, data: _values(dtype, 1, data)[0],
    "array": _values,
    "row": lambda data, records: _rows(data, records)[0],
    "rows": _rows,
    "objects": _objects,
    "entry": lambda *held: _objects(*held)[0],
    "masked": _masked,
    "complex": complex,
    "Fraction": Fraction,
    "Decimal": Decimal,
    "unread": Unread,
    "table": lambda *parts: Table(**dict(zip(_PARTS, parts, strict=True))),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: dict[int, Any], objects: Objects | None) -> None:
        super().__init__(file)
        self._known = known
        self._objects = objects

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != (__name__, _made.__name__):
            raise pickle.UnpicklingError(f"forbidden global {module}.{name}")
        return self._make

    def _make(self, kind: str, *held: Any) -> Any:
        if kind in {"object", "like"}:
            number, name, text, *more = held
            return self._stand_in(number, name, text, more, like=kind == "like")
        return _MADE[kind](*held)

    def _stand_in(self, number: int, name: str, text: str, held: list[Any], *, like: bool) -> Any:
        def made() -> Any:
            if number in self._known:
                return self._known[number]
            if like:
                base, plain, own, names = held
                made_of = _class(name, {kind.__name__: kind for kind in ALL_BASES}[base], names)
                found = plain.view(made_of) if base == "ndarray" else made_of(plain)
                found.own = dict(own)
            else:
                found = _class(name, object)()
                own, found.fields, found.table = held
                found.own = dict(own)
            found.number, found.text = number, text
            self._known[number] = found
            return found

        return made() if self._objects is None else self._objects.find(number, made)


@lru_cache(maxsize=256)
def _class(name: str, base: type, names: tuple[str, ...] | None = None) -> Any:
    bases = (StandIn,) if base is object else (StandIn, base)
    # ``__dict__`` hides number and text, which are not attributes of the original object. The class
    # defaults serve slices of instances of array subclasses, which have no attributes of their own.
    hidden = {"__dict__": property(lambda self: self.own), "own": {}, "text": name}
    hidden |= {} if names is None else {"_fields": names}
    return type(name, bases, hidden)
