"""Property tests of every privacy curve: order, convexity, inverses, nested enclosures."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from dpcore.numbers.enclosure import precision
from tests.support.accounting.release_lists import curve

scales = st.fractions(min_value=Fraction(1, 5), max_value=300, max_denominator=50)
noises = st.one_of(
    scales.map(lambda s: DiscreteLaplace(scale=s)),
    scales.map(lambda v: DiscreteGaussian(sigma_squared=v)),
)
sensitivities = st.integers(min_value=1, max_value=90)
epsilons = st.fractions(min_value=0, max_value=6, max_denominator=1000)
deltas = st.integers(min_value=1, max_value=60).map(lambda n: Fraction(1, 2**n))
orders = st.fractions(min_value=Fraction(101, 100), max_value=40, max_denominator=100)


@given(noises, sensitivities, epsilons, epsilons)
def test_delta_falls_and_is_convex_in_exp_epsilon(
    noise: Noise, sensitivity: int, one: Fraction, other: Fraction
) -> None:
    low, high = sorted((one, other))
    one_curve = curve(noise, sensitivity)
    at_low, at_high = one_curve.enclose_delta(low), one_curve.enclose_delta(high)
    assert at_high.lower <= at_low.upper
    # delta is convex in e^epsilon: at the midpoint of the two factors it lies below the mean.
    with precision(200):
        middle = (
            (arb(low.numerator) / low.denominator).exp()
            + (arb(high.numerator) / high.denominator).exp()
        ) / 2
        between = Fraction(str(middle.log().mid().str(30, radius=False)))
    between = min(max(between, low), high)
    slack = Fraction(1, 10**12)
    assert one_curve.enclose_delta(between).lower <= (at_low.upper + at_high.upper) / 2 + slack


@given(noises, sensitivities, deltas)
def test_epsilon_and_delta_are_inverse(noise: Noise, sensitivity: int, delta: Fraction) -> None:
    one_curve = curve(noise, sensitivity)
    found = one_curve.enclose_epsilon(delta)
    assert one_curve.enclose_delta(found.upper).lower <= delta
    if found.lower > 0:
        assert one_curve.delta(found.lower).upper >= delta
    else:
        assert one_curve.enclose_delta(0).lower <= delta


@given(noises, sensitivities, epsilons, st.integers(min_value=8, max_value=150))
def test_more_bits_stay_inside(
    noise: Noise, sensitivity: int, epsilon: Fraction, bits: int
) -> None:
    one_curve = curve(noise, sensitivity)
    coarse, fine = (
        one_curve.enclose_delta(epsilon, bits=bits),
        one_curve.enclose_delta(epsilon, bits=2 * bits),
    )
    assert coarse.overlaps(fine)
    assert fine.width <= coarse.width or fine.width <= fine.upper / 2 ** (2 * bits)
    assert coarse.width <= coarse.upper / 2 ** (bits - 1)


@given(noises, sensitivities, st.lists(orders, min_size=2, max_size=4))
def test_renyi_rises_with_the_order_up_to_the_largest_loss(
    noise: Noise, sensitivity: int, some: list[Fraction]
) -> None:
    one_curve = curve(noise, sensitivity)
    found = [one_curve.enclose_renyi(order) for order in sorted(some)]
    assert all(low.lower <= high.upper for low, high in pairwise(found))
    assert found[-1].lower <= one_curve.epsilon(0).upper
    rho = one_curve.enclose_zcdp()
    assert all(
        low.lower <= rho.upper * order for low, order in zip(found, sorted(some), strict=True)
    )


@given(noises, sensitivities, st.fractions(min_value=0, max_value=1), epsilons)
def test_the_tradeoff_supports_the_curve(
    noise: Noise, sensitivity: int, alpha: Fraction, epsilon: Fraction
) -> None:
    # T(alpha) >= 1 - delta - e^epsilon alpha and e^-epsilon (1 - delta - alpha).
    one_curve = curve(noise, sensitivity)
    missed, delta = one_curve.enclose_tradeoff(alpha), one_curve.enclose_delta(epsilon)
    with precision(200):
        factor = (arb(epsilon.numerator) / epsilon.denominator).exp()
        left, right, lost = (
            arb(x.numerator) / x.denominator
            for x in (alpha, Fraction(missed.upper), Fraction(delta.upper))
        )
        assert not right < 1 - lost - factor * left
        assert not right * factor < 1 - lost - left
    assert 0 <= missed.lower <= 1 - alpha + Fraction(1, 2**60)
