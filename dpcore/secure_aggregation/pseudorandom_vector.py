r"""Masks: a pseudorandom vector of integers mod m, expanded deterministically from a 32-byte key.

The stream is AES-256-CTR over zeros from counter 0 (NIST SP 800-38A), read as little-endian 64-bit
words. A word below the largest multiple of m that is at most 2^64 gives its residue; other words
are skipped, so residues are exactly uniform if the words are. Use each key for only one vector.
Proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import integer

LARGEST_MODULUS: Final = 1 << 62  # the sum of two residues fits int64
_KEY_BYTES: Final = 32


def mask(key: bytes, *, count: int, modulus: int) -> Integers:
    r"""Expand ``key`` to ``count`` int64 residues mod ``modulus``, uniform if the stream is."""
    modulus = integer("modulus", modulus, at_least=2, at_most=LARGEST_MODULUS)
    count = integer("count", count, at_least=0)
    if len(key) != _KEY_BYTES:
        raise InvalidParameter("key", "(not shown)", "must have 32 bytes")
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    # This is the last accepted word, because the bound itself may be 2^64.
    last = np.uint64((1 << 64) - 1 - (1 << 64) % modulus)
    words = np.zeros(0, dtype=np.uint64)
    while words.size < count:
        drawn = np.frombuffer(stream.update(bytes(8 * (count - words.size))), dtype="<u8")
        kept = drawn[drawn <= last]
        words = np.concatenate([words, kept]) if words.size else kept
    return (words % np.uint64(modulus)).astype(np.int64)


def add(left: Integers, right: Integers, modulus: int) -> Integers:
    r"""The sum left + right mod m of vectors of residues; m <= 2^62 keeps it below 2^63."""
    total = left + right
    total -= (total >= modulus) * modulus
    return total


def subtract(left: Integers, right: Integers, modulus: int) -> Integers:
    r"""The difference left - right mod m of vectors of residues."""
    total = left - right
    total += (total < 0) * modulus
    return total
