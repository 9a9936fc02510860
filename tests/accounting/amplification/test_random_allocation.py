r"""Tests of random allocation against quadrature over all rounds, and mutants."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from accounting import compose
from accounting.pld import allocation_loss
from accounting.pld.allocation_loss import Side, renyi_of_allocation
from dpcore.mechanism import Sensitivity
from dpcore.numbers.enclosure import precision
from tests.day_and_nightly import by_day, effort
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.dpcore.mutants import mutated


def epoch_of(sigma: Any, rounds: int, picks: int = 1) -> Any:
    return releases.allocated(curve=releases.gaussian(sigma), rounds=rounds, picks=picks)


def ratio(sigma: float, rounds: int, picks: int = 1) -> tuple[Any, Any]:
    r"""Return the density ratio with the unit in ``picks`` random rounds, with weights."""
    x, weights = np.polynomial.hermite_e.hermegauss(90)
    each = np.exp(x / sigma - 1 / (2 * sigma**2))
    axes, chances = np.ix_(*[each] * rounds), np.ix_(*[weights / weights.sum()] * rounds)
    chosen = list(itertools.combinations(axes, picks))
    total = sum(math.prod(rows, start=np.float64(1)) for rows in chosen)
    return total / len(chosen), math.prod(chances, start=np.float64(1))


def renyi(sigma: float, rounds: int, order: int, picks: int = 1) -> list[float]:
    r"""Return the divergences of both directions."""
    values, chances = ratio(sigma, rounds, picks)
    moments = (float((chances * values**power).sum()) for power in (order, 1 - order))
    return [math.log(each) / (order - 1) for each in moments]


@by_day(2)
@pytest.mark.parametrize(("sigma", "rounds"), [("1", 1), ("1", 2), ("2", 3), ("1", 3)])
def test_orders_of_both_directions(sigma: str, rounds: int) -> None:
    for order in (2, 3, 5):
        truth = max(renyi(float(sigma), rounds, order))
        near, found, far = (
            float(renyi_of_allocation(Fraction(sigma) ** 2, max(t, 1), order))
            for t in (rounds - 1, rounds, rounds + 1)
        )
        assert truth <= found * (1 + 1e-12)
        assert found == pytest.approx(truth, rel=2e-3)
        # Another number of rounds gives another value.
        assert far != pytest.approx(found, rel=2e-2)
        assert rounds == 1 or near != pytest.approx(found, rel=2e-2)


def test_the_direction_of_a_removed_unit_can_be_the_worse_one() -> None:
    r"""Wide noise and small orders: the direction without the unit is slightly larger."""
    with precision(128):
        there = float(allocation_loss._rising(Fraction(16), 1000, 4).log())
        gone = float(allocation_loss._falling(Fraction(16), 1000, 3).log())
    assert gone == pytest.approx(there, rel=1e-3)
    found = float(renyi_of_allocation(Fraction(16), 1000, 4)) * 3
    assert found == pytest.approx(max(there, gone), rel=1e-9)
    # To first order in 1/t, 3 D_4 = log E[W^4] is 6 Var[W], and Var[W] = (e^(1/v) - 1)/t.
    assert found == pytest.approx((math.exp(1 / 16) - 1) * 6 / 1000, rel=1e-2)


# At sigma 1/5 ratios reach e^60, whose 13th power is not a float.
@pytest.mark.parametrize(
    ("sigma", "epsilons"), [("1", ("1/2", "3/2", "3")), ("2", ("1/4",)), ("1/5", ("1",))]
)
def test_delta_of_two_rounds_encloses_the_hockey_stick(
    sigma: str, epsilons: tuple[str, ...]
) -> None:
    epoch = epoch_of(sigma, 2)
    for each in epsilons:
        sides = (
            of_two_rounds(float(Fraction(sigma)), float(Fraction(each)), present=present)
            for present in (True, False)
        )
        found = ends(epoch.delta(each))
        assert found.lower <= max(sides) <= found.upper
        assert found.width < found.upper / 1000


def test_several_rounds_of_an_epoch() -> None:
    r"""For 2 of 3 rounds, blocks of two rounds and of one give upper bounds on all pairs."""
    both = epoch_of("2", 3, 2)
    for order in (2, 4):
        found = float(both.renyi(order).upper)
        assert max(renyi(2.0, 3, order, picks=2)) <= found <= 2 * order / 8
        blocks = sum(float(renyi_of_allocation(Fraction(4), t, order)) for t in (2, 1))
        assert found == pytest.approx(blocks, rel=1e-9)
    assert epoch_of("2", 2, 2).renyi(3).upper == pytest.approx(2 * 3 / 8, rel=1e-3)


def test_several_picks_cost_at_most_as_many_plain_releases() -> None:
    epoch, plain = epoch_of("1", 3, picks=2), releases.gaussian("1", Sensitivity.l2_squared(2))
    values, chances = ratio(1.0, 3, picks=2)
    for epsilon in (0.5, 1.0, 2.0):
        truth = float((chances * np.maximum(values - math.exp(epsilon), 0)).sum())
        assert truth * 0.99 <= epoch.delta(epsilon).upper == plain.delta(epsilon).upper
    assert epoch.epsilon("1e-3").upper == plain.epsilon("1e-3").upper
    twice, plainly = (compose((each, 2)).delta(1).upper for each in (epoch, plain))
    assert twice <= plainly * Fraction(10**6 + 1, 10**6)
    # Few picks are cheaper than as many plain releases.
    few = epoch_of("1", 20, picks=2)
    assert few.epsilon("1e-6").upper < plain.epsilon("1e-6").upper * Fraction(2, 3)


def test_epochs_compose_by_their_orders() -> None:
    r"""Feldman and Shenfeld: close to Poisson sampling of the same rate over many epochs."""
    epoch = epoch_of("1", 100)
    total = compose((epoch, 100))
    assert total.renyi(3).upper == 100 * epoch.renyi(3).upper
    # Fractional orders are bounded by the chord, and large ones by one Gaussian.
    orders = [Fraction(k, 4) for k in range(5, effort(22, 40))]
    values = [float(epoch.renyi(each).upper * (each - 1)) for each in orders]
    assert (np.diff(values, 2) >= -1e-9).all()
    assert epoch.renyi(1000).upper == 500
    found = ends(total.epsilon("1e-6", "1/500"))
    # Poisson sampling of the same rate: 6.907384.
    assert 6.5 < found.upper < 7.3
    assert found.width < found.upper / 400
    assert total.assumptions == epoch.assumptions != ()


def of_two_rounds(sigma: float, epsilon: float, *, present: bool) -> float:
    r"""E[(R - e^epsilon)+] or E[(1 - e^epsilon R)+], R a mean of two: one integral, one formula."""

    def tail(z: float) -> float:
        return math.erfc(z / math.sqrt(2)) / 2

    def call(strike: float) -> float:
        if strike <= 0:
            return 1 - strike
        d = sigma * math.log(strike)
        return tail(d - 1 / (2 * sigma)) - strike * tail(d + 1 / (2 * sigma))

    def gain(z: float) -> float:
        ratio = math.exp(z / sigma - 1 / (2 * sigma**2))
        strike = 2 * math.exp(epsilon if present else -epsilon) - ratio
        value = call(strike) if present else call(strike) - 1 + strike
        return value * math.exp(-z * z / 2) / math.sqrt(math.tau)

    factor = 0.5 if present else math.exp(epsilon) / 2
    kink = sigma * (math.log(2) + (epsilon if present else -epsilon)) + 1 / (2 * sigma)
    parts = [(-12.0, kink), (kink, 12.0)]
    return factor * sum(
        float(quad(gain, *ends, epsabs=1e-14, epsrel=1e-10, limit=200)[0]) for ends in parts
    )


@pytest.mark.nightly
def test_many_rounds_and_epochs() -> None:
    r"""234 rounds, and 60 such epochs, against an uncertified computation in floats."""
    once = ends(epoch_of("1", 20).epsilon("1e-6"))
    assert 2.0299 < once.lower < 2.0303 < once.upper < 2.0306
    total = compose((epoch_of("11/10", 234), 60))
    run, narrow = ends(total.epsilon("1e-5")), ends(total.epsilon("1e-5", "1e-4"))
    assert 2.3402 < run.lower < narrow.lower < 2.3406 < narrow.upper < run.upper < 2.3410
    assert narrow.width < narrow.lower / 10**4
    assert ends(total.epsilon("1e-5", "1e-5")) == narrow


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("allocated", "values / rounds", "values / rounds"),
        ("_regridded", "b = np.append(a[1:], values.max())", "a = b = mean"),
        ("_regridded", "np.clip(share, 0.0, 1.0)", "0.0 * share"),
        ("_sum", "v[i:] + v[i]", "np.maximum(v[i:], v[i])"),
        ("allocated", "values / rounds", "values / (rounds + 1)"),
        ("_listed", "masses * ratios", "masses"),
    ],
)
def test_a_broken_listing_is_detected(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(allocation_loss, name)
    broken = mutated(getattr(original, "__wrapped__", original), old, new)
    # The mutant of the cached function is not cached, so no wrong value stays in a cache.
    monkeypatch.setattr(allocation_loss, name, broken)
    make = getattr(allocation_loss.allocated, "__wrapped__", allocation_loss.allocated)

    def holds(present: bool, epsilon: float) -> bool:
        truth = of_two_rounds(1.0, epsilon, present=present)
        density = releases.gaussian("1").density
        low, high = (
            make(density, 2, Side(above=above, present=present), 200).delta(Fraction(epsilon))[
                above
            ]
            for above in (False, True)
        )
        return bool(low <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= high)

    kept = all(holds(side, at) for side in (True, False) for at in (0.25, 1.0))
    assert kept is (old == new)
