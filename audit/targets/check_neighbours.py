r"""Check a given pair of datasets against the claimed neighbouring relation.

A dataset does not show what one person contributes. If a list contains records, one person
contributes one of them; if it contains answers to queries, one person can change all of them. A
pair is therefore refused only if its datasets are not neighbours in any interpretation. If they are
not neighbours in any usual interpretation, the report has a warning.

Pairs come from an argument or from a file, ``--pairs pairs.toml``:

    [[pair]]
    a = [0, 0, 0]
    b = [1, 1, 1]

or, in a file whose name ends in ``.json``, as JSON: ``[[[0, 0, 0], [1, 1, 1]], [3, 4]]``. Only JSON
can contain null.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from audit.formats.shorten import cut
from audit.outputs.identity import identity
from audit.targets.target import Catalogued, Target
from dpcore.cli.files import read_text
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation

_SHOWN: Final = 40
_ABSENT: Final = object()


def require_neighbours(argument: str, pair: tuple[Any, Any], relation: Relation | str) -> None:
    r"""Raise :class:`InvalidParameter` for ``argument`` if the two datasets cannot be neighbours.

    Only lists, arrays and tables are checked. Equally long lists pass, because they may be answers
    to queries, which have the same neighbours under every relation. Other lists must be records:
    "replace" refuses them, and under "add-remove" one must be the other plus one record.
    """
    a, b = (_items(dataset) for dataset in pair)
    if a is None or b is None or len(a) == len(b):
        return
    wrong = partial(InvalidParameter, argument, " ".join(map(_short, pair)))
    if Relation(relation) is Relation.REPLACE:
        raise wrong(
            f"must be neighbours under replace: lists of {len(a)} and {len(b)} items are not, "
            "because replacing a record keeps their number; state the relation add-remove"
        )
    short, long = sorted((a, b), key=len)
    if len(long) - len(short) > 1 or _counted(short) - _counted(long):
        raise wrong(
            "must be neighbours under add-remove: the longer list must be the other one plus one "
            "record"
        )


def doubts(pair: tuple[Any, Any], relation: Relation | str) -> list[str]:
    r"""Return [warning] if the pair is not neighbouring in any usual interpretation, else [].

    There is no warning about numbers that differ by at most 1 each, because they may be answers to
    counting queries, or a histogram.
    """
    where, a, b = _inside(*pair)
    if a is None or b is None:  # null stands for an empty dataset
        return []
    if _named(a) != _named(b):
        found = f"dataset A is {_named(a)}, dataset B {_named(b)}: neighbours have the same type"
        return [where + found]
    rows, others = _items(a), _items(b)
    if rows is not None and others is not None and len(rows) != len(others):
        return []  # one record was added: require_neighbours refuses all other such pairs
    items = _by_place(a, b)
    moved = [(x, y) for x, y in items if identity(x) != identity(y)]
    if all(_is_step(x, y) or (x is None) != (y is None) for x, y in moved):  # None: left out
        return []
    found = (
        f"{where}the datasets differ in {len(moved):,} of {len(items):,} items: they are "
        "neighbours if the items are answers to queries, but not if each item is one person: under"
    )
    listed = rows is not None and others is not None
    if Relation(relation) is Relation.ADD_REMOVE:
        rule = "add-remove, one dataset must be the other plus one record"
        return [f"{found} {rule}"] if listed or len(moved) > 1 else []
    if rows is not None and others is not None:  # the order of records does not matter
        moved = moved[: (_counted(rows) - _counted(others)).total()]
    return [f"{found} replace, only one item may differ"] if len(moved) > 1 else []


def _inside(a: Any, b: Any, where: str = "") -> tuple[str, Any, Any]:
    # If two dicts differ in only one key, the path of that key and its two values.
    tables = isinstance(a, dict) and isinstance(b, dict)
    if not tables or (_as_rows(a) and _as_rows(b)):
        return where, a, b
    moved = [name for name in a.keys() & b.keys() if identity(a[name]) != identity(b[name])]
    if a.keys() != b.keys() or len(moved) != 1 or _items(a[moved[0]]) is None:
        return where, a, b
    (name,) = moved
    return _inside(a[name], b[name], f"{where}{name}: ")


def _items(dataset: Any) -> Sequence[Any] | None:
    # The records or answers of a dataset in order; None if it is not a list, array or table.
    match dataset:
        case list() | tuple():
            return dataset
        case np.ndarray() if dataset.ndim:
            return list(dataset)
        case dict():
            return _as_rows(dataset)
        case _ if hasattr(dataset, "columns") and hasattr(dataset, "to_numpy"):
            return list(dataset.to_numpy())
    return None


def _as_rows(table: dict[Any, Any]) -> list[tuple[Any, ...]] | None:
    # The rows of a table that is given by columns of equal length; None for other tables.
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


def _is_step(*pair: Any) -> bool:
    # Whether two numbers differ by at most 1. A name that is missing in a histogram has count 0.
    x, y = (0 if each is _ABSENT else each for each in pair)
    numbers = all(isinstance(each, int | float | np.integer | np.floating) for each in (x, y))
    return numbers and bool(abs(x - y) <= 1)


def _counted(items: Iterable[Any]) -> Counter[Hashable]:
    return Counter(map(identity, items))


def _named(dataset: Any) -> str:
    match dataset:
        case dict():
            return "a mapping"
        case str():
            return "text"
        case bool() | int() | float() | np.generic():
            return "a number"
        case _:
            return "another object" if _items(dataset) is None else "a list"


def _short(dataset: Any) -> str:
    return cut(json.dumps(dataset, default=str), _SHOWN)


_MOST_BYTES: Final = 1 << 28
_DEEP_KEY: Final = re.compile(r"""(?m)(?:^|[\[{,])\s*(?:[\w"'-]+[ \t]*\.[ \t]*){64}""")


def read_pairs(argument: str, pairs: Iterable[Any]) -> tuple[tuple[Any, Any], ...]:
    r"""Parse pairs of datasets, at least one.

    >>> read_pairs("pairs", [[0, 1]])
    ((0, 1),)
    """
    several = isinstance(pairs, Iterable) and not isinstance(pairs, str | bytes)
    found = [*pairs] if several else [pairs]
    if not found or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in found):
        value = found if several else pairs
        raise InvalidParameter(argument, value, "must be a list of pairs, e.g. [(0, 1)]")
    return tuple((a, b) for a, b in found)


def pairs_of(
    subject: Target,
    pair: tuple[Any, Any] | None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    *,
    search: str | None = None,
    relation: Relation | str | None = None,
) -> tuple[tuple[Any, Any], ...]:
    r"""Return the pairs to audit: the given pairs or, without one, the pair of the target itself.

    The result is empty if ``search`` is given, because the search then finds the pair. Raises
    :class:`InvalidParameter` if no pair is known, or if the datasets of a given pair are equal, or
    cannot be neighbours under ``relation`` (:func:`require_neighbours`).
    """
    given = [name for name, value in (("pair", pair), ("pairs", pairs)) if value is not None]
    if search is not None:
        if given:
            raise InvalidParameter("search", ABSENT, "cannot be combined with given pairs")
        return ()
    if len(given) == 2:
        raise InvalidParameter(
            "pairs", ABSENT, "is given together with pair: give only one of the two"
        )
    if not given:
        if isinstance(subject, Catalogued):
            return (subject.subject.pair,)
        raise InvalidParameter("pair", ABSENT, "must be given: two datasets, such as 0 and 1")
    found = read_pairs(given[0], [pair] if pairs is None else pairs)
    for each in found:
        if relation is not None:
            require_neighbours(given[0], each, relation)
    checked = tuple(map(subject.check, found))
    for a, b in checked:
        if identity(a) == identity(b):
            reason = "must be two different datasets: no test distinguishes equal datasets"
            raise InvalidParameter(given[0], _short([a, b]), reason)
    return checked


def read_pairs_file(path: Path | str) -> tuple[tuple[Any, Any], ...]:
    r"""Parse the pairs of a file, in order. Raises :class:`InvalidParameter` if it has no pair."""
    wrong = partial(InvalidParameter, "--pairs", str(path))
    kind = Path(path).suffix.lower()
    if kind not in {".toml", ".json"}:
        raise wrong("must be a file that ends in .toml or .json")
    found = read_document("--pairs", Path(path))
    try:
        pairs = tuple(_listed(found, kind))
    except ValueError as error:
        raise wrong(str(error)) from None
    if not pairs:
        raise wrong("contains no pair")
    return pairs


def read_document(option: str, path: Path) -> Any:
    r"""Parse a TOML file, or a JSON file if its name ends in ``.json``.

    ``option`` is the name of the file's argument in error messages.
    """
    wrong = partial(InvalidParameter, option, str(path))
    kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
    text = read_text(option, path, most=_MOST_BYTES)
    if kind == "TOML" and _DEEP_KEY.search(text):  # the parser takes time quadratic in the parts
        raise wrong("has a dotted key of more than 64 parts")
    try:
        return json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"is not {kind}: {error}") from None


def _listed(found: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    # Yield the pairs of a parsed file. Raises ValueError with the reason if it is refused.
    form = "the file must contain a list of pairs [a, b]"
    if kind == ".toml":
        form = "the file must contain [[pair]] tables, each with a = ... and b = ..."
        found = found.get("pair", []) if found.keys() <= {"pair"} else None
    if not isinstance(found, list):
        raise ValueError(form)
    for number, pair in enumerate(found, 1):
        match pair:
            case {"a": a, "b": b} if kind == ".toml" and len(pair) == 2:
                pass
            case [a, b] if kind == ".json":
                pass
            case _:
                raise ValueError(f"pair {number}: {form}")
        for place, value in (*_leaves(a, "a"), *_leaves(b, "b")):
            finite = not isinstance(value, float) or math.isfinite(value)
            if not finite or not isinstance(value, int | float | str | None):
                raise ValueError(f"pair {number}: {place} = {value} is not a JSON value")
        yield a, b


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    match value:
        case list():
            for i, item in enumerate(value):
                yield from _leaves(item, f"{place}[{i}]")
        case dict():
            for key, item in value.items():
                yield from _leaves(item, f"{place}.{key}")
        case _:
            yield place, value
