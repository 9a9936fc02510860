r"""Proven upper and lower bounds on delta(epsilon) for compositions.

A *scenario* is one possible composition: a list of rounds with their counts. The bounds are for the
worst of several scenarios. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from accounting.proof_kernel.cells import Pair, combined, listing
from accounting.proof_kernel.convolution import Listing, Plan, power, product
from accounting.proof_kernel.law_tables import REAL, Grid, Refused, Round, pair_of, size
from accounting.proof_kernel.series import Fixed

Scenario: TypeAlias = Sequence[tuple[Round, int]]

_GUARD = 96
_SPARE = 30
_PRODUCTS = 16
_FEW = 10.5
_MOST_WORK = 1 << 20


class Curve:
    r"""Bounds on the delta of the worst of several scenarios.

    The upper bound is computed from the scenarios ``above``, and the lower bound from ``below``.
    The two lists differ only in the direction in which irrational shifts are rounded. Raises
    :class:`Refused` if the bounds need too much work.

    >>> laplace = Round("discrete-laplace", (Fraction(10),), Fraction(1))
    >>> ONE = [[(laplace, 1)]]
    >>> low, high = Curve(ONE, ONE, Plan(Fraction(1, 10), 36, 64, 1)).delta(Fraction(0))
    >>> high - low < Fraction(1, 10**30), float(low)
    (True, 0.0499583749578...)
    """

    def __init__(
        self,
        below: Sequence[Scenario],
        above: Sequence[Scenario],
        plan: Plan,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.scenarios = below, above
        self.plan, self.tick = plan, tick
        self.fixed = Fixed(math.ceil(plan.digits * 3.33) + _GUARD, tick)
        self._tables: dict[tuple[Scenario, Grid], Pair] = {}
        self._totals: dict[tuple[int, bool], Listing] = {}
        # The work is known in advance: the values of all tables, and of all products.
        self.work = sum(size(each, plan.digits + _SPARE) for row in above for each, _ in row)
        for row in above:
            if sum(count for _, count in row) > 1:
                products = sum(2 * count.bit_length() for _, count in row)
                self.work += products * plan.slots // _PRODUCTS
        if self.work > _MOST_WORK:
            reason = f"the bounds need {self.work} values, more than the limit of {_MOST_WORK}"
            raise Refused(reason)

    def above(self, epsilon: Fraction) -> Fraction:
        return max(self._of(i, epsilon, above=True) for i in range(len(self.scenarios[True])))

    def below(self, epsilon: Fraction) -> Fraction:
        r"""A lower bound on delta, from the scenario with the largest upper bound."""
        listed = range(len(self.scenarios[True]))
        tops = [self._of(i, epsilon, above=True) for i in listed]
        return self._of(tops.index(max(tops)), epsilon, above=False)

    def delta(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        return self.below(epsilon), self.above(epsilon)

    def _of(self, index: int, epsilon: Fraction, *, above: bool) -> Fraction:
        scenario = self.scenarios[above][index]
        if gridless(scenario, self.plan.digits):
            return _of_table(self._table(scenario, epsilon), epsilon)[above]
        if (index, above) not in self._totals:
            self._totals[index, above] = self._total(scenario, above=above)
        return _of_listing(self._totals[index, above], epsilon, self.plan.digits)

    def _table(self, rounds: Scenario, grid: Grid) -> Pair:
        # The product of the tables of all rounds; only cells of real-valued noise depend on a grid.
        self.tick()
        if all(each.law not in REAL for each, _ in rounds):
            grid = Fraction(0)
        least = 1 if isinstance(grid, Fraction) else self.fixed.one // 10**self.plan.digits
        key = tuple(rounds), grid
        if key not in self._tables:
            tables = ([pair_of(each, self.fixed, grid, least)] * count for each, count in rounds)
            self._tables[key] = functools.reduce(combined, itertools.chain(*tables))
        return self._tables[key]

    def _total(self, scenario: Scenario, *, above: bool) -> Listing:
        found, digits = list[Listing](), self.plan.digits
        grids = _grids([each for each, _ in scenario], self.plan)
        for (each, count), (step, start) in zip(scenario, grids, strict=True):
            pair = self._table([(each, 1)], (step, start))
            try:
                one = listing(pair, step, start, digits, above=above)
            except OverflowError as error:
                raise Refused(f"{each.law}: {error}") from None
            found.append(power(one, count, self.plan, self.tick))
        return functools.reduce(lambda one, other: product(one, other, self.plan), found)


def gridless(scenario: Scenario, digits: int = 40) -> bool:
    r"""Whether delta is computed without a grid of losses, as for a single round."""
    if sum(count for _, count in scenario) == 1:
        return True
    if any(each.law in REAL for each, _ in scenario):
        return False
    values = sum(count * math.log(size(each, digits + _SPARE) + 2) for each, count in scenario)
    return values <= _FEW


def _grids(rounds: Sequence[Round], plan: Plan) -> list[tuple[Fraction, Fraction]]:
    # If one lattice suffices for all laws it is the grid; otherwise the grid is that of the plan.
    found = [lattice(each) for each in rounds]
    lattices = [each for each in found if each is not None]
    if len(lattices) == len(found):
        step = functools.reduce(_common, (each[0] for each in lattices))
        if step >= plan.step or len(lattices) == 1:
            return [(step, start) for _, start in lattices]
    return [(plan.step, Fraction(0))] * len(found)


def lattice(each: Round) -> tuple[Fraction, Fraction] | None:
    r"""The step and the start of a grid that contains all losses of the round; None if unknown."""
    if len(each.here) > 2 or each.here[1] != 1:
        return None
    match each.law:
        case "discrete-gaussian":
            step = abs(each.shift) / each.parameters[0]
            return step, step * abs(each.shift) / 2
        case "discrete-laplace":
            return 2 / each.parameters[0], each.shift / each.parameters[0]
        case "staircase":
            return each.parameters[0], Fraction(0)
        case "stated" if each.parameters[0]:
            return 2 * each.parameters[0], each.parameters[0]
    return None


def _common(one: Fraction, other: Fraction) -> Fraction:
    # The largest number of which both are multiples.
    whole = math.lcm(one.denominator, other.denominator)
    return Fraction(math.gcd(int(one * whole), int(other * whole)), whole)


def _of_table(pair: Pair, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    # One round: the sum of P - e^epsilon Q over the cells with a loss above epsilon. If the loss of
    # a cell may be on either side of epsilon, the cell adds max(P - e^epsilon Q, 0) to the lower
    # bound and P (1 - e^(epsilon - high)) to the upper bound.
    fixed = pair.fixed
    e_low, e_high = fixed.of(epsilon)
    f_low, f_high = fixed.exp(e_low)[0], fixed.exp(e_high)[1]
    below, above = pair.infinite, 0
    for p, q, low, high in pair.cells:
        below += max(p - (f_high * (q + pair.q_missing) >> fixed.bits) - 1, 0)
        if high is None or high > e_low:
            excess = p - (f_low * q >> fixed.bits)
            if high is not None and low is not None and low <= e_high:
                excess = p - (p * fixed.exp(e_low - high)[0] >> fixed.bits)
            above += max(excess, 0)
    # The mass outside the listed cells may have any loss.
    above += fixed.one - sum(cell[0] for cell in pair.cells)
    return Fraction(below, fixed.one), min(Fraction(above, fixed.one), Fraction(1))


def _of_listing(total: Listing, epsilon: Fraction, digits: int) -> Fraction:
    # The mass of the losses l_i, l_(i+1), ... above epsilon, minus e^(epsilon - l_i) times the sum
    # of w_j e^(l_i - l_j), which Horner's rule adds up from the top.
    fixed, up = Fixed(math.ceil(digits * 3.33) + _GUARD), not total.above
    i = max(math.floor((epsilon - total.start) / total.step) + 1 - total.first, 0)
    fall = fixed.decay(total.step)[up]
    found = 0
    for weight in reversed(total.weights[i:]):
        found = (weight << _GUARD) + (found * fall >> fixed.bits) + up
    factor = fixed.decay(total.start + (total.first + i) * total.step - epsilon)[up]
    infinite = 10**digits - sum(total.weights) if total.above else total.infinite
    finite = (sum(total.weights[i:]) << _GUARD) - (found * factor >> fixed.bits) - up
    return Fraction((infinite << _GUARD) + max(finite, 0), 10**digits << _GUARD)
