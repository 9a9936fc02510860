r"""The pure epsilon of shuffled bits, computed again: integers of decimal digits, nothing else.

A user with x in {0, ..., g} sends Y ones of D = 2J + g bits: with chance c, or if the noise exceeds
J, uniform on {0, ..., D}, else J + x + Z, Z a Polya difference of shape r. With V the law of J + Z
within the reach, U the uniform one, tau the chance of the latter and T = e^epsilon, the loss of h
honest users is at most epsilon if these have no negative coefficient, for all x, y, some k and a:

    U^k f,  G^a f,  and V^(h-k) f within a J + g of its centre,
    f = V (T z^x - z^y) + (T - 1) tau U,  G the part of V off its middle.

That is the theorem of docs/proofs/shuffle.md; how it is checked here, docs/proofs/checker.md.
Polynomials are lists of integers, units of the last digit kept; products are one multiplication of
numbers of as many digits as all coefficients have together (``decimal`` does that fast).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
    Overflow,
    Rounded,
)
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.checker.clock import tick, ticking
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.masses import REAL, masses, real

__all__ = ["MOST_BITS", "Shuffle", "shuffle_keeps"]

MOST_BITS: Final = 1280
r"""Messages of more bits are not checked: a shuffle of as many takes nine seconds."""

_MOST_COVERS: Final = 64
_MOST_USERS: Final = 10**9
_JUMPS: Final = ((4, 5, 6, 7, 8), (10, 12, 16))
_BEYOND: Final = 2
_GUARD: Final = 36
_SLACK: Final = 10**30
_TURN: Final = 30
_NOWHERE: Final = -1
_EXACT: Final = Context(
    prec=MAX_PREC,
    Emax=MAX_EMAX,
    Emin=MIN_EMIN,
    traps=[Inexact, Rounded, Overflow, InvalidOperation],
)

_Polynomial = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    r"""What ``honest`` users send: 2 ``reach`` + ``precision`` bits each, Z of that shape."""

    honest: int
    precision: int
    reach: int
    cover: Fraction
    shape: Fraction
    scale: Fraction

    @property
    def width(self) -> int:
        r"""D: the bits of a message."""
        return 2 * self.reach + self.precision

    def __str__(self) -> str:
        return f"{self.honest:,} honest users of a shuffle, {self.width} bits each"


def shuffle_keeps(shuffle: Shuffle, epsilon: Fraction) -> str:
    r"""Why it is not found that each honest user has pure ``epsilon``; empty where it is.

    >>> small = {"honest": 12, "precision": 1, "reach": 20, "scale": Fraction(1)}
    >>> few = Shuffle(**small, cover=Fraction(1, 1000), shape=Fraction(1, 8))
    >>> shuffle_keeps(few, Fraction(1))
    ''
    >>> all_counted = Shuffle(**small, cover=Fraction(1, 1000), shape=Fraction(1, 12))
    >>> shuffle_keeps(all_counted, Fraction(1))
    'outputs lose more where 1 others send covers'

    Raises :class:`Unchecked` for messages of more than 1280 bits and parameters out of range, and
    OutOfTime beyond the deadline around.
    """
    if shuffle.width > MOST_BITS:
        raise Unchecked(f"messages of {shuffle.width} bits, more than {MOST_BITS}")
    if not 0 < shuffle.shape <= 1 or not 1 <= shuffle.honest <= _MOST_USERS:
        raise Unchecked("a shape above 1, or more than 10^9 users")
    return _kept(shuffle, epsilon)


@lru_cache(maxsize=128)
def _kept(shuffle: Shuffle, epsilon: Fraction) -> str:
    counted = math.ceil(1 / shuffle.shape)
    covers = max(min(shuffle.honest + 1 - counted, _MOST_COVERS), 0)
    law = _Coded.of(shuffle, epsilon, _digits(shuffle, 1))
    if not _covered(law, covers):
        return f"outputs lose more where {covers} others send covers"
    jumps = next((a for each in _JUMPS if (a := _jumped(shuffle, epsilon, each))), None)
    if jumps is None:
        return "outputs lose more that only many large shares lead to"
    # Of h - 1 others fewer than k send covers; where k = 0 the first of the three is all.
    others = max(shuffle.honest - max(covers, 1), 0)
    # At the ends of the window covers decide, so fewer digits nearly always do.
    many = _digits(shuffle, jumps + _BEYOND)
    for beyond, digits in ((1, _few_digits(shuffle, jumps)), (_BEYOND, many)):
        if _central(_Coded.of(shuffle, epsilon, digits), others, jumps, beyond):
            return ""
    return f"outputs near the middle lose more where fewer than {covers} others send covers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coded:
    # V, tau and T in units of 10^-digits, each rounded down; all three are below it by 10^-36 of
    # themselves at most, for which _SLACK makes up.
    noise: _Polynomial
    tau: int
    turn: Fraction
    precision: int
    reach: int
    digits: int

    @classmethod
    def of(cls, shuffle: Shuffle, epsilon: Fraction, digits: int) -> _Coded:
        law = Law("polya-difference", (shuffle.shape, shuffle.scale))
        listed = masses(law, -shuffle.reach, shuffle.reach)
        one = REAL.mpf(10) ** digits
        stays = 1 - real(shuffle.cover)
        turn = int(REAL.floor(REAL.exp(real(epsilon)) * REAL.mpf(10) ** _TURN))
        return cls(
            noise=[int(REAL.floor(stays * mass * one)) for mass in listed],
            tau=int(REAL.floor((1 - stays * REAL.fsum(listed)) * one)),
            turn=Fraction(turn, 10**_TURN),
            precision=shuffle.precision,
            reach=shuffle.reach,
            digits=digits,
        )

    @property
    def width(self) -> int:
        return 2 * self.reach + self.precision


def _digits(shuffle: Shuffle, reaches: int) -> int:
    # So many decimals below 1 noise lies at that many reaches, by as many shares, and a guard.
    far = float(shuffle.reach / shuffle.scale) / math.log(10)
    share = math.log10(10 * shuffle.reach)
    rare = -math.log10(shuffle.shape)
    return math.ceil(reaches * (far + share) + rare) + _GUARD


def _few_digits(shuffle: Shuffle, jumps: int) -> int:
    # As many as tell the noise a reach before the last place from the chance of a cover.
    far = float(shuffle.reach / shuffle.scale) / math.log(10)
    cover = math.log10(shuffle.cover.denominator) - math.log10(shuffle.cover.numerator)
    return math.ceil((jumps - 1) * far + 3 * math.log10(10 * shuffle.reach) + cover) + _GUARD // 2


# -- the three conditions --------------------------------------------------------------------------


def _covered(law: _Coded, covers: int) -> bool:
    # U^k f, times (D + 1)^k: k + 1 times the sum of D + 1 neighbours.
    spread, ones = law.noise, [1]
    for _ in range(covers):
        spread, ones = _neighbours(spread, law.width + 1), _neighbours(ones, law.width + 1)
    flat = [law.tau * each for each in _neighbours(ones, law.width + 1)]
    around = [_NOWHERE] * law.precision
    return _holds(law, [*around, *spread, *around], flat, law.width + 1, 0)


def _jumped(shuffle: Shuffle, epsilon: Fraction, jumps: tuple[int, ...]) -> int:
    # The first a of ``jumps`` with G^a f >= 0, or 0. G is scaled to a sum of at most 1: that
    # changes no sign.
    law = _Coded.of(shuffle, epsilon, _digits(shuffle, jumps[-1] + 1))
    one, away = 10**law.digits, [*law.noise]
    away[law.reach] = 0
    if not any(away):
        return 0
    scaled = [each * one // sum(away) for each in away]
    around, many = [_NOWHERE] * law.precision, [one]
    for a in range(1, jumps[-1] + 1):
        many = _product(many, scaled, law.digits)
        if a not in jumps:
            continue
        more = _product(many, law.noise, law.digits)
        # What all roundings took away, at most: the sums of exact products are products of sums.
        whole = _power_above(sum(scaled), a, law.digits) * sum(law.noise)
        lost = -(-whole // one) - sum(more)
        if _holds(law, [*around, *more, *around], _flat(law, many), law.width + 1, lost):
            return a
    return 0


def _central(law: _Coded, others: int, jumps: int, beyond: int) -> bool:
    # V^m f in the places -a J, ..., a J + g about the centre. Coefficients beyond the window are
    # dropped, which makes the others smaller; ``lost`` is all that is missing of V^(m+1).
    half, g = (jumps + beyond) * law.reach, law.precision
    many = _power(law.noise, others, half, law.digits)
    more = _product(many, law.noise, law.digits)
    lost = _power_above(sum(law.noise), others + 1, law.digits) - sum(more)
    middle, offset = len(more) // 2, law.reach + len(many) // 2
    flat = _flat(law, many)
    first, last = -jumps * law.reach, jumps * law.reach + g
    window = [_at(more, place + middle) for place in range(first - g, last + 1)]
    shown = [_at(flat, place + offset) for place in range(first, last + 1)]
    return _holds(law, window, shown, law.width + 1, lost)


def _flat(law: _Coded, many: _Polynomial) -> _Polynomial:
    # tau U F in the units of F, times D + 1.
    one = 10**law.digits
    return [law.tau * each // one for each in _neighbours(many, law.width + 1)]


def _holds(law: _Coded, noise: Sequence[int], flat: Sequence[int], parts: int, lost: int) -> bool:
    # T a + (T - 1) tau K >= A at every place, a and A the least and most of g + 1 neighbours. A
    # place that no noise leads to asks for nothing, however much was lost elsewhere.
    turn, span = law.turn, law.precision + 1
    for place, known in enumerate(ticking(flat)):
        near = noise[place : place + span]
        if max(near) == _NOWHERE:
            continue
        most = max(near) + lost
        held = parts * turn * max(min(near), 0) + (turn - 1) * max(known, 0)
        if held * _SLACK < parts * most * (_SLACK + 1):
            return False
    return True


# -- polynomials -----------------------------------------------------------------------------------


def _neighbours(values: Sequence[int], width: int) -> _Polynomial:
    # The product with 1 + z + ... + z^(width - 1).
    found, total = [], 0
    for i in range(len(values) + width - 1):
        total += values[i] if i < len(values) else 0
        total -= values[i - width] if i >= width else 0
        found.append(total)
    return found


def _product(one: Sequence[int], other: Sequence[int], digits: int) -> _Polynomial:
    # Both in units of 10^-digits, so is the product, rounded down coefficient by coefficient.
    tick()
    slot = 2 * digits + len(str(min(len(one), len(other)))) + 3
    packed = _packed(one, slot)
    product = _EXACT.multiply(packed, packed if one is other else _packed(other, slot))
    places = len(one) + len(other) - 1
    text = format(product, "f").zfill(places * slot)
    ends = [len(text) - i * slot for i in range(places)]
    return [int(text[end - slot : end - digits]) for end in ends]


def _packed(values: Sequence[int], slot: int) -> Decimal:
    return _EXACT.create_decimal("".join([f"{value:0{slot}}" for value in reversed(values)]))


def _power(base: _Polynomial, exponent: int, half: int, digits: int) -> _Polynomial:
    found = [10**digits]
    for bit in f"{exponent:b}":
        found = _cut(_product(found, found, digits), half)
        if bit == "1":
            found = _cut(_product(found, base, digits), half)
    return found


def _power_above(value: int, exponent: int, digits: int) -> int:
    # No less than value^exponent, in units of 10^-digits.
    one: int = 10**digits
    found = one
    for bit in f"{exponent:b}":
        found = -(-found * found // one)
        if bit == "1":
            found = -(-found * value // one)
    return found


def _cut(values: _Polynomial, half: int) -> _Polynomial:
    centre = len(values) // 2
    return values[max(centre - half, 0) : centre + half + 1]


def _at(listed: Sequence[int], place: int) -> int:
    return listed[place] if 0 <= place < len(listed) else _NOWHERE
