"""Tests of `audit.statistical_tests.multiple_testing`: against the single test; false alarms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.claims import Claim, CurveClaim, read_claim
from audit.outputs.output_parser import draw_worlds
from audit.statistical_tests import multiple_testing
from audit.statistical_tests.anytime_valid_test import watch, watch_curve
from audit.statistical_tests.event import Witness
from audit.statistical_tests.multiple_testing import (
    LEADER,
    FamilyProcess,
    View,
    by_averages,
    holm,
    view_seeds,
    watch_views,
    weigh,
    weigh_views,
)
from audit.statistical_tests.prequential_fixed_runs_test import gather, resolution
from audit.statistical_tests.sample_outcome import Outcome, capped, reported_row
from tests.audit.statistical_tests.test_prequential_fixed_runs_test import laplace
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.refusals import refused

ALPHA = Fraction(1, 20)
CURVE = CurveClaim(spelling="discrete-gaussian:sigma_squared=4@1")
LAPLACE = CurveClaim(spelling="discrete-laplace:scale=2@1")


def noisy(runs: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Dataset labels plus discrete Laplace noise: 1/scale-DP."""
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(runs, rng)
    return worlds + laplace(runs, scale, rng), worlds


# -- one view and one point: equal to the single test ---------------------------------------------


@by_day(3)
@pytest.mark.parametrize("text", ["epsilon=1", "epsilon=0.9,delta=0.01", "epsilon=3"])
@pytest.mark.parametrize("runs", [0, 10, 900])
def test_one_view_of_one_point_equals_the_single_test(text: str, runs: int) -> None:
    claim = Claim.read(text)
    outputs, worlds = noisy(runs, 0.7, runs)
    found = weigh_views([View(outputs=outputs, worlds=worlds)], claim, ALPHA, seed=7)
    evidence = gather(outputs, worlds, seed=7)
    assert found.p_value == evidence.p_value(*claim.exact, spend=ALPHA / 50)
    assert (found.verdict == "refuted") == (found.p_value <= ALPHA)
    bound = evidence.epsilon_lower(ALPHA, claim.delta)
    assert found.epsilon_lower == capped(bound, claim, refuted=found.verdict == "refuted")
    assert found.witness == evidence.followed(*claim.exact)[1]
    assert (len(found.outcomes), found.layer.method) == (1, "prequential guessing game")
    process, alone = watch_views(claim), watch(*claim.exact)
    for part in np.array_split(np.arange(runs), 3):
        process = process.update(0, [outputs[part]], worlds[part])
        alone = alone.update(outputs[part], worlds[part])
    assert process.path.tolist() == alone.path.tolist()
    watched = weigh(process, ALPHA)
    refuted = alone.rejected_at(ALPHA) is not None
    assert (watched.verdict == "refuted", watched.e_value) == (refuted, alone.e_value)
    bound = alone.epsilon_lower(ALPHA, claim.delta)
    assert watched.epsilon_lower == capped(bound, claim, refuted=refuted)
    assert (watched.witness, watched.layer.method) == (alone.witness(), "e-process of guesses")
    assert process.rejected_at() == alone.rejected_at()


def test_a_claim_is_refuted_at_its_p_value_and_not_below() -> None:
    outputs, worlds = noisy(900, 0.7, 900)
    view, claim = View(outputs=outputs, worlds=worlds), Claim(epsilon=1)
    p_value = Fraction(weigh_views([view], claim, ALPHA, seed=7).p_value or 0)
    assert 0 < p_value < 1
    for more in (Fraction(1, 10**9), -Fraction(1, 10**9)):
        found = weigh_views([view], claim, p_value * (1 + more), seed=7)
        assert (found.verdict == "refuted") is (more > 0)


def test_one_view_of_a_curve_averages_over_its_points() -> None:
    outputs, worlds = noisy(500, 0.7, 3)
    process = watch_views(CURVE).update(0, [outputs], worlds)
    alone = watch_curve([point.exact for point in CURVE.points]).update(outputs, worlds)
    assert process.path.tolist() == alone.path.tolist()
    paths = [watch(*point.exact).update(outputs, worlds).path for point in CURVE.points]
    np.testing.assert_allclose(alone.path, np.log(np.mean(np.exp(paths), axis=0)), atol=1e-9)
    # The wealth of each point at the run with the largest mean wealth.
    each = [path[int(np.argmax(alone.path))] for path in paths]
    np.testing.assert_allclose(process.log_wealth(), each, atol=1e-9)
    found = [outcome.e_value for outcome in weigh(process, ALPHA).outcomes]
    assert found == pytest.approx(np.exp(each).tolist())


# -- sharing a level ------------------------------------------------------------------------------


def test_each_bound_has_its_share_of_the_level() -> None:
    runs = effort(500, 800)
    halves = [noisy(runs, 0.6, seed) for seed in (1, 2)]
    views = [View(pair=i, outputs=o, worlds=w) for i, (o, w) in enumerate(halves)]
    claim = LAPLACE
    found = weigh_views(views, claim, ALPHA, seed=7)
    assert [(o.pair, o.claim) for o in found.outcomes] == [
        (i, point) for i in (0, 1) for point in claim.points
    ]
    evidence = [gather(*halves[0], seed=7), gather(*halves[1], seed=view_seeds(7, 2)[1])]
    share = ALPHA / 8
    for outcome in found.outcomes:
        epsilon, delta = outcome.claim.exact
        own = evidence[outcome.pair]
        assert outcome.p_value == own.p_value(epsilon, delta, spend=share / 50)
        bound = own.epsilon_lower(share, delta)
        assert outcome.epsilon_lower == capped(bound, outcome.claim, refuted=outcome.refuted)
    assert found.verdict == "refuted"
    # All views and points share one level.
    adjusted = holm([outcome.p_value or 0.0 for outcome in found.outcomes])
    assert [outcome.refuted for outcome in found.outcomes] == [q <= ALPHA for q in adjusted]
    assert found.p_value == min(adjusted)
    best = found.outcomes[found.row]
    surest = min(found.outcomes, key=lambda o: o.p_value or 0.0)
    alike = [o for o in found.outcomes if (o.claim, o.refuted) == (surest.claim, True)]
    assert best in alike
    assert found.epsilon_lower == best.epsilon_lower == max(o.epsilon_lower for o in alike)
    assert best.pair == found.row // 4
    assert found.witness == evidence[best.pair].followed(*best.claim.exact)[1]
    assert found.resolution == max(
        min(
            resolution(runs, epsilon, share, delta, crowd=own.tally.crowd)
            for epsilon, delta in (point.exact for point in claim.points)
        )
        for own in evidence
    )
    assert found.layer.method == "prequential guessing game; Holm's method of 8 tests"
    process = watch_views(claim, pairs=2)
    for i, (outputs, worlds) in enumerate(halves):
        process = process.update(i, [outputs], worlds)
    for outcome in weigh(process, ALPHA).outcomes:
        delta = outcome.claim.exact[1]
        bound = process.processes[outcome.pair].epsilon_lower(share, delta)
        assert outcome.epsilon_lower == capped(bound, outcome.claim, refuted=outcome.refuted)


def test_only_violated_hypotheses_are_marked() -> None:
    # Dataset B is revealed on the second pair only, and by the second feature only.
    rng = np.random.default_rng(3)
    process = watch_views(Claim(epsilon="0.5"), pairs=2, features=("sign", "last"))
    views: dict[tuple[int, str], list[Any]] = {}
    for pair in (0, 1) * 6:
        worlds = draw_worlds(100, rng)
        blind, telling = laplace(100, 2, rng), worlds * pair
        process = process.update(pair, [blind, telling], worlds)
        for name, outputs in (("sign", blind), ("last", telling)):
            views.setdefault((pair, name), []).append((outputs, worlds))
    assert process.runs == 1200
    assert [o.refuted for o in weigh(process, ALPHA).outcomes] == [False, False, False, True]
    weighed = weigh(process, ALPHA)
    assert (weighed.verdict, weighed.row) == ("refuted", 3)
    assert isinstance(weighed.witness, Witness)
    assert weighed.epsilon_lower > 1
    joined = []
    for (pair, name), parts in views.items():
        outputs, worlds = (np.concatenate(side) for side in zip(*parts, strict=True))
        joined.append(View(pair=pair, feature=name, outputs=outputs, worlds=worlds))
    fixed = weigh_views(joined, Claim(epsilon="0.5"), ALPHA, seed=1)
    marked = {(o.pair, o.feature): o.refuted for o in fixed.outcomes}
    seen = marked.pop((0, LEADER)), marked.pop((1, LEADER))
    assert seen == (False, True)
    assert marked == {(0, "sign"): False, (0, "last"): False, (1, "sign"): False, (1, "last"): True}
    assert fixed.outcomes[fixed.row].refuted
    assert (fixed.p_value or 0.0) <= 0.05


# -- one wealth process for all views -------------------------------------------------------------


def test_the_path_is_the_mean_wealth_in_run_order() -> None:
    blocks = [
        (pair, *noisy(size, 0.6, size)) for pair, size in ((0, 90), (1, 40), (1, 70), (0, 33))
    ]
    process = watch_views(Claim(epsilon=1), pairs=2)
    for pair, outputs, worlds in blocks:
        process = process.update(pair, [outputs], worlds)
    # Recomputed one run at a time.
    states, path = [watch(1), watch(1)], []
    for pair, outputs, worlds in blocks:
        for output, world in zip(outputs, worlds, strict=True):
            states[pair] = states[pair].update([output], [world])
            now = [state.path[-1] if state.runs else 0.0 for state in states]
            path.append(math.log(np.mean(np.exp(now))))
    np.testing.assert_allclose(process.path, path, atol=1e-9)
    assert process.e_value == pytest.approx(math.exp(max(0.0, *path)))
    crossed = [i + 1 for i, log_e in enumerate(path) if log_e >= math.log(4)]
    assert process.rejected_at("0.25") == (crossed[0] if crossed else None)


def expected_growth(state: FamilyProcess, right: Fraction) -> float:
    """E[wealth after one more run / wealth before], over both datasets and both answers.

    Each feature reads one of two independent answers of randomised response.
    """
    total = 0.0
    for x, y, world in itertools.product((0, 1), (0, 1), (0, 1)):
        mass = math.prod(right if answer == world else 1 - right for answer in (x, y)) / 2
        after = state.update(0, [[x], [y]], np.array([bool(world)]))
        total += float(mass) * math.exp(after.path[-1] - state.path[-1])
    return total


def test_the_mean_wealth_never_grows_at_the_boundary_but_the_largest_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, states = Fraction(2, 3), []
    for seed, runs in enumerate((32, 32, 32, 60, 150)):
        rng = np.random.default_rng(seed)
        worlds = draw_worlds(runs, rng)
        told = [np.where(rng.random(runs) < float(right), worlds, ~worlds) for _ in "xy"]
        # Each answer by itself is exactly ln 2-DP.
        start = watch_views(Claim(epsilon=math.log(2)), features=("x", "y"))
        states.append(start.update(0, [each.astype(int) for each in told], worlds))
    assert max(expected_growth(state, right) for state in states) <= 1.0
    monkeypatch.setattr(multiple_testing, "log_mean", lambda paths, _: paths.max(axis=0))
    assert max(expected_growth(state, right) for state in states) > 1.05


NOISY = watch_views(Claim(epsilon=1), pairs=2).update(0, [[1]], np.array([True]))


def test_a_pair_may_have_its_own_features() -> None:
    other = watch_views(Claim(epsilon=1), features=("x", "y"), weights=(Fraction(1), Fraction(3)))
    process = NOISY.through(1, other)
    assert process.tests == ((0, None), (1, "x"), (1, "y"))
    assert process.parts == (Fraction(1, 2), Fraction(1, 8), Fraction(3, 8))
    worlds = draw_worlds(900, np.random.default_rng(1))
    won, lost = (np.exp(watch(1).update(each, worlds).path) for each in (worlds, 0 * worlds))
    mean = np.log(1 / 2 + won / 8 + 3 * lost / 8)  # the first pair keeps its half
    found = process.update(1, [worlds, 0 * worlds], worlds)
    np.testing.assert_allclose(found.path[1:], mean, atol=1e-9)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no views": (lambda: weigh_views([], Claim(epsilon=1), ALPHA, seed=1), "views"),
    "no features": (lambda: watch_views(Claim(epsilon=1), features=()), "features"),
    "no pairs": (lambda: watch_views(Claim(epsilon=1), pairs=0), "features"),
    "no such pair": (lambda: NOISY.update(2, [[1]], np.array([True])), "outputs_by_feature"),
    "a feature too few": (lambda: NOISY.update(0, [], np.array([True])), "outputs_by_feature"),
    "other features for a pair with runs": (lambda: NOISY.through(0, NOISY), "pair"),
    "epsilon too large to test": (lambda: watch_views(read_claim("epsilon=600")), "epsilon"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_named(case: str) -> None:
    call, argument = REFUSED[case]
    with refused(argument):
        call()


def test_before_any_run_no_evidence_is_reported() -> None:
    found = weigh(watch_views(CURVE, pairs=2), ALPHA)
    assert (found.verdict, found.e_value, found.epsilon_lower) == ("nothing_measured", 1.0, 0.0)
    assert {row.e_value for row in found.outcomes} == {1.0}
    nothing = watch_views(CURVE).update(0, [[]], np.zeros(0, dtype=bool))
    assert (nothing.runs, nothing.peak, weigh(nothing, ALPHA).witness) == (0, None, None)
    assert replace(nothing, path=np.zeros(0)).e_value == 1.0


# -- closed testing --------------------------------------------------------------------------------


def closed(values: Sequence[float], reject: Callable[[Sequence[float]], bool]) -> list[bool]:
    """Closed testing by brute force: i is rejected if every subset that contains i is rejected."""
    places = range(len(values))
    sets = [s for k in range(1, len(values) + 1) for s in itertools.combinations(places, k)]
    kept = {s for s in sets if not reject([values[i] for i in s])}
    return [all(i not in s for s in kept) for i in places]


# A multiple of k/1009 never equals 1/20, so no case depends on rounding.
@given(st.lists(st.integers(0, 200).map(lambda k: k / 1009), min_size=1, max_size=7))
def test_holm_equals_closed_testing_by_bonferroni(p_values: list[float]) -> None:
    by_hand = closed(p_values, lambda some: min(some) * len(some) <= 0.05)
    assert [q <= 0.05 for q in holm(p_values)] == by_hand
    assert all(q >= p for p, q in zip(p_values, holm(p_values), strict=True))


@given(st.lists(st.integers(0, 1500).map(lambda k: k / 10.03), min_size=1, max_size=7))
def test_averaging_equals_closed_testing(e_values: list[float]) -> None:
    by_hand = closed(e_values, lambda some: sum(some) / len(some) >= 20)
    with np.errstate(divide="ignore"):
        found = by_averages(np.log(e_values))
    assert (found >= math.log(20)).tolist() == by_hand
    assert bool(np.all(found <= np.log(np.maximum(e_values, 1e-300)) + 1e-9))


def test_holm_and_averaging_are_correct_at_extremes() -> None:
    assert by_averages(np.array([-math.inf, -math.inf])).tolist() == [-math.inf, -math.inf]
    found = by_averages(np.array([1e5, -1e5, 1e5 - 1]))
    assert found[0] == pytest.approx(1e5 + math.log((1 + math.exp(-1)) / 3))
    assert found[1] <= -1e5
    assert holm([0.03]) == [0.03]
    assert holm([0.9, 0.8, 0.7]) == [1.0, 1.0, 1.0]
    assert all(Fraction(q) >= 3 * Fraction(0.1) for q in holm([0.1, 0.1, 0.1]))


def test_the_largest_bound_at_the_point_with_most_evidence_is_reported() -> None:
    def row(bound: float, *, refuted: bool = True, delta: str = "0") -> Outcome:
        point = Claim(epsilon="0.1", delta=delta)
        return Outcome(claim=point, epsilon_lower=bound, refuted=refuted)

    rows = [row(bound) for bound in (0.3, 0.7, 0.7)]
    assert [reported_row(rows, i) for i in range(3)] == [1, 1, 2]
    # A bound at another delta does not count, and neither does a row without the refuted flag.
    assert reported_row([row(3.0, delta="0.01"), row(3.0, refuted=False), rows[0]], 2) == 2
    assert reported_row([row(bound, refuted=False) for bound in (0.3, 0.2, 0.5)], 0) == 2
