"""Tests that half of the noise is enough for monotonic scores, and only for those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest

from audit.targets.local_and_selection import law_of
from dpcore.errors import InvalidParameter
from dpcore.selection import AboveThreshold, MaxNoise, NoisyMax, Rule, Selection

ONE: dict[str, Any] = {"epsilon": 1, "sensitivity": 1, "monotonic": True}
MECHANISMS = {
    "flip": Selection(**ONE),
    "flip-two": Selection(**ONE, count=2),
    "exponential": Selection(**ONE, rule=Rule.EXPONENTIAL),
    "exponential-noise": NoisyMax(**ONE),
    "laplace": NoisyMax(**ONE, noise=MaxNoise.LAPLACE),
    "lead": NoisyMax(**ONE, noise=MaxNoise.LAPLACE, gap=True),
    "above": AboveThreshold(**ONE, threshold=1),
    "above-two": AboveThreshold(**ONE, threshold=1, count=2),
    "gap": AboveThreshold(**ONE, threshold=1, gap=True),
}
WITH, AGAINST = (0, 1), (-1, 0, 1)


@cache
def law(mechanism: Any, scores: tuple[int, ...]) -> dict[Any, Fraction]:
    found = law_of(mechanism, [*scores], scores)
    return {outcome: Fraction(mass.enclose(96).upper) for outcome, mass in found.items()}


def worst(mechanism: Any, steps: Sequence[int]) -> float:
    """The largest privacy loss over small scores, and all changes of each by one of ``steps``."""
    size = 2 if getattr(mechanism, "gap", False) else 3
    ratios = [Fraction(1)]
    for scores, move in product(product((0, 2), repeat=size), product(steps, repeat=size)):
        p, q = (
            law(mechanism, scores),
            law(mechanism, tuple(map(sum, zip(scores, move, strict=True)))),
        )
        ratios += [p[x] / q[x] for x in p] + [q[x] / p[x] for x in p]
    return math.log(max(ratios))


@pytest.mark.parametrize("name", MECHANISMS)
def test_half_of_the_noise_suffices_only_for_monotonic_scores(name: str) -> None:
    found = worst(MECHANISMS[name], WITH)
    assert 0.4 < found <= 1 + 1e-12
    against = worst(MECHANISMS[name], AGAINST)
    assert against > 1.2 * found
    assert against > 1 or name in ("above-two", "gap")  # with more answers they exceed it


def test_the_noise_of_monotonic_scores_is_half_as_wide() -> None:
    assert Selection(**ONE, count=3).unit == Fraction(1, 3)
    assert NoisyMax(**ONE).scale == 1
    assert [*AboveThreshold(**ONE, threshold=0, count=3).scales] == [Fraction(5, 2), 5]
    with pytest.raises(InvalidParameter, match="monotonic"):
        Selection(epsilon=1, sensitivity=1, monotonic=1)  # type: ignore[arg-type]  # no truth value
