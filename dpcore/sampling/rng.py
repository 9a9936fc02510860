r"""The random number generators of all private releases, and a reservoir of noise drawn ahead.

An :class:`Rng` generates independent uniform bits. :class:`SystemRng` is the default and the only
private generator. It is an AES-256-CTR keystream (NIST SP 800-38A) under keys from the operating
system, in blocks of 64 KiB, with a new key after a bounded amount of output and after a fork. Every
used byte is erased from the block. :class:`SeededRng` uses the same keystream under a key derived
from its seed. This stream is reproducible on every platform, meant for simulation, and not private.

The running time of a sampler can reveal the value that it drew (Jin, McMurtry, Rubinstein and
Ohrimenko, "Are we there yet?", 2022). So a release with :class:`SystemRng` uses values of a
:class:`Reservoir` that were drawn earlier, thousands at a time. The stored values are as secret as
the random bits: they are dropped in a forked child, erased when used, and never copied.

For the proofs and the assumptions (AES is a pseudorandom permutation, and the operating system has
enough entropy) see docs/proofs/rng.md and docs/threat_model.md.
"""

from __future__ import annotations

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpcore.errors import InvalidParameter
from dpcore.forks import HERE, forget_after_fork, forget_inherited
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import integer

Words = npt.NDArray[np.uint64]
T = TypeVar("T")

_BLOCK_BYTES: Final = 1 << 16
_BLOCK_WORDS: Final = _BLOCK_BYTES // 8
_BYTES_PER_KEY: Final = 1 << 30
_ZEROS: Final = bytes(_BLOCK_BYTES)
_AHEAD_SINGLE: Final = 1 << 11
_AHEAD: Final = 1 << 15

SERVED: Final = 1 << 12
"""Batches of up to this size come from the reservoir; larger batches are drawn directly."""


class Rng(ABC):
    r"""A source of independent uniform bits.

    A subclass implements :meth:`bits` (one integer) and :meth:`words` (an array); the other methods
    are derived from these two, so that a proof about :meth:`below` holds for every source.
    """

    __slots__ = ()

    @abstractmethod
    def bits(self, count: int) -> int:
        r"""Draw an integer uniform on ``[0, 2**count)``; ``count >= 0``."""

    @abstractmethod
    def words(self, count: int) -> Words:
        r"""Draw ``count`` independent 64-bit words, as a new uint64 array that the caller owns."""

    def flip(self) -> int:
        r"""Draw one fair bit, 0 or 1.

        >>> SystemRng().flip() in (0, 1)
        True
        """
        return self.bits(1)

    def below(self, bound: int) -> int:
        r"""Draw an integer uniform on ``[0, bound)``, by rejection from the next power of two.

        Raises :class:`InvalidParameter` if ``bound < 1``.

        >>> SeededRng(1).below(1)
        0
        """
        if bound < 1:
            raise InvalidParameter("bound", bound, "must be >= 1")
        width = (bound - 1).bit_length()
        while True:
            candidate = self.bits(width)
            if candidate < bound:
                return candidate


class _Keystream:
    # The encryption of zeros by AES-CTR, returned in order. One call uses it at a time: `SystemRng`
    # takes a stream out for each call, `SeededRng` holds a lock. Invariant between calls:
    # block[:position] is zero (returned and erased), block[position:] was never returned.

    __slots__ = ("_block", "_encryptor", "_left", "_next_key", "_position", "_view")

    def __init__(self, next_key: Callable[[], bytes]) -> None:
        self._next_key = next_key
        self._block = np.zeros(_BLOCK_WORDS, dtype=np.uint64)
        self._view = self._block.data.cast("B")
        self._position = _BLOCK_WORDS
        self._left = 0
        self._encryptor: Any = None

    def _rekey(self) -> Any:
        # No key is used twice, so the counter may start at zero under each key.
        encryptor = Cipher(algorithms.AES(self._next_key()), modes.CTR(bytes(16))).encryptor()
        self._encryptor = encryptor
        self._left = _BYTES_PER_KEY
        return encryptor

    def _fill(self, target: memoryview) -> None:
        # The target and the output limit of a key are whole numbers of blocks, so no counter ever
        # stops in the middle of an AES block.
        for start in range(0, len(target), _BLOCK_BYTES):
            piece = target[start : start + _BLOCK_BYTES]
            encryptor = self._encryptor
            if self._left < len(piece):
                encryptor = self._rekey()
            self._left -= len(piece)
            encryptor.update_into(_ZEROS, piece)

    def take(self, count: int) -> Words:
        dealt = np.empty(count, dtype=np.uint64)
        start = self._position
        pooled = min(count, _BLOCK_WORDS - start)
        self._position = start + pooled
        dealt[:pooled] = self._block[start : start + pooled]
        self._block[start : start + pooled] = 0
        direct = (count - pooled) // _BLOCK_WORDS * _BLOCK_WORDS
        if direct:
            self._fill(dealt[pooled : pooled + direct].data.cast("B"))
        rest = count - pooled - direct
        if rest:
            self._fill(self._view)
            self._position = rest
            dealt[pooled + direct :] = self._block[:rest]
            self._block[:rest] = 0
        return _little_endian(dealt)

    def word(self) -> int:
        position = self._position
        if position == _BLOCK_WORDS:
            self._fill(self._view)
            position = 0
        self._position = position + 1
        value = int.from_bytes(self._view[8 * position : 8 * position + 8], "little")
        self._block[position] = 0
        return value

    def bits(self, count: int) -> int:
        # Only whole words are taken, so that `bits` and `words` never split one: the top bits of
        # the joined words are returned and the others are discarded.
        value = 0
        for _ in range(0, count, 64):
            value = (value << 64) | self.word()
        return value >> (-count % 64)

    def forget(self) -> None:
        self._block[:] = 0
        self._position = _BLOCK_WORDS
        self._left = 0
        self._encryptor = None


def _little_endian(words: Words) -> Words:
    # The keystream is a sequence of bytes; reading it little-endian everywhere makes a seeded
    # stream the same on every platform.
    return words if np.little_endian else words.byteswap(inplace=True)


class _ForkSafe(_Keystream):
    # If `forget` runs in the middle of a draw (in a forked process, or after a signal handler
    # forked), the draw returns zeros. So the flag is set before erasing and checked after a draw.
    __slots__ = ("__weakref__", "forgotten")

    def __init__(self, next_key: Callable[[], bytes]) -> None:
        super().__init__(next_key)
        self.forgotten = False
        forget_after_fork(self)

    def forget(self) -> None:
        self.forgotten = True
        super().forget()


class _Local(threading.local):
    # The idle keystreams of a thread, usually one. threading.local calls __init__ in each thread
    # that uses it. A stream in use is in no list: a signal handler that interrupts a draw gets
    # another stream, and a stream whose use raised an exception is never used again.
    def __init__(self) -> None:
        self.idle: list[_ForkSafe] = []

    def take_out(self) -> _ForkSafe:
        try:
            return self.idle.pop()
        except IndexError:
            return _ForkSafe(lambda: os.urandom(32))


_LOCAL: Final = _Local()


class SystemRng(Rng):
    r"""Private randomness: AES-256-CTR under fresh keys from the operating system.

    All instances share one pool per thread: an instance is cheap to create, and it is safe to pass
    it to another thread or to draw in a signal handler.

    >>> rng = SystemRng()
    >>> 0 <= rng.below(6) < 6, rng.words(3).dtype
    (True, dtype('uint64'))
    """

    __slots__ = ()

    def bits(self, count: int) -> int:
        return _dealt(_Keystream.bits, count)

    def words(self, count: int) -> Words:
        return _dealt(_Keystream.take, count)

    def __repr__(self) -> str:
        return "SystemRng()"


def _dealt(deal: Callable[[_Keystream, int], T], count: int) -> T:
    # Uses a stream that no other call has; repeats if a fork erased the stream meanwhile.
    while True:
        if not HERE:
            forget_inherited()
        stream = _LOCAL.take_out()
        dealt = deal(stream, count)
        if not stream.forgotten:
            _LOCAL.idle.append(stream)
            return dealt


class SeededRng(Rng):
    r"""NOT PRIVATE: a reproducible stream for simulation and tests.

    The key is SHA-256 of the seed under a fixed label, so equal seeds give equal streams on every
    platform, and different seeds give independent streams, unless SHA-256 or AES is broken.
    ``seed`` is an integer >= 0 of any size. Use an instance in one thread at a time: a lock
    protects its state, but the order of draws by several threads is not reproducible.

    >>> SeededRng(7).below(100), SeededRng(7).below(100)
    (71, 71)
    """

    __slots__ = ("_lock", "_stream", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = integer("seed", seed, at_least=0)
        self._lock = threading.Lock()
        keys = _seeded_keys(self.seed)
        self._stream = _Keystream(lambda: next(keys))

    def bits(self, count: int) -> int:
        with self._lock:
            return self._stream.bits(count)

    def words(self, count: int) -> Words:
        with self._lock:
            return self._stream.take(count)

    def __repr__(self) -> str:
        return f"SeededRng({self.seed})"


def _seeded_keys(seed: int) -> Any:
    encoded = seed.to_bytes((seed.bit_length() + 7) // 8 + 1, "little")
    index = 0
    while True:
        label = b"dpcore SeededRng 1" + index.to_bytes(8, "little")
        yield hashlib.sha256(label + encoded).digest()
        index += 1


SYSTEM: Final = SystemRng()


def permutation(count: int, rng: Rng) -> Integers:
    r"""Draw a uniformly random order of 0, ..., count - 1 by sorting independent 64-bit keys.

    Every order of distinct keys is equally likely. If two keys are equal (probability below
    count^2/2^65) all keys are drawn again, so the order is exactly uniform.
    """
    while True:
        keys = rng.words(count)
        order: Integers = np.argsort(keys)
        ranked = keys[order]
        if not bool((ranked[1:] == ranked[:-1]).any()):
            return order


def below(rng: Rng, bound: int, count: int) -> Integers:
    r"""Draw ``count`` integers uniform on [0, bound), bound <= 2^31, by rejection."""
    # A 32-bit word is rejected if it is at least the largest multiple of ``bound`` up to 2^32.
    found = np.empty(count, dtype=np.int64)
    whole = (1 << 32) // bound * bound
    done = 0
    while done < count:
        halves: Words = rng.words(count - done) >> np.uint64(32)
        kept = halves[halves < whole] % np.uint64(bound)
        found[done : done + len(kept)] = kept
        done += len(kept)
    return found


class Reservoir(list[int]):
    r"""A stock of noise values that were drawn in advance.

    Requests for one value use the list itself, because ``list.pop`` is atomic. Requests for an
    array of values use separate blocks, which are not in the list.
    """

    __slots__ = ("__weakref__", "_blocks", "_era")
    __hash__ = object.__hash__  # type: ignore[assignment]  # identity: the fork registry holds it

    def __init__(self) -> None:
        super().__init__()
        self.forget()
        forget_after_fork(self)

    def forget(self) -> None:
        r"""Discard all values; called in the child of a fork."""
        # Replaced first: a call in progress then finds that its values are inherited.
        self._era = object()
        self.clear()
        # Idle blocks, each with the index of its first unused value.
        self._blocks: list[tuple[Integers, int]] = []

    def one(self, draw: Callable[[int], Integers]) -> int:
        r"""Refill this empty reservoir with values from ``draw``, and return one of them."""
        while True:
            if not HERE:
                forget_inherited()
            era = self._era
            fresh = draw(_AHEAD_SINGLE).tolist()
            first: int = fresh.pop()
            self.extend(fresh)
            if self._is(era):
                return first

    def many(self, count: int, draw: Callable[[int], Integers]) -> Integers:
        r"""Return an array of ``count`` <= ``SERVED`` values; no value is ever returned twice."""
        while True:
            if not HERE:
                forget_inherited()
            era = self._era
            # A block in use is in no list: another thread, or a signal handler that interrupts this
            # call, gets another block, and a block whose use raised an exception is never used
            # again.
            try:
                block, start = self._blocks.pop()
            except IndexError:
                block, start = draw(_AHEAD), 0
            if len(block) - start < count:
                block, start = draw(_AHEAD), 0
            piece = block[start : start + count]
            taken = piece.copy()
            piece[:] = 0
            self._blocks.append((block, start + count))
            if self._is(era):
                return taken

    def _is(self, era: object) -> bool:
        # False if the process was forked since ``era``, for example by a signal handler during a
        # draw: the parent has the values that were stored since then, so they are discarded.
        if HERE and self._era is era:
            return True
        self.forget()
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        # Two copies must never return the same values, so a copy starts empty.
        return Reservoir, ()
