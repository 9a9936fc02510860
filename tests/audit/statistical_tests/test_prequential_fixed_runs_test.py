"""Tests of the fixed-sample test: level by enumeration and simulation; mutants must fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from audit.outputs.output_parser import draw_worlds
from audit.outputs.reading import read
from audit.statistical_tests.choose_event import EXPERTS, ThresholdFamily, Trial, learn_rule
from audit.statistical_tests.event import Tally
from audit.statistical_tests.prequential_fixed_runs_test import (
    GRID,
    WEIGHTS,
    Evidence,
    gather,
    read_claim,
)
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.refusals import refused


def flips(worlds: np.ndarray, right: float, rng: np.random.Generator) -> np.ndarray:
    """Randomised response on the dataset label; a caller may add the leak 2 afterwards."""
    return np.where(rng.random(len(worlds)) < right, worlds, ~worlds).astype(np.int64)


def laplace(size: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Discrete Laplace noise as a difference of geometric variables."""
    p = -math.expm1(-1 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


def learned(outputs: Any, worlds: Any) -> ThresholdFamily:
    """The rule learned from one batch."""
    return learn_rule(Tally.empty().add(read(outputs), np.asarray(worlds, dtype=bool)))


BINARY = learned([0] * 20 + [1] * 20, [False] * 19 + [True] * 20 + [False])


def one_block(rule: ThresholdFamily, counts: Any, u: float) -> Evidence:
    """Evidence from a single block with a given coin."""
    trial = Trial(rule=rule, counts=np.array(counts), integral=True)
    coins = np.full((1, len(EXPERTS)), u)
    return Evidence(trials=(trial,), uniforms=coins)


# Uses the production code, with no weight on the other experts.
def alone(evidence: Evidence, epsilon: float) -> float:
    """The p-value of the zero cut with the whole level."""
    return replace(evidence, weights=(1.0, 0.0, 0.0, 0.0, 0.0)).p_values(epsilon)["zero cut"]


def mass_of_coins(p_of: Callable[[float], float], level: float) -> float:
    """The measure of {u in [0, 1]: p(u) <= level}, for p that is nondecreasing in u."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if p_of(middle) <= level else (low, middle)
    return low


def exact_level(
    runs: int,
    cells: list[tuple[Fraction, Fraction]],
    p_of: Callable[[Any, float], float],
    level: float,
) -> float:
    """P(p <= level) over every outcome of a block and the coin, with exact weights.

    ``cells[i]`` are the probabilities of cell i on dataset A and on dataset B.
    """
    total = 0.0
    flat = [mass / 2 for pair in zip(*cells, strict=True) for mass in pair]
    for outcome in itertools.combinations_with_replacement(range(len(flat)), runs):
        counts = [outcome.count(i) for i in range(len(flat))]
        ways = math.factorial(runs)
        weight = Fraction(1)
        for count, mass in zip(counts, flat, strict=True):
            ways //= math.factorial(count)
            weight *= mass**count
        if not weight:
            continue
        table = np.array(counts).reshape(2, -1)
        total += float(weight * ways) * mass_of_coins(partial(p_of, table), level)
    return total


THIRDS = [(Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 4), Fraction(3, 4))]


def padded(table: np.ndarray) -> np.ndarray:
    """Counts of the binary rule's cells: two intervals and the cell of unseen labels."""
    return np.pad(table, ((0, 0), (0, 1)))


@by_day(1)
@pytest.mark.parametrize("level", [0.03, 0.2, 0.5, 0.9])
def test_the_level_of_a_block_is_exact_at_the_boundary(level: float) -> None:
    def p_of(table: Any, u: float) -> float:
        return alone(one_block(BINARY, padded(table), u), math.log(3))

    found = exact_level(6, THIRDS, p_of, level)
    assert found <= level + 1e-8
    # The level is exact, not only an upper bound, above the probability of six right guesses.
    assert level < 0.75**6 or found == pytest.approx(level, abs=1e-6)


def test_a_rule_that_uses_its_own_run_is_detected() -> None:
    # The mutant learns from the block it is tested on; the same enumeration must reject it.
    @cache
    def trial(counts: tuple[int, ...]) -> Trial:
        worlds = np.repeat([False, False, True, True], counts)
        outputs = np.repeat([0, 1, 0, 1], counts)
        return Trial.of(learned(outputs, worlds), read(outputs), worlds)

    def p_of(table: Any, u: float) -> float:
        coins = np.full((1, len(EXPERTS)), u)
        found = Evidence(trials=(trial(tuple(table.ravel())),), uniforms=coins)
        return alone(found, math.log(3))

    assert exact_level(6, THIRDS, p_of, 0.2) > 0.22


LEAK = learned([0] * 30 + [1] * 30 + [5] * 30, [False] * 15 + [True] * 15 + [False] * 15
               + [True] * 45)  # fmt: skip


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize(("level", "spend"), [(0.1, "1/1000"), (0.5, "1/20")])
def test_a_block_is_valid_with_delta(level: float, spend: str) -> None:
    # Value 5 has mass 1/5 on dataset B only: exactly (0, 1/5)-DP, and most experts bet on it.
    fifth = Fraction(1, 5)
    cells = [(Fraction(3, 5), 2 * fifth), (2 * fifth, 2 * fifth), (Fraction(0), fifth)]

    def p_of(table: Any, u: float) -> float:
        evidence = one_block(LEAK, padded(table), u)
        return evidence.p_value(0, fifth, spend=spend)

    assert exact_level(effort(4, 5), cells, p_of, level) <= level + 1e-8


def test_joined_blocks_have_weights_that_depend_on_the_past_only() -> None:
    """A silent block has weight 0, unless it is the last one, which has the remaining variance."""
    silent = replace(
        BINARY, experts=tuple(replace(e, reach=np.zeros(len(e.reach))) for e in BINARY.experts)
    )

    def score(right: int, wrong: int, u: float, lost: float = 0.0) -> float:
        law = stats.binom(right + wrong, 0.25 * (1 - lost))
        return float(stats.norm.isf((1 - u) * law.cdf(wrong - 1) + u * law.cdf(wrong)))

    loud = [Trial(rule=BINARY, counts=np.array([[r, w, 0], [w, r, 0]]), integral=True)
            for r, w in ((5, 1), (9, 2))]  # fmt: skip
    none = replace(loud[0], rule=silent)
    for trials, weights, scores in (
        ((*loud, none), (12 / 46, 22 / 46, 12 / 46), (score(10, 2, 0.3), score(18, 4, 0.4), None)),
        ((none, *loud), (0, 12 / 34, 22 / 34), (None, score(10, 2, 0.4), score(18, 4, 0.7))),
    ):
        coins = np.repeat([[0.3], [0.4], [0.7]], len(EXPERTS), axis=1)
        found = alone(Evidence(trials=trials, uniforms=coins), math.log(3))
        rest = stats.norm.isf(0.7)  # without guesses the p-value of the last block is its coin
        joined = sum(math.sqrt(w) * (rest if z is None else z)
                     for w, z in zip(weights, scores, strict=True))  # fmt: skip
        assert found == pytest.approx(float(stats.norm.sf(joined)), rel=1e-6)
    # The blocks share the error probability of the bounds on how often a run is guessed.
    both = Evidence(trials=tuple(loud), uniforms=coins[:2], weights=(1.0, 0.0, 0.0, 0.0, 0.0))
    joined = sum(
        math.sqrt(guesses / 34) * score(right, guesses - right, u, 0.02 / 0.0005 ** (1 / guesses))
        for right, guesses, u in ((10, 12, 0.3), (18, 22, 0.4))
    )
    found = both.p_values(math.log(3), "0.02", spend="0.001")["zero cut"]
    assert found == pytest.approx(float(stats.norm.sf(joined)) + 0.001, rel=1e-6)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.floats(0, 12),
    st.floats(0, 12),
    st.floats(0.001, 0.999),
    st.sampled_from([Fraction(0), Fraction(1, 20), Fraction(1, 3)]),
)
def test_the_p_value_of_the_zero_cut_never_falls_in_epsilon(
    right: int, wrong: int, first: float, second: float, u: float, delta: Fraction
) -> None:
    counts = [[right, wrong, 0], [wrong, right, 0]]
    evidence = one_block(BINARY, counts, u)
    low, high = sorted((first, second))
    p_low, p_high = (evidence.p_values(e, delta)["zero cut"] for e in (low, high))
    assert p_low <= p_high + 1e-12


@given(st.integers(1, 60), st.data(), st.floats(0, 8), st.floats(0.01, 0.99))
def test_the_p_value_of_a_block_agrees_with_scipy(
    guesses: int, data: st.DataObject, epsilon: float, u: float
) -> None:
    wrong = data.draw(st.integers(0, guesses))
    evidence = one_block(BINARY, [[guesses - wrong, 0, 0], [wrong, 0, 0]], u)
    law = stats.binom(guesses, 1 / (1 + math.exp(epsilon)))
    expected = (1 - u) * law.cdf(wrong - 1) + u * law.cdf(wrong)
    luck = (1 + math.exp(-epsilon)) ** -guesses
    found = evidence.p_values(epsilon)["zero cut"]
    assert found == pytest.approx(max(expected, luck), rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("delta", [0, "1/100"])
def test_epsilon_lower_agrees_with_a_plain_scan(delta: Any) -> None:
    rng = np.random.default_rng(2)
    worlds = draw_worlds(2000, rng)
    outputs = worlds + laplace(2000, 1, rng)
    outputs = np.where(rng.random(2000) < 0.02, 50, outputs)
    evidence = gather(outputs, worlds, seed=3)
    lower = evidence.epsilon_lower("0.05", delta)
    grid = [float(e) for e in GRID if e <= lower]
    spend = "0.001"  # alpha / 50, as epsilon_lower spends
    assert grid[-1] == lower
    below = [*grid[:: max(1, len(grid) // 15)], lower]
    assert all(evidence.p_value(e, delta, spend=spend) <= 0.05 for e in below)
    beyond = float(GRID[np.searchsorted(GRID, lower, side="right")])
    assert evidence.p_value(beyond, delta, spend=spend) > 0.05


def test_the_bound_spends_the_same_level_as_the_p_value() -> None:
    # The mutant spends all of alpha/50 on the leader's bounds on kappa, more than its share.
    def mutant(evidence: Evidence) -> float:
        tail = ndtr(-evidence._score(4, GRID, 0.1, 0.001)) / WEIGHTS[4] + 0.001
        return float(GRID[int(np.argmax(tail > 0.05)) - 1])

    def honest(evidence: Evidence) -> float:
        return evidence.epsilon_lower("0.05", "0.1")

    blocks = [one_block(BINARY, [[k, 1, 9], [1, k, 9]], 0.5) for k in range(40, 90, 5)]
    for bound, kept in ((honest, False), (mutant, True)):
        p = [block.p_value(bound(block), "0.1", spend="0.001") for block in blocks]
        assert (max(p) > 0.05) == kept


def test_the_randomisation_alone_refutes_nothing() -> None:
    # A coin of 0 would refute without evidence, at levels below 2^-53.
    worlds = draw_worlds(100, np.random.default_rng(0))
    coins = gather(worlds.astype(int), worlds, seed=5).uniforms
    assert (coins == 1.0 - np.random.default_rng(5).random(coins.shape)).all()
    # Two right guesses and the smallest coins: p is at least q^2. Without guesses, p is 1.
    assert one_block(BINARY, [[1, 0, 0], [0, 1, 0]], 1e-9).p_value(50) == 1.0
    assert one_block(BINARY, [[0, 0, 4], [0, 0, 4]], 1e-9).p_value(0) == 1.0
    # No p-value is below the smallest normal float.
    evidence = one_block(BINARY, [[10**6, 0, 0], [0, 10**6, 0]], 0.5)
    assert evidence.p_value("0.1") >= 2.0**-1022
    assert evidence.epsilon_lower(Fraction(1, 10**400)) == 0.0


def test_gather_is_deterministic_and_learns_from_the_past_only() -> None:
    rng = np.random.default_rng(4)
    worlds = draw_worlds(1000, rng)
    outputs = worlds + laplace(1000, 2, rng)
    first, again = (gather(outputs, worlds, seed=9) for _ in range(2))
    assert first.p_value("0.4") == again.p_value("0.4")
    assert first.p_value("0.4") != gather(outputs, worlds, seed=10).p_value("0.4")
    # A change of the last block changes no rule.
    last = first.trials[-1].runs
    outputs[-last:] += 100
    changed = gather(outputs, worlds, seed=9)
    for before, after in zip(first.trials, changed.trials, strict=True):
        assert (before.rule.lean == after.rule.lean).all()


@pytest.mark.parametrize("runs", [0, 1, 31, 32, 47, 48, 100])
def test_few_runs_refute_nothing(runs: int) -> None:
    worlds = draw_worlds(runs, np.random.default_rng(0))
    evidence = gather(worlds.astype(int), worlds, seed=0)
    assert sum(trial.runs for trial in evidence.trials) <= runs
    if runs < 48:
        assert evidence.p_value(0) == 1.0
        assert evidence.epsilon_lower() == 0.0
        assert evidence.followed(0)[1] is None


def test_a_mechanism_that_needs_delta_is_refuted_without_it() -> None:
    # Mass 1/20 reveals the dataset: (0, 1/20)-DP exactly.
    rng = np.random.default_rng(8)
    worlds = draw_worlds(6000, rng)
    outputs = np.where(rng.random(6000) < 0.05, 10 + worlds, 0)
    evidence = gather(outputs, worlds, seed=1)
    assert evidence.p_value(0, "0.05") > 0.01
    assert evidence.p_value(0, "0.02") < 0.01
    witness = evidence.followed(0, "0.02")[1]
    assert witness is not None
    assert witness.event in {"output >= 11", "output in {10}"}


REFUSED: dict[str, tuple[Callable[[Evidence], object], str]] = {
    "epsilon below 0": (lambda e: e.p_value(-1), "epsilon"),
    "epsilon infinite": (lambda e: e.p_value(math.inf), "epsilon"),
    "delta 1": (lambda e: e.p_value(1, 1), "delta"),
    "delta below 0": (lambda e: e.p_value(1, "-0.1"), "delta"),
    "spend 0": (lambda e: e.p_value(1, "0.1", spend=0), "spend"),
    "alpha 0": (lambda e: e.epsilon_lower(0), "alpha"),
    "alpha 1": (lambda e: e.epsilon_lower(1), "alpha"),
    "seed below 0": (lambda _: gather([1], [True], seed=-1), "seed"),
    "runs below 0": (lambda _: draw_worlds(-1, np.random.default_rng(0)), "runs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_named(case: str) -> None:
    call, argument = REFUSED[case]
    with refused(argument):
        call(one_block(BINARY, [[1, 0, 0], [0, 1, 0]], 0.5))


def test_claims_are_rounded_in_favour_of_the_claim() -> None:
    epsilon, delta = Fraction(1, 3), Fraction(1, 10**6)
    upper, rate = read_claim(epsilon, delta)
    assert (Fraction(upper) >= epsilon, Fraction(rate) >= delta) == (True, True)
    assert one_block(BINARY, [[40, 0, 0], [0, 40, 0]], 0.5).p_value(10**6) == 1.0
