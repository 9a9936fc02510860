r"""Sums of bits by shuffling: Algorithm 3 of Tenenbaum, Kaplan, Mansour and Stemmer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from accounting.box import BinomialBox
from accounting.distributed import choose, protocol_guarantee
from bandits.policy import ReleasedSum
from bandits.privatizer import ALL_HONEST, Privatizer
from dpcore.binomial import Binomial
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.parameter import RationalLike, integer, positive_rational, rational
from dpcore.rng import SYSTEM, Rng
from dpcore.shuffled_bits import BinaryShuffle

__all__ = ["BitPrivatizer"]

Parameters: TypeAlias = Literal["exact", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BitPrivatizer(Privatizer):
    r"""The sum of n bits, each shuffled among its owner's random bits: (epsilon, delta) for each.

    Rewards other than 0 and 1 are rounded to a bit at random (g = 1). ``parameters="exact"`` takes
    the fewest random bits that give (epsilon, delta), ``"paper"`` the paper's tau, which is
    96 ln(2/delta)/epsilon^2. The noise is binomial; the analyzer subtracts its mean.

    >>> privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    >>> privatizer.noise(16), privatizer.bits(16)
    (Binomial(trials=272, probability='1/2'), 18)
    >>> privatizer.guarantee(16).meets("1/2", "1e-6")
    True

    Raises :class:`InvalidParameter` for epsilon not > 0 and a delta outside of (0, 1).
    """

    epsilon: RationalLike
    delta: RationalLike
    parameters: Parameters = "exact"

    def __post_init__(self) -> None:
        epsilon = positive_rational("epsilon", self.epsilon, "no noise gives epsilon 0")
        delta = rational("delta", self.delta)
        if not 0 < delta < 1:
            reason = "must lie in (0, 1): the loss of bits is unbounded"
            raise InvalidParameter("delta", self.delta, reason)
        if self.parameters not in get_args(Parameters):
            raise InvalidParameter("parameters", self.parameters, "must be 'exact' or 'paper'")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def name(self) -> str:
        return "binary-shuffle"

    def protocol(self, pulls: int) -> BinaryShuffle:
        return _protocol(self, integer("pulls", pulls, at_least=1))

    def precision(self, pulls: int) -> int:
        integer("pulls", pulls, at_least=1)
        return 1

    def bits(self, pulls: int) -> int:
        return self.protocol(pulls).bits_per_user

    def noise(self, pulls: int) -> Binomial:
        return self.protocol(pulls).planned_noise

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        protocol = self.protocol(pulls)
        ones = self.checked(encoded_sum, pulls) + protocol.planned_noise.sample(rng=rng)
        return ReleasedSum(protocol.estimates(np.array([ones]), pulls)[0])

    def guarantee(self, pulls: int) -> BinomialBox:
        return cast(BinomialBox, protocol_guarantee(self.protocol(pulls), pulls))

    def record(self, pulls: int, batch: str) -> Release:
        return Release(mechanism=self.protocol(pulls).mechanism(pulls), batch=batch)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("the shuffler shows the server the bits only", ALL_HONEST)


@lru_cache(maxsize=1 << 10)
def _protocol(privatizer: BitPrivatizer, n: int) -> BinaryShuffle:
    plan = choose(
        instance="binary-shuffle",
        users=n,
        epsilon=privatizer.epsilon,
        delta=privatizer.delta,
        parameters=privatizer.parameters,
    )
    return cast(BinaryShuffle, plan.protocol)
