"""Tests of `accounting.pairs.finite`: losses from outputs, and optimality by an LP."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog

from accounting import NotDerived, PrivacyCurve
from accounting.pairs import finite
from accounting.pairs.finite import StaircasePair
from dpcore import Sensitivity, Staircase
from dpcore.numbers.enclosure import narrow, precision
from tests.support.accounting.brute_force import mass_of
from tests.support.accounting.release_lists import curve
from tests.support.dpcore.mutants import mutated

CASES = [("2", 3, 2, 3), ("3", 4, 1, 3), ("1", 2, 1, 5), ("5/2", 3, 3, 7)]


def listed(noise: Staircase, shift: int) -> list[tuple[Fraction, float, float]]:
    r"""List the losses with their masses, output by output, for a window with little mass left."""
    reach = math.ceil(40 / noise.epsilon) * noise.sensitivity + shift
    mass = mass_of(noise)
    found: dict[int, list[float]] = {}
    for x in range(-reach, reach):
        p, q = float(mass(x)), float(mass(x + shift))
        sums = found.setdefault(round(math.log(p / q) / float(noise.epsilon)), [0.0, 0.0])
        sums[0], sums[1] = sums[0] + p, sums[1] + q
    return [(m * noise.epsilon, found[m][0], found[m][1]) for m in sorted(found)]


MUTANTS = {
    "the outermost steps counted once": ("number in (-far, 1)", "number == -far"),
    "one step too far left": (" + 1\n    all_behind", "\n    all_behind"),
    "one end omitted": ("max(first, left) + 1", "max(first, left)"),
    "only one neighbour of a step": ("last + shift) + 1", "first + shift) + 1"),
}


@pytest.mark.parametrize("name", ["", *MUTANTS])
def test_losses_equal_those_computed_from_outputs(name: str) -> None:
    code = finite._of_steps.__wrapped__
    code = mutated(code, *MUTANTS[name]) if name else code
    seen = False
    for epsilon, sensitivity, plateau, shift in CASES:
        noise = Staircase(epsilon=epsilon, sensitivity=sensitivity, plateau=plateau)
        truth = listed(noise, shift)
        try:
            with precision(96):
                found = [(m, float(p), float(q)) for m, p, q in code(noise, shift, 96)]
        except KeyError:
            seen = True
            continue
        seen |= [m for m, *_ in found] != [m for m, *_ in truth] or not np.allclose(
            np.array(found, dtype=float), np.array(truth, dtype=float), rtol=1e-9
        )
    assert seen == bool(name)


def program(epsilon: float, sensitivity: int, reach: int) -> float:
    r"""Return the least E[X^2] of an epsilon-DP law on -reach..reach: it is not above ours.

    Truncating the support only drops constraints, so the optimum over all laws is no smaller.
    """
    size = 2 * reach + 1
    rows = [
        (i, j)
        for i in range(size)
        for j in range(max(0, i - sensitivity), min(size, i + sensitivity + 1))
        if i != j
    ]
    above = np.zeros((len(rows), size))
    for at, (i, j) in enumerate(rows):
        above[at, i], above[at, j] = 1, -math.exp(epsilon)
    squares = np.arange(-reach, reach + 1.0) ** 2
    found = linprog(squares, above, np.zeros(len(rows)), np.ones((1, size)), [1.0])
    return float(found.fun)


@pytest.mark.parametrize(("epsilon", "sensitivity", "reach"), [(3, 2, 24), (2, 4, 40)])
def test_no_other_noise_of_this_epsilon_has_less_variance(
    epsilon: int, sensitivity: int, reach: int
) -> None:
    noise = Staircase(epsilon=epsilon, sensitivity=sensitivity)
    assert program(epsilon, sensitivity, reach) == pytest.approx(
        noise.variance.upper_float, rel=1e-4
    )
    for plateau in range(1, sensitivity + 1):
        other = Staircase(epsilon=epsilon, sensitivity=sensitivity, plateau=plateau)
        assert other.plateau == noise.plateau or other.variance > noise.variance


def test_the_largest_loss_is_exact_and_invalid_requests_are_refused() -> None:
    for epsilon, sensitivity, plateau, shift in CASES:
        noise = Staircase(epsilon=epsilon, sensitivity=sensitivity, plateau=plateau)
        assert curve(noise, shift).pure().upper == noise.epsilon * -(-shift // sensitivity)
    noise = Staircase(epsilon=1, sensitivity=2)
    with pytest.raises(NotDerived, match="at most 1024 times the sensitivity"):
        StaircasePair(noise=noise, shift=2049)
    with pytest.raises(NotDerived, match="bound per coordinate"):
        PrivacyCurve(noise=noise, sensitivity=Sensitivity.l1(2)).pure()
    assert narrow(partial(noise.pmf_ball, 3), 64) == narrow(partial(noise.pmf_ball, -3), 64)
