r"""Several binomial coordinates: bounds against enumeration, of every shift in the box, both ways.

The second path multiplies out all outcomes in mpmath and takes the largest delta over every shift
vector, the small ones and the mixed signs included; no rays, corners or sums of losses are in it.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb
from typing import Any

import mpmath
import pytest

from accounting import PrivacyCurve
from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.binomial import Binomial
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting.brute import real
from tests.support.dpcore.mutants import mutated

DIGITS = 50
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
        found = law.enclose_delta(epsilon, "1e-30")
        truth = worst(trials, Fraction(p), (bound,), Fraction(epsilon))
        assert holds(found, truth)
        assert found.width <= Fraction(1, 10**30)


@pytest.mark.parametrize(("count", "trials"), [(2, 60), (3, 25)])
def test_several_coordinates_are_as_narrow_as_is_asked(count: int, trials: int) -> None:
    law = BinomialBox(trials=trials, bounds=(2,) * count)
    truth = hockey_stick([coordinate(trials, Fraction(1, 2), 2)] * count, Fraction(1))
    for relative in (Fraction(1, 100), Fraction(1, 10**6)):
        found = law.enclose_delta(1, relative)
        assert holds(found, truth)
        assert found.upper - found.lower <= relative * found.lower


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
    above, below = (law.enclose_delta(end, "1e-30") for end in (found.upper, found.lower))
    assert above.upper <= Fraction(1, 10**6) < below.lower
    assert BinomialBox(trials=4, bounds=(1,)).epsilon("1/16").upper < 10
    # P(X = 0) = 1/16 is never seen in the other world.
    assert BinomialBox(trials=4, bounds=(1,)).enclose_epsilon("1/17") == Enclosure.infinite()
    assert law.enclose_epsilon(1) == Enclosure.exactly(0)


def test_ties_are_decided() -> None:
    # delta(0) of one fair bit under shift 1 is exactly 1/2.
    law = BinomialBox(trials=1, bounds=(1,))
    assert law.meets(0, "1/2")
    assert not law.meets(0, "0.4999999999999999999999999999999999999999999")


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
        many.delta(1)
    law = BinomialBox(trials=5000, bounds=(1, 1))
    wide = law.enclose_delta("1/5", "1/100")
    with pytest.raises(InvalidParameter, match="relative"):
        law.delta(1, relative=0)
    ends = Enclosure(wide.lower / 2, wide.upper)  # as if no total came any closer
    found = Bound.of(ends, "direct", "a theorem")
    monkeypatch.setattr(BinomialBox, "_delta", lambda *_: found)
    with pytest.raises(PrecisionExhausted, match="relative width"):
        law.delta("1/5", "1/100")
    with pytest.raises(PrecisionExhausted, match="could not be compared"):
        law.meets("1/5", wide.lower)


def test_each_coordinate_alone_says_yes_only_where_the_total_is_met() -> None:
    law = BinomialBox(trials=40, bounds=(1, 1, 1))
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)):
        truth = law.enclose_delta(epsilon)
        assert not law._surely(epsilon, Fraction(truth.lower))
        assert law._surely(epsilon, Fraction(1))
    # The twin: every coordinate with all of epsilon.
    whole = mutated(BinomialBox._surely, "epsilon / len(self.bounds)", "epsilon")
    assert whole(law, Fraction(1), Fraction(law.enclose_delta(1).lower) / 2)


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
