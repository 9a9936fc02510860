r"""Elimination of arms: batched elimination in every trust model, DP-SE, SDP-AE and VB-SDP-AE.

Batch b = 1, 2, ... pulls every active arm equally often, always with new users. In Algorithm 1 of
Chowdhury and Zhou (:class:`BatchedElimination`) the mean of an arm comes only from the released sum
of this batch. An arm remains active while its mean is at most ``radius.gap`` below the best mean.
With the paper's confidence radius beta(b) this gap is 2 beta(b): an arm remains if the upper end of
its interval is at least the lower end of the interval of the best arm.

A :class:`Schedule` sets the batch lengths l(1), l(2), ... Batches that are too long increase the
regret, and batches that are too short to resolve any gap waste releases. Suppose that an arm is
dropped after the first batch b whose length is at least the length that its gap requires. The arm
is then pulled l(1) + ... + l(b) times. Let l(b) = l(1) eta^(b-1), and let the required length be
uniform on a logarithmic scale. Then the mean number of pulls is eta/ln(eta) times the required
length: 2.89 for eta = 2 and 4, and 2.73 for eta = 3. The minimum is at eta = e.

DP-SE is a discretised successive elimination in the central model (Sajed and Sheffet 2019). Let p
be the failure probability of the run, S the set of active arms and Delta_e = 2^-e. Epoch e = 1, 2,
... pulls every active arm

    R_e = ceil(max(32 ln(8 |S| e^2/p)/Delta_e^2, 8 ln(4 |S| e^2/p)/(epsilon Delta_e))) + 1

times. The mean of each arm is released with discrete Laplace noise of scale g/epsilon on rewards in
g = ceil(sqrt R_e) steps, instead of the paper's real-valued Laplace(1/(epsilon R_e)). In the paper
an arm remains active while its mean is within 2 h_e + 2 c_e of the largest, where

    h_e = sqrt(ln(8 |S| e^2/p)/(2 R_e)),   c_e = ln(4 |S| e^2/p)/(R_e epsilon)   (DpSeRadius).

SDP-AE and VB-SDP-AE (Tenenbaum, Kaplan, Mansour and Stemmer, "Differentially Private Multi-Armed
Bandits in the Shuffle Model", NeurIPS 2021, Theorems 3.1 and 3.3) eliminate arms over shuffled
bits. In phase t = 1, 2, ... each active arm is pulled by m (SDP-AE) or 2^t users (VB-SDP-AE). Means
are over all data so far, that is, over the rewards of N users in t released sums. The confidence
interval of an arm is its mean +- I. An arm is dropped when its interval lies below that of another
arm. With probability >= 1 - 4/T^2 all intervals contain their means, where T is the horizon. The
paper uses I = (2 sqrt(t) sigma/N + 1/sqrt(N)) sqrt(2 ln T), where sigma^2 is the largest noise
variance of a sum so far. The paper calls binomial noise sub-Gaussian with that variance, which is
true for fair bits but not for biased bits, whose upper tail is heavier. The exact radius, the
default, is Chernoff's bound on rewards and noise together, with the moment generating function of
the actual noise (:func:`joint_width`). Either interval misses its mean with probability <= 4/T^4.
Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import ClassVar, Final, Literal, TypeAlias

from flint import arb

from bandits.batch import (
    Commit,
    FailureProbability,
    Pulls,
    Released,
    arms_and_horizon,
    failure_probability_of,
)
from bandits.elimination_radii import ExactRadius, Radius, RadiusName, tkms_width
from bandits.policies.policy import Choice, Policy
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer
from bandits.privatizers.deployment import NO_NOISE
from bandits.privatizers.privatizer import Privatizer
from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.numbers.enclosure import ball, narrow, round_up
from dpcore.numbers.integer_search import ceiling
from dpcore.numbers.parameter import (
    Exact,
    Of,
    RationalLike,
    Whole,
    check_fields,
    integer,
    make_integers,
)
from dpcore.protocols.shuffled_bits import BinaryShuffle
from dpcore.spec_syntax import word

EXACT_GROWTH: Final = 3
r"""The integer eta that minimises eta/ln(eta)."""

_SURE_GAP: Final = Fraction(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Batch lengths l(b) = ``first`` * ``growth``^(b-1) per active arm, for b = 1, 2, ..."""

    first: Whole = Whole()
    growth: Whole = Whole(at_least=2)

    def __post_init__(self) -> None:
        check_fields(self)

    def pulls(self, batch: int) -> int:
        r"""The number of pulls l(b) of each active arm in batch b = ``batch`` >= 1."""
        return self.first * int(self.growth ** (integer("batch", batch, at_least=1) - 1))

    def batches(self, horizon: int) -> int:
        r"""The largest number of batches that ``horizon`` rounds can complete, at least 1."""
        left = integer("horizon", horizon, at_least=1)
        for batch in count(1):
            left -= 2 * self.pulls(batch)
            if left < 0:
                return max(batch - 1, 1)
        raise AssertionError  # the loop ends, because lengths grow


PAPER: Final = Schedule(first=2, growth=2)
r"""The schedule of Algorithm 1 of Chowdhury and Zhou 2023: l(b) = 2^b."""

RELEASED: Final = Schedule(first=4, growth=4)
r"""The schedule of the paper's released code for its distributed algorithms: l(b) = 4^b."""


def exact_schedule(
    privatizer: Privatizer, *, arms: int, horizon: int, failure: RationalLike
) -> Schedule:
    r"""The schedule that starts with the shortest batch certified to resolve a gap of 1/2.

    Let D be the certified gap of a batch with l pulls of each arm: ``ExactRadius.gap`` with all
    ``arms`` active, where p = ``failure`` is shared equally among the batches that fit in
    ``horizon``. An arm whose true mean is more than 2 D below the best is then dropped. The
    candidates for the first length are the lengths l = 2^i and l = 3 2^i that use at most half of
    the horizon. The smallest candidate with 2 D <= 1/2 is chosen, as in the first epoch of DP-SE.
    If no candidate satisfies this, the largest is chosen. Lengths grow by a factor of 3.
    """
    arms, rounds = arms_and_horizon(arms, horizon)
    chance = failure_probability_of(failure, argument="failure")
    most = max(rounds // (2 * arms), 1)
    powers = [1 << i for i in range(most.bit_length())]
    lengths = sorted({*powers, *(3 * p for p in powers if 3 * p <= most)})

    def sure(length: int) -> bool:
        schedule = Schedule(first=length, growth=EXACT_GROWTH)
        radius = ExactRadius(batches=schedule.batches(rounds))
        gap = radius.gap(privatizer, length, batch=1, active=arms, failure=chance)
        return 2 * gap <= _SURE_GAP

    # Gaps decrease with the length: the smallest sufficient length, or the longest.
    place = bisect_left(lengths, x=True, hi=len(lengths) - 1, key=sure)
    return Schedule(first=lengths[place], growth=EXACT_GROWTH)


ScheduleName: TypeAlias = Literal["exact", "paper", "released"]
r"""Batch lengths: ``exact_schedule``, 2^b (the paper) or 4^b (its released code)."""

OF_PAPERS: Final = {"paper": PAPER, "released": RELEASED}
r"""The schedules of the paper and of its code."""


NAMES: Final[dict[str, str]] = {
    "none": "se",
    "central": "cdp-se",
    "local": "ldp-se",
    "pure": "dist-dp-se",
    "renyi": "dist-rdp-se",
    "concentrated": "dist-cdp-se",
    "shuffled-pure": "shuffled-se",
    "pure-shuffle": "shuffled-se",
    "binary-shuffle": "bit-se",
}
"""The name of batched elimination for each privatizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminationState:
    r"""The active arms among ``arms``, in increasing order, and the number of the next batch.

    If a batch is split into several releases of each arm, ``part`` is the index of the next one.
    ``sums`` contains, for each active arm, the sum of the earlier releases that its next mean also
    uses. It is empty if the next mean uses no earlier release.
    """

    arms: int
    active: tuple[int, ...]
    horizon: int = 0
    batch: int = 1
    part: int = 0
    sums: tuple[Fraction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Elimination(Policy[EliminationState]):
    r"""Base class: pull the active arms equally often, then drop those far below the best.

    If ``pooled`` is true, a mean is over all rewards of the run so far; otherwise it is over those
    of the last batch.
    """

    pooled: ClassVar[bool] = False

    @property
    @abstractmethod
    def privatizer(self) -> Privatizer:
        r"""The privatizer that releases the sum of each arm."""

    @abstractmethod
    def length(self, batch: int, active: int) -> int:
        r"""The number of pulls of each of ``active`` arms in batch b = 1, 2, ..."""

    @abstractmethod
    def judged(self, state: EliminationState) -> tuple[int, float]:
        r"""Return the number of rewards in each mean after the batch, and the gap for elimination.

        An arm is dropped if the best mean exceeds its mean by more than this gap.
        """

    def parts(self, batch: int, active: int) -> tuple[int, ...]:
        r"""The number of users in each release of an arm in ``batch``; they sum to ``length``."""
        return (self.length(batch, active),)

    def init(self, arms: int, horizon: int) -> EliminationState:
        arms, horizon = arms_and_horizon(arms, horizon)
        return EliminationState(arms=arms, active=tuple(range(arms)), horizon=horizon)

    def choose(self, state: EliminationState) -> Choice:
        if len(state.active) == 1:
            return Commit(state.active[0])
        each = self.parts(state.batch, len(state.active))[state.part]
        return Pulls(tuple(each if arm in state.active else 0 for arm in range(state.arms)))

    def observe(self, state: EliminationState, released: Released) -> EliminationState:
        fresh = means_of(state.active, released, 1)
        sums = dict(zip(state.active, state.sums or (Fraction(0),) * len(fresh), strict=True))
        sums = {arm: total + fresh[arm] for arm, total in sums.items()}
        if state.part + 1 < len(self.parts(state.batch, len(state.active))):
            return replace(state, part=state.part + 1, sums=tuple(sums.values()))
        pulled, gap = self.judged(state)
        active = surviving({arm: total / pulled for arm, total in sums.items()}, gap)
        kept = tuple(sums[arm] for arm in active if self.pooled)
        return replace(state, active=active, batch=state.batch + 1, part=0, sums=kept)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        return _sizes(self, arms, horizon)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessiveElimination(Elimination):
    r"""Base class of algorithms whose means use only the last batch; subclasses define ``length``.

    ``failure_probability`` is p: if ``radius`` is proven, the best arm is dropped with probability
    at most p. It is not the parameter ``failure`` of the privatizer, which is about decoding
    errors.
    """

    radius: Of[Radius] = Of(Radius, "must be a Radius, e.g. ExactRadius()", ExactRadius())
    failure_probability: FailureProbability = FailureProbability("1/10")

    def judged(self, state: EliminationState) -> tuple[int, float]:
        active = len(state.active)
        parts = self.parts(state.batch, active)
        gap = self.radius.gap(
            self.privatizer,
            parts if len(parts) > 1 else parts[0],
            batch=state.batch,
            active=active,
            failure=self.failure_probability,
        )
        return sum(map(self.privatizer.reporting, parts)), gap


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedElimination(SuccessiveElimination):
    r"""Batched elimination (Algorithm 1 of Chowdhury and Zhou) with a privatizer and a schedule.

    ``schedule`` sets the batch lengths, and ``most`` the largest number of users in a release. A
    longer batch is split into several releases of each arm, whose sums are added.

    >>> from bandits.privatizers.privatizer import Unprotected
    >>> from bandits.policies.successive_elimination import RELEASED
    >>> se = BatchedElimination(privatizer=Unprotected(), schedule=RELEASED)
    >>> se.name, se.choose(se.init(3, 1000))
    ('se', Pulls(counts=(4, 4, 4)))
    >>> from bandits.privatizers.returning_users import SteadyPrivatizer
    >>> from dpcore import DiscreteLaplace
    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> policy = BatchedElimination(
    ...     privatizer=steady, schedule=Schedule(first=16, growth=4), most=25
    ... )
    >>> policy.parts(1), policy.parts(2), policy.sizes(2, 100)
    ((16,), (22, 21, 21), (16, 21, 22))

    Raises :class:`InvalidParameter` if the failure probability is outside (0, 1/2) or a field has
    the wrong type.
    """

    privatizer: Of[Privatizer] = Of(Privatizer, "must be a Privatizer")
    schedule: Of[Schedule] = Of(Schedule, "must be a Schedule, e.g. PAPER", PAPER)
    most: int | None = None

    def __post_init__(self) -> None:
        SuccessiveElimination.__post_init__(self)
        if self.most is None:
            return
        integer("most", self.most, at_least=1)
        if self.privatizer.least_noise is None:
            reason = "must be a SteadyPrivatizer: the noise of all parts must have the same law"
            raise InvalidParameter("privatizer", self.privatizer, reason)
        if not isinstance(self.radius, ExactRadius):
            raise InvalidParameter("radius", self.radius, "must be ExactRadius() if most is given")

    @property
    def name(self) -> str:
        name = NAMES.get(self.privatizer.name, f"{self.privatizer.name}-se")
        return name if self.most is None else f"{name}-in-parts"

    def length(self, batch: int, active: int) -> int:  # noqa: ARG002  # the same for any number
        return self.schedule.pulls(batch)

    def parts(self, batch: int, active: int = 2) -> tuple[int, ...]:
        length = self.length(batch, active)
        count = -(-length // (self.most or length))
        each, more = divmod(length, count)
        return (each + 1,) * more + (each,) * (count - more)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        if self.most is None or arms == 1:
            return SuccessiveElimination.sizes(self, arms, horizon)
        # The first parts of a batch that the horizon truncates may have been released.
        batches = range(1, self.schedule.batches(horizon) + 2)
        return tuple({size: None for batch in batches for size in sorted(set(self.parts(batch)))})


def completed_sizes(arms: int, horizon: int, length: Callable[[int, int], int]) -> tuple[int, ...]:
    r"""The lengths of all batches that an elimination may complete, in increasing order.

    ``length(b, active)`` is the number of pulls of each of ``active`` arms in batch b = 1, 2, ...;
    it is non-decreasing in ``active`` and exceeds any horizon for large b. The first batch pulls
    all ``arms``. The number of active arms never grows, so a later batch with ``active`` arms takes
    the fewest rounds to reach if all other arms are dropped after the first batch.
    """
    arms, horizon = integer("arms", arms, at_least=1), integer("horizon", horizon, at_least=1)
    if arms == 1 or arms * length(1, arms) > horizon:
        return ()
    found = {length(1, arms)}
    for active in range(2, arms + 1):
        spent, batch = arms * length(1, arms), 2
        while (spent := spent + active * length(batch, active)) <= horizon:
            found.add(length(batch, active))
            batch += 1
        if batch == 2:
            break  # with more arms the second batch is no cheaper
    return tuple(sorted(found))


@lru_cache(maxsize=1 << 8)
def _sizes(policy: Elimination, arms: int, horizon: int) -> tuple[int, ...]:
    arms, horizon = arms_and_horizon(arms, horizon)
    return completed_sizes(arms, horizon, policy.length)


def means_of(active: tuple[int, ...], released: Released, pulls: int) -> dict[int, Fraction]:
    r"""The mean of each active arm, from its released sum over ``pulls`` users."""
    means = {}
    for arm in active:
        total = released.sums[arm] if arm < len(released.sums) else None
        if total is None:
            raise InvalidParameter("released", released.sums, f"must contain a sum for arm {arm}")
        means[arm] = total / pulls
    return means


def surviving(means: dict[int, Fraction], gap: float) -> tuple[int, ...]:
    r"""The arms whose mean is at most ``gap`` below the largest; all arms for an infinite gap."""
    if gap == math.inf:
        return tuple(means)
    least = max(means.values()) - Fraction(gap)
    return tuple(arm for arm, mean in means.items() if mean >= least)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSe(SuccessiveElimination):
    r"""The algorithm DP-SE of Sajed and Sheffet for ``epsilon``; each batch is an epoch.

    ``radius=DpSeRadius()`` is the paper's radius; the default is certified for the actual noise
    instead. The number of pulls in an epoch is always the paper's. The privatizer adds central
    noise to rewards in g = ceil(sqrt n) steps for n users. ``failure`` bounds the probability that
    a sum mod m is decoded incorrectly.
    """

    epsilon: Exact = Exact(zero=NO_NOISE)
    failure: Exact = Exact(within="(0, 1)")

    @property
    def name(self) -> str:
        return "dp-se"

    @property
    def privatizer(self) -> SumPrivatizer:
        e = self.epsilon
        return SumPrivatizer(trust="central", epsilon=e, failure=self.failure, scaling=1 / e)

    def length(self, batch: int, active: int) -> int:
        return _epoch_pulls(batch, active, self.epsilon, self.failure_probability)


@lru_cache(maxsize=1 << 12)
def _epoch_pulls(epoch: int, active: int, epsilon: Fraction, p: Fraction) -> int:
    odds = 4 * active * epoch**2 / p
    reward = ceiling(lambda: 32 * 4**epoch * ball(2 * odds).log())
    noise = ceiling(lambda: 8 * 2**epoch * ball(odds).log() / ball(epsilon))
    return max(reward, noise) + 1


Sums: TypeAlias = tuple[tuple[int, int], ...]
"""The sums in a mean, as pairs (users per sum, number of sums with that many users)."""

_BITS: Final = 64
_TILTS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleElimination(Elimination):
    r"""SDP-AE with ``batch`` users per arm in each phase, or VB-SDP-AE if ``batch`` is None.

    VB-SDP-AE has 2^t users per arm in phase t = 1, 2, ...

    >>> from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer
    >>> privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    >>> vb = ShuffleElimination(privatizer=privatizer)
    >>> vb.name, vb.choose(vb.init(2, 1000))
    ('vb-sdp-ae', Pulls(counts=(2, 2)))
    >>> ShuffleElimination(privatizer=privatizer, batch=64).name
    'sdp-ae'

    Raises :class:`InvalidParameter` if the privatizer does not shuffle bits, the radius is unknown,
    or ``batch`` is below 1.
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
        r"""The number N of rewards in all sums of an active arm up to ``phase``."""
        reporting = self.privatizer.reporting
        return sum(reporting(users) * count for users, count in self.sums(phase))

    def sums(self, phase: int) -> Sums:
        r"""The sums in the mean of an active arm after ``phase``, as pairs (users, count)."""
        if self.batch is not None:
            return ((self.batch, phase),)
        return tuple((1 << t, 1) for t in range(1, phase + 1))

    def judged(self, state: EliminationState) -> tuple[int, float]:
        return self.pulled(state.batch), 2 * self.width(state.batch, state.horizon)

    def width(self, phase: int, horizon: int) -> float:
        r"""The half-width I of the confidence intervals after phase t = ``phase``, rounded up."""
        return _width(self, phase, horizon)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        if self.batch is None:
            return Elimination.sizes(self, arms, horizon)
        arms, horizon = arms_and_horizon(arms, horizon)
        return (self.batch,) if arms > 1 and arms * self.batch <= horizon else ()


@lru_cache(maxsize=1 << 12)
def _width(policy: ShuffleElimination, phase: int, horizon: int) -> float:
    # The width that a mean exceeds with probability <= 4/T^4: Chernoff's bound with the law of the
    # actual noise (:func:`joint_width`), or the formula of Tenenbaum et al. 2021.
    pulls, noises = policy.pulled(phase), []
    for users, times in policy.sums(phase):
        one = policy.privatizer.noise(users)
        assert isinstance(one, Binomial)  # noqa: S101  # the noise of bits
        noises.append((one, times))
    if policy.radius == "exact":
        laws = tuple(
            Binomial(trials=times * int(one.trials), probability=one.probability)
            for one, times in noises
        )
        return joint_width(laws, pulls, min(Fraction(4, horizon**4), Fraction(1, 2)))
    variance = max(Fraction(one.variance) for one, _ in noises)
    return tkms_width(
        batches=sum(times for _, times in noises),
        pulls=pulls,
        sigma=Fraction(narrow(lambda: ball(variance).sqrt(), _BITS).upper),
        horizon=horizon,
    )


def joint_width(laws: tuple[Binomial, ...], pulls: int, failure: Fraction) -> float:
    r"""Return w with P(\|mean - mu\| > w) <= ``failure``, for rewards with binomial noise.

    The mean is over N = ``pulls`` independent rewards in [0, 1] with mean mu. Their sum contains
    independent noise of the ``laws`` Binomial(n_i, p_i), minus its mean. By Chernoff's bound, w is
    valid if N w = (h(a) + K(a) + ln(2/failure))/a for some tilt a > 0. Here h(a) = N a^2/8 is
    Hoeffding's bound for the rewards, and K(a) = sum_i n_i (ln(1 - p_i + p_i e^a) - a p_i) is the
    logarithm of the moment generating function of the noise. For the lower tail, p_i is replaced by
    1 - p_i. The result is rounded up.
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
