r"""A second server that uses only the bytes on the wire: no code of dpcore, only Python ints."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_P = 2**255 - 19
_FIELD = 2**257 - 93


def x25519(private: bytes, public: bytes) -> bytes:
    r"""RFC 7748, section 5: the Montgomery ladder."""
    k = int.from_bytes(private, "little") & ~7 & ~(1 << 255) | 1 << 254
    x1 = int.from_bytes(public, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, x1, 1
    for t in reversed(range(255)):
        bit = k >> t & 1
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a % _P, c * b % _P
        x3, z3 = (da + cb) ** 2 % _P, x1 * (da - cb) ** 2 % _P
        aa, bb = a * a % _P, b * b % _P
        e = aa - bb
        x2, z2 = aa * bb % _P, e * (aa + 121665 * e) % _P
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, -1, _P) % _P).to_bytes(32, "little")


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    r"""RFC 5869 with SHA-256, one block."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\1", "sha256")


def words(key: bytes) -> Iterator[int]:
    r"""AES-CTR from counter 0, block by block, as little-endian 64-bit words."""
    cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305 - one block: AES itself
    counter = 0
    while True:
        block = cipher.encryptor().update(counter.to_bytes(16, "big"))
        yield int.from_bytes(block[:8], "little")
        yield int.from_bytes(block[8:], "little")
        counter += 1


def residues(key: bytes, *, count: int, modulus: int) -> list[int]:
    r"""Return the first ``count`` words below the largest multiple of the modulus, reduced."""
    found: list[int] = []
    for word in words(key):
        if len(found) == count:
            return found
        if word < (1 << 64) // modulus * modulus:
            found.append(word % modulus)
    raise AssertionError


def at_zero(shares: dict[int, int]) -> int:
    r"""Lagrange interpolation at 0."""
    total = 0
    for x, y in shares.items():
        for other in shares:
            if other != x:
                y = y * other * pow(other - x, -1, _FIELD) % _FIELD  # noqa: PLW2901 - a running product
        total += y
    return total % _FIELD


class Reading:
    r"""Read bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        taken, self.data = self.data[:count], self.data[count:]
        assert len(taken) == count
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def name(self) -> str:
        return self.take(self.number(1)).decode()

    def listed(self, width: int) -> dict[str, bytes]:
        return {self.name(): self.take(width) for _ in range(self.number(2))}


def info(label: bytes, *names: str) -> bytes:
    return label + b"".join(bytes([0, len(n.encode())]) + n.encode() for n in names)


class SecondServer:
    r"""Reads the messages of a round, checks their tags, and removes the masks."""

    def __init__(self, vector: dict[str, Any]) -> None:
        terms = vector["round"]
        self.m, self.count = terms["modulus"], terms["coordinates"]
        self.identifier = bytes.fromhex(terms["identifier"])
        self.threshold = terms.get("threshold", terms["users"] - terms["dropouts"])
        numbers = [terms["users"], terms["dropouts"], self.count, self.m]
        if "neighbours" in terms:
            numbers += [terms["neighbours"], terms["threshold"]]
        encoded = b"".join(n.to_bytes(8, "big") for n in numbers)
        start = b"dpcore masked aggregation 1" + self.identifier
        self.salt = hashlib.sha256(start + encoded).digest()
        self.private = bytes.fromhex(vector["server"])
        self.enrolled = {n: bytes.fromhex(k) for n, k in vector["enrolled"].items()}

    def key(self, secret: bytes, label: bytes, *names: str) -> bytes:
        return hkdf(secret, self.salt, info(label, *names))

    def body(self, message: dict[str, Any], kind: int) -> Reading:
        data = bytes.fromhex(message["bytes"])
        base = (9).to_bytes(32, "little")
        name = message["user"]
        secret = x25519(self.private, x25519(self.enrolled[name], base))
        ways = (name, "") if kind % 2 else ("", name)
        tag = hmac.digest(self.key(secret, b"channel", *ways), data[:-32], "sha256")
        assert tag == data[-32:]
        reading = Reading(data[:-32])
        assert reading.take(34) == bytes([1, kind]) + self.identifier
        assert (reading.name(), reading.name()) == ways
        return reading

    def total(self, messages: list[dict[str, Any]]) -> tuple[list[int], list[str]]:
        def of(kind: int) -> dict[str, Reading]:
            return {m["user"]: self.body(m, kind) for m in messages if m["type"] == kind}

        masking = {n: r.take(64)[32:] for n, r in of(1).items()}
        # Neighbours: the keys that were sent to each user, including its own.
        near = {n: list(r.listed(64)) for n, r in of(2).items()}
        shared = set(of(3))
        width = ((self.m - 1).bit_length() + 7) // 8
        rows = {n: [r.number(width) for _ in range(self.count)] for n, r in of(5).items()}
        replies = {n: (r.listed(33), r.listed(33)) for n, r in of(7).items()}

        def recombined(half: int, name: str) -> bytes:
            place = {n: x for x, n in enumerate(near[name], start=1)}
            heard = [n for n in near[name] if n in replies]
            heard = heard[-self.threshold :]  # the last ones: dpcore takes the first
            shares = {place[n]: int.from_bytes(replies[n][half][name], "big") for n in heard}
            return at_zero(shares).to_bytes(32, "big")

        masks: list[tuple[int, bytes]] = []
        for name in rows:
            seed = recombined(0, name)
            masks.append((1, self.key(seed, b"self mask", name)))
            for gone in (shared - set(rows)) & set(near[name]):
                secret = x25519(recombined(1, gone), masking[name])
                key = self.key(secret, b"pair mask", *sorted((name, gone)))
                masks.append((1 if name < gone else -1, key))
        total = [sum(column) for column in zip(*rows.values(), strict=True)]
        for sign, key in masks:
            for i, r in enumerate(residues(key, count=self.count, modulus=self.m)):
                total[i] -= sign * r
        return [value % self.m for value in total], sorted(rows)
