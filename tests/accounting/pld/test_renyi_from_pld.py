r"""Tests of `accounting.pld.renyi_from_pld`: bounds by mpmath quadrature; mutants must fail."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp

from accounting.pld import renyi_from_pld as module
from accounting.pld.noise_density import IntegerNormalDensity, LaplaceDensity, NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.pld.renyi_from_pld import renyi
from dpcore.errors import InvalidParameter, PrecisionExhausted
from tests.accounting.pld.test_discretise_round import densities
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import close
from tests.support.dpcore.mpmath_precision import real
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
    with mp.workdps(25):
        more = real(order) - 1

        def integrand(x: Any) -> Any:
            p, q = densities(pair, x)
            return p * (p / q) ** more

        # Less than e^-40 of the integral lies beyond.
        places = sorted({*range(-100, 101, 20), *pair.shifts})
        return mp.log(mp.quad(integrand, places)) / more


@by_day(2)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("order", ["1.001", "3/2", "2", "20"])
def test_both_bounds_enclose_the_divergence(name: str, order: str) -> None:
    pair, at = PAIRS[name], Fraction(order)
    found = renyi(((ONE, pair),), at, 1e-6)
    assert close(found, truth(pair, at), relative="1e-12")
    assert found.upper - found.lower <= found.upper / 10**6


def test_wide_discrete_noise_agrees_with_real_noise() -> None:
    r"""sigma = 60 under a shift of 30 is nearly the real law of sigma 2."""
    whole = RealPair.sampled(IntegerNormalDensity(Fraction(3600)), Fraction(1, 10), 30)
    near, found = (
        renyi(((ONE, pair),), Fraction(7, 2), 1e-6) for pair in (PAIRS["present"], whole)
    )
    assert float(found.upper) == pytest.approx(float(near.upper), rel=1e-5)


def test_ratios_beyond_floats_are_refused() -> None:
    pair = RealPair.sampled(LaplaceDensity(Fraction(1500)), Fraction(1, 10))
    with pytest.raises(PrecisionExhausted, match="exceeds float64"):
        renyi(((ONE, pair),), Fraction(2), 1e-6)


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
