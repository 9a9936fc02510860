r"""The report of an audit by canaries: a frozen record whose fields say what they mean.

``docs/schemas/dpcore-canaries-1.json`` is the schema that follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from audit.claims.claim import Claim, shown
from audit.claims.curve_claim import CurveClaim
from audit.claims.levels import evidence, level_upper
from audit.claims.verdicts import VERDICTS
from audit.report.sentences import confidence
from audit.wording.result import Result, Told, computed, fact, out_of
from dpcore.mechanism import Relation
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from accounting.claims.guarantee import Guarantee
    from audit.wording.html import Section

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
    "the numbers of guesses were fixed before scores and coins were seen together",
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


def _claim(claim: Claim | CurveClaim | Guarantee) -> dict[str, Any]:
    found: Any = claim.to_json()
    return found if isinstance(found, dict) else {"claim": found}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReport(Result):
    r"""The report of an audit by canaries: the verdict on a claim and the bound on epsilon."""

    SCHEMA: ClassVar[str] = SCHEMA

    claim: Claim | CurveClaim | Guarantee = fact(
        '{"epsilon", "delta", "relation"} as in dpcore-audit/2; of a curve {"claim", ...}',
        write=_claim,
        kind="dict",
    )
    relation: Relation
    verdict: CanaryVerdict = fact(
        "of the claim", kind="Literal['refuted', 'not_refuted', 'nothing_measured']"
    )
    epsilon_lower: float = fact("a lower bound on epsilon at at_delta, rounded down")
    at_delta: Fraction = fact("exact, as text")
    mu_lower: float | None = fact(
        "of a claim gdp=MU: the training is mu-Gaussian-DP for no smaller mu", default=None
    )
    alpha: Fraction = fact(
        "the false-alarm level; of the verdict and of each bound by itself",
        write=level_upper,
        kind="float",
    )
    p_value: float = fact("of the claim, rounded up")
    included: int
    excluded: int
    guesses: int = fact("how many canaries were guessed")
    guess: str = fact('"both", "included" or "excluded": what was guessed of them')
    right: int = fact("how many guesses were right")
    tried: tuple[tuple[int, int, float], ...] = fact(
        "[[guesses, right, epsilon_lower]] of each number that shares the level; guesses, right "
        "and epsilon_lower above are those of the one that says most",
        default=(),
    )
    needed: int | None = fact(
        "how many canaries could refute the claim, if all guesses are right; null where these can",
        default=None,
    )
    constant: bool = False
    histogram: tuple[Cell, ...] = fact(
        "[[low, high, included, excluded]]: counts of scores",
        write=lambda cells: list(map(astuple, cells)),
        kind="list",
        default=(),
    )
    trace: tuple[tuple[int, float], ...] = fact(
        "[[guesses, epsilon_lower]] at other numbers of guesses, where it was asked for; only the "
        "number fixed beforehand gives a bound",
        default=(),
    )
    seed: int = fact("of the order among equal scores")
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @property
    @computed("counts", before="guesses")
    def canaries(self) -> dict[str, int]:
        r"""How many canaries were included in the training, and how many were not."""
        return {"included": self.included, "excluded": self.excluded}

    @property
    @computed("a list of sentences: what no test of the scores can see", before="needed")
    def assumptions(self) -> tuple[str, ...]:
        r"""What the verdict rests on."""
        return ASSUMED

    @property
    def refuted(self) -> bool:
        r"""Whether the claim is refuted."""
        return self.verdict == "refuted"

    @property
    def exit_code(self) -> int:
        r"""0 not refuted, 1 refuted, 4 nothing measured."""
        return VERDICTS[self.verdict].exit_code

    @property
    @computed("the theorem that the verdict rests on", before="assumptions")
    def method(self) -> str:
        r"""The theorem that the verdict rests on."""
        return PURE if isinstance(self.claim, Claim) and not self.at_delta else CURVE

    @property
    @computed("a list of sentences", before="versions")
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

    @property
    def subject(self) -> str:
        return "one run of a training"

    def sections(self) -> Iterator[Section]:
        from audit.wording.html import Section

        yield Section(
            title="Scores",
            columns=("scores from", "to", "included", "excluded"),
            rows=[
                (f"{c.low:.6g}", f"{c.high:.6g}", f"{c.included:,}", f"{c.excluded:,}")
                for c in self.histogram
            ],
        )

    def told(self) -> Told:
        words = "does not keep" if self.refuted else "tested against"
        return Told(
            verdict=VERDICTS[self.verdict].words,
            about=f"the training {words} {self.claim}",
            rows=tuple(self._rows()),
            style=VERDICTS[self.verdict].style,
        )

    def _rows(self) -> Iterator[tuple[str, str]]:
        total = self.included + self.excluded
        sure = f"with {confidence(self.alpha)} confidence"
        at = f" at delta = {shown(self.at_delta)}" if self.at_delta else ""
        yield "epsilon", f"at least {down(self.epsilon_lower)}{at}, {sure}"
        if self.mu_lower is not None:
            yield "Gaussian DP", f"for no mu below {down(self.mu_lower)}, {sure}"
        sides = f"{self.included:,} included, {self.excluded:,} excluded"
        yield "canaries", f"{total:,}: {sides} ({self.relation.value})"
        *others, last = [f"{size:,}" for size, _, _ in self.tried] or [""]
        level = f"; {', '.join(others)} and {last} guesses share the level" if others else ""
        guessed = f"{self.right:,} of {self.guesses:,} right: {_GUESSED[self.guess]}"
        yield "guesses", guessed + level
        cases = out_of(self.alpha, 6)
        weight = evidence(self.alpha, p_value=self.p_value, e_value=None)
        alarms = f"If the claim were true, at most {cases} such audits would say REFUTED"
        yield "evidence", f"{weight}. {alarms}"
        yield "method", self.method
        for sentence in ASSUMED:
            yield "assumed", sentence
        yield "repeat", f"--seed {self.seed}"
