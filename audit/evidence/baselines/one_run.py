r"""The baseline of one run: each run counted as a canary of a single run of a larger mechanism.

n runs in worlds drawn by n fair coins are one run of the mechanism that takes the coins and returns
all n outputs; it is (epsilon, delta)-DP in each coin. The audit guesses some of the coins from all
outputs together, where :mod:`audit.evidence.fixed` needs a rule fixed beforehand.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from audit.evidence.baselines.scores import Asked, Scores
from audit.evidence.one_run import largest_rejected, one_run_p_value

__all__ = ["GUESSED", "one_run"]

GUESSED: Final = 10
r"""One in so many of the runs is guessed at each end of the scores."""


def one_run(scores: Scores, asked: Asked) -> float:
    r"""The lowest tenth of the outputs is guessed to be of one world, the highest of the other.

    Valid: which way round is not looked up, each way has alpha/2. The bound is the largest epsilon
    rejected.
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

    return largest_rejected(rejected)
