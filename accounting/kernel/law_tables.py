r"""The cell tables of every law and sampling scheme: lower bounds on masses, in integers.

For noise on the integers a cell is an outcome. For noise on the reals cells lie between edges that
floats place where the loss crosses a grid; the loss at each edge is then enclosed in integers, so a
badly placed edge makes a cell wide but never invalid. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

from accounting.kernel.cells import Cell, Pair, of_masses
from accounting.kernel.convolution import convolved
from accounting.kernel.series import Fixed

MOST = 1 << 17
REAL = ("gaussian", "laplace")
_FINE = 512
_PLACES = 80
_NEAR = 2.0**-48

Grid: TypeAlias = "Fraction | tuple[Fraction, Fraction]"
r"""One epsilon, or the step and the start of a grid."""

Ratio: TypeAlias = Callable[[int], tuple[int, int, int]]
r"""Lower and upper bounds on p(k + 1)/p(k), as two numerators and one denominator."""


class Refused(Exception):
    r"""The reason for which the kernel cannot check a claim."""


@dataclass(frozen=True)
class Round:
    r"""A law and its shifts: P and Q are mixtures of the law moved by multiples of the shift.

    ``shift`` is an integer for noise on the integers; for noise on the reals it is in units of the
    scale. P moves by j shifts with probability ``here[j]``, Q by -j shifts with probability
    ``there[j]``.
    """

    law: str
    parameters: tuple[Fraction, ...]
    shift: Fraction
    here: tuple[Fraction, ...] = (Fraction(0), Fraction(1))
    there: tuple[Fraction, ...] = (Fraction(1),)
    swapped: bool = False


@dataclass(frozen=True)
class Table:
    r"""Lower bounds on masses from index ``first`` on; ``ends``: whether the support ends there."""

    first: int
    masses: list[int]
    ends: tuple[bool, bool] = (False, False)


def size(each: Round, digits: int) -> int:
    r"""The estimated number of values in the table of a round, without computing it."""
    nats = 2.3 * digits
    match each.law, [float(value) for value in each.parameters]:
        case "discrete-gaussian", [variance]:
            found = 2 * math.sqrt(2 * nats * variance)
        case "discrete-gaussian-sum", [count, variance]:
            found = 4 * count * math.sqrt(2 * nats * variance)
        case (("skellam" | "poisson"), [mean]):
            found = 2 * math.sqrt(2 * nats * mean) + 2 * nats
        case (("polya" | "polya-difference"), [shape, scale]):
            found = 2 * (nats + math.sqrt(2 * nats * shape)) * scale
        case "binomial", [trials, _]:
            found = min(trials, 2 * math.sqrt(nats * trials / 2) + 2 * nats)
        case "staircase", [epsilon, step, _]:
            found = 2 * (nats / epsilon + 1) * step
        case "discrete-laplace", _:
            found = float(abs(each.shift))
        case _:
            found = 4 * _FINE
    if not found < MOST or abs(each.shift) > MOST:
        raise Refused(f"{each.law}: the table needs more than {MOST} values")
    return int(found) + 1


def pair_of(each: Round, fixed: Fixed, grid: Grid, least: int) -> Pair:
    r"""The dominating pair of a round as a table; ``grid`` gives the cell edges of real noise."""
    if each.law == "stated":
        return _stated(each, fixed)
    if each.law in REAL:
        return _of_reals(each, fixed, grid, least)
    return of_masses(fixed, masses_of(each, fixed), least)


def masses_of(each: Round, fixed: Fixed) -> list[tuple[int, int, bool]]:
    r"""P and Q of each outcome of integer noise, and whether Q is exactly 0."""
    if each.law == "discrete-laplace":
        masses = _of_laplace(each, fixed)
    else:
        masses = _of_table(each, _table(each.law, each.parameters, fixed))
    r = each.here[1]
    mixed = [(_share(1 - r, q) + _share(r, p), q, never) for p, q, never in masses]
    return [(q, p, False) for p, q, _ in mixed] if each.swapped else mixed


def _share(chance: Fraction, mass: int) -> int:
    return mass * chance.numerator // chance.denominator


# -- noise on the integers -------------------------------------------------------------------------


def _of_table(each: Round, table: Table) -> list[tuple[int, int, bool]]:
    # P is the law and Q the shifted law, over all integers where either has mass.
    shift, masses = int(each.shift), table.masses
    count = len(masses)
    found = []
    for i in range(min(0, shift), count + max(0, shift)):
        p = masses[i] if 0 <= i < count else 0
        k = i - shift
        q = masses[k] if 0 <= k < count else 0
        never = (k < 0 and table.ends[0]) or (k >= count and table.ends[1])
        if p or q:
            found.append((p, q, never))
    return found


def _of_laplace(each: Round, fixed: Fixed) -> list[tuple[int, int, bool]]:
    # The loss is shift/scale for x <= 0 and -shift/scale for x >= shift: two unbounded cells.
    (scale,), shift = each.parameters, int(each.shift)
    powers = [fixed.exp(-fixed.of(x / scale)[1])[0] for x in range(shift + 1)]
    beta = fixed.exp(-fixed.of(1 / scale)[0])[1]
    above, gap = fixed.one + beta, fixed.one - beta
    here = [
        (fixed.one << fixed.bits) // above,
        *((power * gap) // above for power in powers[1:shift]),
        (powers[shift] << fixed.bits) // above,
    ]
    return [(p, q, False) for p, q in zip(here, reversed(here), strict=True)]


def _table(law: str, parameters: tuple[Fraction, ...], fixed: Fixed) -> Table:
    match law:
        case "discrete-gaussian":
            return _gaussian(parameters[0], fixed)
        case "staircase":
            epsilon, step, plateau = parameters
            return _staircase(epsilon, int(step), int(plateau), fixed)
        case "discrete-gaussian-sum":
            count, one = int(parameters[0]), _gaussian(parameters[1], fixed)
            found = one
            for bit in bin(count)[3:]:
                found = _added(found, found, fixed)
                found = _added(found, one, fixed) if bit == "1" else found
            return found
        case "skellam":
            one = _poisson(parameters[0] / 2, fixed)
            return _added(one, _mirrored(one), fixed)
        case "polya-difference":
            one = _polya(parameters[0], parameters[1], fixed)
            return _added(one, _mirrored(one), fixed)
        case "poisson":
            return _poisson(parameters[0], fixed)
        case "polya":
            return _polya(parameters[0], parameters[1], fixed)
        case "binomial":
            return _binomial(int(parameters[0]), parameters[1], fixed)
    raise Refused(f"the law {law} has no table")


def _gaussian(variance: Fraction, fixed: Fixed) -> Table:
    weights = [fixed.one]
    while weights[-1]:
        _check_length(weights)
        x = len(weights)
        weights.append(fixed.exp(-fixed.of(x * x / (2 * variance))[1])[0])
    # The total: each listed weight is at most 4 below the true one, and beyond the last one, at M,
    # weights decrease by a factor of at most e^-(M/variance).
    last = len(weights) - 1
    beyond = fixed.exp(-fixed.of(last * last / (2 * variance))[0])[1]
    falls = fixed.one - fixed.exp(-fixed.of(last / variance)[0])[1]
    if falls <= 0:
        raise Refused("discrete-gaussian: the variance is too large")
    total = sum(2 * (each + 4) for each in weights) - weights[0]
    total += 2 * (beyond << fixed.bits) // falls + 1
    half = [(each << fixed.bits) // total for each in weights]
    return Table(-last, [*half[:0:-1], *half])


def _staircase(epsilon: Fraction, step: int, plateau: int, fixed: Fixed) -> Table:
    weights, level, falls = [fixed.one] * plateau, 1, fixed.exp(-fixed.of(epsilon)[0])[1]
    while mass := fixed.exp(-fixed.of(level * epsilon)[1])[0]:
        weights += [mass] * step
        _check_length(weights)
        level += 1
    if falls >= fixed.one:
        raise Refused("staircase: epsilon is too small")
    # The sum of all, from above: the plateau, and a geometric series of the levels.
    total = (2 * plateau - 1) * fixed.one
    total -= 2 * step * (falls << fixed.bits) // (falls - fixed.one)
    half = [(each << fixed.bits) // total for each in weights]
    return Table(1 - len(half), [*half[:0:-1], *half])


def _from_ratios(mode: int, last: int | None, ratio: Ratio, fixed: Fixed, limit: int = 0) -> Table:
    # Lower and upper bounds on the masses relative to the mode, from the ratios of neighbours; they
    # decrease in both directions. The lower bounds are divided by the sum of the upper bounds.
    ups, downs = [fixed.one], [fixed.one]
    high = total = fixed.one
    k = mode
    while ups[-1] and k != last:
        low_ratio, high_ratio, whole = ratio(k)
        ups.append(ups[-1] * low_ratio // whole)
        high = -(-high * high_ratio // whole)
        total += high
        k += 1
        _check_length(ups)
    if k != last:
        # The later ratios are at most the ratio at k, or the limit if they increase to it.
        _, high_ratio, whole = (0, limit, fixed.one) if limit else ratio(k)
        if high_ratio >= whole:
            raise Refused("the masses of the law do not decrease")
        total += -(-high * whole // (whole - high_ratio))
    first, high = mode, fixed.one
    while downs[-1] and first > 0:
        low_ratio, high_ratio, whole = ratio(first - 1)
        downs.append(downs[-1] * whole // high_ratio)
        high = -(-high * whole // low_ratio)
        total += high
        first -= 1
        _check_length(downs)
    total += first * high
    masses = [(each << fixed.bits) // total for each in [*downs[:0:-1], *ups]]
    return Table(first, masses, (first == 0, k == last))


def _poisson(mean: Fraction, fixed: Fixed) -> Table:
    def ratio(k: int) -> tuple[int, int, int]:
        return mean.numerator, mean.numerator, mean.denominator * (k + 1)

    return _from_ratios(int(mean), None, ratio, fixed)


def _polya(shape: Fraction, scale: Fraction, fixed: Fixed) -> Table:
    low = fixed.exp(-fixed.of(1 / scale)[1])[0]
    high = fixed.exp(-fixed.of(1 / scale)[0])[1]
    if not 0 < low <= high < fixed.one:
        raise Refused("polya: the scale is too large or too small")

    def ratio(k: int) -> tuple[int, int, int]:
        top = shape.numerator + k * shape.denominator
        return top * low, top * high, (k + 1) * shape.denominator << fixed.bits

    mode = math.floor((shape - 1) * low / (fixed.one - low)) + 1 if shape > 1 else 0
    return _from_ratios(mode, None, ratio, fixed, high if shape < 1 else 0)


def _binomial(trials: int, chance: Fraction, fixed: Fixed) -> Table:
    def ratio(k: int) -> tuple[int, int, int]:
        top = (trials - k) * chance.numerator
        return top, top, (k + 1) * (chance.denominator - chance.numerator)

    return _from_ratios(min(int((trials + 1) * chance), trials), trials, ratio, fixed)


def _mirrored(one: Table) -> Table:
    last = one.first + len(one.masses) - 1
    return Table(-last, one.masses[::-1], one.ends[::-1])


def _added(one: Table, other: Table, fixed: Fixed) -> Table:
    masses = convolved(one.masses, other.masses, 2 * len(str(fixed.one)) + 2)
    return Table(one.first + other.first, [each >> fixed.bits for each in masses])


def _check_length(listed: Sequence[int]) -> None:
    if len(listed) > MOST:
        raise Refused(f"the law needs more than {MOST} values")


# -- noise on the reals, and stated claims ---------------------------------------------------------


def _stated(each: Round, fixed: Fixed) -> Pair:
    # Randomised response: the loss is +-epsilon, and infinite with probability delta.
    epsilon, lost = each.parameters
    low, high = fixed.of(epsilon)
    other = fixed.exp(-high)[0]
    whole = fixed.one + fixed.exp(-low)[1]
    rest = _share(1 - lost, fixed.one)
    p, q = rest * fixed.one // whole, rest * other // whole
    cells: list[Cell] = [(q, p, -high, -low), (p, q, low, high)]
    if lost:
        cells.append((_share(lost, fixed.one), 0, None, None))
    missing = fixed.one - sum(cell[0] for cell in cells)
    return Pair(fixed, cells, missing, missing, fixed.one >> 72)


def _of_reals(each: Round, fixed: Fixed, grid: Grid, least: int) -> Pair:
    shape = _Gaussian(each, fixed) if each.law == "gaussian" else _Laplace(each, fixed)
    low, high = shape.reach(math.sqrt(2 * math.log(fixed.one / max(least, 1))))
    points = [int(Fraction(x) * fixed.one) for x in _edges(shape, low, high, grid, each)]
    ends = [shape.ends[0], *map(shape.loss, points), shape.ends[1]]
    masses = [(0, 0), *map(shape.masses, points), (fixed.one, fixed.one)]
    cells: list[Cell] = []
    for (below, above), (before, after) in zip(pairwise(ends), pairwise(masses), strict=True):
        p, q = (max(b - a - shape.error, 0) for a, b in zip(before, after, strict=True))
        cells.append((p, q, below[0], above[1]))
    if each.swapped:
        cells = [(q, p, _minus(high), _minus(low)) for p, q, low, high in reversed(cells)]
    p_missing = fixed.one - sum(cell[0] for cell in cells)
    q_missing = fixed.one - sum(cell[1] for cell in cells)
    kept = [cell for cell in cells if cell[2] is not None and cell[0] >= least]
    return Pair(fixed, kept, p_missing, q_missing, fixed.one >> 44)


def _minus(loss: int | None) -> int | None:
    return None if loss is None else -loss


def _edges(
    shape: _Gaussian | _Laplace, low: float, high: float, grid: Grid, each: Round
) -> list[float]:
    # The points where the loss crosses the grid: at every grid point while the loss is small, then
    # at distances proportional to the loss. For one epsilon, two points around it.
    guess = shape.guess
    if isinstance(grid, Fraction):
        target = float(-grid if each.swapped else grid)
        if not guess(low) < target < guess(high):
            return [low, high]
        x, room = _inverse(guess, target, low, high), 2.0**-36
        return [low, x - room, x + room, high]
    step, start = float(grid[0]), float(-grid[1] if each.swapped else grid[1])
    place, last = math.floor((guess(low) - start) / step) + 1, guess(high)
    found = [low]
    while (target := start + place * step) < last:
        shape.fixed.tick()
        found.append(_inverse(guess, target, found[-1], high))
        place += max(1, int(abs(target) / step / _FINE))
        if len(found) > MOST:
            raise Refused(f"the table needs more than {MOST} intervals")
    return [*found, high]


def _inverse(guess: Callable[[float], float], target: float, low: float, high: float) -> float:
    # The Illinois method, then bisection: any result is sound.
    left, right = guess(low) - target, guess(high) - target
    for _ in range(_PLACES):
        x = low - left * (high - low) / (right - left) if right > left else low
        if not low < x < high:
            x = (low + high) / 2
        found = guess(x) - target
        if abs(found) < _NEAR or high - low < _NEAR:
            return x
        if found < 0:
            low, left, right = x, found, right / 2
        else:
            high, right, left = x, found, left / 2
    return (low + high) / 2


class _Gaussian:
    r"""Mixtures of N(j shift, 1): the outcomes are in units of the scale."""

    def __init__(self, each: Round, fixed: Fixed) -> None:
        self.each, self.fixed = each, fixed
        self.error = 2 * (10 + len(each.here) + len(each.there))
        first = each.here[0]
        bounded = len(each.there) == 1 and first
        lowest = fixed.of(first) if bounded else None
        low = (fixed.log(lowest[0])[0], fixed.log(lowest[1])[1]) if lowest else (None, None)
        self._c = float(each.shift)
        self._floats = [float(w) for w in each.here], [float(w) for w in each.there]
        self.ends: tuple[Any, Any] = (low, (None, None))

    def reach(self, z: float) -> tuple[float, float]:
        shift = float(self.each.shift)
        return -z - (len(self.each.there) - 1) * shift, z + (len(self.each.here) - 1) * shift

    def guess(self, x: float) -> float:
        there = self._floats[1]
        mixed = _log_mixed(self._floats[0], x * self._c, self._c)
        return mixed - (_log_mixed(there, -x * self._c, self._c) if len(there) > 1 else 0.0)

    def loss(self, x: int) -> tuple[int, int]:
        if self.each.here[1] == 1 and len(self.each.there) == 1:
            power = self._power(1, x)
            return power, power + 1
        here, there = self._mixed(self.each.here, x), self._mixed(self.each.there, -x)
        log = self.fixed.log
        above = 0 if len(self.each.there) == 1 else log(there[0])[0]
        below = 0 if len(self.each.there) == 1 else log(there[1])[1]
        return log(here[0])[0] - below, log(here[1])[1] - above

    def _mixed(self, chances: Sequence[Fraction], x: int) -> tuple[int, int]:
        # The density relative to that of N(0, 1).
        low = high = 0
        for j, chance in enumerate(chances):
            u = self._power(j, x)
            low += _share(chance, self.fixed.exp(u)[0])
            high += _share(chance, self.fixed.exp(u + 1)[1]) + 1
        return low, high

    def _power(self, j: int, x: int) -> int:
        # The log of the density of N(j shift, 1) relative to that of N(0, 1), rounded down.
        move = j * self.each.shift
        top = 2 * move.numerator * x * move.denominator - self.fixed.one * move.numerator**2
        return top // (2 * move.denominator**2)

    def masses(self, x: int) -> tuple[int, int]:
        each = self.each
        return self._below(each.here, x, -1), self._below(each.there, x, 1)

    def _below(self, chances: Sequence[Fraction], x: int, sign: int) -> int:
        moves = (self.fixed.of(sign * j * self.each.shift)[0] for j in range(len(chances)))
        return sum(
            _share(chance, self.fixed.normal(x + move))
            for chance, move in zip(chances, moves, strict=True)
        )


class _Laplace:
    r"""Laplace noise of scale 1 around 0 and around the shift; the loss is constant outside."""

    def __init__(self, each: Round, fixed: Fixed) -> None:
        self.each, self.fixed, self.error = each, fixed, 24
        self._floats = [float(w) for w in each.here]
        self.ends = (self.loss(0), self.loss(fixed.of(each.shift)[1]))

    def reach(self, _: float) -> tuple[float, float]:
        return 0.0, float(self.each.shift)

    def guess(self, x: float) -> float:
        return _log_mixed(self._floats, 2 * x - float(self.each.shift), 0.0)

    def loss(self, x: int) -> tuple[int, int]:
        rate, fixed = self.each.here[1], self.fixed
        u = 2 * x - fixed.of(self.each.shift)[1]
        low = _share(rate, fixed.exp(u)[0]) + _share(1 - rate, fixed.one)
        high = _share(rate, fixed.exp(u + 1)[1]) + _share(1 - rate, fixed.one) + 2
        return fixed.log(low)[0], fixed.log(high)[1]

    def masses(self, x: int) -> tuple[int, int]:
        rate, fixed = self.each.here[1], self.fixed
        q = fixed.one - (fixed.exp(-x)[0] >> 1)
        p = fixed.exp(x - fixed.of(self.each.shift)[0])[0] >> 1
        return _share(rate, p) + _share(1 - rate, q), q


def _log_mixed(chances: Sequence[float], u: float, c: float) -> float:
    # log of the sum of chance_j e^(j u - j^2 c^2/2), in floats.
    powers = [j * u - j * j * c * c / 2 for j in range(len(chances))]
    most = max(power for power, chance in zip(powers, chances, strict=True) if chance)
    if -1 < most < 1:
        return math.log1p(sum(map(operator.mul, chances, map(math.expm1, powers))))
    return most + math.log(
        sum(w * math.exp(e - most) for w, e in zip(chances, powers, strict=True))
    )
