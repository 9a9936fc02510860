"""Tests of the step check on JAX Privacy, if it is installed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from audit.training.dpsgd_step import dpsgd
from audit.training.library_steps import JaxPrivacyStep
from audit.training.step_report import Stated
from tests.alpha_budget import buy_alpha

STATED = Stated(
    records=1000, rate=Fraction(1, 10), noise_multiplier=Fraction(3, 2), clip=Fraction(1, 2)
)


def test_the_step_of_jax_privacy_passes_and_half_its_noise_does_not() -> None:
    pytest.importorskip("jax_privacy", reason="the extra bench is not installed")
    alpha = buy_alpha("the step of JAX Privacy", "1e-9")
    step = JaxPrivacyStep(STATED)
    for stated, failed in (("1.5", set()), ("3", {"noise"})):
        report = dpsgd(
            step, records=1000, rate="0.1", noise_multiplier=stated, clip="0.5", alpha=alpha,
            dimension=100, draws=4000, batches=200,
        )  # fmt: skip
        found = {check.name for check in report.checks if check.failed}
        assert found - {"coordinates"} == failed  # the check of one coordinate may fail too
