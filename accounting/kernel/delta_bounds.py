r"""Proven upper and lower bounds on delta(epsilon) for compositions.

A *scenario* is a list of rounds with their counts. The bounds are for the worst scenario. Proofs:
docs/proofs/kernel.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

from accounting.kernel.cells import Pair, combined, listing
from accounting.kernel.convolution import Listing, Plan, power, product
from accounting.kernel.law_tables import REAL, Grid, Refused, Round, pair_of, size
from accounting.kernel.series import Fixed

Scenario: TypeAlias = Sequence[tuple[Round, int]]

_GUARD = 96
_SPARE = 30
_PRODUCTS = 16
_FEW = 10.5
_MOST_WORK = 1 << 20


class Curve:
    r"""The delta of the worst of several scenarios.

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
        self._pairs: dict[tuple[Round, Grid], Pair] = {}
        self._tails: dict[tuple[int, bool], _Tail] = {}
        self._products: dict[tuple[tuple[Round, int], ...], Pair] = {}
        # The work is known in advance: the values of all tables, and of all products.
        self.work = sum(size(each, plan.digits + _SPARE) for row in above for each, _ in row)
        for row in above:
            if sum(count for _, count in row) > 1:
                products = sum(2 * count.bit_length() for _, count in row)
                self.work += products * plan.slots // _PRODUCTS
        if self.work > _MOST_WORK:
            raise Refused(f"the work exceeds its limit: {self.work} values, at most {_MOST_WORK}")

    def above(self, epsilon: Fraction) -> Fraction:
        r"""An upper bound on delta."""
        return max(self._of(i, epsilon, above=True) for i in range(len(self.scenarios[True])))

    def below(self, epsilon: Fraction) -> Fraction:
        r"""A lower bound on delta, from the scenario with the largest upper bound."""
        listed = range(len(self.scenarios[True]))
        tops = [self._of(i, epsilon, above=True) for i in listed]
        return self._of(tops.index(max(tops)), epsilon, above=False)

    def delta(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        r"""The lower and the upper bound on delta."""
        return self.below(epsilon), self.above(epsilon)

    def _of(self, index: int, epsilon: Fraction, *, above: bool) -> Fraction:
        scenario = self.scenarios[above][index]
        if sum(count for _, count in scenario) == 1:
            return _single(self._pair(scenario[0][0], epsilon), epsilon)[above]
        if (few := self._few(scenario)) is not None:
            return _single(few, epsilon)[above]
        if (index, above) not in self._tails:
            self._tails[index, above] = _Tail(self._total(scenario, above=above), self.plan.digits)
        return self._tails[index, above].delta(epsilon)

    def _pair(self, each: Round, grid: Grid) -> Pair:
        self.tick()
        if each.law not in REAL:
            grid = Fraction(0)
        if (each, grid) not in self._pairs:
            least = 1 if isinstance(grid, Fraction) else self.fixed.one // 10**self.plan.digits
            self._pairs[each, grid] = pair_of(each, self.fixed, grid, max(least, 1))
        return self._pairs[each, grid]

    def _few(self, scenario: Scenario) -> Pair | None:
        # The product of all rounds, without a grid; None if there are too many combinations.
        if not gridless(scenario, self.plan.digits):
            return None
        key = tuple(scenario)
        if key not in self._products:
            pairs = [
                self._pair(each, Fraction(0)) for each, count in scenario for _ in range(count)
            ]
            self._products[key] = functools.reduce(combined, pairs)
        return self._products[key]

    def _total(self, scenario: Scenario, *, above: bool) -> Listing:
        total: Listing | None = None
        grids = _grids([each for each, _ in scenario], self.plan)
        for (each, count), (step, start) in zip(scenario, grids, strict=True):
            pair = self._pair(each, (step, start))
            one = listing(pair, step, start, self.plan.digits, above=above)
            if len(one.weights) > 1 << 22:
                raise Refused(
                    f"{each.law}: {len(one.weights)} grid points at step {step} are more than 2^22"
                )
            found = power(one, count, self.plan, self.tick)
            total = found if total is None else product(total, found, self.plan)
        if total is None:
            raise Refused("there are no rounds")
        return total


def gridless(scenario: Scenario, digits: int = 40) -> bool:
    r"""Whether the composition has one round, or few integer-noise rounds with few outcomes."""
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
        step = _common(each[0] for each in lattices)
        if step >= plan.step or len(lattices) == 1:
            return [(step, start) for _, start in lattices]
    return [(plan.step, Fraction(0))] * len(found)


def lattice(each: Round) -> tuple[Fraction, Fraction] | None:
    r"""The step and start of a grid that contains all losses of the round, if one exists."""
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


def _common(steps: Iterable[Fraction]) -> Fraction:
    found = Fraction(0)
    for step in steps:
        whole = math.lcm(found.denominator, step.denominator)
        found = Fraction(math.gcd(int(found * whole), int(step * whole)), whole)
    return found


def _single(pair: Pair, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    # One round: the sum of P - e^epsilon Q over cells with a larger loss. For a cell that contains
    # epsilon the lower bound is the same if > 0, the upper bound P (1 - e^(epsilon - high)).
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


class _Tail:
    r"""The bound on delta from a discretised loss, in its direction, by suffix sums of weights."""

    def __init__(self, total: Listing, digits: int) -> None:
        self.total, self.unit = total, 10**digits
        self.fixed = Fixed(math.ceil(digits * 3.33) + _GUARD)
        step, bits = self.fixed.of(total.step), self.fixed.bits
        down = self.fixed.exp(-step[1])[0] if total.above else self.fixed.exp(-step[0])[1]
        self.masses = [*accumulate(reversed(total.weights))][::-1]
        found, others = 0, list[int]()
        for weight in reversed(total.weights):
            carried = found * down
            found = (weight << 64) + (carried >> bits if total.above else -(-carried >> bits))
            others.append(found)
        self.others = others[::-1]
        self.infinite = self.unit - self.masses[0] if total.above else total.infinite

    def delta(self, epsilon: Fraction) -> Fraction:
        total, fixed = self.total, self.fixed
        i = max(math.floor((epsilon - total.start) / total.step) + 1 - total.first, 0)
        found = self.infinite << 64
        if i < len(self.masses):
            gap = fixed.of(epsilon - total.start - (total.first + i) * total.step)
            factor = fixed.exp(gap[0])[0] if total.above else fixed.exp(gap[1])[1]
            taken = self.others[i] * factor
            taken = taken >> fixed.bits if total.above else -(-taken >> fixed.bits)
            found += max((self.masses[i] << 64) - taken, 0)
        return Fraction(found, self.unit << 64)
