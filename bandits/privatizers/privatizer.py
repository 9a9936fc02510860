r"""Privatize rewards: one batch of one arm becomes one released sum, all that a policy sees.

A privatizer says for every number of users which protocol they run. Its noise, its bits, its
guarantee and what it releases are those of that protocol (``bandits.privatizers.protocols``), and
never stated beside it. The kinds: ``none`` (here), ``sums``, shuffled ``bits``, ``pure_shuffle``
and, for users who come back, ``returning``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

import numpy as np

from accounting.claims.guarantee import Guarantee
from bandits.batch import Ask, Encoding, OwnRounds, ReleasedSum
from bandits.privatizers.promise import Releasing
from bandits.privatizers.protocols import (
    EVERYONE,
    AnyProtocol,
    Deployment,
    Relaxed,
    guarantee_of,
    implied,
    masked_sum,
    mechanism_of,
    noise_by_user,
    noise_of,
)
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.noise import Noise
from dpcore.numbers.parameter import integer
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.shuffled_bits import BinaryShuffle
from dpcore.protocols.sums import AggregatedSum, CentralSum, LocalSum, ModularSum, ShuffledPure
from dpcore.sampling.rng import SYSTEM, Rng

__all__ = ["Privatizer", "Unprotected"]

_PLAIN_STEPS: Final = 1 << 20


class Privatizer(Releasing[int]):
    r"""Release the sum of ``pulls`` rewards privately. Subclass it for a method of your own.

    All methods take the number of users n = ``pulls`` >= 1, since g, m and noise depend on it. One
    of your own says its name, the epsilon of the formulas and the protocol; everything else follows
    from the protocol, and a class that says it itself is refused by a :class:`TypeError`. Only
    ``release`` may be written anew, of the same law: as messages, say. It is trusted, and audited.

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
    the aggregation shows the server the sum and who is in it only
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # `final` is for type checkers; a slip is refused without one, too.
        for name in sorted(vars(cls)):
            if getattr(getattr(Privatizer, name, None), "__final__", False):
                raise TypeError(f"{cls.__name__}.{name} follows from the protocol: leave it out")

    @abstractmethod
    def protocol(self, pulls: int) -> AnyProtocol | None:
        r"""What n users run, the same for equal n; None where nothing is protected."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""What the guarantee takes for granted beside the noise and what its protocol implies."""
        return ()

    @property
    def relaxed(self) -> Relaxed | None:
        r"""What :class:`ShuffledPure` is assumed to run over; None for every other protocol."""
        return None

    @property
    def deployment(self) -> Deployment:
        r"""Who of n users stays and is honest, and what adds up their messages."""
        return EVERYONE

    @property
    def least_noise(self) -> Noise | None:
        r"""A law that the noise of each release has at least, and is promised; None: its own."""
        return None

    @final
    def reporting(self, pulls: int) -> int:
        r"""Whose rewards are in the sum, of n users, when as many vanish as is planned for."""
        return pulls if self.protocol(pulls) is None else self.deployment.reporting(pulls)

    @final
    def precision(self, pulls: int) -> int:
        r"""g: the steps in which a reward of a batch of n is encoded."""
        protocol = self._of(pulls)
        if protocol is None:
            return _PLAIN_STEPS
        return protocol.precision if isinstance(protocol, ModularSum) else 1

    @final
    def bits(self, pulls: int) -> int:
        r"""The length of one user's message in a batch of n."""
        protocol = self._of(pulls)
        return _PLAIN_STEPS.bit_length() if protocol is None else protocol.bits_per_user

    @final
    def noise(self, pulls: int) -> Noise | None:
        r"""The law of the noise of the sum of those who report, in steps of 1/g, or None for none.

        A law that is not centred is taken less its mean: the analyzer subtracts that.
        """
        protocol = self._of(pulls)
        return None if protocol is None else noise_of(protocol, self.reporting(pulls))

    @final
    def missed(self, pulls: int) -> Fraction:
        r"""An upper bound of the chance that the noise of a batch of n is none of :meth:`noise`.

        0 but for a :class:`PureShuffle`, whose covers stand for rewards.
        """
        protocol = self._of(pulls)
        if not isinstance(protocol, PureShuffle):
            return Fraction(0)
        return protocol.missed(self.reporting(pulls))

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        r"""The released sum of rewards, in units of reward, from the sum of their encodings.

        Of the n users those who report are in it (:meth:`reporting`). One fresh release at each
        call. The noise is drawn at once where the users' shares make one
        law, and user by user in the local model. Raises :class:`InvalidParameter` for a sum outside
        of [0, n g].
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
                # The law of the sum is known, but its tables would take longer to build.
                drawn = noise_by_user(protocol.noise, users=present, runs=1, rng=rng)
                total += sum(int(part.sum()) for part in drawn)
            case AggregatedSum() if self.deployment.aggregation == "masked":
                return ReleasedSum(masked_sum(protocol, total, self.deployment, rng))
            case AggregatedSum() | ShuffledPure():
                total += noise_of(protocol, present).sample(rng=rng)
            case CentralSum():
                pass  # the analyzer adds its noise itself
        return ReleasedSum(protocol.analyze(total % protocol.modulus, rng=rng))

    @final
    def guarantee(self, pulls: int) -> Guarantee | None:
        r"""What a release of a batch of n promises each user in it; None where nothing is.

        Raises :class:`NotDerived` for :class:`ShuffledPure` over nothing that is ``relaxed``, and
        for a :class:`PureShuffle` that is not certified for the epsilon of its shares.
        """
        protocol = self._of(pulls)
        if protocol is None:
            return None
        return guarantee_of(protocol, self.deployment, self.least_noise, self.relaxed)

    @final
    def assumed(self, pulls: int) -> tuple[str, ...]:
        r"""All that the guarantee of a batch of n takes for granted beside the noise."""
        found = implied(self._of(pulls), self.relaxed, self.deployment)
        return tuple(dict.fromkeys((*found, *self.assumptions)))

    @final
    def record(self, pulls: int, batch: str) -> Release | None:
        r"""The record of one release, for accounting, ledgers and certificates.

        None where no mechanism says all that the server sees.
        """
        protocol = self._of(pulls)
        if protocol is None or isinstance(protocol, (ShuffledPure, PureShuffle)):
            return None
        mechanism = mechanism_of(protocol, self.deployment, self.least_noise)
        return Release(mechanism=mechanism, batch=batch)

    @final
    def size_of(self, ask: Ask) -> int:
        if not isinstance(ask, OwnRounds) or len(ask.actions) != 1:
            reason = "releases sums of one arm: averages of several actions need another privatizer"
            raise InvalidParameter("privatizer", self.name, reason)
        return ask.users

    @final
    def present(self, ask: Ask) -> Ask:
        return OwnRounds(self.reporting(ask.users), ask.actions)

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
        r"""``encoded_sum``, if n encodings can have it; :class:`InvalidParameter` otherwise."""
        total = integer("encoded_sum", encoded_sum, at_least=0)
        if total > self.reporting(pulls) * self.precision(pulls):
            raise InvalidParameter("encoded_sum", encoded_sum, "must be <= pulls * precision")
        return total

    @final
    def _of(self, pulls: int) -> AnyProtocol | None:
        # The protocol of n users: the noise of fewer would be taken for that of all.
        users = integer("pulls", pulls, at_least=1)
        protocol = self.protocol(users)
        if protocol is not None and protocol.users != users:
            reason = f"must have a protocol of {users} users, not of {protocol.users}"
            raise InvalidParameter("privatizer", self.name, reason)
        self.deployment.check(self.name, users, secure=isinstance(protocol, AggregatedSum))
        return protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected(Privatizer):
    r"""No privacy: the sum itself, rewards read in 2^20 steps. The floor of every comparison.

    >>> Unprotected().release(3 << 20, 8), Unprotected().guarantee(8)
    (Fraction(3, 1), None)
    """

    @property
    def name(self) -> str:
        return "none"

    @property
    def epsilon(self) -> None:
        return None

    def protocol(self, pulls: int) -> None:
        integer("pulls", pulls, at_least=1)
