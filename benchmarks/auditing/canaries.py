"""Canaries of one run: false alarms on null scores, and tightness on the Gaussian mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import numpy as np
from scipy import stats

from audit.statistical_tests.clopper_pearson_and_other_baselines import gaussian_epsilon
from audit.statistical_tests.one_run_canaries import largest_rejected, one_run_p_value
from audit.training.canary_audit import canaries
from benchmarks.auditing.harness import ALPHA, Effort, Row, share

__all__ = ["canary_rows"]

_SEED: Final = 3
_TOTAL: Final = 10_000
_DELTA: Final = "1e-5"
_MOST: Final = 0.056
_GUESSES: Final = 62
_FEW: Final = 624
_CONFIDENCE: Final = str(1 - ALPHA)
_NULLS: Final = ("epsilon=0", "epsilon=0,delta=1e-5", "gdp=0.01")


def canary_rows(effort: Effort) -> Iterator[Row]:
    r"""Rows of false alarms, then of bounds."""
    for claim in _NULLS:
        yield _nulls(effort, claim)
    yield _lost_sign(effort)
    for mu in (0.5, 1.0, 2.0, 3.0):
        yield _gaussian(effort, mu)


def _nulls(effort: Effort, claim: str) -> Row:
    # 1,000 canaries whose scores carry no information. The verdict depends only on the number of
    # correct guesses, so each number is judged once.
    count = effort.count(100, 6000)
    judged: dict[int, bool] = {}
    refuted = 0
    for repeat in range(count):
        rng = np.random.default_rng([_SEED, repeat])
        coins = rng.random(1000) < 0.5
        scores = rng.normal(size=1000)
        order, half = coins[np.argsort(scores)], _GUESSES // 2
        right = int(np.count_nonzero(~order[:half]) + np.count_nonzero(order[-half:]))
        if right not in judged:
            report = canaries(scores, coins, claim, guesses=_GUESSES, confidence=_CONFIDENCE)
            assert report.right == right
            judged[right] = report.refuted
        refuted += judged[right]
    rate = share(refuted, count)
    return Row(
        what=f"canaries: 1,000 null scores, {claim}: refuted",
        value=rate,
        to_reach=f"upper 95% bound <= {_MOST}",
        reached=effort.verdict(rate["at_most"] <= _MOST),
        repeats=count,
        seed=_SEED,
    )


def _lost_sign(effort: Effort) -> Row:
    # The bound in question in jax_privacy's pull request 270, re-derived: |mu| at every threshold.
    values = []
    for repeat in range(effort.count(5, 20)):
        rng = np.random.default_rng([_SEED, 1, repeat])
        coins = rng.random(_TOTAL) < 0.5
        scores = rng.normal(size=_TOTAL)
        sides = [np.sort(scores[coins == side]) for side in (True, False)]
        at = np.sort(scores)
        above = [len(side) - np.searchsorted(side, at) for side in sides]
        high = [
            stats.beta.ppf(1 - ALPHA / 2, hits + 1, np.maximum(len(side) - hits, 1))
            for hits, side in ((above[1], sides[1]), (len(sides[0]) - above[0], sides[0]))
        ]
        inner = (high[0] < 1) & (high[1] < 1)
        mu = np.abs(stats.norm.isf(high[0][inner]) - stats.norm.ppf(high[1][inner]))
        values.append(gaussian_epsilon(float(mu.max()), 1e-5))
    median = round(float(np.median(values)), 3)
    return Row(
        what="negative control: null scores, Gaussian DP with |mu| over all thresholds",
        value={"median_epsilon_lower": median, "peer": "re-derived: jax_privacy, PR 270"},
        to_reach="over-claims: above 1, where the truth is 0",
        reached=effort.verdict(median > 1),
        repeats=len(values),
        seed=_SEED,
    )


def _gaussian(effort: Effort, mu: float) -> Row:
    true = gaussian_epsilon(mu, float(_DELTA))
    named = ("ours", "theorem_same_guesses", "theorem_best_guesses_known", "ours_gdp", "mu_lower")
    found: dict[str, list[float]] = {name: [] for name in named}
    count = effort.count(2, 10)
    for repeat in range(count):
        rng = np.random.default_rng([_SEED, 2, repeat])
        coins = rng.random(_TOTAL) < 0.5
        scores = mu * coins + rng.normal(size=_TOTAL)
        given: Any = {"guesses": _FEW, "confidence": _CONFIDENCE}
        report = canaries(scores, coins, f"epsilon=0.5,delta={_DELTA}", **given)
        found["ours"].append(report.epsilon_lower)
        found["theorem_same_guesses"].append(_theorem(report.guesses, report.right))
        order = coins[np.argsort(scores, kind="stable")]
        halves = [int(_TOTAL / 2 * 2.0 ** (-k / 2)) for k in range(14)]
        all_of = [
            _theorem(2 * h, int((~order[:h]).sum() + order[-h:].sum())) for h in halves
        ]  # fmt: skip
        found["theorem_best_guesses_known"].append(max(all_of))
        curve = canaries(scores, coins, "gdp=0.25", **given)
        found["mu_lower"].append(curve.mu_lower or 0.0)
        found["ours_gdp"].append(gaussian_epsilon(max(curve.mu_lower or 0.0, 1e-3), float(_DELTA)))
    medians: dict[str, Any] = {
        name: round(float(np.median(values)), 4) for name, values in found.items()
    }
    above = sum(value > true for value in found["ours"] + found["ours_gdp"])
    same = medians["theorem_same_guesses"]
    return Row(
        what=f"canaries: 10,000 of the Gaussian mechanism, mu = {mu:g}: median bounds",
        value={"true_epsilon": round(true, 4), "at_delta": _DELTA, **medians, "above": above},
        to_reach=">= 0.99 of the theorem at the same guesses; as a curve above the theorem with "
        "the best number of guesses known; none above the truth",
        reached=effort.verdict(
            medians["ours"] >= 0.99 * same
            and medians["ours_gdp"] >= medians["theorem_best_guesses_known"]
            and not above
        ),
        repeats=count,
        seed=_SEED,
    )


def _theorem(guesses: int, right: int) -> float:
    def rejected(epsilon: float) -> bool:
        p_value = one_run_p_value(
            _TOTAL, guesses, right, epsilon=Fraction(epsilon), delta=Fraction(_DELTA)
        )
        return p_value <= ALPHA

    return largest_rejected(rejected, most=16.0) if 2 * right > guesses else 0.0
