r"""The report of an audit: its sentences, and the sections of its HTML page.

Printed numbers are rounded such that they stay valid: lower bounds down, p-values and probabilities
up. The figures need matplotlib.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from audit.claims import Claim, confidence, evidence, format_p_value, format_rational
from audit.formats.junit_and_sarif import Case, outcome_of
from audit.formats.result import (
    Section,
    Statement,
    as_json,
    code,
    copied,
    format_enclosure,
    format_share,
)
from audit.formats.shorten import cut, shortened
from audit.report.audit_record import AuditRecord, ExactWitness
from audit.statistical_tests.event import Witness
from audit.statistical_tests.sample_outcome import Outcome, unmeasured_pairs, unseen
from audit.verdict_words_and_exit_codes import FAULTS, VERDICTS, VerdictWord, cause_of
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import down, up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from audit.fit.fit import FitReport
    from audit.replay.replay_report import Finding
    from audit.report.figure_data import Histogram, TradeoffBand
    from audit.statistical_tests.clopper_pearson_and_other_baselines import BaselineFinding
    from audit.statistical_tests.trace import Trace

_KEEPS: Final[dict[VerdictWord | None, str]] = {"refuted": "violates", "proven": "satisfies"}
_SEVERITIES: Final = {"error": "fault", "warning": "warning", "note": "note"}
_SHOWN: Final = 60
_NAMED: Final = 3
_EVENT: Final = 1_500
_STRONG: Final = Markup("<strong>{}</strong>")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport(AuditRecord):
    r"""The report of an audit: the verdict on a claim, bounds, and the witness of a refutation.

    ``witness`` and ``epsilon_lower`` are results for ``pair``; ``pairs`` contains all audited pairs
    if there are several.

    >>> from audit.claims import Claim
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

    def statement(self) -> Statement:
        open_ended = self.verdict in {"not_refuted", "nothing_measured"}
        faults = self.faults and open_ended
        return Statement(
            verdict=FAULTS if faults else self.headline,
            about=f"{self.target} {_KEEPS.get(self.verdict, 'on')} {self.claim}",
            rows=(*self._datasets(), *self._findings(), *self._how()),
            style="bold red" if faults else VERDICTS[self.verdict].style,
        )

    @property
    def sentence(self) -> str:
        match self.verdict:
            case "refuted" if self.runs:
                return f"The claim {self.claim} does not hold. If it did, {self._refutals}."
            case "refuted":
                how = "proven from the exact output distributions"
                return f"The claim {self.claim} does not hold: {how}."
            case "proven":
                return (
                    f"The outputs on this pair satisfy {self.claim}: proven from their exact "
                    "distributions. The proof applies only to these distributions and this pair."
                )
            case "not_refuted":
                return (
                    f"The evidence does not contradict {self.claim}. This is not a proof: a "
                    "violation in the blind spot below may have gone unnoticed."
                )
            case "nothing_measured":
                return f"The runs do not measure {self.claim}{self._unmeasured}."
        reason = "" if self.error is None else f"It {self.error.sentence}. "
        return f"{reason}There is no verdict on {self.claim}."

    def plot(self, ax: Axes | None = None) -> Axes:
        r"""Plot the claimed epsilon, and the values of epsilon that the audit rules out.

        A claim with several points has a row for each tested point. ``ax`` are the matplotlib axes,
        by default those of a new figure. Returns the axes.

        Raises :class:`InvalidParameter` if matplotlib is missing or no point was tested.
        """
        from audit.report.figures import plot_points

        rows = [(*point, row.epsilon_lower) for point, row in self.hardest().items()]
        if isinstance(self.claim, Claim):
            proven = None if self.exact is None else self.exact.epsilon.lower_float
            rows = [(*self.claim.exact, self.epsilon_lower if proven is None else proven)]
        if not rows:
            raise InvalidParameter("plot", ABSENT, "no point of the claim was tested")
        return plot_points(rows, ax, title=f"{self.target}: {self.headline}")

    def summary(self) -> Iterator[tuple[str, object]]:
        yield "claim", f"{self.claim} ({self.claim.to_json()['relation']})"
        listed = self.pairs or (self.pair,)
        for i, (a, b) in enumerate(listed, 1):
            both = Markup("A = {}, B = {}").format(code(as_json(a)), code(as_json(b)))
            yield f"pair {i}" if len(listed) > 1 else "pair", both
        rows = (*self._datasets(), *self._how())
        yield from (row for row in rows if row[0] not in {"pair", "search", "repeat"})

    def key_sections(self) -> Iterator[Section]:
        if isinstance(self.witness, Witness):
            refutes = self.verdict not in {"not_refuted", "nothing_measured"}
            yield _sampled_witness(self.witness, self.leak if refutes else None, refutes=refutes)
        elif self.witness is not None:
            yield _proven_witness(self.witness)

    def sections(self) -> Iterator[Section]:
        yield from self.key_sections()
        yield from _pictures(self)
        yield from _tables(self)

    def cases(self) -> Iterator[Case]:
        found = VERDICTS[self.verdict]
        ended = self.interrupted and found.exit_code == 0
        yield Case(
            target=self.target,
            name=str(self.claim),
            rule="dpcore-audit",
            outcome="error" if ended else outcome_of(found.exit_code),
            message=f"{found.words}: {self.statement().about}",
            detail=f"{self.sentence}\n\n{self}",
        )
        for finding in self.findings:
            yield finding.case(self.target)

    # -- rows of the statement --------------------------------------------------------------------

    def _datasets(self) -> Iterator[tuple[str, str]]:
        a, b = (cut(json.dumps(dataset, default=str), _SHOWN) for dataset in self.pair)
        which = f"{self.pairs.index(self.pair) + 1} of {len(self.pairs)}: " if self.pairs else ""
        yield "pair", f"{which}A = {a}, B = {b} ({self.claim.to_json()['relation']})"
        if self.search is not None:
            yield "search", f"found by {self.search.runs:,} further runs in {self.search.space}"
        delta = f" at delta = {format_rational(self.at_delta)}"
        at = delta if self.outcomes or self.at_delta else ""
        if self.exact is not None:
            yield "epsilon", f"{format_enclosure(self.exact.epsilon)} on this pair{at} (proven)"
            yield "delta", f"{format_enclosure(self.exact.delta)} at the claimed epsilon (proven)"
        # With two layers the proven bound is reported, unless only the runs refute.
        if self.runs and (self.exact is None or isinstance(self.witness, Witness)):
            name = "epsilon" if self.exact is None else "sampled"
            sure = confidence(self.alpha)
            yield name, f"at least {down(self.epsilon_lower)}{at}, with {sure} confidence"
            if (why := self.below_claim) is not None:
                yield "bound", why
        if self.runs:
            weight = evidence(self.alpha, p_value=self.p_value, e_value=self.e_value)
            yield "evidence", f"{weight}. If the claim were true, {self._refutals}"

    def _findings(self) -> Iterator[tuple[str, str]]:
        # The HTML page has separate sections for these rows.
        if self.verdict == "refuted":
            yield from self.witness_rows()
        if self.outcomes:
            yield "tests", _tested(self.outcomes, pairs=bool(self.pairs))
        if self.fit is not None:
            yield "fit", _fitted(self.fit)
        for finding in self.findings:
            yield _SEVERITIES[finding.severity], f"{finding.statement} [{finding.kind}]"
        for each in self.baselines:
            bound = "" if each.epsilon_lower is None else f"{down(each.epsilon_lower)} "
            yield "compare", f"{each.name}: {bound}{f'({each.says})' if bound else each.says}"

    def witness_rows(self) -> Iterator[tuple[str, str]]:
        r"""The witness of a refutation and its meaning, as rows of :meth:`statement`."""
        if self.witness is not None:
            yield "witness", str(self.witness)
        if (why := self.leak) is not None:
            yield "leak", why
        found = [row.epsilon_lower for row in self.outcomes if cause_of(row.feature) == "values"]
        if self.refuted_by == "floating-point" and found:
            yield "values", f"not refuted without the leak; epsilon at least {down(max(found))}"
        if isinstance(self.witness, Witness) and self.witness.score is not None:
            yield "score", _scored(self.witness.score)

    def _how(self) -> Iterator[tuple[str, str]]:
        # The runs, their blind spot, and the basis of the verdict.
        if self.error is not None:
            yield "error", self.error.sentence
        if self.runs:
            yield "runs", f"{self.runs:,}: {self.stopped}"
            yield "blind spot", self.blind_spot
            if self.verdict == "not_refuted":
                time = ", and the time of a call (--feature time)"
                yield "not tested", f"other pairs of datasets{time * ('time' not in self.features)}"
        for layer in self.layers:
            if layer.layer in {"exact", "replay"}:
                yield layer.layer, layer.proves
        if self.seed is not None and self.runs:
            only = " (repeats the draws of the audit, but not those of the target)"
            yield "repeat", f"--seed {self.seed}{'' if self.repeatable else only}"

    # -- sentences --------------------------------------------------------------------------------

    @property
    def _refutals(self) -> str:
        # A phrase that states how many audits of a true claim may refute the claim.
        cases = format_share(rational("alpha", self.alpha), 6)
        return f"at most {cases} such audits would give REFUTED (independent runs)"

    @property
    def below_claim(self) -> str | None:
        r"""An explanation if ``epsilon_lower`` is not above the refuted epsilon, otherwise None."""
        point = self.outcomes[self.row].claim if self.outcomes else self.claim.points[0]
        if self.verdict != "refuted" or not self.runs or self.epsilon_lower > point.exact[0]:
            return None
        epsilon = format_rational(point.exact[0])
        return (
            f"not above the refuted epsilon = {epsilon}: the bound is the last epsilon of a grid "
            f"before the first one that is not refuted; the test of the claim itself shows that "
            f"epsilon exceeds {epsilon}, with {confidence(self.alpha)} confidence"
        )

    @property
    def blind_spot(self) -> str:
        r"""Describe the violations that may have gone unnoticed; probabilities are rounded up."""
        if self.verdict == "nothing_measured":
            return f"everything{self._unmeasured}"
        if self.unresolved is not None:
            return f"not known: {self.unresolved}"
        if not math.isfinite(self.resolution):
            return "everything: the runs are too few to refute anything reliably"
        cases = format_share(self.resolution)
        more = unseen(self.coverage)
        return f"a revealing output in fewer than {cases} runs could have gone unnoticed{more}"

    @property
    def _unmeasured(self) -> str:
        first = next(iter(unmeasured_pairs(self.coverage)), None)
        several = any(each.pair for each in self.coverage)
        where = f" on pair {first.pair + 1}" if first and several else ""
        return f"{where}: {first.reason if first else 'no run was drawn'}"

    @property
    def leak(self) -> str | None:
        r"""Describe the leak through time or floating point that the witness shows, or None."""
        match cause_of(self.witness.feature if isinstance(self.witness, Witness) else None):
            case "time":
                return (
                    "the time of a call on this machine, not the output. A difference of "
                    "nanoseconds is enough: even Python's sum takes longer for some lists than for "
                    "others. To audit the output alone: --feature identity"
                )
            case "floating-point":
                return (
                    "the lowest bits of the output. In floats they come from the floating-point "
                    "representation of the noise, not from its scale. Rounding the output does not "
                    "fix this; sample integer noise instead: value + "
                    "dpcore.DiscreteLaplace(scale=sensitivity / epsilon).sample(). To audit the "
                    "values alone: --floats ignore (floats='ignore' in Python)"
                )
        return None


def _tested(outcomes: Sequence[Outcome], *, pairs: bool) -> str:
    # The number of refuting tests and the first ones; ``pairs``: whether to name the pair.
    refuted = [outcome for outcome in outcomes if outcome.refuted]
    named = [
        str(outcome.claim)
        + (f" on pair {outcome.pair + 1}" if pairs else "")
        + (f" by {outcome.feature}" if outcome.feature is not None else "")
        for outcome in refuted[:_NAMED]
    ]
    more = ", ..." if len(refuted) > _NAMED else ""
    listed = f": {'; '.join(named)}{more}" if named else ""
    return f"{len(refuted)} of {len(outcomes)} refuted{listed}"


def _fitted(report: FitReport) -> str:
    from dpcore.parse_noise import write_noise  # imports every law

    law, runs = write_noise(report.law), f"{report.runs:,} draws"
    if report.verdict == "refuted":
        return f"{runs} do not follow the distribution {law}: {report.witness}"
    if report.e_value is not None:
        return f"{runs}, e-value {down(report.e_value, 3)} against the law {law}"
    return f"{runs}, p-value {format_p_value(report.p_value or 0.0)} for the law {law}"


def _scored(score: dict[str, Any]) -> str:
    # A phrase on the training and the main columns of a learned score.
    right = "" if score["accuracy"] is None else f", right on {score['accuracy']:.1%} of new runs"
    most = ", ".join(f"{each['column']} ({each['share']:.0%})" for each in score["most"])
    return f"learned from {score['learned_from']:,} earlier runs{right}; mainly {most}"


# -- sections of the page -------------------------------------------------------------------------


def _sampled_witness(found: Witness, why: str | None, *, refutes: bool) -> Section:
    note = (
        "The event was fixed by earlier runs, and counted on later ones. "
        f"{'It' if refutes else 'It does not refute the claim; it'} points to dataset "
        f"{found.world}. The ratio of the shares is not a bound: the bound is the epsilon above."
    )
    if found.score is not None:
        note += f" The score was {_scored(found.score)}."
    if why is not None:
        note += f" It reads {why}."
    counts = (("A", found.inside_a, found.runs_a), ("B", found.inside_b, found.runs_b))
    shares = [f"{down(Fraction(100 * inside, n), 3)}%" if n else "" for _, inside, n in counts]
    return Section(
        title="Witness",
        copied=copied(replace(found, event=shortened(found.event, _EVENT))),
        id="witness",
        columns=("dataset", "runs in the event", "runs", "share"),
        rows=[
            (name, f"{inside:,}", f"{runs:,}", share)
            for (name, inside, runs), share in zip(counts, shares, strict=True)
        ],
        note=copied(note),
    )


def _proven_witness(found: ExactWitness) -> Section:
    return Section(
        title="Witness",
        copied=copied(found),
        id="witness",
        columns=("dataset", "probability (proven)"),
        rows=[
            ("A", format_enclosure(found.probability_a)),
            ("B", format_enclosure(found.probability_b)),
        ],
        note=f"The event that violates the claim most; it points to dataset {found.world}.",
    )


def _pictures(report: AuditReport) -> Iterator[Section]:
    if report.histogram is not None:
        yield _histogram(report.histogram, several=len(report.pairs) > 1)
    if report.curve or len({row.claim.exact for row in report.outcomes}) > 1:
        from audit.report.figures import curve_figure

        yield Section(
            title="The claimed curve",
            svg=curve_figure(report.curve, [*report.hardest().values()]),
            note="A point is refuted if the measured epsilon at its delta exceeds its epsilon. All "
            f"bounds hold together with {confidence(report.alpha)} confidence.",
        )
    elif isinstance(report.claim, Claim) and (report.runs or report.exact):
        yield _claimed_point(report, report.claim)
    if report.tradeoff_band is not None:
        yield _tradeoff(report.tradeoff_band)
    if report.trace is not None and report.trace.points:
        yield _trace(report.trace)


def _histogram(found: Histogram, *, several: bool) -> Section:
    from audit.report.figures import cell_name, histogram_figure

    note = f"All runs on pair {found.pair + 1}." if several else "All runs."
    if found.event is not None:
        note += (
            " Filled bars: runs in the event of the witness; open bars: the others. The witness "
            "itself is counted on fewer runs, those that were not used to choose it."
        )
    return Section(
        title="Outputs on both datasets",
        svg=histogram_figure(found),
        note=note,
        folded="The counts",
        columns=("output", "A", "B", "A, in the witness", "B, in the witness"),
        rows=[
            (cell_name(c), *map("{:,}".format, (c.count_a, c.count_b, c.inside_a, c.inside_b)))
            for c in found.bins
        ],
    )


def _claimed_point(report: AuditReport, claim: Claim) -> Section:
    from audit.report.figures import line_figure

    epsilon, delta = claim.exact
    proven = None if report.exact is None else report.exact.epsilon
    sure = f"{confidence(report.alpha)} confidence" if proven is None else "proven"
    bound = report.epsilon_lower if proven is None else proven.lower_float
    words = f"at least {down(bound)}" if proven is None else format_enclosure(proven)
    out = "every smaller epsilon"
    if bound == math.inf:
        words, out = "infinite: no finite epsilon holds", "every epsilon"
    at = f" at delta = {format_rational(delta)}" if delta else ""
    return Section(
        title="Claimed and measured" if proven is None else "Claimed and proven",
        svg=line_figure(epsilon, bound, words),
        note=f"Striped: {out} is ruled out{at} ({sure}).",
    )


def _tradeoff(band: TradeoffBand) -> Section:
    from audit.report.figures import tradeoff_figure

    return Section(
        title="The trade-off curve",
        svg=tradeoff_figure(band.points, band.claimed),
        note=(
            "The least errors of any test of a single run. The true curve lies below the measured "
            f"one everywhere, with {confidence(band.alpha)} confidence; if the measured curve is "
            "below the claimed one anywhere, the claim does not hold."
        ),
        folded="The corners",
        columns=("type I error", "type II error at most"),
        rows=[(up(x, 4), up(y, 4)) for x, y in band.points],
    )


def _trace(found: Trace) -> Section:
    from audit.report.figures import trace_figure

    sure = f"with {confidence(found.alpha)} confidence"
    return Section(
        title="The bound over the runs",
        svg=trace_figure(found),
        note=f"Each single point is a lower bound {sure}, from that many runs."
        if found.holds == "each"
        else f"All points are simultaneous lower bounds, {sure}.",
        folded="The bounds",
        columns=("runs", "epsilon at least"),
        rows=[(f"{runs:,}", down(bound)) for runs, bound in found.points],
    )


def _tables(report: AuditReport) -> Iterator[Section]:
    if len(report.outcomes) > 1:
        weight = "p-value" if report.outcomes[0].e_value is None else "e-value"
        yield Section(
            title="All tests",
            columns=("pair", "feature", "epsilon", "delta", weight, "epsilon at least", "refuted"),
            rows=list(map(_outcome, report.outcomes)),
            note="The tests share the false-alarm level of the audit; each value refers to its own "
            "test.",
        )
    if report.fit is not None:
        yield Section(
            title="Does the sampler follow its claimed distribution?",
            facts=[
                (name.replace("_", " "), value if isinstance(value, str) else as_json(value))
                for name, value in report.to_json()["fit"].items()
                if value is not None
            ],
        )
    if report.findings:
        yield Section(title="Replay findings", facts=list(map(_finding, report.findings)))
    if report.baselines:
        yield Section(
            title="Other methods",
            note="Only for comparison: these numbers do not affect the verdict.",
            columns=("method", "epsilon", "remark", "a confidence bound"),
            rows=list(map(_baseline, report.baselines)),
        )
    if report.search is not None:
        found = as_json(report.search.to_json(), indent=2)
        yield Section(title="Search for a pair", copied=copied(found))
    if report.layers:
        sure = f"All bounds hold with {confidence(report.alpha)} confidence."
        yield Section(
            note=sure if report.runs else "",
            columns=("layer", "method", "meaning of its result"),
            rows=[(each.layer, each.method, each.proves) for each in report.layers],
            folded="Method: the layers, and the meaning of their results",
        )


def _outcome(row: Outcome) -> tuple[object, ...]:
    weight = "none" if row.p_value is None else format_p_value(row.p_value)
    return (
        str(row.pair + 1),
        "outputs themselves" if row.feature is None else code(row.feature),
        *map(format_rational, row.claim.exact),
        weight if row.e_value is None else down(row.e_value, 3),
        down(row.epsilon_lower),
        _STRONG.format("refuted") if row.refuted else "no",
    )


def _baseline(row: BaselineFinding) -> tuple[object, ...]:
    bound = "none" if row.epsilon_lower is None else down(row.epsilon_lower)
    return row.name, bound, row.says, "yes" if row.valid else _STRONG.format("no")


def _finding(found: Finding) -> tuple[str, Markup]:
    kind = Markup('<span class="kind">[{}]</span>').format(copied(found.kind))
    statement = Markup("{} {}").format(copied(found.statement), kind)
    if found.witness:
        shown = copied(as_json(found.to_json()["witness"], indent=2))
        statement += Markup('<pre class="copy">{}</pre>').format(shown)
    return found.named, statement
