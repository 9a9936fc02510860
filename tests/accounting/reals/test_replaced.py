r"""The moments of samples with a replaced unit, by flint's quadrature of the two densities."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import acb, arb

from accounting.fourier.smooth_factor import FadingNodes, Nodes
from accounting.loss.normal_tail import upper_tail
from accounting.reals.inverse import inverse
from accounting.reals.mixture import Direction, SampledLaw
from accounting.reals.replaced import ReplacedGaussian, ReplacedLaplace
from accounting.reals.sampled_gaussian import SampledGaussian
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball, precision

GAUSSIAN = [("1", "1/100", "6", 40.0), ("1", "1/100", "1/2", 300.0), ("1/2", "1/5", "3", 2.0)]
GAUSSIAN += [("4", "1/100", "30", 100.0), ("50", "1/3", "20", 30.0)]
LAPLACE = [("1", "1/100", "6", 40.0), ("5", "1/5", "3", 12.0), ("3", "1", "1/2", 7.0)]


def here(rate: str) -> Direction:
    return Direction(rate=Fraction(rate), present=True)


def term(p: acb, q: acb, z: acb, analytic: bool = False) -> acb:
    return p * (z * (p.log(analytic=analytic) - q.log(analytic=analytic))).exp()


def gaussian(sigma: str, rate: str, z: acb) -> acb:
    s, gamma = ball(Fraction(sigma)), ball(Fraction(rate))

    def integrand(x: acb, analytic: bool) -> acb:
        p, q = (1 - gamma + gamma * ((w * x - 1) / (2 * s * s)).exp() for w in (2, -2))
        none = (-x * x / (2 * s * s)).exp() / (s * (2 * arb.pi()).sqrt())
        return none * term(p, q, z, analytic)

    width = 14 * float(s)
    return acb.integral(integrand, -width, 2 * float(z.real) + 1 + width, rel_tol=2.0**-90)


def laplace(spread: str, rate: str, z: acb) -> acb:
    l, gamma = ball(Fraction(spread)), ball(Fraction(rate))

    def mixed(u: acb | arb) -> acb:
        return 1 - gamma + gamma * acb(u).exp()

    low, high = mixed(-l), mixed(l)
    right = acb.integral(
        lambda x, on: l / 2 * (-l * x).exp() * term(mixed((2 * x - 1) * l), low, z, on), 0, 1
    )
    left = acb.integral(
        lambda x, on: l / 2 * (-l * x).exp() * term(low, mixed((2 * x - 1) * l), z, on), 0, 1
    )
    return right + left + (-l).exp() / 2 * (term(high, low, z) + term(low, high, z))


def off(nodes: Nodes | FadingNodes, y: float, truth: acb) -> arb:
    pairs: Any = zip(nodes.weights, nodes.losses, strict=True)
    terms = ((acb(0, y) * acb(l)).exp() * acb(w) for w, l in pairs)
    return abs(sum(terms, acb(0)) - truth)


def agree(law: SampledLaw, tilt: str, y: float, truth: acb, least: arb) -> None:
    nodes = law.nodes(Fraction(tilt), y, 40.0, 1 << 13)
    whole = sum(nodes.weights, arb(0))
    assert off(nodes, y, truth) <= nodes.rest + whole * arb(2) ** -80
    assert nodes.rest < whole * arb(2) ** -40
    faded = law.fading(Fraction(tilt), 40.0, 1 << 11)
    assert (faded is None) is isinstance(law, ReplacedLaplace)
    assert faded is None or off(faded, y, truth) <= faded.rest + whole * arb(2) ** -60
    value, slope, _ = law.cumulants(float(Fraction(tilt)))
    assert value == pytest.approx(float(whole.log()), abs=1e-9)
    assert slope == pytest.approx(float(least), rel=1e-6)
    bound = law.far(Fraction(tilt), np.array([y]))[0]
    assert float(abs(truth)) / math.exp(value) <= bound


@pytest.mark.parametrize(("sigma", "rate", "tilt", "y"), GAUSSIAN)
def test_gaussian(sigma: str, rate: str, tilt: str, y: float) -> None:
    with precision(128):
        c = Fraction(tilt)
        law = ReplacedGaussian(variance=Fraction(sigma) ** 2, direction=here(rate))
        step = ball(Fraction(1, 2**20))
        ends = [gaussian(sigma, rate, acb(ball(c) + h)).real.log() for h in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        agree(law, tilt, y, gaussian(sigma, rate, acb(float(c), y)), slope)


@pytest.mark.parametrize(("spread", "rate", "tilt", "y"), LAPLACE)
def test_laplace(spread: str, rate: str, tilt: str, y: float) -> None:
    with precision(128):
        c = Fraction(tilt)
        law = ReplacedLaplace(spread=Fraction(spread), direction=here(rate))
        step = ball(Fraction(1, 2**20))
        ends = [laplace(spread, rate, acb(ball(c) + h)).real.log() for h in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        agree(law, tilt, y, laplace(spread, rate, acb(float(c), y)), slope)


def test_one_shift_alone_is_another_law() -> None:
    r"""The mutant: the unit against nobody, not against one that moves the other way."""
    with precision(128):
        truth = gaussian("1", "1/100", acb(6.0, 40.0))
        mutant = SampledGaussian(variance=Fraction(1), direction=here("1/100"))
        nodes = mutant.nodes(Fraction(6), 40.0, 40.0, 1 << 13)
        assert off(nodes, 40.0, truth) > 1000 * nodes.rest


def test_the_tail_far_out() -> None:
    with precision(192):
        for x in (1, 63, 65, 100):
            wide = (arb(x) / arb(2).sqrt()).erfc() / 2
            assert upper_tail(arb(x)).overlaps(wide)
        assert upper_tail(arb(10**9) / 3).rel_accuracy_bits() > 100


def test_an_inverse_that_is_not_certain_is_refused() -> None:
    with pytest.raises(PrecisionExhausted, match="certified"):
        inverse(lambda epsilon: (-epsilon).exp() + arb(0, 1), Fraction(1, 2), 16)
    found = inverse(lambda epsilon: (-epsilon).exp(), Fraction(1, 2), 64)
    assert float(found.upper) == pytest.approx(math.log(2), rel=1e-15)
    assert found.upper - found.lower <= found.upper / 2**60
