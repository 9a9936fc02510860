r"""The moments of a sampled group by another quadrature, both directions, and a broken twin."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import acb, arb

from accounting.fourier.smooth_factor import FadingNodes, Nodes
from accounting.reals.group import GroupDirection, GroupGaussian
from dpcore.numbers.enclosure import precision

# sigma, rate, members, tilt, y
CASES = [
    ("1", "1/100", 2, "6", 0.0),
    ("1", "1/100", 3, "3/2", 60.0),
    ("2", "1/4", 5, "5/2", 25.0),
    ("4", "1/100", 12, "6", 40.0),
]


def law(sigma: str, rate: str, members: int, *, present: bool) -> GroupGaussian:
    v = Fraction(sigma) ** 2
    here = GroupDirection(rate=Fraction(rate), present=present, members=members, variance=v)
    return GroupGaussian(variance=v, direction=here)


def moment(sigma: str, rate: str, members: int, z: acb, *, present: bool) -> acb:
    r"""E[e^(zL)] by flint's adaptive quadrature, from the densities of k + 1 shifts."""
    s, q = arb(Fraction(sigma).numerator) / Fraction(sigma).denominator, Fraction(rate)
    chances = [math.comb(members, j) * q**j * (1 - q) ** (members - j) for j in range(members + 1)]

    def integrand(x: acb, analytic: bool) -> acb:
        def density(at: int) -> acb:
            return (-((x - at) ** 2) / (2 * s * s)).exp() / (s * (2 * arb.pi()).sqrt())

        # Over the density of no shift, each term by itself.
        ratio = sum(
            (
                arb(w.numerator) / w.denominator * ((2 * j * x - j * j) / (2 * s * s)).exp()
                for j, w in enumerate(chances)
            ),
            acb(0),
        )
        loss = ratio.log(analytic=analytic)
        mass, loss = (density(0) * ratio, loss) if present else (density(0), -loss)
        return mass * (z * loss).exp()

    c, width = float(z.real), 14 * float(s)
    far = members * (c + 1) if present else 0.0
    return acb.integral(integrand, -width - (0 if present else c), far + width, rel_tol=2.0**-90)


def summed(nodes: Nodes | FadingNodes, y: float) -> acb:
    pairs: Any = zip(nodes.weights, nodes.losses, strict=True)
    terms = ((acb(0, y) * acb(l)).exp() * acb(w) for w, l in pairs)
    return sum(terms, acb(0))


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize(("sigma", "rate", "members", "tilt", "y"), CASES)
def test_the_sum_is_the_moment(
    sigma: str, rate: str, members: int, tilt: str, y: float, present: bool
) -> None:
    c = float(Fraction(tilt))
    with precision(128):
        truth = moment(sigma, rate, members, acb(c, y), present=present)
        value = law(sigma, rate, members, present=present)
        nodes = value.nodes(Fraction(tilt), y, 40.0, 1 << 13)
        size = sum(nodes.weights, arb(0))
        assert abs(summed(nodes, y) - truth) <= nodes.rest + size * arb(2) ** -80
        assert nodes.rest < size * arb(2) ** -50
        faded = value.fading(Fraction(tilt), 40.0, 1 << 13)
        assert faded is not None
        assert abs(summed(faded, y) - truth) <= faded.rest + size * arb(2) ** -60
        # One member less, or one more, is another law.
        other = law(sigma, rate, members + 1, present=present).nodes(Fraction(tilt), y, 40.0, 8192)
        assert abs(summed(other, y) - truth) > nodes.rest + other.rest + size * arb(2) ** -80
        if y > 0:
            bound = value.far(Fraction(tilt), np.array([y]))[0]
            assert bound >= float(abs(truth)) / math.exp(value.cumulants(c)[0])


class Wide(GroupDirection):
    r"""A mutant: the strip of one unit is taken, in which B has zeros."""

    __slots__ = ()

    @property
    def degree(self) -> int:
        return 1


def test_the_strip_of_one_unit_is_too_wide() -> None:
    r"""With sigma 4, B turns by more than pi/2 within the angle of one unit: aliases are missed."""
    v = Fraction(16)
    with precision(128):
        truth = moment("4", "1/4", 12, acb(2.5, 60), present=True)
        found = []
        for kind in (GroupDirection, Wide):
            here = kind(rate=Fraction(1, 4), present=True, members=12, variance=v)
            nodes = GroupGaussian(variance=v, direction=here).nodes(
                Fraction(5, 2), 60.0, 12.0, 8192
            )
            found.append(abs(summed(nodes, 60.0) - truth) <= nodes.rest)
        assert found == [True, False]


def test_bounds_beside_the_real_line_hold_and_rise() -> None:
    here = law("1", "1/5", 4, present=True).direction
    before = None
    for u in np.linspace(-6, 8, 57):
        growth, angle = arb(float(u)).exp(), arb(1.4) / 4
        bounds = tuple(float(each) for each in here.beside(growth, angle))
        g = growth * acb(0, float(angle)).exp()
        chances = [math.comb(4, j) * 0.2**j * 0.8 ** (4 - j) for j in range(5)]
        terms = [w * math.exp(-j * (j - 1) / 2) * g**j for j, w in enumerate(chances)]
        value = sum(terms, acb(0))
        slope = sum((j * term for j, term in enumerate(terms)), acb(0)) / value
        assert bounds[0] == pytest.approx(math.log(float(abs(value))), abs=1e-9)
        assert bounds[1] == pytest.approx(float(value.arg()), abs=1e-9)
        assert float(slope.real) <= bounds[2] + 1e-9
        assert before is None or all(a < b + 1e-12 for a, b in zip(before, bounds, strict=True))
        before = bounds
