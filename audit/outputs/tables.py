r"""Convert pandas, polars and Arrow tables to plain data that contain all a recipient can see.

A table contains more than its values: a column keeps categories that no value uses, an index keeps
unused levels, and a masked pandas array keeps the number under each missing value. A pandas
extension array is read as a Series, an Arrow array as a column, and an Arrow schema as an empty
table. This module imports none of the three libraries.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

LIBRARIES: Final = frozenset({"pandas", "polars", "pyarrow"})
r"""The libraries whose tables are read."""

VALUES: Final = "the values"
r"""The name of a table's values in descriptions and identities."""

# Attributes by which table classes are recognised, in order: Series or index, DataFrame, pandas
# extension array, Arrow array or table, Arrow schema.
_MARKS: Final = ("to_list", "columns", "_from_sequence", "to_pylist", "empty_table")
_known: Final[dict[type, bool]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    r"""A pandas, polars or Arrow table as plain data, stored by columns.

    ``columns`` contains the names of the columns, and is empty for a Series or an index, which has
    one column. ``values`` contains their values. ``fixed`` and ``more`` map descriptions such as
    "the type of column n" to properties. ``fixed`` contains the structure: names; types; row
    labels; the class, type, names, frequency and range of each pandas index; and the chunk lengths
    of Arrow columns. ``more`` contains the properties that the values do not determine: categories,
    levels, flags and attributes.
    """

    columns: tuple[Hashable, ...]
    values: tuple[list[Any], ...]
    fixed: dict[str, Any]
    more: dict[str, Any]

    def parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each.name) for each in dataclasses.fields(self))


def is_table(kind: type) -> bool:
    r"""Whether a class is a table, Series, index, or pandas or Arrow array."""
    found = _known.get(kind)
    if found is None:
        found = any(hasattr(kind, mark) for mark in _MARKS) and not is_lazy(kind)
        found = _known[kind] = found and _of_libraries(kind)
    return found


def is_arrow(kind: type) -> bool:
    r"""Whether a class of tables belongs to Arrow."""
    return hasattr(kind, "to_pylist") or hasattr(kind, "empty_table")


def is_missing(value: object) -> bool:
    r"""Whether a value is ``pandas.NA``, whose ``==`` has no truth value."""
    return "pandas" in sys.modules and value is getattr(sys.modules["pandas"], "NA", None)


def is_lazy(kind: type) -> bool:
    r"""Whether a class is a lazy query of polars, whose values are not computed yet."""
    return hasattr(kind, "collect") and hasattr(kind, "columns") and _of_libraries(kind)


def _of_libraries(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] in LIBRARIES for base in kind.__mro__)


def read_table(output: Any) -> Table:
    r"""Convert a table, Series, index or array to plain data with all that a recipient sees."""
    if is_arrow(type(output)):
        return _read_arrow(output)
    if _has(output, "_from_sequence"):
        output = sys.modules["pandas"].Series(output, copy=False)
    columns = columns_of(output)
    several = _has(output, "columns")
    names = tuple(output.columns) if several else ()
    parts = dict(zip(_described(names) if several else [VALUES], columns, strict=True))
    index: Any = output.index if _has(output, "index") else None
    axes = {"the index": index, "the columns": output.columns if several else None}
    axes = {of: axis for of, axis in axes.items() if _has(axis, "names")}
    own = {VALUES: output} if _has(output, "names") else {}
    fixed: dict[str, Any] = {"the columns": names} if several else {"the name": output.name}
    fixed |= {f"the type of {of}": str(column.dtype) for of, column in parts.items()}
    fixed["the index labels"] = tuple(index.to_list()) if "the index" in axes else None
    fixed |= _of_each(axes | own, _axis)
    own_names = [name for name in getattr(type(output), "_metadata", ()) if name != "_name"]
    more = _of_each(parts | axes, _omitted)
    more = _without_empty(
        more | {f"the attribute {each}": getattr(output, each) for each in own_names}
    )
    attrs = getattr(output, "attrs", None) or {}
    if all(type(name) is str for name in attrs):
        more |= {f"the attribute attrs[{name!r}]": value for name, value in attrs.items()}
    else:
        more["the attribute attrs"] = attrs
    if not getattr(getattr(output, "flags", None), "allows_duplicate_labels", True):
        more["the flag allows_duplicate_labels"] = False
    return Table(
        columns=names,
        values=tuple(column.to_list() for column in columns),
        fixed=_without_empty(fixed),
        more=more,
    )


def _read_arrow(output: Any) -> Table:
    whole = output.empty_table() if _has(output, "empty_table") else output
    fields = list(whole.schema) if _has(whole, "schema") else []
    columns = list(whole.columns) if _has(whole, "schema") else [whole]
    names = tuple(field.name for field in fields)
    described = _described(names) if _has(whole, "schema") else [VALUES]
    parts = dict(zip(described, columns, strict=True))
    fixed: dict[str, Any] = {"the columns": names}
    fixed |= {f"the type of {of}": str(column.type) for of, column in parts.items()}
    fixed |= {f"the chunks of {of}": tuple(map(len, _chunks(each))) for of, each in parts.items()}
    details = _of_each(dict(zip(described, fields, strict=False)), _details)
    details |= _of_each(parts, _dictionaries)
    if _has(whole, "schema"):
        details["the metadata"] = dict(whole.schema.metadata or {})
    return Table(
        columns=names,
        values=tuple(column.to_pylist() for column in columns),
        fixed=fixed,
        more=_without_empty(details),
    )


def _chunks(column: Any) -> list[Any]:
    return getattr(column, "chunks", None) or [column]


def _details(field: Any) -> dict[str, Any]:
    return {
        "nullability": None if field.nullable else False,
        "metadata": dict(field.metadata or {}),
    }


def _dictionaries(column: Any) -> dict[str, Any]:
    found = [part.dictionary.to_pylist() for part in _chunks(column) if hasattr(part, "dictionary")]
    return {"categories": found or None}


def _described(names: tuple[Hashable, ...]) -> list[str]:
    # One description per column, all distinct.
    plain = all(type(name) in {str, int} for name in names)
    found = [f"column {name}" for name in names] if plain else []
    distinct = len(set(found)) == len(names)
    return found if distinct else [f"column {place}" for place in range(len(names))]


def _of_each(labels: dict[str, Any], parts_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    found = ((of, parts_of(each)) for of, each in labels.items())
    return {f"the {name} of {of}": part for of, parts in found for name, part in parts.items()}


def _has(value: Any, name: str) -> bool:
    # The attribute is looked up in the class, because the labels of a pandas Series are attributes
    # of the instance.
    return hasattr(type(value), name)


def _without_empty(parts: dict[Any, Any]) -> dict[Any, Any]:
    return {
        name: part
        for name, part in parts.items()
        if part is not None and (type(part) is not dict or part)
    }


def _axis(index: Any) -> dict[str, Any]:
    steps = tuple(getattr(index, name, None) for name in ("start", "stop", "step"))
    return {
        "class": type(index).__name__,
        "type": str(index.dtype),
        "names": tuple(index.names),
        "frequency": getattr(index, "freqstr", None),
        "range": steps if any(step is not None for step in steps) else None,
    }


def _omitted(labels: Any) -> dict[str, Any]:
    # Properties of a column or an index that its items do not determine: categories, levels, and
    # the numbers under the mask of missing values.
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
            "order of the categories": getattr(labels.dtype, "ordered", None),
            "numbers under the mask": masked or None,
        }
    )


def columns_of(output: Any) -> list[Any]:
    r"""The columns of a DataFrame. A Series or an index is its own single column."""
    if _has(output, "get_columns"):
        return list(output.get_columns())
    return [column for _, column in output.items()] if _has(output, "columns") else [output]
