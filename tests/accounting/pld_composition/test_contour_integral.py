"""Tests of `accounting.pld_composition.contour_integral`: enumeration, closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

import accounting.pld_composition.contour_integral
import accounting.pld_composition.contour_sum
import accounting.pld_composition.discrete_factor
from accounting import PrivacyCurve
from accounting.law_pairs.registry import pair_of
from accounting.law_pairs.skellam_and_polya import SkellamPair
from accounting.pld_composition.contour_integral import ContourIntegral
from accounting.pld_composition.contour_sum import ContourSum, _covered
from accounting.pld_composition.discrete_factor import _factor, turns
from accounting.pld_composition.factor import Grid
from accounting.pld_composition.gaussian_factor import GaussianPart
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, precision
from tests.day_and_nightly import by_day, effort
from tests.support.accounting.brute_force import close, normal_delta, real
from tests.support.accounting.small_laws import (
    DIGITS,
    Listed,
    Parts,
    delta,
    encloses,
    finite_delta,
    listed,
    of_pairs,
    small_parts,
    sum_of,
    totals,
)
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal, refused

COIN = listed(("3/5", "1"), ("2/5", "-1"))
SHOWING = listed(("1/2", "1/4"), ("2/5", "-1/3"))
NOTHING = listed(("1", "0"))


holds = partial(close, relative="0")


def relative_width(found: Enclosure) -> float:
    return float(Fraction(found.width) / Fraction(found.upper)) if found.width else 0.0


def inverts(found: Enclosure, parts: Parts, target: Fraction) -> bool:
    """Whether delta at the lower end is >= the target and at the upper end <= it."""
    with mpmath.workdps(DIGITS):
        goal, slip = real(target), mpmath.mpf(10) ** (5 - DIGITS)
        if found.lower == math.inf:
            return bool(goal < delta(parts, 1000 * max(totals(parts))))
        high = found.lower == 0 or delta(parts, Fraction(found.lower)) >= goal - slip
        low = found.upper == math.inf or delta(parts, Fraction(found.upper)) <= goal + slip
        return bool(high and low)


@settings(max_examples=effort(20, 60), deadline=None)
@given(small_parts(), st.fractions(min_value=0, max_value=12, max_denominator=40), st.data())
def test_delta_encloses_the_enumerated_curve(
    parts: Parts, epsilon: Fraction, data: st.DataObject
) -> None:
    atoms = [total for total in totals(parts) if total >= 0] or [Fraction(0)]
    for each in (epsilon, data.draw(st.sampled_from(sorted(atoms)))):
        found = ContourIntegral(parts=tuple(parts)).delta(each, "1/100")
        truth = delta(parts, each)
        assert holds(found, truth)
        assert relative_width(found) <= 0.01 or truth < 1e-12


@settings(max_examples=effort(20, 60), deadline=None)
@given(
    small_parts(),
    st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(9, 10), max_denominator=1000),
    st.integers(min_value=0, max_value=30),
)
def test_epsilon_inverts_the_enumerated_curve(parts: Parts, share: Fraction, power: int) -> None:
    target = share / 10**power
    found = ContourIntegral(parts=tuple(parts)).epsilon(target, "1/100")
    assert inverts(found, parts, target)
    largest = (count * Fraction(law.largest_loss().upper) for law, count in parts)
    most = max(sum(largest, Fraction(0)), Fraction(0))
    assert found.upper <= most + Fraction(1, 2**100) or found == Enclosure.infinite()


def test_delta_is_at_least_the_hidden_mass() -> None:
    parts = ((SHOWING, 3), (COIN, 1))
    hidden = 1 - (1 - SHOWING.rest) ** 3
    line = ContourIntegral(parts=parts)
    assert line.epsilon(hidden - Fraction(1, 10**9), "1e-6") == Enclosure.infinite()
    assert hidden in line.delta(2, "1e-6")
    assert line.delta(2, "1e-6").width < Fraction(1, 10**30)
    # At exactly the hidden mass, epsilon is the largest finite loss, and not above it.
    touching = line.epsilon(hidden, "1e-6")
    assert touching.lower <= Fraction(7, 4) <= touching.upper
    assert holds(line.delta("1/10", "1e-6"), delta(parts, Fraction(1, 10)))


def test_a_tiny_hidden_mass_is_not_lost() -> None:
    law = Listed(pairs=((Fraction(1), Fraction(0)),), rest=Fraction(1, 1 << 166))
    found = ContourIntegral(parts=((law, 7),)).delta(0, "1e-6")
    assert holds(found, delta(((law, 7),), Fraction(0)))
    assert relative_width(found) < 1e-20


def test_rounds_without_a_loss_cost_nothing() -> None:
    line = ContourIntegral(parts=((NOTHING, 5),))
    assert line.delta(0, "1e-6") == Enclosure.exactly(0)
    assert line.epsilon("1e-9", "1e-6") == Enclosure.exactly(0)


def test_a_law_that_reveals_everything_has_infinite_epsilon() -> None:
    class Shown(Listed):
        @property
        def largest(self) -> arb:
            return arb(0)

    line = ContourIntegral(parts=((Shown(pairs=(), rest=Fraction(1)), 1), (COIN, 2)))
    assert line.delta(1, "1e-6") == Enclosure.exactly(1)
    assert line.epsilon("1/2", "1e-6") == Enclosure.infinite()


def test_delta_near_and_beyond_the_largest_loss_is_enclosed() -> None:
    line = ContourIntegral(parts=((COIN, 1000),))
    assert line.delta(1000, "1e-6") == Enclosure.exactly(0)
    assert line.delta(10**30, "1e-6") == Enclosure.exactly(0)
    # P(L = 1000) = (3/5)^1000 is about 1e-222: delta far below, epsilon just below the maximum.
    found = line.epsilon(Fraction(1, 10**300), "1e-6")
    assert found.upper == 1000
    assert 999 < found.lower < 1000
    at = line.delta(Fraction(1999, 2), "1e-6")
    with mpmath.workdps(400):
        assert holds(at, real("3/5") ** 1000 * -mpmath.expm1(-real("1/2")))
    assert relative_width(at) < 1e-6


def test_a_delta_above_the_whole_curve_costs_nothing() -> None:
    assert ContourIntegral(parts=((COIN, 2),)).epsilon("999/1000", "1e-6") == Enclosure.exactly(0)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("parts", lambda: ContourIntegral(parts=())),
        ("count", lambda: ContourIntegral(parts=((COIN, 0),))),
        ("rounds", lambda: ContourIntegral(parts=((COIN, 2**40 + 1),))),
        ("epsilon", lambda: ContourIntegral(parts=((COIN, 1),)).delta(-1, "1e-6")),
        ("delta", lambda: ContourIntegral(parts=((COIN, 1),)).epsilon(0, "1e-6")),
        ("delta", lambda: ContourIntegral(parts=((COIN, 1),)).epsilon(1, "1e-6")),
        ("relative", lambda: ContourIntegral(parts=((COIN, 1),)).epsilon("1/2", 0)),
    ],
    ids=["no law", "no round", "too many", "negative", "zero", "one", "no width"],
)
def test_invalid_arguments_are_refused(argument: str, call: Any) -> None:
    with refused(argument):
        call()


@by_day(3)
@pytest.mark.parametrize("rounds", [1, 7, 50])
@pytest.mark.parametrize("noise", [DiscreteGaussian(sigma_squared=9), DiscreteLaplace(scale="7/2")])
def test_powers_of_one_law_agree_with_closed_forms(noise: Noise, rounds: int) -> None:
    # k rounds of one Gaussian, or of randomised response, have a law in closed form.
    one, exact = pair_of(noise, 1), whole(noise, rounds)
    for epsilon in (Fraction(0), Fraction(1, 18), Fraction(1, 2), Fraction(3)):
        truth = exact(epsilon)
        found = of_pairs(
            [(one, rounds)], partial(ContourIntegral.delta, epsilon=epsilon, relative="1e-3")
        )
        assert found.lower <= truth.lower
        assert truth.upper <= found.upper


def whole(noise: Noise, rounds: int) -> Callable[[Fraction], Enclosure]:
    if isinstance(noise, DiscreteGaussian):
        law = DiscreteGaussianSum(count=rounds, sigma_squared=noise.sigma_squared)
        return PrivacyCurve(noise=law, sensitivity=rounds).enclose_delta
    assert isinstance(noise, DiscreteLaplace)

    def binomial(epsilon: Fraction) -> Enclosure:
        with precision(192):
            rate = 1 / ball(noise.scale)
            up = 1 / (1 + (-rate).exp())
            terms = (
                math.comb(rounds, j)
                * up**j
                * (1 - up) ** (rounds - j)
                * (-(ball(epsilon) - (2 * j - rounds) * rate).expm1()).max(arb(0))
                for j in range(rounds + 1)
            )
            return Enclosure.of(sum(terms, arb(0)))

    return binomial


def skellam(variance: int, shift: int) -> SkellamPair:
    return SkellamPair(noise=Skellam(variance=variance), shift=shift)


def test_many_rounds_have_the_requested_width() -> None:
    parts = [(skellam(400, 1), 1000)]
    wide = of_pairs(parts, lambda line: line.epsilon("1e-6", "1e-6"))
    narrow = of_pairs(parts, lambda line: line.epsilon("1e-6", "1e-9"))
    assert relative_width(wide) <= 1e-6
    assert relative_width(narrow) <= 1e-9
    assert wide.lower <= narrow.lower <= narrow.upper <= wide.upper
    assert 8.306145 < narrow.lower_float < 8.306149


def test_a_lattice_of_fine_steps_is_close_to_a_gaussian() -> None:
    # Steps of 10^-5 between losses: within 10^-9 of the Gaussian with loss Normal(v/2, v).
    law, variance, room = GaussianPart(variance=Fraction(10**8), shift=1000), Fraction(1, 100), 1e-7
    for rounds in (1, 100, 3000):
        line = ContourIntegral(parts=((law, rounds),))
        for epsilon in (Fraction(0), Fraction(rounds, 200), Fraction(rounds, 200) + 1):
            found = line.delta(epsilon, "1e-7")
            truth = normal_delta(real(variance * rounds), epsilon)
            assert found.lower_float * (1 - room) <= truth <= found.upper_float * (1 + room)
            assert relative_width(found) <= 1e-7


def test_the_bound_on_smoothing_is_at_least_its_error() -> None:
    with mpmath.workdps(40):
        tightest = mpmath.mpf(0)
        for width in ("1/1000", "1/10", "1", "3"):
            s = real(width)
            for step in range(-70, 71, 2):
                x = s * step / 7
                payoff = max(mpmath.mpf(0), -mpmath.expm1(-x))
                smooth = mpmath.ncdf(x / s + s / 2)
                smooth -= mpmath.exp(-x) * mpmath.ncdf(x / s - s / 2)
                bump = s * mpmath.exp(-x / 2) * mpmath.npdf(x / s)
                assert smooth >= payoff
                assert smooth - payoff <= bump
                tightest = max(tightest, (smooth - payoff) / bump)
        assert tightest > mpmath.mpf("0.999")


def test_sums_with_other_windows_enclose_the_same_curve() -> None:
    parts = ((COIN, 3), (SHOWING, 2))
    epsilons = ["0", "1/4", "3/2", "5/2", "3"]
    for tilt in (0.5, 2.0, 7.0):
        for smoothing in (0.5, 0.125, 2.0**-7):
            for step, budget in ((0.375, 0.0), (0.0625, 1e-3)):
                grid = Grid(step=step, depth=3, blocks=int(9 / smoothing / step / 8) + 1)
                total = sum_of(parts, tilt=tilt, smoothing=smoothing, grid=grid, budget=budget)
                assert encloses(total, parts, epsilons)


def test_a_block_of_one_frequency_has_no_centre_and_is_refused() -> None:
    assert "must be >= 1" in refusal(lambda: Grid(step=0.5, depth=0, blocks=4))


# -- mutants: each breaks one step of the proof ----------------------------------------------------


RARE = listed(("1/100", "3"), ("99/100", "-1/10"))
CERTAIN = listed(("1", "3"))
THREE = listed(("1/2", "1/4"), ("3/10", "-1/3"), ("1/5", "1/7"))


FINE = Grid(step=0.25, depth=3, blocks=500)


def at_an_atom() -> bool:
    total = sum_of([(COIN, 3)], tilt=1.5, smoothing=0.03125, grid=FINE)
    return encloses(total, [(COIN, 3)], ["1", "3", "1/2"])


def below_the_loss() -> bool:
    total = sum_of([(CERTAIN, 1)], tilt=0.5, smoothing=0.03125, grid=FINE)
    return encloses(total, [(CERTAIN, 1)], ["0", "1", "2"])


def many_rounds() -> bool:
    grid = Grid(step=0.25, depth=5, blocks=2000)
    total = sum_of([(THREE, 6)], tilt=2.0, smoothing=2.0**-10, grid=grid)
    return encloses(total, [(THREE, 6)], ["0", "2/5", "1", "11/10"])


def coarse_grid() -> bool:
    grid = Grid(step=2.0, depth=2, blocks=200)
    total = sum_of([(COIN, 3)], tilt=1.0, smoothing=0.0625, grid=grid)
    return encloses(total, [(COIN, 3)], ["0", "1/2", "3/2", "2", "5/2"])


def skipped_blocks() -> bool:
    parts = [(THREE, 6)]
    grid = Grid(step=0.25, depth=1, blocks=1000)
    total = sum_of(parts, tilt=2.0, smoothing=2.0**-6, grid=grid, budget=30.0)
    assert len(total.indices) < 1500
    return encloses(total, parts, ["0", "1/5", "2/5", "3/5", "4/5", "1", "11/10"])


def short_line() -> bool:
    parts = [(COIN, 3)]
    total = sum_of(parts, tilt=1.0, smoothing=0.0625, grid=Grid(step=0.25, depth=3, blocks=6))
    return encloses(total, parts, ["0", "1/2", "3/2", "2", "5/2"])


def left_out() -> bool:
    """Whether atoms of negligible weight are counted: a rare one, at a tilt that hides it."""
    rare = listed(("1e-19", "1"), ("1/2", "1/4"), ("2/5", "-1/3"))
    with precision(128):
        factor = rare.factor(Fraction(1, 2))
    return factor.missing >= 1e-19


def rare_loss() -> bool:
    grid = Grid(step=2.0, depth=2, blocks=200)
    total = sum_of([(RARE, 1)], tilt=1.0, smoothing=2.0**-6, grid=grid)
    return encloses(total, [(RARE, 1)], ["29/10"])


def hidden_mass() -> bool:
    shown = listed(("9/10", "0"))
    found = ContourIntegral(parts=((shown, 3), (COIN, 1))).delta(2, "1e-3")
    return found.lower <= 1 - (1 - shown.rest) ** 3 <= found.upper


def inverse_on_an_atom() -> bool:
    """Whether epsilon(delta(epsilon)) contains epsilon at a loss of large probability."""
    parts = ((COIN, 3),)
    with mpmath.workdps(DIGITS):
        at_atom = Fraction(str(finite_delta(parts, Fraction(1))))
    found = ContourIntegral(parts=parts).epsilon(at_atom, "1e-2")
    return found.lower <= 1 <= found.upper


CHECKS = [
    hidden_mass,
    inverse_on_an_atom,
    rare_loss,
    short_line,
    left_out,
    at_an_atom,
    below_the_loss,
    many_rounds,
    coarse_grid,
    skipped_blocks,
]

Mutant = tuple[Callable[[], bool], object, str, Callable[..., Any]]

MUTANTS: dict[str, Mutant] = {
    "hidden masses added": (
        hidden_mass,
        accounting.pld_composition.contour_integral,
        "_hidden",
        lambda parts: sum((count * part.hidden for part, count in parts), arb(0)),
    ),
    "ends moved the wrong way, uncertified": (
        inverse_on_an_atom,
        accounting.pld_composition.contour_sum,
        "_first",
        lambda certified, start, scale, last: Fraction(start) - Fraction(scale) / 1000,
    ),
    "half of the second kernel": (
        at_an_atom,
        ContourSum,
        "_height",
        mutated(ContourSum._height, "return square", "return square / 2"),
    ),
    "no second kernel": (at_an_atom, ContourSum, "_height", lambda self: arb(0)),
    "wrong drift": (
        below_the_loss,
        ContourSum,
        "_phases",
        mutated(ContourSum._phases, "(c + arb(0.5))", "(c - arb(0.5))"),
    ),
    "step off by 1e-7": (
        many_rounds,
        ContourSum,
        "_phases",
        mutated(ContourSum._phases, "arb(2) ** (", "(1 + arb(1e-7)) * arb(2) ** ("),
    ),
    "step of the atoms off by 1e-7": (
        many_rounds,
        accounting.pld_composition.discrete_factor,
        "turns",
        mutated(turns, "in _pieces(step)", "in _pieces(step * Fraction(10**7 + 1, 10**7))"),
    ),
    "no aliases": (coarse_grid, ContourSum, "_aliases", lambda self, epsilon: arb(0)),
    "aliases from above only": (
        rare_loss,
        ContourSum,
        "_aliases",
        mutated(ContourSum._aliases, "below / (1 - below) + ", ""),
    ),
    "skipped blocks not counted": (
        skipped_blocks,
        accounting.pld_composition.contour_sum,
        "_covered",
        mutated(_covered, "return blocks, lost * _LOOSE", "return blocks, 0 * lost"),
    ),
    "frequencies beyond the grid not counted": (
        short_line,
        accounting.pld_composition.contour_sum,
        "_beyond",
        lambda window: 0.0,
    ),
    "unlisted losses not counted": (
        left_out,
        accounting.pld_composition.discrete_factor,
        "_factor",
        mutated(_factor, "missing=(missing + 2 * _DROPPED) * SLACK + TINY", "missing=0.0"),
    ),
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_checks_pass_on_the_shipped_code(check: Callable[[], bool]) -> None:
    assert check()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_each_step_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, owner, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant)
    assert not check()
