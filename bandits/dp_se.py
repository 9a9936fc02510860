r"""DP-SE: successive elimination in the central model (Sajed and Sheffet 2019), discretised.

Epoch e = 1, 2, ... has Delta_e = 2^-e and pulls every active arm

    R_e = ceil(max(32 ln(8 |S| e^2/p)/Delta_e^2, 8 ln(4 |S| e^2/p)/(epsilon Delta_e))) + 1

times. Its mean is released with discrete Laplace noise of scale g/epsilon on rewards in
g = ceil(sqrt R_e) steps, in the place of the paper's Laplace(1/(epsilon R_e)) on the reals; an arm
stays while its mean is within 2 h_e + 2 c_e of the largest,

    h_e = sqrt(ln(8 |S| e^2/p)/(2 R_e)),   c_e = ln(4 |S| e^2/p)/(R_e epsilon)   (DpSeRadius).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from accounting.papers.arguments import ceiling
from bandits.elimination import EliminationState, means_of, surviving
from bandits.policy import Choice, Commit, Policy, Pulls, Released, arms_and_horizon, confidence_of
from bandits.privatizer_sum import SumPrivatizer
from bandits.radius import DpSeRadius, Radius
from dpcore.enclosure import ball
from dpcore.errors import InvalidParameter
from dpcore.parameter import RationalLike, integer, positive_rational

__all__ = ["DpSe", "epoch_pulls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSe(Policy[EliminationState]):
    r"""Sajed and Sheffet's algorithm for ``epsilon``; a state's ``batch`` is the epoch e.

    Another ``radius`` takes the place of 2 h_e + 2 c_e in the rule; R_e stays the paper's.
    ``failure`` is the chance that a sum is read wrongly mod m.

    >>> dp_se = DpSe(epsilon="1/2", failure="1e-6")
    >>> state = dp_se.init(10, 10**6)
    >>> dp_se.name, dp_se.choose(state).counts[0], dp_se.privatizer.precision(857)
    ('dp-se', 857, 30)

    Raises :class:`InvalidParameter` for epsilon not > 0, and a failure or confidence outside of
    (0, 1).
    """

    epsilon: RationalLike
    failure: RationalLike
    confidence: RationalLike = "1/10"
    radius: Radius = field(default=DpSeRadius())

    def __post_init__(self) -> None:
        epsilon = positive_rational("epsilon", self.epsilon, "no noise gives epsilon 0")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "confidence", confidence_of(self.confidence))
        object.__setattr__(self, "failure", self.privatizer.failure)
        if not isinstance(self.radius, Radius):
            raise InvalidParameter("radius", self.radius, "must be a Radius, e.g. DpSeRadius()")

    @property
    def name(self) -> str:
        return "dp-se"

    @property
    def privatizer(self) -> SumPrivatizer:
        r"""Central noise on g = ceil(sqrt n) steps."""
        e = Fraction(self.epsilon)
        return SumPrivatizer(trust="central", epsilon=e, failure=self.failure, scaling=1 / e)

    def init(self, arms: int, horizon: int) -> EliminationState:
        arms, _ = arms_and_horizon(arms, horizon)
        return EliminationState(arms=arms, active=tuple(range(arms)), batch=1)

    def pulls(self, state: EliminationState) -> int:
        r"""R_e of the coming epoch."""
        return epoch_pulls(state.batch, len(state.active), self.epsilon, self.confidence)

    def choose(self, state: EliminationState) -> Choice:
        if len(state.active) == 1:
            return Commit(state.active[0])
        each = self.pulls(state)
        return Pulls(tuple(each if arm in state.active else 0 for arm in range(state.arms)))

    def observe(self, state: EliminationState, released: Released) -> EliminationState:
        each, active = self.pulls(state), len(state.active)
        p = confidence_of(self.confidence)
        gap = self.radius.gap(self.privatizer, each, batch=state.batch, active=active, failure=p)
        means = means_of(state.active, released, each)
        return replace(state, active=surviving(means, gap), batch=state.batch + 1)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        found: set[int] = set()
        for active in range(2, arms + 1):
            epoch = 1
            while active * (each := self._planned(epoch, active)) <= horizon:
                found.add(each)
                epoch += 1
        return tuple(sorted(found))

    def _planned(self, epoch: int, active: int) -> int:
        return epoch_pulls(epoch, active, self.epsilon, self.confidence)


def epoch_pulls(epoch: int, active: int, epsilon: RationalLike, confidence: RationalLike) -> int:
    r"""R_e for e = ``epoch``, |S| = ``active`` and p = ``confidence``.

    >>> epoch_pulls(1, 10, "1/2", "1/10")
    857
    """
    return _pulls(
        integer("epoch", epoch, at_least=1),
        integer("active", active, at_least=1),
        positive_rational("epsilon", epsilon, "no noise gives epsilon 0"),
        confidence_of(confidence),
    )


@lru_cache(maxsize=1 << 12)
def _pulls(epoch: int, active: int, epsilon: Fraction, p: Fraction) -> int:
    odds = 4 * active * epoch**2 / p
    reward = ceiling(lambda: 32 * 4**epoch * ball(2 * odds).log())
    noise = ceiling(lambda: 8 * 2**epoch * ball(odds).log() / ball(epsilon))
    return max(reward, noise) + 1
