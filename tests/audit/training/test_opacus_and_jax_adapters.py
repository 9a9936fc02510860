"""Tests of the step check on Opacus and JAX Privacy if installed, and on a stand-in for Opacus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audit.training.check_dpsgd_step import dpsgd
from audit.training.opacus_and_jax_adapters import JaxPrivacyStep, OpacusStep
from audit.training.step_report import Stated, StepReport
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.audit.training.test_check_dpsgd_step import failed
from tests.day_and_nightly import by_day
from tests.support.audit import opacus_like as like

STATED: dict[str, Any] = {
    "records": 1000, "rate": "0.1", "noise_multiplier": "1.5", "clip": "0.5",
    "dimension": 100, "draws": 4000, "batches": 200,
}  # fmt: skip
EXACT = Stated(records=1000, rate="0.1", noise_multiplier="1.5", clip="0.5")
FEW: dict[str, Any] = {**STATED, "records": 5, "rate": "1/2"}
# Opacus multiplies an infinite gradient by clip / inf = 0, which gives nan, and keeps nan.
NOT_FINITE = {"inf and nan"}


def audited(alpha: Any, **given: Any) -> StepReport:
    return dpsgd("opacus", **{**STATED, "alpha": alpha, **given})


def statement(report: StepReport, name: str) -> str:
    return next(check.statement for check in report.checks if check.name == name)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, set()),
        (FEW, {"clipping", "noise", "normaliser"}),  # divides by an integer number of records
        ({"sampling": "fixed"}, {"overlap"}),  # batches come from epochs
    ],
    ids=["stated", "few records", "epochs"],
)
def test_the_step_of_opacus_fails_only_where_it_differs(
    given: dict[str, Any], found: set[str]
) -> None:
    pytest.importorskip("opacus", reason="the extra opacus is not installed")
    alpha = buy_alpha(f"the step of Opacus, {len(given)}", "1e-9")
    report = audited(alpha, **given)
    assert failed(report) == found | NOT_FINITE
    if given is FEW:
        assert "divided by 2 in every batch" in statement(report, "normaliser")


def test_the_step_of_jax_privacy_passes_and_half_its_noise_does_not() -> None:
    pytest.importorskip("jax_privacy", reason="the extra bench is not installed")
    alpha, step = buy_alpha("the step of JAX Privacy", "1e-9"), JaxPrivacyStep(EXACT)
    for multiplier, expected in (("1.5", set()), ("3", {"noise"})):
        report = dpsgd(step, **{**STATED, "noise_multiplier": multiplier}, alpha=alpha)
        assert failed(report) - {"coordinates"} == expected  # may fail, too


def like_opacus(patch: pytest.MonkeyPatch, engine: type[like.Engine]) -> None:
    patch.setattr(
        "audit.training.opacus_and_jax_adapters.import_module", like.modules(engine).__getitem__
    )


EPOCHS = {**STATED, "sampling": "fixed"}


@by_day(3)
@pytest.mark.parametrize(
    ("engine", "stated", "found"),
    [
        (like.Engine, FEW, set()),
        (like.Engine, STATED, set()),
        (like.Floored, FEW, {"clipping", "noise", "normaliser"}),
        (like.Floored, STATED, set()),
        (like.Engine, EPOCHS, {"overlap"}),  # fixed batches are those of shuffled epochs
        (like.OftenerThanCharged, STATED, {"rate", "batch sizes", "record counts", "overlap"}),
        (like.NotFinite, STATED, NOT_FINITE),
    ],
)
def test_a_library_fails_the_checks_of_its_fault(
    monkeypatch: pytest.MonkeyPatch,
    engine: type[like.Engine],
    stated: dict[str, Any],
    found: set[str],
) -> None:
    case = f"{engine.__name__}, {stated['records']} records, {len(stated)} arguments"
    like_opacus(monkeypatch, engine)
    report = dpsgd("opacus", **stated, alpha=buy_alpha(case, "1e-9"))
    assert (failed(report), report.exit_code) == (found, int(bool(found)))


def test_fixed_batches_of_opacus_are_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    like_opacus(monkeypatch, like.Engine)
    step = OpacusStep(replace(EXACT, sampling="fixed"))
    assert sorted(batch := step.sample(np.random.default_rng(1)).tolist()) != batch


@pytest.mark.parametrize(
    ("records", "rate", "told"),
    [
        (1000, "0.3", "1/4 for batches of 300"),
        (25, "0.1", "1/9 for batches of 3"),
        (1000, "0.9999", "1/1 for batches of 1,000"),
    ],
)
def test_a_rate_that_opacus_cannot_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, records: int, rate: str, told: str
) -> None:
    like_opacus(monkeypatch, like.Engine)
    with pytest.raises(InvalidParameter, match=f"^rate = .*: must be {told}: Opacus samples"):
        audited("0.05", records=records, rate=rate)
