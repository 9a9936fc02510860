"""Mutation tests of the contour integral: each mutant breaks one step of the proof."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb

import accounting.numerical_composition.compose_plds
import accounting.numerical_composition.discrete_factor
import accounting.numerical_composition.error_bounds
import accounting.numerical_composition.invert_delta
from accounting.numerical_composition.compose_plds import ContourIntegral
from accounting.numerical_composition.discrete_factor import DiscreteOnGrid, _factor, turns
from accounting.numerical_composition.error_bounds import ContourSum, _covered
from accounting.numerical_composition.factor import Grid
from dpcore.numbers.enclosure import precision
from tests.support.accounting.small_laws import DIGITS, encloses, finite_delta, listed, sum_of
from tests.support.dpcore.mutants import mutated

RARE = listed(("1/100", "3"), ("99/100", "-1/10"))
COIN = listed(("3/5", "1"), ("2/5", "-1"))
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


def covered() -> bool:
    """Whether each block's bound holds at every frequency of the block."""
    with precision(128):
        sampled = THREE.factor(Fraction(2)).on(FINE)
    blocks = np.arange(FINE.blocks)
    moduli = np.abs(sampled.values(blocks).centres).reshape(FINE.blocks, -1)
    return bool((moduli.max(axis=1) <= sampled.cover(blocks)).all())


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
    covered,
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
    "a block bounded by its middle": (
        covered,
        DiscreteOnGrid,
        "cover",
        mutated(DiscreteOnGrid.cover, "+ 0.5 * self", "+ 0.0 * self"),
    ),
    "hidden masses added": (
        hidden_mass,
        accounting.numerical_composition.compose_plds,
        "_hidden",
        lambda parts: sum((count * part.hidden for part, count in parts), arb(0)),
    ),
    "ends moved the wrong way, uncertified": (
        inverse_on_an_atom,
        accounting.numerical_composition.invert_delta,
        "_first",
        lambda certified, start, scale, last: Fraction(start) - Fraction(scale) / 1000,
    ),
    "half a bump": (
        at_an_atom,
        ContourSum,
        "_height",
        mutated(ContourSum._height, "return square", "return square / 2"),
    ),
    "no bump": (at_an_atom, ContourSum, "_height", lambda self: arb(0)),
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
        accounting.numerical_composition.discrete_factor,
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
    "skipped blocks forgotten": (
        skipped_blocks,
        accounting.numerical_composition.error_bounds,
        "_covered",
        mutated(_covered, "return blocks, lost * _LOOSE", "return blocks, 0 * lost"),
    ),
    "the rest of the line forgotten": (
        short_line,
        accounting.numerical_composition.error_bounds,
        "_beyond",
        lambda window: 0.0,
    ),
    "what is not listed forgotten": (
        left_out,
        accounting.numerical_composition.discrete_factor,
        "_factor",
        mutated(_factor, "missing=(missing + 2 * _DROPPED) * SLACK + TINY", "missing=0.0"),
    ),
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_checks_pass_on_the_shipped_code(check: Callable[[], bool]) -> None:
    assert check()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_step_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, owner, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant)
    assert not check()
