r"""Compute the exact law of a sampler, by enumerating every random choice it can make.

The sampler runs on a :class:`Forking` source. When it requests randomness that its path does not
contain yet, the run stops and is replaced by one path per answer, with the answer's exact weight. A
finished path is a leaf: its mass is a rational number, and the leaves found so far give a lower
law, which together with the remaining mass bounds the true law on both sides:

    lower(x) <= P(X = x) <= lower(x) + leftover.

Both sides are theorems about the code that ran, so a violation of these bounds is a bug and never
bad luck. Weights may themselves be lower bounds (a coin of probability e^-x has no rational
weight); the difference is added to the leftover mass.

A rejection loop is too deep to enumerate. ``rounds`` stops paths that request one kind of choice
once more, and counts their mass as ``restarted``: with one round, P(X = x) is the accepted mass
over the accepted total, provided that rounds are alike; with two rounds the enumeration proves this
(see :func:`alike`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any

from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.sampling.rng import Rng, Words

MOST_WAYS = 1 << 12
"""Beyond as many answers, a choice is not forked by answer but where it is compared."""

Weights = Sequence[Fraction]


class _Open(Exception):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights


class _Restart(Exception):
    pass


class Forking(Rng):
    r"""Returns answers along a path of choices; requests a fork where the path ends."""

    __slots__ = ("_at", "_kind", "_path", "_rounds", "forks_below")

    def __init__(
        self, path: tuple[int, ...], kind: str = "", rounds: int = 0, *, forks_below: bool = True
    ) -> None:
        self._path = path
        self._at = 0
        self._kind = kind
        self._rounds = rounds
        self.forks_below = forks_below

    def choose(self, weights: Weights, kind: str) -> int:
        r"""Return the index of the chosen answer; ``weights`` are lower bounds of their masses."""
        if kind == self._kind:
            self._rounds -= 1
            if self._rounds < 0:
                raise _Restart
        if self._at == len(self._path):
            raise _Open(weights)
        self._at += 1
        return self._path[self._at - 1]

    def bits(self, count: int) -> Any:
        return self._uniform(1 << count, "bits")

    def below(self, bound: int) -> Any:
        # Enumerated as a layer of its own; in other layers one fork of `bound` equal answers.
        return self._uniform(bound, "below") if self.forks_below else super().below(bound)

    def words(self, count: int) -> Words:
        raise AssertionError("a reference sampler draws no words")

    def _uniform(self, ways: int, kind: str) -> Any:
        if ways > MOST_WAYS:
            return _Uncut(self, ways, kind)
        return self.choose([Fraction(1, ways)] * ways, kind)

    def finished(self) -> bool:
        return self._at == len(self._path)


class _Uncut:
    # A uniform integer of many values that is compared only once: two branches, exact weights.
    __slots__ = ("_compared", "_kind", "_rng", "_ways")

    def __init__(self, rng: Forking, ways: int, kind: str) -> None:
        self._rng, self._ways, self._kind, self._compared = rng, ways, kind, False

    def __lt__(self, threshold: float | Fraction) -> bool:
        assert not self._compared, "a second comparison is not independent of the first"
        self._compared = True
        least = Fraction(min(max(math.ceil(threshold), 0), self._ways), self._ways)
        return self._rng.choose((1 - least, least), self._kind) == 1


@dataclass(frozen=True, slots=True)
class Law:
    r"""Lower masses of the observed values, the mass of restarted paths, and the rest."""

    lower: dict[Hashable, Fraction]
    restarted: Fraction
    leftover: Fraction

    def bounds(self, value: Hashable) -> Enclosure:
        r"""P(X = value) between two rationals, given no restart if paths were restarted."""
        least = self.lower.get(value, Fraction(0))
        accepted = 1 - self.restarted
        most = (least + self.leftover) / (accepted - self.leftover)
        return Enclosure(least / accepted, most)

    def refuted(self, mass: Callable[[Any], Enclosure], values: Iterable[Hashable]) -> list[Any]:
        r"""Return the given and observed values whose mass the law contradicts."""
        every = dict.fromkeys([*values, *self.lower])
        return [value for value in every if not self.bounds(value).overlaps(mass(value))]


def unroll(
    sampler: Callable[[Forking], Hashable],
    *,
    kind: str = "",
    rounds: int = 0,
    open_mass: Fraction = Fraction(1, 1 << 60),
    runs: int = 20_000,
    forks_below: bool = True,
) -> Law:
    r"""Return the law of ``sampler``, heaviest paths first, until less than ``open_mass`` is open.

    >>> law = unroll(lambda rng: rng.below(3), forks_below=False, open_mass=Fraction(1, 1000))
    >>> law.bounds(2).lower < Fraction(1, 3) < law.bounds(2).upper, law.leftover < Fraction(1, 1000)
    (True, True)
    """
    ticket = count()
    heap: list[tuple[Fraction, int, tuple[int, ...]]] = [(Fraction(-1), next(ticket), ())]
    lower: dict[Hashable, Fraction] = {}
    restarted, still_open = Fraction(0), Fraction(1)
    while heap and runs and still_open > open_mass:
        runs -= 1
        negative, _, path = heapq.heappop(heap)
        still_open += negative
        rng = Forking(path, kind, rounds, forks_below=forks_below)
        try:
            value = sampler(rng)
        except _Restart:
            restarted -= negative
        except _Open as fork:
            for answer, weight in enumerate(fork.weights):
                if weight > 0:
                    heapq.heappush(heap, (negative * weight, next(ticket), (*path, answer)))
                    still_open -= negative * weight
        else:
            assert rng.finished(), "the sampler forgot a choice: it keeps state between runs"
            lower[value] = lower.get(value, Fraction(0)) - negative
    leftover = 1 - restarted - sum(lower.values(), Fraction(0))
    return Law(lower, restarted, leftover)


def alike(sampler: Callable[[Forking], Hashable], *, kind: str, runs: int = 20_000) -> bool:
    r"""Whether the second round repeats the law of the first, for every rejected value.

    Both trees are enumerated completely. With m_1 and r_1 the masses accepted and restarted in one
    round, two alike rounds accept exactly m_1 (1 + r_1) and restart r_1^2.
    """
    first = unroll(sampler, kind=kind, rounds=1, open_mass=Fraction(0), runs=runs)
    second = unroll(sampler, kind=kind, rounds=2, open_mass=Fraction(0), runs=runs)
    again = 1 + first.restarted
    return second.restarted == first.restarted**2 and second.lower == {
        value: mass * again for value, mass in first.lower.items()
    }


def coin(rng: Forking, probability: Enclosure, kind: str = "coin") -> bool:
    r"""A tested layer as one fork: True with a probability known between rationals."""
    if probability.width == 0:
        exact = Fraction(probability.lower)
        return rng.choose((1 - exact, exact), kind) == 1
    held = coarser(probability, 192)
    return rng.choose((1 - held.upper, held.lower), kind) == 1


@dataclass(frozen=True, slots=True)
class Held:
    r"""Two rationals that enclose a probability."""

    lower: Fraction
    upper: Fraction


def coarser(probability: Enclosure, bits: int) -> Held:
    r"""Return the enclosure with ends rounded outwards to multiples of 2^-bits, for small numbers.

    >>> coarser(Enclosure.exactly(Fraction(1, 3)), 2)
    Held(lower=Fraction(1, 4), upper=Fraction(1, 2))
    """
    unit = 1 << bits
    return Held(
        Fraction(math.floor(probability.lower * unit), unit),
        min(Fraction(math.ceil(probability.upper * unit), unit), Fraction(1)),
    )


@cache
def exp_neg(exponent: Fraction, bits: int = 160) -> Enclosure:
    r"""e^(-x) between two rationals, for coins that replace a tested layer."""
    if exponent == 0:
        return Enclosure.exactly(1)
    if exponent > 2 * bits:  # e^-x < 2^-bits, without the digits of a very small number
        return Enclosure(Fraction(0), Fraction(1, 1 << bits))
    return narrow(lambda: (-ball(exponent)).exp(), bits)  # noqa: PLW0108 - one precision a call
