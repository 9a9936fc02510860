r"""The report of a fit: a frozen record whose fields say what they mean, and its sentences.

``docs/schemas/dpcore-fit-1.json`` is the schema that follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from audit.claims.levels import evidence, level_upper
from audit.claims.verdicts import VERDICTS
from audit.errors import TargetFailed
from audit.wording.result import Result, Told, computed, fact, out_of
from dpcore.noise import Noise
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import up
from dpcore.spelling import write_noise

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

    event: str = fact("what was counted")
    count: int = fact("draws in it")
    draws: int
    expected: tuple[int, int] = fact("[least, most]")
    probability: tuple[float, float] = fact("[lower, upper]")

    def __str__(self) -> str:
        low, high = self.expected
        usual = f"{low:,} to {high:,}" if low < high else f"{low:,}"
        return f"{self.event}: {self.count:,} of {self.draws:,} draws, {usual} expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport(Result):
    r"""The report of a fit: does the sampler draw from the claimed law?

    >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
    >>> report = FitReport(
    ...     target="f", law=DiscreteLaplace(scale=1), verdict="refuted", alpha="0.05", runs=5
    ... )
    >>> report.to_json()["law"], report.exit_code
    ('discrete-laplace:scale=1', 1)
    """

    SCHEMA: ClassVar[str] = SCHEMA

    target: str = fact("what was fitted")
    law: Noise = fact(
        'the claimed law as text, e.g. "discrete-laplace:scale=1"', write=write_noise, kind="str"
    )
    verdict: FitVerdict | None = fact(
        "null when the target failed", kind="Literal['refuted', 'not_refuted'] | None"
    )
    alpha: RationalLike = fact("the false-alarm level", write=level_upper, kind="float")
    p_value: float | None = fact("of the law, for a number of draws fixed beforehand", default=None)
    e_value: float | None = fact(
        'of the law, for --sequential: the largest wealth so far; "inf" where a value of '
        "probability 0 was drawn",
        default=None,
    )
    runs: int = fact("draws tested")
    stopped: str = fact("why no more were drawn", default="as many as planned")
    witness: FitWitness | None = fact(
        '{"event", "count", "expected": [least, most], "probability": [lower, upper]}',
        default=None,
    )
    resolution: float = fact(
        "a mean distance from the mean that is off by this fraction would be refuted in about 95 "
        "of 100 fits; null where no such statement is made",
        write=lambda value: value if math.isfinite(value) else None,
        kind="float | None",
        default=math.inf,
    )
    evidence: dict[str, float] = fact(
        "{name of a test: its own p-value, or its share of the wealth at the last draw}",
        default_factory=dict,
    )
    method: tuple[str, str] = fact(
        "how the draws were tested", write=lambda method: method[0], kind="str", default=FIXED
    )
    seed: int | None = fact("repeats the fit", default=None)
    error: TargetFailed | None = fact(
        '{"reason", "run"} when the target failed',
        write=lambda error: None if error is None else {"reason": error.reason, "run": error.run},
        default=None,
    )
    warnings: tuple[str, ...] = fact("a list of sentences", default=())
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @property
    @computed("what the method proves", before="seed")
    def proves(self) -> str:
        return self.method[1]

    @property
    def exit_code(self) -> int:
        r"""0 not refuted, 1 refuted, 3 the target failed."""
        return VERDICTS[self.verdict].exit_code

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
            style=VERDICTS[self.verdict].style,
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
