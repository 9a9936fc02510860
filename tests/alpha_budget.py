r"""One budget of false-alarm probability (alpha) for the whole run.

A statistical test rejects correct code with probability at most its alpha. Each test buys that
alpha here, by name, and uses the result of :func:`buy_alpha`; by the union bound a run of the whole
suite rejects correct code with probability at most :data:`TOTAL`, taken over the choice of the
seeds. The seeds are fixed, so a run repeats bit for bit: the budget bounds the probability that a
seed was bad when it was chosen, and discourages drawing seeds until one passes.

    alpha = buy_alpha("discrete Laplace, scale 10: cells", "1e-9")
    assert p_value > alpha

A test of many cells buys once and divides its alpha among them (Bonferroni). A parametrised test
puts its parameter into the name.
"""

from __future__ import annotations

import os
from fractions import Fraction

from audit.testing.alpha_budget import AlphaBudget
from dpcore.numbers.parameter import RationalLike

TOTAL = Fraction(1, 10**6)

# In a run with several processes each of them has its share.
BUDGET = AlphaBudget(TOTAL * Fraction(os.environ.get("ALPHA_SHARE", "1")))


def buy_alpha(name: str, alpha: RationalLike) -> float:
    r"""Spend ``alpha`` under a name that is unique in this run."""
    return float(BUDGET.buy(name, alpha))
