r"""Secure aggregation with masks: the sum mod m of the inputs of all users who do not drop out.

:class:`MaskedAggregation` runs a whole round in one process, through the bytes that a network would
carry. Over a network the roles run separately: a
:class:`~dpcore.secure_aggregation.network_round.Device` for each user and one
:class:`~dpcore.secure_aggregation.network_round.AggregationServer`. This is the semi-honest
protocol of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
CCS 2017; adversary, theorem and proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from fractions import Fraction
from typing import Any, Final

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import IntegersLike
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys import KeyPair
from dpcore.secure_aggregation.network_round import AggregationServer, Device
from dpcore.secure_aggregation.round_parameters import (
    Round,
    Terms,
    check_identity,
    neighbourhood_risk,
)
from dpcore.secure_aggregation.server import Total

_NOBODY: Final[Mapping[str, Step]] = {}


class Step(IntEnum):
    r"""The four messages of a user, in order; a user who drops out sends no later message."""

    KEYS = 1
    SHARES = 2
    INPUT = 3
    UNMASK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedAggregation(Terms):
    r"""Sum secret vectors mod m under masks: the server sees only the sum, even if t of n drop out.

    The server learns only the sum over the users whose masked input arrived, at least n - t users,
    and their identities. This holds against a semi-honest server together with any c < n - t
    semi-honest users, who together learn the sum of the at least n - t - c other inputs. It does
    not hold against a malicious server.

    Each user shares keys and masks with all others or, with a ``neighbourhood``, with k others on a
    random graph, at a cost of O(k) instead of O(n). The statement above then holds except with
    probability :meth:`exposure`, if the colluding users and the dropouts do not depend on the
    graph; rarely, t or fewer dropouts make the round fail.
    :func:`dpcore.secure_aggregation.round_parameters.size_neighbourhood` finds the smallest k.

    ``users`` in [2, 2^16), 0 <= 2 ``dropouts`` < ``users``, ``coordinates`` >= 1, ``modulus`` in
    [2, 2^62], k <= n - 2; otherwise :class:`InvalidParameter`.

    >>> aggregation = MaskedAggregation(users=3, dropouts=1, coordinates=2, modulus=100)
    >>> inputs = {"ann": [1, 2], "bob": [30, 40], "eve": [99, 99]}
    >>> total = aggregation.total(inputs)
    >>> total.sum.tolist(), total.participants
    ([30, 41], ('ann', 'bob', 'eve'))
    >>> total = aggregation.total(inputs, vanish={"eve": Step.INPUT})
    >>> total.sum.tolist(), total.participants
    ([31, 42], ('ann', 'bob'))
    """

    def exposure(self, colluding: int) -> Fraction:
        r"""Bound the probability that the server and ``colluding`` users learn more than the sum.

        Without a neighbourhood the bound is 0 or 1; with one, the probability is over the graph
        (:class:`dpcore.secure_aggregation.round_parameters.NeighbourhoodRisk`) if up to
        ``dropouts`` users drop out.

        >>> parts = MaskedAggregation(users=3, dropouts=1, coordinates=1, modulus=2)
        >>> parts.exposure(1), parts.exposure(2)
        (Fraction(0, 1), Fraction(1, 1))
        """
        colluding = integer("colluding", colluding, at_least=0)
        if self.neighbourhood is None:
            return Fraction(colluding >= self.threshold)
        return neighbourhood_risk(
            users=self.users,
            dropouts=self.dropouts,
            colluding=colluding,
            neighbourhood=self.neighbourhood,
        ).exposure

    def round(self, name: str | None = None, *, rng: Rng = SYSTEM) -> Round:
        r"""Return a round of this aggregation, identified by 32 random bytes or the hash of a name.

        Do not use a name twice with the same enrolled keys: messages of the first round would be
        accepted in the second.

        >>> parts = MaskedAggregation(users=2, dropouts=0, coordinates=1, modulus=2)
        >>> parts.round("monday") == parts.round("monday"), parts.round() == parts.round()
        (True, False)
        """
        if name is None:
            identifier = rng.bits(256).to_bytes(32, "big")
        elif isinstance(name, str) and name:
            identifier = hashlib.sha256(b"dpcore round name" + name.encode()).digest()
        else:
            raise InvalidParameter("name", name, "must be a non-empty string")
        terms: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(Terms)}
        return Round(identifier=identifier, **terms)

    def total(
        self,
        messages: Mapping[str, IntegersLike],
        vanish: Mapping[str, Step] = _NOBODY,
        *,
        rng: Rng = SYSTEM,
    ) -> Total:
        r"""Enrol all users, run all roles in this process, and return the sum.

        ``messages`` maps each of the n identities to its vector, and ``vanish`` each dropout to the
        step at which it drops out. Raises :class:`InvalidParameter` for invalid inputs, and
        :class:`AggregationRefused` if more than t users, or too many neighbours of one user, drop
        out. This is a simulation: the caller sees every input. With a seeded ``rng`` it is
        reproducible.
        """
        self._check(messages, vanish)
        terms = self.round(rng=rng)
        names = sorted(messages)

        def heard(step: Step, among: Mapping[str, Any]) -> list[str]:
            return [name for name in among if vanish.get(name, Step.UNMASK + 1) > step]

        enrolled = {name: KeyPair.draw(rng) for name in names}
        own = KeyPair.draw(rng)
        seats = {n: masked_user.sit(terms, n, enrolled[n], own.public) for n in names}
        devices = {name: Device(seat) for name, seat in seats.items()}
        roster = [(name, enrolled[name].public) for name in names]
        desk = AggregationServer(masked_server.open_round(terms, own, roster, rng))

        for name in heard(Step.KEYS, devices):
            desk.receive(devices[name].advertise_keys(rng))
        outbox = desk.close_keys()
        for name in heard(Step.SHARES, outbox):
            desk.receive(devices[name].share_keys(outbox[name], rng))
        outbox = desk.close_shares()
        for name in heard(Step.INPUT, outbox):
            desk.receive(devices[name].mask_input(outbox[name], messages[name]))
        outbox = desk.close_inputs()
        for name in heard(Step.UNMASK, outbox):
            desk.receive(devices[name].unmask(outbox[name]))
        return desk.finish()

    def _check(self, messages: Mapping[str, IntegersLike], vanish: Mapping[str, Step]) -> None:
        for argument, given in (("messages", messages), ("vanish", vanish)):
            if not isinstance(given, Mapping):
                raise InvalidParameter(argument, "(not shown)", "must be a mapping by identity")
        for name, values in messages.items():
            check_identity(name)
            masked_user.checked_input(values, self)
        if len(messages) != self.users:
            reason = f"must contain the inputs of {self.users} users"
            raise InvalidParameter("messages", list(messages), reason)
        for name, step in vanish.items():
            if name not in messages:
                raise InvalidParameter("vanish", name, "must name users who have a message")
            if not isinstance(step, Step):
                raise InvalidParameter("vanish", step, "must be a Step")
