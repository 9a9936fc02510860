r"""The report of an audit by canaries: a frozen record, its sentences and its JSON.

JSON, schema ``dpcore-canaries/1``. Every key is always there; null where it does not apply.

    schema         "dpcore-canaries/1"
    claim          {"epsilon", "delta", "relation"} as in dpcore-audit/2; of a curve {"claim", ...}
    verdict        "refuted", "not_refuted" or "nothing_measured"
    epsilon_lower  a lower bound on epsilon at at_delta, rounded down
    at_delta       exact, as text
    mu_lower       of a claim gdp=MU: the training is mu-Gaussian-DP for no smaller mu
    alpha          the false-alarm level; of the verdict and of each bound by itself
    p_value        of the claim, rounded up
    canaries       {"included", "excluded"}: counts
    guesses        how many canaries were guessed
    guess          "both", "included" or "excluded": what was guessed of them
    right          how many guesses were right
    method         the theorem that the verdict rests on
    assumptions    a list of sentences: what no test of the scores can see
    needed         how many canaries could refute the claim, if all guesses are right; null where
                   these can
    histogram      [[low, high, included, excluded]]: counts of scores
    trace          [[guesses, epsilon_lower]] at other numbers of guesses, where it was asked for;
                   only the number fixed beforehand gives a bound
    seed           of the order among equal scores
    warnings       a list of sentences
    versions       {"dpcore", "python", "numpy"}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from audit.claims.claim import Claim, shown
from audit.claims.curve_claim import CurveClaim
from audit.claims.levels import evidence, level_upper
from audit.claims.verdicts import VERDICTS
from audit.report.sentences import confidence
from audit.wording.lines import Told, out_of
from audit.wording.report import Report
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from accounting.claims.guarantee import Guarantee

__all__ = ["SCHEMA", "CanaryReport", "CanaryVerdict", "Cell"]

SCHEMA: Final = "dpcore-canaries/1"

CanaryVerdict: TypeAlias = Literal["refuted", "not_refuted", "nothing_measured"]

PURE: Final = "binomial tail of one run: Steinke, Nasr and Jagielski 2023"
CURVE: Final = "f-DP in one run: Mahloujifar, Melis and Chaudhuri 2024"
ASSUMED: Final = (
    "each canary was included by a fair coin of its own, tossed before the training",
    "the coins are independent of each other, of the canaries and of the order of scores",
    "the scores come from one run of what is claimed; coins entered them through it alone",
    "one canary is one unit of the claim's neighbouring relation",
    "the number of guesses was fixed before scores and coins were seen together",
)
_GUESSED: Final = {
    "both": "the highest scores guessed included, as many lowest ones excluded",
    "included": "the highest scores guessed included",
    "excluded": "the lowest scores guessed excluded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    r"""How many scores of included and excluded canaries lie between two numbers."""

    low: float
    high: float
    included: int
    excluded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReport(Report):
    r"""The report of an audit by canaries: the verdict on a claim and the bound on epsilon."""

    claim: Claim | CurveClaim | Guarantee
    relation: Relation
    verdict: CanaryVerdict
    epsilon_lower: float
    at_delta: Fraction
    alpha: Fraction
    p_value: float
    included: int
    excluded: int
    guesses: int
    guess: str
    right: int
    seed: int
    mu_lower: float | None = None
    needed: int | None = None
    constant: bool = False
    histogram: tuple[Cell, ...] = ()
    trace: tuple[tuple[int, float], ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def refuted(self) -> bool:
        r"""Whether the claim is refuted."""
        return self.verdict == "refuted"

    @property
    def exit_code(self) -> int:
        r"""0 not refuted, 1 refuted, 4 nothing measured."""
        return VERDICTS[self.verdict].exit_code

    @property
    def method(self) -> str:
        r"""The theorem that the verdict rests on."""
        return PURE if isinstance(self.claim, Claim) and not self.at_delta else CURVE

    @property
    def warnings(self) -> tuple[str, ...]:
        r"""What a reader has to know before the numbers."""
        found = []
        if self.constant:
            found.append("all scores are equal: they say nothing about any canary")
        if self.verdict == "nothing_measured" and not self.constant:
            total = self.included + self.excluded
            more = "no number of canaries" if self.needed is None else f"{self.needed:,} canaries"
            found.append(
                f"{total:,} canaries cannot refute {self.claim} even if all guesses are right: "
                f"{more} could"
            )
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        claim = self.claim.to_json()
        return {
            "schema": SCHEMA,
            "claim": claim if isinstance(claim, dict) else {"claim": claim},
            "verdict": self.verdict,
            "epsilon_lower": self.epsilon_lower,
            "at_delta": write_rational(self.at_delta),
            "mu_lower": self.mu_lower,
            "alpha": level_upper(self.alpha),
            "p_value": self.p_value,
            "canaries": {"included": self.included, "excluded": self.excluded},
            "guesses": self.guesses,
            "guess": self.guess,
            "right": self.right,
            "method": self.method,
            "assumptions": list(ASSUMED),
            "needed": self.needed,
            "histogram": [[c.low, c.high, c.included, c.excluded] for c in self.histogram],
            "trace": [list(point) for point in self.trace],
            "seed": self.seed,
            "warnings": list(self.warnings),
            "versions": self.versions,
        }

    def told(self) -> Told:
        words = "does not keep" if self.refuted else "tested against"
        return Told(
            verdict=VERDICTS[self.verdict].words,
            about=f"the training {words} {self.claim}",
            rows=tuple(self._rows()),
            style=VERDICTS[self.verdict].style,
        )

    def _repr_html_(self) -> str:
        # What a notebook shows of it.
        from audit.report.card import card

        return card("one run of a training", self.verdict, self.told(), self.warnings)

    def _rows(self) -> Iterator[tuple[str, str]]:
        total = self.included + self.excluded
        sure = f"with {confidence(self.alpha)} confidence"
        at = f" at delta = {shown(self.at_delta)}" if self.at_delta else ""
        yield "epsilon", f"at least {down(self.epsilon_lower)}{at}, {sure}"
        if self.mu_lower is not None:
            yield "Gaussian DP", f"for no mu below {down(self.mu_lower)}, {sure}"
        sides = f"{self.included:,} included, {self.excluded:,} excluded"
        yield "canaries", f"{total:,}: {sides} ({self.relation.value})"
        yield "guesses", f"{self.right:,} of {self.guesses:,} right: {_GUESSED[self.guess]}"
        cases = out_of(self.alpha, 6)
        weight = evidence(self.alpha, p_value=self.p_value, e_value=None)
        alarms = f"If the claim were true, at most {cases} such audits would say REFUTED"
        yield "evidence", f"{weight}. {alarms}"
        yield "method", self.method
        for sentence in ASSUMED:
            yield "assumed", sentence
        yield "repeat", f"--seed {self.seed}"
