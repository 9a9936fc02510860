r"""Sums of bits by shuffling: Algorithm 3 of Tenenbaum, Kaplan, Mansour and Stemmer."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from accounting.protocols.choose import choose
from bandits.batch import chance_of, check_word
from bandits.privatizers.deployment import EVERYONE, Deployment, check_planned
from bandits.privatizers.privatizer import Privatizer
from dpcore.numbers.parameter import Exact, integer, make_positive
from dpcore.protocols.shuffled_bits import BinaryShuffle

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

    ``deployment`` says how many users may vanish or collude: the others' bits are enough.

    Raises :class:`InvalidParameter` for epsilon not > 0, a delta outside of (0, 1), and the paper's
    bits for others than everyone.
    """

    epsilon: Exact = Exact()
    delta: Exact = Exact()
    parameters: Parameters = "exact"
    deployment: Deployment = EVERYONE

    def __post_init__(self) -> None:
        make_positive(self, epsilon="no noise gives epsilon 0")
        delta = chance_of("delta", self.delta)  # the loss of bits is unbounded
        check_word("parameters", self.parameters, Parameters)
        check_planned(self.deployment, self.parameters)
        object.__setattr__(self, "delta", delta)

    @property
    def name(self) -> str:
        return "binary-shuffle"

    def protocol(self, pulls: int) -> BinaryShuffle:
        return _protocol(self, integer("pulls", pulls, at_least=1))


@lru_cache(maxsize=1 << 10)
def _protocol(privatizer: BitPrivatizer, n: int) -> BinaryShuffle:
    plan = choose(
        instance="binary-shuffle",
        users=n,
        epsilon=privatizer.epsilon,
        delta=privatizer.delta,
        honest_fraction=Fraction(privatizer.deployment.counted_on(n), n),
        parameters=privatizer.parameters,
    )
    return cast(BinaryShuffle, plan.protocol)
