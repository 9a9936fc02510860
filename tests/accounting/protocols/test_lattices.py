r"""Lattice laws of any finite losses: below and above the truth, and mutants that are not.

Every step is a rounding with a direction; each is broken here and must be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb, fmpz_poly
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.protocols.binomial_outcomes import binomial_outcomes
from accounting.protocols.product import (
    Lattice,
    Outcomes,
    _scaled,
    _trimmed,
    merged,
    product,
    split,
)
from dpcore.numbers.enclosure import Enclosure, ball, precision
from tests.accounting.protocols.test_product_curve import (
    BITS,
    DIGITS,
    Coordinate,
    coordinate,
    hockey_stick,
    holds,
)
from tests.support.accounting.brute import real
from tests.support.dpcore.mutants import mutated

GRAIN = Fraction(1, 64)


@st.composite
def finite_laws(draw: Callable[..., Any]) -> Coordinate:
    r"""Two laws on a few points, some of them seen in one world only; ties and atoms on nodes."""
    size = draw(st.integers(1, 4))
    weights = st.lists(st.integers(0, 6), min_size=size, max_size=size)
    here, there = draw(weights), draw(weights)
    here[0], there[0] = here[0] + 1, there[0] + 1
    return [
        (Fraction(a, sum(here)), Fraction(b, sum(there))) for a, b in zip(here, there, strict=True)
    ]


def outcomes_of(law: Coordinate) -> Outcomes:
    seen = sorted(((a, b) for a, b in law if a and b), key=lambda ab: ab[1] / ab[0])
    zero = arb(0)
    with precision(BITS + 64):
        return Outcomes(
            here=tuple(ball(a) for a, _ in seen),
            there=tuple(ball(b) for _, b in seen),
            hidden=ball(sum((a for a, b in law if not b), Fraction(0))),
            above=zero,
            below=zero,
        )


def bounds_of(
    laws: list[Coordinate], epsilon: Fraction, *, down: Any = merged, up: Any = split
) -> tuple[Fraction, Fraction]:
    ends = []
    for make in (down, up):
        with precision(BITS + 64):
            parts: list[tuple[Lattice, int]] = [
                (make(outcomes_of(law), GRAIN, BITS), 1) for law in laws
            ]
            found = product(parts).delta(epsilon)
        ends.append(Fraction(found.lower if make is down else found.upper))
    return ends[0], ends[1]


def sound(laws: list[Coordinate], epsilon: Fraction, **makes: Any) -> bool:
    lower, upper = bounds_of(laws, epsilon, **makes)
    truth = hockey_stick(laws, epsilon)
    with mpmath.workdps(DIGITS):
        slack = mpmath.mpf(10) ** -(DIGITS - 8)
        return bool(real(lower) <= truth + slack and truth <= real(upper) + slack)


def test_what_was_left_out_is_not_lost() -> None:
    # A window of mass 1 - 2^-8 in exact units: the far ends are a part of the bounds.
    whole = coordinate(40, Fraction(1, 2), 1)
    with precision(BITS + 64):
        narrow = binomial_outcomes(40, Fraction(1, 2), 1, 8)
        above = split(narrow, GRAIN, BITS).power(2).delta(Fraction(1)).upper
        below = merged(narrow, GRAIN, BITS).power(2).delta(Fraction(1)).lower
        assert holds(Enclosure(below, above), hockey_stick([whole] * 2, Fraction(1)))
        for part in ("outcomes.above, ", ", outcomes.below"):
            forgetful = mutated(split, part, "")
            lost = forgetful(narrow, GRAIN, BITS)
            total = sum(lost.masses.coeffs()) + lost.infinite
            assert total < 1 << BITS
        kept = split(narrow, GRAIN, BITS)
        assert sum(kept.masses.coeffs()) + kept.infinite >= 1 << BITS


@given(st.lists(finite_laws(), min_size=1, max_size=3), st.fractions(0, 3, max_denominator=64))
@settings(max_examples=60, deadline=None)
def test_bounds_hold_for_any_finite_laws(laws: list[Coordinate], epsilon: Fraction) -> None:
    assert sound(laws, epsilon)


# Laws at which a slip shows: many outcomes, outcomes seen in one world, epsilon on and off nodes.
TELLING = [
    [coordinate(6, Fraction(1, 2), 1)] * 2,
    [coordinate(5, Fraction(1, 3), 1), coordinate(4, Fraction(1, 2), 2)],
    [[(Fraction(2, 3), Fraction(1, 3)), (Fraction(1, 3), Fraction(2, 3))]] * 3,
    [[(Fraction(1, 9), Fraction(0)), (Fraction(8, 9), Fraction(1))]] * 2,
]
LEVELS = (Fraction(0), Fraction(1, 4), Fraction(1), Fraction(2), Fraction(5, 3))


def caught(**makes: Any) -> bool:
    return any(not sound(laws, epsilon, **makes) for laws in TELLING for epsilon in LEVELS)


def test_the_telling_laws_pass() -> None:
    assert not caught()


MUTANTS: dict[str, tuple[str, Callable[..., Any], str, str]] = {
    "upper law: hidden mass dropped": (
        "up",
        split,
        "(outcomes.hidden, outcomes.above, outcomes.below)",
        "(outcomes.above, outcomes.below)",
    ),
    "upper law: everything at the lower node": (
        "up",
        split,
        "high = min(_units_above(share, bits), whole)",
        "high = 0",
    ),
    "upper law: share without its factor": ("up", split, " / apart", ""),
    "upper law: nodes one too low": (
        "up",
        split,
        "masses.get(node, 0) + whole - high",
        "whole * 0",
    ),
    "lower law: groups a node too high": (
        "down",
        merged,
        "masses[node] = masses.get(node, 0)",
        "masses[node + 1] = masses.get(node + 1, 0)",
    ),
    "lower law: a group not checked": (
        "down",
        merged,
        "if a >= level * b:",
        "if node := node + 1:",
    ),
    "lower law: what is left forgotten": ("down", merged, "left = 1 - portion", "left = arb(1)"),
    "lower law: hidden mass doubled": (
        "down",
        merged,
        "_units_below(outcomes.hidden, bits)",
        "2 * _units_below(outcomes.hidden, bits)",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_lattice_is_caught(name: str) -> None:
    side, original, old, new = MUTANTS[name]
    assert caught(**{side: mutated(original, old, new)})


def tails(first: int, units: list[int], infinite: int) -> Callable[[int], int]:
    return lambda node: infinite + sum(units[max(node - first, 0) :])


def ordered(trim: Callable[..., Lattice], units: list[int], *, upward: bool) -> bool:
    r"""Whether cutting moved mass in the stated direction only, seen above every node."""
    frame = Lattice(
        grain=GRAIN, bits=BITS, upward=upward, first=0, masses=fmpz_poly([]), infinite=0
    )
    cut = trim(frame, -3, units, 7)
    kept = tails(cut.first, [int(m) for m in cut.masses.coeffs()], cut.infinite)
    whole = tails(-3, units, 7)
    sign = 1 if upward else -1
    return all(sign * (kept(node) - whole(node)) >= 0 for node in range(-5, len(units) + 2))


CUTS = [
    [5, 1 << 15, 1 << 20, 3, 1 << 19, 1 << 14, 9],
    [1 << 14, 0, 0, 1 << 14],
    [1 << 20],
    [0, 1 << 30, 0],
    [],
]


@pytest.mark.parametrize("upward", [True, False])
def test_cutting_rounds_in_its_direction(upward: bool) -> None:
    assert all(ordered(_trimmed, list(units), upward=upward) for units in CUTS)


@pytest.mark.parametrize(
    ("old", "new", "upward"),
    [
        ("top if kept else top + bottom", "0", True),
        ("top if kept else top + bottom", "top", True),
        ("kept[0] += bottom", "pass", True),
        ("kept[-1] += top", "infinite += top", False),
        ("if frame.upward:", "if True:", False),
        ("if frame.upward:", "if False:", True),
    ],
)
def test_a_cut_the_wrong_way_is_caught(old: str, new: str, upward: bool) -> None:
    mutant = mutated(_trimmed, old, new)
    assert not all(ordered(mutant, list(units), upward=upward) for units in CUTS)


@pytest.mark.parametrize("upward", [True, False])
def test_products_of_masses_round_in_their_direction(upward: bool) -> None:
    frame = Lattice(grain=GRAIN, bits=4, upward=upward, first=0, masses=fmpz_poly([]), infinite=0)
    for units in (0, 1, 15, 16, 17, 255):
        off = 16 * _scaled(units, frame) - units
        assert 0 <= (off if upward else -off) < 16
