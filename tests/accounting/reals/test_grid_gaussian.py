r"""Wide discrete Gaussian noise by the real law's moments, against sums over the integers."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from accounting.reals.grid_gaussian import GridGaussian, is_smooth
from accounting.reals.mixture import Direction
from accounting.release.curve import PrivacyCurve
from accounting.release.subsampling import PoissonSampled
from accounting.totals.compose import compose
from accounting.totals.total import Total
from dpcore import DiscreteGaussian, Relation, Scope
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import precision
from tests.support.dpcore.mutants import mutated

RATE = Fraction(1, 20)
SQUARED, SHIFT = 3600, 12


def law(present: bool, squared: int = SQUARED, shift: int = SHIFT) -> GridGaussian:
    direction = Direction(rate=RATE, present=present)
    return GridGaussian.of(Fraction(squared), shift, direction)


def moment(
    present: bool, c: float, y: float, squared: int = SQUARED, shift: int = SHIFT
) -> complex:
    """E e^((c+iy)L), summed over the integers."""
    x = np.arange(-1500, 1501)
    masses = np.exp(-(x**2) / (2 * squared))
    masses /= math.fsum(masses)
    rate = float(RATE)
    logs = np.log1p(rate * np.expm1(shift * (2 * x - shift) / (2 * squared)))
    z = complex(c, y)
    terms = masses * np.exp((z + 1) * logs if present else -z * logs)
    return complex(math.fsum(terms.real), math.fsum(terms.imag))


@pytest.mark.parametrize("present", [True, False])
def test_its_nodes_give_the_moments_of_the_integers(present: bool) -> None:
    one = law(present)
    assert is_smooth(Fraction(SQUARED), SHIFT)
    with precision(128):
        for y in (0.0, 7.0, 60.0):
            nodes = one.nodes(Fraction(3), 64.0, 40.0, 1 << 13)
            pairs = zip(nodes.weights, nodes.losses, strict=True)
            found = sum(complex(float(w)) * cmath.exp(1j * y * float(loss)) for w, loss in pairs)
            truth = moment(present, 3.0, y)
            assert abs(found - truth) <= float(nodes.rest) + 1e-12 * abs(moment(present, 3.0, 0.0))
            assert float(nodes.rest) < 1e-12


def test_the_echo_of_the_integers_is_not_hidden_by_the_bound() -> None:
    """At 2 pi v D j the losses of many integers agree: the real law's bound alone is too small."""
    one = law(present=True, squared=3600, shift=60)
    y = 2 * math.pi * 60 * 40
    truth = abs(moment(True, 3.0, y, 3600, 60)) / moment(True, 3.0, 0.0, 3600, 60).real
    with precision(128):
        real = float(one.far(Fraction(3), np.array([y]))[0])
        ripple = float(one.ripple(Fraction(3), np.array([y]))[0])
        assert truth > 3 * real
        assert real + ripple >= truth
        with pytest.raises(PrecisionExhausted, match="grid"):
            one.nodes(Fraction(3), y, 40.0, 1 << 13)


def test_bounds_hold_below_the_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the frequency, far + ripple is above the moment; without the ripple it is not."""
    one = law(present=True, squared=3600, shift=60)
    places = np.array([20.0, 100.0, 250.0, 340.0, 2 * math.pi * 60 * 40])
    size = moment(True, 3.0, 0.0, 3600, 60).real
    truths = np.array([abs(moment(True, 3.0, y, 3600, 60)) / size for y in places])
    with precision(128):
        far = one.far(Fraction(3), places)
        assert (truths <= (far + one.ripple(Fraction(3), places)) * (1 + 1e-9) + 1e-15).all()
        broken = mutated(GridGaussian.ripple, "np.inf)", "0.0)")
        monkeypatch.setattr(GridGaussian, "ripple", broken)
        assert not (truths <= (far + one.ripple(Fraction(3), places)) * (1 + 1e-9) + 1e-15).all()


def test_the_norm_of_the_law_is_nearly_that_of_the_integral() -> None:
    with precision(128):
        from accounting.reals.grid_gaussian import _excess

        found = _excess(GridGaussian.of(Fraction(1), 1, Direction(rate=RATE, present=True)))
        truth = mpmath.jtheta(3, 0, mpmath.exp(-0.5)) / mpmath.sqrt(2 * mpmath.pi) - 1
        assert 0 < float(truth) <= float(found) < 1.001 * float(truth)


def sampled(rounds: int) -> tuple[PoissonSampled, int]:
    scope = Scope(relation=Relation.ADD_REMOVE)
    noise = DiscreteGaussian(sigma_squared=5000**2)
    return PoissonSampled(
        curve=PrivacyCurve(noise=noise, sensitivity=1000, scope=scope), rate="1/100"
    ), rounds


@pytest.mark.nightly
def test_neighbours_attain_what_a_wide_grid_is_said_to_cost_at_least() -> None:
    """The real law, of another engine, differs by e^-40000 and lies between."""
    source, rounds = sampled(3)
    found = Total.of([(source.attained()[1], rounds)]).epsilon(Fraction(1, 10**6))
    assert 0.0088 < found.lower <= 0.00891412086 <= found.upper


@pytest.mark.nightly
def test_a_wide_grid_keeps_its_lower_end() -> None:
    found = compose(sampled(10_000)).epsilon("1e-6")
    assert found.lower is not None
    assert 0.846726 < found.lower <= 0.84672792 <= found.upper < 0.84673
