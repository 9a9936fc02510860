r"""A map of outputs, one by one: plainly, and for arrays at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.outputs import Outputs, kind

__all__ = ["Map", "Misread", "each", "number_of"]


class Misread(ValueError):
    r"""An output that a feature does not understand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    r"""``of_one(output)`` of every output; what it raises for becomes the label "no NAME: KIND".

    ``of_array`` is the same of an array of runs (first axis), faster, or None where it has no
    faster way; it raises :class:`Misread` where all outputs would get that label. A list of nothing
    but floats, or of integers below 2^63, counts as an array.

    >>> Map(name="half", of_one=lambda x: x / 2, of_array=lambda _: None)([4, "x"])
    [2.0, 'no half: str']
    """

    name: str
    of_one: Callable[[Any], object]
    of_array: Callable[[NDArray[Any]], Outputs | None]

    def __call__(self, outputs: Outputs) -> Outputs:
        r"""Of each output by itself."""
        array = _as_array(outputs)
        if array is not None:
            try:
                found = self.of_array(array)
            except Misread:
                return [self._label(array[0])] * len(array) if len(array) else []
            if found is not None:
                return found
        return [self._of_any(output) for output in each(outputs)]

    def _of_any(self, output: object) -> object:
        try:
            return self.of_one(output)
        except Exception:  # noqa: BLE001 - an output can be any object, and do anything when read
            return self._label(output)

    def _label(self, output: object) -> str:
        return f"no {self.name}: {kind(output)}"


def _as_array(outputs: Outputs) -> NDArray[Any] | None:
    if isinstance(outputs, np.ndarray):
        return outputs if outputs.dtype.kind in "iuf" and outputs.dtype.itemsize <= 8 else None
    types = set(map(type, outputs))
    try:
        if types == {float}:
            return np.array(outputs, dtype=np.float64)
        return np.array(outputs, dtype=np.int64) if types == {int} else None
    except OverflowError:  # an integer beyond int64: one by one
        return None


def each(outputs: Outputs) -> Sequence[object]:
    r"""The outputs one by one: values of Python from an array of values, else its rows.

    >>> each(np.array([1, 2]))
    [1, 2]
    """
    if not isinstance(outputs, np.ndarray):
        return outputs
    found: list[object] = outputs.tolist() if outputs.ndim == 1 else list(outputs)
    return found


def number_of(output: object) -> int | float:
    r"""The number an output is; an array of one number is that number, a bool is none.

    >>> number_of(np.array([2.5])), number_of(3)
    (2.5, 3)

    Raises :class:`Misread`.
    """
    if isinstance(output, np.ndarray) and output.size == 1:
        output = output.reshape(1)[0]
    match output:
        case bool():
            raise Misread("a bool")
        case int() | np.integer():
            return int(output)
        case float() | np.floating():
            return float(output)
        case _:
            raise Misread("no number")
