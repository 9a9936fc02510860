r"""Tests of group privacy: quadrature of one round, other groups, every subset, dp-accounting."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from accounting import NotDerived, compose
from accounting.certificates.certify import certify
from dpcore import Sensitivity
from dpcore.errors import InvalidParameter
from tests.support.accounting import subsampled_releases
from tests.support.accounting.bound_ends import ends
from tests.support.dpcore.refusals import refusal


def group(sigma: str, rate: str, members: int) -> Any:
    return subsampled_releases.poisson(
        curve=subsampled_releases.gaussian(sigma), rate=rate, members=members
    )


def binomial(members: int, rate: float) -> list[tuple[float, float]]:
    r"""Sum over every subset of the members."""
    found = [0.0] * (members + 1)
    for chosen in itertools.product((0, 1), repeat=members):
        found[sum(chosen)] += math.prod(rate if there else 1 - rate for there in chosen)
    return [(chance, float(at)) for at, chance in enumerate(found)]


def test_members_that_move_otherwise_are_not_worse() -> None:
    r"""Two members in the plane, by sums over a grid: equal directions are the worst."""
    sigma, q = 1.5, 0.3
    x = np.linspace(-9, 11, 401)
    cell = (x[1] - x[0]) ** 2

    def density(at: Any) -> Any:
        return np.exp(-((x[:, None] - at[0]) ** 2 + (x[None, :] - at[1]) ** 2) / (2 * sigma**2)) / (
            2 * np.pi * sigma**2
        )

    def worst(a: Any, b: Any, e: float) -> tuple[float, float]:
        p = (1 - q) ** 2 * density((0, 0)) + q * (1 - q) * (density(a) + density(b))
        p = p + q * q * density((a[0] + b[0], a[1] + b[1]))
        none = density((0, 0))
        gains = (p - np.exp(e) * none, none - np.exp(e) * p)
        there, gone = (float(np.maximum(each, 0).sum() * cell) for each in gains)
        return there, gone

    for e in (0.0, 0.2, 0.6):
        most = [
            subsampled_releases.of_pair(pair, str(e))
            for ((_, pair),) in group("3/2", "3/10", 2).directions
        ]
        assert worst((1, 0), (1, 0), e) == pytest.approx(most, rel=1e-3, abs=1e-9)
        for turn in (0.5, 1.2, 2.0, math.pi):
            b = (math.cos(turn), math.sin(turn))
            for other in (b, (0.4 * b[0], 0.4 * b[1])):
                assert all(
                    found <= bound + 1e-9
                    for found, bound in zip(worst((1, 0), other, e), most, strict=True)
                )


def test_dp_accounting_of_mixtures() -> None:
    r"""dp-accounting's PLD of a mixture of Gaussians is an upper bound; a grid of 1e-2 is fast."""
    dp = pytest.importorskip("dp_accounting.dp_event")
    pld = pytest.importorskip("dp_accounting.pld")
    shifts = binomial(4, 0.02)
    event = dp.MixtureOfGaussiansDpEvent(1.5, [at for _, at in shifts], [w for w, _ in shifts])
    theirs = (
        pld.PLDAccountant(value_discretization_interval=1e-2).compose(event, 200).get_epsilon(1e-6)
    )
    found = ends(compose((group("3/2", "1/50", 4), 200)).epsilon("1e-6"))
    assert found.lower <= theirs
    assert found.upper_float == pytest.approx(theirs, rel=2e-2)


@pytest.mark.parametrize("weights", [("0", "1/4", "3/4"), ("1/2", "0", "3/8", "1/8")], ids=str)
def test_any_mixture_of_shifts_by_quadrature(weights: tuple[str, ...]) -> None:
    r"""One round and two, both directions; without a shift of 0 the loss is unbounded."""
    mixture = subsampled_releases.shifted(
        curve=subsampled_releases.gaussian("3/2"), weights=weights
    )
    chances = [float(Fraction(each)) for each in weights]
    x, step = np.linspace(-14.0, 18.0, 4001, retstep=True)
    base = np.exp(-x * x / 4.5)
    mixed = np.sum([w * np.exp(-((x - j) ** 2) / 4.5) for j, w in enumerate(chances)], axis=0)
    weight = step / math.sqrt(math.tau * 2.25)
    for epsilon in (0.25, 1.0):
        truth = max(
            np.maximum(p - math.exp(epsilon) * q, 0).sum() * weight
            for p, q in ((mixed, base), (base, mixed))
        )
        found = mixture.delta(Fraction(epsilon))
        assert found.upper_float == pytest.approx(truth, rel=1e-5)
        assert found.upper <= mixture.unsampled.delta(Fraction(epsilon)).upper
    a, b = base[::8] * weight * 8, mixed[::8] * weight * 8
    two = max(
        np.maximum(np.outer(p, p) - math.e * np.outer(q, q), 0).sum() for p, q in ((a, b), (b, a))
    )
    assert compose((mixture, 2)).delta(1).upper_float == pytest.approx(two, rel=1e-3)
    with pytest.raises(InvalidParameter, match="must sum to 1"):
        subsampled_releases.shifted(curve=subsampled_releases.gaussian("1"), weights=["1/2", "1/4"])
    for bad in (["1"], ["3/2", "-1/2"], ["1/2", "1/2", "0"], [0] * 65 + [1]):
        with pytest.raises(InvalidParameter, match="weights"):
            subsampled_releases.shifted(curve=subsampled_releases.gaussian("1"), weights=bad)
    with pytest.raises(NotDerived, match="verify supports only"):
        certify(compose((mixture, 2)), deltas=["1e-3"])


@pytest.mark.parametrize(
    ("sigma", "rate", "members", "rounds"),
    [
        ("0.3", "1/1000", 3, 2000),
        pytest.param("0.4", "1/10000", 3, 200000, marks=pytest.mark.nightly),
    ],
)
def test_narrow_noise_at_a_small_rate(sigma: str, rate: str, members: int, rounds: int) -> None:
    r"""A rare large loss dominates: both ends against an FFT of the loss distribution in floats."""
    found = ends(compose((group(sigma, rate, members), rounds)).epsilon("1e-9", "1e-5"))
    assert found.upper - found.lower < Fraction(1, 10**4) * found.upper
    truth = by_fft(float(sigma), binomial(members, float(Fraction(rate))), rounds, 1e-9)
    assert found.upper_float == pytest.approx(truth, rel=2e-3)
    other = by_fft(float(sigma), binomial(members - 1, float(Fraction(rate))), rounds, 1e-9)
    assert other < 0.9 * truth


def by_fft(sigma: float, shifts: Any, rounds: int, delta: float) -> float:
    r"""Return epsilon by convolution on a grid of 1e-3, each loss split between two neighbours."""
    reach, step = 120.0, 1e-3
    x = np.linspace(-12 * sigma, 12 * sigma + len(shifts), 400_001)
    logs = [np.log(w) + (2 * at * x - at * at) / (2 * sigma**2) for w, at in shifts]
    losses = np.logaddexp.reduce(logs, axis=0)
    masses = np.exp(losses - x * x / (2 * sigma**2)) * (x[1] - x[0])
    masses /= masses.sum()
    place = (losses + reach) / step
    inside = (place >= 0) & (place < 2 * reach / step - 2)
    low = np.floor(place[inside]).astype(int)
    share, count = place[inside] - low, int(2 * reach / step)
    grid = np.bincount(low, masses[inside] * (1 - share), count)
    grid += np.bincount(low + 1, masses[inside] * share, count)
    shift = int(reach / step)
    total = np.fft.ifft(np.fft.fft(np.roll(grid, -shift)) ** rounds).real
    at = np.fft.fftfreq(count, 1 / (count * step))
    lost = rounds * float(masses[~inside & (losses > 0)].sum())

    def excess(epsilon: float) -> float:
        above = at > epsilon
        return float((total[above] * -np.expm1(epsilon - at[above])).sum()) + lost - delta

    return float(brentq(excess, 0.0, reach - 1))


def test_without_a_sample_a_group_moves_further() -> None:
    assert Sensitivity(2).times(3) == Sensitivity(6)
    assert Sensitivity.l1(2).times(3) == Sensitivity.l1(6)
    assert Sensitivity.l2_squared(2).times(3) == Sensitivity.l2_squared(18)
    assert Sensitivity.box((1, 2)).times(3) == Sensitivity.box((3, 6))
    refusal(lambda: Sensitivity(1).times(0))
    together = replace(subsampled_releases.gaussian("2", 3), scope=group("2", "1/3", 3).scope)
    assert group("2", "1/3", 3).unsampled == together
