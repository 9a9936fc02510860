r"""Tests of `dpcore.sampling.rng`: the documented stream, each word dealt once and erased."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpcore import DiscreteGaussian, SeededRng, SystemRng
from dpcore.noise import batch_of
from dpcore.sampling import rng
from dpcore.sampling.rng import _Keystream
from tests.dpcore.test_forks import FORK_DRAWS, WIDE
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.threads import at_once

BLOCK_WORDS = rng._BLOCK_WORDS


def key_of(seed: int, index: int) -> bytes:
    r"""SHA-256 of a label, the key's number in 8 bytes, and the seed with one byte to spare."""
    spelled = bytearray()
    rest = seed
    while rest:
        spelled.append(rest & 255)
        rest >>= 8
    numbered = b"".join(bytes([(index >> shift) & 255]) for shift in range(0, 64, 8))
    return hashlib.sha256(b"dpcore SeededRng 1" + numbered + bytes(spelled) + b"\0").digest()


def counter_words(key: bytes) -> Iterator[int]:
    r"""AES-CTR by definition: block i of the stream is AES of the 128-bit counter i, big-endian."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - CTR by hand
    for first in count(0, 1 << 10):
        counters = b"".join(i.to_bytes(16, "big") for i in range(first, first + (1 << 10)))
        yield from np.frombuffer(block.update(counters), dtype="<u8").tolist()


def seeded_words(seed: int) -> Iterator[int]:
    return counter_words(key_of(seed, 0))


@pytest.mark.parametrize("seed", [0, 1, 255, 256, 2**64, 2**200 + 7])
def test_a_seeded_stream_is_as_documented(seed: int) -> None:
    wanted = list(islice(seeded_words(seed), BLOCK_WORDS + 10))
    assert SeededRng(seed).words(BLOCK_WORDS + 10).tolist() == wanted


def test_a_big_endian_machine_reads_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # On big-endian machines the native words of the block are byte-swapped before use.
    class Numpy:
        little_endian = False

    monkeypatch.setattr(rng, "np", Numpy)
    native = np.arange(5, dtype=np.uint64)
    assert rng._little_endian(native.copy()).tolist() == native.byteswap().tolist()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("bits"), st.sampled_from([0, 1, 7, 63, 64, 65, 128, 1000])),
        st.tuples(st.just("words"), st.sampled_from([0, 1, 3, 8191, 8192, 8193, 20_000])),
        st.tuples(st.just("flip"), st.just(0)),
    ),
    max_size=8,
)


@given(st.integers(0, 2**70), OPERATIONS)
def test_no_word_is_used_twice_or_skipped(seed: int, operations: list[tuple[str, int]]) -> None:
    # Bits and words, interleaved: each draw takes the next whole words of the documented stream.
    source, stream = SeededRng(seed), seeded_words(seed)
    for kind, size in operations:
        if kind == "words":
            assert source.words(size).tolist() == list(islice(stream, size))
            continue
        width = 1 if kind == "flip" else size
        joined = 0
        for word in islice(stream, -(-width // 64)):
            joined = joined << 64 | word
        assert (source.flip() if kind == "flip" else source.bits(size)) == joined >> (-width % 64)


def test_a_seeded_key_is_changed_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng, "_BYTES_PER_KEY", 3 * rng._BLOCK_BYTES)
    parts = ((0, 3 * BLOCK_WORDS), (1, 3 * BLOCK_WORDS), (2, 3))
    wanted = [w for key, size in parts for w in islice(counter_words(key_of(5, key)), size)]
    assert SeededRng(5).words(len(wanted)).tolist() == wanted
    keeps = mutated(_Keystream._fill, "self._left < len(piece)", "self._encryptor is None")
    monkeypatch.setattr(_Keystream, "_fill", keeps)
    assert SeededRng(5).words(len(wanted)).tolist() != wanted


def state(stream: _Keystream) -> tuple[list[int], list[int]]:
    block = stream._block.tolist()
    return block[: stream._position], block[stream._position :]


TAKES: dict[str, Callable[[_Keystream], Any]] = {
    "a word": lambda stream: stream.word(),
    "bits": lambda stream: stream.bits(200),
    "words": lambda stream: stream.take(5),
    "a block": lambda stream: stream.take(BLOCK_WORDS),
    "blocks": lambda stream: stream.take(2 * BLOCK_WORDS + 1),
    "nothing": lambda stream: stream.take(0),
}


@pytest.mark.parametrize("name", TAKES)
def test_used_words_are_erased_and_unused_words_stay(name: str) -> None:
    stream = _Keystream(lambda: b"k" * 32)
    stream.word()
    for _ in range(3):
        TAKES[name](stream)
        used, unseen = state(stream)
        assert not any(used)
        assert all(unseen), "a zero word has chance 2^-64: an unseen word was erased"
    keeps = mutated(_Keystream.word, "self._block[position] = 0", "pass")
    keeps(stream)
    assert any(state(stream)[0])


def test_arrays_of_words_belong_to_the_caller() -> None:
    source = SeededRng(1)
    first = source.words(4)
    kept = first.copy()
    source.words(BLOCK_WORDS)
    assert first.tolist() == kept.tolist()
    first[:] = 0
    assert any(source.words(4))


def test_forget_erases_the_key_and_all_words() -> None:
    stream = _Keystream(lambda: b"k" * 32)
    stream.take(3)
    stream.forget()
    assert state(stream) == ([0] * BLOCK_WORDS, [])
    assert stream._encryptor is None


@pytest.mark.parametrize("name", FORK_DRAWS)
def test_threads_share_no_randomness(name: str) -> None:
    drawn = at_once(*[lambda: [x for _ in range(5) for x in FORK_DRAWS[name]()]] * 6)
    every = [x for mine in drawn for x in mine]
    assert len(set(every)) == len(every)


def test_one_seeded_source_is_consistent_among_threads() -> None:
    source = SeededRng(3)
    drawn = at_once(*[lambda: [w for _ in range(50) for w in source.words(7).tolist()]] * 6)
    every = sorted(x for mine in drawn for x in mine)
    assert every == sorted(SeededRng(3).words(len(every)).tolist())


def test_many_threads_can_build_one_law_at_once() -> None:
    noise = DiscreteGaussian(sigma_squared="333/7")
    batch_of.cache_clear()
    drawn = at_once(*[lambda: noise.sample(100, rng=SeededRng(4)).tolist()] * 6)
    assert all(mine == drawn[0] for mine in drawn)


def test_a_system_key_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    entropy = os.urandom

    def counted(size: int) -> bytes:
        asked.append(size)
        return entropy(size)

    monkeypatch.setattr(os, "urandom", counted)

    def draw() -> list[int]:  # in a new thread, which has no key yet
        return [SystemRng().bits(256), SystemRng().bits(256), *SystemRng().words(9).tolist()]

    first, second = at_once(draw, draw)
    assert asked == [32, 32]
    assert not set(first) & set(second)


def interrupted(act: Callable[[], list[int]], intruder: Callable[[], list[int]]) -> list[int]:
    r"""Return all draws when ``intruder`` also draws at every line of dpcore that ``act`` runs.

    This simulates a signal handler or a finalizer that draws noise.
    """
    drawn: list[int] = []
    inside = str(Path(rng.__file__).parents[1])

    def trace(frame: Any, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(inside):
            return None
        if event == "line":
            drawn.extend(intruder())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        mine = act()
    finally:
        sys.settrace(before)
    assert drawn
    return drawn + mine


INTERRUPTED: dict[str, Callable[[], list[int]]] = {
    "bits": lambda: [SystemRng().bits(64) for _ in range(3)],
    "words": lambda: SystemRng().words(3).tolist(),
    "one by one": lambda: [WIDE.sample() for _ in range(3)],
    "a batch": lambda: WIDE.sample(3).tolist(),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_draw_within_a_draw_shares_no_randomness(name: str) -> None:
    drawn = interrupted(INTERRUPTED[name], INTERRUPTED[name])
    assert len(set(drawn)) == len(drawn)
    # One stream that is used again during a draw repeats its words.
    stream = _Keystream(lambda: os.urandom(32))
    drawn = interrupted(lambda: [stream.word()], lambda: [stream.word()])
    assert len(set(drawn)) < len(drawn)
