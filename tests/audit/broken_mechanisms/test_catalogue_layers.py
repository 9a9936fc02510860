"""Tests of broken mechanisms that replay, the exact layer or a claimed curve must detect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from audit import audit
from audit.broken_mechanisms import ENTRIES, Entry, Layer, Subject, find
from audit.broken_mechanisms.randomised_response import SubsetAsTwoAnswers
from audit.broken_mechanisms.randomness import float_laplace, grid
from audit.broken_mechanisms.selection import MEDIAN, median_scores
from audit.claims import read_claim
from audit.features.parse_feature import read_feature
from audit.replay.replay_both import replay
from audit.replay.replay_report import ReplayReport
from audit.statistical_tests.feature_view import View
from audit.statistical_tests.fixed_sample_test import resolution
from audit.statistical_tests.multiple_testing import weigh_views
from audit.targets.target import Known
from audit.targets.target_syntax import read_target
from dpcore.local import HadamardResponse, LocalHashing
from dpcore.numbers.parameter import RationalLike
from dpcore.selection import Selection
from tests.alpha_budget import buy_alpha
from tests.audit.broken_mechanisms.test_catalogue import LEVEL, audited, drawn
from tests.day_and_nightly import by_day
from tests.support.audit.catalogue_laws import epsilon_between
from tests.support.audit.laws import LAWS


def entry_of(name: str) -> Entry:
    found = find(name)
    assert found is not None
    return found


def replayed(subject: Subject, sensitivity: RationalLike | None = None) -> ReplayReport:
    target = read_target(subject.name)
    return replay(target, subject.pair, sensitivity=sensitivity, tapes=8, changes=60, seed=3)


def errors(report: ReplayReport) -> set[str]:
    return {finding.kind for finding in report.findings if finding.severity == "error"}


# -- replay --------------------------------------------------------------------------------------

FOUND = {
    "raw-in-a-hundred": "unnoised-branch",
    "noisy-max-one-draw": "unnoised-part",
    "noise-reused": "unnoised-part",
    "broadcast-draw": "unnoised-part",
    "exact-size": "unnoised-part",
    "raw-in-a-thousand": "unnoised-branch",
    "raw-in-a-hundred-thousand": "unnoised-branch",
    "fixed-seed": "fixed-seed",
    "lower-bound-twice": "no-noise",
}


@by_day(1)
@pytest.mark.parametrize("name", FOUND)
def test_replay_finds_a_fault_and_not_in_its_twin(name: str) -> None:
    entry = entry_of(name)
    assert FOUND[name] in errors(replayed(entry))
    assert not errors(replayed(entry.twin))


@by_day(1)
@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("clipped-copy-unused", 2),
        ("bounds-from-data", 1),
        ("returning-user", 1),
        ("prefix-sums-alone", 1),
        ("tree-unsplit", 1),
        ("rounded-sensitivity", Fraction(1, 2)),
    ],
)
def test_replay_refutes_a_declared_sensitivity(name: str, declared: RationalLike) -> None:
    assert replayed(entry_of(name), declared).verdict == "refuted"


@by_day(1)
@pytest.mark.parametrize(
    ("name", "declared"), [("clipped-sum", 2), ("public-bounds", 1), ("rounded", 1)]
)
def test_replay_does_not_refute_a_true_sensitivity(name: str, declared: int) -> None:
    twin = next(entry.twin for entry in ENTRIES if entry.twin.name == name)
    assert replayed(twin, declared).verdict == "nothing_found"


def test_the_rarest_branch_is_below_the_resolution_of_a_sample() -> None:
    rarest, rare = entry_of("raw-in-a-hundred-thousand"), entry_of("raw-in-a-thousand")
    assert rarest.layer is Layer.REPLAY
    assert resolution(rarest.runs, rarest.epsilon, LEVEL) > 1e-5 * 10
    assert resolution(rare.runs, rare.epsilon, LEVEL) < 1e-3


# -- exact ---------------------------------------------------------------------------------------


def test_every_entry_of_a_layer_is_tested_here() -> None:
    def of(layer: Layer) -> set[str]:
        return {entry.name for entry in ENTRIES if entry.layer is layer}

    assert of(Layer.EXACT) == {"classical-gaussian", "lemma-bits"}
    assert of(Layer.REPLAY) <= set(FOUND)


def seeded_by_value(value: int) -> dict[Any, Any]:
    law = LocalHashing(epsilon=1, values=9).law(value)
    return {each: 9 * law[each] for each in law if each[0] == (5 * value + 2) % 9}  # type: ignore[index]  # a row


def twice(value: int) -> dict[Any, Any]:
    one = HadamardResponse(epsilon=1, values=3).law(value)
    return {(a, b): one[a] * one[b] for a, b in product(one, repeat=2)}


def among_values(values: list[int]) -> dict[Any, Any]:
    found = np.unique(values)
    return dict(zip(found.tolist(), MEDIAN.law(median_scores(values, found).tolist()), strict=True))


LISTED: dict[str, Callable[[Any], dict[Any, Any]]] = {
    "subset-as-two-answers": SubsetAsTwoAnswers(epsilon=1, values=6).law,
    "hashing-seeded-by-value": seeded_by_value,
    "hadamard-two-coefficients": twice,
    "permute-and-flip-undivided": lambda scores: dict(
        enumerate(Selection(epsilon=2, sensitivity=1).law(scores))
    ),
    "median-among-values": among_values,
}


@pytest.mark.parametrize("name", LISTED)
def test_an_entry_with_a_listed_law_is_refuted_by_proof(name: str) -> None:
    entry = entry_of(name)
    a, b = (LISTED[name](dataset) for dataset in entry.pair)
    report = audit(Known(spelling=name, function=entry.run, subject=entry, laws=lambda _: (a, b)))
    assert (report.verdict, report.layers[0].layer) == ("refuted", "exact")
    assert report.exact is not None
    assert report.exact.epsilon.overlaps(entry.true_epsilon)


def test_the_twin_of_the_median_has_the_law_of_a_release() -> None:
    twin = entry_of("median-among-values").twin
    a, b = ([[f"user {i}", x] for i, x in enumerate(values)] for values in twin.pair)
    words = "release:quantile,low=0,high=8,relation=replace,rho=1/8"
    report = audit(words, claim="epsilon=1", pair=(a, b))
    assert report.verdict == "proven"
    assert report.epsilon_lower == pytest.approx(
        float(epsilon_between(*map(LAWS[twin.name], twin.pair)))
    )


# -- a claimed curve -----------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_wrong_sigma_is_refuted_on_its_curve_long_before_one_point() -> None:
    entry = entry_of("sigma-for-its-square")
    assert entry.curve == entry.twin.curve
    assert entry.curve is not None
    claim = read_claim(entry.curve)
    for subject, verdict in ((entry, "refuted"), (entry.twin, "not_refuted")):
        for seed in range(2):
            outputs, worlds = drawn(subject, 10_000, seed)
            view = View(outputs=outputs, worlds=worlds)
            assert weigh_views([view], claim, "0.05", seed=seed).verdict == verdict


# -- floating point ------------------------------------------------------------------------------


def test_the_floats_have_the_quantiles_of_laplace_noise() -> None:
    alpha = buy_alpha("catalogue: float Laplace is Laplace on the reals", "1e-9")
    for amount in (0.0, 1.0):
        outputs = float_laplace(amount, 100_000, np.random.default_rng(8))
        assert kstest(outputs, "laplace", args=(amount, 16)).pvalue > alpha


def test_the_law_of_the_lowest_bit_is_computed_exactly() -> None:
    alpha = buy_alpha("catalogue: lowest bit of float Laplace", "1e-9") / 2
    for amount in (0.0, 1.0):
        law, other = (LAWS["float-laplace"](a) for a in (amount, 1.0 - amount))
        lowest = read_feature("lowest-bit").apply(
            float_laplace(amount, 100_000, np.random.default_rng(9))
        )
        cells = [*range(-53, -39)]
        counts = [int(np.count_nonzero(np.asarray(lowest) == cell)) for cell in cells]
        p_values = []
        for claimed in (law, other):
            chances = [float(claimed[cell]) for cell in cells]
            p_values.append(
                chisquare(
                    [*counts, 100_000 - sum(counts)],
                    [100_000 * p for p in (*chances, 1 - sum(chances))],
                ).pvalue
            )
        assert p_values[0] > alpha > p_values[1]


def test_no_float_near_one_has_finer_bits() -> None:
    # The arithmetic itself, tested around every power of two.
    for power in range(-60, 12):
        for step in range(-2, 3):
            for sign in (-1.0, 1.0):
                noise = sign * (2.0**power + step * math.ulp(2.0**power))
                assert (Fraction(1.0 + noise) * 2**53).denominator == 1


def test_the_rounded_floats_satisfy_the_claim() -> None:
    # The fault is in the last bits only: rounded outputs satisfy the claim.
    entry = entry_of("float-laplace")
    lowest, rounded = (
        audited(replace(entry, features=features), entry.runs, seed=1).p_value(entry.epsilon)
        for features in (entry.features, ("round:0",))
    )
    assert lowest < 1e-6
    assert rounded > LEVEL


def test_the_twin_gives_the_same_floats_for_both_datasets() -> None:
    outputs = grid(0.3, 10_000, np.random.default_rng(2))
    assert (outputs * 8 == np.rint(outputs * 8)).all()
    twin = replace(entry_of("float-laplace").twin, features=("lowest-bit",))
    assert audited(twin, 10_000, seed=4).p_value(twin.epsilon) > LEVEL


# -- probabilities in thousandths ----------------------------------------------------------------


def test_probabilities_in_thousandths_are_rounded_to_the_private_side() -> None:
    e = math.e
    for chosen, limit in ((475, e / (e + 3)), (731, e / (e + 1)), (1648, math.sqrt(e)), (2718, e)):
        assert 0 < limit * 1000 - chosen < 1
    for chosen, limit in ((378, 1 / (math.sqrt(e) + 1)), (269, 1 / (e + 1))):
        assert 0 < chosen - limit * 1000 < 1
    assert Fraction(1284, 1000) < math.exp(0.25) < Fraction(1285, 1000)


def test_a_coin_with_a_probability_in_thousandths_is_exact() -> None:
    alpha = buy_alpha("catalogue: coins in thousandths", "1e-9")
    outputs = entry_of("four-answers-as-two").run(2, 100_000, np.random.default_rng(6))
    counts = np.bincount(outputs, minlength=4)
    expected = np.array([269, 269, 2193, 269]) / 3000 * 100_000
    assert chisquare(counts, expected).pvalue > alpha
    assert chisquare(counts, np.roll(expected, 1)).pvalue < alpha
