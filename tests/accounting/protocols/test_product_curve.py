r"""Several binomial coordinates: bounds against enumeration, of every shift in the box, both ways.

The second path multiplies out all outcomes in mpmath and takes the largest delta over every shift
vector, the small ones and the mixed signs included; nothing of lattices, rays or corners is in it.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb
from typing import Any

import mpmath
import pytest
from flint import arb

from accounting import PrivacyCurve
from accounting.errors import NotDerived
from accounting.protocols import box
from accounting.protocols.binomial_outcomes import binomial_outcomes
from accounting.protocols.box import BinomialBox
from accounting.protocols.product import (
    Outcomes,
    delta_of_one,
    merged,
    product,
    split,
)
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.binomial import Binomial
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.accounting.brute import real
from tests.support.dpcore.mutants import mutated

DIGITS = 50
BITS = 160
Coordinate = list[tuple[Fraction, Fraction]]


def masses(trials: int, p: Fraction) -> dict[int, Fraction]:
    return {x: comb(trials, x) * p**x * (1 - p) ** (trials - x) for x in range(trials + 1)}


def coordinate(trials: int, p: Fraction, shift: int) -> Coordinate:
    law = masses(trials, p)
    places = range(min(0, shift), trials + max(0, shift) + 1)
    return [(law.get(x, Fraction(0)), law.get(x - shift, Fraction(0))) for x in places]


def hockey_stick(coordinates: list[Coordinate], epsilon: Fraction) -> Any:
    r"""sum (P - e^epsilon Q)+ over all outcomes, exact but for e^epsilon."""
    with mpmath.workdps(DIGITS):
        factor, total = mpmath.exp(real(epsilon)), mpmath.mpf(0)
        for point in itertools.product(*coordinates):
            a, b = Fraction(1), Fraction(1)
            for here, there in point:
                a, b = a * here, b * there
            total += max(real(a) - factor * real(b), 0)
        return total


def worst(trials: int, p: Fraction, bounds: tuple[int, ...], epsilon: Fraction) -> Any:
    shifts = itertools.product(*(range(-bound, bound + 1) for bound in bounds))
    return max(hockey_stick([coordinate(trials, p, d) for d in shift], epsilon) for shift in shifts)


def holds(found: Enclosure, truth: Any) -> bool:
    with mpmath.workdps(DIGITS):
        slack = mpmath.mpf(10) ** -(DIGITS - 8)
        return bool(
            real(Fraction(found.lower)) - slack <= truth <= real(Fraction(found.upper)) + slack
        )


@pytest.mark.parametrize(
    ("trials", "p", "bounds"),
    [
        (1, "1/2", (1, 1)),
        (5, "1/2", (1, 1)),
        (4, "1/2", (2, 1)),
        (3, "1/2", (1, 1, 1)),
        (4, "1/4", (1, 1)),
        (3, "2/5", (1, 2)),
        (2, "9/10", (1, 1)),
        (3, "1/2", (4, 1)),
    ],
)
def test_every_shift_of_a_small_box(trials: int, p: str, bounds: tuple[int, ...]) -> None:
    law = BinomialBox(trials=trials, probability=p, bounds=bounds)
    for epsilon in ("0", "2/5", "1", "3"):
        found = law.enclose_delta(epsilon, relative="1/100")
        assert holds(found, worst(trials, Fraction(p), bounds, Fraction(epsilon)))


@pytest.mark.parametrize(
    ("trials", "p", "bound"),
    [(1, "1/2", 1), (3, "1/2", 5), (20, "1/2", 1), (20, "1/2", 3), (15, "1/5", 2), (9, "7/8", 1)],
)
def test_one_coordinate_is_exact(trials: int, p: str, bound: int) -> None:
    law = BinomialBox(trials=trials, probability=p, bounds=(bound,))
    for epsilon in ("0", "1/10", "1", "5/2", "7"):
        found = law.enclose_delta(epsilon)
        truth = worst(trials, Fraction(p), (bound,), Fraction(epsilon))
        assert holds(found, truth)
        assert found.width <= Fraction(1, 10**30)


@pytest.mark.parametrize(("count", "trials"), [(2, 60), (3, 25)])
def test_lattices_close_in_on_the_truth(count: int, trials: int) -> None:
    atoms = coordinate(trials, Fraction(1, 2), 2)
    widths = []
    outcomes = binomial_outcomes(trials, Fraction(1, 2), 2, BITS)
    truth = hockey_stick([atoms] * count, Fraction(1))
    for grain in (Fraction(1, 16), Fraction(1, 128), Fraction(1, 1024)):
        with precision(BITS + 64):
            lower = product([(merged(outcomes, grain, BITS), count)]).delta(Fraction(1)).lower
            upper = product([(split(outcomes, grain, BITS), count)]).delta(Fraction(1)).upper
        assert holds(Enclosure(lower, upper), truth)
        widths.append(upper - lower)
    assert widths[0] > 4 * widths[1] > 16 * widths[2]


def test_mixed_signs_can_be_worst() -> None:
    # Binomial(3, 2/5) twice at epsilon 2/5: one up and one down beats both pure directions.
    law = BinomialBox(trials=3, probability="2/5", bounds=(1, 1))
    truth = worst(3, Fraction(2, 5), (1, 1), Fraction(2, 5))
    assert holds(law.enclose_delta("2/5", relative="1/1000"), truth)
    one_way = [
        hockey_stick([coordinate(3, Fraction(2, 5), d)] * 2, Fraction(2, 5)) for d in (1, -1)
    ]
    assert max(one_way) < truth * mpmath.mpf("0.996")
    straight = mutated(
        BinomialBox._signs,
        "range(count + 1) for _, count in groups)",
        "(0, count) for _, count in groups)",
    )
    kept = set(straight(law))
    assert kept < set(law._signs())


def test_epsilon_inverts_delta() -> None:
    law = BinomialBox(trials=268, bounds=(1,))
    found = law.enclose_epsilon("1e-6")
    assert law.delta(found.upper).upper <= Fraction(1, 10**6) < law.enclose_delta(found.lower).lower
    assert BinomialBox(trials=4, bounds=(1,)).epsilon("1/16").upper < 10
    # P(X = 0) = 1/16 is never seen in the other world.
    assert BinomialBox(trials=4, bounds=(1,)).enclose_epsilon("1/17") == Enclosure.infinite()
    assert law.enclose_epsilon(1) == Enclosure.exactly(0)


@pytest.mark.parametrize("target", ["1/100", "1/1000"])
def test_a_small_epsilon_is_as_tight_as_a_large_one(target: str) -> None:
    law = BinomialBox(trials=4_000_000, bounds=(1,))
    found = law.enclose_epsilon(law.enclose_delta(target).lower)
    assert Fraction(found.lower) <= Fraction(target) * (1 + Fraction(1, 10**9))
    assert found.upper - found.lower <= Fraction(found.lower) / 10**6


def test_ties_are_decided() -> None:
    # delta(0) of one fair bit under shift 1 is exactly 1/2.
    law = BinomialBox(trials=1, bounds=(1,))
    assert law.meets(0, "1/2")
    assert not law.meets(0, "0.4999999999999999999999999999999999999999999")


def test_outcomes_outside_of_the_window_are_not_lost() -> None:
    # A narrow window leaves much out; the bounds widen and stay true.
    for trials, p, shift in (
        (40, Fraction(1, 2), 1),
        (40, Fraction(1, 5), 3),
        (30, Fraction(4, 5), 2),
    ):
        with precision(128):
            narrow = binomial_outcomes(trials, p, shift, 8)
            total = sum(narrow.here, arb(0)) + narrow.hidden
            found = Enclosure.of(delta_of_one(narrow, Fraction(1, 2)))
            assert Enclosure.of(total).upper < 1
        assert holds(found, hockey_stick([coordinate(trials, p, shift)], Fraction(1, 2)))
        if not narrow.above.upper() > 0:
            continue  # the window reached 0: only the far end was cut
        forgetful = Outcomes(
            here=narrow.here, there=narrow.there, hidden=narrow.hidden, above=arb(0), below=arb(0)
        )
        with precision(128):
            shown = Enclosure.of(delta_of_one(forgetful, Fraction(1, 2)))
        assert not holds(shown, hockey_stick([coordinate(trials, p, shift)], Fraction(1, 2)))


def test_bad_arguments_are_refused() -> None:
    bad: list[dict[str, Any]] = [
        {"trials": 0, "bounds": (1,)},
        {"trials": 3, "bounds": ()},
        {"trials": 3, "bounds": (0,)},
        {"trials": 3, "bounds": (1,), "probability": 1},
        {"trials": 3, "bounds": (1,), "probability": 0},
    ]
    for arguments in bad:
        with pytest.raises(InvalidParameter):
            BinomialBox(**arguments)
    law = BinomialBox(trials=3, bounds=(1,))
    for call in (law.delta, law.epsilon):
        with pytest.raises(InvalidParameter):
            call(-1)
    with pytest.raises(InvalidParameter):
        law.meets("nan", 1)


def test_what_cannot_be_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = BinomialBox(trials=9, probability="1/3", bounds=tuple(range(1, 8)))
    with pytest.raises(NotDerived):
        many.enclose_delta(1)
    monkeypatch.setattr(box, "_FINEST", 10)
    with pytest.raises(PrecisionExhausted):
        BinomialBox(trials=12, bounds=(1, 1)).enclose_delta(1, relative=0)


def test_far_more_bits_than_needed_is_a_quick_yes() -> None:
    # A thousand million bits have too many outcomes to list; a part of them is enough for a yes.
    assert BinomialBox(trials=10**9, probability="499/1000", bounds=(1, 1)).meets(1, "1e-6")


@pytest.mark.parametrize(
    ("trials", "p", "bound", "epsilon"),
    [(268, "1/2", 1, "1/2"), (50, "1/5", 2, "1"), (30, "9/10", 1, "1/3"), (20_000, "1/50", 3, "2")],
)
def test_one_coordinate_agrees_with_the_curve(
    trials: int, p: str, bound: int, epsilon: str
) -> None:
    # Sums of outcomes here, rays and tails of the law there.
    curve = PrivacyCurve(noise=Binomial(trials=trials, probability=p), sensitivity=bound)
    box_of_one = BinomialBox(trials=trials, probability=p, bounds=(bound,))
    assert curve.enclose_delta(epsilon).overlaps(box_of_one.enclose_delta(epsilon))
