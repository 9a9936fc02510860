r"""Outputs as they are read: numbers on a line in exact order, and anything else by its identity.

What a recipient can tell apart, a reading tells apart (``audit.outputs.identity``). A finite number
stands on a line (``audit.outputs.number_line``). All else is a *label*: a string, a tuple, None, a
row of an array; nan, inf and -inf too, so that each is a cell of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.outputs.identity import Name, Number, identity, number_in, rows_told_apart
from audit.outputs.number_line import Integers, NumberLine
from dpcore.errors import InvalidParameter

_NOWHERE: Final = Number(0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    r"""Outputs in run order: ``numbers[i]`` when ``codes[i] < 0``, else label ``names[codes[i]]``.

    >>> reading = read([1, 2.5, None, math.inf])
    >>> reading.codes.tolist(), reading.names
    ([-1, -1, 0, 1], ('None', 'inf'))
    """

    numbers: NumberLine
    codes: Integers
    names: Sequence[str | Name]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, part: slice | NDArray[Any]) -> Reading:
        return Reading(numbers=self.numbers[part], codes=self.codes[part], names=self.names)


def read(outputs: object) -> Reading:
    r"""Read ``n`` outputs: an array (first axis the runs) or a sequence of anything.

    Each output is read by itself, never by its neighbours, and exactly: nothing is rounded, and
    outputs of different types are different. Raises :class:`InvalidParameter` for what has no first
    axis.

    >>> tuple(map(str, read(np.array([[1, 2], [1, 2], [3, 4]])).names))
    ('array([1, 2])', 'array([3, 4])')
    """
    if isinstance(outputs, np.ndarray):
        if outputs.ndim == 0:
            raise InvalidParameter("outputs", outputs, "must hold one output a run")
        return _read_array(outputs)
    if isinstance(outputs, (str, bytes)) or not isinstance(outputs, Sequence):
        raise InvalidParameter("outputs", outputs, "must be an array or a list, one output a run")
    types = set(map(type, outputs))
    if len(types) == 1:
        (kind,) = types
        if kind is int:
            return _plain(NumberLine.of_int(outputs), len(outputs))
        if kind is float:
            return _of_floats(np.array(outputs, dtype=np.float64), "float")
        if issubclass(kind, np.number) and kind.__module__ == "numpy" and kind not in _LARGE:
            return _read_array(np.array(outputs))
    return _read_objects(outputs)


_LARGE: Final = frozenset({np.longdouble, np.timedelta64})


def _read_array(array: NDArray[Any]) -> Reading:
    dtype, rest = array.dtype, array.shape[1:]
    form = dtype.name + (str(rest) if rest else "")
    if rest == (1,) * len(rest):
        flat = array.reshape(len(array))
        if dtype.kind in "iu":
            return _plain(NumberLine.of_int(flat, form), len(flat))
        if dtype.kind == "f" and dtype.itemsize <= 8:
            return _of_floats(flat, form, rest)
    if array.ndim == 1 and dtype.kind == "b":
        names = (identity(np.False_), identity(np.True_))
        return Reading(numbers=_fill(len(array)), codes=array.astype(np.int64), names=names)
    plain = dtype.kind in "biuf" and dtype.itemsize <= 8
    if plain and len(array) and math.prod(rest) > 1:
        codes, apart = rows_told_apart(array)
        return Reading(numbers=_fill(len(array)), codes=codes, names=apart)
    return _read_objects(list(array))


def _plain(numbers: NumberLine, runs: int) -> Reading:
    return Reading(numbers=numbers, codes=np.full(runs, -1, dtype=np.int64), names=())


def _fill(runs: int) -> NumberLine:
    return NumberLine(places=np.zeros(runs, dtype=np.int64), form="")


def _of_floats(numbers: NDArray[Any], form: str, shape: tuple[int, ...] = ()) -> Reading:
    codes = np.full(len(numbers), -1, dtype=np.int64)
    names: list[str | Name] = []
    if not bool(np.isfinite(numbers).all()):
        for odd in (math.nan, math.inf, -math.inf):
            codes[np.isnan(numbers) if math.isnan(odd) else numbers == odd] = len(names)
            own = numbers.dtype.type(odd)
            names.append(
                identity(odd if form == "float" else np.full(shape, own) if shape else own)
            )
    return Reading(numbers=NumberLine.of_floats(numbers, form), codes=codes, names=tuple(names))


def _read_objects(outputs: Sequence[object]) -> Reading:
    codes = np.full(len(outputs), -1, dtype=np.int64)
    known: dict[str | Name, int] = {}
    numbers = [_NOWHERE] * len(outputs)
    for i, output in enumerate(outputs):
        number = number_in(output)
        if number is None:
            codes[i] = known.setdefault(identity(output), len(known))
        else:
            numbers[i] = number
    if known and bool((codes >= 0).all()):
        return Reading(numbers=_fill(len(codes)), codes=codes, names=tuple(known))
    return Reading(numbers=NumberLine.of_numbers(numbers), codes=codes, names=tuple(known))


def read_worlds(worlds: object, runs: int) -> NDArray[np.bool_]:
    r"""The worlds in run order, True for world B; refused unless one truth value a run.

    >>> read_worlds([False, True], 2).tolist()
    [False, True]
    """
    array = np.asarray(worlds)
    if array.ndim != 1 or (array.dtype != np.bool_ and array.size):
        raise InvalidParameter("worlds", worlds, "must be truth values: True for world B")
    if len(array) != runs:
        raise InvalidParameter("worlds", len(array), f"must have one entry a run: {runs}")
    return array.astype(np.bool_)
