r"""Sums of bits by shuffling with pure epsilon: noise with covers, certified."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from accounting.protocols.pure_shuffle import plan_pure_shuffle
from bandits.batch import chance_of
from bandits.privatizers.deployment import EVERYONE, Deployment, check_planned
from bandits.privatizers.privatizer import Privatizer
from dpcore.numbers.parameter import Exact, integer, make_positive
from dpcore.protocols.pure_shuffle import PureShuffle

__all__ = ["PureShufflePrivatizer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PureShufflePrivatizer(Privatizer):
    r"""The sum of n bits from shuffled messages: epsilon for each user, and no delta.

    Rewards other than 0 and 1 are rounded to a bit at random (g = 1). ``failure`` is about the
    chance that a release holds a cover (:meth:`missed`), which stands for somebody's reward. The
    guarantee of each size is certified before it is given, and one that is not is refused.

    >>> privatizer = PureShufflePrivatizer(epsilon=1, failure="1e-6")
    >>> privatizer.bits(128), privatizer.guarantee(128)
    (93, Pure(1))

    ``deployment`` says how many users may vanish or collude: the others' noise is enough.

    Raises :class:`InvalidParameter` for epsilon not > 0 and a failure outside of (0, 1).
    """

    epsilon: Exact = Exact()
    failure: Exact = Exact()
    deployment: Deployment = EVERYONE

    def __post_init__(self) -> None:
        make_positive(self, epsilon="no noise gives epsilon 0")
        object.__setattr__(self, "failure", chance_of("failure", self.failure))
        check_planned(self.deployment, "exact")

    @property
    def name(self) -> str:
        return "pure-shuffle"

    def protocol(self, pulls: int) -> PureShuffle:
        return _protocol(self, integer("pulls", pulls, at_least=1))


@lru_cache(maxsize=1 << 10)
def _protocol(privatizer: PureShufflePrivatizer, n: int) -> PureShuffle:
    return plan_pure_shuffle(
        users=n,
        honest=privatizer.deployment.counted_on(n),
        epsilon=Fraction(privatizer.epsilon),
        failure=privatizer.failure,
    )
