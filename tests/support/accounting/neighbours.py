r"""The worst case over all neighbours by brute force: every shift and sign, every round separately.

Worst shifts, monotone losses and equal directions are not assumed. A part is a dictionary as in a
certificate. Costs are floats, accurate to about 1e-12.
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

from tests.support.accounting.brute_force import real
from tests.support.accounting.neighbour_lower_bounds import masses, moves


@lru_cache(maxsize=512)
def _world(noise: tuple[tuple[str, str], ...], step: int) -> tuple[Any, Any]:
    # P and Q at every value on either dataset.
    here = masses(noise)
    points = sorted({*here, *(x + step for x in here)})
    p = np.array([float(here.get(x, 0)) for x in points])
    q = np.array([float(here.get(x - step, 0)) for x in points])
    return p, q


def _stated(part: Mapping[str, Any]) -> tuple[Any, Any]:
    epsilon, lost = float(Fraction(part["epsilon"])), float(Fraction(part.get("delta", "0")))
    one, other = (1 - lost) / (1 + math.exp(-epsilon)), (1 - lost) / (1 + math.exp(epsilon))
    return np.array([lost, one, other, 0.0]), np.array([0.0, other, one, lost])


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The cost of parts over all neighbours: one pair of laws per choice of moves in all rounds."""

    worlds: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Any]]) -> Truth:
        return cls(worlds=tuple(_product(each) for each in _choices(parts)))

    def delta(self, epsilon: float) -> float:
        factor = math.exp(epsilon)
        return max(float(np.maximum(p - factor * q, 0).sum()) for p, q in self.worlds)

    def worst(self, epsilon: float, most: int) -> list[Truth]:
        """Return the worst few at that epsilon, of those that differ there."""
        alone = [Truth(worlds=(world,)) for world in self.worlds]
        found = {round(each.delta(epsilon), 9): each for each in alone}
        return [found[value] for value in sorted(found, reverse=True)[:most]]

    def epsilon(self, delta: float) -> float:
        if self.delta(0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
            if high > 500:
                return math.inf
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high


def _choices(parts: Sequence[Mapping[str, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    each = []
    for part in parts:
        if "claim" in part:
            options: list[list[tuple[Any, Any]]] = [[_stated(part)]]
        else:
            noise = tuple(sorted(part["noise"].items()))
            options = [[_world(noise, s) for s in move] for move in moves(part["sensitivity"])]
        # Rounds of one part are exchangeable: the order of the moves does not matter.
        each.append(
            [
                [axis for move in chosen for axis in move]
                for chosen in itertools.combinations_with_replacement(options, part["rounds"])
            ]
        )
    for row in itertools.product(*each):
        yield [axis for chosen in row for axis in chosen]


def _product(axes: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    p, q = np.ones(1), np.ones(1)
    for a, b in axes:
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
        kept = (p > 1e-22) | (q > 1e-22)
        p, q = p[kept], q[kept]
    return p, q


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


def renyi(parts: Sequence[Mapping[str, Any]], order: Fraction) -> float:
    """Divergences of independent coordinates add: one sum per coordinate, as wide as necessary."""
    with mpmath.workdps(50):
        return float(sum(part["rounds"] * _renyi_of(part, order) for part in parts))


def _renyi_of(part: Mapping[str, Any], order: Fraction) -> Any:
    a = real(order)
    if "claim" in part:
        e = real(part["epsilon"])
        one, other = 1 / (1 + mpmath.exp(-e)), 1 / (1 + mpmath.exp(e))
        found = one**a * other ** (1 - a) + other**a * one ** (1 - a)
        return mpmath.log(found) / (a - 1)
    noise = tuple(sorted(part["noise"].items()))
    return max(
        mpmath.fsum(_renyi_of_step(noise, step, a) for step in move)
        for move in moves(part["sensitivity"])
    )


@lru_cache(maxsize=256)
def _renyi_of_step(noise: tuple[tuple[str, str], ...], step: int, a: Any) -> Any:
    # Rare enough for the sum of p^a q^(1-a): as far as (a - 1) times the step, and beyond.
    here = masses(noise, mpmath.mpf(10) ** -400)
    if min(here) >= 0:
        return mpmath.inf
    terms = [p**a * here[x - step] ** (1 - a) for x, p in here.items() if x - step in here]
    return mpmath.log(mpmath.fsum(terms)) / (a - 1)


def largest_loss(parts: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest loss among values that are not rare; infinite for one-sided laws."""
    total = 0.0
    for part in parts:
        if "claim" in part:
            total += part["rounds"] * float(Fraction(part["epsilon"]))
            continue
        here = masses(tuple(sorted(part["noise"].items())), mpmath.mpf(10) ** -200)
        if min(here) >= 0:
            return math.inf
        total += part["rounds"] * max(
            sum(
                max(float(mpmath.log(p / here[x - s])) for x, p in here.items() if x - s in here)
                for s in move
            )
            for move in moves(part["sensitivity"])
        )
    return total
