r"""Tests of `accounting.proof_kernel` against rational sums and mpmath; mutants must fail."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from flint import fmpz_poly
from mpmath import mp

from accounting.proof_kernel import cells, convolution, delta_bounds, law_tables
from accounting.proof_kernel.convolution import Listing, Plan
from accounting.proof_kernel.delta_bounds import Curve
from accounting.proof_kernel.law_tables import Round
from accounting.proof_kernel.series import Fixed
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    Noise,
    Poisson,
    Polya,
    PolyaDifference,
    Skellam,
    Staircase,
)
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day
from tests.support import laws as references
from tests.support.accounting.brute_force import (
    close,
    hockey_stick,
    product,
    real,
    shifted,
    two_samples,
)
from tests.support.dpcore.mutants import mutated

DIGITS: Final = 50
ONE: Final = (Fraction(1),)
REACH: Final = 500
RARE: Final = 90
"""Outcomes with about e^-90 of the mass are left out."""

NOISES: Final[dict[str, Noise]] = {
    noise.name: noise
    for noise in (
        DiscreteGaussian(sigma_squared="5/2"),
        DiscreteLaplace(scale="3/2"),
        Staircase(epsilon="2/3", sensitivity=3, plateau=2),
        DiscreteGaussianSum(count=3, sigma_squared="3/4"),
        Skellam(variance=3),
        PolyaDifference(shape="1/2", scale="3/2"),
        Poisson(mean=5),
        Polya(shape="3/2", scale=2),
        Binomial(trials=9, probability="1/3"),
    )
}
LAWS: Final = {name: tuple(map(Fraction, law.parameters.values())) for name, law in NOISES.items()}


@cache
def world(law: str, shift: int, rate: Fraction, swapped: bool) -> list[Any]:
    """Return P and Q of one round by the reference module of the law, with other formulas."""
    noise, decay = NOISES[law], references.LAWS[law].decay
    places = [x for x in range(-REACH, REACH + 1) if decay(noise, max(abs(x) - 1, 0)) < RARE]
    with mp.workdps(DIGITS):
        mass = {x: references.second(noise, "pmf", x) for x in places}
        pairs = [(real(rate) * p + real(1 - rate) * q, q) for q, p in shifted(mass, shift)]
        return [(q, p) if swapped else (p, q) for p, q in pairs if p or q]


@cache
def exact(
    law: str, shift: int, rate: Fraction, swapped: bool, rounds: int, epsilon: Fraction
) -> Any:
    """By the definition: sum over all products of outcomes of ``rounds`` rounds."""
    rows = world(law, shift, rate, swapped)
    frequent = [row for row in rows if rounds == 1 or max(row) > 1e-15]
    with mp.workdps(DIGITS):
        return hockey_stick(product([frequent] * rounds), epsilon)


def room(rounds: int) -> str:
    return "1e-30" if rounds == 1 else "1e-12"


def width(each: Round, rounds: int, plan: Plan, epsilon: Fraction) -> Fraction:
    """Return the width of the bounds on delta, which must hold."""
    row = [[(each, rounds)]]
    found = Enclosure(*Curve(row, row, plan).delta(epsilon))
    truth = exact(each.law, int(each.shift), each.here[1], each.swapped, rounds, epsilon)
    assert close(found, truth, room=room(rounds))
    return Fraction(found.width)


@by_day(4)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 3)])
@pytest.mark.parametrize("law", LAWS)
def test_both_bounds_enclose_the_exact_delta(law: str, rate: Fraction, rounds: int) -> None:
    plan = Plan(Fraction(1, 64), 36, 1 << 12, 1)
    for swapped in {False, rate < 1}:
        each = Round(law, LAWS[law], Fraction(2), (1 - rate, rate), ONE, swapped=swapped)
        for epsilon in (Fraction(0), Fraction(1, 3), Fraction(2)):
            least = Fraction(1, 10**30) if rounds == 1 else Fraction(1, 50)
            assert width(each, rounds, plan, epsilon) <= least


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(60))
def test_no_plan_makes_a_bound_false(seed: int) -> None:
    """Coarse grids, few digits, windows that cut most of the mass: wide bounds, none false."""
    draws = Random(seed)
    law = draws.choice([*LAWS])
    rate, rounds = draws.choice([Fraction(1), Fraction(1, 3)]), draws.randint(1, 2)
    swapped, shift = rate < 1 and draws.random() < 0.5, draws.randint(1, 3)
    digits = draws.choice([8, 12, 36])
    plan = Plan(
        Fraction(1, draws.choice([1, 3, 16, 1000])),
        digits,
        draws.choice([64, 100, 1 << 12]),
        draws.choice([0, 1, 10 ** (digits - 3), 10**digits]),
    )
    each = Round(law, LAWS[law], Fraction(shift), (1 - rate, rate), ONE, swapped)
    for epsilon in (Fraction(0), Fraction(draws.randint(1, 40), 13)):
        width(each, rounds, plan, epsilon)


def test_one_release_is_bounded_beyond_the_largest_float() -> None:
    # 330 decimals need more units of mass than a float can count.
    rows = [[(Round("gaussian", (), Fraction(1)), 1)]]
    low, high = Curve(rows, rows, Plan(Fraction(1), 330, 64, 0)).delta(Fraction(36))
    with mp.workdps(90):
        truth = mp.ncdf(mp.mpf("-35.5")) - mp.exp(36) * mp.ncdf(mp.mpf("-36.5"))
    with mp.workdps(400):
        assert real(low) <= truth <= real(high) <= truth * (1 + mp.mpf(10) ** -15)


@pytest.mark.parametrize("bits", [100, 230])
def test_enclosures_contain_exp_log_and_the_normal_distribution(bits: int) -> None:
    fixed = Fixed(bits)
    with mp.workdps(90):
        for i in range(-200, 201, 7):
            x = (i * fixed.one) // 9 + i
            exact = mp.mpf(x) / fixed.one
            low, high = fixed.exp(x)
            assert low <= mp.exp(exact) * fixed.one <= high
            assert high - low <= 2 + high // (1 << (bits - 8))
            n = abs(x) + 1
            low, high = fixed.log(n)
            assert low <= mp.log(mp.mpf(n) / fixed.one) * fixed.one <= high
            if abs(i) < 100:
                assert abs(fixed.normal(x) - mp.ncdf(exact) * fixed.one) <= 8


HALF: Final = Fraction(1, 2)


@cache
def integers(law: str, rounds: int, plan: Plan) -> Any:
    shift = -2 if law in ("poisson", "polya", "binomial") else 2
    row = [[(Round(law, LAWS[law], Fraction(shift)), rounds)]]
    truth = exact(law, shift, Fraction(1), False, rounds, HALF)
    return lambda: Curve(row, row, plan).delta(HALF), truth


@cache
def reals(plan: Plan) -> Any:
    """Two rounds, by quadrature over the outcome of one of them."""
    rate = Fraction(1, 3)
    row = [[(Round("gaussian", (), Fraction(1), (1 - rate, rate), ONE), 2)]]
    truth = two_samples("1", rate, mp.mpf("0.5"), 1, pieces=28)
    return lambda: Curve(row, row, plan).delta(HALF), truth


COARSE: Final = Plan(Fraction(1, 8), 36, 1 << 12, 1)
NARROW: Final = Plan(Fraction(1, 8), 36, 1 << 12, 10**34)
DOUBLED: Final = Plan(Fraction(1, 64), 36, 64, 1)
SKELLAM: Final = ("skellam", 2)
BINOMIAL: Final = ("binomial", 2)
GAUSSIAN: Final = ("discrete-gaussian", 2)
REAL: Final = law_tables._Real
# The owner, the function, one edit of it, the case, and the plan if it is not the coarse one.
MUTANTS: Final[list[tuple[Any, ...]]] = [
    (cells, "_above", "yield k, p - down", "yield j, p - down", SKELLAM),
    (cells, "_above", "high - slack", "low - slack", "reals"),
    (cells, "_around", "math.ceil(", "math.floor(", SKELLAM),
    (cells, "_below", "yield place, mass + part", "yield place + 1, mass + part", SKELLAM),
    (cells, "_below", "-(-want * p // excess)", "0", SKELLAM),
    (cells, "_below", "place + max(", "place + 99 + max(", BINOMIAL),
    (law_tables, "of_masses", "// q) + 1)", "// (2 * q)) + 1)", SKELLAM),
    (delta_bounds, "listing", "pair.infinite *", "2 * pair.infinite *", BINOMIAL),
    (Listing, "_trimmed", "+= sum(weights[:low])", "+= sum(weights)", GAUSSIAN, NARROW),
    (Listing, "doubled", "found[i + 1] += mass", "found[i] += mass", SKELLAM, DOUBLED),
    (Listing, "doubled", "found[i - 1] += waiting", "found[i] += waiting", SKELLAM, DOUBLED),
    (Listing, "doubled", "if self.above", "if not self.above", SKELLAM, DOUBLED),
    (convolution, "product", "one.start + other.start", "one.start", GAUSSIAN),
    (convolution, "product", "one.first + other.first", "one.first", SKELLAM),
    (convolution, "product", "- a * b) // unit", ") // unit", BINOMIAL),
    (delta_bounds, "power", "found = product(found, found, plan)", "pass", GAUSSIAN),
    (delta_bounds, "_of_listing", "10**digits - sum(total.weights)", "0", BINOMIAL),
    (delta_bounds, "_of_listing", "max(finite, 0)", "0", SKELLAM),
    (delta_bounds, "_of_listing", "- (found * factor", "- (0 * factor", SKELLAM),
    (delta_bounds, "_of_table", "above += fixed.one", "above += 0 * fixed.one", ("binomial", 1)),
    (delta_bounds, "_of_table", "f_high * (q", "f_high * (q // 2", ("skellam", 1)),
    (law_tables, "masses_of", "table.at(x - shift)", "table.at(x + shift)", ("poisson", 1)),
    (law_tables, "masses_of", "reversed(falling)", "falling", ("discrete-laplace", 1)),
    (law_tables, "_table", "(2 * variance)", "(2 * variance + 1)", ("discrete-gaussian", 1)),
    (law_tables, "_table", "shape.as_integer", "(shape + 1).as_integer", ("polya", 1)),
    (law_tables, "_table", "k: (n, n, (k + 1)", "k: (n, n, (k + 2)", ("poisson", 1)),
    (law_tables, "_table", "(chance / (1 - chance))", "chance", ("binomial", 1)),
    (law_tables, "_from_ratios", "ratio(peak + k)", "ratio(peak + k + 1)", ("skellam", 1)),
    (law_tables, "_of_reals", "zip(lows, highs,", "zip(lows, lows,", "reals"),
    (REAL, "_power", "- self.fixed.one * move", "- 2 * self.fixed.one * move", "reals"),
    (REAL, "masses", "x - of(move)", "x + of(move)", "reals"),
    (REAL, "_log_mixed", "most + self.fixed.log(high)", "self.fixed.log(high)", "reals"),
]


def proves_a_falsehood(bounds: Any, truth: Any, slack: str) -> bool:
    try:
        low, high = bounds()
    except (ArithmeticError, ValueError, IndexError, law_tables.Refused):
        return False
    return bool(real(low) > truth + real(slack) or real(high) < truth - real(slack))


sound = cache(lambda bounds, truth, slack: not proves_a_falsehood(bounds, truth, slack))


@pytest.mark.parametrize("row", MUTANTS, ids=[f"{r[1]}-{i}" for i, r in enumerate(MUTANTS)])
def test_each_mutant_of_the_kernel_proves_a_false_claim(
    row: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, old, new, case, *other = row
    plan = other[0] if other else COARSE
    real_valued = case == "reals"
    bounds, truth = reals(plan) if real_valued else integers(case[0], case[1], plan)
    slack = "1e-10" if real_valued else room(case[1])
    monkeypatch.setattr(delta_bounds, "_FEW", 0.0)
    assert sound(bounds, truth, slack)
    monkeypatch.setattr(owner, name, mutated(getattr(owner, name), old, new))
    assert proves_a_falsehood(bounds, truth, slack)


def test_binary_products_are_those_of_decimals() -> None:
    random = Random(3)
    narrow = mutated(convolution.convolved_in_binary, "3322 // 8000 + 1", "3322 // 8000 - 1")
    wrong = 0
    for digits, sizes in ((8, (1, 1)), (36, (40, 17)), (60, (5, 90)), (400, (3, 3))):
        # Masses that add up to at most 10^digits, so that all sums fit into a slot.
        one, other = ([random.randrange(10**digits // size) for _ in range(size)] for size in sizes)
        one[0] = other[0] = 10**digits // (2 * max(sizes))
        slot = 2 * digits + 2
        for pair in ((one, other), (one, one)):
            total = fmpz_poly(pair[0]) * fmpz_poly(pair[1])
            for drop in (0, digits):
                truth = [int(mass) // 10**drop for mass in total.coeffs()]
                found = convolution.convolved_in_binary(*pair, slot, drop, int)
                assert found == truth == convolution.convolved(*pair, slot, drop)
        heavy = [10**slot // 4, 0, 1]
        try:
            wrong += narrow(heavy, [1, 1], slot, 0, int) != [heavy[0], heavy[0], 1, 1]
        except OverflowError:
            wrong += 1
    assert wrong == 4
