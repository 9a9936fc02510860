r"""Tests of `discretise_round`: masses and listings by quadrature; mutants must fail."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import arb
from mpmath import mp, mpf
from scipy.optimize import brentq

from accounting.pld import discretise_round as table
from accounting.pld.discretise_round import (
    Approximate,
    Cells,
    Focus,
    Ratios,
    listed_above,
    listed_below,
)
from accounting.pld.finite_pld import Listing
from accounting.pld.noise_density import Density, LaplaceDensity, NormalDensity
from accounting.pld.real_cells import RealPair
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball
from tests.day_and_nightly import by_day
from tests.support.dpcore.mpmath_precision import real
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

NORMAL, NARROW = NormalDensity(Fraction(1)), NormalDensity(Fraction(1, 9))
LAPLACE = LaplaceDensity(Fraction(1, 2))
PAIRS = {
    "everybody": RealPair.moved(NORMAL, (Fraction(0), Fraction(1))),
    "present": RealPair.sampled(NORMAL, Fraction(1, 10)),
    "absent": RealPair.sampled(NORMAL, Fraction(1, 10)).swapped(),
    "rare": RealPair.sampled(NARROW, Fraction(1, 1000)),
    "replaced": RealPair.replaced(NORMAL, Fraction(1, 3)),
    "group": RealPair.moved(NORMAL, (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6))),
    "laplace": RealPair.sampled(LAPLACE, Fraction(1, 4)),
    "laplace replaced": RealPair.replaced(LAPLACE, Fraction(1, 4)).swapped(),
}
# Most of the P-mass of the shift has a loss too large for a float.
REVEALING = RealPair.sampled(NormalDensity(Fraction(1, 2000)), Fraction(1, 10))
EPSILONS = (-0.3, 0.0, 0.05, 0.5, 2.0)


def density_at(law: Density, x: mpf) -> mpf:
    if isinstance(law, NormalDensity):
        return mp.npdf(x, 0, mp.sqrt(real(law.variance)))
    assert isinstance(law, LaplaceDensity)
    spread = real(law.spread)
    return mp.exp(-spread * abs(x)) * spread / 2


def mass(law: Density, a: mpf, b: mpf) -> mpf:
    if a < 0 < b:
        return mass(law, a, mpf(0)) + mass(law, mpf(0), b)
    near, far = sorted((abs(a), abs(b)))
    if isinstance(law, NormalDensity):
        scale = mp.sqrt(2 * real(law.variance))
        return (mp.erfc(near / scale) - mp.erfc(far / scale)) / 2
    assert isinstance(law, LaplaceDensity)
    spread = real(law.spread)
    return (mp.exp(-spread * near) - mp.exp(-spread * far)) / 2


def densities(pair: RealPair, x: mpf) -> list[mpf]:
    r"""Return p(x) and q(x), both written out."""
    return [
        sum(real(w) * density_at(pair.density, x - j) for w, j in side) for side in (pair.p, pair.q)
    ]


def hockey_stick(pair: RealPair, epsilon: float) -> float:
    r"""int (p - e^epsilon q)+."""

    def gain(x: mpf) -> mpf:
        p, q = densities(pair, x)
        return max(p - mp.exp(epsilon) * q, mpf(0))

    width = 14 * pair.density.deviation
    x = np.linspace(-width - 2, width + 4, 4001)
    turns = np.flatnonzero(np.diff(np.sign(pair.loss(x) - epsilon)))

    def excess(at: float) -> float:
        return float(pair.loss(np.array([at]))[0]) - epsilon

    kinks = [float(brentq(excess, x[i], x[i + 1], xtol=1e-15)) for i in turns.tolist()]
    places = sorted({-2 * width, 2 * width + 4, -width, width, -1.0, 0.0, 1.0, 2.0, *kinks})
    return float(mp.quad(gain, places))


@cache
def truth_of(name: str, epsilon: float) -> float:
    return hockey_stick(PAIRS[name], epsilon)


def delta(listing: Listing, epsilon: float) -> float:
    gains = -np.expm1(np.minimum(epsilon - listing.losses, 0.0))
    return float(listing.masses @ gains) + listing.hidden


def cells_of(pair: RealPair, count: int, tilt: float = 2.0) -> Cells:
    return pair.cells(pair.edges(Focus(tilt), count))


def between(below: Listing, truth: dict[float, float], above: Listing) -> bool:
    return all(
        delta(below, at) <= exact * (1 + 1e-7) + 1e-15
        and exact * (1 - 1e-7) - 1e-15 <= delta(above, at)
        for at, exact in truth.items()
    )


@pytest.mark.parametrize("law", [NORMAL, NARROW, LAPLACE], ids=["normal", "narrow", "laplace"])
def test_masses_of_cells_enclose_the_integrals(law: Density) -> None:
    edges = RealPair.sampled(law, Fraction(1, 10)).edges(Focus(3.0), 200)
    for shift in (0, 1):
        found = law.masses(edges, shift)
        pick = np.linspace(0, len(edges) - 2, 23).astype(int)
        with mp.workdps(40):
            for i in pick.tolist():
                truth = mass(law, *(mpf(float(e)) - shift for e in edges[i : i + 2]))
                value, error = found.value[i + 1], found.error[i + 1]
                assert abs(mpf(float(value)) - truth) <= mpf(float(error))
                assert error <= 1e-11 * value + 1e-300
        assert math.fsum(found.value.tolist()) == pytest.approx(1, abs=1e-12)


@by_day(2)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [40, 600])
def test_both_listings_enclose_every_divergence(name: str, count: int) -> None:
    cells = cells_of(PAIRS[name], count)
    above, below = listed_above((1.0, cells)), listed_below((1.0, cells))
    assert between(below, {epsilon: truth_of(name, epsilon) for epsilon in EPSILONS}, above)
    # The two bounds converge like 1/n^2.
    assert all(delta(above, at) - delta(below, at) <= 1000 / count**2 for at in EPSILONS)
    assert above.masses.sum() + above.hidden == pytest.approx(1, abs=1e-14)
    assert below.masses.sum() <= 1 + 1e-14


@by_day(2)
@pytest.mark.parametrize("name", PAIRS)
def test_one_round_agrees_with_its_closed_form(name: str) -> None:
    pair = PAIRS[name]
    for epsilon in EPSILONS:
        found = pair.curve(ball(Fraction(epsilon)))
        truth = truth_of(name, epsilon)
        assert float(found.lower()) <= truth * (1 + 1e-7) + 1e-14
        assert float(found.upper()) >= truth * (1 - 1e-7) - 1e-14
        if epsilon >= 0:
            assert float(found.mid()) == pytest.approx(truth, rel=1e-7, abs=1e-14)
    largest = pair.largest_loss()
    if largest.upper < math.inf:
        assert pair.curve(ball(Fraction(largest.upper)) + 1) == arb(0)


def at_the_middle(ratios: Ratios) -> Any:
    found = Ratios.log_above(ratios)
    finite = np.where(np.isfinite(found), found, 0.0)
    return np.where(np.isfinite(found), finite - 0.5 * np.gradient(finite), found)


MUTANTS = {
    "share at the lower end": ("np.maximum(most - top, 0.0), top", "top, most - top"),
    "infinity forgotten": ("masses[~finite].sum()", "masses[:0].sum()"),
    "lower end of a cell": ("self.high.log_above()", "self.low.log_above()"),
    "the middle of a cell": ("self.high.log_above()", "at_the_middle(self.high)"),
    "q beside its upper end": ("low.value * self.q.value", "low.value * self.p.value"),
    "rounded up": ("least = np.maximum(p.lower", "least = np.maximum(p.upper * 1.001"),
}


@pytest.mark.parametrize("name", ["", *MUTANTS])
def test_broken_listings_are_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name:
        method = "atoms_below" if name == "rounded up" else "atoms_above"
        broken = mutated(getattr(Cells, method), *MUTANTS[name], at_the_middle=at_the_middle)
        monkeypatch.setattr(Cells, method, broken)
    assert all(_holds(pair) for pair in (*PAIRS.values(), REVEALING)) == (not name)


def _holds(pair: RealPair) -> bool:
    cells = cells_of(pair, 60)
    try:
        above, below = listed_above((1.0, cells)), listed_below((1.0, cells))
    except PrecisionExhausted:
        return True
    truth = {at: float(pair.curve(ball(Fraction(at))).mid()) for at in (0.0, 0.5, 2.0)}
    return between(below, truth, above)


@by_day(2)
@pytest.mark.parametrize("name", ["present", "rare", "replaced", "group"])
@pytest.mark.parametrize("spare", [1e-2, 1e-4, 1e-8])
def test_a_table_cut_at_a_rare_loss_encloses_the_curve(name: str, spare: float) -> None:
    pair = PAIRS[name].cut(spare)
    cells = pair.cells(pair.edges(Focus(2.0), 400))
    above, below = listed_above((1.0, cells)), listed_below((1.0, cells))
    assert 0 < above.hidden <= pair.infinite(above=True) <= 1.5 * spare
    end = float(above.losses[-1])
    truth = {at: hockey_stick(pair, at) for at in (0.1, end / 2, end - 0.01, end + 0.5)}
    assert between(below, truth, above)
    assert delta(above, end / 2) - truth[end / 2] < 1.5 * spare + 1e-3 * truth[end / 2] + 1e-12
    # The tail may neither be dropped from the upper listing, nor be infinite in the lower one.
    without = Listing(above.losses, above.masses, 0.0)
    certain = Listing(below.losses[:-1], below.masses[:-1], float(below.masses[-1]))
    assert not between(below, truth, without)
    assert not between(certain, truth, above)


def test_noise_beyond_floats_is_refused() -> None:
    wide = RealPair.sampled(NormalDensity(Fraction(10**30)), Fraction(1, 10))
    assert "beyond 2^40 times" in refusal(lambda: wide.edges(Focus(1.0), 100), PrecisionExhausted)
    zero = np.array([0.0])
    one = np.array([1.0])
    assert "empty" in refusal(lambda: Listing.below(zero, zero, one), PrecisionExhausted)
    assert "finite" in refusal(lambda: Listing.above(zero, zero, 1.0), PrecisionExhausted)


def test_a_mass_that_is_nan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cells_of(PAIRS["everybody"], 64)
    assert delta(listed_above((1.0, cells)), 0.0) > 0.3
    lost = replace(cells, p=replace(cells.p, error=np.where(cells.p.value > 1e-3, np.nan, 0.0)))
    assert "range of floats" in refusal(lambda: listed_above((1.0, lost)), PrecisionExhausted)
    # Without the check the masses count as the smallest loss.
    broken = mutated(Cells.atoms_above, "not np.isfinite", "not np.ones_like")
    monkeypatch.setattr(Cells, "atoms_above", broken)
    with np.errstate(invalid="ignore"):
        assert delta(listed_above((1.0, lost)), 0.0) < 0.1


def test_quotients_enclose_those_of_both_ends() -> None:
    rng = np.random.default_rng(6)
    a, b = (Approximate(rng.uniform(0.1, 9, 300), rng.uniform(0, 1e-13, 300)) for _ in range(2))
    found = a.over(b)
    for row in range(300):
        x, e, y, d, q, r = (
            Fraction(float(each[row])) for n in (a, b, found) for each in (n.value, n.error)
        )
        assert all(abs((x + s * e) / (y + t * d) - q) <= r for s in (-1, 1) for t in (-1, 1))
    assert (found.error <= 1e-11 * found.value).all()
    unknown = a.over(Approximate(np.full(300, 1e-14), np.full(300, 1e-13)))
    assert np.isinf(unknown.value).all()


def test_logarithms_are_rounded_outwards() -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate((10.0 ** rng.uniform(-300, 300, 400), 1 + rng.uniform(-1e-9, 1e-9, 50)))
    low, high = table.log_bound(x, -1), table.log_bound(x, 1)
    with mp.workdps(40):
        for value, a, b in zip(x.tolist(), low.tolist(), high.tolist(), strict=True):
            assert mpf(a) <= mp.log(mpf(value)) <= mpf(b)
