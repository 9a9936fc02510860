r"""Check a given pair of datasets against the relation that the claim is about.

Nobody can see in a dataset what one person is: a list may hold records, or answers to queries that
one person moves all at once. So a pair is refused only where no reading makes neighbours of it, and
where a usual reading does not, the report has a warning.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from audit.outputs.identity import identity
from audit.wording.shorten import cut
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation

_SHOWN: Final = 40
_ABSENT: Final = object()


def require_neighbours(argument: str, pair: tuple[Any, Any], relation: Relation | str) -> None:
    r"""Refuse two lists, arrays or tables that are neighbours under no reading of the relation.

    Lists of one length may hold answers to queries, which have the same neighbours under every
    relation (``audit.search.space``). Where their lengths differ they are records: none is replaced
    then, and exactly one is there in addition, wherever it stands.
    """
    a, b = (_items(dataset) for dataset in pair)
    if a is None or b is None or len(a) == len(b):
        return
    shown = " ".join(_short(dataset) for dataset in pair)
    if Relation(relation) is Relation.REPLACE:
        reason = (
            f"must be neighbours under replace: lists of {len(a)} and {len(b)} items are not, "
            "as a record that is replaced leaves their number; state the relation add-remove"
        )
        raise InvalidParameter(argument, shown, reason)
    short, long = sorted((a, b), key=len)
    if len(long) - len(short) > 1 or _counted(short) - _counted(long):
        reason = (
            "must be neighbours under add-remove: the longer list must be the other one with "
            "one record more"
        )
        raise InvalidParameter(argument, shown, reason)


def doubts(pair: tuple[Any, Any], relation: Relation | str) -> list[str]:
    r"""Warnings about a pair that a usual reading of its datasets makes no neighbours.

    Numbers that move by at most 1 each give no warning: they may be answers to counting queries, or
    a histogram.

    >>> print(*doubts(([1, 2, 3], [7, 8, 9]), "replace"))
    the datasets differ in 3 of 3 items: they are neighbours if the items are answers to queries...
    >>> doubts(([0, 0, 0], [1, 1, 1]), "replace"), doubts((0, 5), "replace")
    ([], [])
    """
    where, a, b = _inside(*pair)
    if a is None or b is None:  # nobody's data
        return []
    if _named(a) != _named(b):
        found = f"dataset A is {_named(a)}, dataset B {_named(b)}: neighbours are of one form"
        return [where + found]
    rows, others = _items(a), _items(b)
    if rows is not None and others is not None and len(rows) != len(others):
        return []  # one record more, or refused
    items = _by_place(a, b)
    moved = [(x, y) for x, y in items if identity(x) != identity(y)]
    if all(_is_step(x, y) or _is_left_out(x, y) for x, y in moved):
        return []
    found = f"the datasets differ in {len(moved):,} of {len(items):,} items: {_ANSWERS}"
    if Relation(relation) is Relation.ADD_REMOVE:
        as_many = rows is not None and others is not None
        return [f"{where}{found}: {_ONE_MORE}"] if as_many or len(moved) > 1 else []
    if rows is not None and others is not None:
        moved = moved[: (_counted(rows) - _counted(others)).total()]
    return [f"{where}{found}: then one may differ"] if len(moved) > 1 else []


_ANSWERS: Final = (
    "they are neighbours if the items are answers to queries, and not if each item is one person"
)
_ONE_MORE: Final = "then one dataset must be the other with one record more"


def _inside(a: Any, b: Any, where: str = "") -> tuple[str, Any, Any]:
    # Where two tables differ under one name only: that place, and both values there.
    tables = isinstance(a, dict) and isinstance(b, dict)
    if not tables or (_as_rows(a) and _as_rows(b)):
        return where, a, b
    moved = [name for name in a.keys() & b.keys() if identity(a[name]) != identity(b[name])]
    if a.keys() != b.keys() or len(moved) != 1 or _items(a[moved[0]]) is None:
        return where, a, b
    (name,) = moved
    return _inside(a[name], b[name], f"{where}{name}: ")


def _items(dataset: Any) -> Sequence[Any] | None:
    # The records, or answers, that a dataset has in order; None where it has none.
    match dataset:
        case list() | tuple():
            return dataset
        case np.ndarray() if dataset.ndim:
            return list(dataset)
        case dict():
            return _as_rows(dataset)
        case _ if hasattr(dataset, "columns") and hasattr(dataset, "to_numpy"):
            return list(dataset.to_numpy())
        case _:
            return None


def _as_rows(table: dict[Any, Any]) -> list[tuple[Any, ...]] | None:
    # The rows of a table given by columns of equal length.
    columns = list(table.values())
    if len(columns) < 2 or not all(isinstance(column, list) for column in columns):
        return None
    return list(zip(*columns, strict=True)) if len(set(map(len, columns))) == 1 else None


def _by_place(a: Any, b: Any) -> list[tuple[Any, Any]]:
    rows = _items(a), _items(b)
    if rows[0] is not None and rows[1] is not None:
        both = [dict(enumerate(each)) for each in rows if each is not None]
    elif isinstance(a, dict) and isinstance(b, dict):
        both = [a, b]
    else:
        return []
    keys = [*both[0], *(key for key in both[1] if key not in both[0])]
    return [(both[0].get(key, _ABSENT), both[1].get(key, _ABSENT)) for key in keys]


def _is_step(x: Any, y: Any) -> bool:
    # An absent name of a histogram counts 0.
    numbers = [0 if each is _ABSENT else each for each in (x, y)]
    if not all(isinstance(each, int | float | np.integer | np.floating) for each in numbers):
        return False
    return bool(abs(numbers[0] - numbers[1]) <= 1)


def _is_left_out(x: Any, y: Any) -> bool:
    return (x is None) != (y is None)


def _counted(items: Iterable[Any]) -> Counter[Hashable]:
    return Counter(map(identity, items))


def _named(dataset: Any) -> str:
    match dataset:
        case dict():
            return "a table by names"
        case str():
            return "text"
        case bool() | int() | float() | np.generic():
            return "a number"
        case _:
            return "another object" if _items(dataset) is None else "a list"


def _short(dataset: Any) -> str:
    return cut(json.dumps(dataset, default=str), _SHOWN)
