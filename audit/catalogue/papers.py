r"""Claims of papers that do not hold, run as mechanisms (docs/errata.md, sections 1, 3, 4 and 7).

CZ: Chowdhury and Zhou, "Distributed Differential Privacy in Multi-Armed Bandits" (ICLR 2023).
LZJ: Li, Zhou and Ji, "Differentially Private Linear Bandits with Partial Distributed Feedback"
(WiOpt 2022). CSB: Chen, Zheng, Zhou, Yang, Chen and Wang, "(Locally) Differentially Private
Combinatorial Semi-Bandits" (ICML 2020). Where a paper's parameter is no fraction, a fraction beside
it is taken; the comments say on which side.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from audit.catalogue.composition import FIRST_EVENT, TREE, tree
from audit.catalogue.entry import Entry, Layer, Twin, seeded
from dpcore import Binomial, DiscreteGaussian, Enclosure, PolyaDifference
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

__all__ = ["ENTRIES"]

_STEPS: Final = 100
_MOVED: Final = 3
_NOISE_BITS: Final = 8
_SPENT: Final = Fraction(70, 3)
_USERS: Final = 64
# e^(1/4) = 1.2840..., from below.
_ODDS: Final = Fraction(1284, 1000)


def _gaussian(value: int, sigma_squared: int, n: int, rng: np.random.Generator) -> Integers:
    noise = DiscreteGaussian(sigma_squared=sigma_squared).sample(n, rng=seeded(rng))
    return _STEPS * value + noise


def exact_gaussian(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A number in [0, 1] in hundredths, sigma^2 = 611: the least integer that gives (10, 1/4)."""
    return _gaussian(value, 611, n, rng)


def classical_gaussian(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with sigma^2 = 322, a little more than 100^2 * 2 ln(1.25/delta)/epsilon^2."""
    return _gaussian(value, 322, n, rng)


def _bits(value: int, chance: Fraction, n: int, rng: np.random.Generator) -> Integers:
    noise = Binomial(trials=_NOISE_BITS, probability=chance).sample(n, rng=seeded(rng))
    return _MOVED * value + noise


def fair_bits(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A sum in thirds and two fair noise bits from each of four users: (70/3, 0.145)."""
    return _bits(value, Fraction(1, 2), n, rng)


def lemma_bits(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with bits of chance 0.726, a little less than the lemma's 0.7265..."""
    return _bits(value, Fraction("0.726"), n, rng)


def tree_of_log(stream: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Sums over a tree of four events with noise of scale log2(4) = 2; it has three levels."""
    return tree(stream, 2, n, rng)


def _relaxed(value: int, scale: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Rows (sum of 64 users' messages, coin), the first user's value in one step.

    The coin tells of the first message: 1 with chance c u if it is the value 1 with no noise, else
    with chance c/u, where u = 1.284 and c = 1/(1 + u). It is within ln u <= 1/4 of a coin of chance
    c whatever the messages are: such an aggregation is (1/4, 0)-relaxed.
    """
    source = seeded(rng)
    share = PolyaDifference(shape=Fraction(1, _USERS), scale=scale)
    others = PolyaDifference(shape=Fraction(_USERS - 1, _USERS), scale=scale)
    message = value + share.sample(n, rng=source)
    up, one = _ODDS.numerator, _ODDS.denominator
    # Chances of 1 over one denominator u (1 + u): u^2 and 1.
    likely = np.where(message == 1, up * up, one * one)
    coin = rng.integers(up * (up + one), size=n) < likely
    return np.column_stack((message + others.sample(n, rng=source), coin.astype(np.int64)))


def relaxed_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Noise of scale 2 g/epsilon = 2: 1/2 for the sum and 1/4 twice for the coin."""
    return _relaxed(value, 2, n, rng)


def relaxed_sum_as_printed(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Noise of scale g/epsilon = 1, as Theorem 3 prints it."""
    return _relaxed(value, 1, n, rng)


def _printed() -> arb:
    # At (1, 1): the first message is 1 by the value under B, by its noise under A. Both chances
    # are given times u (1 + u).
    share = PolyaDifference(shape=Fraction(1, _USERS), scale=1)
    rest = PolyaDifference(shape=Fraction(_USERS - 1, _USERS), scale=1).pmf_ball(0)
    total = PolyaDifference(shape=1, scale=1)
    more = ball(_ODDS) ** 2 - 1
    here = total.pmf_ball(0) + more * share.pmf_ball(0) * rest
    there = total.pmf_ball(1) + more * share.pmf_ball(1) * rest
    return (here / there).log()


def _gaussians(sigma_squared: int) -> tuple[str, str]:
    # Of the datasets 0 and 1, in hundredths.
    noise = f"discrete-gaussian:sigma_squared={sigma_squared}"
    return f"{noise}@0", f"{noise}@100"


ENTRIES: Final = (
    Entry(
        name="classical-gaussian",
        number=45,
        sentence="The classical formula for Gaussian noise is used at epsilon = 10, where it gives "
        "delta = 0.788 for 0.25.",
        source="LZJ Theorems 4.2, 4.4, C.1 and C.3 as used in its experiments; proven for "
        "epsilon <= 1",
        run=classical_gaussian,
        laws=_gaussians(322),
        epsilon=Fraction(10),
        delta=Fraction(1, 4),
        # At delta = 1/4. Runs would have to show that e^10 times a chance is little: 10^6 of them.
        true_epsilon=Enclosure(Fraction("18.344515"), Fraction("18.344516")),
        runs=1_000_000,
        layer=Layer.EXACT,
        twin=Twin(
            name="exact-gaussian",
            run=exact_gaussian,
            laws=_gaussians(611),
            epsilon=Fraction(10),
            delta=Fraction(1, 4),
        ),
    ),
    Entry(
        name="lemma-bits",
        number=47,
        sentence="Noise bits of chance 0.73 instead of 1/2: large sums of one world do not exist "
        "in the other, delta is 0.62.",
        source="LZJ Lemma C.5 as printed, at n = 4, B = 1, g = 3, epsilon-hat = 14, delta = 0.49",
        run=lemma_bits,
        laws=("binomial:trials=8,probability=0.726@0", "binomial:trials=8,probability=0.726@3"),
        epsilon=_SPENT,
        delta=Fraction("0.49"),
        # e^(70/3) runs are more than anyone has: what never happens looks like what seldom does.
        true_epsilon=Enclosure.infinite(),
        runs=100_000,
        layer=Layer.EXACT,
        # P(Bin(8, 1/2) <= 2) = 37/256 = 0.1445...
        twin=Twin(
            name="fair-bits",
            run=fair_bits,
            laws=("binomial:trials=8,probability=1/2@0", "binomial:trials=8,probability=1/2@3"),
            epsilon=_SPENT,
            delta=Fraction("0.145"),
        ),
    ),
    Entry(
        name="tree-of-log",
        number=48,
        sentence="Noise of scale log2(4) = 2 for the tree sums of four events, and the tree has "
        "three levels.",
        source="CSB Lemma 1, taken at its word with logarithms to base 2",
        run=tree_of_log,
        pair=FIRST_EVENT,
        true_epsilon=Enclosure.exactly(Fraction(3, 2)),
        runs=20_000,
        twin=TREE,
    ),
    Entry(
        name="shuffled-as-printed",
        number=49,
        sentence="The noise of a sum takes the whole epsilon, and the relaxed aggregation that "
        "carries it takes half of it again.",
        source="CZ Theorem 3 as printed: the noise must spend epsilon/2",
        run=relaxed_sum_as_printed,
        true_epsilon=narrow(_printed, 64),
        runs=3_000,
        twin=Twin(name="relaxed-sum", run=relaxed_sum),
    ),
)
