r"""Run a round over a network: one device per user, and the server.

The steps of :mod:`dpcore.secure_aggregation.user` and :mod:`dpcore.secure_aggregation.server` are
functions of a state. If a state were used twice, it could reveal an input or send inconsistent
messages. Here each step consumes the state and replaces it with the next state; a state belongs to
one process, is used by one thread at a time, and cannot be copied. Use this module over a network.
Proof: docs/proofs/masked_aggregation.md, claim (O).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NoReturn, TypeVar, final

from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.forks import OwnedState
from dpcore.numbers.arrays import IntegersLike
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation import server as masked_server
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.round_parameters import SERVER
from dpcore.secure_aggregation.server import Outbox, Total

_NOTHING: Final = ""

T = TypeVar("T")


class _SingleUse(OwnedState):
    # One state and the step that is due. Without a state, also after a step was interrupted by
    # anything but an AggregationRefused, every step raises an error.
    __slots__ = ("_name",)

    _one: ClassVar[str] = "it holds the state of a round, which must be used only once"
    _DUE: ClassVar[Mapping[type, str]]

    def __init__(self, name: str, state: object) -> None:
        self._name = name
        super().__init__(state)

    @property
    def due(self) -> str:
        r"""The name of the next step; empty after the last step, or if the state was dropped."""
        return _NOTHING if self._gone() else self._DUE.get(type(self._state), _NOTHING)

    def _step(self, step: str, act: Callable[[Any], tuple[object, T]]) -> T:
        # ``act`` returns the next state and the output, or raises a refusal; then nothing was sent
        # and the old state remains valid.
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
        elif self.due == _NOTHING or order.index(step) < order.index(self.due):
            reason = "was taken already"
        else:
            reason = f"comes too early: {self.due} is due"
        raise AggregationRefused(f"the step {step}", self._name, reason)


@final
class Device(_SingleUse):
    r"""The user's side of one round: four steps, each run once and returning the bytes to send.

    It starts from the result of :func:`dpcore.secure_aggregation.user.sit`. A second device of the
    same user draws other keys and rejects a key list without them.
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
    r"""The server's side of one round: messages arrive individually, each step is closed once.

    It starts from :func:`dpcore.secure_aggregation.server.open_round` and sends consistent messages
    to all users: two requests about one user, from two copies of a state, would reveal an input.
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
        r"""Receive one message of the current step, by the function ``receive`` of the server."""
        with self._lock.here():
            step = self.due or "receive"
            self._step(step, lambda at: (masked_server.receive(at, data), None))

    def close_keys(self) -> Outbox:
        r"""End step 1, as :func:`dpcore.secure_aggregation.server.close_keys` does."""
        return self._step("close_keys", masked_server.close_keys)

    def close_shares(self) -> Outbox:
        r"""End step 2 (``server.close_shares``)."""
        return self._step("close_shares", masked_server.close_shares)

    def close_inputs(self) -> Outbox:
        r"""End step 3 (``server.close_inputs``)."""
        return self._step("close_inputs", masked_server.close_inputs)

    def finish(self) -> Total:
        r"""End step 4 (``server.finish``)."""

        def total_twice(at: masked_server.Unmasking) -> tuple[Total, Total]:
            total = masked_server.finish(at)
            return total, total

        return self._step("finish", total_twice)
