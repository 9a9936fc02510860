r"""The report of an audit: a frozen record, its sentences and its JSON.

JSON, schema ``dpcore-audit/2``. Every key is always there; null or [] where it does not apply.

    schema          "dpcore-audit/2"
    target          as it was written
    claim           {"epsilon", "delta": exact, as text; "relation"}; of a claimed curve epsilon and
                    delta are null, "claim" is its spelling and "points" are those tested
    pair            [dataset A, dataset B] that the witness and epsilon_lower are of
    pairs           all pairs that were audited
    verdict         "refuted", "not_refuted", "proven", "nothing_measured"; null when the target
                    failed
    refuted_by      "values", or what alone refutes: "floating-point", "time", "errors"; null
    epsilon_lower   a number; "inf" where no epsilon holds. Of the sample layer: exceeds the true
                    epsilon with probability at most alpha; it may lie below a refuted claim, which
                    has a test of its own. Of the exact layer: proven.
    at_delta        the delta that epsilon_lower is at, exact, as text
    alpha           the false-alarm level of all statistical layers together
    p_value         of the claim, for a number of runs fixed beforehand
    e_value         of the claim, for --sequential: the largest wealth so far
    runs            runs drawn, both datasets and all pairs together
    runs_by_world   {"a", "b"}
    stopped         why no more runs were drawn
    interrupted     whether Ctrl-C ended it before all was done
    witness         {"event", "world", "inside_a", "runs_a", "inside_b", "runs_b", "feature": what
                    the event is of, null: the output itself, "score": of a learned feature all that
                    computes it, see ``audit.learn.additive``, with "learned_from": earlier runs,
                    "threshold", "side", "accuracy": right guesses on runs new to it, "most": the
                    columns that move it most; null}: counts; or for the exact layer
                    {"event", "world", "probability_a", "probability_b"}: [lower, upper]
    resolution      an always-revealing output of this probability would have been seen in 95 of 100
                    audits, in what was looked at; at least the share of the runs that were not
                    measured; null: too few runs to count on refuting anything, or what "unresolved"
                    says
    unresolved      why there is no resolution although something was measured; null
    features        what was looked at, by name, on any of the pairs; "identity" is the output
    coverage        what was looked at, one a pair and feature: {"pair", "feature", "runs",
                    "looked_at": runs of which an event could be learned, "once": outputs that came
                    once and have no order, "constant", "measured", "learned": is it a score,
                    "unread": outputs that the feature could not read}
    outcomes        of several pairs, features or points, one test each: {"pair": its place in
                    "pairs", "feature", "epsilon", "delta", "p_value", "e_value", "epsilon_lower",
                    "refuted"}; the feature "leader" is whichever did best on earlier runs
    row             the place in "outcomes" of the test that pair, witness and epsilon_lower are of
    exact           {"delta", "epsilon": [lower, upper] at the claim, each of its worse direction}
    fit             what the fit layer says: {"law", "verdict", "p_value", "runs", "witness"}
    findings        of the replay layer: {"kind", "severity", "refutes", "statement", "witness"}
    baselines       for comparison only: {"name", "epsilon_lower", "says", "valid"}
    search          how the pair was found: {"space", "runs", "tried"}
    histogram       outputs on both datasets by cell, see ``audit.report.histogram``
    trace           the bound as the runs came in, see ``audit.evidence.trace``
    tradeoff_band   a curve that the trade-off curve of the pair lies below everywhere, with the
                    confidence 1 - alpha that it states, see ``audit.report.tradeoff``
    curve           of a claimed curve: [[epsilon, delta rounded up]], for a picture
    layers          [{"layer", "method", "proves"}]
    seed            repeats the audit
    repeatable      whether the target keeps to the randomness it is given; false also for one
                    that takes none: then the seed repeats only the audit's own coins
    error           {"reason", "dataset", "run", "reveals_dataset"} when the target failed
    warnings        a list of sentences
    versions        {"dpcore", "python", "numpy"}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

from audit.claims.claim import Claim, shown
from audit.claims.levels import evidence, level_upper
from audit.claims.verdicts import CAUSES, VERDICTS, Cause, LayerRun, VerdictWord, cause_of
from audit.errors import TargetFailed
from audit.evidence.coverage import unresolved
from audit.evidence.event import Witness
from audit.evidence.verdict import Outcome
from audit.report.sentences import (
    FAULTS,
    below_claim,
    blind_spot,
    compared,
    confidence,
    fitted,
    leak,
    refutals,
    repeated,
    scored,
    tested,
    values_alone,
)
from audit.wording.as_json import json_ends, json_number
from audit.wording.lines import Told, between
from audit.wording.report import Report
from audit.wording.shorten import cut
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, write_rational
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.claims.curve_claim import CurveClaim
    from audit.evidence.baselines.compare import BaselineFinding
    from audit.evidence.coverage import Coverage
    from audit.evidence.trace import Trace
    from audit.fit.report import FitReport
    from audit.replay.findings import Finding
    from audit.report.histogram import Histogram
    from audit.report.tradeoff import TradeoffBand
    from audit.search.search import Found

__all__ = ["SCHEMA", "AuditReport", "ExactFinding", "ExactWitness"]

SCHEMA: Final = "dpcore-audit/2"

_BY_CTRL_C: Final = 130
_KEEPS: Final[dict[VerdictWord | None, str]] = {"refuted": "does not keep", "proven": "keeps"}
_SEVERITIES: Final = {"error": "fault", "warning": "warning", "note": "note"}
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactWitness:
    r"""The event that is hardest on the claim, with its proven probability on each dataset."""

    event: str
    world: Literal["A", "B"]
    probability_a: Enclosure
    probability_b: Enclosure

    def __str__(self) -> str:
        a, b = (between(p, 6) for p in (self.probability_a, self.probability_b))
        return f"{self.event}: probability {a} on dataset A, {b} on B (points to {self.world})"

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, probabilities as [lower, upper]."""
        return {
            "event": self.event,
            "world": self.world,
            "probability_a": json_ends(self.probability_a),
            "probability_b": json_ends(self.probability_b),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFinding:
    r"""The least delta at the claimed epsilon, and the other way, each of its worse direction."""

    delta: Enclosure
    epsilon: Enclosure

    def to_json(self) -> dict[str, Any]:
        r"""Both as [lower, upper]."""
        return {"delta": json_ends(self.delta), "epsilon": json_ends(self.epsilon)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport(Report):
    r"""The report of an audit: its verdict on a claim, bounds, and the witness if it is refuted.

    ``pair`` is the one that ``witness`` and ``epsilon_lower`` are of, ``pairs``
    are all of them where there are several.

    >>> report = AuditReport(
    ...     target="f.py:f",
    ...     claim=Claim(epsilon=1),
    ...     pair=(0, 1),
    ...     verdict="refuted",
    ...     epsilon_lower=1.25,
    ...     alpha="0.05",
    ...     runs_by_world=(5, 5),
    ...     stopped="all 10 runs",
    ... )
    >>> report.to_json()["verdict"], report.exit_code
    ('refuted', 1)
    """

    target: str
    claim: Claim | CurveClaim
    pair: tuple[Any, Any]
    verdict: VerdictWord | None
    epsilon_lower: float
    alpha: RationalLike
    runs_by_world: tuple[int, int]
    stopped: str
    pairs: tuple[tuple[Any, Any], ...] = ()
    at_delta: Fraction = Fraction(0)
    p_value: float | None = None
    e_value: float | None = None
    witness: Witness | ExactWitness | None = None
    resolution: float = math.inf
    features: tuple[str, ...] = ()
    floats: bool = False
    coverage: tuple[Coverage, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    row: int = 0
    exact: ExactFinding | None = None
    fit: FitReport | None = None
    findings: tuple[Finding, ...] = ()
    baselines: tuple[BaselineFinding, ...] = ()
    search: Found | None = None
    histogram: Histogram | None = None
    trace: Trace | None = None
    tradeoff_band: TradeoffBand | None = None
    curve: tuple[tuple[float, float], ...] = ()
    layers: tuple[LayerRun, ...] = ()
    seed: int | None = None
    repeatable: bool = True
    interrupted: bool = False
    error: TargetFailed | None = None
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        r"""Runs tested, both datasets together."""
        return sum(self.runs_by_world)

    @property
    def refuted(self) -> bool:
        r"""Whether the claim is refuted."""
        return self.verdict == "refuted"

    @property
    def refuted_by(self) -> Cause | None:
        r"""What refutes, values first; "errors" where failing itself reveals the dataset."""
        if self.error is not None:
            return "errors" if self.error.reveals else None
        if self.verdict != "refuted":
            return None
        names = [row.feature for row in self.outcomes if row.refuted] or self.features or (None,)
        first = min(map(cause_of, names), key=[*CAUSES].index)
        return first if self.floats or first == "time" else "values"  # an integer's bits are values

    @property
    def headline(self) -> str:
        r"""The verdict in words, and what refutes if not values."""
        return VERDICTS[self.verdict].words + CAUSES[self.refuted_by or "values"]

    @property
    def exit_code(self) -> int:
        r"""0 not refuted or proven, 1 refuted or a fault found, 3 the target failed, 4 nothing was
        measured, 130 Ctrl-C.

        Whoever reads a 0 may take it for an audit that came to its end, and looked at something.
        """
        code = VERDICTS[self.verdict].exit_code
        if self.verdict == "refuted" or self.verdict is None:
            return code
        if self.faults:
            return 1
        return _BY_CTRL_C if self.interrupted else code

    @property
    def faults(self) -> bool:
        r"""Whether the fit or replay layer found an error."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        error = self.error
        return {
            "schema": SCHEMA,
            "target": self.target,
            "claim": self.claim.to_json(),
            "pair": list(self.pair),
            "pairs": [list(pair) for pair in self.pairs or (self.pair,)],
            "verdict": self.verdict,
            "refuted_by": self.refuted_by,
            "epsilon_lower": json_number(self.epsilon_lower),
            "at_delta": write_rational(self.at_delta),
            "alpha": level_upper(self.alpha),
            "p_value": self.p_value,
            "e_value": self.e_value,
            "runs": self.runs,
            "runs_by_world": dict(zip("ab", self.runs_by_world, strict=True)),
            "stopped": self.stopped,
            "interrupted": self.interrupted,
            "witness": None if self.witness is None else self.witness.to_json(),
            "resolution": self.resolution if math.isfinite(self.resolution) else None,
            "unresolved": unresolved(self.coverage),
            "features": list(self.features),
            "coverage": [each.to_json() for each in self.coverage],
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "row": self.row if self.outcomes else None,
            "exact": None if self.exact is None else self.exact.to_json(),
            "fit": None if self.fit is None else _fit(self.fit),
            "findings": [finding.to_json() for finding in self.findings],
            "baselines": [baseline.to_json() for baseline in self.baselines],
            "search": None if self.search is None else self.search.to_json(),
            "histogram": None if self.histogram is None else self.histogram.to_json(),
            "trace": None if self.trace is None else self.trace.to_json(),
            "tradeoff_band": None if self.tradeoff_band is None else self.tradeoff_band.to_json(),
            "curve": [list(point) for point in self.curve],
            "layers": [asdict(layer) for layer in self.layers],
            "seed": self.seed,
            "repeatable": self.repeatable,
            "error": None
            if error is None
            else {
                "reason": error.reason,
                "dataset": error.dataset,
                "run": error.run,
                "reveals_dataset": error.reveals,
            },
            "warnings": list(self.warnings),
            "versions": self.versions,
        }

    def told(self) -> Told:
        open_ended = self.verdict in {"not_refuted", "nothing_measured"}
        faults = self.faults and open_ended
        return Told(
            verdict=FAULTS if faults else self.headline,
            about=f"{self.target} {_KEEPS.get(self.verdict, 'on')} {self.claim}",
            rows=(*self.datasets(), *self.findings_told(), *self.how()),
            style="bold red" if faults else VERDICTS[self.verdict].style,
        )

    def _repr_html_(self) -> str:
        # What a notebook shows of it.
        from audit.report.card import card

        witness = self.witness if isinstance(self.witness, Witness) else None
        return card(self.target, self.verdict, self.told(), self.warnings, witness)

    def datasets(self) -> Iterator[tuple[str, str]]:
        r"""What was tested, and the bound that was found: rows of :meth:`told`."""
        a, b = (cut(json.dumps(dataset, default=str), _SHOWN) for dataset in self.pair)
        which = f"{self.pairs.index(self.pair) + 1} of {len(self.pairs)}: " if self.pairs else ""
        yield "pair", f"{which}A = {a}, B = {b} ({self.claim.to_json()['relation']})"
        if self.search is not None:
            yield "search", f"found by {self.search.runs:,} further runs in {self.search.space}"
        at = f" at delta = {shown(self.at_delta)}" if self.outcomes or self.at_delta else ""
        if self.exact is not None:
            yield "epsilon", f"{between(self.exact.epsilon)} on this pair{at} (proven)"
            yield "delta", f"{between(self.exact.delta)} at the claimed epsilon (proven)"
        # Of two layers the bound is the proven one, unless only the runs refute.
        if self.runs and (self.exact is None or isinstance(self.witness, Witness)):
            name = "epsilon" if self.exact is None else "sampled"
            sure = confidence(self.alpha)
            yield name, f"at least {down(self.epsilon_lower)}{at}, with {sure} confidence"
            if (why := self.below_claim) is not None:
                yield "bound", why
        if self.runs:
            weight = evidence(self.alpha, p_value=self.p_value, e_value=self.e_value)
            yield "evidence", f"{weight}. If the claim were true, {refutals(self.alpha)}"

    def findings_told(self) -> Iterator[tuple[str, str]]:
        r"""What was found beside the bound, which the HTML page shows in sections of its own."""
        if self.witness is not None and self.verdict == "refuted":
            yield "witness", str(self.witness)
            if (
                isinstance(self.witness, Witness)
                and (why := leak(self.witness.feature)) is not None
            ):
                yield "leak", why
            if self.refuted_by == "floating-point" and (why := values_alone(self.outcomes)):
                yield "values", why
            if isinstance(self.witness, Witness) and self.witness.score is not None:
                yield "score", scored(self.witness.score)
        if self.outcomes:
            yield "tests", tested(self.outcomes, pairs=bool(self.pairs))
        if self.fit is not None:
            yield "fit", fitted(self.fit)
        for finding in self.findings:
            yield _SEVERITIES[finding.severity], f"{finding.statement} [{finding.kind}]"
        for baseline in self.baselines:
            yield "compare", f"{baseline.name}: {compared(baseline)}"

    def how(self) -> Iterator[tuple[str, str]]:
        r"""The runs, what they could have missed, and what the verdict rests on."""
        if self.error is not None:
            yield "error", self.error.told
        if self.runs:
            yield "runs", f"{self.runs:,}: {self.stopped}"
            yield "blind spot", self.blind_spot
        for layer in self.layers:
            if layer.layer in {"exact", "replay"}:
                yield layer.layer, layer.proves
        if self.seed is not None and self.runs:
            yield "repeat", repeated(self.seed, repeatable=self.repeatable)

    @property
    def below_claim(self) -> str | None:
        r"""Why the bound that refuting runs give does not exceed the claim; None where it does."""
        if self.verdict != "refuted" or not self.runs:
            return None
        point = self.outcomes[self.row].claim if self.outcomes else self.claim.points[0]
        return below_claim(self.epsilon_lower, point, self.alpha)

    @property
    def blind_spot(self) -> str:
        r"""What these runs could have missed, as a sentence."""
        return blind_spot(self.resolution, self.coverage, verdict=self.verdict)


def _fit(report: FitReport) -> dict[str, Any]:
    found = report.to_json()
    return {name: found[name] for name in ("law", "verdict", "p_value", "runs", "witness")}
