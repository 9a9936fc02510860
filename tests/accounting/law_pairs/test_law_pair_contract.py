"""Contract tests of `accounting.law_pairs`: curves, inverses, rho; mutants must fail."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest
from flint import arb

from accounting import NotDerived, PrivacyCurve, compose
from accounting.law_pairs.discrete_gaussian import GaussianPair, GaussianSumPair
from accounting.law_pairs.discrete_laplace import LaplacePair
from accounting.law_pairs.one_sided import BinomialPair, PoissonPair
from accounting.law_pairs.registry import candidates, pair_of
from accounting.law_pairs.skellam_and_polya import RevealingPair
from accounting.pairs.enclose_curve import as_ball, narrowed
from accounting.pairs.pair import Cell, ShiftedPair
from dpcore import DiscreteGaussian, DiscreteLaplace, Noise, Sensitivity, Staircase
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, precision
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import (
    EPSILONS,
    Worlds,
    agrees,
    close,
    inverts,
    normal_delta,
    real,
)
from tests.support.accounting.release_lists import curve
from tests.support.accounting.unregistered_law import Triangle
from tests.support.dpcore.refusals import refusal

RATIOS = ("0", "1/10", "2/3", "1", "4/3", "19/10", "199/100", "2", "5/2", "3", "7")
ORDERS = ("1001/1000", "9/8", "3/2", "2", "5/2", "3", "7", "30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    r"""A noise with its largest shift, its masses over low..reach, and the points of comparison."""

    noise: Noise
    shift: int
    reach: int
    low: int | None = None  # 0 if each direction hides a mass from the other; else -reach
    epsilons: tuple[str, ...] = EPSILONS
    alphas: tuple[str, ...] = ("1/100", "1/20", "1/3", "1/2", "9/10", "99/100")
    orders: tuple[str, ...] = ("11/10", "3/2", "2", "5/2")
    deltas: tuple[str, ...] = ("1/5", "1/1000", "1e-6")
    narrow: Fraction = Fraction(1, 2**64)

    @property
    def worlds(self) -> Worlds:
        low = -self.reach if self.low is None else self.low
        return Worlds(noise=self.noise, most=self.shift, low=low, high=self.reach)

    @property
    def curve(self) -> PrivacyCurve:
        return curve(self.noise, self.shift)

    @property
    def limit(self) -> Fraction:
        r"""The limit of D_alpha/alpha for large orders, of a sum of Gaussians."""
        if not isinstance(self.noise, DiscreteGaussianSum):
            return Fraction(0)
        return self.shift**2 / (2 * self.noise.count * Fraction(self.noise.sigma_squared))


def laws(*rows: tuple[Noise, int, int], **given: Any) -> list[Law]:
    return [Law(noise=noise, shift=shift, reach=reach, **given) for noise, shift, reach in rows]


def stairs(epsilon: str, sensitivity: int, plateau: int, shift: int) -> tuple[Noise, int, int]:
    noise = Staircase(epsilon=epsilon, sensitivity=sensitivity, plateau=plateau)
    return noise, shift, math.ceil(75 / noise.epsilon) * noise.sensitivity


def difference(shape: str, scale: str, shift: int) -> tuple[Noise, int, int]:
    # Beyond 80 scales the remaining mass is below 1e-33.
    return PolyaDifference(shape=shape, scale=scale), shift, 90 * math.ceil(Fraction(scale))


def summed(count: int, sigma_squared: str, shift: int, reach: int) -> tuple[Noise, int, int]:
    return DiscreteGaussianSum(count=count, sigma_squared=sigma_squared), shift, 2 * reach


CLOSED = laws(
    (DiscreteLaplace(scale="1/2"), 1, 60),
    (DiscreteLaplace(scale=2), 3, 200),
    (DiscreteLaplace(scale=3), 4, 260),
    (DiscreteGaussian(sigma_squared="1/4"), 1, 16),
    (DiscreteGaussian(sigma_squared=1), 2, 24),
    (DiscreteGaussian(sigma_squared=4), 3, 45),
    (DiscreteGaussian(sigma_squared=30), 5, 120),
    alphas=("1e-9", "1/20", "1/2", "99/100"),
    orders=("11/10", "3/2", "2", "5"),
    deltas=("1/3", "1/100", "1e-6", "1e-25"),
)
STAIRS = laws(
    *(stairs("2", 3, 2, 3), stairs("3", 4, 1, 3), stairs("1", 2, 1, 5), stairs("5/2", 3, 3, 7)),
    alphas=("1/20", "1/2"),
    orders=("11/10", "3"),
    deltas=("1/10",),
)
ONE_SIDED = laws(
    (Poisson(mean="7/2"), 3, 70),
    (Poisson(mean=20), 2, 130),
    (Poisson(mean="1/3"), 1, 40),
    (Binomial(trials=12, probability="1/2"), 3, 12),
    (Binomial(trials=25, probability="1/5"), 2, 25),
    (Binomial(trials=9, probability="5/6"), 4, 9),
    (Polya(shape="5/2", scale=2), 3, 180),
    (Polya(shape=7, scale="1/2"), 2, 60),
    (Polya(shape=1, scale=2), 3, 160),
    (Polya(shape="1/3", scale=2), 2, 160),
    low=0,
    alphas=("0", "1/100", "1/3", "1/2", "9/10", "99/100"),
    orders=(),
    deltas=("3/5", "1/5", "1/7"),
)
BOUNDED = laws(
    *((Triangle(half=2), shift, 2) for shift in (1, 2, 3)),
    epsilons=("0", "1/10", "1/2", "7/10", "3"),
    alphas=(),
    orders=(),
    deltas=(),
)
SKELLAMS = laws(
    (Skellam(variance="1/2"), 2, 50),
    (Skellam(variance=4), 3, 70),
    (Skellam(variance=16), 4, 110),
    (Skellam(variance=30), 1, 130),
    alphas=("1e-9", "1/20", "1/2"),
    orders=("11/10", "3/2", "2", "5"),
)
SUMS = laws(
    *(summed(4, "1", 4, 20), summed(3, "1/2", 2, 15), summed(5, "1/3", 4, 12)),
    *(summed(2, "2", 2, 28), summed(2, "1/4", 3, 12)),
)
(SUM,) = laws(summed(3, "1/4", 2, 12))
DIFFERENCES = laws(
    *(difference("1/2", "1", 2), difference("9/10", "3/2", 3), difference("1/16", "1", 1)),
    *(difference("2", "1", 2), difference("5/2", "3/2", 3)),
    epsilons=RATIOS,
    narrow=Fraction(1, 10**9),
)
NIGHT = [pytest.param(law, marks=pytest.mark.nightly) for law in DIFFERENCES]


def shown(law: object) -> str:
    return f"{law.noise!r}-{law.shift}" if isinstance(law, Law) else repr(law)


@by_day(5)
@pytest.mark.parametrize(
    "law", [*CLOSED, *SKELLAMS, *SUMS, *ONE_SIDED, *BOUNDED, *STAIRS, *NIGHT], ids=shown
)
def test_the_curve_is_the_maximum_over_shifts_and_directions(law: Law) -> None:
    ours, brute = law.curve, law.worlds
    assert agrees(ours.enclose_delta, brute.delta, law.epsilons)
    assert agrees(ours.enclose_tradeoff, brute.tradeoff, law.alphas)
    assert agrees(ours.enclose_renyi, brute.renyi, law.orders)
    for delta in law.deltas:
        found = ours.enclose_epsilon(delta)
        if law.low == 0 and brute.delta(60) >= Fraction(delta):
            assert found == Enclosure.infinite()
        else:
            assert inverts(found, brute, delta, law.narrow)


@by_day(2)
@pytest.mark.parametrize("law", [*SKELLAMS, NIGHT[0], NIGHT[3], *SUMS], ids=shown)
def test_zcdp_bounds_every_order_and_is_nearly_attained(law: Law) -> None:
    ours = law.curve
    found = ours.enclose_zcdp()
    assert law.limit <= found.upper <= Fraction(found.lower) * (1 + Fraction(11, 10**5))
    best = max(real(law.limit), law.worlds.divergence())
    with mpmath.workdps(50):
        for order in (*ORDERS, "200") if isinstance(law.noise, Skellam) else ORDERS:
            at = real(Fraction(ours.enclose_renyi(order).lower) / Fraction(order))
            assert at <= real(Fraction(found.upper))
            best = max(best, at)
        assert real(Fraction(found.lower)) <= best * mpmath.mpf("1.001")


UNBOUNDED = laws(
    (Skellam(variance=400), 1, 0), (DiscreteGaussianSum(count=3, sigma_squared=1), 1, 0)
)


@pytest.mark.parametrize("law", [*UNBOUNDED, *ONE_SIDED], ids=shown)
def test_an_unbounded_loss_or_a_hidden_mass_costs_an_infinite_epsilon(law: Law) -> None:
    ours = law.curve
    assert ours.pure().lower == math.inf
    assert ours.enclose_epsilon(0) == Enclosure.infinite()
    if law.low is None:
        assert ours.enclose_tradeoff(0) == Enclosure.exactly(1)
    else:
        assert ours.enclose_renyi("3/2") == ours.enclose_zcdp() == Enclosure.infinite()


NEAR_ONE = [PolyaDifference(shape=Fraction(10**6 + off, 10**6), scale=2) for off in (1, -1)]


@pytest.mark.parametrize(
    ("noise", "other", "shift", "apart"),
    [
        (PolyaDifference(shape=1, scale=10), DiscreteLaplace(scale=10), 3, "0"),
        *((noise, DiscreteLaplace(scale=2), 3, "1e-5") for noise in NEAR_ONE),
        (Staircase(epsilon="1/2", sensitivity=1), DiscreteLaplace(scale=2), 1, "0"),
        (DiscreteGaussianSum(count=1, sigma_squared=2), DiscreteGaussian(sigma_squared=2), 2, "0"),
    ],
    ids=repr,
)
def test_a_law_at_the_edge_of_its_parameters_agrees_with_a_simpler_law(
    noise: Noise, other: Noise, shift: int, apart: str
) -> None:
    one, two = (curve(each, shift) for each in (noise, other))
    pairs = [(one.enclose_delta(at), two.enclose_delta(at)) for at in EPSILONS]
    if not Fraction(apart):
        pairs += [(one.enclose_epsilon("1e-9"), two.enclose_epsilon("1e-9"))]
        pairs += [(one.enclose_zcdp(), two.enclose_zcdp())]
        totals = [ends(compose((each, 30)).epsilon("1e-6")) for each in (one, two)]
        assert totals[0].overlaps(totals[1])
    for found, truth in pairs:
        assert found.overlaps(truth) or abs(Fraction(found.upper - truth.upper)) < Fraction(apart)


def test_a_quantity_that_cannot_be_derived_is_refused_with_the_reason() -> None:
    wide, many = Skellam(variance=2**40), DiscreteGaussianSum(count=10**6, sigma_squared="1/10")
    few = DiscreteGaussianSum(count=7, sigma_squared="1/30")
    assert "masses" in refusal(lambda: curve(wide).enclose_renyi(2), NotDerived)
    assert "no theorem applies" in refusal(lambda: curve(wide).enclose_zcdp(), NotDerived)
    assert "residues" in refusal(lambda: curve(many).enclose_renyi("3/2"), NotDerived)
    assert "use epsilon" in refusal(lambda: curve(few).enclose_renyi(10**400), NotDerived)


@by_day(3)
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
    ours = curve(noise, shift)
    found = ours.enclose_epsilon(delta)
    assert shift > 1 or found.width <= found.upper / 2**64
    assert shift > 1 or ours.enclose_epsilon("1e-6") == Enclosure.exactly(0)
    with mpmath.workdps(50):
        truth = normal_delta(shift**2 / real(variance), Fraction(found.lower))
        assert abs(truth / real(delta) - 1) < mpmath.mpf("1e-6" if shift > 1 else "1e-12")


def changed(kind: Any, **methods: Any) -> Any:
    return type("Changed", (kind,), methods)


def moved(kind: Any, by: int) -> Any:
    def ray(self: Any, epsilon: Fraction) -> Cell | None:
        cell = kind.ray(self, epsilon)
        return cell and (cell[0] + by, cell[1] + by)

    return changed(kind, ray=ray)


def turned(kind: Any) -> Any:
    def tails(self: Any, m: int) -> tuple[arb, arb]:
        return kind.tails(self, m)[0], self.noise.sf_ball(m - self.shift - 1)

    return changed(kind, tails=tails)


def nothing_hidden(self: Any, m: int) -> tuple[arb, arb]:
    gap, rest = PoissonPair.tails(self, m)
    return (gap - self.noise.cdf_ball(self.shift - 1), rest) if self.mirrored else (gap, rest)


def loose(self: Any, m: int, delta: Fraction) -> arb:
    return GaussianPair.bound(self, m, delta * (1 + Fraction(1, 10**12)))


def late_slope(self: Any, m: int, level: arb) -> Any:
    return self.below(m) - as_ball(self.loss(m)).exp() * (level - self.tails(m)[1])


# The discrete Gaussian of the same variance instead of the law.
NO_RIPPLE = changed(
    GaussianSumPair,
    _excess=lambda *_: arb(0),
    _log_phi=lambda self, _: GaussianSumPair._log_phi(self, 0),
)
NONE_HIDDEN = changed(PoissonPair, tails=nothing_hidden)
LATE = changed(PoissonPair, loss=lambda self, m: PoissonPair.loss(self, m - 1))
UPRIGHT = changed(
    PoissonPair,
    tails=lambda self, m: PoissonPair(noise=self.noise, shift=self.shift, mirrored=False).tails(m),
)


def delta_of(pair: Any, epsilon: str) -> Enclosure:
    return narrowed(partial(pair.delta, Fraction(epsilon)), 64)


def holds(pair: Any, law: Law, *, both: bool = True) -> bool:
    """Whether the curve of the pair, in both directions or in one, is that of all neighbours."""

    def delta(epsilon: str) -> Enclosure:
        sides = (pair, pair.mirror()) if both else (pair,)
        return max((delta_of(each, epsilon) for each in sides), key=lambda one: one.upper)

    def renyi(order: str) -> Enclosure:
        return narrowed(lambda: as_ball(pair.renyi(Fraction(order))), 64)

    brute = law.worlds
    same = agrees(delta, brute.delta, law.epsilons)
    return same and (not law.limit or agrees(renyi, brute.renyi, ("3/2", "2")))


@by_day(3)
@pytest.mark.parametrize(
    ("law", "nearby", "more"),
    [
        (CLOSED[1], DiscreteLaplace(scale="2.01"), []),
        (CLOSED[5], DiscreteGaussian(sigma_squared="4.0000001"), []),
        (SKELLAMS[1], Skellam(variance="4.0000001"), []),
        (SUM, DiscreteGaussianSum(count=3, sigma_squared="0.25000001"), [NO_RIPPLE]),
        (DIFFERENCES[4], PolyaDifference(shape="5/2", scale="1.5000001"), []),
        (ONE_SIDED[0], Poisson(mean="3.5000001"), [NONE_HIDDEN, LATE, UPRIGHT]),
    ],
    ids=shown,
)
def test_a_broken_pair_is_detected(law: Law, nearby: Noise, more: list[Any]) -> None:
    pair: Any = pair_of(law.noise, law.shift)
    assert holds(pair, law)
    kind = type(pair)
    has_noise = isinstance(pair, ShiftedPair)
    for broken in (moved(kind, 1), moved(kind, -1), *([turned(kind)] if has_noise else []), *more):
        assert not holds(broken(**{f.name: getattr(pair, f.name) for f in fields(pair)}), law)
    assert not holds(pair_of(law.noise, law.shift - 1), law)
    assert not holds(pair_of(nearby, law.shift), law)


def test_a_broken_inverse_and_a_broken_slope_are_detected() -> None:
    laplace, gaussian = CLOSED[1], CLOSED[5]
    delta = Fraction(1, 1000)
    with precision(128):
        for kind, right in ((GaussianPair, True), (changed(GaussianPair, bound=loose), False)):
            pair = kind(noise=DiscreteGaussian(sigma_squared=4), shift=3)
            found = Enclosure.of(pair.epsilon(delta, pair.guess(delta) or 0))
            at = gaussian.worlds.delta(Fraction(found.upper))
            assert (abs(at * 1000 - 1) < mpmath.mpf("1e-30")) is right
        for sloped, right in ((LaplacePair, True), (changed(LaplacePair, _line=late_slope), False)):
            line = sloped(noise=DiscreteLaplace(scale=2), shift=3)
            found = Enclosure.of(line.tradeoff(Fraction(1, 2)))
            assert close(found, laplace.worlds.tradeoff("1/2"), relative="1e-20") is right


# -- one-sided laws: the directions differ, and each hides a mass from the other ------------------


def test_ties_of_rational_ratios_are_decided_exactly() -> None:
    # Binomial(3, 1/2): p = (1, 3, 3, 1)/8, whose loss at 1 is exactly 0.
    ours = curve(Binomial(trials=3, probability="1/2"))
    assert ours.enclose_delta(0) == Enclosure.exactly(Fraction(3, 8))
    assert ours.enclose_epsilon("3/8") == Enclosure.exactly(0)
    # At the hidden mass itself epsilon is the largest finite loss, log 3.
    with mpmath.workdps(50):
        assert close(ours.enclose_epsilon("1/8"), mpmath.log(3), relative="1e-18")
    assert ours.enclose_epsilon("0.1249999") == Enclosure.infinite()
    even = curve(Poisson(mean=4))
    assert even.epsilon(even.enclose_delta(0).upper).upper < Fraction(1, 2**40)


@pytest.mark.parametrize(("chance", "suffices"), [("1/5", True), ("4/5", False)])
def test_a_mutant_with_one_direction_is_detected(chance: str, suffices: bool) -> None:
    # Few heads hide their mass at the bottom, many at the top: neither direction alone is enough.
    noise, fair = Binomial(trials=25, probability=chance), Binomial(trials=25, probability="1/2")
    law, pair = replace(ONE_SIDED[4], noise=noise), pair_of(noise, 2)
    assert holds(pair, law)
    assert holds(pair, law, both=False) is suffices
    assert holds(pair.mirror(), law, both=False) is not suffices
    assert [len(candidates(each, Sensitivity(2))) for each in (noise, fair)] == [2, 1]
    for mirrored in (True, False):
        both = BinomialPair(noise=fair, shift=2, mirrored=mirrored)
        assert holds(both, replace(law, noise=fair), both=False)


def test_one_direction_of_polya_noise_is_pure_or_reveals_all_or_nothing() -> None:
    above_one, below_one = ONE_SIDED[6], ONE_SIDED[9]
    direct: Any = pair_of(above_one.noise, 3).mirror()
    assert direct.largest_loss() == Enclosure.exactly(Fraction(3, 2))
    with precision(96):
        assert direct.delta(Fraction(3, 2)) == 0
    assert not holds(direct, above_one, both=False)
    pair = pair_of(below_one.noise, 2)
    assert isinstance(pair, RevealingPair)
    assert len({delta_of(pair, epsilon) for epsilon in EPSILONS}) == 1
    assert not holds(RevealingPair(noise=below_one.noise, shift=1), below_one)
