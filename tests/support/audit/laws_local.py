r"""Output laws of the catalogue: answers that every person randomises alone."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses

__all__ = ["LAWS"]


def answers(kept: str) -> Law:
    """One of four, the truth with that chance, the others alike."""
    p = mpf(kept)
    return lambda truth: {k: p if k == truth else (1 - p) / 3 for k in range(4)}


def response(present: int) -> Masses:
    """Yes or no, the truth with chance 0.731."""
    return {k: mpf("0.731") if k == present else mpf("0.269") for k in (0, 1)}


def _response(held: tuple[int, ...], flipped: Any) -> Masses:
    return {
        bits: mpmath.fprod(
            1 - flipped if b == h else flipped for b, h in zip(bits, held, strict=True)
        )
        for bits in product((0, 1), repeat=len(held))
    }


def _one_hot(value: int, width: int) -> tuple[int, ...]:
    return tuple(int(k == value) for k in range(width))


def permanent(flipped: str) -> Law:
    return lambda value: _response(_one_hot(value, 4), mpf(flipped))


def two_alone(value: int) -> Masses:
    """Two permanent responses of two bits."""
    one = _response(_one_hot(value, 2), mpf("0.378"))
    return {(*a, *b): one[a] * one[b] for a, b in product(one, repeat=2)}


def two_of_one(value: int) -> Masses:
    """One permanent response, reported twice with a tenth of the bits wrong."""
    masses: Masses = {}
    for kept, mass in _response(_one_hot(value, 2), mpf("0.378")).items():
        report = _response(kept, mpf("0.1"))
        for a, b in product(report, repeat=2):
            masses[*a, *b] = masses.get((*a, *b), mpf(0)) + mass * report[a] * report[b]
    return masses


LAWS: Final[dict[str, Law]] = {
    "found-early": response,
    "looked-at-all": response,
    "four-answers": answers("0.475"),
    "four-answers-as-two": answers("0.731"),
    "rappor": permanent("0.378"),
    "rappor-for-one-bit": permanent("0.269"),
    "memoised-rappor": two_of_one,
    "one-time-rappor-twice": two_alone,
}
r"""One law a name, broken or twin."""
