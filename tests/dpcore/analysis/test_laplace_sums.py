"""Tests of tails of sums of discrete Laplace draws, against the law of the sum itself."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from flint import acb, arb

import dpcore
from dpcore import InvalidParameter, PolyaDifference
from dpcore.analysis import contour_sums as laplace_sum
from dpcore.analysis.polya_integral import Integrand, integral
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.dpcore.mutants import mutated


def test_tails_of_sums_of_laplace_draws_are_enclosed() -> None:
    for draws, scale in ((16, 3), (40, 10), (200, 2)):
        law = PolyaDifference(shape=draws, scale=scale)
        deviation = math.sqrt(2 * draws) * scale
        for multiple in (0.02, 1, 4, 9):
            least = int(deviation * multiple) + 1
            found = laplace_sum.sum_tail(draws=draws, scale=scale, least=least, bits=30)
            assert found.overlaps(law.enclose_sf(least - 1, 60))
            assert found.upper - found.lower <= Fraction(found.upper) / 2**29
    with pytest.raises(InvalidParameter, match="draws"):
        laplace_sum.sum_tail(draws=15, scale=3, least=4, bits=20)


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, 40, 10**6])
def test_the_tail_of_two_draws_agrees_with_its_closed_form(scale: Fraction | int) -> None:
    law = PolyaDifference(shape=2, scale=scale)
    for least in (0, 1, 2, int(3 * scale), int(25 * scale) + 1):
        found = laplace_sum.pair_tail(scale=scale, least=least, bits=60)
        true = law.enclose_sf(least - 1, 60)
        assert found.overlaps(true)
        assert not found.overlaps(law.enclose_sf(least, 60))


def test_tails_of_laplace_sums_without_far_frequencies_are_wrong() -> None:
    # The mutant: frequencies beyond the last one are not counted, so the balls miss the tail.
    short = mutated(laplace_sum._sum, "last + 1):", "max(last // 8, 1)):")
    line = laplace_sum._line(16.0, Fraction(3), 20)
    with precision(64):
        cut = Enclosure.of(short(Fraction(16), Fraction(3), 20, *line))
        whole = Enclosure.of(laplace_sum._sum(Fraction(16), Fraction(3), 20, *line))
    true = PolyaDifference(shape=16, scale=3).enclose_sf(19, 60)
    assert whole.overlaps(true)
    assert not cut.overlaps(true)


@pytest.mark.parametrize("scale", ["1e-10", "1e39"])
def test_scales_beyond_floats_are_refused_by_name(scale: str) -> None:
    with pytest.raises(InvalidParameter, match="scale"):
        laplace_sum.sum_tail(draws=16, scale=scale, least=1, bits=10)


TIGHT = arb(2) ** -50
Integrate = Callable[[Integrand], acb]


def ours(f: Integrand) -> acb:
    return integral(f, arb(0), arb(1000), rel_tol=TIGHT, abs_tol=TIGHT)


def bare(f: Integrand) -> acb:
    return acb.integral(f, arb(0), arb(1000), rel_tol=TIGHT, abs_tol=TIGHT)


def interrupted(integrate: Integrate, after: float) -> type[BaseException] | None:
    r"""Return the exception of an integration that receives SIGINT after ``after`` seconds."""
    stop = time.monotonic() + 5
    ended: type[BaseException] | None = None
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        while time.monotonic() < stop:
            integrate(lambda z, _: z.exp().sin() * z)
    except (KeyboardInterrupt, SystemError) as error:
        ended = type(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return ended


def test_ctrl_c_within_an_integral_raises_keyboard_interrupt() -> None:
    # Interrupt at many points: within the integrand, at its entry, and between two calls.
    assert {interrupted(ours, 0.002 + 0.00013 * i) for i in range(60)} == {KeyboardInterrupt}
    assert SystemError in {interrupted(bare, 0.002 + 0.00013 * i) for i in range(20)}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, SystemError])
def test_an_error_of_the_integrand_is_passed_to_the_caller(error: type[BaseException]) -> None:
    def f(z: acb, analytic: bool) -> acb:  # FLINT's own signature
        raise error("said here")

    with pytest.raises(error, match="said here"):
        ours(f)


def test_only_one_module_calls_flints_integral() -> None:
    root = Path(dpcore.__file__).parent.parent
    packages = ("dpcore", "accounting", "audit", "bandits")
    files = [file for package in packages for file in (root / package).rglob("*.py")]
    callers = [file.name for file in files if "acb.integral(" in file.read_text("utf-8")]
    assert callers == ["polya_integral.py"]
