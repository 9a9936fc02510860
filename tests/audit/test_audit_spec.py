"""Tests of `audit.audit_spec`: invalid specs are refused; file, options and Python agree."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from audit.audit_spec import AuditSpec
from audit.cli.options import read_spec
from audit.published_failures.corpus_entry import entries
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit
from audit.run_audit import audit as audit_in_python
from audit.testing.assertions import Refuted, check_private
from tests.support.audit.command import Shell
from tests.support.dpcore.refusals import refused


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("runs", 0), ("runs", "many"), ("runs", 1e13), ("seed", -1), ("jobs", 0), ("jobs", -2),
        ("jobs", 1.5), ("jobs", True), ("alpha", 1), ("alpha", math.nan), ("alpha", "1e-301"),
        ("timeout", 0), ("deadline", math.inf), ("relation", "friends"), ("claim", "five"),
        ("claim", 5), ("pair", 5), ("pairs", []), ("features", "sign"), ("layers", []),
        ("layers", "sample,sample"), ("resolution", 2), ("sequential", 1), ("sensitivity", -1),
        ("norm", "l3"), ("tapes", 1), ("changes", 10**7), ("resume", 3),
    ],
    ids=str,
)  # fmt: skip
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


SPEC = """
target = "half-scale"
claim = "epsilon=1"
pairs = [[1, 0], [4, 5]]
features = ["identity", "sign"]
runs = 2000
seed = 7
alpha = 0.01
"""


def test_a_spec_file_equals_the_options(here: Path, audit: Shell) -> None:
    (here / "audit.toml").write_text(SPEC)
    (here / "pairs.json").write_text("[[1, 0], [4, 5]]")
    words = ("half-scale", "--claim", "epsilon=1", "--pairs", "pairs.json", "-n", 2000, "--seed", 7,
             "--feature", "identity", "--feature", "sign", "--alpha", "0.01", "--json")  # fmt: skip
    found = audit("--spec", "audit.toml", "--json")
    assert (found.code, found.out) == (1, audit(*words).out)
    (here / "audit.json").write_text(json.dumps({"target": "half-scale", "runs": 2000, "seed": 7}))
    assert audit("--spec", "audit.json", "--json").json["runs"] == 2000
    # Options override the file.
    assert audit("--spec", "audit.toml", "--seed", 8, "--json").json["seed"] == 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("target = ", "--spec = audit.toml: is not TOML"),
        ('targett = "x"', "did you mean target?"),
        ('claim = "epsilon=1"', "TARGET: must be given"),
        ("target = 3", "TARGET = 3: must be given"),
        ('target = "half-scale"\nruns = 0', "-n = 0: must be a whole number"),
        ('target = "half-scale"\nfeatures = "sign"', "--feature = sign: must be a list"),
        (
            'target = "half-scale"\npair = [0, 1]\npairs = [[0, 1]]',
            "--pairs: is given together",
        ),
    ],
)
def test_an_invalid_spec_file_gives_a_one_line_error_and_exit_code_2(
    here: Path, audit: Shell, text: str, complaint: str
) -> None:
    (here / "audit.toml").write_text(text)
    answer = audit("--spec", "audit.toml")
    assert (answer.code, answer.out) == (2, "")
    assert complaint in answer.err


def test_each_field_of_a_spec_is_an_option(audit: Shell) -> None:
    told = audit("--help").out
    for each in fields(AuditSpec):
        option = each.metadata["option"]
        assert option.metavar in told
        assert all(name in told for name in option.names)


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
