r"""Read DataFrames and Series of pandas and polars as plain data, without importing either.

A table comes from the code that is audited, which has imported its library. It is known by the
class: one that pandas or polars define, or one derived from it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

_LIBRARIES: Final = frozenset({"pandas", "polars"})
_known: Final[dict[type, bool]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    r"""A table by columns: their names, types and values; ``index`` labels the rows, if any does.

    A Series is one column; ``name`` is its name, or that of the index of a DataFrame.
    """

    name: Hashable
    columns: tuple[Hashable, ...]
    types: tuple[str, ...]
    index: tuple[Hashable, ...] | None
    values: tuple[list[Any], ...]


def is_table(kind: type) -> bool:
    r"""Whether objects of a class are DataFrames, Series or an index.

    >>> is_table(list)
    False
    """
    found = _known.get(kind)
    if found is None:
        of = any(base.__module__.partition(".")[0] in _LIBRARIES for base in kind.__mro__)
        found = _known[kind] = of and any(hasattr(kind, name) for name in ("columns", "to_list"))
    return found


def table_of(output: Any) -> Table | None:
    r"""The table that an output is, or None.

    >>> table_of([1, 2]) is None
    True
    """
    if not is_table(type(output)):
        return None
    index = getattr(output, "index", None)
    labels = None if index is None or callable(index) else tuple(_plain(index))
    if hasattr(output, "columns"):
        names = tuple(output.columns)
        if hasattr(output, "iloc"):
            columns = [output.iloc[:, place] for place in range(len(names))]
        else:
            columns = list(output.get_columns())
        return Table(
            name=getattr(index, "name", None),
            columns=names,
            types=tuple(map(str, output.dtypes)),
            index=labels,
            values=tuple(map(_plain, columns)),
        )
    return Table(
        name=output.name,
        columns=(),
        types=(str(output.dtype),),
        index=labels,
        values=(_plain(output),),
    )


def _plain(column: Any) -> list[Any]:
    found: list[Any] = column.to_list()
    return found
