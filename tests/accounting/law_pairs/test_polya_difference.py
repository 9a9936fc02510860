"""Tests of pairs of Polya differences: noise after dropouts, shapes below and above one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb

from accounting import PrivacyCurve
from accounting.convert_guarantees import as_pure
from accounting.guarantees.stated_guarantees import PureBound
from accounting.law_pairs.polya import PolyaDifferenceAboveOne, PolyaDifferenceBelowOne
from accounting.numerical_composition.cell_refinement import TabledLoss
from accounting.pairs.pair import Coordinates
from accounting.pld.integer_cells import table_of
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike
from tests.effort import by_day
from tests.support.accounting.brute_force import close, real
from tests.support.accounting.brute_force_pairs import Worlds, agrees, difference, polya

SHAPES = [("1/2", "1", 2), ("9/10", "3/2", 3), ("1/16", "1", 1), ("2", "1", 2), ("5/2", "3/2", 3)]


def curve(shape: RationalLike, scale: RationalLike, shift: int) -> PrivacyCurve:
    noise = PolyaDifference(shape=shape, scale=scale)
    return PrivacyCurve(noise=noise, sensitivity=shift)


def worlds(shape: str, scale: str, shift: int) -> Worlds:
    # Beyond 80 scales the remaining mass is below 1e-33.
    reach = 90 * Fraction(scale).__ceil__()
    mass = difference(polya(shape, scale), 2 * reach)
    return Worlds(mass=mass, most=shift, low=-reach, high=reach)


@pytest.mark.parametrize(
    ("honest", "losses"),
    [("0.9", ("1.09894", "1.17056", "1.18082")), ("0.5", ("1.67514", "2.34343", "2.57808"))],
)
def test_the_loss_with_dropouts_known_from_elsewhere(honest: str, losses: tuple[str, ...]) -> None:
    for shift, loss in zip((1, 10, 32), losses, strict=True):
        found = curve(honest, shift, shift).enclose_epsilon(0)
        assert abs(Fraction(found.upper) - Fraction(loss)) <= Fraction(1, 2 * 10**5)
        assert found.width <= found.upper / 2**64


@pytest.mark.parametrize(("shape", "scale", "shift"), SHAPES[:3])
def test_the_largest_loss_of_a_lean_law_is_at_0(shape: str, scale: str, shift: int) -> None:
    ours, brute = curve(shape, scale, shift), worlds(shape, scale, shift)
    with mpmath.workdps(50):
        truth = mpmath.log(brute.mass(0) / brute.mass(shift))
    assert close(ours.enclose_epsilon(0), truth)
    assert as_pure(ours) == PureBound(Fraction(ours.epsilon(0).upper))
    assert ours.enclose_delta(Fraction(ours.epsilon(0).upper)) == Enclosure.exactly(0)
    just_below = ours.enclose_delta(Fraction(ours.enclose_epsilon(0).lower) - Fraction(1, 10**9))
    assert 0 < just_below.lower <= just_below.upper < Fraction(1, 10**8)


@pytest.mark.parametrize(("shape", "scale", "shift"), SHAPES[3:])
def test_the_loss_of_a_rich_law_nears_its_supremum(shape: str, scale: str, shift: int) -> None:
    ours, top = curve(shape, scale, shift), Fraction(shift) / Fraction(scale)
    assert ours.enclose_epsilon(0) == Enclosure.exactly(top)
    assert as_pure(ours) == PureBound(top)
    assert ours.enclose_delta(top) == Enclosure.exactly(0)
    assert Fraction(ours.enclose_delta(top - Fraction(1, 10)).lower) > 0


@by_day(1)
@pytest.mark.parametrize("alpha", ["1e-18", "691/1000", "99999/100000"])
def test_the_tests_of_a_thin_law_under_a_large_shift(alpha: str) -> None:
    # p(29) is below 2^-30 of p(0); a 64-bit ball does not bound log p(0)/p(29).
    shape, scale = Fraction(1, 10**6), Fraction(6)
    found = curve(shape, scale, 29).enclose_tradeoff(alpha)
    with mpmath.workdps(50):
        r, beta = real(shape), mpmath.exp(-1 / real(scale))

        def mass(n: int) -> Any:
            rising = beta**n * mpmath.rf(r, n) / mpmath.factorial(n)
            return (1 - beta) ** (2 * r) * rising * mpmath.hyp2f1(r, n + r, n + 1, beta**2)

        missed, left = mpmath.mpf(1), real(alpha)
        points = [(mass(abs(m)), mass(abs(m + 29))) for m in range(-600, 572)]
        for here, there in sorted(points, key=lambda both: both[1] / both[0]):
            share = min(left / there, 1)
            missed, left = missed - share * here, left - share * there
        assert close(found, missed, relative="1e-20")
        assert found.width < Fraction(1, 10**10)


def test_epsilon_far_out_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # The deciding ray is the 125th: a sequential search tries all rays before it.
    tried, original = list[int](), PolyaDifferenceAboveOne.tails

    def counted(pair: PolyaDifferenceAboveOne, m: int) -> tuple[arb, arb]:
        tried.append(m)
        return original(pair, m)

    monkeypatch.setattr(PolyaDifferenceAboveOne, "tails", counted)
    wide = curve("1221/997", "4/7", 1)
    found = wide.enclose_epsilon("1e-100")
    assert 125 in tried
    assert len(tried) < 60
    assert (
        wide.enclose_delta(found.upper).lower <= Fraction("1e-100") <= wide.delta(found.lower).upper
    )


class WrongShift(PolyaDifferenceBelowOne):
    def coordinates(self) -> Coordinates:
        return Coordinates(noise=self.noise, there=self.shift + 1)


class WrongMasses(PolyaDifferenceBelowOne):
    def mass_balls(self, first: int, last: int) -> list[arb]:
        masses = PolyaDifferenceBelowOne.mass_balls(self, first, last + 1)
        return masses[:-first] + masses[1 - first :]  # without the peak


@by_day(1)
@pytest.mark.parametrize("kind", [WrongShift, WrongMasses])
def test_a_broken_lean_pair_is_caught(kind: type[PolyaDifferenceBelowOne]) -> None:
    brute, noise = worlds("1/2", "3/2", 3), PolyaDifference(shape="1/2", scale="3/2")
    points = ("0", "2/3", "19/10", "199/100", "21/10")

    def found(pair: PolyaDifferenceBelowOne) -> Any:
        below, above = (
            TabledLoss(kinds=((Fraction(1), table_of(pair)),), above=side).listing()
            for side in (False, True)
        )

        def ask(at: str) -> Enclosure:
            low, high = below.delta(Fraction(at))[0], above.delta(Fraction(at))[1]
            return Enclosure(Fraction(low), Fraction(high)) if low <= high else Enclosure.exactly(2)

        return ask

    assert agrees(found(PolyaDifferenceBelowOne(noise=noise, shift=3)), brute.delta, points)
    assert not agrees(found(kind(noise=noise, shift=3)), brute.delta, points)
    assert not agrees(curve("1/2", "1.5000001", 3).enclose_delta, brute.delta, points)
