"""Tests of `audit.fit`: level by exact enumeration, power against wrong laws, every sampler."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from audit.claims import LOOKS, log_bar
from audit.fit import statistics
from audit.fit.fit import fit
from audit.fit.statistics import CellCounts, FitCells, fit_p_values, joined, log_wealth, resolution
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.sampling.rng import Rng, SeededRng
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused

ALPHA = buy_alpha("fit: correct laws are kept", "1e-8") / 100

LAWS: tuple[Noise, ...] = (
    DiscreteLaplace(scale=1),
    DiscreteLaplace(scale=1000),
    DiscreteGaussian(sigma_squared=100),
    Skellam(variance=3),
    Polya(shape="1/50", scale=50),
    Poisson(mean="0.001"),
    Binomial(trials=1, probability="1/3"),
)


def of(noise: Noise, change: Callable[[Any], Any]) -> Callable[..., Any]:
    """A sampler that draws from a noise and then changes the draws."""

    def draw(n: int, rng: np.random.Generator) -> Any:
        return change(noise.sample(n, rng=SeededRng(int(rng.integers(1 << 62)))))

    return draw


def seen_of(counts: Any) -> CellCounts:
    return CellCounts(counts=np.array(counts), residues=(), least=(0, 1), most=(0, 1))


THREE = FitCells.of(Binomial(trials=2, probability="1/3"), 1000)


@cache
def outcomes(draws: int) -> list[tuple[CellCounts, float]]:
    """All counts of a small law with their probabilities."""
    places = np.flatnonzero(THREE.nominal > 1e-9).tolist()
    mass = THREE.nominal / THREE.nominal.sum()
    drawn = itertools.combinations_with_replacement(places, draws)
    tables = [np.bincount(chosen, minlength=len(THREE)) for chosen in drawn]
    return [(seen_of(each), float(stats.multinomial.pmf(each, draws, mass))) for each in tables]


# -- cells --------------------------------------------------------------------------------------


@by_day(7)
@pytest.mark.parametrize("draws", [1, 300, 10**6])
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_cells_enclose_the_law(noise: Noise, draws: int) -> None:
    cells = FitCells.of(noise, draws)
    assert np.all(np.diff(cells.edges) > 0)
    assert cells.lower.sum() <= 1 <= cells.upper.sum()
    assert np.all((cells.lower <= cells.nominal) & (cells.nominal <= cells.upper))
    assert cells.gap < 1e-10
    ends = [None, *cells.edges.tolist(), None]
    for i, (start, stop) in enumerate(itertools.pairwise(ends)):
        if i % max(1, len(cells) // 12) and i < len(cells) - 1:
            continue
        below = noise.enclose_cdf(start - 1).lower if start is not None else Fraction(0)
        up_to = noise.enclose_cdf(stop - 1).lower if stop is not None else Fraction(1)
        mass = Fraction(up_to) - Fraction(below)
        assert cells.lower[i] - 1e-36 <= mass <= cells.upper[i] + 1e-36


def test_each_tail_is_a_cell_and_every_value_has_exactly_one_cell() -> None:
    cells = FitCells.of(DiscreteLaplace(scale=1), 10**5)
    assert cells.words(0) == "x <= -35"
    assert cells.words(len(cells) - 1) == "x >= 35"
    assert cells.words(0, len(cells) - 1) == "any x"
    assert {f"x = {x}" for x in range(-8, 9)} <= {cells.words(i) for i in range(len(cells))}
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert cells.count(np.array([low, high])).counts[[0, -1]].tolist() == [1, 1]


def test_residues_are_enclosed() -> None:
    for noise in LAWS[1:4]:
        cells = FitCells.of(noise, 30)  # with few draws, every law has wide cells
        assert cells.moduli == (2, 3, 5)
        reach = int(noise.quantile(1 - 2.0**-50))
        values = np.arange(-reach, reach + 1)
        mass = noise.pmf(values)
        for modulus in cells.moduli:
            low, high = cells.residue(modulus)
            for residue in range(modulus):
                assert low <= float(mass[values % modulus == residue].sum()) <= high


# -- validity -----------------------------------------------------------------------------------


def exact_level(p_of: Callable[[CellCounts], float], level: float, draws: int = 6) -> float:
    """P(p <= level) over every outcome, with exact weights."""
    return sum(weight for seen, weight in outcomes(draws) if p_of(seen) <= level)


@by_day(1)
@pytest.mark.parametrize("level", [0.05, 0.01, 0.2, 0.5])
def test_the_p_values_are_valid_over_every_outcome(level: float) -> None:
    assert exact_level(partial(statistics._by_cell, THREE), level) <= level
    assert exact_level(lambda seen: statistics._tilted(THREE, seen.counts), level) <= level
    # A mutant counts the draws twice.
    twice = mutated(statistics._chernoff, "- theta * gained", "- 2 * theta * gained")
    mutant = mutated(statistics._tilted, "counts @ score", "counts @ score", _chernoff=twice)
    assert exact_level(lambda seen: mutant(THREE, seen.counts), level) > level


def test_mutants_that_select_the_best_cell_or_the_smaller_tail_are_detected() -> None:
    # The first mutant reports its smallest p-value without a correction for the number of cells.
    peeking = mutated(statistics.most_extreme, " * len(counts)", "")
    noise = DiscreteLaplace(scale=3)
    cells = FitCells.of(noise, 1000)
    seen = [cells.count(noise.sample(1000, rng=SeededRng(i))) for i in range(60)]
    kept, alarms = (
        sum(test(1000, s.counts, cells.lower, cells.upper)[1] <= 0.05 for s in seen)
        for test in (statistics.most_extreme, peeking)
    )
    assert too_many(alarms, 60) < 1e-12
    assert too_many(kept, 60) > buy_alpha("fit: the best cell", "1e-10")
    selecting = mutated(statistics.most_extreme, "2 * np.minimum", "np.minimum")
    masses = stats.binom.pmf(range(101), 100, 0.3)
    level, wrong = (
        sum(masses[k] for k in range(101) if test(100, np.array([k]), 0.3, 0.3)[1] <= 0.05)
        for test in (statistics.most_extreme, selecting)
    )
    assert level <= 0.05 < wrong


@pytest.mark.parametrize("draws", [1, 4, 9])
def test_the_wealth_has_mean_at_most_one(draws: int) -> None:
    mean = sum(w * math.exp(log_wealth(THREE, seen)) for seen, w in outcomes(draws))
    assert 0.8 < mean <= 1


def test_a_wealth_with_wrong_events_or_cells_is_detected() -> None:
    def mean(wealth_of: Callable[[CellCounts], Any]) -> float:
        return float(np.max(sum(w * np.exp(wealth_of(seen)) for seen, w in outcomes(9))))

    assert 0.5 < mean(lambda seen: statistics._coins(THREE, seen, 1.0)) <= 1
    for old, new in (("1 - lower", "1 - np.roll(lower, 1)"), ("(upper, 1", "(upper / 2, 1")):
        mutant = partial(mutated(statistics._coins, old, new), THREE, size=1.0)
        assert mean(mutant) > 1.1
    # Two mutants: probabilities shifted by one cell, and alternatives not normalised by their mean.
    shifted = replace(THREE, upper=np.maximum(np.roll(THREE.upper, 1), 1e-3))
    assert mean(lambda seen: log_wealth(shifted, seen)) > 1.1
    unfair = mutated(statistics._tilted_wealths, "- seen.draws * norms", "")

    def all_tilts(seen: CellCounts) -> float:
        tilts = unfair(THREE, seen)
        return float(logsumexp(tilts)) - math.log(len(tilts))

    assert mean(all_tilts) > 1.1


def false_alarms(noise: Noise, cells: FitCells, repeats: int, draws: int) -> int:
    alarms = 0
    for i in range(repeats):
        seen = cells.count(noise.sample(draws, rng=SeededRng(i)))
        alarms += joined(fit_p_values(cells, seen, np.random.default_rng(i))) <= 0.05
    return alarms


def too_many(alarms: int, repeats: int) -> float:
    return float(stats.binom.sf(alarms - 1, repeats, 0.05))


@by_day(1)
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_false_alarms_stay_within_five_percent(noise: Noise) -> None:
    alpha = buy_alpha(f"fit: false alarms, {noise!r}", "1e-10")
    repeats = effort(30, 60)
    alarms = false_alarms(noise, FitCells.of(noise, 200), repeats, 200)
    assert too_many(alarms, repeats) > alpha


def test_cells_that_are_off_by_one_raise_false_alarms() -> None:
    noise = DiscreteLaplace(scale=3)
    cells = FitCells.of(noise, 1000)
    rolled = {name: np.roll(getattr(cells, name), 1) for name in ("lower", "nominal", "upper")}
    assert too_many(false_alarms(noise, replace(cells, **rolled), 16, 1000), 16) < 1e-20


@by_day(6)
@pytest.mark.parametrize("noise", LAWS, ids=repr)
@pytest.mark.parametrize("sequential", [False, True])
def test_correct_samplers_are_not_refuted(noise: Noise, sequential: bool) -> None:
    report = fit(noise, noise, runs=20_000, alpha=ALPHA, seed=7, sequential=sequential)
    assert report.verdict == "not_refuted"
    assert report.runs == 20_000
    assert report.exit_code == 0


# -- power --------------------------------------------------------------------------------------

OF_SCALE: dict[str, Callable[[Any], Noise]] = {
    "laplace": lambda scale: DiscreteLaplace(scale=scale),
    "gaussian": lambda scale: DiscreteGaussian(sigma_squared=scale**2),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("draws", "most", "repeats"),
    [(4000, 0.1, 30), (10**4, 0.05, 40), (10**5, 0.02, 20), (10**6, 0.005, 5)],
)
@pytest.mark.parametrize("law", OF_SCALE)
def test_a_scale_that_is_off_by_the_resolution_is_refuted(
    law: str, draws: int, most: float, repeats: int
) -> None:
    bought = buy_alpha(f"fit: power, {law}, {draws}", "1e-10")
    claimed, alpha = OF_SCALE[law](10), Fraction(1, 20)
    off = resolution(FitCells.of(claimed, draws), draws, alpha, sequential=False)
    assert off < most
    found = 0
    for i in range(repeats):
        wrong = OF_SCALE[law](10 * (1 + Fraction(off if i % 2 else -off)))
        found += fit(wrong, claimed, runs=draws, alpha=alpha, seed=i).verdict == "refuted"
    assert stats.binom.cdf(found, repeats, 0.9) > bought


TEN = DiscreteLaplace(scale=10)
WIDE = DiscreteLaplace(scale=1000)
FOUR = DiscreteGaussian(sigma_squared=4)
BROKEN: dict[str, tuple[Any, Noise, str]] = {
    "sigma for sigma squared": (DiscreteGaussian(sigma_squared=2), FOUR, "x"),
    "only even values, wide": (of(WIDE, lambda x: 2 * (x // 2)), WIDE, "x mod 2 = 1: 0 of"),
    "multiples of 5, wide": (of(WIDE, lambda x: 5 * (x // 5)), WIDE, "x mod 5 = 0"),
    "clamped": (of(TEN, lambda x: np.clip(x, -40, 40)), TEN, "40"),
    "mean off by one": (of(TEN, lambda x: x + 1), TEN, "x >= 1"),
    "variance of a half of Skellam": (
        lambda n, rng: rng.poisson(10, n) - rng.poisson(10, n), Skellam(variance=10), "x"
    ),
    "one value never occurs": (of(TEN, lambda x: np.where(x == 3, 2, x)), TEN, "x = 3: 0 of"),
    "one sided": (of(TEN, np.abs), TEN, "x <= -1: 0 of"),
    "one outlier": (of(TEN, lambda x: np.append(x[:-1], 10**9)), TEN, "x >= 341: "),
}  # fmt: skip


@by_day(1)
@pytest.mark.parametrize("sequential", [False, True])
def test_a_sampler_without_tails_is_refuted(sequential: bool) -> None:
    # No cell beyond three sigma is large enough to refute by itself.
    noise = DiscreteGaussian(sigma_squared=10_000)
    sampler = of(noise, lambda x: x)
    changes: dict[str, Callable[[Any], Any]] = {
        "correct": lambda x: x,
        "clamped": lambda x: np.clip(x, -300, 300),
        "redrawn": lambda x: x[abs(x) < 300],
        "cut on one side": lambda x: x[x < 290],
    }
    for name, change in changes.items():
        report = fit(
            lambda n, rng, change=change: change(sampler(n + 1000, rng))[:n],
            noise, runs=22_000, alpha="1e-3", seed=3, sequential=sequential,
        )  # fmt: skip
        assert report.verdict == ("not_refuted" if name == "correct" else "refuted"), name


@by_day(6)
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_samplers_are_refuted(name: str, sequential: bool) -> None:
    sampler, claimed, words = BROKEN[name]
    report = fit(sampler, claimed, runs=20_000, alpha="1e-6", seed=3, sequential=sequential)
    assert (report.verdict, report.exit_code) == ("refuted", 1)
    assert report.witness is not None
    if not sequential:
        assert words in str(report.witness)
        low, high = report.witness.expected
        assert not low <= report.witness.count <= high


@pytest.mark.parametrize("sequential", [False, True])
def test_one_impossible_value_refutes(sequential: bool) -> None:
    for value, noise, event in (
        (-1, Poisson(mean=3), "x <= -1"),
        (101, Binomial(trials=100, probability="1/2"), "x >= 101"),
        (-(10**30), Polya(shape=1, scale=5), f"x <= {np.iinfo(np.int64).min}"),
    ):
        draw = lambda n, rng, value=value, noise=noise: [  # noqa: E731 - of this case
            value,
            *noise.sample(n - 1, rng=SeededRng(1)).tolist(),
        ]
        report = fit(draw, noise, runs=500, alpha="1e-300", sequential=sequential)
        assert report.verdict == "refuted"
        assert (report.p_value, report.e_value) == ((None, math.inf) if sequential else (0.0, None))
        assert report.witness is not None
        assert (report.witness.event, report.witness.probability) == (event, (0.0, 0.0))
        assert report.to_json()["e_value"] == ("inf" if sequential else None)


def annotated(n: int, rng: Rng) -> Any:
    return DiscreteLaplace(scale=1).sample(n, rng=rng)


def one_by_one(rng: Rng | None = None) -> int:
    assert rng is not None
    return DiscreteLaplace(scale=1).sample(rng=rng)


@pytest.mark.parametrize("sampler", [annotated, one_by_one])
def test_a_sampler_annotated_with_rng_gets_a_seeded_rng(sampler: Any) -> None:
    law = DiscreteLaplace(scale=1)
    first, again, other = (fit(sampler, law, runs=200, seed=seed).to_text() for seed in (7, 7, 8))
    assert first == again != other


# -- sequential ---------------------------------------------------------------------------------


def test_a_sequential_fit_stops_when_the_evidence_suffices() -> None:
    report = fit(DiscreteLaplace(scale=2), DiscreteLaplace(scale=1), sequential=True, seed=1)
    assert report.verdict == "refuted"
    assert report.runs in LOOKS
    assert report.runs < 300
    assert report.stopped == "the evidence sufficed"
    assert report.e_value is not None
    assert math.log(report.e_value) >= log_bar("0.05")
    assert report.p_value is None


@pytest.mark.nightly
def test_frequent_looks_do_not_raise_the_false_alarm_rate() -> None:
    alpha = buy_alpha("fit: false alarms, sequential", "1e-10")
    law = DiscreteLaplace(scale=2)
    alarms = sum(
        fit(law, law, runs=400, sequential=True, seed=i).verdict == "refuted" for i in range(100)
    )
    assert too_many(alarms, 100) > alpha


# -- samplers -----------------------------------------------------------------------------------

TAPE = SeededRng(11)


def test_every_form_of_a_sampler_is_accepted() -> None:
    coin = Binomial(trials=1, probability="1/2")
    forms: list[Any] = [
        lambda n, rng: rng.integers(0, 2, n),
        lambda size, generator: generator.integers(0, 2, size, dtype=np.uint64),
        lambda rng: int(rng.integers(0, 2)),
        lambda: coin.sample(rng=TAPE),
        lambda n, rng: [int(x) for x in rng.integers(0, 2, n)],
        coin,
        {0: "1/2", 1: "1/2"},
        stats.bernoulli(0.5),
    ]
    for form in forms:
        report = fit(form, coin, runs=2000, alpha=ALPHA, seed=2)
        assert (report.verdict, report.runs) == ("not_refuted", 2000)
        wrong = fit(form, Binomial(trials=1, probability="1/3"), runs=2000, alpha=ALPHA, seed=2)
        assert wrong.verdict == "refuted"


def raises(n: int, rng: Any) -> Any:
    raise KeyError("age")


def too_slow(n: int, rng: Any) -> Any:
    while True:
        pass


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [
        (raises, "raised KeyError: 'age'"),
        (too_slow, "no answer within 0.2 s"),
        (lambda n, rng: None, "returned nothing"),
        (lambda n, rng: np.zeros((n, 2), dtype=int), "shape (50, 2) instead of (50,)"),
        (lambda n, rng: np.zeros(n - 1, dtype=int), "shape (49,)"),
        (lambda n, rng: np.full(n, math.nan), "float64 values such as nan"),
        (lambda n, rng: np.ones(n, dtype=bool), "bool values"),
        (lambda n, rng: ["a"] * n, "integers are required"),
        (lambda n, rng: np.array([True] * n, dtype=object), "returned True"),
        (lambda n, rng: [[1], [1, 2]], "did not return an array of integers"),
    ],
)
def test_a_failing_sampler_is_named_and_never_passes(sampler: Any, reason: str) -> None:
    report = fit(sampler, TEN, runs=50, timeout=0.2)
    assert report.verdict is None
    assert report.exit_code == 3
    assert report.error is not None
    assert reason in str(report.error)
    assert report.to_json()["p_value"] is None


def test_draws_before_a_failure_are_counted() -> None:
    calls = itertools.count()

    def once() -> int:
        if next(calls) == 3000:
            raise ValueError("dry")
        return TEN.sample(rng=TAPE)

    report = fit(once, TEN, runs=5000)
    assert report.verdict is None
    assert report.runs == 2048
    assert report.p_value is not None
    assert report.warnings[0].startswith("ended before its planned draws")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("alpha", {"alpha": "1e-301"}),
        ("sampler", {"sampler": 3}),
        ("sampler", {"sampler": lambda a, b, c: None}),
        ("sampler", {"sampler": {0: "1/2"}}),
        ("sampler", {"sampler": {0.5: 1}}),
        ("noise", {"noise": "discrete-laplace:scale=1"}),
        ("scale", {"noise": DiscreteLaplace(scale=10**20)}),
    ],
)
def test_wrong_arguments_are_refused_by_name(name: str, given: dict[str, Any]) -> None:
    with refused(name):
        fit(**{"sampler": TEN, "noise": TEN, **given})
