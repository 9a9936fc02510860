"""Tests of events of dp-accounting, both ways: round trips, exported losses, the accountant."""

from __future__ import annotations

import json
import math
import sys
import unittest
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting import Approx, Assumed, NotDerived, PrivacyCurve, Pure, Rdp, ZCdp
from accounting.amplification.subsampling import FixedSizeSample, PoissonSample, TruncatedSample
from accounting.composition.compose import compose
from accounting.derive_guarantee import FixedSizeSampled, PoissonSampled
from accounting.descriptions.real_noise import Gaussian, Laplace
from accounting.guarantees.stated_guarantees import BoundedRange
from accounting.interop.from_dp_accounting import (
    _EVENTS,
    MissingExtra,
    event_from_json,
    event_to_json,
    from_dp_event,
)
from accounting.interop.to_dp_accounting import accountant, nodes, to_dp_event, to_pld
from accounting.pld.finite_pld import Listing
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Poisson
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, precision, round_down
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import hockey_stick, real
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import refusal

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)
GAUSSIAN = DiscreteGaussian(sigma_squared=400)
LAWS: list[tuple[Noise, int]] = [
    (GAUSSIAN, 1),
    (DiscreteGaussian(sigma_squared=9), 2),
    (DiscreteLaplace(scale=20), 3),
    (Skellam(variance=400), 1),
    (Skellam(variance=2), 2),
    (PolyaDifference(shape="9/10", scale=20), 1),
    (PolyaDifference(shape=3, scale=5), 2),
    (Poisson(mean=50), 1),
]
EPSILONS = (0.0, 1e-4, 0.05, 0.05 + 2**-40, 0.1, 1 / 3, 1.0)


def curve(noise: Noise, shift: int = 1, scope: Scope = ADD_REMOVE) -> PrivacyCurve:
    return PrivacyCurve(noise=noise, sensitivity=shift, scope=scope)


@pytest.fixture
def dp() -> Any:
    return pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")


@pytest.fixture
def events(dp: Any) -> Any:
    return dp.dp_event


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [name for name in sys.modules if name.startswith("dp_accounting.")]
    for name in ("dp_accounting", "dp_accounting.dp_event", *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (
        lambda: to_dp_event(Pure(1)),
        lambda: from_dp_event(object()),
        lambda: to_pld(Pure(1)),
        accountant,
    ):
        with pytest.raises(MissingExtra, match=r"dpcore\[interop\]"):
            call()


def small(kind: Callable[..., Any] = nodes, step: float = 0.1) -> bool:
    """Whether the split distribution exceeds the exact one, by mpmath, at and between its nodes."""
    noise, shift = DiscreteLaplace(scale=3), 4
    reach = 60
    with mpmath.workdps(40), precision(160):
        beta = mpmath.exp(-mpmath.mpf(1) / 3)
        front = (1 - beta) / (1 + beta)
        here = {k: front * beta ** abs(k) for k in range(-reach, reach + 1)}
        there = {k: front * beta ** abs(k + shift) for k in here}
        losses = np.array([(abs(k + shift) - abs(k)) / 3 for k in here])
        listed = Listing.above(losses + 1e-15, noise.pmf([*here]) * (1 + 1e-12), 1e-8)
        masses, infinite = kind(listed, step)
        rest = 1 - mpmath.fsum(here.values())
        for epsilon in (0.0, 0.1, 0.25, 0.3, 1.0, 1.3, 1.5):
            exact = rest + hockey_stick([(here[k], there[k]) for k in here], epsilon)
            found = mpmath.mpf(infinite) + mpmath.fsum(
                max(1 - mpmath.exp(epsilon - mpmath.mpf(key * step)), 0) * mpmath.mpf(mass)
                for key, mass in masses.items()
            )
            if not exact <= found <= exact * 2 + mpmath.mpf(10) ** -6:
                return False
    return True


def test_a_split_loss_dominates_and_mutants_do_not() -> None:
    # The largest loss, 4/3, lies near the lower node of its cell, and near the upper one.
    steps = (0.1, 0.0956, 0.013)
    assert all(small(step=step) for step in steps)
    for old, new in (
        ("+ mass * share\n", "+ mass * (1 - share)\n"),
        ("+ mass * share\n", "+ mass * 0\n"),
        ("_padded(hidden + moved)", "0.0"),
    ):
        mutant = mutated(nodes, old, new)
        assert not all(small(mutant, step) for step in steps)


def test_exported_masses_allow_for_the_rounding_of_later_sums() -> None:
    """A sum of 2^20 masses in floats has a rounding error; too fine an interval is refused."""
    least = {1: Fraction(3, 4), 2: Fraction(1, 4)}
    for kind, padded in ((nodes, True), (rewired(nodes, _padded=_down), False)):
        found, _ = kind(Listing(np.array([0.25, 0.5]), np.array([0.75, 0.25]), 0.0), 0.25)
        more = [Fraction(found[k]) >= mass * (1 + Fraction(1, 2**33)) for k, mass in least.items()]
        assert all(more) is padded
    assert "is too small" in refusal(lambda: to_pld(curve(Skellam(variance=2)), interval="1e-9"))
    refusal(lambda: to_pld(curve(GAUSSIAN), interval=0))


def _down(mass: Any) -> float:
    return round_down(max(Fraction(Enclosure.of(mass).lower), Fraction(0)))


@by_day(5)
@pytest.mark.parametrize(("noise", "shift"), LAWS, ids=repr)
@pytest.mark.parametrize("interval", ["1e-4", "1/128"])
def test_every_exported_distribution_dominates_its_noise(
    dp: Any, noise: Noise, shift: int, interval: str
) -> None:
    ours = curve(noise, shift)
    found = to_pld(ours, interval=interval)
    for epsilon in EPSILONS:
        exact = ours.delta(Fraction(epsilon))
        delta = Fraction(found.get_delta_for_epsilon(epsilon))
        assert delta >= exact.upper
        # Also tight: a loss moves by less than an interval, and by nothing if epsilon is a node.
        assert delta <= Fraction(exact.upper) * (1 + Fraction(1, 10**8)) + Fraction(interval) / 2
    assert found.get_delta_for_epsilon(0.0) <= float(ours.delta(0).upper) * (1 + 1e-5)


@pytest.mark.parametrize("rounds", [10, 1000])
def test_many_exported_rounds_are_close_to_the_exact_epsilon(dp: Any, rounds: int) -> None:
    for noise in (GAUSSIAN, Skellam(variance=400)):
        total = compose((curve(noise), rounds))
        truth = total.epsilon("1e-6")
        found = to_pld(total).get_epsilon_for_delta(1e-6)
        assert float(truth.upper) - 1e-9 < found < float(truth.upper) * (1 + 1e-4)
    # dp-accounting has a function for discrete Gaussian noise: it rounds losses up.
    theirs = dp.pld.privacy_loss_distribution.from_discrete_gaussian_mechanism(20, sensitivity=1)
    assert theirs.self_compose(rounds).get_epsilon_for_delta(1e-6) > found


def test_claims_and_lists_are_exported_as_distributions(dp: Any) -> None:
    half = to_pld(Approx("1/2", "1/100", scope=ADD_REMOVE))
    assert 0.01 <= half.get_delta_for_epsilon(0.5) < 0.0101
    # Randomised response at 1/2 has total variation distance tanh(1/4).
    apart = to_pld(Pure("1/2")).get_delta_for_epsilon(0.0)
    assert 0 <= apart - float(mpmath.tanh(mpmath.mpf(1) / 4)) < 1e-8
    box = PrivacyCurve(noise=GAUSSIAN, sensitivity=Sensitivity.box((1, 2)), scope=ADD_REMOVE)
    total = compose(box, (curve(DiscreteLaplace(scale=20)), 3))
    mixed, exact = to_pld(total, interval="1e-3"), total.delta("1/10", "1e-6").lower
    assert exact is not None
    assert exact <= mixed.get_delta_for_epsilon(0.1) <= float(exact) + 1e-5
    assert to_pld(Pure(0)).get_delta_for_epsilon(0.0) == 0
    for refused in (ZCdp("1/800"), Rdp({2: 1}), Assumed(Pure(1), "a data sheet")):
        refusal(partial(to_pld, refused), NotDerived)
    with pytest.raises(NotDerived):
        to_pld(compose(Assumed(Pure(1), "a data sheet"), curve(GAUSSIAN, scope=Scope())))


def test_exported_events_state_no_less_loss(events: Any) -> None:
    laplace = curve(DiscreteLaplace(scale=20), 3)
    assert to_dp_event(laplace) == events.DiscreteLaplaceDpEvent(0.05, 3)
    assert to_dp_event(Pure("1/2")) == events.DiscreteLaplaceDpEvent(0.5, 1)
    assert to_dp_event(Pure(0)) == events.NoOpDpEvent()
    assert to_dp_event(ZCdp("1/800")) == events.ZCDpEvent(0.00125)
    assert to_dp_event(BoundedRange(1)) == events.ZCDpEvent(0.125)
    assert to_dp_event(curve(GAUSSIAN)) == events.ZCDpEvent(0.00125)
    skellam = curve(Skellam(variance=4))
    assert Fraction(to_dp_event(skellam).rho) >= skellam.zcdp().upper
    listed = to_dp_event(compose((laplace, 7), curve(GAUSSIAN)))
    seven = events.SelfComposedDpEvent(to_dp_event(laplace), 7)
    assert listed == events.ComposedDpEvent([seven, events.ZCDpEvent(0.00125)])
    sampled = PoissonSampled(curve=laplace, rate="1/3")
    event = to_dp_event(sampled)
    assert event.event == events.DiscreteLaplaceDpEvent(0.05, 3)
    assert Fraction(event.sampling_probability) >= Fraction(1, 3)
    replaced = curve(DiscreteLaplace(scale=20), scope=Scope())
    fixed = FixedSizeSampled(curve=replaced, sample=3, population=10)
    inner = events.DiscreteLaplaceDpEvent(0.05, 1)
    assert to_dp_event(fixed) == events.SampledWithoutReplacementDpEvent(10, 3, inner)
    # No round trip lowers epsilon.
    for total in (compose(curve(GAUSSIAN), (skellam, 2)), compose(sampled), compose((laplace, 3))):
        before, after = ends(total.epsilon("1e-6")), from_dp_event(to_dp_event(total))
        assert after.epsilon("1e-6").upper >= before.lower
    for refused in (
        Approx(1, "1e-6"),
        Rdp({2: 1}),
        Assumed(Pure(1), "a data sheet"),
        compose(Assumed(Pure(1), "a data sheet")),
        PoissonSampled(curve=curve(GAUSSIAN), rate="1/3"),
    ):
        refusal(partial(to_dp_event, refused), NotDerived)


def test_imported_events_have_the_expected_guarantees(events: Any) -> None:
    laplace = events.DiscreteLaplaceDpEvent
    read: list[tuple[Any, Any]] = [
        (events.NoOpDpEvent(), Pure(0)),
        (events.NonPrivateDpEvent(), Approx(0, 1)),
        (events.GaussianDpEvent(0.0), Approx(0, 1)),
        (laplace(0.0, 1), Approx(0, 1)),
        (events.ZCDpEvent(0.125), ZCdp("1/8")),
    ]
    for scope, moves in ((ADD_REMOVE, 1), (Scope(), 2)):
        for event, claim in read:
            assert from_dp_event(event, scope).parts == ((replace(claim, scope=scope), 1),)
        for event, noise in (
            (events.GaussianDpEvent(20.0), Gaussian(sigma=20)),
            (events.LaplaceDpEvent(4.0), Laplace(scale=4)),
        ):
            read_as = from_dp_event(event, scope)
            assert read_as.parts == ((RealCurve(noise=noise, sensitivity=moves, scope=scope), 1),)
            assert "floating-point" in read_as.assumptions[0]
            assert to_dp_event(from_dp_event(event, ADD_REMOVE)) == event
        exact = from_dp_event(laplace(0.05, 3), scope)
        twenty, l1 = DiscreteLaplace(scale=20), Sensitivity.l1(3 * moves)
        assert exact.parts == ((PrivacyCurve(noise=twenty, sensitivity=l1, scope=scope), 1),)
        assert not exact.assumptions
    # A record is in one leaf of one tree of 8 steps: in 4 sums, moved by 2.
    tree = from_dp_event(events.SingleEpochTreeAggregationDpEvent(8.0, [3, 8]), Scope())
    alone = RealCurve(noise=Gaussian(sigma=8), sensitivity=Sensitivity.l2_squared(16))
    assert tree.parts == ((alone, 1),)
    assert "claimed" in from_dp_event(events.ZCDpEvent(0.125)).assumptions[0]
    points: Any = from_dp_event(events.ZCDpEvent(0.125, 0.5)).parts[0][0]
    assert dict(points.points)[Fraction(2)] == Fraction(3, 4)
    # xi is the same at every order, so it is added to the best one; the grid is fine enough.
    for rho, xi, delta in ((0.1, 0.2, "1e-6"), (1e-5, 1e-3, "1e-5"), (2.0, 0.5, "1e-9")):
        best = xi + ZCdp(rho).epsilon(delta).upper_float
        told = from_dp_event(events.ZCDpEvent(rho, xi)).epsilon(delta).upper_float
        assert best * (1 - 1e-4) < told < best * 1.001


def test_imported_lists_and_samples_keep_their_structure(events: Any) -> None:
    laplace, times = events.DiscreteLaplaceDpEvent(0.05, 1), events.SelfComposedDpEvent
    poisson, cut = events.PoissonSampledDpEvent, events.TruncatedSubsampledGaussianDpEvent
    none = times(events.GaussianDpEvent(1.0), 0)
    total = from_dp_event(events.ComposedDpEvent([times(laplace, 5), laplace, none]))
    assert total.parts[0][1] == 6
    assert isinstance(from_dp_event(poisson(0.25, laplace)).parts[0][0], PoissonSample)
    fixed = from_dp_event(events.SampledWithoutReplacementDpEvent(10, 3, laplace), Scope())
    assert isinstance(fixed.parts[0][0], FixedSizeSample)
    nothing = [poisson(0.0, laplace), events.ComposedDpEvent([])]
    nothing += [cut(4, 0.0, 2, 1.0), cut(0, 0.5, 2, 1.0), cut(4, 0.5, 0, 1.0)]
    for event in nothing:
        assert from_dp_event(event).parts == ((Pure(0, scope=ADD_REMOVE), 1),)
    for refused in (
        events.UnsupportedDpEvent(),
        poisson(0.25, times(laplace, 2)),
        poisson(0.25, events.ZCDpEvent(0.5)),
        events.SingleEpochTreeAggregationDpEvent(1.0, 8),
        events.RandomizedResponseDpEvent(0.5, 2),
        events.SampledWithReplacementDpEvent(10, 3, laplace),
        events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 100.5], [0.5, 0.25, 0.25]),
    ):
        refusal(partial(from_dp_event, refused), NotDerived)
    mixture = events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5])
    refusal(lambda: from_dp_event(mixture, Scope()), NotDerived)
    for invalid in (
        "an event",
        events.GaussianDpEvent(-1.0),
        cut(4, 1.5, 2, 1.0),
        cut(-4, 0.5, 2, 1.0),
        cut(4, 0.5, 2, -1.0),
        *(
            events.MixtureOfGaussiansDpEvent(1.0, shifts, chances)
            for shifts, chances in (
                ([0.0, -1.0], [0.5, 0.5]),
                ([0.0, 1.0], [0.5]),
                ([], []),
                ([0.0, 1.0], [0.3, 0.3]),
                ([0.0, 1.0], [1.5, -0.5]),
                ([0.0, math.nan], [0.5, 0.5]),
            )
        ),
    ):
        refusal(partial(from_dp_event, invalid))


@pytest.mark.parametrize(("parameter", "buckets"), [(0.5, 2), (0.1, 10), (1.0, 3), (0.3, 1)])
def test_imported_randomised_response_has_its_curve(
    events: Any, parameter: float, buckets: int
) -> None:
    event = events.RandomizedResponseDpEvent(parameter, buckets)
    ((found, _),) = from_dp_event(event, Scope()).parts
    with mpmath.workdps(40):
        p = real(Fraction(str(parameter)))
        truth = mpmath.log((1 - p + p / buckets) / (p / buckets)) if buckets > 1 else 0
        assert 0 <= real(Fraction(found.pure().upper)) - truth < mpmath.mpf(10) ** -18


def test_a_lower_bound_is_that_of_the_event_and_not_of_its_epsilon(events: Any) -> None:
    # With ten buckets delta(0) is p_true - p_other = 1/2; a claim of the same epsilon implies 5/6.
    response = from_dp_event(events.RandomizedResponseDpEvent(0.5, 10), Scope())
    half = ends(response.delta(0))
    assert half.lower <= Fraction(1, 2) <= half.upper < Fraction(1, 2) + Fraction(1, 10**6)
    assert response.epsilon("1/2").lower == 0
    # Without noise a unit is revealed if it is kept: for 4 units in batches of 2, beside 0 to 3
    # others, in 1/2 (1/8 + 3/8 + 3/8 2/3 + 1/8 1/2) of the rounds.
    for units, size, seen in ((2, 1, "3/8"), (2, 2, "1/2"), (4, 2, "13/32")):
        bare = events.TruncatedSubsampledGaussianDpEvent(units, 0.5, size, 0.0)
        found = ends(from_dp_event(bare).delta(1))
        assert found.lower <= Fraction(seen) <= found.upper < Fraction(seen) + Fraction(1, 10**15)


def test_the_accountant_of_dpcore_satisfies_their_interface(dp: Any, events: Any) -> None:
    ours = accountant()
    assert isinstance(ours, dp.PrivacyAccountant)
    assert (ours.get_epsilon(1e-6), ours.get_delta(0.0)) == (0.0, 0.0)
    laplace = events.DiscreteLaplaceDpEvent(0.05, 1)
    assert ours.compose(laplace, 400) is ours
    ours.compose(events.SelfComposedDpEvent(laplace, 600))
    truth = compose((curve(DiscreteLaplace(scale=20)), 1000))
    assert ours.get_epsilon(1e-6) == truth.epsilon("1e-6").upper_float
    assert ours.get_delta(8.0) == truth.delta(8).upper_float
    assert 8.28357334 < ours.get_epsilon(1e-6) < 8.28357334 * (1 + 1e-6)
    assert not ours.assumptions
    theirs = dp.pld.PLDAccountant().compose(ours.ledger)
    assert theirs.get_epsilon(1e-6) == pytest.approx(ours.get_epsilon(1e-6), rel=1e-5)
    ours.compose(events.GaussianDpEvent(20.0))
    assert "floating-point" in ours.assumptions[0]
    assert not ours.supports(events.UnsupportedDpEvent())
    with pytest.raises(dp.UnsupportedEventError):
        ours.compose(events.UnsupportedDpEvent())
    relations = dp.NeighboringRelation
    assert accountant(relations.REPLACE_ONE).supports(events.RandomizedResponseDpEvent(0.5, 2))
    assert "REPLACE_ONE" in refusal(lambda: accountant(relations.REPLACE_SPECIAL))


def test_randomised_response_is_not_exported(dp: Any, events: Any) -> None:
    """dp-accounting charges many rounds as one (0.6); dpcore adds them, so export is refused."""
    event, relation = events.RandomizedResponseDpEvent(0.5, 2), dp.NeighboringRelation.REPLACE_ONE
    ours = accountant(relation).compose(event, 100).get_epsilon(1e-6)
    assert ours > 30
    theirs = dp.pld.PLDAccountant(relation).compose(event, 100).get_epsilon(1e-6)
    if theirs < 2:
        assert "Response" not in repr(to_dp_event(compose((Pure(1), 100))))


@by_day(1)
@pytest.mark.parametrize("relation", ["REPLACE_ONE", "ADD_OR_REMOVE_ONE"])
def test_sampled_gaussian_events_agree_with_dp_accounting(
    dp: Any, events: Any, relation: str
) -> None:
    """The commonest event: dp-accounting's upper bound at a grid of 1e-3 is slightly larger."""
    near, replaced = dp.NeighboringRelation[relation], relation == "REPLACE_ONE"
    sampled = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0))
    event = events.SelfComposedDpEvent(sampled, 1000)
    total = from_dp_event(event, Scope() if replaced else ADD_REMOVE)
    ours = ends(total.epsilon("1e-6"))
    assert ours.width <= ours.upper / 10**6
    theirs = dp.pld.PLDAccountant(near, 1e-3).compose(event).get_epsilon(1e-6)
    assert ours.lower <= theirs <= float(ours.upper) * (1 + 1e-3)
    added = from_dp_event(event)
    assert to_dp_event(added) == event
    # The mutant: composing the pair with and without the unit gives less than the true loss.
    assert not replaced or added.epsilon("1e-6", "1e-4").upper < ours.lower
    # An unsampled event has its own curve instead of a zCDP claim.
    alone = events.GaussianDpEvent(2.0)
    ours_alone = accountant().compose(alone).get_epsilon(1e-5)
    assert ours_alone <= dp.pld.PLDAccountant().compose(alone).get_epsilon(1e-5)
    assert ours_alone < ZCdp("1/8").epsilon("1e-5").upper_float


def test_events_within_a_sample_are_imported(events: Any) -> None:
    gaussian, poisson = events.GaussianDpEvent, events.PoissonSampledDpEvent
    # Two vectors released together are one vector: 1/2^2 + 1/2^2 = 1/sqrt(2)^2.
    both = from_dp_event(poisson(0.1, events.SelfComposedDpEvent(gaussian(2.0), 2)))
    one = RealCurve(
        noise=Gaussian(sigma=2), sensitivity=Sensitivity.l2_squared(2), scope=ADD_REMOVE
    )
    expected = PoissonSampled(curve=one, rate="1/10").epsilon("1e-5")
    assert float(both.epsilon("1e-5").upper) == pytest.approx(float(expected.upper), rel=1e-12)
    # Without noise a sampled unit is revealed: delta is the rate.
    seen = from_dp_event(poisson(0.1, events.NonPrivateDpEvent()))
    assert seen.parts == ((Approx(0, "1/10", scope=ADD_REMOVE), 1),)
    assert from_dp_event(poisson(0.1, events.NoOpDpEvent())).epsilon(0).upper == 0
    assert "sampling_probability" in refusal(lambda: from_dp_event(poisson(1.5, gaussian(1.0))))


def test_imported_truncated_batches_agree_with_dp_accounting(dp: Any, events: Any) -> None:
    """dp-accounting's result for the event is at least ours, and equal under replacement."""
    cut, relations = events.TruncatedSubsampledGaussianDpEvent, dp.NeighboringRelation
    many = events.SelfComposedDpEvent(cut(60, 0.1, 10, 2.0), 50)
    both = events.ComposedDpEvent([many, cut(3, 0.5, 2, 1.0)])
    for relation, most in ((relations.ADD_OR_REMOVE_ONE, 1.1), (relations.REPLACE_ONE, 1 + 1e-4)):
        ours = accountant(relation).compose(both).get_epsilon(1e-6)
        theirs = dp.pld.PLDAccountant(relation, 1e-3).compose(both).get_epsilon(1e-6)
        assert ours * (1 - 1e-6) < theirs < ours * most
    total = from_dp_event(both)
    assert to_dp_event(total) == both
    plain = event_from_json(json.dumps(event_to_json(both)))
    assert (repr(plain), from_dp_event(plain).parts) == (repr(both), total.parts)
    assert from_dp_event(cut(4, 1.0, 4, 0.0)).parts == ((Approx(0, 1, scope=ADD_REMOVE), 1),)
    source: Any = from_dp_event(both, Scope()).parts[0][0]
    other = replace(source.scheme, rate="1/3")
    added = replace(source.description, scheme=other, relation=Relation.ADD_REMOVE)
    for refused in (source, TruncatedSample(description=added)):
        refusal(partial(to_dp_event, refused), NotDerived)


def test_every_event_of_the_library_is_known(events: Any) -> None:
    own = (k for k in events.DpEvent.__subclasses__() if k.__module__ == events.__name__)
    kinds = {kind.__name__: kind for kind in own}
    fields = {
        name: tuple(each.name for each in getattr(kind, "__attrs_attrs__", ()))
        for name, kind in kinds.items()
    }
    assert fields == _EVENTS


def test_imported_mixtures_of_gaussians_agree_with_published_values(dp: Any, events: Any) -> None:
    """The examples of dp-accounting's own tests, with published epsilon 17.193115."""
    mixture = events.MixtureOfGaussiansDpEvent
    first = mixture(1.0, [0.0, 1.0, 2.0], [0.2, 0.6, 0.2])
    second = mixture(2.0, [0.0, 2.0, 3.0], [0.33, 0.34, 0.33])
    ours = accountant().compose(first, 3).compose(second, 2)
    assert ours.get_epsilon(1e-6) == pytest.approx(17.193115, abs=1e-4)
    coarse = dp.pld.PLDAccountant(value_discretization_interval=1e-2)
    theirs = coarse.compose(first).get_epsilon(1e-6)
    found = ends(from_dp_event(first).epsilon("1e-6"))
    assert found.lower <= theirs
    assert found.upper_float == pytest.approx(theirs, rel=1e-2)
    # Shifts on a grid of 1/10, none of them 0; 1 - 2 phi(-s/2) of two Gaussians a shift s apart.
    shifted = from_dp_event(mixture(1.0, [0.5, 0.7], [0.25, 0.75])).delta(0)
    halves = (math.erf(0.25 / math.sqrt(2)), math.erf(0.35 / math.sqrt(2)))
    assert halves[0] < shifted.upper_float < halves[1]
    # The floats sum to slightly less than 1: the missing probability is given to the largest shift.
    nearly = from_dp_event(mixture(1.0, [0.0, 1.0], [0.3, 0.6999999999]))
    assert nearly.parts == from_dp_event(mixture(1.0, [0.0, 1.0], [0.3, 0.7])).parts
    assert from_dp_event(mixture(1.0, [0.0], [1.0])).epsilon(0).upper == 0
    seen = from_dp_event(mixture(0.0, [0.0, 2.0], [0.75, 0.25]))
    assert seen.parts == ((Approx(0, "1/4", scope=ADD_REMOVE), 1),)


class Mutant:
    """A mutant of the accountant that names the whole event when a part of it is refused."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:  # required method
        found = self._ours._maybe_compose(event, count, do_compose)
        return None if found is None else self._ours.CompositionErrorDetails(event, "refused")


def outcome(make: Any) -> unittest.TestResult:
    contract: Any = import_module("dp_accounting.privacy_accountant_test")

    class Ours(contract.PrivacyAccountantTest):  # type: ignore[misc]  # of their wheel
        def _make_test_accountants(self) -> list[Any]:
            return list(make())

    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Ours).run(found)
    return found


def test_the_contract_tests_of_dp_accounting_pass_and_detect_a_wrong_event(dp: Any) -> None:
    relations = dp.NeighboringRelation
    both = relations.ADD_OR_REMOVE_ONE, relations.REPLACE_ONE
    found = outcome(lambda: [accountant(each) for each in both])
    assert found.testsRun >= 13
    assert (found.failures, found.errors, found.skipped) == ([], [], [])
    found = outcome(lambda: [Mutant(accountant(each)) for each in both])
    assert found.failures or found.errors
