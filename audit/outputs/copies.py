r"""Copy the inputs and outputs of an audited call.

A call may change its dataset in place, return a part of it, or return the same buffer every time.
Therefore each call gets its own copy of the dataset (:func:`copies`), and each output is copied
before the next call (:func:`captured`). Immutable objects are not copied.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import random
import types
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import numpy as np

from audit.errors import Unreadable
from audit.outputs.identity import BY_REPR, identity
from audit.outputs.tables import LIBRARIES, columns_of, is_arrow, is_table
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng

_FIXED: Final[frozenset[type]] = BY_REPR - {bytearray}
# Objects that every copy shares, because they are not part of a dataset's state.
_SHARED: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    Enum,
    np.dtype,
)
_PROTOCOL: Final = 5  # protocol 4, the default, loses the byte order of NumPy's arrays
_INERT: Final = frozenset({tuple, frozenset})
_CONTAINERS: Final = _INERT | {list, dict, set, bytearray}
_GENERATORS: Final = (
    random.Random,
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    SeededRng,
)


def copies(name: str, dataset: Any) -> Callable[[], Any]:
    r"""Return a function that makes copies of ``dataset``, or raise :class:`InvalidParameter`."""
    if _is_fixed(dataset):
        return lambda: dataset
    if _is_plain_array(dataset):
        kept = dataset.copy(order="K")
        return lambda: kept.copy(order="K")
    held = _reached(dataset)
    if _INERT.issuperset(map(type, held.values())):
        return lambda: dataset
    if _CONTAINERS.issuperset(map(type, held.values())):
        # Pickling is ten times faster than deepcopy, but may fail if the dataset holds a function.
        with suppress(Exception):
            packed = pickle.dumps(dataset, _PROTOCOL)
            return lambda: pickle.loads(packed)  # noqa: S301  # packed here
    for item in held.values():
        if isinstance(item, _GENERATORS):
            reason = (
                f"contains a random generator ({type(item).__name__}): every call gets a copy of "
                "the dataset, so every call would draw the same noise; take rng as an argument of "
                "the target instead"
            )
            raise InvalidParameter(name, dataset, reason)
    try:
        return _apart(dataset, held)[1]
    except Exception as error:
        reason = (
            f"is of type {type(dataset).__name__}, which cannot be copied ({error}), but each call "
            "gets a copy of its dataset: use plain values, and open or build the object in the "
            "target"
        )
        raise InvalidParameter(name, dataset, reason) from error


def captured(output: Any, seen: dict[int, tuple[object, str]] | None = None) -> Any:
    r"""Return a copy of the output that does not change if the returned object changes later.

    An object whose class does not define equality would not equal its copy. Therefore the object
    itself is returned, and its identity text is stored in ``seen``. Raises :class:`Unreadable` if
    an object has changed when the call returns it again.
    """
    kind = type(output)
    if _is_fixed(output):
        return output
    if _is_plain_array(output):
        return output.copy(order="K")
    if kind is np.ndarray and output.ndim and output.dtype.kind == "O":
        found = np.empty(output.size, dtype=object)
        for i, item in enumerate(output.ravel().tolist()):
            found[i] = captured(item, seen)
        return found.reshape(output.shape)
    if kind is list or kind is tuple:
        if _FIXED.issuperset(map(type, output)):
            return kind(output)
        return kind([captured(item, seen) for item in output])
    if kind is dict:
        return {key: captured(item, seen) for key, item in output.items()}
    if kind is set or kind is frozenset:
        return kind(output)
    return _object(output, {} if seen is None else seen)


def _object(output: Any, seen: dict[int, tuple[object, str]]) -> Any:
    kind: Any = type(output)
    if kind.__eq__ is not object.__eq__ or dataclasses.is_dataclass(kind):
        with suppress(Exception):  # the object's code may raise: then do not copy it
            if is_table(kind):
                return _copied_table(output)
            found, _ = _apart(output, _reached(output))
            if identity(found) == identity(output):
                return found
    text = str(identity(output))
    if seen.setdefault(id(output), (output, text))[1] != text:
        raise Unreadable(
            f"returned the same {kind.__name__} object again after changing it, and it cannot be "
            "copied: return plain values, or define __eq__ in its class"
        )
    return output


def _copied_table(output: Any) -> Any:
    # A deep copy shares Python objects in cells and loses the class of a subclass, and a deep copy
    # of an Arrow table shares its memory. Pickling avoids this, but takes ten times as long.
    own = type(output).__module__.partition(".")[0] not in LIBRARIES
    if (
        own
        or is_arrow(type(output))
        or any(str(column.dtype).lower() == "object" for column in columns_of(output))
    ):
        return pickle.loads(pickle.dumps(output, _PROTOCOL))  # noqa: S301  # packed here
    return copy.deepcopy(output)


def _apart(value: Any, held: dict[int, object]) -> tuple[Any, Callable[[], Any]]:
    # A copy that shares no mutable state with the value, and a function that makes more copies.
    if not is_table(type(value)):  # copies of tables share labels, and lists in cells
        found = copy.deepcopy(value)
        within = _reached(found).items()
        if not any(place in held and type(item) not in _INERT for place, item in within):
            return found, lambda: copy.deepcopy(found)
    packed = pickle.dumps(value, _PROTOCOL)
    return pickle.loads(packed), lambda: pickle.loads(packed)  # noqa: S301  # packed above


def _is_fixed(item: object) -> bool:
    if type(item) in _FIXED or isinstance(item, _SHARED):
        return True
    return isinstance(item, np.generic) and not isinstance(item, np.void)


def _is_plain_array(item: Any) -> bool:
    return type(item) is np.ndarray and not item.dtype.hasobject


def _reached(value: object) -> dict[int, object]:
    # All objects within a value, by id, except immutable ones.
    found: dict[int, object] = {}
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if _is_fixed(item) or id(item) in found:
            continue
        found[id(item)] = item
        waiting += gc.get_referents(item)
        if isinstance(item, np.ndarray):  # arrays do not report their items to gc
            waiting += [item.base] if item.base is not None else []
            waiting += item.ravel().tolist() if item.dtype.hasobject else []
    return found
