"""Tests of tables as outputs: all that a recipient of a DataFrame can distinguish is audited."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pandas as pd
import polars as pl
import pytest

from audit.errors import TargetFailed
from audit.outputs.copies import captured
from audit.outputs.identity import identity, unread_attributes
from audit.outputs.rows import row_of, table_words
from audit.outputs.sandbox_encoding import Objects, pack, unpack
from audit.report.audit_report import AuditReport
from audit.run_audit import audit
from audit.statistical_tests.event import Witness
from tests.day_and_nightly import by_day
from tests.support.audit.distinct_constants import having
from tests.support.dpcore.refusals import refusal

DAYS: Final = pd.date_range("2020-01-01", periods=2)


class Located(pd.DataFrame):  # type: ignore[misc]  # pandas has no types
    """A subclass of DataFrame, as libraries define it, with one more attribute."""

    _metadata = ["place"]  # noqa: RUF012 - as pandas documents it


def categories(other: str) -> Any:
    return pd.DataFrame({"city": pd.Series(["paris", other], dtype="category").head(1)})


def arrow_categories(other: str) -> Any:
    arrow = pytest.importorskip("pyarrow")
    values = arrow.array(["paris", other]).dictionary_encode()
    return pd.Series(pd.arrays.ArrowExtensionArray(values)).head(1)


def arrow(value: int, made: str = "table", **options: Any) -> Any:
    library = pytest.importorskip("pyarrow")
    numbers = [0] * 40 + [value] + [0] * 39
    return getattr(library, made)({"n": numbers} if made != "array" else numbers, **options)


def arrow_metadata(value: str, *, of_field: bool = False) -> Any:
    library = pytest.importorskip("pyarrow")
    notes = {"note": value}
    field = library.field("n", library.int64(), metadata=notes if of_field else None)
    return library.schema([field], metadata=None if of_field else notes)


def name_of_columns(name: str) -> Any:
    return pd.DataFrame({"n": [1, 2]}).rename_axis(columns=name)


def with_index(index: Any) -> Any:
    return pd.DataFrame({"n": [1.0] * len(index)}, index=index)


def under_mask(value: int) -> Any:
    found = pd.Series([1, value], dtype="Int64")
    found[1] = pd.NA
    return pd.DataFrame({"n": found})


def with_attrs(value: int) -> Any:
    found = pd.DataFrame({"n": [1]})
    found.attrs["rows"] = value
    return found


# For each: how the output is made, and what it is made of on the two datasets.
TABLES: Final[dict[str, tuple[Callable[[Any], Any], Any, Any]]] = {
    "categories": (categories, "rome", "oslo"),
    "categories of a Series": (lambda other: categories(other)["city"], "rome", "oslo"),
    "categories of an index": (
        lambda other: with_index(pd.CategoricalIndex(["a"], categories=["a", other])), "b", "c"
    ),
    "categories of the names": (
        lambda other: pd.DataFrame(
            [[1]], columns=pd.CategoricalIndex(["a"], categories=["a", other])
        ), "b", "c"
    ),
    "order of categories": (
        lambda ordered: pd.Series(pd.Categorical(["a"], ordered=ordered)), False, True
    ),
    "Arrow categories": (arrow_categories, "rome", "oslo"),
    "Enum": (lambda other: pl.Series(["a"], dtype=pl.Enum(["a", other])), "b", "c"),
    "long Enum": (
        lambda other: pl.DataFrame(
            {"x": ["0"]}, schema={"x": pl.Enum([*map(str, range(300)), other])}
        ), "b", "c"
    ),
    "levels": (
        lambda other: with_index(
            pd.MultiIndex.from_tuples([("ada", "paris"), ("ben", other)])
        ).head(1), "rome", "oslo"
    ),
    "name of columns": (name_of_columns, "a", "b"),
    "name of index": (lambda name: with_index(pd.Index([1, 2], name=name)), "a", "b"),
    "names of levels": (
        lambda name: with_index(pd.MultiIndex.from_tuples([(1, 2)], names=["k", name])), "a", "b"
    ),
    "frequency": (
        lambda regular: with_index(DAYS if regular else pd.DatetimeIndex(DAYS.to_list())),
        True, False,
    ),
    "unit": (lambda unit: with_index(DAYS.as_unit(unit)), "s", "ns"),
    "type of index": (lambda dtype: with_index(pd.Index([1], dtype=dtype)), "int8", "int64"),
    "empty range": (lambda start: with_index(pd.RangeIndex(start, start)), 3, 4),
    "flags": (
        lambda allowed: name_of_columns("a").set_flags(allows_duplicate_labels=allowed), True, False
    ),
    "under the mask": (under_mask, 5, 6),
    "attribute": (lambda place: having(Located({"n": [1]}), place=place), "rome", "oslo"),
    "attrs": (with_attrs, 0, 1),
    "Arrow table": (arrow, 1, 2),
    "Arrow batch": (lambda value: arrow(value, "record_batch"), 1, 2),
    "Arrow array": (lambda value: arrow(value, "array"), 1, 2),
    "type of an Arrow array": (lambda type_: arrow(1, "array", type=type_), "int8", "int64"),
    "Arrow metadata": (lambda value: arrow_metadata(value).empty_table(), "a", "b"),
    "Arrow schema": (arrow_metadata, "a", "b"),
    "metadata of an Arrow field": (lambda value: arrow_metadata(value, of_field=True), "a", "b"),
    "Categorical": (
        lambda value: pd.Categorical([*range(40), value, *range(40)], categories=range(99)), 41, 42
    ),
    "strings": (lambda text: pd.array(["a"] * 40 + [text] + ["a"] * 40, dtype="string"), "b", "c"),
}  # fmt: skip


TOLD: Final = (
    *("categories", "names of levels", "under the mask", "Arrow table", "Arrow metadata"),
    "Categorical",
)


@pytest.mark.parametrize("name", TABLES)
def test_every_part_of_a_table_is_read(name: str) -> None:
    make, one, other = TABLES[name]
    objects, known = Objects(shared=True), dict[int, Any]()
    ways: list[Callable[[Any], Any]] = [
        lambda table: table, captured, lambda table: unpack(pack([table], objects), known)[0]
    ]  # fmt: skip
    for way in ways:
        first, same, second = (way(make(value)) for value in (one, one, other))
        assert identity(first) == identity(same) != identity(second)
        assert row_of(first) == row_of(same) != row_of(second)
        assert unread_attributes(first) == []


@cache
def leak(name: str) -> AuditReport:
    make, *values = TABLES[name]
    return audited(lambda d: make(values[d]))


def audited(make: Callable[..., Any]) -> AuditReport:
    return audit(make, "epsilon=1", pair=(0, 1), runs=150, seed=4)


@by_day(1)
@pytest.mark.parametrize("name", TOLD)
def test_a_table_that_reveals_the_dataset_is_refuted(name: str) -> None:
    make, *values = TABLES[name]
    assert leak(name).verdict == "refuted"
    assert not any("not measured" in warning for warning in leak(name).warnings)
    twin = audited(lambda d, rng: make(values[int(rng.integers(2))]))
    assert twin.verdict == "not_refuted"


WORDS: Final = {
    "categories": "the categories of column city = ['oslo', 'paris']",
    "levels": "the levels of the index as on dataset B",
    "attribute": "the attribute place = 'oslo'",
    "frequency": "output has no frequency of the index",
}


@by_day(1)
@pytest.mark.parametrize("name", WORDS)
def test_a_witness_names_the_part_of_a_table_that_differs(name: str) -> None:
    found = leak(name).witness
    assert isinstance(found, Witness)
    assert str(found).startswith(f"{WORDS[name]}: 0 of ")


def test_only_a_part_that_differs_is_named() -> None:
    odd = [":(", "', 'the name': 'x', ", "}", "it's", '"']
    inside, outside = (
        [
            str(identity(pd.DataFrame({"a": [text], "b": pd.Series([x], dtype=kind)}, index=[0])))
            for x, text in enumerate(odd)
        ]
        for kind in ("int8", "int64")
    )
    assert table_words(inside, outside, "A") == "the type of column b = 'int8'"
    # Labels of rows that contain brackets hide no part, and no value counts as one.
    inside, outside = (
        [str(identity(pd.DataFrame({"a": [x]}, index=pd.Index([":("], name=name)))) for x in (1, 2)]
        for name in ("x", "y")
    )
    assert table_words(inside, outside, "A") == "the names of the index = ('x',)"
    assert table_words(inside, inside, "A") is None
    assert table_words(["{'the type of a': 1}"], ["{'the type of a': 2}"], "A") is None
    first = pd.DataFrame([[1, 1]], columns=["n", "n"])
    second = pd.concat([first.iloc[:, :1], first.iloc[:, 1:].astype("int8")], axis=1)
    words = table_words([str(identity(first))], [str(identity(second))], "A")
    assert words == "the type of column 1 = 'int64'"


def test_tables_are_read_in_the_same_way_in_another_process() -> None:
    for table in (
        pd.DataFrame(),
        pl.DataFrame(),
        pd.Series([1, 2], index=["columns", "names"]),
        pd.DataFrame({"names": [1], "index": [2], "columns": [3], "levels": [4]}),
        pd.concat([pd.DataFrame({"n": [1]})] * 2, axis=1),
        pd.Series(pd.cut([1, 5], 2)),
        pd.period_range("2020", periods=2, freq="D"),
        pd.Series(["a", None], dtype="string"),
    ):
        found = unpack(pack([table], Objects()), {})[0]
        assert str(identity(found)) == str(identity(table))
        assert row_of(found) == row_of(table) == row_of(captured(table))


def test_a_missing_value_of_pandas_is_an_output() -> None:
    def mean(d: int) -> Any:
        return {"mean": pd.Series([None, 1][d:], dtype="Int64").head(1).mean()}

    assert mean(0)["mean"] is pd.NA
    assert audited(mean).verdict == "refuted"
    assert audited(lambda _: mean(0)).verdict == "nothing_measured"


def test_a_lazy_frame_is_refused() -> None:
    def lazy(d: int) -> Any:
        return pl.LazyFrame({"n": [d]})

    with warnings.catch_warnings(action="error"):
        line = refusal(lambda: audited(lazy), TargetFailed)
    assert "returned a LazyFrame, which contains its source data: return its collect()" in line
    assert audited(lambda d: lazy(d).collect()).verdict == "refuted"
