r"""Bugs in noise that several users add jointly: dropouts, shuffling, wrapped shares.

Each is a protocol of dpcore with one wrong step: noise, encoding, shuffler and analyzer are the
production code, run for all runs at once. A dataset is the value of one user; the others have 0.

Sums of 1/m-shares of Polya noise, X - Y with X, Y ~ Polya(1/m, beta) from m parties, are discrete
Laplace of scale 1/ln(1/beta). A share is drawn as a Poisson variable whose mean is Gamma(1/m) times
the odds beta/(1 - beta), in floating point: this is a simulation, not an exact draw.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from audit.broken_mechanisms.catalogue_entry import Entry, Twin, seeded
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, narrow
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.run_protocol import Shuffler
from dpcore.protocols.shuffled_bits import BinaryShuffle, BitMessages, Bits, PureShuffle

# -- protocols ------------------------------------------------------------------------------------

_STEPS: Final = 10


def _pure(users: int, precision: int, threshold: int) -> AggregatedSum:
    # Calibrated for epsilon = 1: discrete Laplace noise of scale g from one Polya share per user.
    share = DiscreteLaplace(scale=precision).share(users)
    return AggregatedSum(users=users, precision=precision, threshold=threshold, share=share)


_FOUR: Final = _pure(4, _STEPS, 500)
_THREE: Final = _pure(3, 4, 500)
_TWO: Final = _pure(2, 1, 20)
_HALF: Final = _FOUR.observed_noise(2)
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
    r"""A row of messages per run, before the reduction; the first user has ``value``."""
    sent = protocol.share.sample((n, present), rng=seeded(rng))
    sent[:, 0] += value * protocol.precision
    return sent


def _summed(protocol: AggregatedSum, messages: Integers) -> Integers:
    # The sum that the server decodes from the sum mod m, in steps.
    total: Integers = messages.sum(axis=1) % protocol.modulus
    return protocol.unwrap(total)


def half_vanish(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A sum with noise of four users for epsilon = 1; two of them drop out with their shares."""
    return _summed(_FOUR, _messages(_FOUR, value, 2, n, rng))


def reduced_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The integer sum of messages; users reduce the noise mod m, then add the value."""
    sent = _messages(_TWO, 0, 2, n, rng) % _TWO.modulus
    sent[:, 0] += value * _TWO.precision
    return np.asarray(sent.sum(axis=1))


def reduced_messages(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of values and noise, mod m, where the reduction is post-processing."""
    return np.asarray(_messages(_TWO, value, 2, n, rng).sum(axis=1) % _TWO.modulus)


def skellam(value: int, n: int, rng: np.random.Generator, *, variance: int) -> Integers:
    r"""A sum with Skellam noise of four users: variance 16 = g^2, two Poisson laws of mean 8."""
    share: Noise = Skellam(variance=variance).share(4)
    protocol = AggregatedSum(users=4, precision=4, threshold=100, share=share)
    return _summed(protocol, _messages(protocol, value, 4, n, rng))


def _bits(value: int, n: int, rng: np.random.Generator) -> Bits:
    # (n, users, bits): the users of all runs at once, each with its own noise.
    shape = (n, _BITS.users, _BITS.width)
    if not n:
        return np.zeros(shape, dtype=np.uint8)
    held = np.zeros(shape[:2], dtype=np.int64)
    held[:, 0] = value
    crowd = replace(_BITS, users=held.size)
    return crowd.randomize(held.reshape(-1), rng=seeded(rng)).bits.reshape(shape)


def in_order(value: int, n: int, rng: np.random.Generator) -> Bits:
    r"""The bits of three users, in the order of the users."""
    return _bits(value, n, rng).reshape(n, _BITS.users * _BITS.width)


def shuffled(value: int, n: int, rng: np.random.Generator) -> Bits:
    r"""The bits of three users, in a uniformly random order."""
    bits = _bits(value, n, rng)
    if not n:
        return bits.reshape(0, _BITS.users * _BITS.width)
    # The shuffler permutes each coordinate separately; here a coordinate is a run.
    return Shuffler().shuffle(BitMessages(bits.transpose(1, 0, 2)), rng=seeded(rng))


def shuffled_shares(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""All messages in a random order, represented by sorting them. Most shares are 0."""
    return np.sort(_messages(_THREE, value, 3, n, rng) % _THREE.modulus, axis=1)


def aggregated_shares(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The sum mod m of the same messages in the first column, and 0 in the others."""
    sent = _messages(_THREE, value, 3, n, rng)
    seen = np.zeros((n, 3), dtype=np.int64)
    seen[:, 0] = sent.sum(axis=1) % _THREE.modulus
    return seen


def uncovered(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The number of messages 1 from two users, without cover messages: noise is redrawn until it
    fits.
    """
    drawing = seeded(rng)
    noise = _COVERED.share.sample((n, 2), rng=drawing)
    while (beyond := np.abs(noise) > _COVERED.reach).any():
        noise[beyond] = _COVERED.share.sample(int(beyond.sum()), rng=drawing)
    return np.asarray(noise.sum(axis=1) + value + 2 * _COVERED.reach)


def covered(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The number of messages 1 from two users; at least a third of all messages are cover
    messages.
    """
    if not n:
        return np.zeros(0, dtype=np.int64)
    held = np.repeat([value, 0], n)
    ones = replace(_COVERED, users=2 * n).values(held, rng=seeded(rng))
    return np.asarray(ones[:n] + ones[n:])


def _largest_loss(noise: Noise, steps: int) -> Enclosure:
    # For Polya differences of shape < 1 the largest loss is log p(0)/p(steps), at 0.
    def loss() -> arb:
        return (noise.pmf_ball(0) / noise.pmf_ball(steps)).log()

    return narrow(loss, 64)


_PROTOCOLS: Final = (
    Entry(
        name="order-kept",
        number=21,
        sentence="The bits of a shuffle protocol reach the server in the order of the users.",
        source="a shuffler that only strips names, or batches or sorts messages by time of arrival",
        run=in_order,
        # P(Bin(3, 1/2) = 0) + P(= 1) - e P(= 0) = 0.1602...
        delta=Fraction("0.161"),
        true_epsilon=Enclosure.infinite(),
        runs=500,
        twin=Twin(name="binary-shuffle", run=shuffled),
    ),
    Entry(
        name="skellam-mean-as-variance",
        number=37,
        sentence="The variance of the Skellam noise is set to the mean of one of its Poisson "
        "parts: half the variance needed.",
        source="Skellam laws parameterised by two means in one library and a variance in another",
        run=partial(skellam, variance=8),
        delta=Fraction("0.13"),
        true_epsilon=Enclosure.infinite(),
        runs=3_000,
        twin=Twin(name="skellam-sum", run=partial(skellam, variance=16)),
    ),
    Entry(
        name="dropout-blind",
        number=43,
        sentence="Half of the users drop out of a secure sum with their noise, but the claim is "
        "unchanged.",
        source="secure aggregation that tolerates dropouts under accounting that does not",
        run=half_vanish,
        true_epsilon=_largest_loss(_HALF, _STEPS),
        runs=1_000,
        twin=Twin(name="dropouts-counted", run=half_vanish, epsilon=Fraction("2.35")),
    ),
    Entry(
        name="shuffled-polya",
        number=44,
        sentence="Noise shares for a sum go through a shuffler: most of them are 0 and reveal "
        "the value.",
        source="a shuffler instead of the secure aggregation that the proof assumes",
        run=shuffled_shares,
        true_epsilon=_largest_loss(_THREE.share, 4),
        runs=2_000,
        twin=Twin(name="aggregated-polya", run=aggregated_shares),
    ),
    Entry(
        name="wrapped-shares",
        number=46,
        sentence=(
            "Users reduce their noise modulo m but not their message; the messages are added as "
            "integers."
        ),
        source="secure aggregation in which a device reduces its noise instead of its message",
        run=reduced_noise,
        true_epsilon=Enclosure.infinite(),
        runs=200,
        twin=Twin(name="wrapped-messages", run=reduced_messages),
    ),
    Entry(
        name="uncovered-ends",
        number=50,
        sentence=(
            "Messages of bounded length contain noise that is redrawn until it fits the value: "
            "the extreme messages reveal the value."
        ),
        source=(
            "noise drawn again until it fits into the message, as if truncated noise kept pure "
            "epsilon"
        ),
        run=uncovered,
        true_epsilon=Enclosure.infinite(),
        runs=1_000,
        twin=Twin(name="covered-ends", run=covered),
    ),
)

# -- shares ---------------------------------------------------------------------------------------

PARTIES: Final = 8
_SENSITIVITY: Final = 16
_BETA: Final = math.exp(-0.5 / _SENSITIVITY)


def polya(value: int, n: int, rng: np.random.Generator, *, odds: float) -> Integers:
    r"""A fixed-point sum of sensitivity 16 at epsilon = 1/2: beta = e^(-1/32). With inverted odds
    the noise has scale 1/ln(1/(1 - beta)), 0.29 instead of 32.
    """
    plus, minus = rng.poisson(rng.gamma(1 / PARTIES, odds, (2, n, PARTIES))).sum(axis=2)
    return np.asarray(value + (plus - minus))


def _true_epsilon() -> arb:
    # Sixteen steps, each worth ln(1/(1 - beta)).
    beta = (-1 / (2 * arb(_SENSITIVITY))).exp()
    return -_SENSITIVITY * (1 - beta).log()


_SHARES: Final = (
    Entry(
        name="inverted-odds",
        number=35,
        sentence="The odds of the noise shares are inverted: 94 of 100 sums have no noise.",
        source="the Polya sampler of MABPrivate.py in sayakrc/Differentially-Private-Bandits; "
        "reimplemented",
        run=partial(polya, odds=(1 - _BETA) / _BETA),
        pair=(0, _SENSITIVITY),
        epsilon=Fraction(1, 2),
        true_epsilon=narrow(_true_epsilon, 64),
        runs=100,
        twin=Twin(name="polya-shares", run=partial(polya, odds=_BETA / (1 - _BETA))),
    ),
)

ENTRIES: Final = (*_PROTOCOLS, *_SHARES)
