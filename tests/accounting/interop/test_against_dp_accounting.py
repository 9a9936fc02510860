"""Tests of `import_dp_event`: Gaussian, sampled and mixture events, the accountant interface."""

from __future__ import annotations

import json
import math
import unittest
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from accounting import Approx, NotDerived, Pure, ZCdp
from accounting.amplification.truncated_poisson import TruncatedSample
from accounting.derive_guarantee import PoissonSampled
from accounting.descriptions.real_noise import Gaussian
from accounting.interop.event_json import _EVENTS, event_from_json, event_to_json
from accounting.interop.export_dp_event import accountant, to_dp_event
from accounting.interop.import_dp_event import from_dp_event
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity
from tests.support.accounting.bound_ends import ends
from tests.support.dpcore.refusals import refusal

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def test_sampled_gaussian_events_against_theirs(dp: Any, events: Any) -> None:
    """The commonest event: dp-accounting's upper bound at a grid of 1e-4 is slightly larger."""
    event = events.SelfComposedDpEvent(
        events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0)), 1000
    )
    ours = ends(from_dp_event(event).epsilon("1e-6"))
    theirs = dp.pld.PLDAccountant().compose(event).get_epsilon(1e-6)
    assert ours.lower <= theirs <= float(ours.upper) * (1 + 1e-3)
    assert to_dp_event(from_dp_event(event)) == event
    # An unsampled event has its own curve instead of a zCDP claim.
    alone = events.GaussianDpEvent(2.0)
    ours_alone = accountant().compose(alone).get_epsilon(1e-5)
    assert ours_alone <= dp.pld.PLDAccountant().compose(alone).get_epsilon(1e-5)
    assert ours_alone < ZCdp("1/8").epsilon("1e-5").upper_float


def test_what_a_sample_may_hold(events: Any) -> None:
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


def test_batches_that_are_cut(dp: Any, events: Any) -> None:
    """dp-accounting's result for the event is at least ours, and equal under replacement."""
    cut = events.TruncatedSubsampledGaussianDpEvent
    both = events.ComposedDpEvent([cut(4, 0.5, 2, 1.0), cut(3, 0.5, 2, 1.0)])
    relations = dp.NeighboringRelation
    for relation, scope, most in (
        (relations.ADD_OR_REMOVE_ONE, ADD_REMOVE, 1.1),
        (relations.REPLACE_ONE, Scope(), 1 + 1e-4),
    ):
        ours = from_dp_event(both, scope).epsilon("1e-6")
        theirs = dp.pld.PLDAccountant(relation, 1e-3).compose(both).get_epsilon(1e-6)
        assert ours.upper_float * (1 - 1e-6) < theirs < ours.upper_float * most
        assert accountant(relation).compose(both).get_epsilon(1e-6) == ours.upper_float
        # The mutant that must be rejected: a dataset that never fills a batch.
        uncut = events.ComposedDpEvent([cut(2, 0.5, 2, 1.0), cut(2, 0.5, 2, 1.0)])
        assert from_dp_event(uncut, scope).epsilon("1e-6").upper < ours.upper
    assert to_dp_event(from_dp_event(both)) == both
    plain = event_from_json(json.dumps(event_to_json(both)))
    assert repr(plain) == repr(both)
    assert from_dp_event(plain).parts == from_dp_event(both).parts
    # Events that sample nothing, and events without noise.
    for nothing in (cut(4, 0.0, 2, 1.0), cut(0, 0.5, 2, 1.0), cut(4, 0.5, 0, 1.0)):
        assert from_dp_event(nothing).parts == ((Pure(0, scope=ADD_REMOVE), 1),)
    assert from_dp_event(cut(4, 1.0, 4, 0.0)).parts == ((Approx(0, 1, scope=ADD_REMOVE), 1),)
    (source, _), *_ = from_dp_event(both, Scope()).parts
    assert isinstance(source, TruncatedSample)
    other = replace(source.scheme, rate="1/3")
    added = replace(source.description, scheme=other, relation=Relation.ADD_REMOVE)
    for refused in (source, TruncatedSample(description=added)):
        with pytest.raises(NotDerived):
            to_dp_event(refused)
    for bad in (cut(4, 1.5, 2, 1.0), cut(-4, 0.5, 2, 1.0), cut(4, 0.5, 2, -1.0)):
        with pytest.raises(InvalidParameter):
            from_dp_event(bad)


def test_the_events_are_those_of_the_library(events: Any) -> None:
    own = (k for k in events.DpEvent.__subclasses__() if k.__module__ == events.__name__)
    kinds = {kind.__name__: kind for kind in own}
    fields = {
        name: tuple(each.name for each in getattr(kind, "__attrs_attrs__", ()))
        for name, kind in kinds.items()
    }
    assert fields == _EVENTS


def test_a_tree_of_one_epoch(events: Any) -> None:
    """A record is in one leaf of one tree of 8 steps: in 4 sums, moved by 2."""
    tree = from_dp_event(events.SingleEpochTreeAggregationDpEvent(8.0, [3, 8]), Scope())
    noise = Gaussian(sigma=8)
    alone = RealCurve(noise=noise, sensitivity=Sensitivity.l2_squared(16))
    assert tree.parts == ((alone, 1),)


def test_mixtures_of_gaussians(dp: Any, events: Any) -> None:
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
    assert from_dp_event(mixture(0.0, [0.0, 2.0], [0.75, 0.25])).parts == (
        (Approx(0, "1/4", scope=ADD_REMOVE), 1),
    )


@pytest.mark.parametrize(
    ("shifts", "chances", "kind"),
    [
        ([0.0, -1.0], [0.5, 0.5], InvalidParameter),
        ([0.0, 1.0], [0.5], InvalidParameter),
        ([], [], InvalidParameter),
        ([0.0, 1.0], [0.3, 0.3], InvalidParameter),
        ([0.0, 1.0], [1.5, -0.5], InvalidParameter),
        ([0.0, float("nan")], [0.5, 0.5], InvalidParameter),
        ([0.0, 1.0, 100.5], [0.5, 0.25, 0.25], NotDerived),
    ],
    ids=str,
)
def test_mixtures_that_are_none(
    events: Any, shifts: list[float], chances: list[float], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        from_dp_event(events.MixtureOfGaussiansDpEvent(1.0, shifts, chances))


def test_a_mixture_says_nothing_of_a_record_replaced(events: Any) -> None:
    event = events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5])
    refusal(lambda: from_dp_event(event, Scope(relation=Relation.REPLACE)), NotDerived)


contract = pytest.importorskip(
    "dp_accounting.privacy_accountant_test", reason="the extra 'interop' is not installed"
)


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
    class Ours(contract.PrivacyAccountantTest):  # type: ignore[misc,name-defined]  # of their wheel
        def _make_test_accountants(self) -> list[Any]:
            return list(make())

    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Ours).run(found)
    return found


def both() -> list[Any]:
    relations = import_module("dp_accounting").NeighboringRelation
    return [accountant(relations.ADD_OR_REMOVE_ONE), accountant(relations.REPLACE_ONE)]


def test_their_contract_holds_under_both_relations() -> None:
    found = outcome(both)
    assert found.testsRun >= 13
    assert (found.failures, found.errors, found.skipped) == ([], [], [])


def test_an_accountant_that_hides_the_offender_is_seen() -> None:
    found = outcome(lambda: [Mutant(each) for each in both()])
    assert found.failures or found.errors
