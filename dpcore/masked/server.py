r"""The server of masked aggregation: it receives messages one by one and closes four steps.

    open_round        gives Advertising    step 1: who is here, with which keys
    close_keys        gives Sharing        step 2: sealed shares
    close_shares      gives Masking        step 3: masked inputs
    close_inputs      gives Unmasking      step 4: shares that unmask the sum
    finish            gives Total

``receive(state, bytes)`` gives the state with one message more, or refuses it and the old state
stands. A step is closed when the caller's clock says so: that gives the next state and the message
for each user who is still there, or a refusal when fewer than n - t are. **Each step is closed
once**: :class:`dpcore.masked.device.Desk` sees to it. A semi-honest server learns the sum and
nothing else of the inputs: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.inversion import Integers
from dpcore.masked.keys import (
    Channel,
    KeyPair,
    agreements,
    commitment,
    is_usable,
    mask_key,
    public_of,
    self_mask_key,
)
from dpcore.masked.masks import add, mask, subtract
from dpcore.masked.messages import (
    KEY_BYTES,
    AggregationRefused,
    Body,
    KeyAdvertisement,
    KeyList,
    MaskedInput,
    PublicKeys,
    SealedShares,
    ShareDelivery,
    UnmaskReply,
    UnmaskRequest,
    read_header,
)
from dpcore.masked.round import SERVER, Round, check_identity
from dpcore.masked.shamir import interpolate, weights

__all__ = [
    "Advertising",
    "Masking",
    "Sharing",
    "Total",
    "Unmasking",
    "close_inputs",
    "close_keys",
    "close_shares",
    "finish",
    "open_round",
    "receive",
]

Outbox = dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertising:
    r"""Step 1: who is enrolled, and the key advertisements that arrived."""

    terms: Round
    channels: Mapping[str, Channel]
    arrived: Mapping[str, KeyAdvertisement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    r"""Step 2: the keys of U1, and the sealed shares that arrived."""

    terms: Round
    channels: Mapping[str, Channel]
    keys: Mapping[str, PublicKeys]
    arrived: Mapping[str, SealedShares]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    r"""Step 3: the commitments of U2, and the masked inputs that arrived."""

    terms: Round
    channels: Mapping[str, Channel]
    keys: Mapping[str, PublicKeys]
    commitments: Mapping[str, bytes]
    arrived: Mapping[str, MaskedInput]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmasking:
    r"""Step 4: the masked inputs of U3, who of U2 is missing, and the replies that arrived."""

    terms: Round
    channels: Mapping[str, Channel]
    keys: Mapping[str, PublicKeys]
    commitments: Mapping[str, bytes]
    inputs: Mapping[str, MaskedInput]
    dropped: tuple[str, ...]
    arrived: Mapping[str, UnmaskReply]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Total:
    r"""The sum mod m of the inputs of ``participants``, int64; everyone else's is not in it."""

    sum: Integers
    participants: tuple[str, ...]


S = TypeVar("S", Advertising, Sharing, Masking, Unmasking)


def open_round(terms: Round, enrolled: KeyPair, roster: Sequence[tuple[str, bytes]]) -> Advertising:
    r"""Ready for step 1. ``roster`` holds the identity and enrolled public key of each user.

    Raises :class:`InvalidParameter` when an identity or a key is there twice, or their number is
    not that of ``terms``.
    """
    names = [check_identity(name) for name, _ in roster]
    if len(set(names)) < len(names):
        raise InvalidParameter("roster", names, "must hold each identity once")
    if len({key for _, key in roster}) < len(names):
        raise InvalidParameter("roster", names, "must hold each public key once")
    if len(names) != terms.users:
        raise InvalidParameter("roster", names, f"must hold {terms.users} users")
    channels = {
        name: Channel.between(terms, SERVER, name, enrolled, public) for name, public in roster
    }
    return Advertising(terms=terms, channels=channels, arrived={})


def receive(state: S, data: bytes) -> S:
    r"""The state with the message of one user added.

    Raises :class:`AggregationRefused` for bytes that are not exactly the message that this user
    may send in this step, once.
    """
    header, _ = read_header(data)
    name = header.sender
    if name not in state.channels:
        _refuse(header.type, name, "comes from somebody who is not enrolled")
    body = _checked(state, name, data)
    if name in state.arrived:
        _refuse(type(body), name, "is a second one in this round")
    # A state awaits one type, and `_checked` gives that one.
    arrived: dict[str, Any] = {**state.arrived, name: body}
    return replace(state, arrived=arrived)


def _checked(state: Advertising | Sharing | Masking | Unmasking, name: str, data: bytes) -> Body:
    channel = state.channels[name]
    match state:
        case Advertising():
            advertised = channel.receive(data, KeyAdvertisement)
            _check_keys(advertised.keys, name, state)
            return advertised
        case Sharing():
            shares = channel.receive(data, SealedShares)
            _check_part(name, state.keys, shares)
            if set(shares.sealed) != set(state.keys) - {name}:
                _refuse(SealedShares, name, "must be for everyone else who advertised keys")
            return shares
        case Masking():
            masked = channel.receive(data, MaskedInput)
            _check_part(name, state.commitments, masked)
            return masked
        case Unmasking():
            reply = channel.receive(data, UnmaskReply)
            _check_part(name, state.inputs, reply)
            if set(reply.seeds) != set(state.inputs) or set(reply.keys) != set(state.dropped):
                _refuse(UnmaskReply, name, "must answer exactly what was asked")
            return reply


def close_keys(state: Advertising) -> tuple[Sharing, Outbox]:
    r"""End step 1: everyone who advertised (U1) gets the keys of all of them."""
    _check_enough(state, KeyAdvertisement)
    keys = {name: state.arrived[name].keys for name in sorted(state.arrived)}
    message = KeyList(keys=keys)
    outbox = {name: state.channels[name].send(message) for name in keys}
    return Sharing(terms=state.terms, channels=state.channels, keys=keys, arrived={}), outbox


def close_shares(state: Sharing) -> tuple[Masking, Outbox]:
    r"""End step 2: everyone who shared (U2) gets the shares that the others sealed for it."""
    _check_enough(state, SealedShares)
    outbox = {
        name: state.channels[name].send(
            ShareDelivery(
                sealed={
                    other: shares.sealed[name]
                    for other, shares in state.arrived.items()
                    if other != name
                }
            )
        )
        for name in state.arrived
    }
    after = Masking(
        terms=state.terms,
        channels=state.channels,
        keys=state.keys,
        commitments={name: shares.commitment for name, shares in state.arrived.items()},
        arrived={},
    )
    return after, outbox


def close_inputs(state: Masking) -> tuple[Unmasking, Outbox]:
    r"""End step 3: everyone whose input arrived (U3) is asked to unmask their sum."""
    _check_enough(state, MaskedInput)
    survivors = tuple(sorted(state.arrived))
    dropped = tuple(sorted(set(state.commitments) - set(survivors)))
    request = UnmaskRequest(survivors=survivors, dropped=dropped)
    after = Unmasking(
        terms=state.terms,
        channels=state.channels,
        keys=state.keys,
        commitments=state.commitments,
        inputs=state.arrived,
        dropped=dropped,
        arrived={},
    )
    return after, {name: state.channels[name].send(request) for name in survivors}


def finish(state: Unmasking) -> Total:
    r"""End step 4: the sum of the inputs that arrived.

    Raises :class:`AggregationRefused` when fewer than n - t replied, or a secret that the shares
    give is not the one its owner published: no sum then.
    """
    _check_enough(state, UnmaskReply)
    terms, places = state.terms, {name: x for x, name in enumerate(state.keys, start=1)}
    replies = sorted(state.arrived)[: terms.threshold]
    lagrange = weights([places[name] for name in replies])
    survivors = sorted(state.inputs)
    total = np.zeros(terms.coordinates, dtype=np.int64)
    for name in survivors:
        shares = [state.arrived[other].seeds[name] for other in replies]
        key = _seed_mask_key(state, name, interpolate(lagrange, shares))
        own = mask(key, count=terms.coordinates, modulus=terms.modulus)
        total = add(total, state.inputs[name].values, terms.modulus)
        total = subtract(total, own, terms.modulus)
    for name in state.dropped:
        shares = [state.arrived[other].keys[name] for other in replies]
        private = _masking_key(state, name, interpolate(lagrange, shares))
        total = without_pair_masks(total, state, name, private)
    return Total(sum=total, participants=tuple(survivors))


def without_pair_masks(total: Integers, state: Unmasking, name: str, private: bytes) -> Integers:
    r"""``total`` without the masks that each survivor put on for the dropped user ``name``."""
    terms = state.terms
    public = {other: state.keys[other].masking for other in state.inputs}
    for other, secret in agreements(private, public).items():
        key = mask_key(secret, terms, name, other)
        pair = mask(key, count=terms.coordinates, modulus=terms.modulus)
        total = (subtract if other < name else add)(total, pair, terms.modulus)
    return total


def _seed_mask_key(state: Unmasking, name: str, value: int) -> bytes:
    seed = _secret(value, name)
    if commitment(seed, state.terms, name) != state.commitments[name]:
        _refuse_total(f"the shares do not give the seed that {name!r} committed to")
    return self_mask_key(seed, state.terms, name)


def _masking_key(state: Unmasking, name: str, value: int) -> bytes:
    private = _secret(value, name)
    if public_of(private) != state.keys[name].masking:
        _refuse_total(f"the shares do not give the mask key of {name!r}")
    return private


def _secret(value: int, name: str) -> bytes:
    if value >> (8 * KEY_BYTES):
        _refuse_total(f"the shares do not give a secret of {name!r}")
    return value.to_bytes(KEY_BYTES, "big")


def _check_keys(keys: PublicKeys, name: str, state: Advertising) -> None:
    others = [body.keys for other, body in state.arrived.items() if other != name]
    taken = {key for pair in others for key in (pair.sharing, pair.masking)}
    if keys.sharing == keys.masking or {keys.sharing, keys.masking} & taken:
        _refuse(KeyAdvertisement, name, "holds a key that stands for another purpose or user")
    if not (is_usable(keys.sharing) and is_usable(keys.masking)):
        _refuse(KeyAdvertisement, name, "holds a key of low order")


def _check_part(name: str, part: Mapping[str, object], body: Body) -> None:
    if name not in part:
        _refuse(type(body), name, "comes from a user who vanished in an earlier step")


def _check_enough(state: Advertising | Sharing | Masking | Unmasking, expected: type[Body]) -> None:
    terms, count = state.terms, len(state.arrived)
    if count < terms.threshold:
        reason = (
            f"of {terms.users} users {count} are there and {terms.threshold} are needed: "
            f"more than {terms.dropouts} vanished"
        )
        raise AggregationRefused(f"the step {expected.__name__}", SERVER, reason)


def _refuse_total(reason: str) -> NoReturn:
    raise AggregationRefused("the step UnmaskReply", SERVER, reason)


def _refuse(kind: type[Body], sender: str, reason: str) -> NoReturn:
    raise AggregationRefused(kind.__name__, sender, reason)
