r"""Tests of `accounting.pld.renyi_from_pld`: bounds by mpmath quadrature; mutants must fail."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp, mpf

from accounting.composition.compose import compose
from accounting.derive_guarantee import PoissonSampled
from accounting.descriptions.real_noise import Gaussian
from accounting.pld import renyi_from_pld as module
from accounting.pld.noise_density import IntegerNormalDensity, LaplaceDensity, NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.pld.renyi_from_pld import renyi
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.mechanism import Relation, Scope
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.dpcore.mutants import mutated

ONE = Fraction(1)
WIDE = NormalDensity(Fraction(4))
PAIRS = {
    "present": RealPair.sampled(WIDE, Fraction(1, 10)),
    "absent": RealPair.sampled(WIDE, Fraction(1, 10)).swapped(),
    "replaced": RealPair.replaced(WIDE, Fraction(1, 10)),
    "group": RealPair.moved(WIDE, (Fraction(81, 100), Fraction(18, 100), Fraction(1, 100))),
    "never none": RealPair.moved(WIDE, (Fraction(0), Fraction(1, 4), Fraction(3, 4))),
    "laplace": RealPair.sampled(LaplaceDensity(Fraction(1, 2)), Fraction(1, 10)),
}


def truth(pair: RealPair, order: Fraction) -> Any:
    alpha, normal = (
        mpf(order.numerator) / order.denominator,
        isinstance(pair.density, NormalDensity),
    )
    with mp.workdps(25):
        unit = 1 / mp.sqrt(8 * mp.pi) if normal else mpf(1) / 4  # variance 4, or scale 1/2
        worlds = [[(unit * w.numerator / w.denominator, j) for w, j in t] for t in (pair.p, pair.q)]

        def noise(x: Any) -> Any:
            return mp.exp(-x * x / 8) if normal else mp.exp(-abs(x) / 2)

        def integrand(x: Any) -> Any:
            p, q = (mp.fsum(weight * noise(x - j) for weight, j in terms) for terms in worlds)
            return p * (p / q) ** (alpha - 1)

        # Less than e^-40 of the integral lies beyond.
        places = sorted({*range(-100, 101, 20), *pair.shifts})
        return mp.log(mp.quad(integrand, places)) / (alpha - 1)


def holds(pair: RealPair, order: Fraction) -> bool:
    found, exact = renyi(((ONE, pair),), order, 1e-6), truth(pair, order)
    low, high = (
        mpf(Fraction(e).numerator) / Fraction(e).denominator for e in (found.lower, found.upper)
    )
    slip = exact * mpf(10) ** -12
    return bool(low - slip <= exact <= high + slip)


@by_day(2)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("order", ["1.001", "3/2", "2", "20"])
def test_both_bounds_enclose_the_divergence(name: str, order: str) -> None:
    pair, at = PAIRS[name], Fraction(order)
    assert holds(pair, at)
    found = renyi(((ONE, pair),), at, 1e-6)
    assert found.upper - found.lower <= found.upper / 10**6


def test_integer_orders_agree_with_exact_sums() -> None:
    curve = RealCurve(
        noise=Gaussian(sigma=2), sensitivity=1, scope=Scope(relation=Relation.ADD_REMOVE)
    )
    found = ends(PoissonSampled(curve=curve, rate="1/10").renyi(2))
    exact = float(mp.log(1 + mpf(1) / 100 * (mp.exp(mpf(1) / 4) - 1)))
    assert float(found.lower) <= exact <= float(found.upper) <= exact * (1 + 2e-6)
    many = compose((PoissonSampled(curve=curve, rate="1/10"), 100)).renyi(2)
    assert float(many.upper) == pytest.approx(100 * float(found.upper))


def test_wide_discrete_noise_agrees_with_real_noise() -> None:
    r"""sigma = 60 under a shift of 30 is nearly the real law of sigma 2."""
    real = PAIRS["present"]
    at = Fraction(7, 2)
    near = renyi(((ONE, real),), at, 1e-6)
    whole = RealPair.sampled(IntegerNormalDensity(Fraction(3600)), Fraction(1, 10), 30)
    found = renyi(((ONE, whole),), at, 1e-6)
    assert float(found.upper) == pytest.approx(float(near.upper), rel=1e-5)


def test_ratios_beyond_floats_are_refused() -> None:
    pair = RealPair.sampled(LaplaceDensity(Fraction(1500)), Fraction(1, 10))
    with pytest.raises(PrecisionExhausted, match="exceeds float64"):
        renyi(((ONE, pair),), Fraction(2), 1e-6)


def test_tail_bounds_hold_far_out() -> None:
    pair = RealPair.sampled(NormalDensity(Fraction(1, 4)), Fraction(1, 1000))
    found = renyi(((ONE, pair),), Fraction(40), 1e-6)
    assert float(found.lower) == pytest.approx(72.9151227907875)
    assert found.upper - found.lower <= found.upper / 10**6


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_growth", "- alpha * middle", "- alpha * middle - middle**2 / 2"),
        ("_excess", "share * (_growth(top, order) - below)", "0 * share"),
        ("_excess", "mean = moved / q", "mean = top"),
        ("renyi", "ball(chance)", "2 * ball(chance)"),
    ],
)
def test_broken_versions_are_detected(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, mutated(getattr(module, name), old, new))
    broken, exact = module.renyi, float(truth(PAIRS["present"], Fraction(2)))
    try:
        found = broken(((ONE, PAIRS["present"]),), Fraction(2), 1e-6)
    except InvalidParameter:
        return  # the ends are swapped
    assert not float(found.lower) <= exact <= float(found.upper)
