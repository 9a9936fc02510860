"""Composition theorems: against every outcome of randomised response, and against each other."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Approx, Assumed, NotDerived, PrivacyCurve, Pure, Rdp, StatedGuarantee, ZCdp
from accounting.theorems import composition as theorems
from accounting.theorems import optimal as closed
from accounting.theorems.composition import (
    advanced,
    advanced_over_splits,
    advanced_share,
    basic,
    optimal,
    parallel,
)
from accounting.theorems.convert import as_approx, as_rdp, as_zcdp
from accounting.theorems.optimal import optimal_delta, optimal_epsilon
from dpcore import DiscreteGaussian, InvalidParameter, Relation, Scope, Unit
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, rational
from tests.support.accounting.amounts import amounts, epsilon
from tests.support.accounting.brute import close, real
from tests.support.dpcore.mutants import mutated, rewired

USER = Scope(unit=Unit.USER)
World = list[tuple[Any, Any]]


def round_of(epsilon: RationalLike, delta: RationalLike = 0) -> World:
    """Both worlds' chances of the four outcomes of the worst (epsilon, delta) mechanism."""
    kept, odds = 1 - real(Fraction(delta)), mpmath.exp(real(Fraction(epsilon)))
    return [
        (real(Fraction(delta)), 0),
        (kept * odds / (1 + odds), kept / (1 + odds)),
        (kept / (1 + odds), kept * odds / (1 + odds)),
        (0, real(Fraction(delta))),
    ]


def product(rounds: list[World]) -> World:
    return [
        (mpmath.fprod(p for p, _ in path), mpmath.fprod(q for _, q in path))
        for path in itertools.product(*rounds)
    ]


def hockey_stick(world: World, epsilon: Fraction | int | str) -> Any:
    factor = mpmath.exp(real(epsilon))
    return mpmath.fsum(max(p - factor * q, 0) for p, q in world)


# -- optimal ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "rounds"),
    [
        (Pure("1/10"), 1),
        (Pure("7/5"), 4),
        (Pure(5), 3),
        (Approx("1/2", "1/100"), 5),
        (Approx(0, "1/5"), 3),
        (Approx(2, "1e-9"), 4),
    ],
    ids=repr,
)
def test_optimal_against_every_outcome(claim: Pure | Approx, rounds: int) -> None:
    delta = claim.stated_delta if isinstance(claim, Approx) else 0
    e = rational("epsilon", claim.stated_epsilon)
    with mpmath.workdps(50):
        world = product([round_of(e, delta)] * rounds)
        for at in (Fraction(0), e / 3, e, 2 * e, rounds * e - Fraction(1, 100), rounds * e + 1):
            truth = hockey_stick(world, max(at, Fraction(0)))
            found = optimal_delta(claim, rounds, max(at, Fraction(0)))
            # Where the truth is 0 the fifty digits of the second path leave some dust.
            assert close(found, truth) or (found.upper == 0 and abs(truth) < 1e-45)
        for target in ("1/3", "1/10", "1/20", "1/100", "1e-6"):
            found = optimal_epsilon(claim, rounds, target)
            if found.upper == math.inf:
                hidden = mpmath.fsum(p for p, q in world if q == 0)
                assert hidden > real(target)
                continue
            slack = mpmath.mpf(10) ** -18
            above = Fraction(found.upper) * (1 + Fraction(1, 10**18))
            assert hockey_stick(world, above) <= real(target) * (1 + slack)
            below = Fraction(found.lower) * (1 - Fraction(1, 10**15))
            assert found.upper == 0 or hockey_stick(world, below) > real(target)


def test_the_exact_edge_of_what_always_shows() -> None:
    claim, rounds = Approx("1/20", "1/1000"), 7
    edge = 1 - (1 - Fraction(1, 1000)) ** rounds
    tiny = Fraction(1, 10**60)
    assert optimal_epsilon(claim, rounds, edge) == Enclosure.exactly(Fraction(7, 20))
    assert optimal_epsilon(claim, rounds, edge - tiny) == Enclosure.infinite()
    assert optimal_epsilon(claim, rounds, edge + tiny).lower_float == pytest.approx(0.35)
    assert optimal_epsilon(Pure("1/20"), 1000, 0) == Enclosure.exactly(50)
    assert optimal_delta(Pure("1/20"), 1000, 50) == Enclosure.exactly(0)
    assert optimal_delta(Approx(1, 1), 3, 0) == Enclosure.exactly(1)
    assert optimal_epsilon(Approx(1, 1), 3, "1/2") == Enclosure.infinite()
    assert optimal_epsilon(Pure(0), 3, 0) == Enclosure.exactly(0)
    assert optimal_epsilon(Approx(0, "1e-3"), 3, "1/2") == Enclosure.exactly(0)


def binomial_delta(e: str, rounds: int, at: Any) -> Any:
    odds = mpmath.exp(real(e))
    truth = odds / (1 + odds)
    total = mpmath.mpf(0)
    for wrong in range(rounds + 1):
        loss = (rounds - 2 * wrong) * real(e)
        if loss > at:
            mass = mpmath.binomial(rounds, wrong) * truth ** (rounds - wrong) * (1 - truth) ** wrong
            total += mass * (1 - mpmath.exp(at - loss))
    return total


@pytest.mark.parametrize("delta", ["1e-6", "1e-30", "2/5"])
def test_a_thousand_rounds_against_mpmath(delta: str) -> None:
    found = optimal_epsilon(Pure("1/20"), 1000, delta)
    assert found.width / found.upper < Fraction(1, 2**60)
    with mpmath.workdps(60):
        assert binomial_delta("1/20", 1000, real(Fraction(found.upper))) <= real(delta)
        assert binomial_delta("1/20", 1000, real(Fraction(found.lower))) >= real(delta)
        assert close(optimal_delta(Pure("1/20"), 1000, 8), binomial_delta("1/20", 1000, 8))
    if delta == "1e-6":
        assert found.upper_float == pytest.approx(8.28357334602, abs=1e-11)


def test_a_thousand_rounds_are_quick() -> None:
    claim, spent = Approx("1/20", "1e-10"), []
    for _ in range(5):
        start = time.process_time()
        optimal_epsilon(claim, 1000, "1e-6")
        spent.append(time.process_time() - start)
    # Twenty milliseconds are asked for; a loaded machine gets a margin.
    assert min(spent) < 0.1


MUTANTS: list[tuple[str, str, str]] = [
    ("_least_epsilon", "= arb(1), -share, arb(0)", "= arb(1), arb(0), arb(0)"),
    ("_least_epsilon", "if lost <= 0 or (", "if lost <= 6 or ("),
    ("_outcomes", "rounds - against, against + 1", "rounds - against, against + 2"),
    ("_outcomes", "ball(rounds) * (ball(each) + more)", "ball(rounds) * more"),
    ("_share", "- rounds * (-ball(hidden)).log1p()", "+ rounds * (-ball(hidden)).log1p()"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS)
def test_a_mutant_of_the_closed_form_is_seen(name: str, old: str, new: str) -> None:
    mutant = mutated(getattr(closed, name), old, new)
    parts: dict[str, Callable[..., Any]] = {name: mutant}
    if name == "_outcomes":
        parts = {"_least_epsilon": rewired(closed._least_epsilon, _outcomes=mutant)}
    found = rewired(optimal_epsilon, **parts)
    claim = Approx("1/2", "1/100")
    try:
        wrong = found(claim, 5, "1/5")
    except InvalidParameter:
        return  # ends out of order: the mutant left the range of the truth
    assert not wrong.overlaps(optimal_epsilon(claim, 5, "1/5"))


# -- advanced ---------------------------------------------------------------------------------


@pytest.mark.parametrize("e", ["1/1000", "1/20", "1"])
@pytest.mark.parametrize("rounds", [1, 30, 1000])
@pytest.mark.parametrize("slack", ["1e-6", "1/2"])
def test_advanced_is_the_formula_and_above_the_optimal(e: str, rounds: int, slack: str) -> None:
    total = advanced(Approx(e, "1e-9"), rounds, slack=slack).claim
    assert isinstance(total, Approx)
    assert total.stated_delta == rounds * Fraction("1e-9") + Fraction(slack)
    with mpmath.workdps(40):
        each = real(e)
        truth = each * mpmath.sqrt(2 * rounds * mpmath.log(1 / real(slack)))
        truth += rounds * each * mpmath.expm1(each)
        assert 0 <= real(epsilon(total)) - truth <= truth * mpmath.mpf(10) ** -18
    best = optimal_epsilon(Approx(e, "1e-9"), rounds, total.stated_delta)
    assert best.upper <= epsilon(total)
    low = mutated(
        theorems._forward, "each * spread + rounds * each * each.expm1()", "each * spread"
    )
    assert low(Fraction(e), rounds, Fraction(slack)) < epsilon(total)


@pytest.mark.parametrize("rounds", [1, 100, 10**5])
@pytest.mark.parametrize("total", ["1/100", "1/2", "999/1000"])
def test_the_share_of_the_papers(rounds: int, total: str) -> None:
    share = advanced_share(total, rounds, slack="1e-6")
    with mpmath.workdps(40):
        truth = real(total) / (2 * mpmath.sqrt(2 * rounds * mpmath.log(10**6)))
        assert 0 <= truth - real(share) <= truth * mpmath.mpf(10) ** -18
    assert epsilon(advanced(Pure(share), rounds, slack="1e-6").claim) <= Fraction(total)


def test_the_corollary_fails_for_a_slack_next_to_one() -> None:
    # epsilon = epsilon'/(2 sqrt(2k log(1/slack))) without a condition on the slack.
    total, slack = Fraction(99, 100), Fraction(999, 1000)
    with mpmath.workdps(30):
        each = real(total) / (2 * mpmath.sqrt(2 * mpmath.log(1 / real(slack))))
        yes = 1 / (1 + mpmath.exp(-each))
        left = hockey_stick([(yes, 1 - yes), (1 - yes, yes)], total)
        assert left > real(slack)
    with pytest.raises(InvalidParameter, match=r"^slack"):
        advanced_share(total, 1, slack=slack)


def test_splits_of_a_curve_that_comes_back() -> None:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)

    def epsilon_of(delta: Fraction) -> Fraction | float:
        return curve.epsilon(delta).upper

    found = advanced_over_splits(epsilon_of, 64, "1e-6")
    assert found.lower is None
    # Any split is a true bound; the search is at least as good as the even one.
    half = Fraction(1, 2 * 10**6)
    even = advanced(Approx(Fraction(epsilon_of(half / 64)), half / 64), 64, slack=half).claim
    assert found.upper <= epsilon(even)
    best = min(
        Fraction(
            epsilon(
                advanced(
                    Approx(Fraction(epsilon_of(d / 64)), d / 64), 64, slack=Fraction("1e-6") - d
                ).claim
            )
        )
        for d in (Fraction(n, 40 * 10**6) for n in range(1, 40))
    )
    assert found.upper <= best
    assert advanced_over_splits(lambda d: math.inf, 3, "1e-6").upper == math.inf
    # A pure round needs no part of delta.
    pure = advanced_over_splits(lambda d: Fraction(1, 20), 1000, "1e-6").upper
    assert pure == epsilon(advanced(Pure("1/20"), 1000, slack="1e-6").claim)


# -- basic and parallel -----------------------------------------------------------------------

AMOUNTS = st.fractions(min_value=0, max_value=5, max_denominator=100)
WORDS: dict[str, st.SearchStrategy[StatedGuarantee]] = {
    "pure": st.builds(Pure, AMOUNTS),
    "zcdp": st.builds(ZCdp, AMOUNTS),
    "approx": st.builds(Approx, AMOUNTS, st.fractions(0, 1, max_denominator=1000)),
    "rdp": st.builds(
        lambda low, more: Rdp({2: low, 5: low + more, 9: low + 2 * more}), AMOUNTS, AMOUNTS
    ),
}
MANY: st.SearchStrategy[list[StatedGuarantee]] = st.sampled_from(sorted(WORDS)).flatmap(
    lambda name: st.lists(WORDS[name], min_size=1, max_size=5)
)


@given(MANY, st.integers(0, 1000), st.integers(1, 5))
@settings(deadline=None)
def test_order_free_and_monotone(claims: list[StatedGuarantee], seed: int, rounds: int) -> None:
    shuffled = claims.copy()
    random.Random(seed).shuffle(shuffled)
    for theorem in (lambda all_: basic([(c, 1) for c in all_]), parallel):
        total = theorem(claims)
        assert theorem(shuffled) == total
        for claim in claims:
            assert all(a <= b for a, b in zip(amounts(claim), amounts(total.claim), strict=True))
        more = theorem([*claims, claims[0]])
        assert all(a <= b for a, b in zip(amounts(total.claim), amounts(more.claim), strict=True))
    # k rounds are k claims, and grouping changes nothing.
    first = claims[0]
    assert basic([(first, rounds)]) == basic([(first, 1)] * rounds)
    split = basic([(basic([(c, 1) for c in claims]).claim, 1), (first, rounds)])
    assert split == basic([*((c, 1) for c in claims), (first, rounds)])


@given(
    st.lists(st.fractions(Fraction(1, 10), 2, max_denominator=50), min_size=1, max_size=4),
    st.sampled_from(["1e-6", "1/20"]),
)
@settings(max_examples=20, deadline=None)
def test_sums_bound_what_really_happens(each: list[Fraction], delta: str) -> None:
    with mpmath.workdps(30):
        world = product([round_of(e)[1:3] for e in each])
        claims: list[StatedGuarantee] = [Pure(e) for e in each]
        for words in (
            claims,
            [as_zcdp(c) for c in claims],
            [as_rdp(c, [2, 8, 40]) for c in claims],
        ):
            total = basic([(word, 1) for word in words]).claim
            at = epsilon(as_approx(total, delta))
            assert hockey_stick(world, at) <= real(delta) * (1 + mpmath.mpf(10) ** -20)


def test_assumptions_survive_with_all_their_reasons() -> None:
    total = basic([(Assumed(ZCdp(1), "b"), 2), (ZCdp(2), 1), (Assumed(ZCdp(3), "a"), 1)]).claim
    assert total == Assumed(ZCdp(7), "a; b")
    assert parallel([Pure(1), Assumed(Pure(2), "why")]).claim == Assumed(Pure(2), "why")
    for found in (
        advanced(Assumed(Pure(1), "why"), 3, slack="1e-6"),
        optimal(Assumed(Pure(1), "why"), 3, "1e-6"),
    ):
        assert isinstance(found.claim, Assumed)
        assert found.claim.reason == "why"
        assert found.theorem
        assert found.adaptive


def test_refusals() -> None:
    other = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
    for mixed in (Pure(1, scope=USER), Pure(1, scope=other), Assumed(Pure(1, scope=USER), "why")):
        with pytest.raises(InvalidParameter, match=r"^scope"):
            basic([(Pure(1), 1), (mixed, 1)])
        with pytest.raises(InvalidParameter, match=r"^scope"):
            parallel([Pure(1), mixed])
    for unlike in (ZCdp(1), Approx(1, 0), Assumed(Rdp({2: 1}), "why")):
        with pytest.raises(InvalidParameter, match="one word"):
            basic([(Pure(1), 1), (unlike, 1)])
        with pytest.raises(InvalidParameter, match="one word"):
            parallel([Pure(1), unlike])
    with pytest.raises(InvalidParameter, match="share at least one order"):
        basic([(Rdp({2: 1}), 1), (Rdp({3: 1}), 1)])
    assert basic([(Rdp({2: 1, 3: 2}), 1), (Rdp({3: 1, 4: 9}), 2)]).claim == Rdp({3: 4})
    for rounds in (0, -1):
        with pytest.raises(InvalidParameter, match=r"^rounds"):
            basic([(Pure(1), rounds)])
        with pytest.raises(InvalidParameter, match=r"^rounds"):
            optimal(Pure(1), rounds, "1e-6")
        with pytest.raises(InvalidParameter, match=r"^rounds"):
            advanced(Pure(1), rounds, slack="1e-6")
    with pytest.raises(InvalidParameter, match=r"^parts"):
        basic([])
    with pytest.raises(InvalidParameter, match=r"^rounds"):
        optimal_delta(Pure(1), 10**9, 0)
    for word in (ZCdp(1), Rdp({2: 1})):
        with pytest.raises(InvalidParameter, match=r"^claim"):
            optimal(word, 2, "1e-6")
        with pytest.raises(InvalidParameter, match=r"^claim"):
            advanced(word, 2, slack="1e-6")
        with pytest.raises(InvalidParameter, match=r"^claim"):
            optimal_epsilon(word, 2, "1e-6")  # type: ignore[arg-type]  # what the types forbid
    for slack in (0, 1, "-1/2"):
        with pytest.raises(InvalidParameter, match=r"^slack"):
            advanced(Pure(1), 2, slack=slack)
    for delta in (-1, 2):
        with pytest.raises(InvalidParameter, match=r"^delta"):
            optimal_epsilon(Pure(1), 2, delta)
    with pytest.raises(InvalidParameter, match=r"^epsilon"):
        optimal_delta(Pure(1), 2, -1)
    with pytest.raises(NotDerived):
        optimal(Approx(1, "1e-3"), 10, "1e-6")
    with pytest.raises(NotDerived, match="beyond any number"):
        advanced(Pure(10**6), 5, slack="1e-6")
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    with pytest.raises(InvalidParameter, match=r"^claim"):
        basic([(curve, 1)])  # type: ignore[list-item]  # the twin passes what the types forbid
