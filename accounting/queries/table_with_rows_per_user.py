r"""Tables whose rows belong to users: parsing, validation, and a limit of rows per user.

CSV and Parquet files are scanned by Polars; frames of other libraries are converted by narwhals.
The contribution of a row depends only on this row. The choice of the counted rows of a user depends
only on this user's rows. So adding or replacing a user does not change the contributions of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpcore.cli.files import csv_rows, require_plain
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation, Scope, Unit
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import PLAIN, Choice, Whole, check_fields, name, text
from dpcore.sampling.rng import Rng

_A_PASS: Final = 1 << 25
_A_BATCH: Final = 1 << 20
_A_PART: Final = 1 << 17
r"""Approximate numbers of rows in a pass over the table, in a batch, and in a ranked part."""
Booleans: TypeAlias = npt.NDArray[np.bool_]
_EXTRA: Final = "needs polars and narwhals: pip install 'dpcore[tables]'"
_NOBODY: Final = "must be given: every row must have a user"
_CHANGED: Final = "changed while it was read"
_VALUE, _USER, _PART, _COUNT = "value", "user", "part", "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScope:
    r"""The unit of privacy of a release: all rows of a user in the table.

    ``user`` is the column with the user of each row. At most ``rows_per_user`` rows of a user are
    counted. These rows are chosen uniformly with a hash of the user and of the index of the row
    among that user's rows, under a key drawn for the release. Neighbouring tables differ by adding
    or removing one user with all rows (``relation`` add-remove), or by replacing the rows of one
    user with any other rows (replace).

    >>> TableScope(user="user_id", rows_per_user=3).scope
    Scope(unit='user', relation='add-remove')
    """

    user: str
    rows_per_user: Whole = Whole(1, at_most=1 << 20)
    relation: Choice[Relation] = Choice(Relation, Relation.ADD_REMOVE)

    def __post_init__(self) -> None:
        check_fields(self)
        text("user", self.user, "must be the name of a column")

    @property
    def scope(self) -> Scope:
        return Scope(unit=Unit.USER, relation=self.relation)


def _polars() -> Any:
    try:
        return import_module("polars")
    except ImportError:
        raise InvalidParameter("table", ABSENT, _EXTRA) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    r"""Rows with named columns, from a file (:meth:`open`) or a frame (:meth:`of`)."""

    name: str
    columns: tuple[str, ...]
    source: Any = field(repr=False)
    """A lazy frame of Polars, or None for a file, which is scanned whenever it is read."""

    @classmethod
    def open(cls, path: str | Path) -> Self:
        r"""Open a .csv or .parquet file; only the names of its columns are read.

        Raises :class:`InvalidParameter` if the file cannot be read, or if its header has an empty
        or repeated name; the message names the file.
        """
        if not isinstance(path, str | Path):
            raise InvalidParameter("table", path, "must be a path; for a frame, use Table.of")
        file = Path(path)
        kind = file.suffix.lower()
        if kind not in (".csv", ".parquet"):
            raise InvalidParameter("table", str(path), "must end in .csv or .parquet")
        if not file.exists():
            raise InvalidParameter("table", str(path), "there is no such file")
        require_plain("table", file)
        if kind == ".csv":
            _, header = next(csv_rows("table", file), (0, []))
        else:
            polars = _polars()
            with _reading(str(path)):
                header = list(polars.read_parquet_schema(file))
        if not header:
            raise InvalidParameter("table", str(path), "is empty: its first line must name columns")
        for at, column in enumerate(header, 1):
            if not column or column in header[: at - 1]:
                fault = (
                    "has no name"
                    if not column
                    else f"has the same name {column!r} as another column"
                )
                raise InvalidParameter("table", str(path), f"column {at} {fault}")
        return cls(name=str(path), columns=tuple(header), source=None)

    @classmethod
    def of(cls, frame: Any, name: str = "table") -> Self:
        r"""Make a table from a pandas, Polars, PyArrow or DuckDB frame, or another narwhals frame.

        >>> import polars
        >>> Table.of(polars.DataFrame({"user": ["ada"], "amount": [2]})).columns
        ('user', 'amount')
        """
        polars = _polars()
        if isinstance(frame, cls):
            return frame
        try:
            narwhals = import_module("narwhals")
        except ImportError:
            raise InvalidParameter("table", "narwhals", _EXTRA) from None
        try:
            read = narwhals.from_native(frame)
        except TypeError:
            reason = "must be Table.open(file) or a frame: pandas, Polars, PyArrow, DuckDB or Dask"
            raise InvalidParameter("table", frame, reason) from None
        except narwhals.exceptions.NarwhalsError as error:  # two columns of one name
            reason = f"cannot be read: {' '.join(str(error).split())}"
            raise InvalidParameter("table", name, reason) from None
        if not isinstance(read.to_native(), polars.LazyFrame):
            read = read.collect() if isinstance(read, narwhals.LazyFrame) else read
            native = _converted(read, name).lazy()
        else:
            native = read.to_native()
        return cls(name=name, columns=tuple(native.collect_schema().names()), source=native)

    def require(self, *columns: str, argument: str = "column") -> None:
        r"""Raise :class:`InvalidParameter` for ``argument`` if a column is missing."""
        for column in columns:
            if column not in self.columns:
                names = ", ".join(self.columns[:8])
                reason = f"is not a column of {self.name}, which contains {names}"
                if len(self.columns) == 1 and re.search("[;\t|]", names):
                    reason += ": separate the columns by commas"
                raise InvalidParameter(argument, column, reason)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        r"""Raise :class:`InvalidParameter` if the file changes within the block."""
        before = self._state()
        yield
        if self._state() != before:
            raise InvalidParameter("table", self.name, _CHANGED)

    def _state(self) -> tuple[int, int, int] | None:
        if self.source is not None:
            return None
        with _reading(self.name):
            found = Path(self.name).stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    # -- what a query reads -------------------------------------------------------------------

    def users(self, scope: TableScope) -> list[str]:
        r"""All users with at least one row, sorted."""
        self._require_line_feeds()
        found = self._frame().select(self._named(scope)).unique().sort(_USER, nulls_last=False)
        users: list[str | None] = self._collected(found)[_USER].to_list()
        if users and users[0] is None:
            self._refuse_rows(scope)
        return cast("list[str]", users)

    def count(self, scope: TableScope) -> int:
        r"""The number of counted rows."""
        polars, total, nobody = _polars(), 0, False
        _, passes = self._passes(scope)
        for rows in passes:
            users = rows.group_by(_USER).agg(polars.len().cast(polars.Int64).alias(_COUNT))
            counted = polars.col(_COUNT).clip(upper_bound=scope.rows_per_user).sum()
            found = self._collected(users.select(counted, polars.col(_USER).is_null().any()))
            total, nobody = total + int(found[_COUNT][0]), nobody or found[_USER][0]
        if nobody:
            self._refuse_rows(scope)
        return total

    def steps(
        self, scope: TableScope, column: str, ends: tuple[int, int], step: Fraction, rng: Rng
    ) -> Iterator[Integers]:
        r"""The values of the counted rows, in steps: clipped to ``ends`` and rounded to a step.

        Each item of the iterator contains the values of all rows of some of the users. A number
        halfway between two steps, up to float precision, is rounded to one of the two,
        deterministically. Raises :class:`InvalidParameter` if a value is missing, non-numeric or
        not finite; the message names the row.
        """
        polars = _polars()
        number = self._number(column)
        bad = ~number.is_finite().fill_null(value=False)
        low, high = (float(end * step) for end in ends)
        moved = (number.clip(low, high) / float(step)).round().cast(polars.Int64, strict=False)
        for values, counts in self._parts(scope, polars.when(~bad).then(moved), rng):
            if values.null_count():
                self._refuse_rows(scope, (column, bad, "must be a finite number in every row"))
            yield np.clip(values.to_numpy()[counts], *ends)

    def keys(self, scope: TableScope, column: str, rng: Rng) -> dict[str, int]:
        r"""The number of counted rows per key; rows without a key are ignored."""
        polars = _polars()
        schema = {_VALUE: polars.String, _COUNT: polars.Int64}
        tables: list[Any] = [polars.DataFrame(schema=schema)]

        def merged() -> Any:
            return polars.concat(tables).group_by(_VALUE).agg(polars.col(_COUNT).sum())

        for values, counts in self._parts(scope, self._text(column), rng):
            found = values.filter(polars.Series(counts)).drop_nulls().value_counts(name=_COUNT)
            tables.append(found.cast(schema))
            if sum(map(len, tables[1:])) > max(len(tables[0]), _A_BATCH):
                tables[:] = [merged()]
        table = merged()
        return dict(zip(table[_VALUE].to_list(), table[_COUNT].to_list(), strict=True))

    def require_keys(self, column: str, keys: Iterable[str]) -> None:
        r"""Raise :class:`InvalidParameter` if the column's type cannot contain one of ``keys``."""
        kind = self._kind(column)
        form = "true|false" if kind == _polars().Boolean else "0|-?[1-9][0-9]*"
        if kind == _polars().Boolean or kind.is_integer():
            for key in keys:
                if not re.fullmatch(form, key):
                    must = f"must match {form}: the column {column} contains {kind}"
                    raise InvalidParameter("keys", key, must)

    def _frame(self) -> Any:
        if self.source is not None:
            return self.source
        polars = _polars()
        if self.name.lower().endswith(".csv"):
            # Cells are read as text; the query parses them as numbers. Column names are stripped.
            rows = polars.scan_csv(self.name, infer_schema=False, new_columns=list(self.columns))
            # All columns are read: otherwise the engine accepts rows with more cells than names,
            # such as "Smith, Ada" without quotes, and would read the user from a wrong column.
            return rows.map_batches(
                lambda read: read, projection_pushdown=False, streamable=True, schema=None
            )
        return polars.scan_parquet(self.name)

    def _require_line_feeds(self) -> None:
        if self.source is None and self.name.lower().endswith(".csv"):
            with _reading(self.name):
                _refuse_lone_returns(self.name, Path(self.name).stat().st_mtime_ns)

    def _named(self, scope: TableScope) -> Any:
        self.require(scope.user, argument="user")
        user = self._text(scope.user)
        valid = user.map_batches(_valid_names, return_dtype=_polars().Boolean)
        return _polars().when(valid).then(user).alias(_USER)

    def _passes(self, scope: TableScope, *columns: Any) -> tuple[int, Iterator[Any]]:
        # The rows in lazy frames of about _A_PASS rows, and the number of parts of each frame. All
        # rows of a user are in one part, which depends only on the hash of the name.
        self._require_line_feeds()
        polars, rows = _polars(), self._frame()
        total = self._collected(rows.select(polars.len())).item()
        passes = -(-total // _A_PASS) or 1
        parts = -(-total // (passes * _A_PART)) or 1
        user = self._named(scope)
        part = (user.hash() % (passes * parts)).cast(polars.UInt32).alias(_PART)
        rows = rows.select(user, *columns, *([part] if passes * parts > 1 else []))
        if passes == 1:
            return parts, iter([rows])
        mine = polars.col(_PART) // parts
        return parts, (rows.filter(mine == number) for number in range(passes))

    def _parts(self, scope: TableScope, value: Any, rng: Rng) -> Iterator[tuple[Any, Booleans]]:
        # The values of all rows in parts, and which of these rows count.
        polars, key = _polars(), rng.bits(256).to_bytes(32)
        parts, passes = self._passes(scope, value.alias(_VALUE))
        for rows in passes:
            held: dict[object, list[Any]] = {}
            with _reading(self.name):
                for batch in rows.collect_batches(chunk_size=_A_BATCH, engine="streaming"):
                    if batch[_USER].null_count():
                        self._refuse_rows(scope)
                    pieces = {(): batch} if parts == 1 else batch.partition_by(_PART, as_dict=True)
                    for part, piece in pieces.items():
                        held.setdefault(part, []).append(piece.select(_USER, _VALUE))
            while held:
                _, several = held.popitem()
                part = polars.concat(several)
                yield part[_VALUE], _counting(part[_USER], scope.rows_per_user, key)

    def _kind(self, column: str) -> Any:
        self.require(column)
        with _reading(self.name):
            return self._frame().collect_schema()[column]

    def _text(self, column: str) -> Any:
        # The column as text, if values have a unique spelling: 1 in a float column would be 1.0.
        polars, kind = _polars(), self._kind(column)
        words = polars.String, polars.Categorical, polars.Enum, polars.Boolean, polars.Null
        dates = kind.is_temporal() and kind != polars.Duration  # a duration has no text
        if not (kind.is_integer() or dates or kind in words):
            reason = f"contains {kind}, but must contain text, integers or dates: cast it first"
            raise InvalidParameter("column", column, reason)
        text = polars.col(column)
        # The cast of a time omits its nanoseconds.
        iso = kind == polars.Time
        return text.dt.to_string("iso") if iso else text.cast(polars.String, strict=False)

    def _number(self, column: str) -> Any:
        polars, kind = _polars(), self._kind(column)
        if not (kind.is_numeric() or kind == polars.String):
            raise InvalidParameter("column", column, f"contains {kind}, but must contain numbers")
        return polars.col(column).cast(polars.Float64, strict=False)

    def _refuse_rows(self, scope: TableScope, *more: tuple[str, Any, str]) -> NoReturn:
        # Report the first bad row, which an earlier pass over the table has found.
        missing = self._text(scope.user).fill_null("") == ""
        invalid = self._named(scope).is_null()
        users = ((scope.user, missing, _NOBODY), (scope.user, invalid, ""))
        for column, bad, reason in (*users, *more):
            self._refuse(column, bad, reason)
        raise InvalidParameter("table", self.name, _CHANGED)

    def _refuse(self, column: str, bad: Any, reason: str) -> None:
        # An empty reason means that the value is not a valid name; `name` raises its own error.
        polars = _polars()
        text = polars.col(column).cast(polars.String, strict=False).alias("shown")
        rows = self._frame().select(text, bad.alias("bad")).with_row_index("row", 1)
        found = self._collected(rows.filter(polars.col("bad")).head(1))
        if len(found):
            row, value = found["row"][0], found["shown"][0]
            where = f"{self.name}, row {row}, column {column}"
            if not reason:
                name(where, value)
            raise InvalidParameter(where, ABSENT if value is None else value, reason)

    def _collected(self, frame: Any) -> Any:
        with _reading(self.name):
            return frame.collect(engine="streaming")


def _valid_names(users: Any) -> Any:
    # Which texts of a series are valid names; null is not a name.
    plain = users.str.contains(f"^(?:{PLAIN.pattern})$").fill_null(value=False)
    return plain | users.is_in([each for each in users.filter(~plain).unique() if _valid(each)])


def _valid(text: object) -> bool:
    try:
        return bool(name("user", text))
    except InvalidParameter:
        return False


def _counting(users: Any, most: int, key: bytes) -> Booleans:
    # Which rows count: at most ``most`` of each user, the first in the order of a keyed hash. It is
    # AES of the hash of the name and the index of the row among the user's rows. So the choice
    # depends only on the key and on this user's rows. Without the key, it is computationally
    # indistinguishable from a uniform choice.
    hashed = users.hash().to_numpy()
    width = len(users).bit_length()
    numbers = np.arange(len(users), dtype=np.uint64)
    # Rows sorted by user: the leading bits of the hash identify the user if they all differ.
    for exact in (False, True):
        user = users.rank("dense").to_numpy().astype(np.uint64) if exact else hashed >> width
        ordered = np.sort(user << width | numbers)
        owner = ordered >> width
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])[: len(users)])
        if len(starts) == users.n_unique():
            break
    sizes = np.diff(starts, append=len(users))
    many = sizes > most
    rows = (ordered & ((1 << width) - 1))[np.repeat(many, sizes)]
    sizes = sizes[many]
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    blocks = np.column_stack((hashed[rows], place.astype(np.uint64))).tobytes()
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - blocks differ
    words = np.frombuffer(encryptor.update(blocks), dtype=np.uint64)[::2]
    # 40 bits of each word order the rows of a user; a tie is decided by the index of the row.
    if len(sizes) >> 24:
        must = f"must be increased: 2^24 or more users have more than {most} rows"
        raise InvalidParameter("rows_per_user", most, must)
    owner = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)
    order = np.argsort(owner << 40 | words >> 24, kind="stable")
    counts = np.ones(len(users), dtype=bool)
    counts[rows[order][place >= most]] = False
    return counts


def _converted(frame: Any, name: str) -> Any:
    # Other libraries may hold values that no Polars column can contain, such as 1 and "x". Polars
    # panics at decimals of 256 bits; a panic is not an Exception, and prints its stack.
    reason = "contains values of several types, or of an unsupported type"
    for column in getattr(frame.to_native(), "schema", ()):
        if "decimal256" in str(getattr(column, "type", "")):
            raise InvalidParameter("column", column.name, reason)
    panic = _polars().exceptions.PanicException
    try:
        return frame.to_polars()
    except (Exception, panic) as error:  # noqa: BLE001 - any error of the library of the frame
        for column in frame.columns:
            try:
                frame.select(column).to_polars()
            except (Exception, panic):  # noqa: BLE001 - as above
                raise InvalidParameter("column", column, reason) from None
        raise InvalidParameter("table", name, f"cannot be read: {_line_of(error)}") from None


def _line_of(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@lru_cache(maxsize=8)
def _refuse_lone_returns(path: str, changed: int) -> None:  # noqa: ARG001 - the key of the cache
    # Polars reads a lone carriage return as a character, so it would merge two rows.
    with Path(path).open("rb") as file:
        while part := file.read(1 << 20):
            part += file.read(1) if part.endswith(b"\r") else b""
            if part.count(b"\r") != part.count(b"\r\n"):
                break
        else:
            return
        file.seek(0)
        line = next(at for at, text in enumerate(file, 1) if re.search(rb"\r(?!\n)", text))
    reason = "has a carriage return without a line feed: end lines with \\n or \\r\\n"
    raise InvalidParameter("table", path, f"line {line} {reason}")


def _refuse_wide_rows(path: str) -> None:
    width = 0
    for line, row in csv_rows("table", path):
        width = width or len(row)
        if len(row) > width:
            reason = f"line {line} has {len(row)} cells, but the header has {width} names"
            raise InvalidParameter("table", path, f"{reason}: quote cells with commas")


@contextmanager
def _reading(name: str) -> Iterator[None]:
    polars = _polars()
    try:
        yield
    except (polars.exceptions.PolarsError, OSError) as error:
        if "more fields" in str(error):
            _refuse_wide_rows(name)
        raise InvalidParameter("table", name, f"cannot be read: {_line_of(error)}") from None
