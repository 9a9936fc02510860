"""Tests of the DP-SGD step check: each broken step fails the check of its broken part."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from audit.errors import TargetFailed
from audit.training.check_dpsgd_step import batch_checks, dpsgd
from audit.training.step_report import StepReport
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.audit import training_steps as steps
from tests.support.audit.training_steps import BROKEN, RECORDS, STATED, Right

ALPHA = buy_alpha("steps of a training as stated", "1e-8")


def audited(step: Any, **given: Any) -> StepReport:
    return dpsgd(step, **{**STATED, "alpha": ALPHA / 40, "dimension": 200, "draws": 8000, **given})


def failed(report: StepReport) -> set[str]:
    return {check.name for check in report.checks if check.failed}


@by_day(2)
@pytest.mark.parametrize("step", [Right(), steps.SinglePrecision, steps.ScaledUp])
def test_a_correct_step_passes(step: Any) -> None:
    for seed in range(effort(1, 8)):
        report = audited(step, seed=seed)
        assert failed(report) == set()
        assert (report.verdict, report.exit_code) == ("not_refuted", 0)
        assert len(report.checks) == 13


@by_day(2)
@pytest.mark.parametrize("step", list(BROKEN), ids=lambda step: step.__name__)
def test_a_broken_step_fails_the_check_of_its_fault(step: type[Right]) -> None:
    report = audited(step, seed=1)
    assert BROKEN[step] in failed(report)
    assert (report.verdict, report.exit_code) == ("refuted", 1)
    row = next(check for check in report.checks if check.name == BROKEN[step])
    assert row.statement in " ".join(str(report).split())


def test_a_fault_does_not_fail_unrelated_checks() -> None:
    assert failed(audited(steps.TenthLessNoise)) == {"noise"}
    assert failed(audited(steps.ActualSize)) >= {"normaliser"}
    assert failed(audited(steps.Truncated)) == {"batch sizes"}


def test_missing_noise_is_found_at_the_stated_fraction_of_steps() -> None:
    row = next(each for each in audited(Right, alpha="0.001").checks if each.name == "each update")
    assert "noise that is missing in fewer than 1.4% of the steps" in row.statement
    assert 0.986**500 < 0.001 < 0.987**500
    found = [failed(audited(steps.RareNoNoise, seed=seed)) for seed in range(effort(1, 40))]
    assert all("each update" in each for each in found)


def test_batches_truncated_at_25_of_mean_20_are_detected_at_the_default_level() -> None:
    class Cut(Right):
        def sample(self, rng: np.random.Generator) -> Any:
            return rng.permutation(np.flatnonzero(rng.random(RECORDS) < 0.01))[:25]

    report = audited(Cut, rate="0.01", alpha="0.05", seed=1)
    row = next(check for check in report.checks if check.name == "batch sizes")
    assert row.verdict == "refuted"
    assert row.statement.startswith("0 of 400 batches have a size x >= 26; 4")


def test_an_error_of_one_gradient_is_a_fault_with_its_reason() -> None:
    report = audited(steps.NonFiniteRaises)
    row = next(check for check in report.checks if check.name == "inf and nan")
    assert (row.verdict, report.exit_code) == ("fault", 1)
    assert "a gradient of inf, one coordinate: the update raised ValueError" in row.statement


def test_batches_of_a_fixed_size_pass_if_they_are_stated() -> None:
    assert failed(audited(steps.Fixed, sampling="fixed")) == set()
    assert failed(audited(steps.Shuffled, sampling="fixed")) == {"overlap"}
    assert "batch sizes" in failed(audited(Right, sampling="fixed"))


def test_a_step_with_its_own_generator_leaves_three_checks_unmade() -> None:
    report = audited(steps.OwnNoise)
    assert (report.verdict, report.exit_code) == ("nothing_measured", 4)
    unmade = [check.name for check in report.checks if check.verdict == "nothing_measured"]
    assert unmade == ["clipping", "normaliser", "inf and nan"]


def p_values(found: list[Any]) -> list[float]:
    return [check.p_value for check in found if check.p_value is not None]


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_correct_sampling_fails_at_most_as_often_as_stated(sampling: Any) -> None:
    bought = buy_alpha(f"the checks of {sampling} batches", "1e-10")
    stated = audited(Right, sampling=sampling, batches=2, draws=200).stated
    repeats, level, hits = effort(12, 400), 0.2, 0
    step = Right() if sampling == "poisson" else steps.Fixed()
    rng = np.random.default_rng(5)
    for _ in range(repeats):
        drawn = [np.asarray(step.sample(rng)) for _ in range(20)]
        found = p_values(list(batch_checks(drawn, stated, Fraction(1, 1000), rng)))
        hits += min(found) <= level / len(found)
    assert float(stats.binom.sf(hits - 1, repeats, level)) > bought


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"records": 1}, "records"),
        ({"rate": 0}, "rate"),
        ({"rate": 1}, "rate"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"clip": "1e101"}, "clip = .*: gradients are floats"),
        ({"sampling": "x"}, "sampling"),
        ({"sampling": "fixed", "rate": "0.00001"}, "rate"),
        ({"dimension": 1}, "dimension"),
        ({"batches": 1}, "batches"),
        ({"draws": 1}, "draws"),
        ({"alpha": 1}, "alpha"),
        ({"seed": -1}, "seed"),
        *(
            ({name: 10**30}, rf"{name} = .*must be <= ")
            for name in ("records", "dimension", "batches", "draws")
        ),
    ],
)
def test_a_bad_parameter_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameter, match=named):
        dpsgd(Right, **{**STATED, **given})


def like_right(**methods: Any) -> type[Right]:
    return type("Step", (Right,), methods)


def raising(error: Exception) -> Any:
    def method(*_: Any) -> Any:
        raise error

    return method


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (like_right(update=raising(ValueError("no gradients today"))), "no gradients today"),
        (
            like_right(__init__=raising(OSError("no disk"))),
            r"no disk at test_check_dpsgd_step.py:\d+$",
        ),
        # A call that fails before it begins has no line in the step, and must not name a line of
        # ours.
        (like_right(__init__=lambda self, model: None), "argument: 'model'$"),
        (like_right(sample=lambda *_: np.array([RECORDS])), "0..1999"),
        (like_right(update=lambda *_: 1.0), "shape"),
        (like_right(update=lambda *_: {"weights": 1.0}), "array of numbers, not of type object"),
    ],
)
def test_a_failing_step_is_reported(step: type[Right], said: str) -> None:
    with pytest.raises(TargetFailed, match=said):
        audited(step)


def test_an_update_of_one_value_fails_several_checks() -> None:
    class Constant(Right):
        value = np.nan

        def update(self, gradients: Any, rng: Any) -> Any:
            return np.full(gradients.shape[1], self.value)

    assert failed(audited(Constant)) >= {"noise", "empty batch", "clipping", "normaliser"}
    Constant.value = 0.0
    row = next(check for check in audited(Constant).checks if check.name == "clipping")
    assert row.statement == "no planted gradient changes the update"
