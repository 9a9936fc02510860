r"""The user's side of masked aggregation: four steps from (state, bytes) to (state, bytes).

    sit -> advertise_keys -> share_keys -> mask_input -> unmask

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017,
Figure 4 without its consistency round: the semi-honest protocol. The adversary is described in
docs/proofs/masked_aggregation.md. **Use each state for one step only**, which a
:class:`~dpcore.secure_aggregation.masked_aggregation.Device` ensures: two replies from one state
would reveal the input. Secrets are drawn from ``rng``; with a seeded generator nothing is private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers, IntegersLike, refuse_masked
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation.keys_and_masks import (
    Channel,
    KeyPair,
    SharePair,
    add,
    add_pair_masks,
    agreements,
    commitment,
    mask,
    new_secret,
    open_shares,
    seal_shares,
    self_mask_key,
)
from dpcore.secure_aggregation.messages import (
    AggregationRefused,
    KeyAdvertisement,
    KeyList,
    MaskedInput,
    PublicKeys,
    SealedShares,
    ShareDelivery,
    UnmaskReply,
    UnmaskRequest,
)
from dpcore.secure_aggregation.round_parameters import SERVER, Round, Terms, check_identity
from dpcore.secure_aggregation.shamir import share


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    r"""A user before the round: identity and channel to the server."""

    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    r"""After step 1: the two key pairs of the round."""

    channel: Channel
    sharing: KeyPair
    masking: KeyPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    r"""After step 2: the seed, the user's own shares, and keys and secrets of neighbours (U1)."""

    channel: Channel
    masking: KeyPair
    seed: bytes = field(repr=False)
    keys: Mapping[str, PublicKeys]
    own: SharePair
    secrets: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    r"""After step 3: the user's shares of its own secrets and of those of neighbours in U2."""

    channel: Channel
    shares: Mapping[str, SharePair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    r"""After step 4: the user has answered and sends no further message."""

    channel: Channel


def sit(terms: Round, identity: str, enrolled: KeyPair, server: bytes) -> Participant:
    r"""Return the initial state of an enrolled user; ``server`` is the server's public key."""
    check_identity(identity)
    return Participant(channel=Channel.between(terms, identity, SERVER, enrolled, server))


def advertise_keys(seat: Participant, rng: Rng = SYSTEM) -> tuple[Advertised, bytes]:
    r"""Step 1: draw two key pairs and send their public keys."""
    sharing, masking = KeyPair.draw(rng), KeyPair.draw(rng)
    state = Advertised(channel=seat.channel, sharing=sharing, masking=masking)
    public = PublicKeys(sharing=sharing.public, masking=masking.public)
    return state, seat.channel.send(KeyAdvertisement(keys=public))


def share_keys(state: Advertised, received: bytes, rng: Rng = SYSTEM) -> tuple[Shared, bytes]:
    r"""Step 2: share the mask key and a fresh seed among the neighbours who advertised."""
    channel, terms = state.channel, state.channel.terms
    keys = channel.receive(received, KeyList).keys
    _check_keys(keys, state)
    seed = new_secret(rng)
    points = {name: place for place, name in enumerate(keys, start=1)}
    halves = [
        share(
            int.from_bytes(secret, "big"),
            threshold=terms.threshold,
            points=list(points.values()),
            rng=rng,
        )
        for secret in (state.masking.private, seed)
    ]
    shares = {name: SharePair(key=halves[0][x], seed=halves[1][x]) for name, x in points.items()}
    own = shares.pop(channel.own)
    secrets = _agreements(state.sharing, {name: keys[name].sharing for name in shares})
    sealed = {
        name: seal_shares(pair, secrets[name], terms, channel.own, name, rng)
        for name, pair in shares.items()
    }
    message = SealedShares(commitment=commitment(seed, terms, channel.own), sealed=sealed)
    after = Shared(
        channel=channel, masking=state.masking, seed=seed, keys=keys, own=own, secrets=secrets
    )
    return after, channel.send(message)


def mask_input(state: Shared, received: bytes, values: IntegersLike) -> tuple[Masked, bytes]:
    r"""Step 3: open the received shares and send the masked input.

    y_u = x_u + mask(b_u) + sum_(v > u) mask(s_uv) - sum_(v < u) mask(s_uv)  mod m, where x_u is
    the input, b_u the seed, s_uv the secret of users u and v, and v ranges over the neighbours in
    U2.

    Raises :class:`InvalidParameter` unless ``values`` are ``coordinates`` integers in [0, m), and
    :class:`AggregationRefused` if senders are unknown or too few, or if a seal is invalid.
    """
    channel, terms = state.channel, state.channel.terms
    inputs = checked_input(values, terms)
    sealed = channel.receive(received, ShareDelivery).sealed
    if not set(sealed) <= set(state.secrets):
        _refuse(
            "ShareDelivery",
            "contains shares from a user who advertised no keys, or from the receiver itself",
        )
    if len(sealed) + 1 < terms.threshold:
        _refuse(
            "ShareDelivery", f"names fewer than {terms.threshold} users, including its receiver"
        )
    shares = {channel.own: state.own}
    for name, cipher in sealed.items():
        try:
            shares[name] = open_shares(cipher, state.secrets[name], terms, name, channel.own)
        except InvalidParameter as error:
            _refuse("ShareDelivery", f"the shares of {name!r} {error.reason}")
    return Masked(channel=channel, shares=shares), channel.send(
        MaskedInput(values=masked(inputs, state, sorted(sealed)))
    )


def masked(inputs: Integers, state: Shared, others: list[str]) -> Integers:
    r"""Add the user's own mask and one mask for each of ``others`` to the input."""
    terms, own = state.channel.terms, state.channel.own
    key = self_mask_key(state.seed, terms, own)
    self_mask = mask(key, count=terms.coordinates, modulus=terms.modulus)
    public = {other: state.keys[other].masking for other in others}
    total = add(inputs, self_mask, terms.modulus)
    return add_pair_masks(total, _agreements(state.masking, public), terms, own)


def unmask(state: Masked, received: bytes) -> tuple[Answered, bytes]:
    r"""Step 4: send seed shares of survivors and mask key shares of dropouts."""
    request = state.channel.receive(received, UnmaskRequest)
    survivors, dropped = set(request.survivors), set(request.dropped)
    if survivors & dropped:
        both = min(survivors & dropped)
        _refuse("UnmaskRequest", f"names {both!r} both as surviving and as dropped")
    if survivors | dropped != set(state.shares):
        _refuse("UnmaskRequest", "must name exactly the users who shared keys")
    if state.channel.own in dropped:
        _refuse("UnmaskRequest", "lists its receiver as dropped")
    if len(survivors) < state.channel.terms.threshold:
        _refuse("UnmaskRequest", f"has fewer than {state.channel.terms.threshold} survivors")
    reply = UnmaskReply(
        seeds={name: state.shares[name].seed for name in request.survivors},
        keys={name: state.shares[name].key for name in request.dropped},
    )
    return Answered(channel=state.channel), state.channel.send(reply)


def checked_input(values: IntegersLike, terms: Terms) -> Integers:
    r"""Return ``values`` as int64, checked to be ``coordinates`` integers in [0, m).

    An input is private: error messages do not contain it.
    """
    refuse_masked("values", values)
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.zeros(())
    if array.dtype.kind not in "iu" or array.shape != (terms.coordinates,):
        reason = f"must be a vector of {terms.coordinates} integers"
        raise InvalidParameter("values", "(not shown)", reason)
    if bool(np.any((array < 0) | (array >= terms.modulus))):
        reason = f"must contain only integers in [0, {terms.modulus})"
        raise InvalidParameter("values", "(not shown)", reason)
    return array.astype(np.int64)


def _check_keys(keys: Mapping[str, PublicKeys], state: Advertised) -> None:
    terms = state.channel.terms
    if not terms.threshold <= len(keys) <= terms.holders:
        _refuse("KeyList", f"must contain the keys of {terms.threshold} to {terms.holders} users")
    own = PublicKeys(sharing=state.sharing.public, masking=state.masking.public)
    if keys.get(state.channel.own) != own:
        _refuse("KeyList", "does not contain the keys of its receiver")
    if len({key for pair in keys.values() for key in (pair.sharing, pair.masking)}) < 2 * len(keys):
        _refuse("KeyList", "contains a key twice")


def _agreements(own: KeyPair, public: Mapping[str, bytes]) -> dict[str, bytes]:
    try:
        return agreements(own.private, public)
    except InvalidParameter as error:
        _refuse("KeyList", error.reason)


def _refuse(message: str, reason: str) -> NoReturn:
    raise AggregationRefused(message, SERVER, reason)
