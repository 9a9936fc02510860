r"""Claims of papers that do not hold, run as mechanisms (docs/errata.md, sections 1, 3, 4 and 7).

CZ: Chowdhury and Zhou, "Distributed Differential Privacy in Multi-Armed Bandits" (ICLR 2023). LZJ:
Li, Zhou and Ji, "Differentially Private Linear Bandits with Partial Distributed Feedback" (WiOpt
2022). CSB: Chen, Zheng, Zhou, Yang, Chen and Wang, "(Locally) Differentially Private Combinatorial
Semi-Bandits" (ICML 2020). If a paper's parameter is irrational, a nearby fraction is used; a
comment states on which side.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from audit.broken_mechanisms.catalogue_entry import Entry, Layer, Twin, seeded
from audit.broken_mechanisms.composition import FIRST_EVENT, TREE, tree
from dpcore import Binomial, DiscreteGaussian, Enclosure, PolyaDifference
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

_STEPS: Final = 100
_MOVED: Final = 3
_NOISE_BITS: Final = 8
_SPENT: Final = Fraction(70, 3)
_USERS: Final = 64
# A lower bound on e^(1/4) = 1.2840...
_ODDS: Final = Fraction(1284, 1000)


def gaussian(value: int, n: int, rng: np.random.Generator, *, sigma_squared: int) -> Integers:
    r"""A number in [0, 1] in hundredths, plus noise. sigma^2 = 611 is the least integer that gives
    (10, 1/4)-DP; 322 is the paper's 100^2 * 2 ln(1.25/delta)/epsilon^2, rounded up.
    """
    noise = DiscreteGaussian(sigma_squared=sigma_squared).sample(n, rng=seeded(rng))
    return _STEPS * value + noise


def noisy_bits(value: int, n: int, rng: np.random.Generator, *, chance: Fraction) -> Integers:
    r"""A sum in thirds, and two noise bits from each of four users. Fair bits give (70/3,
    0.145)-DP; the lemma uses probability 0.7265..., and 0.726 is slightly less.
    """
    noise = Binomial(trials=_NOISE_BITS, probability=chance).sample(n, rng=seeded(rng))
    return _MOVED * value + noise


def relaxed_sum(value: int, n: int, rng: np.random.Generator, *, scale: int) -> Integers:
    r"""Rows (sum of 64 users' messages, coin), where the first user's value is 0 or 1 steps.

    Noise of scale 2 g/epsilon = 2 spends 1/2 on the sum and 1/4 twice on the coin; Theorem 3 prints
    g/epsilon = 1.

    The coin depends on the first message: it is 1 with probability c u if the message is 1, and
    otherwise with probability c/u, where u = 1.284 and c = 1/(1 + u). For every message the coin's
    log-probabilities are within ln u <= 1/4 of those of a coin with probability c, so this
    aggregation is (1/4, 0)-relaxed.
    """
    source = seeded(rng)
    share = PolyaDifference(shape=Fraction(1, _USERS), scale=scale)
    others = PolyaDifference(shape=Fraction(_USERS - 1, _USERS), scale=scale)
    message = value + share.sample(n, rng=source)
    up, one = _ODDS.numerator, _ODDS.denominator
    # The probabilities of 1 with the common denominator u (1 + u): u^2 and 1.
    likely = np.where(message == 1, up * up, one * one)
    coin = rng.integers(up * (up + one), size=n) < likely
    return np.column_stack((message + others.sample(n, rng=source), coin.astype(np.int64)))


def _printed() -> arb:
    # The event (1, 1): the first message is 1 due to the value under B, due to noise under A. Both
    # probabilities are multiplied by u (1 + u).
    share = PolyaDifference(shape=Fraction(1, _USERS), scale=1)
    rest = PolyaDifference(shape=Fraction(_USERS - 1, _USERS), scale=1).pmf_ball(0)
    total = PolyaDifference(shape=1, scale=1)
    more = ball(_ODDS) ** 2 - 1
    here = total.pmf_ball(0) + more * share.pmf_ball(0) * rest
    there = total.pmf_ball(1) + more * share.pmf_ball(1) * rest
    return (here / there).log()


def _gaussians(sigma_squared: int) -> tuple[str, str]:
    # The laws on the datasets 0 and 1, in hundredths.
    noise = f"discrete-gaussian:sigma_squared={sigma_squared}"
    return f"{noise}@0", f"{noise}@100"


ENTRIES: Final = (
    Entry(
        name="classical-gaussian",
        number=45,
        sentence=(
            "The classical formula for Gaussian noise is used at epsilon = 10, where it gives "
            "delta = 0.788 instead of 0.25."
        ),
        source="Li, Zhou and Ji (2022) Theorems 4.2, 4.4, C.1 and C.3 as used in its "
        "experiments; proven for epsilon <= 1",
        run=partial(gaussian, sigma_squared=322),
        laws=_gaussians(322),
        epsilon=Fraction(10),
        delta=Fraction(1, 4),
        # At delta = 1/4. A sample would need 10^6 runs to show that e^10 times a probability is
        # small.
        true_epsilon=Enclosure(Fraction("18.344515"), Fraction("18.344516")),
        runs=1_000_000,
        layer=Layer.EXACT,
        twin=Twin(
            name="exact-gaussian",
            run=partial(gaussian, sigma_squared=611),
            laws=_gaussians(611),
        ),
    ),
    Entry(
        name="lemma-bits",
        number=47,
        sentence="Noise bits of probability 0.73 instead of 1/2: large sums of one dataset are "
        "impossible on the other; delta is 0.62.",
        source="Li, Zhou and Ji (2022) Lemma C.5 as printed, at n = 4, B = 1, g = 3, "
        "epsilon-hat = 14, delta = 0.49",
        run=partial(noisy_bits, chance=Fraction("0.726")),
        laws=("binomial:trials=8,probability=0.726@0", "binomial:trials=8,probability=0.726@3"),
        epsilon=_SPENT,
        delta=Fraction("0.49"),
        # Sampling would need about e^(70/3) runs to distinguish impossible outputs from rare ones.
        true_epsilon=Enclosure.infinite(),
        runs=100_000,
        layer=Layer.EXACT,
        # P(Bin(8, 1/2) <= 2) = 37/256 = 0.1445...
        twin=Twin(
            name="fair-bits",
            run=partial(noisy_bits, chance=Fraction(1, 2)),
            laws=("binomial:trials=8,probability=1/2@0", "binomial:trials=8,probability=1/2@3"),
            delta=Fraction("0.145"),
        ),
    ),
    Entry(
        name="tree-of-log",
        number=48,
        sentence="The tree sums of four events have noise of scale log2(4) = 2, but the tree "
        "has three levels.",
        source="Chen et al. (2020) Lemma 1 as printed, with logarithms to base 2",
        run=partial(tree, scale=2),  # log2(4), although there are three levels
        pair=FIRST_EVENT,
        true_epsilon=Enclosure.exactly(Fraction(3, 2)),
        runs=20_000,
        twin=TREE,
    ),
    Entry(
        name="shuffled-as-printed",
        number=49,
        sentence=(
            "The noise of a sum spends the whole epsilon, and the relaxed aggregation spends half "
            "of it in addition."
        ),
        source="Chowdhury and Zhou (2023) Theorem 3 as printed: the noise must spend epsilon/2",
        run=partial(relaxed_sum, scale=1),
        true_epsilon=narrow(_printed, 64),
        runs=3_000,
        twin=Twin(name="relaxed-sum", run=partial(relaxed_sum, scale=2)),
    ),
)
