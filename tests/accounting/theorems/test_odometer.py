"""Odometers: readings that hold at all times, against every path of randomised response."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Approx, Pure, Rdp, ZCdp
from accounting.theorems import odometer
from accounting.theorems.claim_conversion import as_approx
from accounting.theorems.filter import SHARES, ApproxFilter, PureFilter, RdpFilter, ZCdpFilter
from accounting.theorems.odometer import Odometer, _rate
from dpcore import InvalidParameter
from tests.support.accounting.amounts import epsilon
from tests.support.accounting.brute import real
from tests.support.dpcore.mutants import mutated, rewired


def test_a_pure_odometer_is_the_sum() -> None:
    opened = PureFilter(budget=Pure(2))
    read = Odometer(filter=opened).read((SHARES // 4,))
    assert (read.epsilon, read.delta) == (Fraction(1, 2), Fraction(0))
    with pytest.raises(InvalidParameter, match=r"^slack"):
        Odometer(filter=opened, slack="1e-6")


def test_the_lines_share_the_slack() -> None:
    rates = [_rate(Fraction(1, 2), Fraction("1e-6"), j) for j in range(1, 65)]
    assert sum(share for _, share in rates) < 1
    # Each line is about the best one where it was meant to be.
    for j, (rate, share) in enumerate(rates, start=1):
        with mpmath.workdps(30):
            log = mpmath.log(1 / real(share * Fraction("1e-6")))
            best = mpmath.sqrt(log / real(Fraction(1, 2) / 2 ** (j - 1)))
            assert abs(real(rate) / best - 1) < 0.05


@given(st.integers(0, SHARES), st.integers(0, SHARES))
@settings(deadline=None, max_examples=30)
def test_an_odometer_rises_and_costs_more_than_the_filter(a: int, b: int) -> None:
    low, high = sorted((a, b))
    for opened in (
        ZCdpFilter(budget=ZCdp("1/2")),
        RdpFilter(budget=Rdp({2: 1, 8: 4})),
        ApproxFilter(budget=Approx(1, "1e-6")),
    ):
        meter = Odometer(filter=opened, slack="1e-7")
        many = len(opened.counters)
        there, here = meter.read((high,) * many), meter.read((low,) * many)
        assert here.epsilon <= there.epsilon
        assert here.delta == there.delta
        assert meter.read((0,) * many).epsilon == 0
        if isinstance(opened, ZCdpFilter) and high:
            spent = opened.spent((high,))
            fixed = as_approx(spent, there.delta)
            assert epsilon(fixed) <= there.epsilon
            # The grid costs little: against the best line for this one time.
            with mpmath.workdps(30):
                rho, log = real(opened.held((high,))[0]), mpmath.log(1 / real(there.delta))
                best = rho + 2 * mpmath.sqrt(rho * log)
                if high > SHARES // 2**20:
                    assert real(there.epsilon) <= best * mpmath.mpf("1.4")


def crossing(each: Fraction, readings: Sequence[Fraction]) -> float:
    """P(the loss ever exceeds the reading of its step), over all paths of randomised response."""
    yes = float(1 / (1 + mpmath.exp(-real(each))))
    alive, crossed = {0: 1.0}, 0.0
    for limit in readings:
        moved: dict[int, float] = {}
        for ahead, mass in alive.items():
            moved[ahead + 1] = moved.get(ahead + 1, 0) + mass * yes
            moved[ahead - 1] = moved.get(ahead - 1, 0) + mass * (1 - yes)
        alive = {ahead: mass for ahead, mass in moved.items() if ahead * each <= limit}
        crossed += sum(moved.values()) - sum(alive.values())
    return crossed


@pytest.mark.nightly
def test_the_loss_crosses_the_reading_no_more_often_than_said() -> None:
    each, steps, slack = Fraction(1, 10), 300, Fraction(1, 20)
    opened = ZCdpFilter(budget=ZCdp(steps * each**2 / 2))
    meter = Odometer(filter=opened, slack=slack)
    price = opened.price(Pure(each)).amounts[0]
    held = [step * price for step in range(1, steps + 1)]
    assert crossing(each, [meter.read((total,)).epsilon for total in held]) <= slack
    # The twins: a line too low, and what a filter says at one fixed time, read at all times.
    low = mutated(odometer._line, "ball(delta).log() /", "ball(delta).log() / 2 /")
    lines = rewired(Odometer._lines, _line=low)
    assert crossing(each, [lines(meter, *opened.held((total,))) for total in held]) > slack
    fixed = [epsilon(as_approx(opened.spent((total,)), slack)) for total in held]
    assert crossing(each, fixed) > slack


def test_odometer_refusals() -> None:
    for slack in (None, 0, 1, "-1/2"):
        with pytest.raises(InvalidParameter, match=r"^slack"):
            Odometer(filter=ZCdpFilter(budget=ZCdp(1)), slack=slack)
    with pytest.raises(InvalidParameter, match=r"^filter"):
        Odometer(filter=ZCdp(1), slack="1e-6")  # type: ignore[arg-type]  # what the types forbid
    approx = Odometer(filter=ApproxFilter(budget=Approx(1, "1e-6")), slack="1e-7")
    assert approx.read((1, 0)).delta == Fraction("1e-7") + Fraction("5e-7")
    # Beyond its limits the filter pays for no delta.
    for beyond in ((0, SHARES + 1), (SHARES + 1, 0)):
        with pytest.raises(InvalidParameter, match=r"^total"):
            approx.read(beyond)
