"""Tests of `audit.run_audit`: one report from several layers, also when one layer fails."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from audit.audit_spec import AuditSpec
from audit.outputs.output_parser import Outputs
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit
from audit.statistical_tests.event import Witness
from audit.statistical_tests.multiple_testing import LEADER
from audit.targets.target import Block, Catalogued, NoiseAdded, Scalar, Target, Vectorised
from audit.targets.target_syntax import read_target
from dpcore import DiscreteLaplace
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.audit.command import hearing_ctrl_c

ALPHA = Fraction(buy_alpha("layers: audits of true claims", "1e-8")) / 20
SPEC = AuditSpec(claim="epsilon=1", pair=(0, 1), runs=4000, alpha=ALPHA, seed=7)
LAPLACE = "discrete-laplace:scale=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong(NoiseAdded):
    """A target that claims a law and samples from another one."""

    drawn: NoiseAdded

    def draw(self, block: Block) -> Iterator[Outputs]:
        return self.drawn.draw(block)


def laplace(spelling: str = LAPLACE) -> NoiseAdded:
    target = read_target(spelling)
    assert isinstance(target, NoiseAdded)
    return target


def wrong(spelling: str) -> Wrong:
    return Wrong(spelling=LAPLACE, noise=DiscreteLaplace(scale=1), drawn=laplace(spelling))


def audited(target: Target, *layers: str, figures: bool = False, **more: Any) -> AuditReport:
    spec = replace(SPEC, target=target, layers=layers, **more)
    return Audit(spec).run(figures=figures)


def test_every_layer_reports_its_own_result() -> None:
    report = audited(laplace(), "exact", "fit", "replay", "sample")
    assert [layer.layer for layer in report.layers] == ["exact", "fit", "sample", "replay"]
    assert (report.verdict, report.exit_code, report.alpha) == ("proven", 0, ALPHA)
    assert report.fit is not None
    assert report.fit.verdict == "not_refuted"
    assert {finding.severity for finding in report.findings} == {"note"}
    document = report.to_json()
    assert document["fit"]["law"] == LAPLACE
    assert document["findings"][0]["kind"] == "sensitivity"


def test_a_sampler_that_does_not_fit_cancels_the_proof() -> None:
    # More noise than stated: the claim holds, but the proof is for another law.
    report = audited(wrong("discrete-laplace:scale=2"), "exact", "fit", "sample")
    assert (report.verdict, report.exit_code) == ("not_refuted", 1)
    assert [finding.kind for finding in report.findings] == ["not-its-law"]
    # Less noise: the runs refute the claim, whatever is proven for the stated law.
    report = audited(wrong("discrete-laplace:scale=1/3"), "exact", "fit", "sample")
    assert report.verdict == "refuted"
    assert isinstance(report.witness, Witness)
    assert report.epsilon_lower > 1
    assert report.exact is not None
    assert report.exact.epsilon.upper == 1


def test_layers_that_draw_share_the_level() -> None:
    alone = audited(laplace(), "sample", alpha="0.05")
    both = audited(laplace(), "fit", "sample", alpha="0.05")
    assert alone.p_value is not None
    assert both.p_value == min(1.0, 2 * alone.p_value)
    assert both.epsilon_lower <= alone.epsilon_lower
    alone, both = (
        audited(laplace("discrete-laplace:scale=1/4"), *layers, alpha="0.05", sequential=True)
        for layers in (("sample",), ("fit", "sample"))
    )
    assert alone.runs < both.runs < 4000
    assert both.e_value is not None
    assert both.e_value >= 20


def test_replay_finds_a_fault_beyond_sampling_without_refuting_the_claim() -> None:
    rare = read_target("raw-in-a-hundred-thousand")
    assert isinstance(rare, Catalogued)
    report = audited(rare, "replay", "sample", pair=rare.subject.pair, changes=60)
    assert (report.verdict, report.exit_code) == ("not_refuted", 1)
    assert report.faults
    moved = audited(
        read_target("clipped-to-two"), "replay", claim=f"{LAPLACE}@1", pair=(0, 2), runs=None,
        changes=5, tapes=4,
    )  # fmt: skip
    assert (moved.verdict, moved.runs) == ("not_refuted", 0)
    assert moved.findings[0].kind == "sensitivity-exceeded"
    assert moved.findings[0].refutes


def test_unsupported_layers_are_refused() -> None:
    half = read_target("half-scale")
    for layer in ("exact", "fit"):
        with pytest.raises(InvalidParameter, match="needs a target with a known law"):
            audited(half, layer)
    vectors = read_target("protocol:vector-shuffle,users=8,epsilon=4,delta=1e-3,coordinates=2")
    with pytest.raises(InvalidParameter, match="needs outputs that are single integers"):
        audited(vectors, "fit", pair=([0, 0], [1, 1]))


@by_day(1)
@pytest.mark.parametrize("sequential", [False, True])
def test_figures_and_baselines_describe_the_tested_runs(sequential: bool) -> None:
    def clamped(dataset: int, n: int, rng: np.random.Generator) -> Any:
        # Half of the scale that the claim needs; datasets above 1 count as 1.
        p = 1 - np.exp(-2)
        return min(dataset, 1) + rng.geometric(p, n) - rng.geometric(p, n)

    report = audited(
        Vectorised(spelling="clamped", function=clamped), "sample", claim=f"{LAPLACE}@1", pair=None,
        pairs=[(0, 1), (3, 2)], features=("identity", "sign"), sequential=sequential,
        baselines=("dkw",), figures=True,
    )  # fmt: skip
    assert report.verdict == "refuted"
    shown = report.outcomes[report.row]
    assert report.pair == report.pairs[shown.pair] == (0, 1)
    assert (report.epsilon_lower, report.at_delta) == (shown.epsilon_lower, shown.claim.exact[1])
    assert report.histogram is not None
    assert report.trace is not None
    # A leader reports the view it followed.
    assert isinstance(report.witness, Witness)
    assert sequential or shown.feature in (LEADER, report.witness.feature)
    assert (report.histogram.pair, report.histogram.feature) == (shown.pair, report.witness.feature)
    assert report.trace.points[-1][1] == report.epsilon_lower
    assert report.trace.claim == shown.claim
    assert report.histogram.runs_a + report.histogram.runs_b == report.trace.points[-1][0]
    assert report.curve[0][0] == 0.0
    assert [finding.name for finding in report.baselines] == ["dkw"]


def test_a_failing_target_ends_all_layers() -> None:
    def fails(dataset: int, rng: np.random.Generator) -> int:
        raise ValueError("no")

    report = audited(Scalar(spelling="fails", function=fails), "replay", "sample")
    assert (report.verdict, report.exit_code) == (None, 3)
    assert [layer.layer for layer in report.layers] == ["sample"]


def test_drawn_runs_survive_a_failing_replay() -> None:
    calls = [0]

    def tired(dataset: int, rng: np.random.Generator) -> int:
        calls[0] += 1
        if calls[0] > 1030:
            raise ValueError("no more")
        return dataset + int(rng.integers(100))

    report = audited(Scalar(spelling="tired", function=tired), "replay", "sample", runs=1000)
    assert (report.verdict, report.exit_code, report.runs) == (None, 3, 1000)
    assert report.error is not None
    assert "no more" in report.error.reason


def test_ctrl_c_in_a_replay_keeps_the_runs() -> None:
    calls = [0]

    def stopped(dataset: int, rng: np.random.Generator) -> int:
        calls[0] += 1
        if calls[0] == 1500:
            signal.raise_signal(signal.SIGINT)
        return dataset + int(rng.integers(100))

    target = Scalar(spelling="stopped", function=stopped)
    with hearing_ctrl_c():
        report = audited(target, "replay", "sample", runs=1000)
    assert (report.verdict, report.exit_code, report.runs) == ("not_refuted", 130, 1000)
    assert report.to_json()["interrupted"] is True


def test_the_deadline_applies_to_every_layer() -> None:
    report = audited(laplace(), "exact", "fit", runs=10**9, deadline=0.2)
    assert report.fit is not None
    assert report.fit.stopped == "the deadline was reached"
    assert report.fit.runs < 10**9
    half = read_target("half-scale")
    assert audited(half, "sample", runs=10**12, deadline=0.2).runs < 10**9
    assert audited(half, "sample", runs=10**12, sequential=True).verdict == "refuted"


def test_baselines_state_that_they_are_only_for_comparison() -> None:
    half = read_target("half-scale")
    more: dict[str, Any] = {"alpha": "0.05", "baselines": ("dkw",)}
    alone, shared = (
        audited(half, "sample", features=features, **more).baselines[0].epsilon_lower
        for features in (("identity",), ("identity", "sign"))
    )
    assert alone is not None
    assert shared is not None
    assert shared < alone
    watched = audited(half, "sample", sequential=True, **more)
    assert watched.baselines[0].valid is False
    assert "a number of runs fixed beforehand" in watched.baselines[0].says
