"""Tests of subsampling: enumerated neighbours, every shift, both directions, several rounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import NotDerived, PrivacyCurve, Pure, compose
from accounting.amplification.subsampling import AmplifiedSample, FixedSizeSample
from accounting.composition.compose import dominating_pairs
from accounting.pld.discretise_round import Focus, Sampled, listed_above
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.privacy_curves.dominating_pairs import _totals
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day, spread
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import (
    DIGITS,
    World,
    close,
    hockey_stick,
    mass_of,
    real,
    renyi,
    world_of,
)
from tests.support.accounting.unregistered_law import Triangle
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

ADDED = Scope(relation=Relation.ADD_REMOVE)
AT = ("0", "1/50", "1/5", "1", "3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    noise: Noise
    most: int
    reach: int

    def law(self, shift: int) -> list[Any]:
        window = range(-self.reach - self.most, self.reach + self.most + 1)
        return [mass_of(self.noise)(k - shift) for k in window]

    def poisson(self, rate: Fraction | str) -> Iterable[World]:
        """Without the unit the answer is 0; with it, if sampled, any allowed shift."""
        share = real(rate)
        plain = self.law(0)
        for shift in range(-self.most, self.most + 1):
            mixed = [
                (1 - share) * q + share * p for p, q in zip(self.law(shift), plain, strict=True)
            ]
            yield [*zip(mixed, plain, strict=True)]
            yield [*zip(plain, mixed, strict=True)]

    def fixed(self, rate: Fraction | str) -> Iterable[World]:
        """Samples without the unit, with it, or with the one in its place: all are neighbours."""
        share = real(rate)
        laws = {shift: self.law(shift) for shift in range(-self.most, self.most + 1)}
        for one, two in itertools.product(laws, laws):
            if abs(one - two) <= self.most:
                yield [
                    ((1 - share) * r + share * p, (1 - share) * r + share * q)
                    for r, p, q in zip(laws[0], laws[one], laws[two], strict=True)
                ]

    def added(self) -> PrivacyCurve:
        return PrivacyCurve(noise=self.noise, sensitivity=self.most, scope=ADDED)

    def replaced(self) -> PrivacyCurve:
        return PrivacyCurve(noise=self.noise, sensitivity=self.most)


CASES = {
    "laplace": Case(noise=DiscreteLaplace(scale=2), most=2, reach=150),
    "gaussian": Case(noise=DiscreteGaussian(sigma_squared=3), most=1, reach=30),
    "skellam": Case(noise=Skellam(variance=2), most=1, reach=45),
    "coins": Case(noise=Binomial(trials=12, probability="1/2"), most=1, reach=14),
    "triangle": Case(noise=Triangle(half=4), most=1, reach=6),
    "poisson": Case(noise=Poisson(mean=4), most=1, reach=60),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def holds(found: Callable[[str], Enclosure], worlds: Iterable[World]) -> bool:
    """Whether every enclosure contains the largest delta over the neighbouring datasets."""
    listed = [*worlds]
    with mpmath.workdps(DIGITS):
        for at in AT:
            truth = max(hockey_stick(world, at) for world in listed)
            if not (close(found(at), truth, relative="1e-24") or truth < mpmath.mpf("1e-27")):
                return False
    return True


@by_day(6)
@each_case
@pytest.mark.parametrize("rate", ["1/10", "2/3"])
def test_delta_is_the_largest_over_all_neighbouring_datasets(case: Case, rate: str) -> None:
    exact = Fraction(rate)
    with mpmath.workdps(DIGITS):
        added, replaced = [*case.poisson(rate)], [*case.fixed(rate)]
    assert holds(releases.poisson(curve=case.added(), rate=rate).enclose_delta, added)
    fixed = releases.fixed(
        curve=case.replaced(), sample=exact.numerator, population=exact.denominator
    )
    assert holds(fixed.enclose_delta, replaced)


rates = st.fractions(min_value=Fraction(1, 200), max_value=1, max_denominator=300)


@given(rates, st.fractions(min_value=0, max_value=4, max_denominator=100))
def test_epsilon_is_the_inverse_of_delta(rate: Fraction, epsilon: Fraction) -> None:
    sampled = releases.poisson(curve=CASES["gaussian"].added(), rate=rate)
    at = sampled.enclose_delta(epsilon)
    assert at.upper - at.lower <= at.upper / 2**60
    assert sampled.enclose_epsilon(at.upper).lower <= epsilon
    if at.lower > 0:
        assert epsilon <= sampled.epsilon(at.lower).upper


def test_epsilon_at_delta_zero_and_delta_beyond_the_largest_loss_are_exact() -> None:
    case = CASES["laplace"]
    sampled = releases.poisson(curve=case.added(), rate="1/10")
    with mpmath.workdps(DIGITS):
        # The largest loss is 1: log(1 + (e - 1)/10).
        assert close(sampled.enclose_epsilon(0), mpmath.log(1 + (mpmath.e - 1) / 10))
    assert sampled.enclose_epsilon(1) == Enclosure.exactly(0)
    assert sampled.enclose_delta(2) == Enclosure.exactly(0)
    assert (
        releases.poisson(curve=CASES["gaussian"].added(), rate="1/2").enclose_epsilon(0)
        == Enclosure.infinite()
    )


@pytest.mark.parametrize("name", ["laplace", "gaussian", "skellam"])
@pytest.mark.parametrize("order", ["3/2", "2", "7"])
def test_renyi_is_the_largest_over_all_neighbouring_datasets(name: str, order: str) -> None:
    case = CASES[name]
    found = releases.poisson(curve=case.added(), rate="1/5").enclose_renyi(order)
    with mpmath.workdps(DIGITS):
        truth = max(renyi(world, order) for world in case.poisson("1/5"))
    assert close(found, truth, relative="1e-20")
    assert found.upper - found.lower <= found.upper / 10**10
    hidden = releases.poisson(curve=CASES["coins"].added(), rate="1/5")
    assert hidden.enclose_renyi(order) == Enclosure.infinite()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ball(at).expm1() / ball(rate)", "ball(at).expm1() / ball(rate * rate)"),
        ("ball(at).expm1() / ball(rate)", "ball(at).expm1() * ball(rate)"),
        (".log1p()", ".log()"),
        ("rate * found.lower, rate * found.upper", "found.lower, found.upper"),
        ("rate * found.lower, rate * found.upper", "rate**2 * found.lower, rate**2 * found.upper"),
    ],
)
def test_a_broken_pair_of_one_sampled_round_is_detected(old: str, new: str) -> None:
    case, rate = CASES["gaussian"], Fraction(1, 10)
    sample = releases.poisson(curve=case.added(), rate=rate)
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
    broken = mutated(AmplifiedSample.enclose_delta, old, new)

    def kept(compute: Any) -> bool:
        try:
            return holds(lambda at: compute(sample, at), worlds)
        except (ArithmeticError, ValueError, InvalidParameter):
            return False

    assert kept(AmplifiedSample.enclose_delta)
    assert not kept(broken)


def test_a_sample_without_renyi_divergences_names_the_methods_to_use() -> None:
    one_sided = releases.poisson(curve=CASES["poisson"].added(), rate="1/3")
    text = "no Renyi divergence is proven for this sampling scheme"
    assert text in refusal(lambda: one_sided.enclose_renyi(2), NotDerived)
    fixed = releases.fixed(curve=CASES["coins"].replaced(), sample=1, population=10)
    for sampled in (WHOLE["coordinates"][0], fixed):
        for asked in (sampled, compose((sampled, 3))):
            with pytest.raises(NotDerived, match=r"order 2 of .*use epsilon\(delta\) or delta\("):
                asked.renyi(2)
            # The method that the message names exists.
            assert 0 < asked.epsilon("1/1000").upper_float < 5


NOISE = releases.gaussian(1)
WHOLE: dict[str, tuple[Any, float]] = {
    "poisson": (releases.poisson(NOISE, "1/100"), 0.5),
    "replaced": (releases.replaced(NOISE, "99/100"), 2),
    "group": (releases.poisson(NOISE, "99/100", members=3), 4.5),
    "shifts": (releases.shifted(NOISE, ["1/100", 0, "99/100"]), 2),
    "truncated": (releases.truncated(NOISE, "99/100", examples=4, most=2), 2),
    "allocated": (releases.allocated(NOISE, rounds=4, picks=3), 1.5),
    "fixed": (releases.fixed(releases.gaussian(1, scope=Scope()), sample=1, population=10), 0.5),
    "coordinates": (
        releases.poisson(
            PrivacyCurve(
                noise=DiscreteGaussian(sigma_squared=4),
                sensitivity=Sensitivity.l2_squared(4),
                scope=ADDED,
            ),
            "1/2",
        ),
        0.5,
    ),
}


@by_day(2)
@pytest.mark.parametrize("name", WHOLE)
def test_the_zcdp_parameter_is_at_most_that_without_sampling(name: str) -> None:
    sampled, rho = WHOLE[name]
    found = sampled.zcdp()
    assert (found.upper, found.lower) == (rho, None)
    assert found.assumptions == sampled.assumptions
    for order in spread(("2", "3/2", "8"), 1):
        with suppress(NotDerived):
            assert sampled.enclose_renyi(order).lower <= found.upper * Fraction(order)


def test_a_replaced_unit_costs_more_than_an_added_one_without_sampling() -> None:
    sampled, rho = WHOLE["replaced"]
    assert 2 * NOISE.zcdp().upper < sampled.renyi(2).lower < 2 * rho


def test_a_small_largest_loss_gives_a_smaller_zcdp_parameter() -> None:
    rare, often = (releases.poisson(releases.laplace(1), rate) for rate in ("1/100", "9/10"))
    assert 10 * rare.zcdp().upper < releases.laplace(1).zcdp().lower
    assert often.zcdp().upper == releases.laplace(1).zcdp().upper < often.pure().upper ** 2 / 2
    # Doubled, the sensitivity is out of range for Laplace noise: the largest loss remains.
    narrow = releases.replaced(releases.laplace("1/2000"), "1/2")
    assert narrow.zcdp().upper == narrow.pure().upper


def of_two_rounds(one: World, two: World, epsilon: str) -> float:
    """The hockey-stick divergence of two rounds, in floats with an error below 1e-12."""
    (p, q), (r, s) = (np.array(world, dtype=np.float64).T for world in (one, two))
    gains = np.outer(p, r) - math.exp(Fraction(epsilon)) * np.outer(q, s)
    return float(np.maximum(gains, 0).sum())


def test_a_sample_of_cells_has_their_default_width() -> None:
    # A width of 2^-64 was requested of the cells, which took a hundred times as long.
    noise, moves = Binomial(trials=60, probability="1/3"), Sensitivity.box((1, 1))
    whole = PrivacyCurve(noise=noise, sensitivity=moves, scope=ADDED)
    sampled = releases.poisson(curve=whole, rate="1/10")
    for found in (ends(sampled.delta("1/100")), ends(sampled.epsilon("1/100"))):
        assert found.upper / 10**12 < found.width < found.upper / 10**5


def fixed_pair_holds(case: Case, sample: int, population: int) -> bool:
    """Whether one pair is above all neighbouring datasets at every epsilon of either sign, and
    close to them at 0 and above.
    """
    pair = releases.fixed(curve=case.replaced(), sample=sample, population=population).pair()
    listed = world_of(listed_above((1.0, pair.cells(pair.edges(Focus(1.0), 1 << 12)))))
    largest = [(p, q) for p, q in listed if p > mpmath.mpf("1e-16")]
    small = mpmath.mpf("1e-12")
    with mpmath.workdps(DIGITS):
        worlds = [*case.fixed(Fraction(sample, population))]
        for at in (*AT, "-1/50", "-1/3", "-2"):
            truth = max(hockey_stick(world, at) for world in worlds)
            bound = hockey_stick(largest, at)
            if not truth - small <= bound <= truth * (1 + mpmath.mpf("1e-9")) + small:
                return False
    return True


@by_day(2)
@pytest.mark.parametrize("name", ["laplace", "gaussian", "coins", "poisson"])
@pytest.mark.parametrize(("sample", "population"), [(1, 10), (3, 4)])
def test_one_pair_dominates_all_neighbouring_datasets(
    name: str, sample: int, population: int
) -> None:
    assert fixed_pair_holds(CASES[name], sample, population)


OUTSIDE = 1e-5  # the mass outside the reach of these cases


@pytest.mark.parametrize("kind", ["poisson", "fixed"])
@pytest.mark.parametrize("name", ["gaussian", "coins", "poisson"])
def test_two_rounds_have_a_lower_bound_that_neighbours_attain(name: str, kind: str) -> None:
    case = replace(CASES[name], reach=13)
    if kind == "fixed":
        sampled, worlds = releases.fixed(curve=case.replaced(), sample=1, population=4), case.fixed
    else:
        sampled, worlds = releases.poisson(curve=case.added(), rate="1/4"), case.poisson
    total = compose((sampled, 2))
    with mpmath.workdps(DIGITS):
        listed = [*worlds("1/4")]
    for at in ("1/50", "1/3"):
        found = ends(total.delta(at))
        truth = max(of_two_rounds(world, world, at) for world in listed)
        assert truth * 0.95 <= found.lower <= truth + OUTSIDE
        # A replaced unit may have another pair of datasets in each round.
        turns = itertools.product(listed, listed) if kind == "fixed" else [(w, w) for w in listed]
        most = max(of_two_rounds(*both, at) for both in turns)
        assert most - OUTSIDE <= found.upper <= most * 1.2


def test_parts_of_a_lower_bound_have_the_same_datasets() -> None:
    # Two directions of one candidate, and of two candidates.
    sampled = [
        releases.poisson(curve=CASES[name].added(), rate="1/4") for name in ("laplace", "poisson")
    ]
    found = map(dominating_pairs, sampled)
    totals = _totals([(each, each.attained, 1) for each in found], above=False)
    for at, total in enumerate(totals):
        tables = [law.kinds[0][1] for law, _ in total.parts if isinstance(law, TabledLoss)]
        assert {table.present for table in tables if isinstance(table, Sampled)} == {at % 2 == 0}
    assert len(totals) == 4


def test_a_sampled_box_of_one_sided_noise_covers_both_directions() -> None:
    # If both coordinates move up, each dataset with the unit has outputs that are impossible
    # without it; if both move down, the reverse. Both orders of the datasets are neighbours.
    beta, rate, at = math.exp(-1 / 3), 0.99, math.e
    law = np.array([(1 - beta) * beta**k for k in range(200)])
    flat, moved = np.zeros(201), np.zeros(201)
    flat[:200], moved[1:] = law, law
    two = [np.outer(each, each).ravel() for each in (flat, moved)]
    response = (math.e**2 / (1 + math.e**2), 1 / (1 + math.e**2))
    truth = 0.0
    for here, there in (two, two[::-1]):
        mixed = (1 - rate) * there + rate * here
        for p, q in ((mixed, there), (there, mixed)):
            gaps = (a * p - at * b * q for a, b in (response, response[::-1]))
            truth = max(truth, sum(float(np.maximum(gap, 0).sum()) for gap in gaps))
    curve = PrivacyCurve(
        noise=Polya(shape=1, scale=3), sensitivity=Sensitivity.box((1, 1)), scope=ADDED
    )
    sampled = releases.poisson(curve=curve, rate=Fraction(99, 100))
    found = compose(sampled, Pure(2, scope=ADDED)).delta(1)
    assert found.upper >= truth > 0.7  # the upper bound was 0.614


@pytest.mark.parametrize("moved", [Sensitivity(2), Sensitivity.box((1, 2))])
def test_samples_of_a_release_that_reveals_everything_have_totals(moved: Sensitivity) -> None:
    curve = PrivacyCurve(noise=Binomial(trials=1, probability="1/2"), sensitivity=moved)
    total = compose((releases.fixed(curve=curve, sample=1, population=3), 2)).delta(1)
    assert (total.lower or 0) <= Fraction(5, 9) <= total.upper
    assert total.upper <= Fraction(5, 9) + Fraction(1, 10**12)
    assert (total.lower is None) is (moved != Sensitivity(2))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1 + rate * (x - 1)", "rate * (x - 1) + rate"),
        ("rate * base.height(x)", "rate * rate * base.height(x)"),
        ("1 - (1 - high) / x", "high / x"),
        ("left + right", "right"),
    ],
)
def test_a_broken_dominating_pair_is_detected(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    def kept() -> bool:
        try:
            return fixed_pair_holds(CASES["gaussian"], 1, 10)
        except InvalidParameter:
            return False

    assert kept()
    monkeypatch.setattr(FixedSizeSample, "pair", mutated(FixedSizeSample.pair, old, new))
    assert not kept()
