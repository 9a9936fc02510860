r"""The findings of a replay, and its report.

Severities: an ``error`` is a fault, or something that only a reader of the code can excuse; a
``warning`` is worth a look; a ``note`` is no fault. A finding that ``refutes`` holds a
deterministic counterexample to what was declared (docs/proofs/replay.md says which do).

JSON, schema ``dpcore-replay/1``; every key is always there:

    schema          "dpcore-replay/1"
    target          as it was written
    pair            [dataset A, dataset B]
    declared        {"sensitivity": exact, as text, or null; "norm": "l1", "l2", "linf"; "strict"}
    verdict         "refuted", "found" (an error that refutes nothing by itself), "nothing_found",
                    "nothing_measured" (nothing is drawn, and both datasets give the same),
                    "not_replayable"
    findings        [{"kind", "severity", "refutes", "statement", "witness"}], the gravest first
    runs            calls of the target
    tapes           tapes on which both datasets were run; "changed": those with a real set
    seed            repeats the replay
    assumes         what every finding rests on
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias, get_args

from audit.wording.as_json import json_text
from audit.wording.shorten import cut, shortened
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import write_rational

__all__ = ["ASSUMES", "Finding", "Norm", "ReplayReport", "ReplayVerdict", "Severity", "plain"]
__all__ += ["require_norm"]

Severity: TypeAlias = Literal["error", "warning", "note"]
Norm: TypeAlias = Literal["l1", "l2", "linf"]
ReplayVerdict: TypeAlias = Literal[
    "refuted", "found", "nothing_found", "nothing_measured", "not_replayable"
]

SCHEMA: Final = "dpcore-replay/1"
_MOST_ITEMS: Final = 1000
_SHOWN: Final = 200

ASSUMES: Final = (
    "the target is a function of its dataset and of the draws that were replayed (a repeated tape "
    "repeated its outputs), and its random sources give independent fair bits"
)

_RANK: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "note": 2}
# How each verdict begins the report, and its exit code.
_VERDICTS: Final[dict[ReplayVerdict, tuple[str, int]]] = {
    "refuted": ("REFUTED", 1),
    "found": ("FAULTS FOUND", 1),
    "nothing_found": ("NOTHING FOUND BY REPLAY", 0),
    "not_replayable": ("CANNOT BE REPLAYED", 3),
    "nothing_measured": ("NOTHING MEASURED", 4),
}
# What a finding that refutes is a counterexample to: never the privacy claim itself.
_DECLARED: Final = {
    "sensitivity-exceeded": "the declared sensitivity",
    "draws": "the declared draws",
    **dict.fromkeys(("keys", "columns", "shape", "dtype", "index"), "the declared shape of output"),
    "declared-equal": "a declared equality",
    "declared-sensitivity": "a declared sensitivity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    r"""A finding of a replay: an error or note, with the tape and outputs that show it.

    Raises :class:`ValueError` for what refutes without being an error.
    """

    kind: str
    severity: Severity
    statement: str
    witness: Mapping[str, Any] = field(default_factory=dict)
    refutes: bool = False

    def __post_init__(self) -> None:
        if self.refutes and self.severity != "error":
            raise ValueError("what refutes is an error")

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "severity": self.severity,
            "refutes": self.refutes,
            "statement": self.statement,
            "witness": plain(dict(self.witness)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    r"""All that a replay found; see the module.

    >>> found = Finding(kind="no-noise", severity="error", statement="None.", refutes=True)
    >>> report = ReplayReport(target="f.py:f", pair=(0, 1), findings=(found,))
    >>> report.verdict, report.exit_code
    ('refuted', 1)
    """

    target: str
    pair: tuple[Any, Any]
    findings: tuple[Finding, ...]
    sensitivity: Fraction | None = None
    norm: Norm = "l1"
    strict: bool = False
    replayable: bool = True
    runs: int = 0
    tapes: int = 0
    changed: int = 0
    seed: int = 0
    allow_constant: bool = False

    def __post_init__(self) -> None:
        # Stable: of one severity the first found stays first.
        ranked = sorted(self.findings, key=lambda f: (not f.refutes, _RANK[f.severity]))
        object.__setattr__(self, "findings", tuple(ranked))

    @property
    def verdict(self) -> ReplayVerdict:
        r"""Refuted by a deterministic counterexample only; never "private"."""
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
        r"""0 no error, 1 an error, 3 the target could not be replayed, 4 nothing was measured."""
        return _VERDICTS[self.verdict][1]

    def to_json(self) -> dict[str, Any]:
        r"""The report as plain values, the keys of the module's schema."""
        declared = self.sensitivity
        return {
            "schema": SCHEMA,
            "target": self.target,
            "pair": plain(list(self.pair)),
            "declared": {
                "sensitivity": None if declared is None else write_rational(declared),
                "norm": self.norm,
                "strict": self.strict,
            },
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "runs": self.runs,
            "tapes": self.tapes,
            "changed": self.changed,
            "seed": self.seed,
            "assumes": ASSUMES,
        }

    def to_text(self) -> str:
        r"""The JSON document, with a newline at its end."""
        return json_text(self.to_json())

    def lines(self) -> list[str]:
        r"""The report as a person reads it, the verdict first.

        >>> ReplayReport(target="f.py:f", pair=(0, 1), findings=(), seed=7).lines()[0]
        'NOTHING FOUND BY REPLAY  f.py:f on A = 0, B = 1'
        """
        a, b = (_shown(dataset) for dataset in self.pair)
        refuted = next((f.kind for f in self.findings if f.refutes), None)
        what = "" if refuted is None else f"{_DECLARED.get(refuted, 'what is declared')} of "
        found = [f"{_VERDICTS[self.verdict][0]}  {what}{self.target} on A = {a}, B = {b}"]
        for finding in self.findings:
            refutes = ", refutes" if finding.refutes else ""
            found.append(f"  {finding.severity}{refutes}: {finding.statement} [{finding.kind}]")
            found += [
                f"      {key}: {_shown(v)}" for key, v in plain(dict(finding.witness)).items()
            ]
        counts = f"{self.tapes:,} tapes, {self.changed:,} of them with a draw set to an extreme"
        found.append(f"  replayed: {self.runs:,} runs on {counts}; --seed {self.seed}")
        return [*found, f"  assumes: {ASSUMES}"]


def require_norm(norm: str) -> None:
    r"""Refuse a norm that a sensitivity cannot be stated in."""
    if norm not in get_args(Norm):
        raise InvalidParameter("norm", norm, "must be l1, l2 or linf")


def plain(value: Any) -> Any:
    r"""Convert a value for JSON: arrays to lists, what JSON lacks to text.

    >>> plain({"x": float("nan"), "y": (1, 2)})
    {'x': 'nan', 'y': [1, 2]}
    """
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
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


def _shown(value: Any) -> str:
    return cut(json.dumps(plain(value)), _SHOWN)
