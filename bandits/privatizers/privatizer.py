r"""Privatizers, which release noisy sums of rewards; a policy receives nothing else.

:class:`Releasing` is the interface for encoding, release, record and guarantee. Releases may differ
in their *size*, which determines their noise. The size of a sum of one arm (:class:`Privatizer`) is
the number of users. The size of averages of several actions consists of the numbers of users and
actions (``bandits.privatizers.vector_averages``). Which releases contain a given user is not known
in advance, so the guarantee of a run is the worst over all possible participations of a user
(``bandits.privatizers.run_guarantee``).

A privatizer defines the protocol for every number of users. Its noise, bits, guarantee and releases
are derived from that protocol (``bandits.privatizers.deployment``). The privatizer without privacy
is in this module, those for sums, shuffled bits and pure shuffles are in
``batch_sums_by_trust_model``, and those for returning users are in ``returning_users``. Proofs:
docs/proofs/bandits.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Generic, TypeVar, final

import numpy as np

from accounting.guarantees.guarantee import Guarantee
from bandits.batch import Ask, Encoding, ReleasedSum
from bandits.privatizers.deployment import (
    EVERYONE,
    AnyProtocol,
    Deployment,
    Relaxed,
    guarantee_of,
    implied,
    masked_sum,
    mechanism_of,
    noise_by_user,
)
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.noise import Noise
from dpcore.numbers.parameter import RationalLike, check_fields, integer
from dpcore.protocols.noisy_sums import AggregatedSum, CentralSum, LocalSum, ShuffledPure
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle
from dpcore.sampling.rng import SYSTEM, Rng

Size = TypeVar("Size")


class Releasing(ABC, Generic[Size]):
    r"""The interface of privatizers, which release private sums of the users' data."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    @abstractmethod
    def name(self) -> str:
        r"""The trust model, e.g. ``"central"``."""

    @property
    @abstractmethod
    def epsilon(self) -> RationalLike | None:
        r"""The epsilon in the papers' formulas for the noise, or None without privacy."""

    @abstractmethod
    def size_of(self, ask: Ask) -> Size:
        r"""The size of the release that answers the request ``ask``."""

    def present(self, ask: Ask) -> Ask:
        r"""The request ``ask`` reduced to the users who do not drop out."""
        return ask

    @abstractmethod
    def encoding(self, size: Size) -> Encoding:
        r"""The encoding of each user's value, applied on the user's device."""

    @abstractmethod
    def bits(self, size: Size) -> int:
        r"""The number of bits that one user sends."""

    @abstractmethod
    def release_sums(
        self, encoded: Sequence[int], size: Size, rng: Rng = SYSTEM
    ) -> tuple[ReleasedSum, ...]:
        r"""Release a noisy value of each sum of encodings, in units of reward."""

    @abstractmethod
    def guarantee(self, size: Size) -> Guarantee | None:
        r"""The guarantee of a release for each participating user, or None without privacy."""

    @abstractmethod
    def assumed(self, size: Size) -> tuple[str, ...]:
        r"""The assumptions of :meth:`guarantee`, except those about the noise source."""

    @abstractmethod
    def record(self, size: Size, batch: str) -> Release | None:
        r"""The record of a release for accounting; None if no mechanism describes the release."""


_PLAIN_STEPS: Final = 1 << 20


class Privatizer(Releasing[int]):
    r"""Base class of privatizers that release the sum of the rewards of one arm in a batch.

    All methods take the number of users n = ``pulls`` >= 1, on which the precision g, the modulus m
    and the noise depend. A subclass defines its name, the epsilon in the papers' formulas and the
    protocol. The final methods follow from the protocol, and overriding them raises
    :class:`TypeError`. ``release`` may be overridden, for example to send messages, if the law of
    the output is the same. An override is trusted code; test it with an audit.

    >>> from dpcore import DiscreteLaplace
    >>> class Halves(Privatizer):
    ...     name, epsilon = "halves", Fraction(1, 2)
    ...
    ...     def protocol(self, pulls: int) -> AggregatedSum:
    ...         share = DiscreteLaplace(scale=32).share(pulls)
    ...         return AggregatedSum(users=pulls, precision=16, threshold=500, share=share)
    >>> halves = Halves()
    >>> halves.guarantee(64).pure(), halves.noise(64), halves.bits(64)
    (Bound([0.5, 0.5], 'exact'), DiscreteLaplace(scale=32), 11)
    >>> print(halves.assumed(64)[0])
    the aggregation shows the server only the sum and which users are in it
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # `final` is for type checkers; this check also works without one.
        for name in sorted(vars(cls)):
            if getattr(getattr(Privatizer, name, None), "__final__", False):
                raise TypeError(
                    f"{cls.__name__}.{name} must not be overridden: it follows from the protocol"
                )

    @abstractmethod
    def protocol(self, pulls: int) -> AnyProtocol | None:
        r"""The protocol of n users, or None without privacy.

        Calls with the same n return equal protocols.
        """

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""Assumptions of the guarantee in addition to those of the protocol."""
        return ()

    @property
    def relaxed(self) -> Relaxed | None:
        r"""The aggregation that a :class:`ShuffledPure` assumes, or None for other protocols."""
        return None

    @property
    def deployment(self) -> Deployment:
        r"""The planned dropouts and collusion, and the kind of aggregation."""
        return EVERYONE

    @property
    def least_noise(self) -> Noise | None:
        r"""The noise that alone suffices for the guarantee, or None if all noise is needed."""
        return None

    @final
    def reporting(self, pulls: int) -> int:
        r"""The number of users, out of n = ``pulls``, who are in the sum after planned dropouts."""
        return pulls if self.protocol(pulls) is None else self.deployment.reporting(pulls)

    @final
    def precision(self, pulls: int) -> int:
        r"""The precision g in a batch of n users: a reward is encoded as an integer in [0, g]."""
        protocol = self._of(pulls)
        return _PLAIN_STEPS if protocol is None else protocol.precision

    @final
    def bits(self, pulls: int) -> int:
        protocol = self._of(pulls)
        return _PLAIN_STEPS.bit_length() if protocol is None else protocol.bits_per_user

    @final
    def noise(self, pulls: int) -> Noise | None:
        r"""The law of the noise in the sum of the :meth:`reporting` users, in steps of 1/g.

        It is None without noise. The analyzer subtracts the mean of a law that is not centred.
        """
        protocol = self._of(pulls)
        return None if protocol is None else protocol.total_noise(self.reporting(pulls))

    @final
    def missed(self, pulls: int) -> Fraction:
        r"""A bound on the probability that a sum deviates from the rewards plus :meth:`noise`.

        It is 0 except for a :class:`PureShuffle`, which may replace rewards by random messages.
        """
        protocol = self._of(pulls)
        if not isinstance(protocol, PureShuffle):
            return Fraction(0)
        return _missed(protocol, self.reporting(pulls))

    def of_parts(self, parts: Sequence[int]) -> tuple[Noise | None, Fraction]:
        r"""Return (noise, missed) for the total of several releases with the sizes ``parts``.

        ``noise`` is the law of the total noise. ``missed`` bounds the probability that the total
        deviates from the rewards plus this noise. Raises :class:`InvalidParameter` if dpcore has no
        law of the total noise.
        """
        if len(parts) == 1:
            return self.noise(*parts), self.missed(*parts)
        raise InvalidParameter(
            "pulls",
            parts,
            f"must be the size of one release: {self.name} has no law for the noise of several",
        )

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        r"""Release the sum of rewards, in units of reward, from the sum of their encodings.

        The sum is over the rewards of the :meth:`reporting` users; every call draws fresh noise.
        The noise is one draw if the law of the users' total noise is known, and is drawn user by
        user in the local model. Raises :class:`InvalidParameter` if no encodings have this sum.
        """
        protocol, total = self._of(pulls), self.checked(encoded_sum, pulls)
        present = self.reporting(pulls)
        match protocol:
            case None:
                return ReleasedSum(Fraction(total, self.precision(pulls)))
            case BinaryShuffle():
                ones = total + protocol.observed_noise(present).sample(rng=rng)
                return ReleasedSum(protocol.estimates(np.array([ones]), present)[0])
            case PureShuffle():
                ones = protocol.ones_of_bits(total, present, rng=rng)
                return ReleasedSum(protocol.estimate(ones, present))
            case LocalSum():
                total += noise_by_user(protocol.noise, users=present, sums=1, rng=rng)[0]
            case AggregatedSum() if self.deployment.aggregation == "masked":
                return ReleasedSum(masked_sum(protocol, total, self.deployment, rng))
            case AggregatedSum() | ShuffledPure():
                total += protocol.total_noise(present).sample(rng=rng)
            case CentralSum():
                pass  # the analyzer adds the noise itself
        return ReleasedSum(protocol.analyze(total % protocol.modulus, rng=rng))

    @final
    def guarantee(self, pulls: int) -> Guarantee | None:
        protocol = self._of(pulls)
        if protocol is None:
            return None
        return guarantee_of(protocol, self.deployment, self.least_noise, self.relaxed)

    @final
    def assumed(self, pulls: int) -> tuple[str, ...]:
        found = implied(self._of(pulls), self.relaxed, self.deployment)
        return tuple(dict.fromkeys((*found, *self.assumptions)))

    @final
    def record(self, pulls: int, batch: str) -> Release | None:
        protocol = self._of(pulls)
        if protocol is None or isinstance(protocol, (ShuffledPure, PureShuffle)):
            return None
        mechanism = mechanism_of(protocol, self.deployment, self.least_noise)
        return Release(mechanism=mechanism, batch=batch)

    @final
    def size_of(self, ask: Ask) -> int:
        if ask.times is not None or len(ask.actions) != 1:
            reason = "releases sums of one arm; for several actions use an AveragePrivatizer"
            raise InvalidParameter("privatizer", self.name, reason)
        return ask.users

    @final
    def present(self, ask: Ask) -> Ask:
        return Ask(self.reporting(ask.users), ask.actions)

    @final
    def encoding(self, pulls: int) -> Encoding:
        return Encoding(precision=self.precision(pulls))

    @final
    def release_sums(
        self, encoded: Sequence[int], size: int, rng: Rng = SYSTEM
    ) -> tuple[ReleasedSum, ...]:
        return tuple(self.release(total, size, rng) for total in encoded)

    @final
    def checked(self, encoded_sum: int, pulls: int) -> int:
        total = integer("encoded_sum", encoded_sum, at_least=0)
        if total > (most := self.reporting(pulls) * self.precision(pulls)):
            reason = f"must be <= {most}, the number of reporting users times the precision"
            raise InvalidParameter("encoded_sum", encoded_sum, reason)
        return total

    @final
    def _of(self, pulls: int) -> AnyProtocol | None:
        # The protocol must be for n users, because its noise is taken as that of n users.
        users = integer("pulls", pulls, at_least=1)
        protocol = self.protocol(users)
        if protocol is not None and protocol.users != users:
            reason = f"must return a protocol for {users} users, not for {protocol.users}"
            raise InvalidParameter("privatizer", self.name, reason)
        self.deployment.check(self.name, users, secure=isinstance(protocol, AggregatedSum))
        return protocol


# Cached: every batch of a run needs it, and the tail of the shares takes 10 ms.
_missed = lru_cache(maxsize=1 << 8)(PureShuffle.missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected(Privatizer):
    r"""The baseline without privacy: the sum of rewards, each rounded to a multiple of 2^-20."""

    @property
    def name(self) -> str:
        return "none"

    @property
    def epsilon(self) -> None:
        return None

    def protocol(self, pulls: int) -> None:
        integer("pulls", pulls, at_least=1)
