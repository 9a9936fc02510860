r"""Protocols for a shuffler, whose messages are bits.

Each user sends the unary code of a small number and some random bits; the server sees all bits
in a uniformly random order, so it learns only their sum, and the random bits are
binomial noise on that sum. :class:`BinaryShuffle` is Algorithm 3 of Tenenbaum, Kaplan, Mansour and
Stemmer (arXiv 2106.02900), :class:`VectorShuffle` Algorithms 2 and 4 of Li, Zhou and Ji (arXiv
2207.05827) after Cheu et al. (arXiv 2106.09805). Both papers use far more noise than an exact
calibration needs; here the numbers of bits are parameters. Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import Exact, Whole, check_fields, integer
from dpcore.protocols.encoding import MOST_STEPS, FixedPoint, RealsLike, as_array
from dpcore.sampling.rng import SYSTEM, Rng

Bits: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class BitMessages:
    r"""The messages of all users as bits: a uint8 array of shape (users, coordinates, bits).

    A :class:`~dpcore.protocols.ideal_aggregation.Shuffler` accepts only this type. All messages
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
            raise InvalidParameter("bits", bits, "must be 0 or 1")
        own = bits.copy()
        own.flags.writeable = False
        object.__setattr__(self, "bits", own)


def users_of(shuffled: Bits, *, rows: int, width: int, most: int) -> int:
    r"""The number of users who sent these bits, ``width`` bits per user in each of ``rows``."""
    wide = isinstance(shuffled, np.ndarray) and shuffled.dtype == np.uint8
    if not wide or shuffled.ndim != 2 or len(shuffled) != rows:
        reason = f"must be a uint8 array with one row per coordinate ({rows})"
        raise InvalidParameter("shuffled", shuffled, reason)
    present, rest = divmod(int(shuffled.shape[1]), width)
    if rest or not 1 <= present <= most:
        reason = f"must have {width} bits for each of 1 to {most} users"
        raise InvalidParameter("shuffled", shuffled, reason)
    if shuffled.max() > 1:
        raise InvalidParameter("shuffled", shuffled, "must be 0 or 1")
    return present


@dataclass(frozen=True, slots=True, kw_only=True)
class BitSum(ABC):
    r"""The common base class: randomizer and analyzer over shuffled bits.

    Let n = ``users``, g = ``precision`` steps per unit, and b = ``noise_bits`` per user and
    coordinate, each 1 with probability p = ``probability``. The randomizer sends g + b bits per
    coordinate, of which E(x) + Binomial(b, p) are 1. For k messages the analyzer returns (number of
    ones - k b p)/g. The noise of the sum is Binomial(k b, p) for all data.
    """

    name: ClassVar[str]
    local_noise: ClassVar[None] = None
    r"""A user adds random bits, which are noise on the sum only."""

    users: Whole = Whole()
    noise_bits: Whole = Whole()
    probability: Exact = Exact(within="(0, 1)", reason="a constant bit adds no noise")

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
    def width(self) -> int:
        r"""The number g + b of bits per user and coordinate."""
        return self.precision + self.noise_bits

    @property
    def bits_per_user(self) -> int:
        r"""The number of bits that a user sends, over all coordinates."""
        return self.width * self.coordinates

    @property
    def planned_noise(self) -> Binomial:
        r"""The law of the total noise in one coordinate's sum if all users take part."""
        return self.observed_noise(self.users)

    def observed_noise(self, honest: int) -> Binomial:
        r"""The law of the noise that ``honest`` users actually added to a coordinate's sum."""
        honest = integer("honest", honest, at_least=1, at_most=self.users, limit="users")
        return Binomial(trials=honest * self.noise_bits, probability=self.probability)

    total_noise = observed_noise

    def bias(self, present: int) -> Fraction:
        r"""The mean number of random bits of ``present`` users that are 1, per coordinate."""
        return present * self.noise_bits * self.probability

    def square_error(self, present: int) -> Fraction:
        r"""E[(estimate - sum of the encodings)^2] of a coordinate with ``present`` users."""
        return self.total_noise(present).variance / self.precision**2

    def mechanism(self, honest: int) -> Mechanism:
        r"""The mechanism that protects a user, who changes each sum by at most g steps."""
        steps, count = self.precision, self.coordinates
        sensitivity = Sensitivity(steps) if count == 1 else Sensitivity.box((steps,) * count)
        return Mechanism(noise=self.observed_noise(honest), sensitivity=sensitivity)

    @abstractmethod
    def _encoded(self, x: RealsLike, rng: Rng) -> Integers:
        r"""Check and encode x: the integers E(x), of shape (users present, coordinates)."""

    def randomize(self, x: RealsLike, *, rng: Rng = SYSTEM) -> BitMessages:
        r"""R: draw the messages of users with values x, a value or a row of coordinates each."""
        steps = self._encoded(x, rng)
        noise = Binomial(trials=self.noise_bits, probability=self.probability)
        ones = steps + noise.sample(steps.shape, rng=rng)
        # The order within a message reveals nothing: the shuffler permutes all bits.
        return BitMessages((np.arange(self.width) < ones[..., None]).astype(np.uint8))

    def estimates(self, ones: Integers, present: int) -> tuple[Fraction, ...]:
        r"""Estimate each coordinate's sum over ``present`` users, without bias, from its ones."""
        bias = self.bias(present)
        return tuple((int(count) - bias) / self.precision for count in ones)

    def _read(self, shuffled: Bits) -> tuple[Fraction, ...]:
        present = users_of(shuffled, rows=self.coordinates, width=self.width, most=self.users)
        return self.estimates(shuffled.sum(axis=1, dtype=np.int64), present)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryShuffle(BitSum):
    r"""Sum bits by shuffling: each user sends the bit x and ``noise_bits`` random bits.

    Source: Tenenbaum et al. 2021, Algorithm 3.

    >>> protocol = BinaryShuffle(users=1000, noise_bits=1, probability="67/500")
    >>> protocol.bits_per_user, protocol.observed_noise(900)
    (2, Binomial(trials=900, probability='67/500'))
    """

    name: ClassVar[str] = "binary-shuffle"

    def _encoded(self, x: RealsLike, rng: Rng) -> Integers:  # noqa: ARG002 - bits need no coin
        held = as_array(x)
        if held.ndim != 1 or held.dtype.kind not in "iubO" or not 1 <= len(held) <= self.users:
            raise InvalidParameter("x", x, f"must have one bit for each of 1 to {self.users} users")
        odd = held.dtype.kind == "O" and any(isinstance(v, (np.ndarray, complex)) for v in held)
        if odd or not bool(((held == 0) | (held == 1)).all()):
            raise InvalidParameter("x", x, "must be 0 or 1; use VectorShuffle for real values")
        return held.astype(np.int64)[:, None]

    def analyze(self, shuffled: Bits) -> Fraction:
        r"""A: estimate the sum, without bias, from the shuffled bits (one row)."""
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
            reason = f"must have one row of {self.coordinates} coordinates per user"
            raise InvalidParameter("x", x, reason)
        if not 1 <= len(rows) <= self.users:
            raise InvalidParameter("x", x, f"must contain the rows of 1 to {self.users} users")
        return FixedPoint(precision=self.precision).encode(rows, rng=rng)

    def analyze(self, shuffled: Bits) -> tuple[Fraction, ...]:
        r"""A: estimate each coordinate's sum, without bias, from its row of shuffled bits."""
        return self._read(shuffled)
