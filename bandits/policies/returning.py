r"""Users who come back: one promise for all their visits, and batches released in parts.

The least noise that is certified to keep (epsilon, delta) over B releases of one law
(``accounting.budget.calibrate``), and elimination in releases of at most half of the people, or
over shuffled bits. A release needs as many different people as it has rewards. A batch that pulls
every active arm l times is split into m releases of an arm, none above ``most`` people, and the
policy adds up what they released: l rewards and m independent noises.
Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from accounting.budget.calibrate import calibrate
from accounting.budget.returning import per_user
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve
from bandits.batch import Confidence, Released, arms_and_horizon
from bandits.policies.elimination import NAMES, means_of, next_batch, surviving
from bandits.policies.policy import Choice, Policy
from bandits.policies.setting import A_SCHEDULE, Schedule, Setting
from bandits.policies.shuffle_elimination import ShuffleElimination
from bandits.privatizers.protocols import EVERYONE, Deployment
from bandits.privatizers.returning import SteadyLaw, SteadyPrivatizer, visits_of
from bandits.radius.certified import LEAST_FAILURE, certified_gap
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.numbers.parameter import Of, RationalLike, Whole, integer, rational


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedState:
    r"""The active arms in rising order, of ``arms``, and where the run is.

    Of batch ``batch``, of which a run of this length can complete ``batches``, ``sums`` holds what
    the first ``part`` parts released, arm by arm of the active ones.
    """

    arms: int
    active: tuple[int, ...]
    batches: int
    batch: int = 1
    part: int = 0
    sums: tuple[Fraction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedElimination(Policy[PartedState]):
    r"""Batched elimination with no release of more than ``most`` people.

    ``confidence`` is p: the best arm is dropped with chance at most p, by the certified gap of the
    sum of all noises of a batch, p shared equally among the batches of a run.

    >>> from dpcore import DiscreteLaplace
    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> schedule = Schedule(first=16, growth=4)
    >>> policy = PartedElimination(privatizer=steady, schedule=schedule, most=25)
    >>> policy.parts(1), policy.parts(2), policy.sizes(2, 100)
    ((16,), (22, 21, 21), (16, 21, 22))
    """

    privatizer: Of[SteadyPrivatizer] = Of(
        SteadyPrivatizer, "must be a SteadyPrivatizer: the noises of all parts have one law"
    )
    schedule: Of[Schedule] = Of(Schedule, A_SCHEDULE)
    most: Whole = Whole()
    confidence: Confidence = Confidence("1/10")

    @property
    def name(self) -> str:
        return f"{NAMES[self.privatizer.name]}-in-parts"

    def parts(self, batch: int) -> tuple[int, ...]:
        r"""The people in each release of an arm in batch b >= 1, nearly equal: l(b) together."""
        length = self.schedule.pulls(batch)
        count = -(-length // self.most)
        each, more = divmod(length, count)
        return (each + 1,) * more + (each,) * (count - more)

    def init(self, arms: int, horizon: int) -> PartedState:
        arms, horizon = arms_and_horizon(arms, horizon)
        batches = self.schedule.batches(horizon)
        return PartedState(arms=arms, active=tuple(range(arms)), batches=batches)

    def choose(self, state: PartedState) -> Choice:
        return next_batch(state.arms, state.active, self.parts(state.batch)[state.part])

    def observe(self, state: PartedState, released: Released) -> PartedState:
        parts = self.parts(state.batch)
        fresh = means_of(state.active, released, 1).values()
        before = state.sums or (Fraction(0),) * len(state.active)
        sums = tuple(old + new for old, new in zip(before, fresh, strict=True))
        if state.part + 1 < len(parts):
            return replace(state, part=state.part + 1, sums=sums)
        pulled = sum(map(self.privatizer.reporting, parts))
        means = {arm: total / pulled for arm, total in zip(state.active, sums, strict=True)}
        gap = self.gap(state.batch, active=len(state.active), batches=state.batches)
        kept = surviving(means, gap)
        return replace(state, active=kept, batch=state.batch + 1, part=0, sums=())

    def gap(self, batch: int, *, active: int, batches: int) -> float:
        r"""The certified width of the difference of two means, infinite if there is none.

        The best of ``active`` arms is compared with the others, each at p/(``batches`` (active -
        1)). Of that go 2 m chances of a sum that is read wrongly mod m, one for each part.

        Raises :class:`InvalidParameter` for fewer than one of anything, and a batch beyond
        ``batches``, which has no share of p.
        """
        parts, active = self.parts(batch), integer("active", active, at_least=1)
        if integer("batches", batches, at_least=1) < batch:
            raise InvalidParameter("batch", batch, f"must be <= batches = {batches}")
        share = self.confidence / batches / max(active - 1, 1)
        share -= 2 * len(parts) * rational("failure", self.privatizer.failure)
        if share < LEAST_FAILURE:
            return math.inf
        return certified_gap(
            self.privatizer.noise_of(parts),
            precision=self.privatizer.steps,
            pulls=sum(map(self.privatizer.reporting, parts)),
            failure=share,
        )

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        if arms == 1:
            return ()
        # A batch that the horizon cuts has released its first parts.
        batches = range(1, self.schedule.batches(horizon) + 2)
        return tuple({size: None for batch in batches for size in sorted(set(self.parts(batch)))})


STEPS: Final = 16
r"""The most g of a steady release: rounding adds at most 1/1024 a reward to a sum's variance."""

_BITS: Final = "binomial:probability=1/2"
_GAUSSIAN: Final = "discrete-gaussian"
_LAWS: Final = {
    "dist-dp-se": "discrete-laplace",
    "dist-rdp-se": "skellam",
    "dist-cdp-se": _GAUSSIAN,
    "sdp-ae": _BITS,
    "vb-sdp-ae": _BITS,
}
RETURNING: Final = tuple(_LAWS)
r"""The algorithms whose releases can all have one law of noise."""

_MOST_MASKED: Final = (1 << 16) - 1
_WIDE: Final = 1 << 18
_MOST_SHARES: Final = 1 << 10
_GRID: Final = 1 << 20
_NEAR: Final = Fraction(1, 1000)
_MORE: Final = tuple(Fraction(n, 1000) for n in (1003, 1020, 1200, 2000, 4000))


def steady_for(
    algorithm: str,
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    max_visits: int,
    failure: RationalLike,
    deployment: Deployment = EVERYONE,
) -> SteadyPrivatizer:
    r"""The least noise of an algorithm's law that keeps (epsilon, delta) over ``max_visits``.

    >>> once, often = (
    ...     steady_for("sdp-ae", epsilon=1, delta="1e-6", max_visits=b, failure="1e-9")
    ...     for b in (1, 16)
    ... )
    >>> once.law, often.law
    (Binomial(trials=80, probability='1/2'), Binomial(trials=1143, probability='1/2'))

    Raises :class:`InvalidParameter` for another algorithm, epsilon not > 0, a delta outside of
    (0, 1) and ``max_visits`` below 1; :class:`NotDerived` where no noise within reach keeps it.
    """
    if algorithm not in _LAWS:
        reason = f"has noise that visits cannot share; those that can are {', '.join(_LAWS)}"
        raise InvalidParameter("algorithms", algorithm, reason)
    e, d, most = rational("epsilon", epsilon), rational("delta", delta), visits_of(max_visits)
    law, steps = _law(_LAWS[algorithm], e, d, most)
    return SteadyPrivatizer(law=law, steps=steps, failure=failure, deployment=deployment)


@lru_cache(maxsize=1 << 8)
def _law(law: str, epsilon: Fraction, delta: Fraction, max_visits: int) -> tuple[SteadyLaw, int]:
    def least(noise: str, steps: int) -> Any:
        return calibrate(
            noise=noise, epsilon=epsilon, delta=delta, rounds=max_visits, sensitivity=steps
        ).noise

    if law == _BITS:
        return least(law, 1), 1
    steps = STEPS
    gaussian = least(_GAUSSIAN, steps)
    while gaussian.sigma_squared > _WIDE and steps > 1:
        # Beside so much noise coarser rewards do not show, and the law is bounded in less time.
        steps //= 2
        gaussian = least(_GAUSSIAN, steps)
    if law != _GAUSSIAN:
        return least(law, steps), steps
    # Of variance 1 each at least: the sum is as good as one Gaussian of a little more variance.
    count = min(max(math.floor(gaussian.sigma_squared), 1), _MOST_SHARES)
    for more in _MORE:
        share = Fraction(math.ceil(gaussian.sigma_squared * more * _GRID / count), _GRID)
        found = DiscreteGaussianSum(count=count, sigma_squared=share)
        visit = PrivacyCurve(noise=found, sensitivity=steps)
        if per_user(visit, max_visits=max_visits).epsilon(delta, _NEAR).upper <= epsilon:
            return found, steps
    raise NotDerived("a sum of discrete Gaussians for this promise", "take a larger delta")


def returning_policy(
    algorithm: str, setting: Setting, *, value: Fraction | None = None
) -> Policy[Any]:
    r"""The policy of that name for users who return: no release has more than half of the people.

    ``value`` is the m of sdp-ae, None for as many users as there are noise bits.

    Raises :class:`InvalidParameter` and :class:`NotDerived` as :func:`steady_for`, and
    :class:`InvalidParameter` for the s of other algorithms and a setting without ``max_visits``.
    """
    visits = visits_of(setting.max_visits)
    private = steady_for(
        algorithm,
        epsilon=setting.epsilon,
        delta=setting.delta,
        max_visits=visits,
        # A batch may be released in many parts, each of which may be read wrongly.
        failure=setting.failure / setting.horizon,
        deployment=setting.deployment,
    )
    most = max((setting.users or -(-setting.horizon // visits)) // 2, 1)
    if isinstance(private.law, Binomial):
        if algorithm == "vb-sdp-ae":
            return ShuffleElimination(privatizer=private)
        own = private.law.trials if value is None else value
        return ShuffleElimination(privatizer=private, batch=min(int(own), most))
    if value is not None:
        reason = f"{algorithm} has its own g where users return: leave s out"
        raise InvalidParameter("algorithms", f"{algorithm}:s={value}", reason)
    if setting.deployment.aggregation == "masked":
        most = min(most, _MOST_MASKED)
    return PartedElimination(
        privatizer=private,
        schedule=setting.schedule_for(private),
        most=most,
        confidence=setting.confidence,
    )
