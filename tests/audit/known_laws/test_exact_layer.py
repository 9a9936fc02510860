"""Tests of the exact layer on several pairs and on claimed privacy curves."""

from __future__ import annotations

from fractions import Fraction

import pytest

from audit.known_laws.compare_two_laws import epsilon_at
from audit.report.audit_report import AuditReport
from audit.run_audit import audit
from audit.targets.target import NoiseAdded, Shifted
from audit.targets.target_syntax import read_target
from tests.audit.known_laws.test_compare_two_laws import decided
from tests.day_and_nightly import by_day, effort

GAUSSIAN = "discrete-gaussian:sigma_squared="


@pytest.mark.parametrize(
    ("noise", "claim", "pair", "verdict"),
    [
        (GAUSSIAN + "4", GAUSSIAN + "4@1", (0, 1), "proven"),
        (GAUSSIAN + "4", GAUSSIAN + "4@1", (5, 4), "proven"),
        (GAUSSIAN + "4", GAUSSIAN + "4@1", (0, 2), "refuted"),
        (GAUSSIAN + "2", GAUSSIAN + "4@1", (0, 1), "refuted"),
        # Better than its claim: the points hold, but the curve between them is not checked.
        (GAUSSIAN + "9", GAUSSIAN + "4@1", (0, 1), "not_refuted"),
        (GAUSSIAN + "4", "rho=1/8", (0, 1), "not_refuted"),
        (GAUSSIAN + "4", "rho=1/80", (0, 1), "refuted"),
        ("discrete-laplace:scale=2", "discrete-laplace:scale=2@1", (0, 1), "proven"),
    ],
)  # fmt: skip
def test_a_claimed_curve_is_decided_at_its_points(
    noise: str, claim: str, pair: tuple[int, int], verdict: str
) -> None:
    report = decided(noise, claim, pair)
    assert report.verdict == verdict
    assert len(report.outcomes) == len(report.claim.points) > 1
    assert any(row.refuted for row in report.outcomes) is (verdict == "refuted")
    refuted = [row for row in report.outcomes if row.refuted]
    if refuted:
        assert report.at_delta == refuted[0].claim.exact[1]
        assert report.epsilon_lower > refuted[0].claim.exact[0]
        assert report.witness is not None


def test_each_pair_is_decided_and_a_violating_pair_is_reported() -> None:
    report = decided("discrete-laplace:scale=2", "epsilon=1", (0, 1), (0, 2), (7, 4), (0, 9))
    assert report.verdict == "refuted"
    assert [row.refuted for row in report.outcomes] == [False, False, True, True]
    assert (report.pair, report.epsilon_lower) == ((7, 4), 1.5)
    assert report.pairs == ((0, 1), (0, 2), (7, 4), (0, 9))
    kept = decided("discrete-laplace:scale=2", "epsilon=1", (0, 1), (0, 2))
    assert (kept.verdict, kept.pair, kept.epsilon_lower) == ("proven", (0, 2), 1.0)
    assert kept.layers[0].proves == "for every event, on each of these pairs"


def test_crossing_curves_need_the_larger_of_both_directions() -> None:
    """Binomial noise, p = 0.3: one direction is worse at epsilon 0.1, the other at delta 0.171."""
    noise = read_target("binomial:trials=20,probability=0.3")
    assert isinstance(noise, NoiseAdded)
    report = decided(noise.spelling, "epsilon=0.1,delta=0.171", (0, 1))
    laws = [Shifted(noise.noise, 0), Shifted(noise.noise, 1)]
    ways = [epsilon_at(p, q, Fraction("0.171")) for p, q in (laws, laws[::-1])]
    assert ways[0].upper != ways[1].upper
    assert report.exact is not None
    assert report.exact.epsilon.upper == max(way.upper for way in ways)
    assert report.epsilon_lower == report.exact.epsilon.lower_float > 0.0513


def joined(claim: str, alpha: str, seed: int, *, features: tuple[str, ...] = ()) -> AuditReport:
    return audit(
        "discrete-laplace:scale=1", claim, pair=(0, 1), runs=1000, alpha=alpha, seed=seed,
        features=features,
    )  # fmt: skip


@by_day(3)
@pytest.mark.parametrize("features", [(), ("identity", "sign")])
@pytest.mark.parametrize("claim", ["epsilon=0.9", "epsilon=1", "discrete-laplace:scale=1@1"])
def test_the_row_of_a_joined_report_agrees_with_its_verdict(
    claim: str, features: tuple[str, ...]
) -> None:
    report = joined(claim, "1e-9", 7, features=features)
    assert report.verdict == ("refuted" if claim == "epsilon=0.9" else "proven")
    if report.outcomes:
        row = report.outcomes[report.row]
        assert row.refuted is (report.verdict == "refuted")
        assert row.epsilon_lower == report.epsilon_lower
        assert (row.p_value, row.e_value) == (None, None)  # the bound is the proven one


def test_a_proven_bound_is_not_replaced_by_a_confidence_bound() -> None:
    """At alpha 0.3 the sampled bound sometimes exceeds the truth; the proven bound is reported."""
    sampled = [joined("epsilon=1.5", "0.3", seed) for seed in range(effort(4, 8))]
    assert {report.epsilon_lower for report in sampled} == {1.0}
