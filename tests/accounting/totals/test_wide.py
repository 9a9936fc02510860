r"""Totals of wide discrete Gaussian noise on samples, beside the engine that lists its outcomes."""

from __future__ import annotations

import math
from fractions import Fraction
from importlib import import_module

import pytest
from flint import arb

from accounting.claims.bound import Bound
from accounting.reals.grid_gaussian import GridGaussian, is_smooth
from accounting.reals.noise import Gaussian
from accounting.release.curve import PrivacyCurve
from accounting.release.real_curve import RealCurve
from accounting.release.subsampling import PoissonSampled
from accounting.totals import compose as composing
from accounting.totals.compose import compose, over_totals
from accounting.totals.rounds import ways
from accounting.totals.total import Total
from dpcore import DiscreteGaussian, Relation, Scope
from tests.support.dpcore.mutants import mutated

SCOPE = Scope(relation=Relation.ADD_REMOVE)
AT = Fraction(1, 10**6)


def wide(sigma: int, shift: int, rate: str) -> PoissonSampled:
    noise = DiscreteGaussian(sigma_squared=sigma**2)
    return PoissonSampled(
        curve=PrivacyCurve(noise=noise, sensitivity=shift, scope=SCOPE), rate=rate
    )


def listed(source: PoissonSampled, rounds: int, relative: Fraction) -> Bound:
    """By the outcomes of every round, each with its mass."""
    return over_totals([(ways(source), rounds)], lambda total: total.epsilon(AT, relative))


def is_wide(found: Bound) -> bool:
    return "moments of noise on the reals" in found.theorem


@pytest.mark.parametrize(("sigma", "shift", "rate", "rounds"), [(200, 200, "1/20", 300)])
def test_it_meets_the_engine_that_lists_outcomes(
    sigma: int, shift: int, rate: str, rounds: int
) -> None:
    source, near = wide(sigma, shift, rate), Fraction(1, 10**5)
    found, truth = compose((source, rounds)).epsilon(AT, near), listed(source, rounds, near)
    assert is_wide(found)
    assert not is_wide(truth)
    assert found.lower is not None
    assert truth.lower is not None
    assert max(found.lower, truth.lower) <= min(found.upper, truth.upper)
    assert found.upper - found.lower <= 4 * near * found.upper
    # The noise of another sigma, as near as 1e-4, has no part of that interval.
    other = RealCurve(noise=Gaussian(sigma="1.0001"), sensitivity=1, scope=SCOPE)
    less = compose((PoissonSampled(curve=other, rate=rate), rounds)).epsilon(AT, near)
    assert less.upper < found.lower


@pytest.mark.nightly
@pytest.mark.parametrize("rounds", [60, 1000])
def test_it_meets_the_engine_that_lists_outcomes_at_night(rounds: int) -> None:
    source, near = wide(1000, 1000, "1/100"), Fraction(1, 10**8)
    found, truth = compose((source, rounds)).epsilon(AT), listed(source, rounds, near)
    assert is_wide(found)
    assert found.lower is not None
    assert truth.lower is not None
    assert max(found.lower, truth.lower) <= min(found.upper, truth.upper)
    assert found.upper - found.lower <= 4 * near * found.upper


@pytest.mark.parametrize("shift", [1000, 5000])
def test_wide_noise_is_as_narrow_as_noise_on_the_reals(shift: int) -> None:
    """Of sigma 5000: under a shift of 1000 its outcomes are too many to be listed."""
    rate, rounds, near = "1/100", 2000, Fraction(1, 10**8)
    found = compose((wide(5000, shift, rate), rounds)).epsilon(AT)
    real = RealCurve(noise=Gaussian(sigma=Fraction(5000, shift)), sensitivity=1, scope=SCOPE)
    beside = compose((PoissonSampled(curve=real, rate=rate), rounds)).epsilon(AT)
    assert is_wide(found)
    assert found.lower is not None
    assert beside.lower is not None
    assert found.upper - found.lower <= 4 * near * found.upper
    # They differ by 1e-12 or less: the truth of the real one is this one's too, to that.
    assert max(found.lower, beside.lower) <= min(found.upper, beside.upper)


def test_it_lies_between_two_grids_of_another_library() -> None:
    pld = import_module("dp_accounting.pld.privacy_loss_distribution")
    low, high = (
        pld.from_discrete_gaussian_mechanism(
            250, sensitivity=250, sampling_prob=0.05, pessimistic_estimate=above
        )
        .self_compose(30)
        .get_delta_for_epsilon(1.0)
        for above in (False, True)
    )
    found = compose((wide(250, 250, "1/20"), 30)).delta(1, Fraction(1, 10**4))
    assert is_wide(found)
    assert found.lower is not None
    assert low <= found.lower <= found.upper <= high
    more = compose((wide(250, 250, "0.051"), 30)).delta(1, Fraction(1, 10**4))
    assert more.lower is not None
    assert more.lower > high


def test_few_rounds_are_listed_as_well() -> None:
    """Where the integers show, the answer is that of the outcomes."""
    source = wide(50, 12, "1/2")
    assert source.as_real()
    assert not is_wide(compose((source, 2)).epsilon(AT, "1e-5"))


def test_a_law_without_echoes_misses_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds at sigma 50 cost less than with noise on the reals: echoes are bounded."""
    near, source = Fraction(1, 10**7), wide(50, 12, "1/2")
    truth, (one, _) = listed(source, 2, near), source.as_real()
    sound = Total.of([(one, 2)]).epsilon(AT, near)
    assert truth.lower is not None
    assert sound.lower <= truth.lower <= truth.upper <= sound.upper
    monkeypatch.setattr(GridGaussian, "_apart", lambda self, tilt, reach, nats: arb(0))
    monkeypatch.setattr(GridGaussian, "ripple", lambda self, tilt, y: 0 * y)
    broken = Total.of([(GridGaussian.of(Fraction(2500), 12, one.direction), 2)])
    assert broken.epsilon(AT, near).lower > truth.upper


def test_of_two_bounds_both_ends_are_kept() -> None:
    one = Bound(lower=Fraction(1), upper=Fraction(3), method="line", theorem="a")
    other = Bound(lower=Fraction(2), upper=Fraction(4), method="line", theorem="b")
    alone = Bound(upper=Fraction(5, 2), method="line", theorem="c")
    for found in (composing.narrower(one, other), composing.narrower(other, one)):
        assert (found.lower, found.upper, found.theorem) == (2, 3, "a")
    assert composing.narrower(one, alone).upper == Fraction(5, 2)
    assert composing.narrower(one, alone).lower == 1
    broken = mutated(composing.narrower, "upper=min(", "upper=max(")
    assert broken(one, other).upper == 4


def test_an_answer_without_an_upper_end_is_not_narrow() -> None:
    r"""At sigma 1e10 floats say nothing, and infinity less 0 is no narrow width."""
    nothing = Bound(upper=math.inf, lower=Fraction(0), method="line", theorem="")
    assert not composing._is_narrow(nothing, Fraction(1))
    assert not is_smooth(Fraction(10**20), 1)
