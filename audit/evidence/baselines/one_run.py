r"""The baseline of one run: each run counted as a canary of a single run of a larger mechanism.

n runs in worlds drawn by n fair coins are one run of the mechanism that takes the coins and returns
all n outputs; it is (epsilon, delta)-DP in each coin. The audit guesses some of the coins from all
outputs together, where :mod:`audit.evidence.fixed` needs a rule fixed beforehand.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import betainc, expit
from scipy.stats import binom

from audit.evidence.baselines.scores import Asked, Scores

__all__ = ["GUESSED", "one_run", "one_run_p_value"]

GUESSED: Final = 10
r"""One in so many of the runs is guessed at each end of the scores."""

_LARGEST: Final = 64.0
_STEPS: Final = 50


def one_run_p_value(
    canaries: int, guesses: int, right: int, *, epsilon: float, delta: float
) -> float:
    r"""P(at least ``right`` of the ``guesses`` are right) <= this, if (epsilon, delta)-DP holds.

        P(W >= v) + 2 m delta max_{1 <= i <= v} P(v > W >= v - i)/i,
        W ~ Bin(r, e^epsilon/(1 + e^epsilon)),

    for m canaries, r guesses (fixed beforehand), v of them right. Source: Steinke, Nasr and
    Jagielski 2023, "Privacy auditing with one (1) training run", Theorem 5.2. In floats, without
    directed rounding.

    >>> one_run_p_value(10, 3, 3, epsilon=0, delta=0)
    0.125
    """
    q = float(expit(epsilon))
    if right == 0:
        return 1.0
    tail = float(betainc(right, guesses - right + 1, q))
    if delta == 0.0:
        return tail
    window = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    worst = float((window / np.arange(1, right + 1)).max())
    return min(1.0, tail + 2 * canaries * delta * worst)


def one_run(scores: Scores, asked: Asked) -> float:
    r"""The lowest tenth of the outputs is guessed to be of one world, the highest of the other.

    Valid: which way round is not looked up, each way has alpha/2. The bound is the largest epsilon
    rejected, found by bisection; the p-value grows with epsilon where it is small.
    """
    canaries = len(scores.numbers)
    end = canaries // GUESSED
    if not end:
        return 0.0
    order = np.argsort(scores.numbers, kind="stable")
    of_b = np.concatenate((~scores.worlds[order[:end]], scores.worlds[order[-end:]]))
    right = int(np.count_nonzero(of_b))
    right = max(right, 2 * end - right)

    def rejected(epsilon: float) -> bool:
        p_value = one_run_p_value(canaries, 2 * end, right, epsilon=epsilon, delta=asked.delta)
        return p_value <= asked.alpha / 2

    if not rejected(0.0):
        return 0.0
    if rejected(_LARGEST):
        return _LARGEST
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
