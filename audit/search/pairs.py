r"""Read pairs of neighbouring datasets: from an argument, or a file, ``--pairs pairs.toml``.

    [[pair]]
    a = [0, 0, 0]
    b = [1, 1, 1]

    [[pair]]
    a = 3
    b = 4

or the same as JSON, ``[[[0, 0, 0], [1, 1, 1]], [3, 4]]``, in a file that ends in ``.json``. JSON
can also say null, which TOML cannot.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from audit.search.neighbours import require_neighbours
from audit.targets.target import Catalogued, Target
from dpcore.command.input_file import read_text
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation

_MOST_BYTES: Final = 1 << 28
_DEEP_KEY: Final = re.compile(r"""(?m)(?:^|[\[{,])\s*(?:[\w"'-]+[ \t]*\.[ \t]*){64}""")
_TOML: Final = "the file must hold [[pair]] tables, each with a = ... and b = ..."
_JSON: Final = "the file must hold a list of pairs [a, b]"


def read_pairs(argument: str, pairs: Iterable[Any]) -> tuple[tuple[Any, Any], ...]:
    r"""Pairs of datasets, one at least.

    >>> read_pairs("pairs", [[0, 1]])
    ((0, 1),)
    """
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
        raise InvalidParameter(argument, pairs, "must be pairs of datasets, e.g. [(0, 1)]")
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InvalidParameter(argument, pair, "must be pairs of datasets, e.g. [(0, 1)]")
        found.append((pair[0], pair[1]))
    if not found:
        raise InvalidParameter(argument, "[]", "needs one pair of datasets at least")
    return tuple(found)


def pairs_of(
    subject: Target,
    pair: tuple[Any, Any] | None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    *,
    searched: bool = False,
    relation: Relation | str | None = None,
) -> tuple[tuple[Any, Any], ...]:
    r"""The pairs that are given, or that of a catalogue entry; none where a search is to find one.

    Given ones must be neighbours under ``relation``, where that can be seen.
    """
    given = [name for name, value in (("pair", pair), ("pairs", pairs)) if value is not None]
    if searched:
        if given:
            reason = "finds the pair itself: leave out the one that is given"
            raise InvalidParameter("search", ABSENT, reason)
        return ()
    if len(given) == 2:
        raise InvalidParameter("pairs", ABSENT, "is given beside pair: leave one out")
    if not given:
        if isinstance(subject, Catalogued):
            return (subject.subject.pair,)
        raise InvalidParameter("pair", ABSENT, "must be given: two datasets, such as (0, 1)")
    found = read_pairs(given[0], [pair] if pairs is None else pairs)
    for each in found:
        if relation is not None:
            require_neighbours(given[0], each, relation)
    return tuple(map(subject.check, found))


def read_pairs_file(path: Path | str) -> tuple[tuple[Any, Any], ...]:
    r"""The pairs in the order of the file, at least one.

    Raises :class:`InvalidParameter` with the place in the file: for a file that cannot be read or
    is neither TOML nor JSON by its name, for another shape, and for a value that no JSON report
    could hold (nan, inf, a date).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pairs.toml"
    ...     _ = file.write_text("[[pair]]\na = 0\nb = [1]\n", encoding="utf-8")
    ...     read_pairs_file(file)
    ((0, [1]),)
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in {".toml", ".json"}:
        raise InvalidParameter("--pairs", str(path), "must be a file that ends in .toml or .json")
    try:
        text = read_text("--pairs", file, most=_MOST_BYTES)
        if kind == ".toml" and _DEEP_KEY.search(text):  # its parser takes the square of the parts
            raise InvalidParameter("--pairs", str(path), "has a key of more than 64 parts")
        found = tomllib.loads(text) if kind == ".toml" else json.loads(text)
    except InvalidParameter:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(
            "--pairs", str(path), f"is not {kind[1:].upper()}: {error}"
        ) from None
    pairs = tuple(_from_toml(found, path) if kind == ".toml" else _from_json(found, path))
    if not pairs:
        raise InvalidParameter("--pairs", str(path), "holds no pair")
    return pairs


def _from_toml(found: dict[str, Any], path: Path | str) -> Iterator[tuple[Any, Any]]:
    tables = found.get("pair", [])
    if set(found) - {"pair"} or not isinstance(tables, list):
        raise InvalidParameter("--pairs", str(path), _TOML)
    for number, table in enumerate(tables, 1):
        if not isinstance(table, dict) or set(table) != {"a", "b"}:
            raise InvalidParameter("--pairs", str(path), f"pair {number}: {_TOML}")
        yield _checked(table["a"], table["b"], number, path)


def _from_json(found: Any, path: Path | str) -> Iterator[tuple[Any, Any]]:
    if not isinstance(found, list):
        raise InvalidParameter("--pairs", str(path), _JSON)
    for number, pair in enumerate(found, 1):
        if not isinstance(pair, list) or len(pair) != 2:
            raise InvalidParameter("--pairs", str(path), f"pair {number}: {_JSON}")
        yield _checked(pair[0], pair[1], number, path)


def _checked(a: Any, b: Any, number: int, path: Path | str) -> tuple[Any, Any]:
    for place, value in (*_leaves(a, "a"), *_leaves(b, "b")):
        finite = not isinstance(value, float) or math.isfinite(value)
        if not finite or not isinstance(value, int | float | str | None):
            reason = f"pair {number}: {place} = {value} is no value of JSON"
            raise InvalidParameter("--pairs", str(path), reason)
    return a, b


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
