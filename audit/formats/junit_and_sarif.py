r"""Output formats for continuous integration: JUnit for test reports, SARIF for code scanning."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from audit.formats.shorten import printable
from dpcore.errors import ANSWER, NEGATIVE_ANSWER, InvalidParameter

Outcome: TypeAlias = Literal["passed", "failed", "error", "warning", "note"]
r"""The outcomes of a case: "failed" is evidence against the code, "error" an unfinished audit."""

_LEVELS: Final = {"failed": "error", "error": "error", "warning": "warning", "note": "note"}
_XML: Final = '<?xml version="1.0" encoding="utf-8"?>\n'
_SARIF: Final = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    r"""A test case in a report; code scanning groups test cases that have the same ``rule``."""

    target: str
    name: str
    rule: str
    outcome: Outcome
    message: str
    detail: str = ""
    seconds: float | None = None


def outcome_of(exit_code: int) -> Outcome:
    r"""The outcome of a command with ``exit_code``: 0 is passed, 1 failed, any other an error."""
    outcomes: dict[int, Outcome] = {ANSWER: "passed", NEGATIVE_ANSWER: "failed"}
    return outcomes.get(exit_code, "error")


def format_of(name: str, *, as_json: bool) -> str:
    r"""The output format ``name``, which ``--json`` (``as_json``) changes from "text" to "json"."""
    if as_json and name not in {"text", "json"}:
        raise InvalidParameter("--format", name, "contradicts --json: give only one of the two")
    return "json" if as_json else name


def formatted(name: str, *, text: str, document: str, cases: Iterable[Case]) -> str:
    r"""Return the output in the format ``name``.

    The format "text" is ``text``, and "json" is ``document``. The formats "junit" and "sarif" are
    made from ``cases``.
    """
    match name:
        case "junit":
            return _junit(list(cases))
        case "sarif":
            return _sarif(cases)
    return document if name == "json" else text


def _junit(cases: Sequence[Case]) -> str:
    from xml.etree import ElementTree as ET

    seen = Counter(case.outcome for case in cases)
    counts = {"tests": len(cases), "failures": seen["failed"], "errors": seen["error"]}
    counted = {name: str(count) for name, count in counts.items()}
    root = ET.Element("testsuites", counted)
    known = [case.seconds for case in cases if case.seconds is not None]
    took = _time(sum(known) if known else None)
    inner = ET.SubElement(root, "testsuite", {"name": "dpcore audit", **counted, **took})
    for case in cases:
        named = {"name": printable(case.name), "classname": printable(case.target)}
        took, place = _time(case.seconds), _place(case.target)
        one = ET.SubElement(inner, "testcase", {**named, **took, **place})
        words = printable(case.message)
        if case.outcome in {"failed", "error"}:
            kind = "failure" if case.outcome == "failed" else "error"
            fault = ET.SubElement(one, kind, {"message": words, "type": printable(case.rule)})
            fault.text = printable(case.detail or case.message)
        else:
            ET.SubElement(one, "system-out").text = printable(case.detail or case.message)
    return _XML + ET.tostring(root, encoding="unicode") + "\n"


def _time(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"time": f"{seconds:.3f}"}


def _sarif(cases: Iterable[Case]) -> str:
    from importlib.metadata import version

    found = [case for case in cases if case.outcome != "passed"]
    rules = list(dict.fromkeys(case.rule for case in found))
    driver = {
        "name": "dpcore",
        "version": version("dpcore"),
        "rules": [{"id": rule, "shortDescription": {"text": rule}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": all(c.outcome != "error" for c in found)}],
        "results": [
            {
                "ruleId": case.rule,
                "ruleIndex": rules.index(case.rule),
                "level": _LEVELS[case.outcome],
                "message": {"text": printable(case.detail or case.message)},
                "locations": [_location(case.target)],
            }
            for case in found
        ],
    }
    document = {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def _location(target: str) -> dict[str, Any]:
    # Code scanning shows only results with a location in a file.
    logical = {"logicalLocations": [{"fullyQualifiedName": printable(target)}]}
    place = _place(target)
    if not place:
        return logical
    physical = {
        "artifactLocation": {"uri": quote(place["file"], errors="surrogateescape")},
        "region": {"startLine": int(place["line"])},
    }
    return {"physicalLocation": physical, **logical}


def _place(target: str) -> dict[str, str]:
    # The file and line of a target such as file.py:name or package.module:name; the path is
    # relative to the working folder if possible.
    module, _, name = target.rpartition(":")
    path = Path(module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
    parts = name.split(".")
    if not all(map(str.isidentifier, parts)) or not path.is_file():
        return {}
    inside = path.resolve()
    if inside.is_relative_to(Path.cwd()):
        path = inside.relative_to(Path.cwd())
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {"file": path.as_posix(), "line": "1"}
    line, body = 1, tree.body
    for part in parts:
        found = [node for node in body if part in _names(node)]
        line, body = (found[-1].lineno, getattr(found[-1], "body", [])) if found else (line, [])
    return {"file": path.as_posix(), "line": str(line)}


def _names(node: ast.stmt) -> list[str]:
    # The names that a statement defines: of a function, a class, or a variable.
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [each.id for each in node.targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(name)):
            return [name]
    return []
