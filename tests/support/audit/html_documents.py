"""Reports for HTML pages: one of each kind, from audits of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from audit.audit_spec import AuditSpec
from audit.claims import Claim, CurveClaim
from audit.errors import TargetFailed
from audit.fit.fit import FitReport
from audit.known_laws.exact_layer import prove
from audit.replay.replay_report import Finding
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit
from audit.runs.draw_plan import Plan
from audit.search.worst_pair_search import SearchResult
from audit.statistical_tests.clopper_pearson_and_other_baselines import BaselineFinding
from audit.statistical_tests.sample_outcome import Outcome
from audit.targets.target_syntax import read_target
from dpcore import DiscreteLaplace
from tests.day_and_nightly import effort

RUNS = effort(2000, 4000)
COMMAND = "dpcore audit half-scale --claim epsilon=1 --pair 0 1 -n 4000 --seed 7"
NASTY = "<script>alert('x')</script>&\"quoted\".py:f"


@cache
def sampled(name: str, *, sequential: bool = False) -> AuditReport:
    """An audit with figures of the same runs that were tested."""
    spec = AuditSpec(target=name, features=("identity",), runs=RUNS, seed=8, sequential=sequential)
    return replace(Audit(spec).run(figures=True), tradeoff_band=None)


def refuted() -> AuditReport:
    return replace(
        sampled("half-scale"),
        baselines=(
            BaselineFinding(name="clopper-pearson", epsilon_lower=1.8, says="a split", valid=True),
            BaselineFinding(name="bayes", epsilon_lower=2.1, says="a posterior", valid=False),
        ),
    )


def kept() -> AuditReport:
    return replace(sampled("count"), warnings=("12 outputs are nan",))


POINTS = (("0", "0.2", 0.0), ("0.9", "0.01", 1.1), ("1.7", "0.0001", 1.9), ("2.3", "0", 1.8))


def curve() -> AuditReport:
    outcomes = tuple(
        Outcome(
            claim=Claim(epsilon=epsilon, delta=delta),
            epsilon_lower=bound,
            refuted=bound > float(epsilon),
            p_value=0.001,
            feature="sign" if delta == "0" else None,
        )
        for epsilon, delta, bound in POINTS
    )
    law = DiscreteLaplace(scale=1)
    no_noise = Finding(
        kind="no-noise",
        severity="error",
        statement="On tape 12 both outputs are <the dataset> itself.",
        witness={"output_a": 0, "output_b": 1},
        refutes=True,
    )
    weak = Finding(kind="weak-generator", severity="warning", statement="It is numpy's.")
    return replace(
        refuted(),
        claim=CurveClaim(spelling="discrete-gaussian:sigma_squared=4@1"),
        pairs=((0, 1), ([1, 2], [1, 3])),
        at_delta=Fraction(1, 100),
        curve=tuple((e / 10, 0.2 * 10 ** (-e / 6)) for e in range(24)),
        outcomes=outcomes,
        search=SearchResult(space="integers 0..9", pair=(0, 1), runs=2000, tried=()),
        fit=FitReport(target="f", law=law, verdict="refuted", alpha="0.05", runs=5, p_value=1e-9),
        findings=(no_noise, weak),
    )


def exact(epsilon: str) -> AuditReport:
    target: Any = read_target("discrete-laplace:scale=1")
    return prove(target, Plan(claim=Claim(epsilon=epsilon), pair=(0, 1)))


def failed() -> AuditReport:
    error = TargetFailed(NASTY, "raised ValueError: <b>no</b>", dataset="B", run=97)
    return replace(refuted(), target=NASTY, verdict=None, error=error)


DOCUMENTS: dict[str, Callable[[], AuditReport]] = {
    "refuted": refuted,
    "not-refuted": kept,
    "sequential": lambda: sampled("half-scale", sequential=True),
    "labels": lambda: sampled("order-kept"),
    "curve": curve,
    "proven": lambda: exact("1"),
    "exact-refuted": lambda: exact("0.9"),
    "failed": failed,
}


@cache
def shown_of(name: str) -> str:
    return DOCUMENTS[name]().to_html(command=COMMAND)


VERDICTS = {
    "refuted": "REFUTED",
    "not-refuted": "NOT REFUTED AT THIS RESOLUTION",
    "sequential": "REFUTED",
    "labels": "REFUTED",
    "curve": "REFUTED",
    "proven": "PROVEN",
    "exact-refuted": "REFUTED",
    "failed": "THE TARGET FAILED",
}
