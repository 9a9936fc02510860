"""Tests of `accounting.pld.integer_cells`: sums over all outputs, single, in ranges, sampled."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

import accounting.pld.integer_cells as module
from accounting.law_pairs.registry import pair_of
from accounting.pairs.pair import Pair
from accounting.pld import discretise_round
from accounting.pld.discretise_round import (
    Cells,
    Focus,
    LossTable,
    Ratios,
    Sampled,
    listed_above,
    listed_below,
)
from accounting.pld.integer_cells import IntegerPair
from dpcore.errors import PrecisionExhausted
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import hockey_stick, mass_of, real, world_of
from tests.support.dpcore.mutants import mutated

DIGITS = 40
World = tuple[tuple[Any, Any], ...]
Case = tuple[Noise, int, int]  # with the shift, and a reach beyond which nothing matters

CASES: list[Case] = [
    (Skellam(variance=200), 7, 260),
    (DiscreteGaussian(sigma_squared=100), 5, 160),
    (DiscreteGaussian(sigma_squared="1/5"), 2, 20),
    (DiscreteLaplace(scale=30), 90, 3000),
    (DiscreteGaussianSum(count=3, sigma_squared="3/4"), 2, 60),
    (PolyaDifference(shape=3, scale=3), 3, 300),
    (PolyaDifference(shape="1/2", scale=3), 4, 260),
    (Poisson(mean=60), 3, 250),
    (Binomial(trials=80, probability="1/3"), 2, 90),
    (Polya(shape=3, scale=8), 2, 800),
]
PLACES = [sign * Fraction(at) for sign in (1, -1) for at in ("1/1000", "1/10", "1", "3")]


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clear the caches before and after a test that changes the module."""
    forget()
    yield
    forget()


changes = pytest.mark.usefixtures("fresh")


def forget() -> None:
    for name in ("_window", "_in_floats", "_masses", "_single", "_listed", "_ranges", "_sketch"):
        getattr(module, name).cache_clear()
    module._tail.cache_clear()
    discretise_round._infinite.cache_clear()


def cut(monkeypatch: pytest.MonkeyPatch, *, listed: bool, ranges: int = 40) -> None:
    """Use ranges of integers, by masses or by tails, in place of single integers."""
    forget()
    monkeypatch.setattr(module, "_MOST_SINGLE", 4)
    monkeypatch.setattr(discretise_round, "_RANGES", ranges)
    if not listed:
        monkeypatch.setattr(module, "_MOST_LISTED", 2)


@cache
def directions(noise: Noise, shift: int, reach: int) -> tuple[tuple[Pair, World], ...]:
    """Yield the pair of each direction with its two laws, output by output."""
    first = pair_of(noise, shift)
    mass = mass_of(noise)
    with mpmath.workdps(DIGITS):
        here = {k: mass(k) for k in range(-reach - shift, reach + shift + 1)}
    table = tuple((here[k], here[k + shift]) for k in range(-reach - shift, reach + 1))
    back = tuple((q, p) for p, q in table)
    if first.mirror() is first:
        return ((first, table),)
    # A mirrored pair is X - d against X: it hides the mass below d.
    one, two = (back, table) if getattr(first, "mirrored", True) else (table, back)
    return (first, one), (first.mirror(), two)


def sampled_world(world: World, rate: str, present: bool) -> World:
    r = real(Fraction(rate))
    mixed = tuple(((1 - r) * q + r * p, q) for p, q in world)
    return mixed if present else tuple((p, (1 - r) * p + r * q) for p, q in world)


@cache
def truths(world: World) -> list[Any]:
    return [hockey_stick(world, at) for at in PLACES]


def table_of(pair: Pair) -> IntegerPair:
    """Return single integers down to mass 1e-30 and slightly beyond."""
    return IntegerPair(pair=pair).cut(1e-30)


def between(table: LossTable, world: World, gap: str, count: int = 40) -> bool:
    """Whether the listings enclose the exact value narrowly, at both signs of epsilon."""
    cells = table.cells(table.edges(Focus(1.0), count))
    high, low = (world_of(make((1.0, cells))) for make in (listed_above, listed_below))
    with mpmath.workdps(DIGITS):
        for at, truth in zip(PLACES, truths(world), strict=True):
            least, most = hockey_stick(low, at), hockey_stick(high, at)
            if not least - mpmath.mpf("1e-36") <= truth <= most + mpmath.mpf("1e-36"):
                return False
            if most - least > mpmath.mpf(gap):
                return False
        hidden = mpmath.fsum(p for p, q in world if q == 0)
        return bool(table.infinite(above=False) <= hidden <= table.infinite(above=True) + 1e-35)


@by_day(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cells_of_single_integers_are_exact_up_to_rounding(case: Case) -> None:
    for pair, world in directions(*case):
        table = table_of(pair)
        assert table.fixed
        assert between(table, world, "1e-11")


@changes
@by_day(5)
@pytest.mark.parametrize("listed", [True, False], ids=["masses", "tails"])
@pytest.mark.parametrize("case", [*CASES[:2], *CASES[3:]], ids=str)
def test_ranges_of_integers_enclose_the_curve(
    case: Case, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listed and isinstance(case[0], (Polya, PolyaDifference)):
        pytest.skip("its tails take long")
    cut(monkeypatch, listed=listed)
    for pair, world in directions(*case):
        table = table_of(pair)
        assert not table.fixed
        assert between(table, world, "2e-2")


@changes
@pytest.mark.parametrize("rate", [None, "1/100"])
def test_close_tilts_share_cells_if_masses_are_slow(
    rate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, listed=False)
    pair, _ = directions(*CASES[0])[0]
    base = table_of(pair)
    found = Sampled(base=base, rate=Fraction(rate), present=True) if rate else base
    near, next_to, far = (found.edges(Focus(tilt), 4096) for tilt in (0.0, 0.01, 1e3))
    assert len(near) <= 42
    assert np.array_equal(near, next_to)
    assert not np.array_equal(near, far)


@by_day(3)
@pytest.mark.parametrize("present", [True, False], ids=["present", "absent"])
@pytest.mark.parametrize("rate", ["1/100", "2/3"])
@pytest.mark.parametrize("case", [CASES[i] for i in (0, 3, 6, 7, 8)], ids=str)
def test_sampled_rounds_of_integer_noise_are_enclosed(case: Case, rate: str, present: bool) -> None:
    for pair, world in directions(*case):
        table = Sampled(base=table_of(pair), rate=Fraction(rate), present=present)
        with mpmath.workdps(DIGITS):
            truth = sampled_world(world, rate, present)
        assert between(table, truth, "1e-11")
        largest = max(float(x) for x in listed_above((1.0, table.cells(np.zeros(1)))).losses)
        assert largest <= table.largest_loss().upper + 1e-11


def all_between(case: int, gap: str) -> bool:
    forget()
    return all(between(table_of(p), world, gap) for p, world in directions(*CASES[case]))


intact = cache(lambda listed, case, gap: all_between(case, gap))  # before any mutant


@by_day(4)
@changes
@pytest.mark.parametrize(
    ("listed", "case", "name", "old", "new"),
    [
        (None, 0, "_masses", "at.sign * m + at.there", "at.sign * m + at.there + 1"),
        (None, 7, "_masses", "at.sign * m + at.here", "at.here - at.sign * m"),
        (None, 3, "_with_tails", "left.joined(inner, right)", "left.joined(inner, left)"),
        (None, 3, "_with_tails", "left.joined(inner, right)", "inner.joined(inner, right)"),
        (None, 0, "_listed", "p.value - q.value, p.error", "q.value - p.value, p.error"),
        (True, 0, "_grouped", "np.where(rises, ends, starts)", "starts"),
        (True, 0, "_grouped", "ends = edges[1:].astype(np.int64) - first - 1", "ends = starts"),
        (True, 6, "_grouped", "np.where(rises, starts, ends)", "starts"),
        (False, 0, "_tails", "at.sign * m + offset", "at.sign * m + offset + 1"),
        (False, 7, "_tails", "right == (at.sign > 0)", "right"),
        (False, 0, "_range_masses", "two[1] - one[1]", "one[1] - two[1]"),
        (False, 0, "_ranges", "as_ball(pair.loss(after - 1))", "starts[i]"),
    ],
)
def test_mutants_of_integers_and_ranges_are_detected(
    monkeypatch: pytest.MonkeyPatch, listed: bool | None, case: int, name: str, old: str, new: str
) -> None:
    """Single integers if ``listed`` is None, otherwise ranges, by masses or by tails."""
    gap = "1e-11" if listed is None else "2e-2"
    if listed is not None:
        cut(monkeypatch, listed=listed)
    assert intact(listed, case, gap)
    broken = mutated(getattr(getattr(module, name), "__wrapped__", getattr(module, name)), old, new)
    forget()
    broken.cache_clear = lambda: None
    monkeypatch.setattr(module, name, broken)
    try:
        assert not all_between(case, gap)
    except (AssertionError, ValueError, IndexError, PrecisionExhausted) as error:
        assert "not all_between" not in str(error)  # noqa: PT017  # a crash is noticed, too


@pytest.mark.parametrize(
    ("kind", "present", "old", "new"),
    [
        (Cells, True, "rest * here.value + r * there.value", "r * here.value + rest * there.value"),
        (Cells, True, "shift = r * self.moved.value", "shift = self.moved.value"),
        (Cells, False, "q=self.q if present else mixed", "q=self.q"),
        (Ratios, True, "rate * w.value, rest", "w.value, rest"),
        (Ratios, False, "below = rest * value + rate", "below = value"),
        (Ratios, False, "excess = rate * moved / share", "excess = moved / share"),
    ],
)
def test_mutants_of_samples_are_detected(
    monkeypatch: pytest.MonkeyPatch, kind: Any, present: bool, old: str, new: str
) -> None:
    ((pair, world),) = directions(*CASES[0])
    table = Sampled(base=table_of(pair), rate=Fraction(1, 3), present=present)
    with mpmath.workdps(DIGITS):
        truth = sampled_world(world, "1/3", present)
    assert between(table, truth, "1e-11")
    monkeypatch.setattr(kind, "sampled", mutated(kind.sampled, old, new))
    assert not between(table, truth, "1e-11")
