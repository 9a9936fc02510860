r"""Tests of `plan_protocol`: only honest noise counts; one grid step less is not enough."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest

from accounting import PrivacyCurve
from accounting.privacy_curves import release_curve
from accounting.protocol_guarantees import plan_protocol as distributed
from accounting.protocol_guarantees.plan_protocol import GRID, Plan, choose
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.shuffled_bits import BinaryShuffle
from tests.support.accounting.brute_force import binomial, mass_of, real, shifted, worse
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal


def polya_loss(shape: Fraction, scale: Fraction, shift: int) -> Any:
    r"""Return log p(0)/p(d) of a Polya difference with shape <= 1."""
    with mpmath.workdps(40):
        mass = mass_of(PolyaDifference(shape=shape, scale=scale))
        return mpmath.log(mass(0) / mass(shift))


@pytest.mark.parametrize("fraction", ["1", "1/2"])
def test_honest_users_alone_have_the_pure_guarantee(fraction: str) -> None:
    plan = choose(instance="pure", users=36, epsilon=1, honest_fraction=fraction)
    assert isinstance(plan.protocol, AggregatedSum)
    share = plan.protocol.share
    assert isinstance(share, PolyaDifference)
    shape, scale = plan.honest * Fraction(share.shape), Fraction(share.scale)
    assert shape == Fraction(fraction)
    assert plan.meets
    g = plan.protocol.precision
    assert polya_loss(shape, scale, g) <= 1 + mpmath.mpf(10) ** -30
    assert polya_loss(shape, scale - Fraction(g, GRID), g) > 1


def test_skellam_noise_is_planned_for_a_target() -> None:
    plan = choose(
        instance="renyi", users=64, epsilon=1, delta="1e-6", honest_fraction="3/4", failure="1e-9"
    )
    assert isinstance(plan.protocol, AggregatedSum)
    share = plan.protocol.share
    assert isinstance(share, Skellam)
    g, each = plan.protocol.precision, Fraction(share.variance)
    noise = Skellam(variance=48 * each)
    assert plan.honest == 48
    assert PrivacyCurve(noise=noise, sensitivity=g).delta(1).upper <= Fraction(1, 10**6)
    less = Skellam(variance=48 * each * (1 - Fraction(1, 700)))
    assert PrivacyCurve(noise=less, sensitivity=g).enclose_delta(1).lower > Fraction(1, 10**6)
    assert plan.wraparound is not None
    assert plan.wraparound.upper <= Fraction(1, 10**9)


def biased(plan: Plan) -> Fraction:
    assert isinstance(plan.protocol, BinaryShuffle)
    return Fraction(plan.protocol.probability)


def test_plans_for_many_users_use_biased_bits() -> None:
    plan = choose(instance="binary-shuffle", users=2000, epsilon="1/2", delta="1e-6")
    assert isinstance(plan.protocol, BinaryShuffle)
    assert plan.protocol.noise_bits == 1
    paper = choose(
        instance="binary-shuffle", users=20_000, epsilon="1/2", delta="1e-6", parameters="paper"
    )
    exact = choose(instance="binary-shuffle", users=20_000, epsilon="1/2", delta="1e-6")
    assert paper.meets
    assert exact.meets
    assert biased(paper) > 20 * biased(exact)
    # The mass that the other dataset never produces, (1-p)^n, is below delta.
    p = biased(plan)
    with mpmath.workdps(40):
        assert worse(shifted(binomial(2000, real(p)), 1), "0.5") <= mpmath.mpf("1e-6")


def test_a_plan_that_counts_all_users_is_detected() -> None:
    arguments: dict[str, Any] = {
        "instance": "binary-shuffle",
        "users": 100,
        "epsilon": "1/2",
        "delta": "1e-6",
        "honest_fraction": "4/5",
    }
    target = distributed._Target(**arguments, parameters="exact")
    mutant = mutated(distributed._bits, "users=target.honest)", "users=target.users)")
    plan = mutant(target)
    # 3 bits of each of 100 users would be enough; the 80 honest ones have 240: not `meets`.
    assert not plan.meets
    assert choose(**arguments).meets


def test_bad_arguments_of_pure_shuffles_are_refused() -> None:
    good: dict[str, Any] = {"instance": "pure-shuffle", "users": 50, "epsilon": 1}
    bad: list[tuple[str, Any]] = [("epsilon", "nan"), ("failure", 0), ("failure", 1)]
    bad += [("precision", 10**6), ("parameters", "paper"), ("coordinates", 2), ("scaling", 2)]
    for name, value in bad:
        refusal(partial(choose, **good | {name: value}))


def test_undecided_bits_name_the_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_curve, "_WIDTHS", ())
    given: Any = {"instance": "vector-shuffle", "users": 12, "epsilon": 1, "delta": "1e-6"}
    line = refusal(lambda: choose(**given, coordinates=2))
    assert line.startswith("coordinates = 2: is too large for exact parameters")
