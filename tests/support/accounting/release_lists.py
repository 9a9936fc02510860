r"""Curves and samples shared by the tests of compositions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore import Scope, Sensitivity
from dpcore.noise import Noise
from tests.support.accounting import subsampled_releases as releases


def curve(noise: Noise, sensitivity: Sensitivity | int = 1) -> PrivacyCurve:
    return PrivacyCurve(noise=noise, sensitivity=sensitivity)


def sampled(noise: Noise, rate: str) -> Any:
    scope = Scope(relation="add-remove")  # type: ignore[arg-type]  # read by value
    base = PrivacyCurve(noise=noise, sensitivity=1, scope=scope)
    return releases.poisson(curve=base, rate=Fraction(rate))
