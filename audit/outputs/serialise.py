r"""Serialise outputs without loss and without pickle.

Arrays of plain numbers or text are stored in the npy format, and everything else as JSON. A value
that JSON would change is encoded as an object with one key, its type: ``{"tuple": [1, 2]}``,
``{"float": "bytes of a nan in hex"}``.

The input may come from an attacker. Therefore declared sizes are compared with the number of bytes
before any allocation. Integers have at most 3,500 hexadecimal digits, because Python can also print
these in decimal.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import struct
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.outputs.output_parser import Outputs

_EXACT: Final = 1 << 53
_MOST_DIGITS: Final = 3500
_BEYOND: Final = 1 << (4 * _MOST_DIGITS)
_PLAIN: Final = "biufcSU"
_DEEPEST: Final = 100
# The largest product of the non-zero lengths of an empty array.
_MOST_EMPTY: Final = 1 << 20
_DTYPE: Final = re.compile(r"[<>|][biufcSU][0-9]{1,9}")
_INTEGER: Final = re.compile(f"-?0x[0-9a-f]{{1,{_MOST_DIGITS}}}")
_FRACTION: Final = re.compile(r"-?[0-9]{1,4300}(/[0-9]{1,4300})?")
_LAST_CHARACTER: Final = 0x10FFFF


class Unstorable(Exception):
    r"""Raised for a value that cannot be serialised exactly; the message names its type."""


def pack(outputs: Outputs) -> bytes:
    r"""Serialise outputs as bytes. Raises :class:`Unstorable` if that would lose information."""
    if type(outputs) is np.ndarray and _is_plain(outputs):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, outputs, version=(1, 0), allow_pickle=False)
        return buffer.getvalue()
    return json.dumps(encode(outputs), separators=(",", ":")).encode()


def unpack(data: bytes) -> Outputs:
    r"""Parse the bytes that :func:`pack` returned. Raises ValueError if they are invalid."""
    if data.startswith(np.lib.format.MAGIC_PREFIX):
        return _from_npy(data)
    try:
        outputs: Any = decode(json.loads(data.decode()))
    except RecursionError:
        raise ValueError(f"nested deeper than {_DEEPEST}") from None
    if not isinstance(outputs, list | np.ndarray):
        raise ValueError(f"outputs must be a list or an array, not {type(outputs).__name__}")
    if isinstance(outputs, np.ndarray) and not outputs.ndim:
        raise ValueError("outputs must be a list or an array, not a single value")
    found: Outputs = outputs
    return found


def encode(value: object, depth: int = 0) -> Any:
    r"""Encode a value as JSON data with all types, or raise :class:`Unstorable`."""
    if depth > _DEEPEST:
        raise Unstorable(f"{type(value).__name__}, nested deeper than {_DEEPEST}")
    written = _WRITTEN.get(type(value))
    if written is not None:
        return written(value, lambda items: [encode(item, depth + 1) for item in items])
    held: Any = value
    if type(held) is np.ndarray:
        if _is_plain(held):
            return {"array": [held.dtype.str, list(held.shape), _text(held.tobytes())]}
        if held.dtype == object and _is_small(held.shape):
            items = [encode(item, depth + 1) for item in held.ravel()]
            return {"objects": [list(held.shape), items]}
    elif isinstance(held, np.generic) and type(held).__module__ == "numpy" and _is_plain(held):
        return {"scalar": [held.dtype.str, _text(held.tobytes())]}
    raise Unstorable(type(value).__name__)


def decode(value: Any, depth: int = 0) -> Any:
    r"""Decode the JSON data that :func:`encode` returned. Raises ValueError if it is invalid."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a JSON number")
    if not isinstance(value, list | dict):
        return value
    if depth > _DEEPEST:
        raise ValueError(f"nested deeper than {_DEEPEST}")

    def each(items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise ValueError(f"expected list, got {type(items).__name__}")
        return [decode(item, depth + 1) for item in items]

    if isinstance(value, list):
        return each(value)
    if len(value) != 1:
        raise ValueError("an object must have exactly one key, the type that it encodes")
    ((kind, held),) = value.items()
    if kind not in _MADE:
        raise ValueError(f"unknown type {kind:.40}")
    try:
        return _MADE[kind](held, each)
    except (TypeError, LookupError, ArithmeticError, struct.error) as error:
        raise ValueError(f"not a valid {kind}: {error}") from None


# -- arrays ---------------------------------------------------------------------------------------


def _is_plain(array: Any) -> bool:
    # Text arrays with item size 0 are excluded, because numpy changes the size to 1.
    return (
        array.dtype.kind in _PLAIN
        and array.dtype.names is None
        and array.dtype.itemsize > 0
        and _is_small(array.shape)
    )


def _is_small(shape: tuple[int, ...]) -> bool:
    # The other axes of an empty array may have any length, and reading them would cost memory.
    return 0 not in shape or math.prod(length for length in shape if length) <= _MOST_EMPTY


def _from_npy(data: bytes) -> Outputs:
    file = io.BytesIO(data)
    if data[len(np.lib.format.MAGIC_PREFIX) :][:2] != b"\x01\x00":
        raise ValueError("unsupported version of the npy format")
    file.seek(np.lib.format.MAGIC_LEN)
    try:
        with warnings.catch_warnings(action="error"):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # noqa: BLE001 - the header is parsed as Python, and fails in any way
        raise ValueError(f"invalid .npy header: {error}") from None
    if not shape or dtype.kind not in _PLAIN:
        raise ValueError(f"unsupported outputs of shape {shape} and type {dtype.str}")
    _require_sizes(dtype, list(shape), len(data) - file.tell())
    file.seek(0)
    array: Any = np.lib.format.read_array(file, allow_pickle=False)
    return _sound(array)


def _require_sizes(dtype: np.dtype[Any], shape: list[Any], size: int) -> None:
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("the shape of an array must consist of integers >= 0")
    if not dtype.itemsize or not _is_small(tuple(shape)):
        raise ValueError("an array has items of 0 bytes, or is empty and too long in another axis")
    items = math.prod(shape)
    if items * dtype.itemsize != size:
        raise ValueError(f"{items} array items of {dtype.itemsize} bytes do not take {size} bytes")


def _sound(array: NDArray[Any]) -> NDArray[Any]:
    # Reject bytes of the right size that are not values of the type.
    kind, order = array.dtype.kind, array.dtype.byteorder
    if kind == "U" and array.size:
        letters = np.frombuffer(array.tobytes(), dtype=np.dtype("u4").newbyteorder(order))
        if int(letters.max()) > _LAST_CHARACTER:
            raise ValueError("a string contains an invalid character")
    if kind == "b" and array.size and int(np.frombuffer(array.tobytes(), np.uint8).max()) > 1:
        raise ValueError("a boolean array contains a byte other than 0 or 1")
    return array


def _array(dtype_name: Any, shape: Any, text: Any) -> NDArray[Any]:
    if not isinstance(dtype_name, str) or not _DTYPE.fullmatch(dtype_name):
        raise ValueError("the type of an array must be a numpy type of numbers or text")
    data, dtype = base64.b64decode(text, validate=True), np.dtype(dtype_name)
    _require_sizes(dtype, shape, len(data))
    # A copy, so that the array is writable.
    return _sound(np.frombuffer(data, dtype=dtype).reshape(shape).copy())


def _objects(shape: Any, items: list[Any]) -> Any:
    _require_sizes(np.dtype(np.uint8), shape, len(items))
    return np.fromiter(items, dtype=object).reshape(shape)


# -- values ---------------------------------------------------------------------------------------

_Each: TypeAlias = Callable[[Any], list[Any]]


def _integer(held: int) -> Any:
    if abs(held) <= _EXACT:
        return held
    if abs(held) >= _BEYOND:
        raise Unstorable(f"int with more than {_MOST_DIGITS:,} hexadecimal digits")
    return {"int": hex(held)}


def _fraction(held: Fraction) -> Any:
    if max(abs(held.numerator), held.denominator) >= _BEYOND:
        raise Unstorable(f"Fraction with more than {_MOST_DIGITS:,} hexadecimal digits")
    return {"Fraction": str(held)}


def _string(held: Any) -> str:
    if not isinstance(held, str):
        raise ValueError(f"expected str, got {type(held).__name__}")
    return held


def _text_of(held: Any, form: re.Pattern[str]) -> str:
    if not form.fullmatch(_string(held)):
        raise ValueError("a number is not in canonical form")
    return str(held)


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    if not all(isinstance(item, list) and len(item) == 2 for item in items):
        raise ValueError("a dict must be encoded as a list of pairs")
    return [(first, second) for first, second in items]


def _complex(parts: list[Any]) -> complex:
    real, imag = parts
    if type(real) is not float or type(imag) is not float:
        raise ValueError("a complex number must be encoded as two floats")
    return complex(real, imag)


# The decoder for each type; ``each`` decodes the items of a container.
_MADE: Final[dict[str, Callable[[Any, _Each], Any]]] = {
    "int": lambda held, _: int(_text_of(held, _INTEGER), 16),
    "float": lambda held, _: struct.unpack("<d", bytes.fromhex(held))[0],
    "dict": lambda held, each: dict(_pairs(each(held))),
    "tuple": lambda held, each: tuple(each(held)),
    "set": lambda held, each: set(each(held)),
    "frozenset": lambda held, each: frozenset(each(held)),
    "bytes": lambda held, _: base64.b64decode(held, validate=True),
    "bytearray": lambda held, _: bytearray(base64.b64decode(held, validate=True)),
    "complex": lambda held, each: _complex(each(held)),
    "Fraction": lambda held, _: Fraction(_text_of(held, _FRACTION)),
    "Decimal": lambda held, _: Decimal(_string(held)),
    "scalar": lambda held, _: _array(held[0], [1], held[1])[0],
    "str_": lambda held, _: np.str_(_string(held)),
    "bytes_": lambda held, _: np.bytes_(base64.b64decode(held, validate=True)),
    "array": lambda held, _: _array(*held),
    "objects": lambda held, each: _objects(held[0], each(held[1])),
}

# The encoder for each type; it is not used for subclasses, whose instances would lose their class.
_WRITTEN: Final[dict[type, Callable[[Any, _Each], Any]]] = {
    type(None): lambda held, _: held,
    bool: lambda held, _: held,
    str: lambda held, _: held,
    int: lambda held, _: _integer(held),
    # JSON has no infinity and no nan. The bytes keep the sign and payload of a nan.
    float: lambda held, _: (
        held if math.isfinite(held) else {"float": struct.pack("<d", held).hex()}
    ),
    list: lambda held, each: each(held),
    dict: lambda held, each: {"dict": each(map(list, held.items()))},
    tuple: lambda held, each: {"tuple": each(held)},
    set: lambda held, each: {"set": each(held)},
    frozenset: lambda held, each: {"frozenset": each(held)},
    bytes: lambda held, _: {"bytes": _text(held)},
    bytearray: lambda held, _: {"bytearray": _text(held)},
    complex: lambda held, each: {"complex": each((held.real, held.imag))},
    Fraction: lambda held, _: _fraction(held),
    Decimal: lambda held, _: {"Decimal": str(held)},
    # Texts are not stored as arrays, because an array cannot store an empty text.
    np.str_: lambda held, _: {"str_": str(held)},
    np.bytes_: lambda held, _: {"bytes_": _text(bytes(held))},
}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
