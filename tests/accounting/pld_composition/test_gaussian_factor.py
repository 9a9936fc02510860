"""Tests of `gaussian_factor`, a discrete Gaussian in closed form: sums of complex exponentials."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb

from accounting.pld_composition.factor import Grid
from accounting.pld_composition.gaussian_factor import GaussianFactor, GaussianPart, _cover, _lobes
from dpcore import DiscreteGaussian
from dpcore.numbers.enclosure import precision
from tests.support.accounting.brute_force import mass_of, real
from tests.support.dpcore.mutants import mutated, rewired

WORKING = 128
NOISE = 1e-40  # loss of the sums below to cancellation
CASES = [
    ("1/2", 1, "3/4"),
    ("1/2", 3, "5/3"),
    ("1", 2, "7/3"),
    ("5", 3, "10"),
    ("7/2", 7, "1/3"),
    ("40", 1, "12"),
    ("100", 8, "5"),
]


def moment(variance: Fraction, shift: int, c: Fraction, y: float) -> Any:
    """E e^((c+iy)L) as a sum over the outputs, far enough into both tails."""
    v, centre = real(variance), math.floor(c * shift)
    reach = math.isqrt(math.ceil(2 * variance * 150)) + 3
    mass, z = mass_of(DiscreteGaussian(sigma_squared=variance)), mpmath.mpc(real(c), y)
    turn = mpmath.exp(z * shift / v)
    low = centre - reach
    term, total = mpmath.exp(z * (2 * shift * low + shift**2) / (2 * v)), mpmath.mpc(0)
    for m in range(low, centre + reach + 1):
        total += mass(m) * term
        term *= turn
    return total


def phi(variance: Fraction, shift: int, c: Fraction, y: float) -> Any:
    """M(c+iy)/S with S = e^(ac(c+1))/Theta, Theta summed."""
    v = real(variance)
    theta = mpmath.fsum(mpmath.exp(-2 * mpmath.pi**2 * v * j * j) for j in range(-12, 13))
    rate = real(Fraction(shift**2) / (2 * variance))
    return moment(variance, shift, c, y) * theta / mpmath.exp(rate * real(c) * (real(c) + 1))


def grid_of(part: GaussianPart, depth: int = 1) -> Grid:
    """A grid whose blocks cover many lobes, and the valleys between them."""
    period = 2 * math.pi * float(part.variance) / part.shift
    return Grid(step=float(np.float32(period / 37)), depth=depth, blocks=2000)


BLOCKS = np.array([0, 1, 9, 17, 18, 19, 27, 500, 1301])


def faithful(
    kind: type[GaussianFactor], variance: Any, shift: int, tilt: Any, blocks: Any = BLOCKS
) -> bool:
    """Whether each disc contains phi, narrowly, and each cover is above it."""
    v, c = Fraction(variance), Fraction(tilt)
    part = GaussianPart(variance=v, shift=shift)
    grid = grid_of(part)
    with precision(WORKING), mpmath.workdps(70):
        factor = kind(part=part, tilt=c)
        discs, covers = factor.values(grid, blocks), factor.cover(grid, blocks)
        for place, y in enumerate(grid.frequencies(blocks).tolist()):
            exact = phi(v, shift, c, y)
            off = abs(exact - mpmath.mpmathify(complex(discs.centres[place])))
            if off > discs.radii[place] + NOISE or discs.radii[place] > 1e-12:
                return False
            if abs(exact) > covers[place // 2] + NOISE:
                return False
    return True


@pytest.mark.parametrize(("variance", "shift", "tilt"), CASES)
def test_values_and_covers_enclose_the_moment(variance: str, shift: int, tilt: str) -> None:
    assert faithful(GaussianFactor, variance, shift, tilt)
    part = GaussianPart(variance=Fraction(variance), shift=shift)
    with precision(WORKING), mpmath.workdps(70):
        factor = part.factor(Fraction(tilt))
        exact = moment(part.variance, shift, 2 * Fraction(tilt), 0.0).real
        assert factor.log_moment(Fraction(1)) * (1 + arb(2) ** -90) >= arb(str(mpmath.log(exact)))
        assert factor.peak >= float(phi(part.variance, shift, Fraction(0), 0.0).real)
        assert factor.peak < 1.1
        scale = moment(part.variance, shift, Fraction(tilt), 0.0).real
        scale /= phi(part.variance, shift, Fraction(tilt), 0.0).real
        assert abs(factor.log_scale - arb(str(mpmath.log(scale)))) < arb(2) ** -80


@pytest.mark.parametrize("depth", [1, 4, 7])
def test_a_cover_bounds_the_whole_block(depth: int) -> None:
    for variance, shift in (("1/2", 1), ("3", 2), ("60", 5)):
        part = GaussianPart(variance=Fraction(variance), shift=shift)
        grid = grid_of(part, depth)
        assert covered(GaussianFactor, part, grid)


def covered(kind: type[GaussianFactor], part: GaussianPart, grid: Grid) -> bool:
    # |phi| is at most the sum of its lobes, here in floats and on a finer grid.
    rate, period = float(part.rate), 2 * math.pi * float(part.variance) / part.shift
    with precision(WORKING):
        covers = kind(part=part, tilt=Fraction(3)).cover(grid, np.arange(60))
    for block, cover in enumerate(covers.tolist()):
        for y in np.linspace(block * grid.length, (block + 1) * grid.length, 41):
            nearest = round(y / period)
            lobes = (
                math.exp(-rate * (y - j * period) ** 2) for j in range(nearest - 6, nearest + 7)
            )
            if sum(lobes) > cover * (1 + 1e-12) + 1e-300:
                return False
    return True


def test_values_beyond_the_fixed_point_range_are_unknown() -> None:
    # A grid beyond 2^31 lobes, a variance beyond 2^95 and a precision too low for turns.
    wide = Grid(step=float(2**20), depth=1, blocks=1 << 19)
    for part, grid, bits in (
        (GaussianPart(variance=Fraction(1), shift=1000), wide, WORKING),
        (GaussianPart(variance=Fraction(2**120), shift=1), wide, WORKING),
        (GaussianPart(variance=Fraction(5), shift=1), wide, 64),
    ):
        with precision(bits):
            discs = part.factor(Fraction(7, 3)).values(grid, np.array([3]))
        assert discs.centres.tolist() == [0, 0]
        assert discs.radii.min() >= 1


HALF = GaussianPart(variance=Fraction(1, 2), shift=1)


def fails(method: str, function: Any) -> bool:
    """Whether the factor with this method has a value or a cover that is wrong."""
    kind = type("Broken", (GaussianFactor,), {method: function, "__slots__": ()})
    if method == "values":
        return not all(faithful(kind, *case) for case in CASES[:3])
    # Short blocks show that two lobes are not enough: at the middle of a lobe.
    grids = (grid_of(HALF), Grid(step=2.0**-20, depth=1, blocks=50))
    return not all(covered(kind, HALF, grid) for grid in grids)


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        ("values", "(2 * self.tilt + 1)", "(2 * self.tilt)"),
        ("values", "circle(first - turn)", "circle(first)"),
        ("values", "circle(first - turn)", "circle(first + turn)"),
        ("values", " - multiples(high[2:3], low[2:3], lobe)", ""),
        ("values", "range(-lobes, lobes + 1)", "range(0, 1)"),
        ("values", "range(-lobes, lobes + 1)", "range(-lobes, 1)"),
        ("cover", "blur + grid.length / 2", "blur"),
        ("cover", "+ _decay(rate, period - u - reach)", ""),
        ("cover", "np.rint(centre / period)", "0.0"),
        ("cover", "centre = grid.centres(blocks)", "centre = grid.centres(blocks + 1)"),
    ],
)
def test_a_broken_value_or_cover_is_detected(method: str, old: str, new: str) -> None:
    assert fails(method, mutated(getattr(GaussianFactor, method), old, new))


def test_a_factor_without_its_far_lobes_is_detected() -> None:
    assert not fails("cover", GaussianFactor.cover)
    near = mutated(_cover.__wrapped__, "rest = upward(first / (1 - ratio))", "rest = 0.0")
    assert fails("cover", rewired(GaussianFactor.cover, _cover=near))
    # With one lobe the remainder is in the radius; without it the discs are narrow and wrong.
    with precision(WORKING):
        count, lost = _lobes(HALF, WORKING)
        assert count >= 2
        assert 0 < lost < 1e-30
    assert fails("values", rewired(GaussianFactor.values, _lobes=lambda *_: (1, 0.0)))
