r"""The data of an audit report, an immutable record.

``docs/schemas/dpcore-audit-2.json`` is the JSON schema of the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from audit.claims import Claim, CurveClaim, LayerRun, level_upper
from audit.errors import TargetFailed
from audit.formats.result import Result, computed, fact, format_enclosure
from audit.statistical_tests.event import Witness
from audit.statistical_tests.sample_outcome import Outcome, unresolved
from audit.verdict_words_and_exit_codes import CAUSES, VERDICTS, Cause, VerdictWord, cause_of
from dpcore.errors import INTERRUPTED, NEGATIVE_ANSWER
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike

if TYPE_CHECKING:
    from audit.fit.fit import FitReport
    from audit.replay.replay_report import Finding
    from audit.report.figure_data import Histogram, TradeoffBand
    from audit.search.worst_pair_search import SearchResult
    from audit.statistical_tests.clopper_pearson_and_other_baselines import BaselineFinding
    from audit.statistical_tests.sample_outcome import Coverage
    from audit.statistical_tests.trace import Trace

SCHEMA: Final = "dpcore-audit/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactWitness:
    r"""The event that violates the claim most, with its proven probabilities on both datasets."""

    event: str
    world: Literal["A", "B"]
    probability_a: Enclosure
    probability_b: Enclosure

    def __str__(self) -> str:
        a, b = (format_enclosure(p, 6) for p in (self.probability_a, self.probability_b))
        return f"{self.event}: probability {a} on dataset A, {b} on B (points to {self.world})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFinding:
    r"""Bounds on the least delta at the claimed epsilon, and the least epsilon at that delta."""

    delta: Enclosure
    epsilon: Enclosure


def _fit(report: FitReport | None) -> dict[str, Any] | None:
    keys = ("law", "verdict", "p_value", "runs", "witness")
    return None if report is None else {key: report.to_json()[key] for key in keys}


def _failed(error: TargetFailed | None) -> dict[str, Any] | None:
    if error is None:
        return None
    place = {"dataset": error.dataset, "run": error.run}
    return {"reason": error.reason, **place, "reveals_dataset": error.reveals}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord(Result):
    r"""The data of an audit report; ``witness`` and ``epsilon_lower`` are results for ``pair``."""

    SCHEMA: ClassVar[str] = SCHEMA

    target: str = fact("the target as text")
    claim: Claim | CurveClaim = fact(
        'epsilon and delta, exact, as text, and "relation"; for a claimed curve epsilon and delta '
        'are null, "claim" is its text and "points" are the tested points',
        kind="dict",
    )
    pair: tuple[Any, Any] = fact(
        "[dataset A, dataset B] of the witness and of epsilon_lower", write=list, kind="list"
    )
    pairs: tuple[tuple[Any, Any], ...] = fact(
        "all pairs that were audited", write=lambda pairs: list(map(list, pairs)), kind="list",
        default=(),
    )  # fmt: skip
    verdict: VerdictWord | None = fact(
        "the verdict of all layers; null if the target failed",
        kind="Literal['refuted', 'not_refuted', 'proven', 'nothing_measured'] | None",
    )
    epsilon_lower: float = fact(
        '"inf" if no finite epsilon holds. Sample layer: exceeds the true epsilon with '
        "probability at most alpha; it can be smaller than a refuted epsilon, because the claim is "
        "tested separately. Exact layer: proven"
    )
    at_delta: Fraction = fact("the delta of epsilon_lower, exact, as text", default=Fraction(0))
    alpha: RationalLike = fact(
        "the false-alarm level of all statistical layers together", write=level_upper, kind="float"
    )
    p_value: float | None = fact(
        "the p-value of the claim, for a number of runs fixed in advance", default=None
    )
    e_value: float | None = fact(
        "the e-value of the claim, for --sequential: its largest value so far", default=None
    )
    runs_by_world: tuple[int, int] = fact(
        '{"a", "b"}', write=lambda runs: dict(zip("ab", runs, strict=True)), kind="dict"
    )
    stopped: str = fact("the reason why no more runs were drawn")
    interrupted: bool = fact("whether Ctrl-C ended the audit early", default=False)
    witness: Witness | ExactWitness | None = fact(
        "the event that best separates the datasets, or null. Of the sample layer: "
        '{"event", "world", "inside_a", "runs_a", "inside_b", "runs_b": counts, "feature": the '
        'feature of the event, null for the output itself, "score": null unless the feature is '
        "learned, else its definition (see audit.features.fit_score_model) with "
        '"learned_from": the number of earlier runs, "threshold", "side", "accuracy": the '
        'fraction of right guesses on later runs, "most": the columns with most influence, '
        '"words": the event in terms of its '
        'only column, null if the feature has several}. Of the exact layer: {"event", "world", '
        '"probability_a", "probability_b": [lower, upper]}',
        default=None,
    )
    resolution: float = fact(
        "95 of 100 audits would have detected an always-revealing output of this probability among "
        "the measured outputs; it is at least the fraction of runs that were not measured; null if "
        'there were too few runs to refute anything, or if "unresolved" states another reason',
        write=lambda value: value if math.isfinite(value) else None,
        kind="float | None",
        default=math.inf,
    )
    features: tuple[str, ...] = fact(
        'the names of the features tested on any pair; "identity" is the output', default=()
    )
    floats: bool = False
    coverage: tuple[Coverage, ...] = fact(
        'the coverage, one entry per pair and feature: {"pair", "feature", "runs", "looked_at": '
        'runs from which an event could be learned, "once": outputs that occurred only once and '
        'have no order, "constant", "measured", "learned": whether the feature is a learned '
        'score, "unread": outputs that the feature could not read}',
        default=(),
    )
    outcomes: tuple[Outcome, ...] = fact(
        'if there are several pairs, features or points, one test for each: {"pair": its index in '
        '"pairs", "feature", "epsilon", "delta", "p_value", "e_value", "epsilon_lower", "refuted"}'
        '; the feature "leader" follows the feature that did best on earlier runs',
        default=(),
    )
    row: int = fact(
        'the index in "outcomes" of the test to which pair, witness and epsilon_lower belong',
        kind="int | None",
        default=0,
    )
    exact: ExactFinding | None = fact(
        '{"delta", "epsilon": [lower, upper] at the claim, the maximum over both directions}',
        default=None,
    )
    fit: FitReport | None = fact(
        'the result of the fit layer: {"law", "verdict", "p_value", "runs", "witness"}',
        write=_fit,
        default=None,
    )
    findings: tuple[Finding, ...] = fact(
        'the findings of the replay layer: {"kind", "severity", "refutes", "statement", "witness"}',
        default=(),
    )
    baselines: tuple[BaselineFinding, ...] = fact(
        'bounds of other methods, for comparison: {"name", "epsilon_lower", "says", "valid"}',
        default=(),
    )
    search: SearchResult | None = fact(
        'how the pair was found: {"space", "runs", "tried"}', default=None
    )
    histogram: Histogram | None = fact(
        "outputs on both datasets by cell, see audit.report.figure_data", default=None
    )
    trace: Trace | None = fact(
        "the bound as a function of the number of runs, see audit.statistical_tests.trace",
        default=None,
    )
    tradeoff_band: TradeoffBand | None = fact(
        "an upper bound on the trade-off curve of the pair, with the alpha of its own confidence, "
        "see audit.report.figure_data",
        default=None,
    )
    curve: tuple[tuple[float, float], ...] = fact(
        "the points of a claimed curve, for a figure: [[epsilon, delta rounded up]]", default=()
    )
    layers: tuple[LayerRun, ...] = fact('[{"layer", "method", "proves"}]', default=())
    seed: int | None = fact("the seed that repeats the audit", default=None)
    repeatable: bool = fact(
        "whether the target uses only the randomness it is given; false also if it takes none: "
        "then the seed repeats only the random choices of the audit",
        default=True,
    )
    error: TargetFailed | None = fact(
        '{"reason", "dataset", "run", "reveals_dataset"} when the target failed',
        write=_failed,
        default=None,
    )
    warnings: tuple[str, ...] = fact("a list of sentences", default=())
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @computed("runs drawn, both datasets and all pairs together", before="runs_by_world")
    def runs(self) -> int:
        return sum(self.runs_by_world)

    @computed("why there is no resolution although something was measured", before="features")
    def unresolved(self) -> str | None:
        if math.isfinite(self.resolution):
            return None
        return unresolved(self.coverage, self.warnings)

    @computed(
        '"values" if values refute, otherwise the refuting cause: "floating-point", "time" or '
        '"errors"; null if nothing refutes',
        before="epsilon_lower",
        kind="Literal['values', 'floating-point', 'time', 'errors'] | None",
    )
    def refuted_by(self) -> Cause | None:
        r"""The cause of the refutation, or None; "values" has precedence over other causes.

        The cause is "errors" if failures of the target reveal the dataset.
        """
        if self.error is not None:
            return "errors" if self.error.reveals else None
        if self.verdict != "refuted":
            return None
        names = [row.feature for row in self.outcomes if row.refuted] or self.features or (None,)
        first = min(map(cause_of, names), key=[*CAUSES].index)
        # The lowest bits of integers are part of their values.
        return first if self.floats or first == "time" else "values"

    @property
    def headline(self) -> str:
        r"""The verdict in words, with the cause of a refutation unless it is "values"."""
        return VERDICTS[self.verdict].words + CAUSES[self.refuted_by or "values"]

    @property
    def exit_code(self) -> int:
        r"""The exit code: 0 proven or not refuted, 1 refuted or a fault found, 3 the target failed.

        It is 4 if nothing was measured, and 130 if Ctrl-C ended an audit that would give 0 or 4.
        """
        code = VERDICTS[self.verdict].exit_code
        if self.verdict == "refuted" or self.verdict is None:
            return code
        if self.faults:
            return NEGATIVE_ANSWER
        return INTERRUPTED if self.interrupted else code

    def hardest(self) -> dict[tuple[Fraction, Fraction], Outcome]:
        r"""For each tested point, the outcome with the largest (``refuted``, ``epsilon_lower``)."""
        ordered = sorted(self.outcomes, key=lambda row: (row.refuted, row.epsilon_lower))
        found = {row.claim.exact: row for row in ordered}
        return {point: found[point] for point in sorted(found)}

    @property
    def faults(self) -> bool:
        r"""Whether the fit or replay layer found an error."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        pairs = [list(pair) for pair in self.pairs or (self.pair,)]
        row = self.row if self.outcomes else None
        return Result.to_json(self) | {"pairs": pairs, "row": row}
