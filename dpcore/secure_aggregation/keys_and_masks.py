r"""The keys and masks of masked aggregation, and the secrets from which they are derived.

In each round user u has two X25519 key pairs, c_u for shares and s_u for masks, and a random seed.
These and the enrolled X25519 keys give four kinds of secrets:

    secret   of users u and v                      use
    channel  X25519(enrolled user and server key)  tags every message, one key per direction
    sharing  X25519(c_u, c_v)                      encrypts the shares that u sends to v
    masking  X25519(s_u, s_v)                      the mask that u adds and v subtracts
    seed     32 bytes of u                         the self-mask of u, and a commitment to the seed

Every key is HKDF-SHA256 (RFC 5869) of one of these secrets. The salt is the round and its
parameters, and the info is a label with the identities, so no two purposes, pairs or rounds share a
key. Shares are encrypted ("sealed") with ChaCha20-Poly1305 (RFC 8439), and tags are HMAC-SHA256. A
mask expands its key to a vector of integers mod m: the stream is AES-256-CTR over zeros from
counter 0 (NIST SP 800-38A), read as little-endian 64-bit words. Let L be the largest multiple of m
that is at most 2^64. Words below L are reduced mod m, and other words are skipped, so the residues
are exactly uniform if the words are. No custom cryptography is used. Proof:
docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation.messages import (
    KEY_BYTES,
    TAG_BYTES,
    AggregationRefused,
    Body,
    decode,
    encode,
    is_canonical,
    most_bytes,
    read_header,
)
from dpcore.secure_aggregation.round_parameters import LARGEST_MODULUS, Round
from dpcore.secure_aggregation.shamir import ELEMENT_BYTES, read_element, write_element

_NONCE_BYTES: Final = 12

B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    r"""An X25519 key pair as bytes; the private key is not shown in the representation."""

    private: bytes = field(repr=False)
    public: bytes

    @classmethod
    def draw(cls, rng: Rng = SYSTEM) -> KeyPair:
        r"""Draw a new pair from 32 bytes of ``rng``; a seeded ``rng`` is not private."""
        private = new_secret(rng)
        return cls(private=private, public=public_of(private))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePair:
    r"""The shares that a user holds of the mask key and the seed of one user, possibly itself.

    Enough shares of both secrets reveal the input of their owner, so at most one of the two shares
    is ever sent to the server.
    """

    key: int = field(repr=False)
    seed: int = field(repr=False)


def new_secret(rng: Rng) -> bytes:
    r"""Draw 32 uniform bytes."""
    return rng.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "big")


def public_of(private: bytes) -> bytes:
    r"""The X25519 public key of a private key of 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreements(private: bytes, public: Mapping[str, bytes]) -> dict[str, bytes]:
    r"""The X25519 secrets that the owner of ``private`` shares with other users, by name.

    Use them only to derive keys.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    secrets = {}
    for name, key in public.items():
        if not is_canonical(key):
            reason = (
                f"must contain canonical X25519 keys of 32 bytes: the key of {name!r} is not "
                "canonical"
            )
            raise InvalidParameter("public", key, reason)
        try:
            secrets[name] = own.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError:
            reason = f"must contain X25519 keys of large order: the key of {name!r} has low order"
            raise InvalidParameter("public", key.hex(), reason) from None
    return secrets


def is_usable(public: bytes) -> bool:
    r"""Whether ``public`` is a canonical X25519 key of large order, as key agreement requires."""
    try:
        agreements(bytes(KEY_BYTES), {"": public})
    except InvalidParameter:
        return False
    return True


def _derive(secret: bytes, terms: Round, label: bytes, *identities: str) -> bytes:
    info = label + _names(*identities)
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=terms.context, info=info).derive(secret)


def _names(*identities: str) -> bytes:
    # Labels have no zero byte and each name is preceded by its length: the encoding is injective.
    encoded = [identity.encode() for identity in identities]
    return b"".join(bytes([0, len(name)]) + name for name in encoded)


def mask_key(secret: bytes, terms: Round, one: str, other: str) -> bytes:
    r"""The key of the mask between two users, the same from both sides."""
    return _derive(secret, terms, b"pair mask", *sorted((one, other)))


def self_mask_key(seed: bytes, terms: Round, identity: str) -> bytes:
    r"""The key of the self-mask of ``identity``, secret until enough seed shares are revealed."""
    return _derive(seed, terms, b"self mask", identity)


def commitment(seed: bytes, terms: Round, identity: str) -> bytes:
    r"""A commitment to a seed, with which the server checks the reconstructed seed."""
    return _derive(seed, terms, b"seed commitment", identity)


def seal_shares(
    shares: SharePair, secret: bytes, terms: Round, sender: str, receiver: str, rng: Rng
) -> bytes:
    r"""Encrypt both shares under the key of this sender and receiver; prepend a fresh nonce.

    Round, sender and receiver enter the key and the associated data. A key is meant for one seal,
    but the nonce is random, so that running a step twice by mistake reveals nothing.
    """
    nonce = rng.bits(8 * _NONCE_BYTES).to_bytes(_NONCE_BYTES, "big")
    plain = write_element(shares.key) + write_element(shares.seed)
    cipher, bound_to = _share_cipher(secret, terms, sender, receiver)
    return nonce + cipher.encrypt(nonce, plain, bound_to)


def open_shares(
    sealed: bytes, secret: bytes, terms: Round, sender: str, receiver: str
) -> SharePair:
    r"""Decrypt the shares that ``sender`` sealed for ``receiver`` in this round.

    Raises :class:`InvalidParameter` for any other bytes.
    """
    cipher, bound_to = _share_cipher(secret, terms, sender, receiver)
    try:
        plain = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
    except InvalidTag:
        reason = "must be sealed by its sender for this receiver and round"
        raise InvalidParameter("sealed", "(not shown)", reason) from None
    return SharePair(
        key=read_element(plain[:ELEMENT_BYTES]), seed=read_element(plain[ELEMENT_BYTES:])
    )


def _share_cipher(
    secret: bytes, terms: Round, sender: str, receiver: str
) -> tuple[ChaCha20Poly1305, bytes]:
    key = _derive(secret, terms, b"sealed shares", sender, receiver)
    return ChaCha20Poly1305(key), terms.context + _names(sender, receiver)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    r"""One end of the authenticated channel between a user and the server, in one round.

    It provides integrity and authenticity, not secrecy. Both ends derive the two keys from the
    enrolled X25519 keys.
    """

    terms: Round
    own: str
    other: str
    sending: bytes = field(repr=False)
    receiving: bytes = field(repr=False)

    @classmethod
    def between(
        cls, terms: Round, own: str, other: str, enrolled: KeyPair, public: bytes
    ) -> Channel:
        r"""Build the end of ``own``, a user or the server; ``public`` is the key of ``other``."""
        secret = agreements(enrolled.private, {other: public})[other]
        return cls(
            terms=terms,
            own=own,
            other=other,
            sending=_derive(secret, terms, b"channel", own, other),
            receiving=_derive(secret, terms, b"channel", other, own),
        )

    def send(self, body: Body) -> bytes:
        r"""Encode a message as bytes, with its tag."""
        data = encode(body, self.terms, sender=self.own, receiver=self.other)
        return data + _tag(self.sending, data)

    def receive(self, data: bytes, expected: type[B]) -> B:
        r"""Return the body of an authentic message of the expected type in this round.

        Raises :class:`AggregationRefused` if ``data`` is not such a message.
        """
        header = read_header(data)
        if len(data) > most_bytes(expected, self.terms):
            reason = f"is longer than any {expected.__name__} of this round"
            raise AggregationRefused(header.type.__name__, header.sender, reason)
        refused = _refusal_of(self, header.identifier, header.sender, header.receiver)
        if header.type is not expected:
            refused = refused or f"arrived, but {expected.__name__} is due"
        signed, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
        if not hmac.compare_digest(tag, _tag(self.receiving, signed)):
            refused = refused or "is not authentic: it was changed or forged"
        if refused:
            raise AggregationRefused(header.type.__name__, header.sender, refused)
        return cast("B", decode(signed, self.terms)[1])  # the type is in the header


def _refusal_of(channel: Channel, identifier: bytes, sender: str, receiver: str) -> str:
    if identifier != channel.terms.identifier:
        return "belongs to another round"
    if sender != channel.other:
        return "has an unexpected sender"
    if receiver != channel.own:
        return "is addressed to another user"
    return ""


def _tag(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def mask(key: bytes, *, count: int, modulus: int) -> Integers:
    r"""Expand ``key`` to ``count`` int64 residues mod ``modulus``, uniform if the stream is.

    Use each key for only one vector.
    """
    modulus = integer("modulus", modulus, at_least=2, at_most=LARGEST_MODULUS)
    count = integer("count", count, at_least=0)
    if len(key) != KEY_BYTES:
        raise InvalidParameter("key", "(not shown)", "must be 32 bytes long")
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
    r"""The sum left + right mod m, m = ``modulus``, of two vectors of residues mod m.

    It does not overflow int64, because m <= 2^62.
    """
    total = left + right
    total -= (total >= modulus) * modulus
    return total


def subtract(left: Integers, right: Integers, modulus: int) -> Integers:
    r"""The difference left - right mod m, m = ``modulus``, of two vectors of residues mod m."""
    total = left - right
    total += (total < 0) * modulus
    return total


def add_pair_masks(
    total: Integers, secrets: Mapping[str, bytes], terms: Round, own: str
) -> Integers:
    r"""Add to ``total`` the masks that user ``own`` shares with the users named in ``secrets``.

    The mask is added if own < other and subtracted otherwise, so that the two masks of a pair of
    users cancel in the sum.
    """
    for other, secret in secrets.items():
        key = mask_key(secret, terms, own, other)
        pair = mask(key, count=terms.coordinates, modulus=terms.modulus)
        total = (add if own < other else subtract)(total, pair, terms.modulus)
    return total
