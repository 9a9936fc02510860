"""Tests that damaged or malicious state files are refused and never executed."""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.outputs.serialise import pack
from audit.resume import SCHEMA, State, header, resume
from audit.runs.draw_plan import Plan
from audit.statistical_tests.sample_outcome import versions
from audit.targets.target_syntax import read_target
from dpcore.cli.state_file import next_record, started
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import spread
from tests.support.audit import plans
from tests.support.audit.plans import stored_search, stored_seed

TARGET = read_target("count")


plan = partial(plans.plan, runs=600)


def opened(path: Path, planned: Plan | None = None) -> State:
    with resume(path, TARGET, planned or plan()) as state:
        return state


def refusal(path: Path) -> str:
    """The error message of resume, which must not change the file."""
    before = path.read_bytes()
    with pytest.raises(InvalidParameter) as caught:
        opened(path)
    assert caught.value.argument == "--resume"
    assert path.read_bytes() == before
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    return caught.value.reason


def of_records(path: Path, *payloads: bytes) -> Path:
    """A state file with these records and valid checksums."""
    chain, data = started(SCHEMA), b""
    for payload in payloads:
        record, chain = next_record(chain, payload)
        data += record
    path.write_bytes(data)
    return path


def after_header(path: Path, *payloads: bytes) -> Path:
    return of_records(path, header(path, TARGET, plan(), None), *payloads)


# -- the header -------------------------------------------------------------------------------

BEGUN = b'{"schema":"dpcore-audit-state/1"'

HEADERS = {
    "no JSON": BEGUN + b",}}}",
    "deep": BEGUN + b',"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "long seed": BEGUN + b',"seed":' + b"9" * 5000 + b"}",
    "not UTF-8": BEGUN + b',"seed":"\xff"}',
    "nan": BEGUN + b',"seed":NaN}',
    "infinite": BEGUN + b',"seed":1e999}',
    "list": b"[1, 2]",
    "other schema": b'{"schema":"other/1"}',
    "nothing": b"",
}


SEEDS = (b"-3", b"true", b"1.5", b'"7"', b"null", b"[7]")


def test_an_invalid_header_or_seed_is_refused(tmp_path: Path) -> None:
    for payload in HEADERS.values():
        path = of_records(tmp_path / "state", payload)
        assert refusal(path).startswith("is damaged or forged: it")
        for read in (stored_seed, stored_search):
            with pytest.raises(InvalidParameter, match=r"--resume = .*: is damaged or forged"):
                read(path)
    for seed in SEEDS:
        path = of_records(tmp_path / "state", BEGUN + b',"seed":' + seed + b"}")
        with pytest.raises(InvalidParameter, match=r"--resume = .*: is damaged .* no valid seed"):
            stored_seed(path)
        refusal(path)


def test_text_of_a_header_is_printed_without_control_characters(tmp_path: Path) -> None:
    fields = json.loads(header(tmp_path, TARGET, plan(), None))
    path = of_records(tmp_path / "state", json.dumps({**fields, "more": 1}).encode())
    other = "was started by another audit: use the options of that audit, or a new file"
    assert refusal(path) == other
    changes: dict[str, Any] = {
        "claim": {"text": "\x1b[31mRED\nerror: x\u202e", "relation": "\x1b]0;t\x07"},
        "target": "\x1b[31m" + "é" * 10**5,
        "seed": [[[[]]]] * 10**4,
        "alpha": None,
        "search": {"text": 3},
    }
    for key, value in changes.items():
        path = of_records(tmp_path / "state", json.dumps({**fields, key: value}).encode())
        said = refusal(path)
        assert said.startswith(f"was started with another {key}: ")
        assert len(said) < 300


# -- records ----------------------------------------------------------------------------------

RECORDS = {
    "unknown": b"Zx",
    "empty": b"",
    "escape": b'B[{"\\u001b[31m":1}]',
    "too few": b"B[1,2]",
    "failure": b"F[1]",
    "failure is not JSON": b"F{",
    "failure is deeply nested": b"F" + b"[" * 100_000,
    "reason": b'F{"reason":5,"dataset":null,"run":null}',
    "dataset": b'F{"reason":"x","dataset":["A"],"run":1}',
    "other dataset": b'F{"reason":"x","dataset":"\\u001b[32mA","run":1}',
    "run": b'F{"reason":"x","dataset":"A","run":"7"}',
    "no run": b'F{"reason":"x","dataset":"A"}',
    "run 0": b'F{"reason":"x","dataset":"A","run":0}',
    "true run": b'F{"reason":"x","dataset":"A","run":true}',
    "long run": b'F{"reason":"x","dataset":"A","run":' + b"9" * 4000 + b"}",
}


def test_an_invalid_record_is_refused(tmp_path: Path) -> None:
    for payload in RECORDS.values():
        path = after_header(tmp_path / "state", payload)
        assert refusal(path).startswith("is damaged or forged: ")
        assert stored_seed(path) == 7


def test_records_after_a_failure_or_the_last_block_are_refused(tmp_path: Path) -> None:
    failed = b'F{"reason":"\\u001b[31mx","dataset":"A","run":3}'
    path = after_header(tmp_path / "state", failed)
    state = opened(path)
    assert str(state.failed) == r"count: \x1b[31mx (dataset A, run 3)"
    path = after_header(path, failed, b"B" + pack(np.zeros(32)))
    assert "it follows a failure, which must be the last record" in refusal(path)
    blocks = [b"B" + pack(np.zeros(block.runs)) for block in plan().blocks()]
    opened(after_header(path, *blocks))
    path = after_header(path, *blocks, b"B" + pack(np.zeros(32)))
    assert "more blocks than the audit" in refusal(path)


def test_stated_sizes_are_checked_against_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for length in (1 << 30, 1 << 60, (1 << 64) - 1):
        head = struct.pack("<QI32s", length, zlib.crc32(struct.pack("<Q", length)), b"x" * 32)
        after_header(path)
        path.write_bytes(path.read_bytes() + head + b"x" * 100)
        if length < 1 << 31:
            opened(path)  # the last record is torn
        else:
            assert "is damaged at byte" in refusal(path)
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InvalidParameter, match="is not the state of an audit"):
        opened(path)


def test_a_device_or_a_folder_and_a_system_without_locks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (Path("/dev/null"), tmp_path):
        for read in (stored_seed, stored_search, opened):
            with pytest.raises(InvalidParameter, match=r"^--resume = .*: is not a regular file$"):
                read(path)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(InvalidParameter, match=r"file locking \(fcntl\) is not available here"):
        opened(tmp_path / "state")
    assert stored_seed(tmp_path / "state") is None


# -- a torn header ----------------------------------------------------------------------------


def test_a_file_cut_at_any_length_keeps_its_complete_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No power is cut here, so fsync is skipped; the versions are fixed.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr("audit.resume.versions", dict(versions()).copy)
    path, sizes = tmp_path / "state", []
    blocks = [np.arange(block.runs, dtype=np.int8) for block in plan().blocks()][:2]
    with resume(path, TARGET, plan()) as state:
        sizes.append(path.stat().st_size)
        for block in blocks:
            state.append(block)
            sizes.append(path.stat().st_size)
    data = path.read_bytes()
    for cut in spread(range(len(data) + 1), 80):
        torn = [data[:cut]]
        if cut >= sizes[-2]:
            # After a power cut the file has its full size but zeros in place of bytes.
            torn.append(data[:cut].ljust(len(data), b"\0"))
        for left in torn:
            path.write_bytes(left)
            kept = opened(path).blocks
            assert len(kept) == sum(cut >= size for size in sizes[1:])
            assert all(map(np.array_equal, kept, blocks))
            assert path.read_bytes() == data[: sizes[len(kept)]]


def test_a_header_of_zeros_counts_as_a_new_file_only_if_nothing_follows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state"
    opened(path)
    data = path.read_bytes()
    part = [data[:cut].ljust(len(data), b"\0") for cut in range(0, len(data), 5)]
    for torn in (bytes(4096), *part, data[:11].ljust(len(data), b"\0")):
        path.write_bytes(torn)
        assert stored_seed(path) is None
        opened(path)
        assert path.read_bytes() == data
    # A file without blocks may be reused with another seed.
    path.write_bytes(data[:60].ljust(len(data), b"\0"))
    opened(path, plan(seed=12345))
    assert stored_seed(path) == 12345
    after_header(path, b"B" + pack(np.zeros(32)))
    whole = path.read_bytes()
    for k in (0, 20, 60):
        path.write_bytes(whole[:k] + bytes(len(data) - k) + whole[len(data) :])
        assert refusal(path) == "is not the state of an audit"
        assert stored_seed(path) is None


def test_a_flipped_bit_is_always_detected(tmp_path: Path) -> None:
    path = after_header(tmp_path / "state", *(b"B" + pack(np.arange(32)) for _ in range(2)))
    data = path.read_bytes()
    last = len(data) - 44 - len(b"B" + pack(np.arange(32)))
    for i in range(0, len(data), 7):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])
        if i < last:
            assert "damaged at byte" in (said := refusal(path)) or "not the state" in said
        elif i < last + 12:
            assert "is damaged at byte" in refusal(path)
        else:
            # A damaged last record is indistinguishable from a torn one.
            assert len(opened(path).blocks) == 1


# -- from the command line --------------------------------------------------------------------
