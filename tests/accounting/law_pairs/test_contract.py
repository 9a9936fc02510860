"""What every law's pair keeps: sums over each shift, both ways, its inverse, rho, and twins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import PrivacyCurve
from accounting.law_pairs.gaussian_sum import GaussianSumPair
from accounting.law_pairs.registry import pair_of
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.enclose import narrowed
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.monotone import Cell
from dpcore import Noise
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure
from tests.effort import by_day
from tests.support.accounting import worlds
from tests.support.accounting.brute import EPSILONS, real
from tests.support.accounting.worlds import Worlds, agrees, inverts

RATIOS = ("0", "1/10", "2/3", "1", "4/3", "19/10", "199/100", "2", "5/2", "3", "7")
ORDERS = ("1001/1000", "9/8", "3/2", "2", "5/2", "3", "7", "30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    r"""A noise and its largest shift, its masses by sums, and where they are compared."""

    noise: Noise
    shift: int
    mass: Callable[[], Any]
    reach: int
    epsilons: tuple[str, ...] = tuple(EPSILONS)
    alphas: tuple[str, ...] = ("1/100", "1/20", "1/3", "1/2", "9/10", "99/100")
    orders: tuple[str, ...] = ("11/10", "3/2", "2", "5/2")
    narrow: Fraction = Fraction(1, 2**64)
    limit: Fraction = Fraction(0)  # of D_alpha/alpha for large orders

    @property
    def worlds(self) -> Worlds:
        return Worlds(mass=self.mass(), most=self.shift, low=-self.reach, high=self.reach)


def skellam(variance: str, shift: int, reach: int) -> Law:
    noise, mass = Skellam(variance=variance), partial(worlds.skellam, variance)
    given: dict[str, Any] = {
        "alphas": ("1e-9", "1/20", "1/2"),
        "orders": ("11/10", "3/2", "2", "5"),
    }
    return Law(noise=noise, shift=shift, mass=mass, reach=reach, **given)


def summed(count: int, sigma_squared: str, shift: int, reach: int) -> Law:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    mass = partial(worlds.gaussian_sum, count, sigma_squared)
    limit = Fraction(shift**2) / (2 * count * Fraction(sigma_squared))
    return Law(noise=noise, shift=shift, mass=mass, reach=2 * reach, limit=limit)


def difference(shape: str, scale: str, shift: int) -> Law:
    # Beyond 80 scales the law has lost 1e-33 of its mass.
    noise, reach = PolyaDifference(shape=shape, scale=scale), 90 * math.ceil(Fraction(scale))
    given: dict[str, Any] = {"epsilons": RATIOS, "narrow": Fraction(1, 10**9)}

    def mass() -> Any:
        return worlds.difference(worlds.polya(shape, scale), 2 * reach)

    return Law(noise=noise, shift=shift, mass=mass, reach=reach, **given)


SKELLAMS = [
    skellam("1/2", 2, 50),
    skellam("4", 3, 70),
    skellam("16", 4, 110),
    skellam("30", 1, 130),
]
SUMS = [
    summed(2, "1/4", 3, 12),
    summed(3, "1/2", 2, 15),
    summed(5, "1/3", 4, 12),
    summed(2, "2", 2, 28),
    summed(4, "1", 4, 20),
]
SUM = summed(3, "1/4", 2, 12)
DIFFERENCES = [
    difference("1/2", "1", 2),
    difference("9/10", "3/2", 3),
    difference("1/16", "1", 1),
    difference("2", "1", 2),
    difference("5/2", "3/2", 3),
]
NIGHT = [pytest.param(law, marks=pytest.mark.nightly) for law in DIFFERENCES]


def shown(law: object) -> str:
    return f"{law.noise!r}-{law.shift}" if isinstance(law, Law) else repr(law)


@by_day(4)
@pytest.mark.parametrize("law", [*SKELLAMS, *SUMS, *NIGHT], ids=shown)
def test_the_curve_is_the_worst_over_shifts_and_directions(law: Law) -> None:
    ours, brute = PrivacyCurve(noise=law.noise, sensitivity=law.shift), law.worlds
    assert agrees(ours.enclose_delta, brute.delta, law.epsilons)
    assert agrees(ours.enclose_tradeoff, brute.tradeoff, law.alphas)
    assert agrees(ours.enclose_renyi, brute.renyi, law.orders)
    for delta in ("1/5", "1/1000", "1e-6"):
        assert inverts(ours.enclose_epsilon(delta), brute, delta, law.narrow)


@by_day(4)
@pytest.mark.parametrize("law", [*SKELLAMS, *SUMS, NIGHT[0], NIGHT[3]], ids=shown)
def test_zcdp_bounds_every_order_and_is_near_one(law: Law) -> None:
    ours = PrivacyCurve(noise=law.noise, sensitivity=law.shift)
    found = ours.enclose_zcdp()
    assert law.limit <= found.upper <= Fraction(found.lower) * (1 + Fraction(11, 10**5))
    best = max(real(law.limit), law.worlds.divergence())
    with mpmath.workdps(50):
        for order in (*ORDERS, "200") if isinstance(law.noise, Skellam) else ORDERS:
            at = real(Fraction(ours.enclose_renyi(order).lower) / Fraction(order))
            assert at <= real(Fraction(found.upper))
            best = max(best, at)
        assert real(Fraction(found.lower)) <= best * mpmath.mpf("1.001")


def between(least: str, most: int, denominators: int) -> st.SearchStrategy[Fraction]:
    return st.fractions(Fraction(least), most, max_denominator=denominators)


SLOW: st.SearchStrategy[Noise] = st.one_of(
    st.builds(DiscreteGaussianSum, count=st.integers(1, 9), sigma_squared=between("1/4", 30, 20)),
    st.builds(PolyaDifference, shape=between("1/20", 3, 20), scale=between("1/2", 8, 4)),
)


@given(
    st.builds(Skellam, variance=between("1/5", 200, 20)), st.integers(1, 12), between("0", 4, 99)
)
def test_inverse_and_order_of_shifts(noise: Noise, shift: int, epsilon: Fraction) -> None:
    ours = PrivacyCurve(noise=noise, sensitivity=shift)
    at = ours.enclose_delta(epsilon)
    assert at.lower <= PrivacyCurve(noise=noise, sensitivity=shift + 1).delta(epsilon).upper
    if at.lower > Fraction(1, 10**30):
        assert ours.enclose_epsilon(at.upper).lower <= epsilon <= ours.epsilon(at.lower).upper


@pytest.mark.nightly
@settings(max_examples=80)
@given(SLOW, st.integers(1, 12), between("0", 4, 99))
def test_inverse_and_order_of_shifts_of_slow_laws(
    noise: Noise, shift: int, epsilon: Fraction
) -> None:
    plain = test_inverse_and_order_of_shifts.hypothesis.inner_test  # type: ignore[attr-defined]  # the test without its draws
    plain(noise, shift, epsilon)


@pytest.mark.parametrize(
    "noise", [Skellam(variance=400), DiscreteGaussianSum(count=3, sigma_squared=1)], ids=repr
)
def test_the_loss_is_never_bounded(noise: Noise) -> None:
    ours = PrivacyCurve(noise=noise, sensitivity=1)
    assert ours.pure().lower == math.inf
    assert ours.enclose_epsilon(0) == Enclosure.infinite()
    assert ours.enclose_tradeoff(0) == Enclosure.exactly(1)


def late(kind: type[ShiftedPair]) -> Any:
    def ray(self: ShiftedPair, epsilon: Fraction) -> Cell | None:
        cell = kind.ray(self, epsilon)
        return cell and (cell[0] + 1, cell[1] + 1)

    return type("Late", (kind,), {"ray": ray})


def turned(kind: type[ShiftedPair]) -> Any:
    def tails(self: ShiftedPair, m: int) -> tuple[arb, arb]:
        return kind.tails(self, m)[0], self.noise.sf_ball(m - self.shift - 1)

    return type("Turned", (kind,), {"tails": tails})


class NoRipple(GaussianSumPair):
    """Takes the law for a discrete Gaussian of the same variance."""

    def _excess(self, m: int) -> arb:
        return arb(0)

    def _log_phi(self, m: int) -> arb:
        return GaussianSumPair._log_phi(self, 0)


def holds(pair: ShiftedPair, law: Law) -> bool:
    def delta(epsilon: str) -> Enclosure:
        return narrowed(partial(pair.delta, Fraction(epsilon)), 64)

    def renyi(order: str) -> Enclosure:
        return narrowed(lambda: as_ball(pair.renyi(Fraction(order))), 64)

    brute = law.worlds
    same = agrees(delta, brute.delta, law.epsilons)
    return same and (not law.limit or agrees(renyi, brute.renyi, ("3/2", "2")))


@pytest.mark.parametrize(
    ("law", "nearby", "more"),
    [
        (SKELLAMS[1], Skellam(variance="4.0000001"), []),
        (SUM, DiscreteGaussianSum(count=3, sigma_squared="0.25000001"), [NoRipple]),
        (DIFFERENCES[4], PolyaDifference(shape="5/2", scale="1.5000001"), []),
    ],
    ids=shown,
)
def test_a_broken_pair_is_caught(law: Law, nearby: Noise, more: list[Any]) -> None:
    pair = pair_of(law.noise, law.shift)
    assert isinstance(pair, ShiftedPair)
    assert holds(pair, law)
    kind = type(pair)
    for broken in (late(kind), turned(kind), *more):
        assert not holds(broken(noise=pair.noise, shift=pair.shift), law)
    assert not holds(replace(pair, shift=pair.shift - 1), law)
    assert not holds(replace(pair, noise=nearby), law)
