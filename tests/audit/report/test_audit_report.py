"""Tests of the audit report as JSON and as text: completeness, rounding direction and width."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from audit.audit_spec import AuditSpec
from audit.claims import Claim, LayerRun
from audit.cli.options_and_output import show
from audit.errors import TargetFailed
from audit.report.audit_record import ExactFinding, ExactWitness
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit, audit
from audit.statistical_tests.event import Witness
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure

WITNESS = Witness(event="output <= -1", world="A", inside_a=41, runs_a=100, inside_b=3, runs_b=97)
SAMPLED = AuditReport(
    target="counts.py:noisy_count_of_everything", claim=Claim(epsilon=1, delta="1e-6"),
    pair=(list(range(100)), {"name": "someone", "age": 41}), verdict="refuted",
    epsilon_lower=1.9199, alpha=Fraction(1, 20), p_value=1.2345e-7, runs_by_world=(50_123, 49_877),
    stopped="as many as planned", witness=WITNESS, resolution=0.00052604,
    layers=(LayerRun(layer="sample", method="prequential guessing game", proves="P(p <= a) <= a"),),
    seed=4294967295, warnings=("something to know",),
    versions={"dpcore": "0.1.0", "python": "3.11", "numpy": "2"},
)  # fmt: skip
THIRD = Enclosure(Fraction(333, 1000), Fraction(334, 1000))
PROVEN = AuditReport(
    target="discrete-laplace:scale=1", claim=Claim(epsilon=1), pair=(0, 1), verdict="proven",
    epsilon_lower=1.0, alpha=Fraction(1, 20), runs_by_world=(0, 0), stopped="no runs",
    exact=ExactFinding(delta=Enclosure.exactly(0), epsilon=THIRD),
    layers=(LayerRun(layer="exact", method="enclosed", proves="for every event"),),
)  # fmt: skip
EXACT_WITNESS = ExactWitness(
    event="output >= 1", world="B", probability_a=THIRD, probability_b=Enclosure.exactly(1)
)


def lines(report: AuditReport, width: int = 80) -> list[str]:
    return report.statement().lines(width)


def variants() -> list[AuditReport]:
    change = dataclasses.replace
    return [
        SAMPLED,
        change(SAMPLED, verdict="not_refuted", p_value=0.7),
        change(SAMPLED, p_value=None, e_value=1e9, repeatable=False),
        change(SAMPLED, verdict=None, error=TargetFailed("f", "raised X", dataset="A", run=3)),
        change(SAMPLED, exact=PROVEN.exact, layers=(*PROVEN.layers, *SAMPLED.layers)),
        PROVEN,
        change(PROVEN, verdict="refuted", witness=EXACT_WITNESS, epsilon_lower=math.inf),
    ]


@pytest.mark.parametrize("report", variants())
def test_a_text_report_is_short_and_plain_and_the_document_strict(report: AuditReport) -> None:
    shown = lines(report)
    assert len(shown) <= 15
    assert all(len(line) <= 80 for line in shown)
    assert not any(line != line.rstrip() for line in shown)
    assert all("private" not in line.lower() for line in shown)
    words = ("REFUTED", "NOT REFUTED AT THIS RESOLUTION", "PROVEN", "THE TARGET FAILED")
    assert shown[0].startswith(words)
    stream = io.StringIO()
    show(report.statement(), stream)
    assert "\x1b" not in stream.getvalue()

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    found = json.loads(report.to_text(), parse_constant=refuse)
    assert found == json.loads(json.dumps(report.to_json()))
    assert (found["alpha"], len(found["pair"])) == (0.05, 2)
    assert found["runs"] == report.runs == sum(found["runs_by_world"].values())
    assert report.to_text().endswith("}\n")


def test_colour_is_printed_only_on_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    show(SAMPLED.statement(), stream)
    assert "\x1b[1;31mREFUTED\x1b[0m" in stream.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines() == lines(SAMPLED, 100)


def test_extreme_numbers_are_printed_and_verdicts_have_exit_codes() -> None:
    below = " ".join(" ".join(lines(dataclasses.replace(SAMPLED, epsilon_lower=0.59))).split())
    assert "bound not above the refuted epsilon = 1: the bound is the last epsilon" in below
    assert "test of the claim itself shows that epsilon exceeds 1, with 95% confidence" in below
    assert "not above the refuted" not in " ".join(lines(SAMPLED))
    shown = "\n".join(lines(dataclasses.replace(SAMPLED, alpha="1e-300")))
    assert "with 99.9999% confidence" in shown  # never rounded up to certainty
    assert "1e-300 or less refutes" in shown
    assert "-0.0" not in dataclasses.replace(SAMPLED, epsilon_lower=-0.0).to_text()
    found = dataclasses.replace(PROVEN, epsilon_lower=math.inf, resolution=math.inf).to_json()
    assert (found["epsilon_lower"], found["resolution"]) == ("inf", None)
    codes = {report.verdict: report.exit_code for report in variants()}
    assert codes == {"refuted": 1, "not_refuted": 0, "proven": 0, None: 3}


def textbook(value: float, n: int, rng: np.random.Generator, scale: float = 1) -> Any:
    return value + rng.laplace(scale=scale, size=n)


def test_the_report_of_a_floating_point_leak_explains_how_to_audit_the_scale() -> None:
    told = {}
    for feature, runs in (("lowest-bit", 3000), ("precision", 3000), ("identity", 2000)):
        report = audit(textbook, "epsilon=1", pair=(0, 1), runs=runs, seed=1, features=[feature])
        told[feature] = " ".join(str(report).split())
        said = feature != "identity"
        shown = (report.to_html(), report._repr_html_())
        assert all(("Rounding the output does not fix this" in html) == said for html in shown)
        assert report.refuted_by == ("floating-point" if said else None)
        assert ("not from its scale" in told[feature]) is said
    assert told["precision"].startswith("REFUTED (floating-point leak) ")
    advice = "value + dpcore.DiscreteLaplace(scale=sensitivity / epsilon).sample()"
    assert advice in told["lowest-bit"]
    assert "To audit the values alone: --floats ignore" in told["lowest-bit"]
    assert told["identity"].startswith("NOT REFUTED")


def test_the_cause_of_a_refutation_is_named_and_values_take_precedence() -> None:
    def shows(value: int, n: int, rng: np.random.Generator) -> Any:
        return value + 2 * rng.integers(0, 9, size=n)

    given: dict[str, Any] = {"claim": "epsilon=1", "pair": (0, 1), "runs": 8000, "seed": 1}
    both = audit(partial(textbook, scale=1 / 2), **given)
    assert {row.feature for row in both.outcomes if row.refuted} >= {"identity", "precision"}
    assert isinstance(both.witness, Witness)
    assert (both.refuted_by, both.headline) == ("values", "REFUTED")
    assert both.witness.feature != "precision"
    assert both.epsilon_lower > 1
    leak = audit(textbook, **given)
    assert leak.to_json()["refuted_by"] == "floating-point"
    assert "values not refuted without the leak" in " ".join(str(leak).split())
    ignored = audit(textbook, floats="ignore", **given)
    assert (ignored.verdict, ignored.refuted_by) == ("not_refuted", None)
    assert ignored.features == ("identity",)
    # The lowest bit of an integer is part of its value.
    assert audit(shows, features=["lowest-bit"], **given).refuted_by == "values"
    assert audit("discrete-laplace:scale=1", "epsilon=0.9", pair=(0, 1)).refuted_by == "values"
    with pytest.raises(InvalidParameter, match="contradicts the feature precision"):
        audit(textbook, features=["precision"], floats="ignore", **given)


def test_a_target_that_fails_on_one_dataset_only_is_refuted_by_errors() -> None:
    def fails(value: int, rng: np.random.Generator) -> int:
        return 1 // (1 - value) + int(rng.integers(3))

    spec = AuditSpec(target=fails, claim="epsilon=1", pair=(0, 1), runs=1000, seed=1)
    report = Audit(spec).run()
    assert (report.verdict, report.exit_code, report.refuted_by) == (None, 3, "errors")
