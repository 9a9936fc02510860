r"""Noise on the reals: one and many rounds against quadrature, published values and other tools."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from accounting import NotDerived, PrivacyCurve, Pure, compose
from accounting.composition.compose import Composition
from accounting.descriptions.real_noise import Gaussian, Laplace, RealNoise
from accounting.fourier.pld_composition import ContourIntegral
from accounting.fourier.real_loss import TabledLoss
from accounting.loss.normal_loss import NormalLoss
from accounting.release.composed_loss import ComposedLoss
from accounting.release.real_curve import RealCurve
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity
from tests.effort import by_day
from tests.support.accounting import samples
from tests.support.accounting.amounts import ends

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def curve(noise: RealNoise, sensitivity: Sensitivity | int = 1) -> RealCurve:
    return RealCurve(noise=noise, sensitivity=sensitivity, scope=ADD_REMOVE)


def sampled(sigma: str, rate: str | Fraction, rounds: int) -> Composition:
    part = samples.poisson(curve=curve(Gaussian(sigma=sigma)), rate=rate)
    return compose((part, rounds))


def hockey_stick(sigma: float, rate: float, x: mpmath.mpf, *, present: bool) -> mpmath.mpf:
    r"""sup_S P(S) - x Q(S) of one round, for every x > 0, by the normal distribution alone."""
    q, s = rate, sigma

    def tails(log_ratio: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
        # P(unit present) and P(absent) of outputs where 1 - q + q e^u > e^log_ratio.
        need = (mpmath.exp(log_ratio) - (1 - q)) / q
        if need <= 0:
            return mpmath.mpf(1), mpmath.mpf(1)
        cut = s * s * mpmath.log(need) + mpmath.mpf(1) / 2
        absent, moved = mpmath.ncdf(-cut / s), mpmath.ncdf((1 - cut) / s)
        return (1 - q) * absent + q * moved, absent

    if present:
        here, there = tails(mpmath.log(x))
        return here - x * there
    here, there = tails(-mpmath.log(x))
    return (1 - there) - x * (1 - here)


@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon"), [("1", "1/100", "1/10"), ("1/2", "1/5", "1")]
)
def test_one_round(sigma: str, rate: str, epsilon: str) -> None:
    found = sampled(sigma, rate, 1).delta(epsilon)
    s, q, e = (float(Fraction(each)) for each in (sigma, rate, epsilon))
    truth = max(hockey_stick(s, q, mpmath.exp(e), present=side) for side in (True, False))
    assert float(truth) == pytest.approx(float(found.upper), rel=1e-9)


@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon"), [("1", "1/100", "1/10"), ("2", "1/5", "1/5")]
)
def test_two_rounds(sigma: str, rate: str, epsilon: str) -> None:
    r"""delta_2(e) = E_P[H(e^(e - L))] over the first round, by mpmath."""
    found = ends(sampled(sigma, rate, 2).delta(epsilon, "1e-6"))
    s, q, e = (float(Fraction(each)) for each in (sigma, rate, epsilon))

    def second(x: mpmath.mpf) -> mpmath.mpf:
        ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))
        mass = ratio * mpmath.npdf(x, 0, s)
        return mass * hockey_stick(s, q, mpmath.exp(e) / ratio, present=True)

    kink = s * s * mpmath.log((mpmath.exp(e) / (1 - q) - (1 - q)) / q) + 0.5
    places = sorted({-9 * s, -3 * s, 0, 1, float(kink), 3 * s, 6 * s, 10 * s + 1})
    truth = float(mpmath.quad(second, places))
    assert float(found.lower) <= truth * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= float(found.upper)


def test_published_values() -> None:
    r"""Of dp-accounting's own tests: q .2, sigma .5, three rounds; three of sigma sqrt 3."""
    found = sampled("1/2", "1/5", 3).delta(1, "1e-4")
    assert float(found.upper) == pytest.approx(0.15594, abs=1e-3)
    three = ComposedLoss(parts=((NormalLoss(variance=Fraction(1, 3)), 3),)).delta(Fraction(1))
    assert three.upper_float == pytest.approx(0.126936, abs=1e-6)


def test_the_design_table() -> None:
    r"""Both ends, to the digits that other tools agree on, and each mutant outside of them."""
    found = ends(sampled("1", "1/100", 10**4).epsilon("1e-6", "1e-8"))
    assert 6.9073 < found.lower < found.upper < 6.907385  # dp-accounting at a grid of 1e-5
    assert found.upper - found.lower <= found.upper / 10**8
    # The direction forgotten: the unit present is the worse one here.
    away = samples.poisson(curve=curve(Gaussian(sigma=1)), rate="1/100").directions[1]
    other = ContourIntegral(parts=((TabledLoss(kinds=away, above=True), 10**4),))
    assert other.epsilon("1e-6", "1e-6").upper < found.lower
    # q and 1 - q swapped.
    assert sampled("1", "99/100", 100).epsilon("1e-6", "1e-4") > found.upper


def test_integer_noise_on_a_fine_grid_is_the_same() -> None:
    r"""The discrete Gaussian of shift 50, through the listing of its outcomes."""
    real = sampled("1", "1/50", 100).epsilon("1e-5", "1e-6")
    noise = DiscreteGaussian(sigma_squared=2500)
    discrete = PrivacyCurve(noise=noise, sensitivity=50, scope=ADD_REMOVE)
    whole = compose((samples.poisson(curve=discrete, rate="1/50"), 100)).epsilon("1e-5", "1e-6")
    assert float(whole.upper) == pytest.approx(float(real.upper), rel=1e-3)


def test_vectors_cost_what_their_length_costs() -> None:
    one = curve(Gaussian(sigma=1)).epsilon("1e-6")
    for noise, moves in ((4, Sensitivity.l2_squared(16)), (5, Sensitivity.box((3, 4)))):
        found = curve(Gaussian(sigma=noise), moves).epsilon("1e-6")
        assert (found.lower, found.upper) == (one.lower, one.upper)
    # An l2 shift used as an l1 shift: 7 for (3, 4).
    assert curve(Gaussian(sigma=5), Sensitivity.l1(7)).epsilon("1e-6") > one.upper


def test_laplace_in_closed_form() -> None:
    found = curve(Laplace(scale=2)).delta("1/4")
    assert float(found.upper) == pytest.approx(-math.expm1((0.25 - 0.5) / 2), rel=1e-15)
    assert curve(Laplace(scale=2)).epsilon(0).upper == Fraction(1, 2)
    assert curve(Laplace(scale=2)).delta("1/2").upper == 0
    # At order 2: log((2 e^l + e^-2l)/3).
    l = 0.5
    renyi = math.log((2 * math.exp(l) + math.exp(-2 * l)) / 3)
    assert float(curve(Laplace(scale=2)).renyi(2).upper) == pytest.approx(renyi)
    # Many rounds against integer noise on a fine grid.
    real = compose((curve(Laplace(scale=20)), 200)).epsilon("1e-6", "1e-6")
    fine = PrivacyCurve(noise=DiscreteLaplace(scale=800), sensitivity=40, scope=ADD_REMOVE)
    whole = compose((fine, 200)).epsilon("1e-6", "1e-6")
    assert float(whole.upper) == pytest.approx(float(real.upper), rel=1e-3)


@pytest.mark.nightly
def test_two_rounds_of_laplace() -> None:
    l = 0.5
    # The convolution of the two losses.
    both = ends(compose((curve(Laplace(scale=2)), 2)).delta("1/2", "1e-6"))

    def second(x: float) -> float:
        loss = (abs(x - 1) - abs(x)) / 2
        ratio = 0.5 - loss
        return (
            math.exp(-abs(x) / 2) / 4 * max(0.0, 1 - math.exp((ratio - l) / 2), 1 - math.exp(ratio))
        )

    truth = float(
        mpmath.quad(lambda x: second(float(x)), [-60, 0, 0.25, 0.5, 0.75, 1, 60], maxdegree=5)
    )
    assert float(both.lower) - 1e-7 <= truth <= float(both.upper) + 1e-7


def test_among_other_parts_and_assumptions() -> None:
    part = samples.poisson(curve=curve(Gaussian(sigma=2)), rate="1/10")
    total = compose((part, 10), curve(Laplace(scale=3)), Pure("1/10", scope=ADD_REMOVE))
    found = total.epsilon("1e-6", "1e-6")
    assert len(found.assumptions) == 3
    alone = compose((part, 10)).epsilon("1e-6", "1e-6")
    assert found > alone.upper
    assert found < alone.upper + Fraction(1, 3) + Fraction(1, 10)
    assert compose(part).epsilon("1e-6").assumptions == part.assumptions != ()


@pytest.mark.parametrize("value", [0, -1, "inf", math.nan, "x", None])
def test_sizes_that_are_none(value: object) -> None:
    with pytest.raises(InvalidParameter):
        Gaussian(sigma=value)  # type: ignore[arg-type]  # what a caller without types may give
    with pytest.raises(InvalidParameter):
        Laplace(scale=value)  # type: ignore[arg-type]  # what a caller without types may give


def test_what_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="noise"):
        RealCurve(noise=DiscreteGaussian(sigma_squared=1), sensitivity=1)  # type: ignore[arg-type]  # what a caller without types may give
    with pytest.raises(NotDerived, match="l1"):
        curve(Laplace(scale=1), Sensitivity.l2_squared(2))
    with pytest.raises(InvalidParameter, match=r"scale = .*must be at least the sensitivity"):
        curve(Laplace(scale="1e-6"))
    assert curve(Laplace(scale="1/2048")).epsilon(0).upper == 2048
    with pytest.raises(InvalidParameter, match="scope"):
        samples.poisson(curve=RealCurve(noise=Gaussian(sigma=1), sensitivity=1), rate="1/2")
    for rate in (0, "1.1", -1):
        with pytest.raises(InvalidParameter, match="rate"):
            samples.poisson(curve=curve(Gaussian(sigma=1)), rate=rate)
    assert not hasattr(Gaussian(sigma=1), "sample")


@by_day(2)
@pytest.mark.parametrize(
    ("sigma", "rate", "rounds", "epsilon", "least", "most"),
    [
        # Between a bound from one round and Chernoff's bound on all: far below any float sum.
        ("4", "1/100", 1000, "1", 1e-36, 1e-32),
        ("1", "1/100", 10**6, "145.4968355", 9.99e-7, 1.001e-6),
        ("1000", "1/2", 10, "0", 1e-5, 1e-2),
        ("1", "1", 10**4, "5500", 1e-9, 1),
    ],
)
def test_extremes(
    sigma: str, rate: str, rounds: int, epsilon: str, least: float, most: float
) -> None:
    found = ends(sampled(sigma, rate, rounds).delta(epsilon))
    assert least <= found.lower <= found.upper <= most
    assert found.upper - found.lower <= found.upper / 10**6


def test_a_delta_of_1e_300() -> None:
    total = sampled("1", "1/100", 10**4)
    found = ends(total.epsilon(Fraction(1, 10**300)))
    assert found.upper - found.lower <= found.upper / 500_000
    assert total.delta(found.upper + Fraction(1, 10**4)).upper <= Fraction(1, 10**300)


@by_day(2)
@pytest.mark.parametrize("sigma", ["100", "1000", "10000"])
def test_far_beyond_the_losses_delta_is_next_to_nothing(sigma: str) -> None:
    r"""Masses that no float holds are listed as the least one, and must not outweigh the law."""
    found = sampled(sigma, "1/100", 2).delta("1/2000")
    assert found.upper <= (1e-8 if sigma == "100" else 1e-25)


@pytest.mark.parametrize("sigma", ["1e300", "1e20", "1e-11", "1e-20"])
def test_sizes_beyond_floats_cost_what_everybody_and_one_round_do(sigma: str) -> None:
    moved = curve(Gaussian(sigma=sigma))
    for kind in (samples.poisson, samples.replaced):
        step = kind(curve=moved, rate="1/100")
        for found, one, everybody in (
            (compose((step, 100)).epsilon("1e-6"), step.epsilon("1e-6", "1e-6"), math.inf),
            (compose((step, 100)).delta(1), step.delta(1, "1e-6"), 1),
        ):
            assert one.lower is not None
            assert found.lower is not None
            assert one.lower <= found.lower <= found.upper <= everybody
    whole = compose((moved, 100)).epsilon("1e-6")
    assert sampled(sigma, "1/100", 100).epsilon("1e-6").upper <= whole.upper < math.inf
    for make, given in (
        (samples.poisson, {"rate": "1/100", "members": 2}),
        (samples.allocated, {"rounds": 10}),
    ):
        with pytest.raises(InvalidParameter, match="between 1e-10 and 1e15"):
            make(curve=moved, **given)
