"""Tests of subsampling, one round: enumerated neighbours, every shift, both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import NotDerived, PrivacyCurve, compose
from accounting.amplification.subsampling import AmplifiedSample
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure
from tests.effort import by_day
from tests.support.accounting import subsampled_releases
from tests.support.accounting.brute_force import DIGITS, World, close, hockey_stick, real
from tests.support.accounting.brute_force_subsampling import ADDED, AT, CASES, Case
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def holds(found: Callable[[str], Enclosure], worlds: Iterable[World]) -> bool:
    """Whether every enclosure contains the largest delta over the neighbouring datasets."""
    listed = [*worlds]
    with mpmath.workdps(DIGITS):
        for at in AT:
            truth = max(hockey_stick(world, at) for world in listed)
            if not (close(found(at), truth, relative="1e-24") or truth < mpmath.mpf("1e-27")):
                return False
    return True


@by_day(6)
@each_case
@pytest.mark.parametrize("rate", ["1/10", "2/3"])
def test_delta_is_the_worst_over_all_worlds(case: Case, rate: str) -> None:
    exact = Fraction(rate)
    with mpmath.workdps(DIGITS):
        added, replaced = [*case.poisson(rate)], [*case.fixed(rate)]
    assert holds(subsampled_releases.poisson(curve=case.added(), rate=rate).enclose_delta, added)
    fixed = subsampled_releases.fixed(
        curve=case.replaced(), sample=exact.numerator, population=exact.denominator
    )
    assert holds(fixed.enclose_delta, replaced)


rates = st.fractions(min_value=Fraction(1, 200), max_value=1, max_denominator=300)


@given(rates, st.fractions(min_value=0, max_value=4, max_denominator=100))
def test_epsilon_is_the_inverse_of_delta(rate: Fraction, epsilon: Fraction) -> None:
    sampled = subsampled_releases.poisson(curve=CASES["gaussian"].added(), rate=rate)
    at = sampled.enclose_delta(epsilon)
    assert at.upper - at.lower <= at.upper / 2**60
    assert sampled.enclose_epsilon(at.upper).lower <= epsilon
    if at.lower > 0:
        assert epsilon <= sampled.epsilon(at.lower).upper


@given(rates, rates, st.fractions(min_value=0, max_value=3, max_denominator=50))
def test_a_larger_sample_costs_more(one: Fraction, two: Fraction, epsilon: Fraction) -> None:
    curve = CASES["skellam"].added()
    small, large = (subsampled_releases.poisson(curve=curve, rate=r) for r in sorted((one, two)))
    assert small.enclose_delta(epsilon).lower <= large.delta(epsilon).upper
    assert small.enclose_epsilon("1e-6").lower <= large.epsilon("1e-6").upper
    assert large.enclose_delta(epsilon).lower <= curve.delta(epsilon).upper


@each_case
def test_everyone_is_the_release_itself_and_nobody_costs_nothing(case: Case) -> None:
    whole = subsampled_releases.poisson(curve=case.added(), rate=1)
    all_of = subsampled_releases.fixed(curve=case.replaced(), sample=7, population=7)
    for at in AT:
        assert whole.enclose_delta(at) == case.added().enclose_delta(at) == all_of.enclose_delta(at)
    assert (
        whole.enclose_epsilon("1e-3")
        == case.added().enclose_epsilon("1e-3")
        == all_of.enclose_epsilon("1e-3")
    )
    nobody = subsampled_releases.poisson(curve=case.added(), rate="1e-30")
    assert nobody.delta(0).upper <= Fraction(1, 10**30)
    assert nobody.enclose_epsilon("1e-29") == Enclosure.exactly(0)


def test_the_ends_of_delta() -> None:
    case = CASES["laplace"]
    sampled = subsampled_releases.poisson(curve=case.added(), rate="1/10")
    with mpmath.workdps(DIGITS):
        # The largest loss is 1: log(1 + (e - 1)/10).
        assert close(sampled.enclose_epsilon(0), mpmath.log(1 + (mpmath.e - 1) / 10))
    assert sampled.enclose_epsilon(1) == Enclosure.exactly(0)
    assert sampled.enclose_delta(2) == Enclosure.exactly(0)
    assert (
        subsampled_releases.poisson(curve=CASES["gaussian"].added(), rate="1/2").enclose_epsilon(0)
        == Enclosure.infinite()
    )


@pytest.mark.parametrize("name", ["laplace", "gaussian", "skellam"])
@pytest.mark.parametrize("order", ["3/2", "2", "7"])
def test_renyi_is_the_worst_over_all_worlds(name: str, order: str) -> None:
    case, alpha = CASES[name], Fraction(order)
    found = subsampled_releases.poisson(curve=case.added(), rate="1/5").enclose_renyi(order)
    with mpmath.workdps(DIGITS):
        truth = max(
            mpmath.log(mpmath.fsum(p ** real(alpha) * q ** real(1 - alpha) for p, q in world))
            / real(alpha - 1)
            for world in case.poisson("1/5")
        )
    assert close(found, truth, relative="1e-20")
    assert found.upper - found.lower <= found.upper / 10**10


def test_renyi_at_the_ends() -> None:
    hidden = subsampled_releases.poisson(curve=CASES["coins"].added(), rate="1/5")
    assert hidden.enclose_renyi(2) == Enclosure.infinite()
    gaussian_curve = CASES["gaussian"].added()
    assert subsampled_releases.poisson(curve=gaussian_curve, rate=1).enclose_renyi(
        3
    ) == gaussian_curve.enclose_renyi(3)
    assert "must be > 1" in refusal(lambda: hidden.enclose_renyi(1))
    fixed = subsampled_releases.fixed(curve=CASES["gaussian"].replaced(), sample=1, population=4)
    assert "order 2" in refusal(lambda: fixed.enclose_renyi(2), NotDerived)


def test_words() -> None:
    sampled = subsampled_releases.poisson(curve=CASES["gaussian"].added(), rate=0.25)
    assert sampled.scope == ADDED
    assert repr(sampled).endswith("--sensitivity 1 --poisson 1/4')")
    fixed = subsampled_releases.fixed(curve=CASES["gaussian"].replaced(), sample=2, population=8)
    assert (fixed.scope, fixed.rate) == (Scope(), Fraction(1, 4))
    assert repr(fixed).endswith("--scheme fixed-size:sample=2,population=8')")
    assert (
        len({sampled, subsampled_releases.poisson(curve=CASES["gaussian"].added(), rate="1/4")})
        == 1
    )


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: subsampled_releases.poisson(curve=CASES["gaussian"].replaced(), rate="1/2"), "scope"),
    (lambda: subsampled_releases.poisson(curve=3, rate="1/2"), "curve"),
    (lambda: subsampled_releases.poisson(curve=CASES["gaussian"].added(), rate=0), "rate"),
    (lambda: subsampled_releases.poisson(curve=CASES["gaussian"].added(), rate="11/10"), "rate"),
    (
        lambda: subsampled_releases.fixed(curve=CASES["gaussian"].added(), sample=1, population=2),
        "scope",
    ),
    (
        lambda: subsampled_releases.fixed(curve=CASES["coins"].replaced(), sample=3, population=2),
        "sample",
    ),
    (
        lambda: subsampled_releases.fixed(curve=CASES["coins"].replaced(), sample=0, population=2),
        "sample",
    ),
    (
        lambda: subsampled_releases.poisson(
            curve=CASES["gaussian"].added(), rate="1/2"
        ).enclose_delta(-1),
        "epsilon",
    ),
    (
        lambda: subsampled_releases.poisson(
            curve=CASES["gaussian"].added(), rate="1/2"
        ).enclose_epsilon(2),
        "delta",
    ),
]


def test_what_is_out_of_range_is_refused_by_name() -> None:
    for make, argument in REFUSED:
        with pytest.raises(InvalidParameter, match=rf"^{argument} = "):
            make()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ball(at).expm1() / ball(rate)", "ball(at).expm1() / ball(rate * rate)"),
        ("ball(at).expm1() / ball(rate)", "ball(at).expm1() * ball(rate)"),
        (".log1p()", ".log()"),
        ("rate * found.lower, rate * found.upper", "found.lower, found.upper"),
        ("rate * found.lower, rate * found.upper", "rate**2 * found.lower, rate**2 * found.upper"),
    ],
)
def test_mutants_of_one_round_are_caught(old: str, new: str) -> None:
    case, rate = CASES["gaussian"], Fraction(1, 10)
    sample = subsampled_releases.poisson(curve=case.added(), rate=rate)
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
    broken = mutated(AmplifiedSample.enclose_delta, old, new)

    def kept(compute: Any) -> bool:
        try:
            return holds(lambda at: compute(sample, at), worlds)
        except (ArithmeticError, ValueError, InvalidParameter):
            return False

    assert kept(AmplifiedSample.enclose_delta)
    assert not kept(broken)


def test_a_sample_without_renyi_divergences_says_what_to_ask_for() -> None:
    fixed = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)
    ways = PrivacyCurve(
        noise=DiscreteGaussian(sigma_squared=4), sensitivity=Sensitivity.l2_squared(4), scope=ADDED
    )
    sources = (
        subsampled_releases.poisson(curve=ways, rate="1/10"),
        subsampled_releases.fixed(curve=fixed, sample=1, population=10),
    )
    for sampled in sources:
        for asked in (sampled, compose((sampled, 3))):
            with pytest.raises(NotDerived, match=r"order 2 of .*use epsilon\(delta\) or delta\("):
                asked.renyi(2)
            # The method that the message names exists.
            assert 0 < asked.epsilon("1/1000").upper_float < 2
