r"""Tests of Poisson sampling, one unit replaced: quadrature, other neighbours, dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting import PoissonSampled, compose
from accounting.descriptions.real_noise import Gaussian, RealNoise
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore.mechanism import Scope, Sensitivity
from tests.support.accounting import subsampled_releases
from tests.support.accounting.bound_ends import ends


def replaced(noise: RealNoise, rate: str, sensitivity: Sensitivity | int = 1) -> Any:
    curve = RealCurve(noise=noise, sensitivity=sensitivity, scope=subsampled_releases.ADD_REMOVE)
    return subsampled_releases.replaced(curve=curve, rate=rate)


def test_no_other_neighbours_are_worse() -> None:
    r"""Sums of (p - e^epsilon q)+ on a fine grid in the plane, any two shifts of length <= 1."""
    rng, s, g = np.random.default_rng(5), 0.8, 0.3
    x, y = np.meshgrid(*(np.arange(-7, 7, 0.05),) * 2)

    def world(at: tuple[float, float]) -> Any:
        def normal(a: float, b: float) -> Any:
            return np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * s * s)) / (math.tau * s * s)

        return ((1 - g) * normal(0, 0) + g * normal(*at)) * 0.05**2

    epsilons = ("0", "1/10", "1/2", "1")
    ours = [replaced(Gaussian(sigma="4/5"), "3/10").delta(e).upper_float for e in epsilons]
    turns = rng.uniform(0, math.tau, (12, 2))
    sizes = rng.uniform(0.5, 1, (12, 2))
    shifts = [((1.0, 0.0), (-1.0, 0.0)), ((0.6, 0.8), (-0.6, -0.8))]
    shifts += [
        ((r * math.cos(t), r * math.sin(t)), (v * math.cos(w), v * math.sin(w)))
        for (t, w), (r, v) in zip(turns.tolist(), sizes.tolist(), strict=True)
    ]
    best = [0.0] * len(epsilons)
    for up, down in shifts:
        p, q = world(up), world(down)
        for i, e in enumerate(epsilons):
            got = float(np.maximum(p - math.exp(float(Fraction(e))) * q, 0).sum())
            assert got <= ours[i] * (1 + 1e-4)
            best[i] = max(best[i], got)
    # Opposite directions attain the bound.
    assert best == pytest.approx(ours, rel=1e-3)


def test_many_rounds_against_another_tool() -> None:
    r"""dp-accounting's PLD under REPLACE_ONE is an upper bound, at its grid slightly above."""
    dp: Any = pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    from accounting.interop.import_dp_event import from_dp_event

    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0)), 1000)
    relation = dp.NeighboringRelation.REPLACE_ONE
    pld = dp.pld.PLDAccountant(neighboring_relation=relation, value_discretization_interval=1e-3)
    theirs = pld.compose(event).get_epsilon(1e-6)
    total = compose((replaced(Gaussian(sigma=1), "1/100"), 1000))
    ours = ends(total.epsilon("1e-6"))
    assert ours.lower <= theirs <= float(ours.upper) * (1 + 1e-3)
    assert ours.upper - ours.lower <= ours.upper / 10**6
    assert from_dp_event(event, Scope()).parts == total.parts
    assert total.scope == Scope()
    # The mutant: composing the pair with and without the unit gives less than the true loss.
    part = PoissonSampled(curve=replaced(Gaussian(sigma=1), "1/100").curve, rate="1/100")
    assert compose((part, 1000)).epsilon("1e-6", "1e-4").upper < ours.lower


def test_everybody_is_no_sample() -> None:
    for moves, twice in (
        (Sensitivity.of(1), Sensitivity.of(2)),
        (Sensitivity.l2_squared(3), Sensitivity.l2_squared(12)),
        (Sensitivity.box((1, 2)), Sensitivity.box((2, 4))),
    ):
        found = replaced(Gaussian(sigma=3), "1", moves)
        plain = RealCurve(noise=Gaussian(sigma=3), sensitivity=twice)
        for ours, other in (
            (found.epsilon("1e-5"), plain.epsilon("1e-5")),
            (found.delta("1/2"), plain.delta("1/2")),
            (found.renyi(2), plain.renyi(2)),
        ):
            assert (ours.lower, ours.upper) == (other.lower, other.upper)


def test_a_rare_sample_is_told_about() -> None:
    r"""The total costs at least one round, which is computed from the normal law alone."""
    curve = subsampled_releases.gaussian(1)
    part = PoissonSampled(curve=curve, rate="1e-9")
    found, one = ends(compose((part, 1000)).delta(1)), ends(part.delta(1))
    assert 0 < one.lower * Fraction(999999, 10**6) <= found.lower <= found.upper < 1e-12


@pytest.mark.parametrize("rate", ["1e-300", "1e-320", "1e-400"])
@pytest.mark.parametrize("kind", [subsampled_releases.poisson, subsampled_releases.replaced])
def test_rates_below_floats_are_not_lost(kind: Any, rate: str) -> None:
    curve = subsampled_releases.gaussian(1)
    found = ends(compose((kind(curve=curve, rate=rate), 10)).delta("1/10"))
    assert 0 <= found.lower <= 10 * Fraction(rate)
    assert 0 < found.upper <= 1
