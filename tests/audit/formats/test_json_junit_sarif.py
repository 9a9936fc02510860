"""Tests that JSON results, JUnit reports and SARIF logs are valid under their schemas."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from jsonschema import Draft202012Validator, ValidationError

from audit.bench import bench
from audit.broken_mechanisms import find
from audit.fit.fit import FitReport
from audit.formats.junit_and_sarif import Case, formatted
from audit.formats.result import (
    Result,
    Statement,
    format_enclosure,
    format_share,
    json_schema,
    json_text,
    plain,
)
from audit.formats.shorten import cut, distinct, shortened
from audit.known_laws.known_laws_report import ExactReport
from audit.known_laws.law_file import read_law
from audit.published_failures.corpus_entry import entries
from audit.published_failures.judge import Answer, CorpusReport, Judged
from audit.replay.replay_report import Finding, ReplayReport
from audit.training.canary_audit import canaries
from dpcore import DiscreteLaplace
from dpcore.numbers.enclosure import Enclosure
from tests.audit.formats.schemas import FOLDER, RESULTS, path_of, text_of
from tests.support.audit.browser import Visible
from tests.support.audit.html_documents import DOCUMENTS, NASTY, curve, failed, kept
from tests.support.dpcore.mutants import rewired

# The part of the JUnit schema of Jenkins and GitLab for the elements that dpcore writes.
JUNIT = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:complexType name="fault" mixed="true"><xs:attribute name="message" type="xs:string"/>
  <xs:attribute name="type" type="xs:string" use="required"/></xs:complexType>
<xs:attributeGroup name="counts"><xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
  <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
  <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/></xs:attributeGroup>
<xs:element name="testsuites"><xs:complexType><xs:sequence>
  <xs:element name="testsuite" maxOccurs="unbounded"><xs:complexType><xs:sequence>
    <xs:element name="testcase" minOccurs="0" maxOccurs="unbounded"><xs:complexType><xs:sequence>
      <xs:choice minOccurs="0"><xs:element name="failure" type="fault"/>
        <xs:element name="error" type="fault"/></xs:choice>
      <xs:element name="system-out" type="xs:string" minOccurs="0"/></xs:sequence>
      <xs:attribute name="name" type="xs:string" use="required"/>
      <xs:attribute name="classname" type="xs:string" use="required"/>
      <xs:attribute name="time" type="xs:decimal"/><xs:attribute name="file" type="xs:string"/>
      <xs:attribute name="line" type="xs:positiveInteger"/></xs:complexType></xs:element></xs:sequence>
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="time" type="xs:decimal"/><xs:attributeGroup ref="counts"/>
  </xs:complexType></xs:element></xs:sequence><xs:attributeGroup ref="counts"/></xs:complexType>
</xs:element></xs:schema>"""  # noqa: E501  # an element a line


def closed(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


# Sections 3.13, 3.14, 3.19, 3.27, 3.28 and 3.49 of SARIF 2.1.0, for the properties dpcore writes.
TEXT = {"type": "string", "minLength": 1}
MESSAGE = closed(["text"], text=TEXT)
PHYSICAL = closed(
    ["artifactLocation"],
    artifactLocation=closed(["uri"], uri={"type": "string", "pattern": r"^[^\\]+$"}),
    region=closed(["startLine"], startLine={"type": "integer", "minimum": 1}),
)
LOGICAL = {"type": "array", "items": closed([], fullyQualifiedName=TEXT), "minItems": 1}
RESULT = closed(
    ["message"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations={
        "type": "array",
        "items": closed([], physicalLocation=PHYSICAL, logicalLocations=LOGICAL),
    },
)
RULES = {"type": "array", "items": closed(["id"], id=TEXT, shortDescription=MESSAGE)}
DRIVER = closed(["name"], name=TEXT, version=TEXT, rules={**RULES, "uniqueItems": True})
RUN = closed(
    ["tool"],
    tool=closed(["driver"], driver=DRIVER),
    invocations={
        "type": "array",
        "items": closed(["executionSuccessful"], executionSuccessful={"type": "boolean"}),
    },
    results={"type": "array", "items": RESULT},
)
SARIF = closed(
    ["version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={"type": "array", "items": RUN},
)


def results() -> Iterator[tuple[str, Result]]:
    yield from ((name, made()) for name, made in DOCUMENTS.items())
    law = DiscreteLaplace(scale=1)
    yield "fit", FitReport(target="f", law=law, verdict="refuted", alpha="0.05", runs=5)
    one, other = (read_law(name, f"discrete-laplace:scale=1@{i}") for i, name in enumerate("PQ"))
    yield "exact", ExactReport(p=one, q=other)
    found = Finding(kind="no-noise", severity="error", statement=NASTY, witness={"x": NASTY})
    yield "replay", ReplayReport(target="f.py:f", pair=(0, 1), findings=(found,))
    yield "canaries", canaries(list(range(200)), [i >= 100 for i in range(200)], "epsilon=1")
    sides = [Answer(side=entries()[0].broken, verdict="refuted", right=right, epsilon_lower=2.0)
             for right in (True, False)]  # fmt: skip
    row = Judged(entry=entries()[0], broken=sides[0], twin=sides[1])
    yield "corpus", CorpusReport(rows=(row,))
    half = find("half-scale")
    assert half is not None
    yield "bench", bench([half])


def test_the_published_schemas_are_those_of_the_fields() -> None:
    for result in RESULTS:
        Draft202012Validator.check_schema(json_schema(result))
        assert path_of(result).read_text(encoding="utf-8") == text_of(result)
    assert {path_of(each) for each in RESULTS} == set(FOLDER.glob("*.json"))


def test_every_format_of_a_result_is_valid_under_its_schema() -> None:
    junit = xmlschema.XMLSchema(io.StringIO(JUNIT))
    for name, result in results():
        document = json.loads(result.to_text())
        schema = json_schema(type(result))
        Draft202012Validator(schema).validate(document)
        with pytest.raises(ValidationError):
            Draft202012Validator(schema).validate({**document, "verdict": 7})
        junit.validate(result.to_format("junit"))
        log = json.loads(result.to_format("sarif"))
        Draft202012Validator(SARIF).validate(log)
        failing = any(case.outcome in {"failed", "error"} for case in result.cases())
        assert failing == (result.exit_code != 0), name
        assert bool(log["runs"][0]["results"]) >= failing
        assert result.to_format("text") == f"{result}\n"
        assert result.to_format("json") == result.to_text()
        if name in DOCUMENTS:  # HTML pages are tested in tests/audit/report/test_html.py
            continue
        shown = Visible.of(result.to_html())
        assert result.statement().verdict in shown.words
        assert "script" not in shown.tags
        assert result._repr_html_().startswith("<iframe sandbox")


def test_a_report_has_no_truth_value() -> None:
    # `assert audit(...)` must not pass for a report that refutes its claim.
    for report in (curve(), kept(), failed()):
        with pytest.raises(TypeError, match="has no truth value: use refuted"):
            bool(report)


def test_a_document_that_violates_its_schema_is_detected() -> None:
    report, log = curve().to_format("junit"), curve().to_format("sarif")
    junit = xmlschema.XMLSchema(io.StringIO(JUNIT))
    for good, bad in (("classname", "class"), ("failure", "fail")):
        assert not junit.is_valid(report.replace(good, bad))
    for good, bad in (('"error"', '"fatal"'), ("2.1.0", "2.0.0"), ('"text"', '"words"')):
        assert not Draft202012Validator(SARIF).is_valid(json.loads(log.replace(good, bad)))


def counts(text: str) -> tuple[str, ...]:
    root = xmlschema.XMLResource(text).root
    return tuple(root.attrib[name] for name in ("tests", "failures", "errors"))


def test_each_finding_is_a_junit_case_and_an_unfinished_audit_is_an_error() -> None:
    assert counts(curve().to_format("junit")) == ("3", "2", "0")  # one of them is a warning
    assert counts(kept().to_format("junit")) == ("1", "0", "0")
    assert counts(replace(kept(), interrupted=True).to_format("junit")) == ("1", "0", "1")
    assert counts(failed().to_format("junit"))[2] == "1"
    assert "\ufffd\ufffd]]&gt;" in replace(failed(), target="\x00\ud800]]>").to_format("junit")
    timed = Case(target="t", name="c", rule="r", outcome="passed", message="m", seconds=1.25)
    for cases, times in (([timed], 2), ([replace(timed, seconds=None)], 0)):
        report = formatted("junit", text="", document="", cases=cases)
        assert (report.count(' time="1.250"'), report.count(" time=")) == (times, times)
    log = json.loads(curve().to_format("sarif"))["runs"][0]
    levels = [each["level"] for each in log["results"]]
    assert levels == ["error", "error", "warning"]


def test_a_finding_points_to_the_line_of_its_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pkg").mkdir()
    Path("pkg/counts.py").write_text("import os\n\ndef noisy(x):\n    return x\n", encoding="utf-8")
    source = "total: int = 0\nnamed = lambda x: x\nclass A:\n    class B:\n        def f(x): ...\n"
    Path("my é.py").write_text(source, encoding="utf-8")
    Path("wrong.py").write_text("def (", encoding="utf-8")
    for target, place in (
        ("pkg/counts.py:noisy", ("pkg/counts.py", 3)),
        ("pkg.counts:noisy", ("pkg/counts.py", 3)),
        (f"{tmp_path}/pkg/counts.py:noisy", ("pkg/counts.py", 3)),
        ("my é.py:named", ("my%20%C3%A9.py", 2)),
        ("my é.py:A.B.f", ("my%20%C3%A9.py", 5)),
        ("my é.py:A.other", ("my%20%C3%A9.py", 3)),
        ("wrong.py:f", ("wrong.py", 1)),
        ("discrete-laplace:scale=1", None),
        ("exec:./counts", None),
    ):
        case = Case(target=target, name="c", rule="r", outcome="failed", message="m")
        log = json.loads(formatted("sarif", text="", document="", cases=[case]))
        (location,) = log["runs"][0]["results"][0]["locations"]
        assert location["logicalLocations"] == [{"fullyQualifiedName": target}]
        found = location.get("physicalLocation")
        shown = found and (found["artifactLocation"]["uri"], found["region"]["startLine"])
        assert shown == place


PROBABILITIES = [Fraction(k, n) for n in (7, 100, 1999, 10**6 + 3) for k in (1, 3, n - 1)]


def safe(write: Callable[[Fraction], str]) -> bool:
    """Whether the written fraction is never below the probability, and close to it."""
    found = []
    for exact in PROBABILITIES:
        cases, group = write(exact).split(" of ")
        shown = Fraction(cases) / int(group.replace(",", ""))
        found.append(exact <= shown <= exact * Fraction(11, 10) and Fraction(cases) >= 1)
    return all(found)


def test_a_probability_as_k_of_n_runs_is_never_too_small() -> None:
    assert safe(format_share)
    assert not safe(rewired(format_share, up=lambda value, digits: f"{float(value):.{digits}g}"))
    for share, told in ((0, "0 of 100"), (1, "100 of 100"), (1e-6, "1 of 1,000,000")):
        assert format_share(Fraction(repr(share))) == told


def test_json_is_strict_and_intervals_are_rounded_outwards() -> None:
    ends = plain(Enclosure(Fraction(1, 10), math.inf))
    assert isinstance(ends[0], float)
    assert Fraction(ends[0]) <= Fraction(1, 10)
    found = json.loads(json_text({"ends": ends, "none": plain(math.inf)}))
    assert found == {"ends": [ends[0], "inf"], "none": "inf"}
    assert plain((-math.inf, math.nan)) == ["-inf", "nan"]
    with pytest.raises(ValueError, match="Out of range float"):
        json_text({"bound": math.inf})
    third = Enclosure(Fraction(1, 3), Fraction(1, 3))
    assert format_enclosure(third, 3) == "between 0.333 and 0.334"
    assert format_enclosure(Enclosure.exactly(Fraction(1, 10))) == "exactly 0.1"


def test_values_are_aligned_in_a_column() -> None:
    told = Statement(verdict="PROVEN", about="x", rows=(("a", "word " * 40), ("a long name", "y")))
    for width in (40, 60, 100):
        head, *lines = told.lines(width)
        assert head == "PROVEN  x"
        margin = lines[-1].index("y")
        assert {len(line) - len(line.lstrip()) for line in lines[1:-1]} == {margin}
        assert lines[0].index("word") == margin
        assert max(map(len, lines)) <= width


def test_shortened_texts_stay_distinct_and_omissions_are_counted() -> None:
    tuples = [repr((1,) * 40 + (k,)) for k in range(6)]
    for names in (tuples, [f"{'x' * 190}{k}{'y' * 99}" for k in range(5)], ["ab" * 99, "ab" * 98]):
        short = distinct(names, 20)
        assert len(set(short)) == len(names)
        assert max(map(len, short)) <= 20
    one, other = ("x" * 500 + end for end in "ab")
    assert shortened(one) != shortened(other)
    assert "501 characters" in shortened(one)
    assert cut(one, 20) == cut(other, 20) == "x" * 17 + "..."
