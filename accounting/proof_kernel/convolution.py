r"""Composition of discretised losses, where each convolution is one product of decimal integers.

A :class:`Listing` is a discrete distribution of the loss: the loss start + j step has the P-mass
``weights[j - first]``, in units of 10^-digits. A pessimistic listing (``above``) dominates the loss
of the rounds, and its missing mass is at infinity. An optimistic listing is dominated by the loss,
and its missing mass is at minus infinity. All operations round so that these relations are
preserved. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import decimal
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from itertools import accumulate
from typing import Any

from accounting.proof_kernel.series import Fixed

try:  # optional: it makes products faster and changes no result
    _NUMBER: Any = import_module("gmpy2").mpz
except ImportError:
    _NUMBER = None

_EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@dataclass(frozen=True)
class Plan:
    r"""The resolution of a computation, which affects only the width of the bounds.

    Losses are rounded to a grid of ``step``, and masses are counted in units of 10^-``digits``. A
    listing with more than ``slots`` weights is moved to a grid of twice the step. At each end of a
    listing, up to ``cut`` units of mass per round may be trimmed.
    """

    step: Fraction
    digits: int
    slots: int
    cut: int


@dataclass(frozen=True)
class Listing:
    r"""A loss distribution: start + j step has the mass ``weights[j - first]`` 10^-digits."""

    above: bool
    step: Fraction
    start: Fraction
    first: int
    weights: list[int]
    infinite: int
    rounds: int = 1

    def fitted(self, plan: Plan) -> Listing:
        r"""This listing, trimmed at both ends, on a grid so coarse that it fits ``plan``."""
        found = self._trimmed(plan.cut * self.rounds)
        while len(found.weights) > plan.slots:
            found = found.doubled()
        return found

    def _trimmed(self, most: int) -> Listing:
        # Above: the lowest losses move up, the highest to infinity. Below: the highest losses move
        # down, and the lowest are dropped.
        weights = self.weights
        low = min(bisect_right([*accumulate(weights)], most), len(weights) - 1)
        high = max(len(weights) - bisect_right([*accumulate(weights[::-1])], most), low + 1)
        kept = weights[low:high]
        if self.above:
            kept[0] += sum(weights[:low])
        else:
            kept[-1] += sum(weights[high:])
        return replace(self, first=self.first + low, weights=kept)

    def doubled(self) -> Listing:
        r"""The listing on a grid of twice the step, a bound in the same direction."""
        fixed, odd = Fixed(128), self.first % 2
        rise = fixed.exp(fixed.of(self.step)[1])[1]
        weights = [0] * odd + self.weights
        weights += [0] * (1 - len(weights) % 2)  # both ends are even grid points
        found, between = weights[::2], weights[1::2]
        waiting = 0
        for i, mass in enumerate(between):
            if self.above:
                # The share w at the lower neighbour satisfies w e^step + (1 - w) e^-step = 1.
                down = mass * fixed.one // (fixed.one + rise)
                found[i] += down
                found[i + 1] += mass - down
            else:
                # Mass at two odd points around an even one merges into it in proportions that
                # preserve the Q-mass: c from below and c e^step from above. Mass without a partner
                # moves down.
                covered = min(waiting, mass * fixed.one // rise)
                partner = min(mass, -(-covered * rise >> fixed.bits))
                found[i] += covered + partner
                found[i - 1] += waiting - covered
                waiting = mass - partner
        found[-2 if between else -1] += waiting
        first = (self.first - odd) // 2
        return replace(self, step=2 * self.step, first=first, weights=found)

    def total(self) -> int:
        r"""The sum of all masses in units of 10^-digits, including that of infinite losses."""
        return sum(self.weights) + self.infinite


def product(one: Listing, other: Listing, plan: Plan) -> Listing:
    r"""A bound on the sum of two independent losses that are bounded in the same direction.

    Raises ValueError unless the ratio of the steps of the two listings is a power of 2.
    """
    while one.step < other.step:
        one = one.doubled()
    while other.step < one.step:
        other = other.doubled()
    if one.step != other.step:
        raise ValueError("the ratio of the steps of two parts must be a power of 2")
    weights = convolved(one.weights, other.weights, 2 * plan.digits + 2, plan.digits)
    unit = 10**plan.digits
    infinite = 0
    if not one.above:
        a, b = one.infinite, other.infinite
        infinite = (a * other.total() + b * one.total() - a * b) // unit
    return Listing(
        above=one.above,
        step=one.step,
        start=one.start + other.start,
        first=one.first + other.first,
        weights=weights,
        infinite=infinite,
        rounds=one.rounds + other.rounds,
    ).fitted(plan)


def power(
    one: Listing, rounds: int, plan: Plan, tick: Callable[[], None] = lambda: None
) -> Listing:
    r"""A bound on the sum of ``rounds`` independent losses, in the direction of ``one``."""
    found = one = one.fitted(plan)
    for bit in bin(rounds)[3:]:
        tick()
        found = product(found, found, plan)
        if bit == "1":
            found = product(found, one, plan)
    return found


def convolved(one: list[int], other: list[int], slot: int, drop: int = 0) -> list[int]:
    r"""The convolution of lists of integers >= 0, without the last ``drop`` digits of each sum.

    The sums are read from the digits of a single product of two long decimal integers, so each of
    them must be below 10^``slot``.
    """
    if _NUMBER is not None:
        return convolved_in_binary(one, other, slot, drop, _NUMBER)
    a = decimal.Decimal("".join(f"{each:0{slot}d}" for each in reversed(one)))
    b = (
        a
        if other is one
        else decimal.Decimal("".join(f"{each:0{slot}d}" for each in reversed(other)))
    )
    count = len(one) + len(other) - 1
    text = str(_EXACT.multiply(a, b)).rjust(count * slot, "0")
    kept = slot - drop
    return [int(text[i : i + kept]) for i in range((count - 1) * slot, -1, -slot)]


def convolved_in_binary(
    one: list[int], other: list[int], slot: int, drop: int, number: Callable[[int], Any]
) -> list[int]:
    r"""The result of :func:`convolved`, with integers of the type ``number``."""
    width = slot * 3322 // 8000 + 1  # bytes: 256^width > 10^slot, since log2(10) < 3.322

    def packed(values: list[int]) -> Any:
        parts = b"".join(each.to_bytes(width, "little") for each in values)
        return number(int.from_bytes(parts, "little"))

    a = packed(one)
    b, size = a if other is one else packed(other), width * (len(one) + len(other) - 1)
    data, unit = int(a * b).to_bytes(size, "little"), 10**drop
    return [int.from_bytes(data[i : i + width], "little") // unit for i in range(0, size, width)]
