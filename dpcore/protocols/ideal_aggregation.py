r"""Secure aggregation and shuffling: the functionality S between the users and the server.

:class:`IdealAggregation` and :class:`Shuffler` are functionalities: they do what a trusted third
party would do, for simulation and accounting. ``secure_aggregation.MaskedAggregation``
is a real aggregation with the same interface. ``run_protocol.run`` runs a protocol over them.
Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import Exact, Of, Whole, check_fields
from dpcore.protocols.shuffled_bits import BitMessages, Bits
from dpcore.sampling.rng import SYSTEM, Rng, permutation
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.pseudorandom_vector import LARGEST_MODULUS
from dpcore.secure_aggregation.server import Total

_NOBODY: Final[Mapping[str, Step]] = {}


class Aggregation(Protocol):
    r"""Secure aggregation of vectors mod m: the sum of the received inputs, and their senders."""

    @property
    def modulus(self) -> int:
        r"""The modulus m."""
        ...

    def total(
        self, messages: Mapping[str, Integers], vanish: Mapping[str, Step] = ..., *, rng: Rng = ...
    ) -> Total:
        r"""Return the sum mod m over the users who do not drop out before the input step."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealAggregation:
    r"""Secure aggregation by a trusted party that only outputs the sum mod m and the participants.

    With ``per_user``, ``run`` draws the noise of every user; otherwise it draws the sum of the
    noise at once, which has the same distribution.

    >>> ideal = IdealAggregation(modulus=10)
    >>> total = ideal.total({"ann": np.array([7]), "bob": np.array([8])})
    >>> total.sum.tolist(), total.participants
    ([5], ('ann', 'bob'))
    """

    modulus: Whole = Whole(at_least=2, at_most=LARGEST_MODULUS)
    per_user: Of[bool] = Of(bool, "must be True or False", default=False)

    def __post_init__(self) -> None:
        check_fields(self)

    def total(
        self,
        messages: Mapping[str, Integers],
        vanish: Mapping[str, Step] = _NOBODY,
        *,
        rng: Rng = SYSTEM,  # noqa: ARG002 - an ideal party needs none; a real aggregation does
    ) -> Total:
        r"""Return the sum over the users who do not drop out before the input step.

        Raises :class:`InvalidParameter` for a message that is not a vector of integers in [0, m),
        for messages of different lengths, for a dropout who is not a user in this run, and if no
        user remains.
        """
        rows = _stacked(messages, self.modulus)
        names = tuple(messages)
        places = staying(names, vanish)
        participants = tuple(names[place] for place in places)
        return Total(sum=_sum_modulo(rows[list(places)], self.modulus), participants=participants)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxedAggregation:
    r"""An assumption: an (epsilon_hat, q_hat)-relaxed secure aggregation (Cheu and Yan 2021).

    The server's view is within a factor e^epsilon_hat of a simulation from the sum mod m alone, and
    its post-processing equals the sum up to statistical distance q_hat (Chowdhury and Zhou 2023,
    Definition 9). No such protocol is implemented: the simulation outputs the sum itself, which
    satisfies the definition. The class is not an :class:`Aggregation`: ``run`` accepts it only for
    a ``ShuffledPure``.
    """

    modulus: Whole = Whole(at_least=2, at_most=LARGEST_MODULUS)
    epsilon_hat: Exact = Exact(within="[0, oo)")
    q_hat: Exact = Exact(within="[0, 1]")

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffler:
    r"""A trusted party that outputs all bits in a uniformly random order, and nothing else.

    It accepts :class:`BitMessages` only. One integer per user would not be private: at n = 1024 and
    epsilon = 1 a Polya share is 0 with probability .993, so the shuffled list of noisy values
    reveals most of the values.

    >>> messages = BitMessages(np.array([[[1, 0]], [[1, 1]]], dtype=np.uint8))
    >>> int(Shuffler().shuffle(messages).sum())
    3
    """

    def shuffle(self, messages: BitMessages, *, rng: Rng = SYSTEM) -> Bits:
        r"""Permute the bits of each coordinate independently: an array (coordinates, all bits).

        Raises :class:`InvalidParameter` for anything but :class:`BitMessages`.
        """
        if not isinstance(messages, BitMessages):
            reason = "must be BitMessages: shuffled noisy integers still reveal the integers"
            raise InvalidParameter("messages", messages, reason)
        rows = messages.bits.transpose(1, 0, 2).reshape(messages.bits.shape[1], -1)
        return np.stack([row[permutation(len(row), rng)] for row in rows])


def staying(names: tuple[str, ...], vanish: Mapping[str, Step]) -> tuple[int, ...]:
    r"""The indices of the users who do not drop out before their input arrives."""
    if not isinstance(vanish, Mapping) or not set(vanish) <= set(names):
        raise InvalidParameter("vanish", vanish, "must name users in this run")
    if not all(isinstance(step, Step) for step in vanish.values()):
        raise InvalidParameter("vanish", vanish, "must map each name to a Step")
    gone = {name for name, step in vanish.items() if step <= Step.INPUT}
    here = tuple(place for place, name in enumerate(names) if name not in gone)
    if not here:
        raise InvalidParameter("vanish", vanish, "must leave at least one user")
    return here


def _stacked(messages: Mapping[str, Integers], modulus: int) -> Integers:
    if not isinstance(messages, Mapping) or not messages:
        raise InvalidParameter("messages", messages, "must contain a vector for each name")
    for name, vector in messages.items():
        if not isinstance(vector, np.ndarray) or vector.dtype.kind not in "iu" or vector.ndim != 1:
            raise InvalidParameter("messages", vector, f"must be a vector of integers ({name})")
        if vector.size and not 0 <= vector.min() <= vector.max() < modulus:
            raise InvalidParameter("messages", vector, f"must lie in [0, {modulus}) ({name})")
    if len({len(vector) for vector in messages.values()}) > 1:
        raise InvalidParameter("messages", messages, "must be vectors of equal length")
    # Converted one by one, because stacking signed and unsigned arrays would give floats.
    return np.stack([vector.astype(np.int64) for vector in messages.values()])


def _sum_modulo(rows: Integers, modulus: int) -> Integers:
    # Summed in halves, so that neither sum exceeds int64 with fewer than 2^31 users.
    low = (rows & ((1 << 31) - 1)).sum(axis=0)
    high = (rows >> 31).sum(axis=0)
    exact = [((int(h) << 31) + int(l)) % modulus for h, l in zip(high, low, strict=True)]
    return np.array(exact, dtype=np.int64)
