r"""The moments of sampled Laplace noise by another quadrature."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import acb, arb

from accounting.reals.mixture import Direction
from accounting.reals.sampled_laplace import SampledLaplace
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import precision

CASES = [("1", "1/100", "6", 0.0), ("1", "1/100", "6", 40.0), ("5", "1/5", "3", 12.0)]
CASES += [("1/20", "1", "10", 500.0), ("3", "1", "1/2", 7.0)]


def law(spread: str, rate: str, *, present: bool) -> SampledLaplace:
    direction = Direction(rate=Fraction(rate), present=present)
    return SampledLaplace(spread=Fraction(spread), direction=direction)


def moment(spread: str, rate: str, c: float, y: float, *, present: bool) -> acb:
    r"""E[e^(zL)] from the densities of scale 1 around 0 and l: flint's quadrature in the middle."""
    l, q = arb(Fraction(spread).numerator) / Fraction(spread).denominator, Fraction(rate)
    share = arb(q.numerator) / q.denominator

    def mixed(ratio: acb | arb, analytic: bool = False) -> acb:
        both = 1 - share + share * ratio
        mass, loss = (both, both.log()) if present else (acb(1), -both.log())
        if analytic:
            loss = acb(both).log(analytic=True) * (1 if present else -1)
        return mass * (acb(c, y) * loss).exp()

    middle = acb.integral(
        lambda x, analytic: (-x).exp() / 2 * mixed((2 * x - l).exp(), analytic),
        0,
        l,
        rel_tol=2.0**-100,
    )
    # On either side the ratio of the two densities does not move: masses 1/2 and e^-l/2.
    return middle + mixed((-l).exp()) / 2 + mixed(l.exp()) * (-l).exp() / 2


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize(("spread", "rate", "tilt", "y"), CASES)
def test_the_sum_is_the_moment(spread: str, rate: str, tilt: str, y: float, present: bool) -> None:
    if rate == "1" and not present:
        pytest.skip("everybody is in the sample: one direction")
    c = float(Fraction(tilt))
    with precision(128):
        truth = moment(spread, rate, c, y, present=present)
        value = law(spread, rate, present=present)
        nodes = value.nodes(Fraction(tilt), y, 40.0, 1 << 13)
        terms = zip(nodes.weights, nodes.losses, strict=True)
        found = sum((w * acb(0, y * each).exp() for w, each in terms), acb(0))
        assert abs(found - truth) <= nodes.rest + arb(2) ** -85
        assert nodes.rest < sum(nodes.weights, arb(0)) * arb(2) ** -50
        if y > 0:
            scale = math.exp(value.cumulants(c)[0])
            assert value.far(Fraction(tilt), np.array([y]))[0] >= float(abs(truth)) / scale


def test_the_largest_losses() -> None:
    with precision(128):
        present, absent = (law("2", "1/4", present=side).largest for side in (True, False))
    assert float(present) == pytest.approx(math.log(0.75 + 0.25 * math.exp(2)))
    assert float(absent) == pytest.approx(-math.log(0.75 + 0.25 * math.exp(-2)))


def test_a_tiny_scale_is_refused() -> None:
    with pytest.raises(PrecisionExhausted, match="panels"):
        law("1000000", "1/2", present=True)
