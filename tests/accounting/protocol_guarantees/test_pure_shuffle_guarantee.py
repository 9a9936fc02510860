r"""Tests of pure DP by shuffling: certificates against every composition, pair and output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from flint import arb

from accounting.composition.compose import compose
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import PureBound
from accounting.protocol_guarantees import pure_shuffle_guarantee
from accounting.protocol_guarantees.plan_protocol import choose, protocol_guarantee
from accounting.protocol_guarantees.pure_shuffle_guarantee import plan_pure_shuffle, purity
from dpcore.laws.polya import PolyaDifference
from dpcore.protocols.shuffled_bits import PureShuffle
from tests.day_and_nightly import by_day
from tests.support.accounting.shuffled_views import worst_loss
from tests.support.dpcore.mutants import rewired
from tests.support.dpcore.refusals import refusal

TIGHT = 1e-9


def shuffle(
    users: int, precision: int, reach: int, cover: str, parties: int, scale: int
) -> PureShuffle:
    share = PolyaDifference(shape=Fraction(1, parties), scale=scale)
    return PureShuffle(users=users, precision=precision, reach=reach, cover=cover, share=share)


CERTIFIED = shuffle(12, 1, 20, "1/1000", 8, 1)
ALL_COUNTED = shuffle(12, 1, 20, "1/1000", 12, 1)
HARDLY_COVERED = shuffle(6, 1, 4, f"1/{2**100}", 3, 1)
SMALL = [
    CERTIFIED,
    ALL_COUNTED,
    HARDLY_COVERED,
    shuffle(6, 1, 10, "1/100", 4, 1),
    shuffle(4, 3, 9, "1/16", 3, 3),
    shuffle(5, 2, 12, "1/64", 3, 2),
    shuffle(3, 5, 2, "1/3", 1, 4),
    shuffle(1, 2, 3, "1/8", 1, 1),
    plan_pure_shuffle(users=2, epsilon=1),
    plan_pure_shuffle(users=3, epsilon=2),
]


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    purity.cache_clear()
    yield
    purity.cache_clear()


def bound(protocol: PureShuffle, honest: int | None = None) -> Fraction:
    return Fraction(purity(protocol, honest or protocol.users).epsilon(0).upper)


@by_day(4)
@pytest.mark.parametrize("protocol", SMALL)
def test_no_output_of_any_composition_exceeds_the_certificate(protocol: PureShuffle) -> None:
    assert worst_loss(protocol, protocol.users) <= bound(protocol) + TIGHT


@pytest.mark.parametrize("honest", [1, 2, 4])
def test_fewer_honest_users_hide_less(honest: int) -> None:
    protocol = SMALL[3]
    assert worst_loss(protocol, honest) <= bound(protocol, honest) + TIGHT
    assert bound(protocol, honest) >= bound(protocol)


def test_a_bound_of_a_shuffle_gives_totals_no_lower_bound() -> None:
    protocol = SMALL[3]
    total = compose((protocol_guarantee(protocol, protocol.users), 3))
    assert total.delta("1/2").lower is total.epsilon("1e-6").lower is None


def test_too_little_noise_and_too_few_covers_are_detected() -> None:
    # With the noise of every user counted, the true loss and its certificate are above 1.
    assert worst_loss(CERTIFIED, 12) <= 1 < worst_loss(ALL_COUNTED, 12)
    assert bound(CERTIFIED) == 1 < bound(ALL_COUNTED)
    # If all other values are at the ends of the range, the bound is attained.
    found = worst_loss(HARDLY_COVERED, 6)
    assert found > 2
    assert bound(HARDLY_COVERED) == pytest.approx(found, abs=1e-8)


def everybody(protocol: PureShuffle, others: int, jumps: int) -> Fraction:
    """A mutant that counts all users."""
    del others
    return AT_CENTRE(protocol, protocol.users - 1, jumps)


def covered(law: Any, *given: Any) -> Fraction:
    """A mutant that overestimates the covers."""
    return LOSS(replace(law, chance=law.chance * arb(2) ** 90), *given)


def alone(values: Any, width: int, pick: Any) -> Any:
    """A mutant that omits the neighbouring outputs."""
    del pick
    return values[width - 1 :]


AT_CENTRE, LOSS = pure_shuffle_guarantee._loss_at_centre, pure_shuffle_guarantee._loss


@pytest.mark.parametrize(
    ("name", "mutant", "case"),
    [
        ("_loss_at_centre", everybody, ALL_COUNTED),
        ("_loss", covered, HARDLY_COVERED),
        ("_sliding", alone, HARDLY_COVERED),
    ],
)
def test_a_mutant_of_the_bound_is_refuted(
    monkeypatch: pytest.MonkeyPatch, name: str, mutant: Any, case: PureShuffle
) -> None:
    true = worst_loss(case, case.users)
    assert bound(case) >= true - TIGHT
    monkeypatch.setattr(pure_shuffle_guarantee, name, mutant)
    purity.cache_clear()
    assert bound(case) < true - TIGHT


def test_the_mass_outside_a_narrow_window_is_added_to_the_bound() -> None:
    narrow = rewired(AT_CENTRE, _BEYOND=-1)
    forgetful = rewired(
        AT_CENTRE, _BEYOND=-1, _loss=lambda law, noise, covers, _: LOSS(law, noise, covers)
    )
    wide = AT_CENTRE(CERTIFIED, 7, 3)
    assert forgetful(CERTIFIED, 7, 3) < 2 * wide < narrow(CERTIFIED, 7, 3)


@pytest.mark.parametrize(
    ("users", "epsilon", "most_bits", "most_noise"),
    [
        (100, "1/2", 170, 1.08),
        (100, 2, 60, 1.07),
        (10**4, 2, 70, 1.002),
    ],
)
def test_plans_are_certified_short_and_near_discrete_laplace(
    users: int, epsilon: str, most_bits: int, most_noise: float
) -> None:
    plan = choose(instance="pure-shuffle", users=users, epsilon=epsilon)
    assert plan.meets
    assert plan.guarantee == PureBound(epsilon)
    assert isinstance(plan.protocol, PureShuffle)
    assert plan.protocol.bits_per_user <= most_bits
    one = PolyaDifference(shape=1, scale=1 / Fraction(epsilon)).variance
    square = plan.protocol.square_error(users)
    assert 1 < float(square / Fraction(one.lower)) < most_noise**2
    assert plan.protocol.missed(users) <= Fraction("1.01e-6")


def test_a_plan_that_cannot_be_certified_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal(lambda: purity(CERTIFIED, 13))
    refusal(lambda: purity(shuffle(12, 1, 3000, "1/1000", 8, 1), 12))
    refusal(lambda: purity("shuffle", 1))
    monkeypatch.setattr(
        "accounting.protocol_guarantees.plan_protocol.plan_pure_shuffle", lambda **_: ALL_COUNTED
    )
    with pytest.raises(NotDerived, match="certified only for Pure"):
        choose(instance="pure-shuffle", users=12, epsilon=1)
