r"""Decompose an output into numbers, named parts, and facets that no draw should determine.

An output may be a number, text, an array, a DataFrame, a record, or these within each other. Its
numbers are compared with a declared sensitivity, and what is not a number must be the same for
that. Its :func:`facets` are size, names, types and labels: all that a reader sees beside values.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from audit.outputs.identity import identity, table_of
from audit.outputs.output_parser import kind
from audit.replay.findings import Norm

Number: TypeAlias = int | float
Facets: TypeAlias = Mapping[str, Hashable]

_DEEPEST: Final = 8
_ROUNDING: Final = Fraction(1, 2**20)
_NUMBER: Final = re.compile(r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_MOST_DIGITS: Final = 400
_MOST_SHOWN: Final = 20

FACETS: Final[dict[str, str]] = {
    "keys": "the names in it",
    "columns": "its columns",
    "shape": "its type and size",
    "dtype": "the types of its values",
    "index": "the labels of its rows",
    "text": "the text around its numbers",
    "missing": "where it has no value",
}
r"""The facets of an output in the order of their findings, with what each is."""


class Numbers(NamedTuple):
    r"""The numbers of an output in order, all ``else_`` that stands between them, and by how much
    a number that was written as text may be rounded, in all.
    """

    values: tuple[Number, ...]
    else_: tuple[Hashable, ...]
    rounding: Fraction


def numbers_in(output: object) -> Numbers | None:
    r"""The numbers of an output; None if it has none."""
    values: list[Number] = []
    rest: list[Hashable] = []
    rounding = Fraction(0)
    for _, leaf in _leaves(output, "", _DEEPEST):
        match leaf:
            case bool() | int() | float():
                values.append(int(leaf) if isinstance(leaf, bool) else leaf)
            case str():
                template, found, units = _read_text(leaf)
                values += found
                rest.append(template)
                rounding += units
            case _Label():
                rest.append(leaf.text)
            case _:
                rest.append(identity(leaf))
    return Numbers(tuple(values), tuple(rest), rounding) if values else None


def difference(
    a: Sequence[Number], b: Sequence[Number], norm: Norm
) -> tuple[tuple[Fraction, ...], Fraction, Fraction] | None:
    r"""The exact difference of numbers, its norm (of l2 the square), and what rounding of floats
    may add to the norm: 2^-20 of the largest number for each, as in single precision. None where
    a number is not finite.
    """
    if not all(isinstance(x, int) or math.isfinite(x) for x in (*a, *b)):
        return None
    move = tuple(Fraction(y) - Fraction(x) for x, y in zip(a, b, strict=True))
    slack = Fraction(0)
    if any(isinstance(x, float) for x in (*a, *b)):
        largest = max(abs(Fraction(x)) for x in (*a, *b))
        slack = _ROUNDING * len(a) * max(Fraction(1), largest)
    match norm:
        case "l1":
            size = sum(map(abs, move), Fraction(0))
        case "l2":
            size = sum((x * x for x in move), Fraction(0))
        case "linf":
            size = max(map(abs, move))
    return move, size, slack


def root(square: Fraction) -> tuple[Fraction, Fraction]:
    r"""A bound below the square root and one above, 2^-64 apart or less."""
    below = math.isqrt((square.numerator * square.denominator) << 128)
    step = square.denominator << 64
    exact = below * below == (square.numerator * square.denominator) << 128
    return Fraction(below, step), Fraction(below + (not exact), step)


def named_parts(output: object, most: int) -> dict[str, Any]:
    r"""The named parts of an output; empty if there are too many."""
    found: dict[str, Any] = {}
    for name, leaf in _leaves(output, "", _DEEPEST):
        if isinstance(leaf, _Label):
            continue
        if len(found) >= most:
            return {}
        if isinstance(leaf, str) and name:
            template, numbers, _ = _read_text(leaf)
            found[name] = template
            found |= {f"number {i} in {name}": x for i, x in enumerate(numbers)}
        elif name:
            found[name] = leaf
    return found


def facets(output: object) -> Facets:
    r"""What a reader sees of an output beside its values, by the names of :data:`FACETS`."""
    kept: dict[str, list[Hashable]] = {name: [] for name in FACETS}
    _facets_of(output, "", kept, _DEEPEST)
    return {name: tuple(found) for name, found in kept.items()}


def format_facet(facet: Hashable) -> str:
    r"""A facet as text."""
    parts = facet if isinstance(facet, tuple) else (facet,)
    told = []
    for part in parts[:_MOST_SHOWN]:
        place, what = part if isinstance(part, tuple) and len(part) == 2 else ("the output", part)
        text = ", ".join(map(str, what)) if isinstance(what, tuple) else str(what)
        told.append(text if place == "the output" else f"{place}: {text}")
    more = ", ..." if len(parts) > _MOST_SHOWN else ""
    return ("; ".join(told) or "nothing") + more


@dataclasses.dataclass(frozen=True, slots=True)
class _Label:
    # A name that stands between values, and is no value itself.
    text: str


def _inner(output: Any) -> Iterator[tuple[str, Any]] | None:
    # The parts of an output by name; None where it has none.
    match output:
        case np.ndarray() if output.ndim:
            return _numbered(output.tolist() if output.dtype.kind != "O" else list(output))
        case list() | tuple():
            return _numbered(output)
        case dict():
            return ((f"{key!r}", value) for key, value in output.items())
        case _ if dataclasses.is_dataclass(output) and not isinstance(output, type):
            fields = dataclasses.fields(output)
            return ((repr(each.name), getattr(output, each.name)) for each in fields)
        case _:
            table = table_of(output)
            if table is None:
                return None
            names = [f"column {name!r}" for name in table.columns] or ["the column"]
            return (
                (f"row {row} of {name}", value)
                for name, column in zip(names, table.values, strict=True)
                for row, value in enumerate(column)
            )


def _numbered(items: Any) -> Iterator[tuple[str, Any]]:
    return ((f"part {i}", item) for i, item in enumerate(items))


def _leaves(output: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    inner = _inner(output) if depth else None
    if inner is None:
        yield name, output.item() if isinstance(output, np.generic) else output
        return
    labelled = not isinstance(output, np.ndarray | list | tuple)
    for place, item in inner:
        own = f"{place} of {name}" if name else place
        if labelled:
            yield own, _Label(place)
        yield from _leaves(item, own, depth - 1)


def _read_text(text: str) -> tuple[str, list[Number], Fraction]:
    # The text with {} for each number; the numbers; and one unit of the last digit of each.
    found: list[Number] = []
    units = Fraction(0)

    def kept(match: re.Match[str]) -> str:
        nonlocal units
        digits = match[0]
        if len(digits) > _MOST_DIGITS:
            return digits
        mantissa, _, power = digits.lower().partition("e")
        after = len(mantissa.partition(".")[2])
        number = float(digits)
        if not math.isfinite(number) or abs(int(power or 0)) > _MOST_DIGITS:
            return digits
        found.append(number if after or power else int(digits))
        units += Fraction(10) ** (int(power or 0) - after) if after or power else 1
        return "{}"

    return _NUMBER.sub(kept, text), found, units


def _facets_of(output: Any, name: str, kept: dict[str, list[Hashable]], depth: int) -> None:
    place = name or "the output"
    table = table_of(output)
    if not name or _inner(output) is not None:
        kept["shape"].append((place, _shape(output)))
    if table is not None:
        kept["columns"].append((place, tuple(map(repr, table.columns or (table.name,)))))
        kept["dtype"].append((place, table.types))
        if table.index is not None:
            kept["index"].append((place, identity(table.index)))
    else:
        _own_facets(output, name, place, kept)
    inner = _inner(output) if depth else None
    named = isinstance(output, dict) or dataclasses.is_dataclass(output)
    for part, item in inner or ():
        own = f"{part} of {name}" if name else part
        if named or type(item) not in {float, int}:
            _facets_of(item, own, kept, depth - 1)
        elif type(item) is float and not math.isfinite(item):
            kept["missing"].append(own)


def _own_facets(output: Any, name: str, place: str, kept: dict[str, list[Hashable]]) -> None:
    match output:
        case str():
            kept["text"].append((place, _read_text(output)[0]))
        case dict():
            kept["keys"].append((place, tuple(map(repr, output))))
        case np.ndarray():
            kept["dtype"].append((place, str(output.dtype)))
        case _ if _is_missing(output):
            kept["missing"].append(place)
        case bool() | int() | float() | np.generic() if name:
            kept["dtype"].append((place, kind(output)))


def _shape(output: Any) -> str:
    # Type and size; the types of the values within are another facet.
    if isinstance(output, np.ndarray) and output.ndim:
        return f"{type(output).__name__} of shape {output.shape}"
    return kind(output)


def _is_missing(output: Any) -> bool:
    if output is None or type(output).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(output, float | np.floating) and not math.isfinite(output)
