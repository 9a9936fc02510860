r"""The report of an audit: its record with its verdict, its sentences and its views."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from audit.claims.claim import Claim, format_rational
from audit.claims.verdicts import VERDICTS, VerdictWord, evidence
from audit.formats.junit_and_sarif import Case, outcome_of
from audit.formats.result import Statement, format_enclosure
from audit.formats.shorten import cut
from audit.report.audit_record import AuditRecord
from audit.report.sentences import (
    FAULTS,
    below_claim,
    blind_spot,
    compared,
    confidence,
    fitted,
    leak,
    meaning,
    not_tested,
    refutals,
    repeated,
    scored,
    tested,
    values_alone,
)
from audit.statistical_tests.event import Witness
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from audit.formats.html_page import Section

_KEEPS: Final[dict[VerdictWord | None, str]] = {"refuted": "violates", "proven": "satisfies"}
_SEVERITIES: Final = {"error": "fault", "warning": "warning", "note": "note"}
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport(AuditRecord):
    r"""The report of an audit: its verdict on a claim, bounds, and the witness if it is refuted.

    ``witness`` and ``epsilon_lower`` belong to ``pair``; ``pairs`` are all pairs if there are
    several.

    >>> from audit.claims.claim import Claim
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
            rows=(*self.datasets(), *self.finding_rows(), *self.how()),
            style="bold red" if faults else VERDICTS[self.verdict].style,
        )

    @property
    def sentence(self) -> str:
        return meaning(
            self.verdict,
            str(self.claim),
            self.alpha,
            runs=self.runs,
            error=self.error,
            coverage=self.coverage,
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        r"""Plot the claimed epsilon, and the values of epsilon that the audit rules out.

        A claim with several points has a row for each tested one. ``ax`` are the matplotlib axes,
        by default those of a new figure; they are returned.

        Raises :class:`InvalidParameter` if matplotlib is missing, or no point was tested.
        """
        from audit.report.figures import plot_points

        rows = [(*point, row.epsilon_lower) for point, row in self.hardest().items()]
        if isinstance(self.claim, Claim):
            proven = None if self.exact is None else self.exact.epsilon.lower_float
            rows = [(*self.claim.exact, self.epsilon_lower if proven is None else proven)]
        if not rows:
            raise InvalidParameter("plot", ABSENT, "needs a tested point of the claim")
        return plot_points(rows, ax, title=f"{self.target}: {self.headline}")

    def summary(self) -> Sequence[tuple[str, object]]:
        from audit.report.html_sections import pairs

        own = [*self.datasets(), *self.how()]
        return [*pairs(self), *(row for row in own if row[0] not in {"pair", "search", "repeat"})]

    def key_sections(self) -> Iterator[Section]:
        from audit.report.html_sections import witness

        return witness(self)

    def sections(self) -> Iterator[Section]:
        from audit.report.html_sections import sections

        return sections(self)

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

    def datasets(self) -> Iterator[tuple[str, str]]:
        r"""The tested datasets and the bound: rows of :meth:`statement`."""
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
            yield "evidence", f"{weight}. If the claim were true, {refutals(self.alpha)}"

    def finding_rows(self) -> Iterator[tuple[str, str]]:
        r"""Further findings as rows; the HTML page has separate sections for them."""
        if self.witness is not None and self.verdict == "refuted":
            yield "witness", str(self.witness)
            sampled = self.witness if isinstance(self.witness, Witness) else None
            if sampled is not None and (why := leak(sampled.feature)) is not None:
                yield "leak", why
            if self.refuted_by == "floating-point" and (why := values_alone(self.outcomes)):
                yield "values", why
            if sampled is not None and sampled.score is not None:
                yield "score", scored(sampled.score)
        if self.outcomes:
            yield "tests", tested(self.outcomes, pairs=bool(self.pairs))
        if self.fit is not None:
            yield "fit", fitted(self.fit)
        for finding in self.findings:
            yield _SEVERITIES[finding.severity], f"{finding.statement} [{finding.kind}]"
        for baseline in self.baselines:
            yield "compare", f"{baseline.name}: {compared(baseline)}"

    def how(self) -> Iterator[tuple[str, str]]:
        r"""The runs, their blind spot, and the basis of the verdict."""
        if self.error is not None:
            yield "error", self.error.sentence
        if self.runs:
            yield "runs", f"{self.runs:,}: {self.stopped}"
            yield "blind spot", self.blind_spot
            if self.verdict == "not_refuted":
                yield "not tested", not_tested(self.features)
        for layer in self.layers:
            if layer.layer in {"exact", "replay"}:
                yield layer.layer, layer.proves
        if self.seed is not None and self.runs:
            yield "repeat", repeated(self.seed, repeatable=self.repeatable)

    @property
    def below_claim(self) -> str | None:
        r"""Why the bound of a refuted claim does not exceed the claim; None if it does."""
        if self.verdict != "refuted" or not self.runs:
            return None
        point = self.outcomes[self.row].claim if self.outcomes else self.claim.points[0]
        return below_claim(self.epsilon_lower, point, self.alpha)

    @property
    def blind_spot(self) -> str:
        r"""A sentence on the violations that these runs could have missed."""
        return blind_spot(
            self.resolution, self.coverage, verdict=self.verdict, unresolved=self.unresolved
        )
