"""Tests of proven divergences against independent mpmath sums, and of the verdicts from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from typing import Any

import mpmath
import pytest
from mpmath import mpf

from accounting.errors import NotDerived
from audit.claims import read_claim
from audit.known_laws.compare_two_laws import (
    NeverWorse,
    OutputInterval,
    epsilon_at,
    hockey_stick,
    renyi,
    vectors,
    worst_event,
)
from audit.known_laws.exact_layer import prove
from audit.report.audit_record import ExactWitness
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.targets.target import Law, NoiseAdded, Shifted
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day
from tests.support.accounting import brute_force
from tests.support.accounting.brute_force import binomial, product, real, shifted
from tests.support.laws import second

close = partial(brute_force.close, room="1e-40")
near = partial(brute_force.close, room="1e-25")


@pytest.fixture(autouse=True)
def digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


def noise_of(spelling: str) -> Noise:
    target = read_target(spelling)
    assert isinstance(target, NoiseAdded)
    return target.noise


def decided(spelling: str, claim: str, *pairs: tuple[int, int]) -> AuditReport:
    target = read_target(spelling)
    assert isinstance(target, NoiseAdded)
    return prove(target, Plan(claim=read_claim(claim), pair=pairs[0], pairs=pairs))


def test_epsilon_of_shifted_noise_is_exact_in_simple_cases() -> None:
    laplace, gaussian = DiscreteLaplace(scale=4), DiscreteGaussian(sigma_squared=4)
    assert epsilon_at(Shifted(laplace, 0), Shifted(laplace, 3)) == Enclosure.exactly(Fraction(3, 4))
    assert epsilon_at(Shifted(gaussian, 0), Shifted(gaussian, 1)) == Enclosure.infinite()
    for noise in (laplace, gaussian):
        here = Shifted(noise, 5)
        assert epsilon_at(here, here) == hockey_stick(here, here, 0) == Enclosure.exactly(0)
        assert renyi(here, here, 2) == Enclosure.exactly(0)
        assert worst_event(here, here, 0) is None


# -- probability mass functions given by a user -----------------------------------------------

LAPLACE = DiscreteLaplace(scale="3/2")
P: Law = {"a": "1/2", "b": "1/4", "c": "1/4"}
Q: Law = {"a": "1/4", "b": "1/2", "d": "1/4"}


def all_events(p: dict[str, Fraction], q: dict[str, Fraction]) -> list[tuple[Fraction, Fraction]]:
    outputs = sorted({*p, *q})
    return [
        (
            sum((p.get(x, Fraction()) for x in event), Fraction()),
            sum((q.get(x, Fraction()) for x in event), Fraction()),
        )
        for size in range(len(outputs) + 1)
        for event in itertools.combinations(outputs, size)
    ]


def fractions(pmf: Any) -> dict[str, Fraction]:
    return {x: Fraction(value) for x, value in pmf.items()}


@pytest.mark.parametrize("law", [(P, Q), (Q, P), (P, P)])
def test_divergences_of_pmfs_agree_with_the_worst_of_all_events(
    law: tuple[Law, Law],
) -> None:
    p, q = (fractions(one) for one in law)
    events = all_events(p, q)
    for epsilon in ("0", "0.3", "0.7", "2"):
        growth = mpmath.exp(mpmath.mpf(epsilon))
        expected = max(real(a) - growth * real(b) for a, b in events)
        assert close(hockey_stick(*law, epsilon), expected)
    for delta in ("0", "1/8", "1/4", "3/10", "1/2"):
        needed = [
            (a - Fraction(delta)) / b if b else Fraction(10**9)
            for a, b in events
            if a > Fraction(delta)
        ]
        found = epsilon_at(*law, delta)
        if max(needed) == 10**9:
            assert found == Enclosure.infinite()
        else:
            assert close(found, max(mpmath.log(mpmath.mpf(max(needed).numerator)
                                               / max(needed).denominator), 0))  # fmt: skip


def test_renyi_divergences_of_pmfs_are_exact() -> None:
    p: Law = {0: "1/3", 1: "2/3"}
    q: Law = {0: "1/2", 1: "1/2"}
    expected = mpmath.log(mpmath.mpf(2) / 9 + mpmath.mpf(8) / 9)  # sum p^2/q
    assert close(renyi(p, q, 2), expected)
    assert renyi(P, Q, 2) == Enclosure.infinite()
    assert renyi(P, P, 2) == Enclosure.exactly(0)


HERE = Shifted(LAPLACE, 0)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: hockey_stick({"a": "1/2"}, P, 1), "p = 1/2: the masses must sum to exactly 1"),
    (lambda: hockey_stick(P, {"a": "3/2", "b": "-1/2"}, 1), r"q\['b'\] = .*must be >= 0"),
    (lambda: hockey_stick(P, {"a": "x"}, 1), r"q\['a'\] = x"),
    (lambda: hockey_stick(P, HERE, 1), "must be two pmfs or two shifts of one noise"),
    (
        lambda: hockey_stick(HERE, Shifted(DiscreteLaplace(scale=4), 0), 1),
        "must be a shift of the same noise",
    ),
    (lambda: hockey_stick(P, Q, -1), "epsilon = -1: must be >= 0"),
    (lambda: epsilon_at(P, Q, 1), r"delta = 1: must lie in \[0, 1\)"),
    (lambda: renyi(P, Q, 1), "order = 1: must be > 1"),
    (lambda: Shifted(LAPLACE, 0.5), r"shift = 0\.5: must be an integer"),  # type: ignore[arg-type]  # what the type forbids
]


@pytest.mark.parametrize(("call", "complaint"), REFUSED)
def test_laws_and_arguments_that_cannot_be_compared_are_refused(
    call: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        call()


# -- the exact layer on every law ----------------------------------------------------------------

NOISES = (
    "discrete-laplace:scale=3/2", "discrete-gaussian:sigma_squared=9", "skellam:variance=9",
    "discrete-gaussian-sum:count=3,sigma_squared=2", "polya-difference:shape=5/2,scale=2",
    "polya-difference:shape=1/3,scale=4", "poisson:mean=12", "binomial:trials=20,probability=1/2",
    "binomial:trials=30,probability=1/5", "polya:shape=2,scale=3", "polya:shape=1/2,scale=3",
)  # fmt: skip
PAIRS = ((0, 1), (1, 0), (4, 1), (-2, 1))
REACH = 400

each_noise = pytest.mark.parametrize("spelling", NOISES)
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=str)


@cache
def masses(spelling: str) -> dict[int, Any]:
    """The masses of the law by an independent computation."""
    noise = noise_of(spelling)
    with mpmath.workdps(60):
        reach = 60 if isinstance(noise, DiscreteGaussianSum) else REACH
        places = range(0 if one_sided(noise) else -reach, reach + 1)
        return {k: second(noise, "pmf", k) for k in places}


def one_sided(noise: Noise) -> bool:
    return isinstance(noise, (Poisson, Binomial, Polya))


def moved(spelling: str, place: int) -> dict[int, Any]:
    return {k + place: mass for k, mass in masses(spelling).items()}


def better_direction(spelling: str, pair: tuple[int, int]) -> bool:
    return spelling == "polya:shape=1/2,scale=3" and pair[0] > pair[1]


def excess(spelling: str, pair: tuple[int, int], epsilon: str) -> Any:
    # Outside both windows the mass is 0 or below 1e-30.
    return brute_force.hockey_stick(shifted(masses(spelling), pair[1] - pair[0]), epsilon)


@by_day(5)
@each_noise
@each_pair
def test_each_direction_agrees_with_a_sum_over_all_outputs(
    spelling: str, pair: tuple[int, int]
) -> None:
    p, q = (Shifted(noise_of(spelling), place) for place in pair)
    for epsilon in ("0", "1/5", "1", "5/2"):
        if better_direction(spelling, pair):
            with pytest.raises(NeverWorse):
                hockey_stick(p, q, epsilon)
            worse = excess(spelling, (pair[1], pair[0]), epsilon)
            assert excess(spelling, pair, epsilon) <= worse + mpf("1e-30")
            continue
        assert near(hockey_stick(p, q, epsilon), excess(spelling, pair, epsilon))


@by_day(4)
@each_noise
@each_pair
def test_the_worst_event_attains_delta(spelling: str, pair: tuple[int, int]) -> None:
    if better_direction(spelling, pair):
        return
    noise = noise_of(spelling)
    p, q = (Shifted(noise, place) for place in pair)
    for epsilon in ("1/5", "1", "5/2"):
        event = worst_event(p, q, epsilon)
        most = excess(spelling, pair, epsilon)
        if event is None:
            assert most == 0 or abs(most) < mpf("1e-25")
            continue
        here, there = (real(Fraction(e.lower)) for e in (event.p, event.q))
        assert abs(here - mpmath.exp(real(epsilon)) * there - most) < mpf("1e-15")
        side = inside(event.words)
        for law, shown in (
            (moved(spelling, pair[0]), event.p),
            (moved(spelling, pair[1]), event.q),
        ):
            assert near(shown, mpmath.fsum(mass for x, mass in law.items() if side(x)))


def inside(words: str) -> Any:
    return eval(f"lambda output: {words.replace(' = ', ' == ')}")  # noqa: S307 - our own sentence


@pytest.mark.nightly
def test_a_worst_event_that_is_an_interval_is_described_by_both_ends() -> None:
    """A law that is not log-concave has a worst event that is an interval with two ends."""
    spelling = "polya-difference:shape=1/3,scale=4"
    noise, named = noise_of(spelling), set()
    for level in ("1/5", "2/7", "2/5", "3/5", "9/10", "6/5"):
        event = worst_event(Shifted(noise, 0), Shifted(noise, 1), level)
        assert event is not None
        named.add(event.words)
        p, q = moved(spelling, 0), moved(spelling, 1)
        growth = mpmath.exp(real(level))
        worst = {x for x in range(-300, 301) if p[x] > growth * q[x]}
        assert worst == {x for x in range(-300, 301) if inside(event.words)(x)}
    assert {"output <= 0", "output = 0"} < named
    assert any("<= output <=" in words for words in named)
    assert worst_event(Shifted(noise, 0), Shifted(noise, 1), 9) is None
    middle = OutputInterval(-1, 1).probability(noise, 0, 64)
    assert near(middle, mpmath.fsum(masses(spelling)[k] for k in (-1, 0, 1)))


@by_day(2)
@each_noise
def test_epsilon_and_renyi_belong_to_one_direction(spelling: str) -> None:
    noise = noise_of(spelling)
    p, q = Shifted(noise, 0), Shifted(noise, 2)
    delta = hockey_stick(p, q, "1/2")
    if not one_sided(noise):
        assert epsilon_at(p, q, Fraction(delta.upper)).lower <= Fraction(1, 2)
        assert epsilon_at(p, q, Fraction(delta.lower) * Fraction(999, 1000)).upper > Fraction(1, 2)
        world = shifted(masses(spelling), 2)
        for order in ("3/2", "2"):
            assert near(renyi(p, q, order), brute_force.renyi(world, order), room="1e-15")
    else:
        assert epsilon_at(p, q).lower == renyi(p, q, 2).lower == float("inf")


# -- several coordinates -------------------------------------------------------------------------


def test_vectors_of_fair_bits_agree_with_sums_over_both_coordinates() -> None:
    noise = Binomial(trials=12, probability="1/2")
    one = binomial(12, Fraction(1, 2))
    for moves in ((1, 1), (2, 1), (1, -2)):
        found = hockey_stick(Shifted(noise, (0, 0)), Shifted(noise, moves), "1/2", bits=200)
        world = product(shifted(one, step) for step in moves)
        assert near(found, brute_force.hockey_stick(world, "1/2"))
        assert found.width <= found.lower / 500
    assert worst_event(Shifted(noise, (0, 0)), Shifted(noise, (1, 1)), 1) is None
    assert renyi(Shifted(noise, (0, 0)), Shifted(noise, (1, 1)), 2) == Enclosure.infinite()


def test_vectors_that_differ_in_at_most_one_coordinate() -> None:
    noise = Poisson(mean=4)
    one = hockey_stick(Shifted(noise, (3, 0)), Shifted(noise, (3, 1)), 1)
    assert one == hockey_stick(Shifted(noise, 0), Shifted(noise, 1), 1)
    assert hockey_stick(Shifted(noise, (3, 1)), Shifted(noise, (3, 1)), 1) == Enclosure.exactly(0)
    with pytest.raises(NotDerived, match="several coordinates"):
        vectors(noise, (0, 0), (1, 1))
    with pytest.raises(InvalidParameter, match="as many coordinates"):
        hockey_stick(Shifted(noise, (3, 1)), Shifted(noise, 1), 1)
    gaussian = DiscreteGaussian(sigma_squared=4)
    assert renyi(Shifted(gaussian, (0, 0)), Shifted(gaussian, (1, -1)), 2) == Enclosure.exactly(
        Fraction(1, 2)
    )


# -- claims about a law --------------------------------------------------------------------------


def test_a_claim_on_the_boundary_is_proven_and_a_smaller_one_refuted() -> None:
    assert decided("discrete-laplace:scale=3", "epsilon=2/3", (0, -2)).verdict == "proven"
    report = decided("discrete-laplace:scale=3", "epsilon=0.66666666666666", (0, -2))
    assert report.verdict == "refuted"
    assert report.epsilon_lower <= Fraction(2, 3) < math.nextafter(report.epsilon_lower, 1)
    assert decided("discrete-gaussian:sigma_squared=4", "epsilon=99", (0, 1)).verdict == "refuted"
    equal = decided("discrete-gaussian:sigma_squared=4", "epsilon=0", (3, 3))
    assert equal.exact is not None
    assert (equal.verdict, equal.exact.delta) == ("proven", Enclosure.exactly(0))


@by_day(2)
@each_noise
def test_a_claim_is_proven_above_the_curve_and_refuted_below_it(spelling: str) -> None:
    noise, pair = noise_of(spelling), (0, 2)
    ways = [hockey_stick(Shifted(noise, 0), Shifted(noise, 2), 1, bits=128)]
    if not better_direction(spelling, (2, 0)):
        ways.append(hockey_stick(Shifted(noise, 2), Shifted(noise, 0), 1, bits=128))
    upper, lower = (Fraction(max(getattr(way, end) for way in ways)) for end in ("upper", "lower"))
    assert upper < 1
    above, below = upper + Fraction(1, 10**30), lower - Fraction(1, 10**30)
    assert decided(spelling, f"epsilon=1,delta={above}", pair).verdict == "proven"
    if lower == 0:
        return
    for order in (pair, pair[::-1]):
        report = decided(spelling, f"epsilon=1,delta={max(below, 0)}", order)
        assert report.verdict == "refuted"
        breaks(report, "1", max(below, Fraction(0)))


def breaks(report: AuditReport, epsilon: str, delta: Fraction) -> None:
    witness = report.witness
    assert isinstance(witness, ExactWitness)
    likely, rare = witness.probability_a, witness.probability_b
    if witness.world == "B":
        likely, rare = rare, likely
    growth = mpmath.exp(real(epsilon))
    excess = real(Fraction(likely.upper)) - growth * real(Fraction(rare.lower))
    assert excess > real(delta) - mpf("1e-15")
    # The mutant: the same event in the other direction violates nothing.
    turned = real(Fraction(rare.upper)) - growth * real(Fraction(likely.lower))
    assert turned <= real(delta)
