"""Tests of the Hypothesis strategies: ranges, unequal neighbours, every law and sensitivity."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from audit.testing import Refuted, assert_sensitivity, strategies
from audit.testing.strategies import (
    deltas,
    epsilons,
    neighbouring_datasets,
    neighbouring_histograms,
    neighbouring_integers,
    neighbouring_streams,
    neighbouring_vectors,
    noises,
    sensitivities,
)
from dpcore import Norm, SeededRng, Sensitivity
from dpcore.noise import Noise
from dpcore.parse_noise import LAWS, read_noise, write_noise
from tests.support.dpcore.refusals import refused

Pair = tuple[list[Any], list[Any]]

# Finds any example; shrinking is not needed.
ANY = hypothesis.settings(
    phases=[Phase.generate], derandomize=True, database=None, deadline=None, max_examples=5000
)


def found(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], Any]) -> Any:
    return hypothesis.find(strategy, wanted, settings=ANY)


@given(epsilons(0, 3), deltas("1e-9", "1/7"))
def test_parameters_are_exact_and_in_range(epsilon: Fraction, delta: Fraction) -> None:
    assert isinstance(epsilon, Fraction)
    assert isinstance(delta, Fraction)
    assert 0 <= epsilon <= 3
    assert Fraction(1, 10**9) <= delta <= Fraction(1, 7)


def test_deltas_reach_0_and_the_powers_of_ten() -> None:
    for wanted in (Fraction(0), Fraction(1, 10**6)):
        assert found(deltas(), partial(operator.eq, wanted)) == wanted
    assert found(deltas("1/3", "1/2"), lambda delta: True) >= Fraction(1, 3)


@given(noises())
def test_every_generated_noise_can_be_written_and_sampled(noise: Noise) -> None:
    assert read_noise(write_noise(noise)) == noise
    assert noise.sample(3, rng=SeededRng(1)).shape == (3,)


def test_every_law_and_norm_of_dpcore_is_generated() -> None:
    assert set(strategies._NOISES) == set(LAWS)
    for law in LAWS:
        assert found(noises(law), lambda noise: True).name == law
    drawn = sensitivities(at_most=3, dimension=2).map(lambda one: one.norm)
    for norm in Norm:
        assert found(drawn, partial(operator.is_, norm)) is norm
        assert found(sensitivities(norm.value), lambda one: True).norm is norm


def test_vectors_attain_the_sensitivity_in_every_coordinate() -> None:
    """A bound that is too small by one is then detected in every coordinate."""
    for bound in (
        *(Sensitivity(3), Sensitivity.l1(3)),
        *(Sensitivity.l2_squared(9), Sensitivity.box((1, 3))),
    ):
        size = 1 if bound.norm is Norm.ABSOLUTE else 2
        drawn = neighbouring_vectors(bound, dimension=size)
        for step in (-3, 3):
            moved = partial(_differs, step)
            with pytest.raises(Refuted, match="3"):
                assert_sensitivity(lambda vector: vector[-1], [found(drawn, moved)], 2)


def _differs(step: int, pair: Pair) -> bool:
    return bool(pair[0][-1] - pair[1][-1] == step)


def test_either_dataset_can_be_the_larger_one() -> None:
    for strategy in (
        neighbouring_datasets(st.integers(0, 1), relation="add-remove"),
        neighbouring_histograms(bins=1, relation="add-remove"),
    ):
        found(strategy, lambda pair: sum(map(abs, pair[0])) > sum(map(abs, pair[1])))
        found(strategy, lambda pair: sum(map(abs, pair[0])) < sum(map(abs, pair[1])))
    drawn = neighbouring_streams(st.integers(0, 2), steps=3, unit="user")  # all of their events
    found(drawn, lambda pair: sum(x != y for x, y in zip(*pair, strict=True)) == 3)


SENSELESS: tuple[tuple[Callable[[], Any], str], ...] = (
    (lambda: epsilons(-1, 1), "at_least"),
    (lambda: epsilons(2, 1), "at_most"),
    (lambda: deltas(0, 1), "at_most"),
    (lambda: noises("cauchy"), "law"),
    (lambda: sensitivities("l7"), "norm"),
    (lambda: sensitivities(at_most=0), "at_most"),
    (lambda: neighbouring_integers(0), "apart"),
    (lambda: neighbouring_integers(3, at_least=0, at_most=2), "at_most"),
    (lambda: neighbouring_vectors(Sensitivity.box((1, 2)), dimension=3), "dimension"),
    (lambda: neighbouring_vectors(2, dimension=2), "dimension"),
    (lambda: neighbouring_datasets(st.none(), relation="cousins"), "relation"),
    (lambda: neighbouring_datasets(st.none(), most=0), "most"),
    (lambda: neighbouring_histograms(bins=1), "bins"),
    (lambda: neighbouring_streams(st.none(), unit="household"), "unit"),
    (lambda: neighbouring_streams(st.none(), steps=0), "steps"),
)


def test_invalid_arguments_of_strategies_are_refused_by_name() -> None:
    for make, argument in SENSELESS:
        with refused(argument):
            make()
