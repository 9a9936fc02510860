"""Tests of `bandits.privatizers.vector_averages`: ranges, noise laws and true guarantees."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.composition.compose import compose
from accounting.guarantees.stated_guarantees import ApproxBound, PureBound
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from bandits.batch import Encoding
from bandits.privatizers.vector_averages import AveragePrivatizer, Averages, LinearTrust, _ones
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.noise import Noise
from dpcore.sampling.rng import SeededRng
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import normal_delta
from tests.support.bandits.worlds import not_none

TRUSTS: tuple[LinearTrust, ...] = ("central", "local", "shuffle")


def private(trust: LinearTrust, epsilon: str = "10", delta: str = "1/4") -> AveragePrivatizer:
    return AveragePrivatizer(trust=trust, epsilon=epsilon, delta=delta)


def variance_of(noise: Noise) -> float:
    if isinstance(noise, Binomial):
        return noise.trials / 4
    found = noise.variance
    return float(found if isinstance(found, Fraction) else found.upper)


@by_day(2)
@pytest.mark.parametrize("coordinates", [1, 7, 26])
@pytest.mark.parametrize(("epsilon", "delta"), [("10", "1/4"), ("3", "1/10")])
@pytest.mark.parametrize("trust", TRUSTS)
def test_exact_noise_meets_the_target_and_is_nearly_the_least(
    trust: LinearTrust, epsilon: str, delta: str, coordinates: int
) -> None:
    privatizer = private(trust, epsilon, delta)
    size = Averages(users=1, coordinates=coordinates)
    assert privatizer.guarantee(size) == ApproxBound(epsilon, delta)
    curve = privatizer.curve(size)
    assert curve.delta(epsilon).upper <= Fraction(delta)
    # Independent check: real Gaussian noise of the same variance, all coordinates moved by g at
    # once.
    variance = variance_of(not_none(privatizer.noise(size)))
    squared = privatizer.encoding(size).precision ** 2 * coordinates / variance
    found = float(normal_delta(squared, epsilon))
    assert found == pytest.approx(float(Fraction(delta)), rel=0.05)
    # A tenth less variance violates the guarantee.
    assert normal_delta(squared / 0.9, epsilon) > float(Fraction(delta))


def test_the_papers_gaussian_noise_is_labelled_with_its_true_delta() -> None:
    """Erratum 3: at (10, 0.25) it is only (10, 0.788621)-DP."""
    for trust in ("central", "local"):
        paper = AveragePrivatizer(trust=trust, epsilon=10, delta="1/4", calibration="paper")
        kept = not_none(paper.guarantee(Averages(users=3, coordinates=20)))
        assert kept.delta(10).upper_float == pytest.approx(0.788621, abs=2e-4)
        truth = float(normal_delta(50 / math.log(5), 10))
        assert truth == pytest.approx(kept.delta(10).upper_float, abs=2e-4)


def test_the_papers_bits_satisfy_their_claim_with_more_noise_than_necessary() -> None:
    size = Averages(users=100, coordinates=20)
    paper = AveragePrivatizer(trust="shuffle", epsilon=10, delta="1/4", calibration="paper")
    assert paper.guarantee(size) == ApproxBound(10, "1/4")
    exact = private("shuffle")
    assert paper.proxy(size) > 10_000 * exact.proxy(size)
    encoding = paper.encoding(size)
    assert encoding.high >= 2 * math.isqrt(20)  # the norm of the vector, on each coordinate


@pytest.mark.parametrize("coordinates", [1, 7])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_discrete_laplace_noise_gives_pure_epsilon_and_less_noise_does_not(
    trust: LinearTrust, coordinates: int
) -> None:
    """Remark C.9 of Li, Zhou and Ji: all averages move by g, so the largest loss is s g/scale."""
    privatizer = AveragePrivatizer(trust=trust, epsilon="3/7", calibration="pure")
    size = Averages(users=3, coordinates=coordinates)
    assert privatizer.guarantee(size) == PureBound("3/7")
    record = not_none(privatizer.record(size, "b"))
    noise, g = record.mechanism.noise, privatizer.encoding(size).precision
    assert isinstance(noise, DiscreteLaplace)

    def loss(scale: float) -> float:
        # The loss of all coordinates at an output at or below both sums, from SciPy masses.
        law = stats.dlaplace(1 / scale)
        return coordinates * float(law.logpmf(-5) - law.logpmf(-5 - g))

    assert loss(float(noise.scale)) == pytest.approx(3 / 7, rel=1e-9)
    assert loss(0.99 * float(noise.scale)) > 3 / 7 + 1e-3


@pytest.mark.parametrize("trust", ["central", "local"])
def test_pure_noise_has_its_stated_law_and_tails(trust: LinearTrust) -> None:
    privatizer = AveragePrivatizer(trust=trust, epsilon=160, calibration="pure")
    size, runs = Averages(users=6, coordinates=5), 800
    unit = privatizer.encoding(size)
    step = float(unit.high - unit.low) / unit.precision
    own = stats.dlaplace(1 / 2).pmf(np.arange(-200, 201))  # scale 5 * 64/160 = 2
    law = own
    for _ in range(5 if trust == "local" else 0):
        law = np.convolve(law, own)
    values = np.arange(len(law)) - len(law) // 2
    held = [3] * 5
    found = [privatizer.release_sums(held, size, SeededRng(seed)) for seed in range(runs)]
    drawn = np.rint((np.array(found, dtype=float) - 6 * float(unit.low)) / step).ravel() - 3
    edges = np.array([-9.5, -5.5, -2.5, -0.5, 0.5, 2.5, 5.5, 9.5])
    inside = np.diff(np.concatenate([[0], law.cumsum()[np.searchsorted(values, edges) - 1], [1]]))
    cells = np.bincount(np.searchsorted(edges, drawn), minlength=9)
    alpha = buy_alpha(f"pure released averages, {trust}: law of the noise", "1e-9")
    assert stats.chisquare(cells, inside * cells.sum()).pvalue > alpha
    narrow = np.bincount(np.searchsorted(edges, np.rint(drawn / 2)), minlength=9)
    assert stats.chisquare(narrow, inside * cells.sum()).pvalue < alpha
    # log E e^(tX) of the noise X of an average, from its masses, against proxy and tail.
    c, proxy = float(privatizer.tail(size)), float(privatizer.proxy(size))
    noise = values * step / 6
    sub_gaussian = []
    for part in (0.1, 0.5, 0.9, 0.97):
        t = part / c
        moment = math.log((law * np.exp(t * noise)).sum())
        assert moment <= -proxy / (2 * c * c) * math.log1p(-part * part)
        sub_gaussian.append(moment <= proxy * t * t / 2)
    assert sub_gaussian[0]
    assert not sub_gaussian[-1]  # so that the tail parameter is needed
    assert privatizer.tail(size) > 0 == AveragePrivatizer(trust=trust).tail(size)


@pytest.mark.parametrize("trust", TRUSTS)
def test_released_sums_have_the_law_of_their_noise(trust: LinearTrust) -> None:
    privatizer, runs = private(trust), 400
    size = Averages(users=6, coordinates=5)
    rng, unit = SeededRng(3), privatizer.encoding(size)
    step = float(unit.high - unit.low) / unit.precision
    held = [0, 1, 100, 200, 6 * unit.precision]
    found = np.array(
        [[float(v) for v in privatizer.release_sums(held, size, rng)] for _ in range(runs)]
    )
    centre = np.array(held) * step + 6 * float(unit.low)
    drawn = ((found - centre) / step).ravel()
    variance = variance_of(not_none(privatizer.noise(size)))
    alpha = buy_alpha(f"released averages, {trust}: law of the noise", "1e-9")
    assert stats.kstest(drawn, stats.norm(0, math.sqrt(variance)).cdf).pvalue > alpha
    # The test detects half of the noise, and one draw for all coordinates.
    assert stats.kstest(drawn / 2, stats.norm(0, math.sqrt(variance)).cdf).pvalue < alpha
    correlation = np.corrcoef((found - centre).T)
    assert np.abs(correlation - np.eye(5)).max() < 0.35
    shared = np.repeat((found - centre)[:, :1], 5, axis=1)
    assert np.abs(np.corrcoef(shared.T) - np.eye(5)).max() > 0.9
    # The proxy agrees with the observed variance within 25%.
    proxy = float(privatizer.proxy(size)) * 36
    assert np.var(found - centre) < proxy * 1.25
    assert np.var(found - centre) > proxy * 0.75


def test_ones_are_binomial() -> None:
    rng, runs = SeededRng(5), 4000
    drawn = np.array([_ones(67, rng) for _ in range(runs)])
    cells = np.histogram(drawn, bins=[0, 28, 31, 33, 34, 36, 39, 68])[0]
    law = stats.binom(67, 0.5)
    edges = law.cdf(np.array([27, 30, 32, 33, 35, 38, 67]))
    expected = runs * np.diff(np.concatenate([[0.0], edges]))
    alpha = buy_alpha("ones among fair bits", "1e-9")
    assert stats.chisquare(cells, expected).pvalue > alpha
    other = stats.binom(68, 0.5).cdf(np.array([27, 30, 32, 33, 35, 38, 68]))
    wrong = runs * np.diff(np.concatenate([[0.0], other]))
    assert stats.chisquare(cells, wrong).pvalue < stats.chisquare(cells, expected).pvalue


@pytest.mark.parametrize("wild", [-1e300, -2.1, -2.0, 0.3, 1.999, 2.0, 7.0, 1e300])
def test_no_client_changes_a_sum_by_more_than_g(wild: float) -> None:
    """The encoding of any value lies in [0, g], on which the guarantee depends."""
    encoding = private("central").encoding(Averages(users=1, coordinates=1))
    found = encoding.steps(np.full(200, wild), np.random.default_rng(1))
    assert 0 <= found.min() <= found.max() <= encoding.precision
    mean = min(max(wild, -2.0), 2.0)
    assert found.mean() == pytest.approx((mean + 2) / 4 * encoding.precision, abs=0.3)


def test_rounding_keeps_the_mean_and_nan_is_refused() -> None:
    encoding, world = Encoding(precision=3, low=-1, high=1), np.random.default_rng(3)
    drawn = encoding.steps(np.full(40_000, 0.2), world)  # 1.8 steps
    assert {*drawn.tolist()} == {1, 2}
    assert drawn.mean() == pytest.approx(1.8, abs=0.015)
    with pytest.raises(InvalidParameter, match="reward"):
        encoding.steps(np.array([0.5, math.nan]), world)


@pytest.mark.parametrize("encoded", [[0], [0, 0, 0], [-1, 0], [0, 10**9], [0, 0.5]])
def test_sums_that_clients_cannot_send_are_refused(encoded: list[int]) -> None:
    with pytest.raises(InvalidParameter, match="encoded"):
        private("central").release_sums(encoded, Averages(users=2, coordinates=2))


def test_records_describe_the_release_of_one_client() -> None:
    size = Averages(users=50, coordinates=3)
    central, local, shuffle = (not_none(private(trust).record(size, "b")) for trust in TRUSTS)
    assert central.mechanism == local.mechanism  # a message has the noise of the whole sum
    assert isinstance(shuffle.mechanism.noise, Binomial)
    assert private("shuffle").curve(size) == BinomialBox(
        trials=shuffle.mechanism.noise.trials, bounds=(64,) * 3
    )
    assert private("local").proxy(size) == 50 * private("central").proxy(size)


@pytest.mark.parametrize("calibration", ["pure", "exact"])
def test_totals_of_calibrated_noise_have_no_false_lower_bound(calibration: str) -> None:
    delta = "1/4" if calibration == "exact" else "1e-6"
    given: dict[str, Any] = {"trust": "central", "calibration": calibration, "delta": delta}
    privatizer, size = AveragePrivatizer(**given), Averages(users=100, coordinates=3)
    kept = not_none(privatizer.guarantee(size))
    truth = compose((privatizer.curve(size), 10)).epsilon("1/10").upper
    lower = compose((kept, 10)).epsilon("1/10").lower
    assert lower is None or lower <= truth
