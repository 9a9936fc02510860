r"""Find the steps in which outputs lie apart: noise in steps of 0.01 that is added to any answer.

Noise that was drawn or rounded in steps hides an answer only where the answer lies on the same
steps. Which ones they are is found by Euclid's algorithm on differences of outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_TRIPLES: Final = 96
_SURE: Final = 64.0  # how far a remainder must fall at once to be taken for 0
_SLACK: Final = 4.0  # roundings
_APART: Final = 2.0**-7  # of a step: closer numbers are whole steps apart
_NATS: Final = 7.0


def step_of(numbers: Sequence[float] | NDArray[np.floating[Any]]) -> float | None:
    r"""The coarsest step of which a third of the numbers lie whole multiples apart; None where
    there is none, or where all lie on one finer lattice as chance would spread them.

    >>> rng = np.random.default_rng(1)
    >>> steps = 0.3 * rng.integers(-5000, 5000, 32)
    >>> step_of(np.where(np.arange(32) % 2, 20.0, 20.0 + 1 / 7) + steps)
    0.3
    >>> step_of(steps), step_of(rng.random(32))
    (None, None)
    """
    x = np.asarray(numbers, dtype=np.float64)
    if len(x) < 3 or not bool(np.isfinite(x).all()):
        return None
    on = {step: _two_largest(x, step) for step in _steps(x)}
    finest = max((step for step, (first, _) in on.items() if first == len(x)), default=0.0)
    found = [
        step
        for step, (first, second) in on.items()
        if 3 * first >= len(x) and _more_than_chance(first + second, len(x), finest / step)
    ]
    return max(found, default=None)


def _steps(x: NDArray[np.float64]) -> set[float]:
    rng, unit = np.random.default_rng(len(x)), float(np.spacing(np.abs(x).max()))
    found = set()
    for _ in range(_TRIPLES):
        a, b, c = x[rng.permutation(len(x))[:3]].tolist()
        if step := _common(abs(a - b), abs(a - c), unit):
            found.add(_refined(x - a, step))
    return found


def _common(one: float, other: float, unit: float) -> float:
    # What both are multiples of, each known to a few ``unit``; 0 where that decides nothing.
    whole, high, low = max(one, other), max(one, other), min(one, other)
    while low > _SLACK * unit * whole / max(high, unit):
        high, low = low, abs(high - round(high / low) * low)
    return high if high * high > _SURE * _SLACK * unit * whole else 0.0


def _refined(moved: NDArray[np.float64], step: float) -> float:
    # By least squares over those that lie whole steps away, in as few digits as tell it from no
    # other step within their width.
    times = np.rint(moved / step)
    near = np.abs(moved / step - times) < _APART
    if bool(times[near].any()):
        step = float(times[near] @ moved[near] / (times[near] @ times[near]))
    if step > 0.5 and not bool((moved != np.rint(moved)).any()):
        return float(np.rint(step))
    for digits in range(1, 17):
        short = float(f"{step:.{digits}g}")
        if abs(short - step) * float(np.ptp(moved)) < _APART * step * step / 16.0:
            return short
    return step


def _two_largest(x: NDArray[np.float64], step: float) -> tuple[int, int]:
    # How many lie whole steps apart, at most, and how many of the others.
    counts = [0, 0]
    rest = (x - x[0]) / step % 1.0
    apart = _APART if bool((x != np.rint(x)).any()) else min(_APART, 0.5 / step)
    for place in (0, 1):
        if len(rest):
            near = np.abs((rest[:, None] - rest + 0.5) % 1.0 - 0.5) < apart
            best = int(near.sum(axis=1).argmax())
            counts[place] = int(near[best].sum())
            rest = rest[~near[best]]
    return counts[0], counts[1]


def _more_than_chance(many: int, of: int, part: float) -> bool:
    # Of numbers on a finer lattice two classes hold ``2 part`` by chance (Chernoff's bound, over
    # all pairs of classes).
    if not part:
        return True
    share, by_chance = many / of, 2.0 * part
    if share <= by_chance:
        return False
    left = (1.0 - share) * math.log((1.0 - share) / (1.0 - by_chance)) if share < 1.0 else 0.0
    told = share * math.log(share / by_chance) + left
    return of * told > _NATS + 2.0 * math.log(1.0 / part)
