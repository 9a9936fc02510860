r"""The messages of masked aggregation: immutable values with a canonical encoding.

    bytes = version, type, round (32), sender, receiver, body, tag (32)

An identity is a length byte and 1 to 255 bytes of UTF-8; length 0 is the server. Numbers are
big-endian and of fixed width; lists are sorted by identity. So each value has exactly one encoding,
and :func:`decode` rejects every other byte string. The tag (see
:mod:`dpcore.secure_aggregation.keys_and_masks`) covers all bytes before the tag. The paper to which
the docstrings refer is Bonawitz et al. 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar, get_args

import numpy as np

from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.secure_aggregation.round_parameters import ROUND_BYTES, SERVER, Round
from dpcore.secure_aggregation.shamir import ELEMENT_BYTES, read_element, write_element

TAG_BYTES: Final = 32
KEY_BYTES: Final = 32
SEALED_BYTES: Final = 12 + 2 * ELEMENT_BYTES + 16  # nonce, two shares, tag of the cipher
_IDENTITY_BYTES: Final = 256
_VERSION: Final = 1
_FIELD_PRIME: Final = (1 << 255) - 19

T = TypeVar("T")


class AggregationRefused(DpcoreError, ValueError):
    r"""Raised if a message, or the end of a step, is refused; no state has changed.

    ``message`` names what was refused, ``sender`` is its claimed sender ("" is the server, and None
    means that the bytes end before the sender), and ``reason`` is the reason.
    """

    def __init__(self, message: str, sender: str | None, reason: str) -> None:
        super().__init__(message, sender, reason)
        self.message = message
        self.sender = sender
        self.reason = reason

    def __str__(self) -> str:
        names = {None: "", SERVER: " of the server"}
        return f"{self.message}{names.get(self.sender, f' of {self.sender!r}')}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKeys:
    r"""A user's two X25519 public keys in a round: for shares (c in the paper) and masks (s)."""

    sharing: bytes
    masking: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAdvertisement:
    r"""Step 1, user to server: the user's public keys."""

    keys: PublicKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    r"""Step 1, server to user: public keys of neighbours who advertised them (U1 in the paper)."""

    keys: Mapping[str, PublicKeys]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedShares:
    r"""Step 2, user to server: a commitment to the self-mask seed, and shares by receiver."""

    commitment: bytes
    sealed: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDelivery:
    r"""Step 2, server to user: the shares sealed for the user, by sender (other users in U2)."""

    sealed: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaskedInput:
    r"""Step 3, user to server: input plus masks, int64 residues mod m."""

    values: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskRequest:
    r"""Step 3, server to user: neighbours whose input arrived (U3), dropouts (U2 without U3)."""

    survivors: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskReply:
    r"""Step 4, user to server: seed shares of survivors and mask key shares of dropouts."""

    seeds: Mapping[str, int]
    keys: Mapping[str, int]


Body = (
    KeyAdvertisement
    | KeyList
    | SealedShares
    | ShareDelivery
    | MaskedInput
    | UnmaskRequest
    | UnmaskReply
)
TYPES: Final[tuple[type[Body], ...]] = get_args(Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    r"""The header before the body; sender and receiver are unverified until the tag is checked."""

    type: type[Body]
    identifier: bytes
    sender: str
    receiver: str


def encode(body: Body, terms: Round, *, sender: str, receiver: str) -> bytes:
    r"""Encode header and body as bytes, without the tag."""
    head = bytes([_VERSION, 1 + TYPES.index(type(body))]) + terms.identifier
    return head + _identity(sender) + _identity(receiver) + _encode_body(body, terms)


def _encode_body(body: Body, terms: Round) -> bytes:
    match body:
        case KeyAdvertisement(keys=keys):
            return _public(keys)
        case KeyList(keys=listed):
            return _listed(listed, _public)
        case SealedShares(commitment=commitment, sealed=sealed):
            return commitment + _listed(sealed, bytes)
        case ShareDelivery(sealed=sealed):
            return _listed(sealed, bytes)
        case MaskedInput(values=values):
            wide = values.astype(">u8").view(np.uint8).reshape(-1, 8)
            return wide[:, 8 - terms.value_bytes :].tobytes()
        case UnmaskRequest(survivors=survivors, dropped=dropped):
            nothing = (dict.fromkeys(names, b"") for names in (survivors, dropped))
            return b"".join(_listed(names, bytes) for names in nothing)
        case UnmaskReply(seeds=seeds, keys=shares):
            return _listed(seeds, write_element) + _listed(shares, write_element)


def _identity(identity: str) -> bytes:
    encoded = identity.encode()
    return bytes([len(encoded)]) + encoded


def _public(keys: PublicKeys) -> bytes:
    return keys.sharing + keys.masking


def _listed(entries: Mapping[str, T], write: Callable[[T], bytes]) -> bytes:
    written = (_identity(identity) + write(entries[identity]) for identity in sorted(entries))
    return len(entries).to_bytes(2, "big") + b"".join(written)


class _Reader:
    # Reads fields from the front; every error names the message and its sender.
    __slots__ = ("_data", "_place", "message", "sender")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0
        self.message = "message"
        self.sender: str | None = None

    def refuse(self, reason: str) -> NoReturn:
        raise AggregationRefused(self.message, self.sender, reason)

    def take(self, count: int) -> bytes:
        taken = self._data[self._place : self._place + count]
        if len(taken) < count:
            self.refuse("is truncated")
        self._place += count
        return taken

    def end(self) -> None:
        if self._place != len(self._data):
            self.refuse("is longer than its encoding")

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def identity(self) -> str:
        encoded = self.take(self.number(1))
        try:
            return encoded.decode()
        except UnicodeDecodeError:
            self.refuse("contains an identity that is not UTF-8")

    def public_key(self) -> bytes:
        key = self.take(KEY_BYTES)
        if not is_canonical(key):
            self.refuse("contains a public key that is not canonical")
        return key

    def public_keys(self) -> PublicKeys:
        return PublicKeys(sharing=self.public_key(), masking=self.public_key())

    def sealed(self) -> bytes:
        return self.take(SEALED_BYTES)

    def element(self) -> int:
        try:
            return read_element(self.take(ELEMENT_BYTES))
        except InvalidParameter:
            self.refuse("contains a share outside the field")

    def listed(self, read: Callable[[], T]) -> dict[str, T]:
        entries: dict[str, T] = {}
        last = SERVER
        for _ in range(self.number(2)):
            name = self.identity()
            if name <= last:  # the empty name denotes the server, not a user
                self.refuse("contains identities that are not in increasing order")
            entries[name] = read()
            last = name
        return entries

    def residues(self, count: int, width: int, modulus: int) -> Integers:
        wide = np.zeros((count, 8), dtype=np.uint8)
        wide[:, 8 - width :] = np.frombuffer(self.take(count * width), np.uint8).reshape(-1, width)
        values = wide.view(">u8").reshape(-1)
        if bool(np.any(values >= modulus)):
            self.refuse("contains a value that is not below the modulus")
        residues = values.astype(np.int64)
        residues.setflags(write=False)
        return residues


def is_canonical(key: object) -> bool:
    r"""Whether ``key`` is a canonical X25519 key: 32 bytes of a number below 2^255 - 19."""
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        return False
    return int.from_bytes(key, "little") < _FIELD_PRIME


def read_header(data: bytes) -> Header:
    r"""Decode only the header; raises :class:`AggregationRefused` if it is invalid."""
    return _open(data)[0]


def _open(data: bytes) -> tuple[Header, _Reader]:
    # The header, and a reader positioned after it.
    if not isinstance(data, bytes):
        raise AggregationRefused("message", None, "is not bytes")
    reader = _Reader(data)
    version = reader.number(1)
    if version != _VERSION:
        reader.refuse(f"has version {version}, which is unknown")
    code = reader.number(1)
    if not 1 <= code <= len(TYPES):
        reader.refuse(f"has type {code}, which is unknown")
    kind = TYPES[code - 1]
    reader.message = kind.__name__
    identifier = reader.take(ROUND_BYTES)
    sender = reader.identity()
    reader.sender = sender
    receiver = reader.identity()
    return Header(type=kind, identifier=identifier, sender=sender, receiver=receiver), reader


def most_bytes(kind: type[object], terms: Round) -> int:
    r"""The largest length of a message of this type, including its tag."""
    if kind is KeyAdvertisement:
        body = 2 * KEY_BYTES
    elif kind is MaskedInput:
        body = terms.coordinates * terms.value_bytes
    else:  # at most a commitment, and lists of at most ``holders`` users
        body = KEY_BYTES + 4 + terms.holders * (_IDENTITY_BYTES + SEALED_BYTES)
    return 2 + ROUND_BYTES + 2 * _IDENTITY_BYTES + body + TAG_BYTES


def decode(data: bytes, terms: Round) -> tuple[Header, Body]:
    r"""Decode the header and body that :func:`encode` wrote; raise an error for other bytes."""
    header, reader = _open(data)
    if header.identifier != terms.identifier:
        reader.refuse("belongs to another round")
    body = _decode_body(header.type, reader, terms)
    reader.end()
    return header, body


def _decode_body(kind: type[Body], reader: _Reader, terms: Round) -> Body:
    if kind is KeyAdvertisement:
        return KeyAdvertisement(keys=reader.public_keys())
    if kind is KeyList:
        return KeyList(keys=reader.listed(reader.public_keys))
    if kind is SealedShares:
        return SealedShares(commitment=reader.take(KEY_BYTES), sealed=reader.listed(reader.sealed))
    if kind is ShareDelivery:
        return ShareDelivery(sealed=reader.listed(reader.sealed))
    if kind is MaskedInput:
        values = reader.residues(terms.coordinates, terms.value_bytes, terms.modulus)
        return MaskedInput(values=values)
    if kind is UnmaskRequest:
        survivors, dropped = (tuple(reader.listed(bytes)) for _ in range(2))
        return UnmaskRequest(survivors=survivors, dropped=dropped)
    return UnmaskReply(seeds=reader.listed(reader.element), keys=reader.listed(reader.element))
