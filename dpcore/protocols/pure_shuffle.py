r"""Sums by shuffled bits under pure DP: the privacy loss is bounded at every output.

Bounded messages that always depend on their input cannot give pure DP: an extreme value of the sum
reveals every message. Here a message is x plus a share of discrete Laplace noise or, rarely and
whenever the noise would not fit, a cover: a number drawn from the whole range of messages,
independently of x. Covers are so rare that the noise of the sum is nearly discrete Laplace, and
they bound the loss at the extreme outputs. The noise is that of Goryczka and Xiong (2017); the idea
follows the pure protocols of Ghazi, Golowich, Kumar, Manurangsi, Pagh and Velingker (2020) and of
Ghazi, Kumar and Manurangsi (2023). The guarantee is derived by
``accounting.protocol_guarantees.pure_shuffle_guarantee.purity``. Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import Exact, Whole, check_fields, integer
from dpcore.protocols.encoding import MOST_STEPS, FixedPoint, RealsLike, as_array
from dpcore.protocols.shuffled_bits import BitMessages, Bits, users_of
from dpcore.sampling.inversion import BLOCK
from dpcore.sampling.rng import SYSTEM, Rng

_ONE: Final = 1 << 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PureShuffle:
    r"""Sum values in [0, 1] from shuffled bits; noise and rare covers protect each user.

    Randomizer: x is encoded as E(x) in {0, ..., g}, g = ``precision`` steps, and Z is a draw of
    ``share``. With probability c = ``cover``, and whenever \|Z\| > J = ``reach``, the message is a
    cover: Y uniform on {0, ..., 2J + g}. Otherwise Y = J + E(x) + Z. The user sends 2J + g bits, of
    which Y are 1. Analyzer: for k users the estimate is (number of ones - k J)/g. Without covers,
    it is the sum of the encodings plus the noise of k shares within the reach. :meth:`missed`
    bounds the probability of a cover; covers bias the estimate by at most half of that bound.

    ``accounting`` derives the guarantee from all parameters together.
    """

    name: ClassVar[str] = "pure-shuffle"

    users: Whole = Whole()
    reach: Whole = Whole()
    share: PolyaDifference
    cover: Exact = Exact(
        within="(0, 1)",
        reason="without covers the extreme outputs reveal a user's value",
    )
    precision: Whole = Whole(1, at_most=MOST_STEPS)

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.share, PolyaDifference) or self.share.shape > 1:
            reason = "must be a PolyaDifference of shape <= 1"
            raise InvalidParameter("share", self.share, reason)

    @property
    def width(self) -> int:
        r"""The number 2J + g of bits of one message."""
        return 2 * self.reach + self.precision

    @property
    def bits_per_user(self) -> int:
        r"""The number of bits that a user sends."""
        return self.width

    @property
    def planned_noise(self) -> PolyaDifference:
        r"""The law of the total noise, in steps, except with probability :meth:`missed`."""
        return self.observed_noise(self.users)

    def observed_noise(self, honest: int) -> PolyaDifference:
        r"""The law of the total noise of ``honest`` users, without covers."""
        honest = integer("honest", honest, at_least=1, at_most=self.users, limit="users")
        return PolyaDifference(shape=honest * self.share.shape, scale=self.share.scale)

    total_noise = observed_noise

    @property
    def local_noise(self) -> PolyaDifference:
        r"""The law of a user's noise, without covers."""
        return self.share

    def bias(self, present: int) -> Fraction:
        r"""The number of ones of ``present`` users beyond encodings and noise, without covers."""
        return Fraction(present * self.reach)

    def missed(self, present: int) -> Fraction:
        """An upper bound on the probability that ``present`` users deviate from their noise law."""
        # Rounded up, because for a large epsilon the exact number has thousands of digits.
        beyond = 2 * Fraction(self.share.enclose_sf(self.reach, 32).upper)
        beyond = Fraction(math.ceil(beyond * _ONE), _ONE)
        return min(Fraction(1), integer("present", present, at_least=1) * (self.cover + beyond))

    def square_error(self, present: int) -> Fraction:
        r"""An upper bound on E[(estimate - sum of the encodings)^2] with ``present`` users."""
        count, g = integer("present", present, at_least=1), self.precision
        covered = self.missed(count)
        spread = count * Fraction(self.share.variance.upper) + covered * (self.reach + g) ** 2
        return (spread + (covered * g / 2) ** 2) / g**2

    def randomize(self, x: RealsLike, *, rng: Rng = SYSTEM) -> BitMessages:
        r"""R: draw the messages of the users with values x."""
        ones = self.values(x, rng=rng)
        # The order within a message reveals nothing: the shuffler permutes all bits.
        bits = (np.arange(self.width) < ones[:, None]).astype(np.uint8)
        return BitMessages(bits[:, None, :])

    def values(self, x: RealsLike, *, rng: Rng = SYSTEM) -> Integers:
        r"""Draw the number of ones of each user's message; errors are as in :meth:`randomize`."""
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
        r"""Draw the noise of ``count`` users, and a 1 for each user whose message is a cover."""
        noise = self.share.sample(count, rng=rng)
        covered = Binomial(trials=1, probability=self.cover).sample(count, rng=rng)
        return noise, covered | (np.abs(noise) > self.reach)

    def ones_of_bits(self, total: int, present: int, *, rng: Rng = SYSTEM) -> int:
        r"""Draw the number of ones sent by ``present`` users whose bits sum to ``total``."""
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

    def estimate(self, ones: int, present: int) -> Fraction:
        r"""Estimate the sum over ``present`` users from the number of ones."""
        return (int(ones) - self.bias(present)) / self.precision

    def analyze(self, shuffled: Bits) -> Fraction:
        r"""A: estimate the sum from the shuffled bits (one row)."""
        present = users_of(shuffled, rows=1, width=self.width, most=self.users)
        return self.estimate(int(shuffled.sum(dtype=np.int64)), present)
