r"""The numbers of an output, and the exact distance between those of two outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

from audit.audit_spec import SensitivityNorm
from audit.outputs.rows import EXACT, MOST_DIGITS, NUMBER, row_of

Number: TypeAlias = int | float

_ROUNDING: Final = Fraction(1, 2**20)


class Numbers(NamedTuple):
    r"""The numbers of an output with their paths, its labels by path, and a bound on the total
    rounding of the numbers that were written as text. A number that encodes something else (a byte,
    a date) is a label.
    """

    values: tuple[Number, ...]
    paths: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    rounding: Fraction

    def comparable(self, other: Numbers) -> bool:
        r"""Whether both are equal except for the values of numbers."""
        return (self.paths, self.labels) == (other.paths, other.labels)


def numbers_in(output: object) -> Numbers | None:
    r"""The numbers of an output; None if there are none."""
    cells = row_of(output).cells
    numbers: list[tuple[str, Number]] = []
    labels: list[tuple[str, str]] = []
    for path, cell in cells:
        if path.endswith(EXACT):  # numbers are compared exactly
            continue
        if isinstance(cell, str):
            labels.append((path, cell.replace("#.#", "#")))  # 3 and 3.5 are both numbers
        elif path in cells.coded:
            labels.append((path, repr(cell)))
        else:
            numbers.append((path, cell))
    if not numbers:
        return None
    paths, values = zip(*numbers, strict=True)
    return Numbers(values, paths, tuple(labels), sum(map(_units, cells.texts), Fraction(0)))


def _units(text: str) -> Fraction:
    # One unit in the last digit of each number in a text, summed over the numbers.
    units = Fraction(0)
    for match in NUMBER.finditer(text):
        mantissa, _, power = match[0].lower().partition("e")
        exponent = int(power or 0) - len(mantissa.partition(".")[2])
        if len(mantissa) <= MOST_DIGITS and abs(exponent) <= MOST_DIGITS:
            units += Fraction(10) ** exponent
    return units


def difference(
    a: Sequence[Number], b: Sequence[Number], norm: SensitivityNorm
) -> tuple[tuple[Fraction, ...], Fraction, Fraction] | None:
    r"""The exact difference of numbers, its norm (for l2, the squared norm), and a bound on the
    contribution of float rounding to the norm: 2^-20 times the largest number, for each
    coordinate, as in single precision. None if a number is not finite.
    """
    if not all(isinstance(x, int) or math.isfinite(x) for x in (*a, *b)):
        return None
    move = tuple(Fraction(y) - Fraction(x) for x, y in zip(a, b, strict=True))
    slack = Fraction(0)
    if any(isinstance(x, float) for x in (*a, *b)):
        largest = max(abs(Fraction(x)) for x in (*a, *b))
        slack = _ROUNDING * len(a) * max(Fraction(1), largest)
    match norm:
        case "l1":
            size = sum(map(abs, move), Fraction(0))
        case "l2":
            size = sum((x * x for x in move), Fraction(0))
        case "linf":
            size = max(map(abs, move))
    return move, size, slack


def root(square: Fraction) -> tuple[Fraction, Fraction]:
    r"""A lower and an upper bound on the square root, at most 2^-64 apart."""
    below = math.isqrt((square.numerator * square.denominator) << 128)
    step = square.denominator << 64
    exact = below * below == (square.numerator * square.denominator) << 128
    return Fraction(below, step), Fraction(below + (not exact), step)
