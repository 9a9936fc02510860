r"""Protocols P = (R, S, A) of distributed privacy: local randomizer, aggregation, analyzer.

Each user has an x in [0, 1]. The randomizer R encodes x as an integer number of steps and adds
noise modulo m. The aggregation S reveals only the sum modulo m to the server. The analyzer A
decodes the sum. Source: Chowdhury and Zhou, "Distributed Differential Privacy in Multi-Armed
Bandits" (arXiv 2206.05772), Algorithms 2 to 7. Protocols whose messages are bits for a shuffler are
in ``shuffled_bits``.

A protocol is defined by integers and noise laws, and states no epsilon: ``accounting`` derives the
guarantee from ``mechanism(honest)``. Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, overload

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.sum_of_shares import summed
from dpcore.mechanism import Mechanism
from dpcore.noise import Noise, batch_of
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, Whole, check_fields, integer, rational_in
from dpcore.protocols.fixed_point_encoding import MOST_STEPS, FixedPoint, RealsLike, as_array
from dpcore.sampling.rng import SYSTEM, Rng

_MOST: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ModularSum(ABC):
    r"""The common base class: a randomizer and an analyzer for a sum mod m = n g + 2 tau + 1.

    Let n = ``users``, g = ``precision`` steps per unit, and tau = ``threshold``. The randomizer of
    each user sends (E(x) + eta) mod m, where E is the encoding and eta the noise. Let y be the sum
    of these messages mod m. The analyzer returns (y - m)/g if y > n g + tau, otherwise y/g. If the
    noise of the sum lies in [-tau, tau], the result times g is exactly the sum of the encodings
    plus the noise; ``size_protocol`` bounds the probability of failure. A larger ``modulus``, such
    as a power of two, is allowed; a smaller one raises an error.
    """

    name: ClassVar[str]

    users: Whole = Whole()
    precision: Whole = Whole(at_most=MOST_STEPS)
    threshold: Whole = Whole(at_least=0)
    modulus: int = None  # type: ignore[assignment]  # __post_init__ sets the smallest one

    def __post_init__(self) -> None:
        check_fields(self)
        need = self.users * self.precision + 2 * self.threshold + 1
        modulus = need if self.modulus is None else integer("modulus", self.modulus)
        if modulus < need:
            reason = f"must be >= n g + 2 tau + 1 = {need}: otherwise sums wrap around"
            raise InvalidParameter("modulus", modulus, reason)
        if modulus > _MOST:
            raise InvalidParameter("modulus", modulus, "must be <= 2^62 to fit int64 messages")
        object.__setattr__(self, "modulus", modulus)

    @property
    @abstractmethod
    def local_noise(self) -> Noise | None:
        r"""The law of the noise that each user adds before sending, or None if users add none."""

    @property
    def central_noise(self) -> Noise | None:
        r"""The law of the noise that the analyzer adds before publishing; None if it adds none."""
        return None

    @abstractmethod
    def total_noise(self, present: int) -> Noise:
        r"""The law of the total noise in the estimate, in steps, if ``present`` users take part."""

    @property
    def planned_noise(self) -> Noise:
        r"""The law of the total noise in the estimate, in steps, if all users take part."""
        return self.total_noise(self.users)

    def bias(self, present: int) -> Fraction:
        r"""The offset that the analyzer subtracts from a sum: 0, because noise is symmetric."""
        del present
        return Fraction(0)

    def square_error(self, present: int) -> Fraction:
        r"""An upper bound on the variance of the noise in an estimate for ``present`` users.

        It is valid if the sum does not wrap around the modulus.
        """
        variance = self.total_noise(present).variance
        most = variance.upper if isinstance(variance, Enclosure) else variance
        return Fraction(most) / self.precision**2

    @property
    def encoding(self) -> FixedPoint:
        r"""The encoding E, the same for every user."""
        return FixedPoint(precision=self.precision)

    @property
    def bits_per_user(self) -> int:
        r"""The number of bits of a message: ceil(log2 m), where m is the modulus."""
        return (self.modulus - 1).bit_length()

    @overload
    def randomize(self, x: RationalLike, *, rng: Rng = ...) -> int: ...
    @overload
    def randomize(self, x: RealsLike, *, rng: Rng = ...) -> Integers: ...
    def randomize(self, x: RationalLike | RealsLike, *, rng: Rng = SYSTEM) -> int | Integers:
        r"""Randomizer: draw a user's message (E(x) + eta) mod m, or those of all entries of x."""
        noise = self.local_noise
        if not isinstance(x, (list, tuple, np.ndarray)):
            steps = self.encoding.encode(x, rng=rng)
            return (steps + (noise.sample(rng=rng) if noise else 0)) % self.modulus
        held = as_array(x)
        if held.size > self.users:
            raise InvalidParameter("x", x, f"must contain at most users = {self.users} values")
        if noise is not None:
            batch_of(noise)  # raises an error before any draw
        encoded = self.encoding.encode(held, rng=rng)
        if noise is not None:
            encoded = encoded + noise.sample(held.shape, rng=rng)
        messages: Integers = np.remainder(encoded, self.modulus)
        return messages

    def sum_at_once(self, x: RealsLike, *, rng: Rng = SYSTEM) -> int:
        r"""Draw the sum mod m of the users' messages for the inputs x; draw all noise at once."""
        held = as_array(x)
        if not 1 <= held.size <= self.users:
            reason = f"must contain one value per user, for 1 to {self.users} users"
            raise InvalidParameter("x", x, reason)
        noise = self.local_noise
        steps = int(np.sum(self.encoding.encode(held, rng=rng)))
        if noise is not None:
            steps += summed(noise, held.size).sample(rng=rng)
        return steps % self.modulus

    @overload
    def unwrap(self, y: int) -> int: ...
    @overload
    def unwrap(self, y: npt.NDArray[np.integer[Any]]) -> Integers: ...
    def unwrap(self, y: int | npt.NDArray[np.integer[Any]]) -> int | Integers:
        r"""Return the signed sum that the residue y represents: y - m if y > n g + tau, else y."""
        edge = self.users * self.precision + self.threshold
        if not isinstance(y, np.ndarray):
            whole = integer("y", y, at_least=0)
            if whole >= self.modulus:
                raise InvalidParameter("y", y, f"must be < m = {self.modulus}")
            return whole - self.modulus if whole > edge else whole
        if y.dtype.kind not in "iu" or (y.size and not 0 <= y.min() <= y.max() < self.modulus):
            raise InvalidParameter("y", y, f"must contain integers in [0, m), m = {self.modulus}")
        wide = y.astype(np.int64)
        return np.where(wide > edge, wide - self.modulus, wide)

    @overload
    def analyze(self, y: int, *, rng: Rng = ...) -> Fraction: ...
    @overload
    def analyze(self, y: npt.NDArray[np.integer[Any]], *, rng: Rng = ...) -> Floats: ...
    def analyze(
        self, y: int | npt.NDArray[np.integer[Any]], *, rng: Rng = SYSTEM
    ) -> Fraction | Floats:
        r"""Analyzer: estimate the sum of x from y, the sum of the messages mod m.

        The estimate is an exact rational, or the nearest float for each entry of an array. If the
        analyzer adds noise, each call draws fresh noise and is another release.
        """
        noise = self.central_noise
        read = self.unwrap(y)
        if noise is None:
            return self.encoding.decode(read)
        if not isinstance(y, np.ndarray):
            total = (read + noise.sample(rng=rng)) % self.modulus
            return self.encoding.decode(self.unwrap(total))
        totals = np.remainder(read + noise.sample(y.shape, rng=rng), self.modulus)
        return self.encoding.decode(self.unwrap(totals))

    @abstractmethod
    def observed_noise(self, honest: int) -> Noise:
        r"""The law of the noise that protects one of ``honest`` users who follow the protocol."""

    def sum_mechanism(self, honest: int) -> Mechanism:
        r"""The mechanism that adds the observed noise to a sum with a sensitivity of g steps."""
        return Mechanism(noise=self.observed_noise(honest), sensitivity=self.precision)

    def _check_honest(self, honest: int) -> int:
        return integer("honest", honest, at_least=1, at_most=self.users, limit="users")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared(ModularSum):
    # Each user adds a share of the noise: the noise of all honest participants protects each user.
    share: Noise

    @property
    def local_noise(self) -> Noise:
        return self.share

    def total_noise(self, present: int) -> Noise:
        return summed(self.share, self._check_honest(present))

    def observed_noise(self, honest: int) -> Noise:
        return self.total_noise(honest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole(ModularSum):
    # One draw of noise protects a user, independently of the other users.
    noise: Noise

    def __post_init__(self) -> None:
        ModularSum.__post_init__(self)
        _check_noise("noise", self.noise)

    def observed_noise(self, honest: int) -> Noise:
        self._check_honest(honest)
        return self.noise

    mechanism = ModularSum.sum_mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedSum(_Shared):
    r"""Sum by secure aggregation: each user adds a share of the noise (Algorithms 2 and 3).

    ``share`` is the law of one user's noise. For a scale s, a variance v and n = ``users``, it is
    PolyaDifference(1/n, s) for pure DP (Theorem 1), Skellam(v/n) for Renyi DP (Theorem 2), or
    DiscreteGaussian(v/n) for concentrated DP (Theorem 4). The numbers refer to Chowdhury and Zhou
    (arXiv 2206.05772). ``noise.share(n)`` derives the law of a share from the law of the total
    noise. The server sees only the sum mod m, so the noise of all honest participants protects each
    contribution.

    >>> share = DiscreteLaplace(scale=32).share(1024)
    >>> protocol = AggregatedSum(users=1024, precision=32, threshold=700, share=share)
    >>> protocol.modulus, protocol.bits_per_user
    (34169, 16)
    >>> protocol.observed_noise(512)
    PolyaDifference(shape='1/2', scale=32)
    >>> protocol.analyze(34169 - 64)
    Fraction(-2, 1)
    """

    name: ClassVar[str] = "aggregated"

    def __post_init__(self) -> None:
        ModularSum.__post_init__(self)
        _check_noise("share", self.share)

    mechanism = ModularSum.sum_mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSum(_Whole):
    r"""Sum with local privacy: the noise of each user suffices to protect x (Algorithms 6 and 7).

    ``noise`` is the law of each user's noise, DiscreteLaplace(``precision``/epsilon) in Theorem 6
    of Chowdhury and Zhou (arXiv 2206.05772). Neither the aggregation nor other users are trusted,
    so the observed noise is that of one message.

    >>> protocol = LocalSum(users=4, precision=2, threshold=99, noise=DiscreteLaplace(scale=2))
    >>> protocol.planned_noise, protocol.observed_noise(1)
    (PolyaDifference(shape=4, scale=2), DiscreteLaplace(scale=2))
    """

    name: ClassVar[str] = "local"

    @property
    def local_noise(self) -> Noise:
        return self.noise

    def total_noise(self, present: int) -> Noise:
        return summed(self.noise, self._check_honest(present))


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralSum(_Whole):
    r"""Sum with central privacy: the analyzer adds noise to the exact sum (Algorithms 4 and 5).

    ``noise`` is the law of the analyzer's noise, DiscreteLaplace(``precision``/epsilon) in Theorem
    5 of Chowdhury and Zhou (arXiv 2206.05772). All users trust the analyzer; only the estimate that
    it publishes is private.

    >>> protocol = CentralSum(users=4, precision=2, threshold=99, noise=DiscreteLaplace(scale=2))
    >>> protocol.local_noise is None, protocol.randomize(0.5)
    (True, 1)
    """

    name: ClassVar[str] = "central"

    @property
    def local_noise(self) -> None:
        return None

    @property
    def central_noise(self) -> Noise:
        return self.noise

    def total_noise(self, present: int) -> Noise:
        return self.observed_noise(present)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledPure(_Shared):
    r"""Sum with pure DP over an aggregation that shuffling approximates.

    This is Theorem 3 of Chowdhury and Zhou (arXiv 2206.05772). The protocol is
    :class:`AggregatedSum` with PolyaDifference shares, except that the server sees more than the
    sum: an (epsilon_hat, q_hat)-relaxed aggregation adds 2 epsilon_hat to epsilon. dpcore does not
    implement such an aggregation, so there is no ``mechanism``: :meth:`sum_mechanism` describes
    only the sum, and ``run`` returns no release record.

    >>> share = DiscreteLaplace(scale=64).share(16)
    >>> protocol = ShuffledPure(users=16, precision=32, threshold=900, share=share)
    >>> protocol.sum_mechanism(16).noise
    DiscreteLaplace(scale=64)

    Raises :class:`InvalidParameter` if the share is not PolyaDifference or DiscreteLaplace.
    """

    name: ClassVar[str] = "shuffled-pure"

    def __post_init__(self) -> None:
        ModularSum.__post_init__(self)
        if not isinstance(self.share, (PolyaDifference, DiscreteLaplace)):
            reason = (
                "must be PolyaDifference or DiscreteLaplace, because Theorem 3 of Chowdhury and "
                "Zhou (arXiv 2206.05772) needs pure-DP noise"
            )
            raise InvalidParameter("share", self.share, reason)


def _check_noise(argument: str, noise: Noise) -> None:
    if not isinstance(noise, Noise):
        raise InvalidParameter(argument, noise, "must be a Noise, e.g. DiscreteLaplace")
    if not noise.symmetric:
        raise InvalidParameter(argument, noise, "must be symmetric, or the estimate is biased")
    summed(noise, 2)  # raises an error if dpcore does not implement sums of this law


_MOST_BITS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSize:
    r"""A certified threshold tau and the modulus m of a :class:`ModularSum`.

    ``wraparound`` encloses P(\|noise\| > tau); for every dataset, its upper bound also bounds the
    probability that an estimate is wrong by m/g. ``one_less`` encloses P(\|noise\| > tau - 1),
    which exceeds the allowed failure probability, so that no smaller tau suffices. It is None if
    tau is 0.
    """

    threshold: int
    modulus: int
    wraparound: Enclosure
    one_less: Enclosure | None

    @property
    def bits_per_user(self) -> int:
        r"""The number of bits of a message: ceil(log2 m), where m is the modulus."""
        return (self.modulus - 1).bit_length()


def size_protocol(
    *, users: int, precision: int, noise: Noise, failure: RationalLike
) -> ProtocolSize:
    r"""Find the least tau with a certified P(\|X\| > tau) <= ``failure``, and m = n g + 2 tau + 1.

    ``noise`` is the law of the total noise X in the sum, ``protocol.planned_noise``. For the laws
    that a protocol accepts, dropouts only reduce the tail, so tau is valid for any number of
    remaining users. A tail that 1024 bits cannot separate from ``failure`` counts as too large.

    >>> from dpcore import DiscreteLaplace
    >>> size = size_protocol(
    ...     users=1024, precision=32, noise=DiscreteLaplace(scale=32), failure="1e-6"
    ... )
    >>> size.threshold, size.modulus, size.bits_per_user
    (442, 33653, 16)
    >>> size.wraparound.upper <= Fraction(1, 10**6) < size.one_less.lower
    True

    Raises :class:`InvalidParameter` if users or precision is below 1, if ``noise`` is not a
    :class:`Noise`, or if the failure probability is outside (0, 1).
    """
    users = integer("users", users, at_least=1)
    precision = integer("precision", precision, at_least=1)
    if not isinstance(noise, Noise):
        raise InvalidParameter("noise", noise, "must be a Noise, e.g. DiscreteLaplace")
    chance = rational_in("failure", failure, "(0, 1)")
    threshold = least(lambda t: t >= 0 and _certified(noise, t, chance), 0)
    return ProtocolSize(
        threshold=threshold,
        modulus=users * precision + 2 * threshold + 1,
        wraparound=noise.enclose_tail(threshold),
        one_less=noise.enclose_tail(threshold - 1) if threshold else None,
    )


def _certified(noise: Noise, threshold: int, chance: Fraction) -> bool:
    bits = 64
    while bits <= _MOST_BITS:
        tail = noise.enclose_tail(threshold, bits)
        if tail.upper <= chance:
            return True
        if tail.lower > chance:
            return False
        bits *= 2
    return False
