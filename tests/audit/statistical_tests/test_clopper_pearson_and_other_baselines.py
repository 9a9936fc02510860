"""Tests of the baselines: independent recomputation, and coverage at the boundary of a claim."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from audit.formats.result import plain
from audit.outputs.output_parser import draw_worlds
from audit.statistical_tests.clopper_pearson_and_other_baselines import (
    BASELINES,
    BaselineParameters,
    Counts,
    Scores,
    _allowed,
    _posterior_quantiles,
    baseline_names,
    compare,
    gaussian_dp,
    gaussian_epsilon,
)
from audit.statistical_tests.one_run_canaries import one_run_p_value
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated

E = math.exp


def test_the_split_baseline_agrees_with_a_plain_computation() -> None:
    rng = np.random.default_rng(6)
    worlds = draw_worlds(400, rng)
    outputs = worlds + rng.geometric(0.6, 400) - rng.geometric(0.6, 400)
    order = np.random.default_rng(7).permutation(400)

    def bounds(part: np.ndarray, level: float) -> dict[tuple[int, bool, int], float]:
        found = {}
        for t in np.unique(outputs[order[:200]]):
            for above, world in itertools.product((False, True), (0, 1)):
                inside = (outputs[part] > t) == above
                k, n = np.sum(inside & (worlds[part] == world)), np.sum(worlds[part] == world)
                j, m = np.sum(inside & (worlds[part] != world)), np.sum(worlds[part] != world)
                low = stats.beta.ppf(level, k, n - k + 1) if k else 0.0
                high = stats.beta.ppf(1 - level, j + 1, m - j) if j < m else 1.0
                found[int(t), above, world] = math.log(low / high) if low else -math.inf
        return found

    train = bounds(order[:200], 0.025)
    best = max(train.values())
    tested = bounds(order[200:], 0.025)
    found = BASELINES["clopper-pearson-split"].lower(outputs, worlds, seed=7)
    assert any(
        found == pytest.approx(max(0.0, tested[event]))
        for event, value in train.items()
        if value == best
    )


@pytest.mark.parametrize("delta", [0.0, 0.03])
def test_dkw_bands_and_frequencies_agree_with_plain_computations(delta: float) -> None:
    rng = np.random.default_rng(8)
    worlds = draw_worlds(300, rng)
    outputs = 3 * worlds + rng.geometric(0.4, 300) - rng.geometric(0.4, 300)
    widths = [math.sqrt(math.log(4 / 0.05) / (2 * np.sum(worlds == w))) for w in (0, 1)]
    banded, plain = 0.0, 0.0
    for t, above, world in itertools.product(np.unique(outputs), (False, True), (0, 1)):
        p, q = (np.mean((outputs[worlds == w] > t) == above) for w in (world, 1 - world))
        low, high = p - widths[world] - delta, q + widths[1 - world]
        if low > 0:
            banded = max(banded, math.log(low / min(high, 1.0)))
        if p > delta:
            plain = max(plain, math.log((p - delta) / q) if q else math.inf)
    found = compare(["dkw", "plug-in"], outputs, worlds, delta=delta, seed=1)
    assert banded > 0.5
    assert [finding.epsilon_lower for finding in found] == pytest.approx([banded, plain])


def test_bonferroni_thresholds_agree_with_a_plain_computation() -> None:
    rng = np.random.default_rng(9)
    worlds = draw_worlds(500, rng)
    outputs = 3 * worlds + rng.geometric(0.4, 500) - rng.geometric(0.4, 500)
    order = np.random.default_rng(3).permutation(500)
    placed, counted = np.unique(outputs[order[:50]]), order[50:]
    assert len(placed) <= 32
    level, best = 0.05 / 128, 0.0
    for t, above, world in itertools.product(placed, (False, True), (0, 1)):
        inside = (outputs[counted] > t) == above
        at = worlds[counted] == world
        interval = [
            stats.binomtest(int(np.sum(inside & side)), int(np.sum(side))).proportion_ci(
                confidence_level=1 - 2 * level, method="exact"
            )
            for side in (at, ~at)
        ]
        if interval[0].low > 0:
            best = max(best, math.log(interval[0].low / interval[1].high))
    found = BASELINES["bonferroni-thresholds"].lower(outputs, worlds, seed=3)
    assert found == pytest.approx(best)
    assert best > 0.5


@pytest.mark.parametrize("delta", [0.0, 0.001])
def test_one_run_agrees_with_a_plain_computation(delta: float) -> None:
    """Of 300 outputs the lowest and the highest thirty are guessed; both directions are tested."""
    rng = np.random.default_rng(10)
    worlds = draw_worlds(300, rng)
    outputs = rng.permutation(300) + 60.0 * worlds + rng.random(300)
    ranked = worlds[np.argsort(outputs)]
    right = int(np.sum(~ranked[:30]) + np.sum(ranked[-30:]))
    bound = BASELINES["one-run"].lower(outputs, worlds, delta=repr(delta), alpha="0.1", seed=1)
    turned = BASELINES["one-run"].lower(-outputs, worlds, delta=repr(delta), alpha="0.1", seed=1)
    assert 0.3 < bound == turned

    def p_value(epsilon: float) -> float:
        return one_run_p_value(300, 60, right, epsilon=epsilon, delta=delta)

    assert p_value(bound) <= 0.05 < p_value(bound + 1e-4)


@pytest.mark.parametrize("delta", [0.0, 0.001])
def test_the_p_value_of_one_run_grows_with_epsilon(delta: float) -> None:
    for guesses, right in itertools.product((1, 5, 20, 200), (0.5, 0.7, 0.9, 1.0)):
        v = math.ceil(right * guesses)
        values = [
            one_run_p_value(500, guesses, v, epsilon=e, delta=delta) for e in np.arange(0, 8, 0.05)
        ]
        rising = [a <= b * (1 + 1e-9) for a, b in itertools.pairwise(values) if a <= 0.5]
        assert all(rising)


@pytest.mark.parametrize(
    ("k", "n", "j", "m", "delta"),
    [(40, 60, 20, 55, 0.0), (3, 80, 0, 70, 0.0), (30, 50, 9, 50, 0.05)],
)
def test_the_posterior_quantile_agrees_with_draws(
    k: int, n: int, j: int, m: int, delta: float
) -> None:
    rng = np.random.default_rng(4)
    p = rng.beta(k + 0.5, n - k + 0.5, 200_000)
    q = rng.beta(j + 0.5, m - j + 0.5, 200_000)
    counts = Counts(hits=np.array([k]), runs=n, misses=np.array([j]), others=m)
    quantiles = _posterior_quantiles(counts)
    for epsilon in (0.1, 0.7, 1.5, 4.0):
        up = E(epsilon)
        allowed = (p <= up * q + delta) & (q <= up * p + delta)
        allowed &= (1 - p <= up * (1 - q) + delta) & (1 - q <= up * (1 - p) + delta)
        # A tolerance of ten standard deviations, plus the error of 512 quadrature nodes.
        found = _allowed(counts, quantiles, epsilon, delta)
        assert found == pytest.approx(allowed.mean(), abs=0.012)


@pytest.mark.parametrize("mu", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_the_gaussian_curve_agrees_with_its_integral(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    x = np.linspace(-12, 12 + mu, 400_001)
    surplus = np.maximum(stats.norm.pdf(x, mu) - E(epsilon) * stats.norm.pdf(x), 0.0)
    assert np.trapezoid(surplus, x) == pytest.approx(delta, rel=1e-4)


def test_labels_and_nan_are_refused_and_a_comparison_says_so() -> None:
    for name, outputs in itertools.product(BASELINES, (["x"], [math.nan], [True])):
        with pytest.raises(InvalidParameter, match="outputs"):
            BASELINES[name].lower(outputs, [True], seed=1)
    found = compare(["all"], [1.0, None], [False, True], seed=1)
    assert [finding.name for finding in found] == list(BASELINES)
    assert all(finding.epsilon_lower is None for finding in found)
    assert all("does not apply to these outputs" in finding.says for finding in found)


def test_a_comparison_equals_its_single_baselines() -> None:
    rng = np.random.default_rng(2)
    worlds = draw_worlds(1000, rng)
    outputs = worlds + rng.laplace(size=1000)
    found = compare(["all"], outputs, worlds, delta="1e-5", alpha="0.01", seed=5)
    for finding in found:
        alone = BASELINES[finding.name]
        again = alone.lower(outputs, worlds, delta="1e-5", alpha="0.01", seed=5)
        assert finding.epsilon_lower == again
        assert (finding.says, finding.valid) == (alone.says, alone.valid)
    assert json.loads(json.dumps(plain(found), allow_nan=False))
    assert plain(found)[-1]["epsilon_lower"] == "inf"


def test_few_runs_or_one_dataset_give_no_bound() -> None:
    for baseline, runs in itertools.product(BASELINES.values(), (0, 1, 2, 30)):
        for worlds in (np.zeros(runs, bool), np.ones(runs, bool)):
            assert baseline.lower(np.arange(runs), worlds, seed=1) <= 0.0 or not baseline.valid


def test_names_of_baselines_and_arguments_are_checked() -> None:
    assert baseline_names(["all"]) == tuple(BASELINES)
    assert baseline_names([]) == ()
    with pytest.raises(InvalidParameter, match="did you mean dkw"):
        baseline_names(["dwk"])
    for argument, wrong in (("alpha", "1"), ("delta", "1"), ("seed", -1)):
        asked = {"seed": 1, argument: wrong}
        with pytest.raises(InvalidParameter, match=argument):
            compare(["dkw"], [1], [True], **asked)  # type: ignore[arg-type]  # on purpose


# -- coverage at the boundary of a claim -----------------------------------------------------------


Bound: TypeAlias = Callable[[Scores, BaselineParameters], float]
Sampler: TypeAlias = Callable[[NDArray[np.bool_], np.random.Generator], NDArray[Any]]

ALPHA = 0.3  # large, so that a level spent twice is visible in few repeats


def response(worlds: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[Any]:
    # Randomised response with epsilon = 1 exactly.
    truth = np.where(worlds, 1, -1)
    return np.where(rng.random(len(worlds)) < 1 / (1 + math.e), -truth, truth)


def identical(worlds: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[Any]:
    return rng.normal(size=len(worlds))


LAWS: dict[str, tuple[Sampler, float]] = {
    "response": (response, 1.0),
    "identical": (identical, 0.0),
}


def found(
    bound: Bound, sampler: Sampler, delta: str, seed: int, runs: int = 400, alpha: float = ALPHA
) -> float:
    rng = np.random.default_rng([5, seed])
    worlds = draw_worlds(runs, rng)
    scores = Scores.read(sampler(worlds, rng), worlds)
    return bound(scores, BaselineParameters.read(delta, alpha, seed))


def errors(bound: Bound, law: str, repeats: int) -> int:
    sampler, true = LAWS[law]
    return sum(found(bound, sampler, "0", seed) > true for seed in range(repeats))


def p_value(wrong: int, repeats: int) -> float:
    # The p-value of the hypothesis that errors have probability at most alpha.
    return float(stats.binom.sf(wrong - 1, repeats, ALPHA))


@by_day(2)
@pytest.mark.parametrize(
    ("name", "law", "repeats", "below"),
    [
        # It errs in every audit, where a valid confidence bound may err in 3 of 10.
        ("bayes", "identical", 20, 1e-10),
        # If outputs repeat often enough to have frequencies, half of the bounds are too large.
        ("plug-in", "response", 200, 1e-10),
        # Identical laws are Gaussian with mu = 0; the threshold is selected on the tested runs.
        ("gaussian-dp", "identical", 100, 1e-6),
    ],
)
def test_a_baseline_without_a_level_over_claims(
    name: str, law: str, repeats: int, below: float
) -> None:
    assert p_value(errors(BASELINES[name].bound, law, repeats), repeats) < below


def test_plug_in_is_infinite_on_identical_continuous_distributions() -> None:
    bound = BASELINES["plug-in"].bound
    assert all(math.isinf(found(bound, identical, "0", seed)) for seed in range(60))


def test_losing_the_sign_of_mu_gives_the_known_over_claim() -> None:
    # mu enters the Gaussian curve as 1/sigma, so a library called with sigma = 1/|mu| mistakes an
    # uninformative threshold for strong evidence, as jax_privacy's epsilon_from_gdp does.
    sum_of = "ndtri(p[both]) - ndtri(q[both])"
    lost = mutated(gaussian_dp, sum_of, f"abs({sum_of})")
    values = [found(lost, identical, "1e-5", seed, 10_000, 0.05) for seed in range(2)]
    assert all(4.0 < value < 9.0 for value in values)
    kept = [found(gaussian_dp, identical, "1e-5", seed, 10_000, 0.05) for seed in range(2)]
    assert max(kept) < 1.0
    assert gaussian_epsilon(-1.0, 1e-5) == 0.0
