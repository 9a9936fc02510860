r"""The exact layer of an audit: prove or refute a claim about a target with a known output law.

The output law is additive noise or a list of probabilities. The verdict on this law is proven, not
estimated. Whether the code follows the law is tested by the sample and fit layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from audit.claims import Claim, LayerRun
from audit.known_laws.compare_two_laws import Decision, decide
from audit.report.audit_record import ExactFinding, ExactWitness
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.statistical_tests.sample_outcome import Outcome, versions
from audit.targets.target import KnownLaw, Law, Shifted
from audit.verdict_words_and_exit_codes import VerdictWord
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import rational
from dpcore.parse_noise import write_noise

Shifts: TypeAlias = list[tuple[object, ...]]


def prove(target: KnownLaw, plan: Plan) -> AuditReport:
    r"""Decide the claim exactly, on all pairs of datasets of the plan and in both directions.

    Every claimed point is decided on every pair, and a violation of one point refutes the claim. If
    there is no violation, a claim of one point is proven. A claimed privacy curve has more points
    than can be tested. A curve is proven only if it is that of the target's own noise, with a
    sensitivity that equals the distance of the datasets of every pair. Otherwise the verdict is
    "not_refuted". Raises :class:`PrecisionExhausted` if a point cannot be decided.
    """
    decided: list[_Row] = []
    shifts: Shifts = []  # of both laws for each pair; empty for listed laws
    for place, pair in enumerate(plan.pairs):
        laws = target.laws(pair)  # once: listing an exact law may take a second
        decided += [_decided(laws, place, point) for point in plan.claim.points]
        shifts.append(tuple(law.shift for law in laws if isinstance(law, Shifted)))
    refuted = next((row for row in decided if not row.kept), None)
    # If nothing is refuted, report the row whose true epsilon is closest to the claimed epsilon.
    worst = refuted or max(decided, key=lambda row: row.needed.upper - row.point.exact[0])
    verdict: VerdictWord = "refuted"
    if refuted is None:
        whole = isinstance(plan.claim, Claim) or _is_its_own(target, plan, shifts)
        verdict = "proven" if whole else "not_refuted"
    return AuditReport(
        target=target.spelling,
        claim=plan.claim,
        pair=plan.pairs[worst.pair],
        pairs=plan.pairs if len(plan.pairs) > 1 else (),
        verdict=verdict,
        epsilon_lower=worst.needed.lower_float,
        at_delta=worst.point.exact[1],
        alpha=rational("alpha", plan.alpha),
        runs_by_world=(0, 0),
        stopped="no runs: both laws are known",
        witness=worst.witness,
        outcomes=tuple(row.outcome for row in decided) if len(decided) > 1 else (),
        row=decided.index(worst),
        exact=ExactFinding(delta=worst.decision.delta.worse, epsilon=worst.needed),
        layers=(_layer(target, shifts, verdict),),
        versions=versions(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    # The decision on one claimed point for one pair; ``needed`` encloses the least epsilon at the
    # claimed delta, in the worse direction.
    pair: int
    decision: Decision
    needed: Enclosure

    @property
    def point(self) -> Claim:
        return self.decision.claim

    @property
    def kept(self) -> bool:
        return self.decision.verdict == "proven"

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            claim=self.point,
            pair=self.pair,
            epsilon_lower=self.needed.lower_float,
            refuted=not self.kept,
        )

    @property
    def witness(self) -> ExactWitness | None:
        event = self.decision.event
        if event is None:
            return None
        of_a = self.decision.direction == "p_against_q"
        in_a, in_b = (event.p, event.q) if of_a else (event.q, event.p)
        return ExactWitness(
            event=event.words, world="A" if of_a else "B", probability_a=in_a, probability_b=in_b
        )


def _decided(laws: tuple[Law, Law], place: int, point: Claim) -> _Row:
    found = decide(*laws, point)
    epsilon, delta = point.exact
    if found.verdict == "undecided":
        raise PrecisionExhausted(
            f"delta({epsilon}) is too close to the claimed delta = {delta} to be compared with it"
        )
    if found.epsilon is None:
        raise PrecisionExhausted(
            f"epsilon({delta}) is discontinuous at this delta, and no precision decides which "
            f"side applies"
        )
    return _Row(pair=place, decision=found, needed=found.epsilon.worse)


def _is_its_own(target: KnownLaw, plan: Plan, shifts: Shifts) -> bool:
    # Whether the claimed curve is the curve of the target's noise for the shift of every pair.
    if target.noise is None:
        return False
    return all(
        isinstance(a, int)
        and isinstance(b, int)
        and str(plan.claim) == f"{write_noise(target.noise)}@{abs(a - b)}"
        for a, b in shifts
    )


def _layer(target: KnownLaw, shifts: Shifts, verdict: VerdictWord) -> LayerRun:
    first = shifts[0]
    if verdict == "refuted":
        proves = "one probability exceeds e^epsilon times the other + delta, by proven bounds"
    elif verdict == "not_refuted":
        proves = "the tested points hold; nothing is proven about the curve between them"
    elif len(shifts) > 1:
        proves = "for every event, on each of these pairs"
    elif not first:
        proves = "for every event, on this pair"
    elif isinstance(a := first[0], int) and isinstance(b := first[1], int):
        proves = f"for every event, and every pair of integers at distance <= {abs(a - b)}"
    else:
        proves = "for every event, and every pair with no larger change in any coordinate"
    return LayerRun(
        layer="exact", method="enclosed hockey-stick divergence", proves=proves + target.about
    )


def join_layers(proven: AuditReport, sampled: AuditReport) -> AuditReport:
    r"""Merge the report of the exact layer with that of the sample layer, for the same claim.

    The claim is refuted if either layer refutes it. Otherwise, the verdict is that of the exact
    layer. The bound on epsilon comes from the exact layer. If only the sample layer refutes the
    claim, the bound comes from the sample layer, or is the larger of the two bounds if they are for
    the same pair and delta. If the target failed, the merged report contains the error.
    """
    if sampled.error is not None:
        return replace(
            sampled, exact=proven.exact, layers=(*proven.layers, *sampled.layers), witness=None
        )
    first, second = proven, sampled
    if sampled.verdict == "refuted" and proven.verdict != "refuted":
        first, second = sampled, proven
    bound = first.epsilon_lower
    if first is sampled and (first.pair, first.at_delta) == (second.pair, second.at_delta):
        bound = max(bound, second.epsilon_lower)
    own = proven.outcomes
    rows: tuple[Outcome, ...] = ()
    if own or sampled.outcomes:
        own = own or (
            Outcome(
                claim=proven.claim.points[0],
                epsilon_lower=proven.epsilon_lower,
                refuted=proven.verdict == "refuted",
            ),
        )
        rows = (*own, *sampled.outcomes)
    return replace(
        sampled,
        verdict=first.verdict,
        pair=first.pair,
        witness=first.witness,
        epsilon_lower=bound,
        at_delta=first.at_delta,
        outcomes=rows,
        row=first.row + (len(own) if rows and first is sampled else 0),
        exact=proven.exact,
        layers=(*proven.layers, *sampled.layers),
    )
