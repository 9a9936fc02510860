r"""Baselines that are not valid: a credible bound, and a bound for one family of mechanisms."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, log_ndtr, ndtr, ndtri

from audit.evidence.baselines.scores import (
    Asked,
    Counts,
    Scores,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from audit.evidence.baselines.thresholds import chosen_event
from audit.evidence.event import Floats

__all__ = ["bayes", "credible_share", "gaussian_dp", "gaussian_epsilon"]

_LARGEST: Final = 64.0
_STEPS: Final = 32
_NODES: Final = 512


def bayes(scores: Scores, asked: Asked) -> float:
    r"""The alpha-quantile of the posterior of epsilon, under Jeffreys priors.

    The event is chosen on one random half, as in ``clopper-pearson-split``. With the counts of the
    other half, its probabilities in the two worlds have independent Beta(k + 1/2, n - k + 1/2)
    posteriors, and epsilon the law of the least epsilon that allows both. Not a confidence
    bound: epsilon = 0 has posterior probability 0, so of identical worlds it is positive whatever
    happens. Source: Zanella-Beguelin et al. 2023, "Bayesian estimation of differential privacy".
    """
    counts = chosen_event(scores, asked)
    if counts is None:
        return 0.0
    other = _posterior_quantiles(counts)
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        below = _allowed(counts, other, middle, asked.delta) < asked.alpha
        low, high = (middle, high) if below else (low, middle)
    return low


def credible_share(counts: Counts, epsilon: float, delta: float) -> float:
    r"""The posterior probability that an (epsilon, delta)-DP mechanism has these probabilities.

    They are allowed where each is at most e^epsilon times the other plus delta, for the event and
    for its complement.

    >>> even = Counts(hits=np.array([30]), runs=60, misses=np.array([30]), others=60)
    >>> credible_share(even, 0.0, 0.0), round(credible_share(even, 1.0, 0.0), 3)
    (0.0, 1.0)
    """
    return _allowed(counts, _posterior_quantiles(counts), epsilon, delta)


def _posterior_quantiles(counts: Counts) -> Floats:
    # Of the other world's probability, at the middles of equal shares: an integral over them is
    # their mean.
    j, shares = int(counts.misses[0]), (np.arange(_NODES) + 0.5) / _NODES
    found: Floats = betaincinv(j + 0.5, counts.others - j + 0.5, shares)
    return found


def _allowed(counts: Counts, q: Floats, epsilon: float, delta: float) -> float:
    k, up, down = int(counts.hits[0]), math.exp(epsilon), math.exp(-epsilon)
    most = np.minimum(up * q + delta, 1.0 - down * (1.0 - q - delta))
    least = np.maximum(down * (q - delta), 1.0 - delta - up * (1.0 - q))
    ends = np.clip(np.stack((least, most)), 0.0, 1.0)
    share = np.diff(betainc(k + 0.5, counts.runs - k + 0.5, ends), axis=0)
    return float(np.maximum(share, 0.0).mean())


def gaussian_dp(scores: Scores, asked: Asked) -> float:
    r"""The epsilon of the Gaussian mechanism that could have made the error rates.

    At every threshold mu = Phi^-1(p) - Phi^-1(q) from Clopper-Pearson bounds p, q at alpha/2 each;
    the largest mu becomes epsilon on the curve of N(0, 1) against N(mu, 1). Not valid: for any
    other mechanism mu says nothing about that curve, and the threshold is picked on the runs
    that are tested. Source: Nasr et al. 2023, "Tight auditing of differentially private machine
    learning", after Dong, Roth and Su 2022.
    """
    mu = 0.0
    for counts in scores.counts(scores.thresholds()):
        p = clopper_pearson_lower(counts.hits, counts.runs, asked.alpha / 2)
        q = clopper_pearson_upper(counts.misses, counts.others, asked.alpha / 2)
        both = (p > 0.0) & (q < 1.0)
        mu = max(mu, float((ndtri(p[both]) - ndtri(q[both])).max(initial=0.0)))
    return gaussian_epsilon(mu, asked.delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""The least epsilon >= 0 with Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    <= delta; inf at delta = 0.

    >>> round(gaussian_epsilon(1.0, 1e-5), 3), gaussian_epsilon(1.0, 0.0)
    (4.377, inf)
    """
    if mu <= 0.0:
        return 0.0
    if delta == 0.0:
        return math.inf

    def excess(epsilon: float) -> float:
        beyond = math.exp(min(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)), 0.0))
        return float(ndtr(mu / 2 - epsilon / mu)) - beyond - delta

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
    return float(brentq(excess, 0.0, high))
