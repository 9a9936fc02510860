r"""The verdicts of an audit, the layers that give them, significance levels, and stopping rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias

from dpcore.exit_codes import ANSWER, FAILED, NEGATIVE_ANSWER, NO_ANSWER
from dpcore.numbers.enclosure import decimal_up
from dpcore.numbers.parameter import RationalLike, rational, rational_in
from dpcore.numbers.rounding import down, up

VerdictWord: TypeAlias = Literal["refuted", "not_refuted", "proven", "nothing_measured"]


class VerdictDisplay(NamedTuple):
    r"""The words for a verdict in a report, their terminal colour, and the exit code."""

    words: str
    style: str
    exit_code: int


VERDICTS: Final[dict[VerdictWord | None, VerdictDisplay]] = {
    "refuted": VerdictDisplay("REFUTED", "bold red", NEGATIVE_ANSWER),
    "not_refuted": VerdictDisplay("NOT REFUTED AT THIS RESOLUTION", "bold yellow", ANSWER),
    "proven": VerdictDisplay("PROVEN", "bold green", ANSWER),
    "nothing_measured": VerdictDisplay("NOTHING MEASURED", "bold magenta", NO_ANSWER),
    None: VerdictDisplay("THE TARGET FAILED", "bold magenta", FAILED),
}

Cause: TypeAlias = Literal["values", "floating-point", "time", "errors"]

CAUSES: Final[dict[Cause, str]] = {
    "values": "",
    "floating-point": " (floating-point leak)",
    "time": " (time of a call)",
    "errors": " (errors reveal the dataset)",
}
r"""The causes of a refutation, in the order of display, with their names in a headline."""

_REPRESENTATION: Final = frozenset({"lowest-bit", "last-bits", "precision", "grid"})


def cause_of(feature: str | None) -> Cause:
    r"""The cause of a refutation through a feature; ``feature`` is None for the output itself."""
    steps = (feature or "").split("+")
    if steps[0] == "time":
        return "time"
    return "floating-point" if steps[-1].partition(":")[0] in _REPRESENTATION else "values"


FAULTS: Final = "FAULTS FOUND"
r"""The headline if the claim is not refuted but the code has a fault."""

INTERRUPTED: Final = "interrupted"
r"""The reason for the end of drawing in a report after Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    r"""A completed layer: its method, and the meaning of its result with its assumptions."""

    layer: Literal["exact", "fit", "replay", "sample"]
    method: str
    proves: str


def level(name: str, value: RationalLike, example: str = "0.05") -> Fraction:
    r"""Parse an alpha or a confidence in (0, 1) as an exact rational; errors name ``name``."""
    return rational_in(name, value, "(0, 1)", f"such as {example}")


def level_upper(alpha: RationalLike) -> float:
    r"""The float whose shortest decimal form is ``alpha``, or else the least float above it."""
    return decimal_up(rational("alpha", alpha))


def confidence(alpha: RationalLike) -> str:
    r"""The confidence of all bounds together as text, rounded down."""
    return f"{down(100 * (1 - rational('alpha', alpha)), 6)}%"


def log_bar(alpha: RationalLike) -> float:
    r"""Return ln(1/alpha), rounded up; alpha may underflow float64."""
    level = rational_in("alpha", alpha, "(0, 1)")
    size = math.log(level.denominator)
    return size * (1.0 + 2.0**-50) - math.log(level.numerator)


def format_p_value(value: float) -> str:
    r"""The p-value in three digits, rounded up; a bound if it underflows."""
    return "below 1e-300" if value < 1e-300 else up(value, 3)


def evidence(alpha: RationalLike, *, p_value: float | None, e_value: float | None) -> str:
    r"""The p-value or e-value, and the threshold of refutation."""
    exact = rational("alpha", alpha)
    if e_value is None:
        return f"p-value {format_p_value(p_value or 0.0)}; {down(exact, 6)} or less refutes"
    number = down(e_value, 3) if math.isfinite(e_value) else "infinite"
    return f"e-value {number}; {up(1 / exact, 6)} or more refutes"


_FIRST_LOOK: Final = 32
_LOOK_GROWTH: Final = Fraction(5, 4)
_MOST_RUNS: Final = 10**12


def _looks() -> tuple[int, ...]:
    found = [_FIRST_LOOK]
    while found[-1] < _MOST_RUNS:
        found.append(math.ceil(found[-1] * _LOOK_GROWTH))
    return tuple(found)


LOOKS: Final = _looks()
r"""The fixed numbers of runs after which the rule is learned again: 32, 40, 50, 63, 79, 99, ..."""

TRAINING: Final = LOOKS[0]
r"""The least number of initial runs, from which both tests only learn: they are not tested."""
