r"""Secure aggregation with masks: the sum mod m of the inputs of all users who do not drop out.

:class:`MaskedAggregation` runs a whole round in one process, through the bytes that a network would
carry. Over a network the roles run separately: a :class:`Device` for each user and one
:class:`AggregationServer`. This is the semi-honest protocol of Bonawitz et al., "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017.

The steps of :mod:`dpcore.secure_aggregation.user` and :mod:`dpcore.secure_aggregation.server` are
functions of a state. A state that is used twice can reveal an input or send inconsistent messages.
A device and a server therefore consume the state in each step and replace it with the next one;
a state belongs to one process, is used by one thread at a time, and cannot be copied. Adversary,
theorem and proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from fractions import Fraction
from typing import Any, ClassVar, Final, NoReturn, TypeVar, final

from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.forks import OwnedState
from dpcore.numbers.arrays import IntegersLike
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys_and_masks import KeyPair
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.round_parameters import (
    SERVER,
    Round,
    Terms,
    check_identity,
    neighbourhood_risk,
)
from dpcore.secure_aggregation.server import Outbox, Total

T = TypeVar("T")


class _SingleUse(OwnedState):
    # One state and the step that is due. Without a state, also after a step was interrupted by
    # anything but a DpcoreError, every step raises an error.
    __slots__ = ("_name",)

    _one: ClassVar[str] = "it holds the state of a round, which must be used only once"
    _DUE: ClassVar[Mapping[type, str]]

    def __init__(self, name: str, state: object) -> None:
        self._name = name
        super().__init__(state)

    @property
    def due(self) -> str:
        r"""The name of the next step; empty after the last step, or if the state was dropped."""
        return "" if self._gone() else self._DUE.get(type(self._state), "")

    def _step(self, step: str, act: Callable[[Any], tuple[object, T]]) -> T:
        # ``act`` returns the next state and the output. If it raises a DpcoreError, nothing was
        # sent and the old state remains valid.
        with self._lock.here():
            state = self._state
            if step != self.due:
                self._refuse(step)
            self._state = None
            try:
                after, sent = act(state)
            except DpcoreError:
                self._keep(state, step)
                raise
            self._keep(after, step)
            return sent

    def _keep(self, state: object, step: str) -> None:
        if self._gone():  # a signal handler forked during the step
            self._refuse(step)
        self._state = state

    def _refuse(self, step: str) -> NoReturn:
        order = list(self._DUE.values())
        if self._state is None or self._gone():
            reason = "has no state: a step is running or was interrupted, or the process was forked"
        elif step not in order:
            reason = "comes after the last step"
        elif not self.due or order.index(step) < order.index(self.due):
            reason = "was taken already"
        else:
            reason = f"comes too early: {self.due} is due"
        raise AggregationRefused(f"the step {step}", self._name, reason)


@final
class Device(_SingleUse):
    r"""The user's side of one round: four steps, each of which runs once and returns bytes to send.

    It starts from the result of :func:`dpcore.secure_aggregation.user.sit`. A second device of the
    same user would draw other keys; a device rejects a key list without its own keys.
    """

    __slots__ = ()

    _DUE: ClassVar[Mapping[type, str]] = {
        masked_user.Participant: "advertise_keys",
        masked_user.Advertised: "share_keys",
        masked_user.Shared: "mask_input",
        masked_user.Masked: "unmask",
    }

    def __init__(self, seat: masked_user.Participant) -> None:
        if not isinstance(seat, masked_user.Participant):
            raise InvalidParameter(
                "seat", "(not shown)", "must be a Participant, as returned by sit()"
            )
        super().__init__(seat.channel.own, seat)

    def __repr__(self) -> str:
        return f"<Device of {self._name!r}: {self.due or 'nothing'} is due>"

    def advertise_keys(self, rng: Rng = SYSTEM) -> bytes:
        r"""Step 1: send new public keys (``user.advertise_keys``)."""
        return self._step("advertise_keys", lambda at: masked_user.advertise_keys(at, rng))

    def share_keys(self, data: bytes, rng: Rng = SYSTEM) -> bytes:
        r"""Step 2: send encrypted shares (``user.share_keys``)."""
        return self._step("share_keys", lambda at: masked_user.share_keys(at, data, rng))

    def mask_input(self, data: bytes, values: IntegersLike) -> bytes:
        r"""Step 3: send the masked values (``user.mask_input``)."""
        return self._step("mask_input", lambda at: masked_user.mask_input(at, data, values))

    def unmask(self, data: bytes) -> bytes:
        r"""Step 4: answer the request with shares (``user.unmask``)."""
        return self._step("unmask", lambda at: masked_user.unmask(at, data))


@final
class AggregationServer(_SingleUse):
    r"""The server's side of one round: it receives messages one by one and closes each step once.

    It starts from :func:`dpcore.secure_aggregation.server.open_round` and sends consistent messages
    to all users. From two copies of a state, a server could send two different requests about one
    user, and the replies would reveal the user's input.
    """

    __slots__ = ()

    _DUE: ClassVar[Mapping[type, str]] = {
        masked_server.Advertising: "close_keys",
        masked_server.Sharing: "close_shares",
        masked_server.Masking: "close_inputs",
        masked_server.Unmasking: "finish",
    }

    def __init__(self, opened: masked_server.Advertising) -> None:
        if not isinstance(opened, masked_server.Advertising):
            reason = "must be an Advertising, as returned by open_round()"
            raise InvalidParameter("opened", "(not shown)", reason)
        super().__init__(SERVER, opened)

    def __repr__(self) -> str:
        return f"<AggregationServer: {self.due or 'nothing'} is due>"

    def receive(self, data: bytes) -> None:
        r"""Receive the message of one user in the current step."""
        with self._lock.here():
            step = self.due or "receive"
            self._step(step, lambda at: (masked_server.receive(at, data), None))

    def close_keys(self) -> Outbox:
        r"""End step 1: return the public keys to be sent to each user."""
        return self._step("close_keys", masked_server.close_keys)

    def close_shares(self) -> Outbox:
        r"""End step 2: return the sealed shares to be sent to each user."""
        return self._step("close_shares", masked_server.close_shares)

    def close_inputs(self) -> Outbox:
        r"""End step 3: return the requests for shares that unmask the sum."""
        return self._step("close_inputs", masked_server.close_inputs)

    def finish(self) -> Total:
        r"""End step 4: return the sum of the inputs that arrived."""

        def total_twice(at: masked_server.Unmasking) -> tuple[Total, Total]:
            total = masked_server.finish(at)
            return total, total

        return self._step("finish", total_twice)


class Step(IntEnum):
    r"""The messages of a user, in order; dropping out at a step omits it and all later messages."""

    KEYS = 1
    SHARES = 2
    INPUT = 3
    UNMASK = 4


NOBODY: Final[Mapping[str, Step]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedAggregation(Terms):
    r"""Sum secret vectors mod m under masks: the server sees only the sum, despite dropouts.

    With n = ``users``, t = ``dropouts`` and m = ``modulus``, the server learns only the sum over
    the users whose masked input arrived, at least n - t users, and their identities. This holds
    against a semi-honest server that colludes with any c < n - t semi-honest users: together they
    learn only the sum of the other inputs, of which there are at least n - t - c. It does not hold
    against a malicious server.

    Each user shares keys and masks with all others or, with a ``neighbourhood``, with k others on a
    random graph, at a cost of O(k) instead of O(n). With a neighbourhood, the statement above holds
    except with probability :meth:`exposure`, provided that the colluding users and the dropouts do
    not depend on the graph. With a small probability the round fails although at most t users drop
    out. :func:`dpcore.secure_aggregation.round_parameters.size_neighbourhood` finds the smallest k.

    Raises :class:`InvalidParameter` unless ``users`` is in [2, 2^16), 0 <= 2 ``dropouts`` <
    ``users``, ``coordinates`` in [1, 2^32), ``modulus`` in [2, 2^62], and k <= n - 2.

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

        Without a neighbourhood the bound is 0 or 1. With a neighbourhood the probability is over
        the graph (:class:`dpcore.secure_aggregation.round_parameters.NeighbourhoodRisk`) if up to
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
        vanish: Mapping[str, Step] = NOBODY,
        *,
        rng: Rng = SYSTEM,
    ) -> Total:
        r"""Enrol all users, run all roles in this process, and return the sum.

        ``messages`` maps each of the n identities to its vector, and ``vanish`` each dropout to the
        step at which it drops out. Raises :class:`InvalidParameter` if an input is invalid, and
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
                raise InvalidParameter(argument, "(not shown)", "must map identities to values")
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
