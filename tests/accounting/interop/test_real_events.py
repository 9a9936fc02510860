"""Gaussian events of dp-accounting, sampled or not, as curves of noise on the reals."""

from __future__ import annotations

from typing import Any

import pytest

from accounting import Approx, ZCdp
from accounting.interop.events import accountant, from_dp_event, to_dp_event
from accounting.reals.noise import Gaussian
from accounting.release.real_curve import RealCurve
from accounting.release.subsampling import PoissonSampled
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


@pytest.fixture
def dp() -> Any:
    return pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")


@pytest.fixture
def events(dp: Any) -> Any:
    return dp.dp_event


def test_sampled_gaussian_events_against_theirs(dp: Any, events: Any) -> None:
    """The commonest event there is: theirs is an upper end, at a grid of 1e-4 a little above."""
    event = events.SelfComposedDpEvent(
        events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0)), 1000
    )
    ours = from_dp_event(event).epsilon("1e-6")
    theirs = dp.pld.PLDAccountant().compose(event).get_epsilon(1e-6)
    assert ours.lower is not None
    assert ours.lower <= theirs <= float(ours.upper) * (1 + 1e-3)
    assert to_dp_event(from_dp_event(event)) == event
    # An unsampled event is its own curve, not a zCDP claim.
    alone = events.GaussianDpEvent(2.0)
    ours_alone = accountant().compose(alone).get_epsilon(1e-5)
    assert ours_alone <= dp.pld.PLDAccountant().compose(alone).get_epsilon(1e-5)
    assert ours_alone < ZCdp("1/8").epsilon("1e-5").upper_float


@pytest.mark.nightly
def test_sampled_gaussian_events_on_a_fine_grid(dp: Any, events: Any) -> None:
    """Their upper end at a grid of 1e-5 lies above our lower one, and within its stated error."""
    event = events.SelfComposedDpEvent(
        events.PoissonSampledDpEvent(256 / 60000, events.GaussianDpEvent(1.1)), 14062
    )
    ours = from_dp_event(event).epsilon("1e-5")
    theirs = dp.pld.PLDAccountant(value_discretization_interval=1e-5).compose(event)
    assert ours.lower is not None
    assert ours.lower <= theirs.get_epsilon(1e-5) <= float(ours.upper) * (1 + 1e-5)


def test_what_a_sample_may_hold(events: Any) -> None:
    gaussian, poisson = events.GaussianDpEvent, events.PoissonSampledDpEvent
    # Two vectors at once are one vector: 1/2^2 + 1/2^2 = 1/sqrt(2)^2.
    both = from_dp_event(poisson(0.1, events.SelfComposedDpEvent(gaussian(2.0), 2)))
    one = RealCurve(
        noise=Gaussian(sigma=2), sensitivity=Sensitivity.l2_squared(2), scope=ADD_REMOVE
    )
    expected = PoissonSampled(curve=one, rate="1/10").epsilon("1e-5")
    assert float(both.epsilon("1e-5").upper) == pytest.approx(float(expected.upper), rel=1e-12)
    # Whoever is sampled is seen: delta is the rate.
    seen = from_dp_event(poisson(0.1, events.NonPrivateDpEvent()))
    assert seen.parts == ((Approx(0, "1/10", scope=ADD_REMOVE), 1),)
    assert from_dp_event(poisson(0.1, events.NoOpDpEvent())).epsilon(0).upper == 0
    with pytest.raises(InvalidParameter, match="sampling_probability"):
        from_dp_event(poisson(1.5, gaussian(1.0)))


def test_a_tree_of_one_epoch(events: Any) -> None:
    """A record is in one leaf of one tree of 8 steps: in 4 sums, moved by 2."""
    tree = from_dp_event(events.SingleEpochTreeAggregationDpEvent(8.0, [3, 8]), Scope())
    noise = Gaussian(sigma=8)
    alone = RealCurve(noise=noise, sensitivity=Sensitivity.l2_squared(16))
    assert tree.parts == ((alone, 1),)
