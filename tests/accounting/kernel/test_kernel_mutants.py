r"""Every line that matters, changed: the mutant proves something false, and the kernel does not.

The truth is a sum by the definition; of noise on the reals an integral by mpmath.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, Final

import pytest

from accounting.kernel import cells, convolution, delta_bounds, laws
from accounting.kernel.convolution import Listing, Plan
from accounting.kernel.delta_bounds import Curve
from accounting.kernel.laws import Round
from tests.accounting.kernel.test_kernel import LAWS, MP, ONE, delta_of, losses, masses
from tests.support.dpcore.mutants import mutated

HALF: Final = Fraction(1, 2)
SLACK: Final = Fraction(1, 10**25)


def integers(law: str, rounds: int, plan: Plan, rate: Fraction = Fraction(1)) -> Any:
    each = Round(law, LAWS[law], Fraction(2), (1 - rate, rate), ONE)
    row = [[(each, rounds)]]

    def bounds() -> tuple[Fraction, Fraction]:
        return Curve(row, row, plan).delta(HALF)

    return bounds, truth_of(law, rounds, rate)


@cache
def truth_of(law: str, rounds: int, rate: Fraction) -> tuple[Any, Any]:
    pairs = losses(masses(law, LAWS[law]), 2, rate, swapped=False)
    return delta_of(pairs, rounds, HALF)


def reals(plan: Plan) -> Any:
    """Two rounds: by quadrature over the outcome of one of them."""
    rate = Fraction(1, 3)
    row = [[(Round("gaussian", (), Fraction(1), (1 - rate, rate), ONE), 2)]]

    def bounds() -> tuple[Fraction, Fraction]:
        return Curve(row, row, plan).delta(HALF)

    return bounds, (MP.mpf("0.0748530"), MP.mpf("0.0748539"))


COARSE: Final = Plan(Fraction(1, 8), 36, 1 << 12, 1)
NARROW: Final = Plan(Fraction(1, 8), 36, 1 << 12, 10**34)
DOUBLED: Final = Plan(Fraction(1, 64), 36, 64, 1)
SKELLAM: Final = ("skellam", 2)
GAUSSIAN: Final = ("discrete-gaussian", 2)
MUTANTS: Final = [
    (cells, "_above", "yield k, p - down", "yield j, p - down", SKELLAM, COARSE),
    (cells, "_above", "-_floor(slack - high", "_floor(high - slack", SKELLAM, COARSE),
    (cells, "_below", "yield place, mass + part", "yield place + 1, mass + part", SKELLAM, COARSE),
    (cells, "_below", "-(-want * p // excess)", "0", SKELLAM, COARSE),
    (laws, "of_masses", "// q) + 1)", "// (2 * q)) + 1)", SKELLAM, COARSE),
    (Listing, "_trimmed", "+= lost", "+= lost + gained", GAUSSIAN, NARROW),
    (
        Listing,
        "doubled",
        "found[i + 1] += mass - down",
        "found[i] += mass - down",
        SKELLAM,
        DOUBLED,
    ),
    (Listing, "doubled", "found[i - 1] += waiting", "found[i] += waiting", SKELLAM, DOUBLED),
    (Listing, "doubled", "if self.above", "if not self.above", SKELLAM, DOUBLED),
    (convolution, "product", "one.start + other.start", "one.start", GAUSSIAN, COARSE),
    (convolution, "product", "one.first + other.first", "one.first", SKELLAM, COARSE),
    (convolution, "product", "- a * b) // unit", ") // unit", ("binomial", 2), COARSE),
    (delta_bounds, "power", "found = product(found, found, plan)", "pass", GAUSSIAN, COARSE),
    (delta_bounds._Tail, "__init__", "self.unit - self.masses[0]", "0", ("binomial", 2), COARSE),
    (delta_bounds._Tail, "delta", "max((self.masses[i] << 64) - taken, 0)", "0", SKELLAM, COARSE),
    (delta_bounds._Tail, "delta", "- taken, 0)", ", 0)", SKELLAM, COARSE),
    (
        delta_bounds,
        "_single",
        "above += fixed.one",
        "above += 0 * fixed.one",
        ("binomial", 1),
        COARSE,
    ),
    (delta_bounds, "_single", "f_high * most", "f_high * q // 2", ("skellam", 1), COARSE),
    (laws, "_of_table", "k = i - shift", "k = i + shift", ("poisson", 1), COARSE),
    (laws, "_of_laplace", "reversed(here)", "here", ("discrete-laplace", 1), COARSE),
    (
        laws,
        "_gaussian",
        "x * x / (2 * variance)",
        "x * x / (2 * variance + 1)",
        ("discrete-gaussian", 1),
        COARSE,
    ),
    (laws, "_polya", "shape.numerator + k", "shape.numerator + 1 + k", ("polya", 1), COARSE),
    (laws, "_poisson", "(k + 1)", "(k + 2)", ("poisson", 1), COARSE),
    (laws, "_binomial", "trials - k", "trials + 1 - k", ("binomial", 1), COARSE),
    (laws, "_of_reals", "below[0], above[1]", "below[0], below[1]", "reals", COARSE),
    (
        laws._Gaussian,
        "_power",
        "- self.fixed.one * move",
        "- 2 * self.fixed.one * move",
        "reals",
        COARSE,
    ),
    (laws._Gaussian, "_below", "x + move", "x - move", "reals", COARSE),
    (laws._Gaussian, "masses", "each.here, x, -1", "each.there, x, -1", "reals", COARSE),
]


def proves_a_falsehood(bounds: Any, truth: tuple[Any, Any]) -> bool:
    try:
        low, high = bounds()
    except (ArithmeticError, ValueError, IndexError, laws.Refused):
        return False
    least, most = (Fraction(int(end * 10**50), 10**50) for end in truth)
    return bool(low > most + SLACK or high < least - SLACK)


@pytest.mark.parametrize("row", MUTANTS, ids=[f"{r[1]}-{i}" for i, r in enumerate(MUTANTS)])
def test_a_mutant_proves_a_falsehood(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, old, new, case, plan = row
    bounds, truth = reals(plan) if case == "reals" else integers(case[0], case[1], plan)
    monkeypatch.setattr(delta_bounds, "_FEW", 0.0)
    assert not proves_a_falsehood(bounds, truth)
    monkeypatch.setattr(owner, name, mutated(getattr(owner, name), old, new))
    assert proves_a_falsehood(bounds, truth)
