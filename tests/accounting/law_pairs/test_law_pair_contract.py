"""Contract tests of `accounting.law_pairs`: curves, inverses, rho; mutants must fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import NotDerived, PrivacyCurve, compose
from accounting.law_pairs.discrete_gaussian import GaussianPair
from accounting.law_pairs.discrete_gaussian_sum import GaussianSumPair
from accounting.law_pairs.discrete_laplace import LaplacePair
from accounting.law_pairs.registry import pair_of
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.enclose import narrowed
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.monotone import Cell
from dpcore import DiscreteGaussian, DiscreteLaplace, Noise, Sensitivity, Staircase
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, precision
from tests.effort import by_day, effort
from tests.support.accounting import brute_force_pairs as worlds
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import EPSILONS, close, mass_of, real, triangle
from tests.support.accounting.brute_force_pairs import Worlds, agrees, inverts
from tests.support.accounting.unregistered_law import Triangle

RATIOS = ("0", "1/10", "2/3", "1", "4/3", "19/10", "199/100", "2", "5/2", "3", "7")
ORDERS = ("1001/1000", "9/8", "3/2", "2", "5/2", "3", "7", "30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    r"""A noise with its largest shift, its masses over low..reach, and the points of comparison."""

    noise: Noise
    shift: int
    mass: Callable[[], Any]
    reach: int
    low: int | None = None  # 0 if each direction hides a mass from the other; else -reach
    epsilons: tuple[str, ...] = tuple(EPSILONS)
    alphas: tuple[str, ...] = ("1/100", "1/20", "1/3", "1/2", "9/10", "99/100")
    orders: tuple[str, ...] = ("11/10", "3/2", "2", "5/2")
    deltas: tuple[str, ...] = ("1/5", "1/1000", "1e-6")
    narrow: Fraction = Fraction(1, 2**64)
    limit: Fraction = Fraction(0)  # of D_alpha/alpha for large orders

    @property
    def worlds(self) -> Worlds:
        low = -self.reach if self.low is None else self.low
        return Worlds(mass=self.mass(), most=self.shift, low=low, high=self.reach)


def closed(noise: Noise, shift: int, reach: int) -> Law:
    given: dict[str, Any] = {"alphas": ("1e-9", "1/20", "1/2", "99/100")}
    given |= {"orders": ("11/10", "3/2", "2", "5"), "deltas": ("1/3", "1/100", "1e-6", "1e-25")}
    return Law(noise=noise, shift=shift, mass=partial(mass_of, noise), reach=reach, **given)


def stairs(epsilon: str, sensitivity: int, plateau: int, shift: int) -> Law:
    noise = Staircase(epsilon=epsilon, sensitivity=sensitivity, plateau=plateau)
    reach = math.ceil(75 / noise.epsilon) * noise.sensitivity
    given: dict[str, Any] = {"alphas": ("1/20", "1/2"), "orders": ("11/10", "3")}
    mass = partial(mass_of, noise)
    return Law(noise=noise, shift=shift, mass=mass, reach=reach, deltas=("1/10",), **given)


def one_sided(noise: Noise, shift: int, reach: int) -> Law:
    given: dict[str, Any] = {"alphas": ("0", "1/100", "1/3", "1/2", "9/10", "99/100")}
    given |= {"orders": (), "deltas": ("3/5", "1/5", "1/7")}
    mass = partial(mass_of, noise)
    return Law(noise=noise, shift=shift, mass=mass, low=0, reach=reach, **given)


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
    # Beyond 80 scales the remaining mass is below 1e-33.
    noise, reach = PolyaDifference(shape=shape, scale=scale), 90 * math.ceil(Fraction(scale))
    given: dict[str, Any] = {"epsilons": RATIOS, "narrow": Fraction(1, 10**9)}

    def mass() -> Any:
        return worlds.difference(worlds.polya(shape, scale), 2 * reach)

    return Law(noise=noise, shift=shift, mass=mass, reach=reach, **given)


CLOSED = [
    closed(DiscreteLaplace(scale="1/2"), 1, 60),
    closed(DiscreteLaplace(scale=2), 3, 200),
    closed(DiscreteLaplace(scale=3), 4, 260),
    closed(DiscreteGaussian(sigma_squared="1/4"), 1, 16),
    closed(DiscreteGaussian(sigma_squared=1), 2, 24),
    closed(DiscreteGaussian(sigma_squared=4), 3, 45),
    closed(DiscreteGaussian(sigma_squared=30), 5, 120),
]
STAIRS = [stairs("2", 3, 2, 3), stairs("3", 4, 1, 3), stairs("1", 2, 1, 5), stairs("5/2", 3, 3, 7)]
ONE_SIDED = [
    one_sided(Poisson(mean="7/2"), 3, 70),
    one_sided(Poisson(mean=20), 2, 130),
    one_sided(Poisson(mean="1/3"), 1, 40),
    one_sided(Binomial(trials=12, probability="1/2"), 3, 12),
    one_sided(Binomial(trials=25, probability="1/5"), 2, 25),
    one_sided(Binomial(trials=9, probability="5/6"), 4, 9),
    one_sided(Polya(shape="5/2", scale=2), 3, 180),
    one_sided(Polya(shape=7, scale="1/2"), 2, 60),
    one_sided(Polya(shape=1, scale=2), 3, 160),
    one_sided(Polya(shape="1/3", scale=2), 2, 160),
]
BOUNDED = [
    Law(
        noise=Triangle(half=2),
        shift=shift,
        mass=partial(triangle, 2),
        low=-2,
        reach=2,
        epsilons=("0", "1/10", "1/2", "7/10", "3"),
        alphas=(),
        orders=(),
        deltas=(),
    )
    for shift in (1, 2, 3)
]
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


@by_day(14)
@pytest.mark.parametrize(
    "law", [*CLOSED, *SKELLAMS, *SUMS, *ONE_SIDED, *BOUNDED, *STAIRS, *NIGHT], ids=shown
)
def test_the_curve_is_the_worst_over_shifts_and_directions(law: Law) -> None:
    ours, brute = PrivacyCurve(noise=law.noise, sensitivity=law.shift), law.worlds
    assert agrees(ours.enclose_delta, brute.delta, law.epsilons)
    assert agrees(ours.enclose_tradeoff, brute.tradeoff, law.alphas)
    assert agrees(ours.enclose_renyi, brute.renyi, law.orders)
    for delta in law.deltas:
        found = ours.enclose_epsilon(delta)
        if law.low == 0 and brute.delta(60) >= Fraction(delta):
            assert found == Enclosure.infinite()
        else:
            assert inverts(found, brute, delta, law.narrow)


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


TWENTIETHS = st.integers(1, 19).map(lambda count: Fraction(count, 20))
QUICK: st.SearchStrategy[Noise] = st.one_of(
    st.builds(DiscreteLaplace, scale=between("1/5", 300, 50)),
    st.builds(DiscreteGaussian, sigma_squared=between("1/5", 300, 50)),
    st.builds(Skellam, variance=between("1/5", 200, 20)),
    st.builds(Poisson, mean=between("1/5", 60, 9)),
    st.builds(Binomial, trials=st.integers(2, 60), probability=TWENTIETHS),
    st.builds(Polya, shape=between("1/5", 5, 9), scale=st.just(3)),
)


@settings(max_examples=effort(100, 1000))
@given(QUICK, st.integers(1, 12), between("0", 4, 99))
def test_inverse_and_order_of_shifts(noise: Noise, shift: int, epsilon: Fraction) -> None:
    ours = PrivacyCurve(noise=noise, sensitivity=shift)
    at = ours.enclose_delta(epsilon)
    assert at.lower <= PrivacyCurve(noise=noise, sensitivity=shift + 1).delta(epsilon).upper
    # delta of a one-sided law may stay at its hidden mass: epsilon jumps there.
    jumps = isinstance(noise, Poisson | Binomial | Polya)
    room = Fraction(1001, 1000) if jumps else Fraction(1)
    if at.lower > Fraction(1, 10**30):
        assert ours.enclose_epsilon(min(at.upper * room, Fraction(1))).lower <= epsilon
        assert jumps or epsilon <= ours.epsilon(at.lower).upper


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


NEAR_ONE = [PolyaDifference(shape=Fraction(10**6 + off, 10**6), scale=2) for off in (1, -1)]


@pytest.mark.parametrize(
    ("noise", "other", "shift", "apart"),
    [
        (PolyaDifference(shape=1, scale=10), DiscreteLaplace(scale=10), 3, "0"),
        *((noise, DiscreteLaplace(scale=2), 3, "1e-5") for noise in NEAR_ONE),
        (Staircase(epsilon="1/2", sensitivity=1), DiscreteLaplace(scale=2), 1, "0"),
        (
            DiscreteGaussianSum(count=1, sigma_squared="5/3"),
            DiscreteGaussian(sigma_squared="5/3"),
            2,
            "0",
        ),
    ],
    ids=repr,
)
def test_a_law_at_an_edge_of_its_parameters_is_another_law(
    noise: Noise, other: Noise, shift: int, apart: str
) -> None:
    one, two = (PrivacyCurve(noise=each, sensitivity=shift) for each in (noise, other))
    pairs = [(one.enclose_delta(at), two.enclose_delta(at)) for at in EPSILONS]
    if not Fraction(apart):
        pairs += [(one.enclose_epsilon("1e-9"), two.enclose_epsilon("1e-9"))]
        pairs += [(one.enclose_zcdp(), two.enclose_zcdp())]
        totals = [ends(compose((each, 30)).epsilon("1e-6")) for each in (one, two)]
        assert totals[0].overlaps(totals[1])
    for found, truth in pairs:
        assert found.overlaps(truth) or abs(Fraction(found.upper - truth.upper)) < Fraction(apart)


SUM_OF_SEVEN = DiscreteGaussianSum(count=7, sigma_squared="1/30")


@pytest.mark.parametrize(
    ("noise", "question", "asked", "match"),
    [
        (Skellam(variance=2**40), "enclose_renyi", (2,), "masses"),
        (Skellam(variance=2**40), "enclose_zcdp", (), "no theorem applies"),
        (
            DiscreteGaussianSum(count=10**6, sigma_squared="1/10"),
            "enclose_renyi",
            ("3/2",),
            "residues",
        ),
        (SUM_OF_SEVEN, "enclose_renyi", (10**400,), "use epsilon"),
        (Poisson(mean=3), "box", (1,), "several coordinates"),
    ],
    ids=repr,
)
def test_what_cannot_be_derived_is_refused_with_the_reason(
    noise: Noise, question: str, asked: tuple[Any, ...], match: str
) -> None:
    sensitivity = Sensitivity.box((1, 1)) if question == "box" else Sensitivity(1)
    ours = PrivacyCurve(noise=noise, sensitivity=sensitivity)
    with pytest.raises(NotDerived, match=match):
        getattr(ours, "enclose_delta" if question == "box" else question)(*asked)


@pytest.mark.parametrize(
    ("noise", "variance", "shift", "delta"),
    [
        (Poisson(mean=2**60), 2**60, 2**26, "1e-6"),
        (Binomial(trials=2**62, probability="1/3"), Fraction(2**63, 9), 2**26, "1e-6"),
        (Skellam(variance=2**60), 2**60, 2**26, "1e-6"),
        (DiscreteGaussian(sigma_squared=2**30), 2**30, 2**11, "1e-6"),
        (DiscreteGaussian(sigma_squared=2**80), 2**80, 1, "1e-20"),
    ],
    ids=repr,
)
def test_a_large_law_has_the_curve_of_a_gaussian(
    noise: Noise, variance: Fraction, shift: int, delta: str
) -> None:
    ours = PrivacyCurve(noise=noise, sensitivity=shift)
    found = ours.enclose_epsilon(delta)
    assert shift > 1 or found.width <= found.upper / 2**64
    assert shift > 1 or ours.enclose_epsilon("1e-6") == Enclosure.exactly(0)
    with mpmath.workdps(50):
        mu, epsilon = shift / mpmath.sqrt(real(variance)), real(Fraction(found.lower))
        truth = mpmath.ncdf(mu / 2 - epsilon / mu)
        truth -= mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        assert abs(truth / real(delta) - 1) < mpmath.mpf("1e-6" if shift > 1 else "1e-12")


def moved(kind: Any, by: int) -> Any:
    def ray(self: Any, epsilon: Fraction) -> Cell | None:
        cell = kind.ray(self, epsilon)
        return cell and (cell[0] + by, cell[1] + by)

    return type("Moved", (kind,), {"ray": ray})


def turned(kind: Any) -> Any:
    def tails(self: Any, m: int) -> tuple[arb, arb]:
        return kind.tails(self, m)[0], self.noise.sf_ball(m - self.shift - 1)

    return type("Turned", (kind,), {"tails": tails})


class LooseInverse(GaussianPair):
    def bound(self, m: int, delta: Fraction) -> arb:
        return GaussianPair.bound(self, m, delta * (1 + Fraction(1, 10**12)))


class LateSlope(LaplacePair):
    def _line(self, m: int, level: arb) -> arb:
        return self.below(m) - as_ball(self.loss(m)).exp() * (level - self.tails(m)[1])


class NoRipple(GaussianSumPair):
    """A mutant that uses the discrete Gaussian of the same variance instead of the law."""

    def _excess(self, m: int) -> arb:
        return arb(0)

    def _log_phi(self, m: int) -> arb:
        return GaussianSumPair._log_phi(self, 0)


def holds(pair: Any, law: Law) -> bool:
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
        (CLOSED[1], DiscreteLaplace(scale="2.01"), []),
        (CLOSED[5], DiscreteGaussian(sigma_squared="4.0000001"), []),
        (SKELLAMS[1], Skellam(variance="4.0000001"), []),
        (SUM, DiscreteGaussianSum(count=3, sigma_squared="0.25000001"), [NoRipple]),
        (DIFFERENCES[4], PolyaDifference(shape="5/2", scale="1.5000001"), []),
    ],
    ids=shown,
)
def test_a_broken_pair_is_caught(law: Law, nearby: Noise, more: list[Any]) -> None:
    pair: Any = pair_of(law.noise, law.shift)
    assert holds(pair, law)
    kind = type(pair)
    has_noise = isinstance(pair, ShiftedPair)
    for broken in (moved(kind, 1), moved(kind, -1), *([turned(kind)] if has_noise else []), *more):
        assert not holds(broken(**{f.name: getattr(pair, f.name) for f in fields(pair)}), law)
    assert not holds(pair_of(law.noise, law.shift - 1), law)
    assert not holds(pair_of(nearby, law.shift), law)


def test_a_broken_inverse_and_a_broken_slope_are_caught() -> None:
    laplace, gaussian = CLOSED[1], CLOSED[5]
    for kind, right in ((GaussianPair, True), (LooseInverse, False)):
        pair = kind(noise=DiscreteGaussian(sigma_squared=4), shift=3)
        with precision(128):
            delta = Fraction(1, 1000)
            found = Enclosure.of(pair.epsilon(delta, pair.guess(delta) or 0))
        at = gaussian.worlds.delta(Fraction(found.upper))
        assert (abs(at * 1000 - 1) < mpmath.mpf("1e-30")) is right
    for sloped, right in ((LaplacePair, True), (LateSlope, False)):
        with precision(128):
            found = Enclosure.of(sloped(scale=Fraction(2), shift=3).tradeoff(Fraction(1, 2)))
        assert close(found, laplace.worlds.tradeoff("1/2"), relative="1e-20") is right
