"""Tests of baseline coverage at the claim's boundary: valid ones hold it, the others over-claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from audit.outputs.output_parser import draw_worlds
from audit.statistical_tests.clopper_pearson_baselines import (
    BASELINES,
    BaselineParameters,
    Scores,
    bonferroni_thresholds,
    chosen_event,
    clopper_pearson_split,
    dkw,
    gaussian_dp,
    gaussian_epsilon,
    one_run,
)
from audit.statistical_tests.one_run_canaries import one_run_p_value
from tests.alpha_budget import buy_alpha
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated, rewired

Bound: TypeAlias = Callable[[Scores, BaselineParameters], float]
Sampler: TypeAlias = Callable[[NDArray[np.bool_], np.random.Generator], NDArray[Any]]

ALPHA = 0.3  # large, so that a level spent twice is visible in few repeats
REPEATS = 200
VALID = [name for name, baseline in BASELINES.items() if baseline.valid]


def response(worlds: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[Any]:
    # Randomised response with epsilon = 1 exactly.
    truth = np.where(worlds, 1, -1)
    return np.where(rng.random(len(worlds)) < 1 / (1 + math.e), -truth, truth)


def revealing(delta: float) -> Sampler:
    # (1, delta)-DP exactly: the dominating pair of laws.
    def sampler(worlds: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[Any]:
        shown = rng.random(len(worlds)) < delta
        return np.where(shown, np.where(worlds, 2, -2), response(worlds, rng))

    return sampler


def identical(worlds: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[Any]:
    return rng.normal(size=len(worlds))


LAWS: dict[str, tuple[Sampler, float, str]] = {
    "response": (response, 1.0, "0"),
    "revealing 1/1000": (revealing(0.001), 1.0, "0.001"),
    "revealing 1/20": (revealing(0.05), 1.0, "0.05"),
    "identical": (identical, 0.0, "0"),
}


def found(
    bound: Bound, sampler: Sampler, delta: str, seed: int, runs: int = 400, alpha: float = ALPHA
) -> float:
    rng = np.random.default_rng([5, seed])
    worlds = draw_worlds(runs, rng)
    scores = Scores.read(sampler(worlds, rng), worlds)
    return bound(scores, BaselineParameters.read(delta, alpha, seed))


def errors(bound: Bound, law: str, repeats: int = REPEATS) -> int:
    sampler, true, delta = LAWS[law]
    return sum(found(bound, sampler, delta, seed) > true for seed in range(repeats))


def p_value(wrong: int, repeats: int = REPEATS) -> float:
    # The p-value of the hypothesis that errors have probability at most alpha.
    return float(stats.binom.sf(wrong - 1, repeats, ALPHA))


@by_day(2)
@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("name", VALID)
def test_a_valid_baseline_keeps_its_level(name: str, law: str) -> None:
    bought = buy_alpha(f"baseline {name} on {law}", "1e-10")
    assert p_value(errors(BASELINES[name].bound, law)) > bought


MUTANTS: dict[str, tuple[str, Bound]] = {
    "tested on the half that chose": (
        "identical",
        rewired(
            clopper_pearson_split,
            chosen_event=mutated(chosen_event, "list(test.counts(", "list(train.counts("),
        ),
    ),
    "bands a third as wide": ("identical", mutated(dkw, "(2 * n)", "(18 * n)")),
    "a level for each threshold": (
        "identical",
        mutated(bonferroni_thresholds, "/ (4 * BONFERRONI_THRESHOLDS)", "/ 2"),
    ),
    "one run without its delta": (
        "revealing 1/20",
        rewired(one_run, one_run_p_value=mutated(one_run_p_value, "if exact:", "if exact < 0:")),
    ),
}


@by_day(2)
@pytest.mark.parametrize("mutant", list(MUTANTS))
def test_a_broken_one_is_seen(mutant: str) -> None:
    law, bound = MUTANTS[mutant]
    assert p_value(errors(bound, law)) < 1e-10


def test_bayes_claims_something_of_identical_worlds_whatever_happens() -> None:
    # It errs in every audit, where a valid confidence bound may err in 3 of 10.
    assert errors(BASELINES["bayes"].bound, "identical", 20) == 20


def test_plug_in_is_infinite_on_identical_worlds() -> None:
    bound = BASELINES["plug-in"].bound
    assert all(math.isinf(found(bound, identical, "0", seed)) for seed in range(60))
    # If outputs repeat often enough to have frequencies, the bound is too large in half of the
    # audits.
    assert p_value(errors(bound, "response")) < 1e-10


def test_gaussian_dp_picks_its_threshold_on_the_runs_it_tests() -> None:
    # Identical laws are Gaussian with mu = 0, so the assumed family is correct.
    assert p_value(errors(gaussian_dp, "identical", 100), 100) < 1e-6


def test_a_lost_sign_of_mu_gives_the_known_over_claim() -> None:
    # mu enters the Gaussian curve as 1/sigma, so a library called with sigma = 1/|mu| mistakes an
    # uninformative threshold (mu far below 0) for strong evidence. jax_privacy's epsilon_from_gdp
    # is known to report 5.67 on identical laws with n = 10^4; this formula, which is ours and not
    # its code, gives a similar value.
    sum_of = "ndtri(p[both]) - ndtri(q[both])"
    lost = mutated(gaussian_dp, sum_of, f"abs({sum_of})")
    values = [found(lost, identical, "1e-5", seed, 10_000, 0.05) for seed in range(2)]
    assert all(4.0 < value < 9.0 for value in values)
    kept = [found(gaussian_dp, identical, "1e-5", seed, 10_000, 0.05) for seed in range(2)]
    assert max(kept) < 1.0
    assert gaussian_epsilon(-1.0, 1e-5) == 0.0
