"""Tests of radii: against convolutions, the papers' formulas, and coverage over whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, Literal, TypeAlias

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.stats import binom

from bandits import elimination_radii as radius_exact
from bandits.batch import Commit, Released
from bandits.elimination_radii import (
    DpSeRadius,
    ExactRadius,
    PaperRadius,
    certified_gap,
    certified_width,
    has_gap,
    tkms_width,
)
from bandits.policies.successive_elimination import BatchedElimination, Schedule
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer, SumPrivatizer, Trust
from bandits.privatizers.privatizer import Privatizer, Unprotected
from dpcore import (
    Binomial,
    DiscreteGaussianSum,
    DiscreteLaplace,
    InvalidParameter,
    Noise,
    PolyaDifference,
    Skellam,
)
from dpcore.sampling.rng import SeededRng
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.dpcore.mpmath_precision import real
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.laws import reach


@cache
def _law(noise: Noise) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All values and their masses, from SciPy."""
    far = 60 * reach(noise) + 60
    values = np.arange(0 if isinstance(noise, Binomial) else -far, far + 1)
    match noise:
        case DiscreteLaplace(scale=scale):
            masses = stats.dlaplace(1 / float(scale)).pmf(values)
        case Skellam(variance=variance):
            masses = stats.skellam(float(variance) / 2, float(variance) / 2).pmf(values)
        case Binomial(trials=trials, probability=p):
            masses = binom(trials, float(p)).pmf(values)
        case PolyaDifference(shape=shape, scale=scale):
            one = stats.nbinom(float(shape), -math.expm1(-1 / scale)).pmf(np.arange(far + 1))
            masses = np.convolve(one, one[::-1])
        case DiscreteGaussianSum(count=count, sigma_squared=v):
            one = np.exp(-(values**2) / (2 * float(v)))
            masses = one = one / one.sum()
            for _ in range(count - 1):
                masses = np.convolve(masses, one, "same")
    return values, masses


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


@by_day(8)
@pytest.mark.parametrize(("noise", "steps", "pulls"), SMALL, ids=repr)
@pytest.mark.parametrize("failure", ["0.05", "1e-4"])
def test_the_certified_width_covers_and_is_the_least_mixture(
    noise: Noise, steps: int, pulls: int, failure: str
) -> None:
    width = certified_width(noise, precision=steps, pulls=pulls, failure=failure)
    for mean in MEANS:
        assert _true_failure(noise, mean, width, steps=steps, pulls=pulls) <= float(failure)
    least = _least_mixture(noise, float(failure), steps=steps, pulls=pulls)
    assert least * (1 - 1e-9) <= width <= 1.01 * least + 1e-9


def one_sided() -> tuple[Any, Any]:
    """A one-sided quantile, used for both sides."""
    bound = mutated(radius_exact._bound, "total * 2 / len(arrays)", "total / len(arrays)")
    upper = "total * 2 / len(sides)", "total / len(sides)"
    return bound, mutated(radius_exact._failure_upper, *upper)


def half_the_pulls() -> tuple[Any, Any]:
    """Hoeffding's bound of half of the pulls."""
    sharper = mutated(radius_exact._tails_at, "-2.0 * room * room", "-4.0 * room * room")
    upper = "-2 * room * room", "-4 * room * room"
    bound = rewired(radius_exact._bound, _tails_at=sharper)
    return bound, mutated(radius_exact._failure_upper, *upper)


@pytest.mark.parametrize(
    ("mutant", "scale", "mean", "pulls", "chance"),
    [(one_sided, "40", 0.0, 2, "1/20"), (half_the_pulls, "1/2", 0.5, 60, "1/100")],
)
def test_a_wrong_bound_is_rejected(
    mutant: Callable[[], tuple[Any, Any]], scale: str, mean: float, pulls: int, chance: str
) -> None:
    bound, upper = mutant()
    search, sound = rewired(radius_exact._search, _bound=bound), radius_exact._certified
    wrong = rewired(sound.__wrapped__, _search=search, _failure_upper=upper)
    noise, most = DiscreteLaplace(scale=scale), Fraction(chance)
    for certified, holds in ((wrong, False), (sound, True)):
        width = certified(noise, 1, pulls, most, None)
        failed = _true_failure(noise, mean, width, steps=1, pulls=pulls)
        assert (failed <= float(most)) is holds


def test_the_width_accounts_for_wraparound() -> None:
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
    ("noise", "steps", "pulls"), [case for case in SMALL if has_gap(case[0])], ids=repr
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


def test_the_gap_accounts_for_both_wraparounds() -> None:
    law = DiscreteLaplace(scale=10)
    arguments: dict[str, Any] = {"precision": 2, "pulls": 6, "failure": "0.02"}
    free = certified_gap(law, **arguments)
    assert free < certified_gap(law, threshold=60, **arguments) < math.inf
    assert certified_gap(law, threshold=45, **arguments) == math.inf
    assert certified_width(law, threshold=45, **arguments) < math.inf


def test_the_papers_radius_is_equation_2() -> None:
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
    with pytest.raises(InvalidParameter, match="discrete Laplace"):
        DpSeRadius().width(renyi, 857, **arguments)


def test_weights_of_a_mixture_add_up_to_one() -> None:
    assert sum(ExactRadius().weight(b) for b in range(1, 1000)) == 1 - Fraction(1, 1000)
    assert sum(ExactRadius(batches=7).weight(b) for b in range(1, 8)) == 1
    assert all(ExactRadius().weight(b) >= Fraction(1, 2 * b * b) for b in range(1, 50))
    with pytest.raises(InvalidParameter, match="batches = 7"):
        ExactRadius(batches=7).weight(8)


def test_without_noise_the_width_is_that_of_hoeffding() -> None:
    arguments: dict[str, Any] = {"batch": 1, "active": 10, "failure": "0.1"}
    radius = ExactRadius(batches=1)
    assert radius.width(Unprotected(), 400, **arguments) == certified_width(
        None, precision=1, pulls=400, failure="0.01"
    )
    gap = radius.gap(Unprotected(), 400, **arguments)
    assert gap == 2 * certified_width(None, precision=1, pulls=800, failure=Fraction(1, 90))
    assert gap < math.sqrt(2) * radius.width(Unprotected(), 400, **arguments)


@pytest.mark.parametrize("scale", [10**6, 10**9, 10**15])
def test_with_dominating_noise_the_width_is_nearly_its_quantile(scale: int) -> None:
    # P(|X| > t) = 2 e^(-(t+1)/s)/(1 + e^(-1/s)), about e^(-t/s), and one reward is negligible.
    width = certified_width(DiscreteLaplace(scale=scale), precision=1, pulls=1, failure="1/30")
    assert 1 <= width / (scale * math.log(30)) < 1.02


CHANCES = (0.02, 0.9)
P = Fraction(1, 5)
RUNS = 600
BATCHES = 2

Errors: TypeAlias = npt.NDArray[np.float64]


def summed(trust: Trust) -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon="1/10", failure="1e-3")


PRIVATIZERS: dict[str, Privatizer] = {
    "central": summed("central"),
    "local": summed("local"),
    "pure": summed("pure"),
    "renyi": summed("renyi"),
    "concentrated": summed("concentrated"),
    "shuffled-pure": summed("shuffled-pure"),
    "binary-shuffle": BitPrivatizer(epsilon="1/10", delta="1e-3"),
}


POLICY_OF = {
    trust: BatchedElimination(
        privatizer=privatizer,
        schedule=Schedule(first=8, growth=2),
        radius=ExactRadius(batches=BATCHES),
        failure_probability=P,
    )
    for trust, privatizer in PRIVATIZERS.items()
}


@cache
def played(trust: str) -> Errors:
    """Errors of released means, of shape (runs, batches, arms); nan if there is none."""
    policy, horizon = POLICY_OF[trust], 10**6
    world, rng = np.random.default_rng(6), SeededRng(600 + list(PRIVATIZERS).index(trust))
    off = np.full((RUNS, BATCHES, len(CHANCES)), np.nan)
    for run in off:
        state = policy.init(len(CHANCES), horizon)
        for batch in run:
            choice = policy.choose(state)
            if isinstance(choice, Commit):
                break
            sums = []
            for arm, pulls in enumerate(choice.counts):
                ones = int(world.binomial(pulls, CHANCES[arm]))
                steps = ones * policy.privatizer.precision(pulls)
                sums.append(policy.privatizer.release(steps, pulls, rng))
                batch[arm] = float(sums[-1] / pulls) - CHANCES[arm]
            state = policy.observe(state, Released(tuple(sums)))
    return off


def too_many(trust: str, of: Literal["width", "gap"], part: float) -> float:
    """The p-value of the number of runs with a mean, or a difference of two, beyond its bound.

    The bound is a ``part`` of the certified one.
    """
    policy, failed = POLICY_OF[trust], np.zeros(RUNS, dtype=bool)
    rule = getattr(policy.radius, of)
    for batch in range(1, BATCHES + 1):
        off, pulls = played(trust)[:, batch - 1], policy.schedule.pulls(batch)
        most = rule(policy.privatizer, pulls, batch=batch, active=len(CHANCES), failure=P)
        far = np.abs(off if of == "width" else off[:, :1] - off[:, 1:]) > part * most
        failed |= far.any(axis=1)  # comparisons with nan are False
    return float(stats.binomtest(int(failed.sum()), RUNS, float(P), alternative="greater").pvalue)


@by_day(2)
@pytest.mark.parametrize("trust", PRIVATIZERS)
def test_all_means_and_differences_of_a_run_are_within_their_bounds(trust: str) -> None:
    widths = buy_alpha(f"bandits coverage of widths: {trust}", "1e-9")
    gaps = buy_alpha(f"bandits coverage of gaps: {trust}", "1e-9")
    assert too_many(trust, "width", 1) > widths > too_many(trust, "width", 0.7)
    assert too_many(trust, "gap", 1) > gaps > too_many(trust, "gap", 0.7)


@pytest.mark.parametrize("bits", [10, 60], ids=["by balls", "by enclosures"])
@pytest.mark.parametrize(
    "law", [PolyaDifference(shape=16, scale=3), Binomial(trials=60, probability="1/9")], ids=repr
)
def test_tail_bounds_hold_and_are_tight(
    law: Noise, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radius_exact, "_TAIL_BITS", bits)
    monkeypatch.setattr(radius_exact, "_tail", radius_exact._tail.__wrapped__)
    for sign in (1,) if law.symmetric else (1, -1):
        for knot in (-40, -7, -1, 0, 1, 9, 30):
            true = law.enclose_sf(knot, 120) if sign > 0 else law.enclose_cdf(-knot - 1, 120)
            found = radius_exact._beyond(law, sign, knot)
            assert true.lower <= found <= Fraction(true.upper) * (1 + Fraction(1, 2**9))


def test_balls_give_a_valid_width_for_a_bad_float_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteLaplace(scale=64)
    given: dict[str, Any] = {"precision": 32, "pulls": 1024, "failure": "1e-3", "threshold": 900}
    right, search = certified_width(law, **given), radius_exact._search
    monkeypatch.setattr(radius_exact, "_search", lambda *a: 0.9 * search(*a))
    monkeypatch.setattr(radius_exact, "_certified", radius_exact._certified.__wrapped__)
    assert certified_width(law, **given) >= 0.99 * right


def test_the_exact_elimination_rule_accounts_for_wraparound() -> None:
    # If the sum is decoded wrongly with probability 1/20, less of the failure probability is left.
    often, never = (
        SumPrivatizer(trust="pure", epsilon=1, failure=failure) for failure in ("1/20", "1e-9")
    )
    radius = ExactRadius(batches=1)
    given: dict[str, Any] = {"batch": 1, "active": 2, "failure": "2/5"}
    law: dict[str, Any] = {
        "precision": often.precision(64),
        "pulls": 64,
        "threshold": often.protocol(64).threshold,
    }
    noise = often.noise(64)
    width, gap = radius.width(often, 64, **given), radius.gap(often, 64, **given)
    assert width == certified_width(noise, failure="1/5", **law)
    assert gap == certified_gap(noise, failure="2/5", **law)
    assert width > certified_width(noise, failure="1/5", **{**law, "threshold": None})
    assert gap > certified_gap(noise, failure="2/5", **{**law, "threshold": None})
    short = {**given, "failure": "1/100"}
    assert radius.width(often, 64, **short) == radius.gap(often, 64, **short) == float("inf")
    assert radius.width(never, 64, **short) < radius.gap(never, 64, **short) < 1


def test_hoeffdings_width_is_rounded_up() -> None:
    with mpmath.workdps(60):
        for pulls in (1, 7, 200, 10**6):
            for failure in ("1/2", "1/20", "1e-9"):
                found = certified_width(None, precision=1, pulls=pulls, failure=failure)
                width = real(found)
                assert 2 * mpmath.exp(-2 * pulls * width * width) <= real(Fraction(failure))


@pytest.mark.parametrize("pulls", [3, 100, 101, 857, 5000])
def test_the_papers_widths_are_rounded_up(pulls: int) -> None:
    given: dict[str, Any] = {"batch": 3, "active": 5, "failure": "1/10"}
    private = SumPrivatizer(trust="central", epsilon="1/2", failure="1e-6")
    with mpmath.workdps(60):
        log, root, odds = mpmath.log, mpmath.sqrt, mpmath.mpf(5 * 9 * 10)
        tail = log(2 * odds)
        dp_se = root(log(8 * odds) / (2 * pulls)) + 2 * log(4 * odds) / pulls
        paper = root(log(4 * odds) / (2 * pulls)) + 2 * (root(2 * tail) + tail) / pulls
        tkms = (12 / mpmath.mpf(pulls) + 1 / root(pulls)) * root(2 * log(999))
        for exact, found in (
            (dp_se, DpSeRadius().width(private, pulls, **given)),
            (paper, PaperRadius().width(private, pulls, **given)),
            (tkms, tkms_width(batches=4, pulls=pulls, sigma=Fraction(3), horizon=999)),
        ):
            assert exact <= real(found) <= exact * (1 + mpmath.mpf(2) ** -51)
