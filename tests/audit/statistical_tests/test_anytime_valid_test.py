"""Tests of the anytime-valid test: supermartingale by enumeration, early stopping, mutants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.claims import LOOKS
from audit.outputs.output_parser import draw_worlds
from audit.outputs.reading import read
from audit.statistical_tests import anytime_valid_test as sequential
from audit.statistical_tests.anytime_valid_test import EProcess, watch, watch_curve
from audit.statistical_tests.choose_event import learn_rule
from tests.audit.statistical_tests.test_prequential_fixed_runs_test import laplace
from tests.day_and_nightly import effort
from tests.support.accounting.brute_force import excess
from tests.support.dpcore.refusals import refused

Law: TypeAlias = dict[Any, tuple[Fraction, Fraction]]  # output: its mass on dataset A, on dataset B


def response(right: Fraction, leak_a: Fraction, leak_b: Fraction) -> Law:
    """Binary randomised response that reveals the dataset itself with these masses.

    It is (ln(right / (1 - right)), delta)-DP with delta = max(leak_a, leak_b) if both agree.
    """
    rest_a, rest_b = 1 - leak_a, 1 - leak_b
    return {
        0: (right * rest_a, (1 - right) * rest_b),
        1: ((1 - right) * rest_a, right * rest_b),
        "A": (leak_a, Fraction(0)),
        "B": (Fraction(0), leak_b),
    }


def drawn(law: Law, worlds: np.ndarray, rng: np.random.Generator) -> list[Any]:
    """One output per run."""
    outputs = list(law)
    sides = [
        rng.choice(len(law), len(worlds), p=[float(m[w]) for m in law.values()]) for w in (0, 1)
    ]
    return [outputs[sides[int(w)][i]] for i, w in enumerate(worlds)]


def expected_factor(
    state: EProcess, law: Law, step: Callable[[EProcess, Any, bool], EProcess]
) -> float:
    """E[wealth after one more run / wealth before], over both datasets and every output."""
    total = 0.0
    for output, masses in law.items():
        for world, mass in zip((False, True), masses, strict=True):
            after = step(state, output, world)
            total += float(mass / 2) * math.exp(after.path[-1] - state.path[-1])
    return total


def plain(state: EProcess, output: Any, world: bool) -> EProcess:
    """One more run, by the correct update."""
    return state.update([output], [world])


NONE = Fraction(0)
TWENTIETH = Fraction(1, 20)
LAWS: dict[str, tuple[Law, Fraction]] = {
    "randomised response": (response(Fraction(2, 3), NONE, NONE), Fraction(2)),
    "revealing both ways": (response(Fraction(2, 3), TWENTIETH, TWENTIETH), Fraction(2)),
    "revealing atom only": ({0: (Fraction(1), 1 - TWENTIETH), "B": (NONE, TWENTIETH)}, Fraction(1)),
    "revealing atom, no epsilon": (response(Fraction(1, 2), TWENTIETH, TWENTIETH), Fraction(1)),
}


def pasts(law: Law, growth: Fraction, delta: Fraction) -> Iterator[EProcess]:
    """States at the exact boundary after various histories: typical ones and very unlikely ones."""
    biased = response(Fraction(9, 10), Fraction(1, 5), Fraction(1, 5))
    for seed, (source, runs) in enumerate([(law, 45), (law, 300), (biased, 70), (biased, 200)]):
        rng = np.random.default_rng(seed)
        worlds = draw_worlds(runs, rng)
        yield watch(math.log(growth), delta).update(drawn(source, worlds, rng), worlds)


def growing(step: Callable[[EProcess, Any, bool], EProcess], name: str) -> list[float]:
    """The expected growth in one step at the boundary of a law, after each history."""
    law, growth = LAWS[name]
    delta = max(excess(w, growth) for w in ([*law.values()], [m[::-1] for m in law.values()]))
    return [expected_factor(state, law, step) for state in pasts(law, growth, delta)]


@pytest.mark.parametrize("name", LAWS)
def test_the_wealth_never_grows_in_expectation_at_the_boundary(name: str) -> None:
    factors = growing(plain, name)
    assert max(factors) <= 1.0
    if name == "randomised response":  # delta = 0: no wealth is wasted either
        assert min(factors) > 1 - 1e-9


def test_a_rule_that_uses_its_own_run_is_detected() -> None:
    def peeking(state: EProcess, output: Any, world: bool) -> EProcess:
        fresh = read([output] * 40)
        tally = state.tally.add(fresh, np.full(40, world))
        return replace(state, rule=learn_rule(tally)).update([output], [world])

    assert max(growing(peeking, "randomised response")) > 1.01


def test_a_mutant_in_which_abstention_is_free_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def free(stakes: np.ndarray) -> np.ndarray:
        return np.zeros(stakes.shape[:-1])

    monkeypatch.setattr(sequential, "_sup", free)
    assert max(growing(plain, "revealing atom only")) > 1.01


def test_a_revealing_output_that_delta_allows_is_not_refuted() -> None:
    # Exactly (0, 1/20)-DP. A mutant without the gain in silent runs rejects this with certainty.
    law, _ = LAWS["revealing atom only"]
    rng = np.random.default_rng(1)
    worlds = draw_worlds(4000, rng)
    outputs = drawn(law, worlds, rng)
    assert watch(0, TWENTIETH).update(outputs, worlds).rejected_at() is None
    refuted = watch(0, "0.02").update(outputs, worlds)
    assert refuted.rejected_at() is not None
    assert str(refuted.witness()).startswith("output in {'B'}: 0 of ")


@settings(max_examples=effort(3, 20))
@given(st.integers(0, 10), st.lists(st.integers(0, 90), max_size=6), st.booleans())
def test_the_division_of_runs_into_updates_has_no_effect(
    seed: int, cuts: list[int], mixed: bool
) -> None:
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(300, rng)
    outputs: list[Any] = (worlds + laplace(300, 1, rng)).tolist()
    if mixed:
        outputs[::5] = ["none"] * len(outputs[::5])
    whole = watch(1, "1/100").update(outputs, worlds)
    state, start = watch(1, "1/100"), 0
    for end in [*np.minimum(np.cumsum(cuts), 300).tolist(), 300]:
        state = state.update(outputs[start:end], worlds[start:end])
        start = end
    np.testing.assert_allclose(state.path, whole.path, rtol=0, atol=1e-12)
    np.testing.assert_allclose(state.wealth, whole.wealth, rtol=0, atol=1e-12)
    assert state.epsilon_lower() == whole.epsilon_lower()


def test_the_bound_agrees_with_a_plain_scan() -> None:
    rng = np.random.default_rng(4)
    worlds = draw_worlds(2000, rng)
    outputs = np.where(rng.random(2000) < 0.04, 30 + worlds, worlds + laplace(2000, 1, rng))
    state = watch(1).update(outputs, worlds)
    lower = state.epsilon_lower()
    bar = -math.log(0.05)

    def at_looks(epsilon: float) -> float:
        path = watch(epsilon).update(outputs, worlds).path
        return max(float(path[look - 1]) for look in (*LOOKS, 2000) if look <= 2000)

    grid = sequential._COARSE
    place = int(np.searchsorted(grid, lower))
    assert 1.0 < lower == grid[place]
    assert all(at_looks(float(epsilon)) >= bar for epsilon in (*grid[:place:100], lower))
    assert at_looks(float(grid[place + 1])) < bar


def test_nan_sets_the_wealth_to_zero_and_overflow_stays_finite() -> None:
    logs = np.array([[math.nan, 1e6, -math.inf], [0.0, 0.0, -math.inf]])
    found = sequential.log_mean(logs, np.log([0.5, 0.5]))
    assert found[0] == pytest.approx(math.log(0.5))
    assert found[1] == pytest.approx(1e6 + math.log(0.5))
    assert found[2] == -math.inf
    worlds = draw_worlds(20_000, np.random.default_rng(0))
    state = watch("1/10").update(worlds.astype(int), worlds)
    assert state.log_e > 700
    assert math.isfinite(state.e_value)


def test_looks_are_fixed_and_nothing_is_bet_before_the_first() -> None:
    assert LOOKS[:6] == (32, 40, 50, 63, 79, 99)
    worlds = draw_worlds(32, np.random.default_rng(0))
    state = watch(0).update(worlds.astype(int), worlds)
    assert (state.e_value, state.rejected_at(), state.witness()) == (1.0, None, None)
    assert state.epsilon_lower() == 0.0
    assert watch(0).update([], np.array([], dtype=bool)).runs == 0


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "epsilon below 0": (lambda: watch(-1), "epsilon"),
    "epsilon too large to test": (lambda: watch(513), "epsilon"),
    "delta 1": (lambda: watch(1, 1), "delta"),
    "no claim": (lambda: watch_curve([]), "claims"),
    "alpha 1": (lambda: watch(1).rejected_at(1), "alpha"),
    "worlds": (lambda: watch(1).update([1, 2], [True]), "worlds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_named(case: str) -> None:
    call, argument = REFUSED[case]
    with refused(argument):
        call()
