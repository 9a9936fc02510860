r"""Poisson samples with a unit replaced: quadrature, other neighbours, another tool."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting import PoissonSampled, PrivacyCurve, compose
from accounting.descriptions.real_noise import Gaussian, Laplace, RealNoise
from accounting.release.real_curve import RealCurve
from dpcore import DiscreteGaussian
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity
from tests.support.accounting import samples
from tests.support.accounting.amounts import ends

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def replaced(noise: RealNoise, rate: str, sensitivity: Sensitivity | int = 1) -> Any:
    curve = RealCurve(noise=noise, sensitivity=sensitivity, scope=ADD_REMOVE)
    return samples.replaced(curve=curve, rate=rate)


def quadrature(noise: RealNoise, rate: str, epsilon: str) -> float:
    r"""int (p - e^epsilon q)+ of the two mixtures."""
    g, e = mpmath.mpf(float(Fraction(rate))), mpmath.exp(float(Fraction(epsilon)))
    size = float(Fraction(getattr(noise, "sigma", 0) or getattr(noise, "scale", 0)))

    def density(x: mpmath.mpf) -> mpmath.mpf:
        if isinstance(noise, Gaussian):
            return mpmath.npdf(x, 0, size)
        return mpmath.exp(-abs(x) / size) / (2 * size)

    def gain(x: mpmath.mpf) -> mpmath.mpf:
        p, q = ((1 - g) * density(x) + g * density(x - at) for at in (1, -1))
        return p - e * q

    start = mpmath.findroot(gain, (0, 2), solver="anderson", tol=1e-14)
    far = [at for at in (1, 4 * size + 2, 40 * size + 2) if at > start]
    places = [start, *far]
    return float(mpmath.quad(gain, places))


@pytest.mark.parametrize(
    ("noise", "rate", "epsilon"),
    [
        (Gaussian(sigma=1), "1/100", "1/100"),
        (Gaussian(sigma="1/2"), "1/5", "1/2"),
        (Gaussian(sigma=4), "1/3", "1/20"),
        (Laplace(scale=2), "1/10", "1/20"),
        (Laplace(scale=1), "1/2", "1/2"),
    ],
)
def test_one_round(noise: RealNoise, rate: str, epsilon: str) -> None:
    found = replaced(noise, rate).delta(epsilon)
    truth = quadrature(noise, rate, epsilon)
    assert found.upper_float == pytest.approx(truth, rel=1e-9)
    back = replaced(noise, rate).epsilon(Fraction(found.upper))
    assert back.upper_float == pytest.approx(float(Fraction(epsilon)), rel=1e-9)
    # One shift of 1, as under add-remove, is less.
    alone = PoissonSampled(curve=replaced(noise, rate).curve, rate=rate).delta(epsilon)
    assert alone.upper < truth * 0.99


def test_no_other_neighbours_are_worse() -> None:
    r"""Sums of (p - e^epsilon q)+ on a fine grid in the plane, any two shifts of length <= 1."""
    rng, s, g = np.random.default_rng(5), 0.8, 0.3
    x, y = np.meshgrid(*(np.arange(-7, 7, 0.05),) * 2)

    def world(at: tuple[float, float]) -> Any:
        def normal(a: float, b: float) -> Any:
            return np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * s * s)) / (math.tau * s * s)

        return ((1 - g) * normal(0, 0) + g * normal(*at)) * 0.05**2

    epsilons = ("0", "1/10", "1/2", "1")
    ours = [replaced(Gaussian(sigma="4/5"), "3/10").delta(e).upper_float for e in epsilons]
    turns = rng.uniform(0, math.tau, (12, 2))
    sizes = rng.uniform(0.5, 1, (12, 2))
    shifts = [((1.0, 0.0), (-1.0, 0.0)), ((0.6, 0.8), (-0.6, -0.8))]
    shifts += [
        ((r * math.cos(t), r * math.sin(t)), (v * math.cos(w), v * math.sin(w)))
        for (t, w), (r, v) in zip(turns.tolist(), sizes.tolist(), strict=True)
    ]
    best = [0.0] * len(epsilons)
    for up, down in shifts:
        p, q = world(up), world(down)
        for i, e in enumerate(epsilons):
            got = float(np.maximum(p - math.exp(float(Fraction(e))) * q, 0).sum())
            assert got <= ours[i] * (1 + 1e-4)
            best[i] = max(best[i], got)
    # Opposite directions attain it.
    assert best == pytest.approx(ours, rel=1e-3)


def test_many_rounds_against_another_tool() -> None:
    r"""dp-accounting's PLD under REPLACE_ONE is an upper end, at its grid a little above."""
    dp: Any = pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    from accounting.interop.read_events import from_dp_event

    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0)), 1000)
    relation = dp.NeighboringRelation.REPLACE_ONE
    pld = dp.pld.PLDAccountant(neighboring_relation=relation, value_discretization_interval=1e-3)
    theirs = pld.compose(event).get_epsilon(1e-6)
    total = compose((replaced(Gaussian(sigma=1), "1/100"), 1000))
    ours = ends(total.epsilon("1e-6"))
    assert ours.lower <= theirs <= float(ours.upper) * (1 + 1e-3)
    assert ours.upper - ours.lower <= ours.upper / 10**6
    assert from_dp_event(event, Scope()).parts == total.parts
    assert total.scope == Scope()
    # The mutant: composing the unit against nobody claims less than is lost.
    part = PoissonSampled(curve=replaced(Gaussian(sigma=1), "1/100").curve, rate="1/100")
    assert compose((part, 1000)).epsilon("1e-6", "1e-4").upper < ours.lower


def test_laplace_rounds_lie_between() -> None:
    r"""Above the unit against nobody, below no sampling."""
    part = replaced(Laplace(scale=2), "1/100")
    found = ends(compose((part, 200)).epsilon("1e-6", "1e-5"))
    alone = compose((PoissonSampled(curve=part.curve, rate="1/100"), 200)).epsilon("1e-6", "1e-5")
    assert alone.upper < found.lower <= found.upper
    assert found.upper < compose((part.unsampled, 200)).epsilon("1e-6", "1e-2").upper


def test_everybody_is_no_sample() -> None:
    for moves, twice in (
        (Sensitivity.of(1), Sensitivity.of(2)),
        (Sensitivity.l2_squared(3), Sensitivity.l2_squared(12)),
        (Sensitivity.box((1, 2)), Sensitivity.box((2, 4))),
    ):
        found = replaced(Gaussian(sigma=3), "1", moves)
        plain = RealCurve(noise=Gaussian(sigma=3), sensitivity=twice)
        for ours, other in (
            (found.epsilon("1e-5"), plain.epsilon("1e-5")),
            (found.delta("1/2"), plain.delta("1/2")),
            (found.renyi(2), plain.renyi(2)),
        ):
            assert (ours.lower, ours.upper) == (other.lower, other.upper)


def test_what_is_refused() -> None:
    curve = RealCurve(noise=Gaussian(sigma=1), sensitivity=1, scope=ADD_REMOVE)
    with pytest.raises(InvalidParameter, match="add-remove"):
        samples.replaced(curve=RealCurve(noise=Gaussian(sigma=1), sensitivity=1), rate="1/2")
    integers = PrivacyCurve(
        noise=DiscreteGaussian(sigma_squared=1), sensitivity=1, scope=ADD_REMOVE
    )
    with pytest.raises(InvalidParameter, match="add-remove for samples"):
        samples.replaced(curve=integers, rate="1/2")
    for rate in (0, -1, "1.1", math.nan, math.inf):
        with pytest.raises(InvalidParameter, match="rate"):
            samples.replaced(curve=curve, rate=rate)


def test_a_rare_sample_is_told_about() -> None:
    r"""At least what one round shows, which has no other sums than those of the normal law."""
    curve = RealCurve(noise=Gaussian(sigma=1), sensitivity=1, scope=ADD_REMOVE)
    part = PoissonSampled(curve=curve, rate="1e-9")
    found, one = ends(compose((part, 1000)).delta(1)), ends(part.delta(1))
    assert 0 < one.lower * Fraction(999999, 10**6) <= found.lower <= found.upper < 1e-12


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [samples.poisson, samples.replaced])
def test_extreme_noise_is_told_about(kind: Any) -> None:
    r"""Between one round and everybody, where sums in floats say nothing."""

    def total(sigma: str) -> Any:
        curve = RealCurve(noise=Gaussian(sigma=sigma), sensitivity=1, scope=ADD_REMOVE)
        return compose((kind(curve=curve, rate="1/100"), 100))

    tiny = total("1e-9").epsilon("1e-6")
    # One round shows D^2/2 sigma^2; a hundred of everybody a hundred times (2D)^2/2 sigma^2.
    assert 4.9e17 < tiny.lower <= tiny.upper < 2.1e20
    assert total("1e12").epsilon("1e-6").upper == 0
    unseen = total("1e12").delta(0)
    assert 1e-15 < unseen.lower <= unseen.upper < 1e-11


def test_a_unit_in_next_to_no_noise_is_seen_exactly_when_it_is_sampled() -> None:
    # All losses but those of the two shifts are 0 to 10^17 digits: no precision resolves them.
    found = ends(replaced(Gaussian(sigma="1e-9"), "1/100").delta(0))
    assert found.lower <= Fraction(1, 100) <= found.upper < Fraction(101, 10**4)


def test_noise_far_wider_than_the_shift_hides_one_round() -> None:
    found = replaced(Gaussian(sigma="1e12"), "1/100")
    assert found.epsilon("1e-6").upper == 0
    # delta(0) = (1/100) (2/sigma) phi(0), but for the third power of 1/sigma.
    truth = 2e-14 / math.sqrt(2 * math.pi)
    assert math.isclose(found.delta(0).upper_float, truth, rel_tol=1e-9)


def test_a_sample_that_is_all_but_empty_is_bounded_by_its_rate() -> None:
    found = replaced(Gaussian(sigma=1), "1e-300")
    assert found.epsilon("1e-6").upper == 0


@pytest.mark.parametrize("rate", ["1e-300", "1e-320", "1e-400"])
@pytest.mark.parametrize("kind", [samples.poisson, samples.replaced])
def test_rates_below_floats_are_not_lost(kind: Any, rate: str) -> None:
    curve = RealCurve(noise=Gaussian(sigma=1), sensitivity=1, scope=ADD_REMOVE)
    found = ends(compose((kind(curve=curve, rate=rate), 10)).delta("1/10"))
    assert 0 <= found.lower <= 10 * Fraction(rate)
    assert 0 < found.upper <= 1
