r"""Outputs as bytes and back, without loss and without running anything: never a pickle.

Arrays of plain numbers or text are npy. Anything else is JSON in which a value that JSON would
change is an object with one key, its kind: ``{"tuple": [1, 2]}``, ``{"float": "nan's bytes"}``.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from audit.outputs import Outputs

__all__ = ["Unstorable", "decode", "encode", "pack", "unpack"]

_EXACT: Final = 1 << 53
_PLAIN: Final = "biufcSU"
_DEEPEST: Final = 100


class Unstorable(Exception):
    r"""A value that has no bytes to come back from unchanged; its text is the type's name."""


def pack(outputs: Outputs) -> bytes:
    r"""Outputs as bytes.

    >>> unpack(pack([(1, 2.5), None])), unpack(pack(np.array([3, 4])))
    ([(1, 2.5), None], array([3, 4]))

    Raises :class:`Unstorable`.
    """
    if isinstance(outputs, np.ndarray) and _is_plain(outputs):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, outputs, allow_pickle=False)
        return buffer.getvalue()
    return json.dumps(encode(outputs), separators=(",", ":")).encode()


def unpack(data: bytes) -> Outputs:
    r"""What :func:`pack` made bytes of. Raises ValueError for bytes that it did not make."""
    if data.startswith(np.lib.format.MAGIC_PREFIX):
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    outputs = decode(json.loads(data))
    if not isinstance(outputs, list | np.ndarray):
        raise ValueError(f"holds a {type(outputs).__name__} and no outputs")
    return outputs


def encode(value: object, depth: int = 0) -> Any:
    r"""A value as JSON holds it, types and all.

    >>> encode({1: (2, b"x")})
    {'dict': [[1, {'tuple': [2, {'bytes': 'eA=='}]}]]}

    Raises :class:`Unstorable`, also for what is nested too deep.
    """
    if depth > _DEEPEST:
        raise Unstorable(f"{type(value).__name__}, nested deeper than {_DEEPEST}")
    written = _WRITTEN.get(type(value))
    if written is not None:
        return written(value, lambda items: [encode(item, depth + 1) for item in items])
    held: Any = value
    if type(held) is np.ndarray:
        if _is_plain(held):
            return {"array": [held.dtype.str, list(held.shape), _text(held.tobytes())]}
        if held.dtype == object:
            items = [encode(item, depth + 1) for item in held.ravel()]
            return {"objects": [list(held.shape), items]}
    elif isinstance(held, np.generic) and type(held).__module__ == "numpy" and _is_plain(held):
        return {"scalar": [held.dtype.str, _text(held.tobytes())]}
    raise Unstorable(type(value).__name__)


def decode(value: Any) -> Any:
    r"""What :func:`encode` made JSON of. Raises ValueError for what it did not make."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("an object without a kind")
    ((kind, held),) = value.items()
    if kind not in _MADE:
        raise ValueError(f"an object of kind {kind!r}")
    try:
        return _MADE[kind](held)
    except (TypeError, LookupError, ArithmeticError, struct.error) as error:
        raise ValueError(f"no {kind}: {error}") from None


def _array(dtype: str, shape: list[int], text: str) -> Any:
    plain = np.dtype(dtype)
    if plain.kind not in _PLAIN:
        raise ValueError(f"an array of {dtype}")
    found: Any = np.frombuffer(base64.b64decode(text), dtype=plain) if math.prod(shape) else []
    return np.array(found, dtype=plain).reshape(shape)


def _objects(shape: list[int], items: list[Any]) -> Any:
    found: Any = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        found[i] = decode(item)
    return found.reshape(shape)


_MADE: Final[dict[str, Callable[[Any], Any]]] = {
    "int": lambda held: int(held, 16),
    "float": lambda held: struct.unpack("<d", bytes.fromhex(held))[0],
    "dict": lambda held: {decode(key): decode(item) for key, item in held},
    "tuple": lambda held: tuple(map(decode, held)),
    "set": lambda held: set(map(decode, held)),
    "frozenset": lambda held: frozenset(map(decode, held)),
    "bytes": base64.b64decode,
    "bytearray": lambda held: bytearray(base64.b64decode(held)),
    "complex": lambda held: complex(*map(decode, held)),
    "Fraction": Fraction,
    "Decimal": Decimal,
    "scalar": lambda held: _array(held[0], [1], held[1])[0],
    "array": lambda held: _array(*held),
    "objects": lambda held: _objects(*held),
}


_Each: TypeAlias = Callable[[Any], list[Any]]

# By exact type: a value of a subclass would not come back as what it was.
_WRITTEN: Final[dict[type, Callable[[Any, _Each], Any]]] = {
    type(None): lambda held, _: held,
    bool: lambda held, _: held,
    str: lambda held, _: held,
    int: lambda held, _: held if abs(held) <= _EXACT else {"int": hex(held)},
    # nan has a sign and a payload, and JSON has neither it nor infinity.
    float: lambda held, _: (
        held if math.isfinite(held) else {"float": struct.pack("<d", held).hex()}
    ),
    list: lambda held, each: each(held),
    dict: lambda held, each: {"dict": [each(item) for item in held.items()]},
    tuple: lambda held, each: {"tuple": each(held)},
    set: lambda held, each: {"set": each(held)},
    frozenset: lambda held, each: {"frozenset": each(held)},
    bytes: lambda held, _: {"bytes": _text(held)},
    bytearray: lambda held, _: {"bytearray": _text(held)},
    complex: lambda held, each: {"complex": each((held.real, held.imag))},
    Fraction: lambda held, _: {"Fraction": str(held)},
    Decimal: lambda held, _: {"Decimal": str(held)},
}


def _is_plain(array: Any) -> bool:
    return array.dtype.kind in _PLAIN and array.dtype.names is None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
