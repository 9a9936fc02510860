"""Tests of the step check on Opacus and JAX Privacy if installed, and on a stand-in for Opacus."""

from __future__ import annotations

import math
import warnings
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from scipy import optimize, stats

from audit.run_audit import audit
from audit.training.check_dpsgd_step import dpsgd
from audit.training.opacus_and_jax_adapters import JaxPrivacyStep, OpacusStep
from audit.training.step_report import Stated, StepReport
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
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


def failed(report: StepReport) -> set[str]:
    return {check.name for check in report.checks if check.failed}


def statement(report: StepReport, name: str) -> str:
    return next(check.statement for check in report.checks if check.name == name)


@pytest.fixture
def library() -> None:
    pytest.importorskip("opacus", reason="the extra opacus is not installed")


def test_the_step_of_opacus_passes_if_the_expected_batch_size_is_an_integer(library: None) -> None:
    alpha = buy_alpha("the step of Opacus", "1e-9") / 2
    assert failed(audited(alpha)) == NOT_FINITE
    report = dpsgd(OpacusStep(EXACT), **{**STATED, "noise_multiplier": 3}, alpha=alpha)
    assert failed(report) - {"coordinates"} == {"noise"} | NOT_FINITE


def test_the_step_of_jax_privacy_passes_and_half_its_noise_does_not() -> None:
    pytest.importorskip("jax_privacy", reason="the extra bench is not installed")
    alpha, step = buy_alpha("the step of JAX Privacy", "1e-9"), JaxPrivacyStep(EXACT)
    for multiplier, expected in (("1.5", set()), ("3", {"noise"})):
        report = dpsgd(step, **{**STATED, "noise_multiplier": multiplier}, alpha=alpha)
        assert failed(report) - {"coordinates"} == expected  # may fail, too


def test_opacus_divides_by_an_integer_number_of_records(library: None) -> None:
    alpha = buy_alpha("the step of Opacus, floored", "1e-9")
    report = dpsgd("opacus", **FEW, alpha=alpha)
    assert failed(report) == {"clipping", "noise", "normaliser"} | NOT_FINITE
    assert "divided by 2 in every batch" in statement(report, "normaliser")


def test_without_poisson_sampling_opacus_batches_come_from_epochs(library: None) -> None:
    alpha = buy_alpha("the step of Opacus, epochs", "1e-9")
    assert failed(audited(alpha, sampling="fixed")) == {"overlap"} | NOT_FINITE


def gradient(records: list[float], reduction: str) -> float:
    """The gradient norm of one Opacus step with 1,000 weights."""
    torch, data = import_module("torch"), import_module("torch.utils.data")
    rows = torch.tensor(records)[:, None].expand(-1, 1000)
    model = torch.nn.Linear(1000, 1, bias=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private, optimizer, loader = (
            import_module("opacus")
            .PrivacyEngine()
            .make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
                data_loader=data.DataLoader(data.TensorDataset(rows), batch_size=10),
                noise_multiplier=2.0,
                max_grad_norm=1.0,
                loss_reduction=reduction,
            )
        )
        (batch,) = next(iter(loader))
        getattr(private(batch), reduction)().backward()
    optimizer.step()
    return float(model.weight.grad.norm())


def true_epsilon(deviations: tuple[float, float], size: int, delta: float) -> float:
    """The epsilon between Gaussian vectors of different deviations, from chi-squared tails."""

    def excess(epsilon: float) -> float:
        wide, narrow = deviations
        cut = 2 * (epsilon + size * math.log(wide / narrow)) / (narrow**-2 - wide**-2)
        tails = (stats.chi2.sf(cut / one**2, size) for one in deviations)
        return float(next(tails) - math.exp(epsilon) * next(tails)) - delta

    return float(optimize.brentq(excess, 0.0, 100.0))


@pytest.mark.nightly
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_rounded_normaliser_distinguishes_19_from_20_records(
    library: None, reduction: str
) -> None:
    alpha = buy_alpha(f"a step of Opacus whose loss is a {reduction}", "1e-9")
    report = audit(
        partial(gradient, reduction=reduction),
        "epsilon=1.364,delta=1e-5",
        pair=([0.0] * 19, [0.0] * 20),
        relation="add-remove",
        runs=1500,
        confidence=1 - alpha,
        seed=1,
    )
    assert report.refuted is (reduction == "mean")
    truth = true_epsilon((1 / 9, 1 / 10), 1000, 1e-5)
    assert round(truth, 1) == 34.9
    assert report.epsilon_lower <= truth


def like_opacus(patch: pytest.MonkeyPatch, engine: type[like.Engine]) -> None:
    patch.setattr(
        "audit.training.opacus_and_jax_adapters.import_module", like.modules(engine).__getitem__
    )


@pytest.mark.parametrize("stated", [STATED, FEW])
def test_a_correct_library_passes(monkeypatch: pytest.MonkeyPatch, stated: dict[str, Any]) -> None:
    alpha = buy_alpha(f"a library like Opacus, {stated['records']} records", "1e-9")
    like_opacus(monkeypatch, like.Engine)
    report = dpsgd("opacus", **stated, alpha=alpha)
    assert (failed(report), report.exit_code) == (set(), 0)


@by_day(2)
@pytest.mark.parametrize(
    ("engine", "stated", "found"),
    [
        (like.Floored, STATED, set()),
        (like.Floored, FEW, {"clipping", "noise", "normaliser"}),
        (like.OftenerThanCharged, STATED, {"rate", "batch sizes", "record counts", "overlap"}),
        (like.NotFinite, STATED, NOT_FINITE),
        (like.Unclipped, STATED, {"clipping", "inf and nan"}),
    ],
)
def test_a_broken_library_fails_the_check_of_its_fault(
    monkeypatch: pytest.MonkeyPatch,
    engine: type[like.Engine],
    stated: dict[str, Any],
    found: set[str],
) -> None:
    alpha = buy_alpha(f"{engine.__name__}, {stated['records']} records", "1e-9")
    like_opacus(monkeypatch, engine)
    assert failed(dpsgd("opacus", **stated, alpha=alpha)) == found


def test_fixed_batches_are_those_of_shuffled_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha = buy_alpha("a library like Opacus, epochs", "1e-9")
    like_opacus(monkeypatch, like.Engine)
    assert failed(audited(alpha, sampling="fixed")) == {"overlap"}


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
