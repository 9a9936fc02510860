"""Ranges of the float functions: both ends belong to them, and what lies beyond is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpcore import Binomial, DiscreteGaussianSum, InvalidParameter, Noise, Polya, Skellam


@pytest.mark.parametrize(
    "noise",
    [
        Skellam(variance="1e-9"),
        Skellam(variance=2**60),
        Polya(shape=Fraction(1, 2**30), scale=2**46),
        Binomial(trials=2**62, probability=Fraction(1, 2**62)),
        DiscreteGaussianSum(count=4, sigma_squared=2**58),
    ],
)
def test_both_ends_are_covered(noise: Noise) -> None:
    noise.check_float_range()


@pytest.mark.parametrize(
    ("noise", "argument", "range_of"),
    [
        (Skellam(variance="9e-10"), "variance", "1e-9 <= variance <= 2^60"),
        (Skellam(variance=2**60 + 1), "variance", "1e-9 <= variance <= 2^60"),
        (Polya(shape=Fraction(1, 2**31), scale=1), "shape", "2^-30 <= shape <= 2^10"),
        (Binomial(trials=2**62 + 1, probability="1e-18"), "trials", "trials <= 2^62"),
        (Binomial(trials=1, probability="1e-10"), "probability", "1e-9 <= trials p (1-p) <= 2^60"),
        (DiscreteGaussianSum(count=5, sigma_squared=2**58), "sigma_squared", "count sigma_squared"),
    ],
)
def test_what_lies_beyond_is_refused_by_its_parameter(
    noise: Noise, argument: str, range_of: str
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        noise.pmf(0)
    assert refused.value.argument == argument
    assert range_of in refused.value.reason
