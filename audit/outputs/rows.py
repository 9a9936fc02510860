r"""Parse an output as a row of a table: its structure, and one cell for each number or label in it.

The *structure* is everything but the values: types, keys and their order, nesting, lengths, dtypes,
and the names of index and columns. A *column* contains the number or label at one path, such as
``.counts.Rome``, ``.rows[3].mean`` or ``.text[2]`` (the third number in a text). The column
``.text`` contains the text with its numbers blanked. JSON text is parsed, other text of several
lines is read line by line, and an object of an unknown class is read by its repr and attributes.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import enum
import json
import math
import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from audit.outputs.identity import (
    BASES,
    Unread,
    all_attributes_of,
    attributes_of,
    fields_of,
    identity,
    table_of,
    type_text,
    without_address,
)
from audit.outputs.output_parser import Outputs, concatenate
from audit.outputs.reading import as_float
from audit.outputs.tables import VALUES

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]
Cell: TypeAlias = int | float | str
r"""The value of a cell: a number, or the text of a label."""

ABSENT: Final = 1
r"""The code of an absent cell; the code of a cell that contains a number is 0."""

OTHER: Final = 5
r"""The code of all labels after the first 2^16 labels; 2 is nan, 3 is inf, 4 is -inf."""

CODES: Final[dict[int, str]] = {ABSENT: "absent", 2: "nan", 3: "inf", 4: "-inf", OTHER: "other"}
r"""The names of the codes that do not stand for one label. Labels have larger codes."""

MOST: Final = 2048
r"""The largest number of separate columns; further columns are hashed by path and summed."""

EXACT: Final = " exact"
r"""The suffix of the path of a label that records what a float cannot represent: the remainder of
a number of more than 53 bits, the sign of a zero, or how a number was written.
"""

_FIRST: Final = 8
_WHOLE: Final = 1 << 53
_DENOMINATOR: Final = 10**6
_DIGIT: Final = re.compile(r"\d")
_LEADING: Final = re.compile(r"(?<![\d.])[1-9]\d*")
_BUCKETS: Final = 512
_MOST_LABELS: Final = 1 << 16
NUMBER: Final = re.compile(r"(?<![0-9A-Za-z_.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
MOST_DIGITS: Final = 400
_NAMES: Final = {"float64": "float", "int64": "int"}
_KEY: Final = re.compile(r"(?<=[(, ])('(?:[^'\\]|\\.)*'): ")
_TABLE: Final = re.compile(r"[\w.<>]+[({]")
_PART: Final = re.compile(r"""(?<=[({ ])(['"])(the (?:(?!\1).)+)\1: """)
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_ITEMS: Final = re.compile(rf"^\w+{{.*'{VALUES}': \((\[[^\[\]]*\]),\)}}$")
_MOST_SHOWN: Final = 80
_PRINTED: Final = re.compile(rb"[\t\n\r\x20-\x7e]+")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class Cells(list[tuple[str, Cell]]):
    r"""The cells of one output: a list of pairs (path, number or label).

    ``texts`` contains the texts in which numbers were found. ``coded`` contains the paths of
    numbers that encode bytes, dates or the parts of a complex number.
    """

    __slots__ = ("coded", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.coded: set[str] = set()

    def code(self, numbers: Iterable[tuple[str, int | float]]) -> None:
        for path, number in numbers:
            _number(number, path, self)
            self.coded.add(path)


class Row(NamedTuple):
    r"""An output as a row of a table: its structure, and its cells."""

    structure: str
    cells: Cells


def row_of(output: object) -> Row:
    r"""Parse one output."""
    cells = Cells()
    return Row(_walk(output, "", cells), cells)


def _walk(value: Any, path: str, cells: Cells) -> str:
    kind = type(value)
    if kind is float or kind is int:
        _number(value, path, cells)
        return kind.__name__
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(value, path, cells)
    match value:
        case np.generic() | np.ndarray():
            return _numpy(value, path, cells)
        case enum.Enum():
            cells.append((path, str(identity(value))))
            return kind.__name__
    fields = fields_of(value)
    if fields is not None:
        return f"{kind.__name__}{_fields(fields, path, cells)}"
    table = table_of(value)
    if table is not None:
        return _table(kind.__name__, table, path, cells)
    for base, bare in BASES.items():
        if isinstance(value, base):
            own = all_attributes_of(value)
            more = _fields(own.items(), path, cells) if own else ""
            return f"{kind.__name__}{more}: {_walk(bare(value), path, cells)}"
    own = attributes_of(value)
    more = _fields(own.items(), path, cells) if own else ""
    return f"{kind.__name__}{more}: {_text(without_address(repr(value)), path, cells)}"


def _number(value: float, path: str, cells: Cells) -> None:
    cells.append((path, value))
    if value == 0.0 if type(value) is float else not -_WHOLE <= value <= _WHOLE:
        _exact(_residue(value), path, cells)


def _exact(text: str, path: str, cells: Cells) -> None:
    # Add a label for the part of an item that a float at its path does not represent.
    if text:
        cells.append((path + EXACT, text))


def _residue(value: float) -> str:
    if isinstance(value, float):
        return "-0.0" if math.copysign(1.0, value) < 0.0 else ""
    rest = value - int(as_float(value))
    return str(rest) if rest else ""


def _form(digits: str) -> str:
    # The text of a number that repr writes differently; digits are 0 if a float keeps them all.
    number = int(digits) if digits.lstrip("+-").isdecimal() else float(digits)
    if repr(number) == digits:
        return _residue(number) if abs(number) > _WHOLE or not number else ""
    if Decimal(digits) != Decimal(repr(number)) or (isinstance(number, int) and _residue(number)):
        return digits
    return _DIGIT.sub("0", _LEADING.sub("0", digits))


def _uneven(array: NDArray[Any]) -> bool:
    # Whether a number in an array may differ from its float64, or is -0.0.
    if array.dtype.kind != "f":
        wide = array.dtype.kind in "iu" and array.dtype.itemsize == 8
        return wide and bool(((array > _WHOLE) | (array < -_WHOLE)).any())
    if array.dtype.itemsize > 8 and bool(((array != array.astype(float)) & ~np.isnan(array)).any()):
        return True
    return bool((np.signbit(array) & (array == 0.0)).any())


def _fields(pairs: Iterable[tuple[Any, Any]], path: str, cells: Cells) -> str:
    parts = [f"{_named(key)}: {_walk(value, path + _step(key), cells)}" for key, value in pairs]
    return f"({', '.join(parts)})"


@lru_cache(maxsize=4096)
def _known_name(key: str) -> str:
    return str(identity(key))


def _named(key: Hashable) -> str:
    return _known_name(key) if type(key) is str else str(identity(key))


def _step(key: Hashable) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    return f"[{_named(key)}]"


def _items(values: Iterable[Any], path: str, cells: Cells) -> str:
    found = [_walk(value, f"{path}[{i}]", cells) for i, value in enumerate(values)]
    parts = [(part, len(list(alike))) for part, alike in groupby(found)]
    return f"({', '.join(part if many == 1 else f'{many} {part}' for part, many in parts)})"


def _set(value: Any, path: str, cells: Cells) -> str:
    numbers = [item for item in value if type(item) in {int, float}]
    for i, item in enumerate(sorted(numbers)):
        _number(item, f"{path}{{{i}}}", cells)
    texts = sorted(str(identity(item)) for item in value if type(item) not in {int, float})
    cells += [(f"{path}{{{text}}}", 1) for text in texts]
    wholes = sum(type(item) is int for item in numbers)
    mixed = f" ({wholes} int)" if wholes else ""
    return f"{type(value).__name__} of {len(value)}{mixed}"


def _text(text: str, path: str, cells: Cells) -> str:
    if text[:1] in {"{", "["} and (value := _of_json(text)) is not None:
        cells.texts.append(text)
        dense = text != json.dumps(value)
        if dense and text != json.dumps(value, separators=(",", ":")):
            _exact(NUMBER.sub(lambda match: _form_in(match[0]) or "#", text), path, cells)
        return f"{'dense ' * dense}json {_walk(value, path, cells)}"
    lines = text.splitlines()
    if len(lines) > 1:
        if "\n".join(lines) != text:
            _exact(repr([line[-1:] for line in text.splitlines(keepends=True)]), path, cells)
        parts = [_text(line, f"{path}.line[{i}]", cells) for i, line in enumerate(lines)]
        return f"{len(parts)} lines"
    found: list[tuple[int | float, str]] = []

    def blanked(match: re.Match[str]) -> str:
        digits = match[0]
        if len(digits) > MOST_DIGITS or not math.isfinite(number := float(digits)):
            return digits
        whole = digits.lstrip("+-").isdecimal()
        found.append((int(digits) if whole else number, _form(digits)))
        return "#" if whole else "#.#"

    cells.append((f"{path}.text", NUMBER.sub(blanked, text)))
    cells.texts.append(text)
    for i, (number, form) in enumerate(found):
        cells.append((f"{path}.text[{i}]", number))
        _exact(form, f"{path}.text[{i}]", cells)
    return "text"


def _form_in(digits: str) -> str:
    fits = len(digits) <= MOST_DIGITS and math.isfinite(float(digits))
    return _form(digits) if fits else digits


def _of_json(text: str) -> Any:
    # None if the text is not JSON, or if a key occurs twice: only one of its values would be read.
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _bytes(value: bytes | bytearray, path: str, cells: Cells) -> str:
    name = type(value).__name__
    if _PRINTED.fullmatch(value):
        return f"{name} {_text(value.decode('ascii'), path, cells)}"
    cells.code((f"{path}[{i}]", byte) for i, byte in enumerate(value))
    return f"{name} of {len(value)}"


def _truth(value: bool, path: str, cells: Cells) -> str:  # noqa: FBT001 - a cell's value
    cells.append((path, int(value)))
    return "bool"


def _label(value: object, path: str, cells: Cells) -> str:
    cells.append((path, str(identity(value))))
    return type(value).__name__


def _coded(value: int, name: str, path: str, cells: Cells) -> str:
    cells.code([(path, value)])
    return name


def _complex(value: complex, path: str, cells: Cells) -> str:
    cells.code([(f"{path}.real", value.real), (f"{path}.imag", value.imag)])
    return "complex"


def _ratio(value: Fraction | Decimal, path: str, cells: Cells) -> str:
    finite = isinstance(value, Fraction) or value.is_finite()
    number = as_float(value) if finite else 0.0
    cells.append((path, number if finite else str(value)))
    if isinstance(value, Decimal) and finite:
        _exact(_form_in(str(value)) or "0.0" * str(value).endswith(".0"), path, cells)  # 1 or 1.0
    elif isinstance(value, Fraction) and _nearest(number) != value:
        _exact(str(value), path, cells)
    return type(value).__name__


def _nearest(number: float) -> Fraction:
    return Fraction(number).limit_denominator(_DENOMINATOR)


def _date(value: dt.datetime, path: str, cells: Cells) -> str:
    at = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    name = "datetime" if value.tzinfo is None else f"datetime {value.tzinfo}"
    _exact("fold" if value.fold else "", path, cells)
    return _coded((at - _EPOCH) // _MICROSECOND, name, path, cells)


def _numpy(value: Any, path: str, cells: Cells) -> str:
    dtype = value.dtype
    if isinstance(value, np.ma.MaskedArray):
        if value is np.ma.masked:
            return _label(value, path, cells)
        (_, data), *parts = cast("Any", fields_of(value))
        outer = "masked" if type(value) is np.ma.MaskedArray else type(value).__name__
        return f"{outer} {_walk(data, path, cells)}{_fields(parts, path, cells)}"
    name = _NAMES.get(written := type_text(dtype), written)
    if value.ndim:
        outer = f"{'' if type(value) is np.ndarray else type(value).__name__ + ' '}array"
        own = None if type(value) is np.ndarray else all_attributes_of(value)
        more = _fields(own.items(), path, cells) if own else ""
        shape = f"{outer}{value.shape}{more}"
        value = np.asarray(value)  # ravel() of a matrix has two axes
        if dtype.kind in "biuf" and dtype.itemsize <= 8 and not _uneven(value):
            cells += zip(_paths(path, value.shape), value.ravel().tolist(), strict=True)
            return f"{shape} of {name}"
        items = list(value.ravel()) if dtype.kind != "O" else value.ravel().tolist()
        return f"{shape} of {name}{_items(items, path, cells)}"
    if dtype.names is not None:
        pairs = ((each, value[each]) for each in dtype.names)
        outer = "row" if type(value) is np.void else type(value).__name__
        return f"{outer}{_fields(pairs, path, cells)}"
    if dtype.kind in "mM":
        if np.isnat(value):
            cells.append((path, "NaT"))
            return written
        return _coded(int(value.astype(np.int64)), written, path, cells)
    item = value.item()
    if isinstance(item, np.complexfloating):
        return f"{name}{_items((value.real, value.imag), path, cells)}"
    if isinstance(item, np.generic):  # a float with more digits than float64
        number = float(value)
        _number(number, path, cells)
        rest = value - dtype.type(number)
        _exact(repr(rest) if rest and math.isfinite(number) else "", path, cells)
        return str(name)
    inner = _walk(item, path, cells)
    outer = "array() of " if isinstance(value, np.ndarray) else ""
    return f"{outer}np {inner}" if dtype.kind in "USb" else f"{outer}{written}"


def _table(name: str, table: Any, path: str, cells: Cells) -> str:
    parts = []
    for key, values in zip(table.columns or (None,) * len(table.values), table.values, strict=True):
        own = path + _step(key) if table.columns else path
        parts.append(f"{_named(key)}: {_items(values, own, cells)}")
    parts += [f"{_named(words)}: {identity(part)}" for words, part in table.fixed.items()]
    more = _fields(table.more.items(), path, cells) if table.more else ""
    return f"{name}({', '.join(parts)}){more}"


_Reader: TypeAlias = Callable[[Any, str, Cells], str]
_READERS: Final[dict[type, _Reader]] = {
    bool: _truth,
    type(None): _label,
    Unread: _label,
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    complex: _complex,
    Fraction: _ratio,
    Decimal: _ratio,
    list: lambda value, path, cells: f"list{_items(value, path, cells)}",
    tuple: lambda value, path, cells: f"tuple{_items(value, path, cells)}",
    dict: lambda value, path, cells: f"dict{_fields(value.items(), path, cells)}",
    set: _set,
    frozenset: _set,
    dt.datetime: _date,
    dt.date: lambda value, path, cells: _coded(value.toordinal(), "date", path, cells),
    dt.timedelta: lambda value, path, cells: _coded(
        value // _MICROSECOND, "timedelta", path, cells
    ),
}


@lru_cache(maxsize=64)
def _paths(path: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{path}[{', '.join(map(str, place))}]" for place in np.ndindex(shape))


def paths_of(shape: tuple[int, ...]) -> tuple[str, ...]:
    r"""The path of each number in an array of this shape."""
    return _paths("", shape) if shape else ("",)


def display_path(path: str) -> str:
    r"""The text by which reports refer to a path in an output."""
    return f"output{path}"


def path_of(text: str) -> str:
    r"""Parse a path in an output, written without leading dot and with ``%2B`` for a plus sign."""
    path = unquote(text)
    return path if not path or path[0] in "[{" else f".{path}"


def table_parts(text: str) -> dict[str, str]:
    r"""The properties (not the values) of a table with this identity or structure; {} for others.

    >>> table_parts("DataFrame{'the type of column n': 'int64', 'the values': (1,)}")
    {'the type of column n': "'int64'"}
    """
    # A structure is a label, so it is written with quotes.
    text = ast.literal_eval(text) if text[:1] in {"'", '"'} else text
    found: list[re.Match[str]] = []
    depth = done = 0
    for match in _PART.finditer(text) if _TABLE.match(text) else ():
        passed, done = _QUOTED.sub("", text[done : match.start()]), match.end()
        depth += sum(map(passed.count, "([{")) - sum(map(passed.count, ")]}"))
        found += [match] if depth == 1 else []
    ends = (*(match.start() for match in found[1:]), len(text) - 1)
    parts = {
        match[2]: text[match.end() : end].removesuffix(", ")
        for match, end in zip(found, ends, strict=False)
    }
    # An identity ends with the values; if these were not found, parsing has failed.
    whole = VALUES in parts or not text.endswith("}")
    return {part: value for part, value in parts.items() if whole and part != VALUES}


def table_words(inside: Sequence[str], outside: Sequence[str], world: str) -> str | None:
    r"""Describe a property that distinguishes two sets of tables; None if no property does."""
    mine, others = ([table_parts(text) for text in texts] for texts in (inside, outside))
    for part in dict.fromkeys(chain(*mine, *others)):
        here, there = ({each.get(part) for each in found} for found in (mine, others))
        if not there or not here.isdisjoint(there):
            continue
        if here == {None}:
            return f"output has no {part.removeprefix('the ')}"
        shown = _shown(here.pop() or "") if len(here) == 1 else None
        return f"{part} as on dataset {world}" if shown is None else f"{part} = {shown}"
    return None


def _shown(value: str) -> str | None:
    # The value if it is a short literal; for an index, its items if they are one; otherwise None.
    items = _ITEMS.search(value)
    text = items[1] if items else value
    with suppress(ValueError, SyntaxError):
        if len(text) <= _MOST_SHOWN and ast.literal_eval(text) is not ...:
            return text
    return None


def structure_words(inside: Sequence[str], outside: Sequence[str]) -> str | None:
    r"""Describe a key or an order of keys that distinguishes two sets of structures; else None."""
    if not inside or not outside:
        return None
    mine, others = ([_KEY.findall(text) for text in texts] for texts in (inside, outside))
    for word, some, rest in (("has", mine, others), ("has no", others, mine)):
        if only := set.intersection(*map(set, some)).difference(*rest):
            return f"output {word} key {min(only)}"
    alike = {tuple(sorted(keys)) for keys in (*mine, *others)}
    if len(alike) == 1 and all(keys == mine[0] for keys in mine) and mine[0] not in others:
        return f"the order of keys in output is {', '.join(mine[0])}"
    return None


# -- tables ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    r"""The outputs of several runs as a table, with one row per run and one column per path.

    ``numbers``, of shape (runs, columns), is nan for cells that are not finite numbers. ``codes``
    contains the codes of labels in the :class:`Schema`, and 0 for numbers; ``codes`` is None if all
    cells are finite numbers. ``structures`` contains the code of the structure of each output.

    >>> table = Schema().read([(1, "stop"), (2.5, None), [3]])
    >>> table.numbers[:, 0].tolist(), (table.column(1)[1] > 0).tolist()
    ([1.0, 2.5, 3.0], [True, True, True])
    """

    numbers: Floats
    codes: Codes | None
    structures: Codes

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def width(self) -> int:
        return int(self.numbers.shape[1])

    def rows(self, part: slice | NDArray[Any]) -> Table:
        return Table(
            numbers=self.numbers[part],
            codes=None if self.codes is None else self.codes[part],
            structures=self.structures[part],
        )

    def column(self, place: int) -> tuple[Floats, Codes]:
        r"""The numbers and codes of a column; beyond the last column, all cells are absent."""
        if place >= self.width:
            return np.full(len(self), np.nan), np.full(len(self), ABSENT, dtype=np.int32)
        numbers = self.numbers[:, place]
        if self.codes is None:
            return numbers, np.zeros(len(self), dtype=np.int32)
        return numbers, self.codes[:, place]

    def known(self) -> NDArray[np.bool_]:
        whole = np.ones(self.numbers.shape, dtype=np.bool_)
        return whole if self.codes is None else self.codes == 0


def joined(tables: Sequence[Table]) -> Table:
    r"""Concatenate the rows of tables with one schema, padded to the widest table."""
    if len(tables) == 1:
        return tables[0]
    width = max(table.width for table in tables)
    codes = None
    if any(table.codes is not None or table.width < width for table in tables):
        every = (
            np.zeros(table.numbers.shape, np.int32) if table.codes is None else table.codes
            for table in tables
        )
        codes = np.concatenate([_wide(each, width, ABSENT) for each in every])
    return Table(
        numbers=np.asarray(concatenate([_wide(table.numbers, width, np.nan) for table in tables])),
        codes=codes,
        structures=np.concatenate([table.structures for table in tables]),
    )


def _wide(cells: NDArray[Any], width: int, fill: float) -> NDArray[Any]:
    if cells.shape[1] == width:
        return cells
    return np.pad(cells, ((0, 0), (0, width - cells.shape[1])), constant_values=fill)


@dataclasses.dataclass(slots=True, kw_only=True)
class Schema:
    r"""The column index of each path, and the code of each label, in order of first occurrence.

    An index or code never changes, so the row of an output does not depend on later outputs.
    """

    places: dict[str, int] = dataclasses.field(default_factory=dict)
    labels: dict[str, int] = dataclasses.field(default_factory=dict)
    hashed: set[str] = dataclasses.field(default_factory=set)

    def place(self, path: str) -> int:
        r"""The column index of a path. A new path gets the next index, or a hash after 2048."""
        found = self.places.get(path)
        if found is not None:
            return found
        if len(self.places) < MOST:
            return self.places.setdefault(path, len(self.places))
        if len(self.hashed) < _MOST_LABELS:
            self.hashed.add(path)
        return MOST + zlib.crc32(path.encode("utf-8", "surrogatepass")) % _BUCKETS

    def code(self, label: str) -> int:
        r"""The code of a label; a new label gets the next code, or OTHER after 2^16 labels."""
        found = self.labels.get(label)
        if found is not None:
            return found
        if len(self.labels) < _MOST_LABELS:
            return self.labels.setdefault(label, OTHER + 1 + len(self.labels))
        return OTHER

    @property
    def width(self) -> int:
        return MOST + _BUCKETS if self.hashed else len(self.places)

    @property
    def names(self) -> list[str]:
        return list(self.labels)

    @property
    def paths(self) -> list[str]:
        r"""The paths of the columns, and then the names of the sums over all further paths."""
        buckets = (f" hashed[{bucket}]" for bucket in range(_BUCKETS if self.hashed else 0))
        return [*self.places, *buckets]

    def read(self, outputs: Outputs) -> Table:
        array = outputs if isinstance(outputs, np.ndarray) else _stacked(outputs)
        if array is not None and array.dtype.kind in "biuf" and array.size and not _uneven(array):
            return self._of_array(array, outputs[0])
        rows = [row_of(output) for output in outputs]
        structures = np.array([self.code(row.structure) for row in rows], dtype=np.int32)
        at: list[tuple[int, int]] = []
        values: list[float] = []
        codes: list[int] = []
        for i, row in enumerate(rows):
            for path, cell in row.cells:
                place = self.place(path)
                at.append((i, place))
                if isinstance(cell, str):
                    odd = zlib.crc32(cell.encode("utf-8", "surrogatepass")) & 1
                    values.append((1.0 if odd else -1.0) if place >= MOST else math.nan)
                    codes.append(0 if place >= MOST else self.code(cell))
                else:
                    values.append(cell if type(cell) is float else as_float(cell))
                    codes.append(0)
        shape = (len(rows), self.width)
        numbers, coded = np.full(shape, np.nan), np.full(shape, ABSENT, dtype=np.int32)
        if at:
            run, place = np.array(at).T
            own = place < MOST
            worth, which = np.array(values), np.array(codes, dtype=np.int32)
            numbers[run[own], place[own]], coded[run[own], place[own]] = worth[own], which[own]
            if self.hashed:
                numbers[:, MOST:], coded[:, MOST:] = 0.0, 0
                np.add.at(numbers, (run[~own], place[~own]), np.nan_to_num(worth[~own]))
        return _table_of(numbers, coded, structures)

    def _of_array(self, array: NDArray[Any], first: object) -> Table:
        flat = array.reshape(len(array), -1)
        row = row_of(first)
        structures = np.broadcast_to(np.int32(self.code(row.structure)), len(flat))
        places = np.array([self.place(path) for path, _ in row.cells])
        numbers = flat.astype(np.float64, copy=False)
        if len(places) == self.width and bool((places == np.arange(len(places))).all()):
            return _table_of(numbers, None, structures)
        found = np.full((len(flat), self.width), np.nan)
        codes = np.full(found.shape, ABSENT, dtype=np.int32)
        own = places < MOST
        found[:, places[own]], codes[:, places[own]] = numbers[:, own], 0
        if self.hashed:
            codes[:, MOST:] = 0
            for bucket in range(MOST, self.width):
                found[:, bucket] = np.nan_to_num(numbers[:, places == bucket]).sum(axis=1)
        return _table_of(found, codes, structures)


def added_up(outputs: Outputs) -> list[str]:
    r"""A warning, in a list, if outputs have so many values that some are only read as sums."""
    widest = max((len(row_of(output).cells) for output in outputs[:_FIRST]), default=0)
    if widest <= MOST:
        return []
    found = f"outputs have {widest:,} columns: those after the first {MOST:,} are added up"
    return [f"{found} in {_BUCKETS} sums"]


def _table_of(numbers: Floats, codes: Codes | None, structures: Codes) -> Table:
    finite = np.isfinite(numbers)
    if bool(finite.all()):
        return Table(numbers=numbers, codes=None, structures=structures)
    if codes is None:
        codes = np.zeros(numbers.shape, dtype=np.int32)
    plain = codes == 0
    codes[plain & np.isnan(numbers)] = 2
    codes[plain & np.isposinf(numbers)] = 3
    codes[plain & np.isneginf(numbers)] = 4
    return Table(numbers=np.where(codes > 0, np.nan, numbers), codes=codes, structures=structures)


def _stacked(outputs: Sequence[Any]) -> NDArray[Any] | None:
    # An array if all outputs have the same type and length, and all numbers the same type.
    kinds = set(map(type, outputs))
    if kinds == {np.ndarray}:
        alike = {(output.dtype, output.shape) for output in outputs}
        return np.stack(outputs) if len(alike) == 1 else None
    if len(kinds) != 1 or not kinds <= {int, float, list, tuple}:
        return None
    if kinds <= {list, tuple}:
        items: Iterator[Any] = (item for output in outputs for item in output)
        if len(set(map(len, outputs))) != 1 or set(map(type, items)) not in ({int}, {float}):
            return None
    try:
        found = np.array(outputs, dtype=np.float64)
    except OverflowError:
        return None
    whole = type(outputs[0]) is int or (
        found.ndim > 1 and found.size and type(outputs[0][0]) is int
    )
    return None if whole and bool((np.abs(found) >= _WHOLE).any()) else found
