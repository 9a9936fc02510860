"""Bonuses: a proven one covers, the paper's is its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from scipy.signal import fftconvolve

from bandits.combinatorial.bonus import bonus_table, laplace_quantile
from bandits.combinatorial.cucb import cucb
from bandits.combinatorial.decisions import Unions
from bandits.combinatorial.problem import Problem
from bandits.combinatorial.streams import StreamPrivatizer
from bandits.combinatorial.totals import totals_of
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng

TOP = Problem(decisions=Unions.subsets(20, 4))


def tail(draws: int, scale: float, least: float) -> float:
    """P(sum of discrete Laplace draws >= least), by convolving the law at high precision."""
    reach = int(least) + 400
    a = math.exp(-1 / scale)
    law = (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))
    total = law
    for _ in range(draws - 1):
        total = fftconvolve(total, law)
    middle = len(total) // 2
    return float(total[middle + math.ceil(least) :].sum())


@pytest.mark.parametrize("draws", [1, 2, 9, 40])
@pytest.mark.parametrize("scale", [0.5, 4.0, 17.0])
def test_a_quantile_holds_and_is_not_far_off(draws: int, scale: float) -> None:
    rare = math.log(1e6)
    (found,) = laplace_quantile(np.array([draws]), scale, rare)
    assert tail(draws, scale, found) <= 1e-6
    assert tail(draws, scale, 0.7 * found - 1) > 1e-6  # a narrower one misses


def test_a_quantile_is_the_least_of_a_formula_at_high_precision() -> None:
    with mp.workdps(40):
        scale, rare, draws = mp.mpf(17), mp.log(10) * 30, 12345
        a = mp.exp(-1 / scale)

        def bound(s: mp.mpf) -> mp.mpf:
            mgf = (1 - a) ** 2 / ((1 - a * mp.exp(s)) * (1 - a * mp.exp(-s)))
            return (draws * mp.log(mgf) + rare) / s

        shares = [mp.mpf(i) / 2000 for i in range(1, 2000)]
        best = min(bound(share / scale) for share in shares)
    (found,) = laplace_quantile(np.array([draws]), 17.0, float(rare))
    assert float(best) <= found <= 1.01 * float(best)
    with pytest.raises(InvalidParameter, match="scale"):
        laplace_quantile(np.array([1]), 0.0, 1.0)


@pytest.mark.parametrize("release", ["tree", "doubling", "factorisation"])
def test_released_sums_stay_within_their_noise_bound(release: str) -> None:
    """The share of misses is far below what a third of the bonus would miss."""
    horizon, runs = 128, 20
    setting = StreamPrivatizer(
        trust="central", epsilon=1, sent=2, horizon=horizon, release=release,  # type: ignore[arg-type]  # words of a Literal, or what is refused
    )  # fmt: skip
    sums = totals_of(setting, 20, [SeededRng(i) for i in range(runs)])
    cells, none = np.arange(runs * 20), np.zeros(runs * 20, dtype=np.int64)
    bonus = bonus_table(setting, 20, "exact", 4)
    rewards = np.zeros(horizon + 1)
    rewards[1:] = np.sqrt(math.log(horizon) / np.arange(1, horizon + 1))
    missed = narrow = 0
    for t in range(1, horizon + 1):
        drawn = setting.draw((len(cells),), SeededRng(10**6 + t)) if sums.each else none
        sums.add(cells, none, drawn)
        width = (bonus[t] - rewards[t]) * t
        missed += int((sums.value[sums.count == t] > width).sum())
        narrow += int((sums.value[sums.count == t] > width / 3).sum())
    assert missed == 0  # at most 400 * 128 T^-2 = 3 are expected of the weakest bound
    assert narrow > 20


def test_the_papers_bonuses_are_its_formulas() -> None:
    n, log = 50, math.log(1000)
    for name, wanted in (
        ("cucb", math.sqrt(3 * log / (2 * n))),
        ("cucb-ldp1", 4 * math.sqrt(16 * log / (4 * n))),
        ("cucb-ldp2", 4 * math.sqrt(log / (4 * n))),
        ("cucb-dp", math.sqrt(4 * math.log(20 * 1000) / n) + 12 * 4 * log**3 / (2 * n)),
        ("cucb-dp2", math.sqrt(4 * math.log(20 * 1000) / n) + 12 * log**3 / (2 * n)),
    ):
        policy = cucb(name, TOP, horizon=1000, epsilon=2, radius="paper")  # type: ignore[arg-type]  # words of a Literal, or what is refused
        assert policy.bonuses()[n] == pytest.approx(wanted)
    twice = cucb("cucb-ldp2", TOP, horizon=1000, epsilon=2, radius="paper", c=8).bonuses()
    assert twice[n] == pytest.approx(8 * math.sqrt(log / (4 * n)))


def test_what_a_policy_cannot_be_made_of_is_refused_by_name() -> None:
    for argument, parts in (
        ("name", {"name": "ucb"}),
        ("problem", {"problem": 3}),
        ("horizon", {"horizon": 19}),
        ("epsilon", {"epsilon": 0}),
        ("c", {"c": 1}),
        ("c", {"c": "nan"}),
        ("radius", {"radius": "narrow"}),
        ("release", {"release": "blocks"}),
        ("delta", {"delta": 0}),
    ):
        fields = {"name": "cucb-dp", "problem": TOP, "horizon": 1000, **parts}
        with pytest.raises(InvalidParameter) as caught:
            cucb(**fields)  # type: ignore[arg-type]  # words of a Literal, or what is refused
        assert caught.value.argument == argument
