r"""SDP-AE and VB-SDP-AE: arm elimination over shuffled bits.

Tenenbaum, Kaplan, Mansour and Stemmer, "Differentially Private Multi-Armed Bandits in the Shuffle
Model" (NeurIPS 2021), Theorems 3.1 and 3.3. In phase t = 1, 2, ... each active arm is pulled by m
(SDP-AE) or 2^t users (VB-SDP-AE); means are over all data so far, N users in t sums. An arm is
dropped when its interval mean +- I lies below that of another arm. With probability >= 1 - 4/T^2
all intervals contain their means.

The paper has I = (2 sqrt(t) sigma/N + 1/sqrt(N)) sqrt(2 ln T), where sigma^2 is the largest noise
variance of a sum so far. It calls binomial noise sub-Gaussian with that variance, which is true for
fair bits but not for biased ones, whose upper tail is heavier. The exact radius, the default, is
Chernoff's bound on rewards and noise together, with the moment generating function of the actual
noise (:func:`joint_width`). Either interval misses its mean with probability <= 4/T^4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from flint import arb

from bandits.batch import arms_and_horizon
from bandits.policies.successive_elimination import Elimination, EliminationState
from bandits.privatizers.privatizer import Privatizer
from bandits.radius.confidence_radii import RadiusName, tkms_width
from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.numbers.enclosure import ball, narrow, round_up
from dpcore.numbers.parameter import check_fields, make_integers
from dpcore.protocols.shuffled_bits import BinaryShuffle
from dpcore.spec_syntax import word

Sums: TypeAlias = tuple[tuple[int, int], ...]
"""The sums in a mean, as pairs (users per sum, number of sums with that many users)."""

_BITS: Final = 64
_TILTS: Final = 60


def exact_radius(privatizer: Privatizer, sums: Sums, horizon: int) -> float:
    r"""The width I of the mean over ``sums``, by Chernoff's bound with the law of the actual noise.

    The mean deviates by more with probability <= 4/T^4, T = ``horizon`` (:func:`joint_width`).
    """
    laws = tuple(_noise(privatizer, users, count) for users, count in sums)
    failure = min(Fraction(4, horizon**4), Fraction(1, 2))
    return joint_width(laws, reporting(privatizer, sums), failure)


def paper_radius(privatizer: Privatizer, sums: Sums, horizon: int) -> float:
    r"""The width I of Tenenbaum et al. 2021 (``confidence_radii.tkms_width``)."""
    variance = max(Fraction(_noise(privatizer, users, 1).variance) for users, _ in sums)
    return tkms_width(
        batches=sum(count for _, count in sums),
        pulls=reporting(privatizer, sums),
        sigma=Fraction(narrow(lambda: ball(variance).sqrt(), _BITS).upper),
        horizon=horizon,
    )


def _noise(privatizer: Privatizer, users: int, count: int) -> Binomial:
    one = privatizer.noise(users)
    assert isinstance(one, Binomial)  # noqa: S101  # the noise of bits
    return Binomial(trials=count * int(one.trials), probability=one.probability)


def reporting(privatizer: Privatizer, sums: Sums) -> int:
    r"""The number N of users whose rewards are in ``sums``, among all selected users."""
    return sum(privatizer.reporting(users) * count for users, count in sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleElimination(Elimination):
    r"""SDP-AE with ``batch`` users per arm and phase, or VB-SDP-AE with 2^t (``batch`` None).

    >>> from bandits.privatizers.batch_sums import BitPrivatizer
    >>> privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    >>> vb = ShuffleElimination(privatizer=privatizer)
    >>> vb.name, vb.choose(vb.init(2, 1000))
    ('vb-sdp-ae', Pulls(counts=(2, 2)))
    >>> ShuffleElimination(privatizer=privatizer, batch=64).name
    'sdp-ae'

    Raises :class:`InvalidParameter` for a privatizer of another type, another radius, or a batch
    below 1.
    """

    pooled: ClassVar[bool] = True

    privatizer: Privatizer = field()
    batch: int | None = None
    radius: RadiusName = word(RadiusName, "exact")

    def __post_init__(self) -> None:
        check_fields(self)
        bits = isinstance(self.privatizer, Privatizer) and isinstance(
            self.privatizer.protocol(1), BinaryShuffle
        )
        if not bits:
            reason = "must be a privatizer of shuffled bits, e.g. BitPrivatizer"
            raise InvalidParameter("privatizer", self.privatizer, reason)
        if self.batch is not None:
            make_integers(self, "batch")

    @property
    def name(self) -> str:
        return "vb-sdp-ae" if self.batch is None else "sdp-ae"

    def length(self, batch: int, active: int) -> int:  # noqa: ARG002  # the same for any number
        return 1 << batch if self.batch is None else self.batch

    def pulled(self, phase: int) -> int:
        r"""The number N of users of an active arm whose rewards are in the sums up to ``phase``."""
        return reporting(self.privatizer, self.sums(phase))

    def sums(self, phase: int) -> Sums:
        r"""The sums in the mean of an active arm after phase t, as (size, count) pairs."""
        if self.batch is not None:
            return ((self.batch, phase),)
        return tuple((1 << t, 1) for t in range(1, phase + 1))

    def judged(self, state: EliminationState) -> tuple[int, float]:
        return self.pulled(state.batch), 2 * self.width(state.batch, state.horizon)

    def width(self, phase: int, horizon: int) -> float:
        r"""The width I after phase t = ``phase``, rounded up."""
        return _width(self, phase, horizon)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        if self.batch is None:
            return Elimination.sizes(self, arms, horizon)
        arms, horizon = arms_and_horizon(arms, horizon)
        return (self.batch,) if arms > 1 and arms * self.batch <= horizon else ()


@lru_cache(maxsize=1 << 12)
def _width(policy: ShuffleElimination, phase: int, horizon: int) -> float:
    radius = exact_radius if policy.radius == "exact" else paper_radius
    return radius(policy.privatizer, policy.sums(phase), horizon)


def joint_width(laws: tuple[Binomial, ...], pulls: int, failure: Fraction) -> float:
    r"""A width with P(\|mean - mu\| > width) <= ``failure``, N = ``pulls`` and binomial noise.

    By Chernoff's bound on rewards and noise, for any tilt a > 0: N width = (N a^2/8 + K(a) +
    ln(2/failure))/a, with Hoeffding's N a^2/8 for rewards in [0, 1] and K(a) = sum_i n_i (ln(1 -
    p_i + p_i e^a) - a p_i) for the noise; the lower side has 1 - p instead of p. Rounded up.
    """
    sides = (
        tuple((int(law.trials), law.probability) for law in laws),
        tuple((int(law.trials), 1 - law.probability) for law in laws),
    )
    return round_up(max(_deviation(side, pulls, failure / 2) for side in sides) / pulls)


def _deviation(side: tuple[tuple[int, Fraction], ...], pulls: int, failure: Fraction) -> Fraction:
    need = math.log(1 / failure)
    floats = [(n, float(p)) for n, p in side]

    def rough(a: float) -> float:
        moment = sum(n * (math.log1p(p * math.expm1(a)) - a * p) for n, p in floats)
        return (pulls * a * a / 8 + moment + need) / a

    start = math.sqrt(2 * need / (pulls / 4 + sum(n * p * (1 - p) for n, p in floats)))
    # The bound holds for any tilt; the best of a list is close to the optimum.
    tilt = Fraction(min((start * 1.02**j for j in range(-_TILTS, _TILTS // 2)), key=rough))

    def exactly() -> arb:
        a = ball(tilt)
        moment = sum((n * ((1 + ball(p) * a.expm1()).log() - a * ball(p)) for n, p in side), arb(0))
        return (pulls * a * a / 8 + moment + ball(1 / failure).log()) / a

    return Fraction(narrow(exactly, _BITS).upper)
