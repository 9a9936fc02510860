"""Tests of the catalogue: broken mechanisms are refuted, correct twins not; epsilons recomputed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb
from mpmath import mpf
from numpy.typing import NDArray
from scipy.stats import binom

from audit import audit
from audit.broken_mechanisms import ENTRIES, Entry, Layer, Subject, Twin, find, find_subject
from audit.broken_mechanisms.noise import grid
from audit.broken_mechanisms.selection import row_mass
from audit.features.parse_feature import read_feature
from audit.known_laws.law_file import read_law
from audit.outputs.output_parser import draw_worlds, interleave
from audit.replay.replay_both import replay
from audit.replay.replay_report import ReplayReport
from audit.statistical_tests.prequential_fixed_runs_test import Evidence, gather, resolution
from audit.targets.target import Shifted
from audit.targets.target_syntax import read_target
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.audit.catalogue_laws import (
    GROWING,
    Masses,
    delta_between,
    epsilon_between,
    revealing,
)
from tests.support.audit.laws import LAWS, rows
from tests.support.dpcore.mpmath_precision import real
from tests.support.dpcore.mutants import mutated

REPEATS = 6
LEVEL = 0.05
RUNS = 40_000
TELLING_RUNS = 100_000
MANY = 500_000  # more runs than the tests below repeat
MOST_CELLS = 60
SEEN = 1e-6  # more than the mass at the ends of a window
TOLERANCE = mpf(2) ** -60

TWINS = tuple({entry.twin.name: entry.twin for entry in ENTRIES}.values())
SUBJECTS: tuple[Subject, ...] = (*ENTRIES, *TWINS)

SAMPLED = tuple(entry for entry in ENTRIES if entry.layer is Layer.SAMPLE)

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
each_sampled = pytest.mark.parametrize("entry", SAMPLED, ids=lambda entry: entry.name)
each_twin = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
each_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


@cache
def law_of(name: str, dataset: str) -> Masses:
    return LAWS[name](json.loads(dataset))


def by_time(entry: Entry) -> bool:
    return entry.layer is Layer.TIME


def laws(subject: Subject) -> tuple[Masses, Masses]:
    first, second = (law_of(subject.name, json.dumps(dataset)) for dataset in subject.pair)
    return first, second


# -- fields of an entry --------------------------------------------------------------------------


def test_every_entry_has_its_fields() -> None:
    names = [subject.name for subject in SUBJECTS]
    assert len(set(names)) == len(names)
    numbers = [entry.number for entry in ENTRIES]
    assert numbers == sorted(set(numbers))
    assert [find(entry.name) for entry in ENTRIES] == list(ENTRIES)
    assert find("count") is None  # a twin is not an entry
    assert [find_subject(subject.name) for subject in SUBJECTS] == list(SUBJECTS)
    assert set(LAWS) == set(names)
    # Those that a sample does not refute are tested below.
    assert {entry.name for entry in ENTRIES if entry.layer is Layer.REPLAY} <= set(FOUND)
    timed = [entry for entry in ENTRIES if by_time(entry)]
    called = {name for name in names if any(name in (e.name, e.twin.name) for e in timed)}
    assert {subject.name for subject in SUBJECTS if subject.call is not None} == called
    for entry in ENTRIES:
        assert entry.sentence.endswith(".")
        assert 40 <= len(entry.sentence) <= 130
        assert len(entry.source) > 10
        assert entry.runs >= 100
    for subject in SUBJECTS:
        assert json.loads(json.dumps(subject.pair)) == list(subject.pair)
        assert subject.pair[0] != subject.pair[1]
        first, second = (
            subject.run(subject.pair[1], 50, np.random.default_rng(5)) for _ in range(2)
        )
        assert np.array_equal(first, second)


# -- the epsilon of an entry, recomputed independently -------------------------------------------


@by_day(3)
@each_entry
def test_the_true_epsilon_is_derived(entry: Entry) -> None:
    a, b = laws(entry)
    stated = entry.true_epsilon
    assert (delta_between(a, b, real(entry.epsilon)) > real(entry.delta)) is not by_time(entry)
    # If the fault is in the timing, the outputs alone satisfy the claim.
    assert stated.upper <= entry.epsilon if by_time(entry) else stated.lower > entry.epsilon
    if entry.name in GROWING:
        # Infinite epsilon: each doubling of the window increases epsilon by more than 1.
        seen = [GROWING[entry.name](reach) for reach in (5, 10, 20, 40)]
        assert all(wider > narrower + 1 for narrower, wider in pairwise(seen))
        assert stated.lower == math.inf
    elif stated.lower == math.inf:
        assert revealing(a, b) > SEEN
    elif entry.delta:
        # delta decreases in epsilon, so the epsilon at the claim's delta lies between both bounds.
        assert delta_between(a, b, real(stated.lower) - TOLERANCE) > real(entry.delta)
        assert delta_between(a, b, real(stated.upper) + TOLERANCE) < real(entry.delta)
    else:
        assert revealing(a, b) == 0
        found = epsilon_between(a, b)
        assert real(stated.lower) - TOLERANCE <= found <= real(stated.upper) + TOLERANCE


@by_day(3)
@each_twin
def test_a_twin_satisfies_its_claim_tightly(twin: Twin) -> None:
    a, b = laws(twin)
    if twin.delta:
        delta = delta_between(a, b, real(twin.epsilon))
        assert real(twin.delta) * 9 / 10 < delta <= real(twin.delta)
        return
    assert revealing(a, b) == 0
    epsilon = epsilon_between(a, b)
    assert real(twin.epsilon) / 2 < epsilon <= real(twin.epsilon) + mpf(2) ** -60


# -- the code samples from that law --------------------------------------------------------------


def looked_at(subject: Subject, dataset: Any, n: int, rng: np.random.Generator) -> NDArray[Any]:
    """The outputs, mapped by the first feature that reveals the fault, if the entry names one."""
    outputs = subject.run(dataset, n, rng)
    for name in subject.features[:1]:
        outputs = np.asarray(read_feature(name).apply(outputs))
    return outputs


def surprise(subject: Subject, dataset: Any, law: Masses, *, seed: int, runs: int = RUNS) -> float:
    """The smallest exact binomial p-value of a cell, times the number of cells."""
    outputs = looked_at(subject, dataset, runs, np.random.default_rng(seed)).tolist()
    seen = Counter(map(tuple, outputs) if isinstance(outputs[0], list) else outputs)
    cells = sorted(law, key=lambda outcome: -law[outcome])[:MOST_CELLS]
    masses = [float(law[outcome]) for outcome in cells]
    counts = [seen[outcome] for outcome in cells]
    masses.append(max(float(1 - mpmath.fsum(law[outcome] for outcome in cells)), 0.0))
    counts.append(runs - sum(counts))
    k, p = np.array(counts), np.clip(np.array(masses), 0.0, 1.0)
    tails = np.minimum(binom.cdf(k, runs, p), binom.sf(k - 1, runs, p))
    return min(1.0, float(tails.min()) * 2 * len(cells))


@pytest.fixture(scope="module")
def fit_alpha() -> float:
    return buy_alpha("catalogue: the code draws from its law", "1e-9") / (2 * len(SUBJECTS))


@by_day(9)
@each_subject
@pytest.mark.parametrize("world", [0, 1])
def test_the_code_of_an_entry_draws_from_its_law(
    subject: Subject, world: int, fit_alpha: float
) -> None:
    assert surprise(subject, subject.pair[world], laws(subject)[world], seed=world) > fit_alpha


# Entries whose broken and correct versions are one mechanism are skipped: only the claim is wrong.
@by_day(8)
@pytest.mark.parametrize(
    "entry",
    [e for e in SAMPLED if e.run is not e.twin.run and e.features == e.twin.features],
    ids=lambda entry: entry.name,
)
def test_the_fit_distinguishes_an_entry_from_its_twin(entry: Entry, fit_alpha: float) -> None:
    dataset = entry.pair[1]
    law = law_of(entry.twin.name, json.dumps(dataset))
    assert surprise(entry, dataset, law, seed=3, runs=TELLING_RUNS) < fit_alpha


@pytest.mark.parametrize(
    "subject", [one for one in SUBJECTS if one.laws is not None], ids=lambda subject: subject.name
)
def test_the_stated_laws_are_those_of_the_outputs(subject: Subject) -> None:
    for dataset, text in zip(subject.pair, subject.laws or (), strict=True):
        stated = read_law("law", text).law
        assert isinstance(stated, Shifted)
        law = law_of(subject.name, json.dumps(dataset))
        outcomes = np.array([*law])
        masses = np.array([float(mass) for mass in law.values()])
        for off, same in ((0, True), (1, False)):  # the mutant is shifted by one
            found = stated.noise.pmf(outcomes - stated.shift - off)
            assert np.allclose(found, masses, rtol=1e-9, atol=1e-15) is same


# -- the audit refutes the broken mechanism and not its twin -------------------------------------


def drawn(subject: Subject, runs: int, seed: int) -> tuple[Any, Any]:
    """The outputs of these runs, mapped as above, and their datasets."""
    rng = np.random.default_rng([seed, *subject.name.encode()])
    worlds = draw_worlds(runs, rng)
    in_b = int(worlds.sum())
    side_a = looked_at(subject, subject.pair[0], runs - in_b, rng)
    side_b = looked_at(subject, subject.pair[1], in_b, rng)
    return interleave(side_a, side_b, worlds, rng), worlds


def audited(subject: Subject, runs: int, seed: int) -> Evidence:
    return gather(*drawn(subject, runs, seed), seed=seed)


def refutations(subject: Subject, runs: int, repeats: int = REPEATS) -> int:
    found = (audited(subject, runs, seed) for seed in range(repeats))
    return sum(e.p_value(subject.epsilon, subject.delta) <= LEVEL for e in found)


@by_day(1)
@each_sampled
def test_a_broken_mechanism_is_refuted(entry: Entry) -> None:
    repeats = REPEATS if entry.runs < MANY else 1
    assert refutations(entry, 2 * entry.runs, repeats) >= max(repeats - 1, 1)
    evidence = audited(entry, 2 * entry.runs, seed=0)
    assert entry.epsilon < evidence.epsilon_lower(LEVEL)
    alpha = buy_alpha(f"catalogue: {entry.name}", "1e-10")
    assert evidence.epsilon_lower(alpha) <= entry.true_epsilon.upper
    assert evidence.followed(entry.epsilon)[1] is not None


@by_day(3)
@each_entry
def test_a_twin_is_not_refuted(entry: Entry) -> None:
    alpha = buy_alpha(f"catalogue: twin of {entry.name}", "1e-9")
    twin = entry.twin
    evidence = audited(twin, 2 * entry.runs, seed=REPEATS)
    assert evidence.p_value(twin.epsilon, twin.delta, spend=alpha / 10) > alpha
    assert evidence.epsilon_lower(alpha, twin.delta) <= twin.epsilon


# -- the signature of a target -------------------------------------------------------------------


@each_entry
def test_an_entry_has_the_signature_of_its_twin(entry: Entry) -> None:
    for n, dataset in product((0, 1, 7), (*entry.pair, *entry.twin.pair)):
        broken = entry.run(dataset, n, np.random.default_rng(1))
        right = entry.twin.run(dataset, n, np.random.default_rng(1))
        assert (broken.shape, broken.dtype, len(broken)) == (right.shape, right.dtype, n)


@pytest.mark.parametrize(
    "subject", [one for one in SUBJECTS if one.call is not None], ids=lambda subject: subject.name
)
@pytest.mark.parametrize("world", [0, 1])
def test_a_single_call_has_the_law_of_a_run(subject: Subject, world: int, fit_alpha: float) -> None:
    def calls(dataset: Any, n: int, rng: np.random.Generator) -> NDArray[Any]:
        assert subject.call is not None
        return np.array([subject.call(dataset, rng) for _ in range(n)])

    by_call = replace(subject, run=calls)
    told = [
        surprise(by_call, subject.pair[world], law, seed=world, runs=1000) for law in laws(subject)
    ]
    assert told[world] > fit_alpha > told[1 - world]


# -- other layers than sampling ------------------------------------------------------------------


def entry_of(name: str) -> Entry:
    found = find(name)
    assert found is not None
    return found


def replayed(subject: Subject, sensitivity: RationalLike | None = None) -> ReplayReport:
    target = read_target(subject.name)
    return replay(target, subject.pair, sensitivity=sensitivity, tapes=8, changes=60, seed=3)


def errors(report: ReplayReport) -> set[str]:
    return {finding.kind for finding in report.findings if finding.severity == "error"}


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


@by_day(2)
@pytest.mark.parametrize(
    ("name", "declared", "verdict"),
    [
        ("clipped-copy-unused", 2, "refuted"),
        ("bounds-from-data", 1, "refuted"),
        ("returning-user", 1, "refuted"),
        ("prefix-sums-alone", 1, "refuted"),
        ("tree-unsplit", 1, "refuted"),
        ("rounded-sensitivity", Fraction(1, 2), "refuted"),
        ("clipped-sum", 2, "nothing_found"),
        ("public-bounds", 1, "nothing_found"),
        ("rounded", 1, "nothing_found"),
    ],
)
def test_replay_refutes_only_a_false_sensitivity(
    name: str, declared: RationalLike, verdict: str
) -> None:
    subject = find_subject(name)
    assert subject is not None
    assert replayed(subject, declared).verdict == verdict


def test_the_rarest_branch_is_below_the_resolution_of_a_sample() -> None:
    rarest, rare = entry_of("raw-in-a-hundred-thousand"), entry_of("raw-in-a-thousand")
    assert rarest.layer is Layer.REPLAY
    assert resolution(rarest.runs, rarest.epsilon, LEVEL) > 1e-5 * 10
    assert resolution(rare.runs, rare.epsilon, LEVEL) < 1e-3


# -- exact ---------------------------------------------------------------------------------------


def test_the_twin_of_the_median_has_the_law_of_a_release() -> None:
    twin = entry_of("median-among-values").twin
    a, b = ([[f"user {i}", x] for i, x in enumerate(values)] for values in twin.pair)
    words = "release:quantile,low=0,high=8,relation=replace,rho=1/8"
    report = audit(words, claim="epsilon=1", pair=(a, b))
    assert report.verdict == "proven"
    assert report.epsilon_lower == pytest.approx(
        float(epsilon_between(*map(LAWS[twin.name], twin.pair)))
    )


# -- floating point ------------------------------------------------------------------------------


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


# -- sparse vector: masses of outputs ------------------------------------------------------------

ANSWERS = [1, -2, 0]
SCALES = (4, Fraction(4, 3))
ROWS = tuple(product((0, 1), repeat=len(ANSWERS)))


MUTANTS = {
    "no tail": ("threshold.tail_ball(_REACH) * arb(0.5, 0.5)", "arb(0)"),
    "half a sum": ("range(-_REACH, _REACH + 1)", "range(-_REACH, _REACH // 16)"),
    "above is below": ("mass *= 1 - under", "mass *= under"),
    "one off": ("noise.cdf_ball(k)", "noise.cdf_ball(k + 1)"),
}


def enclosed(mass: object) -> Enclosure:
    # Forty decimals, with the law truncated at 60 scales: accurate to 20 decimals.
    value = Fraction(str(mass))
    return Enclosure(lower=value - Fraction(1, 10**20), upper=value + Fraction(1, 10**20))


def test_the_masses_of_output_rows_are_enclosed_and_sum_to_one() -> None:
    def right(of: Callable[..., arb]) -> bool:
        with precision(128):
            found = {row: of(row, ANSWERS, SCALES) for row in ROWS}
            whole = Enclosure.of(sum(found.values(), arb(0)))
            near = all(Enclosure.of(found[row]).overlaps(enclosed(law[row])) for row in ROWS)
            return near and Fraction(1) in whole and whole.width < Fraction(1, 2**80)

    law = rows(4, mpf(4) / 3, None)(ANSWERS)
    assert set(law) == set(ROWS)
    assert right(row_mass)
    for old, new in MUTANTS.values():
        assert not right(mutated(row_mass, old, new))
