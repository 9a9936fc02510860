"""Small laws for the contour integral, and their exact totals by plain enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from hypothesis import strategies as st

from accounting.pld.finite_pld import Listing
from accounting.pld_composition.cell_refinement import AllAtoms
from accounting.pld_composition.contour_sum import ContourSum, Window, contour_sum
from accounting.pld_composition.factor import Grid
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.accounting.brute_force import real

DIGITS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(AllAtoms):
    """A law of finitely many losses: ((mass, loss), ...), exact floats; ``rest`` is hidden."""

    pairs: tuple[tuple[Fraction, Fraction], ...]
    rest: Fraction = Fraction(0)

    @property
    def above(self) -> None:
        """None: the law is exact."""

    @property
    def atoms(self) -> Listing:
        rising = sorted(self.pairs, key=lambda pair: pair[1])
        masses, losses = (np.array([float(pair[i]) for pair in rising]) for i in (0, 1))
        return Listing(losses, masses, float(self.rest))

    def largest_loss(self) -> Enclosure:
        return Enclosure.exactly(max(loss for _, loss in self.pairs))


def in_floats(*atoms: tuple[Fraction, Fraction]) -> Listed:
    """Return the law with masses in 2^-40 and losses in floats; mass missing to 1 is hidden."""
    masses = [Fraction(round(mass * 2**40), 2**40) for mass, _ in atoms]
    missing = 1 - sum((mass for mass, _ in atoms), Fraction(0))
    rest = Fraction(round(missing * 2**40), 2**40)
    masses[0] += 1 - rest - sum(masses)
    losses = (Fraction(float(loss)) for _, loss in atoms)
    return Listed(pairs=tuple(zip(masses, losses, strict=True)), rest=rest)


Parts = Sequence[tuple[Listed, int]]


def listed(*atoms: tuple[str, str]) -> Listed:
    return in_floats(*((Fraction(mass), Fraction(loss)) for mass, loss in atoms))


def totals(parts: Parts) -> dict[Fraction, Fraction]:
    """Return the exact masses of every finite total."""
    found = {Fraction(0): Fraction(1)}
    for law, count in parts:
        for _ in range(count):
            longer: dict[Fraction, Fraction] = {}
            for total, mass in found.items():
                for share, loss in law.pairs:
                    longer[total + loss] = longer.get(total + loss, Fraction(0)) + mass * share
            found = longer
    return found


def finite_delta(parts: Parts, epsilon: Fraction) -> Any:
    """E[(1 - e^(epsilon - L))+; L < oo], in mpmath."""
    with mpmath.workdps(DIGITS):
        gains = (
            -real(mass) * mpmath.expm1(real(epsilon - loss))
            for loss, mass in totals(parts).items()
            if loss > epsilon
        )
        return mpmath.fsum(gains)


def delta(parts: Parts, epsilon: Fraction) -> Any:
    shown = Fraction(1)
    for law, count in parts:
        shown *= (1 - law.rest) ** count
    with mpmath.workdps(DIGITS):
        return real(1 - shown) + finite_delta(parts, epsilon)


@st.composite
def small_parts(draw: st.DrawFn) -> tuple[tuple[Listed, int], ...]:
    """Draw one to three laws of one to four atoms, sometimes with hidden mass."""
    parts = []
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        count = draw(st.integers(min_value=1, max_value=4))
        size = draw(st.integers(min_value=1, max_value=4))
        weights = [draw(st.integers(min_value=1, max_value=10**4)) for _ in range(size)]
        losses = st.builds(Fraction, st.integers(-192, 256), st.just(64))
        hidden = draw(st.sampled_from([0, 0, 1, 10**3]))
        scale = sum(weights) + hidden
        atoms = tuple((Fraction(w, scale), draw(losses)) for w in weights)
        parts.append((in_floats(*atoms), count))
    return tuple(parts)


def sum_of(
    parts: Parts, *, tilt: float, smoothing: float, grid: Grid, budget: float = 0.0
) -> ContourSum:
    """Return one sum at one window, as constructed by `ContourIntegral`."""
    with precision(128):
        factors = [(law.factor(Fraction(tilt)), count) for law, count in parts]
        found = contour_sum(
            factors,
            Window(
                epsilon=0.0,
                tilt=tilt,
                smoothing=smoothing,
                lift=Fraction(1),
                grid=grid,
                budget=budget,
            ),
        )
    assert found is not None
    return found


def encloses(total: ContourSum, parts: Parts, epsilons: Sequence[str]) -> bool:
    """Whether both bounds of a sum hold at each epsilon; a mutant must fail this check."""
    for each in epsilons:
        truth = finite_delta(parts, Fraction(each))
        with precision(128), mpmath.workdps(DIGITS):
            low, high = (
                mpmath.mpf(str(bound.mid().str(50, radius=False)))
                for bound in total.bounds(Fraction(each))
            )
        if not low <= truth <= high:
            return False
    return True
