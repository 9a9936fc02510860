"""Tests of certified radii: against brute-force convolution, papers' radii and the union bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from bandits.privatizers.batch_sums import BitPrivatizer, SumPrivatizer, Trust
from bandits.privatizers.privatizer import Unprotected
from bandits.radius import certified_width as radius_exact
from bandits.radius.certified_width import (
    certified_gap,
    certified_width,
    has_gap,
)
from bandits.radius.radius import DpSeRadius, ExactRadius, PaperRadius
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    InvalidParameter,
    Noise,
    PolyaDifference,
    Skellam,
)
from dpcore.laws.poisson import Poisson
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated, rewired


def _masses(noise: Noise) -> dict[int, mpmath.mpf]:
    """P(X = k) by the definition of each law, beyond every tail in these tests."""
    match noise:
        case DiscreteLaplace(scale=s):
            beta = mpmath.exp(-1 / mpmath.mpf(str(float(s))))
            peak = (1 - beta) / (1 + beta)
            reach = int(60 * s) + 60
            return {k: peak * beta ** abs(k) for k in range(-reach, reach + 1)}
        case Skellam(variance=v):
            size = mpmath.mpf(str(float(v)))
            reach = int(14 * math.sqrt(float(v))) + 40
            half = [mpmath.exp(-size) * mpmath.besseli(k, size) for k in range(reach + 1)]
            return {k: half[abs(k)] for k in range(-reach, reach + 1)}
        case DiscreteGaussian(sigma_squared=v):
            width = mpmath.mpf(str(float(v)))
            reach = int(12 * math.sqrt(float(v))) + 12
            raw = {k: mpmath.exp(-k * k / (2 * width)) for k in range(-reach, reach + 1)}
            total = mpmath.fsum(raw.values())
            return {k: mass / total for k, mass in raw.items()}
        case DiscreteGaussianSum(count=n, sigma_squared=v):
            return _sum_of(DiscreteGaussian(sigma_squared=v), n)
        case PolyaDifference(shape=n, scale=s):
            return _sum_of(DiscreteLaplace(scale=s), int(n))
        case Binomial(trials=n, probability=p):
            heads = Fraction(p)
            up, down, all_ = heads.numerator, (1 - heads).numerator, heads.denominator
            ways = [math.comb(n, k) * up**k * down ** (n - k) for k in range(n + 1)]
            return {k: mpmath.mpf(way) / mpmath.mpf(all_) ** n for k, way in enumerate(ways)}
    raise AssertionError(noise)


def _sum_of(noise: Noise, count: int) -> dict[int, mpmath.mpf]:
    one = _masses(noise)
    reach = max(one)
    dense = np.array([float(one[k]) for k in range(-reach, reach + 1)])
    total = dense
    for _ in range(count - 1):
        total = np.convolve(total, dense)
    middle = len(total) // 2
    return {k - middle: mpmath.mpf(float(mass)) for k, mass in enumerate(total)}


@cache
def _law(noise: Noise) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = _masses(noise)
    return np.array(sorted(found)), np.array([float(found[k]) for k in sorted(found)])


def _read(total: np.ndarray[Any, Any], span: int, tau: int | None) -> np.ndarray[Any, Any]:
    """The sum decoded by the server modulo m = n g + 2 tau + 1."""
    if tau is None:
        return total
    modulus = span + 2 * tau + 1
    y = np.mod(total, modulus)
    read: np.ndarray[Any, Any] = np.where(y > span + tau, y - modulus, y)
    return read


def _true_failure(
    noise: Noise, mean: float, width: float, *, steps: int, pulls: int, tau: int | None = None
) -> float:
    """P(|released mean - mu| > width) for Bernoulli(mu) rewards, by convolution."""
    values, masses = _law(noise)
    centre = float(Fraction(noise.mean))  # type: ignore[arg-type]  # laws with a rational mean
    failed = 0.0
    for ones in range(pulls + 1):
        read = _read(ones * steps + values, steps * pulls, tau) - centre
        wrong = np.abs(read / (steps * pulls) - mean) > width
        failed += float(binom.pmf(ones, pulls, mean)) * float(masses[wrong].sum())
    return failed


def _least_mixture(noise: Noise, failure: float, *, steps: int, pulls: int) -> float:
    """The least beta with E[h(n beta - X/g)] + E[h(n beta + X/g)] <= failure: every mass a knot."""
    values, masses = _law(noise)
    centred = (values - float(Fraction(noise.mean))) / steps  # type: ignore[arg-type]  # laws with a rational mean

    def bound(width: float) -> float:
        found = 0.0
        for side in (centred, -centred):
            room = np.maximum(pulls * width - side, 0.0)
            found += float(np.dot(masses, np.exp(-2 * room * room / pulls)))
        return found

    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if bound(middle) < failure else (middle, high)
    return high


SMALL: list[tuple[Noise, int, int]] = [
    (DiscreteLaplace(scale=10), 1, 2),
    (DiscreteLaplace(scale=4), 2, 5),
    (DiscreteLaplace(scale=3), 3, 30),
    (Skellam(variance=100), 5, 4),
    (Skellam(variance=4), 4, 16),
    (Skellam(variance=Fraction(1, 2)), 1, 3),
    (DiscreteGaussianSum(count=4, sigma_squared=9), 3, 4),
    (DiscreteGaussianSum(count=16, sigma_squared=Fraction(1, 4)), 4, 16),
    (PolyaDifference(shape=3, scale=4), 2, 3),
    (PolyaDifference(shape=20, scale=3), 3, 20),
    (Binomial(trials=60, probability=Fraction(1, 2)), 1, 12),
    (Binomial(trials=200, probability=Fraction(1, 10)), 1, 50),
]
MEANS = (0.0, 0.02, 0.3, 0.5, 0.97)


def _short(value: object) -> str:
    return repr(value)


@pytest.mark.parametrize(("noise", "steps", "pulls"), SMALL, ids=_short)
@pytest.mark.parametrize("failure", ["0.05", "1e-4"])
def test_certified_width_covers_and_is_the_least_mixture(
    noise: Noise, steps: int, pulls: int, failure: str
) -> None:
    width = certified_width(noise, precision=steps, pulls=pulls, failure=failure)
    for mean in MEANS:
        assert _true_failure(noise, mean, width, steps=steps, pulls=pulls) <= float(failure)
    least = _least_mixture(noise, float(failure), steps=steps, pulls=pulls)
    assert least * (1 - 1e-9) <= width <= 1.01 * least + 1e-9


def test_never_above_the_union_bound() -> None:
    # The best threshold, with the closed-form tail of the discrete Laplace law.
    steps, pulls, failure, scale = 8, 64, 1e-3, 16
    beta = math.exp(-1 / scale)
    best = min(
        t / (pulls * steps) + math.sqrt(math.log(2 / (failure - spent)) / (2 * pulls))
        for t in range(1000)
        if (spent := 2 * beta ** (t + 1) / (1 + beta)) < failure
    )
    noise = DiscreteLaplace(scale=scale)
    found = certified_width(noise, precision=steps, pulls=pulls, failure="1e-3")
    assert best / 2 < found < best


def _certified_with(edited: Callable[..., Any], name: str) -> Callable[..., float]:
    original = radius_exact._certified.__wrapped__
    mutants = {name: edited}
    if name == "_tails_at":
        bound = rewired(radius_exact._bound, _tails_at=edited)
        mutants["_search"] = rewired(radius_exact._search, _bound=bound)
        mutants["_failure_upper"] = mutated(
            radius_exact._failure_upper, "-2 * room * room", "-4 * room * room"
        )
        del mutants["_tails_at"]
    else:
        mutants = {
            "_search": rewired(radius_exact._search, _bound=edited),
            "_failure_upper": mutated(
                radius_exact._failure_upper, "total * 2 / len(sides)", "total / len(sides)"
            ),
        }
    return rewired(original, **mutants)


def test_a_one_sided_quantile_used_two_sided_is_rejected() -> None:
    one_sided = mutated(radius_exact._bound, "total * 2 / len(arrays)", "total / len(arrays)")
    mutant = _certified_with(one_sided, "_bound")
    noise, chance = DiscreteLaplace(scale=40), Fraction(1, 20)
    width = mutant(noise, 1, 2, chance, None)
    assert _true_failure(noise, 0.0, width, steps=1, pulls=2) > float(chance)
    sound = radius_exact._certified(noise, 1, 2, chance, None)
    assert _true_failure(noise, 0.0, sound, steps=1, pulls=2) <= float(chance)


def test_hoeffding_with_half_the_pulls_is_rejected() -> None:
    sharper = mutated(radius_exact._tails_at, "-2.0 * room * room", "-4.0 * room * room")
    mutant = _certified_with(sharper, "_tails_at")
    noise, chance = DiscreteLaplace(scale=Fraction(1, 2)), Fraction(1, 100)
    width = mutant(noise, 1, 60, chance, None)
    assert _true_failure(noise, 0.5, width, steps=1, pulls=60) > float(chance)
    sound = radius_exact._certified(noise, 1, 60, chance, None)
    assert _true_failure(noise, 0.5, sound, steps=1, pulls=60) <= float(chance)


def test_wraparound_is_paid_for() -> None:
    noise, steps, pulls, chance = DiscreteLaplace(scale=10), 2, 20, Fraction(1, 50)
    plain = certified_width(noise, precision=steps, pulls=pulls, failure=chance)
    covered = []
    for tau in range(28, 100, 4):
        width = certified_width(noise, precision=steps, pulls=pulls, failure=chance, threshold=tau)
        if noise.enclose_tail(tau).lower > chance:
            assert width == math.inf
        if width < math.inf:
            covered.append(tau)
            assert width >= 0.99 * plain
            for mean in MEANS:
                failed = _true_failure(noise, mean, width, steps=steps, pulls=pulls, tau=tau)
                assert failed <= float(chance)
    assert covered
    # A width that ignores wraparound fails at a low threshold.
    forgotten = _true_failure(noise, 0.0, plain, steps=steps, pulls=pulls, tau=28)
    assert forgotten > float(chance)


@pytest.mark.parametrize(
    ("noise", "steps", "pulls"), [case for case in SMALL if has_gap(case[0])], ids=_short
)
def test_the_gap_covers_differences(noise: Noise, steps: int, pulls: int) -> None:
    chance = 0.03
    gap = certified_gap(noise, precision=steps, pulls=pulls, failure="0.03")
    values, masses = _law(noise)
    both, spread = np.convolve(masses, masses[::-1]), np.ptp(values)
    shifts = np.arange(-spread, spread + 1)
    for left, right in ((0.0, 0.0), (0.5, 0.5), (0.05, 0.6)):
        ones = np.convolve(
            binom.pmf(np.arange(pulls + 1), pulls, left),
            binom.pmf(np.arange(pulls + 1), pulls, right)[::-1],
        )
        failed = 0.0
        for difference, weight in zip(range(-pulls, pulls + 1), ones, strict=True):
            off = (difference + shifts / steps) / pulls - (left - right)
            failed += float(weight) * float(both[np.abs(off) > gap].sum())
        assert failed <= chance
    assert gap < 2 * certified_width(noise, precision=steps, pulls=pulls, failure="0.03")


def test_the_gap_pays_for_both_wraparounds() -> None:
    law = DiscreteLaplace(scale=10)
    arguments: dict[str, Any] = {"precision": 2, "pulls": 6, "failure": "0.02"}
    free = certified_gap(law, **arguments)
    assert free < certified_gap(law, threshold=60, **arguments) < math.inf
    assert certified_gap(law, threshold=45, **arguments) == math.inf
    assert certified_width(law, threshold=45, **arguments) < math.inf


@by_day(1)
@pytest.mark.parametrize(
    ("scale", "pulls", "failure"), [(64, 256, "1e-2"), (16, 32, "1e-2"), (526, 20_000, "1e-3")]
)
def test_a_width_of_much_noise_is_within_two_percent_of_the_least(
    scale: int, pulls: int, failure: str
) -> None:
    noise = DiscreteLaplace(scale=scale)
    width = certified_width(noise, precision=16, pulls=pulls, failure=failure)
    least = _least_mixture(noise, float(failure), steps=16, pulls=pulls)
    assert least * (1 - 1e-9) <= width <= 1.02 * least


def test_paper_radius_is_equation_2() -> None:
    odds = 10 * 9 / 0.1
    reward = math.sqrt(math.log(4 * odds) / 2048)
    tail = math.log(2 * odds)
    root, e, l, s = math.sqrt(2), 0.5, 1024, 10.0
    expected: dict[Trust, tuple[float, float]] = {
        "central": (root / e, 1 / e),
        "pure": (root / e, 1 / e),
        "shuffled-pure": (2 * root / e, 2 / e),
        "local": (2 * math.sqrt(2 * l) / e + root / e, 2 * root / e),
        "renyi": (2 / e + root / (s * e), root / (s * e * math.sqrt(l))),
        "concentrated": (root / e + root / (s * e), 0.0),
    }
    arguments: dict[str, Any] = {"batch": 3, "active": 10, "failure": "0.1"}
    for trust, (sigma, h) in expected.items():
        scaling = 10 if trust in ("renyi", "concentrated") else 1
        privatizer = SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-6", scaling=scaling)
        found = PaperRadius().width(privatizer, l, **arguments)
        assert found == pytest.approx(
            reward + sigma * math.sqrt(tail) / l + h * tail / l, rel=1e-12
        )
    renyi = SumPrivatizer(trust="renyi", epsilon="1/2", failure="1e-6", scaling=10)
    released = PaperRadius(form="released").width(renyi, l, **arguments)
    added = (1 / (s * e)) * (1 - root / math.sqrt(l)) * tail / l
    assert released - PaperRadius().width(renyi, l, **arguments) == pytest.approx(added)
    assert PaperRadius().width(Unprotected(), l, **arguments) == pytest.approx(reward)
    with pytest.raises(InvalidParameter, match="no radius"):
        PaperRadius().width(BitPrivatizer(epsilon="1/2", delta="1e-6"), 64, **arguments)


def test_dp_se_radius() -> None:
    privatizer = SumPrivatizer(trust="central", epsilon="1/2", failure="1e-6")
    found = DpSeRadius().gap(privatizer, 857, batch=1, active=10, failure="0.1")
    h = math.sqrt(math.log(800) / (2 * 857))
    c = math.log(400) / (857 * 0.5)
    assert found == pytest.approx(2 * (h + c), rel=1e-12)
    local = SumPrivatizer(trust="local", epsilon="1/2", failure="1e-6")
    with pytest.raises(InvalidParameter, match="discrete Laplace"):
        DpSeRadius().width(local, 857, batch=1, active=10, failure="0.1")


def test_weights_add_up_to_one() -> None:
    assert sum(ExactRadius().weight(b) for b in range(1, 1000)) == 1 - Fraction(1, 1000)
    assert sum(ExactRadius(batches=7).weight(b) for b in range(1, 8)) == 1
    assert all(ExactRadius().weight(b) >= Fraction(1, 2 * b * b) for b in range(1, 50))
    with pytest.raises(InvalidParameter, match="batches = 7"):
        ExactRadius(batches=7).weight(8)


def test_without_noise_it_is_hoeffding() -> None:
    arguments: dict[str, Any] = {"batch": 1, "active": 10, "failure": "0.1"}
    radius = ExactRadius(batches=1)
    assert radius.width(Unprotected(), 400, **arguments) == certified_width(
        None, precision=1, pulls=400, failure="0.01"
    )
    gap = radius.gap(Unprotected(), 400, **arguments)
    assert gap == 2 * certified_width(None, precision=1, pulls=800, failure=Fraction(1, 90))
    assert gap < math.sqrt(2) * radius.width(Unprotected(), 400, **arguments)


@pytest.mark.parametrize(
    ("argument", "edit"),
    [
        ("pulls", {"pulls": 0}),
        ("precision", {"precision": 0}),
        ("failure", {"failure": 0}),
        ("failure", {"failure": 1}),
        ("threshold", {"threshold": -1}),
        ("noise", {"noise": 3}),
        ("noise", {"noise": Poisson(mean=3), "gap": True}),
        ("threshold", {"noise": Poisson(mean=3), "threshold": 9}),
    ],
)
def test_bad_arguments(argument: str, edit: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "noise": DiscreteLaplace(scale=4),
        "precision": 2,
        "pulls": 9,
        "failure": "0.1",
    } | edit
    call = certified_gap if given.pop("gap", False) else certified_width
    with pytest.raises(InvalidParameter, match=argument):
        call(given.pop("noise"), **given)


@pytest.mark.parametrize("scale", [10**6, 10**9, 10**15])
def test_noise_far_above_the_rewards_has_nearly_its_own_quantile(scale: int) -> None:
    # P(|X| > t) = 2 e^(-(t+1)/s)/(1 + e^(-1/s)), about e^(-t/s), and one reward is negligible.
    width = certified_width(DiscreteLaplace(scale=scale), precision=1, pulls=1, failure="1/30")
    assert 1 <= width / (scale * math.log(30)) < 1.02
