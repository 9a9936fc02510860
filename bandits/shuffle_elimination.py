r"""SDP-AE and VB-SDP-AE: arm elimination over shuffled bits.

Tenenbaum, Kaplan, Mansour and Stemmer, "Differentially Private Multi-Armed Bandits in the Shuffle
Model" (NeurIPS 2021), Theorems 3.1 and 3.3. Phase t = 1, 2, ... pulls every active arm m users
(SDP-AE) or 2^t users (VB-SDP-AE); means are over all data so far, N users in t sums. An arm is
dropped when its interval mean +- I lies below another's. With chance >= 1 - 4/T^2 all intervals
hold their means.

``radius="paper"``: I = (2 sqrt(t) sigma/N + 1/sqrt(N)) sqrt(2 ln T), sigma^2 the largest variance
of the noise of a sum so far. The paper calls binomial noise sub-Gaussian with that variance: so it
is for fair bits, not for biased ones, whose upper tail is heavier. ``radius="exact"``: Chernoff's
bound on rewards and noise at once, with the moment function of the noise that is there
(:func:`joint_width`). Either interval misses its mean with chance at most 4/T^4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from flint import arb

from bandits.elimination import surviving
from bandits.policy import Choice, Commit, Policy, Pulls, Released, arms_and_horizon
from bandits.privatizer_bits import BitPrivatizer
from bandits.radius import tkms_width
from dpcore.binomial import Binomial
from dpcore.enclosure import ball, narrow, round_up
from dpcore.errors import InvalidParameter
from dpcore.parameter import integer

__all__ = ["Kind", "ShuffleElimination", "ShuffleState", "joint_width"]

Kind: TypeAlias = Literal["exact", "paper"]

_BITS = 64
_TILTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleState:
    r"""The active arms, their released sums so far, and the phase t that comes next."""

    arms: int
    horizon: int
    active: tuple[int, ...]
    sums: tuple[Fraction, ...]
    phase: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleElimination(Policy[ShuffleState]):
    r"""SDP-AE with batches of ``batch`` users an arm, or VB-SDP-AE (``batch`` None, 2^t users).

    >>> privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    >>> vb = ShuffleElimination(privatizer=privatizer)
    >>> vb.name, vb.choose(vb.init(2, 1000))
    ('vb-sdp-ae', Pulls(counts=(2, 2)))
    >>> ShuffleElimination(privatizer=privatizer, batch=64).name
    'sdp-ae'

    Raises :class:`InvalidParameter` for a privatizer of another kind, a batch below 1 and a radius
    that is neither "exact" nor "paper".
    """

    privatizer: BitPrivatizer
    batch: int | None = None
    radius: Kind = "exact"

    def __post_init__(self) -> None:
        if not isinstance(self.privatizer, BitPrivatizer):
            raise InvalidParameter("privatizer", self.privatizer, "must be a BitPrivatizer")
        if self.batch is not None:
            object.__setattr__(self, "batch", integer("batch", self.batch, at_least=1))
        if self.radius not in get_args(Kind):
            raise InvalidParameter("radius", self.radius, "must be 'exact' or 'paper'")

    @property
    def name(self) -> str:
        return "vb-sdp-ae" if self.batch is None else "sdp-ae"

    def size(self, phase: int) -> int:
        r"""The users of one arm in phase t >= 1."""
        return 1 << phase if self.batch is None else self.batch

    def pulled(self, phase: int) -> int:
        r"""N: the users of an active arm in phases 1 to t."""
        return (2 << phase) - 2 if self.batch is None else phase * self.batch

    def init(self, arms: int, horizon: int) -> ShuffleState:
        arms, horizon = arms_and_horizon(arms, horizon)
        return ShuffleState(
            arms=arms,
            horizon=horizon,
            active=tuple(range(arms)),
            sums=(Fraction(0),) * arms,
            phase=1,
        )

    def choose(self, state: ShuffleState) -> Choice:
        if len(state.active) == 1:
            return Commit(state.active[0])
        each = self.size(state.phase)
        return Pulls(tuple(each if arm in state.active else 0 for arm in range(state.arms)))

    def observe(self, state: ShuffleState, released: Released) -> ShuffleState:
        fresh = released.sums
        if len(fresh) != state.arms or any(fresh[arm] is None for arm in state.active):
            raise InvalidParameter("released", fresh, "must hold a sum of every active arm")
        sums = tuple(old + (new or 0) for old, new in zip(state.sums, fresh, strict=True))
        pulled = self.pulled(state.phase)
        means = {arm: sums[arm] / pulled for arm in state.active}
        width = self.width(state.phase, state.horizon)
        return replace(state, active=surviving(means, 2 * width), sums=sums, phase=state.phase + 1)

    def width(self, phase: int, horizon: int) -> float:
        r"""I after phase t = ``phase``, rounded up."""
        return _width(self, phase, horizon)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        found, phase = [], 1
        while arms > 1 and 2 * self.pulled(phase) <= horizon:
            found.append(self.size(phase))
            if self.batch is not None:
                break
            phase += 1
        return tuple(found)


@lru_cache(maxsize=1 << 12)
def _width(policy: ShuffleElimination, phase: int, horizon: int) -> float:
    pulled = policy.pulled(phase)
    if policy.batch is None:
        laws = tuple(policy.privatizer.noise(policy.size(t)) for t in range(1, phase + 1))
    else:
        one = policy.privatizer.noise(policy.batch)
        laws = (Binomial(trials=phase * int(one.trials), probability=one.probability),)
    if policy.radius == "paper":
        count = 1 if policy.batch is None else phase
        variance = max(Fraction(law.variance) for law in laws) / count
        sigma = narrow(lambda: ball(variance).sqrt(), _BITS).upper
        return tkms_width(batches=phase, pulls=pulled, sigma=Fraction(sigma), horizon=horizon)
    return joint_width(laws, pulled, min(Fraction(4, horizon**4), Fraction(1, 2)))


def joint_width(laws: tuple[Binomial, ...], pulls: int, failure: Fraction) -> float:
    r"""P(\|mean - mu\| > width) <= ``failure`` for N = ``pulls`` rewards and binomial noises.

    By Chernoff's bound on both at once, for any tilt a > 0: N width = (N a^2/8 + K(a) +
    ln(2/failure))/a, with Hoeffding's N a^2/8 for rewards in [0, 1] and K(a) = sum_i n_i (ln(1 -
    p_i + p_i e^a) - a p_i) for the noise; the lower side has 1 - p in the place of p. Rounded up.

    >>> laws = (Binomial(trials=200, probability="1/2"), Binomial(trials=900, probability="1/9"))
    >>> joint_width(laws, 1000, Fraction(1, 1000))
    0.077...
    """
    sides = (
        tuple((int(law.trials), Fraction(law.probability)) for law in laws),
        tuple((int(law.trials), 1 - Fraction(law.probability)) for law in laws),
    )
    return round_up(max(_deviation(side, pulls, failure / 2) for side in sides) / pulls)


def _deviation(side: tuple[tuple[int, Fraction], ...], pulls: int, failure: Fraction) -> Fraction:
    need = math.log(1 / failure)
    floats = [(n, float(p)) for n, p in side]

    def rough(a: float) -> float:
        moment = sum(n * (math.log1p(p * math.expm1(a)) - a * p) for n, p in floats)
        return (pulls * a * a / 8 + moment + need) / a

    start = math.sqrt(2 * need / (pulls / 4 + sum(n * p * (1 - p) for n, p in floats)))
    # Any tilt is sound; the best of a list is near enough to the best.
    tilt = Fraction(min((start * 1.02**j for j in range(-_TILTS, _TILTS // 2)), key=rough))

    def exactly() -> arb:
        a = ball(tilt)
        moment = sum((n * ((1 + ball(p) * a.expm1()).log() - a * ball(p)) for n, p in side), arb(0))
        return (pulls * a * a / 8 + moment + ball(1 / failure).log()) / a

    return Fraction(narrow(exactly, _BITS).upper)
