"""Tests of entries of the catalogue: other layers than sampling, laws of outputs, and costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from flint import arb
from mpmath import mpf

from audit import audit
from audit.broken_mechanisms import ENTRIES, Entry, Layer, Subject, find, find_subject
from audit.broken_mechanisms.noise import grid
from audit.broken_mechanisms.randomised_response import SubsetAsTwoAnswers
from audit.broken_mechanisms.selection import MEDIAN, median_scores, row_mass
from audit.claims.curve_claim import read_claim
from audit.replay.replay_both import replay
from audit.replay.replay_report import ReplayReport
from audit.statistical_tests.feature_view import View
from audit.statistical_tests.fixed_sample_test import resolution
from audit.statistical_tests.multiple_testing import weigh_views
from audit.targets.target import Known
from audit.targets.target_syntax import read_target
from dpcore.local import HadamardResponse, LocalHashing
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike
from dpcore.selection import Selection
from tests.audit.broken_mechanisms.test_catalogue import LEVEL, audited, drawn
from tests.day_and_nightly import by_day
from tests.support.audit.catalogue_laws import epsilon_between
from tests.support.audit.laws import LAWS, rows, value_reused
from tests.support.dpcore.mutants import mutated


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
    twin = find_subject(name)
    assert twin is not None
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


# -- sparse vector: masses of outputs, and two variants of infinite epsilon -----------------------

ANSWERS = [1, -2, 0]
SCALES = (4, Fraction(4, 3))
ROWS = tuple(product((0, 1), repeat=len(ANSWERS)))


def total(of: Callable[..., arb] = row_mass) -> Enclosure:
    with precision(128):
        return Enclosure.of(sum((of(row, ANSWERS, SCALES) for row in ROWS), arb(0)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("threshold.tail_ball(_REACH) * arb(0.5, 0.5)", "arb(0)"),
        ("range(-_REACH, _REACH + 1)", "range(-_REACH, _REACH // 16)"),
        ("mass *= 1 - under", "mass *= under"),
        ("noise.cdf_ball(k)", "noise.cdf_ball(k + 1)"),
    ],
    ids=["no tail", "half a sum", "above is below", "one off"],
)
def test_a_wrong_mass_of_an_output_row_is_detected(old: str, new: str) -> None:
    wrong = mutated(row_mass, old, new)
    with precision(128):
        missed = [
            row
            for row, mass in rows(4, mpf(4) / 3, None)(ANSWERS).items()
            if not Enclosure.of(wrong(row, ANSWERS, SCALES)).overlaps(law_of(mass))
        ]
    assert missed or Fraction(1) not in total(wrong)


def law_of(mass: object) -> Enclosure:
    # Forty decimals, with the law truncated at 60 scales: accurate to 20 decimals.
    value = Fraction(str(mass))
    return Enclosure(lower=value - Fraction(1, 10**20), upper=value + Fraction(1, 10**20))


def test_the_masses_of_all_rows_are_enclosed_and_sum_to_one() -> None:
    assert Fraction(1) in total()
    assert total().width < Fraction(1, 2**80)
    law = rows(4, mpf(4) / 3, None)(ANSWERS)
    assert set(law) == set(ROWS)
    with precision(128):
        for row, mass in law.items():
            assert Enclosure.of(row_mass(row, ANSWERS, SCALES)).overlaps(law_of(mass))


@pytest.mark.parametrize("below", [1, 2, 4])
def test_releasing_the_compared_value_has_an_unbounded_cost(below: int) -> None:
    first, second = [-1] * below + [0], [0] * below + [-1]
    found = epsilon_between(value_reused(first), value_reused(second))
    assert abs(found - mpf(below + 1) / 2) < mpf(2) ** -60


def test_a_threshold_that_never_stops_has_infinite_epsilon() -> None:
    law = rows(2, 2, None)
    found = [epsilon_between(law([-1] * m + [0] * m), law([0] * m + [-1] * m)) for m in (1, 2, 3)]
    assert all(longer > shorter + mpf(3) / 4 for shorter, longer in pairwise(found))
