r"""Protocols for a shuffler, whose messages are bits.

Each user sends the unary code of a small number and some random bits. The server sees all bits in a
uniformly random order, so it learns only their sum. The random bits are binomial noise on that sum.

:class:`BinaryShuffle` is Algorithm 3 of Tenenbaum, Kaplan, Mansour and Stemmer (arXiv 2106.02900).
:class:`VectorShuffle` is Algorithms 2 and 4 of Li, Zhou and Ji (arXiv 2207.05827), after Cheu et
al. (arXiv 2106.09805). Both papers use far more noise than an exact calibration needs; here the
numbers of bits are parameters. :class:`PureShuffle` gives pure DP. Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import Exact, Whole, check_fields, integer
from dpcore.protocols.fixed_point_encoding import MOST_STEPS, FixedPoint, RealsLike, as_array
from dpcore.sampling.inversion import BLOCK
from dpcore.sampling.rng import SYSTEM, Rng

Bits: TypeAlias = npt.NDArray[np.uint8]

_ONE: Final = 1 << 256


@dataclass(frozen=True, slots=True, eq=False)
class BitMessages:
    r"""The messages of all users as bits: a uint8 array of shape (users, coordinates, bits).

    A :class:`~dpcore.protocols.run_protocol.Shuffler` accepts only this type. All messages
    have the same length, so the number of bits reveals nothing; bits of different coordinates are
    never mixed.
    """

    bits: Bits

    def __post_init__(self) -> None:
        bits = self.bits
        if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or bits.ndim != 3:
            reason = "must be a uint8 array of shape (users, coordinates, bits)"
            raise InvalidParameter("bits", bits, reason)
        if not bits.size:
            raise InvalidParameter("bits", bits, "must contain at least one bit")
        if bits.max() > 1:
            raise InvalidParameter("bits", bits, "must contain only 0 and 1")
        own = bits.copy()
        own.flags.writeable = False
        object.__setattr__(self, "bits", own)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledSum(ABC):
    r"""The common base class of protocols in which users send noisy values as bits.

    Each of n = ``users`` users sends ``width`` bits per coordinate; the number of ones among them
    is a noisy encoding. If k messages contain w ones in total, the analyzer returns
    (w - ``bias(k)``)/g, where g = ``precision`` is the number of steps per unit.
    """

    name: ClassVar[str]

    users: Whole = Whole()

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def precision(self) -> int:
        r"""The number g of steps per unit."""
        return 1

    @property
    def coordinates(self) -> int:
        r"""The number of coordinates of a value."""
        return 1

    @property
    @abstractmethod
    def width(self) -> int:
        r"""The number of bits per user and coordinate."""

    @property
    def bits_per_user(self) -> int:
        r"""The number of bits that a user sends, over all coordinates."""
        return self.width * self.coordinates

    @abstractmethod
    def bias(self, present: int) -> Fraction:
        r"""The number that the analyzer subtracts from the number of ones in a coordinate.

        It is the expected number of ones beyond the encodings of ``present`` users.
        """

    @abstractmethod
    def _ones(self, x: RealsLike, rng: Rng) -> Integers: ...

    def randomize(self, x: RealsLike, *, rng: Rng = SYSTEM) -> BitMessages:
        r"""Randomizer: draw the messages of all users; x contains one value or row per user."""
        ones = self._ones(x, rng)
        # The order within a message reveals nothing: the shuffler permutes all bits.
        return BitMessages((np.arange(self.width) < ones[..., None]).astype(np.uint8))

    def estimate(self, ones: int, present: int) -> Fraction:
        r"""Estimate a coordinate's sum over ``present`` users from its number of ones."""
        return (int(ones) - self.bias(present)) / self.precision

    def estimates(self, ones: Integers, present: int) -> tuple[Fraction, ...]:
        r"""Estimate each coordinate's sum over ``present`` users from its number of ones."""
        return tuple(self.estimate(count, present) for count in ones)

    def _read(self, shuffled: Bits) -> tuple[Fraction, ...]:
        wide = isinstance(shuffled, np.ndarray) and shuffled.dtype == np.uint8
        if not wide or shuffled.ndim != 2 or len(shuffled) != self.coordinates:
            reason = f"must be a uint8 array with one row per coordinate ({self.coordinates})"
            raise InvalidParameter("shuffled", shuffled, reason)
        present, rest = divmod(int(shuffled.shape[1]), self.width)
        if rest or not 1 <= present <= self.users:
            reason = f"must contain {self.width} bits for each of 1 to {self.users} users"
            raise InvalidParameter("shuffled", shuffled, reason)
        if shuffled.max() > 1:
            raise InvalidParameter("shuffled", shuffled, "must contain only 0 and 1")
        return self.estimates(shuffled.sum(axis=1, dtype=np.int64), present)

    def _check_honest(self, honest: int) -> int:
        return integer("honest", honest, at_least=1, at_most=self.users, limit="users")


@dataclass(frozen=True, slots=True, kw_only=True)
class BitSum(ShuffledSum):
    r"""Sums with binomial noise: ``noise_bits`` random bits per user and coordinate.

    Each of the b = ``noise_bits`` random bits is 1 with probability p = ``probability``. A user
    sends g + b bits per coordinate, where g = ``precision``; the number of ones is the encoding of
    the value, an integer in 0..g, plus a Binomial(b, p) variable. For every dataset, the noise in
    the sum of k messages has the law Binomial(k b, p); its mean k b p is the bias.
    """

    local_noise: ClassVar[None] = None
    r"""None, because the random bits of a user are noise on the sum only."""

    noise_bits: Whole = Whole()
    probability: Exact = Exact(within="(0, 1)", reason="a constant bit adds no noise")

    @property
    def width(self) -> int:
        return self.precision + self.noise_bits

    @property
    def planned_noise(self) -> Binomial:
        r"""The law of the total noise in one coordinate's sum if all users take part."""
        return self.observed_noise(self.users)

    def observed_noise(self, honest: int) -> Binomial:
        r"""The law of the noise that ``honest`` users actually added to a coordinate's sum."""
        trials = self._check_honest(honest) * self.noise_bits
        return Binomial(trials=trials, probability=self.probability)

    total_noise = observed_noise

    def bias(self, present: int) -> Fraction:
        return present * self.noise_bits * self.probability

    def square_error(self, present: int) -> Fraction:
        r"""The variance of the noise in a coordinate's estimate for ``present`` users."""
        return self.total_noise(present).variance / self.precision**2

    def mechanism(self, honest: int) -> Mechanism:
        r"""The mechanism that releases all sums, with the noise that ``honest`` users added."""
        steps, count = self.precision, self.coordinates
        sensitivity = Sensitivity(steps) if count == 1 else Sensitivity.box((steps,) * count)
        return Mechanism(noise=self.observed_noise(honest), sensitivity=sensitivity)

    @abstractmethod
    def _encoded(self, x: RealsLike, rng: Rng) -> Integers: ...

    def _ones(self, x: RealsLike, rng: Rng) -> Integers:
        steps = self._encoded(x, rng)
        noise = Binomial(trials=self.noise_bits, probability=self.probability)
        return steps + noise.sample(steps.shape, rng=rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryShuffle(BitSum):
    r"""Sum bits by shuffling: each user sends the bit x and ``noise_bits`` random bits.

    Source: Tenenbaum et al. 2021, Algorithm 3.

    >>> protocol = BinaryShuffle(users=1000, noise_bits=1, probability="67/500")
    >>> protocol.bits_per_user, protocol.observed_noise(900)
    (2, Binomial(trials=900, probability='67/500'))
    """

    name: ClassVar[str] = "binary-shuffle"

    def _encoded(self, x: RealsLike, rng: Rng) -> Integers:  # noqa: ARG002 - bits are not rounded
        held = as_array(x)
        if held.ndim != 1 or held.dtype.kind not in "iubO" or not 1 <= len(held) <= self.users:
            reason = f"must contain one bit for each of 1 to {self.users} users"
            raise InvalidParameter("x", x, reason)
        odd = held.dtype.kind == "O" and any(isinstance(v, (np.ndarray, complex)) for v in held)
        if odd or not bool(((held == 0) | (held == 1)).all()):
            raise InvalidParameter("x", x, "must be 0 or 1; use VectorShuffle for real values")
        return held.astype(np.int64)[:, None]

    def analyze(self, shuffled: Bits) -> Fraction:
        r"""Analyzer: estimate the sum without bias from shuffled bits, an array with one row."""
        return self._read(shuffled)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorShuffle(BitSum):
    r"""Sum vectors in [0, 1]^s by shuffling, where s = ``coordinates``.

    Source: Li, Zhou and Ji 2022, Algorithms 2 and 4.

    ``noise_bits`` and ``probability`` are per user and coordinate. The caller scales values to [0,
    1]. With one coordinate, a flat array of values is accepted.

    >>> protocol = VectorShuffle(
    ...     users=100, precision=8, coordinates=3, noise_bits=4, probability="1/2"
    ... )
    >>> protocol.bits_per_user, protocol.mechanism(100).sensitivity
    (36, Sensitivity.box((8, 8, 8)))
    """

    name: ClassVar[str] = "vector-shuffle"

    precision: Whole = Whole(at_most=MOST_STEPS)
    coordinates: Whole = Whole(1)

    def _encoded(self, x: RealsLike, rng: Rng) -> Integers:
        held = as_array(x)
        rows = held[:, None] if held.ndim == 1 and self.coordinates == 1 else held
        if rows.ndim != 2 or rows.shape[1] != self.coordinates:
            reason = f"must contain one row of {self.coordinates} coordinates per user"
            raise InvalidParameter("x", x, reason)
        if not 1 <= len(rows) <= self.users:
            raise InvalidParameter("x", x, f"must contain the rows of 1 to {self.users} users")
        return FixedPoint(precision=self.precision).encode(rows, rng=rng)

    def analyze(self, shuffled: Bits) -> tuple[Fraction, ...]:
        r"""Analyzer: estimate each coordinate's sum without bias from its row of shuffled bits."""
        return self._read(shuffled)


@dataclass(frozen=True, slots=True, kw_only=True)
class PureShuffle(ShuffledSum):
    r"""Sum values in [0, 1] from shuffled bits under pure DP.

    Bounded messages that always depend on their input cannot give pure DP: an extreme value of the
    sum reveals every message. Here a message is x plus a share of discrete Laplace noise, or a
    cover: a number drawn from the whole range of messages, independently of x. A message is a cover
    with a small probability, and whenever the noise would not fit. Covers are so rare that the
    noise of the sum is nearly discrete Laplace, and they bound the loss at the extreme outputs.

    Randomizer: x is encoded as E(x) in {0, ..., g}, g = ``precision`` steps, and Z is a draw of
    ``share``. With probability c = ``cover``, and whenever \|Z\| > J = ``reach``, the message is a
    cover: Y uniform on {0, ..., 2J + g}. Otherwise Y = J + E(x) + Z. The user sends 2J + g bits, of
    which Y are 1. Analyzer: for k users the estimate is (number of ones - k J)/g. Without covers,
    it is the sum of the encodings plus the noise of k shares within the reach. :meth:`missed`
    bounds the probability of a cover; covers bias the estimate by at most half of that bound.

    ``accounting.protocol_guarantees.pure_shuffle_guarantee.purity`` derives the guarantee. The
    noise is that of Goryczka and Xiong (2017); the idea follows the pure protocols of Ghazi,
    Golowich, Kumar, Manurangsi, Pagh and Velingker (2020) and of Ghazi, Kumar and Manurangsi
    (2023). Proofs: docs/proofs/shuffle.md.
    """

    name: ClassVar[str] = "pure-shuffle"

    reach: Whole = Whole()
    share: PolyaDifference
    cover: Exact = Exact(
        within="(0, 1)",
        reason="without covers the extreme outputs reveal a user's value",
    )
    precision: Whole = Whole(1, at_most=MOST_STEPS)

    def __post_init__(self) -> None:
        ShuffledSum.__post_init__(self)
        if not isinstance(self.share, PolyaDifference) or self.share.shape > 1:
            reason = "must be a PolyaDifference of shape <= 1"
            raise InvalidParameter("share", self.share, reason)

    @property
    def width(self) -> int:
        return 2 * self.reach + self.precision

    @property
    def planned_noise(self) -> PolyaDifference:
        r"""The law of the total noise, in steps, if no user sends a cover.

        The probability that no user sends a cover is at least 1 - ``missed(users)``.
        """
        return self.observed_noise(self.users)

    def observed_noise(self, honest: int) -> PolyaDifference:
        r"""The law of the total noise of ``honest`` users if none of them sends a cover."""
        shape = self._check_honest(honest) * self.share.shape
        return PolyaDifference(shape=shape, scale=self.share.scale)

    total_noise = observed_noise

    @property
    def local_noise(self) -> PolyaDifference:
        r"""The law of a user's noise if the user does not send a cover."""
        return self.share

    def bias(self, present: int) -> Fraction:
        r"""The number k J of ones beyond encodings and noise; k is ``present``, J is ``reach``."""
        return Fraction(present * self.reach)

    def missed(self, present: int) -> Fraction:
        r"""An upper bound on the probability that any of ``present`` users sends a cover."""
        # Rounded up, because for a large epsilon the exact number has thousands of digits.
        beyond = 2 * Fraction(self.share.enclose_sf(self.reach, 32).upper)
        beyond = Fraction(math.ceil(beyond * _ONE), _ONE)
        return min(Fraction(1), integer("present", present, at_least=1) * (self.cover + beyond))

    def square_error(self, present: int) -> Fraction:
        r"""An upper bound on the mean squared error that noise and covers cause.

        ``present`` users take part.
        """
        count, g = integer("present", present, at_least=1), self.precision
        covered = self.missed(count)
        spread = count * Fraction(self.share.variance.upper) + covered * (self.reach + g) ** 2
        return (spread + (covered * g / 2) ** 2) / g**2

    def _ones(self, x: RealsLike, rng: Rng) -> Integers:
        return self.values(x, rng=rng)[:, None]

    def values(self, x: RealsLike, *, rng: Rng = SYSTEM) -> Integers:
        r"""Draw the number of ones in each user's message; x contains one value per user."""
        held = as_array(x)
        if held.ndim != 1 or not 1 <= len(held) <= self.users:
            reason = f"must be an array with one number for each of 1 to {self.users} users"
            raise InvalidParameter("x", x, reason)
        steps = FixedPoint(precision=self.precision).encode(held, rng=rng)
        noise, covered = self.noise_and_covers(len(steps), rng=rng)
        ones = self.reach + steps + noise
        for place in np.flatnonzero(covered):
            ones[place] = rng.below(self.width + 1)
        return ones

    def noise_and_covers(self, count: int, *, rng: Rng = SYSTEM) -> tuple[Integers, Integers]:
        r"""Draw the noise of ``count`` users, and a 1 for each user with a cover, 0 for others."""
        noise = self.share.sample(count, rng=rng)
        covered = Binomial(trials=1, probability=self.cover).sample(count, rng=rng)
        return noise, covered | (np.abs(noise) > self.reach)

    def ones_of_bits(self, total: int, present: int, *, rng: Rng = SYSTEM) -> int:
        r"""Draw the total number of ones in the messages of users whose values are 0 or 1.

        ``present`` is the number of these users, and ``total`` the sum of their values.
        """
        if self.precision != 1:
            raise InvalidParameter("precision", self.precision, "must be 1 for a sum of bits")
        count = integer("present", present, at_least=1, at_most=self.users)
        left = integer("total", total, at_least=0, at_most=count)
        ones, covers = left + self.reach * count, 0
        for start in range(0, count, BLOCK):
            noise, covered = self.noise_and_covers(min(BLOCK, count - start), rng=rng)
            ones += int(noise[covered == 0].sum())
            covers += int(covered.sum())
        for out in range(covers):
            # The bit that the next cover replaces: a random one of those not yet replaced.
            held = int(rng.below(count - out) < left)
            left -= held
            ones += rng.below(self.width + 1) - self.reach - held
        return ones

    def analyze(self, shuffled: Bits) -> Fraction:
        r"""Analyzer: estimate the sum from the shuffled bits, an array with one row."""
        return self._read(shuffled)[0]
