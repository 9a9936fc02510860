"""Tests of learned scores: valid at the claim's boundary, no test-set leakage, nearly optimal."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from audit.claims import Claim
from audit.features import fit_score_model as learned_score
from audit.features.fit_score_model import (
    CANDIDATES,
    OnlineLearner,
    Stretches,
    learn_linear,
    learn_parts,
    learned_scores,
)
from audit.features.learner_columns import learn_reader
from audit.features.parse_feature import read_feature
from audit.outputs.output_parser import draw_worlds
from audit.outputs.rows import Schema
from audit.runs.draw_plan import Plan
from audit.sample_layer import draw, report_of, sample
from audit.statistical_tests.prequential_fixed_runs_test import block_ends, gather
from audit.targets.target import Target, Vectorised
from dpcore.numbers.arrays import one_thread
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort

MOST_MEMORY = 3.5
ScoreJson = dict[str, Any]


def shifted(d: int, n: int, rng: np.random.Generator) -> Any:
    """Six floats; one of them moves by a tenth of its noise scale: about 0.1-DP."""
    return np.concatenate((d + rng.laplace(0, 10, (n, 1)), rng.laplace(0, 10, (n, 5))), axis=1)


def broken(d: int, n: int, rng: np.random.Generator) -> Any:
    """One of twelve integers has a tenth of the noise it needs."""
    noise = np.rint(rng.laplace(0, 10, (n, 12))).astype(np.int64)
    noise[:, 7] = d + rng.geometric(0.6, n) - rng.geometric(0.6, n)
    return noise


def of(function: Any) -> Target:
    return Vectorised(spelling=function.__name__, function=function)


PLAN = Plan(claim=Claim(epsilon="0.1"), pair=(0, 1), runs=3000, seed=7)


def response(runs: int, width: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Randomised response at epsilon = 1 in one coordinate; the others are noise to overfit."""
    worlds = draw_worlds(runs, rng)
    outputs = rng.normal(size=(runs, width))
    outputs[:, 0] = np.where(rng.random(runs) < 1 / (1 + math.exp(-1)), worlds, ~worlds)
    return outputs, worlds


def alarms(repeats: int, learned: Any) -> int:
    found = 0
    for repeat in range(repeats):
        outputs, worlds = response(400, 30, np.random.default_rng([5, repeat]))
        scores = learned(outputs, worlds)
        found += gather(scores, worlds, seed=repeat, isotonic=True).p_value(1) <= 0.05
    return found


def honest(outputs: Any, worlds: Any) -> Any:
    return learned_scores(outputs, worlds, block_ends(len(worlds)))[0]["learned"]


def peeking(outputs: Any, worlds: Any) -> Any:
    """A mutant: the score is learned from the runs that it scores."""
    teacher = OnlineLearner()
    teacher.scores(outputs, worlds)
    teacher.learn()
    return teacher.scores(outputs, worlds)["learned"]


def test_a_learner_at_the_boundary_does_not_refute_but_a_peeking_mutant_does() -> None:
    alpha, repeats = buy_alpha("learned scores at the boundary", "1e-9"), effort(3, 1000)
    wrong = alarms(repeats, honest)
    assert stats.binom.sf(wrong - 1, repeats, 0.05) > alpha
    assert stats.binom.sf(alarms(12, peeking) - 1, 12, 0.05) < 1e-9


def test_the_scores_of_a_block_do_not_depend_on_the_datasets_of_its_runs() -> None:
    outputs, worlds = response(900, 4, np.random.default_rng(3))
    ends = block_ends(900)
    found, models = learned_scores(outputs, worlds, ends)
    other = worlds.copy()
    other[ends[-2] :] ^= True
    again, _ = learned_scores(outputs, other, ends)
    for name, scores in found.items():
        assert (again[name] == scores).all()
    assert set(models) <= set(ends[:-1])
    other[: ends[-2]] ^= True
    assert (learned_scores(outputs, other, ends)[0]["learned"] != found["learned"]).any()
    # A score reads each output separately; it depends on the models, which only learn() changes.
    teacher = OnlineLearner()
    teacher.scores(outputs, worlds)
    teacher.learn()
    fresh = np.random.default_rng(4).normal(size=(50, 4)).tolist()
    fresh += [[1.0], None, "x", [math.nan] * 9]
    together = teacher.scores(fresh, np.zeros(len(fresh), dtype=np.bool_))
    for i in (0, 7, 49, 50, 51, 52, 53):
        alone = teacher.scores(fresh[i : i + 1], np.zeros(1, dtype=np.bool_))
        for name, score in alone.items():
            assert score[0] == pytest.approx(together[name][i], abs=1e-12)


def a_column(name: str, row: Any, plain: list[float]) -> float:
    """The value of the column with that name, nan if it has no number."""
    known = [x for x in plain if not math.isnan(x)]
    place = int(match[1]) if (match := re.search(r"output\[(\d+)\]", name)) else 0
    if name.endswith("number before it"):
        return plain[place] - plain[place - 1]
    if name.startswith("number of "):
        return plain[place]
    if name.startswith("output["):
        return float(row[place])
    if name.startswith("count of "):
        return float(sum(x == float(name.rpartition(" ")[2]) for x in row))
    if not known:
        return 0.0 if name == "numbers" else math.nan
    if name == "argmax":
        return float(plain.index(max(known)))
    extreme = max(known) if name == "max" else min(known)
    return {"sum": sum(known), "numbers": float(len(known))}.get(name, extreme)


def by_hand(row: Any, score: ScoreJson) -> float:
    """The score of a row of numbers, recomputed from its JSON in plain Python, before rounding."""
    plain = [math.nan if x in score["flags"] else float(x) for x in row]
    total = 0.0
    for each in score["linear"]:
        x = plain[int(each["column"][7:-1])]
        total += 0.0 if math.isnan(x) else each["slope"] * (x - each["center"])
    for each in score["steps"]:
        x = a_column(each["column"], row, plain)
        if math.isnan(x):
            total += each["others"].get("absent", 0.0)
        else:
            total += each["heights"][sum(cut <= x for cut in each["cuts"])]
    return total


@by_day(1)
@pytest.mark.parametrize("function", [broken, shifted])
def test_the_counts_of_a_witness_can_be_recomputed_from_its_json(function: Any) -> None:
    # The lowest bits of the floats also reveal the dataset; another test covers them.
    plan = Plan(
        claim=Claim(epsilon="0.01"),
        pair=(0, 6),
        runs=6000,
        seed=11,
        features=(read_feature("learned"),) if function is shifted else (),
    )
    drawn = draw(of(function), plan)
    report = report_of(drawn)
    shown = json.loads(report.to_text())
    witness, score = shown["witness"], shown["witness"]["score"]
    assert shown["verdict"] == "refuted"
    assert witness["feature"] in {"learned", "coordinates"}
    named = "output" if witness["feature"] == "coordinates" else "learned(output)"
    assert named in witness["event"]
    ends = block_ends(6000)
    block = next(
        slice(a, b) for a, b in pairwise(ends) if b - a == witness["runs_a"] + witness["runs_b"]
    )
    assert score["learned_from"] <= block.start
    outputs, worlds = np.asarray(drawn.outputs())[block], drawn.worlds()[block]
    found = np.array([by_hand(row, score) for row in outputs.tolist()])
    # Sums in another order: a value between two multiples or at the threshold may be rounded
    # differently.
    near = np.abs(found - score["threshold"]) < 1e-9
    if unit := score["unit"]:
        near = np.abs(np.abs(found / unit - np.rint(found / unit)) - 0.5) < 1e-6
        found = np.rint(found / unit) * unit
    inside = found >= score["threshold"] if score["side"] == ">=" else found < score["threshold"]
    allowed = int(near.sum())
    assert allowed < 10
    assert abs(int((inside & ~worlds).sum()) - witness["inside_a"]) <= allowed
    assert abs(int((inside & worlds).sum()) - witness["inside_b"]) <= allowed


def test_one_coordinate_of_many_is_found_and_named() -> None:
    report = sample(of(broken), PLAN)
    assert report.verdict == "refuted"
    assert report.features == ("identity", "coordinates", "learned")
    assert report.witness is not None
    most = report.to_json()["witness"]["score"]["most"]
    assert most[0]["column"] == "output[7]"
    assert "mainly output[7]" in " ".join(str(report).split())
    assert "mainly output[7]" in report.to_html()
    assert report.to_json()["resolution"] is None
    assert "are rarely repeated" in report.to_json()["unresolved"]
    assert "not known: outputs are rarely repeated" in " ".join(str(report).split())


def test_no_score_is_learned_from_constants_or_from_few_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worlds = np.arange(300) % 2 == 0
    found, models = learned_scores([[1, 2]] * 300, worlds, [100, 200, 300])
    assert not any(scores.any() for scores in found.values())
    assert list(models) == [100]
    found, models = learned_scores([[]] * 300, worlds, [100, 200, 300])
    assert not models
    monkeypatch.setattr(learned_score, "_FEWEST", 1000)
    assert not learned_scores([[1, 2]] * 300, worlds, [100, 200, 300])[1]


@pytest.mark.nightly
def test_an_audit_of_vectors_needs_little_more_memory_than_its_data() -> None:
    def vectors(d: int, n: int, rng: np.random.Generator) -> Any:
        return np.rint(rng.laplace(0, 20, (n, 100)) * 1024) / 1024 + d / 100

    runs = 40_000
    sample(of(vectors), replace(PLAN, runs=500))  # lazy imports and compilation
    tracemalloc.start()
    try:
        sample(of(vectors), replace(PLAN, claim=Claim(epsilon=1), runs=runs))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The peak was seven times the data when each step copied it. Stretches of 16,384 runs are half
    # of it.
    assert peak < MOST_MEMORY * runs * 800


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_subset_of_many_runs_gives_nearly_the_same_score(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """If only every second run is used, both halves still cross-validate each other."""
    rng = np.random.default_rng(1)
    worlds = rng.random(8000) < 0.5
    vectors = rng.normal(size=(8000, 4))
    vectors[:, 1] += worlds
    table = (schema := Schema()).read(vectors)
    columns = len(learn_reader(table, schema).columns)
    monkeypatch.setattr(learned_score, "_CELLS", len(table) * columns // step)
    scores = learn_parts(table, worlds, schema).scores(table)
    assert np.isfinite(scores).all()
    right = ((scores[:, 1:3] > np.median(scores[:, 1:3], axis=0)) == worlds[:, None]).mean(axis=0)
    assert (right > 0.66).all()


RUNS, WIDTH = 4000, 60
ALIKE = np.full(WIDTH, WIDTH**-0.5)
APART = np.random.default_rng(7).normal(size=WIDTH) / WIDTH**0.5
PLAIN = np.eye(WIDTH)
SUMS = np.tril(np.ones((WIDTH, WIDTH))) @ np.tril(np.ones((WIDTH, WIDTH))).T


def drawn(moves: Any, covariance: Any) -> tuple[Any, Any, Any]:
    """Standardised columns, centred dataset labels, and the scales."""
    rng = np.random.default_rng(1)
    worlds = rng.random(RUNS) < 0.5
    outputs = rng.multivariate_normal(np.zeros(WIDTH), covariance, RUNS) + np.outer(worlds, moves)
    scale = outputs.std(axis=0)
    return (outputs - outputs.mean(axis=0)) / scale, worlds - worlds.mean(), scale


def efficiency(slope: Any, moves: Any, covariance: Any) -> float:
    """The separation that a direction achieves, relative to the best direction."""
    best = math.sqrt(moves @ np.linalg.solve(covariance, moves))
    return float(slope @ moves / math.sqrt(slope @ covariance @ slope) / best)


@pytest.mark.parametrize(
    ("moves", "covariance", "reached", "by_means"),
    [
        (ALIKE, PLAIN, 0.999, 0.98),  # the sum of all coordinates: nothing to learn
        (APART, PLAIN, 0.95, 1.0),
        (SUMS[:, 0], SUMS, 0.93, 0.5),  # running sums when the first item changes
        (SUMS[:, 9], SUMS, 0.9, 0.75),
    ],
)
def test_the_learned_direction_is_nearly_optimal(
    moves: Any, covariance: Any, reached: float, by_means: float
) -> None:
    columns, y, scale = drawn(moves, covariance)
    slope, _ = learn_linear(Stretches.of(columns), y, np.arange(RUNS) % 2 == 0)
    assert efficiency(slope / scale, moves, covariance) > reached
    assert efficiency(columns.T @ y / scale, moves, covariance) < by_means


def test_the_score_of_a_training_run_is_cross_validated() -> None:
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(400, 150))
    y: Any = (rng.random(400) < 0.5) - 0.5
    with one_thread():
        slope, crossed = learn_linear(Stretches.of(columns), y, np.arange(400) % 2 == 0)
    # On pure noise: five standard deviations, and the correlation that a peeking learner would
    # have.
    assert abs(np.corrcoef(crossed, y)[0, 1]) < 5 / 20
    assert np.corrcoef(columns @ slope, y)[0, 1] > 0.5


@by_day(1)
@pytest.mark.parametrize("moves", [np.full(12, 1.0), np.repeat([1.0, -1.0], 6)])
def test_the_sides_of_medians_approximate_the_likelihood_ratio_of_laplace_noise(moves: Any) -> None:
    # |x| - |x - 1| jumps at x = 1/2 and is flat elsewhere, so it is nearly a sum of signs.
    rng = np.random.default_rng(3)
    worlds = rng.random(30_000) < 0.5
    outputs = rng.laplace(0.0, 30.0, (30_000, 12)) + np.outer(worlds, moves)
    ratio = (np.abs(outputs) - np.abs(outputs - moves)).sum(axis=1)
    table = (schema := Schema()).read(outputs)
    parts = learn_parts(table, worlds, schema)
    found = parts.scores(table)
    told = dict(zip(CANDIDATES, np.corrcoef(found.T, ratio)[-1, :-1], strict=True))
    assert told["sides"] > 0.8
    assert told["sides"] > told["linear"] + 0.1
    # The reported score is the tested one.
    for place in (CANDIDATES.index("sides"), CANDIDATES.index("joint")):
        score = parts.score(np.eye(len(CANDIDATES))[place]).to_json()
        for row, total in zip(outputs[:200].tolist(), found[:200, place], strict=True):
            assert by_hand(row, score) == pytest.approx(total, abs=1e-9)
