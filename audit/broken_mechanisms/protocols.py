r"""Bugs in noise that several users add jointly: dropouts, shuffling, and sums modulo m.

Most mechanisms here are protocols of dpcore with one wrong step. Their noise, encoding, shuffler
and analyzer are the production code, called once for all runs. A dataset is the value of one user;
all other users have the value 0. A user's message is the value, in fixed point, plus a noise share,
reduced modulo m.

Suppose each of k parties draws a share X - Y with independent X, Y ~ Polya(1/k, beta). Then the sum
of the shares is discrete Laplace of scale 1/ln(1/beta). :func:`polya` draws X and Y as Poisson
variables whose mean is Gamma(1/k) times the odds beta/(1 - beta). The draws use floating point, so
they are a simulation and not exact.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from audit.broken_mechanisms import seeded
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import RationalLike
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.run_protocol import Shuffler
from dpcore.protocols.shuffled_bits import BinaryShuffle, BitMessages, Bits, PureShuffle

_STEPS: Final = 10


def _pure(users: int, precision: int, threshold: int) -> AggregatedSum:
    # Calibrated for epsilon = 1: the shares of all users sum to discrete Laplace noise, whose scale
    # is g = ``precision``.
    share = DiscreteLaplace(scale=precision).share(users)
    return AggregatedSum(users=users, precision=precision, threshold=threshold, share=share)


_FOUR: Final = _pure(4, _STEPS, 500)
_THREE: Final = _pure(3, 4, 500)
_TWO: Final = _pure(2, 1, 20)
_COVERED: Final = PureShuffle(
    users=2,
    precision=1,
    reach=1,
    cover=Fraction(1, 3),
    share=PolyaDifference(shape=Fraction(1, 2), scale=1),
)
_BITS: Final = BinaryShuffle(users=3, noise_bits=1, probability=Fraction(1, 2))


def _messages(
    protocol: AggregatedSum, value: int, present: int, n: int, rng: np.random.Generator
) -> Integers:
    # The messages of ``present`` users before the reduction mod m, one row per run. The first user
    # has ``value``, the others 0.
    sent = protocol.share.sample((n, present), rng=seeded(rng))
    sent[:, 0] += value * protocol.precision
    return sent


def _summed(protocol: AggregatedSum, messages: Integers) -> Integers:
    # The sum in steps, as the server decodes it from the sum of the messages mod m.
    total: Integers = messages.sum(axis=1) % protocol.modulus
    return protocol.unwrap(total)


def half_vanish(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The noisy sum of four users if two drop out; with all noise shares, epsilon would be 1."""
    return _summed(_FOUR, _messages(_FOUR, value, 2, n, rng))


def reduced_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The integer sum of two users' messages, where only the noise in them is reduced mod m."""
    sent = _messages(_TWO, 0, 2, n, rng) % _TWO.modulus
    sent[:, 0] += value * _TWO.precision
    return np.asarray(sent.sum(axis=1))


def reduced_messages(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of two users' messages, reduced mod m after the addition (post-processing)."""
    return np.asarray(_messages(_TWO, value, 2, n, rng).sum(axis=1) % _TWO.modulus)


def skellam(value: int, n: int, rng: np.random.Generator, *, variance: int) -> Integers:
    r"""A sum of four users with Skellam noise; values are encoded with g = 4 steps per unit.

    The correct variance is g^2 = 16, that of the difference of two Poisson variables with mean 8.
    """
    share: Noise = Skellam(variance=variance).share(4)
    protocol = AggregatedSum(users=4, precision=4, threshold=100, share=share)
    return _summed(protocol, _messages(protocol, value, 4, n, rng))


def _bits(value: int, n: int, rng: np.random.Generator) -> Bits:
    # An array of shape (n, users, bits): all users of all runs, each with independent noise.
    shape = (n, _BITS.users, _BITS.width)
    if not n:
        return np.zeros(shape, dtype=np.uint8)
    held = np.zeros(shape[:2], dtype=np.int64)
    held[:, 0] = value
    crowd = replace(_BITS, users=held.size)
    return crowd.randomize(held.reshape(-1), rng=seeded(rng)).bits.reshape(shape)


def in_order(value: int, n: int, rng: np.random.Generator) -> Bits:
    r"""The randomised bits of three users, in the order of the users."""
    return _bits(value, n, rng).reshape(n, _BITS.users * _BITS.width)


def shuffled(value: int, n: int, rng: np.random.Generator) -> Bits:
    r"""The randomised bits of three users, in a uniformly random order."""
    bits = _bits(value, n, rng)
    if not n:
        return bits.reshape(0, _BITS.users * _BITS.width)
    # The shuffler permutes each coordinate separately; here each run is a coordinate.
    return Shuffler().shuffle(BitMessages(bits.transpose(1, 0, 2)), rng=seeded(rng))


def shuffled_shares(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The messages of three users in sorted order, as a shuffler reveals them; one row per run.

    Most noise shares are 0, so single messages reveal the value.
    """
    return np.sort(_messages(_THREE, value, 3, n, rng) % _THREE.modulus, axis=1)


def aggregated_shares(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Rows (s, 0, 0), where s is the sum mod m of the messages of three users."""
    sent = _messages(_THREE, value, 3, n, rng)
    seen = np.zeros((n, 3), dtype=np.int64)
    seen[:, 0] = sent.sum(axis=1) % _THREE.modulus
    return seen


def uncovered(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The number of 1 bits of two users whose noise is redrawn until it fits into the message.

    The noise is bounded, so an extreme number of 1 bits reveals the value.
    """
    drawing = seeded(rng)
    noise = _COVERED.share.sample((n, 2), rng=drawing)
    while (beyond := np.abs(noise) > _COVERED.reach).any():
        noise[beyond] = _COVERED.share.sample(int(beyond.sum()), rng=drawing)
    return np.asarray(noise.sum(axis=1) + value + 2 * _COVERED.reach)


def covered(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The number of 1 bits of two users; with probability >= 1/3 a message is uniform noise."""
    if not n:
        return np.zeros(0, dtype=np.int64)
    held = np.repeat([value, 0], n)
    ones = replace(_COVERED, users=2 * n).values(held, rng=seeded(rng))
    return np.asarray(ones[:n] + ones[n:])


def half_vanish_loss() -> arb:
    r"""The largest privacy loss of :func:`half_vanish` between the values 0 and 1."""
    return _largest_loss(_FOUR.observed_noise(2), _STEPS)


def shuffled_shares_loss() -> arb:
    r"""The largest privacy loss of :func:`shuffled_shares` between the values 0 and 1."""
    return _largest_loss(_THREE.share, _THREE.precision)


def _largest_loss(noise: Noise, steps: int) -> arb:
    # For Polya differences of shape < 1 the largest loss is ln(p(0)/p(steps)), at the output 0.
    return (noise.pmf_ball(0) / noise.pmf_ball(steps)).log()


# -- shares ---------------------------------------------------------------------------------------

_PARTIES: Final = 8
_SENSITIVITY: Final = 16
_BETA: Final = math.exp(-0.5 / _SENSITIVITY)


def polya(value: int, n: int, rng: np.random.Generator, *, inverted: bool = False) -> Integers:
    r"""A value plus the noise shares of 8 parties, for sensitivity 16 and epsilon = 1/2.

    The correct parameter beta = e^(-1/32) gives noise of scale 32. If ``inverted`` is true, the
    odds beta/(1 - beta) are inverted, which gives noise of scale 1/ln(1/(1 - beta)) = 0.29.
    """
    odds = (1 - _BETA) / _BETA if inverted else _BETA / (1 - _BETA)
    plus, minus = rng.poisson(rng.gamma(1 / _PARTIES, odds, (2, n, _PARTIES))).sum(axis=2)
    return np.asarray(value + (plus - minus))


def inverted_odds_loss() -> arb:
    r"""The privacy loss 16 ln(1/(1 - beta)) of :func:`polya` with inverted odds."""
    beta = (-1 / (2 * arb(_SENSITIVITY))).exp()
    return -_SENSITIVITY * (1 - beta).log()


# -- claims of papers (docs/errata.md) ------------------------------------------------------------

_USERS: Final = 64
# A lower bound on e^(1/4) = 1.2840...
_ODDS: Final = Fraction(1284, 1000)


def noisy_bits(value: int, n: int, rng: np.random.Generator, *, chance: RationalLike) -> Integers:
    r"""Three times ``value``, plus the number of ones among eight random bits.

    Each of four users draws two bits, and a bit is 1 with probability ``chance``. Fair bits give
    (70/3, 0.145)-DP. The refuted lemma (``docs/errata.md``) uses bits of probability 0.7265...,
    which the catalogue rounds down to 0.726.
    """
    noise = Binomial(trials=8, probability=chance).sample(n, rng=seeded(rng))
    return 3 * value + noise


def relaxed_sum(value: int, n: int, rng: np.random.Generator, *, scale: int) -> Integers:
    r"""Rows (sum of 64 users' messages, one bit), where the value of the first user is 0 or 1.

    At epsilon = 1, g = 1 step per unit and noise of scale 2 g/epsilon = 2, the loss is at most 1:
    the sum costs 1/2, and so does the bit. Theorem 3 of Chowdhury and Zhou (2023) states the scale
    g/epsilon = 1, which is too small (``docs/errata.md``).

    Let u = 1.284 and c = 1/(1 + u). The bit depends on the first message: it is 1 with probability
    c u if the message is 1, and otherwise with probability c/u. For every message the
    log-probabilities of the bit are within ln u <= 1/4 of those of a bit that is 1 with probability
    c, so this aggregation is (1/4, 0)-relaxed, and the bit costs at most 2 (1/4).
    """
    source = seeded(rng)
    share = PolyaDifference(shape=Fraction(1, _USERS), scale=scale)
    others = PolyaDifference(shape=Fraction(_USERS - 1, _USERS), scale=scale)
    message = value + share.sample(n, rng=source)
    up, one = _ODDS.numerator, _ODDS.denominator
    # The probabilities of 1 with the common denominator u (1 + u): u^2 and 1.
    likely = np.where(message == 1, up * up, one * one)
    bit = rng.integers(up * (up + one), size=n) < likely
    return np.column_stack((message + others.sample(n, rng=source), bit.astype(np.int64)))


def relaxed_sum_loss() -> arb:
    r"""The privacy loss ln(P_B/P_A) of the output (1, 1) of :func:`relaxed_sum` at scale 1.

    P_A and P_B are the probabilities of this output for the first user's values 0 and 1. Both are
    computed as multiples of 1/(u (1 + u)), where u = 1.284. The first message is 1 if the user's
    noise share is 1 for the value 0, or 0 for the value 1.
    """
    share = PolyaDifference(shape=Fraction(1, _USERS), scale=1)
    rest = PolyaDifference(shape=Fraction(_USERS - 1, _USERS), scale=1).pmf_ball(0)
    total = PolyaDifference(shape=1, scale=1)
    more = ball(_ODDS) ** 2 - 1
    here = total.pmf_ball(0) + more * share.pmf_ball(0) * rest
    there = total.pmf_ball(1) + more * share.pmf_ball(1) * rest
    return (here / there).log()
