r"""Curves and samples that the tests of lists share."""

from __future__ import annotations

from fractions import Fraction

from accounting.release.curve import PrivacyCurve
from accounting.release.subsampling import PoissonSampled
from dpcore import Scope, Sensitivity
from dpcore.noise import Noise


def curve(noise: Noise, sensitivity: Sensitivity | int = 1) -> PrivacyCurve:
    return PrivacyCurve(noise=noise, sensitivity=sensitivity)


def sampled(noise: Noise, rate: str) -> PoissonSampled:
    scope = Scope(relation="add-remove")  # type: ignore[arg-type]  # read by value
    base = PrivacyCurve(noise=noise, sensitivity=1, scope=scope)
    return PoissonSampled(curve=base, rate=Fraction(rate))
