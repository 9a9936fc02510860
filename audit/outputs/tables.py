r"""Tables of pandas and polars as plain data: all that a recipient of a table can distinguish.

The values of a table need not contain everything in it: a column keeps categories that no value
uses, an index keeps unused levels, and missing numbers of pandas keep the number under their mask.
Neither library is imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

LIBRARIES: Final = frozenset({"pandas", "polars"})
r"""The libraries whose tables are read."""

_known: Final[dict[type, bool]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    r"""A table by columns: their names, types and values; ``index`` has the row labels, if any.

    A Series is one column, called ``name``. ``axes`` has the class, type, names, frequency and
    range of each index of pandas, also of that of the columns; ``more`` has properties that need
    not follow from the values: categories, levels, flags and attributes.
    """

    name: Hashable
    columns: tuple[Hashable, ...]
    types: tuple[str, ...]
    index: tuple[Hashable, ...] | None
    values: tuple[list[Any], ...]
    axes: tuple[tuple[Hashable, ...], ...]
    more: dict[str, Any]

    def parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each.name) for each in dataclasses.fields(self))


def is_table(kind: type) -> bool:
    r"""Whether objects of a class are DataFrames, Series or an index."""
    found = _known.get(kind)
    if found is None:
        found = hasattr(kind, "to_list") or (hasattr(kind, "columns") and not is_lazy(kind))
        found = _known[kind] = found and _of_libraries(kind)
    return found


def is_lazy(kind: type) -> bool:
    r"""Whether objects of a class are queries of polars that were not run."""
    return hasattr(kind, "collect") and hasattr(kind, "columns") and _of_libraries(kind)


def _of_libraries(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] in LIBRARIES for base in kind.__mro__)


def read_table(output: Any) -> Table:
    r"""Read all that a recipient of a DataFrame, a Series or an index sees."""
    columns = columns_of(output)
    several = _has(output, "columns")
    index: Any = output.index if _has(output, "index") else None
    axes = {"index": index, "columns": output.columns if several else None, "": output}
    axes = {name: axis for name, axis in axes.items() if _has(axis, "names")}
    omitted: dict[Any, Any] = {i: _omitted(column) for i, column in enumerate(columns)}
    omitted |= {name: _omitted(axis) for name, axis in axes.items() if name}
    more = {name: getattr(output, name) for name in getattr(type(output), "_metadata", ())}
    more |= {
        "_name": None,
        "attrs": getattr(output, "attrs", None),
        "types": _without_empty(omitted),
    }
    if not getattr(getattr(output, "flags", None), "allows_duplicate_labels", True):
        more["allows_duplicate_labels"] = False
    return Table(
        name=None if several else output.name,
        columns=tuple(output.columns) if several else (),
        types=tuple(str(column.dtype) for column in columns),
        index=tuple(index.to_list()) if "index" in axes else None,
        values=tuple(column.to_list() for column in columns),
        axes=tuple(map(_axis, axes.values())),
        more=_without_empty(more),
    )


def _has(value: Any, name: str) -> bool:
    # Look up the attribute in the class, because the labels of a pandas Series are attributes, too.
    return hasattr(type(value), name)


def _without_empty(parts: dict[Any, Any]) -> dict[Any, Any]:
    return {
        name: part
        for name, part in parts.items()
        if part is not None and (type(part) is not dict or part)
    }


def _axis(index: Any) -> tuple[Hashable, ...]:
    steps = tuple(getattr(index, name, None) for name in ("start", "stop", "step"))
    freq = getattr(index, "freqstr", None)
    return type(index).__name__, str(index.dtype), tuple(index.names), freq, steps


def _omitted(labels: Any) -> dict[str, Any]:
    # Properties of a column or an index that need not follow from its items: categories, levels,
    # and the numbers under the mask of missing ones.
    if _has(labels, "levels"):
        return {"levels": tuple(labels.levels)}
    if isinstance(labels.dtype, np.dtype):
        return {}
    if hasattr(getattr(labels.dtype, "pyarrow_dtype", None), "index_type"):
        parts = labels.array.__arrow_array__().chunks
        return {"categories": [part.dictionary.to_pylist() for part in parts]}
    categories = getattr(labels.dtype, "categories", None)
    array: Any = labels.array if _has(labels, "array") else None
    masked = array._data[array._mask].tolist() if hasattr(array, "_mask") else None
    return _without_empty(
        {
            "categories": categories if is_table(type(categories)) else None,
            "ordered": getattr(labels.dtype, "ordered", None),
            "masked": masked or None,
        }
    )


def columns_of(output: Any) -> list[Any]:
    r"""The columns of a DataFrame; a Series or an index is one column."""
    if _has(output, "get_columns"):
        return list(output.get_columns())
    return [column for _, column in output.items()] if _has(output, "columns") else [output]
