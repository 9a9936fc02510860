r"""Tables of the masses of every noise law, and the cells of every sampling scheme, in integers.

All masses are lower bounds. For integer noise, each outcome is a cell, and its mass follows from
the ratios of adjacent masses of the law. For real-valued noise, the cells are intervals. Their
edges are placed in floating point, near the points where the loss crosses a grid. The loss at each
edge is then enclosed in integers, so a badly placed edge only widens a cell. Proofs:
docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final, TypeAlias

from accounting.proof_kernel.cells import Cell, Pair, of_cells, of_masses
from accounting.proof_kernel.convolution import convolved
from accounting.proof_kernel.series import Fixed

MOST: Final = 1 << 17
REAL: Final = ("gaussian", "laplace")
_FINE = 512
_PLACE: Final = 1 << 50
_NEAR: Final = 1 << 14

Grid: TypeAlias = "Fraction | tuple[Fraction, Fraction]"
r"""One epsilon, or the step and the start of a grid."""

Bounds: TypeAlias = tuple[int, int, int]
Ratio: TypeAlias = Callable[[int], Bounds]
r"""Bounds on the ratio of the masses of k + 1 and k: two numerators and one denominator."""

Tail: TypeAlias = tuple[int, Bounds]
r"""A number of values and a ratio: over this many values, masses fall at least by this factor."""


class Refused(Exception):
    r"""Raised if the kernel cannot check a claim; the message is the reason."""


@dataclass(frozen=True)
class Round:
    r"""A round whose output laws P and Q are mixtures of shifted copies of one noise law.

    Under P the noise is shifted by j times ``shift`` with probability ``here[j]``, and under Q by
    -j times ``shift`` with probability ``there[j]``. ``swapped`` exchanges P and Q. ``shift`` is an
    integer for integer noise; for real-valued noise it is in units of the scale.
    """

    law: str
    parameters: tuple[Fraction, ...]
    shift: Fraction
    here: tuple[Fraction, ...] = (Fraction(0), Fraction(1))
    there: tuple[Fraction, ...] = (Fraction(1),)
    swapped: bool = False


def _range(nats: float, variance: float, tail: float = 0.0) -> float:
    # Approximately the number of values with masses above e^-nats, for tails that are normal with
    # this variance or exponential with scale `tail`.
    return 2 * (math.sqrt(2 * nats * variance) + nats * tail)


_SIZES: Final[Mapping[str, Callable[..., float]]] = {
    "discrete-gaussian": _range,
    # The table of one summand has at least three values, however small its variance.
    "discrete-gaussian-sum": lambda nats, count, variance: 2 * count * (_range(nats, variance) + 1),
    "skellam": lambda nats, variance: _range(nats, variance, 1),
    "poisson": lambda nats, mean: _range(nats, mean, 1),
    "binomial": lambda nats, trials, _: min(trials, _range(nats, trials / 4, 1)),
    "polya": lambda nats, shape, scale: _range(nats, shape * scale**2, scale),
    "polya-difference": lambda nats, shape, scale: _range(nats, shape * scale**2, scale),
    "staircase": lambda nats, epsilon, step, _: _range(nats, 0, step / epsilon) + 2 * step,
}


def size(each: Round, digits: int) -> int:
    r"""An estimate of the number of masses in a round's table; :class:`Refused` if above 2^17."""
    found = 4.0 * _FINE
    if each.law == "discrete-laplace":
        found = float(abs(each.shift))
    elif each.law in _SIZES:
        found = _SIZES[each.law](2.3 * digits, *map(float, each.parameters))
    if not found < MOST or abs(each.shift) > MOST:
        raise Refused(f"{each.law}: the table needs more values than the limit of {MOST}")
    return int(found) + 1


def pair_of(each: Round, fixed: Fixed, grid: Grid, least: int) -> Pair:
    r"""The pair of a round as cells, without those whose P-mass is below ``least``.

    For real-valued noise, cells begin and end near the outputs whose loss is a point of ``grid``,
    or is ``grid`` itself if that is a single epsilon.
    """
    if each.law == "stated":
        # Randomised response: the loss is +-epsilon, and P and Q are disjoint with probability
        # delta.
        epsilon, lost = each.parameters
        (low, high), other = fixed.of(epsilon), fixed.decay(epsilon)
        rest, infinite = _share(1 - lost, fixed.one), _share(lost, fixed.one)
        p, q = (rest * part // (fixed.one + other[1]) for part in (fixed.one, other[0]))
        cells: list[Cell] = [(q, p, -high, -low), (p, q, low, high), (0, infinite, None, None)]
        return of_cells(fixed, cells, infinite)
    if each.law in REAL:
        return of_cells(fixed, _of_reals(each, fixed, grid, least), least=least, slack=44)
    return of_masses(fixed, masses_of(each, fixed), least)


def _share(chance: Fraction, mass: int) -> int:
    return mass * chance.numerator // chance.denominator


# -- integer noise ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    r"""Lower bounds on the masses of the integers ``first``, ``first`` + 1, and so on.

    The two flags ``ends`` state whether the support of the law ends at the first of these integers,
    and whether it ends at the last.
    """

    first: int
    masses: list[int]
    ends: tuple[bool, bool] = (False, False)

    def at(self, x: int) -> int | None:
        r"""The lower bound on the mass of x, or None if x is outside the support."""
        i = x - self.first
        if 0 <= i < len(self.masses):
            return self.masses[i]
        return None if self.ends[i > 0] else 0

    def added(self, other: Table, fixed: Fixed, sign: int = 1) -> Table:
        r"""The table of a sum of independent variables, or of a difference if ``sign`` is -1."""
        last = other.first + len(other.masses) - 1
        start = other.first if sign > 0 else -last
        masses = convolved(self.masses, other.masses[::sign], 2 * len(str(fixed.one)) + 2)
        return Table(self.first + start, [each >> fixed.bits for each in masses])


def masses_of(each: Round, fixed: Fixed) -> list[tuple[int, int, bool]]:
    r"""Lower bounds on the P- and Q-mass of each outcome, and whether its Q-mass is exactly 0."""
    shift, rate = int(each.shift), each.here[1]
    if each.law == "discrete-laplace":
        # The loss is -shift/scale for x <= 0 and shift/scale for x >= shift: two unbounded cells.
        (scale,) = each.parameters
        powers = [fixed.decay(x / scale)[0] for x in range(shift + 1)]
        beta = fixed.decay(1 / scale)[1]
        inner = [power * (fixed.one - beta) >> fixed.bits for power in powers[1:shift]]
        falling = [(mass << fixed.bits) // (fixed.one + beta) for mass in (fixed.one, *inner)]
        falling.append((powers[shift] << fixed.bits) // (fixed.one + beta))
        found = [(p, q, False) for p, q in zip(reversed(falling), falling, strict=True)]
    else:
        table = _table(each.law, each.parameters, fixed)
        start, stop = min(0, shift), len(table.masses) + max(0, shift)
        places = range(table.first + start, table.first + stop)
        both = ((table.at(x - shift) or 0, table.at(x)) for x in places)
        found = [(p, q or 0, q is None) for p, q in both if p or q]
    mixed = [(_share(1 - rate, q) + _share(rate, p), q, never) for p, q, never in found]
    return [(q, p, False) for p, q, _ in mixed] if each.swapped else mixed


def _table(law: str, parameters: tuple[Fraction, ...], fixed: Fixed) -> Table:  # noqa: C901  # a case for each law
    match law, parameters:
        case "discrete-gaussian", (variance,):
            return _from_ratios(
                lambda k: (*fixed.decay((2 * k + 1) / (2 * variance)), fixed.one), None, fixed
            )
        case "staircase", (epsilon, step, plateau):
            fall, level = (*fixed.decay(epsilon), fixed.one), (1, 1, 1)
            return _from_ratios(
                lambda k: level if (k + 1 - plateau) % step else fall,
                None,
                fixed,
                tail=(int(step), fall),
            )
        case "poisson", (mean,):
            n, d = mean.as_integer_ratio()
            return _from_ratios(lambda k: (n, n, (k + 1) * d), int(mean), fixed)
        case "binomial", (count, chance):
            trials, (n, d) = int(count), (chance / (1 - chance)).as_integer_ratio()
            mode = min(int((trials + 1) * chance), trials)
            return _from_ratios(
                lambda k: ((trials - k) * n, (trials - k) * n, (k + 1) * d), mode, fixed, trials
            )
        case "polya", (shape, scale):
            (n, d), (low, high) = shape.as_integer_ratio(), fixed.decay(1 / scale)
            if not 0 < low <= high < fixed.one:
                raise Refused("polya: e^(-1/scale) is too close to 0 or 1 for this precision")
            mode = math.floor((shape - 1) * low / (fixed.one - low)) + 1 if shape > 1 else 0
            return _from_ratios(
                lambda k: ((n + k * d) * low, (n + k * d) * high, (k + 1) * d << fixed.bits),
                mode,
                fixed,
                tail=(1, (low, high, fixed.one)) if shape < 1 else None,
            )
        case "skellam", (variance,):
            half = _table("poisson", (variance / 2,), fixed)
            return half.added(half, fixed, -1)
        case "polya-difference", _:
            half = _table("polya", parameters, fixed)
            return half.added(half, fixed, -1)
        case "discrete-gaussian-sum", (count, variance):
            found = summand = _table("discrete-gaussian", (variance,), fixed)
            for bit in bin(int(count))[3:]:
                found = found.added(found, fixed)
                found = found.added(summand, fixed) if bit == "1" else found
            return found
    raise Refused(f"the law {law} has no table")


def _from_ratios(
    ratio: Ratio, mode: int | None, fixed: Fixed, last: int | None = None, tail: Tail | None = None
) -> Table:
    # A law on 0, ..., `last` with this mode; without a mode it is symmetric around 0.
    def inverse(k: int) -> tuple[int, int, int]:
        low, high, whole = ratio(peak - 1 - k)
        return whole * low, whole * high, low * high

    peak = mode or 0
    ups, above = _side(lambda k: ratio(peak + k), last and last - peak, fixed, tail)
    downs, below = (ups, above) if mode is None else _side(inverse, peak, fixed)
    masses = [(m << fixed.bits) // (fixed.one + above + below) for m in [*downs[:0:-1], *ups]]
    first = peak + 1 - len(downs)
    return Table(first, masses, (mode is not None and first == 0, first + len(masses) - 1 == last))


def _side(
    ratio: Ratio, count: int | None, fixed: Fixed, tail: Tail | None = None
) -> tuple[list[int], int]:
    # Lower bounds on the masses from the mode outwards, and an upper bound on their sum, both
    # relative to the mass of the mode. The sum excludes the mode, and includes the values beyond
    # the last listed one: there the masses decrease at least by the factor `tail`, by default the
    # last ratio.
    masses, high, total = [fixed.one], fixed.one, 0
    while masses[-1] and len(masses) - 1 != count:
        low, most, whole = ratio(len(masses) - 1)
        masses.append(masses[-1] * low // whole)
        high = -(-high * most // whole)
        total += high
        if len(masses) > MOST:
            raise Refused(f"the law needs more values than the limit of {MOST}")
    if len(masses) - 1 != count:
        block, (_, most, whole) = tail or (1, ratio(len(masses) - 1))
        if most >= whole:
            raise Refused("the masses of the law are not known to decrease in the tail")
        total += -(-block * high * whole // (whole - most))
    return masses, total


# -- real-valued noise -----------------------------------------------------------------------------


def _of_reals(each: Round, fixed: Fixed, grid: Grid, least: int) -> list[Cell]:
    noise = _Real(each, fixed)
    points = noise.edges(grid, least)
    losses, masses = [*map(noise.loss, points)], [*map(noise.masses, points)]
    # The loss of Laplace noise is constant outside [0, shift]; that of Gaussian noise is unbounded,
    # except that it is at least log here[0] if Q is the noise itself.
    bottom: int | None = noise.loss(0)[0]
    top: int | None = noise.loss(fixed.of(each.shift)[1])[1]
    if noise.normal:
        lowest = fixed.of(each.here[0])[0] if len(each.there) == 1 else 0
        bottom, top = fixed.log(lowest)[0] if lowest else None, None
    lows, highs = [bottom, *(low for low, _ in losses)], [*(high for _, high in losses), top]
    steps = pairwise([(0, 0), *masses, (fixed.one, fixed.one)])
    cells: list[Cell] = []
    for low, high, (before, after) in zip(lows, highs, steps, strict=True):
        p, q = (max(b - a - noise.error, 0) for a, b in zip(before, after, strict=True))
        cells.append((q, p, _minus(high), _minus(low)) if each.swapped else (p, q, low, high))
    return cells


def _minus(loss: int | None) -> int | None:
    return None if loss is None else -loss


class _Real:
    # Mixtures of shifted Gaussian or Laplace noise of scale 1; the loss increases in x.
    def __init__(self, each: Round, fixed: Fixed) -> None:
        self.shift, self.fixed, self.normal = each.shift, fixed, each.law == "gaussian"
        self.error = 2 * (10 + len(each.here) + len(each.there))
        self.sign = -1 if each.swapped else 1
        sides = (1, each.here), (-1, each.there)
        self.sides = [
            [(sign * j * each.shift, c) for j, c in enumerate(chances) if c]
            for sign, chances in sides
        ]
        self.floats = [[(float(move), float(c)) for move, c in side] for side in self.sides]

    def loss(self, x: int) -> tuple[int, int]:
        here, there = (self._log_mixed(side, x) for side in self.sides)
        return here[0] - there[1], here[1] - there[0]

    def _log_mixed(self, side: list[tuple[Fraction, Fraction]], x: int) -> tuple[int, int]:
        # The log of the density of a mixture, relative to that of the noise itself. The densities
        # of its components have logs in [power, power + 2].
        powers = [self._power(move, x) for move, _ in side]
        most, low, high = max(powers), 0, 0
        if len(side) == 1:
            return most, most + 2
        for (_, chance), power in zip(side, powers, strict=True):
            below, above = self.fixed.exp(power - most)
            low, high = low + _share(chance, below), high + _share(chance, above) + 1
        return most + self.fixed.log(low)[0], most + self.fixed.log(high)[1] + 2

    def _power(self, move: Fraction, x: int) -> int:
        if not self.normal:
            return abs(x) - abs(x - self.fixed.of(move)[0]) - 1
        top = 2 * move.numerator * x * move.denominator - self.fixed.one * move.numerator**2
        return top // (2 * move.denominator**2)

    def masses(self, x: int) -> tuple[int, ...]:
        # The masses of P and Q below x, each off by at most half of `error`.
        at, of = self._distribution, self.fixed.of
        return tuple(sum(_share(c, at(x - of(move)[0])) for move, c in side) for side in self.sides)

    def _distribution(self, x: int) -> int:
        if self.normal:
            return self.fixed.normal(x)
        tail = self.fixed.exp(-abs(x))[0] >> 1
        return tail if x < 0 else self.fixed.one - tail

    # Edges are placed in floats, in units of 2^-50.

    def edges(self, grid: Grid, least: int) -> list[int]:
        # The points where the loss crosses the grid: all grid points while the loss is small;
        # further out, the distances are proportional to the loss. For a single epsilon, two edges
        # enclose the point with this loss.
        ends = [0, int(self.shift * _PLACE)]
        if self.normal:
            far = int(math.sqrt(2 * (math.log(self.fixed.one) - math.log(least))) * _PLACE)
            moves = [int(move * _PLACE) for side in self.sides for move, _ in side]
            ends = [min(0, *moves) - far, max(0, *moves) + far]
        found, places = [*ends], range(*ends)
        if isinstance(grid, Fraction):
            at = ends[0] + bisect_left(places, float(self.sign * grid), key=self._guess)
            found += [at - _NEAR, at + _NEAR]
        else:
            step, last = float(grid[0]), self._guess(ends[1])
            place = math.floor(self._guess(ends[0]) / step) + 1
            while place * step < last:
                self.fixed.tick()
                found.append(ends[0] + bisect_left(places, place * step, key=self._guess))
                place += max(1, abs(place) // _FINE)
                if len(found) > MOST:
                    raise Refused(f"the table needs more intervals than the limit of {MOST}")
        inside = {min(max(x, ends[0]), ends[1]) for x in found}
        return [(x << self.fixed.bits) // _PLACE for x in sorted(inside)]

    def _guess(self, place: int) -> float:
        here, there = (self._guess_mixed(side, place / _PLACE) for side in self.floats)
        return here - there

    def _guess_mixed(self, side: list[tuple[float, float]], x: float) -> float:
        powers = [m * x - m * m / 2 if self.normal else abs(x) - abs(x - m) for m, _ in side]
        most = max(powers)
        if len(side) == 1:
            return most
        both = zip(side, powers, strict=True)
        return most + math.log(sum(c * math.exp(power - most) for (_, c), power in both))
