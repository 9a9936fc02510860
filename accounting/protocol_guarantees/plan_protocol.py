r"""Distributed protocols: guarantees given the number of honest users, and parameters for a target.

A protocol is planned for n users, of whom at least h are honest and do not drop out. Only their
noise counts, so the guarantee is that of ``protocol.mechanism(h)``; :func:`choose` increases every
user's noise until this guarantee meets the target. For Polya differences, Skellam noise and fair
bits, larger noise is the sum of smaller noise and independent noise. So the result is the least
noise on the grid of the search. For sums of discrete Gaussians, and for the probability of biased
bits, delta is not proven to be monotone; only two adjacent grid points are certified. Proofs:
docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, Literal, TypeAlias

from accounting.derive_guarantee import guarantee
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import lzj_vector, paper_sum, tkms_bits
from accounting.protocol_guarantees.pure_shuffle_guarantee import plan_pure_shuffle, purity
from accounting.protocol_guarantees.shuffled_bits_guarantee import (
    fewest_bits,
    least_probability,
)
from accounting.published_noise_bounds import real_gaussian_ratio
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.integer_search import ceil_sqrt, least
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    Whole,
    check_fields,
    integer,
)
from dpcore.protocols.noisy_sums import (
    AggregatedSum,
    CentralSum,
    LocalSum,
    ShuffledPure,
    size_protocol,
)
from dpcore.protocols.run_protocol import Protocol
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle, VectorShuffle
from dpcore.spec_syntax import word

Instance: TypeAlias = Literal[
    "pure",
    "renyi",
    "concentrated",
    "central",
    "local",
    "shuffled-pure",
    "pure-shuffle",
    "binary-shuffle",
    "vector-shuffle",
]
Parameters: TypeAlias = Literal["exact", "paper"]

GRID: Final = 1024
"""Real parameters are multiples of 1/1024 times the start value of their search."""

SCALED: Final = ("renyi", "concentrated")
"""The instances with a scaling of the precision; their noise is calibrated via its variance."""

_BITS: Final = ("binary-shuffle", "vector-shuffle")
_PROBABILITY_GRID: Final = 1 << 16
_MOST_EPSILON: Final = 1000
_MOST_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    r"""A protocol chosen for a target (epsilon, delta), and its guarantee.

    The guarantee holds if ``honest`` users are honest and do not drop out. ``guarantee`` is derived
    independently of the target; ``meets`` is True if it is proven to meet the target.
    ``wraparound`` encloses the probability that a sum wraps around, and is None for protocols of
    bits.

    ``assumes`` is an assumption of the protocol that does not concern its noise, or "". With such
    an assumption, ``guarantee`` is only for the sum; the other messages to the server cost an
    additional ``assumed_epsilon``, which is included in the decision ``meets``.
    """

    instance: Instance
    parameters: Parameters
    protocol: Protocol
    honest: int
    epsilon: Fraction
    delta: Fraction
    guarantee: Guarantee
    meets: bool
    wraparound: Enclosure | None
    assumes: str = ""
    assumed_epsilon: Fraction = Fraction(0)


def protocol_guarantee(protocol: Protocol, honest: int) -> Guarantee:
    r"""The guarantee for one contribution, if ``honest`` users are honest and do not drop out.

    For :class:`ShuffledPure` it covers only the sum, although the server sees more than the sum.

    >>> share = DiscreteLaplace(scale=32).share(1024)
    >>> protocol = AggregatedSum(users=1024, precision=32, threshold=700, share=share)
    >>> protocol_guarantee(protocol, 1024).pure()
    Bound([1, 1], 'exact')
    """
    match protocol:
        case PureShuffle():
            return purity(protocol, honest)
        case ShuffledPure():
            return guarantee(protocol.sum_mechanism(honest))
    return guarantee(protocol.mechanism(honest))


def choose(  # noqa: PLR0913 - all arguments are keywords, most with a default
    *,
    instance: Instance,
    users: int,
    epsilon: RationalLike,
    delta: RationalLike = 0,
    honest_fraction: RationalLike = 1,
    failure: RationalLike = "1e-6",
    parameters: Parameters = "exact",
    precision: int | None = None,
    scaling: RationalLike = 1,
    coordinates: int = 1,
) -> Plan:
    r"""Choose a protocol for ``users`` users and an (epsilon, delta) target.

    At least the fraction ``honest_fraction`` of the users are honest and do not drop out.
    ``precision`` is the number g of steps per unit, by default that of the paper, or 1 for
    ``pure-shuffle``, which is in no paper.

    With ``parameters="exact"`` the noise is the least on a grid with which the honest users meet
    (epsilon, delta); for ``pure-shuffle`` it is slightly more. The modulus of sums is the least for
    which a sum wraps around with probability at most ``failure``. With ``"paper"`` the noise
    follows the published formula for this epsilon, corrected where necessary, with all users
    honest. In both cases the guarantee of the plan is derived from the chosen parameters.

    >>> plan = choose(instance="binary-shuffle", users=100, epsilon="1/2", delta="1e-6")
    >>> plan.protocol.noise_bits, plan.meets
    (3, True)
    >>> plan = choose(
    ...     instance="binary-shuffle", users=100, epsilon="1/2", delta="1e-6", parameters="paper"
    ... )
    >>> plan.protocol.noise_bits, plan.meets
    (56, True)

    Raises :class:`InvalidParameter` if an argument is out of range or not used by the instance, if
    epsilon is above 1000, if delta is 0 for an instance without pure DP, or if ``precision`` is
    given with ``parameters="paper"``; :class:`NotDerived` if no ``pure-shuffle`` is certified.
    """
    target = _Target(
        instance=instance,
        parameters=parameters,
        users=users,
        epsilon=epsilon,
        delta=delta,
        honest_fraction=honest_fraction,
        failure=failure,
        precision=0 if precision is None else integer("precision", precision, at_least=1),
        scaling=scaling,
        coordinates=coordinates,
    )
    if instance in _BITS:
        return _bits(target)
    return _pure_shuffle(target) if instance == "pure-shuffle" else _sum(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    instance: Instance = word(Instance)
    parameters: Parameters = word(Parameters)
    users: Whole = Whole()
    epsilon: Exact = Exact(zero="epsilon 0 needs infinite noise")
    delta: Exact = Exact(within="[0, 1)")
    honest_fraction: Exact = Exact(within="(0, 1]")
    failure: Exact = Exact("1e-6", within="(0, 1)")
    precision: Whole = Whole(0, at_least=0)  # 0: the default of the instance
    scaling: Exact = Exact(1, zero="it multiplies the precision")
    coordinates: Whole = Whole(1)

    def __post_init__(self) -> None:
        epsilon, scaling = self.epsilon, self.scaling  # as given, for the messages
        check_fields(self)
        if self.epsilon > _MOST_EPSILON:
            reason = f"must be <= {_MOST_EPSILON}: a larger epsilon protects nothing"
            raise InvalidParameter("epsilon", epsilon, reason)
        if not self.delta and self.instance in (*SCALED, *_BITS):
            reason = f"must be > 0: the loss of {self.instance} is unbounded"
            raise InvalidParameter("delta", self.delta, reason)
        if self.parameters == "paper" and self.precision:
            reason = "must be omitted: the paper fixes it"
            raise InvalidParameter("precision", self.precision, reason)
        if self.scaling != 1 and self.instance not in SCALED:
            reason = "must be 1: only the instances renyi and concentrated use it"
            raise InvalidParameter("scaling", scaling, reason)
        if self.coordinates != 1 and self.instance not in _BITS:
            reason = "must be 1: only the instance vector-shuffle sums vectors"
            raise InvalidParameter("coordinates", self.coordinates, reason)

    @property
    def honest(self) -> int:
        return math.ceil(self.honest_fraction * self.users)

    def plan(self, protocol: Protocol, wraparound: Enclosure | None = None) -> Plan:
        curve = protocol_guarantee(protocol, self.honest)
        relaxed = isinstance(protocol, ShuffledPure)
        spent = self.epsilon / 2 if relaxed else Fraction(0)
        return Plan(
            instance=self.instance,
            parameters=self.parameters,
            protocol=protocol,
            honest=self.honest,
            epsilon=self.epsilon,
            delta=self.delta,
            guarantee=curve,
            meets=_meets(curve, self.epsilon - spent, self.delta),
            wraparound=wraparound,
            assumes=f"an ({self.epsilon / 4}, q)-relaxed aggregation" if relaxed else "",
            assumed_epsilon=spent,
        )


def _meets(curve: Guarantee, epsilon: Fraction, delta: Fraction) -> bool:
    if isinstance(curve, PrivacyCurve) and isinstance(curve.noise, Binomial):
        return curve.meets(epsilon, delta)
    if delta == 0:
        return curve.epsilon(0).upper <= epsilon
    return curve.delta(epsilon).upper <= delta


# -- sums mod m -------------------------------------------------------------------------------


def _sum(target: _Target) -> Plan:
    scaling, failure = target.scaling, target.failure
    if target.parameters == "paper":
        paper = paper_sum(target.instance, target.users, target.epsilon, failure, scaling)
        return target.plan(paper, paper.planned_noise.enclose_tail(paper.threshold))
    # The scaling is 1, except for the two instances that have one.
    n, half = target.users, target.instance == "shuffled-pure"
    e = target.epsilon / 2 if half else target.epsilon
    g = target.precision or ceil_sqrt((scaling * e) ** 2 * n)
    make = partial(user_noise, target.instance, users=n)
    start = g / e
    if target.instance in SCALED:
        ratio = Fraction(real_gaussian_ratio(e, target.delta).upper)
        rough = Fraction(round(ratio * ratio * GRID), GRID) or Fraction(1, GRID)
        start = g * g * rough / target.honest
    step = start / GRID

    def enough(j: int) -> bool:
        if j > GRID << _MOST_DOUBLINGS:  # with few honest users, no noise suffices
            reason = f"is too small: noise of any useful size gives more than epsilon = {e}"
            raise InvalidParameter("honest_fraction", target.honest_fraction, reason)
        protocol = sum_protocol(target.instance, n, g, 0, make(step * j))
        return _meets(protocol_guarantee(protocol, target.honest), e, target.delta)

    noise = make(step * least(lambda j: j >= 1 and enough(j), GRID))
    planned = sum_protocol(target.instance, n, g, 0, noise).planned_noise
    size = size_protocol(users=n, precision=g, noise=planned, failure=failure)
    protocol = sum_protocol(target.instance, n, g, size.threshold, noise)
    return target.plan(protocol, size.wraparound)


def user_noise(instance: str, parameter: Fraction, users: int) -> Noise:
    r"""The noise that each user adds in the protocol ``instance``, or the analyzer in "central".

    ``parameter`` is the variance of Skellam noise in "renyi", the sigma^2 of discrete Gaussian
    noise in "concentrated", and in all other instances the scale of discrete Laplace noise, of
    which each user adds a share in "pure" and "shuffled-pure".
    """
    match instance:
        case "renyi":
            return Skellam(variance=parameter)
        case "concentrated":
            return DiscreteGaussian(sigma_squared=parameter)
        case "pure" | "shuffled-pure":
            return DiscreteLaplace(scale=parameter).share(users)
        case _:
            return DiscreteLaplace(scale=parameter)


def sum_protocol(
    instance: str, users: int, precision: int, threshold: int, noise: Noise
) -> AggregatedSum | CentralSum | LocalSum | ShuffledPure:
    r"""The modular-sum protocol ``instance``; ``noise`` is that of each user or of the analyzer."""
    size = {"users": users, "precision": precision, "threshold": threshold}
    match instance:
        case "central":
            return CentralSum(**size, noise=noise)
        case "local":
            return LocalSum(**size, noise=noise)
        case "shuffled-pure":
            return ShuffledPure(**size, share=noise)
        case _:
            return AggregatedSum(**size, share=noise)


# -- pure shuffling ---------------------------------------------------------------------------


def _pure_shuffle(target: _Target) -> Plan:
    if target.parameters == "paper":
        raise InvalidParameter("parameters", "paper", "pure-shuffle has no published parameters")
    protocol = plan_pure_shuffle(
        users=target.users,
        honest=target.honest,
        epsilon=target.epsilon,
        precision=target.precision or 1,
        failure=target.failure,
    )
    plan = target.plan(protocol)
    if not plan.meets:
        reason = f"the best shuffle tried is certified only for {plan.guarantee!r}"
        raise NotDerived(f"pure DP at epsilon = {target.epsilon}", reason)
    return plan


# -- bits -------------------------------------------------------------------------------------


def _bits(target: _Target) -> Plan:
    n, e, d, coordinates = target.users, target.epsilon, target.delta, target.coordinates
    binary = target.instance == "binary-shuffle"
    for name in ("coordinates", "precision"):
        if binary and getattr(target, name) > 1:
            reason = "must be 1: binary-shuffle sums one bit per user"
            raise InvalidParameter(name, getattr(target, name), reason)
    paper = tkms_bits(n, e, d) if binary else lzj_vector(n, coordinates, e, d)
    g = target.precision or paper.precision
    if target.parameters == "paper":
        bits, p = paper.bits, paper.rounded_up
    else:
        bounds, p = (g,) * coordinates, Fraction(1, 2)
        try:
            bits = fewest_bits(epsilon=e, delta=d, bounds=bounds, users=target.honest)
        except PrecisionExhausted as error:
            reason = f"is too large for exact parameters: {error}"
            raise InvalidParameter("coordinates", coordinates, reason) from None
        if bits == 1 and coordinates == 1:
            # One fair bit per user is more than sufficient: a biased bit may suffice.
            p = least_probability(
                trials=target.honest, epsilon=e, delta=d, bounds=bounds, grid=_PROBABILITY_GRID
            )
    if binary:
        return target.plan(BinaryShuffle(users=n, noise_bits=bits, probability=p))
    protocol = VectorShuffle(
        users=n, noise_bits=bits, probability=p, precision=g, coordinates=coordinates
    )
    return target.plan(protocol)
