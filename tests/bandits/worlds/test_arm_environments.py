"""Tests of simulated rewards and reward tables: laws, encodings and invalid input."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from bandits.worlds.arm_environments import Bernoulli, ClippedNormal, Environment, Table
from bandits.worlds.arm_presets import obd_arms, table_arms
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused

NORMAL = ClippedNormal(centers=(0.5, 0.97, 0.02), deviation=0.1)
TABLE = Table(rewards=([0, 1, 1, "1/3"], np.array([0.25, 0.25, 0.5])))


def encoded_law(center: float, deviation: float, steps: int) -> list[float]:
    # P(encoding = k): the triangle of width 1 around k, integrated over the clipped law with two
    # atoms.
    law = stats.norm(center, deviation)
    found = []
    for k in range(steps + 1):
        inside, _ = integrate.quad(
            lambda x, k=k: max(1 - abs(x * steps - k), 0.0) * law.pdf(x),
            max(k - 1, 0) / steps,
            min(k + 1, steps) / steps,
            points=[k / steps],
        )
        found.append(inside + (k == 0) * law.cdf(0) + (k == steps) * law.sf(1))
    return found


def p_value(draw: Callable[[int], int], center: float, steps: int, runs: int) -> float:
    counts = np.bincount([draw(i) for i in range(runs)], minlength=steps + 1)
    assert len(counts) == steps + 1, "an encoding left [0, g]"
    expected = runs * np.array(encoded_law(center, 0.1, steps))
    kept = expected > 5
    observed = np.append(counts[kept], counts[~kept].sum())
    wanted = np.append(expected[kept], max(expected[~kept].sum(), 1e-300))
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    return float(stats.chi2.sf(statistic, len(observed) - 1))


@by_day(2)
@pytest.mark.parametrize(("arm", "steps"), [(0, 3), (1, 4), (2, 1), (0, 10)])
def test_an_encoded_normal_reward_has_its_law(arm: int, steps: int) -> None:
    alpha = buy_alpha(f"bandits: encoded normal reward, arm {arm}, {steps} steps", "1e-10")
    world = np.random.default_rng(3)
    center = NORMAL.centers[arm]
    assert p_value(lambda _: NORMAL.encoded_sum(arm, 1, steps, world), center, steps, 3000) > alpha


@by_day(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("np.ceil(y, out=y)", "np.rint(y, out=y)"),
        ("y -= u", "y += u * 0"),
        ("y += center", "y += center * 1.05"),
        ("y *= scale", "y *= scale * 1.3"),
    ],
)
def test_another_rounding_or_law_is_detected(old: str, new: str) -> None:
    broken = mutated(ClippedNormal._encoded_sum, old, new)
    world = np.random.default_rng(3)
    assert p_value(lambda _: max(broken(NORMAL, 0, 1, 10, world), 0), 0.5, 10, 3000) < 1e-9


@pytest.mark.parametrize("steps", [1, 1000, 1 << 40])
@pytest.mark.parametrize("pulls", [1, (1 << 15) - 1, (1 << 15) + 1, 100_000])
def test_a_sum_over_any_number_of_chunks_has_the_right_mean(pulls: int, steps: int) -> None:
    alpha = buy_alpha(f"bandits: mean of {pulls} encoded rewards in {steps} steps", "1e-10")
    world = np.random.default_rng(5)
    for arm in range(3):
        mean = NORMAL.encoded_sum(arm, pulls, steps, world) / (pulls * steps)
        # Hoeffding: encodings are independent, in [0, 1], with the clipped mean.
        miss = 2 * math.exp(-2 * pulls * (mean - NORMAL.means[arm]) ** 2)
        assert miss > alpha / 3


def test_float_sums_of_a_chunk_are_exact_for_fine_steps() -> None:
    # A float holds 2^12 rewards in 2^40 steps; twice as many are summed as two such sums.
    world, steps, chunk = ClippedNormal(centers=(0.5,)), 1 << 40, 1 << 12
    coins = np.random.default_rng(2)
    halves = sum(world.encoded_sum(0, chunk, steps, coins) for _ in range(2))
    assert world.encoded_sum(0, 2 * chunk, steps, np.random.default_rng(2)) == halves


@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 1.0, 1000.0])
@pytest.mark.parametrize("center", [0.0, 0.05, 0.5, 0.999])
def test_means_are_within_their_stated_error(center: float, deviation: float) -> None:
    world = ClippedNormal(centers=(center,), deviation=deviation)
    with mpmath.workdps(40):
        c, s = mpmath.mpf(center), mpmath.mpf(deviation)
        low, high = -c / s, (1 - c) / s
        inside = mpmath.ncdf(high) - mpmath.ncdf(low)
        bent = s * (mpmath.npdf(low) - mpmath.npdf(high))
        assert abs(world.means[0] - (mpmath.ncdf(-high) + c * inside + bent)) < 1e-12


def test_a_bit_is_encoded_as_zero_or_all_steps() -> None:
    alpha = buy_alpha("bandits: sums of Bernoulli rewards", "1e-10")
    world, bits = np.random.default_rng(7), Bernoulli(means=(0.0, 1.0, "3/10"))
    assert bits.encoded_sum(0, 50, 9, world) == 0
    assert bits.encoded_sum(1, 50, 9, world) == 450
    total = bits.encoded_sum(2, 10**6, 9, world)
    assert total % 9 == 0
    assert stats.binomtest(total // 9, 10**6, 0.3).pvalue > alpha


def test_a_table_is_drawn_with_replacement_and_rounded_at_random() -> None:
    alpha = buy_alpha("bandits: sums from a table", "1e-10")
    assert [*map(list, TABLE.values)] == [[0, Fraction(1, 3), 1], [Fraction(1, 4), Fraction(1, 2)]]
    assert TABLE.counts == ((1, 1, 2), (2, 1))
    assert TABLE.means == pytest.approx((7 / 12, 1 / 3))
    world, law = np.random.default_rng(9), {0: 1, 1: 1, 3: 2}
    counts = np.bincount([TABLE.encoded_sum(0, 1, 3, world) for _ in range(4000)], minlength=4)
    expected = [1000 * law.get(k, 0) for k in range(4)]
    assert counts[2] == 0  # one third of three steps is a whole step: nothing to round
    kept = [0, 1, 3]
    found = stats.chisquare(counts[kept], [expected[k] for k in kept])
    assert found.pvalue > alpha / 2
    rounded = [TABLE.encoded_sum(1, 1, 1, world) for _ in range(3000)]
    assert set(rounded) == {0, 1}
    assert stats.binomtest(sum(rounded), 3000, 1 / 3).pvalue > alpha / 2


@pytest.mark.parametrize("world", [NORMAL, TABLE, Bernoulli(means=(0.2, 0.7))])
def test_draws_out_of_range_are_refused_by_name(world: Environment) -> None:
    rng = np.random.default_rng(1)
    for arguments, name in [
        ((9, 1, 1, rng), "arm"),
        ((-1, 1, 1, rng), "arm"),
        ((0, 0, 1, rng), "pulls"),
        ((0, 1, 0, rng), "precision"),
        ((0, 1, (1 << 40) + 1, rng), "precision"),
        ((0, 1 << 30, 1 << 40, rng), "pulls"),
        ((0, 1, 1, np.random.RandomState(1)), "world"),
        ((0, 1, 1, None), "world"),
    ]:
        with refused(name):
            world.encoded_sum(*arguments)  # type: ignore[arg-type]  # deliberately of the wrong type


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no rows of rewards"),
        ("a,b\n", "contains no rows of rewards"),
        ("a,b\nc,d\n", "line 2, column 1: 'c' is not a reward"),
        ("0,1\n1\n", "line 2 has 1 cells, but the first line has 2"),
        ("a,b\n1\n", "line 2 has 1 cells, but the first line has 2"),
        ("0,1\n1,\n", "line 2, column 2: '' is not a reward"),
        ("0,1.01\n", "line 1, column 2: '1.01' is not a reward"),
        ("-0.1,1\n", "line 1, column 1: '-0.1' is not a reward"),
        ("nan,nan\n0,1\n", "line 1, column 1: 'nan' is not a reward"),
        ("0,inf\n", "line 1, column 2: 'inf' is not a reward"),
        ("a,0.5\n0,1\n", "line 1, column 1: 'a' is not a reward"),
        ('0,"1\n', "is not valid CSV"),
    ],
)
def test_an_invalid_table_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rewards.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter, match=f"^data = .*{words}"):
        table_arms(path)


PACKAGE = "obp==0.4.1"
LOG = "obp/dataset/obd/random/all/all.csv"


@pytest.mark.nightly
def test_arms_have_the_click_rates_of_the_log(tmp_path: Path) -> None:
    wanted = ("--no-deps", "--only-binary=:all:", "-qq", "-d", str(tmp_path), PACKAGE)
    subprocess.run([sys.executable, "-m", "pip", "download", *wanted], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        log = Path(held.extract(LOG, tmp_path))
    with log.open(newline="", encoding="utf-8") as file:
        rows = [(int(row["item_id"]), int(row["click"])) for row in csv.DictReader(file)]
    assert len(rows) == 10_000
    found = obd_arms(log)
    assert found.arms == 80
    for item, mean in enumerate(found.means):
        clicks = [click for shown, click in rows if shown == item]
        assert mean == sum(clicks) / len(clicks)
