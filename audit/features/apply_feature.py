r"""Apply a map to each output, individually or to a whole array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.outputs.output_parser import Outputs, kind

_EXACT: Final = 1 << 53


class Misread(ValueError):
    r"""Raised for an output to which a feature does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    r"""The map that applies ``of_one`` to every output; if it raises :class:`Misread`, the value is
    the label "no NAME: KIND". ``of_array`` is a faster equivalent for an array of runs (first
    axis); it returns None if it does not support the array, and raises :class:`Misread` if all
    outputs would get that label. A list of only floats, or of integers below 2^63, counts as an
    array. Both functions also get the ``arguments``.
    """

    name: str
    of_one: Callable[..., object]
    of_array: Callable[..., Outputs | None] | None = None
    arguments: tuple[Any, ...] = ()

    @classmethod
    def with_number(
        cls,
        name: str,
        number: Any,
        of_one: Callable[[Any, Any], object],
        of_array: Callable[[NDArray[Any], Any], Outputs | None] | None = None,
    ) -> Map:
        r"""Make the map ``name:number`` from functions whose second argument is the number."""
        return cls(name=f"{name}:{number!r}", of_one=of_one, of_array=of_array, arguments=(number,))

    def __call__(self, outputs: Outputs) -> Outputs:
        if self.of_array is None:
            return list(map(self._of_any, outputs))
        array = _as_array(outputs)
        if array is not None:
            try:
                found = self.of_array(array, *self.arguments)
            except Misread:
                return [self._label(outputs[0])] * len(array) if len(array) else []
            if found is not None:
                return found
        return [self._of_any(output) for output in each(outputs)]

    def _of_any(self, output: object) -> object:
        try:
            return self.of_one(output, *self.arguments)
        except Exception:  # noqa: BLE001 - an output can be any object, and do anything when read
            return self._label(output)

    def _label(self, output: object) -> str:
        return f"no {self.name}: {kind(output)}"


def is_unread(label: str, feature: str) -> bool:
    r"""Whether a label (as an identity of text) states that the feature does not apply."""
    return label.startswith(f"'no {feature.rpartition('+')[2]}: ")


def _as_array(outputs: Outputs) -> NDArray[Any] | None:
    if isinstance(outputs, np.ndarray):
        return outputs if outputs.dtype.kind in "iuf" and outputs.dtype.itemsize <= 8 else None
    types = set(map(type, outputs))
    try:
        if types == {float}:
            return np.array(outputs, dtype=np.float64)
        return np.array(outputs, dtype=np.int64) if types == {int} else None
    except OverflowError:  # integers beyond int64: use of_one
        return None


def by_value(found: Outputs) -> Outputs:
    r"""Normalise the result of a map, so that it does not depend on the container of the outputs.

    Numbers become floats, or integers beyond the range of floats; sequences become tuples.
    """
    array = _as_array(found) if isinstance(found, np.ndarray) else None
    if array is not None and array.ndim == 1:
        wide = array.astype(np.float64)
        if array.dtype.kind == "f" or not bool((np.abs(wide) >= _EXACT).any()):
            floats: list[object] = wide.tolist()
            return floats
    return [_by_value(item) for item in found]


def _by_value(item: object) -> object:
    match item:
        case bool() | np.bool_():
            return bool(item)
        case str():
            return str(item)
        case list() | tuple() | np.ndarray():
            return tuple(_by_value(inner) for inner in item)
        case np.timedelta64():
            return item
        case int() | np.integer():
            return float(item) if abs(int(item)) < _EXACT else int(item)
        case float() | np.floating():
            wide = float(item)
            return wide if wide == item or math.isnan(wide) else item
        case _:
            return item


def each(outputs: Outputs) -> Sequence[object]:
    r"""The individual outputs: the Python values of a one-dimensional array, otherwise the rows."""
    if not isinstance(outputs, np.ndarray):
        return outputs
    found: list[object] = outputs.tolist() if outputs.ndim == 1 else list(outputs)
    return found


def number_of(output: object) -> int | float:
    r"""The number in an output; an array of one number counts as that number, a bool does not."""
    if isinstance(output, np.ndarray) and output.size == 1:
        output = output.reshape(1)[0]
    match output:
        case bool() | np.timedelta64():
            raise Misread("no number")
        case int() | np.integer():
            return int(output)
        case float() | np.floating():
            number = float(output)
            if number != output and not math.isnan(number):
                raise Misread("a float with more precision than float64")
            return number
        case _:
            raise Misread("no number")
