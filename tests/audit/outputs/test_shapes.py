r"""Tests of audits of outputs of any shape: leaks are found, correct mechanisms are not refuted.

Each mechanism is audited twice with default options: a broken version, which must be refuted, and a
correct version, which must not. Noise is exact: discrete Laplace noise in whole multiples of 2^-20.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pytest

from audit.outputs.rows import EXACT, row_of
from audit.report.audit_report import AuditReport
from audit.run_audit import audit
from tests.day_and_nightly import by_day

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


class Veiled:
    """An object of an unknown class, whose repr hides its number."""

    def __init__(self, mean: float) -> None:
        self.mean = mean

    def __repr__(self) -> str:
        return "<Veiled>"


def token(rng: Rng) -> str:
    return f"{rng.integers(1 << 60):x}"


_ROW: Final = np.dtype([("id", "i8"), ("mean", "f8")])
_DAY: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

# One number leaks, beside tokens and numbers that are independent of the data.
NUMBERS: Final[dict[str, Callable[[float, Rng], Any]]] = {
    "record": lambda x, rng: {
        "id": token(rng), "size": {"low": real(0, rng), "mean": x}, "rows": [real(0, rng)] * 2
    },
    "veiled class": lambda x, _: Veiled(x),
    "frame": lambda x, rng: pd.DataFrame({"x": [x], "y": [real(0, rng)]}),
    "sentence": lambda x, _: f"average = {x:.6f} kg",
    "structured": lambda x, rng: np.array(
        [(int(noise(rng)), x), (1, real(0, rng))], dtype=_ROW
    ),
    "matrix": lambda x, rng: np.insert(real(0, rng, 5), 4, x).reshape(2, 3),
    "packed": lambda x, _: struct.pack(">q", round(x * 2**_UNIT) + (1 << 50)),
    "date": lambda x, _: _DAY + dt.timedelta(seconds=round(x * 2**16) / 2**16),
    "complex number": lambda x, rng: complex(real(0, rng), x),
    "in JSON": lambda x, rng: json.dumps(
        {"id": token(rng), "rows": [{"n": whole(0, rng), "mean": real(0, rng)}, {"mean": x}]}
    ),
    "fraction": lambda x, _: {"mean": Fraction(x)},
}  # fmt: skip


def leaking(make: Callable[[float, Rng], Any]) -> Shape:
    return lambda d, rng, broken: make(real(6 * d if broken else d, rng), rng)


def order(d: int, rng: Rng, broken: bool) -> Any:
    found = {"a": real(d, rng), "b": real(0, rng)}
    turned = bool(d) if broken else bool(rng.integers(2))
    return dict(reversed(found.items())) if turned else found


def labels(d: int, rng: Rng, broken: bool) -> Any:
    """Three hundred names, of which one occurs on one dataset only."""
    name = int(rng.integers(1, 300))
    if rng.random() < 0.1:
        name = 300 + (d if broken else int(rng.integers(2)))
    return f"name {name:04d}".replace("0", "o").translate(_LETTERS), real(0, rng)


_LETTERS: Final = str.maketrans("123456789", "abcdefghi")


def members(d: int, rng: Rng, broken: bool) -> Any:
    """A set of names; the inclusion probability of one depends too much on the data."""
    names = {name for name in "abcdefghijklmnopqrst" if rng.random() < 0.5}
    sure = 0.97 if broken else 0.6
    return names | {"zoe"} if rng.random() < (sure if d else 1 - sure) else names


def missing(d: int, rng: Rng, broken: bool) -> Any:
    gone = rng.random() < (0.05 if d and broken else 0.0)
    return [None if gone else real(0, rng), real(d, rng)]


def many(d: int, rng: Rng, broken: bool) -> Any:
    found = noise(rng, 2100) / 2**_UNIT
    found[2080] = 30 * d if broken else found[2080] + d
    return found


SHAPES: Final[dict[str, Shape]] = {
    **{name: leaking(make) for name, make in NUMBERS.items()},
    # A city without inhabitants is left out.
    "keys": lambda d, rng, broken: {
        city: real(d * (city == "Rome"), rng) for city in ("Oslo", "Rome")[: 1 + d if broken else 2]
    },
    # The text leaks around a number with correct noise.
    "sentences": lambda d, rng, broken: (
        f"{'mean' if d and broken else 'average'} = {real(d, rng):.6f} kg"
    ),
    "truth": lambda d, rng, broken: [True if d and broken else 1, real(d, rng)],
    # Noise in steps of 1000, added to an answer that is not a multiple of 1000.
    "steps": lambda d, rng, broken: 1000 * int(noise(rng)) + (d if broken else 1000 * d),
    "steps within": lambda d, rng, broken: {
        "id": int(noise(rng)), "sum": 1000 * int(noise(rng)) + (d if broken else 0)
    },
    "negative zero": lambda d, rng, broken: [
        0.0 * (2 * d - 1 if broken else rng.choice([-1, 1])), real(0, rng), real(0, rng)
    ],
    "nesting": lambda d, rng, broken: [[real(d, rng)]] if d and broken else [real(d, rng)],
    "length": lambda d, rng, broken: [
        real(0, rng) for _ in range(3 + (d if broken else int(rng.integers(2))))
    ],
    "dtype": lambda d, rng, broken: np.array([noise(rng) for _ in range(3)]).astype(
        float if (d if broken else rng.integers(2)) else int
    ),
    "not a number": lambda d, rng, broken: np.array(missing(d, rng, broken), dtype=float),
    **{
        shape.__name__: shape for shape in (order, labels, members, missing, many)
    },
}  # fmt: skip


def runs_of(name: str) -> int:
    subtle = ("missing", "not a number", "sentence", "structured")
    runs = {"many": 300, **dict.fromkeys(subtle, 3000)}
    return runs.get(name, 400 if name == "frame" else 1000)


@cache
def audited(name: str, *, broken: bool) -> AuditReport:
    runs = runs_of(name) if broken else runs_of(name) // 2
    shape = SHAPES[name]
    return audit(lambda d, rng: shape(d, rng, broken), "epsilon=1", pair=(0, 1), runs=runs, seed=1)


@by_day(3)
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "correct"])
@pytest.mark.parametrize("name", SHAPES)
def test_leaks_in_outputs_of_any_shape_are_found(name: str, broken: bool) -> None:
    found = audited(name, broken=broken)
    assert found.verdict == ("refuted" if broken else "not_refuted")
    assert (name == "many") == any("2,048 are added up" in warning for warning in found.warnings)


def test_a_column_has_no_resolution_and_no_warning_about_the_whole_output() -> None:
    found = audited("sentence", broken=False)
    assert (found.verdict, found.to_json()["resolution"], found.warnings) == (
        "not_refuted", None, ()
    )  # fmt: skip
    assert "columns of them were tested" in found.to_json()["unresolved"]


@by_day(2)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("keys", "output has no key 'Rome'|output has key 'Rome'"),
        ("order", "the order of keys in output is 'a', 'b'|.*'b', 'a'"),
        ("veiled class", "output.mean < .*|output.mean >= .*"),
        ("negative zero", r".*sign of the zero output\[0\].*|output\[0\] exact is absent"),
        ("sentence", r"output.text\[0\] < .*|.* <= output.text\[0\]"),
        ("sentences", r"output.text is (average|mean) = #.# kg"),
        ("structured", r"output\[0\].mean < .*|.* <= output\[0\].mean"),
        ("missing", r"output\[0\] is None|.* is absent"),
    ],
)
def test_a_witness_names_the_part_of_the_output(name: str, words: str) -> None:
    found = audited(name, broken=True)
    assert found.witness is not None
    assert re.fullmatch(words, found.witness.event)


LABELS = {
    "integer": (2**60, 2**60 + 1),
    "zero": (0.0, -0.0),
    "text": ("7 of 1.0", "007 of 1.00"),
    "repeated key": ('{"a": 1, "a": 2}', '{"a": 2}'),
    "set": ({1.0}, {1}),
    "longdouble": (np.longdouble(1), np.longdouble(1) + np.finfo(np.longdouble).eps),
    "zero keys": ({0.0: 1}, {-0.0: 1}),
}


@by_day(2)
@pytest.mark.parametrize("name", LABELS)
def test_what_a_float_does_not_represent_is_refuted_next_to_noise(name: str) -> None:
    values = LABELS[name]
    for sizes, verdict in ((values, "refuted"), (values[:1] * 2, "not_refuted")):
        found = audit(
            lambda d, rng, sizes=sizes: [rng.normal(), sizes[d]],
            "epsilon=1", pair=(0, 1), runs=500, seed=2, floats="ignore",
        )  # fmt: skip
        assert found.verdict == verdict


def test_ordinary_outputs_have_no_labels_of_their_numbers() -> None:
    ordinary: list[Any] = [
        *([1, -2.5, math.inf, math.nan, 10**15, 0.1], {1.5, 2}, "mean 0.25 of 7 in 1e-07"),
        *('{"a": 0.5, "b": [1, 2]}', '{"a":0.5}', "a 1\nb 2.5", Fraction(1, 3), Decimal("0.25")),
        *(np.arange(3), np.array([0.5, math.nan]), np.datetime64("2024-01-01", "ns")),
    ]
    assert [path for path, _ in row_of(ordinary).cells if path.endswith(EXACT)] == []
