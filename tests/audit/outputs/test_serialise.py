"""Tests of `audit.outputs.serialise`: values survive storage as bytes; no code is executed."""

from __future__ import annotations

import json
import math
import pickle
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from audit.outputs.serialise import Unstorable, decode, encode, pack, unpack


class Plain:
    pass


VALUES: list[Any] = [
    None, True, False, 0, -1, 2**53, 2**53 + 1, -(2**200), 10**4000, 16**3500 - 1,
    0.1, -0.0, 5e-324, math.inf, -math.inf, "", "é\n", "\ud800", b"", b"\x00\xff", bytearray(b"x"),
    1 + 2j, complex(0.0, -0.0), Fraction(1, 3), Decimal("1.50"), Decimal("NaN"), (),
    (1,), [], [()], {}, {1: "a", "1": (2,)},
    {(1, 2): [3]}, {"tuple": [1]}, {1, 2}, frozenset({"x"}), np.int8(-3), np.uint64(2**64 - 1),
    np.float32(0.1), np.bool_(True), np.str_("x"), np.complex128(1j), np.zeros((2, 0)),
    np.arange(6).reshape(2, 3), np.array([2**70, None, (1, 2)], dtype=object), np.array(3.0),
    np.array([["a", "bc"]]), np.array([1, 2], dtype=">i4"), np.array(["x"], dtype=">U2"),
    np.str_("\ud800"), np.array(["", ""]), np.array([b"", b""]),
    Fraction(3), Fraction(-1, 7), Fraction(10**4000, 3), Decimal("-1E+999999"), Decimal("sNaN"),
    np.zeros((8192, 3, 0)), np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.longdouble(0.1), np.bool_(False),
]  # fmt: skip


EMPTY: list[Any] = [  # which numpy cannot read from bytes
    np.str_(""), np.bytes_(b""), [np.str_(""), np.array([""])], (np.str_(""), [np.bytes_(b"")]),
    {np.str_(""): np.bytes_(b"")},
]  # fmt: skip


def shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str} {value.shape} {[shown(item) for item in value.ravel()]}"
    return f"{type(value).__name__} {value!r}" if not isinstance(value, int) else hex(value)


def test_a_value_survives_storage_unchanged() -> None:
    for value in [*VALUES, *EMPTY]:
        back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert (type(back), shown(back)) == (type(value), shown(value))
    for bits in (0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001):
        (nan,) = struct.unpack("<d", struct.pack("<Q", bits))
        assert struct.pack("<d", decode(encode(nan))) == struct.pack("<d", nan)


def test_outputs_survive_storage_unchanged() -> None:
    batches: list[Any] = [
        np.arange(5), np.zeros((3, 2), dtype=np.float32), np.array(["x", "yy"]),
        np.array([True, False]), np.array([2**80, 1], dtype=object), VALUES, EMPTY,
        np.array(["", ""]), np.array([b"", b""]),
        np.array([np.str_(""), np.bytes_(b"")], dtype=object),
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((2, 0)),
    ]  # fmt: skip
    for outputs in batches:
        back = unpack(pack(outputs))
        assert type(back) is type(outputs)
        assert [shown(item) for item in back] == [shown(item) for item in outputs]


class Whole(int):
    pass


def test_a_value_that_storage_would_change_is_refused() -> None:
    nested: list[Any] = []
    nested.append(nested)
    pair = np.zeros(2, dtype=[("a", int)])
    no_text = np.ndarray((2,), dtype="U0")
    masked = np.ma.masked_array([1, 2], mask=[True, False])
    for value in (
        Plain(), Whole(3), nested, len, pair, pair[0], np.array([Plain()]), [Plain()], no_text,
        masked, np.zeros((1, 1)).view(np.matrix), np.datetime64("2020-01-01"), 16**3500,
        -(16**3500), Fraction(16**3500, 3), Fraction(3, 16**3500), np.zeros((2**21, 0)),
    ):  # fmt: skip
        with pytest.raises(Unstorable):
            pack([value])
        if isinstance(value, np.ndarray):
            with pytest.raises(Unstorable):
                pack(value)


HELD: list[Any] = [
    {"os.system": "true"}, {}, {"int": "x"}, {"int": 3}, {"array": ["O", [1], ""]},
    {"array": ["<i8", [9], "AA=="]}, {"tuple": 3}, {"Fraction": "1/0"}, {"dict": [[[1], 2]]},
    {"scalar": []}, {"float": "00"}, {"a": 1, "b": 2}, {"int": "0x" + "f" * 3501}, {"int": "0x"},
    {"int": "1_0"}, {"Fraction": "1e999999999"}, {"Fraction": "1e3"}, {"Fraction": 0.5},
    {"Fraction": "9" * 4301}, {"Decimal": "1e999999999999999999999"}, {"Decimal": [0, [1], 2]},
    {"tuple": "abc"}, {"dict": ["ab"]}, {"dict": [[1]]}, {"set": [[1]]}, {"set": "ab"},
    {"complex": [1, 2, 3]}, {"complex": ["1", "2"]}, {"complex": [1]}, {"bytes": "?!"},
    {"bytes": 3}, {"str_": 3}, {"bytes_": [1]}, {"str_": ["x"]}, {"scalar": ["<U1", "/////w=="]},
    {"scalar": ["<M8[D]", "AAAAAAAAAAA="]}, {"scalar": ["<i8", "AAAA"]},
    {"scalar": ["|b1", "Bw=="]},
    {"array": ["<U1", [1], "/////w=="]}, {"array": [">U1", [1], "/////w=="]},
    {"array": ["<i8", [10**12], ""]}, {"array": ["<i8", [10**25], ""]},
    {"array": ["<i8", [10**25, 0], ""]}, {"array": ["<i8", [-1, -1], "AAAAAAAAAAA="]},
    {"array": ["<i8", [True], "AAAAAAAAAAA="]}, {"array": ["<i8", "1", "AAAAAAAAAAA="]},
    {"array": ["<i8", [0, 99999999], ""]}, {"array": ["|S0", [3], ""]}, {"array": ["|V8", [0], ""]},
    {"array": [["a"], [0], ""]}, {"array": ["<i3", [0], ""]}, {"array": ["S999999999999", [0], ""]},
    {"array": ["i4,i4", [0], ""]}, {"array": {"a": 1}}, {"array": 3}, {"objects": [[2], [1]]},
    {"objects": [[10**12, 0], []]}, {"objects": [[1], 3]}, {"objects": []},
]  # fmt: skip


def test_records_that_were_never_stored_are_refused() -> None:
    for held in HELD:
        for value in (held, [held], {"tuple": [held]}):
            with pytest.raises(ValueError):  # noqa: PT011  # the reason is the parser's
                decode(value)
        with pytest.raises(ValueError):  # noqa: PT011  # the reason is the parser's
            unpack(json.dumps([held]).encode())


def npy(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    line = header.encode() + b" " * (64 - (11 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(line)) + line + body


def described(descr: str, shape: str) -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


BYTES: list[bytes] = [
    npy(described("'<i8'", "(1000000000000,)")),
    npy(described("'<i8'", "(10000000000000000000000000,)")),
    npy(described("'<i8'", "()"), bytes(8)),
    npy(described("'<i8'", "(-1,)"), bytes(8)),
    npy(described("'<i8'", "(2,)"), bytes(8)),
    npy(described("'<i8'", "(1,)"), bytes(9)),
    npy(described("'<i8'", "(1000000000000, 0)")),
    npy(described("'|S0'", "(100000000000,)")),
    npy(described("'|S0'", "(2,)")),
    npy(described("'|V8'", "(1,)"), bytes(8)),
    npy(described("'<M8[D]'", "(1,)"), bytes(8)),
    npy(described("[('a', '<i8')]", "(1,)"), bytes(8)),
    npy(described("('<i4', (2,))", "(1,)"), bytes(8)),
    npy(described("'|b1'", "(1,)"), b"\x07"),
    npy(described("'<U1'", "(1,)"), b"\xff" * 4),
    npy("{'descr': '<i8', 'shape': (1,"),
    npy("{'descr': __import__('os'), }"),
    npy("(" * 3000),
    npy(described("'|O'", "(1,)"), pickle.dumps([{"a": 1}])),  # never loaded
    npy(described("'<i8'", "(1L,)"), bytes(8)),
    npy(described("'<i8'", "(1,)"), bytes(8), b"\x02\x00"),
    b"\x93NUMPY",
    b"\x93NUMPY\x01\x00\xff\xff",
    b"null", b"3", b'"text"', b"{}", b"[", b"", b"\xff", b"[NaN]", b"[1e999]", b"[-Infinity]",
    b"[" + b"9" * 5000 + b"]",
    b'{"array":["<i8",[],"AAAAAAAAAAA="]}',
    b"[" * 200 + b"]" * 200,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"tuple":[' * 150 + b"]}" * 150,
]  # fmt: skip


@pytest.mark.parametrize("data", BYTES, ids=range(len(BYTES)))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the reason is the parser's
        unpack(data)


def test_a_value_with_the_deepest_allowed_nesting_survives_storage() -> None:
    deep: list[Any] = []
    for _ in range(99):
        deep = [deep]
    assert unpack(pack([deep])) == [deep]
    with pytest.raises(Unstorable):
        pack([[deep]])
