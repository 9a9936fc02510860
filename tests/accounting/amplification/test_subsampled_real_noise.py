"""Tests of subsampled real noise: quadrature of one round, extremes, groups, replaced units."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from accounting import NotDerived, PoissonSampled, PrivacyCurve, compose
from accounting.certificates.certify import certify
from accounting.descriptions.real_noise import Gaussian, RealNoise
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore import DiscreteGaussian
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope, Sensitivity
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.dpcore.refusals import refusal

Terms = list[float]  # weights of the shifts -1, 0, 1, ...
X = np.arange(-60.0, 60.0, 1e-3) + 5e-4


def density(curve: Any, terms: Terms) -> Any:
    """Return the mixture of the noise around shifts, each with its weight, in cells of 1e-3."""
    law, size = (stats.norm, "sigma") if hasattr(curve.noise, "sigma") else (stats.laplace, "scale")
    scale = float(Fraction(getattr(curve.noise, size)))
    return 1e-3 * sum(w * law.pdf(X, at, scale) for at, w in enumerate(terms, -1) if w)


def members(count: int, rate: str) -> Terms:
    return [0.0, *stats.binom.pmf(range(count + 1), count, float(Fraction(rate))).tolist()]


def swapped(rate: str) -> tuple[Terms, Terms]:
    g = float(Fraction(rate))
    return [0.0, 1 - g, g], [g, 1 - g]


PHI = 2e-14 / math.sqrt(math.tau)
NORMAL, LAPLACE = releases.gaussian, releases.laplace
NOBODY: Terms = [0.0, 1.0]
# Scheme with its curve, arguments, weights of the shifts on both datasets, epsilon.
ROUNDS: list[tuple[Any, Any, dict[str, Any], Terms, Terms, str]] = [
    *(
        (releases.poisson, NORMAL(s), {"rate": q, "members": k}, members(k, q), NOBODY, epsilon)
        for s, q, k, epsilon in (
            ("1", "1/100", 1, "1/10"), ("1/2", "1/5", 1, "1"), ("1", "1/10", 2, "3/10"),
            ("2", "1/4", 5, "1/2"), ("1", "1/2", 3, "1"), ("4", "1/20", 8, "0.1"),
        )
    ),
    *(
        (releases.replaced, curve, {"rate": q}, *swapped(q), epsilon)
        for curve, q, epsilon in (
            (NORMAL("1"), "1/100", "1/100"), (NORMAL("1/2"), "1/5", "1/2"),
            (NORMAL("4"), "1/3", "1/20"), (LAPLACE("2"), "1/10", "1/20"),
            (LAPLACE("1"), "1/2", "1/2"),
        )
    ),
]  # fmt: skip


@by_day(3)
@pytest.mark.parametrize(("scheme", "curve", "given", "here", "there", "epsilon"), ROUNDS)
def test_one_round_is_the_worse_of_two_directions(
    scheme: Any, curve: Any, given: dict[str, Any], here: Terms, there: Terms, epsilon: str
) -> None:
    source, e = scheme(curve=curve, **given), float(Fraction(epsilon))
    p, q = density(curve, here), density(curve, there)
    both = [float(np.maximum(a - math.exp(e) * b, 0).sum()) for a, b in ((p, q), (q, p))]
    found = ends(source.delta(epsilon, "1e-12"))
    assert (found.lower_float, found.upper_float) == pytest.approx((max(both),) * 2, rel=1e-6)
    assert source.epsilon(Fraction(found.upper), "1e-10").upper_float == pytest.approx(e, rel=1e-9)
    for ((_, pair),), truth in zip(source.directions, both, strict=False):
        assert releases.of_pair(pair, epsilon) == pytest.approx(truth, rel=1e-6, abs=1e-14)
    # The mutant: the pair with and without one unit costs less than a group or a replaced unit.
    alone = releases.poisson(curve=curve, rate=given["rate"]).delta(epsilon)
    assert given.get("members") == 1 or alone.upper < max(both) * 0.99


# Sigma, scheme and rate, rounds, quantity and its point; both bounds lie between least and most, on
# either side of the reference. Masses below the range of floats must not outweigh the law.
EXTREMES: list[tuple[str, Any, str, int, str, str, Any, Any, Any]] = [
    # Between a bound from one round and Chernoff's bound on all: far below any float sum.
    ("4", releases.poisson, "1/100", 1000, "delta", "1", 1e-36, None, 1e-32),
    ("1", releases.poisson, "1/100", 10**6, "delta", "145.4968355", 9.99e-7, None, 1.001e-6),
    ("1000", releases.poisson, "1/2", 10, "delta", "0", 1e-5, None, 1e-2),
    ("1", releases.poisson, "1", 10**4, "delta", "5500", 1e-9, None, 1),
    ("100", releases.poisson, "1/100", 2, "delta", "1/2000", 0, None, 1e-8),
    ("10000", releases.poisson, "1/100", 2, "delta", "1/2000", 0, None, 1e-25),
    *(
        row
        for kind in (releases.poisson, releases.replaced)
        for row in (
            # One round loses at least D^2/2 sigma^2, a hundred unsampled ones 100 (2D)^2/2 sigma^2.
            ("1e-9", kind, "1/100", 100, "epsilon", "1e-6", 4.9e17, None, 2.1e20),
            ("1e12", kind, "1/100", 100, "epsilon", "1e-6", 0, 0, 0),
            ("1e12", kind, "1/100", 100, "delta", "0", 1e-15, None, 1e-11),
        )
    ),
    # Except near the two shifts the losses are 0 to 10^17 digits: no precision resolves them.
    ("1e-9", releases.replaced, "1/100", 1, "delta", "0", 0, Fraction(1, 100), 0.0101),
    ("1e12", releases.replaced, "1/100", 1, "epsilon", "1e-6", 0, 0, 0),
    # (1/100) (2/sigma) phi(0), up to the third power of 1/sigma.
    ("1e12", releases.replaced, "1/100", 1, "delta", "0", PHI * (1 - 1e-9), None, PHI * (1 + 1e-9)),
    ("1", releases.replaced, "1e-300", 1, "epsilon", "1e-6", 0, 0, 0),
    # Next to (1/100)^3, the probability that all three are sampled, from 2/sigma^2 to 9/2 sigma^2.
    ("1e-6", partial(releases.poisson, members=3), "1/100", 1, "epsilon", "1e-6",
     1.9e12, 3e12, 4.6e12),
]  # fmt: skip
EXACT = range(4)  # rows that meet the default width


@by_day(1)
@pytest.mark.parametrize("row", range(len(EXTREMES)))
def test_extreme_parameters_have_a_lower_and_an_upper_bound(row: int) -> None:
    sigma, scheme, rate, rounds, question, at, least, truth, most = EXTREMES[row]
    source: Any = scheme(curve=NORMAL(sigma), rate=rate)
    found = getattr(compose((source, rounds)) if rounds > 1 else source, question)(at, "1e-6")
    assert least <= found.lower <= found.upper <= most
    assert truth is None or found.lower <= truth <= found.upper
    assert row not in EXACT or found.upper - found.lower <= found.upper / 10**6


INTEGERS = PrivacyCurve(
    noise=DiscreteGaussian(sigma_squared=4), sensitivity=1, scope=releases.ADD_REMOVE
)
KINDS = [LAPLACE(2), INTEGERS, NORMAL(1, scope=Scope())]
COUNTS = (0, -1, "1.5")
GOOD: dict[str, Any] = {"curve": NORMAL(1), "rate": "1/2"}


@pytest.mark.parametrize(
    ("scheme", "good", "bad"),
    [
        (
            releases.poisson,
            {"members": 2},
            {"curve": KINDS, "members": (0, -1, 65, "2.5")},
        ),
        (releases.poisson, {}, {"curve": KINDS[2:]}),
        (releases.replaced, {}, {"curve": KINDS[1:]}),
        (
            releases.truncated,
            {"examples": 100, "most": 10},
            {
                "curve": [*KINDS[::2], releases.poisson(curve=NORMAL(1), rate="1/2")],
                "examples": COUNTS,
                "most": COUNTS,
            },
        ),
        (
            releases.allocated,
            {"rounds": 10, "rate": None},
            {"curve": KINDS, "rounds": (0, -1, 10**7, "1.5"), "picks": (0, 11, "1.5")},
        ),
    ],
)
def test_bad_input_is_refused(scheme: Any, good: dict[str, Any], bad: dict[str, Any]) -> None:
    whole = {name: value for name, value in {**GOOD, **good}.items() if value is not None}
    scheme(**whole)
    rates = {"rate": (0, "3/2", -1, "nan", math.inf)} if "rate" in whole else {}
    releases.refuses(scheme, whole, {**rates, **bad})


# -- groups: other directions, every subset, dp-accounting -----------------------------------------


def group(sigma: str, rate: str, members: int) -> Any:
    return releases.poisson(curve=releases.gaussian(sigma), rate=rate, members=members)


def binomial(members: int, rate: float) -> list[tuple[float, float]]:
    r"""Sum over every subset of the members."""
    found = [0.0] * (members + 1)
    for chosen in itertools.product((0, 1), repeat=members):
        found[sum(chosen)] += math.prod(rate if there else 1 - rate for there in chosen)
    return [(chance, float(at)) for at, chance in enumerate(found)]


def test_group_members_that_move_in_other_directions_are_not_worse() -> None:
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
            releases.of_pair(pair, str(e)) for ((_, pair),) in group("3/2", "3/10", 2).directions
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
    mixture = releases.shifted(curve=releases.gaussian("3/2"), weights=weights)
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
        releases.shifted(curve=releases.gaussian("1"), weights=["1/2", "1/4"])
    for bad in (["1"], ["3/2", "-1/2"], ["1/2", "1/2", "0"], [0] * 65 + [1]):
        with pytest.raises(InvalidParameter, match="weights"):
            releases.shifted(curve=releases.gaussian("1"), weights=bad)
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


def test_a_renyi_divergence_beyond_floats_is_at_most_that_without_sampling() -> None:
    group = releases.poisson(NORMAL("1/10"), rate="1/1000", members=3)
    found = group.renyi(2)
    # At least that of the shift by all members: 900 + 2 log(10^-9).
    assert 900 - 18 * math.log(10) < found.upper <= 900
    assert found.lower == 0


def test_an_unsampled_group_moves_the_sum_by_its_size() -> None:
    assert Sensitivity(2).times(3) == Sensitivity(6)
    assert Sensitivity.l1(2).times(3) == Sensitivity.l1(6)
    assert Sensitivity.l2_squared(2).times(3) == Sensitivity.l2_squared(18)
    assert Sensitivity.box((1, 2)).times(3) == Sensitivity.box((3, 6))
    refusal(lambda: Sensitivity(1).times(0))
    together = replace(releases.gaussian("2", 3), scope=group("2", "1/3", 3).scope)
    assert group("2", "1/3", 3).unsampled == together


# -- a replaced unit: other neighbours, dp-accounting ----------------------------------------------


def replaced(noise: RealNoise, rate: str, sensitivity: Sensitivity | int = 1) -> Any:
    curve = RealCurve(noise=noise, sensitivity=sensitivity, scope=releases.ADD_REMOVE)
    return releases.replaced(curve=curve, rate=rate)


def test_no_other_pair_of_replaced_units_is_worse() -> None:
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
    from accounting.interop.from_dp_accounting import from_dp_event

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


def test_a_sampling_rate_of_one_is_no_sampling() -> None:
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


def test_a_total_of_rare_samples_is_at_least_the_cost_of_one_round() -> None:
    r"""The total costs at least one round, which is computed from the normal law alone."""
    curve = releases.gaussian(1)
    part = PoissonSampled(curve=curve, rate="1e-9")
    found, one = ends(compose((part, 30)).delta(1, "1e-2")), ends(part.delta(1))
    assert 0 < one.lower * Fraction(999999, 10**6) <= found.lower <= found.upper < 1e-12


@pytest.mark.parametrize("rate", ["1e-320", "1e-400"])
@pytest.mark.parametrize("kind", [releases.poisson, releases.replaced])
def test_rates_below_the_smallest_float_are_not_rounded_to_zero(kind: Any, rate: str) -> None:
    curve = releases.gaussian(1)
    found = ends(compose((kind(curve=curve, rate=rate), 10)).delta("1/10"))
    assert 0 <= found.lower <= 10 * Fraction(rate)
    assert 0 < found.upper <= 1
