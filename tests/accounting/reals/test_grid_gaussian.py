r"""Wide discrete Gaussian noise by the real law's moments, against sums over the integers."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb

from accounting.reals.grid_gaussian import GridGaussian, _Cuts, _cuts, is_smooth
from accounting.reals.mixture import Direction
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


@pytest.mark.parametrize("present", [True, False])
def test_bounds_hold_below_the_echo_and_beyond_it(
    present: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the frequency, far + ripple is above the moment; without what is cut it is not."""
    one = law(present, squared=3600, shift=60)
    echo = 2 * math.pi * 60
    places = np.array([20.0, 100.0, 250.0, *(echo * j for j in (0.9, 1, 2, 5.5, 40, 80, 300))])
    size = moment(present, 3.0, 0.0, 3600, 60).real
    truths = np.array([abs(moment(present, 3.0, y, 3600, 60)) / size for y in places])

    def hold() -> bool:
        far = one.far(Fraction(3), places)
        bounds = (far + one.ripple(Fraction(3), places)) * (1 + 1e-9) + 1e-15
        return bool((truths <= bounds).all())

    with precision(128):
        assert hold()
        # It says something at the first echoes, where a strip without a cut says nothing.
        assert (one.ripple(Fraction(3), places)[:5] < 0.7).all()
        _forget()
        monkeypatch.setattr(_Cuts, "apart", mutated(_Cuts.apart, "edge + self.beyond", "edge"))
        assert not hold()
    _forget()


def _forget() -> None:
    from accounting.reals.grid_gaussian import _on_the_ladder

    _on_the_ladder.cache_clear()


@pytest.mark.parametrize("present", [True, False])
def test_left_of_a_cut_the_sum_is_the_integral_but_for_its_end(present: bool) -> None:
    """They differ by what is bounded beside the line and at X; the first alone is too little."""
    one, c, shift = law(present, squared=3600, shift=60), 3.0, 60
    rate, v = float(RATE), 1.0
    with precision(128):
        cuts = _cuts(one, Fraction(3), 128)
        low, width = (float(each) for each in one.places(one.direction.power(arb(3))))
    first, step = (math.floor(low * shift) + 0.5) / shift, math.ceil(width * shift) / shift
    scale = math.exp(one.cumulants(c)[0])

    def integrand(x: np.ndarray, y: float) -> Any:
        logs = np.log1p(rate * np.expm1((2 * x - 1) / (2 * v)))
        z = complex(c, y)
        exponents = (z + 1) * logs if present else -z * logs
        return np.exp(exponents - x * x / (2 * v)) / math.sqrt(math.tau * v) / scale

    finer, short_of_it = 64, 0
    for j, y in ((40, 900.0), (64, 800.0), (70, 500.0), (80, 340.0)):
        at = first + j * step
        assert y * cuts.pulls[j] < cuts.room
        count = round((at - first) * shift) + 400
        x = at - (np.arange(count) + 0.5) / shift
        fine = at - (np.arange(count * finer) + 0.5) / (shift * finer)
        total, integral = integrand(x, y).sum() / shift, integrand(fine, y).sum() / shift / finer
        gap = abs(total - integral)
        beside = np.exp(cuts.sizes[: j + 1] + y * cuts.turns[: j + 1]).sum()
        edge = cuts.edges[j] / (cuts.room - y * cuts.pulls[j])
        assert gap <= 1.001 * (beside + edge)
        short_of_it += int(gap > 1.001 * beside)
    assert short_of_it >= 2


def test_the_grid_is_told_to_fade_where_many_rounds_hide_it() -> None:
    wide = GridGaussian.of(Fraction(10**6), 1000, Direction(rate=Fraction(1, 100), present=True))
    assert wide.fades(10_000, 1e-8)
    assert not law(True).fades(2, 1e-8)


def test_the_norm_of_the_law_is_nearly_that_of_the_integral() -> None:
    with precision(128):
        found = GridGaussian.of(Fraction(1), 1, Direction(rate=RATE, present=True)).excess()
        truth = mpmath.jtheta(3, 0, mpmath.exp(-0.5)) / mpmath.sqrt(2 * mpmath.pi) - 1
        assert 0 < float(truth) <= float(found) < 1.001 * float(truth)
