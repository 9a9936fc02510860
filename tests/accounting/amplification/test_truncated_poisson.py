r"""Tests of truncated Poisson samples: all samples of small datasets, dp-accounting, bad input."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting import compose
from dpcore.mechanism import Relation
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends

CURVE = releases.gaussian(1)
X = np.arange(-14, 14, 0.01)


def truncated(rate: str, examples: int, most: int, relation: Relation = Relation.ADD_REMOVE) -> Any:
    return releases.truncated(
        curve=CURVE, rate=rate, examples=examples, most=most, relation=relation
    )


def density(values: tuple[int, ...], rate: float, most: int) -> Any:
    r"""Return the mixture of normal densities at the sums of all kept subsets of all samples."""
    weights: dict[int, float] = defaultdict(float)
    for size in range(len(values) + 1):
        for sample in itertools.combinations(values, size):
            kept = list(itertools.combinations(sample, min(most, size)))
            chance = rate**size * (1 - rate) ** (len(values) - size) / len(kept)
            for each in kept:
                weights[sum(each)] += chance
    return sum(weight * normal(total) for total, weight in weights.items())


@cache
def normal(centre: int) -> Any:
    return 0.01 * stats.norm.pdf(X, centre)


def gain(one: Any, other: Any, epsilon: float) -> float:
    r"""Return the larger hockey-stick divergence of two laws."""
    factor = math.exp(epsilon)
    return float(max(np.maximum(p - factor * q, 0).sum() for p, q in ((one, other), (other, one))))


@pytest.mark.parametrize("relation", list(Relation))
def test_every_small_dataset_is_within_the_bound(relation: Relation) -> None:
    r"""Neighbours whose other units add nothing attain the lower bound."""
    broken = 0
    for rate, most in (("1/3", 1), ("3/4", 1), ("3/4", 2), ("1", 2)):
        source, q = truncated(rate, 4, most, relation), float(Fraction(rate))
        # The mutant: in a full batch a unit takes the place of another, which moves the sum
        # twice; the mutant counts one move.
        mutant = [
            (w, releases.poisson(curve=CURVE, rate=share, relation=relation))
            for w, share, _ in source.parts()
            if w > 0.01
        ]
        for epsilon in ("0", "1/4", "1"):
            found, at = source.delta(epsilon), float(Fraction(epsilon))
            less = sum(float(w) * kind.delta(epsilon).upper_float for w, kind in mutant)
            for others in itertools.product((-1, 0, 1), repeat=3):
                here = density((1, *others), q, most)
                ends = [(-1, *others)] if relation is Relation.REPLACE else [others]
                truth = max(gain(here, density(end, q, most), at) for end in ends)
                assert truth <= found.upper_float + 5e-6
                broken += truth > less + 1e-5
                if others == (0, 0, 0):
                    assert found.lower_float == pytest.approx(truth, abs=5e-6)
    assert broken > 0


def test_a_batch_that_is_never_truncated_is_a_poisson_sample() -> None:
    plain = releases.poisson(curve=CURVE, rate="1/10")
    whole = truncated("1/10", 50, 50)
    assert whole.directions == plain.directions
    assert compose((whole, 20)).epsilon("1e-5") == compose((plain, 20)).epsilon("1e-5")
    swapped = releases.replaced(curve=CURVE, rate="1/10")
    assert truncated("1/10", 50, 50, Relation.REPLACE).directions == swapped.directions
    # Every unit is always present, and half of them are kept.
    ((chance, rate, _),) = truncated("1", 50, 25).parts()
    assert chance == 1
    assert rate == truncated("1", 50, 25).kept.upper == Fraction(1, 2)


def test_the_probabilities_of_truncation_equal_enumerated_ones() -> None:
    source = truncated("1/3", 5, 2)
    weights = {n: math.comb(4, n) * 2 ** (4 - n) for n in range(5)}
    filled = Fraction(sum(weights[n] for n in (2, 3, 4)), 3**4)
    kept = Fraction(sum(w * Fraction(min(2, n + 1), n + 1) for n, w in weights.items()), 3**5)
    assert source.filled.lower <= filled <= source.filled.upper
    assert source.kept.lower <= kept <= source.kept.upper
    assert float(source.kept.upper - source.kept.lower) < 1e-40
    assert sum(chance for chance, _ in source.directions[0]) == 1


@pytest.mark.parametrize("relation", list(Relation))
def test_many_rounds_against_another_tool(relation: Relation) -> None:
    r"""Reference: dp-accounting's mixture of its own distributions, with the pairs proven here."""
    dp: Any = pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    pld = dp.pld.privacy_loss_distribution
    relations = dp.NeighboringRelation
    replaced = relation is Relation.REPLACE
    near = relations.REPLACE_ONE if replaced else relations.ADD_OR_REMOVE_ONE

    def kind(sigma: float, rate: float) -> Any:
        return pld.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=1e-3, neighboring_relation=near
        )

    n, q, b, rounds = 200, 0.1, 24, 50
    filled = stats.binom.sf(b - 1, n - 1, q)
    kept = stats.binom.sf(b, n, q) * b / n / filled
    theirs = kind(0.5, kept).compute_mixture(kind(1.0, q), filled).self_compose(rounds)
    source = truncated("1/10", n, b, relation)
    ours = ends(compose((source, rounds)).epsilon("1e-6"))
    assert theirs.get_epsilon_for_delta(1e-6) == pytest.approx(ours.upper_float, rel=1e-4)
    # The mutants: a batch that is never cut, and a mixture with its two components swapped.
    assert compose((truncated("1/10", n, n, relation), rounds)).epsilon("1e-6").upper < ours.upper
    swapped = kind(1.0, q).compute_mixture(kind(0.5, kept), filled).self_compose(rounds)
    assert swapped.get_epsilon_for_delta(1e-6) > ours.upper_float * 1.01
    # dp-accounting takes a pair of replacement for a filled batch in either relation.
    event = dp.TruncatedSubsampledGaussianDpEvent(n, q, b, 1.0)
    accountant = dp.pld.PLDAccountant(near, 1e-3).compose(event, rounds)
    accounted = accountant.get_epsilon(1e-6)
    assert accounted >= ours.upper_float * (1 - 1e-5)
    assert (accounted > ours.upper_float * 1.01) is not replaced


def test_one_round_lies_between_its_bounds() -> None:
    source = truncated("1/4", 4, 1)
    back = ends(source.epsilon(source.delta("1/10", "1e-12").upper, "1e-10"))
    assert back.upper_float == pytest.approx(0.1, rel=1e-9)
    assert back.lower < back.upper
    assert source.epsilon(0).upper == math.inf
    assert source.scope == releases.ADD_REMOVE
    assert source.assumptions == CURVE.assumptions
    found, least = (each.renyi(2, "1e-3") for each in (source, source.least))
    assert found.lower == least.lower
    assert least.upper < found.upper < math.inf
