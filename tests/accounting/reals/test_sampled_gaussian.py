r"""The moments of sampled Gaussian noise by another quadrature; each error term and its absence."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import acb, arb

from accounting.fourier.factor import Grid
from accounting.fourier.smooth_factor import FadingNodes, Nodes
from accounting.reals.mixture import Direction
from accounting.reals.sampled_gaussian import SampledGaussian
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import precision

CASES = [
    ("1", "1/100", "6", 0.0),
    ("1", "1/100", "6", 40.0),
    ("1", "1/100", "1/2", 300.0),
    ("1/2", "1/5", "3", 12.0),
    ("4", "1/100", "30", 100.0),
    ("50", "1/3", "20", 30.0),
    ("1/4", "1/1000", "1/4", 5.0),
]


def law(sigma: str, rate: str, *, present: bool) -> SampledGaussian:
    direction = Direction(rate=Fraction(rate), present=present)
    return SampledGaussian(variance=Fraction(sigma) ** 2, direction=direction)


def moment(sigma: str, rate: str, c: float, y: float, *, present: bool, beside: float = 0.0) -> acb:
    r"""E[e^(zL)] by flint's rigorous adaptive quadrature, from the two densities themselves.

    Along Im x = ``beside``, where the integrand of a large y does not turn so often.
    """
    s, q = arb(Fraction(sigma).numerator) / Fraction(sigma).denominator, Fraction(rate)
    share = arb(q.numerator) / q.denominator

    def integrand(x: acb, analytic: bool) -> acb:
        ratio = 1 - share + share * ((2 * x - 1) / (2 * s * s)).exp()
        without = (-x * x / (2 * s * s)).exp() / (s * (2 * arb.pi()).sqrt())
        loss = ratio.log(analytic=analytic)
        mass, loss = (without * ratio, loss) if present else (without, -loss)
        return mass * (acb(c, y) * loss).exp()

    far, width = (c + 1) if present else 0.0, 14 * float(s)
    ends = acb(-width - (0 if present else c), beside), acb(far + width, beside)
    return acb.integral(integrand, *ends, rel_tol=2.0**-100)


def summed(nodes: Nodes | FadingNodes, y: float) -> acb:
    pairs: Any = zip(nodes.weights, nodes.losses, strict=True)
    terms = ((acb(0, y) * acb(l)).exp() * acb(w) for w, l in pairs)
    return sum(terms, acb(0))


def off(nodes: Nodes | FadingNodes, y: float, truth: acb) -> arb:
    return abs(summed(nodes, y) - truth)


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize(("sigma", "rate", "tilt", "y"), CASES)
def test_the_sum_is_the_moment(sigma: str, rate: str, tilt: str, y: float, present: bool) -> None:
    with precision(128):
        truth = moment(sigma, rate, float(Fraction(tilt)), y, present=present)
        nodes = law(sigma, rate, present=present).nodes(Fraction(tilt), y, 40.0, 1 << 13)
        size = sum(nodes.weights, arb(0))
        assert off(nodes, y, truth) <= nodes.rest + size * arb(2) ** -90
        assert nodes.rest < size * arb(2) ** -50
        # A line beside the real one has nodes for all y, and not many more.
        faded = law(sigma, rate, present=present).fading(Fraction(tilt), 40.0, 1 << 10)
        assert faded is not None
        assert all(loss.imag > 0 for loss in faded.losses)
        assert off(faded, y, truth) <= faded.rest + size * arb(2) ** -60
        assert faded.rest < size * arb(2) ** -50
        # The bound far up the line holds, and within a factor that a few rounds make up for.
        value = law(sigma, rate, present=present)
        if y > 0:
            bound = value.far(Fraction(tilt), np.array([y]))[0]
            here = float(abs(truth)) / math.exp(value.cumulants(float(Fraction(tilt)))[0])
            assert bound >= here
            assert bound <= 40 * here + 1


class NoAliases(SampledGaussian):
    r"""A mutant: what the integrand has beside the line is forgotten."""

    __slots__ = ()

    def beside(self, r: arb, angle: float, reach: float, nats: float) -> arb:
        del r, angle, reach, nats
        return arb(2) ** -300


def test_without_the_aliases_the_error_is_understated() -> None:
    sigma, rate, y = "1", "1/100", 300.0
    direction = Direction(rate=Fraction(rate), present=True)
    with precision(128):
        truth = moment(sigma, rate, 0.5, y, present=True)
        honest = law(sigma, rate, present=True).nodes(Fraction(1, 2), 0.0, 5.0, 1 << 13)
        mutant = NoAliases(variance=Fraction(1), direction=direction)
        found = mutant.nodes(Fraction(1, 2), y, 5.0, 1 << 13)
        assert off(found, y, truth) > found.rest
        wide = NoAliases(variance=Fraction(16), direction=direction)
        faded = wide.fading(Fraction(30), 5.0, 1 << 13)
        assert faded is not None
        assert off(faded, 0.0, moment("4", rate, 30.0, 0.0, present=True)) > faded.rest
        # Nodes for y = 0 say nothing at y = 300: the reach matters, and so does its proof.
        assert off(honest, y, truth) > honest.rest


@pytest.mark.parametrize("present", [True, False])
def test_far_up_the_line(present: bool) -> None:
    r"""Where nodes on the real line are too many, those beside it stand in floats."""
    sigma, rate, c = "1/2", "1/10", 3.0
    with precision(128):
        value = law(sigma, rate, present=present)
        factor, grid = value.part().factor(Fraction(c)), Grid(step=0.25, depth=7, blocks=1200)
        blocks = np.array([0, 3, 250, 700, 1199])
        found, y = factor.on(grid).values(blocks), grid.frequencies(blocks)
        with pytest.raises(PrecisionExhausted):
            value.nodes(Fraction(c), float(y[-1]), 40.0, 1 << 13)
        for j in (2, 130, 300, 500, 639):
            side = 0.3 if present else -0.3
            truth = moment(sigma, rate, c, float(y[j]), present=present, beside=side)
            away = abs(acb(complex(found.centres[j])) - truth / factor.log_scale.exp())
            assert away <= found.radii[j] < 1e-11
        # Of every unit of fall forgotten nothing is left of the sum.
        faded = value.fading(Fraction(c), 40.0, 1 << 10)
        assert faded is not None
        level = replace(faded, losses=tuple(acb(loss.real) for loss in faded.losses))
        assert off(level, float(y[300]), truth) > 1e6 * faded.rest


@pytest.mark.parametrize("present", [True, False])
def test_cumulants_of_one_unit_of_tilt(present: bool) -> None:
    q, sigma = 0.2, 1.5
    found = law("3/2", "1/5", present=present).cumulants(1.0)[0]
    # M(1) = E_P[P/Q]: 1 + q^2 (e^(1/s^2) - 1) with the unit; by quadrature without it.
    closed = math.log1p(q * q * math.expm1(1 / sigma**2))
    with precision(96):
        other = math.log(float(moment("3/2", "1/5", 1.0, 0.0, present=False).real))
    assert found == pytest.approx(closed if present else other, rel=1e-9)


def test_too_many_nodes_are_refused() -> None:
    with precision(128), pytest.raises(PrecisionExhausted, match="nodes"):
        law("1", "1/100", present=True).nodes(Fraction(6), 1e6, 40.0, 1 << 13)
