"""The published JSON schemas of results; ``python -m tests.audit.formats.schemas`` writes them."""

from __future__ import annotations

import json
from pathlib import Path

from audit.bench import Bench
from audit.fit.fit import FitReport
from audit.formats.result import Result, json_schema
from audit.known_laws.known_laws_report import ExactReport
from audit.published_failures.judge import CorpusReport
from audit.replay.replay_report import ReplayReport
from audit.report.audit_report import AuditReport
from audit.training.canary_audit import CanaryReport
from audit.training.step_report import StepReport

FOLDER = Path(__file__).parents[3] / "docs" / "schemas"
RESULTS: tuple[type[Result], ...] = (
    AuditReport, FitReport, ExactReport, ReplayReport, CanaryReport, StepReport, Bench,
    CorpusReport,
)  # fmt: skip


def path_of(result: type[Result]) -> Path:
    return FOLDER / f"{result.SCHEMA.replace('/', '-')}.json"


def text_of(result: type[Result]) -> str:
    return json.dumps(json_schema(result), indent=2) + "\n"


if __name__ == "__main__":
    for each in RESULTS:
        path_of(each).write_text(text_of(each), encoding="utf-8")
