r"""The findings of a replay, and its report.

A finding has one of three severities: an ``error`` is a fault, unless a review of the code explains
it; a ``warning`` should be reviewed; a ``note`` is not a fault. A finding that ``refutes`` is a
deterministic counterexample to a declaration (see docs/proofs/replay.md).

``docs/schemas/dpcore-replay-2.json`` is the JSON schema of the report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, TypeAlias

from audit.audit_spec import SensitivityNorm
from audit.formats.junit_and_sarif import Case
from audit.formats.result import Facts, Result, Statement, computed, fact
from audit.formats.shorten import cut, shortened
from audit.verdict_words_and_exit_codes import REPLAY_VERDICTS, ReplayVerdict

Severity: TypeAlias = Literal["error", "warning", "note"]
_MOST_ITEMS: Final = 1000
_SHOWN: Final = 200

ASSUMES: Final = (
    "the target is a function of its dataset and of the draws that were replayed (a repeated tape "
    "repeated its outputs), and its random sources give independent fair bits"
)

_RANK: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "note": 2}
# The declarations that findings refute, by kind of finding; never the privacy claim itself.
_DECLARED: Final = {
    "sensitivity-exceeded": "the declared sensitivity",
    "draws": "the declared draws",
    "structure": "the declared output shape",
    "declared-equal": "a declared equality",
    "declared-sensitivity": "a declared sensitivity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Facts):
    r"""A finding of a replay, with a tape and outputs as evidence.

    Raises :class:`ValueError` if ``refutes`` is true and ``severity`` is not "error".
    """

    kind: str = fact("the kind of finding")
    severity: Severity = fact("the severity: error, warning or note")
    refutes: bool = fact("whether it is a counterexample to a declaration", default=False)
    statement: str = fact("the finding as a sentence")
    witness: Mapping[str, Any] = fact(
        "the tape, the outputs and other evidence",
        write=lambda value: plain(dict(value)),
        default_factory=dict,
    )

    def __post_init__(self) -> None:
        if self.refutes and self.severity != "error":
            raise ValueError("a finding that refutes must have the severity 'error'")

    @property
    def named(self) -> str:
        r"""The severity of the finding, with ", refutes" if the finding refutes a declaration."""
        return self.severity + (", refutes" if self.refutes else "")

    def case(self, target: str) -> Case:
        return Case(
            target=target,
            name=self.kind,
            rule=f"dpcore-replay-{self.kind}",
            outcome="failed" if self.severity == "error" else self.severity,
            message=self.statement,
            detail="\n".join([self.statement, *self.witness_lines()]),
        )

    def rows(self) -> Iterator[tuple[str, str]]:
        r"""The finding and its evidence as rows of a report."""
        yield self.named, f"{self.statement} [{self.kind}]"
        yield from (("", line) for line in self.witness_lines())

    def witness_lines(self) -> list[str]:
        r"""The evidence as lines of text; long values are shortened."""
        return [f"{key}: {_format_value(each)}" for key, each in plain(dict(self.witness)).items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport(Result):
    r"""The report of a replay: all its findings."""

    SCHEMA: ClassVar[str] = "dpcore-replay/2"

    target: str = fact("the target as text")
    pair: tuple[Any, Any] = fact(
        "[dataset A, dataset B]", write=lambda pair: plain(list(pair)), kind="list"
    )
    findings: tuple[Finding, ...] = fact(
        '[{"kind", "severity", "refutes", "statement", "witness"}], the most severe first'
    )
    sensitivity: Fraction | None = None
    norm: SensitivityNorm = "l1"
    strict: bool = False
    replayable: bool = True
    runs: int = fact("calls of the target", default=0)
    tapes: int = fact("tapes on which both datasets were run", default=0)
    changed: int = fact("tapes with a draw set to an extreme", default=0)
    seed: int = fact("the seed that repeats the replay", default=0)
    allow_constant: bool = False
    versions: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        # The sort is stable: findings of equal severity keep their order.
        ranked = sorted(self.findings, key=lambda f: (not f.refutes, _RANK[f.severity]))
        object.__setattr__(self, "findings", tuple(ranked))

    @computed(
        '{"sensitivity": exact, as text, or null; "norm": "l1", "l2", "linf"; "strict"}',
        before="findings",
    )
    def declared(self) -> dict[str, Any]:
        return {"sensitivity": self.sensitivity, "norm": self.norm, "strict": self.strict}

    @computed("the assumption of every finding")
    def assumes(self) -> str:
        return ASSUMES

    @computed(
        '"found": an error that refutes no declaration; "nothing_measured": nothing is drawn, '
        "and both datasets give the same output",
        kind="Literal['refuted', 'found', 'nothing_found', 'nothing_measured', 'not_replayable']",
        before="findings",
    )
    def verdict(self) -> ReplayVerdict:
        r"""The verdict: "refuted" requires a deterministic counterexample to a declaration."""
        if any(finding.refutes for finding in self.findings):
            return "refuted"
        if any(finding.severity == "error" for finding in self.findings):
            return "found"
        if not self.replayable:
            return "not_replayable"
        constant = any(finding.kind == "constant" for finding in self.findings)
        return "nothing_measured" if constant and not self.allow_constant else "nothing_found"

    @property
    def exit_code(self) -> int:
        r"""The exit code: 0 no error found, 1 an error, 3 not replayable, 4 nothing measured."""
        return REPLAY_VERDICTS[self.verdict].exit_code

    def statement(self) -> Statement:
        found = REPLAY_VERDICTS[self.verdict]
        a, b = (_format_value(dataset) for dataset in self.pair)
        refuted = next((f.kind for f in self.findings if f.refutes), None)
        what = "" if refuted is None else f"{_DECLARED.get(refuted, 'what is declared')} of "
        counts = f"{self.tapes:,} tapes, {self.changed:,} of them with a draw set to an extreme"
        return Statement(
            verdict=found.words,
            about=f"{what}{self.target} on A = {a}, B = {b}",
            rows=(
                *(row for each in self.findings for row in each.rows()),
                ("replayed", f"{self.runs:,} runs on {counts}; --seed {self.seed}"),
                ("assumes", ASSUMES),
            ),
            style=found.style,
        )

    def cases(self) -> Iterator[Case]:
        if self.exit_code != 1:
            yield from Result.cases(self)
        for finding in self.findings:
            yield finding.case(self.target)


def plain(value: Any) -> Any:
    r"""Convert a value for JSON: arrays to lists, unsupported values to text."""
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        value = value.tolist()
    match value:
        case None | bool() | int():
            return value
        case str():
            return shortened(value)
        case float():
            return value if math.isfinite(value) else repr(value)
        case dict() if len(value) <= _MOST_ITEMS:
            return {shortened(str(key)): plain(inner) for key, inner in value.items()}
        case list() | tuple() if len(value) <= _MOST_ITEMS:
            return [plain(inner) for inner in value]
        case _:
            return shortened(repr(value))


def _format_value(value: Any) -> str:
    return cut(json.dumps(plain(value)), _SHOWN)
