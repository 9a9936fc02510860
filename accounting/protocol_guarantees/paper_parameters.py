r"""Parameters of protocols as published in three papers, for ``parameters="paper"``.

The papers are Chowdhury and Zhou (2023, Theorems 1 to 5), Tenenbaum and others (2021, Algorithm 3)
and Li, Zhou and Ji (2022, Algorithm 2). Guarantees do not use these formulas; they are derived from
the exact laws. Integers and rationals are exact. Irrational parameters are enclosed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import ceil_sqrt, ceiling
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational, rational_in
from dpcore.protocols.noisy_sums import AggregatedSum, CentralSum, ShuffledPure
from dpcore.spec_syntax import check_word

WIDTH_BITS: Final = 64
"""Enclosures of irrational parameters have a relative width of at most 2^-WIDTH_BITS."""

_ROUNDED: Final = 1 << 64

Form: TypeAlias = Literal["printed", "corrected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BitNoise:
    r"""The numbers of bits per user in a bit-shuffling protocol, and the law of the noise bits.

    Each of n ``users`` sends ``precision`` encoding bits and b ``bits`` of noise for each
    coordinate. A noise bit is 1 with a probability p, which is enclosed by ``probability`` as it
    may be irrational.
    """

    users: int
    precision: int
    bits: int
    probability: Enclosure

    @property
    def trials(self) -> int:
        r"""The total number of noise bits per coordinate."""
        return self.users * self.bits

    @property
    def rounded_up(self) -> Fraction:
        r"""The probability rounded up to a multiple of 2^-64, at most 1/2."""
        up = Fraction(math.ceil(Fraction(self.probability.upper) * _ROUNDED), _ROUNDED)
        return min(up, Fraction(1, 2))

    @property
    def variance(self) -> Enclosure:
        r"""The variance n b p (1-p) of the noise per coordinate, in units of one encoding step."""
        low, high = Fraction(self.probability.lower), Fraction(self.probability.upper)
        # p (1-p) increases up to p = 1/2.
        if high <= Fraction(1, 2):
            return Enclosure(self.trials * low * (1 - low), self.trials * high * (1 - high))
        return Enclosure(Fraction(0), Fraction(self.trials, 4))


# -- sums of CZ -------------------------------------------------------------------------------


def paper_sum(
    instance: str,
    users: int,
    epsilon: RationalLike,
    failure: RationalLike,
    scaling: RationalLike = 1,
) -> AggregatedSum | CentralSum | ShuffledPure:
    r"""The protocol ``instance`` of Chowdhury and Zhou (2023) with its published parameters.

    For "shuffled-pure" they are corrected, see :func:`cz_shuffled`. Raises
    :class:`InvalidParameter` for "local", because the paper leaves a constant unspecified.
    """
    match instance:
        case "renyi":
            return cz_renyi(users, epsilon, failure, scaling)
        case "concentrated":
            return cz_concentrated(users, epsilon, failure, scaling)
        case "shuffled-pure":
            return cz_shuffled(users, epsilon, failure, form="corrected")
        case "local":
            reason = (
                "Theorem 6 of Chowdhury and Zhou (2023) leaves a constant unspecified; pass it to "
                "bandits.papers.chowdhury_zhou.cz_local"
            )
            raise InvalidParameter("parameters", "paper", reason)
        case "central":
            sizes, noise = _laplace(users, epsilon, failure)
            return CentralSum(**sizes, noise=noise)
        case _:
            return cz_pure(users, epsilon, failure)


def cz_pure(users: int, epsilon: RationalLike, failure: RationalLike) -> AggregatedSum:
    r"""Discrete Laplace noise of scale g/epsilon: Chowdhury and Zhou (2023), Theorem 1.

    Here g = ceil(epsilon sqrt n) is the precision for n users. Each user adds the difference of two
    Polya variables of shape 1/n. A sum may wrap around if its noise exceeds the threshold tau =
    ceil((g/epsilon) ln(2/p)), where p is ``failure``.
    """
    sizes, noise = _laplace(users, epsilon, failure)
    return AggregatedSum(**sizes, share=noise.share(users))


def _laplace(
    users: int, epsilon: RationalLike, failure: RationalLike
) -> tuple[dict[str, int], DiscreteLaplace]:
    # n, g and tau of Theorems 1 and 5, and the law of the total noise.
    n, e = integer("users", users, at_least=1), epsilon_of(epsilon)
    g, log = ceil_sqrt(e * e * n), log_of(2 / _failure(failure))
    tau = ceiling(lambda: ball(g / e) * log())
    return {"users": n, "precision": g, "threshold": tau}, DiscreteLaplace(scale=g / e)


def cz_renyi(
    users: int, epsilon: RationalLike, failure: RationalLike, scaling: RationalLike = 1
) -> AggregatedSum:
    r"""Skellam noise of variance g^2/epsilon^2: Chowdhury and Zhou (2023), Theorem 2.

    Here g = ceil(s epsilon sqrt n) is the precision for n users, and s is ``scaling``. A sum may
    wrap around if its noise exceeds the threshold tau = ceil((2g/epsilon) sqrt(ln(2/p)) + sqrt(2)
    ln(2/p)), where p is ``failure``.
    """
    n, g, ratio = _scaled(users, epsilon, scaling)
    log = log_of(2 / _failure(failure))
    tau = ceiling(lambda: 2 * ball(ratio) * log().sqrt() + arb(2).sqrt() * log())
    share = Skellam(variance=ratio**2 / n)
    return AggregatedSum(users=n, precision=g, threshold=tau, share=share)


def cz_concentrated(
    users: int, epsilon: RationalLike, failure: RationalLike, scaling: RationalLike = 1
) -> AggregatedSum:
    r"""Discrete Gaussian noise of every user: Chowdhury and Zhou (2023), Theorem 4.

    It has sigma^2 = g^2/(n epsilon^2), where g = ceil(s epsilon sqrt n) is the precision for n
    users, and s is ``scaling``. A sum may wrap around if its noise exceeds the threshold tau =
    ceil((g/epsilon) sqrt(2 ln(2/p))), where p is ``failure``.
    """
    n, g, ratio = _scaled(users, epsilon, scaling)
    log, each = log_of(2 / _failure(failure)), ratio**2 / n
    tau = ceiling(lambda: ball(ratio) * (2 * log()).sqrt())
    share = DiscreteGaussian(sigma_squared=each)
    return AggregatedSum(users=n, precision=g, threshold=tau, share=share)


def cz_shuffled(
    users: int, epsilon: RationalLike, failure: RationalLike, *, form: Form
) -> ShuffledPure:
    r"""The protocol of Chowdhury and Zhou (2023), Theorem 3, for relaxed aggregation.

    The aggregation is (epsilon/4, q)-relaxed. The precision g and the threshold are those of
    :func:`cz_pure` for epsilon' = epsilon/2. ``form="printed"`` has noise of scale g/epsilon, for
    which the proof gives 1.5 epsilon; ``form="corrected"`` has the scale g/epsilon' = 2g/epsilon
    that the proof needs for epsilon.
    """
    check_word("form", form, Form)
    sizes, noise = _laplace(users, epsilon_of(epsilon) / 2, failure)
    if form == "printed":
        noise = DiscreteLaplace(scale=noise.scale / 2)
    return ShuffledPure(**sizes, share=noise.share(users))


def _scaled(users: int, epsilon: RationalLike, scaling: RationalLike) -> tuple[int, int, Fraction]:
    # The values n, g = ceil(s epsilon sqrt n) and g/epsilon.
    n, e, s = integer("users", users, at_least=1), epsilon_of(epsilon), rational("scaling", scaling)
    if s < 1:
        raise InvalidParameter("scaling", scaling, "must be >= 1")
    g = ceil_sqrt((s * e) ** 2 * n)
    return n, g, g / e


# -- shuffled bits ----------------------------------------------------------------------------


def tkms_threshold(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""The constant tau = 96 ln(2/delta)/epsilon^2 of :func:`tkms_bits`, stated for epsilon < 1."""
    return narrow(_tkms_tau(epsilon, delta), WIDTH_BITS)


def tkms_bits(users: int, epsilon: RationalLike, delta: RationalLike) -> BitNoise:
    r"""The noise bits of Tenenbaum and others (2021), Algorithm 3, for m users.

    Let tau = 96 ln(2/delta)/epsilon^2. Each user adds ceil(tau/m) fair noise bits if m <= tau.
    Otherwise each user adds one bit, which is 1 with probability tau/(2m).
    """
    m, tau = integer("users", users, at_least=1), tkms_threshold(epsilon, delta)
    if tau.lower >= m:
        exact = _tkms_tau(epsilon, delta)
        half = Enclosure.exactly(Fraction(1, 2))
        return BitNoise(users=m, precision=1, bits=ceiling(lambda: exact() / m), probability=half)
    low, high = (Fraction(end) / (2 * m) for end in (tau.lower, tau.upper))
    return BitNoise(users=m, precision=1, bits=1, probability=Enclosure(low, high))


def _tkms_tau(epsilon: RationalLike, delta: RationalLike) -> Callable[[], arb]:
    e, log = epsilon_of(epsilon), log_of(2 / rational_in("delta", delta, "(0, 1)"))
    return lambda: 96 * log() / ball(e * e)


def lzj_vector(
    users: int, coordinates: int, epsilon: RationalLike, delta: RationalLike
) -> BitNoise:
    r"""The noise bits of Li, Zhou and Ji (2022), Algorithm 2, for n users with vectors.

    The vectors have s coordinates and l2 norm at most Delta. An interval of length 2 Delta is
    divided into g steps. A user adds b noise bits for each coordinate, each 1 with probability p.
    With e = epsilon/(18 sqrt(ln(2/delta))), g is max{e sqrt(n)/(6 sqrt(5 ln(4s/delta))), sqrt s,
    10} rounded up, b = ceil(180 g^2 ln(4s/delta)/(e^2 n)) and p = 90 g^2 ln(4s/delta)/(b e^2 n).
    """
    n, e = integer("users", users, at_least=1), epsilon_of(epsilon)
    s, d = integer("coordinates", coordinates, at_least=1), rational_in("delta", delta, "(0, 1)")
    log, log_two = log_of(4 * s / d), log_of(2 / d)
    growing = ceiling(
        lambda: ball(e) * arb(n).sqrt() / (18 * log_two().sqrt() * 6 * (5 * log()).sqrt())
    )
    g = max(growing, ceil_sqrt(Fraction(s)), 10)
    return bits_of_cheu(n, g, lambda: log() * 18**2 * log_two() / ball(e * e))


def bits_of_cheu(n: int, g: int, factor: Callable[[], arb]) -> BitNoise:
    r"""The noise bits of Cheu et al. (2021) for n users and precision g.

    With f = ``factor()`` each user adds b = ceil(180 g^2 f/n) bits, each 1 with probability 90 g^2
    f/(n b).
    """
    bits = ceiling(lambda: 180 * g * g * factor() / n)
    chance = narrow(lambda: 90 * g * g * factor() / (n * bits), WIDTH_BITS)
    # The probability is at most 1/2, as the number of bits was rounded up.
    high = min(Fraction(chance.upper), Fraction(1, 2))
    return BitNoise(users=n, precision=g, bits=bits, probability=Enclosure(chance.lower, high))


# -- arguments --------------------------------------------------------------------------------


def epsilon_of(value: object) -> Fraction:
    r"""Parse an exact epsilon > 0."""
    return positive_rational("epsilon", value, "epsilon 0 needs infinite noise")


def log_of(value: Fraction) -> Callable[[], arb]:
    r"""A function that computes ln(value), at each call at the precision then in force."""
    return lambda: ball(value).log()


def _failure(value: object) -> Fraction:
    return rational_in("failure", value, "(0, 1)")
