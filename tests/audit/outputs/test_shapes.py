r"""Tests of audits of outputs of any shape: leaks are found, correct mechanisms are not refuted.

Each mechanism is audited twice with default options: a broken version, which must be refuted, and a
correct version, which must not. Noise is exact: discrete Laplace noise in whole multiples of 2^-20.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pytest

from audit.report.audit_report import AuditReport
from audit.run_audit import audit
from tests.effort import by_day

Rng: TypeAlias = np.random.Generator
Shape: TypeAlias = Callable[[int, Rng, bool], Any]

_UNIT: Final = 20


def noise(rng: Rng, size: int | None = None) -> Any:
    """Noise for a count at epsilon = 1/2, in units of 2^-20."""
    p = -math.expm1(-(2.0**-_UNIT) / 2)
    return rng.geometric(p, size) - rng.geometric(p, size)


def real(answer: int, rng: Rng, size: int | None = None) -> Any:
    return ((answer << _UNIT) + noise(rng, size)) / 2**_UNIT


def whole(answer: int, rng: Rng) -> int:
    p = -math.expm1(-1 / 2)
    return answer + int(rng.geometric(p) - rng.geometric(p))


def keys(d: int, rng: Rng, broken: bool) -> Any:
    """Leaves out a city without inhabitants."""
    cities = ["Oslo", "Rome"][: 1 + d] if broken else ["Oslo", "Rome"]
    return {city: real(d * (city == "Rome"), rng) for city in cities}


def record(d: int, rng: Rng, broken: bool) -> Any:
    """One number of a record leaks, beside a token and numbers that are independent of the data."""
    token = f"{rng.integers(1 << 60):x}"
    size = {"low": real(0, rng), "mean": real(6 * d if broken else d, rng)}
    return {"id": token, "size": size, "rows": [real(0, rng), real(0, rng)]}


@dataclasses.dataclass
class Summary:
    rows: int
    mean: float


class Pair(NamedTuple):
    rows: int
    mean: float


class Plain:
    """An object of an unknown class, with a repr."""

    def __init__(self, mean: float) -> None:
        self.mean = mean

    def __repr__(self) -> str:
        return f"<Plain mean={self.mean!r}>"


def data_class(d: int, rng: Rng, broken: bool) -> Any:
    return Summary(rows=100, mean=real(6 * d if broken else d, rng))


def named_tuple(d: int, rng: Rng, broken: bool) -> Any:
    return Pair(rows=100, mean=real(6 * d if broken else d, rng))


def own_class(d: int, rng: Rng, broken: bool) -> Any:
    return Plain(real(6 * d if broken else d, rng))


class Veiled(Plain):
    def __repr__(self) -> str:
        return "<Veiled>"


def veiled_class(d: int, rng: Rng, broken: bool) -> Any:
    return Veiled(real(6 * d if broken else d, rng))


def negative_zero(d: int, rng: Rng, broken: bool) -> Any:
    sign = 2 * d - 1 if broken else rng.choice([-1, 1])
    return [0.0 * sign, real(0, rng), real(0, rng)]


def series(d: int, rng: Rng, broken: bool) -> Any:
    import pandas as pd

    return pd.Series([real(6 * d if broken else d, rng), real(0, rng)], index=["a", "b"])


def frame(d: int, rng: Rng, broken: bool) -> Any:
    import pandas as pd

    return pd.DataFrame({"x": [real(6 * d if broken else d, rng)], "y": [real(0, rng)]})


def frame_index(d: int, rng: Rng, broken: bool) -> Any:
    import pandas as pd

    rows = ["a", "b" if d or not broken else "c"]
    return pd.DataFrame({"x": [real(d, rng), real(0, rng)]}, index=rows)


def frame_columns(d: int, rng: Rng, broken: bool) -> Any:
    import pandas as pd

    return pd.DataFrame({"new" if d and broken else "old": [real(d, rng), real(0, rng)]})


def sentence(d: int, rng: Rng, broken: bool) -> Any:
    return f"average = {real(6 * d if broken else d, rng):.6f} kg"


def sentences(d: int, rng: Rng, broken: bool) -> Any:
    """The text leaks around a number with correct noise."""
    return f"{'mean' if d and broken else 'average'} = {real(d, rng):.6f} kg"


def order(d: int, rng: Rng, broken: bool) -> Any:
    found = {"a": real(d, rng), "b": real(0, rng)}
    turned = bool(d) if broken else bool(rng.integers(2))
    return dict(reversed(found.items())) if turned else found


def truth(d: int, rng: Rng, broken: bool) -> Any:
    return [True if d and broken else 1, real(d, rng)]


def nesting(d: int, rng: Rng, broken: bool) -> Any:
    number = real(d, rng)
    return [[number]] if d and broken else [number]


def length(d: int, rng: Rng, broken: bool) -> Any:
    return [real(0, rng) for _ in range(3 + (d if broken else int(rng.integers(2))))]


def wide_steps(d: int, rng: Rng, broken: bool) -> Any:
    """Noise in steps of 1000, added to an answer that is not a multiple of 1000."""
    return 1000 * int(noise(rng)) + (d if broken else 1000 * d)


def wide_steps_within(d: int, rng: Rng, broken: bool) -> Any:
    return {"id": int(noise(rng)), "sum": 1000 * int(noise(rng)) + (d if broken else 0)}


def dtype(d: int, rng: Rng, broken: bool) -> Any:
    found = np.array([noise(rng) for _ in range(3)])
    return found.astype(float) if (d if broken else rng.integers(2)) else found


_ROW: Final = np.dtype([("id", "i8"), ("mean", "f8")])


def structured(d: int, rng: Rng, broken: bool) -> Any:
    rows = [(int(noise(rng)), real(6 * d if broken else d, rng)), (1, real(0, rng))]
    return np.array(rows, dtype=_ROW)


def matrix(d: int, rng: Rng, broken: bool) -> Any:
    found = real(0, rng, 6)
    found[4] += 6 * d if broken else d
    return found.reshape(2, 3)


def labels(d: int, rng: Rng, broken: bool) -> Any:
    """Three hundred names, of which one occurs on one dataset only."""
    name = int(rng.integers(1, 300))
    if rng.random() < 0.1:
        name = 300 + (d if broken else int(rng.integers(2)))
    return f"name {name:04d}".replace("0", "o").translate(_LETTERS), real(0, rng)


_LETTERS: Final = str.maketrans("123456789", "abcdefghi")


def packed(d: int, rng: Rng, broken: bool) -> Any:
    return struct.pack(">q", (6 * d if broken else d) * 2**_UNIT + int(noise(rng)) + (1 << 50))


def encoded(d: int, rng: Rng, broken: bool) -> Any:
    return f"mean: {real(6 * d if broken else d, rng)!r}".encode()


def date(d: int, rng: Rng, broken: bool) -> Any:
    seconds = real(6 * d if broken else d, rng)
    return dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
        seconds=round(seconds * 2**16) / 2**16
    )


def numpy_date(d: int, rng: Rng, broken: bool) -> Any:
    return np.datetime64((6 * d if broken else d) * 2**_UNIT + int(noise(rng)), "us")


def complex_number(d: int, rng: Rng, broken: bool) -> Any:
    return complex(real(0, rng), real(6 * d if broken else d, rng))


def in_json(d: int, rng: Rng, broken: bool) -> Any:
    rows = [{"n": whole(0, rng), "mean": real(0, rng)}, {"mean": real(6 * d if broken else d, rng)}]
    return json.dumps({"id": f"{rng.integers(1 << 60):x}", "rows": rows})


def lines(d: int, rng: Rng, broken: bool) -> Any:
    mean = real(6 * d if broken else d, rng)
    return f"rows: {whole(100, rng)}\nmean: {mean:.4f}\ntime: {rng.random():.6f} s\n"


def members(d: int, rng: Rng, broken: bool) -> Any:
    """A set of names; the inclusion probability of one depends too much on the data."""
    names = {name for name in "abcdefghijklmnopqrst" if rng.random() < 0.5}
    sure = 0.97 if broken else 0.6
    return names | {"zoe"} if rng.random() < (sure if d else 1 - sure) else names


def missing(d: int, rng: Rng, broken: bool) -> Any:
    gone = rng.random() < (0.05 if d and broken else 0.0)
    return [None if gone else real(0, rng), real(d, rng)]


def not_a_number(d: int, rng: Rng, broken: bool) -> Any:
    gone = rng.random() < (0.05 if d and broken else 0.0)
    return np.array([math.nan if gone else real(0, rng), real(d, rng)])


def fractions(d: int, rng: Rng, broken: bool) -> Any:
    from fractions import Fraction

    return {"mean": Fraction((6 * d if broken else d) * 2**_UNIT + int(noise(rng)), 2**_UNIT)}


def many(d: int, rng: Rng, broken: bool) -> Any:
    found = noise(rng, 2100) / 2**_UNIT
    found[2080] = 30 * d if broken else found[2080] + d
    return found


SHAPES: Final[tuple[Shape, ...]] = (
    keys, record, data_class, named_tuple, own_class, veiled_class, negative_zero,
    series, frame, frame_index, frame_columns,
    sentence, sentences, order, truth, nesting, length, wide_steps, wide_steps_within, dtype,
    structured, matrix, labels, packed, encoded, date, numpy_date, complex_number, in_json, lines,
    members, missing, not_a_number, fractions, many,
)  # fmt: skip


def runs_of(shape: Shape) -> int:
    return 300 if shape is many else 1000 if shape.__name__.startswith("frame") else 3000


@cache
def audited(shape: Shape, *, broken: bool) -> AuditReport:
    runs = runs_of(shape) if broken else runs_of(shape) // 2
    return audit(lambda d, rng: shape(d, rng, broken), "epsilon=1", pair=(0, 1), runs=runs, seed=1)


@by_day(13)
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "correct"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_an_output_of_any_shape_is_read(shape: Shape, broken: bool) -> None:
    if shape.__name__.startswith(("series", "frame")):
        pytest.importorskip("pandas")
    found = audited(shape, broken=broken)
    assert found.verdict == ("refuted" if broken else "not_refuted")
    assert (shape is many) == any("2,048 are added up" in warning for warning in found.warnings)


def test_a_column_has_no_resolution_and_no_warning_about_the_whole_output() -> None:
    found = audited(sentence, broken=False)
    assert (found.verdict, found.to_json()["resolution"], found.warnings) == (
        "not_refuted",
        None,
        (),
    )
    assert "columns of them were tested" in found.to_json()["unresolved"]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (keys, "output has no key 'Rome'|output has key 'Rome'"),
        (order, "the order of keys in output is 'a', 'b'|.*'b', 'a'"),
        (veiled_class, "output.mean < .*|output.mean >= .*"),
        (negative_zero, r".*sign of the zero output\[0\].*"),
        (data_class, "output.mean < .*|output.mean >= .*"),
        (sentence, r"output.text\[0\] < .*|output.text\[0\] >= .*"),
        (sentences, r"output.text is (average|mean) = #.# kg"),
        (structured, r"output\[0\].mean < .*|.* <= output\[0\].mean"),
        (missing, r"output\[0\] is None|.* is absent"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_witness_is_in_the_words_of_the_output(shape: Shape, words: str) -> None:
    found = audited(shape, broken=True)
    assert found.witness is not None
    assert re.fullmatch(words, found.witness.event)
