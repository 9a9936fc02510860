r"""Poisson and binomial laws: exact masses, shares, tables re-derived, edges, statistics.

Thresholds of tables and the float functions meet mpmath, scipy and exact rationals.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb
from mpmath import mp
from scipy import stats

from dpcore import Enclosure, InvalidParameter, Noise, SeededRng
from dpcore.laws import binomial as binomial_module
from dpcore.laws import poisson as poisson_module
from dpcore.laws.binomial import Binomial
from dpcore.laws.count_noise import falling_sum, table_of_counts
from dpcore.laws.poisson import Poisson
from dpcore.noise import batch_of
from dpcore.numbers.enclosure import narrow, precision
from dpcore.sampling.inversion import InversionTable
from tests.effort import by_day
from tests.purse import purse
from tests.support.dpcore import second_path
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.laws import binomial, poisson

WORDS = 1 << 64


# -- masses, exactly -------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "p"), [(1, "1/2"), (13, "1/3"), (60, "3/7"), (500, "1/2")])
def test_few_coins_are_exact_rationals(trials: int, p: str) -> None:
    noise, q = Binomial(trials=trials, probability=p), Fraction(p)
    total = Fraction(0)
    for k in range(-1, trials + 2):
        mass = math.comb(trials, k) * q**k * (1 - q) ** (trials - k) if k >= 0 else Fraction(0)
        total += mass
        assert mass in noise.enclose_pmf(k)
        assert total in noise.enclose_cdf(k)
        assert 1 - total in noise.enclose_sf(k)
        if 0 < total < 1:
            # F(k) itself is a level: the quantile is k, and any more asks for k + 1.
            following = mass * (trials - k) / (k + 1) * q / (1 - q)
            assert noise.quantile(total) == k
            assert noise.quantile(total + following / 10**50) == k + 1


def test_the_middle_of_fair_coins_is_one_half() -> None:
    for trials in (3001, 2**80 + 1):
        noise = Binomial(trials=trials, probability="1/2")
        assert noise.enclose_cdf(trials // 2) == Enclosure.exactly(Fraction(1, 2))
        assert noise.enclose_sf(trials // 2) == Enclosure.exactly(Fraction(1, 2))
    assert Binomial(trials=3001, probability="1/2").quantile(0.5) == 1500
    assert Binomial(trials=3001, probability="1/2").quantile(math.nextafter(0.5, 1)) == 1501


@pytest.mark.parametrize(
    ("trials", "p", "parties"), [(12, "1/3", 4), (30, "3/7", 5), (6, "1/2", 6)]
)
def test_binomial_shares_convolve_to_the_whole(trials: int, p: str, parties: int) -> None:
    def masses(noise: Noise, last: int) -> list[Fraction]:
        return [Fraction(coarse(noise.enclose_cdf(k)) - coarse(noise.enclose_cdf(k - 1)))
                for k in range(last + 1)]  # fmt: skip

    def coarse(value: Enclosure) -> Fraction:
        # F(k) is a multiple of b^-n: the only one in so narrow an enclosure.
        unit = Fraction(p).denominator ** trials
        return Fraction(round(Fraction(value.lower) * unit), unit)

    whole = Binomial(trials=trials, probability=p)
    share = whole.share(parties)
    law = [Fraction(1)]
    for _ in range(parties):
        step = masses(share, trials // parties)
        law = [
            sum((law[i] * step[k - i] for i in range(len(law)) if 0 <= k - i < len(step)),
                Fraction(0))
            for k in range(len(law) + len(step) - 1)
        ]  # fmt: skip
    assert law == masses(whole, trials)
    assert law != masses(Binomial(trials=trials, probability=Fraction(p) / 2), trials)


def test_shares_of_a_poisson_are_exact_parameters() -> None:
    assert Poisson(mean="10/3").share(7) == Poisson(mean="10/21")
    with pytest.raises(InvalidParameter, match="must divide trials = 12"):
        Binomial(trials=12, probability="1/3").share(5)


def test_falling_sums_hold_their_limit() -> None:
    for ratio in (Fraction(1, 2), Fraction(3, 4), Fraction(1, 10**9)):
        pair = (ratio.numerator, ratio.denominator)
        assert 1 / (1 - ratio) in narrow(partial(_geometric, pair), 100)
    # Stopped early, the sum must hold what it left out.
    early = SimpleNamespace(prec=8)
    for code, holds in (
        (rewired(falling_sum, ctx=early), True),
        (mutated(falling_sum, "arb(rest / 2, rest / 2)", "0", ctx=early), False),
    ):
        with precision(64):
            found = Enclosure.of(code(arb(1), repeat((1, 2))))
        assert (2 in found) == holds


def _geometric(ratio: tuple[int, int]) -> arb:
    return falling_sum(arb(1), repeat(ratio))


# -- tables ----------------------------------------------------------------------------------------

TABLES: list[Noise] = [
    *(Poisson(mean=m) for m in ("1e-9", "1/50", 1, "10/3", 50, 4096, "1000003")),
    *(
        Binomial(trials=n, probability=p)
        for n, p in (
            *((1, "1/2"), (1, "1/3"), (12, "1/3"), (64, "1/2"), (268, "1/2"), (2049, "1/2")),
            *((10**6, "1/3"), (2**80, Fraction(5, 2**80)), (2**61, 1 - Fraction(3, 2**60))),
        )
    ),
]


def table_of(noise: Noise) -> InversionTable:
    table = batch_of(noise)
    assert isinstance(table, InversionTable)
    return table


def misplaced(noise: Noise, table: InversionTable) -> list[int]:
    r"""The k, among some, with not c <= 2^64 F(k) <= c + 1; and where the ends are wrong."""
    law = poisson if isinstance(noise, Poisson) else binomial
    thresholds = table.thresholds.tolist()
    last = len(thresholds) - 1
    step = max(1, last // 24)
    picked = sorted({0, 1, 2, last - 2, last - 1, last, last // 2, *range(0, last + 1, step)})
    wrong = []
    with second_path.digits(60):
        slack = mp.mpf(10) ** -35
        for i in picked:
            if 0 <= i <= last:
                scaled = law.cdf(noise, table.first + i) * WORDS
                if not thresholds[i] - slack <= scaled <= thresholds[i] + 1 + slack:
                    wrong.append(table.first + i)
        if not (thresholds[0] == 0 or law.cdf(noise, table.first - 1) == 0):
            wrong.append(table.first - 1)
        if not law.sf(noise, table.first + last) < mp.mpf(2) ** -48:
            wrong.append(table.first + last + 1)
    return wrong


@by_day(2)
@pytest.mark.parametrize("noise", TABLES, ids=repr)
def test_every_threshold(noise: Noise) -> None:
    assert misplaced(noise, table_of(noise)) == []


TABLE_MUTANTS = {
    "right side starts at the mode": ("noise._upwards(mode)", "noise._upwards(mode + 1)"),
    "left side starts above the mode": ("noise._downwards(mode)", "noise._downwards(mode + 1)"),
    "mode twice": ("start, *right]", "start, start, *right]"),
    "what lies below forgotten": ("first, below, ", "first, (below[0], below[0]), "),
    "right tail cut": ("_RIGHT_BITS)", "20)"),
}


@by_day(1)
@pytest.mark.parametrize("name", TABLE_MUTANTS)
def test_a_mutant_of_the_table_is_caught(name: str) -> None:
    mutant = mutated(table_of_counts, *TABLE_MUTANTS[name])
    noise = Poisson(mean=4096)
    if name == "what lies below forgotten":
        # Below 2^-72: it moves no threshold, and the intervals stay true up to that.
        assert misplaced(noise, mutant(noise)) == []
        return
    assert misplaced(noise, mutant(noise))


# -- floats, a third time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "peer"),
    [
        (Poisson(mean="1/50"), stats.poisson(0.02)),
        (Poisson(mean=50), stats.poisson(50)),
        (Poisson(mean=100_000), stats.poisson(100_000)),
        (Binomial(trials=12, probability="1/3"), stats.binom(12, 1 / 3)),
        (Binomial(trials=268, probability="1/2"), stats.binom(268, 0.5)),
        (Binomial(trials=10**5, probability="3/10"), stats.binom(10**5, 0.3)),
    ],
    ids=repr,
)
def test_scipy_says_the_same(noise: Noise, peer: Any) -> None:
    spread, middle = float(peer.std()), float(peer.mean())
    ks = np.unique(np.linspace(middle - 6 * spread, middle + 6 * spread, 60).astype(np.int64))
    for ours, theirs in (
        (noise.pmf, peer.pmf),
        (noise.log_pmf, peer.logpmf),
        (noise.cdf, peer.cdf),
        (noise.sf, peer.sf),
    ):
        assert np.allclose(ours(ks), theirs(ks), rtol=1e-9, atol=1e-300)
    levels = np.array([1e-6, 0.01, 0.3, 0.77, 0.999999])
    assert noise.quantile(levels).tolist() == peer.ppf(levels).tolist()  # type: ignore[union-attr]  # an array


def test_masses_far_below_floats_keep_their_logarithm() -> None:
    noise = Poisson(mean=3)
    with second_path.digits(40):
        for k in (10**3, 10**6, 2**62):
            exact = poisson.log_pmf(noise, k)
            assert abs(noise.log_pmf(k) / exact - 1) < 1e-13
    assert noise.log_pmf(-1) == -math.inf
    assert noise.log_pmf(np.array([[-1, 0]])).tolist() == [[-math.inf, -3.0]]


# -- edges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [Poisson(mean="10/3"), Poisson(mean=2**80)], ids=repr)
def test_nothing_lies_below_zero(noise: Noise) -> None:
    for k in (-1, -(2**70)):
        assert noise.enclose_pmf(k) == noise.enclose_cdf(k) == Enclosure.exactly(0)
        assert noise.enclose_sf(k) == Enclosure.exactly(1)


@pytest.mark.parametrize("trials", [1, 12, 5000, 2**80])
def test_nothing_lies_beyond_the_trials(trials: int) -> None:
    noise = Binomial(trials=trials, probability="1/3")
    for k in (trials, trials + 1, trials * 4):
        assert noise.enclose_cdf(k) == Enclosure.exactly(1)
        assert noise.enclose_sf(k) == Enclosure.exactly(0)
        assert k == trials or noise.enclose_pmf(k) == Enclosure.exactly(0)


REFUSED: list[tuple[type[Noise], dict[str, Any], str]] = [
    *((Poisson, {"mean": m}, "mean") for m in (0, -1, "nan", float("inf"), True, None, [1])),
    *((Binomial, {"trials": n, "probability": "1/2"}, "trials") for n in (0, -1, 1.5, True, "3")),
    *(
        (Binomial, {"trials": 3, "probability": p}, "probability")
        for p in (0, 1, -1, "3/2", "nan", None)
    ),
]


@pytest.mark.parametrize(("law", "parameters", "argument"), REFUSED, ids=str)
def test_what_adds_no_noise_is_refused(law: Any, parameters: Any, argument: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        law(**parameters)
    assert refused.value.argument == argument


@pytest.mark.parametrize(
    "noise",
    [
        *(Poisson(mean=m) for m in ("1e-10", 2**61)),
        *(Binomial(trials=n, probability=p) for n, p in ((2**62 + 1, "1e-9"), (3, "1e-10"))),
        Binomial(trials=2**62, probability="1e-30"),
    ],
    ids=repr,
)
def test_floats_outside_their_range_are_refused(noise: Noise) -> None:
    for function in (noise.pmf, noise.log_pmf, noise.cdf, noise.sf):
        with pytest.raises(InvalidParameter, match="enclose_pmf"):
            function(0)
    with pytest.raises(InvalidParameter, match="enclose_pmf"):
        noise.quantile(0.5)


# -- statistics ------------------------------------------------------------------------------------

DRAWS = 200_000
ALPHA = "1e-10"
SAMPLED: list[Noise] = [
    Poisson(mean="1/50"),
    Poisson(mean=50),
    Poisson(mean="4194305.3"),
    Binomial(trials=12, probability="1/3"),
    Binomial(trials=268, probability="1/2"),
    Binomial(trials=3 * 2**23, probability="1/4"),
]


def least_p_value(noise: Noise, drawn: Any) -> float:
    r"""The least two-sided binomial p-value of P(X <= k) at fifteen places, and of odd values."""
    levels = [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999]
    places = sorted({int(noise.quantile(level)) for level in levels})
    cells = [(int(np.count_nonzero(drawn <= k)), noise.cdf(k)) for k in places]
    p_values = [stats.binomtest(hits, len(drawn), min(p, 1.0)).pvalue for hits, p in cells]
    return float(min(p_values)) * len(cells)


@pytest.mark.parametrize("noise", SAMPLED, ids=repr)
def test_batches_fit_their_cells(noise: Noise) -> None:
    alpha = purse.buy(f"{noise!r}: cells of a batch", ALPHA)
    assert least_p_value(noise, noise.sample(DRAWS, rng=SeededRng(3))) > alpha


@pytest.mark.parametrize("noise", SAMPLED, ids=repr)
def test_a_law_next_to_it_does_not_fit(noise: Noise) -> None:
    # Some draws moved up, so that the mean lies thirty standard errors away.
    drawn = noise.sample(DRAWS, rng=SeededRng(3))
    value = Fraction(str(noise.variance))
    off = math.sqrt(float(value)) * 30 / math.sqrt(DRAWS)
    moved = np.where(np.arange(DRAWS) % 1000 < 1000 * min(off, 1), 1, 0) * max(1, round(off))
    assert least_p_value(noise, drawn + moved) < 1e-10


@by_day(1)
@pytest.mark.parametrize("noise", [Poisson(mean="10/3"), Binomial(trials=12, probability="1/3")])
def test_references_fit_their_cells(noise: Noise) -> None:
    alpha = purse.buy(f"{noise!r}: cells of the reference", ALPHA)
    source = SeededRng(4)
    drawn = np.array([noise.sample_reference(source) for _ in range(20_000)])
    assert least_p_value(noise, drawn) > alpha


def test_modules_state_their_public_names() -> None:
    assert poisson_module.__all__ == ["Poisson"]
    assert binomial_module.__all__ == ["Binomial"]
