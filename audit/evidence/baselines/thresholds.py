r"""Baselines from the counts of events "output <= t" and "output > t".

(epsilon, delta)-DP bounds every event: P(X in S) <= e^epsilon Q(X in S) + delta, so with bounds
p <= P(S) and q >= Q(S) that hold together, epsilon >= ln((p - delta)/q).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from audit.evidence.baselines.scores import (
    Asked,
    Counts,
    Scores,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from audit.evidence.event import Floats

__all__ = [
    "BONFERRONI_THRESHOLDS",
    "bonferroni_thresholds",
    "chosen_event",
    "clopper_pearson_split",
    "dkw",
    "plug_in",
]

BONFERRONI_THRESHOLDS: Final = 32
r"""How many thresholds share the level."""


def _log_ratio(p: Floats, q: Floats, delta: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.log(np.maximum(p - delta, 0.0)) - np.log(q)
    return np.where(np.isnan(found), -np.inf, found)


def _bounded(counts: Counts, delta: float, level: float) -> Floats:
    p = clopper_pearson_lower(counts.hits, counts.runs, level)
    q = clopper_pearson_upper(counts.misses, counts.others, level)
    return _log_ratio(p, q, delta)


def chosen_event(scores: Scores, asked: Asked) -> Counts | None:
    r"""The event with the largest bound in one random half of the runs, counted in the other.

    None where there are no runs to choose by.
    """
    order = asked.coins.permutation(len(scores.numbers))
    train, test = scores.part(order[: len(order) // 2]), scores.part(order[len(order) // 2 :])
    thresholds = train.thresholds()
    if not thresholds.size:
        return None
    on_train = np.array(
        [_bounded(counts, asked.delta, asked.alpha / 2) for counts in train.counts(thresholds)]
    )
    event, place = np.unravel_index(int(np.argmax(on_train)), on_train.shape)
    return list(test.counts(thresholds[place : place + 1]))[int(event)]


def clopper_pearson_split(scores: Scores, asked: Asked) -> float:
    r"""Event from one random half, Clopper-Pearson bounds at alpha/2 each from the other.

    Valid: the event is fixed before the runs it is counted on, and both bounds hold together with
    probability at least 1 - alpha. Source: re-derived after the split method of jax_privacy's
    auditing.
    """
    counts = chosen_event(scores, asked)
    if counts is None:
        return 0.0
    return max(0.0, float(_bounded(counts, asked.delta, asked.alpha / 2)[0]))


def dkw(scores: Scores, asked: Asked) -> float:
    r"""The largest bound over all thresholds, from bands around both distribution functions.

    P(sup_t |F_n(t) - F(t)| > c) <= 2 exp(-2 n c^2); c is taken for alpha/2 in each world. Valid:
    every threshold is within the bands at once. Source: Dvoretzky, Kiefer and Wolfowitz 1956, the
    constant by Massart 1990.
    """
    best = 0.0
    for counts in scores.counts(scores.thresholds()):
        if counts.runs and counts.others:
            sizes = (counts.runs, counts.others)
            width = [math.sqrt(math.log(4 / asked.alpha) / (2 * n)) for n in sizes]
            p = counts.hits / counts.runs - width[0]
            q = np.minimum(counts.misses / counts.others + width[1], 1.0)
            best = max(best, float(_log_ratio(p, q, asked.delta).max()))
    return best


def bonferroni_thresholds(scores: Scores, asked: Asked) -> float:
    r"""Clopper-Pearson bounds at each of :data:`BONFERRONI_THRESHOLDS` thresholds.

    A random tenth of the runs places the thresholds, at its quantiles; the others are counted. Each
    threshold has four bounds (two worlds, two ends), each at level alpha/(4 thresholds). Valid by
    the union bound. Source: Bonferroni; the textbook's way to test many events.
    """
    order = asked.coins.permutation(len(scores.numbers))
    tenth = -(-len(order) // 10)
    thresholds = scores.part(order[:tenth]).thresholds(BONFERRONI_THRESHOLDS)
    tested = scores.part(order[tenth:])
    level = asked.alpha / (4 * BONFERRONI_THRESHOLDS)
    found = [_bounded(counts, asked.delta, level) for counts in tested.counts(thresholds)]
    return max(0.0, *(float(bounds.max(initial=0.0)) for bounds in found))


def plug_in(scores: Scores, asked: Asked) -> float:
    r"""The largest ratio of frequencies over all thresholds, as if they were probabilities.

    A negative control, never valid: the smallest of continuous outputs is in one world only, and
    the ratio there is infinite, whatever the mechanism.
    """
    best = 0.0
    for counts in scores.counts(scores.thresholds()):
        if counts.runs and counts.others:
            p, q = counts.hits / counts.runs, counts.misses / counts.others
            best = max(best, float(_log_ratio(p, q, asked.delta).max()))
    return best
