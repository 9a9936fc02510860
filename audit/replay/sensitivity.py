r"""Sensitivities: declared within audited code or for its output, and checked by a replay.

    from audit import declare

    visits = declare(len(names), "visits", sensitivity=1)
    top = declare(clipping_bound, "clipping bound")

The calls declare that one person changes the number of names by at most 1, and the clipping bound
not at all. Outside a replay they only return the value. A replay compares the declared values of
both datasets on each tape; a larger change refutes the declaration. Distances are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from audit.audit_spec import SensitivityNorm, read_norm
from audit.claims import format_rational
from audit.outputs.copies import captured
from audit.outputs.identity import identity
from audit.outputs.rows import EXACT, MOST_DIGITS, NUMBER, row_of
from audit.replay.replay_report import Finding
from audit.replay.rng_hooks import playing
from audit.replay.tape import Draw, PairedRuns
from dpcore.numbers.parameter import RationalLike, at_least_zero, write_rational
from dpcore.numbers.rounding import down, up

T = TypeVar("T")

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    r"""A value declared in one run; ``flow`` lists the requests for draws made earlier."""

    name: str
    value: Any
    sensitivity: Fraction
    norm: SensitivityNorm
    flow: tuple[Draw, ...]


def declare(
    value: T, name: str, *, sensitivity: RationalLike = 0, norm: SensitivityNorm = "l1"
) -> T:
    r"""Declare that one person changes ``value`` by at most ``sensitivity`` in ``norm``.

    Returns ``value``. With sensitivity 0, the default, the value may have any type, and must be the
    same for all neighbouring datasets; otherwise the value must consist of numbers. ``name`` is the
    name of the value in findings. A replay compares values after equal draws, so the sensitivity of
    a noisy value is that of the value without noise.

    >>> declare([3, 4], "counts", sensitivity=1)
    [3, 4]

    Raises :class:`InvalidParameter` if ``sensitivity`` is negative or ``norm`` is unknown.
    """
    exact = at_least_zero("sensitivity", sensitivity)
    read_norm("norm", norm)
    tape = playing()
    if tape is not None and len(tape.declared) < _MOST:
        kept = captured(value)
        tape.declared.append(
            Declared(name=name, value=kept, sensitivity=exact, norm=norm, flow=tuple(tape.log))
        )
    return value


def declarations(pairs: Sequence[PairedRuns]) -> Iterator[Finding]:
    r"""Find, for each name, the first tape on which a declared value violates its declaration."""
    done: set[str] = set()
    for both in pairs:
        for a, b in zip(both.a.tape.declared, both.b.tape.declared, strict=False):
            if (a.name, a.flow) != (b.name, b.flow) or a.name in done:
                continue
            change = _change(a, b)
            if change is None:
                continue
            done.add(a.name)
            yield Finding(
                kind="declared-sensitivity" if a.sensitivity else "declared-equal",
                severity="error",
                refutes=True,
                statement=f"{a.name} {change}",
                witness=both.witness(declared=a.name, of_a=a.value, of_b=b.value),
            )


def _change(a: Declared, b: Declared) -> str | None:
    if not a.sensitivity:
        if identity(a.value) == identity(b.value):
            return None
        return "differs between the datasets, but was declared to be the same"
    of_a, of_b = numbers_in(a.value), numbers_in(b.value)
    if of_a is None or of_b is None or len(of_a.values) != len(of_b.values):
        return (
            "does not contain the same number of numbers (at least one) on both datasets, so its "
            "change cannot be measured"
        )
    found = difference(of_a.values, of_b.values, a.norm)
    if found is None:
        return "is not finite on one of the datasets"
    if not found.exceeds(a.sensitivity):
        return None
    by = down(found.bounds[0], 6)
    return f"changes by {by} ({a.norm}), more than the declared {write_rational(a.sensitivity)}"


# -- the sensitivity of the output ----------------------------------------------------------------


def moves(
    pairs: Sequence[PairedRuns], declared: Fraction | None, norm: SensitivityNorm
) -> Iterator[Finding]:
    r"""Compare the change of the output under the same draws with the declared sensitivity.

    The declaration is: output = query(dataset) + noise(draws), where the query changes by at most
    ``declared`` in ``norm``. One tape refutes the declaration if both runs make the same draws, but
    the outputs differ by more than ``declared``. If an output contains floats, each coordinate may
    have a rounding error of 2^-20 of the largest number, as in single precision.
    """
    found = [(both, move) for both in pairs if (move := _move(both, norm)) is not None]
    if not found:
        if declared is not None:
            yield Finding(
                kind="sensitivity-not-compared",
                severity="warning",
                statement=(
                    "the declared sensitivity was not tested: on no tape did both datasets make "
                    "the same draws and return numbers at the same paths"
                ),
            )
        return
    both, largest = max(found, key=lambda item: item[1].size)
    if declared is not None and largest.exceeds(declared):
        yield Finding(
            kind="sensitivity-exceeded",
            severity="error",
            refutes=True,
            statement=f"with the same draws the outputs differ by {down(largest.bounds[0], 6)} "
            f"({norm}), more than the declared sensitivity {format_rational(declared)}",
            witness=both.witness(difference=str(largest)),
        )
        return
    yield Finding(
        kind="sensitivity",
        severity="note",
        statement=f"with the same draws the outputs differ by at most {up(largest.bounds[1], 6)} "
        f"({norm}) on {len(found):,} tapes",
    )
    first = found[0][1].move
    steady = all(
        len(move) == len(first)
        and all(abs(p - q) <= 2 * slack for p, q in zip(move, first, strict=True))
        for _, (move, _, slack, _) in found
    )
    if declared is not None and not steady:
        yield Finding(
            kind="not-additive",
            severity="warning",
            statement=(
                "the difference of the outputs depends on the draws: the noise is not simply "
                "added, and a sensitivity alone does not bound the privacy loss"
            ),
        )


def _move(both: PairedRuns, norm: SensitivityNorm) -> Difference | None:
    if not both.complete or both.a.flow != both.b.flow:
        return None
    of_a, of_b = numbers_in(both.a.output), numbers_in(both.b.output)
    if of_a is None or of_b is None or not of_a.comparable(of_b):
        return None
    found = difference(of_a.values, of_b.values, norm)
    # Numbers in texts were rounded when they were written.
    return found and found._replace(slack=found.slack + of_a.rounding + of_b.rounding)


# -- numbers and their distance -------------------------------------------------------------------

Number: TypeAlias = int | float

_ROUNDING: Final = Fraction(1, 2**20)


class Numbers(NamedTuple):
    r"""The numbers in an output with their paths, and the labels, which are all other parts.

    A number that encodes something else, such as a byte or a date, is a label. ``rounding`` bounds
    the total rounding error of the numbers that the output contains as text.
    """

    values: tuple[Number, ...]
    paths: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    rounding: Fraction

    def comparable(self, other: Numbers) -> bool:
        r"""Whether both outputs have the same paths and labels, so that only numbers may differ."""
        return (self.paths, self.labels) == (other.paths, other.labels)


def numbers_in(output: object) -> Numbers | None:
    r"""Return the numbers in ``output``, or None if ``output`` contains no number."""
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
    # The sum over all numbers in a text of one unit in the last digit.
    units = Fraction(0)
    for match in NUMBER.finditer(text):
        mantissa, _, power = match[0].lower().partition("e")
        exponent = int(power or 0) - len(mantissa.partition(".")[2])
        if len(mantissa) <= MOST_DIGITS and abs(exponent) <= MOST_DIGITS:
            units += Fraction(10) ** exponent
    return units


class Difference(NamedTuple):
    r"""The exact difference of two lists of numbers.

    ``move`` is the difference in each coordinate. ``size`` is the norm of ``move``, or the square
    of the norm for l2. ``slack`` bounds the effect of rounding errors on the norm.
    """

    move: tuple[Fraction, ...]
    size: Fraction
    slack: Fraction
    norm: SensitivityNorm

    def exceeds(self, sensitivity: Fraction) -> bool:
        r"""Whether the norm exceeds ``sensitivity`` by more than rounding errors explain."""
        return self.size > (sensitivity + self.slack) ** (2 if self.norm == "l2" else 1)

    @property
    def bounds(self) -> tuple[Fraction, Fraction]:
        r"""A lower and an upper bound on the norm."""
        return root(self.size) if self.norm == "l2" else (self.size, self.size)

    def __str__(self) -> str:
        return f"sqrt({self.size})" if self.norm == "l2" else str(self.size)


def difference(
    a: Sequence[Number], b: Sequence[Number], norm: SensitivityNorm
) -> Difference | None:
    r"""Return the exact difference b - a, or None if a number is not finite.

    Without floats, the slack is 0. With floats, each coordinate adds 2^-20 times the largest
    absolute value (at least 1) of all numbers to the slack, as in single precision.
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
    return Difference(move, size, slack, norm)


def root(square: Fraction) -> tuple[Fraction, Fraction]:
    r"""A lower and an upper bound on the square root of ``square``, at most 2^-64 apart."""
    below = math.isqrt((square.numerator * square.denominator) << 128)
    step = square.denominator << 64
    exact = below * below == (square.numerator * square.denominator) << 128
    return Fraction(below, step), Fraction(below + (not exact), step)
