r"""The report of a fit: a frozen record, its sentences and its JSON.

JSON, schema ``dpcore-fit/1``. Every key is always there; null where it does not apply.

    schema       "dpcore-fit/1"
    target       what was fitted
    law          the claimed law as text, e.g. "discrete-laplace:scale=1"
    verdict      "refuted" or "not_refuted"; null when the target failed
    alpha        the false-alarm level
    p_value      of the law, for a number of draws fixed beforehand
    e_value      of the law, for --sequential: the largest wealth so far; "inf" where a value of
                 probability 0 was drawn
    runs         draws tested
    stopped      why no more were drawn
    witness      {"event", "count", "expected": [least, most], "probability": [lower, upper]}
    resolution   a mean distance from the mean that is off by this fraction would be refuted in
                 about 95 of 100 fits; null where no such statement is made
    evidence     {name of a test: its own p-value, or its share of the wealth at the last draw}
    method, proves
    seed         repeats the fit
    error        {"reason", "run"} when the target failed
    warnings     a list of sentences
    versions     {"dpcore", "python", "numpy"}
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from audit.claims.levels import evidence, level_upper
from audit.claims.verdicts import VERDICTS
from audit.errors import TargetFailed
from audit.wording.as_json import json_number
from audit.wording.lines import Told, out_of
from audit.wording.report import Report
from dpcore.noise import Noise
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import up
from dpcore.spelling import write_noise

__all__ = ["FIXED", "SCHEMA", "SEQUENTIAL", "FitReport", "FitVerdict", "FitWitness"]

SCHEMA: Final = "dpcore-fit/1"

FitVerdict: TypeAlias = Literal["refuted", "not_refuted"]

FIXED: Final = (
    "calibrated cell tests",
    "if draws are independent and have the law, P(p-value <= alpha) <= alpha",
)
SEQUENTIAL: Final = (
    "mixture of likelihood ratios",
    "if draws are independent and have the law, P(e-value ever >= 1/alpha) <= alpha",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWitness:
    r"""The event that is furthest from the law, with its count.

    The law gives it a probability between the two of ``probability``; a count outside ``expected``
    has probability at most alpha, for this event alone. It was chosen by the draws: the p-value or
    e-value of the report counts, not this interval.
    """

    event: str
    count: int
    draws: int
    expected: tuple[int, int]
    probability: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.expected
        usual = f"{low:,} to {high:,}" if low < high else f"{low:,}"
        return f"{self.event}: {self.count:,} of {self.draws:,} draws, {usual} expected"

    def to_json(self) -> dict[str, Any]:
        return {
            "event": self.event,
            "count": self.count,
            "expected": list(self.expected),
            "probability": list(self.probability),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport(Report):
    r"""The report of a fit: does the sampler draw from the claimed law?

    >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
    >>> report = FitReport(
    ...     target="f", law=DiscreteLaplace(scale=1), verdict="refuted", alpha="0.05", runs=5
    ... )
    >>> report.to_json()["law"], report.exit_code
    ('discrete-laplace:scale=1', 1)
    """

    target: str
    law: Noise
    verdict: FitVerdict | None
    alpha: RationalLike
    runs: int
    stopped: str = "as many as planned"
    p_value: float | None = None
    e_value: float | None = None
    witness: FitWitness | None = None
    resolution: float = math.inf
    evidence: dict[str, float] = field(default_factory=dict)
    method: tuple[str, str] = FIXED
    seed: int | None = None
    error: TargetFailed | None = None
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        r"""0 not refuted, 1 refuted, 3 the target failed."""
        return VERDICTS[self.verdict].exit_code

    def to_json(self) -> dict[str, Any]:
        error = self.error
        return {
            "schema": SCHEMA,
            "target": self.target,
            "law": write_noise(self.law),
            "verdict": self.verdict,
            "alpha": level_upper(self.alpha),
            "p_value": self.p_value,
            "e_value": None if self.e_value is None else json_number(self.e_value),
            "runs": self.runs,
            "stopped": self.stopped,
            "witness": None if self.witness is None else self.witness.to_json(),
            "resolution": self.resolution if math.isfinite(self.resolution) else None,
            "evidence": {name: json_number(value) for name, value in self.evidence.items()},
            "method": self.method[0],
            "proves": self.method[1],
            "seed": self.seed,
            "error": None if error is None else {"reason": error.reason, "run": error.run},
            "warnings": list(self.warnings),
            "versions": self.versions,
        }

    def told(self) -> Told:
        r"""The report as sentences.

        >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
        >>> law = DiscreteLaplace(scale=1)
        >>> report = FitReport(target="f", law=law, verdict=None, alpha="0.05", runs=0)
        >>> report.told().lines()
        ['THE TARGET FAILED  f as discrete-laplace:scale=1']
        """
        has = "does not have the law" if self.verdict == "refuted" else "as"
        return Told(
            verdict=VERDICTS[self.verdict].words,
            about=f"{self.target} {has} {write_noise(self.law)}",
            rows=tuple(_rows(self)) if self.runs else (),
        )


def _rows(report: FitReport) -> Iterator[tuple[str, str]]:
    alpha = rational("alpha", report.alpha)
    if (report.p_value, report.e_value) != (None, None):
        yield "evidence", evidence(alpha, p_value=report.p_value, e_value=report.e_value)
    if report.witness is not None and report.verdict == "refuted":
        yield "witness", str(report.witness)
    yield "draws", f"{report.runs:,}: {report.stopped}"
    if report.resolution < 1:
        percent = up(100 * report.resolution, 2)
        yield (
            "blind spot",
            f"a mean absolute deviation that is wrong by less than {percent}% could be missed",
        )
    else:
        yield "blind spot", "a wrong spread of any size: there are too few draws to detect it"
    cases = out_of(alpha, 6)
    yield (
        "trust",
        f"if it had the law, at most {cases} such fits would say REFUTED (independent draws)",
    )
    if report.seed is not None:
        yield "repeat", f"--seed {report.seed}"
