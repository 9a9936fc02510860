r"""The server of masked aggregation: it receives messages one by one and closes four steps.

    open_round    returns Advertising  step 1: the users and their keys
    close_keys    returns Sharing      step 2: sealed shares
    close_shares  returns Masking      step 3: masked inputs
    close_inputs  returns Unmasking    step 4: shares that unmask the sum
    finish        returns Total

``receive(state, bytes)`` returns the state with one more message, or raises an error and leaves the
state unchanged. The caller decides when to close a step. Closing returns the next state and a
message for each remaining user. Closing raises an error if fewer than n - t users, or too few
neighbours of a user, remain. **Each step must be closed only once**, which
:class:`~dpcore.secure_aggregation.masked_aggregation.AggregationServer` ensures. A semi-honest
server learns only the sum of the inputs (docs/proofs/masked_aggregation.md). The sets of users U1,
U2 and U3 are those of :mod:`dpcore.secure_aggregation.messages`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation.keys_and_masks import (
    Channel,
    KeyPair,
    add,
    add_pair_masks,
    agreements,
    commitment,
    is_usable,
    mask,
    public_of,
    self_mask_key,
    subtract,
)
from dpcore.secure_aggregation.messages import (
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
from dpcore.secure_aggregation.round_parameters import SERVER, Round, check_identity, neighbours_of
from dpcore.secure_aggregation.shamir import interpolate, weights

Outbox = dict[str, bytes]


B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step(Generic[B]):
    # The enrolled users, their neighbours, and the messages received in this step.
    terms: Round
    channels: Mapping[str, Channel]
    near: Mapping[str, tuple[str, ...]]
    arrived: Mapping[str, B]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertising(_Step[KeyAdvertisement]):
    r"""Step 1: the enrolled users with their neighbours, and the key advertisements so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing(_Step[SealedShares]):
    r"""Step 2: the keys of U1, and the sealed shares so far."""

    keys: Mapping[str, PublicKeys]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking(_Step[MaskedInput]):
    r"""Step 3: the commitments of U2, and the masked inputs so far."""

    keys: Mapping[str, PublicKeys]
    commitments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmasking(_Step[UnmaskReply]):
    r"""Step 4: the commitments of U2, the masked inputs of U3, and the replies so far."""

    keys: Mapping[str, PublicKeys]
    commitments: Mapping[str, bytes]
    inputs: Mapping[str, MaskedInput]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Total:
    r"""The sum mod m of the inputs of ``participants``, as int64."""

    sum: Integers
    participants: tuple[str, ...]


S = TypeVar("S", Advertising, Sharing, Masking, Unmasking)
AnyStep: TypeAlias = Advertising | Sharing | Masking | Unmasking


def open_round(
    terms: Round, enrolled: KeyPair, roster: Sequence[tuple[str, bytes]], rng: Rng = SYSTEM
) -> Advertising:
    r"""Return the initial state; ``roster`` lists the identity and the public key of each user.

    The graph of neighbours is drawn here from ``rng``: colluding users must be fixed before the
    graph is drawn.
    """
    names = [check_identity(name) for name, _ in roster]
    if len(set(names)) < len(names):
        raise InvalidParameter("roster", names, "must list each identity once")
    if len({key for _, key in roster}) < len(names):
        raise InvalidParameter("roster", names, "must list each public key once")
    if len(names) != terms.users:
        raise InvalidParameter("roster", names, f"must list {terms.users} users")
    channels = {
        name: Channel.between(terms, SERVER, name, enrolled, public) for name, public in roster
    }
    near = neighbours_of(names, terms.neighbourhood, rng)
    return Advertising(terms=terms, channels=channels, near=near, arrived={})


def receive(state: S, data: bytes) -> S:
    r"""Return the state with the message of one user added."""
    header = read_header(data)
    name = header.sender
    if name not in state.channels:
        _refuse(header.type, name, "comes from a user who is not enrolled")
    body = _checked(state, name, data)
    if name in state.arrived:
        _refuse(type(body), name, "was already received in this round")
    # A state expects one type of message, and `_checked` returns that type.
    arrived: dict[str, Any] = {**state.arrived, name: body}
    return replace(state, arrived=arrived)


# For each step the expected message, and the field with the users who take part in the step.
_EXPECTED: dict[type, tuple[type[Body], str]] = {
    Advertising: (KeyAdvertisement, "channels"),
    Sharing: (SealedShares, "keys"),
    Masking: (MaskedInput, "commitments"),
    Unmasking: (UnmaskReply, "inputs"),
}


def _checked(state: AnyStep, name: str, data: bytes) -> Body:
    expected, part = _EXPECTED[type(state)]
    body = state.channels[name].receive(data, expected)
    if name not in getattr(state, part):
        _refuse(expected, name, "comes from a user who dropped out in an earlier step")
    match state, body:
        case Advertising() as opened, KeyAdvertisement(keys=own):
            _check_keys(own, name, opened)
        case Sharing(keys=keys), SealedShares(sealed=sealed):
            if set(sealed) != set(_near(state, name, keys)) - {name}:
                reason = "must be addressed to every other user who advertised keys"
                _refuse(expected, name, reason)
        case Unmasking(inputs=inputs) as last, UnmaskReply(seeds=seeds, keys=shares):
            survivors, dropped = _required(last, name, inputs)
            if set(seeds) != set(survivors) or set(shares) != set(dropped):
                _refuse(expected, name, "must contain exactly the requested shares")
    return body


def close_keys(state: Advertising) -> tuple[Sharing, Outbox]:
    r"""End step 1: send each user who advertised keys (U1) the keys of its neighbours in U1."""
    _check_enough(state, state.arrived)
    keys = {name: state.arrived[name].keys for name in sorted(state.arrived)}
    outbox = {
        name: state.channels[name].send(
            KeyList(keys={other: keys[other] for other in _near(state, name, keys)})
        )
        for name in keys
    }
    return _next(state, Sharing, keys=keys), outbox


def close_shares(state: Sharing) -> tuple[Masking, Outbox]:
    r"""End step 2: send each user who shared (U2) the shares that its neighbours sealed for it."""
    _check_enough(state, state.arrived)
    outbox = {
        name: state.channels[name].send(
            ShareDelivery(
                sealed={
                    other: state.arrived[other].sealed[name]
                    for other in _near(state, name, state.arrived)
                    if other != name
                }
            )
        )
        for name in state.arrived
    }
    commitments = {name: shares.commitment for name, shares in state.arrived.items()}
    return _next(state, Masking, commitments=commitments), outbox


def close_inputs(state: Masking) -> tuple[Unmasking, Outbox]:
    r"""End step 3: ask each user whose input arrived (U3) for shares that unmask the sum."""
    _check_enough(state, state.commitments)
    outbox = {}
    for name in sorted(state.arrived):
        survivors, dropped = _required(state, name, state.arrived)
        request = UnmaskRequest(survivors=survivors, dropped=dropped)
        outbox[name] = state.channels[name].send(request)
    return _next(state, Unmasking, inputs=state.arrived), outbox


def _next(state: AnyStep, kind: type[S], **more: Any) -> S:
    # The known fields are kept, and no message has arrived yet.
    known = {each.name: getattr(state, each.name, None) for each in fields(kind)}
    return kind(**{**known, **more, "arrived": {}})


def _near(state: AnyStep, name: str, among: Container[str]) -> list[str]:
    # The neighbours of a user and the user itself, in order, restricted to ``among``.
    return [other for other in state.near[name] if other in among]


def _required(
    state: Masking | Unmasking, name: str, inputs: Container[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    # The request to a user: the survivors among its neighbours, and those who dropped out.
    shared = _near(state, name, state.commitments)
    survivors = tuple(other for other in shared if other in inputs)
    return survivors, tuple(other for other in shared if other not in inputs)


def finish(state: Unmasking) -> Total:
    r"""End step 4: return the sum of the inputs that arrived."""
    _check_enough(state, state.commitments)
    terms = state.terms
    survivors = sorted(state.inputs)
    total = np.zeros(terms.coordinates, dtype=np.int64)
    for name in survivors:
        seed = _recombined(state, name, "seeds")
        if commitment(seed, terms, name) != state.commitments[name]:
            reason = f"the shares do not reconstruct the seed that {name!r} committed to"
            _refuse_step(UnmaskReply, reason)
        key = self_mask_key(seed, terms, name)
        own = mask(key, count=terms.coordinates, modulus=terms.modulus)
        total = add(total, state.inputs[name].values, terms.modulus)
        total = subtract(total, own, terms.modulus)
    for name in sorted(set(state.commitments) - set(survivors)):
        private = _recombined(state, name, "keys")
        if public_of(private) != state.keys[name].masking:
            _refuse_step(UnmaskReply, f"the shares do not reconstruct the mask key of {name!r}")
        # The masks of the dropped user, added in its place, cancel those of the survivors with it.
        public = {other: state.keys[other].masking for other in _near(state, name, state.inputs)}
        total = add_pair_masks(total, agreements(private, public), terms, name)
    return Total(sum=total, participants=tuple(survivors))


def _recombined(state: Unmasking, name: str, half: str) -> bytes:
    # The points are the indices of neighbours who advertised keys; ``threshold`` shares suffice.
    places = enumerate(_near(state, name, state.keys), start=1)
    replied = [(x, state.arrived[other]) for x, other in places if other in state.arrived]
    replied = replied[: state.terms.threshold]
    shares = [getattr(reply, half)[name] for _, reply in replied]
    value = interpolate(_lagrange(tuple(x for x, _ in replied)), shares)
    if value >> (8 * KEY_BYTES):
        _refuse_step(UnmaskReply, f"the shares do not reconstruct a secret of {name!r}")
    return value.to_bytes(KEY_BYTES, "big")


# Over the complete graph all users have the same points, and computing weights costs the most.
_lagrange = lru_cache(maxsize=1 << 6)(weights)


def _check_keys(keys: PublicKeys, name: str, state: Advertising) -> None:
    others = [body.keys for other, body in state.arrived.items() if other != name]
    taken = {key for pair in others for key in (pair.sharing, pair.masking)}
    if keys.sharing == keys.masking or {keys.sharing, keys.masking} & taken:
        _refuse(KeyAdvertisement, name, "contains a key twice, or a key of another user")
    if not (is_usable(keys.sharing) and is_usable(keys.masking)):
        _refuse(KeyAdvertisement, name, "contains a key of low order")


def _check_enough(state: AnyStep, owners: Iterable[str]) -> None:
    terms, count, expected = state.terms, len(state.arrived), _EXPECTED[type(state)][0]
    if count < terms.quorum:
        _refuse_step(
            expected,
            f"{count} of {terms.users} users remain, but {terms.quorum} are needed: more than "
            f"{terms.dropouts} dropped out",
        )
    if terms.neighbourhood is None:
        return  # all users are neighbours
    for owner in owners:
        count = len(_near(state, owner, state.arrived))
        if count < terms.threshold:
            near = f"{count} of {terms.holders} users remain who hold shares of {owner!r}"
            _refuse_step(expected, f"{near}, but {terms.threshold} are needed")


def _refuse_step(expected: type[Body], reason: str) -> NoReturn:
    raise AggregationRefused(f"the step {expected.__name__}", SERVER, reason)


def _refuse(kind: type[Body], sender: str, reason: str) -> NoReturn:
    raise AggregationRefused(kind.__name__, sender, reason)
