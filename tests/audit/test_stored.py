"""Outputs as bytes: what comes back is what was stored, and nothing is ever executed."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.stored import Unstorable, decode, encode, pack, unpack


class Plain:
    pass


VALUES: list[Any] = [
    None, True, False, 0, -1, 2**53, 2**53 + 1, -(2**200), 10**5000, 0.1, -0.0, 5e-324, math.inf,
    -math.inf, "", "é\n", "\ud800", b"", b"\x00\xff", bytearray(b"x"), 1 + 2j, complex(0.0, -0.0),
    Fraction(1, 3), Decimal("1.50"), Decimal("NaN"), (), (1,), [], [()], {}, {1: "a", "1": (2,)},
    {(1, 2): [3]}, {"tuple": [1]}, {1, 2}, frozenset({"x"}), np.int8(-3), np.uint64(2**64 - 1),
    np.float32(0.1), np.bool_(True), np.str_("x"), np.complex128(1j), np.zeros((2, 0)),
    np.arange(6).reshape(2, 3), np.array([2**70, None, (1, 2)], dtype=object), np.array(3.0),
    np.array([["a", "bc"]]), np.array([1, 2], dtype=">i4"),
]  # fmt: skip


def shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str} {value.shape} {[shown(item) for item in value.ravel()]}"
    return f"{type(value).__name__} {value!r}" if not isinstance(value, int) else hex(value)


def test_a_value_comes_back_as_it_was() -> None:
    for value in VALUES:
        back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert type(back) is type(value)
        assert shown(back) == shown(value)


def test_every_nan_keeps_its_bits() -> None:
    for bits in (0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001):
        (nan,) = struct.unpack("<d", struct.pack("<Q", bits))
        assert struct.pack("<d", decode(encode(nan))) == struct.pack("<d", nan)


@pytest.mark.parametrize(
    "outputs",
    [
        np.arange(5),
        np.zeros((3, 2), dtype=np.float32),
        np.array(["x", "yy"]),
        np.array([True, False]),
        np.array([2**80, 1], dtype=object),
        [1, "x", (2.5, None)],
        [np.int64(1), 1],
        [],
    ],
    ids=str,
)
def test_outputs_come_back_as_they_were(outputs: Any) -> None:
    back = unpack(pack(outputs))
    assert type(back) is type(outputs)
    assert [shown(item) for item in back] == [shown(item) for item in outputs]


class Whole(int):
    pass


def test_what_would_come_back_changed_is_not_stored() -> None:
    nested: list[Any] = []
    nested.append(nested)
    pair = np.zeros(2, dtype=[("a", int)])
    for value in (Plain(), Whole(3), nested, len, pair, pair[0], np.array([Plain()]), [Plain()]):
        with pytest.raises(Unstorable):
            pack([value])


@pytest.mark.parametrize(
    "held",
    [
        {"os.system": "true"}, {}, {"int": "x"}, {"int": 3}, {"array": ["O", [1], ""]},
        {"array": ["<i8", [9], "AA=="]}, {"tuple": 3}, {"Fraction": "1/0"}, {"dict": [[[1], 2]]},
        {"scalar": []}, {"float": "00"}, {"a": 1, "b": 2},
    ],
    ids=str,
)  # fmt: skip
def test_what_nobody_stored_is_refused(held: Any) -> None:
    with pytest.raises((ValueError, IndexError)):
        decode(held)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    array = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        unpack((tmp_path / "a.npy").read_bytes())
