"""Tests of `accounting.pld_composition.delta_of_total_loss`: enumeration, closed forms."""

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

from accounting.pld_composition import contour_sum, delta_of_total_loss, discrete_factor
from accounting.pld_composition.contour_sum import ContourSum
from accounting.pld_composition.delta_of_total_loss import ContourIntegral
from accounting.pld_composition.factor import Grid
from dpcore.numbers.enclosure import Enclosure, precision
from tests.day_and_nightly import effort
from tests.support.accounting.brute_force import close, real
from tests.support.accounting.small_laws import (
    DIGITS,
    Listed,
    Parts,
    delta,
    encloses,
    finite_delta,
    listed,
    small_parts,
    sum_of,
    totals,
)
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused

COIN = listed(("3/5", "1"), ("2/5", "-1"))
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


def test_laws_that_hide_almost_nothing_nothing_or_everything_are_exact() -> None:
    law = Listed(pairs=((Fraction(1), Fraction(0)),), rest=Fraction(1, 1 << 166))
    found = ContourIntegral(parts=((law, 7),)).delta(0, "1e-6")
    assert holds(found, delta(((law, 7),), Fraction(0)))
    assert relative_width(found) < 1e-20

    line = ContourIntegral(parts=((listed(("1", "0")), 5),))
    assert line.delta(0, "1e-6") == line.epsilon("1e-9", "1e-6") == Enclosure.exactly(0)
    assert ContourIntegral(parts=((COIN, 2),)).epsilon("999/1000", "1e-6") == Enclosure.exactly(0)

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


def test_invalid_arguments_are_refused() -> None:
    one = ContourIntegral(parts=((COIN, 1),))
    cases: list[tuple[str, Callable[[], object]]] = [
        ("parts", lambda: ContourIntegral(parts=())),
        ("count", lambda: ContourIntegral(parts=((COIN, 0),))),
        ("rounds", lambda: ContourIntegral(parts=((COIN, 2**40 + 1),))),
        ("epsilon", lambda: one.delta(-1, "1e-6")),
        ("delta", lambda: one.epsilon(0, "1e-6")),
        ("delta", lambda: one.epsilon(1, "1e-6")),
        ("relative", lambda: one.epsilon("1/2", 0)),
        ("depth", lambda: Grid(step=0.5, depth=0, blocks=4)),
    ]
    for argument, call in cases:
        with refused(argument):
            call()


def grid(step: float, depth: int, blocks: int) -> Grid:
    return Grid(step=step, depth=depth, blocks=blocks)


TENTHS = ("0", "1/5", "2/5", "3/5", "4/5", "1", "11/10")
RARE = listed(("1/100", "3"), ("99/100", "-1/10"))
CERTAIN = listed(("1", "3"))
THREE = listed(("1/2", "1/4"), ("3/10", "-1/3"), ("1/5", "1/7"))
# Parts, tilt, smoothing, grid, budget and epsilons of one sum.
SUMS: dict[str, tuple[Parts, float, float, Grid, float, tuple[str, ...]]] = {
    "at an atom": ([(COIN, 3)], 1.5, 2.0**-5, grid(0.25, 3, 500), 0.0, ("1", "3", "1/2")),
    "below the loss": ([(CERTAIN, 1)], 0.5, 2.0**-5, grid(0.25, 3, 500), 0.0, ("0", "1", "2")),
    "many rounds": ([(THREE, 6)], 2.0, 2.0**-10, grid(0.25, 5, 2000), 0.0, ("0", "2/5", "11/10")),
    "coarse grid": ([(COIN, 3)], 1.0, 2.0**-4, grid(2.0, 2, 200), 0.0, ("0", "1/2", "2", "5/2")),
    "skipped blocks": ([(THREE, 6)], 2.0, 2.0**-6, grid(0.25, 1, 1000), 30.0, TENTHS),
    "short line": ([(COIN, 3)], 1.0, 2.0**-4, grid(0.25, 3, 6), 0.0, ("0", "1/2", "2", "5/2")),
    "rare loss": ([(RARE, 1)], 1.0, 2.0**-6, grid(2.0, 2, 200), 0.0, ("29/10",)),
}


def left_out() -> bool:
    """Whether atoms of negligible weight are counted: a rare one, at a tilt that hides it."""
    rare = listed(("1e-19", "1"), ("1/2", "1/4"), ("2/5", "-1/3"))
    with precision(128):
        factor = rare.factor(Fraction(1, 2))
    return factor.missing >= 1e-19


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


def passes(check: str | Callable[[], bool]) -> bool:
    if not isinstance(check, str):
        return check()
    parts, tilt, smoothing, frequencies, budget, epsilons = SUMS[check]
    total = sum_of(parts, tilt=tilt, smoothing=smoothing, grid=frequencies, budget=budget)
    assert budget == 0 or len(total.indices) < 1500
    return encloses(total, parts, epsilons)


def nothing(*_: Any) -> arb:
    return arb(0)


def added(parts: Any) -> arb:
    return sum((count * part.hidden for part, count in parts), arb(0))


def moved(certified: Any, start: Any, scale: Any, last: Any) -> Fraction:
    return Fraction(start) - Fraction(scale) / 1000


# Each mutant breaks one step of the proof: a function in place of the code, or one edit of it.
MUTANTS: list[tuple[Any, ...]] = [
    # Hidden masses are added; the ends are moved the wrong way, uncertified.
    (hidden_mass, delta_of_total_loss, "_hidden", added),
    (inverse_on_an_atom, contour_sum, "_first", moved),
    # Half of the second kernel, or none of it; a wrong drift.
    ("at an atom", ContourSum, "_height", "return square", "return square / 2"),
    ("at an atom", ContourSum, "_height", nothing),
    ("below the loss", ContourSum, "_phases", "(c + arb(0.5))", "(c - arb(0.5))"),
    # The step, or the step of the atoms, is off by 1e-7.
    ("many rounds", ContourSum, "_phases", "arb(2) ** (", "(1 + arb(1e-7)) * arb(2) ** ("),
    ("many rounds", discrete_factor, "turns", "(step):", "(step * Fraction(1 + 1e-7)):"),
    # No aliases, or those from above only.
    ("coarse grid", ContourSum, "_aliases", nothing),
    ("rare loss", ContourSum, "_aliases", "below / (1 - below) + ", ""),
    # Skipped blocks, frequencies beyond the grid, or unlisted losses are not counted.
    ("skipped blocks", contour_sum, "_covered", "lost * _LOOSE", "0 * lost"),
    ("short line", contour_sum, "_beyond", lambda window: 0.0),
    (left_out, discrete_factor, "_factor", "(missing + 2 * _DROPPED) * SLACK + TINY", "0.0"),
]


@pytest.mark.parametrize("row", MUTANTS, ids=[f"{r[2]}-{i}" for i, r in enumerate(MUTANTS)])
def test_a_mutant_of_each_step_is_detected(
    row: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    check, owner, attribute, *mutant = row
    assert passes(check)
    broken = mutant[0]
    if isinstance(broken, str):
        broken = mutated(getattr(owner, attribute), *mutant)
    monkeypatch.setattr(owner, attribute, broken)
    assert not passes(check)
