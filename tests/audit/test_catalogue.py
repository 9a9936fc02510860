"""Every slip is refuted, no twin is, and every epsilon that the catalogue states is derived."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy.stats import binom

from audit.catalogue import ENTRIES, Entry, Layer, Subject, Twin, find
from audit.confidence import Evidence, draw_worlds, gather, interleave
from dpcore import Relation
from tests.audit.catalogue_laws import (
    LAWS,
    Masses,
    delta_between,
    epsilon_between,
    gaussian,
    revealing,
)
from tests.purse import purse

REPEATS = 20
LEVEL = 0.05
RUNS = 100_000
MOST_CELLS = 60

TWINS = tuple({entry.twin.name: entry.twin for entry in ENTRIES}.values())
SUBJECTS: tuple[Subject, ...] = (*ENTRIES, *TWINS)

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
each_twin = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
each_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


@cache
def law_of(name: str, dataset: str) -> Masses:
    return LAWS[name](json.loads(dataset))


def laws(subject: Subject) -> tuple[Masses, Masses]:
    first, second = (law_of(subject.name, json.dumps(dataset)) for dataset in subject.pair)
    return first, second


# -- what an entry says --------------------------------------------------------------------------


def test_names_and_numbers_are_unique() -> None:
    names = [subject.name for subject in SUBJECTS]
    assert len(set(names)) == len(names)
    numbers = [entry.number for entry in ENTRIES]
    assert numbers == sorted(set(numbers))


def test_an_entry_is_found_by_its_name() -> None:
    assert [find(entry.name) for entry in ENTRIES] == list(ENTRIES)
    assert find("count") is None  # a twin is no entry
    assert find("") is None


@each_entry
def test_an_entry_explains_itself(entry: Entry) -> None:
    assert entry.sentence.endswith(".")
    assert 40 <= len(entry.sentence) <= 130
    assert len(entry.source) > 10
    assert entry.layer is Layer.SAMPLE
    assert entry.runs >= 100


@each_subject
def test_a_subject_can_be_written_on_a_command_line(subject: Subject) -> None:
    assert json.loads(json.dumps(subject.pair)) == list(subject.pair)
    assert subject.pair[0] != subject.pair[1]
    assert subject.relation in Relation


def test_a_slip_is_not_listed_without_a_twin_and_a_law() -> None:
    given = {field.name: getattr(ENTRIES[0], field.name) for field in dataclasses.fields(Entry)}
    del given["twin"]
    with pytest.raises(TypeError, match="twin"):
        Entry(**given)
    assert all(type(entry.twin) is Twin for entry in ENTRIES)
    assert set(LAWS) == {subject.name for subject in SUBJECTS}


# -- what an entry costs, derived a second time --------------------------------------------------


@each_entry
def test_the_true_epsilon_is_derived(entry: Entry) -> None:
    a, b = laws(entry)
    stated = entry.true_epsilon
    assert stated.lower > entry.epsilon
    if entry.name == "gaussian-as-pure":
        windows = [epsilon_between(gaussian(0, k), gaussian(1, k)) for k in (5, 10, 20, 40)]
        assert [float(found) for found in windows] == pytest.approx([5.5, 10.5, 20.5, 40.5])
        assert stated.lower == math.inf  # no end: |ln ratio| = k + 1/2 at the output -k
    elif entry.name == "skellam-mean-as-variance":
        # No end either: ratios of Bessel functions grow like m/v.
        windows = [epsilon_between(cut(a, k), cut(b, k)) for k in (8, 16, 32)]
        assert 3 < windows[0] < windows[1] - 1.9 < windows[2] - 4
        assert stated.lower == math.inf
    elif stated.lower == math.inf:
        assert revealing(a, b) > 0.005
    else:
        assert revealing(a, b) == 0
        found = epsilon_between(a, b)
        tolerance = mpf(2) ** -60
        assert exact(stated.lower) - tolerance <= found <= exact(stated.upper) + tolerance


def cut(law: Masses, reach: int) -> Masses:
    return {k: mass for k, mass in law.items() if abs(k) <= reach}


@each_entry
def test_an_entry_with_a_delta_exceeds_it(entry: Entry) -> None:
    a, b = laws(entry)
    assert delta_between(a, b, exact(entry.epsilon)) > exact(entry.delta)


def exact(value: Fraction | float) -> Any:
    whole = Fraction(value)
    return mpf(whole.numerator) / whole.denominator


@each_twin
def test_a_twin_keeps_its_claim_and_nearly_spends_it(twin: Twin) -> None:
    a, b = laws(twin)
    if twin.delta:
        delta = delta_between(a, b, exact(twin.epsilon))
        assert exact(twin.delta) * 9 / 10 < delta <= exact(twin.delta)
        return
    assert revealing(a, b) == 0
    epsilon = epsilon_between(a, b)
    assert exact(twin.epsilon) / 2 < epsilon <= exact(twin.epsilon) + mpf(2) ** -60


# -- the code draws from that law ----------------------------------------------------------------


def surprise(subject: Subject, dataset: Any, law: Masses, seed: int) -> float:
    """The smallest exact binomial p-value of a cell, times the number of cells."""
    outputs = subject.run(dataset, RUNS, np.random.default_rng(seed))
    seen = Counter(tuple(x) if isinstance(x, list) else x for x in outputs.tolist())
    cells = sorted(law, key=lambda outcome: -law[outcome])[:MOST_CELLS]
    masses = [float(law[outcome]) for outcome in cells]
    counts = [seen[outcome] for outcome in cells]
    masses.append(max(float(1 - mpmath.fsum(law[outcome] for outcome in cells)), 0.0))
    counts.append(RUNS - sum(counts))
    k, p = np.array(counts), np.clip(np.array(masses), 0.0, 1.0)
    tails = np.minimum(binom.cdf(k, RUNS, p), binom.sf(k - 1, RUNS, p))
    return min(1.0, float(tails.min()) * 2 * len(cells))


@pytest.fixture(scope="module")
def fit_alpha() -> float:
    return purse.buy("catalogue: the code draws from its law", "1e-8") / (2 * len(SUBJECTS))


@each_subject
@pytest.mark.parametrize("world", [0, 1])
def test_the_code_draws_from_the_law(subject: Subject, world: int, fit_alpha: float) -> None:
    assert surprise(subject, subject.pair[world], laws(subject)[world], seed=world) > fit_alpha


# Where broken and right are one mechanism, only the claim is wrong, and there is nothing to tell.
@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.run is not e.twin.run], ids=lambda entry: entry.name
)
def test_the_fit_tells_a_slip_from_its_twin(entry: Entry, fit_alpha: float) -> None:
    dataset = entry.pair[1]
    law = law_of(entry.twin.name, json.dumps(dataset))
    assert surprise(entry, dataset, law, seed=3) < fit_alpha


# -- the audit tells them apart ------------------------------------------------------------------


def audited(subject: Subject, runs: int, seed: int) -> Evidence:
    rng = np.random.default_rng([seed, *subject.name.encode()])
    worlds = draw_worlds(runs, rng)
    in_b = int(worlds.sum())
    side_a = subject.run(subject.pair[0], runs - in_b, rng)
    side_b = subject.run(subject.pair[1], in_b, rng)
    return gather(interleave(side_a, side_b, worlds, rng), worlds, seed=seed)


def refutations(subject: Subject, runs: int) -> int:
    found = (audited(subject, runs, seed) for seed in range(REPEATS))
    return sum(e.p_value(subject.epsilon, subject.delta) <= LEVEL for e in found)


@each_entry
def test_a_slip_is_refuted(entry: Entry) -> None:
    assert refutations(entry, 2 * entry.runs) >= REPEATS - 1
    evidence = audited(entry, 2 * entry.runs, seed=0)
    assert entry.epsilon < evidence.epsilon_lower(LEVEL) <= entry.true_epsilon.upper
    assert evidence.witness(entry.epsilon) is not None


def test_twins_are_refuted_no_oftener_than_the_level_says() -> None:
    alpha = purse.buy("catalogue: twins refuted", "1e-8")
    found = {entry.name: refutations(entry.twin, 2 * entry.runs) for entry in ENTRIES}
    repeats = REPEATS * len(found)
    assert binom.sf(sum(found.values()) - 1, repeats, LEVEL) > alpha, found


@each_entry
def test_a_twin_is_not_refuted(entry: Entry) -> None:
    alpha = purse.buy(f"catalogue: twin of {entry.name}", "1e-9")
    twin = entry.twin
    evidence = audited(twin, 2 * entry.runs, seed=REPEATS)
    assert evidence.p_value(twin.epsilon, twin.delta, spend=alpha / 10) > alpha
    assert evidence.epsilon_lower(alpha, twin.delta) <= twin.epsilon


# -- the shape that a target must have -----------------------------------------------------------


@each_entry
@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_slip_looks_like_its_twin(entry: Entry, n: int) -> None:
    for dataset in (*entry.pair, *entry.twin.pair):
        broken = entry.run(dataset, n, np.random.default_rng(1))
        right = entry.twin.run(dataset, n, np.random.default_rng(1))
        assert broken.shape == right.shape
        assert broken.dtype == right.dtype
        assert len(broken) == n


@each_subject
def test_a_run_repeats_under_its_generator(subject: Subject) -> None:
    first, second = (subject.run(subject.pair[1], 50, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, second)
