"""Tests of features: each output is mapped by itself; fast and plain paths agree; none raises."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.features.feature_maps import Map
from audit.features.parse_feature import FEATURES, Feature, read_feature, require_fixed
from audit.outputs.output_parser import Outputs
from audit.outputs.reading import read
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated

ALL = [f"{name}:4" if b.limits or b.text else name for name, b in FEATURES.items()]
NUMBERS = ["sign", "exponent", "lowest-bit", "precision", "modulo:0.3"]
NUMBERS += ["last-bits:4", "round:2", "hash:16"]
ROWS = ["length", "coordinate:1", "coordinate:-1", "argmax", "sum", "sorted", "distinct", "kind"]


def settled(outputs: Outputs) -> list[str]:
    # Values as a test compares them: -0.0 is 0, 3.0 is 3, a row is a tuple, nan is nan.
    def one(value: Any) -> str:
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, list | tuple):
            return f"({', '.join(map(one, value))})"
        return repr(value + 0.0) if isinstance(value, int | float) else repr(value)

    return [one(value) for value in outputs]


class Hostile:
    """Raises for every access except its class name."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __float__(self) -> float:
        raise RuntimeError("no float")


WEIRD: list[Any] = [
    None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**70, -(2**70), True, "", "abc", b"ab", [],
    [1, [2, 3]], [[], [1], "x", None], [math.nan, 1.0, math.nan], (1, "a"), {1: 2}, {3, 1}, 1 + 2j,
    Decimal(1), object(), np.float32(0.1), np.int8(-3), np.zeros((2, 2)), np.zeros(0),
    np.array(2.5), np.array(["a"]), np.longdouble(1) / 3, np.datetime64("2020-01-01"),
]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_every_feature_is_a_fixed_map_that_never_raises(name: str) -> None:
    feature = read_feature(name)
    found = feature.apply([*WEIRD, Hostile()])
    assert len(found) == len(WEIRD) + 1
    assert len(feature.apply([])) == 0
    if name != "identity" and not FEATURES[name.partition(":")[0]].learned:
        read(found)
    require_fixed(feature, WEIRD)
    assert pickle.loads(pickle.dumps(feature)) == feature  # noqa: S301 - made in this line


VALUES = st.one_of(
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
    st.lists(st.integers(-3, 3), max_size=3),
    st.lists(st.floats(), max_size=3).map(tuple),
)
LISTS = st.one_of(
    st.lists(VALUES, max_size=6),
    st.lists(st.floats(), max_size=6),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6),
)
ARRAYS = npst.arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int8, np.uint64]),
    shape=st.one_of(
        st.tuples(st.integers(0, 5)),
        st.tuples(st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(1, 2)),
    ),
)


def reads_each_by_itself(apply: Callable[[Outputs], Outputs], outputs: Outputs) -> bool:
    whole = settled(apply(outputs))
    alone = [settled(apply(outputs[i : i + 1]))[0] for i in range(len(outputs))]
    return whole == alone and settled(apply(outputs[::-1])) == whole[::-1]


@by_day(5)
@pytest.mark.parametrize("name", ALL)
@given(outputs=st.one_of(LISTS, ARRAYS))
@settings(max_examples=30, deadline=None)
def test_each_output_is_read_separately(name: str, outputs: Outputs) -> None:
    assert reads_each_by_itself(read_feature(name).apply, outputs)


def test_a_map_that_depends_on_other_outputs_is_detected() -> None:
    for outputs in ([0, 0.0], [0, None], [np.float64(1), None], [np.int64(1), "x"]):
        assert reads_each_by_itself(read_feature("kind").apply, outputs)
    ranks = lambda outputs: np.argsort(np.argsort(outputs))  # noqa: E731 - one line says it
    assert not reads_each_by_itself(ranks, [3, 1, 2])


@by_day(5)
@pytest.mark.parametrize("name", NUMBERS + ROWS)
@given(array=ARRAYS)
@settings(max_examples=30, deadline=None)
def test_the_vectorised_and_the_plain_map_agree(name: str, array: NDArray[Any]) -> None:
    fast = read_feature(name).apply
    assert isinstance(fast, Map)
    plain = replace(fast, of_array=lambda *_: None)
    # The plain path gets numpy scalars and rows one by one, so a float32 keeps its own bits.
    assert settled(fast(array)) == settled([plain([output])[0] for output in array])


def test_a_vectorised_map_that_rounds_is_detected() -> None:
    # 2^63 - 1 is not representable as a float: frexp alone is off by one.
    fast: Any = read_feature("exponent").apply
    mutant = mutated(fast.of_array, "power -= np.right_shift(", "_ = np.right_shift(")
    top = np.array([2**63 - 1])
    assert fast.of_array(top)[0] == fast.of_one(2**63 - 1) == 62
    assert mutant(top)[0] == 63


@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool))
def test_features_of_float_bits_agree_with_the_hexadecimal_form(x: float) -> None:
    whole, digits, power = (
        re.fullmatch(r"-?0x([01])\.([0-9a-f]+)p([+-]\d+)", x.hex()) or [""]
    ).groups()  # type: ignore[union-attr]  # every finite float has such a form
    significand = int(whole + digits, 16)
    assert list(read_feature("last-bits:52").apply([x])) == [int(digits, 16)]
    assert list(read_feature("last-bits:3").apply([x])) == [int(digits, 16) % 8]
    lowest = int(power) - 52 + (significand & -significand).bit_length() - 1
    assert list(read_feature("lowest-bit").apply([x])) == [lowest]
    exponent = int(power) - 52 + significand.bit_length() - 1
    assert list(read_feature("exponent").apply([x])) == [exponent]
    exact = Fraction(1, 2) - lowest + Fraction(exponent + 1100, 10**4) * (1 if x > 0 else -1)
    assert list(read_feature("precision").apply([x])) == [float(exact)]


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("identity", [1, "x"], [1, "x"]),
        ("sign", [-3, 0.0, -0.0, math.inf, "x"], [-1, 0, "-0", 1, "no sign: str"]),
        ("exponent", [0, 1023, 1024, -math.inf], [-math.inf, 9, 10, math.inf]),
        ("lowest-bit", [0, 96, 0.375, "1"], [math.inf, 5, -3, "no lowest-bit: str"]),
        ("precision", [0, 96, 0.375, -0.375, math.inf, "1"],
         [-math.inf, -4.3894, 3.6098, 3.3902, math.nan, "no precision: str"]),
        ("precision", [1, 2**2000, 2**9999], [0.61, -1999.19, -9998.01]),
        ("modulo:0.25", [1.0, -0.0625, 0.3125, 10**30, math.inf, "1"],
         [0, 0.75, 0.25, 0, math.inf, "no modulo:0.25: str"]),
        ("last-bits:3", [13, -1, 2**90 + 5, math.inf], [5, 7, 5, math.inf]),
        ("round:1", [0.25, 7, [0.24, 1.06], 1e308], [0.2, 7, (0.2, 1.1), 1e308]),
        ("round:-2", [149.0, 250], [100, 200]),
        ("kind", [1, "x", (1, 2)], ["int", "str", "tuple of 2"]),
        ("length", ["ab", {1: 2}, {3}, 4], [2, 1, 1, "no length: int"]),
        ("coordinate:1", ["ab", [5, 6, 7], [5]], ["b", 6, "no coordinate:1: list of 1"]),
        ("argmax", [[1, 5, 5], [[1, 2], [3, 0]], [1, math.nan]], [1, 2, 1]),
        ("argmax", [[], "ab"], ["no argmax: list of 0", "no argmax: str"]),
        ("sum", [[1, [2, True]], "ab", b"ab", []], [4, "no sum: str", 195, 0]),
        ("sorted", [[2, 1], "ba", [math.nan, 1]], [(1, 2), ("a", "b"), (1, math.nan)]),
        ("distinct", [[1, 1.0, True, 2], "aab", [math.nan, math.nan]], [2, 2, 1]),
        ("coordinate:0+last-bits:1", [(3, 0), (4, 0), 5], [1, 0, "no last-bits:1: str"]),
    ],
)  # fmt: skip
def test_features_have_the_documented_values(
    name: str, outputs: list[Any], expected: list[Any]
) -> None:
    assert settled(read_feature(name).apply(outputs)) == settled(expected)


def test_the_hash_feature_is_equal_in_every_process_and_uniform() -> None:
    code = (
        "from audit.features.parse_feature import read_feature\n"
        "outputs = ['a', {'x', 'y', 'z'}, (1, 2.5), None, 2**80, -0.0, {'k': object()}]\n"
        "found = [int(i) for i in read_feature('hash:1048576').apply(outputs)]"
    )
    words = [sys.executable, "-c", f"{code}\nprint(found)"]
    again = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    exec(code, here := dict[str, Any]())  # noqa: S102 - the lines above
    assert again.strip() == str(here["found"])
    # Equal values of different types are one output.
    same: list[Any] = [7, 7.0, np.int8(7), np.float32(7), np.array([7])]
    assert len(set(read_feature("hash:1048576").apply(same))) == 1
    cells = np.bincount(np.asarray(read_feature("hash:16").apply(np.arange(16_000))), minlength=16)
    assert 800 < cells.min() <= cells.max() < 1200


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sing", "did you mean sign"),
        ("", "must be one of identity"),
        ("sign:2", "takes no number"),
        ("last-bits", "needs an integer, written last-bits:4"),
        ("last-bits:x", "needs an integer"),
        ("modulo", "needs a number, written modulo:0.01"),
        ("modulo:0", r"must be in \[1e-300, 1e\+300\]"),
        ("modulo:nan", "must be in"),
        ("last-bits:0", r"must be in \[1, 52\]"),
        ("hash:1", "must be in"),
        ("sum+", "must be one of identity"),
        ("no_such_module:f", "no module"),
        ("math:pi", "is of type float, not a callable"),
        ("math:atan2", "must be callable with one output"),
        ("math:squrt", "did you mean sqrt"),
    ],
)
def test_an_invalid_feature_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason) as caught:
        read_feature(text)
    assert caught.value.argument == "feature"


OWN = """
import random
seen = []
def parity(output):
    return output % 2
def spoil(output):
    output.append(1)
    return len(output)
def late(output):
    seen.append(output)
    return len(seen)
def before(output):
    seen.append(output)
    return seen[-2] if len(seen) > 1 else None
def generator(output):
    return (x for x in [output])
def leave(output):
    raise SystemExit(3)
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], Feature]:
    path = tmp_path / "own_maps.py"
    path.write_text(OWN)
    return lambda name: read_feature(f"{path}:{name}")


def test_a_user_defined_map_is_a_feature(own: Callable[[str], Feature]) -> None:
    parity = own("parity")
    assert list(parity.apply(np.array([3, 4]))) == [1, 0]
    require_fixed(parity, [1, 2, 3])
    # A feature is pickled by its spelling.
    again = pickle.loads(pickle.dumps(parity))  # noqa: S301 - made one line above
    assert again == parity
    assert list(again.apply([5])) == [1]
    # The map gets a copy, so that another feature still reads the original output.
    outputs = [[1], [2]]
    require_fixed(own("spoil"), outputs)
    assert outputs == [[1], [2]]


def test_an_error_in_a_user_defined_map_names_the_map(own: Callable[[str], Feature]) -> None:
    with pytest.raises(TargetFailed, match=r"feature .*own_maps.py:parity: raised TypeError"):
        own("parity").apply(["x", None])
    with pytest.raises(TargetFailed, match="returned a generator"):
        own("generator").apply([1])
    with pytest.raises(TargetFailed, match=r"sys.exit\(3\)"):
        own("leave").apply([1])
    short = Feature(name="short", apply=lambda outputs: outputs[:1])
    with pytest.raises(TargetFailed, match="feature short: returned 1 values for 2 outputs"):
        require_fixed(short, [1, 2])


@pytest.mark.parametrize("name", ["late", "before"])
def test_a_map_that_changes_its_answers_is_refused(
    own: Callable[[str], Feature], name: str
) -> None:
    with pytest.raises(InvalidParameter, match="must be a deterministic"):
        require_fixed(own(name), [5, 6, 7])
