"""Tests of ``import audit``, of specs and of layers: Python, files and options give one report."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audit
from audit.audit_spec import AuditSpec
from audit.claims import Claim
from audit.cli.options_and_output import read_spec
from audit.outputs.output_parser import Outputs
from audit.published_failures.corpus_entry import entries
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit
from audit.run_audit import audit as audit_in_python
from audit.statistical_tests.event import Witness
from audit.statistical_tests.multiple_testing import LEADER
from audit.targets.target import Block, Catalogued, NoiseAdded, Scalar, Target, Vectorised
from audit.targets.target_syntax import read_target
from audit.testing.assertions import Refuted, check_private
from dpcore import DiscreteLaplace
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.audit.command import ROOT, Shell, hearing_ctrl_c
from tests.support.dpcore.refusals import refused

ALPHA = buy_alpha("audit.audit: audits of true claims", "1e-9")


def loaded(code: str) -> set[str]:
    """The packages that this code loads, in a process of its own."""
    code = f"import sys\n{code}\nprint(*(name.split('.')[0] for name in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split())


def test_importing_audit_loads_nothing_heavy_and_one_job_no_joblib() -> None:
    heavy = {"numpy", "scipy", "accounting", "flint", "typer", "pytest"}
    assert loaded("import audit") & heavy == set()
    after = loaded("import audit; audit.audit('count', runs=100)")
    assert after & heavy
    assert after & {"joblib", "cloudpickle"} == set()


def test_the_public_names_are_exactly_those_listed() -> None:
    assert {name for name in audit.__all__ if not hasattr(audit, name)} == set()
    assert set(audit.__all__) <= set(dir(audit))
    with pytest.raises(AttributeError, match="'audit' has no attribute 'nothing'"):
        _ = audit.nothing


def count(dataset: int, n: int, rng: np.random.Generator) -> Any:
    return dataset + rng.geometric(0.5, n) - rng.geometric(0.5, n)


@pytest.fixture
def shell(audit: Shell) -> Shell:
    return audit


@by_day(1)
@pytest.mark.parametrize(
    ("target", "words", "asked"),
    [
        (
            "half-scale",
            ("--sequential", "--feature", "sign", "--baseline", "dkw"),
            {"sequential": True, "features": ["sign"], "baselines": ["dkw"]},
        ),
        ("half-scale", ("--layers", "replay,sample"), {"layers": ["sample", "replay"]}),
        (  # a known law that is also sampled
            "discrete-laplace:scale=1",
            ("--claim", "epsilon=1", "--pair", 0, 1),
            {"claim": Claim(epsilon=1), "pair": (0, 1)},
        ),
    ],
    ids=["sequential", "layers", "a known law"],
)
def test_the_report_in_python_is_that_of_the_command(
    shell: Shell, target: str, words: tuple[object, ...], asked: dict[str, Any]
) -> None:
    given = (target, "--max-n", 3000, "--seed", 7, "--alpha", "1/3", "-o", "found.json")
    report = audit.audit(target, runs=3000, seed=7, confidence="2/3", **asked)
    answer = shell(*given, *words)
    assert f"{report}\n" == answer.out
    assert report.to_text() == Path("found.json").read_text()
    assert report.refuted is (answer.code == 1)


def test_ctrl_c_is_passed_on() -> None:
    # A background process may ignore SIGINT.
    calls = iter(range(10**6))

    def stopped(dataset: int) -> int:
        if next(calls) == 500:
            os.kill(os.getpid(), signal.SIGINT)
        return dataset

    with hearing_ctrl_c(), pytest.raises(KeyboardInterrupt):
        audit.audit(stopped, "epsilon=9", pair=(0, 1), runs=1000)


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("target", {"target": 5}), ("relation", {"relation": "friends"}),
        ("relation", {"claim": Claim(epsilon=1), "relation": "add-remove"}),
        ("claim", {"claim": None}), ("claim", {"claim": "five"}), ("claim", {"claim": 5}),
        ("pair", {"pair": None}), ("pair", {"pair": 5}), ("pair", {"pair": ([1], [1, 2])}),
        ("pairs", {"pairs": [(0, 1)]}), ("pairs", {"pair": None, "pairs": []}),
        ("search", {"search": "integer:low=0,high=3"}), ("feature", {"features": ["nothing"]}),
        ("confidence", {"confidence": "0.9", "alpha": "0.1"}),
        ("runs", {"layers": "replay", "runs": 10}), ("layers", {"layers": "exact"}),
        ("layers", {"layers": []}), ("layers", {"layers": "sample,sample"}),
        ("baseline", {"baselines": ["nothing"]}), ("features", {"features": "sign"}),
        ("runs", {"runs": 0}), ("runs", {"runs": "many"}), ("runs", {"runs": 1e13}),
        ("seed", {"seed": -1}), ("alpha", {"alpha": 1}), ("alpha", {"alpha": "1e-301"}),
        ("jobs", {"jobs": 0}), ("jobs", {"jobs": 1.5}), ("jobs", {"jobs": True}),
        ("timeout", {"timeout": 0}), ("deadline", {"deadline": math.inf}),
        ("sequential", {"sequential": 1}), ("resume", {"resume": 3}),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_input_is_refused_by_the_name_of_the_argument(
    argument: str, change: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"target": count, "claim": "epsilon=1", "pair": (0, 1), **change}
    with refused(argument):
        audit.audit(**given)


@pytest.mark.parametrize(
    ("field", "value"),
    [("resolution", 2), ("sensitivity", -1), ("norm", "l3"), ("tapes", 1), ("changes", 10**7)],
)
def test_an_invalid_field_is_refused_by_name(field: str, value: Any) -> None:
    with refused(field):
        AuditSpec(target="half-scale", **{field: value})


def test_text_and_values_give_equal_specs_that_survive_a_round_trip() -> None:
    text: dict[str, Any] = {"runs": "1e4", "alpha": "0.01", "seed": "7", "layers": "sample,exact"}
    spec = AuditSpec(target="half-scale", relation="add-remove", **text)
    assert (spec.runs, spec.alpha, spec.seed) == (10_000, Fraction(1, 100), 7)
    assert spec.layers == ("exact", "sample")
    assert replace(spec) == spec
    assert not any(AuditSpec().given(each.name) for each in fields(AuditSpec))


def test_options_override_a_spec_file(here: Path, audit: Shell) -> None:
    asked = 'target = "half-scale"\npairs = [[1, 0], [4, 5]]\nfeatures = ["identity", "sign"]\n'
    (here / "audit.toml").write_text(f'{asked}claim = "epsilon=1"\nruns = 500\nseed = 7\n')
    (here / "pairs.json").write_text("[[1, 0], [4, 5]]")
    words = ("half-scale", "--claim", "epsilon=1", "--pairs", "pairs.json", "-n", 2000, "--seed", 7,
             "--feature", "identity", "--feature", "sign", "--json")  # fmt: skip
    found = audit("--spec", "audit.toml", "-n", 2000, "--json")
    assert (found.code, found.out) == (1, audit(*words).out)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("target = ", "--spec = audit.toml: is not TOML"),
        ('targett = "x"', "did you mean target?"),
        ('claim = "epsilon=1"', "TARGET: must be given"),
        ('target = "half-scale"\nruns = 0', "-n = 0: must be a whole number"),
    ],
)
def test_an_invalid_spec_file_gives_a_one_line_error_and_exit_code_2(
    here: Path, audit: Shell, text: str, complaint: str
) -> None:
    (here / "audit.toml").write_text(text)
    answer = audit("--spec", "audit.toml")
    assert (answer.code, answer.out) == (2, "")
    assert complaint in answer.err


def test_the_five_ways_to_start_an_audit_give_the_same_report(here: Path, audit: Shell) -> None:
    (here / "t.py").write_text("def count(x, n, rng):\n    return x + rng.geometric(0.5, n)\n")
    given: dict[str, Any] = {"claim": "epsilon=1", "runs": 2000, "seed": 7, "alpha": "0.01"}
    asked = given | {"target": "t.py:count", "pair": [0, 1], "floats": "ignore"}
    (here / "audit.json").write_text(json.dumps(asked))
    words = ("t.py:count", "--claim", "epsilon=1", "--pair", 0, 1, "-n", 2000, "--seed", 7,
             "--alpha", "0.01", "--floats", "ignore", "--json")  # fmt: skip
    spec = AuditSpec(**read_spec(Path("audit.json")))
    with pytest.raises(Refuted) as marked:  # what the pytest plugin calls
        check_private(spec)
    corpus = replace(entries()[0].spec, **given, target="t.py:count", pair=(0, 1), features=(),
                     floats="ignore", relation=None)  # fmt: skip
    reports = [
        audit_in_python("t.py:count", "epsilon=1", pair=(0, 1), floats="ignore", runs=2000, seed=7,
                        alpha="0.01"),
        Audit(spec).run(),
        Audit(corpus).completed(),
        marked.value.report,
    ]  # fmt: skip
    assert {type(report) for report in reports} == {AuditReport}
    documents = [json.loads(report.to_text()) for report in reports if report is not None]
    documents += [audit(*words).json, audit("--spec", "audit.json", "--json").json]
    assert documents == documents[:1] * 6


def test_options_of_replay_apply_only_to_the_layer_replay(audit: Shell) -> None:
    words = ("clipped-to-two", "--seed", 7, "--sensitivity", "1", "--strict", "--tapes", 4,
             "--changes", 5, "--json")  # fmt: skip
    found = audit(*words, "--layers", "replay").json["findings"]
    own = audit("replay", *words).json["findings"]
    assert found == own
    assert "sensitivity-exceeded" in {each["kind"] for each in found}
    refused = audit(*words)
    assert (refused.code, refused.out) == (2, "")
    assert "--sensitivity = 1: would have no effect: it applies only to replay" in refused.err


LAYER_ALPHA = Fraction(buy_alpha("layers: audits of true claims", "1e-8")) / 20
LAYERED = AuditSpec(claim="epsilon=1", pair=(0, 1), runs=4000, alpha=LAYER_ALPHA, seed=7)
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
    spec = replace(LAYERED, target=target, layers=layers, **more)
    return Audit(spec).run(figures=figures)


def test_every_layer_reports_its_own_result() -> None:
    report = audited(laplace(), "exact", "fit", "replay", "sample")
    assert [layer.layer for layer in report.layers] == ["exact", "fit", "sample", "replay"]
    assert (report.verdict, report.exit_code, report.alpha) == ("proven", 0, LAYER_ALPHA)
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
    with pytest.raises(InvalidParameter, match="such as noise, not a list of probabilities"):
        audited(read_target("randomised-response:epsilon=1,values=3"), "fit", pair=(0, 1))
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


@pytest.mark.parametrize(
    ("last", "interrupts", "verdict", "code"),
    [(0, False, None, 3), (1030, False, None, 3), (1500, True, "not_refuted", 130)],
    ids=["a failure at once", "a failure of the replay", "Ctrl-C in the replay"],
)
def test_drawn_runs_survive_a_target_that_stops(
    last: int, interrupts: bool, verdict: str | None, code: int
) -> None:
    calls = [0]

    def stops(dataset: int, rng: np.random.Generator) -> int:
        calls[0] += 1
        if calls[0] > last and interrupts:
            signal.raise_signal(signal.SIGINT)
        elif calls[0] > last:
            raise ValueError("no more")
        return dataset + int(rng.integers(100))

    with hearing_ctrl_c():
        target = Scalar(spelling="stops", function=stops)
        report = audited(target, "replay", "sample", runs=1000)
    assert (report.verdict, report.exit_code, report.runs) == (verdict, code, 1000 * (last > 0))
    assert report.to_json()["interrupted"] is interrupts
    assert interrupts or (report.error is not None and "no more" in report.error.reason)


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
