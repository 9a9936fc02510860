r"""Output laws of the catalogue: the largest of several counts, and the sparse vector technique."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses, laplace, laplace_upto

__all__ = ["LAWS"]

# Noise beyond so many scales has less than e^(-60) of the mass.
_SCALES: Final = 60
_VALUES: Final = 30


def _wins(index: int, value: int, counts: Sequence[int], scale: Any) -> Any:
    # The first largest: strictly above those before it, at least as large as those after.
    others = (
        laplace_upto(value - count - (j < index), scale)
        for j, count in enumerate(counts)
        if j != index
    )
    return laplace(value - counts[index], scale) * mpmath.fprod(others)


def largest_index(scale: int) -> Law:
    """The index of the largest noisy count, the first of several."""

    def law(counts: Sequence[int]) -> Masses:
        window = range(-_SCALES * scale, _SCALES * scale)
        return {
            i: mpmath.fsum(_wins(i, value, counts, scale) for value in window)
            for i in range(len(counts))
        }

    return law


def largest_count(counts: Sequence[int]) -> Masses:
    """The largest noisy count itself."""

    def upto(value: int) -> Any:
        return mpmath.fprod(laplace_upto(value - count, 2) for count in counts)

    return {v: upto(v) - upto(v - 1) for v in range(-30, 60)}


def first_largest(counts: Sequence[int]) -> Masses:
    """One draw for all counts moves none of them past another."""
    return {list(counts).index(max(counts)): mpf(1)}


def _thresholds(scale: Any) -> Iterator[tuple[int, Any]]:
    reach = int(_SCALES * scale)
    return ((t, laplace(t, scale)) for t in range(-reach, reach + 1))


def rows(threshold: Any, noise: Any, stop: int | None) -> Law:
    """0 below the threshold, 1 above, and -1 after so many above; ``noise`` None is no noise."""

    def below(answer: int, at: int) -> Any:
        return mpf(answer < at) if noise is None else laplace_upto(at - 1 - answer, noise)

    def law(answers: Sequence[int]) -> Masses:
        total: Masses = {}
        for at, weight in _thresholds(threshold):
            partial: Masses = {(): weight}
            for answer in answers:
                under = below(answer, at)
                grown: Masses = {}
                for row, mass in partial.items():
                    if row.count(1) == stop:
                        grown[(*row, -1)] = mass
                    else:
                        grown[(*row, 0)], grown[(*row, 1)] = mass * under, mass * (1 - under)
                partial = grown
            for row, mass in partial.items():
                total[row] = total.get(row, mpf(0)) + mass
        return total

    return law


def _first_above(answers: Sequence[int], scale: Any, at: int, weight: Any) -> Iterator[Any]:
    # That so many are below a threshold, whatever comes next; in the end that all are.
    yield weight
    for answer in answers:
        weight *= laplace_upto(at - 1 - answer, scale)
        yield weight


def value_reused(answers: Sequence[int]) -> Masses:
    """How many are below, and the noisy answer above: every threshold up to it would do."""
    none = len(answers)
    masses: Masses = {(none, 0): mpf(0)}
    upto = [mpf(0)] * none
    for at, weight in _thresholds(2):
        *some, all_below = _first_above(answers, 2, at, weight)
        masses[none, 0] += all_below
        upto = [mass + more for mass, more in zip(upto, some, strict=True)]
        if abs(at) <= _VALUES:
            masses |= {(i, at): mass * laplace(at - answers[i], 2) for i, mass in enumerate(upto)}
    return masses


def value_anew(answers: Sequence[int]) -> Masses:
    """How many are below, and the answer above with noise of its own."""
    below = [mpf(0)] * (len(answers) + 1)
    for at, weight in _thresholds(4):
        parts = _first_above(answers, 8, at, weight)
        below = [mass + more for mass, more in zip(below, parts, strict=True)]
    return {(len(answers), 0): below[-1]} | {
        (i, v): (below[i] - below[i + 1]) * laplace(v - answer, 2)
        for i, answer in enumerate(answers)
        for v in range(-_VALUES, _VALUES + 1)
    }


LAWS: Final[dict[str, Law]] = {
    "noisy-max": largest_index(2),
    "noisy-max-value": largest_count,
    "noisy-max-half-noise": largest_index(1),
    "noisy-max-one-draw": first_largest,
    "sparse-vector": rows(2, 4, 1),
    "sparse-vector-two": rows(2, 8, 2),
    "sparse-vector-value": value_anew,
    "sparse-vector-value-reused": value_reused,
    "sparse-vector-unscaled": rows(4, mpf(4) / 3, 2),
    "sparse-vector-noiseless-answers": rows(2, None, None),
    "sparse-vector-endless": rows(2, 2, None),
}
r"""One law a name, broken or twin."""
