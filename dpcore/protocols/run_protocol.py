r"""Run a protocol once in this process: the users, the functionality and the analyzer.

The functionality receives the users' messages, and the server sees only its output.
:class:`IdealAggregation` and :class:`Shuffler` do what a trusted third party would do, for
simulation and accounting; ``dpcore.MaskedAggregation`` is a real aggregation with the same
interface.

A run includes dropouts and collusion: users who drop out add no noise, the server knows the noise
of colluding users, and the record of the run contains only the remaining noise. Proofs:
docs/proofs/protocol.md.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.numbers.arrays import Integers, refuse_masked
from dpcore.numbers.parameter import Exact, Of, Whole, check_fields
from dpcore.protocols.fixed_point_encoding import RealsLike
from dpcore.protocols.noisy_sums import AggregatedSum, CentralSum, LocalSum, ShuffledPure
from dpcore.protocols.shuffled_bits import (
    BinaryShuffle,
    BitMessages,
    Bits,
    PureShuffle,
    VectorShuffle,
)
from dpcore.sampling.rng import SYSTEM, Rng, permutation
from dpcore.secure_aggregation.masked_aggregation import NOBODY, MaskedAggregation, Step
from dpcore.secure_aggregation.messages import AggregationRefused
from dpcore.secure_aggregation.round_parameters import LARGEST_MODULUS, MOST_EXPOSURE
from dpcore.secure_aggregation.server import Total


class Aggregation(typing.Protocol):
    r"""The interface of secure aggregation of vectors mod m.

    It outputs the sum of the inputs and the names of their senders.
    """

    @property
    def modulus(self) -> int: ...

    def total(
        self, messages: Mapping[str, Integers], vanish: Mapping[str, Step] = ..., *, rng: Rng = ...
    ) -> Total:
        r"""Return the sum mod m over the users who do not drop out before their input arrives."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealAggregation:
    r"""Secure aggregation by a trusted party that outputs only the sum mod m and the participants.

    With ``per_user=True``, ``run`` draws the noise of every user; otherwise it draws the sum of the
    users' noise at once, which has the same distribution.

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
        vanish: Mapping[str, Step] = NOBODY,
        *,
        rng: Rng = SYSTEM,  # noqa: ARG002 - only a real aggregation draws from it
    ) -> Total:
        r"""Return the sum over the users who do not drop out before their input arrives.

        Raises :class:`InvalidParameter` if a message is not a vector of integers in [0, m), if
        messages differ in length, if a dropout is not a user in this run, or if no user remains.
        """
        rows = _stacked(messages, self.modulus)
        names = tuple(messages)
        places = staying(names, vanish)
        participants = tuple(names[place] for place in places)
        return Total(sum=_sum_modulo(rows[list(places)], self.modulus), participants=participants)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxedAggregation:
    r"""An assumed (epsilon_hat, q_hat)-relaxed secure aggregation (Cheu and Yan 2021).

    By definition, a simulator that is given only the sum mod m produces every view of the server
    with the true probability up to a factor e^epsilon_hat, and a function of the view equals the
    sum up to statistical distance q_hat (Chowdhury and Zhou 2023, Definition 9). No such protocol
    is implemented: ``run`` outputs the sum itself, which satisfies the definition. The class is not
    an :class:`Aggregation`: ``run`` accepts it only for a ``ShuffledPure``.
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
        r"""Permute the bits of each coordinate independently; return one row per coordinate.

        Raises :class:`InvalidParameter` if ``messages`` is not a :class:`BitMessages`.
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
            raise InvalidParameter("messages", vector, f"must be an integer vector (user {name})")
        if vector.size and not 0 <= vector.min() <= vector.max() < modulus:
            reason = f"must contain only integers in [0, {modulus}) (user {name})"
            raise InvalidParameter("messages", vector, reason)
    if len({len(vector) for vector in messages.values()}) > 1:
        raise InvalidParameter("messages", messages, "must contain vectors of equal length")
    # Converted one by one, because stacking signed and unsigned arrays would give floats.
    return np.stack([vector.astype(np.int64) for vector in messages.values()])


def _sum_modulo(rows: Integers, modulus: int) -> Integers:
    # Summed in halves, so that neither sum exceeds int64 with fewer than 2^31 users.
    low = (rows & ((1 << 31) - 1)).sum(axis=0)
    high = (rows >> 31).sum(axis=0)
    exact = [((int(h) << 31) + int(l)) % modulus for h, l in zip(high, low, strict=True)]
    return np.array(exact, dtype=np.int64)


Values: TypeAlias = Mapping[str, Any] | RealsLike
"""The users' values: a mapping from names to numbers (also exact rationals), or an array whose
users are named "0", "1" and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    r"""The result of a run: the estimate, the participants and the record for accounting.

    ``honest`` is the number of participants who do not collude. ``assumptions`` lists the
    assumptions of the guarantee. ``record`` is None for two protocols, because no single mechanism
    describes the server's view. The guarantee of a :class:`PureShuffle` is given by
    ``accounting.protocol_guarantees.pure_shuffle_guarantee``. The epsilon of a
    :class:`ShuffledPure` is that of ``sum_mechanism(honest)`` plus 2 epsilon_hat, if the
    aggregation is (epsilon_hat, q_hat)-relaxed.
    """

    estimate: Fraction | tuple[Fraction, ...]
    participants: tuple[str, ...]
    honest: int
    record: Release | None
    assumptions: tuple[str, ...]

    @property
    def release(self) -> Release:
        r"""The release record; its mechanism contains the noise that the ``honest`` users added."""
        if self.record is None:
            reason = (
                "has no release record: no single mechanism describes the server's view; "
                "see RunOutcome.record"
            )
            raise InvalidParameter("protocol", "(as run)", reason)
        return self.record


class RoundRefused(AggregationRefused):
    r"""Raised if a round failed without an estimate; charge the ``release`` of this error.

    ``release`` is the record that the run would have returned; the aggregation's error is the
    ``__cause__``. With colluding users the server may know the sum of a round that failed.
    """

    def __init__(self, message: str, sender: str | None, reason: str, release: Release) -> None:
        super().__init__(message, sender, reason)
        self.args = (message, sender, reason, release)
        self.release = release

    def __str__(self) -> str:
        advice = "charge the release of this error, and draw fresh noise for the next round"
        return f"{super().__str__()}; {advice}"


Protocol: TypeAlias = (
    AggregatedSum
    | LocalSum
    | CentralSum
    | ShuffledPure
    | BinaryShuffle
    | VectorShuffle
    | PureShuffle
)


def run(
    protocol: Protocol,
    values: Values,
    functionality: Aggregation | RelaxedAggregation | Shuffler,
    *,
    batch: str,
    vanish: Mapping[str, Step] = NOBODY,
    colluding: Collection[str] = (),
    rng: Rng = SYSTEM,
) -> RunOutcome:
    r"""Run a protocol once: all n users, the functionality and the analyzer.

    Protocols of sums need a secure aggregation as ``functionality``, and protocols of bits a
    :class:`Shuffler`. :class:`ShuffledPure` needs a :class:`RelaxedAggregation`: its guarantee
    assumes such an aggregation, and the run outputs the sum itself. ``vanish`` maps each dropout to
    the step at which it drops out, and ``colluding`` names the users who reveal their noise to the
    server. In the result, ``honest`` counts all other participants, and the mechanism of the
    release contains only their noise.

    >>> from dpcore import DiscreteLaplace, SeededRng
    >>> share = DiscreteLaplace(scale=4).share(4)
    >>> protocol = AggregatedSum(users=4, precision=4, threshold=100, share=share)
    >>> ideal = IdealAggregation(modulus=protocol.modulus)
    >>> inputs = {"ann": 1, "bob": 0, "eve": "1/2", "joe": "1/4"}
    >>> outcome = run(protocol, inputs, ideal, batch="monday", vanish={"joe": Step.INPUT})
    >>> outcome.participants, outcome.honest, outcome.release.mechanism.noise
    (('ann', 'bob', 'eve'), 3, PolyaDifference(shape='3/4', scale=4))

    Raises :class:`InvalidParameter` if

    - there is not exactly one value for each of the n users;
    - the modulus of the aggregation is not that of the protocol;
    - ``vanish`` or ``colluding`` contains an unknown name;
    - there are more colluding users than a masked aggregation tolerates;
    - no honest user remains.

    Raises :class:`RoundRefused` if more users drop out than a masked aggregation tolerates. There
    is no estimate then, but with colluding users the server may know the sum. Charge the error's
    ``release`` as if the round had succeeded, and draw fresh noise for the next round. If the noise
    were reused, the difference of two sums of the same messages would reveal the users who are in
    only one of the sums. If a masked aggregation failed before ``UnmaskReply``, a semi-honest
    server learned nothing; charging the release is still the safe choice.

    >>> from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation
    >>> masked = MaskedAggregation(users=4, dropouts=1, coordinates=1, modulus=protocol.modulus)
    >>> gone = {"eve": Step.UNMASK, "joe": Step.UNMASK}
    >>> try:
    ...     run(protocol, inputs, masked, batch="monday", vanish=gone, colluding=["bob"])
    ... except RoundRefused as refused:
    ...     refused.release.participants, refused.release.mechanism.noise
    (('ann', 'bob', 'eve', 'joe'), PolyaDifference(shape='3/4', scale=4))
    """
    assumed = _ASSUMED.get(type(protocol))
    if assumed is None:
        raise InvalidParameter(
            "protocol", protocol, "must be a sum or shuffle protocol of dpcore.protocols"
        )
    crowd = _crowd(protocol.users, values, vanish, colluding)
    record = None
    if not isinstance(protocol, (ShuffledPure, PureShuffle)):
        # For these protocols the noise is one draw, independently of the number of users.
        alone = isinstance(protocol, (LocalSum, CentralSum))
        record = Release(
            mechanism=protocol.mechanism(crowd.honest),
            batch=batch,
            participants=crowd.present,
            honest=Fraction(1) if alone else Fraction(crowd.honest, protocol.users),
        )
    estimate: Fraction | tuple[Fraction, ...]
    if isinstance(protocol, (BinaryShuffle, VectorShuffle, PureShuffle)):
        if not isinstance(functionality, Shuffler):
            raise InvalidParameter("functionality", functionality, "must be a Shuffler")
        sent = protocol.randomize(crowd.held[crowd.places], rng=rng)
        estimate = protocol.analyze(functionality.shuffle(sent, rng=rng))
    else:
        try:
            total = _sum(protocol, crowd, functionality, vanish, rng)
        except AggregationRefused as error:
            if record is None:
                raise
            raise RoundRefused(error.message, error.sender, error.reason, record) from error
        estimate = protocol.analyze(total, rng=rng)
    return RunOutcome(
        estimate=estimate,
        participants=crowd.present,
        honest=crowd.honest,
        record=record,
        assumptions=assumed + _of_the_graph(protocol, functionality, crowd.colluding),
    )


_SHUFFLES: Final = (BinaryShuffle, VectorShuffle, PureShuffle)
_ASSUMED: Final[dict[type, tuple[str, ...]]] = {
    AggregatedSum: ("the aggregation reveals to the server only the sum and the participants",),
    LocalSum: (),
    ShuffledPure: ("the relaxed aggregation is an assumption; dpcore does not implement one",),
    CentralSum: ("the analyzer is trusted with the sum and publishes only the estimate",),
    **dict.fromkeys(_SHUFFLES, ("the shuffler reveals to the server only the shuffled bits",)),
}


def _of_the_graph(protocol: object, functionality: object, colluding: int) -> tuple[str, ...]:
    if not isinstance(protocol, AggregatedSum) or not isinstance(functionality, MaskedAggregation):
        return ()
    if functionality.neighbourhood is None:
        return ()
    fails, chance = "never fails", functionality.exposure(colluding)
    if chance:  # rounded up to a power of two
        power = (chance.denominator // chance.numerator).bit_length() - 1
        fails = f"fails with probability <= 2^-{power}, to be added to delta"
    return (f"collusion and dropouts do not depend on the graph; the graph {fails}",)


@dataclass(frozen=True, slots=True)
class _Participants:
    # The values and names of all users, the indices and names of the participants, the number of
    # honest participants, and the number of colluding users, including dropouts.
    held: npt.NDArray[Any]
    names: tuple[str, ...]
    places: Integers
    present: tuple[str, ...]
    honest: int
    colluding: int


def _crowd(
    users: int, values: Values, vanish: Mapping[str, Step], colluding: Collection[str]
) -> _Participants:
    refuse_masked("values", values)
    if not callable(getattr(values, "index", len)) and not isinstance(values, Mapping):
        # The index of a pandas series, probably the users' names, would be lost.
        reason = "must be a list, an array, or a mapping of names to values (series.to_dict())"
        raise InvalidParameter("values", values, reason)
    try:
        if isinstance(values, Mapping):
            names = tuple(values)
            held = np.array([*values.values()], dtype=object)  # exact rationals are kept
        else:
            held = np.asarray(values)
            names = tuple(str(place) for place in range(len(held) if held.ndim else 0))
    except ValueError:
        raise InvalidParameter("values", values, "must be an array or a mapping") from None
    if len(names) != users:
        raise InvalidParameter("values", values, f"must contain {users} values, one per user")
    places = staying(names, vanish)
    present = tuple(names[place] for place in places)
    listed = isinstance(colluding, Collection) and not isinstance(colluding, str)
    if not listed or not all(isinstance(name, str) for name in colluding):
        raise InvalidParameter("colluding", colluding, "must be a collection of user names")
    if not (hidden := set(colluding)) <= set(names):
        raise InvalidParameter("colluding", colluding, "must be names of users in this run")
    honest = len(present) - len(hidden.intersection(present))
    if not honest:
        raise InvalidParameter("colluding", colluding, "must leave at least one honest user")
    return _Participants(held, names, np.array(places), present, honest, len(hidden))


def _sum(
    protocol: AggregatedSum | LocalSum | CentralSum | ShuffledPure,
    crowd: _Participants,
    functionality: Aggregation | RelaxedAggregation | Shuffler,
    vanish: Mapping[str, Step],
    rng: Rng,
) -> int:
    relaxed = isinstance(functionality, RelaxedAggregation)
    if relaxed != isinstance(protocol, ShuffledPure):
        reason = "must be a RelaxedAggregation if, and only if, the protocol is a ShuffledPure"
        raise InvalidParameter("functionality", functionality, reason)
    if isinstance(functionality, RelaxedAggregation):
        # Revealing the exact sum is an (epsilon_hat, q_hat)-relaxed aggregation for all parameters.
        functionality = IdealAggregation(modulus=functionality.modulus)
    if isinstance(functionality, Shuffler) or not hasattr(functionality, "total"):
        raise InvalidParameter("functionality", functionality, "must be a secure aggregation")
    if functionality.modulus != protocol.modulus:
        reason = f"must have modulus = {protocol.modulus}, like the protocol"
        raise InvalidParameter("functionality", functionality, reason)
    if crowd.held.ndim != 1:
        reason = "must contain one number per user: the sensitivity is for one number"
        raise InvalidParameter("values", crowd.held, reason)
    if (
        isinstance(functionality, MaskedAggregation)
        and isinstance(protocol, AggregatedSum)
        and functionality.exposure(crowd.colluding) > MOST_EXPOSURE
    ):
        # So many users may have enough shares of a secret for the server to unmask messages.
        needed = functionality.threshold
        reason = f"must be fewer than {needed} users: n - t = {needed} can unmask all inputs"
        if functionality.neighbourhood is not None:
            reason = "must be fewer users: more than the sum is revealed with probability > 2^-40"
        raise InvalidParameter("colluding", crowd.colluding, reason)
    if isinstance(functionality, IdealAggregation) and not functionality.per_user:
        return protocol.sum_at_once(crowd.held[crowd.places], rng=rng)
    sent = protocol.randomize(crowd.held, rng=rng)
    messages = {name: sent[place : place + 1] for place, name in enumerate(crowd.names)}
    total = functionality.total(messages, vanish, rng=rng)
    if set(total.participants) != set(crowd.present):
        reason = "must return the sum over the users who sent their input"
        raise InvalidParameter("functionality", functionality, reason)
    return int(total.sum[0])
