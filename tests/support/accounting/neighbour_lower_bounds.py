"""Privacy losses of parts of certificates by brute force: of some neighbours, and of all.

`Shown`: every neighbour is allowed by the sensitivity, and outcomes are only ever merged, which can
hide a loss but never add one. So the numbers are lower bounds, up to the rounding of floats.
Real-valued noise is divided into bins, in up to nine coordinates. `Truth`: every shift and sign of
integer noise, every round separately. Worst shifts, monotone losses and equal directions are not
assumed. Its floats are accurate to about 1e-12.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from scipy.stats import laplace, norm

from dpcore.parse_noise import noise_from_json
from tests.support.accounting.brute_force import mass_of

Masses = dict[int, Any]
Table = npt.NDArray[np.float64]
"""A row for each dataset, a column for each outcome: (P, Q) are rows 0 and 1."""

_RARE = mpmath.mpf(10) ** -34
_BINS = 160
_MERGED = 500
_FARTHEST = 60.0
_COORDINATES = (1, 2, 4, 9)
_ORDERS = (1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A list of all rounds for each choice of neighbours: (P, Q) of the outcomes."""

    tables: tuple[Table, ...]

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Any]]) -> Shown:
        """The same neighbours in every round of a part, and in all rounds of samples."""
        choices = [[_joined([one] * part["rounds"]) for one in rounds_of(part)] for part in parts]
        return cls(tables=tuple(_joined(each) for each in itertools.product(*choices)))

    def delta(self, epsilon: float) -> float:
        factor = math.exp(epsilon)
        return max(float(np.maximum(p - factor * q, 0).sum()) for p, q in self.tables)

    def epsilon(self, delta: float, most: float = 2 * _FARTHEST) -> float:
        if self.delta(0) <= delta:
            return 0.0
        low, high = 0.0, most
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low

    def renyi(self, order: float) -> float:
        found = 0.0
        for p, q in self.tables:
            seen = (p > 0) & (q > 0)
            logs = order * np.log(p[seen]) + (1 - order) * np.log(q[seen])
            top = float(logs.max())
            total = top + math.log(float(np.exp(logs - top).sum()))
            found = max(found, total / (order - 1))
        return found

    def zcdp(self) -> float:
        return max(self.renyi(order) / order for order in _ORDERS)

    def pure(self) -> float:
        return max(
            float(np.log(p[seen] / q[seen]).max())
            for p, q in self.tables
            for seen in [(p > 1e-30) & (q > 1e-30)]
        )


def rounds_of(part: Mapping[str, Any]) -> Iterator[Table]:
    """Return (P, Q) of one round, for each choice of neighbours."""
    if "claim" in part:
        yield _of_claim(part)
        return
    sampling, shifts = part.get("sampling"), [*_shifts(part)]
    if sampling is None:
        for shift in shifts:
            both = [_coordinate(part, (step, 0)) for step in shift]
            yield _joined(both)
        return
    rate, members = float(Fraction(sampling["rate"])), sampling.get("members", 1)
    chance = [
        math.comb(members, j) * rate**j * (1 - rate) ** (members - j) for j in range(members + 1)
    ]
    for shift in shifts:
        if sampling["kind"] == "poisson-replaced":
            up, down, none = _grid([_coordinate(part, (s, -s, 0)) for s in shift])
            yield np.array([(1 - rate) * none + rate * up, (1 - rate) * none + rate * down])
            continue
        laws = _grid([_coordinate(part, [j * s for j in range(members + 1)]) for s in shift])
        mixed = np.tensordot(chance, laws, axes=1)
        yield np.array([mixed, laws[0]])
        yield np.array([laws[0], mixed])


def _shifts(part: Mapping[str, Any]) -> Iterator[tuple[float, ...]]:
    sensitivity, law = part["sensitivity"], part["noise"]["law"]
    kind, amount = sensitivity["norm"], sensitivity["amount"]
    if "correlated" in part:
        length = math.sqrt(_squared(part["correlated"]))
        amount = math.sqrt(amount) if kind == "l2-squared" else amount
        yield (length * amount,)
    elif law not in ("gaussian", "laplace"):
        yield from (move for move in moves(sensitivity) if 0 < len(move) <= _most(part))
    elif kind in ("absolute", "box"):
        yield tuple(amount) if kind == "box" else (amount,)
    else:
        for count in _COORDINATES[: 1 + _most(part) // 2]:
            yield (amount / count if kind == "l1" else math.sqrt(amount / count),) * count


def _most(part: Mapping[str, Any]) -> int:
    # A sample moves all coordinates or none, so a table of all of them is necessary.
    return 2 if "sampling" in part else 9


def _coordinate(part: Mapping[str, Any], centres: Sequence[float]) -> Table:
    noise = part["noise"]
    if noise["law"] in ("gaussian", "laplace"):
        real = norm if noise["law"] == "gaussian" else laplace
        scale = float(Fraction(noise["sigma" if noise["law"] == "gaussian" else "scale"]))
        far = 9 if noise["law"] == "gaussian" else 30
        # The kinks of the Laplace density are edges of bins.
        inner = np.linspace(min(centres) - far * scale, max(centres) + far * scale, _BINS)
        edges = np.unique([*inner, *centres])
        below = [np.concatenate([[0], real.cdf(edges, c, scale), [1]]) for c in centres]
        above = [np.concatenate([[1], real.sf(edges, c, scale), [0]]) for c in centres]
        right = np.concatenate([[False], edges > np.mean(centres)])
        return np.array(
            [np.where(right, -np.diff(a), np.diff(b)) for a, b in zip(above, below, strict=True)]
        )
    here = masses(tuple(sorted(noise.items())))
    steps = [int(each) for each in centres]
    points = sorted({x + step for x in here for step in steps})
    return np.array([[float(here.get(x - step, 0)) for x in points] for step in steps])


@lru_cache(maxsize=64)
def masses(noise: tuple[tuple[str, str], ...]) -> Masses:
    """Return every value of the law that is not too rare, with its mass."""
    law, found = noise_from_json(dict(noise)), Masses()
    with mpmath.workdps(50):
        mass = mass_of(law)
        for k in itertools.count():
            both = {k: mass(k), -k: mass(-k)} if law.symmetric else {k: mass(k)}
            found.update(both)
            if k > 8 and all(each < _RARE for each in both.values()) and mass(k - 1) >= mass(k):
                break
        return {k: each for k, each in found.items() if each}


def moves(sensitivity: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """Return every change of the coordinates between neighbouring data, except zeros."""
    norm, amount = sensitivity["norm"], sensitivity["amount"]
    if norm == "box":
        ranges = [range(-each, each + 1) for each in amount]
    else:
        power = 2 if norm == "l2-squared" else 1
        most = math.isqrt(amount) if power == 2 else amount
        ranges = [range(-most, most + 1)] * (1 if norm == "absolute" else amount)
    seen = set()
    for shift in itertools.product(*ranges):
        if norm == "l1" and sum(map(abs, shift)) > amount:
            continue
        if norm == "l2-squared" and sum(step**2 for step in shift) > amount:
            continue
        moved = tuple(sorted(step for step in shift if step))
        if moved not in seen:
            seen.add(moved)
            yield moved


def _grid(tables: Sequence[Table]) -> Table:
    # The joint law of independent coordinates, row by row.
    found = tables[0]
    for each in tables[1:]:
        found = np.einsum("ij,ik->ijk", found, each).reshape(len(found), -1)
    return found


def _joined(tables: Sequence[Table]) -> Table:
    # (P, Q) of independent coordinates, or rounds.
    found = _merged(tables[0])
    for each in tables[1:]:
        found = _merged(_grid([found, _merged(each)]))
    return found


def _merged(table: Table) -> Table:
    """Merge outcomes with nearly equal losses."""
    p, q = table
    kept = (p > 0) | (q > 0)
    p, q = p[kept], q[kept]
    if len(p) <= _MERGED:
        return np.array([p, q])
    with np.errstate(divide="ignore"):
        loss = np.clip(np.log(p) - np.log(q), -_FARTHEST, _FARTHEST)
    low, high = float(loss.min()), float(loss.max())
    cell = np.rint((loss - low) / max(high - low, 1e-9) * (_MERGED - 3)).astype(int) + 1
    # Outcomes that reveal a dataset for certain are not merged with others.
    cell[q == 0], cell[p == 0] = _MERGED - 1, 0
    return np.array([np.bincount(cell, each, _MERGED) for each in (p, q)])


def _of_claim(part: Mapping[str, Any]) -> Table:
    # Randomised response keeps a pure claim, and rounds of a Gaussian a zCDP claim.
    if part["claim"] == "zcdp":
        sigma = 1 / math.sqrt(2 * float(Fraction(part["rho"])))
        edges = np.linspace(-9 * sigma, 1 + 9 * sigma, _BINS)
        cuts = [np.concatenate([[0], norm.cdf(edges, c, sigma), [1]]) for c in (1, 0)]
        return np.array([np.diff(each) for each in cuts])
    epsilon, lost = float(Fraction(part["epsilon"])), float(Fraction(part.get("delta", "0")))
    one, other = (1 - lost) / (1 + math.exp(-epsilon)), (1 - lost) / (1 + math.exp(epsilon))
    return np.array([[lost, one, other, 0.0], [0.0, other, one, lost]])


def _squared(run: Mapping[str, Any]) -> float:
    # The longest C u over every pattern of rounds, for Toeplitz coefficients.
    size, given = run["rounds"], [float(Fraction(each)) for each in run["coefficients"]]
    column = [*given, *[0.0] * (size - len(given))]
    matrix = np.array(
        [[column[i - j] if i >= j else 0.0 for j in range(size)] for i in range(size)]
    )
    longest = 0.0
    for count in range(1, min(run["most"], size) + 1):
        for rounds in itertools.combinations(range(size), count):
            if all(b - a >= run["apart"] for a, b in itertools.pairwise(rounds)):
                moved = matrix[:, rounds].sum(axis=1)
                longest = max(longest, float(moved @ moved))
    return longest


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth(Shown):
    """The cost of parts over all neighbours: one pair of laws per choice of moves in all rounds."""

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Any]]) -> Truth:
        return cls(tables=tuple(_product(each) for each in _choices(parts)))

    def worst(self, epsilon: float, most: int) -> list[Truth]:
        """Return one choice for each of the largest deltas at that epsilon, at most ``most``."""
        alone = [Truth(tables=(table,)) for table in self.tables]
        found = {round(each.delta(epsilon), 9): each for each in alone}
        return [found[value] for value in sorted(found, reverse=True)[:most]]

    def epsilon(self, delta: float, most: float = 500.0) -> float:
        return math.inf if self.delta(most) > delta else Shown.epsilon(self, delta, most)


def _choices(parts: Sequence[Mapping[str, Any]]) -> Iterator[list[Table]]:
    each = []
    for part in parts:
        if "claim" in part:
            options = [[_of_claim(part)]]
        else:
            moved = moves(part["sensitivity"])
            options = [[_coordinate(part, (step, 0)) for step in move] for move in moved]
        # Rounds of one part are exchangeable: the order of the moves does not matter.
        each.append(
            [
                [axis for move in chosen for axis in move]
                for chosen in itertools.combinations_with_replacement(options, part["rounds"])
            ]
        )
    for row in itertools.product(*each):
        yield [axis for chosen in row for axis in chosen]


def _product(axes: list[Table]) -> Table:
    found = np.ones((2, 1))
    for axis in axes:
        found = _grid([found, axis])
        found = found[:, (found > 1e-22).any(axis=0)]
    return found


def size(parts: Sequence[Mapping[str, Any]]) -> float:
    """Return the approximate cost of the brute force: number of neighbours times atoms."""
    worlds, atoms = 1.0, 1.0
    for part in parts:
        if "claim" in part:
            atoms *= 4.0 ** part["rounds"]
            continue
        options = [*moves(part["sensitivity"])]
        worlds *= math.comb(len(options) + part["rounds"] - 1, part["rounds"])
        dimension = max(map(len, options)) * part["rounds"]
        atoms *= float(len(masses(tuple(sorted(part["noise"].items()))))) ** dimension
    return worlds * atoms
