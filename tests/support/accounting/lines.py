"""Small laws for the line integral, and the truth about their totals: plain enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
from flint import arb
from hypothesis import strategies as st

from accounting.fourier.discrete_factor import Atoms
from accounting.fourier.factor import Grid
from accounting.fourier.finite_sum import LineSum, Window, line_sum
from accounting.pairs.losses import Losses
from dpcore.numbers.enclosure import ball, precision
from tests.support.accounting.brute import real

DIGITS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A law of rational losses: ((mass, loss), ...), the rest of the mass hidden."""

    atoms: tuple[tuple[Fraction, Fraction], ...]

    @property
    def hidden(self) -> Fraction:
        return 1 - sum((mass for mass, _ in self.atoms), Fraction(0))

    @property
    def largest(self) -> Fraction:
        return max(loss for _, loss in self.atoms)

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        return Losses(
            masses=tuple(ball(mass) for mass, _ in self.atoms),
            losses=tuple(ball(loss) for _, loss in self.atoms),
            hidden=ball(self.hidden),
            beyond=lambda c: arb(0),
            largest=ball(self.largest),
        )


Parts = Sequence[tuple[Listed, int]]


def listed(*atoms: tuple[str, str]) -> Listed:
    return Listed(atoms=tuple((Fraction(mass), Fraction(loss)) for mass, loss in atoms))


def totals(parts: Parts) -> dict[Fraction, Fraction]:
    """The masses of every finite total, exact."""
    found = {Fraction(0): Fraction(1)}
    for law, count in parts:
        for _ in range(count):
            longer: dict[Fraction, Fraction] = {}
            for total, mass in found.items():
                for share, loss in law.atoms:
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
        shown *= (1 - law.hidden) ** count
    with mpmath.workdps(DIGITS):
        return real(1 - shown) + finite_delta(parts, epsilon)


@st.composite
def small_parts(draw: st.DrawFn) -> tuple[tuple[Listed, int], ...]:
    """One to three laws of one to four atoms, some mass hidden now and then."""
    parts = []
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        count = draw(st.integers(min_value=1, max_value=4))
        size = draw(st.integers(min_value=1, max_value=4))
        weights = [draw(st.integers(min_value=1, max_value=10**4)) for _ in range(size)]
        losses = st.fractions(min_value=-3, max_value=4, max_denominator=60)
        hidden = draw(st.sampled_from([0, 0, 1, 10**3]))
        scale = sum(weights) + hidden
        atoms = tuple((Fraction(w, scale), draw(losses)) for w in weights)
        parts.append((Listed(atoms=atoms), count))
    return tuple(parts)


def sum_of(
    parts: Parts, *, tilt: float, smoothing: float, grid: Grid, budget: float = 0.0
) -> LineSum:
    """One sum at one window, as `Line` would make it."""
    with precision(128):
        factors = [
            (Atoms(listing=law.losses(Fraction(8), 60)).factor(Fraction(tilt)), count)
            for law, count in parts
        ]
        found = line_sum(
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


def encloses(total: LineSum, parts: Parts, epsilons: Sequence[str]) -> bool:
    """Whether both bounds of a sum hold at each epsilon: what a mutant must fail."""
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
